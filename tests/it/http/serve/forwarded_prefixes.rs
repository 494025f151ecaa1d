//! The path that a front removes from the paths of its clients, in the endpoint of an HTTP+SSE stream.

use super::proxy::Start;
use super::*;
use crate::support::messages::INITIALIZED;

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.0/8\"]";

/// The path of the endpoint that a client of HTTP+SSE is told, without its query.
fn endpoint(proxy: &Proxy, upstream: Option<&Upstream>, prefix: &str) -> String {
    let headers = [("accept", "text/event-stream"), ("x-forwarded-prefix", prefix)];
    let mut stream = Exchange::send(proxy.address(), "GET", "/a/sse", &headers, "");
    let mut server = upstream.map(Upstream::asked);
    if let Some(server) = &mut server {
        server.events().say("event: endpoint\ndata: /messages?id=1\n\n");
    }
    let event = stream.event().unwrap();
    let named = event.split_once("data: ").unwrap().1;
    let (path, query) = named.split_once('?').unwrap();
    let post = [("content-type", "application/json")];
    let answer = |path: &str, upstream: Option<&Upstream>| {
        let path = format!("{path}?{}", query.trim());
        let mut asked = Exchange::send(proxy.address(), "POST", &path, &post, INITIALIZED);
        if let Some(upstream) = upstream {
            upstream.asked().answer("202 Accepted", "", "");
        }
        asked.status()
    };
    // The front removes the prefix again.
    assert_eq!(answer("/a/messages", upstream), 202);
    path.to_owned()
}

#[test]
fn the_prefix_of_a_trusted_front_leads_the_endpoint() {
    let upstream = Upstream::start();
    let of_server = format!("upstream.sse = \"{}\"", upstream.url());
    let of_child = "upstream.command = [\"cat\"]";
    for (route, upstream) in [(&*of_server, Some(&upstream)), (of_child, None)] {
        let public = "public_url = \"https://mcp.example/tools/a\"";
        for (server, keys, prefix, path) in [
            (TRUSTED, "", "/tools/", "/tools/a/messages"),
            (TRUSTED, "forwarded = \"drop\"", "/tools", "/tools/a/messages"),
            (TRUSTED, "", "//evil.example", "/a/messages"),
            (TRUSTED, "", "/tools/../b", "/a/messages"),
            (TRUSTED, public, "/tools", "/tools/a/messages"),
            ("", "", "/tools", "/a/messages"),
            ("trusted_proxies = [\"10.0.0.7\"]", "", "/tools", "/a/messages"),
        ] {
            let start = Start { server, ..Start::default() };
            let proxy = Proxy::with(&start, &format!("{route}\n{keys}"));
            assert_eq!(endpoint(&proxy, upstream, prefix), path, "{server} {keys} {prefix}");
        }
    }
}
