//! `milepost wrap URL` as a process: real servers, real sockets, real signals.

use std::process::Command;

use crate::http::serve::idle_connections::{Closes, ClosingServer};
use crate::http::serve::scripted_server::{Upstream, dead};
use crate::support::milepost;
use crate::support::server::Server;
use crate::support::session::Session;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const RESULT: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#;

fn command(args: &[&str]) -> Command {
    let mut command = milepost();
    command.arg("wrap").args(args);
    command
}

fn wrap(args: &[&str]) -> Session {
    Session::start(&mut command(args))
}

#[test]
fn an_example_server_is_spoken_to_and_its_tools_report() {
    let server = Server::start("swissarmyhammer", &["--generation", "s2", "--pace", "200ms"]);
    let mut session = wrap(&[server.url()]);
    session.tell(INITIALIZE);
    assert!(session.line().contains("serverInfo"));
    session.tell(INITIALIZED);
    session.call("1", Some("\"t\""), "code_context", "{}");
    let lines = session.lines_until(r#""id":1"#);
    assert!(lines.len() > 1, "{lines:?}");
    assert!(lines[0].contains(r#""progressToken":"t""#), "{lines:?}");
    let (rest, code, error) = session.finish();
    assert_eq!((&*rest, code), ("", Some(0)), "{error}");
}

#[test]
fn a_silent_example_server_is_given_heartbeats() {
    let server = Server::start("silent", &["--json", "--sessions", "--pace", "1s"]);
    let mut session =
        wrap(&["--heartbeat-after", "200ms", "--heartbeat-every", "200ms", server.url()]);
    session.tell(INITIALIZE);
    session.line();
    session.tell(INITIALIZED);
    session.tell(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let tools = session.line();
    let tool = tools.split(r#""name":""#).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    session.call("2", Some("7"), tool, "{}");
    let lines = session.lines_until(r#""id":2"#);
    assert!(lines[0].contains("running"), "{lines:?}");
    // What was asked before the last word is still answered.
    session.call("3", None, tool, "{}");
    let (rest, code, error) = session.finish();
    assert!(rest.contains(r#""id":3,"result""#), "{rest}{error}");
    assert_eq!(code, Some(0));
}

#[test]
fn nobody_at_the_address_is_an_error_of_the_request() {
    let (_held, address) = dead();
    let mut session = wrap(&[&format!("http://{address}/mcp")]);
    session.tell(INITIALIZE);
    let line = session.line();
    assert!(line.contains(&format!("cannot connect to {address}: Connection refused")), "{line}");
    let (_, code, _) = session.finish();
    assert_eq!(code, Some(1));
}

#[test]
fn a_client_that_says_nothing_costs_no_connection() {
    let upstream = Upstream::start();
    let (out, code, _) = wrap(&[&upstream.url()]).finish();
    assert_eq!((&*out, code), ("", Some(0)));
    assert!(upstream.is_idle());
}

#[test]
fn a_file_without_a_token_is_said_before_the_first_request() {
    let upstream = Upstream::start();
    let url = upstream.url();
    for (file, said) in [
        ("/nowhere/token", "--bearer-file: /nowhere/token: No such file or directory"),
        ("/dev/null", "--bearer-file: /dev/null: it holds no token"),
    ] {
        let (out, code, error) = wrap(&["--bearer-file", file, &url]).finish();
        assert_eq!((&*out, code), ("", Some(2)), "{error}");
        assert!(error.contains(said), "{error}");
    }
    assert!(upstream.is_idle());
}

#[test]
fn headers_and_tokens_come_from_the_command_line_and_the_environment() {
    let upstream = Upstream::start();
    let url = upstream.url();
    let args =
        ["--header", "X-Key: a${KEY}", "--header", "X-Two: 2", "--bearer-env", "TOKEN", &url];
    let mut session = Session::start(
        command(&args).env("KEY", "bc").env("TOKEN", "s3cret").env("MILEPOST_LOG", "debug"),
    );
    session.tell(INITIALIZE);
    let mut asked = upstream.asked();
    let head = asked.head.to_ascii_lowercase();
    for line in ["x-key: abc\r\n", "x-two: 2\r\n", "authorization: bearer s3cret\r\n"] {
        assert!(head.contains(line), "{head}");
    }
    asked.answer("401 Unauthorized", "", "");
    let line = session.line();
    assert!(line.contains("--bearer-file"), "{line}");
    let (_, code, error) = session.finish();
    assert_eq!(code, Some(0));
    assert!(!error.contains("s3cret") && !line.contains("s3cret"), "{error}");
}

#[test]
fn headers_of_variables_are_sent_as_they_are_and_the_transport_can_be_said() {
    let upstream = Upstream::start();
    let url = upstream.url();
    let args = ["--transport", "sse", "--header-env", "X-Key=KEY", "--header-env=X-Two=TWO", &url];
    let mut session = Session::start(command(&args).env("KEY", "a ${TWO}").env("TWO", "2"));
    session.tell(INITIALIZE);
    let mut asked = upstream.asked();
    let head = asked.head.to_ascii_lowercase();
    assert!(head.starts_with("get /mcp "), "{head}");
    for line in ["x-key: a ${two}\r\n", "x-two: 2\r\n"] {
        assert!(head.contains(line), "{head}");
    }
    asked.answer("404 Not Found", "", "");
    session.line();
    session.finish();
}

#[test]
fn a_signal_ends_the_session_in_order() {
    let upstream = Upstream::start();
    let mut session = wrap(&[&upstream.url()]);
    session.tell(INITIALIZE);
    upstream.asked().answer(
        "200 OK",
        "content-type: application/json\r\nmcp-session-id: s-1\r\n",
        RESULT,
    );
    assert_eq!(session.line(), RESULT);
    session.call("1", None, "work", "{}");
    let _open = upstream.asked();
    session.signal("TERM");
    let mut delete = upstream.asked();
    assert!(delete.head.starts_with("DELETE /mcp "), "{}", delete.head);
    assert!(delete.head.to_ascii_lowercase().contains("mcp-session-id: s-1"));
    delete.answer("200 OK", "", "");
    let (rest, code, _) = session.ended();
    assert!(rest.contains(r#""id":1,"error""#) && rest.contains("shutting down"), "{rest}");
    assert_eq!(code, Some(0));
}

#[track_caller]
fn check_refused(args: &[&str], why: &str) {
    let (out, code, error) = wrap(args).finish();
    assert_eq!((&*out, code), ("", Some(2)), "{error}");
    assert!(error.contains(why), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let url = "http://127.0.0.1:1/mcp";
    check_refused(&["--header", "secret", url], "`Name: value` is expected");
    check_refused(&["--header", "A B: secret", url], "\"A B\": `Name: value` is expected");
    check_refused(&["--header", "A: ${MILEPOST_NONE}", url], "`MILEPOST_NONE` is not set");
    check_refused(&["--bearer-env", "MILEPOST_NONE", url], "`MILEPOST_NONE` is not set");
    check_refused(&["--header-env", "A B=secret", url], "`NAME=VAR` is expected");
    check_refused(
        &["--header-env", "A=MILEPOST_NONE", url],
        "A: the environment variable `MILEPOST_NONE`",
    );
    check_refused(&["--transport", "sse", "--", "true"], "for a server at an address");
    check_refused(&[url, "--header", "A: b"], "options come before it");
    check_refused(&["--header", "A: b", "--", "true"], "for a server at an address");
}

#[test]
fn who_only_looks_on_changes_nothing() {
    let server = Server::start("silent", &["--json", "--sessions", "--pace", "10ms"]);
    let mut session = wrap(&["--mode", "observe", server.url()]);
    session.tell(INITIALIZE);
    assert!(session.line().contains("serverInfo"));
    session.tell(INITIALIZED);
    session.tell(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    assert!(session.line().contains(r#""id":1"#));
    let (rest, code, error) = session.finish();
    assert_eq!((&*rest, code), ("", Some(0)), "{error}");
}

#[test]
fn each_request_to_a_server_that_closes_its_connections_is_answered() {
    let server = ClosingServer::start(Closes::EachTime);
    let mut session = wrap(&[&server.url()]);
    session.tell(INITIALIZE);
    assert!(session.line().contains("serverInfo"));
    session.tell(INITIALIZED);
    for id in 1..=100 {
        session.tell(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#));
        let answer = session.line();
        assert!(answer.contains(&format!(r#""id":{id},"result""#)), "{answer}{}", session.stderr());
    }
    server.assert_each_once(101);
    session.finish();
}
