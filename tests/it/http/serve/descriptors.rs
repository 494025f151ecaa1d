//! The limit of descriptors: of the process, and of its servers.

use super::proxy::Start;
use super::*;
use crate::support::messages::modern;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

/// Answers each request with its limits of descriptors, soft and hard.
const SERVER: &str = r#"
import json, resource, sys
for line in sys.stdin:
    said = json.loads(line)
    if "id" in said:
        limits = list(resource.getrlimit(resource.RLIMIT_NOFILE))
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": limits}), flush=True)
"#;

/// The limits of a child and of the process, and the log.
fn limits(server: &str) -> ([serde_json::Value; 2], [String; 2], String) {
    let start = Start { shell: "ulimit -Sn 256; ulimit -Hn 1024", server, ..Start::default() };
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let proxy = Proxy::with(&start, &format!("upstream.command = {command}"));
    let answer = json(&post(&proxy, INITIALIZE).rest());
    let of_child = [0, 1].map(|at| answer["result"][at].clone());
    let all = std::fs::read_to_string(format!("/proc/{}/limits", proxy.id())).unwrap();
    let line = all.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    (of_child, [3, 4].map(|at| words[at].to_owned()), proxy.log())
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_and_children_keep_theirs() {
    let (of_child, own, log) = limits("");
    assert_eq!(own, ["1024", "1024"]);
    assert_eq!(of_child, [256, 1024]);
    assert!(log.contains("max_connections=10000 served=768 descriptors=1024"), "{log}");
}

#[test]
fn the_soft_limit_stays_where_it_may_not_be_raised_and_no_warning_is_needed_within_it() {
    let (of_child, own, log) = limits("raise_descriptors = false\nmax_connections = 192");
    assert_eq!(own, ["256", "1024"]);
    assert_eq!(of_child, [256, 1024]);
    assert!(!log.contains("descriptors"), "{log}");
}

#[cfg(target_os = "linux")]
#[test]
fn operators_are_answered_where_calls_hold_all_descriptors() {
    let upstream = Upstream::start();
    let start = Start {
        shell: "ulimit -Sn 96; ulimit -Hn 96",
        server: "raise_descriptors = false",
        ..Start::default()
    };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    // Each call takes a connection of its client and one to the server.
    let (mut calls, mut is_full) = (Vec::new(), false);
    for id in 0..90 {
        let body = call(id.to_string(), "");
        calls.push(Exchange::send(proxy.address(), "POST", "/a", &POST, &body));
        is_full |= proxy.descriptors() >= 84;
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    crate::support::until("the descriptors are in use", || {
        is_full |= proxy.descriptors() >= 84;
        is_full
    });
    for _ in 0..20 {
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(proxy.probe(path).0, 200, "{path}");
        }
    }
    let warned = || proxy.log().matches("no connection can be accepted").count();
    crate::support::until("the log says it", || warned() > 0);
    assert_eq!(warned(), 1, "{}", proxy.log());
    drop(calls);
    crate::support::until("the descriptors are free again", || proxy.descriptors() < 60);
    // The log reports it some seconds later, for a connection that is accepted then.
    crate::support::until("the log says it", || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(Exchange::send(proxy.address(), "GET", "/nowhere", &[], "").status(), 404);
        proxy.log().contains("connections are accepted again")
    });
}

/// The server is there, and has not failed: the client may try again.
#[cfg(target_os = "linux")]
#[test]
fn a_request_for_which_no_descriptor_is_left_is_503_and_may_be_sent_again() {
    use std::io::{Read, Write};

    let upstream = Upstream::start();
    let start = Start {
        shell: "ulimit -Sn 64; ulimit -Hn 64",
        server: "raise_descriptors = false",
        ..Start::default()
    };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    let address = proxy.address();
    let connect = || TcpStream::connect(address).unwrap();
    let early: Vec<TcpStream> = (0..2).map(|_| connect()).collect();
    let mut idle = Vec::new();
    let body = call("1", "");
    let length = body.len();
    for mut stream in early {
        fill(&proxy, &mut idle);
        let request = format!(
            "POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut heard = String::new();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        stream.read_to_string(&mut heard).unwrap();
        assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
        assert!(heard.to_lowercase().contains("\r\nretry-after: 1\r\n"), "{heard}");
        assert!(heard.contains("cannot connect to the server: Too many open files"), "{heard}");
    }
    proxy.logged(&["WARN", "for a reason of this machine", "route=\"/a\"", "LimitNOFILE"]);
    assert_eq!(proxy.log().matches("for a reason of this machine").count(), 1, "{}", proxy.log());
    let page = crate::observe::metrics::page::Page::read(&proxy.probe("/metrics").1);
    let count =
        |kind| page.sum("milepost_upstream_errors_total", &[("route", "/a"), ("kind", kind)]);
    assert_eq!([count("local"), count("connect")], [2.0, 0.0]);
    assert!(upstream.is_idle());
    drop(idle);
    crate::support::until("the descriptors are free again", || proxy.descriptors() < 40);
    let mut again = post(&proxy, &body);
    upstream.asked().json(&result("1"));
    assert_eq!(again.rest(), result("1"));
}

/// Connects until no descriptor is left for calls. Eight of 64 descriptors are for operators, and fewer connections
/// than 56 are no limit of their own. What the process has open for a moment only is not in use: all descriptors are
/// open for ten looks in a row.
#[cfg(target_os = "linux")]
fn fill(proxy: &Proxy, idle: &mut Vec<TcpStream>) {
    let folder = format!("/proc/{}/fd", proxy.id());
    let is_open = |number| std::fs::symlink_metadata(format!("{folder}/{number}")).is_ok();
    let mut full_looks = 0;
    crate::support::until("all other descriptors are in use", || {
        if (0..56).all(is_open) {
            full_looks += 1;
        } else {
            full_looks = 0;
            idle.push(TcpStream::connect(proxy.address()).unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        full_looks == 10
    });
}

/// A server that takes three descriptors to start.
#[cfg(target_os = "linux")]
#[test]
fn a_session_for_whose_server_no_descriptor_is_left_is_503_and_the_next_one_begins() {
    use std::io::{Read, Write};

    let start = Start {
        shell: "ulimit -Sn 64; ulimit -Hn 64",
        server: "raise_descriptors = false",
        ..Start::default()
    };
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let proxy = Proxy::with(&start, &format!("upstream.command = {command}"));
    let connect = || TcpStream::connect(proxy.address()).unwrap();
    let shared = modern(0, "tools/list", "");
    let of_shared = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\n";
    let requests = [
        ("POST", "/a", "", INITIALIZE),
        ("POST", "/a", of_shared, &shared),
        ("GET", "/a/sse", "", ""),
    ];
    let early: Vec<TcpStream> = requests.iter().map(|_| connect()).collect();
    let mut idle = Vec::new();
    for ((method, path, more, body), mut stream) in requests.into_iter().zip(early) {
        fill(&proxy, &mut idle);
        let accept = if method == "GET" { "" } else { "application/json, " };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{more}\
             accept: {accept}text/event-stream\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut heard = String::new();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        stream.read_to_string(&mut heard).unwrap();
        assert!(heard.starts_with("HTTP/1.1 503 "), "{method} {path}: {heard}");
        assert!(heard.to_lowercase().contains("\r\nretry-after: 1\r\n"), "{heard}");
        let error = json(heard.split_once("\r\n\r\n").unwrap().1);
        let why = error["error"]["message"].as_str().unwrap();
        assert!(why.contains("Too many open files"), "{heard}");
        let id = if method == "GET" { serde_json::Value::Null } else { 0.into() };
        assert_eq!(error["id"], id, "{heard}");
    }
    proxy.logged(&["WARN", "no session", "route=\"/a\"", "Too many open files"]);
    assert_eq!((proxy.servers(), proxy.probe("/livez").0), (0, 200));
    drop(idle);
    crate::support::until("the descriptors are free again", || proxy.descriptors() < 40);
    let mut again = post(&proxy, INITIALIZE);
    assert_eq!((again.status(), &json(&again.rest())["id"]), (200, &0.into()));
}
