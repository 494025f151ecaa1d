//! Limits for each client. A trusted front on loopback names the clients.

use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;
use crate::support::messages::modern;
use crate::support::until;

/// Sends a request for which a front names these addresses.
fn ask(proxy: &Proxy, method: &str, named: &str, headers: &[(&str, &str)], body: &str) -> Exchange {
    let headers = [&POST[..], &[("x-forwarded-for", named)], headers].concat();
    Exchange::send(proxy.address(), method, "/a", &headers, body)
}

fn refusals(proxy: &Proxy, limit: &str) -> f64 {
    let page = Page::read(&proxy.probe("/metrics").1);
    page.sum("milepost_client_limit_total", &[("limit", limit)])
}

#[test]
fn a_client_has_so_many_streams_and_others_have_theirs() {
    let upstream = Upstream::start();
    let server = "trusted_proxies = [\"127.0.0.1\"]\nmax_client_streams = 1";
    let start = Start { server, ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    let mut first = ask(&proxy, "POST", "203.0.113.7", &[], &call("1", ""));
    let mut one = upstream.asked();
    // Neither a header of the client nor an invented token makes it count as another client.
    let invented = [("authorization", "Bearer invented")];
    let listen = [("accept", "text/event-stream"), invented[0]];
    let why = "this client has as many streams as it may: see max_client_streams of [server]";
    for (method, headers, body, expected) in [
        ("POST", &invented[..], call("2", ""), own_error("2", why, "")),
        ("GET", &listen, String::new(), format!("{why}\n")),
    ] {
        let mut refused = ask(&proxy, method, "6.6.6.6, 203.0.113.7", headers, &body);
        assert_eq!(refused.status(), 429, "{method}");
        assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
        assert_eq!(refused.rest(), expected);
    }
    proxy.logged(&["WARN refused", "max_client_streams", "client=203.0.113.7"]);
    assert_eq!(refusals(&proxy, "streams"), 2.0);
    assert!(upstream.is_idle());
    // Another client, and a request of the front that names no client.
    let mut other = ask(&proxy, "POST", "203.0.113.8", &[], &call("3", ""));
    let mut two = upstream.asked();
    let mut unnamed = post(&proxy, &call("4", ""));
    upstream.asked().json(&result("4"));
    assert_eq!(unnamed.rest(), result("4"));
    one.json(&result("1"));
    assert_eq!(first.rest(), result("1"));
    let (mut again, mut server) =
        once_there_is_room(&upstream, || ask(&proxy, "POST", "203.0.113.7", &[], &call("5", "")));
    server.json(&result("5"));
    assert_eq!(again.rest(), result("5"));
    two.json(&result("3"));
    assert_eq!(other.rest(), result("3"));
}

#[test]
fn a_client_has_a_quarter_of_the_bytes_that_wait_in_memory() {
    let upstream = Upstream::start();
    let server = "trusted_proxies = [\"127.0.0.1\"]\nmax_kept_bytes = 1_048_576";
    let start = Start { server, ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    let large = |id: &str, bytes: usize| {
        call(id, "")
            .replace(r#""params":{"#, &format!(r#""params":{{"x":"{}","#, "x".repeat(bytes)))
    };
    let mut first = ask(&proxy, "POST", "203.0.113.7", &[], &large("1", 250_000));
    let mut one = upstream.asked();
    let mut second = ask(&proxy, "POST", "203.0.113.7", &[], &large("2", 30_000));
    assert_eq!((second.status(), second.header("retry-after").as_deref()), (429, Some("1")));
    let why = "too many bytes of messages wait here for this client, try again later (a quarter of server.max_kept_bytes)";
    assert_eq!(second.rest(), own_error("2", why, ""));
    proxy.logged(&["refused", "max_kept_bytes"]);
    // Another client has its own share, a quarter.
    let mut other = ask(&proxy, "POST", "203.0.113.8", &[], &large("3", 250_000));
    upstream.asked().json(&result("3"));
    assert_eq!(other.rest(), result("3"));
    one.json(&result("1"));
    assert_eq!(first.rest(), result("1"));
    let (mut again, mut server) = once_there_is_room(&upstream, || {
        ask(&proxy, "POST", "203.0.113.7", &[], &large("4", 250_000))
    });
    server.json(&result("4"));
    assert_eq!(again.rest(), result("4"));
}

#[test]
fn a_request_for_which_no_bytes_are_left_is_refused_alike_on_every_transport() {
    let (upstream, legacy) = (Upstream::start(), Upstream::start());
    let server = "trusted_proxies = [\"127.0.0.1\"]\nmax_kept_bytes = 1_048_576";
    let start = Start { server, ..Start::default() };
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let routes = format!(
        "[[route]]\npath = \"/a\"\nupstream.url = \"{}\"\n[[route]]\npath = \"/b\"\nupstream.command = {command}\n\
         [[route]]\npath = \"/c\"\nupstream.sse = \"{}\"\n",
        upstream.url(),
        legacy.url()
    );
    let proxy = Proxy::serving(&start, &routes);
    let send = |method: &str, path: &str, named: &str, more: &[(&str, &str)], body: &str| {
        let headers = [&POST[..], &[("x-forwarded-for", named)], more].concat();
        Exchange::send(proxy.address(), method, path, &headers, body)
    };
    let large = |id: &str, bytes: usize| {
        let text = "x".repeat(bytes);
        call(id, "").replace(r#""params":{"#, &format!(r#""params":{{"x":"{text}","#))
    };
    let newcomer = "203.0.113.99";
    let session = send("POST", "/b", newcomer, &[], INITIALIZE).header("mcp-session-id").unwrap();
    let listen = [("accept", "text/event-stream")];
    let open = |path: &str| Exchange::send(proxy.address(), "GET", path, &listen, "");
    let (mut of_child, mut of_legacy) = (open("/b/sse"), open("/c/sse"));
    let mut stream = legacy.asked();
    stream.events().say("event: endpoint\ndata: /messages?id=1\n\n");
    let endpoint = |stream: &mut Exchange| {
        let event = stream.event().unwrap();
        event.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned()
    };
    let (to_child, to_legacy) = (endpoint(&mut of_child), endpoint(&mut of_legacy));
    // Calls that the server does not answer take nearly all bytes.
    let held: Vec<_> = (0..4)
        .map(|client| {
            let named = format!("203.0.113.{client}");
            (send("POST", "/a", &named, &[], &large("1", 245_000)), upstream.asked())
        })
        .collect();
    let of_session = [("mcp-session-id", &*session)];
    let of_modern = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "work"),
    ];
    let text = "x".repeat(100_000);
    let params = format!(r#""name":"work","arguments":{{"x":"{text}"}},"#);
    let modern_call = modern(7, "tools/call", &params);
    let why = "too many bytes of messages wait here, try again later (server.max_kept_bytes)";
    for (path, more, body) in [
        ("/a", &[][..], &large("7", 100_000)),
        ("/b", &of_session, &large("7", 100_000)),
        ("/b", &of_modern, &modern_call),
        (&to_child, &[], &large("7", 100_000)),
        (&to_legacy, &[], &large("7", 100_000)),
    ] {
        let mut refused = send("POST", path, newcomer, more, body);
        assert_eq!(refused.status(), 503, "{path}: {}", refused.rest());
        assert_eq!(refused.header("retry-after").as_deref(), Some("1"), "{path}");
        assert_eq!(refused.header("content-type").as_deref(), Some("application/json"), "{path}");
        assert_eq!(refused.rest(), own_error("7", why, ""), "{path}");
        // A notification has no id to answer.
        let note = large("7", 100_000).replace(r#""id":7,"#, "");
        let mut refused = send("POST", path, newcomer, &of_session, &note);
        assert_eq!(refused.header("retry-after").as_deref(), Some("1"), "{path}");
        assert_eq!((refused.status(), refused.rest()), (503, format!("{why}\n")), "{path}");
    }
    proxy.logged(&["WARN", "refused: messages that wait in memory", "max_kept_bytes"]);
    drop(held);
}

/// Answers every request but calls of `slow`.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if said.get("params", {}).get("name") == "slow":
        continue
    if "id" in said and "method" in said:
        result = {"protocolVersion": said.get("params", {}).get("protocolVersion"),
                  "resultType": "complete", "content": [],
                  "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"#;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

/// In front of a stdio server, with these keys of `[server]`.
fn with_children(keys: &str) -> Proxy {
    let server = format!("trusted_proxies = [\"127.0.0.1\"]\n{keys}");
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let start = Start { server: &server, ..Start::default() };
    Proxy::with(&start, &format!("upstream.command = {command}"))
}

#[test]
fn a_client_has_so_many_sessions_and_children_and_others_have_theirs() {
    for limit in ["sessions", "children"] {
        let proxy = with_children(&format!("max_client_{limit} = 1"));
        let begin = |named: &str| ask(&proxy, "POST", named, &[], INITIALIZE);
        let id = begin("203.0.113.7").header("mcp-session-id").unwrap();
        let mut refused = begin("203.0.113.7");
        assert_eq!(refused.status(), 429, "{limit}");
        assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
        let error = json(&refused.rest());
        let why = format!(
            "this client has as many {limit} as it may: see max_client_{limit} of [server]"
        );
        assert!(error["error"]["message"].as_str().unwrap().contains(&why), "{error}");
        assert_eq!(error["id"], 0);
        assert_eq!(refusals(&proxy, limit), 1.0);
        assert_eq!(begin("203.0.113.8").status(), 200);
        let session = [("mcp-session-id", &*id)];
        assert_eq!(ask(&proxy, "DELETE", "203.0.113.7", &session, "").status(), 200);
        until("another session", || begin("203.0.113.7").status() == 200);
    }
}

#[test]
fn the_body_of_a_call_counts_as_long_as_it_is_held() {
    let proxy = with_children("max_kept_bytes = 1_048_576");
    let id = ask(&proxy, "POST", "203.0.113.7", &[], INITIALIZE).header("mcp-session-id").unwrap();
    let large = |id: u64, bytes: usize| {
        let params = format!(r#"{{"name":"work","arguments":{{"x":"{}"}}}}"#, "x".repeat(bytes));
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    };
    let session = [("mcp-session-id", &*id)];
    for number in 1..20 {
        let mut text = String::new();
        // The bytes of the previous call's body are released a moment after the answer.
        until("there is room", || {
            text = ask(&proxy, "POST", "203.0.113.7", &session, &large(number, 250_000)).rest();
            !text.contains("max_kept_bytes")
        });
        assert!(text.contains(r#""content": []"#), "{number}: {text}");
    }
    // More bytes than the client's share at once.
    let mut refused = ask(&proxy, "POST", "203.0.113.7", &session, &large(20, 300_000));
    assert_eq!(refused.status(), 429, "{}", refused.rest());
}

#[test]
fn a_client_starts_so_many_children_in_a_minute() {
    let proxy = with_children("max_client_child_starts = 2");
    for _ in 0..2 {
        assert_eq!(ask(&proxy, "POST", "203.0.113.7", &[], INITIALIZE).status(), 200);
    }
    let mut refused = ask(&proxy, "POST", "203.0.113.7", &[], INITIALIZE);
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    assert!(refused.rest().contains("max_client_child_starts"));
    assert_eq!(proxy.servers(), 2);
    assert_eq!(ask(&proxy, "POST", "203.0.113.8", &[], INITIALIZE).status(), 200);
    assert_eq!(refusals(&proxy, "child_starts"), 1.0);
}

#[test]
fn a_client_has_its_share_of_the_calls_of_a_shared_child() {
    let server = "trusted_proxies = [\"127.0.0.1\"]";
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let route = format!("upstream.command = {command}\nupstream.max_shared_calls = 1");
    let proxy = Proxy::with(&Start { server, ..Start::default() }, &route);
    let call = |named: &str, tool: &str| {
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
        ];
        let params = format!(r#""name":"{tool}","arguments":{{}},"#);
        ask(&proxy, "POST", named, &headers, &modern(7, "tools/call", &params))
    };
    let waiting = call("203.0.113.7", "slow");
    until("a call is open", || {
        Page::read(&proxy.probe("/metrics").1).sum("milepost_streams", &[]) >= 1.0
    });
    let mut refused = call("203.0.113.7", "fast");
    assert_eq!(refused.status(), 429);
    assert!(refused.rest().contains("upstream.max_shared_calls"));
    assert_eq!(call("203.0.113.8", "fast").status(), 200);
    assert_eq!(refusals(&proxy, "shared_calls"), 1.0);
    assert_eq!(proxy.servers(), 1);
    drop(waiting);
    // A call whose client has disconnected counts until its server is informed.
    until("another call", || call("203.0.113.7", "fast").status() == 200);
}

#[test]
fn without_a_limit_and_over_loopback_a_client_has_all_streams_of_the_route() {
    for server in
        ["trusted_proxies = [\"127.0.0.1\"]\nmax_client_streams = 0", "max_client_streams = 1"]
    {
        let upstream = Upstream::start();
        let start = Start { server, ..Start::default() };
        let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
        let mut asked = Vec::new();
        for id in ["1", "2", "3"] {
            asked.push((
                ask(&proxy, "POST", "203.0.113.7", &[], &call(id, "")),
                upstream.asked(),
                id,
            ));
        }
        for (mut client, mut server, id) in asked {
            server.json(&result(id));
            assert_eq!(client.rest(), result(id));
        }
    }
}
