//! The messages of the example servers over HTTP, as far as they differ from server to server.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::exchange::Exchange;
use crate::support::server::Server;
use crate::support::{STUCK, example, until, wait};

/// The time without a message after which a test assumes that none follows.
const SILENCE: Duration = Duration::from_millis(300);

const BOTH: &str = "application/json, text/event-stream";

/// A client of one of these servers.
pub(super) struct Client {
    server: Server,
    session: Option<String>,
}

impl Client {
    /// Starts a server and introduces itself.
    pub(super) fn open(name: &str, options: &[&str]) -> Self {
        let mut client = Self { server: Server::start(name, options), session: None };
        let mut answer = client.introduce();
        assert_eq!(answer.status(), 200);
        client.session = answer.header("mcp-session-id");
        let answer = answer.rest();
        assert!(answer.contains(r#""serverInfo""#), "{answer}");
        let mut answer = client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!((answer.status(), answer.rest()), (202, String::new()));
        let tools = client.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).rest();
        assert!(tools.contains(r#""inputSchema""#), "{tools}");
        client
    }

    fn introduce(&self) -> Exchange {
        self.post(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}"#,
        )
    }

    fn send(&self, method: &str, path: &str, accept: &str, body: &str) -> Exchange {
        let mut headers = vec![("accept", accept), ("content-type", "application/json")];
        headers.extend(self.session.as_deref().map(|id| ("mcp-session-id", id)));
        Exchange::send(self.server.address(), method, path, &headers, body)
    }

    fn post(&self, message: &str) -> Exchange {
        self.send("POST", "/mcp", BOTH, message)
    }

    /// Calls a tool with the token `"t"`.
    pub(super) fn call(&self, id: Value, tool: &str, arguments: Value) -> Exchange {
        self.post(&request(&id, tool, &arguments))
    }

    /// The events and messages of a call to its end.
    pub(super) fn messages(&self, id: Value, tool: &str, arguments: Value) -> Vec<(String, Value)> {
        let mut answer = self.call(id, tool, arguments);
        assert_eq!(answer.header("content-type").unwrap(), "text/event-stream");
        answer.events().into_iter().map(|event| (event.clone(), data(&event))).collect()
    }

    /// Opens the GET stream.
    fn listen(&self) -> Exchange {
        let mut stream = self.send("GET", "/mcp", "text/event-stream", "");
        assert_eq!(stream.status(), 200);
        stream
    }

    pub(super) fn delete(&self) -> u16 {
        self.send("DELETE", "/mcp", BOTH, "").status()
    }
}

pub(super) fn request(id: &Value, tool: &str, arguments: &Value) -> String {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": { "progressToken": "t" } },
    })
    .to_string()
}

/// Returns the message of an event; null without one.
fn data(event: &str) -> Value {
    let line = event.lines().find_map(|line| line.strip_prefix("data:"));
    serde_json::from_str(line.unwrap_or_default().trim_start()).unwrap_or_default()
}

/// Whether it looks like a UUID.
fn is_uuid(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.len() == 36 && text.chars().filter(|&c| c == '-').count() == 4
}

fn figures(messages: &[(String, Value)], key: &str) -> Vec<Value> {
    let params = messages.iter().map(|(_, message)| &message["params"][key]);
    params.filter(|value| !value.is_null()).cloned().collect()
}

pub(super) const DEPENDENCIES: &str = "get-component-dependencies";

#[test]
fn kuzumem_on_the_sdk_sends_progress_without_a_figure() {
    let client = Client::open("kuzumem", &["--variant", "k5", "--pace", "1ms"]);
    let messages = client.messages(json!(20), DEPENDENCIES, json!({}));
    let (answer, progress) = messages.split_last().unwrap();
    assert!(messages.iter().all(|(event, _)| event.starts_with("event: message\ndata: {")));
    assert_eq!(progress.len(), 7);
    assert!(progress.iter().all(|(_, message)| message["method"] == "notifications/progress"));
    assert_eq!(figures(progress, "progressToken"), vec![json!(20); 7]);
    assert_eq!(figures(progress, "percent"), [0, 50, 50, 100]);
    assert_eq!(figures(progress, "isFinal"), [true]);
    assert!(figures(progress, "progress").is_empty());
    assert_eq!(answer.1["id"], 20);
    assert!(answer.1["result"]["content"][0]["text"].is_string());

    for id in [json!(0), json!("")] {
        let messages = client.messages(id.clone(), DEPENDENCIES, json!({}));
        let tokens = figures(&messages, "progressToken");
        assert!(tokens.iter().all(is_uuid), "{tokens:?}");
        let different: BTreeSet<_> = tokens.iter().map(Value::to_string).collect();
        assert_eq!(different.len(), 7);
        assert_eq!(messages.last().unwrap().1["id"], id);
    }
    // Every client gets the same session, on every path.
    assert_eq!(client.introduce().header("mcp-session-id"), client.session);
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    assert_eq!(client.send("POST", "/", BOTH, ping).status(), 200);
    assert_eq!(client.send("POST", "/mcp", "application/json", ping).status(), 406);
    assert_eq!(client.send("GET", "/mcp", "text/event-stream", "").status(), 200);

    let client = Client::open("kuzumem", &["--variant", "k5", "--once"]);
    assert_eq!(client.introduce().status(), 400);
}

#[test]
fn kuzumem_by_hand_never_ends_a_stream_and_renames_the_id_0() {
    let server = Server::start("kuzumem", &["--variant", "k2", "--pace", "1ms"]);
    let client = Client { server, session: None };
    let refused = client.introduce().rest();
    let expected =
        "event: mcpResponse\ndata: {\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-32601,";
    assert!(refused.starts_with(expected), "{refused}");
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let refused = client.post(notification).rest();
    assert!(refused.starts_with("event: mcpResponse\ndata: {\"jsonrpc\":\"2.0\",\"error\":"));
    let body = r#"{"protocolVersion":"2025-03-26"}"#;
    let greeting = client.send("POST", "/initialize", BOTH, body).rest();
    assert!(
        greeting
            .starts_with(r#"{"jsonrpc":"2.0","id":null,"result":{"protocolVersion":"2025-03-26""#)
    );
    assert!(client.send("GET", "/tools/list", BOTH, "").rest().contains("pagerank"));

    let mut answer = client.call(json!(0), DEPENDENCIES, json!({}));
    let mut ids = BTreeSet::new();
    for _ in 0..7 {
        let event = answer.event().unwrap();
        assert!(event.starts_with("event: mcpNotification\ndata: "), "{event}");
        let message = data(&event);
        assert_eq!(message["method"], "tools/progress");
        let text = message["params"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("{\n  \"status\": "), "{text}");
        ids.insert(message["params"]["id"].to_string());
    }
    let event = answer.event().unwrap();
    assert!(event.starts_with("event: mcpResponse\ndata: "), "{event}");
    let message = data(&event);
    assert_eq!(message["result"]["status"], "complete");
    ids.insert(message["id"].to_string());
    assert!(is_uuid(&message["id"]) && ids.len() == 1, "{ids:?}");
    assert!(answer.header("x-request-id").is_some() && answer.is_quiet(SILENCE));

    let mut answer = client.call(json!(5), "no-such-tool", json!({}));
    assert_eq!(data(&answer.event().unwrap())["params"]["isFinal"], true);
    let error = data(&answer.event().unwrap())["error"].clone();
    assert!(error["error"].is_string() && error.get("code").is_none(), "{error}");

    let plain = request(&json!(6), DEPENDENCIES, &json!({}));
    let mut plain = client.send("POST", "/mcp", "application/json", &plain);
    assert_eq!(plain.header("content-type").unwrap(), "application/json");
    assert!(plain.rest().starts_with(r#"{"jsonrpc":"2.0","id":6,"result":{"status":"complete""#));
}

#[test]
fn kuzumem_on_better_sse_puts_no_space_after_colons() {
    let server = Server::start("kuzumem", &["--variant", "k3h", "--pace", "1ms"]);
    let client = Client { server, session: None };
    let mut answer = client.call(json!(20), DEPENDENCIES, json!({}));
    assert_eq!(answer.header("pragma").unwrap(), "no-cache");
    let events = answer.events();
    assert_eq!(events[0], "retry:2000\n\n");
    let (last, progress) = events[1..].split_last().unwrap();
    assert_eq!(progress.len(), 7);
    let mut ids = BTreeSet::new();
    for event in progress {
        let lines: Vec<_> = event.lines().collect();
        assert_eq!(lines[0], "event:mcpNotification");
        ids.insert(lines[1].strip_prefix("id:").unwrap());
        let content = &data(event)["params"]["content"][0];
        assert_eq!(content["type"], "RichText");
        assert!(content["text"].as_str().unwrap().starts_with("{\"status\":"), "{content}");
    }
    assert_eq!(ids.len(), 7);
    assert!(last.starts_with("event:mcpResponse\nid:"), "{last}");
    assert_eq!(data(last)["result"]["totalDependencies"], 2);

    let call = |id: &str| request(&json!(id), DEPENDENCIES, &json!({}));
    let batch = client.post(&format!("[{},{}]", call("a"), call("b"))).events();
    let of = |event: &String| {
        let message = data(event);
        let id = if message["id"].is_null() { &message["params"]["id"] } else { &message["id"] };
        id.as_str().unwrap().to_owned()
    };
    let order: Vec<_> = batch[1..].iter().map(of).collect();
    assert_eq!(order, [["a"; 8], ["b"; 8]].concat());
}

#[test]
fn plexus_as_planned_invents_a_token_for_every_call() {
    let client = Client::open("plexus", &["--variant", "p0", "--pace", "1ms"]);
    let mut tokens = BTreeSet::new();
    let mut sessions = BTreeSet::from([client.session.clone().unwrap()]);
    for _ in 0..2 {
        let call = request(&json!(1), "claudecode.chat", &json!({}));
        let mut answer = client.send("POST", "/mcp", "text/event-stream", &call);
        sessions.insert(answer.header("mcp-session-id").unwrap());
        let events = answer.events();
        let (last, progress) = events.split_last().unwrap();
        for (event, number) in progress.iter().zip([3, 4, 5, 6, 9]) {
            assert!(event.starts_with(&format!("event: message\nid: evt-{number}\ndata: ")));
            let params = &data(event)["params"];
            assert!(is_uuid(&params["progressToken"]) && params["progress"] == number, "{event}");
            tokens.insert(params["progressToken"].to_string());
        }
        assert_eq!(progress.len(), 5);
        assert!(last.starts_with("event: message\nid: final\ndata: "), "{last}");
        assert_eq!(data(last)["result"]["content"][0]["text"], "All seems well.");
    }
    assert_eq!((tokens.len(), sessions.len()), (2, 3));
    let failed = client.messages(json!(2), "no-such-tool", json!({}));
    assert_eq!(failed[0].1["result"]["isError"], true);
    assert_eq!(client.send("GET", "/mcp", "text/event-stream", "").status(), 405);

    let client = Client::open("plexus", &["--variant", "p0", "--no-figures", "--pace", "1ms"]);
    let messages = client.messages(json!(1), "claudecode.chat", json!({}));
    assert!(figures(&messages, "progress").is_empty());
}

#[test]
fn plexus_on_rmcp_logs_to_the_get_stream() {
    let client = Client::open("plexus", &["--variant", "p1", "--pace", "1ms"]);
    let mut stream = client.listen();
    let messages = client.messages(json!(1), "claudecode.chat", json!({}));
    // The list of tools was the first request.
    for (number, (event, _)) in messages.iter().enumerate() {
        assert!(event.starts_with("data: {"), "{event}");
        assert!(event.ends_with(&format!("}}\nid: {number}/1\n\n")), "{event}");
    }
    assert_eq!(figures(&messages, "progressToken"), vec![json!("t"); 6]);
    assert_eq!(figures(&messages, "progress"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(figures(&messages, "total"), [6.0; 6]);
    for number in 0..4 {
        let event = stream.event().unwrap();
        assert!(event.ends_with(&format!("\nid: {number}\n\n")), "{event}");
        let message = data(&event);
        assert_eq!(message["method"], "notifications/message");
        assert_eq!(message["params"]["logger"], "plexus.claudecode.chat");
    }
    assert!(client.introduce().rest().contains(r#""protocolVersion":"2025-03-26""#));
    assert_eq!(client.send("POST", "/mcp", "text/event-stream", "{}").status(), 406);
    assert_eq!(client.delete(), 202);
    assert_eq!(client.call(json!(2), "claudecode.chat", json!({})).status(), 401);

    let options = ["--variant", "p1", "--invented-token", "--pace", "1ms"];
    let client = Client::open("plexus", &options);
    let mut stream = client.listen();
    assert_eq!(client.messages(json!(1), "claudecode.chat", json!({})).len(), 1);
    let event = stream.event().unwrap();
    assert!(is_uuid(&data(&event)["params"]["progressToken"]), "{event}");

    let client = Client::open("plexus", &["--variant", "p2", "--pace", "1ms"]);
    let messages = client.messages(json!(1), "claudecode.chat", json!({}));
    assert_eq!(figures(&messages, "progress"), [0.0; 6]);
}

#[test]
fn swissarmyhammer_logs_before_it_knows_of_tokens() {
    let client = Client::open("swissarmyhammer", &["--variant", "s1", "--pace", "1ms"]);
    let mut stream = client.listen();
    assert_eq!(stream.event().unwrap(), "data: \nid: 0\nretry: 3000\n\n");
    let messages = client.messages(json!(1), "shell", json!({ "command": "cargo build" }));
    assert_eq!(messages[0].0, "data: \nid: 0/1\nretry: 3000\n\n");
    assert_eq!(messages.len(), 2);
    let params = data(&stream.event().unwrap())["params"].clone();
    let first =
        json!({ "level": "info", "logger": "shell", "data": "Shell: Executing: cargo build" });
    assert_eq!(params, first);
    assert_eq!(client.delete(), 202);
    assert_eq!(client.call(json!(2), "shell", json!({})).status(), 404);
}

#[test]
fn swissarmyhammer_repeats_itself_for_clients_whose_time_runs_out() {
    crate::support::within_tries(|| {
        let options = ["--variant", "s2", "--pace", "1ms", "--keep-alive", "20ms"];
        let client = Client::open("swissarmyhammer", &options);
        let messages = client.messages(json!(1), "review", json!({}));
        let told = figures(&messages, "progress");
        assert_eq!(told, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0]);
        assert_eq!(messages[3].1, messages[4].1);
        assert_eq!(figures(&messages, "total")[..2], [0.0, 3.0]);
    });
}

#[test]
fn mcp_devtools_streams_only_when_there_is_something_to_stream() {
    crate::support::within_tries(|| {
        let client =
            Client::open("mcp_devtools", &["--pace", "50ms", "--lines", "10", "--late", "2"]);
        assert!(client.session.as_ref().unwrap().starts_with("mcp-session-"));
        // This server looks for the token in its own place, which no client knows.
        let began = Instant::now();
        let mut answer = client.call(json!(1), "project_actions", json!({}));
        assert!(answer.is_quiet(SILENCE));
        assert_eq!(answer.header("content-type").unwrap(), "application/json");
        assert!(
            began.elapsed() > SILENCE && answer.rest().starts_with(r#"{"jsonrpc":"2.0","id":1,"#)
        );

        let arguments = json!({ "_meta": { "progressToken": "own" } });
        let messages = client.messages(json!(2), "project_actions", arguments);
        assert!(messages.iter().all(|(event, _)| event.starts_with("event: message\ndata: {")));
        assert_eq!(figures(&messages, "progress"), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(figures(&messages, "progressToken"), ["own"; 8]);
        assert_eq!(messages.len(), 9);

        let stranger = Client { session: None, ..client };
        assert_eq!(stranger.call(json!(3), "project_actions", json!({})).status(), 400);
    });
}

#[test]
fn scout_reports_on_the_get_stream_or_nowhere() {
    let client = Client::open("scout", &["--pace", "10ms"]);
    let alone = client.messages(json!(1), "run_materialization", json!({}));
    assert_eq!(alone.len(), 1);
    assert!(
        alone[0].0.starts_with("event: message\r\ndata: {\"jsonrpc\"")
            && alone[0].0.ends_with("}\r\n\r\n")
    );

    let mut stream = client.listen();
    assert_eq!(client.send("GET", "/mcp", "text/event-stream", "").status(), 409);
    assert_eq!(client.messages(json!(2), "run_materialization", json!({})).len(), 1);
    let first = data(&stream.event().unwrap());
    let params = json!({
        "progressToken": "t", "progress": 0.0, "total": 1.0, "message": "Waiting for a worker",
    });
    assert_eq!(first["params"], params);
    // The end of a stream makes its place free.
    drop(stream);
    until("a new stream is taken", || {
        client.send("GET", "/mcp", "text/event-stream", "").status() == 200
    });
    assert_eq!(client.delete(), 200);
    assert_eq!(client.call(json!(3), "run_materialization", json!({})).status(), 404);
}

#[test]
fn silent_answers_with_json_at_the_end() {
    crate::support::within_tries(|| {
        let arguments = json!({ "seconds": 0.6 });
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"slept for 600ms"}],"isError":false}}"#;
        let client = Client::open("silent", &["--json"]);
        assert_eq!(client.session, None);
        let mut call = client.call(json!(1), "sleep", arguments.clone());
        assert!(call.is_quiet(SILENCE));
        assert_eq!(call.header("content-type").unwrap(), "application/json");
        assert_eq!(call.header("content-length").unwrap(), answer.len().to_string());
        assert_eq!(call.rest(), answer);
        assert_eq!(client.send("GET", "/mcp", "text/event-stream", "").status(), 405);

        let client = Client::open("silent", &["--json", "--early-headers", "--sessions"]);
        let mut call = client.call(json!(1), "sleep", arguments);
        assert_eq!((call.status(), call.header("mcp-session-id")), (200, client.session.clone()));
        assert!(call.is_quiet(SILENCE));
        assert_eq!(call.rest(), answer);
        assert_eq!(client.delete(), 200);
        assert_eq!(client.introduce().status(), 200);
        assert_eq!(client.call(json!(1), "echo", json!({})).status(), 404);
    });
}

#[test]
fn silent_answers_with_events_in_one_piece() {
    let client = Client::open("silent", &["--sessions", "--pace", "1ms"]);
    let messages = client.messages(json!(1), "burst", json!({}));
    assert_eq!(figures(&messages, "progressToken"), ["t"]);
    assert_eq!(messages.len(), 2);
    assert!(client.listen().is_quiet(SILENCE));
}

#[test]
fn a_server_over_http_ends_with_its_stdin_or_its_time() {
    let mut server = Server::start("silent", &[]);
    drop(server.child().stdin.take());
    assert!(wait(server.child(), STUCK).unwrap().success());
    let mut server = Server::start("silent", &["--for", "0.2"]);
    assert!(wait(server.child(), STUCK).unwrap().success());
    // The server does not listen where other machines could reach it.
    let public = Command::new(example("silent")).args(["--http", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(public.status.code(), Some(2));
}
