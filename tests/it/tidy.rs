//! The rules of the house, as far as a test can hold them.

use std::path::{Path, PathBuf};

use milepost::progress::{Reason, Repair};

/// Who may import whom inside the crate: arrows only downward.
const LAYERS: &[(&str, &[&str])] = &[
    ("json", &[]),
    ("mcp", &[]),
    ("clients", &[]),
    ("lines", &[]),
    ("sse", &[]),
    ("terminal", &[]),
    ("secret", &[]),
    ("trace_context", &[]),
    ("jsonrpc", &["json"]),
    ("progress", &["clients", "json", "jsonrpc", "mcp", "secret", "terminal", "trace_context"]),
    ("traces", &["json", "mcp", "progress", "trace_context"]),
    ("transport", &[]),
    ("census", &["clients"]),
    ("metrics", &["census", "progress", "traces"]),
    ("telemetry", &["census", "clients", "metrics", "progress", "trace_context", "traces"]),
    ("transcript", &["progress", "settings"]),
    ("witness", &["json", "jsonrpc", "progress", "sse"]),
    ("masking", &["json", "jsonrpc", "progress", "secret"]),
    ("record", &["masking", "progress", "transcript", "witness"]),
    (
        "watch",
        &[
            "clients",
            "guarded",
            "json",
            "jsonrpc",
            "masking",
            "mcp",
            "progress",
            "transcript",
            "witness",
        ],
    ),
    ("guarded", &["jsonrpc", "progress", "transcript", "witness"]),
    (
        "relay",
        &[
            "guarded",
            "jsonrpc",
            "lines",
            "progress",
            "terminal",
            "trace_context",
            "transport",
            "witness",
        ],
    ),
    ("probe", &["json", "jsonrpc", "mcp", "progress", "relay"]),
    ("host", &["lines", "probe", "relay", "telemetry", "transport"]),
    ("remote", &["relay", "telemetry"]),
    (
        "wrap",
        &[
            "host",
            "http",
            "jsonrpc",
            "lines",
            "progress",
            "relay",
            "remote",
            "routes",
            "telemetry",
            "transport",
            "witness",
        ],
    ),
    ("demo", &["json", "jsonrpc", "lines", "progress", "relay", "transport"]),
    ("settings", &["progress"]),
    ("routes", &["json", "progress", "secret", "settings"]),
    ("durations", &["progress", "settings"]),
    ("stats", &["durations", "settings"]),
    ("check", &["cli", "routes"]),
    (
        "replay",
        &["cli", "clients", "json", "jsonrpc", "mcp", "progress", "relay", "transcript", "witness"],
    ),
    ("tap", &["cli", "clients", "http"]),
    ("adopt", &["cli", "secret", "settings", "terminal"]),
    ("manual", &["cli"]),
    (
        "http",
        &[
            "clients",
            "demo",
            "durations",
            "guarded",
            "host",
            "json",
            "jsonrpc",
            "lines",
            "mcp",
            "metrics",
            "probe",
            "progress",
            "relay",
            "remote",
            "routes",
            "sse",
            "telemetry",
            "trace_context",
            "transport",
            "witness",
        ],
    ),
    (
        "serve",
        &[
            "durations",
            "http",
            "json",
            "metrics",
            "progress",
            "routes",
            "telemetry",
            "transcript",
            "transport",
            "watch",
            "witness",
        ],
    ),
    (
        "doctor",
        &[
            "clients",
            "durations",
            "host",
            "http",
            "json",
            "jsonrpc",
            "lines",
            "mcp",
            "progress",
            "relay",
            "routes",
            "serve",
            "settings",
            "sse",
            "telemetry",
            "transport",
        ],
    ),
    (
        "cli",
        &[
            "doctor",
            "durations",
            "mcp",
            "progress",
            "record",
            "routes",
            "settings",
            "stats",
            "telemetry",
            "traces",
            "transport",
            "watch",
        ],
    ),
];

/// The sans-IO core.
const CORE: [&str; 9] =
    ["clients", "json", "jsonrpc", "mcp", "progress", "secret", "sse", "terminal", "trace_context"];

/// What the core must not touch: I/O, tasks, clocks, logs, chance, unordered iteration.
const IMPURE: [&str; 9] = [
    "tokio",
    "hyper",
    "tracing",
    "std::io",
    "std::fs",
    "Instant::now",
    "SystemTime",
    "HashMap",
    "rand::",
];

/// Lines of code in one file of `src`, tests not counted.
const LINES_MAX: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![root().join(folder)];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
        }
    }
    found.sort();
    found
}

/// The module that a file of `src` belongs to.
fn module(path: &Path) -> String {
    let part = path.components().nth(1).unwrap().as_os_str().to_str().unwrap();
    part.trim_end_matches(".rs").to_owned()
}

/// A file without its tests.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

#[test]
fn imports_point_downward() {
    for (path, text) in sources("src") {
        let name = module(&path);
        if ["lib", "main"].contains(&&*name) {
            continue;
        }
        let (_, allowed) = LAYERS
            .iter()
            .find(|(module, _)| *module == name)
            .unwrap_or_else(|| panic!("{} has no place in the layers", path.display()));
        for (number, line) in code(&text).lines().enumerate() {
            for (at, _) in line.match_indices("crate::") {
                let used: String = line[at + 7..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                let fine = used == name || used.is_empty() || allowed.contains(&&*used);
                assert!(fine, "{}:{}: {name} must not import {used}", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn the_core_is_pure() {
    for (path, text) in sources("src") {
        if !CORE.contains(&&*module(&path)) {
            continue;
        }
        for (number, line) in code(&text).lines().enumerate() {
            let said = line.split("//").next().unwrap();
            for impure in IMPURE {
                assert!(!said.contains(impure), "{}:{}: {impure}", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_stays_short() {
    for folder in ["src", "examples", "tests/it"] {
        for (path, text) in sources(folder) {
            assert!(text.starts_with("//!"), "{} does not say what it is", path.display());
            let lines = code(&text).lines().count();
            let limit = if folder == "src" { LINES_MAX } else { usize::MAX };
            assert!(lines <= limit, "{} has {lines} lines", path.display());
        }
    }
}

#[test]
fn every_reason_and_repair_is_explained_and_shown() {
    let documents = std::fs::read_to_string(root().join("docs/verdicts.md")).unwrap();
    let transcripts: String =
        crate::core::transcripts::transcripts().into_iter().map(|(_, text)| text).collect();
    // Those that no transcript can show: they need bytes on a line, a large message or a fault.
    let elsewhere = [Reason::Noise, Reason::TooLong, Reason::FailedOpen];
    for reason in Reason::ALL {
        let name = reason.name();
        assert!(documents.contains(&format!("| `{name}` |")), "{name} is not explained");
        let shown = transcripts.contains(&format!("\nx {name}\n"));
        assert!(shown || elsewhere.contains(&reason), "{name} is in no transcript");
    }
    for repair in Repair::ALL {
        let name = repair.name();
        assert!(documents.contains(&format!("| `{name}` |")), "{name} is not explained");
        let told = [format!("[{name} "), format!(", {name} ")];
        let summary = |line: &str| line.starts_with("~ ") && told.iter().any(|t| line.contains(t));
        assert!(transcripts.lines().any(summary), "{name} is in no transcript");
    }
}

#[test]
fn no_file_tells_of_the_machine_it_was_written_on() {
    let mut files = sources("src");
    for folder in ["tests", "examples", "benches"] {
        if root().join(folder).exists() {
            files.extend(sources(folder));
        }
    }
    for (path, text) in files {
        if path.ends_with("tidy.rs") {
            continue;
        }
        for foreign in ["../shared", "\"/home/", "\"/root/", "\"/work/"] {
            assert!(!text.contains(foreign), "{}: {foreign}", path.display());
        }
    }
}
