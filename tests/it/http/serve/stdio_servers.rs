//! Stdio servers behind `milepost serve`: real children, their standard error, and the processes that they leave.

use super::proxy::Start;
use super::*;
use crate::support::messages::modern;
use crate::support::{example, milepost, runs, until};

/// A stdio server: it has started another process in a session of its own, says so and its own number
/// on its standard error, and answers every request at once; a `slow` call gets progress only, a `loud`
/// one is talked of on standard error and answered a moment later.
const SERVER: &str = r#"
import json, os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("pids", os.getpid(), child.pid, "end\x1b[31m", file=sys.stderr, flush=True)
def say(message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    params = said.get("params", {})
    token = params.get("_meta", {}).get("progressToken")
    if said.get("method") == "tools/call" and params["name"] == "slow":
        say({"jsonrpc": "2.0", "method": "notifications/progress",
             "params": {"progressToken": token, "progress": 1}})
    elif said.get("method") == "tools/call" and params["name"] == "die":
        os._exit(3)
    elif said.get("method") == "tools/call" and params["name"] == "loud":
        print("copied 3 of 7 files", file=sys.stderr, flush=True)
        time.sleep(0.5)
        say({"jsonrpc": "2.0", "id": said["id"], "result": {}})
    elif "id" in said and "method" in said:
        version = params.get("protocolVersion")
        result = {"protocolVersion": version, "capabilities": {},
                  "serverInfo": {"name": "s", "version": "1"}} if version else {}
        say({"jsonrpc": "2.0", "id": said["id"], "result": result})
"#;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

fn serving(keys: &str) -> Proxy {
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    Proxy::with(&Start::default(), &format!("upstream.command = {command}\n{keys}"))
}

/// Begins a session.
fn begin(proxy: &Proxy) -> String {
    let mut answer = post(proxy, INITIALIZE);
    assert_eq!(answer.status(), 200);
    answer.header("mcp-session-id").unwrap()
}

fn ask(proxy: &Proxy, session: &str, body: &str) -> Exchange {
    let headers = [&POST[..], &[("mcp-session-id", session)]].concat();
    Exchange::send(proxy.address(), "POST", "/a", &headers, body)
}

fn tool(name: &str, id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","_meta":{{"progressToken":{id}}}}}}}"#
    )
}

/// The processes of each server that was started.
fn pids(proxy: &Proxy, servers: usize) -> Vec<[u32; 2]> {
    let found = || -> Vec<[u32; 2]> {
        let log = proxy.log();
        let lines = log.lines().filter_map(|line| line.split_once("pids "));
        lines
            .filter_map(|(_, rest)| {
                let mut words = rest.split(' ').filter_map(|word| word.parse().ok());
                Some([words.next()?, words.next()?])
            })
            .collect()
    };
    until("every server has said its number", || found().len() >= servers);
    found()
}

fn are_gone(pids: &[[u32; 2]]) {
    until("nothing is left of the servers", || !pids.iter().flatten().any(|pid| runs(*pid)));
}

#[test]
fn a_session_has_a_child_whose_standard_error_is_in_the_log() {
    let proxy = serving("heartbeat.enabled = false");
    let session = begin(&proxy);
    let mut stream = ask(&proxy, &session, &tool("slow", 1));
    assert!(stream.event().unwrap().starts_with("id: 2-0\nretry: 1000\n"));
    assert!(stream.event().unwrap().contains(r#""progress": 1"#));
    let line = proxy.logged(&["pids "]);
    let [pid, _] = pids(&proxy, 1)[0];
    assert!(line.contains("route=\"/a\"") && line.contains(&format!("pid={pid}")), "{line}");
    assert!(line.contains(r"end\u{1b}[31m") && !line.contains('\x1b'), "{line}");
    let headers = [("mcp-session-id", &session[..])];
    let mut ended = Exchange::send(proxy.address(), "DELETE", "/a", &headers, "");
    assert_eq!(ended.status(), 200);
    assert!(stream.rest().contains("the session has ended"));
    are_gone(&pids(&proxy, 1));
    assert_eq!(ask(&proxy, &session, &tool("fast", 2)).status(), 404);
}

#[test]
fn what_a_route_has_learned_outlives_the_proxy() {
    let folder = tempfile::TempDir::new().unwrap();
    let state = folder.path().to_str().unwrap();
    let start = Start { state: Some(state), ..Start::default() };
    let keys = format!(
        "upstream.command = [{:?}, \"--pace\", \"600ms\"]\nestimate = true\n\
         heartbeat = {{ after = \"200ms\", every = \"200ms\" }}",
        example("silent")
    );
    let call = |proxy: &Proxy, session: &str, id| ask(proxy, session, &tool("sleep", id)).rest();
    let mut proxy = Proxy::with(&start, &keys);
    let session = begin(&proxy);
    for id in 1..=2 {
        assert!(!call(&proxy, &session, id).contains("about"));
    }
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
    let stats =
        || milepost().args(["stats", "--route", "/a", "--state-dir", state]).output().unwrap();
    let table = String::from_utf8(stats().stdout).unwrap();
    assert!(table.contains("sleep      2"), "{table}");
    let proxy = Proxy::with(&start, &keys);
    let session = begin(&proxy);
    let mut told = String::new();
    // The durations are read in the background.
    until("what was learned is known", || {
        told = call(&proxy, &session, 3);
        told.contains("s of about ")
    });
    // The number of seconds depends on the machine, which may be busy.
    let (_, about) = told.split_once("s of about ").unwrap();
    let seconds: String = about.chars().take_while(char::is_ascii_digit).collect();
    assert!(told.contains("sleep: ") && told.contains(&format!("\"total\":{seconds},")), "{told}");
}

#[test]
fn what_a_child_writes_on_standard_error_can_be_progress() {
    let proxy = serving("tools.loud = { dialects = [\"stderr\"] }");
    let session = begin(&proxy);
    let told = ask(&proxy, &session, &tool("loud", 1)).rest();
    let progress = r#""progressToken":1,"progress":3,"total":7,"message":"copied 3 of 7 files""#;
    assert!(told.contains(progress), "{told}");
    proxy.logged(&["copied 3 of 7 files"]);
}

#[test]
fn a_child_that_dies_ends_its_session_and_no_other() {
    let proxy = serving("heartbeat.enabled = false");
    let (one, two) = (begin(&proxy), begin(&proxy));
    let mut stream = ask(&proxy, &one, &tool("slow", 1));
    assert!(stream.event().is_some());
    let mut death = ask(&proxy, &one, &tool("die", 2));
    assert!(death.rest().contains("the MCP server ended (exit code 3)"));
    assert!(stream.rest().contains("the MCP server ended (exit code 3)"));
    until("the session is gone", || ask(&proxy, &one, &tool("fast", 3)).status() == 404);
    assert_eq!(json(&ask(&proxy, &two, &tool("fast", 3)).rest())["id"], 3);
    let all = pids(&proxy, 2);
    until("one is left", || all.iter().flatten().filter(|pid| runs(**pid)).count() == 2);
}

#[test]
fn a_command_that_does_not_start_is_told_to_who_asks() {
    let proxy = Proxy::before_command("no-such-program-anywhere");
    let mut answer = post(&proxy, INITIALIZE);
    assert_eq!(answer.status(), 502);
    let error = json(&answer.rest());
    assert_eq!(error["id"], 0);
    let why = error["error"]["message"].as_str().unwrap();
    assert!(why.contains("no-such-program-anywhere"), "{why}");
}

#[test]
fn a_shared_command_that_does_not_start_is_told_to_everyone_who_asks() {
    let proxy = Proxy::before_command("no-such-program-anywhere");
    let repeated = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let headers = [&POST[..], &repeated].concat();
    for id in 1..=4 {
        let body = modern(id, "tools/list", "");
        let mut answer = Exchange::send(proxy.address(), "POST", "/a", &headers, &body);
        assert_eq!(answer.status(), 502);
        assert_eq!(json(&answer.rest())["id"], id);
    }
}

#[test]
fn sigterm_ends_children_in_order() {
    let mut proxy = serving("");
    let session = begin(&proxy);
    begin(&proxy);
    let mut home = Exchange::send(
        proxy.address(),
        "GET",
        "/a",
        &[("mcp-session-id", &session), ("accept", "text/event-stream")],
        "",
    );
    assert_eq!(home.status(), 200);
    let all = pids(&proxy, 2);
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
    are_gone(&all);
    assert!(!proxy.log().contains("killed"), "{}", proxy.log());
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    const CLIENTS: usize = 12;
    let proxy = serving("upstream.idle_timeout = \"10s\"\nkeep_alive = \"200ms\"");
    let mut sessions = Vec::new();
    for number in 0..CLIENTS {
        let session = begin(&proxy);
        let mut stream = ask(&proxy, &session, &tool("slow", 1));
        assert!(stream.event().is_some());
        // An open call keeps its session; every second client cancels its call and disconnects.
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert_eq!(ask(&proxy, &session, cancel).status(), 202);
        if number % 2 == 0 {
            drop(stream);
        }
        sessions.push(session);
    }
    are_gone(&pids(&proxy, CLIENTS));
    for session in sessions {
        assert_eq!(ask(&proxy, &session, &tool("fast", 9)).status(), 404);
    }
}

#[test]
fn the_second_call_of_a_session_costs_no_start() {
    let proxy = serving("heartbeat.enabled = false");
    let session = begin(&proxy);
    assert_eq!(json(&ask(&proxy, &session, &tool("fast", 1)).rest())["id"], 1);
    for id in 2..40 {
        let answer = ask(&proxy, &session, &tool("fast", id)).rest();
        assert_eq!(json(&answer)["id"], id);
    }
    assert_eq!(pids(&proxy, 1).len(), 1, "a call has started a server");
}
