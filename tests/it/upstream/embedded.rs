//! Programs that embed the engine: `examples/embed-stdio` and `examples/embed-http`.

use std::process::Command;

use serde_json::json;

use super::example_servers::{Client, DEPENDENCIES, request};
use crate::core::checker::Checker;
use crate::support::server::Server;
use crate::support::session::Session;
use crate::support::{example, home};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

fn count(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| line.contains(what)).count()
}

#[test]
fn a_legacy_server_reports_through_embed_stdio() {
    crate::support::within_tries(|| {
        let words = [&*example("kuzumem"), "--generation", "k1", "--pace", "60ms"];
        let mut session = Session::start(Command::new(example("embed-stdio")).args(words));
        let mut checker = Checker::default();
        checker.client_said(INITIALIZE);
        session.tell(INITIALIZE);
        checker.client_told(&session.line());
        let call = request(&json!(1), DEPENDENCIES, &json!({}));
        checker.client_said(&call);
        session.tell(&call);
        let lines = session.lines_until(r#""result""#);
        lines.iter().for_each(|line| checker.client_told(line));
        assert!(count(&lines, r#""progressToken":"t""#) >= 3, "{lines:?}");
        // The server gets the end of the input, and its last answer is forwarded.
        session.tell(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
        let (rest, code, error) = session.finish();
        assert!(rest.contains(r#""id":2,"#), "{rest} {error}");
        assert_eq!(code, Some(0), "{error}");
    });
}

#[test]
fn the_end_of_a_server_is_told_through_embed_stdio() {
    let script = "read -r _; echo 'not a message'; exit 3";
    let mut session =
        Session::start(Command::new(example("embed-stdio")).args(["sh", "-c", script]));
    session.tell(INITIALIZE);
    let answer = session.line();
    assert!(answer.contains(r#""id":0,"#) && answer.contains("the server has exited"), "{answer}");
    let (rest, _, error) = session.finish();
    assert_eq!((&*rest, &*error), ("", "not a message\n"));
}

/// The policy beside the examples.
fn policy() -> String {
    home().join("examples/policy.toml").display().to_string()
}

/// Without the policy, the first heartbeat would come after two seconds, and `acme/status` would be unknown.
#[test]
fn embed_stdio_has_the_settings_of_a_policy_file() {
    crate::support::within_tries(|| {
        let server = r#"
        read -r _; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}'
        read -r _; sleep 1.5; echo '{"jsonrpc":"2.0","method":"acme/status","params":{"call":1,"pct":40,"words":"half"}}'
        sleep 0.4; echo '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'"#;
        let words = ["--policy", &*policy(), "sh", "-c", server];
        let mut session = Session::start(Command::new(example("embed-stdio")).args(words));
        session.tell(INITIALIZE);
        session.line();
        session.tell(&request(&json!(1), "scan", &json!({})));
        let lines = session.lines_until(r#""result""#);
        assert_eq!(count(&lines, r#""progressToken":"t""#), 2, "{lines:?}");
        assert!(lines[1].contains(r#""progress":40,"total":100,"message":"half""#), "{lines:?}");
    });
}

#[test]
fn embed_stdio_says_what_is_wrong_in_a_policy_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, "# A slip.\nheartbeat.afer = \"1s\"\n").unwrap();
    let mut command = Command::new(example("embed-stdio"));
    let session = Session::start(command.arg("--policy").arg(file).args(["sh", "-c", "cat"]));
    let (told, code, error) = session.finish();
    assert_eq!((&*told, code), ("", Some(1)));
    let expected = "2:11: heartbeat.afer: unknown key; did you mean `after`?";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn embed_http_has_the_settings_of_a_policy_file() {
    crate::support::within_tries(|| {
        let silent = Server::start("silent", &[]);
        let heartbeats = |options: &[&str]| {
            let client = Client::open("embed-http", &[&[silent.address()], options].concat());
            client.messages(json!(1), "sleep", json!({ "seconds": 1.6 })).len() - 1
        };
        assert_eq!(heartbeats(&[]), 0);
        assert_eq!(heartbeats(&["--policy", &policy()]), 1);
    });
}

#[test]
fn a_legacy_server_reports_through_embed_http() {
    crate::support::within_tries(|| {
        let kuzumem = Server::start("kuzumem", &["--generation", "k5", "--pace", "60ms"]);
        let client = Client::open("embed-http", &[kuzumem.address()]);
        let mut checker = Checker::default();
        checker.client_said(&request(&json!(20), DEPENDENCIES, &json!({})));
        let messages = client.messages(json!(20), DEPENDENCIES, json!({}));
        let texts: Vec<String> = messages.iter().map(|(_, message)| message.to_string()).collect();
        texts.iter().for_each(|text| checker.client_told(text));
        assert!(count(&texts, r#""progressToken":"t""#) >= 3, "{texts:?}");
        let (_, last) = messages.last().unwrap();
        assert!(last["id"] == 20 && last["result"].is_object(), "{last}");
    });
}

/// A server that answers with plain JSON, and says nothing before.
#[test]
fn an_answer_of_json_stays_json_through_embed_http() {
    let silent = Server::start("silent", &["--json", "--sessions"]);
    let client = Client::open("embed-http", &[silent.address()]);
    let mut answer = client.call(json!(1), "sleep", json!({ "seconds": 0.2 }));
    assert_eq!(answer.header("content-type").unwrap(), "application/json");
    let text = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"slept for 200ms"}],"isError":false}}"#;
    assert_eq!(answer.rest(), text);
    assert_eq!(client.delete(), 200);
    assert_eq!(client.call(json!(2), "echo", json!({})).status(), 404);
}
