//! What the example servers share: a blocking MCP server over stdio, small enough to misbehave in.
//!
//! The main thread reads stdin, one JSON-RPC message a line; every `tools/call` runs on a thread of
//! its own; whatever is written reaches stdout whole, under one lock. When stdin ends the calls in
//! flight get [`GRACE`] to finish, and a stdout nobody reads ends the process at once: a server
//! never outlives its parent for long.
//!
//! JSON is written in the order of its fields, as the real systems do, and not sorted.
#![allow(dead_code, reason = "no example needs all of it")]

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, Write};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long calls may go on when there is nobody left to ask for more.
const GRACE: Duration = Duration::from_secs(10);

/// How soon a waiting tool notices that its call was cancelled.
const GLANCE: Duration = Duration::from_millis(10);

/// The protocol versions an official SDK of the day agrees to, newest first.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The client has taken its request back: there is nothing left to say.
pub(crate) struct Cancelled;

/// A JSON object that keeps the order of its keys.
pub(crate) type Fields = Vec<(&'static str, Value)>;

/// What `tools/list` tells of a tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// The arguments, all optional: name, JSON type, description.
    pub(crate) arguments: &'static [(&'static str, &'static str, &'static str)],
}

/// One call of a tool.
pub(crate) struct Call {
    pub(crate) id: Value,
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// The client's `_meta.progressToken`, if it wants progress.
    pub(crate) token: Option<Value>,
    cancelled: Arc<AtomicBool>,
}

/// What makes one server differ from the next. The defaults are those of an official SDK.
pub(crate) trait Server: Send + Sync + 'static {
    /// Name and version, for `serverInfo`.
    fn identity(&self) -> (&'static str, &'static str);

    /// The tools on offer.
    fn tools(&self) -> &'static [Tool];

    /// Runs a tool and writes everything the client is to hear of it, the answer included.
    fn call(&self, call: &Call) -> Result<(), Cancelled>;

    /// The answer to the version the client asked for.
    fn protocol_version(&self, asked: Option<&str>) -> String {
        asked.filter(|asked| VERSIONS.contains(asked)).unwrap_or(VERSIONS[0]).to_owned()
    }

    /// The capabilities, as JSON.
    fn capabilities(&self) -> &'static str {
        r#"{"tools":{}}"#
    }

    /// Hears `notifications/initialized`.
    fn initialized(&self) {}

    /// Hears a line that is not JSON.
    fn garbled(&self) {}

    /// Whether `ping` is a method it knows.
    fn answers_ping(&self) -> bool {
        true
    }
}

impl Tool {
    fn describe(&self) -> Value {
        let property = |&(name, kind, about): &(&str, &str, &str)| {
            (name.to_owned(), json!({ "type": kind, "description": about }))
        };
        let properties: serde_json::Map<_, _> = self.arguments.iter().map(property).collect();
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": { "type": "object", "properties": properties },
        })
    }
}

impl Call {
    /// Waits, unless the call is cancelled first.
    pub(crate) fn wait(&self, pause: Duration) -> Result<(), Cancelled> {
        let until = Instant::now() + pause;
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(Cancelled);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(GLANCE));
        }
    }

    /// An argument that is a string.
    pub(crate) fn text(&self, argument: &str) -> Option<&str> {
        self.arguments.get(argument)?.as_str()
    }

    /// Answers with a single text.
    pub(crate) fn answer(&self, text: &str) {
        answer(&self.id, text_result(text, false));
    }

    /// Answers that there is no such tool, as the SDKs do.
    pub(crate) fn unknown_tool(&self) {
        refuse(&self.id, -32602, &format!("Unknown tool: {}", self.tool));
    }
}

/// The calls in flight, by the JSON of their ids.
#[derive(Default)]
struct Calls {
    active: Mutex<HashMap<String, Arc<AtomicBool>>>,
    finished: Condvar,
}

impl Calls {
    fn active(&self) -> MutexGuard<'_, HashMap<String, Arc<AtomicBool>>> {
        self.active.lock().expect("nothing panics while it is held")
    }

    fn start(self: &Arc<Self>, server: &Arc<impl Server>, id: &Value, params: &Value) {
        let call = Call {
            id: id.clone(),
            tool: params["name"].as_str().unwrap_or_default().to_owned(),
            arguments: params["arguments"].clone(),
            token: params["_meta"].get("progressToken").cloned(),
            cancelled: Arc::default(),
        };
        self.active().insert(id.to_string(), Arc::clone(&call.cancelled));
        let (calls, server) = (Arc::clone(self), Arc::clone(server));
        thread::spawn(move || {
            // Cancelled or answered, the call is over.
            let _ = server.call(&call);
            calls.active().remove(&call.id.to_string());
            calls.finished.notify_all();
        });
    }

    fn cancel(&self, id: &Value) {
        if let Some(cancelled) = self.active().get(&id.to_string()) {
            cancelled.store(true, Ordering::Relaxed);
        }
    }

    fn finish(&self) {
        let busy = |active: &mut HashMap<_, _>| !active.is_empty();
        drop(self.finished.wait_timeout_while(self.active(), GRACE, busy));
    }
}

/// Serves stdin until it ends.
pub(crate) fn serve(server: impl Server) {
    let server = Arc::new(server);
    let calls = Arc::new(Calls::default());
    for line in std::io::stdin().lock().split(b'\n').map_while(Result::ok) {
        if !line.trim_ascii().is_empty() {
            dispatch(&server, &calls, &line);
        }
    }
    calls.finish();
}

fn dispatch(server: &Arc<impl Server>, calls: &Arc<Calls>, line: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else { return server.garbled() };
    let Some(method) = message["method"].as_str() else { return };
    let params = &message["params"];
    match (method, message.get("id")) {
        ("initialize", Some(id)) => initialize(server.as_ref(), id, params),
        ("tools/list", Some(id)) => {
            let tools: Vec<_> = server.tools().iter().map(Tool::describe).collect();
            answer(id, json!({ "tools": tools }));
        }
        ("tools/call", Some(id)) => calls.start(server, id, params),
        ("ping", Some(id)) if server.answers_ping() => answer(id, "{}"),
        (_, Some(id)) => refuse(id, -32601, &format!("Method not implemented: {method}")),
        ("notifications/initialized", None) => server.initialized(),
        ("notifications/cancelled", None) => calls.cancel(&params["requestId"]),
        (_, None) => {}
    }
}

fn initialize(server: &impl Server, id: &Value, params: &Value) {
    let version = quoted(&server.protocol_version(params["protocolVersion"].as_str()));
    let capabilities = server.capabilities();
    let (name, release) = server.identity();
    let info = format!(r#"{{"name":{},"version":{}}}"#, quoted(name), quoted(release));
    answer(
        id,
        format!(
            r#"{{"protocolVersion":{version},"capabilities":{capabilities},"serverInfo":{info}}}"#
        ),
    );
}

/// Writes a line to stdout.
pub(crate) fn say(line: impl Display) {
    say_raw(&format!("{line}\n"));
}

/// Writes text to stdout in one piece. If nobody reads it any more, the process has no purpose.
pub(crate) fn say_raw(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        process::exit(0);
    }
}

/// Answers a request with a result, given as JSON.
pub(crate) fn answer(id: &Value, result: impl Display) {
    say(format_args!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
}

/// Answers a request with an error.
pub(crate) fn refuse(id: &Value, code: i32, message: &str) {
    let message = quoted(message);
    say(format_args!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#
    ));
}

/// A `CallToolResult` of a single text, as JSON.
pub(crate) fn text_result(text: &str, is_error: bool) -> String {
    let text = quoted(text);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":{is_error}}}"#)
}

/// A string as JSON.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// An object as JSON without spaces: `{"a":1,"b":[2]}`.
pub(crate) fn compact(fields: &[(&str, Value)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// An object as `JSON.stringify(…, null, 2)` writes it.
pub(crate) fn pretty(fields: &[(&str, Value)]) -> String {
    let field = |(key, value): &(&str, Value)| {
        // A line feed inside a string is escaped, so the ones seen here are all layout.
        format!("  \"{key}\": {}", format!("{value:#}").replace('\n', "\n  "))
    };
    let fields: Vec<_> = fields.iter().map(field).collect();
    format!("{{\n{}\n}}", fields.join(",\n"))
}

/// A number nobody can foresee, to invent tokens from.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A random UUID.
pub(crate) fn uuid() -> String {
    let (high, low) = (random(), random());
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0x0fff);
    let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}

/// A random ULID: 26 characters of Crockford's alphabet.
pub(crate) fn ulid() -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let bits = u128::from(random()) << 64 | u128::from(random());
    (0..26).rev().map(|digit| char::from(ALPHABET[(bits >> (5 * digit) & 31) as usize])).collect()
}

/// Reads `150ms`, `2.5s`, `1m` or `0`, as the command lines of the examples have it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "" if number == "0" => 0.0,
        _ => return Err("a duration is a number and ms, s or m, such as 150ms".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|error| error.to_string())
}

/// `13028` as `13,028`.
pub(crate) fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
