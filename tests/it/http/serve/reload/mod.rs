//! The route file is read again: on SIGHUP, and when it or a file that it names has changed.

mod changed_files;
mod other_servers;
mod under_load;

use std::path::PathBuf;

use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;
use crate::support::until;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

/// A route file with ports that the system chooses.
fn file(server: &str, routes: &str) -> String {
    proxy::file(&Start { server, ..Start::default() }, routes)
}

fn demo(path: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nupstream.demo = true\n")
}

/// How often a line with these words has been logged.
fn count(proxy: &Proxy, words: &str) -> usize {
    proxy.log().lines().filter(|line| line.contains(words)).count()
}

/// Puts other text into the route file, as a whole.
fn write(proxy: &Proxy, text: &str) {
    let path = PathBuf::from(proxy.file());
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Writes the file and lets the proxy read it. Returns the log line with the result.
#[track_caller]
fn reload(proxy: &Proxy, text: &str) -> String {
    let outcomes = [" reloaded ", " the route file cannot be used", " nothing to reload"];
    let before: usize = outcomes.iter().map(|words| count(proxy, words)).sum();
    write(proxy, text);
    proxy.hang_up();
    let is_one = |line: &&str| outcomes.iter().any(|words| line.contains(words));
    until("something has come of it", || proxy.log().lines().filter(is_one).count() > before);
    proxy.log().lines().rfind(is_one).unwrap().to_owned()
}

/// A number of `/metrics`.
#[track_caller]
fn number(proxy: &Proxy, name: &str, labels: &[(&str, &str)]) -> f64 {
    Page::read(&proxy.probe("/metrics").1).sum(name, labels)
}

fn reloads(proxy: &Proxy, outcome: &str) -> f64 {
    number(proxy, "milepost_config_reloads_total", &[("outcome", outcome)])
}

/// Posts to a route.
fn post_to(proxy: &Proxy, path: &str, headers: &[(&str, &str)], body: &str) -> Exchange {
    Exchange::send(proxy.address(), "POST", path, &[&POST[..], headers].concat(), body)
}

#[test]
fn sighup_takes_what_the_file_says_and_says_what_has_changed() {
    let first = file("", &[demo("/a"), demo("/b"), demo("/c")].concat());
    let proxy = Proxy::of_file(&Start::default(), &first);
    assert_eq!(post(&proxy, INITIALIZE).status(), 200);
    let second = [demo("/a"), demo("/b") + "keep_alive = \"1s\"\n", demo("/d")].concat();
    let line = reload(&proxy, &file("", &second));
    for part in ["added=1", "removed=1", "changed=1", "moved=0", "unchanged=1"] {
        assert!(line.contains(part), "{line}");
    }
    for part in ["added_routes=\"/d\"", "removed_routes=\"/c\"", "changed_routes=\"/b\""] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!line.contains(" moved_routes"), "{line}");
    assert_eq!(post_to(&proxy, "/d", &[], INITIALIZE).status(), 200);
    assert_eq!(post_to(&proxy, "/c", &[], INITIALIZE).status(), 404);
    let line = reload(&proxy, &file("", &second));
    assert!(line.contains("nothing to reload"), "{line}");
    assert_eq!([reloads(&proxy, "taken"), reloads(&proxy, "unchanged")], [1.0, 1.0]);
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing_and_is_told_of_as_at_the_start() {
    let good = file("", &demo("/a"));
    let proxy = Proxy::of_file(&Start::default(), &good);
    let bad = file("", &(demo("/new") + "scale = \"percentage\"\n"));
    let line = reload(&proxy, &bad);
    assert!(line.contains("ERROR") && line.contains("proxy.toml:11:9: route.scale: "), "{line}");
    let mut check = crate::support::milepost();
    let said = check.arg("check").arg(proxy.file()).output().unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    // The log has the first line of `check`'s message, without the marks below the wrong part.
    let said = said.lines().next().unwrap();
    let said = said.strip_prefix("milepost: ").unwrap().replace('"', "\\\"");
    assert!(line.contains(&said), "{line}\nis not what check says:\n{said}");
    assert_eq!(post_to(&proxy, "/new", &[], INITIALIZE).status(), 404);
    assert_eq!(post(&proxy, INITIALIZE).status(), 200);
    let successful = || number(&proxy, "milepost_config_last_reload_successful", &[]);
    assert_eq!([reloads(&proxy, "refused"), successful()], [1.0, 0.0]);
    let line = reload(&proxy, &good);
    assert!(line.contains("nothing to reload"), "{line}");
    assert_eq!(successful(), 1.0);
}

#[test]
fn what_cannot_be_exchanged_says_so_and_the_rest_is_taken() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &demo("/a")));
    let other = format!(
        "[server]\nlisten = \"127.0.0.1:1\"\nbearer = \"s3cret\"\n[state]\ndir = \"elsewhere\"\n{}",
        demo("/a")
    );
    reload(&proxy, &other);
    for parts in [
        ["WARN", "key=\"server.listen\"", "running=\"127.0.0.1:0\"", "asked=\"127.0.0.1:1\""],
        ["WARN", "key=\"admin.listen\"", "running=\"127.0.0.1:0\"", "asked=\"none\""],
        ["WARN", "key=\"state.dir\"", "running=\"where such things belong\"", "elsewhere\""],
    ] {
        proxy.logged(&parts);
    }
    assert_eq!(post(&proxy, INITIALIZE).status(), 401);
    let bearer = [("authorization", "Bearer s3cret")];
    assert_eq!(post_to(&proxy, "/a", &bearer, INITIALIZE).status(), 200);
    assert!(!proxy.log().contains("s3cret"), "{}", proxy.log());
    // Operators can still connect.
    assert_eq!(reloads(&proxy, "taken"), 1.0);
}

#[test]
fn who_is_let_in_and_how_many_holds_from_then_on() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &demo("/a")));
    let named = |host: &str| {
        let text = format!(
            "POST /a HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\naccept: application/json, \
             text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{INITIALIZE}",
            INITIALIZE.len()
        );
        say(proxy.address(), text)[9..12].to_owned()
    };
    assert_eq!(named("tools.example"), "403");
    let keys = "allowed_hosts = [\"tools.example\"]\nmax_connections = 1";
    reload(&proxy, &file(keys, &demo("/a")));
    // The connection before this one is the only one that may be open, until it is closed.
    until("there is room", || named("tools.example") == "200");
    let _held = TcpStream::connect(proxy.address()).unwrap();
    until("there is no more room", || named("tools.example") == "503");
    reload(&proxy, &file("", &demo("/a")));
    assert_eq!(named("tools.example"), "403");
}

#[test]
fn operators_present_the_token_that_holds_now() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &demo("/a")));
    assert_eq!(proxy.probe("/metrics").0, 200);
    let closed = file("", &demo("/a")).replace("[defaults]", "bearer = \"ops\"\n[defaults]");
    reload(&proxy, &closed);
    assert_eq!(proxy.probe("/metrics").0, 401);
    let head = [("authorization", "Bearer ops")];
    let mut page = Exchange::send(proxy.admin(), "GET", "/metrics", &head, "");
    assert_eq!(page.status(), 200);
    assert!(page.rest().contains("milepost_config_reloads_total{outcome=\"taken\"} 1\n"));
}

#[test]
fn a_terminal_that_is_closed_stops_it() {
    const SCRIPT: &str = r#"
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "serve", sys.argv[2]])
said = b""
while b" route " not in said:
    said += os.read(terminal, 4096)
os.close(terminal)
for _ in range(600):
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        print(os.waitstatus_to_exitcode(status))
        break
    time.sleep(0.1)
else:
    os.kill(pid, 9)
"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.toml");
    std::fs::write(&path, file("", &demo("/a"))).unwrap();
    let mut python = std::process::Command::new("python3");
    python.args(["-c", SCRIPT, crate::support::MILEPOST]).arg(path);
    let output = python.env("MILEPOST_STATE_DIR", "off").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "0", "{}", String::from_utf8_lossy(&output.stderr));
}
