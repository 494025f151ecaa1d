//! Bad inputs by name (`tests/data/hostile`), each with the answer that it gets. The tests of this folder play
//! one table each; `UPDATE_EXPECT=1` writes the answers anew.

mod files;
mod messages;
mod sockets;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use crate::support::home;

/// The tables.
const TABLES: [&str; 11] = [
    "bodies",
    "command-lines",
    "http",
    "json-rpc",
    "mcp",
    "recordings",
    "route-files",
    "sse",
    "state",
    "terminal",
    "tls",
];

/// One bad input.
struct Row {
    name: String,
    /// As it is written in the table.
    written: String,
    expected: String,
}

impl Row {
    /// The bytes of the input, see [`bytes`].
    fn input(&self) -> Vec<u8> {
        bytes(&self.written)
    }
}

fn place(table: &str) -> PathBuf {
    home().join("tests/data/hostile").join(format!("{table}.txt"))
}

/// The rows of a table: `name: input => answer`. Other lines are empty or begin with `#`.
fn rows(table: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(place(table)).unwrap();
    let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| {
        let (name, rest) = line.split_once(": ").unwrap_or_else(|| panic!("no name: {line}"));
        let (written, expected) = rest.rsplit_once(" => ").unwrap_or((rest, ""));
        let [name, written, expected] = [name, written, expected].map(str::to_owned);
        Row { name, written, expected }
    })
    .collect()
}

/// The bytes that a table writes down: `\r`, `\n`, `\t`, `\0`, `\xFF` and `\\`, and `{{text*3}}` for
/// three times `text`.
fn bytes(written: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = written;
    while let Some(at) = rest.find("{{") {
        let Some((body, after)) = rest[at + 2..].split_once("}}") else { break };
        let Some((text, times)) = body.rsplit_once('*') else { break };
        let Ok(times) = times.parse::<usize>() else { break };
        unescape(&rest[..at], &mut out);
        let mut once = Vec::new();
        unescape(text, &mut once);
        out.extend_from_slice(&once.repeat(times));
        rest = after;
    }
    unescape(rest, &mut out);
    out
}

fn unescape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let tail = &rest[at + 1..];
        let (byte, used) = match tail.as_bytes().first() {
            Some(b'r') => (b'\r', 1),
            Some(b'n') => (b'\n', 1),
            Some(b't') => (b'\t', 1),
            Some(b'0') => (0, 1),
            Some(b'x') => (u8::from_str_radix(&tail[1..3], 16).unwrap(), 3),
            _ => (b'\\', usize::from(tail.starts_with('\\'))),
        };
        out.push(byte);
        rest = &tail[used..];
    }
    out.extend_from_slice(rest.as_bytes());
}

/// An answer as a table writes it: on one line, and not too long.
fn one_line(text: &str) -> String {
    let text = text.trim_end_matches('\n').escape_debug().to_string();
    let text = text.replace("\\\"", "\"").replace("\\'", "'").replace("\\\\", "\\");
    let text = text.replace(" => ", " -> ");
    let text = text.trim_end();
    match text.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Compares the answers of a table with those that were written down, or writes them down.
#[track_caller]
fn compare(table: &str, answers: &[String]) {
    let rows = rows(table);
    assert_eq!(rows.len(), answers.len(), "{table}");
    let mut wrong = String::new();
    for (row, answer) in rows.iter().zip(answers) {
        if row.expected != *answer {
            let _ = writeln!(wrong, "{}\n  now:  {answer}\n  then: {}", row.name, row.expected);
        }
    }
    if !wrong.is_empty() && std::env::var_os("UPDATE_EXPECT").is_some() {
        let mut answers = answers.iter().zip(&rows);
        let text = std::fs::read_to_string(place(table)).unwrap();
        let lines = text.lines().map(|line| match line.is_empty() || line.starts_with('#') {
            true => line.to_owned(),
            false => {
                let (answer, row) = answers.next().unwrap();
                format!("{}: {} => {answer}", row.name, row.written)
            }
        });
        let lines: Vec<String> = lines.collect();
        std::fs::write(place(table), lines.join("\n") + "\n").unwrap();
    }
    assert!(
        wrong.is_empty(),
        "tests/data/hostile/{table}.txt: UPDATE_EXPECT=1 writes it anew\n{wrong}"
    );
}

#[test]
fn five_hundred_bad_inputs_have_names_of_their_own() {
    let mut names = BTreeSet::new();
    for table in TABLES {
        let mut inputs = BTreeSet::new();
        for row in rows(table) {
            assert!(inputs.insert(row.written.clone()), "{table}: {} is there twice", row.written);
            assert!(names.insert(format!("{table}/{}", row.name)), "{table}: {} twice", row.name);
        }
    }
    assert!(names.len() >= 500, "{}", names.len());
    let files = std::fs::read_dir(home().join("tests/data/hostile")).unwrap().count();
    assert_eq!(files, TABLES.len());
}

#[test]
fn the_bytes_of_a_row_are_what_it_says() {
    assert_eq!(bytes(r"a\r\n\x00\xFF\\{{ab*3}}\0"), b"a\r\n\0\xff\\ababab\0");
    assert_eq!(bytes(r#"{"a":{"b":{}}}"#), br#"{"a":{"b":{}}}"#);
}
