//! Limits for each client. A trusted front on loopback names the clients.

use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;

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
    // Neither what the client itself says nor an invented token makes it another one.
    let invented = [("authorization", "Bearer invented")];
    let listen = [("accept", "text/event-stream"), invented[0]];
    for (method, headers, body) in
        [("POST", &invented[..], call("2", "")), ("GET", &listen, String::new())]
    {
        let mut refused = ask(&proxy, method, "6.6.6.6, 203.0.113.7", headers, &body);
        assert_eq!(refused.status(), 429, "{method}");
        assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
        let why =
            "this client has as many streams open as it may: see max_client_streams of [server]\n";
        assert_eq!(refused.rest(), why);
    }
    proxy.logged(&["WARN refused", "max_client_streams", "client=203.0.113.7"]);
    assert_eq!(refusals(&proxy, "streams"), 2.0);
    assert!(upstream.is_idle());
    // Another client, and the front for nobody.
    let mut other = ask(&proxy, "POST", "203.0.113.8", &[], &call("3", ""));
    let mut two = upstream.asked();
    let mut unnamed = post(&proxy, &call("4", ""));
    upstream.asked().json(&result("4"));
    assert_eq!(unnamed.rest(), result("4"));
    one.json(&result("1"));
    assert_eq!(first.rest(), result("1"));
    let mut again = ask(&proxy, "POST", "203.0.113.7", &[], &call("5", ""));
    upstream.asked().json(&result("5"));
    assert_eq!(again.rest(), result("5"));
    two.json(&result("3"));
    assert_eq!(other.rest(), result("3"));
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
