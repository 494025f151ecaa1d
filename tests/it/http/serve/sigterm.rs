//! SIGTERM: which requests may finish, which clients are told, and the exit code.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::proxy::Start;
use super::*;
use crate::support::messages::{agreement, initialize};
use crate::support::until;

/// The error of a call that is cut.
const CUT: &str =
    "Milepost is shutting down, and the time of `drain` ended before the server answered";

/// Waits for calls for longer than any test: what ends sooner ends for another reason.
const PATIENT: &str = r#"drain = "10m""#;

/// Turns off everything that a timer would add.
const SILENT: &str = "heartbeat.enabled = false\nkeep_alive = \"off\"\nupgrade_after = \"off\"";

/// Heartbeats often enough not to wait for them.
const BEATS: &str = r#"heartbeat = { after = "100ms", every = "100ms" }"#;

fn route(upstream: &Upstream) -> String {
    format!("upstream.url = \"{}\"", upstream.url())
}

#[test]
fn open_calls_go_on_with_their_heartbeats_and_finish() {
    let upstream = Upstream::start();
    let mut proxy = Proxy::with(&Start { defaults: BEATS, ..Start::default() }, &route(&upstream));
    assert_eq!(proxy.probe("/readyz"), (200, "ready\n".to_owned()));
    let mut asked = post(&proxy, &call("7", "\"t\""));
    let mut server = upstream.asked();
    server.events();
    assert_eq!(json(&asked.event().unwrap())["params"]["progressToken"], "t");
    let mut silent = post(&proxy, &call("8", ""));
    let mut not_begun = upstream.asked();
    let line = proxy.stop();
    assert!(line.contains("open=2 drain_s=30"), "{line}");
    assert_eq!(proxy.probe("/readyz"), (503, "stopping\n".to_owned()));
    assert_eq!(proxy.probe("/livez"), (200, "alive\n".to_owned()));
    // More heartbeats than could already have been on their way.
    for _ in 0..5 {
        let beat = json(&asked.event().unwrap());
        assert_eq!(beat["params"]["progressToken"], "t");
    }
    server.say(legacy_progress("7", "nearly"));
    while json(&asked.event().unwrap())["params"]["message"] != "nearly" {}
    server.say(result_event("7")).end();
    assert_eq!(asked.events().last(), Some(&result_event("7")));
    not_begun.json(&result("8"));
    assert_eq!(silent.rest(), result("8"));
    assert_eq!(proxy.code(), Some(0));
    proxy.logged(&["stopped", "code=0"]);
}

#[test]
fn calls_that_do_not_finish_in_time_are_answered_with_an_error() {
    let upstream = Upstream::start();
    let start = Start { server: r#"drain = "300ms""#, defaults: SILENT, ..Start::default() };
    let mut proxy = Proxy::with(&start, &route(&upstream));
    let mut begun = post(&proxy, &call("7", "1"));
    let mut server = upstream.asked();
    server.events().say(legacy_progress("7", "half way"));
    assert_eq!(json(&begun.event().unwrap())["params"]["message"], "half way");
    let mut not_begun = post(&proxy, &call("8", "1"));
    let mut other = upstream.asked();
    let stopped = Instant::now();
    proxy.terminate();
    let events = begun.events();
    assert!(stopped.elapsed().as_millis() >= 300);
    assert_eq!(events.len(), 1, "{events:?}");
    let error = json(&events[0]);
    assert_eq!(error["id"], 7);
    assert_eq!(error["error"]["message"], CUT);
    assert_eq!(not_begun.status(), 503);
    let error = json(&not_begun.rest());
    assert_eq!(error["id"], 8);
    assert_eq!(error["error"]["message"], CUT);
    // No connection had to be cut.
    assert_eq!(proxy.code(), Some(0));
    server.closing();
    other.closing();
    proxy.logged(&["call tool=\"work\"", "outcome=\"milepost stopped\""]);
    assert!(!proxy.log().contains("broken off"), "{}", proxy.log());
}

#[test]
fn streams_that_only_listen_end_at_once() {
    for opaque in [false, true] {
        let upstream = Upstream::start();
        let route = format!("{}\nopaque = {opaque}", route(&upstream));
        let start = Start { server: PATIENT, defaults: SILENT, ..Start::default() };
        let mut proxy = Proxy::with(&start, &route);
        let headers = [("accept", "text/event-stream"), ("mcp-session-id", "s")];
        let mut listening = Exchange::send(proxy.address(), "GET", "/a", &headers, "");
        let mut server = upstream.asked();
        server.events().say(": hello\n\n");
        assert_eq!(listening.event().as_deref(), Some(": hello\n\n"));
        proxy.terminate();
        assert_eq!(listening.events(), Vec::<String>::new());
        server.closing();
        assert_eq!(proxy.code(), Some(0), "opaque: {opaque}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let upstream = Upstream::start();
    let start = Start { server: PATIENT, ..Start::default() };
    let mut proxy = Proxy::with(&start, &route(&upstream));
    let mut asked = post(&proxy, &call("7", "1"));
    let mut server = upstream.asked();
    server.events();
    assert_eq!(asked.status(), 200);
    proxy.stop();
    proxy.terminate();
    assert_eq!(proxy.code(), Some(1));
    server.closing();
    proxy.logged(&["WARN cut what was still open", "requests=1"]);
    proxy.logged(&["stopped", "code=1"]);
}

#[test]
fn without_calls_it_ends_at_once() {
    let upstream = Upstream::start();
    let start = Start { server: PATIENT, ..Start::default() };
    let mut proxy = Proxy::with(&start, &route(&upstream));
    let mut asked = post(&proxy, &call("7", ""));
    upstream.asked().json(&result("7"));
    assert_eq!(asked.rest(), result("7"));
    // The connection of this client is open, and the proxy closes it.
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
}

#[test]
fn the_last_line_of_the_log_says_that_it_has_stopped() {
    // A session with a child writes its own last line when the child has ended.
    let server = "upstream.command = [\"sh\", \"-c\", \"read -r _; \
                  echo '{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":1,\\\"result\\\":{}}'; cat >/dev/null\"]";
    let mut proxy = Proxy::with(&Start::default(), server);
    let asked = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    assert_eq!(post(&proxy, asked).status(), 200);
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
    let log = proxy.log();
    let over = log.lines().position(|line| line.contains("connection over"));
    assert!(over.is_some(), "{log}");
    assert!(log.lines().last().is_some_and(|line| line.contains("stopped code=0")), "{log}");
}

#[test]
fn what_is_only_piped_may_finish_too() {
    // An answer that is not parsed, a large one, and one of an opaque route. Each takes longer than the time that
    // streams are given for their end.
    let large = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"x":"{}"}}}}"#, "x".repeat(1 << 20));
    let finishes = |(opaque, kind, body): (bool, &str, &str)| {
        let upstream = Upstream::start();
        let route = format!("{}\nopaque = {opaque}", route(&upstream));
        let mut proxy = Proxy::with(&Start::default(), &route);
        let mut asked = post(&proxy, &call("7", "1"));
        let mut server = upstream.asked();
        let length = body.len();
        server.raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        ));
        server.raw(&body[..10]);
        assert_eq!(asked.status(), 200);
        proxy.stop();
        thread::sleep(Duration::from_millis(2500));
        server.raw(&body[10..]);
        assert!(asked.rest() == body, "{kind}");
        assert_eq!(proxy.code(), Some(0), "{kind}");
    };
    thread::scope(|scope| {
        for answer in [
            (false, "text/plain", "some text that is no message"),
            (false, "application/json", &*large),
            (true, "text/event-stream", "data: {}\n\n: the end\n\n"),
        ] {
            scope.spawn(move || finishes(answer));
        }
    });
}

/// Calls that each client of [`nothing_is_refused_or_lost_under_load`] makes before the signal.
const BEFORE: usize = 5;

#[test]
fn nothing_is_refused_or_lost_under_load() {
    let upstream = Upstream::start();
    let start = Start { server: r#"linger = "5m""#, ..Start::default() };
    let mut proxy = Proxy::with(&start, &route(&upstream));
    let stopping = AtomicBool::new(false);
    let clients = 4;
    thread::scope(|scope| {
        let (stopping, proxy) = (&stopping, &proxy);
        // A front: its probes learn that the process is not ready, and then it sends no more requests.
        let client = move || {
            let mut done = 0;
            while done < BEFORE || !stopping.load(Relaxed) {
                let mut asked = post(proxy, &call("7", "1"));
                assert_eq!(asked.status(), 200, "{}", proxy.log());
                assert_eq!(asked.events().last(), Some(&result_event("7")));
                done += 1;
            }
            // The request that was on its way when the probe was answered.
            let mut late = post(proxy, &call("7", "1"));
            assert_eq!(late.events().last(), Some(&result_event("7")));
            done + 1
        };
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let server = scope.spawn(move || {
            let mut served = 0;
            loop {
                let mut server = upstream.asked();
                if server.body.contains("\"over\"") {
                    server.json(&result("0"));
                    return served;
                }
                served += 1;
                server.events().say(legacy_progress("7", "nearly"));
                // Longer than the listener takes to close, for calls that are open then.
                thread::sleep(Duration::from_millis(20));
                server.say(result_event("7")).end();
            }
        });
        thread::sleep(Duration::from_millis(200));
        proxy.terminate();
        proxy.logged(&[" stopping ", "linger_s=300"]);
        until("readiness says no", || proxy.probe("/readyz").0 == 503);
        assert_eq!(proxy.probe("/readyz?404"), (404, "stopping\n".to_owned()));
        assert!(proxy.accepts());
        stopping.store(true, Relaxed);
        let asked: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
        let mut over = post(proxy, &call("0", "\"over\""));
        over.rest();
        assert_eq!(server.join().unwrap(), asked);
    });
    // The rest of the drain time is not waited for.
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
    assert!(!proxy.log().contains("cut what"), "{}", proxy.log());
}

#[test]
fn a_replica_that_lingers_lets_others_begin_sessions() {
    let upstream = Upstream::start();
    let start = Start { server: r#"linger = "5m""#, ..Start::default() };
    let routes = format!(
        "[fleet]\nkey = [\"{}\"]\nlisten = \"127.0.0.1:0\"\nadvertise = \"127.0.0.1:7334\"\n\
         [[route]]\npath = \"/a\"\n{}\n[[route]]\npath = \"/b\"\nupstream.command = [\"cat\"]\n",
        "5a".repeat(32),
        route(&upstream)
    );
    let mut proxy = Proxy::serving(&start, &routes);
    let mut begun = post(&proxy, &initialize("2025-06-18"));
    let session = "mcp-session-id: s\r\ncontent-type: application/json\r\n";
    upstream.asked().answer("200 OK", session, agreement("2025-06-18"));
    let id = begun.header("mcp-session-id").unwrap();
    assert_eq!(begun.status(), 200);
    proxy.terminate();
    proxy.logged(&[" stopping "]);
    until("it lingers", || proxy.probe("/readyz").0 == 503);
    for path in ["/a", "/b"] {
        let first = initialize("2025-06-18");
        let mut newcomer = Exchange::send(proxy.address(), "POST", path, &POST, &first);
        assert_eq!(newcomer.status(), 503, "{path}");
        assert_eq!(newcomer.header("retry-after").as_deref(), Some("1"));
        let error = json(&newcomer.rest());
        assert_eq!(error["id"], "i");
        assert!(
            error["error"]["message"].as_str().unwrap().starts_with("this replica is stopping")
        );
    }
    let accept = [("accept", "text/event-stream")];
    let mut newcomer = Exchange::send(proxy.address(), "GET", "/b/sse", &accept, "");
    assert_eq!(newcomer.status(), 503);
    assert_eq!(newcomer.header("retry-after").as_deref(), Some("1"));
    // Clients with a session are still served.
    let headers = [POST[0], POST[1], ("mcp-session-id", &*id)];
    let mut asked = Exchange::send(proxy.address(), "POST", "/a", &headers, &call("7", ""));
    let mut server = upstream.asked();
    assert!(server.head.to_lowercase().contains("mcp-session-id: s\r\n"), "{}", server.head);
    server.json(&result("7"));
    assert_eq!(asked.rest(), result("7"));
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
}
