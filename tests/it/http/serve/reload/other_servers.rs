//! Routes that get another server, or go: calls that are open end where they began.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::*;

/// A route with a session of a stdio server.
fn stdio(name: &str) -> String {
    const SERVER: &str = r#"
import json, sys
name = sys.argv[1]
waiting = None
def say(message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    params = said.get("params", {})
    if said.get("method") == "tools/call":
        waiting = said
        say({"jsonrpc": "2.0", "method": "notifications/progress",
             "params": {"progressToken": params["_meta"]["progressToken"], "progress": 1}})
        say({"jsonrpc": "2.0", "id": "ask", "method": "roots/list"})
    elif "method" not in said:
        say({"jsonrpc": "2.0", "id": waiting["id"], "result": {"content": [], "by": name}})
    elif "id" in said:
        version = params.get("protocolVersion")
        result = {"protocolVersion": version, "capabilities": {},
                  "serverInfo": {"name": name, "version": "1"}} if version else {"by": name}
        say({"jsonrpc": "2.0", "id": said["id"], "result": result})
"#;
    let command = serde_json::to_string(&["python3", "-c", SERVER, name]).unwrap();
    format!("[[route]]\npath = \"/a\"\nupstream.command = {command}\nheartbeat.enabled = false\n")
}

fn begin(proxy: &Proxy) -> (String, String) {
    let mut answer = post(proxy, INITIALIZE);
    let session = answer.header("mcp-session-id").unwrap();
    let name = json(&answer.rest())["result"]["serverInfo"]["name"].as_str().unwrap().to_owned();
    (session, name)
}

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

const ROOTS: &str = r#"{"jsonrpc":"2.0","id":"ask","result":{"roots":[]}}"#;

fn children(proxy: &Proxy) -> f64 {
    number(proxy, "milepost_children", &[])
}

#[test]
fn with_another_command_a_call_ends_at_the_old_one_and_its_session_with_it() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &stdio("old")));
    let (session, name) = begin(&proxy);
    assert_eq!(name, "old");
    let (idle, _) = begin(&proxy);
    let named = [("mcp-session-id", session.as_str())];
    let mut stream = post_to(&proxy, "/a", &named, &call("1", "1"));
    assert!(std::iter::from_fn(|| stream.event()).any(|event| event.contains("roots/list")));
    let line = reload(&proxy, &file("", &stdio("new")));
    assert!(line.contains("changed=1") && line.contains("moved=1"), "{line}");
    assert_eq!(begin(&proxy).1, "new");
    // No call begins in a session with the old server, and a session without a call is ended.
    assert_eq!(post_to(&proxy, "/a", &named, PING).status(), 404);
    until("the unused session is over", || children(&proxy) == 2.0);
    let idle = [("mcp-session-id", idle.as_str())];
    assert_eq!(post_to(&proxy, "/a", &idle, PING).status(), 404);
    // The client can still answer the question that its call's old server has asked.
    assert_eq!(post_to(&proxy, "/a", &named, ROOTS).status(), 202);
    assert_eq!(json(&stream.rest())["result"]["by"], "old");
    until("the old one has ended", || children(&proxy) == 1.0);
    assert_eq!(post_to(&proxy, "/a", &named, ROOTS).status(), 404);
}

/// The stream of a client of HTTP+SSE, and the path to post to.
fn open_sse(proxy: &Proxy) -> (Exchange, String) {
    let accept = [("accept", "text/event-stream")];
    let mut stream = Exchange::send(proxy.address(), "GET", "/a/sse", &accept, "");
    let first = stream.event().unwrap();
    let path = first.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
    (stream, path)
}

#[test]
fn a_stream_of_http_sse_in_which_nothing_was_said_goes_on_with_the_new_server() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &stdio("old")));
    let (mut spoken, path_of_spoken) = open_sse(&proxy);
    assert_eq!(post_to(&proxy, &path_of_spoken, &[], INITIALIZE).status(), 202);
    assert!(spoken.event().unwrap().contains("\"old\""));
    let (mut new, path) = open_sse(&proxy);
    assert_eq!(children(&proxy), 2.0);
    for name in ["newer", "newest"] {
        let line = reload(&proxy, &file("", &stdio(name)));
        assert!(line.contains("moved=1"), "{line}");
        until("the old servers have ended", || children(&proxy) == 1.0);
    }
    assert_eq!(post_to(&proxy, &path, &[], INITIALIZE).status(), 202);
    assert_eq!(json(&new.event().unwrap())["result"]["serverInfo"]["name"], "newest");
    assert_eq!(post_to(&proxy, &path, &[], PING).status(), 202);
    assert_eq!(json(&new.event().unwrap())["result"]["by"], "newest");
    // A session that the old server knows cannot continue.
    assert_eq!(spoken.event(), None);
    assert_eq!(post_to(&proxy, &path_of_spoken, &[], PING).status(), 404);
}

#[test]
fn a_first_request_that_crosses_the_reload_is_answered_by_either_server() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &stdio("s0")));
    for round in 1..=8 {
        let streams: Vec<_> = (0..4).map(|_| open_sse(&proxy)).collect();
        write(&proxy, &file("", &stdio(&format!("s{round}"))));
        proxy.hang_up();
        for (mut stream, path) in streams {
            assert_eq!(post_to(&proxy, &path, &[], INITIALIZE).status(), 202, "{}", proxy.log());
            let answer = json(&stream.event().unwrap());
            assert!(answer["result"]["serverInfo"]["name"].is_string(), "{answer}");
        }
        until("the file was read", || reloads(&proxy, "taken") == f64::from(round));
    }
}

#[test]
fn a_route_that_is_gone_ends_its_calls_in_peace() {
    let both = stdio("old") + &demo("/b");
    let proxy = Proxy::of_file(&Start::default(), &file("", &both));
    let (session, _) = begin(&proxy);
    let named = [("mcp-session-id", session.as_str())];
    let mut stream = post_to(&proxy, "/a", &named, &call("1", "1"));
    assert!(std::iter::from_fn(|| stream.event()).any(|event| event.contains("roots/list")));
    let line = reload(&proxy, &file("", &demo("/b")));
    assert!(line.contains("removed=1") && line.contains("unchanged=1"), "{line}");
    assert_eq!(post(&proxy, INITIALIZE).status(), 404);
    assert_eq!(post_to(&proxy, "/a", &named, PING).status(), 404);
    let refused = number(&proxy, "milepost_requests_refused_total", &[("reason", "no-route")]);
    assert_eq!(refused, 2.0);
    proxy.logged(&[
        "refused: a reload has removed the route",
        "reason=\"no-route\"",
        "route=\"/a\"",
    ]);
    let open = || number(&proxy, "milepost_calls_in_flight", &[("route", "/a")]);
    assert_eq!(open(), 1.0);
    assert_eq!(post_to(&proxy, "/a", &named, ROOTS).status(), 202);
    assert_eq!(json(&stream.rest())["result"]["by"], "old");
    until("its server has ended", || children(&proxy) == 0.0);
    // Counts of the old server stay, and new counts start from there.
    let calls = number(&proxy, "milepost_calls_total", &[("route", "/a"), ("outcome", "result")]);
    assert!(calls >= 2.0, "{calls}");
    assert_eq!(number(&proxy, "milepost_sessions", &[("route", "/a")]), 0.0);
    // The same route is served again, and its counters continue.
    reload(&proxy, &file("", &both));
    assert_eq!(begin(&proxy).1, "old");
    let more = number(&proxy, "milepost_calls_total", &[("route", "/a"), ("outcome", "result")]);
    assert!(more > calls, "{more}");
}

#[test]
fn sessions_live_on_where_only_settings_change() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &stdio("only")));
    let (session, _) = begin(&proxy);
    let named = [("mcp-session-id", session.as_str())];
    let keys = "scale = \"9\"\nupstream.max_children = 1\nmax_streams = 1\n";
    reload(&proxy, &file("", &(stdio("only") + keys)));
    let mut stream = post_to(&proxy, "/a", &named, &call("1", "1"));
    let told = std::iter::from_fn(|| stream.event()).find(|event| event.contains("progress"));
    assert_eq!(json(&told.unwrap())["params"]["total"], 9);
    // Limits apply at once.
    assert_eq!(post(&proxy, INITIALIZE).status(), 503);
    assert_eq!(post_to(&proxy, "/a", &named, ROOTS).status(), 202);
    drop(stream.rest());
    assert_eq!(children(&proxy), 1.0);
    assert_eq!(number(&proxy, "milepost_child_starts_total", &[]), 1.0);
}

#[test]
fn over_http_new_requests_go_to_the_new_server_and_who_only_listens_to_the_old_is_let_go() {
    let (old, new) = (Upstream::start(), Upstream::start());
    // Without comments, all bytes come from a server.
    let route = |to: &Upstream| {
        format!("[[route]]\npath = \"/a\"\nkeep_alive = \"off\"\nupstream.url = \"{}\"\n", to.url())
    };
    let proxy = Proxy::of_file(&Start::default(), &file("", &route(&old)));
    let named = [("mcp-session-id", "s1"), ("accept", "text/event-stream")];
    let mut listening = Exchange::send(proxy.address(), "GET", "/a", &named, "");
    let mut listened = old.asked();
    listened.events();
    let mut at_old = old_call(&proxy, &old);
    assert_eq!(listening.status(), 200);
    reload(&proxy, &file("", &route(&new)));
    // A request of the same session goes to the new server, which does not know the session.
    let mut refused = post_to(&proxy, "/a", &named[..1], &call("2", ""));
    new.asked().answer("404 Not Found", "", "");
    assert_eq!(refused.status(), 404);
    // An answer for the old server goes to the old server.
    let mut told = post_to(&proxy, "/a", &named[..1], ROOTS);
    let mut asked = old.asked();
    assert_eq!(asked.body, ROOTS);
    asked.answer("202 Accepted", "", "");
    assert_eq!(told.status(), 202);
    assert!(listening.is_quiet(std::time::Duration::from_millis(100)));
    let (stream, answer) = &mut at_old;
    answer.say(result_event("1"));
    answer.end();
    assert_eq!(json(&stream.rest())["id"], 1);
    assert_eq!(listening.rest(), "");
    assert!(new.is_idle() && old.is_idle());
}

#[test]
fn a_request_that_was_still_read_at_a_reload_is_the_old_servers_with_all_that_follows() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let route =
        |to: &Upstream| format!("[[route]]\npath = \"/a\"\nupstream.url = \"{}\"\n", to.url());
    let proxy = Proxy::of_file(&Start::default(), &file("", &route(&old)));
    let body = call("1", "");
    let mut caller = TcpStream::connect(proxy.address()).unwrap();
    let head = format!(
        "POST /a HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-session-id: s1\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        proxy.address(),
        body.len()
    );
    caller.write_all(head.as_bytes()).unwrap();
    // From here on the request is on the old server's route, and no call is open yet.
    let mut line = [0; 25];
    caller.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    reload(&proxy, &file("", &route(&new)));
    caller.write_all(body.as_bytes()).unwrap();
    let mut answer = old.asked();
    answer.events();
    // Once the client has the head, the proxy knows the session.
    let mut line = [0; 15];
    caller.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 200 OK");
    let mut told = post_to(&proxy, "/a", &[("mcp-session-id", "s1")], ROOTS);
    let mut asked = old.asked();
    assert_eq!(asked.body, ROOTS);
    asked.answer("202 Accepted", "", "");
    assert_eq!(told.status(), 202);
    answer.say(result_event("1"));
    answer.end();
    assert!(new.is_idle());
}

/// A call in a session that the server knows, and how it is answered.
fn old_call(proxy: &Proxy, old: &Upstream) -> (Exchange, scripted_server::Asked) {
    let stream = post_to(proxy, "/a", &[("mcp-session-id", "s1")], &call("1", ""));
    let mut asked = old.asked();
    asked.events();
    (stream, asked)
}
