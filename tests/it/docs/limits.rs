//! The page of limits is made from the constants in the sources whose names end in `_MAX`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::support::home;

const PAGE: &str = "docs/limits.md";

const PREFACE: &str = "\
# Limits

Milepost has a limit for everything that a client or a server can make grow: memory, numbers of calls, sizes of
messages, waiting times. Beyond a limit Milepost drops progress, or text that nobody reads; it drops no other messages,
unless a row says so. Limits that users can set are in [route-file.md](route-file.md#limits).

A test makes this page from the constants in the sources whose names end in `_MAX`: `UPDATE_EXPECT=1 cargo test --test it
limits` writes the page.
";

/// The layers, from the outermost to the core, as the page names them.
const LAYERS: [(&str, &str); 11] = [
    ("gateway", "HTTP side of `serve` (`src/gateway`)"),
    ("relay", "Connection of one client and one server (`src/relay`)"),
    ("transport", "Transports (`src/transport`)"),
    (
        "conversation",
        "Conversations of programs that embed the engine (`crates/core/src/conversation`)",
    ),
    ("policy_file", "Files of settings (`crates/core/src/policy_file`)"),
    ("progress", "Progress of calls (`crates/core/src/progress`)"),
    ("protocol", "Messages and framing (`crates/core/src/protocol`)"),
    ("observe", "Logs, metrics, traces, recordings, live calls (`src/observe`)"),
    ("config", "Route files (`src/config`)"),
    ("lab", "Tools beside the proxy (`src/lab`)"),
    ("commands", "Commands (`src/commands`)"),
];

/// One constant with the text that documents it.
struct Limit {
    name: String,
    value: String,
    file: String,
    meaning: String,
}

/// The value of an expression of numbers; `None` where it uses other constants.
fn number(expression: &str) -> Option<u64> {
    let expression = expression.trim();
    if let Some((left, right)) = expression.rsplit_once(" - ") {
        return number(left)?.checked_sub(number(right)?);
    }
    let expression = expression.strip_prefix('(').unwrap_or(expression);
    let expression = expression.strip_suffix(')').unwrap_or(expression);
    if let Some((left, right)) = expression.split_once(" << ") {
        return Some(number(left)? << number(right)?);
    }
    expression
        .split(" * ")
        .try_fold(1, |product, factor| Some(product * factor.replace('_', "").parse::<u64>().ok()?))
}

/// A duration as people write it.
fn time(expression: &str) -> Option<String> {
    let (unit, amount) = expression.strip_prefix("Duration::from_")?.split_once('(')?;
    let amount = number(amount.strip_suffix(')')?)?;
    let time = match unit {
        "secs" => Duration::from_secs(amount),
        "millis" => Duration::from_millis(amount),
        _ => return None,
    };
    Some(match (time.as_secs(), time.subsec_millis()) {
        (0, millis) => format!("{millis} ms"),
        (secs, 0) if secs % 86_400 == 0 && secs > 86_400 => format!("{} d", secs / 86_400),
        (secs, 0) if secs % 3600 == 0 => format!("{} h", secs / 3600),
        (secs, 0) if secs % 60 == 0 && secs > 60 => format!("{} min", secs / 60),
        _ => format!("{} s", time.as_secs_f64()),
    })
}

/// A count with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(number: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if number >= 1 << shift && number.is_multiple_of(1 << shift) {
            return format!("{} {unit}", number >> shift);
        }
    }
    format!("{} bytes", grouped(number))
}

fn readable(expression: &str, meaning: &str) -> String {
    if let Some(time) = time(expression) {
        return time;
    }
    let first = meaning.split(['.', ';', ':']).next().unwrap_or_default().to_lowercase();
    match number(expression) {
        Some(number) if first.contains("bytes") => bytes(number),
        Some(number) => grouped(number),
        None => format!("`{expression}`"),
    }
}

/// The limits of one source file. A constant without documentation is an error.
fn limits(file: &str, text: &str, found: &mut Vec<Limit>) {
    let mut paragraph = Vec::new();
    let mut ended = false;
    for line in text.lines() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("///") {
            ended |= comment.trim().is_empty();
            if !ended {
                paragraph.push(comment.trim());
            }
            continue;
        }
        let declaration = line.split_once("const ").map_or("", |(_, rest)| rest);
        let name = declaration.split(':').next().unwrap_or_default();
        let is_limit = name.ends_with("_MAX")
            && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        if let (true, Some((_, value))) = (is_limit, declaration.split_once(" = ")) {
            let meaning = paragraph.join(" ");
            assert!(!meaning.is_empty(), "{file}: {name} has no documentation");
            let value = value.split(';').next().unwrap_or_default();
            found.push(Limit {
                name: name.to_owned(),
                value: readable(value, &meaning),
                file: file.to_owned(),
                meaning,
            });
        }
        paragraph.clear();
        ended = false;
    }
}

/// The limits of the files in `folder`, which is in `root`.
fn read(root: &Path, folder: &Path, found: &mut Vec<Limit>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(root).unwrap().display().to_string();
            limits(&file, &std::fs::read_to_string(&path).unwrap(), found);
        }
    }
}

fn page() -> String {
    let mut found = Vec::new();
    for root in ["src", "crates/core/src"].map(|root| home().join(root)) {
        read(&root, &root, &mut found);
    }
    assert!(found.len() > 40, "{}", found.len());
    let mut text = PREFACE.to_owned();
    for (layer, heading) in LAYERS {
        let folder = format!("{layer}/");
        let mut rows = found.iter().filter(|limit| limit.file.starts_with(&folder)).peekable();
        if rows.peek().is_none() {
            continue;
        }
        let _ = write!(
            text,
            "\n## {heading}\n\n| limit | value | file | meaning |\n|---|--:|---|---|\n"
        );
        for Limit { name, value, file, meaning } in rows {
            let file = file.strip_prefix(&folder).unwrap_or(file);
            let _ = writeln!(text, "| `{name}` | {value} | `{file}` | {meaning} |");
        }
    }
    text
}

#[test]
fn the_page_of_limits_is_made_from_the_constants() {
    let path = home().join(PAGE);
    let fresh = page();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(stored, fresh, "{PAGE}: run with UPDATE_EXPECT=1");
}

#[test]
fn values_are_written_as_people_read_them() {
    for (expression, meaning, shown) in [
        ("4 << 20", "The longest line, in bytes.", "4 MiB"),
        ("1000", "Bytes of a name.", "1,000 bytes"),
        ("10_000", "Lines that wait.", "10,000"),
        ("(1 << 53) - 1", "An integer.", "9,007,199,254,740,991"),
        ("2 * FILES_MAX", "Files.", "`2 * FILES_MAX`"),
        ("Duration::from_secs(365 * 24 * 60 * 60)", "", "365 d"),
        ("Duration::from_secs(24 * 60 * 60)", "", "24 h"),
        ("Duration::from_millis(1500)", "", "1.5 s"),
        ("0.99", "A fraction.", "`0.99`"),
    ] {
        assert_eq!(readable(expression, meaning), shown, "{expression}");
    }
}
