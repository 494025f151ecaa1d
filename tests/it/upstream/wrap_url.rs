//! `milepost wrap URL` as a process: real servers, real sockets, real signals.

use std::process::Command;

use crate::http::serve::idle_connections::{Closes, ClosingServer};
use crate::http::serve::legacy_server::Legacy;
use crate::http::serve::scripted_server::{Upstream, dead};
use crate::http::serve::tls_and_http2::Pki;
use crate::support::forward_proxy::{Asks, ForwardProxy};
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
    crate::support::within_tries(|| {
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
    });
}

#[test]
fn a_silent_example_server_is_given_heartbeats() {
    crate::support::within_tries(|| {
        let server = Server::start("silent", &["--json", "--sessions", "--pace", "1s"]);
        let mut session =
            wrap(&["--heartbeat-after", "200ms", "--heartbeat-every", "200ms", server.url()]);
        session.tell(INITIALIZE);
        session.line();
        session.tell(INITIALIZED);
        session.tell(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        let tools = session.line();
        let tool =
            tools.split(r#""name":""#).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        session.call("2", Some("7"), tool, "{}");
        let lines = session.lines_until(r#""id":2"#);
        assert!(lines[0].contains("running"), "{lines:?}");
        // Requests that were sent before the end of the input are still answered.
        session.call("3", None, tool, "{}");
        let (rest, code, error) = session.finish();
        assert!(rest.contains(r#""id":3,"result""#), "{rest}{error}");
        assert_eq!(code, Some(0));
    });
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
    let tls = "https://127.0.0.1:1/mcp";
    check_refused(
        &["--forward-proxy", "${MILEPOST_NONE}", tls],
        "--forward-proxy: the environment variable",
    );
    check_refused(
        &["--forward-proxy", "socks5://secret@a:1", tls],
        "--forward-proxy: a proxy at socks5: is not",
    );
    check_refused(&["--forward-proxy", "secret", tls], "--forward-proxy: this is no URL");
    check_refused(&["--ca-file", "/none.pem", tls], "--ca-file: cannot read /none.pem");
    check_refused(&["--ca-file", "/dev/null", tls], "/dev/null holds no certificate in PEM form");
    check_refused(&["--ca-file", "/dev/null", url], "--ca-file: it is for https:// only");
    check_refused(&["--forward-proxy", "none", "--", "true"], "only for a server at a URL");
    check_refused(&["--transport", "sse", "--", "true"], "only for a server at a URL");
    check_refused(&[url, "--header", "A: b"], "options come before it");
    check_refused(&["--header", "A: b", "--", "true"], "only for a server at a URL");
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

/// The answer to `initialize` through `wrap` with these arguments and variables, and the log.
fn initialize_through(args: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    let mut session = Session::start(command(args).envs(variables.iter().copied()));
    session.tell(INITIALIZE);
    let line = session.line();
    let (_, _, error) = session.finish();
    (line, error)
}

#[test]
fn a_server_behind_a_forward_proxy_is_reached() {
    let server = Server::start("silent", &["--json", "--sessions", "--pace", "10ms"]);
    let forward = ForwardProxy::before(server.url(), Asks::For("Basic YTpjNG40cnk=")); // a:c4n4ry
    let (secret, shown) = (forward.url("a:c4n4ry@"), forward.url(""));
    for (args, variables) in [
        (&["--forward-proxy", "${CORP}", "http://mcp.test/mcp"][..], &[("CORP", &*secret)][..]),
        (&["http://mcp.test/mcp"], &[("HTTP_PROXY", &*secret)]),
        (&["http://mcp.test/mcp"], &[("all_proxy", &*secret)]),
        (
            &["--forward-proxy", "${CORP}", "http://mcp.test/mcp"],
            &[("CORP", &*secret), ("NO_PROXY", "*")],
        ),
    ] {
        let (line, error) = initialize_through(args, variables);
        assert!(line.contains("serverInfo"), "{line}{error}");
        assert!(error.contains("go through a proxy") && error.contains(&shown), "{error}");
        assert!(!error.contains("c4n4ry") && !error.contains("YTpjNG40cnk"), "{error}");
        let heads = forward.heads();
        assert!(heads[0].starts_with("POST http://mcp.test/mcp HTTP/1.1\r\n"), "{heads:?}");
    }
    let (line, error) =
        initialize_through(&["--forward-proxy", &shown, "http://mcp.test/mcp"], &[]);
    let words = "it answers 407 Proxy Authentication Required; write its credentials into its URL";
    assert!(line.contains(words), "{line}{error}");
    // Servers on this machine are reached directly, and so is every server with `none`.
    forward.heads();
    let proxies = [("HTTP_PROXY", &*shown), ("ALL_PROXY", &*shown)];
    for args in [&[server.url()][..], &["--forward-proxy", "none", server.url()]] {
        let (line, error) = initialize_through(args, &proxies);
        assert!(line.contains("serverInfo") && forward.heads().is_empty(), "{line}{error}");
        assert!(!error.contains("WARN"), "{error}");
    }
}

#[test]
fn a_tunnel_that_the_forward_proxy_refuses_is_an_error_of_the_request() {
    let upstream = Upstream::start();
    let forward = ForwardProxy::before(&upstream.url(), Asks::Refuses("403 Forbidden"));
    let url = forward.url("");
    let (line, error) = initialize_through(&["https://mcp.test/mcp"], &[("HTTPS_PROXY", &url)]);
    let words =
        format!("the proxy {url} refuses the way to mcp.test:443: it answers 403 Forbidden");
    assert!(line.contains(&words), "{line}{error}");
    assert!(forward.heads()[0].starts_with("CONNECT mcp.test:443 HTTP/1.1\r\n"));
    assert!(upstream.is_idle());
}

#[test]
fn the_authority_of_the_server_is_named_on_the_command_line() {
    let (known, other) = (Pki::new("127.0.0.1"), Pki::new("127.0.0.1"));
    let server = Legacy::start(1, Some(known.server(&[], false)));
    let url = server.url("https");
    let file = |pki: &Pki| pki.path("ca.pem").display().to_string();
    let (known, other) = (file(&known), file(&other));
    for (files, is_trusted) in [
        (&[&*known][..], true),
        (&[&*other, &*known], true),
        (&["system", &*known], true),
        (&[], false),
        (&[&*other], false),
        (&["system"], false),
    ] {
        let flags = files.iter().flat_map(|file| ["--ca-file", file]);
        let args: Vec<&str> = flags.chain([&*url]).collect();
        let (line, error) = initialize_through(&args, &[]);
        assert_eq!(line.contains(r#""name":"legacy""#), is_trusted, "{line}{error}");
        let words = ["invalid peer certificate", "`--ca-file` of a command line"];
        let is_told = words.iter().all(|words| line.contains(words));
        assert_eq!(is_told, !is_trusted, "{line}");
    }
}
