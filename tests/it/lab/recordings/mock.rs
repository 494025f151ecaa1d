//! `milepost mock`: a recording as a server, over stdio and over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Output, Stdio};

use serde_json::{Value, json};

use super::{BUILDS, recording, run, written};
use crate::support::exchange::Exchange;
use crate::support::{messages, milepost};

/// Sends lines to a mock, closes its input, and returns its output.
fn served(options: &[&str], file: &str, lines: &[&str]) -> (Option<i32>, Vec<Value>, String) {
    let mut child = milepost()
        .arg("mock")
        .args(options)
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    drop(input);
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(stdout).unwrap();
    let said = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (status.code(), said, String::from_utf8(stderr).unwrap())
}

const BUILD: &str = r#"{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"_meta":{"progressToken":"mine","traceparent":"x"},"arguments":{"apiKey":"correct horse","target":"all"},"name":"build"}}"#;

#[test]
fn ids_and_tokens_are_those_of_the_client() {
    let (code, said, error) = served(&["--instant"], &recording(BUILDS), &[BUILD]);
    assert_eq!(code, Some(0), "{error}");
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
        {"progressToken": "mine", "progress": 1, "total": 2, "message": "<b>compiling</b>"}});
    let answer = json!({"jsonrpc": "2.0", "id": "b", "result": {"content": [{"type": "text", "text": "built"}]}});
    assert_eq!(said, [progress, answer]);
    assert_eq!(error, "milepost: 1 request served from the recording, 0 not in it\n");
}

#[test]
fn who_asks_for_no_progress_gets_none() {
    let plain = BUILD.replace(r#""progressToken":"mine","#, "");
    let (code, said, _) = served(&["--instant"], &recording(BUILDS), &[&plain]);
    assert_eq!((code, said.len()), (Some(0), 1), "{said:?}");
}

#[test]
fn any_client_may_begin_and_ping() {
    let begin = messages::initialize_with(7, "{}", "2025-11-25");
    let ping = messages::request(8, "ping", "{}");
    let ready = messages::notification("notifications/initialized", "{}");
    let (code, said, error) = served(&["--instant"], &recording(BUILDS), &[&begin, &ready, &ping]);
    assert_eq!(code, Some(0), "{error}");
    let changed = said.iter().filter(|one| one["method"] == "notifications/tools/list_changed");
    assert_eq!(changed.count(), 1, "{said:?}");
    let answer = |id: u32| said.iter().find(|one| one["id"] == id).unwrap();
    assert_eq!(answer(7)["result"]["serverInfo"]["name"], "builds");
    assert_eq!(answer(8)["result"], json!({}));
}

#[test]
fn what_was_not_recorded_is_an_error_that_names_the_nearest() {
    let call = |id: u32, params: &str| messages::request(id, "tools/call", params);
    let asked = [
        call(1, r#"{"name":"build","arguments":{"target":"doc"}}"#),
        call(2, r#"{"name":"biuld"}"#),
        messages::request(3, "tools/cal", "{}"),
        messages::request(4, "server/discover", "{}"),
    ];
    let asked: Vec<&str> = asked.iter().map(|one| &**one).collect();
    let (code, said, error) = served(&["--instant"], &recording(BUILDS), &asked);
    assert_eq!(code, Some(1), "{error}");
    for (id, number, why) in [
        (
            1,
            -32602,
            "has no tools/call build with these parameters; the nearest, in line 21, differs in arguments.target (\"doc\" instead of \"docs\")",
        ),
        (2, -32602, "has no tools/call biuld; the nearest tool is build"),
        (3, -32601, "has no tools/cal; the nearest method is tools/call"),
        (4, -32601, "has no server/discover"),
    ] {
        let answer = said.iter().find(|one| one["id"] == id).unwrap();
        assert_eq!(answer["error"]["code"], number, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().ends_with(why), "{answer}");
        assert!(error.contains(why), "{error}");
    }
    assert!(
        error.starts_with("milepost: 0 requests served from the recording, 4 not in it\n"),
        "{error}"
    );
}

#[test]
fn repeated_calls_take_the_recorded_ones_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let call = |id: u32| messages::request(id, "tools/call", r#"{"name":"next"}"#);
    let text: String = (1..=2)
        .map(|id| {
            format!("> {}\n< {}\n", call(id), messages::answer(id, format!(r#"{{"n":{id}}}"#)))
        })
        .collect();
    let file = written(&folder, text);
    let file = file.to_str().unwrap();
    let asked = [5, 6, 7].map(call);
    let asked: Vec<&str> = asked.iter().map(|one| &**one).collect();
    let (code, said, _) = served(&["--instant"], file, &asked);
    assert_eq!(code, Some(1));
    let n = |said: &[Value], id: u32| said.iter().find(|one| one["id"] == id).unwrap().clone();
    assert_eq!((&n(&said, 5)["result"]["n"], &n(&said, 6)["result"]["n"]), (&json!(1), &json!(2)));
    let why = n(&said, 7)["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        why.contains("2 times (last in line 3), and all were asked for before; --repeat"),
        "{why}"
    );
    let (code, said, _) = served(&["--instant", "--repeat"], file, &asked);
    assert_eq!((code, &n(&said, 7)["result"]["n"]), (Some(0), &json!(2)));
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let builds = recording(BUILDS);
    for args in [
        &["--speed", "0"][..],
        &["--speed", "fast"],
        &["--speed", "2", "--instant"],
        &["--listen", "nowhere"],
    ] {
        let (code, _, error) = run(&[&["mock", &builds], args].concat());
        assert!(code == Some(2) && error.contains(args[0]), "{error}");
    }
}

/// A mock on a free port of loopback, which ends when this is dropped.
struct MockServer {
    child: Child,
    address: String,
}

impl MockServer {
    fn start() -> Self {
        let mut child = milepost()
            .args(["mock", "--instant", "--listen", "127.0.0.1:0", &recording(BUILDS)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let line = BufReader::new(stderr).lines().next().unwrap().unwrap();
        let (_, url) = line.split_once(" on http://").unwrap();
        Self { child, address: url.trim_end_matches("/mcp").to_owned() }
    }

    fn post(&self, path: &str, session: Option<&str>, message: &str) -> Exchange {
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        headers.extend(session.map(|id| ("mcp-session-id", id)));
        Exchange::send(&self.address, "POST", path, &headers, message)
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn clients_of_streamable_http_are_served_in_sessions() {
    let mock = MockServer::start();
    let mut begun = mock.post("/mcp", None, &messages::initialize("2025-06-18"));
    assert_eq!(begun.status(), 200);
    let session = begun.header("mcp-session-id").unwrap();
    assert!(begun.rest().contains("serverInfo"));
    let ready = messages::notification("notifications/initialized", "{}");
    assert_eq!(mock.post("/mcp", Some(&session), &ready).status(), 202);
    let said = mock.post("/mcp", Some(&session), BUILD).rest();
    let (progress, answer) =
        (said.find("\"progressToken\":\"mine\"").unwrap(), said.find("\"id\":\"b\"").unwrap());
    assert!(progress < answer, "{said}");
    // Another session starts from the beginning; an unknown session is refused.
    let mut other = mock.post("/mcp", None, &messages::initialize("2025-06-18"));
    let other = other.header("mcp-session-id").unwrap();
    assert_ne!(session, other);
    assert!(mock.post("/mcp", Some(&other), BUILD).rest().contains("built"));
    assert_eq!(mock.post("/mcp", Some("unknown"), BUILD).status(), 404);
    let headers = [("mcp-session-id", &*session)];
    assert_eq!(Exchange::send(&mock.address, "DELETE", "/mcp", &headers, "").status(), 200);
    assert_eq!(mock.post("/mcp", Some(&session), BUILD).status(), 404);
}

#[test]
fn clients_of_http_sse_are_served_on_one_stream() {
    let mock = MockServer::start();
    let accept = [("accept", "text/event-stream")];
    let mut stream = Exchange::send(&mock.address, "GET", "/sse", &accept, "");
    let endpoint = stream.event().unwrap();
    let path = endpoint.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    assert!(
        endpoint.starts_with("event: endpoint\n") && path.starts_with("/sse?sessionId="),
        "{endpoint}"
    );
    assert_eq!(mock.post(path, None, BUILD).status(), 202);
    assert!(stream.event().unwrap().contains("\"progressToken\":\"mine\""));
    assert!(stream.event().unwrap().contains("\"id\":\"b\""));
}

#[test]
fn pages_of_other_sites_cannot_ask_a_mock() {
    let mock = MockServer::start();
    for (name, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let headers = [("content-type", "application/json"), (name, value)];
        assert_eq!(
            Exchange::send(&mock.address, "POST", "/mcp", &headers, BUILD).status(),
            403,
            "{name}"
        );
    }
}
