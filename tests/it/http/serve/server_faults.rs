//! Servers that are not there, talk nonsense, or die.

use super::proxy::Start;
use super::*;
use crate::http::serve::scripted_server::{Asked, dead};

/// The error that stands for an answer which the server has not given.
#[track_caller]
fn check_error(text: &str, id: i64) -> String {
    let error = json(text);
    assert_eq!((&error["jsonrpc"], &error["id"]), (&"2.0".into(), &id.into()), "{text}");
    assert!(error["error"]["code"].is_i64(), "{text}");
    error["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_server_that_refuses_connections_is_502_with_an_error_for_the_request() {
    let (_socket, address) = dead();
    let proxy = Proxy::before(&format!("http://{address}/mcp"));
    let mut asked = post(&proxy, &call("7", "1"));
    assert_eq!(asked.status(), 502);
    assert_eq!(asked.header("content-type").as_deref(), Some("application/json"));
    let why = check_error(&asked.rest(), 7);
    // The log tells the operator where the server is; the answer does not.
    assert!(why.contains("cannot connect to the server: Connection refused"), "{why}");
    assert!(!why.contains(&address.to_string()), "{why}");
    let expected = format!("cannot connect to {address}: Connection refused");
    proxy.logged(&["WARN", "the request to the server failed", "route=\"/a\"", &expected]);
    // A notification gets no JSON-RPC error.
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut asked = post(&proxy, told);
    assert_eq!(asked.status(), 502);
    let why = asked.rest();
    assert!(why.starts_with("cannot connect to the server"), "{why}");
    assert!(!why.contains(&address.to_string()), "{why}");
    let mut asked = Exchange::send(proxy.address(), "GET", "/a", &[], "");
    assert_eq!(asked.status(), 502);
}

#[test]
fn a_server_that_takes_too_long_to_connect_is_504() {
    // This server accepts connections, but never begins TLS.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let route = format!("upstream.url = \"https://{address}/mcp\"\nconnect_timeout = \"200ms\"");
    let proxy = Proxy::with(&Start::default(), &route);
    let mut asked = post(&proxy, &call("7", ""));
    assert_eq!(asked.status(), 504);
    let expected = format!("cannot connect to {address} within 200ms");
    let why = check_error(&asked.rest(), 7);
    assert!(why.contains("cannot connect to the server within 200ms"), "{why}");
    assert!(!why.contains(&address.to_string()), "{why}");
    proxy.logged(&["WARN", "the request to the server failed", "route=\"/a\"", &expected]);
}

#[test]
fn an_answer_that_is_no_http_is_502() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    for nonsense in ["SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 abc OK\r\n\r\n", "\0\0\0\0\r\n\r\n"] {
        let mut asked = post(&proxy, &call("7", "1"));
        upstream.asked().raw(nonsense);
        assert_eq!(asked.status(), 502, "{nonsense:?}");
        let why = check_error(&asked.rest(), 7);
        assert!(why.contains("the connection to the server failed"), "{why}");
    }
    proxy.logged(&[
        "WARN",
        "the request to the server failed",
        "route=\"/a\"",
        "the connection to the server",
    ]);
}

#[test]
fn answers_that_are_no_messages_pass_as_they_are_and_such_events_as_comments() {
    let upstream = Upstream::start();
    // Only the server's own messages are forwarded, however long they take.
    let route = format!("upstream.url = \"{}\"\nheartbeat.enabled = false", upstream.url());
    let proxy = Proxy::with(&Start::default(), &route);
    for (kind, body) in [
        ("text/html", "<html>It works!</html>"),
        ("application/json", "this is no JSON"),
        ("application/json", "{\"half\":"),
        ("application/json", ""),
    ] {
        let mut asked = post(&proxy, &call("7", "1"));
        upstream.asked().answer("200 OK", &format!("content-type: {kind}\r\n"), body);
        assert_eq!(asked.status(), 200, "{body}");
        assert_eq!(asked.header("content-type").as_deref(), Some(kind));
        assert_eq!(asked.rest(), body);
    }
    let mut asked = post(&proxy, &call("7", "1"));
    let events = ["data: no JSON\n\n", ": comment\n\n", "what: ever\n\n", "data: 3\ndata: 4\n\n"];
    let mut server = upstream.asked();
    server.events();
    for event in events {
        server.say(event);
        let told = if event.starts_with("data:") { ": keep-alive\n\n" } else { event };
        assert_eq!(asked.event().as_deref(), Some(told));
    }
    server.say(result_event("7")).end();
    assert_eq!(asked.events(), [result_event("7")]);
}

type Death = (&'static str, fn(Asked));

/// How a server dies.
fn deaths() -> [Death; 3] {
    [
        ("closed", drop),
        ("reset", Asked::reset),
        ("garbled", |mut server| {
            server.raw("no length\r\n");
        }),
    ]
}

#[test]
fn a_server_that_dies_before_its_answer_is_502_with_an_error_for_the_request() {
    for (how, die) in &deaths()[..2] {
        let upstream = Upstream::start();
        let proxy = Proxy::before(&upstream.url());
        let mut asked = post(&proxy, &call("7", "1"));
        die(upstream.asked());
        assert_eq!(asked.status(), 502, "{how}");
        let why = check_error(&asked.rest(), 7);
        assert!(why.contains("the connection to the server failed"), "{why}");
        proxy.logged(&[
            "WARN",
            "the request to the server failed",
            "the connection to the server failed",
        ]);
        // The request is not repeated: the server may have processed it.
        assert!(upstream.is_idle());
    }
}

#[test]
fn a_server_that_dies_in_a_head_or_in_json_is_502_with_an_error_for_the_request() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    for beginning in [
        "HTTP/1.1 200 OK\r\ncontent-ty",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"id\":7",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"i\r\n",
    ] {
        let mut asked = post(&proxy, &call("7", ""));
        upstream.asked().raw(beginning);
        assert_eq!(asked.status(), 502, "{beginning:?}");
        check_error(&asked.rest(), 7);
    }
}

#[test]
fn a_server_that_dies_within_a_stream_leaves_an_error_and_other_streams_unharmed() {
    for (how, die) in deaths() {
        let upstream = Upstream::start();
        let proxy = Proxy::before(&upstream.url());
        let mut other = post(&proxy, &call("1", "1"));
        let mut others = upstream.asked();
        others.events().say(legacy_progress("1", "begun"));
        assert_eq!(json(&other.event().unwrap())["params"]["message"], "begun");

        let mut asked = post(&proxy, &call("1", "1"));
        let mut server = upstream.asked();
        server.events().say(legacy_progress("1", "half way"));
        assert_eq!(json(&asked.event().unwrap())["params"]["message"], "half way");
        die(server);
        let events = asked.events();
        assert_eq!(events.len(), 1, "{how}: {events:?}");
        let why = check_error(&events[0], 1);
        assert!(why.starts_with("the connection to the server failed: "), "{how}: {why}");
        proxy.logged(&["WARN the stream of a server broke off", "route=\"/a\"", &why]);
        let line = proxy.logged(&["call tool=\"work\"", "outcome=\"server gone\""]);
        assert!(line.contains(" sent=1 "), "{line}");

        others.say(legacy_progress("1", "going on"));
        let event = json(&other.event().unwrap());
        assert_eq!(event["params"]["message"], "going on");
        assert_eq!(event["params"]["progressToken"], 1);
        others.say(result_event("1")).end();
        assert_eq!(other.events(), [result_event("1")], "{how}");
        proxy.logged(&["call tool=\"work\"", "outcome=\"result\""]);
    }
}

#[test]
fn a_stream_that_ends_without_an_answer_is_an_error_too() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let mut asked = post(&proxy, &call("7", "1"));
    upstream.asked().events().say(": nothing more\n\n").end();
    let events = asked.events();
    assert_eq!(events[0], ": nothing more\n\n");
    let why = check_error(&events[1], 7);
    assert_eq!(why, "the server closed the stream without an answer");
    proxy.logged(&["call tool=\"work\"", "outcome=\"server gone\""]);
}

#[test]
fn a_stream_that_can_be_resumed_just_ends_when_its_server_dies() {
    for (how, die) in deaths() {
        let upstream = Upstream::start();
        let proxy = Proxy::before(&upstream.url());
        let mut asked = post(&proxy, &call("7", "1"));
        let mut server = upstream.asked();
        let first = "id: 1\ndata:\n\n";
        server.events().say(first);
        assert_eq!(asked.event().as_deref(), Some(first));
        server.say(legacy_progress("7", "half way"));
        assert_eq!(json(&asked.event().unwrap())["params"]["message"], "half way");
        die(server);
        // The client resumes with the id.
        assert_eq!(asked.events(), Vec::<String>::new(), "{how}");
        proxy.logged(&["WARN the stream of a server broke off", "route=\"/a\""]);
        let back = [("accept", "text/event-stream"), ("last-event-id", "1")];
        let mut again = Exchange::send(proxy.address(), "GET", "/a", &back, "");
        let mut server = upstream.asked();
        assert!(server.head.contains("last-event-id: 1\r\n"), "{}", server.head);
        server.events().say(format!("id: 2\n{}", result_event("7"))).end();
        assert_eq!(again.events(), [format!("id: 2\n{}", result_event("7"))]);
    }
}

#[test]
fn a_server_that_falls_silent_is_given_up_after_the_idle_timeout() {
    let upstream = Upstream::start();
    let route = format!("upstream.url = \"{}\"\nidle_timeout = \"3s\"", upstream.url());
    let proxy = Proxy::with(&Start::default(), &route);
    let mut asked = post(&proxy, &call("7", "1"));
    let mut server = upstream.asked();
    server.events();
    let events = asked.events();
    let why = check_error(events.last().unwrap(), 7);
    assert!(why.contains("the server sent nothing for 3s"), "{why}");
    server.closing();
    proxy.logged(&["WARN the stream of a server broke off", "nothing for 3s"]);
}
