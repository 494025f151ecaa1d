//! The pages and settings of operators.

use super::proxy::{OPEN_METRICS, Start};
use super::*;
use crate::observe::metrics::page::Page;
use crate::support::until;

/// Sends a request to the admin address. Returns its status and text.
#[track_caller]
fn ask(
    proxy: &Proxy,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let mut answer = Exchange::send(proxy.admin(), method, path, headers, body);
    (answer.status(), answer.rest())
}

const CHANGE: [(&str, &str); 1] = [("milepost-admin", "1")];

#[test]
fn the_log_level_changes_while_it_runs_and_back() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let level = |method: &str, headers: &[(&str, &str)], body: &str| {
        ask(&proxy, method, "/log-level", headers, body)
    };
    let began = (200, "milepost=info,server=info\n".to_owned());
    assert_eq!(level("GET", &[], ""), began);
    let (status, said) = level("PUT", &[], "debug");
    assert!(status == 403 && said.contains("milepost-admin"), "{said}");
    let (status, said) = level("PUT", &CHANGE, "milepost=loud");
    assert!(status == 400 && said.contains("column 10: \"loud\" is no level"), "{said}");
    let (status, said) = level("PUT", &CHANGE, "debgu");
    assert!(status == 400 && said.contains("did you mean \"debug\"?"), "{said}");
    assert_eq!(level("PUT", &CHANGE, &"x".repeat(5000)).0, 400);
    assert_eq!(level("GET", &[], ""), began);
    // Connections are logged at `debug`, and the connection before the change was not logged.
    assert!(!proxy.log().contains("connection over ended="), "{}", proxy.log());
    let (status, said) = level("PUT", &CHANGE, "debug\n");
    assert_eq!((status, &*said), (200, "milepost=debug,server=debug\n"));
    assert_eq!(level("GET", &[], "").1, said);
    proxy.logged(&["log level changed", "to=\"milepost=debug,server=debug\""]);
    proxy.logged(&["connection over", "ended="]);
    assert_eq!(level("PUT", &CHANGE, "milepost=warn").1, "milepost=warn\n");
    assert_eq!(level("DELETE", &CHANGE, ""), began);
    proxy.logged(&["log level changed", "to=\"milepost=info,server=info\""]);
}

#[test]
fn numbers_are_served_and_count_the_bytes_of_both_sides() {
    let upstream = Upstream::start();
    let proxy = Proxy::with(&Start::default(), &format!("upstream.url = \"{}\"", upstream.url()));
    let mut asked = Exchange::send(proxy.admin(), "GET", "/metrics", &[], "");
    assert_eq!(asked.status(), 200);
    let plain = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(asked.header("content-type").as_deref(), Some(plain));
    let text = asked.rest();
    assert!(text.contains("# TYPE milepost_calls_total counter\n"), "{text}");
    let mut asked = Exchange::send(proxy.admin(), "GET", "/metrics", &[OPEN_METRICS], "");
    assert_eq!(asked.status(), 200);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(asked.header("content-type").as_deref(), Some(kind));
    let before = Page::read(&asked.rest());
    assert_eq!(before.sum("milepost_client_received_bytes_total", &[]), 0.0);
    let mut client = post(&proxy, &call("1", "7"));
    let mut server = upstream.asked();
    server.json(&result("1"));
    assert_eq!(client.status(), 200);
    client.rest();
    // The client may have read the answer before the thread that wrote it has counted it.
    let now = || Page::read(&ask(&proxy, "GET", "/metrics", &[OPEN_METRICS], "").1);
    until("the answer is counted", || now().sum("milepost_client_sent_bytes_total", &[]) > 0.0);
    let after = now();
    for name in ["client_received", "client_sent", "server_received", "server_sent"] {
        let bytes = after.sum(&format!("milepost_{name}_bytes_total"), &[]);
        assert!((50.0..2000.0).contains(&bytes), "{name}: {bytes}");
    }
    assert_eq!(after.sum("milepost_calls_total", &[("route", "/a"), ("outcome", "result")]), 1.0);
}

#[test]
fn who_has_no_token_gets_no_numbers() {
    let file = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                bearer = \"s3cret\"\n[[route]]\npath = \"/a\"\nupstream.demo = true\n";
    let proxy = Proxy::of_file(&Start::default(), file);
    assert_eq!(ask(&proxy, "GET", "/livez", &[], "").0, 200);
    for path in ["/metrics", "/log-level"] {
        assert_eq!(ask(&proxy, "GET", path, &[], "").0, 401);
        assert_eq!(ask(&proxy, "GET", path, &[("authorization", "Bearer s3cret")], "").0, 200);
    }
    assert!(!proxy.log().contains("s3cret"), "{}", proxy.log());
}
