//! `milepost serve --record`: every conversation can be replayed with the same result, on every transport.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use milepost::lab::recordings::calls::{RecordedCalls, RecordedWay};
use serde_json::json;
use tempfile::TempDir;

use crate::http::serve::proxy::{Proxy, Start};
use crate::observe::metrics::page::Page;
use crate::support::exchange::Exchange;
use crate::support::{example, milepost, until};

/// The recordings of a folder, the oldest first.
pub(crate) fn recordings(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.collect();
    files.sort();
    files
}

/// Plays a recording. Returns the output and the exit code.
pub(crate) fn replay(options: &[&str], file: &Path) -> (String, Option<i32>) {
    let output = milepost().arg("replay").args(options).arg(file).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.code())
}

/// Each answer that a client got belongs to a call of the recording.
#[track_caller]
fn every_answer_has_its_call(file: &Path) {
    let recording = RecordedCalls::load(file).unwrap();
    let answers = recording.messages.iter().filter(|message| message.way == RecordedWay::ToClient);
    for answer in answers.filter(|message| message.is_answer()) {
        assert!(answer.call.is_some(), "{}:{}", file.display(), answer.line);
    }
}

/// Every recording of a directory replays with the same result. Returns the outputs.
#[track_caller]
pub(crate) fn all_are_equal(folder: &Path) -> Vec<String> {
    let files = recordings(folder);
    assert!(!files.is_empty());
    let play = |file: &PathBuf| {
        let (shown, code) = replay(&[], file);
        let text = fs::read_to_string(file).unwrap();
        assert_eq!(code, Some(0), "{shown}\n\n{text}");
        every_answer_has_its_call(file);
        shown
    };
    files.iter().map(play).collect()
}

/// A changed line in a client's messages makes the replay fail, and the error names the line.
#[track_caller]
pub(crate) fn a_changed_line_shows(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let told = |line: &str| line.split("| ").last().unwrap().starts_with('=');
    let told: Vec<usize> = (0..lines.len()).filter(|at| told(lines[*at])).collect();
    let at = told[told.len() / 2];
    let changed = lines[at].strip_suffix('}').unwrap().to_owned() + "]";
    let mut edited = lines.clone();
    edited[at] = &changed;
    let copy = file.with_extension("edited");
    fs::write(&copy, edited.join("\n")).unwrap();
    let (shown, code) = replay(&[], &copy);
    fs::remove_file(&copy).unwrap();
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains(&format!(":{}: differs\n  recorded: {changed}", at + 1)), "{shown}");
}

/// The sums of the verdict lines of recordings: `repaired: lift 2, token 1`.
#[derive(Debug, Default)]
struct Sums(BTreeMap<String, f64>);

impl Sums {
    fn add(&mut self, shown: &str) {
        let mut add = |name: &str, count: &str| {
            let count: f64 = count.parse().unwrap_or_else(|_| panic!("{name} {count:?}"));
            *self.0.entry(name.to_owned()).or_default() += count;
        };
        let passed = shown.lines().find(|line| line.contains(" passed; of the server's")).unwrap();
        let (_, counts) = passed.split_once("messages ").unwrap();
        for part in counts.split(", ") {
            let (count, name) = part.split_once(' ').unwrap();
            add(name, count);
        }
        let (_, end) = shown.split_once(" passed; of the server's").unwrap();
        for line in end.lines() {
            if let Some(beats) = line.strip_prefix("heartbeats: ") {
                add("heartbeats", beats);
            }
            let parts =
                ["repaired: ", "withheld: "].iter().find_map(|what| line.strip_prefix(what));
            for part in parts.into_iter().flat_map(|parts| parts.split(", ")) {
                let (name, count) = part.split_once(' ').unwrap();
                add(&format!("{} {name}", &line[..8]), count);
            }
        }
    }

    fn of(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

fn post(address: &str, session: Option<&str>, path: &str, message: &str) -> Exchange {
    let mut headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    headers.extend(session.map(|id| ("mcp-session-id", id)));
    Exchange::send(address, "POST", path, &headers, message)
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

/// A session's calls of one tool, one after the other; each with its answer's body.
fn calls(address: &str, path: &str, tool: &str, count: usize) -> Vec<String> {
    let mut begun = post(address, None, path, INITIALIZE);
    assert_eq!(begun.status(), 200);
    let session = begun.header("mcp-session-id");
    begun.rest();
    let say = |message: &str| post(address, session.as_deref(), path, message).rest();
    say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let call = |id: usize| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool,
            "arguments": {"apiKey": "correct horse battery"}, "_meta": {"progressToken": id}}})
    };
    (1..=count).map(|id| say(&call(id).to_string())).collect()
}

fn command(name: &str, arguments: &[&str]) -> String {
    let words: Vec<String> = [&[&*example(name)][..], arguments]
        .concat()
        .iter()
        .map(|word| format!("{word:?}"))
        .collect();
    format!("upstream.command = [{}]", words.join(", "))
}

/// The examples as routes, and a tool of each.
fn examples() -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("hammer", command("swissarmyhammer", &["--generation", "s0", "--pace", "5ms"]), "shell"),
        (
            "context",
            command("swissarmyhammer", &["--generation", "s2", "--pace", "5ms"]),
            "code_context",
        ),
        ("kuzu", command("kuzumem", &["--generation", "k1", "--pace", "5ms"]), "pagerank"),
        ("plexus", command("plexus", &["--pace", "5ms"]), "orcha.run_task"),
        ("scout", command("scout", &["--pace", "5ms"]), "run_materialization"),
        (
            "devtools",
            command("mcp_devtools", &["--lines", "50", "--token-from", "meta"]),
            "project_actions",
        ),
        ("builder", command("builder", &[]) + "\ndialects = [\"defaults\", \"stderr\"]", "train"),
        (
            "silent",
            command("silent", &["--pace", "600ms"])
                + "\nheartbeat.after = \"100ms\"\nheartbeat.every = \"150ms\"",
            "sleep",
        ),
    ]
}

/// Routes with these keys, each before its own upstream, and the same once more over HTTP before those.
fn routes(examples: &[(&str, String, &str)]) -> String {
    let route =
        |(name, keys, _): &(&str, String, &str)| format!("[[route]]\npath = \"/{name}\"\n{keys}\n");
    examples.iter().map(route).collect()
}

#[test]
fn recordings_of_the_examples_come_out_again_and_say_what_was_counted() {
    const CLIENTS: usize = 6;
    let (inner, outer) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let examples = examples();
    let record = |folder: &TempDir| ["--record".to_owned(), folder.path().display().to_string()];
    let start = |options: &[String], file: &str| {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let server = "max_connections = 2000";
        Proxy::serving(&Start { options: &options, server, ..Start::default() }, file)
    };
    let mut near = start(&record(&inner), &routes(&examples));
    // The same servers over Streamable HTTP: the route's server is a proxy for them.
    let over: String = examples
        .iter()
        .map(|(name, ..)| {
            let url = format!("http://{}/{name}", near.address());
            format!("[[route]]\npath = \"/{name}\"\nupstream.url = \"{url}\"\n")
        })
        .collect();
    let mut far = start(&record(&outer), &over);
    thread::scope(|scope| {
        for (name, _, tool) in &examples {
            for client in 0..CLIENTS {
                let address = if client % 2 == 0 { near.address() } else { far.address() };
                let count = if *name == "silent" { 2 } else { 8 };
                scope.spawn(move || {
                    for answer in calls(address, &format!("/{name}"), tool, count) {
                        assert!(answer.contains("result") || answer.contains("error"), "{answer}");
                    }
                });
            }
        }
    });
    for (proxy, folder) in [(&mut far, &outer), (&mut near, &inner)] {
        // Until no more messages arrive: messages of a server after its answers are counted too.
        let messages = |page: &Page| page.sum("milepost_server_messages_total", &[]);
        let mut page = Page::read(&proxy.probe("/metrics").1);
        until("servers have nothing more to say", || {
            thread::sleep(Duration::from_secs(1));
            let before = messages(&page);
            page = Page::read(&proxy.probe("/metrics").1);
            messages(&page) == before
        });
        proxy.stop();
        assert_eq!(proxy.code(), Some(0));
        let mut sums = Sums::default();
        all_are_equal(folder.path()).iter().for_each(|shown| sums.add(shown));
        let sum = |name: &str, labels: &[(&str, &str)]| page.sum(name, labels);
        for verdict in ["forwarded", "repaired", "withheld"] {
            let counted = sum("milepost_server_messages_total", &[("verdict", verdict)]);
            assert_eq!(sums.of(verdict), counted, "{verdict} {sums:?}");
        }
        for repair in milepost::progress::Repair::ALL {
            let counted = sum("milepost_repairs_total", &[("repair", repair.name())]);
            assert_eq!(sums.of(&format!("repaired {}", repair.name())), counted, "{sums:?}");
        }
        for reason in milepost::progress::Reason::ALL {
            let counted = sum("milepost_withheld_total", &[("reason", reason.name())]);
            assert_eq!(sums.of(&format!("withheld {}", reason.name())), counted, "{sums:?}");
        }
        let beats = sum("milepost_progress_sent_total", &[("origin", "heartbeat")]);
        assert_eq!(sums.of("heartbeats"), beats);
        assert!(sums.of("forwarded") > 100.0, "{sums:?}");
        for file in recordings(folder.path()) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains("correct horse"), "{text}");
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            let name = file.file_name().unwrap().to_str().unwrap();
            let route = name.rsplit('-').next().unwrap().trim_end_matches(".transcript");
            assert!(examples.iter().any(|(known, ..)| *known == route), "{name}");
            assert!(text.contains(&format!("# on the route /{route}\n")), "{text}");
        }
    }
}

#[test]
fn one_session_is_one_file_and_shows_who_said_what() {
    crate::support::within_tries(|| {
        let folder = TempDir::new().unwrap();
        let options = ["--record", folder.path().to_str().unwrap(), "--record-secrets"];
        let start = Start { options: &options, ..Start::default() };
        let server = command("kuzumem", &["--generation", "k1", "--pace", "60ms"]);
        let server = Proxy::with(&Start::default(), &server);
        let route = format!("upstream.url = \"http://{}/a\"", server.address());
        let mut proxy = Proxy::with(&start, &route);
        let answers = calls(proxy.address(), "/a", "pagerank", 2);
        assert!(
            answers.iter().all(|answer| answer.contains("notifications/progress")),
            "{answers:?}"
        );
        proxy.stop();
        proxy.code();
        let files = recordings(folder.path());
        assert_eq!(files.len(), 1, "{files:?}");
        let text = fs::read_to_string(&files[0]).unwrap();
        assert!(
            text.contains("correct horse battery") && text.contains("# with its secrets"),
            "{text}"
        );
        for line in ["! begins exchange", "\n2| ! begins session", "| ! begins request", "| ! ends"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        all_are_equal(folder.path());
        a_changed_line_shows(&files[0]);
        let (shown, code) = replay(&["--as-test"], &files[0]);
        assert_eq!(code, Some(2), "{shown}");
        assert!(shown.contains("one client on one stream"), "{shown}");
    });
}

#[test]
fn a_folder_that_cannot_be_written_is_said_before_anything_is_served() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let options = ["--record", file.to_str().unwrap()];
    let start = Start { options: &options, ..Start::default() };
    let mut proxy = Proxy::launch(&start, "[[route]]\npath = \"/a\"\nupstream.demo = true\n");
    assert_eq!(proxy.code(), Some(2));
    assert!(proxy.log().contains("milepost: --record: "), "{}", proxy.log());
}

#[test]
fn a_disk_that_is_full_ends_recordings_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let options = ["--record", folder.path().to_str().unwrap()];
    let start = Start { options: &options, ..Start::default() };
    let proxy = Proxy::with(&start, "upstream.demo = true");
    // No file can be created there any more.
    fs::remove_dir_all(folder.path()).unwrap();
    for _ in 0..3 {
        assert_eq!(calls(proxy.address(), "/a", "work", 2).len(), 2);
    }
    proxy.logged(&["a recording cannot be written"]);
    assert_eq!(proxy.log().matches("a recording cannot be written").count(), 1);
}
