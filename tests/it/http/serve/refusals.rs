//! Requests that go no further: the status, the words, and the line in the log.

use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;

fn request(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

#[test]
fn what_is_no_http_is_refused_and_the_next_client_is_served() {
    let upstream = Upstream::start();
    let options = ["--log-level", "debug"];
    let start = Start { options: &options, ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    for text in [
        "hello\r\n\r\n",
        "GET /a HTTP/9.9\r\n\r\n",
        "GET /a b HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}",
    ] {
        let heard = say(proxy.address(), text);
        assert!(heard.starts_with("HTTP/1.1 400 "), "{text:?}: {heard:?}");
    }
    // A request that another reader could take for two requests is refused.
    let both = "POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\
                content-length: 6\r\n\r\nhello";
    assert!(say(proxy.address(), both).starts_with("HTTP/1.1 400 "));
    proxy.logged(&["connection over", "ended=\"malformed\"", "from=127.0.0.1"]);
    let mut asked = post(&proxy, &call("1", ""));
    upstream.asked().json(&result("1"));
    assert_eq!(asked.rest(), result("1"));
}

#[test]
fn a_wrong_host_or_origin_is_refused_and_the_reason_is_logged() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let body = call("1", "");
    for (headers, status, reason, also) in [
        ("host: evil.example\r\n", 403, "host", "host=\"evil.example\""),
        ("host: evil.example:1\r\n", 403, "host", "host=\"evil.example:1\""),
        ("", 400, "no-host", "method=\"POST\""),
        (
            "host: localhost\r\norigin: http://evil.example\r\n",
            403,
            "origin",
            "origin=\"http://evil.example\"",
        ),
        ("host: localhost\r\norigin: null\r\n", 403, "origin", "origin=\"null\""),
        (
            "host: localhost\r\nmcp-session-id: a\r\nmcp-session-id: b\r\n",
            400,
            "header-twice",
            "host=\"localhost\"",
        ),
    ] {
        let heard = say(proxy.address(), request("/a", headers, &body));
        let (head, text) = heard.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{headers:?}: {head}");
        assert_eq!(json(text)["error"]["data"]["reason"], reason);
        let status = format!("status={status}");
        let reason = format!("reason=\"{reason}\"");
        proxy.logged(&["INFO refused", &reason, &status, also, "from=127.0.0.1"]);
    }
    assert!(upstream.is_idle());
}

#[test]
fn an_unknown_route_is_404_and_is_logged_without_its_path() {
    let proxy = Proxy::before("http://127.0.0.1:1/mcp");
    let mut asked = Exchange::send(proxy.address(), "POST", "/secret-path", &POST, "{}");
    assert_eq!(asked.status(), 404);
    assert_eq!(json(&asked.rest())["error"]["data"]["reason"], "no-route");
    let line = proxy.logged(&["refused", "reason=\"no-route\"", "status=404"]);
    assert!(!line.contains("secret-path"), "{line}");
    let mut page = Exchange::send(proxy.address(), "GET", "/", &[], "");
    assert_eq!(page.status(), 404);
    assert!(page.rest().starts_with("milepost: no route is here"), "{}", proxy.log());
}

#[test]
fn a_token_of_the_listener_is_asked_for() {
    let upstream = Upstream::start();
    let start = Start { server: "bearer = \"open-sesame\"", ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    for authorization in [None, Some("Bearer open-"), Some("Basic open-sesame")] {
        let headers = authorization.map(|value| ("authorization", value));
        let headers: Vec<_> = POST.into_iter().chain(headers).collect();
        let mut asked = Exchange::send(proxy.address(), "POST", "/a", &headers, "{}");
        assert_eq!(asked.status(), 401);
        assert_eq!(asked.header("www-authenticate").as_deref(), Some("Bearer"));
    }
    proxy.logged(&["refused", "reason=\"unauthorized\"", "status=401"]);
    let token = ("authorization", "Bearer open-sesame");
    let headers = [POST[0], token, POST[1], ("x-one", "1"), ("x-two", "2")];
    let mut asked = Exchange::send(proxy.address(), "POST", "/a", &headers, &call("1", ""));
    let mut request = upstream.asked();
    let head = request.head.to_ascii_lowercase();
    assert!(!head.contains("authorization"), "{head}");
    // The other headers keep their order.
    let places = [POST[0].0, POST[1].0, "x-one", "x-two"].map(|name| head.find(name));
    assert!(places.is_sorted() && places[0].is_some(), "{head}");
    request.json(&result("1"));
    assert_eq!(asked.status(), 200);
    assert!(!proxy.log().contains("sesame"), "{}", proxy.log());
}

#[test]
fn what_the_server_says_of_missing_sessions_and_streams_passes() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let get = [("accept", "text/event-stream"), ("mcp-session-id", "gone")];
    let mut asked = Exchange::send(proxy.address(), "GET", "/a", &get, "");
    let text =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
    upstream.asked().answer("404 Not Found", "content-type: application/json\r\n", text);
    assert_eq!((asked.status(), asked.rest().as_str()), (404, text));
    let mut asked = Exchange::send(proxy.address(), "GET", "/a", &get[..1], "");
    upstream.asked().answer("405 Method Not Allowed", "allow: POST\r\n", "");
    assert_eq!((asked.status(), asked.header("allow").as_deref()), (405, Some("POST")));
    let mut asked = Exchange::send(proxy.address(), "DELETE", "/a", &get[1..], "");
    upstream.asked().answer("404 Not Found", "", "gone");
    assert_eq!((asked.status(), asked.rest().as_str()), (404, "gone"));
    let mut asked = post(&proxy, &call("7", "1"));
    upstream.asked().answer("400 Bad Request", "content-type: application/json\r\n", text);
    assert_eq!((asked.status(), asked.rest().as_str()), (400, text));
}

#[test]
fn a_post_for_a_stream_that_is_not_there_says_how_to_open_one() {
    let upstream = Upstream::start();
    let route = format!("upstream.sse = \"{}\"", upstream.url());
    let proxy = Proxy::with(&Start::default(), &route);
    let path = "/a/messages?sessionId=unknown";
    let mut asked = Exchange::send(proxy.address(), "POST", path, &POST, "{}");
    assert_eq!(asked.status(), 404);
    assert_eq!(asked.rest(), "there is no such stream; open one with a GET\n");
    assert!(upstream.is_idle());
}

#[test]
fn a_request_that_is_too_large_is_413() {
    let upstream = Upstream::start();
    let route = format!("upstream.url = \"{}\"\nmax_request_bytes = 1000", upstream.url());
    let proxy = Proxy::with(&Start::default(), &route);
    let large = "x".repeat(1001);
    let mut asked = post(&proxy, &large);
    assert_eq!(asked.status(), 413);
    assert_eq!(asked.rest(), "the body of a request may have 1000 bytes on this route\n");
    let line = proxy.logged(&["WARN refused", "route=\"/a\"", "limit=\"max_request_bytes\""]);
    assert!(line.contains("the body of a request may have 1000 bytes"), "{line}");
    // The same without an announced length.
    let chunked = format!(
        "POST /a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n{large}\r\n0\r\n\r\n"
    );
    assert!(say(proxy.address(), chunked).starts_with("HTTP/1.1 413 "));
    assert!(upstream.is_idle());
    let just = call("1", "");
    let just = format!("{just}{}", " ".repeat(1000 - just.len()));
    let mut asked = post(&proxy, &just);
    let mut request = upstream.asked();
    assert_eq!(request.body, just);
    request.json(&result("1"));
    assert_eq!(asked.status(), 200);
}

#[test]
fn more_streams_than_the_limit_are_503_until_one_ends() {
    let upstream = Upstream::start();
    let route = format!("upstream.url = \"{}\"\nmax_streams = 2", upstream.url());
    let proxy = Proxy::with(&Start::default(), &route);
    let mut first = post(&proxy, &call("1", ""));
    let mut one = upstream.asked();
    one.events();
    assert_eq!(first.status(), 200);
    let listen = [("accept", "text/event-stream")];
    let mut second = Exchange::send(proxy.address(), "GET", "/a", &listen, "");
    let mut two = upstream.asked();
    two.events();
    assert_eq!(second.status(), 200);
    let why = "too many streams are open on this route";
    for (mut third, expected) in [
        (post(&proxy, &call("3", "")), own_error("3", why, "")),
        (Exchange::send(proxy.address(), "GET", "/a", &listen, ""), format!("{why}\n")),
    ] {
        assert_eq!(third.status(), 503);
        assert_eq!(third.header("retry-after").as_deref(), Some("1"));
        assert_eq!(third.rest(), expected);
    }
    proxy.logged(&["WARN refused", "as many open streams as it may", "limit=\"max_streams\""]);
    assert!(upstream.is_idle());
    one.say(result_event("1")).end();
    assert_eq!(first.events().len(), 1);
    let (mut third, mut server) = once_there_is_room(&upstream, || post(&proxy, &call("3", "")));
    server.json(&result("3"));
    assert_eq!(third.rest(), result("3"));
    two.say(": still there\n\n");
    assert_eq!(second.event().as_deref(), Some(": still there\n\n"));
}

#[test]
fn a_head_that_is_too_large_is_431() {
    let upstream = Upstream::start();
    let start = Start {
        options: &["--log-level", "debug"],
        server: "max_header_bytes = 8_192",
        ..Start::default()
    };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    for size in [8_192, 200_000] {
        let headers = format!("host: localhost\r\nx: {}\r\n", "x".repeat(size));
        let heard = say(proxy.address(), request("/a", &headers, "{}"));
        assert!(heard.starts_with("HTTP/1.1 431 "), "{size}: {heard}");
    }
    proxy.logged(&["refused", "reason=\"head-too-large\"", "status=431"]);
    proxy.logged(&["connection over", "ended=\"head-too-large\""]);
    assert!(upstream.is_idle());
}

#[test]
fn headers_about_clients_of_fronts_go_to_the_server_as_the_route_says() {
    let upstream = Upstream::start();
    let url = upstream.url();
    let sent = [
        ("x-forwarded-for", "6.6.6.6, 8.8.8.8"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "1"),
    ];
    let headers = [&POST[..], &sent].concat();
    let cases = [
        ("", "pass", ["6.6.6.6, 8.8.8.8", "https", "1"]),
        ("", "drop", ["", "", ""]),
        ("", "append", ["127.0.0.1", "http", ""]),
        ("trusted_proxies = [\"127.0.0.0/8\"]", "append", ["8.8.8.8, 127.0.0.1", "https", "1"]),
    ];
    for (server, rule, passed) in cases {
        let start = Start { server, ..Start::default() };
        let route = format!("upstream.url = \"{url}\"\nforwarded = \"{rule}\"");
        let proxy = Proxy::with(&start, &route);
        let mut asked = Exchange::send(proxy.address(), "POST", "/a", &headers, &call("1", ""));
        let mut server = upstream.asked();
        for ((name, _), value) in sent.iter().zip(passed) {
            let found =
                server.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            assert_eq!(found.unwrap_or_default(), value, "{name} {rule}");
        }
        server.json(&result("1"));
        assert_eq!(asked.rest(), result("1"));
        let page = Page::read(&proxy.probe("/metrics").1);
        let dropped = page.sum("milepost_forwarded_dropped_total", &[]);
        assert_eq!(dropped > 0.0, rule != "pass", "{rule}");
    }
}
