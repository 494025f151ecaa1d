//! Calls as operators see them while they happen: `/calls`, `/calls/N`, `/tap` and `milepost tap`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::proxy::Start;
use super::*;
use crate::support::session::signal;
use crate::support::{milepost, until, wait};

/// Before the route's server is silent for so long nothing is added.
/// On HTTP+SSE progress is not held, so that newer progress takes the place of none.
const KEYS: &str = "heartbeat = { after = \"400ms\", every = \"2s\" }\nmin_interval = \"0ms\"\n\
                    first_after = \"0s\"\nhold = \"0s\"\nguard = \"0s\"";

/// Says of a call, in one write: progress, the very same, progress under another name; answers once the
/// file that its argument names is there.
const SERVER: &str = r#"
import json, os, sys, threading, time
def say(*messages):
    sys.stdout.write("".join(json.dumps(message) + "\n" for message in messages))
    sys.stdout.flush()
def progress(token, figure):
    return {"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": figure, "total": 9, "message": "password=c4n4ry-0123456789"}}
def work(said):
    token = said["params"]["_meta"]["progressToken"]
    say(progress(token, 2), progress(token, 2), progress("nobody", 3))
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    say({"jsonrpc": "2.0", "id": said["id"], "result": {"content": []}})
for line in sys.stdin:
    said = json.loads(line)
    version = said.get("params", {}).get("protocolVersion")
    if said.get("method") == "tools/call":
        threading.Thread(target=work, args=(said,)).start()
    elif "id" in said and "method" in said:
        say({"jsonrpc": "2.0", "id": said["id"], "result": {"protocolVersion": version,
             "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}})
"#;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

/// Returns a call, with these further members of `_meta`.
fn tool(name: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{{}},"_meta":{{{meta}"progressToken":"t"}}}}}}"#
    )
}

/// A proxy before children that answer once the file in this folder is there.
fn children(folder: &TempDir) -> Proxy {
    let file = file(folder);
    let command =
        serde_json::to_string(&["python3", "-c", SERVER, file.to_str().unwrap()]).unwrap();
    Proxy::with(&debug(), &format!("upstream.command = {command}\n{KEYS}"))
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("answer")
}

fn debug() -> Start<'static> {
    Start { options: &["--log-level", "debug"], ..Start::default() }
}

/// The log has one line for each message of the call `work`, with the name of its route.
#[track_caller]
fn is_logged(proxy: &Proxy) {
    let from_server = "message sender=\"server\" receiver=\"client\"";
    let progress = format!(
        "{from_server} kind=\"notification\" method=\"notifications/progress\" tool=\"work\" verdict="
    );
    proxy.logged(&[
        "message sender=\"client\" receiver=\"server\" kind=\"request\" method=\"tools/call\" id=\"1\" verdict=",
        "route=\"/a\"",
    ]);
    proxy.logged(&[&format!("{progress}\"withheld\" reason=\"duplicate\" route=\"/a\"")]);
    proxy.logged(&[&format!("{progress}\"repaired\" reason=\""), "token"]);
    proxy.logged(&["sender=\"milepost\" receiver=\"client\" kind=\"notification\" method=\"notifications/progress\" tool=\"work\" verdict=\"added\" reason=\"heartbeat\""]);
    proxy.logged(&[from_server, "kind=\"response\" method=\"tools/call\" tool=\"work\" id="]);
    proxy.logged(&["call tool=\"work\"", "outcome=\"result\"", "route=\"/a\""]);
    let log = proxy.log();
    let count = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("method=\"tools/call\" id=\"1\" verdict="), 1, "{log}");
    assert_eq!(count(&progress), 3, "{log}");
    assert!(!log.contains("c4n4ry"), "{log}");
}

fn look(proxy: &Proxy, path: &str) -> Value {
    let (status, text) = proxy.probe(path);
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Returns the call of a tool, if it is shown.
fn call_of(proxy: &Proxy, name: &str) -> Option<Value> {
    let calls = look(proxy, "/calls")["calls"].as_array().unwrap().clone();
    calls.into_iter().find(|call| call["tool"] == name)
}

/// Waits until a call is seen to be so.
#[track_caller]
fn seen(proxy: &Proxy, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    until("the call is seen to be so", || {
        found = call_of(proxy, name).filter(|call| is(call));
        found.is_some()
    });
    found.unwrap()
}

/// Returns the messages of a call, once this message is among them.
#[track_caller]
fn told(proxy: &Proxy, call: &Value, what: &str) -> Value {
    let path = format!("/calls/{}", call["n"]);
    let mut whole = Value::Null;
    until(&format!("{what} is told"), || {
        whole = look(proxy, &path);
        whole["messages"].as_array().unwrap().iter().any(|one| one["what"] == what)
    });
    whole
}

/// A call `work` is seen as it runs and when it is over, with all that was said of it. Its server answers
/// when it is told to, after a heartbeat.
#[track_caller]
fn is_seen(proxy: &Proxy, answer: impl FnOnce()) {
    // A heartbeat may have raised the value by a lift.
    let open =
        seen(proxy, "work", |call| call["progress"].as_str().is_some_and(|it| it.starts_with('3')));
    assert_eq!(open["route"], "/a");
    assert_eq!(open["token"], true);
    assert_eq!(open["message"], "password=***", "{open}");
    assert_eq!((&open["ended"], &open["outcome"]), (&Value::Null, &Value::Null));
    told(proxy, &open, "added");
    answer();
    let over = seen(proxy, "work", |call| call["outcome"] == "result");
    let whole = told(proxy, &over, "answer");
    assert!(!whole.to_string().contains("c4n4ry"), "{whole}");
    let messages = whole["messages"].as_array().unwrap();
    let of = |what: &str| {
        let found = messages.iter().find(|one| one["what"] == what);
        found.unwrap_or_else(|| panic!("nothing {what}: {whole:#}")).clone()
    };
    let has = |text: &Value, part: &str| text.as_str().is_some_and(|text| text.contains(part));
    assert!(has(&of("request")["before"], "tools/call"));
    let withheld = of("withheld");
    assert_eq!(withheld["why"][0], "duplicate");
    assert!(has(&withheld["because"][0], "the same report") && withheld["after"].is_null());
    let repaired = of("repaired");
    assert!(repaired["why"].as_array().unwrap().iter().any(|why| why == "token"), "{repaired}");
    assert!(has(&repaired["before"], "nobody"), "{repaired}");
    assert!(has(&repaired["after"], "\"t\"") && !has(&repaired["after"], "nobody"), "{repaired}");
    let added = of("added");
    assert_eq!(added["why"][0], "heartbeat");
    assert!(has(&added["after"], "notifications/progress") && added["before"].is_null());
    assert!(has(&of("answer")["before"], "result"));
    assert_eq!(whole["call"]["withheld"]["duplicate"], 1);
    let routes = look(proxy, "/calls")["routes"].clone();
    assert_eq!((&routes[0]["route"], &routes[0]["open"]), (&"/a".into(), &0.into()), "{routes}");
    assert_eq!(proxy.probe("/calls/4000").0, 404);
    assert_eq!(proxy.probe("/calls/x").0, 404);
    is_logged(proxy);
}

#[test]
fn calls_to_a_child_of_a_session_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = children(&folder);
    let mut begun = post(&proxy, INITIALIZE);
    let session = begun.header("mcp-session-id").unwrap();
    let headers = [&POST[..], &[("mcp-session-id", &session)]].concat();
    let mut answer = Exchange::send(proxy.address(), "POST", "/a", &headers, &tool("work", ""));
    is_seen(&proxy, || fs::write(file(&folder), "").unwrap());
    assert_eq!(seen(&proxy, "work", |_| true)["client"], "c 1");
    assert!(answer.rest().contains("\"result\""));
}

#[test]
fn calls_to_a_child_that_clients_share_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = children(&folder);
    let repeated = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "work"),
    ];
    let headers = [&POST[..], &repeated].concat();
    let meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"m","version":"2"},"#;
    let mut answer = Exchange::send(proxy.address(), "POST", "/a", &headers, &tool("work", meta));
    is_seen(&proxy, || fs::write(file(&folder), "").unwrap());
    assert!(answer.rest().contains("\"result\""));
}

/// Returns the messages that [`SERVER`] sends before its answer, as events.
fn said() -> String {
    let progress = |token: &str, figure: u32| {
        format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":\"{token}\",\"progress\":{figure},\"total\":9,\"message\":\"password=c4n4ry-0123456789\"}}}}\n\n"
        )
    };
    [progress("t", 2), progress("t", 2), progress("nobody", 3)].concat()
}

#[test]
fn calls_to_a_server_over_http_are_seen() {
    let upstream = Upstream::start();
    let keys = format!("upstream.url = \"{}\"\n{KEYS}", upstream.url());
    let proxy = Proxy::with(&debug(), &keys);
    let answer = post(&proxy, &tool("work", ""));
    let mut server = upstream.asked();
    server.events().say(said());
    // The client reads: the page is produced while it is read.
    let reader = thread::spawn(move || {
        let mut answer = answer;
        answer.rest()
    });
    is_seen(&proxy, || server.say(result_event("1")).end());
    assert!(reader.join().unwrap().contains("\"result\""));
}

#[test]
fn calls_over_http_and_sse_are_seen() {
    let upstream = Upstream::start();
    let keys = format!("upstream.sse = \"{}\"\n{KEYS}", upstream.url());
    let proxy = Proxy::with(&debug(), &keys);
    let accept = [("accept", "text/event-stream")];
    let mut stream = Exchange::send(proxy.address(), "GET", "/a/sse", &accept, "");
    let mut wire = upstream.asked();
    wire.events().say("event: endpoint\ndata: /mcp?sessionId=1\n\n");
    let endpoint = stream.event().unwrap();
    let endpoint = endpoint.split_once("data: ").unwrap().1.trim().to_owned();
    let posted = thread::spawn({
        let address = proxy.address().to_owned();
        move || {
            let post = Exchange::send(&address, "POST", &endpoint, &POST, &tool("work", ""));
            { post }.status()
        }
    });
    upstream.asked().answer("202 Accepted", "", "");
    assert_eq!(posted.join().unwrap(), 202);
    wire.say(said());
    let reader = thread::spawn(move || {
        let mut answered = false;
        while !answered && let Some(event) = stream.event() {
            answered = event.contains("\"result\"");
        }
        answered
    });
    is_seen(&proxy, || _ = wire.say(result_event("1")));
    assert!(reader.join().unwrap());
}

/// Reads an event of `/calls`: its name and its data.
#[track_caller]
fn news(stream: &mut Exchange) -> Option<(String, Value)> {
    let event = stream.event()?;
    let (name, data) = event.trim().split_once('\n').unwrap();
    let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    Some((name.strip_prefix("event: ").unwrap().to_owned(), data))
}

#[test]
fn who_looks_on_is_told_of_changes_until_the_proxy_stops() {
    let upstream = Upstream::start();
    let mut proxy = Proxy::before(&upstream.url());
    let accept = [("accept", "text/event-stream")];
    let mut stream = Exchange::send(proxy.admin(), "GET", "/calls", &accept, "");
    assert_eq!(stream.status(), 200);
    assert_eq!(stream.header("content-type").as_deref(), Some("text/event-stream"));
    assert_eq!(stream.header("cache-control").as_deref(), Some("no-store"));
    let first: Vec<String> = (0..3).map(|_| news(&mut stream).unwrap().0).collect();
    assert_eq!(first, ["routes", "calls", "now"]);
    let mut client = post(&proxy, &call("1", "7"));
    let mut server = upstream.asked();
    let mut until_call = |is: &dyn Fn(&Value) -> bool| {
        loop {
            let (name, data) = news(&mut stream).unwrap();
            if name == "calls" && data.as_array().unwrap().iter().any(is) {
                return;
            }
        }
    };
    until_call(&|call| call["tool"] == "work" && call["ended"].is_null());
    server.json(&result("1"));
    assert_eq!(client.rest(), result("1"));
    until_call(&|call| call["outcome"] == "result");
    proxy.terminate();
    // The stream ends properly.
    while news(&mut stream).is_some() {}
    assert_eq!(proxy.code(), Some(0));
}

#[test]
fn who_looks_on_and_does_not_read_harms_nobody() {
    let upstream = Upstream::start();
    let mut proxy = Proxy::before(&upstream.url());
    let accept = [("accept", "text/event-stream")];
    let all = 16;
    let mut idle: Vec<Exchange> = (0..all)
        .map(|n| match n % 2 {
            0 => Exchange::send(proxy.admin(), "GET", "/tap", &[], ""),
            _ => Exchange::send(proxy.admin(), "GET", "/calls", &accept, ""),
        })
        .collect();
    idle.iter_mut().for_each(|one| assert_eq!(one.status(), 200));
    let mut more = Exchange::send(proxy.admin(), "GET", "/tap", &[], "");
    assert_eq!(more.status(), 503);
    assert!(more.rest().contains("16 look on already"));
    // Short requests are still answered.
    assert_eq!(proxy.probe("/livez").0, 200);
    assert_eq!(proxy.probe("/calls").0, 200);
    let answer = post(&proxy, &call("1", "7"));
    let reader = thread::spawn(move || {
        let mut answer = answer;
        answer.rest().matches("notifications/progress").count()
    });
    let mut server = upstream.asked();
    server.events();
    let before = proxy.status("VmRSS");
    let count = 20_000;
    let words = "x".repeat(2000);
    for figure in 1..=count {
        server.say(format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":7,\"progress\":{figure},\"message\":\"{words}\"}}}}\n\n"
        ));
    }
    server.say(result_event("1")).end();
    assert!(reader.join().unwrap() > 0);
    let grown = proxy.status("VmRSS").saturating_sub(before);
    // 40 MB have passed.
    assert!(grown < 30 << 10, "{grown} KiB");
    // An observer that reads again is told how many messages were left out.
    let mut tap = idle.swap_remove(0);
    drop(idle);
    // The observer reads before the end: a stream has only a short time for its last messages.
    let reader = thread::spawn(move || tap.rest());
    proxy.terminate();
    assert!(reader.join().unwrap().contains("notifications/progress"));
    assert_eq!(proxy.code(), Some(0));
}

#[test]
fn calls_are_shown_to_operators_alone() {
    let file = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                bearer = \"s3cret\"\n[[route]]\npath = \"/a\"\nupstream.demo = true\n";
    let proxy = Proxy::of_file(&Start::default(), file);
    let ask = |path: &str, headers: &[(&str, &str)]| {
        Exchange::send(proxy.admin(), "GET", path, headers, "").status()
    };
    let token = ("authorization", "Bearer s3cret");
    for path in ["/calls", "/calls/1", "/tap"] {
        assert_eq!(ask(path, &[]), 401, "{path}");
        assert_eq!(ask(path, &[("authorization", "Bearer other")]), 401, "{path}");
        assert_eq!(ask(path, &[token, ("origin", "http://evil.example")]), 403, "{path}");
    }
    assert_eq!(ask("/calls", &[token]), 200);
    assert_eq!(ask("/calls/1", &[token]), 404);
    assert_eq!(ask("/tap", &[token]), 200);
    assert_eq!(ask("/tap?verdict=lost", &[token]), 400);
    assert_eq!(ask("/tap?colour=red", &[token]), 400);
    let mut posted = Exchange::send(proxy.admin(), "POST", "/calls", &[token], "");
    assert_eq!(posted.status(), 405);
    // With the route file, the token is known.
    let known = proxy.file().replace("proxy.toml", "known.toml");
    let file = file.replacen("127.0.0.1:0", "127.0.0.1:7332", 1);
    fs::write(&known, file.replace("127.0.0.1:0", proxy.admin())).unwrap();
    let mut tap = Tapping::start(&["--config", &known], &proxy);
    tap.is_on(&proxy);
    assert_eq!(tap.interrupt(), Some(0));
    let (code, said) = refused(&[&format!("http://{}", proxy.admin())]);
    assert_eq!(code, Some(2));
    assert!(said.contains("requires the token") && said.contains("--config"), "{said}");
}

/// Asks the admin listener to cancel a call: the status and the words.
#[track_caller]
fn cancel(proxy: &Proxy, method: &str, call: &Value, reason: &str) -> (u16, String) {
    let path = format!("/calls/{call}/cancel");
    let mut answer =
        Exchange::send(proxy.admin(), method, &path, &[("milepost-admin", "1")], reason);
    (answer.status(), answer.rest())
}

/// The call `work` is cancelled, and shown so.
#[track_caller]
fn is_cancelled(proxy: &Proxy) {
    let open = seen(proxy, "work", |call| call["ended"].is_null());
    let (status, said) = cancel(proxy, "POST", &open["n"], " it \n hangs ");
    assert_eq!(status, 200, "{said}");
    seen(proxy, "work", |call| call["outcome"] == "cancelled by operator");
    proxy.logged(&[
        "call tool=\"work\"",
        "outcome=\"cancelled by operator\" cancelled_by=\"127.0.0.1\" reason=\"it hangs\"",
    ]);
    let (_, metrics) = proxy.probe("/metrics");
    let counted = "outcome=\"cancelled by operator\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    let (status, said) = cancel(proxy, "POST", &open["n"], "");
    assert_eq!(status, 409, "{said}");
    assert!(said.contains("is over already: cancelled by operator"), "{said}");
}

#[test]
fn an_operator_cancels_a_call_to_a_child() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = children(&folder);
    let mut begun = post(&proxy, INITIALIZE);
    let session = begun.header("mcp-session-id").unwrap();
    let headers = [&POST[..], &[("mcp-session-id", &session)]].concat();
    let mut answer = Exchange::send(proxy.address(), "POST", "/a", &headers, &tool("work", ""));
    is_cancelled(&proxy);
    assert!(answer.rest().contains("cancelled by an operator: it hangs"));
    let unknown = Value::from(4000);
    assert_eq!(cancel(&proxy, "POST", &unknown, "").0, 404);
    assert_eq!(cancel(&proxy, "GET", &unknown, "").0, 405);
    let mut foreign = Exchange::send(proxy.admin(), "POST", "/calls/1/cancel", &[], "");
    assert_eq!(foreign.status(), 403, "no page of another site can cancel a call");
    fs::write(file(&folder), "").unwrap();
}

#[test]
fn an_operator_cancels_a_call_to_a_server_over_http() {
    let upstream = Upstream::start();
    let keys = format!("upstream.url = \"{}\"\n{KEYS}", upstream.url());
    let proxy = Proxy::with(&debug(), &keys);
    let answer = post(&proxy, &tool("work", ""));
    let mut server = upstream.asked();
    server.events();
    server.say(said());
    let reader = thread::spawn(move || {
        let mut answer = answer;
        answer.rest()
    });
    is_cancelled(&proxy);
    let told = upstream.asked();
    assert!(told.body.contains("notifications/cancelled"), "{}", told.body);
    assert!(told.body.contains("cancelled by an operator: it hangs"), "{}", told.body);
    assert!(reader.join().unwrap().contains("cancelled by an operator: it hangs"));
}

#[test]
fn an_operator_cancels_a_call_before_its_server_has_begun_to_answer() {
    let upstream = Upstream::start();
    let keys = format!("upstream.url = \"{}\"\n{KEYS}", upstream.url());
    let proxy = Proxy::with(&debug(), &keys);
    let reader = thread::spawn({
        let address = proxy.address().to_owned();
        move || Exchange::send(&address, "POST", "/a", &POST, &tool("work", "")).rest()
    });
    let _server = upstream.asked();
    is_cancelled(&proxy);
    assert!(upstream.asked().body.contains("notifications/cancelled"));
    assert!(reader.join().unwrap().contains("cancelled by an operator: it hangs"));
}

/// `milepost tap`.
struct Tapping {
    child: Child,
    lines: Receiver<String>,
}

impl Tapping {
    fn start(args: &[&str], proxy: &Proxy) -> Self {
        let mut command = milepost();
        command.arg("tap").args(args);
        if !args.contains(&"--config") {
            command.arg(format!("http://{}", proxy.admin()));
        }
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (line, lines) = mpsc::channel();
        let out: BufReader<ChildStdout> = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|text| line.send(text))
        });
        Self { child, lines }
    }

    /// Waits until the proxy shows messages to the observer: the observer sees a message of a client.
    #[track_caller]
    fn is_on(&self, proxy: &Proxy) {
        until("it is shown what passes", || {
            drop(post(proxy, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).rest());
            self.lines.recv_timeout(Duration::from_millis(50)).is_ok()
        });
    }

    /// Returns the lines up to a line that contains this text.
    #[track_caller]
    fn up_to(&self, part: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let line = self.lines.recv_timeout(STUCK);
            seen.push(line.unwrap_or_else(|_| panic!("no {part:?}: {seen:#?}")));
            if seen.last().unwrap().contains(part) {
                return seen;
            }
        }
    }

    #[track_caller]
    fn interrupt(&mut self) -> Option<i32> {
        signal("INT", self.child.id());
        wait(&mut self.child, STUCK).unwrap().code()
    }
}

impl Drop for Tapping {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the exit code and the message of a `milepost tap` that shows nothing.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = milepost().arg("tap").args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn messages_are_shown_in_a_terminal_with_what_became_of_them() {
    let upstream = Upstream::start();
    let keys = format!("upstream.url = \"{}\"\n{KEYS}", upstream.url());
    let mut proxy = Proxy::with(&Start::default(), &keys);
    let mut all = Tapping::start(&[], &proxy);
    let mut some = Tapping::start(&["--tool", "work", "--verdict", "duplicate", "--json"], &proxy);
    let round = |id: &str| {
        let ask = thread::spawn({
            let address = proxy.address().to_owned();
            let said = tool("work", "").replacen("\"id\":1,", &format!("\"id\":{id},"), 1);
            move || drop(Exchange::send(&address, "POST", "/a", &POST, &said).rest())
        });
        let mut server = upstream.asked();
        server.events().say(said());
        server.say(result_event(id)).end();
        ask.join().unwrap();
    };
    let comes = |tap: &Tapping| tap.lines.recv_timeout(Duration::from_millis(100)).is_ok();
    until("both are there", || {
        round("1");
        comes(&some) && comes(&all)
    });
    // Lines of earlier rounds may still arrive.
    round("2");
    let mut shown = all.up_to("\"id\":2,\"result\"");
    let first = shown.iter().position(|line| line.starts_with("> {") && line.contains("\"id\":2,"));
    shown.drain(..first.unwrap_or_else(|| panic!("no request: {shown:#?}")));
    let line: Value = serde_json::from_str(&some.up_to("duplicate")[0]).unwrap();
    assert_eq!((&line["what"], &line["route"]), (&"withheld".into(), &"/a".into()), "{line}");
    assert_eq!(line["tool"], "work");
    let at = |part: &str| {
        let found = shown.iter().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("no {part}: {shown:#?}"))
    };
    let withheld =
        at("    withheld: duplicate, the client got the same report within the last second");
    assert!(shown[withheld - 1].starts_with("< {") && shown[withheld - 2].starts_with("# 2"));
    assert!(shown[withheld - 2].contains(" /a call ") && shown[withheld - 2].ends_with(" work"));
    let repaired = at("    repaired: token");
    assert!(shown[repaired + 1].starts_with("= {") && shown[repaired + 1].contains("\"t\""));
    assert!(shown[at("> {")].contains("tools/call"));
    assert!(!shown.concat().contains("c4n4ry") && !shown.concat().contains('\u{1b}'));
    assert_eq!(some.interrupt(), Some(0));
    // The proxy ends before the observer.
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
    assert_eq!(wait(&mut all.child, STUCK).unwrap().code(), Some(1));
}

#[test]
fn who_taps_is_told_first_how_many_routes_are_watched() {
    let route = |path: &str| format!("[[route]]\npath = \"{path}\"\nupstream.demo = true\n");
    let proxy = Proxy::serving(&Start::default(), &(route("/reports") + &route("/b")));
    for (route, watched) in [(&[][..], "2 routes"), (&["--route", "/b"], "1 route")] {
        let mut command = milepost();
        command.arg("tap").arg(proxy.admin()).args(route).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let expected = format!("milepost: watching {watched} at http://{}", proxy.admin());
        assert!(line.starts_with(&expected), "{line}");
        let _ = child.kill();
        let _ = child.wait();
    }
    let (code, said) = refused(&[proxy.admin(), "--route", "/report"]);
    assert!(code == Some(2) && said.contains("did you mean \"/reports\"?"), "{said}");
}

#[test]
fn the_messages_of_all_replicas_are_shown_together() {
    let upstreams = [Upstream::start(), Upstream::start()];
    let proxies = upstreams.each_ref().map(|upstream| {
        Proxy::with(&Start::default(), &format!("upstream.url = \"{}\"\n{KEYS}", upstream.url()))
    });
    let [one, two] = proxies.each_ref().map(|proxy| proxy.admin().to_owned());
    // A third replica has not started, and a host name is used in the place of an address.
    let (_socket, dead) = scripted_server::dead();
    let two = two.replace("127.0.0.1", "localhost");
    let mut command = milepost();
    command.args(["tap", "--json", "--fleet", &format!("{one},{two},{dead}")]);
    let tap = Tapping::run(command);
    for (proxy, upstream) in proxies.iter().zip(&upstreams) {
        let name = format!("of-{}", proxy.address().replace(['.', ':'], "-"));
        until("the messages of the replica are shown", || {
            let address = proxy.address().to_owned();
            let said = tool(&name, "");
            let ask = thread::spawn(move || {
                drop(Exchange::send(&address, "POST", "/a", &POST, &said).rest());
            });
            let mut server = upstream.asked();
            server.events();
            server.say(result_event("1")).end();
            ask.join().unwrap();
            let mut lines =
                std::iter::from_fn(|| tap.lines.recv_timeout(Duration::from_millis(100)).ok());
            lines.any(|line| line.contains(&name))
        });
    }
    let nobody = format!("127.0.0.1:{}", dead.to_string().rsplit(':').next().unwrap());
    let (code, said) = refused(&["--fleet", &nobody]);
    assert!(code == Some(2) && said.contains("cannot be reached"), "{said}");
}

#[test]
fn who_cannot_be_tapped_is_told_why() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let (_socket, dead) = scripted_server::dead();
    let clients = format!("http://{}", proxy.address());
    let admin = format!("http://{}", proxy.admin());
    let without = proxy.file().replace("proxy.toml", "without.toml");
    fs::write(&without, "[[route]]\npath = \"/a\"\nupstream.demo = true\n").unwrap();
    for (args, expected) in [
        (&[&*format!("http://{dead}")][..], "cannot be reached; is `milepost serve` running"),
        (&[&clients], "is not the admin listener of `milepost serve`: the answer is 404"),
        (&[&admin, "--verdict", "lost"], "refuses: \"lost\" is not a verdict; forwarded,"),
        (&[proxy.admin(), "--route", "/b"], "refuses: there is no route \"/b\"; "),
        (&[proxy.admin(), "--route", "/"], "refuses: there is no route \"/\"; "),
        (&["127.0.0.1:port"], "HOST:PORT or a URL such as http://127.0.0.1:7333 is expected"),
        (&["ftp://127.0.0.1:7333"], "is not the address of an admin listener"),
        (&["--config", &without], "an [admin] table is expected"),
        (&[&admin, "--bearer-file", "/nowhere"], "--bearer-file: /nowhere: "),
    ] {
        let (code, said) = refused(args);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn names_and_words_that_a_terminal_obeys_are_escaped() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let body = call("1", "").replace("work", "a\u{9b}2Jb");
    let mut asked = Exchange::send(proxy.address(), "POST", "/a", &POST, &body);
    upstream.asked().json(&result("1"));
    assert_eq!(asked.rest(), result("1"));
    let accept = [("accept", "text/event-stream")];
    let mut events = Exchange::send(proxy.admin(), "GET", "/calls", &accept, "");
    let told = std::iter::from_fn(|| events.event()).find(|event| event.contains("event: calls"));
    for text in [proxy.probe("/calls").1, proxy.probe("/calls/1").1, told.unwrap()] {
        assert!(!text.chars().any(|sign| sign.is_control() && sign != '\n'), "{text}");
        assert!(text.contains(r"a\u009b2Jb"), "{text}");
    }
}
