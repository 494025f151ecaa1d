//! Secrets that must not appear in any log, however much is logged.

use super::proxy::Start;
use super::*;
use crate::http::serve::scripted_server::dead;

/// A part of everything that must stay secret.
const CANARY: &str = "c4n4ry";

fn with_canaries(proxy: &Proxy, method: &str, path: &str, body: &str) -> Exchange {
    let headers = [
        POST[0],
        POST[1],
        ("authorization", "Bearer c4n4ry"),
        ("cookie", "session=c4n4ry"),
        ("mcp-session-id", "c4n4ry"),
        ("x-api-key", "c4n4ry"),
    ];
    Exchange::send(proxy.address(), method, path, &headers, body)
}

#[test]
fn no_secret_is_logged_at_any_level() {
    let everything = ["--log-level", "trace"];
    for (options, log) in [(&everything[..], None), (&[], Some("trace"))] {
        let upstream = Upstream::start();
        let (_socket, dead) = dead();
        let keys = "headers.request.set = { x-set = \"c4n4ry\" }";
        let routes = format!(
            "[[route]]\npath = \"/a\"\nupstream.url = \"{0}?key=c4n4ry\"\n{keys}\n\
             [[route]]\npath = \"/dead\"\nupstream.url = \"http://{dead}/mcp?key=c4n4ry\"\n{keys}\n\
             [[route]]\npath = \"/opaque\"\nupstream.url = \"{0}?key=c4n4ry\"\nopaque = true\n{keys}\n\
             [[route]]\npath = \"/old\"\nupstream.sse = \"{0}?key=c4n4ry\"\n{keys}\n",
            upstream.url()
        );
        let mut proxy = Proxy::serving(&Start { options, log, ..Start::default() }, &routes);
        let body = call("7", "1").replace("{}", r#"{"password":"c4n4ry"}"#);
        let own = "content-type: application/json\r\nmcp-session-id: c4n4ry\r\n\
                   set-cookie: session=c4n4ry\r\n";
        let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
        // Answers of every kind, and no answer.
        let mut asked = with_canaries(&proxy, "POST", "/a?token=c4n4ry", initialize);
        let mut server = upstream.asked();
        assert!(server.head.matches(CANARY).count() >= 7, "{}", server.head);
        server.answer("200 OK", own, result("0"));
        assert_eq!(asked.rest(), result("0"));
        for path in ["/a?token=c4n4ry", "/opaque?token=c4n4ry"] {
            let mut asked = with_canaries(&proxy, "POST", path, &body);
            let mut server = upstream.asked();
            server.events().say(legacy_progress("7", CANARY)).say("data: c4n4ry\n\n");
            assert!(asked.event().unwrap().contains(CANARY));
            drop(server);
            assert_eq!(asked.status(), 200);
            for status in ["401 Unauthorized", "404 Not Found", "500 c4n4ry"] {
                let mut asked = with_canaries(&proxy, "POST", path, &body);
                upstream.asked().answer(status, own, CANARY);
                assert_eq!(asked.rest(), CANARY);
            }
            let mut asked = with_canaries(&proxy, "POST", path, &body);
            upstream.asked().raw("c4n4ry is no HTTP\r\n\r\n");
            assert_eq!(asked.status(), 502);
            for method in ["GET", "DELETE"] {
                let mut asked = with_canaries(&proxy, method, path, "");
                upstream.asked().answer("200 OK", own, CANARY);
                assert_eq!(asked.rest(), CANARY);
            }
        }
        let mut asked = with_canaries(&proxy, "POST", "/dead?token=c4n4ry", &body);
        assert_eq!(asked.status(), 502);
        let mut asked = with_canaries(&proxy, "GET", "/old/sse?token=c4n4ry", "");
        let mut old = upstream.asked();
        old.events().say("event: endpoint\ndata: /mcp?sessionId=c4n4ry\n\n");
        let endpoint = asked.event().unwrap();
        let endpoint = endpoint.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let mut asked = with_canaries(&proxy, "POST", endpoint, &body);
        upstream.asked().answer("202 Accepted", "", CANARY);
        assert_eq!(asked.rest(), CANARY);
        drop(old);
        // Requests that are refused.
        for path in ["/nowhere/c4n4ry?token=c4n4ry", "/old/messages?sessionId=another-c4n4ry"] {
            assert_eq!(with_canaries(&proxy, "POST", path, &body).status(), 404);
        }
        let twice = "POST /a?c4n4ry HTTP/1.1\r\nhost: localhost\r\nauthorization: c4n4ry\r\n\
                     authorization: c4n4ry\r\nconnection: close\r\n\r\n";
        assert!(say(proxy.address(), twice).starts_with("HTTP/1.1 400 "));
        say(proxy.address(), "GET /c4n4ry?c4n4ry HTTP/1.1\r\nauthorization c4n4ry\r\n\r\n");
        proxy.terminate();
        assert_eq!(proxy.code(), Some(0));
        let log = proxy.log();
        assert!(log.contains("TRACE") || log.contains("DEBUG"), "{log}");
        let told: Vec<&str> = log.lines().filter(|line| line.contains(CANARY)).collect();
        assert!(told.is_empty(), "{told:#?}");
    }
}

#[test]
fn secrets_on_the_standard_error_of_a_server_are_masked_in_the_log() {
    const SERVER: &str = "import sys\n\
        sys.stderr.write('of-route c4n4ry-1 api_key=c4n4ry-2 Authorization: Bearer c4n4ry-3\\n')\n\
        sys.stderr.flush()\n\
        sys.stdin.read()\n";
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let keys = format!("upstream.command = {command}\nmask = ['of-route (?<secret>\\S+)']");
    let proxy = Proxy::with(&Start::default(), &keys);
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    let _asked = post(&proxy, initialize);
    let line = proxy.logged(&["server line="]);
    assert!(line.contains("of-route *** api_key=*** Authorization: ***"), "{line}");
}
