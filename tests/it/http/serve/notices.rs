//! What operators are told of servers and limits: one line a minute with the cure, and a counter.

use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;

fn post(proxy: &Proxy) -> Exchange {
    Exchange::send(proxy.address(), "POST", "/a", &POST, &call("1", ""))
}

fn notices(proxy: &Proxy, kind: &str) -> f64 {
    let page = Page::read(&proxy.probe("/metrics").1);
    page.sum("milepost_server_notices_total", &[("route", "/a"), ("kind", kind)])
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
fn a_redirect_that_is_followed_is_told_of_and_counted() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    for _ in 0..2 {
        // The server forgets its new path again.
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
    server.json(&result("1"));
    assert_eq!(first.rest(), result("1"));
    proxy.stop();
    let log = proxy.log();
    assert_eq!(log.matches("refused: the route has as many").count(), 1, "{log}");
}
