//! `milepost doctor` where there is nothing to look at: its words, and that it leaves nothing behind.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::Stdio;
use std::{fs, thread};

use super::doctor;
use crate::support::session::signal;
use crate::support::{STUCK, example, milepost, runs, until, wait};

/// Returns the standard error of a run that ends with an error.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let output = doctor(args);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

/// Where each connection gets these bytes.
fn page(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut head = [0; 4096];
            let _ = connection.read(&mut head);
            let _ = connection.write_all(answer.as_bytes());
            // Unread data would reset the connection before the answer is read.
            let _ = connection.shutdown(Shutdown::Write);
            thread::spawn(move || connection.read_to_end(&mut Vec::new()));
        }
    });
    format!("http://{address}/mcp")
}

#[test]
fn an_unknown_tool_has_a_neighbour() {
    let silent = example("silent");
    let said = refused(&["--call", "slep", "--", &silent]);
    let expected = "milepost: the server has no tool \"slep\"; did you mean \"sleep\"?\n";
    assert!(said.ends_with(expected), "{said}");
    let said = refused(&["--call", "zzz", "--", &silent]);
    let expected = "milepost: the server has no tool \"zzz\"; its tools are sleep, echo, burst\n";
    assert!(said.ends_with(expected), "{said}");
}

#[test]
fn wrong_arguments_have_a_column() {
    let said = refused(&["--call", "x", "--args", r#"{"a":1,}"#, "--", "true"]);
    assert!(said.contains("no JSON: trailing comma at line 1 column 8"), "{said}");
    let said = refused(&["--call", "x", "--args", "[1]", "--", "true"]);
    assert!(said.contains("a JSON object such as"), "{said}");
    let said = refused(&["--args", "{}", "--", "true"]);
    assert!(said.contains("--call"), "{said}");
}

#[test]
fn a_server_that_dies_has_last_words() {
    let said = refused(&["--", "sh", "-c", "echo no database >&2; exit 3"]);
    let expected = "milepost: cannot use the server: the server ended (exit code 3); its last words: no database\n";
    assert_eq!(said, expected);
    let said = refused(&["--", "no-such-program-anywhere"]);
    assert!(said.contains("no-such-program-anywhere"), "{said}");
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    let said = refused(&["--timeout", "300ms", "--", "sleep", "600"]);
    assert_eq!(
        said,
        "milepost: cannot use the server: no answer to `initialize` within 300ms: the server wrote nothing\n"
    );
}

#[test]
fn a_server_that_dies_in_a_call_has_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!(
        r#"while read -r line; do case "$line" in
        *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"x"}}}}}}';;
        *tools/list*) echo '{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"t"}}]}}}}';;
        *tools/call*) sleep 600 & echo $! > {}; exit 4;;
        *server/discover*) exit 1;;
        esac; done"#,
        pid.display()
    );
    let output = doctor(&["--call", "t", "--json", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rules: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["rule"].as_str().unwrap())
        .collect();
    assert_eq!(rules, ["no-answer", "discover-ends"], "{report}");
    assert_eq!(report["calls"][0]["answer"], "none");
    let example = report["findings"][0]["example"].as_str().unwrap();
    assert!(example.contains("the server ended (exit code 4)"), "{example}");
    assert_eq!(report["form"], 2);
    // The processes that the server had started have ended with it.
    let left: u32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    until("nothing of it runs", || !runs(left));
}

#[test]
fn what_is_no_server_is_named() {
    let html = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>";
    let said = refused(&[&page(html)]);
    assert!(said.contains("the server answers with a web page (status 200, text/html)"), "{said}");
    let closed = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let said = refused(&[&page(closed)]);
    assert!(said.contains("the server requires authorization (status 401)"), "{said}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = refused(&[&format!("http://{free}/mcp")]);
    assert!(said.contains("cannot connect to 127.0.0.1:"), "{said}");
    let said = refused(&["--header", "no header", "http://127.0.0.1:1/mcp"]);
    assert!(said.contains("--header"), "{said}");
}

#[test]
fn a_signal_ends_it_and_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; wait", pid.display());
    let mut doctor = milepost()
        .args(["doctor", "--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the server runs", || fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n')));
    signal("INT", doctor.id());
    let status = wait(&mut doctor, STUCK).unwrap();
    let mut said = String::new();
    doctor.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.code(), &*said), (Some(2), "milepost: interrupted\n"));
    let left: u32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    until("nothing of it runs", || !runs(left));
}
