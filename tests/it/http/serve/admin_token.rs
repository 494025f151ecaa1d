//! The token that operators need where the route file names none, and clients that keep them out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;
use crate::support::milepost;

const DEMO: &str = "upstream.demo = true";

/// Paths that show or change what passes.
const GUARDED: [&str; 4] = ["/calls", "/calls/1", "/tap", "/log-level"];

fn of_state(folder: &Path) -> Proxy {
    Proxy::with(&Start { state: folder.to_str(), ..Start::default() }, DEMO)
}

#[track_caller]
fn status(proxy: &Proxy, path: &str, token: Option<&str>) -> u16 {
    let value = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = value.iter().map(|value| ("authorization", &**value)).collect();
    Exchange::send(proxy.admin(), "GET", path, &headers, "").status()
}

fn token_file(folder: &Path) -> PathBuf {
    folder.join("admin-token")
}

fn token(folder: &Path) -> String {
    fs::read_to_string(token_file(folder)).unwrap().trim().to_owned()
}

/// Returns the reason why `milepost tap` with these arguments does not begin. Its filter is invalid, so the proxy
/// reports that to each caller with the token.
fn tapped(args: &[&str]) -> String {
    let output = milepost().arg("tap").args(args).args(["--verdict", "lost"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn calls_need_the_token_that_was_made_and_numbers_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let proxy = of_state(&state);
    let file = token_file(&state);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let shown = file.display().to_string();
    proxy.logged(&["listening for operators", &format!("token_file=\"{shown}\"")]);
    let token = token(&state);
    for path in ["/", "/livez", "/readyz", "/metrics"] {
        assert_eq!(status(&proxy, path, None), 200, "{path}");
    }
    for path in GUARDED {
        assert_eq!(status(&proxy, path, None), 401, "{path}");
        assert_eq!(status(&proxy, path, Some("0123456789abcdef0123456789abcdef")), 401, "{path}");
        assert_ne!(status(&proxy, path, Some(&token)), 401, "{path}");
    }
    let change = [("milepost-admin", "1")];
    for method in ["PUT", "DELETE"] {
        let mut changed = Exchange::send(proxy.admin(), method, "/log-level", &change, "debug");
        assert_eq!(changed.status(), 401, "{method}");
        // A user who may read the file is told where the file is.
        assert!(changed.rest().contains(&shown));
    }
    assert!(!proxy.log().contains(&token), "{}", proxy.log());
    // Another proxy of this user, and this proxy after a restart, use the same token.
    let other = of_state(&state);
    assert_eq!(status(&other, "/calls", Some(&token)), 200);
    assert_eq!(status(&proxy, "/calls", Some(&token)), 200);
}

#[test]
fn tap_finds_the_token_that_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = of_state(folder.path());
    let admin = format!("http://{}", proxy.admin());
    assert!(tapped(&[&admin]).contains("\"lost\" is not a verdict"));
    let file = token_file(folder.path());
    assert!(tapped(&[&admin, "--bearer-file", file.to_str().unwrap()]).contains("not a verdict"));
    // A token given by an option is the token that is sent.
    let wrong = folder.path().join("wrong");
    fs::write(&wrong, "another\n").unwrap();
    let said = tapped(&[&admin, "--bearer-file", wrong.to_str().unwrap()]);
    assert!(said.contains("requires the token"), "{said}");
    // A file that other users may read is no longer trusted, nor is a missing file.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let said = tapped(&[&admin]);
    assert!(said.contains(file.to_str().unwrap()) && said.contains("other users"), "{said}");
    fs::remove_file(&file).unwrap();
    assert!(tapped(&[&admin]).contains(file.to_str().unwrap()));
}

#[test]
fn the_token_of_the_file_goes_before_the_one_that_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = of_state(folder.path());
    let made = token(folder.path());
    let without = fs::read_to_string(proxy.file()).unwrap();
    let with = without.replacen("[defaults]", "bearer = \"s3cret\"\n[defaults]", 1);
    let reload = |text: &str, times: usize| {
        fs::write(proxy.file(), text).unwrap();
        proxy.hang_up();
        crate::support::until("it is read", || proxy.log().matches(" reloaded ").count() == times);
    };
    reload(&with, 1);
    assert_eq!(status(&proxy, "/calls", Some(&made)), 401);
    assert_eq!(status(&proxy, "/calls", Some("s3cret")), 200);
    assert_eq!(status(&proxy, "/metrics", None), 401);
    reload(&without, 2);
    assert_eq!(status(&proxy, "/calls", Some("s3cret")), 401);
    assert_eq!(status(&proxy, "/calls", Some(&made)), 200);
    assert_eq!(status(&proxy, "/metrics", None), 200);
}

#[test]
fn without_a_token_loopback_answers_and_the_log_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for state in ["off", file.to_str().unwrap()] {
        let proxy = Proxy::with(&Start { state: Some(state), ..Start::default() }, DEMO);
        proxy.logged(&["WARN", "no token for operators", "`bearer` of [admin]"]);
        assert_eq!(status(&proxy, "/calls", None), 200, "{state}");
        assert_eq!(status(&proxy, "/log-level", None), 200, "{state}");
    }
    let state = folder.path().join("unused");
    let routes = "make_token = false\n[[route]]\npath = \"/a\"\nupstream.demo = true\n";
    let text =
        format!("[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{routes}");
    let start = Start { state: state.to_str(), ..Start::default() };
    let proxy = Proxy::of_file(&start, &text);
    assert_eq!(status(&proxy, "/calls", None), 200);
    assert!(
        !state.join("admin-token").exists() && !proxy.log().contains("WARN"),
        "{}",
        proxy.log()
    );
}

#[test]
fn a_server_has_neither_the_token_nor_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let script = "import os, sys; print('environment', dict(os.environ), 'end', file=sys.stderr)";
    let command = serde_json::to_string(&["python3", "-c", script]).unwrap();
    let start = Start { state: folder.path().to_str(), ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.command = {command}"));
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let _asked = post(&proxy, initialize);
    let line = proxy.logged(&["environment", "end"]);
    assert!(!line.contains("admin-token") && !line.contains(&token(folder.path())), "{line}");
}

#[test]
fn silent_connections_keep_no_operator_out() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let accept = [("accept", "text/event-stream")];
    let mut stream = Exchange::send(proxy.admin(), "GET", "/calls", &accept, "");
    assert_eq!(stream.status(), 200);
    let mut silent = Vec::new();
    for number in 0..200 {
        let mut one = TcpStream::connect(proxy.admin()).unwrap();
        if number % 2 == 0 {
            one.write_all(b"GET /livez HTTP/1.1\r\nhost: loc").unwrap();
        }
        silent.push(one);
        if number % 20 == 0 {
            assert_eq!(proxy.probe("/livez").0, 200, "after {number}");
        }
    }
    // A connection with an observer does not count as idle, and does not keep others from being served.
    assert!(stream.event().is_some());
    let numbers = Page::read(&proxy.probe("/metrics").1);
    let closed = numbers.sum("milepost_requests_refused_total", &[("reason", "busy")]);
    assert!(closed >= 100.0, "{closed}");
    proxy.logged(&["WARN", "closed the one that was silent for longest"]);
}
