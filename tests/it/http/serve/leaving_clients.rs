//! Clients that leave in the middle of a call.

use super::proxy::Start;
use super::*;

/// Turns off everything that is written by a timer and would notice that the client has disconnected.
const SILENT: &str =
    "heartbeat = { enabled = false }\nkeep_alive = \"off\"\nupgrade_after = \"off\"";

/// Milepost waits for no client that has disconnected, and each of its calls has its log line.
#[track_caller]
fn check(open: impl Fn(&Proxy, &Upstream) -> (Exchange, scripted_server::Asked)) {
    let log = check_listener(open);
    let calls: Vec<&str> = log.lines().filter(|line| line.contains(" call tool=")).collect();
    assert_eq!(calls.len(), 3, "{log}");
    for line in calls {
        assert!(
            line.contains("tool=\"work\"") && line.contains("outcome=\"client left\""),
            "{line}"
        );
    }
}

#[track_caller]
fn check_listener(
    open: impl Fn(&Proxy, &Upstream) -> (Exchange, scripted_server::Asked),
) -> String {
    let upstream = Upstream::start();
    // If the proxy waited for a client that has disconnected, it would wait longer than this test.
    let start = Start { defaults: SILENT, server: r#"drain = "10m""#, ..Start::default() };
    let mut proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    for _ in 0..3 {
        let (client, mut server) = open(&proxy, &upstream);
        drop(client);
        server.closing();
    }
    // No call is left to wait for.
    let line = proxy.stop();
    assert!(line.contains("open=0 "), "{line}");
    assert_eq!(proxy.code(), Some(0));
    assert!(upstream.is_idle());
    proxy.log()
}

#[test]
fn a_call_whose_client_leaves_before_the_answer_begins_is_given_up() {
    check(|proxy, upstream| {
        let asked = post(proxy, &call("7", "1"));
        (asked, upstream.asked())
    });
}

#[test]
fn a_call_whose_client_leaves_in_a_silent_stream_is_given_up() {
    check(|proxy, upstream| {
        let mut asked = post(proxy, &call("7", "1"));
        let mut server = upstream.asked();
        server.events();
        assert_eq!(asked.status(), 200);
        (asked, server)
    });
}

#[test]
fn a_call_of_a_session_whose_client_leaves_is_given_up() {
    check(|proxy, upstream| {
        let headers = [POST[0], POST[1], ("mcp-session-id", "s")];
        let mut asked = Exchange::send(proxy.address(), "POST", "/a", &headers, &call("7", "1"));
        let mut server = upstream.asked();
        server.events().say(legacy_progress("7", "begun"));
        assert_eq!(json(&asked.event().unwrap())["params"]["message"], "begun");
        (asked, server)
    });
}

#[test]
fn a_stream_whose_listener_leaves_is_closed() {
    check_listener(|proxy, upstream| {
        let headers = [("accept", "text/event-stream"), ("mcp-session-id", "s")];
        let mut asked = Exchange::send(proxy.address(), "GET", "/a", &headers, "");
        let mut server = upstream.asked();
        server.events();
        assert_eq!(asked.status(), 200);
        (asked, server)
    });
}

#[test]
fn an_answer_of_json_whose_client_leaves_within_it_is_given_up() {
    check(|proxy, upstream| {
        let asked = post(proxy, &call("7", ""));
        let mut server = upstream.asked();
        server.raw(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
        );
        (asked, server)
    });
}

/// The client can come back for the rest: the call is over with its session.
#[test]
fn a_call_that_could_be_resumed_has_its_line_when_its_session_is_over() {
    let upstream = Upstream::start();
    let start = Start { defaults: SILENT, ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    let headers = [POST[0], POST[1], ("mcp-session-id", "s")];
    let mut asked = Exchange::send(proxy.address(), "POST", "/a", &headers, &call("7", "1"));
    let mut server = upstream.asked();
    server.events().say(format!("id: 1\n{}", legacy_progress("7", "begun")));
    asked.event().unwrap();
    drop(asked);
    server.closing();
    let mut ended = Exchange::send(proxy.address(), "DELETE", "/a", &headers, "");
    upstream.asked().raw("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(ended.status(), 200);
    proxy.logged(&["call tool=\"work\"", "outcome=\"client left\"", " sent=1 "]);
}
