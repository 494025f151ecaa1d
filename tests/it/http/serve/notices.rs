//! Notices to operators about servers and limits: one line a minute with advice, and a counter.

use super::idle_connections::asked_of_a_closing_server;
use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;
use crate::support::messages::{agreement, event_with, initialize, log, notification};
use crate::support::until;

fn post(proxy: &Proxy) -> Exchange {
    Exchange::send(proxy.address(), "POST", "/a", &POST, &call("1", ""))
}

fn counted(proxy: &Proxy, metric: &str, labels: &[(&str, &str)]) -> f64 {
    Page::read(&proxy.probe("/metrics").1).sum(metric, labels)
}

fn notices(proxy: &Proxy, kind: &str) -> f64 {
    counted(proxy, "milepost_server_notices_total", &[("route", "/a"), ("kind", kind)])
}

fn refused_by_route(proxy: &Proxy, limit: &str) -> f64 {
    counted(proxy, "milepost_route_limit_total", &[("route", "/a"), ("limit", limit)])
}

/// The number of lines of the log with these words, once one with all `parts` is there.
#[track_caller]
fn lines(proxy: &Proxy, parts: &[&str]) -> usize {
    proxy.logged(parts);
    let log = proxy.log();
    log.lines().filter(|line| line.contains(parts[0])).count()
}

#[test]
fn messages_that_cannot_be_decoded_are_told_of_once_a_minute() {
    let upstream = Upstream::start();
    for (settings, told) in [("", 2), ("opaque = true", 0)] {
        let route = format!("upstream.url = \"{}\"\n{settings}", upstream.url());
        let proxy = Proxy::with(&Start::default(), &route);
        for _ in 0..2 {
            let mut asked = post(&proxy);
            let head = "content-type: text/event-stream\r\ncontent-encoding: br\r\n";
            upstream.asked().answer("200 OK", head, "packed");
            assert_eq!((asked.status(), asked.rest().as_str()), (200, "packed"));
        }
        assert_eq!(notices(&proxy, "undecoded"), f64::from(told));
        proxy.stop();
        let log = proxy.log();
        let lines = log.matches("in a way that Milepost cannot decode").count();
        assert_eq!(lines, usize::from(told > 0), "{log}");
    }
}

#[test]
fn a_404_at_the_address_of_a_route_is_told_of_once_a_minute() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let missing = |headers: &[(&str, &str)], body: &str, of_server: &str| {
        let headers = [&POST[..], headers].concat();
        let mut asked = Exchange::send(proxy.address(), "POST", "/a", &headers, body);
        let head = format!("content-type: {of_server}\r\n");
        upstream.asked().answer("404 Not Found", &head, "nothing is here");
        assert_eq!((asked.status(), asked.rest().as_str()), (404, "nothing is here"));
    };
    let begin = initialize("2025-06-18");
    missing(&[], &begin, "text/html");
    missing(&[], &begin, "application/json");
    missing(&[], &call("1", ""), "text/plain");
    // A session that the server does not know any more, and an unknown method of 2026-07-28.
    missing(&[("mcp-session-id", "s")], &call("1", ""), "text/plain");
    missing(&[], &call("1", ""), "application/json");
    let labels = [("route", "/a"), ("kind", "not-found")];
    assert_eq!(counted(&proxy, "milepost_upstream_errors_total", &labels), 3.0);
    proxy.logged(&["WARN", "the server answers 404 at the address of the route", "route=\"/a\""]);
    proxy.stop();
    let log = proxy.log();
    assert_eq!(log.matches("the server answers 404").count(), 1, "{log}");
}

#[test]
fn a_redirect_that_is_followed_is_told_of_and_counted() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    for _ in 0..2 {
        // The server moves back, so its new path is forgotten.
        let mut asked = post(&proxy);
        upstream.asked().answer("307 Temporary Redirect", "location: /other\r\n", "");
        upstream.asked().json(&result("1"));
        assert_eq!(asked.rest(), result("1"));
        let mut asked = post(&proxy);
        upstream.asked().answer("404 Not Found", "", "");
        assert_eq!(asked.status(), 404);
    }
    proxy.logged(&["WARN", "the server redirects to another path", "path=\"/other\"", "server="]);
    assert_eq!(notices(&proxy, "redirected"), 2.0);
    proxy.stop();
    let log = proxy.log();
    assert_eq!(log.matches("the server redirects to another path").count(), 1, "{log}");
}

#[test]
fn a_route_with_as_many_streams_as_it_may_have_is_told_of_once_a_minute() {
    let upstream = Upstream::start();
    let route = format!("upstream.url = \"{}\"\nmax_streams = 1", upstream.url());
    let proxy = Proxy::with(&Start::default(), &route);
    let mut first = post(&proxy);
    let mut server = upstream.asked();
    for _ in 0..2 {
        assert_eq!(post(&proxy).status(), 503);
    }
    proxy.logged(&["WARN", "refused: the route has as many", "limit=\"max_streams\"", "max=1"]);
    assert_eq!(refused_by_route(&proxy, "streams"), 2.0);
    server.json(&result("1"));
    assert_eq!(first.rest(), result("1"));
    proxy.stop();
    let log = proxy.log();
    assert_eq!(log.matches("refused: the route has as many").count(), 1, "{log}");
}

#[test]
fn a_route_with_as_many_children_or_sessions_as_it_may_have_is_told_of_once_a_minute() {
    // Neither server answers, so that sessions begin and stay.
    let upstream = Upstream::start();
    let sse = format!("upstream.sse = \"{}\"", upstream.url());
    for (server, setting, key, limit) in [
        (
            "upstream.command = [\"sleep\", \"600\"]",
            "upstream.max_children",
            "upstream.max_children",
            "children",
        ),
        (&*sse, "max_sessions", "max_sessions", "sessions"),
    ] {
        let proxy = Proxy::with(&Start::default(), &format!("{server}\n{setting} = 1"));
        let begin = || {
            let body = initialize("2025-06-18");
            Exchange::send(proxy.address(), "POST", "/a", &POST, &body)
        };
        let _first = begin();
        until("the first session has begun", || {
            counted(&proxy, "milepost_sessions", &[("route", "/a"), ("kind", "own")]) == 1.0
        });
        for _ in 0..3 {
            let mut refused = begin();
            assert_eq!(
                (refused.status(), refused.header("retry-after").as_deref()),
                (503, Some("1"))
            );
        }
        let key = format!("limit=\"{key}\"");
        let parts = ["refused: the route has as many", "WARN", "route=\"/a\"", &key, "max=1"];
        assert_eq!(lines(&proxy, &parts), 1, "{}", proxy.log());
        assert_eq!(refused_by_route(&proxy, limit), 3.0);
        assert!(!proxy.log().contains("no session"), "{}", proxy.log());
    }
}

#[test]
fn a_client_with_as_much_as_it_may_have_is_told_of_once_a_minute_for_each_limit() {
    let server =
        "trusted_proxies = [\"127.0.0.1\"]\nmax_client_streams = 2\nmax_client_children = 1";
    let start = Start { server, ..Start::default() };
    let upstream = Upstream::start();
    let routes = format!(
        "[[route]]\npath = \"/a\"\nupstream.url = \"{}\"\n[[route]]\npath = \"/b\"\nupstream.command = [\"sleep\", \"600\"]\n",
        upstream.url()
    );
    let proxy = Proxy::serving(&start, &routes);
    let ask = |client: &str, path: &str, body: &str| {
        let headers = [&POST[..], &[("x-forwarded-for", client)]].concat();
        Exchange::send(proxy.address(), "POST", path, &headers, body)
    };
    let _open = ["1", "2"].map(|id| {
        let asked = ask("203.0.113.7", "/a", &call(id, ""));
        (asked, upstream.asked())
    });
    for _ in 0..3 {
        assert_eq!(ask("203.0.113.7", "/a", &call("3", "")).status(), 429);
    }
    let parts = [
        "as many streams as one client may",
        "WARN",
        "client=203.0.113.7",
        "limit=\"max_client_streams of [server]\"",
        "raise the limit",
    ];
    assert_eq!(lines(&proxy, &parts), 1, "{}", proxy.log());
    let count = |limit| counted(&proxy, "milepost_client_limit_total", &[("limit", limit)]);
    assert_eq!((count("streams"), count("children")), (3.0, 0.0));
    // Another limit has its own line in the same minute.
    let _begun = ask("203.0.113.8", "/b", &initialize("2025-06-18"));
    until("a child runs", || counted(&proxy, "milepost_children", &[("route", "/b")]) == 1.0);
    for _ in 0..2 {
        assert_eq!(ask("203.0.113.8", "/b", &initialize("2025-06-18")).status(), 429);
    }
    let parts = ["as many children as one client may", "WARN", "client=203.0.113.8"];
    assert_eq!(lines(&proxy, &parts), 1, "{}", proxy.log());
    assert_eq!(count("children"), 2.0);
}

#[test]
fn a_listener_with_as_many_connections_as_it_serves_is_told_of_once_a_minute() {
    let upstream = Upstream::start();
    let start = Start { server: "max_connections = 1", ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    let mut first = post(&proxy);
    let mut asked = upstream.asked();
    for _ in 0..3 {
        let heard = say(proxy.address(), "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
        assert!(heard.contains("retry-after: 1\r\n"), "{heard}");
    }
    let limit = "limit=\"max_connections of [server]\"";
    let parts = ["refused: as many connections", "WARN", limit, "max=1", "LimitNOFILE"];
    assert_eq!(lines(&proxy, &parts), 1, "{}", proxy.log());
    let refused = [("reason", "max_connections")];
    assert_eq!(counted(&proxy, "milepost_connections_refused_total", &refused), 3.0);
    asked.json(&result("1"));
    assert_eq!(first.rest(), result("1"));
}

#[test]
fn bodies_beyond_a_limit_are_told_of_once_a_minute_with_the_limit() {
    let upstream = Upstream::start();
    let server = "trusted_proxies = [\"127.0.0.1\"]\nmax_kept_bytes = 1_048_576";
    let start = Start { server, ..Start::default() };
    let route = format!("upstream.url = \"{}\"\nmax_request_bytes = 400_000", upstream.url());
    let proxy = Proxy::with(&start, &route);
    let headers = [&POST[..], &[("x-forwarded-for", "203.0.113.7")]].concat();
    let large = |bytes| format!("{}{}", call("1", ""), " ".repeat(bytes));
    for (bytes, status, reason, parts) in [
        (
            400_000,
            413,
            "too-large",
            [
                "refused: the body of a request is longer",
                "limit=\"max_request_bytes\"",
                "raise `max_request_bytes`",
            ],
        ),
        (
            300_000,
            429,
            "client-full",
            [
                "refused: messages of one client",
                "limit=\"max_kept_bytes of [server]\"",
                "client=203.0.113.7",
            ],
        ),
    ] {
        for _ in 0..2 {
            let mut refused =
                Exchange::send(proxy.address(), "POST", "/a", &headers, &large(bytes));
            assert_eq!(refused.status(), status);
        }
        assert_eq!(lines(&proxy, &[&parts[..], &["WARN", "route=\"/a\""]].concat()), 1);
        let labels = [("route", "/a"), ("reason", reason)];
        assert_eq!(counted(&proxy, "milepost_bodies_refused_total", &labels), 2.0);
    }
    assert!(upstream.is_idle());
}

#[test]
fn messages_that_are_dropped_are_told_of_once_a_minute() {
    let upstream = Upstream::start();
    let route = format!("upstream.url = \"{}\"\nown_get = true", upstream.url());
    let proxy = Proxy::with(&Start::default(), &route);
    let mut begun = Exchange::send(proxy.address(), "POST", "/a", &POST, &initialize("2025-06-18"));
    let head = "content-type: application/json\r\nmcp-session-id: s\r\n";
    let body = agreement("2025-06-18");
    upstream.asked().answer("200 OK", head, body);
    assert_eq!(begun.status(), 200);
    let of_session = [POST[0], POST[1], ("mcp-session-id", "s")];
    let body = notification("notifications/initialized", "{}");
    let mut told = Exchange::send(proxy.address(), "POST", "/a", &of_session, &body);
    upstream.asked().answer("202 Accepted", "", "");
    assert_eq!(told.status(), 202);
    // The client opens no GET stream, so Milepost opens one.
    let mut listened = upstream.asked();
    assert!(listened.head.starts_with("GET "), "{}", listened.head);
    listened.events();
    for n in 0..5 {
        listened.say(event_with(&format!("g{n}"), &log(&"x".repeat(100 << 10))));
    }
    until("messages are dropped", || {
        counted(&proxy, "milepost_dropped_mail_total", &[("route", "/a")]) == 3.0
    });
    let parts =
        ["dropped: as many messages", "WARN", "route=\"/a\"", "limit=\"256 KiB for a session"];
    assert_eq!(lines(&proxy, &parts), 1, "{}", proxy.log());
}

#[test]
fn connections_that_a_server_closes_early_are_counted() {
    // The server has already closed the connection of a request when the next request comes.
    let pause = std::time::Duration::from_millis(5);
    let (proxy, _server) = asked_of_a_closing_server(20, pause);
    let parts = ["the server closes idle connections early", "WARN"];
    assert_eq!(lines(&proxy, &parts), 1, "{}", proxy.log());
    assert!(notices(&proxy, "closed-early") >= 1.0);
}

#[test]
fn proxies_of_the_environment_are_counted_whether_they_are_used_or_not() {
    let named = |more: &[(&'static str, &str)], url: &str| {
        let all = [&[("HTTP_PROXY", "http://127.0.0.1:1")], more].concat();
        let variables: Vec<_> =
            all.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        let start = Start { variables: &variables, ..Start::default() };
        Proxy::with(&start, &format!("upstream.url = \"{url}\""))
    };
    let (there, here) = ("http://mcp.test/mcp", "http://127.0.0.1:1/mcp");
    for (more, url, parts, counts) in [
        (&[][..], there, ["connections to the server go through a proxy", "WARN"], [1.0, 0.0]),
        (
            &[("NO_PROXY", "mcp.test")][..],
            there,
            ["the proxy of the environment is not used", "WARN"],
            [0.0, 1.0],
        ),
        (&[][..], here, ["a server on this machine has no proxy", "INFO"], [0.0, 1.0]),
    ] {
        let proxy = named(more, url);
        assert_eq!(lines(&proxy, &parts), 1, "{}", proxy.log());
        assert_eq!([notices(&proxy, "proxy"), notices(&proxy, "proxy-unused")], counts, "{url}");
    }
}
