//! The common part of the example servers: an MCP server, small enough to misbehave in.
//!
//! Every `tools/call` runs on a thread of its own and tells its [`Client`] what it has to say, over
//! stdio or HTTP: a tool does not know which. Over stdio the main thread reads one JSON-RPC message a
//! line. When stdin ends the calls in flight get [`GRACE`] to finish, and a stdout nobody reads ends
//! the process at once: a server never outlives its parent for long. Over HTTP ([`http`]) stdin is
//! read for its end alone.
#![allow(dead_code, reason = "no example needs all of it")]

mod client;
mod http;
pub(crate) mod library;
mod text;

use std::collections::HashMap;
use std::fmt::Display;
use std::io::BufRead;
use std::net::SocketAddr;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) use client::{Client, Said};
pub(crate) use library::Library;
pub(crate) use text::*;

/// How long calls may go on when there is nobody left to ask for more.
const GRACE: Duration = Duration::from_secs(10);

/// How soon a waiting tool notices that its call was cancelled.
const GLANCE: Duration = Duration::from_millis(10);

/// The protocol versions an official SDK of the day agrees to, newest first.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The client has taken its request back: there is nothing left to say.
pub(crate) struct Cancelled;

/// A tool as `tools/list` describes it.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// The arguments, all optional: name, JSON type, description.
    pub(crate) arguments: &'static [(&'static str, &'static str, &'static str)],
}

/// Where a server listens. Nothing of this: stdin.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Listen {
    /// Speak HTTP on this address of the loopback interface and not stdio; port 0 is any that is
    /// free. The URL goes to stderr; the end of stdin is the end of the server
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    pub(crate) http: Option<SocketAddr>,
    /// With --http: end after so long, and do not wait for the end of stdin
    #[arg(long = "for", value_name = "SECONDS", requires = "http")]
    pub(crate) lifetime: Option<f32>,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "not like 127.0.0.1:8080".to_owned())?;
    if address.ip().is_loopback() { Ok(address) } else { Err("not of this machine".to_owned()) }
}

/// One call of a tool.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) id: Value,
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// The client's `_meta.progressToken`, if it wants progress.
    pub(crate) token: Option<Value>,
    pub(crate) client: Client,
    cancelled: Arc<AtomicBool>,
}

/// The differences between servers. The defaults are those of an official SDK.
pub(crate) trait Server: Send + Sync + 'static {
    /// Name and version, for `serverInfo`.
    fn identity(&self) -> (&'static str, &'static str);

    /// Where it listens.
    fn listen(&self) -> Listen;

    /// The library with which it speaks HTTP.
    fn library(&self) -> Library;

    /// The tools on offer.
    fn tools(&self) -> &'static [Tool];

    /// Runs a tool and says everything the client is to hear of it, the answer included.
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
    fn initialized(&self, _: &Client) {}

    /// Hears a line that is not JSON.
    fn garbled(&self, _: &Client) {}

    /// Whether it has ever heard of a method.
    fn knows(&self, _method: &str) -> bool {
        true
    }

    /// Hears a method that it does not know, from a client that waits for an answer if it has an id.
    fn puzzled(&self, client: &Client, id: Option<&Value>, method: &str) {
        if let Some(id) = id {
            client.refuse(id, -32601, &format!("Method not implemented: {method}"));
        }
    }

    /// The JSON at another path than that of MCP; the body is null if there is none.
    fn elsewhere(&self, _method: &str, _path: &str, _body: &Value) -> Option<String> {
        None
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

/// The result of `tools/list`, as JSON.
pub(crate) fn described(tools: &[Tool]) -> String {
    let tools: Vec<_> = tools.iter().map(Tool::describe).collect();
    json!({ "tools": tools }).to_string()
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

    /// Says something that belongs to this call.
    pub(crate) fn notify(&self, message: impl Display) {
        self.client.say(vec![Said::notification(message)]);
    }

    /// Says something that belongs to no call, or of which the library has forgotten to which.
    pub(crate) fn aside(&self, message: impl Display) {
        self.client.say_aside(Said::notification(message));
    }

    /// Answers with a single text.
    pub(crate) fn answer(&self, text: &str) {
        self.finish(text_result(text, false));
    }

    /// Answers with a result, given as JSON.
    pub(crate) fn finish(&self, result: impl Display) {
        self.client.answer(&self.id, result);
    }

    /// Answers that there is no such tool, as the SDKs do.
    pub(crate) fn unknown_tool(&self) {
        self.client.refuse(&self.id, -32602, &format!("Unknown tool: {}", self.tool));
    }
}

/// The calls in flight of one client, by the JSON of their ids.
#[derive(Default)]
struct Calls {
    active: Mutex<HashMap<String, Arc<AtomicBool>>>,
    finished: Condvar,
}

impl Calls {
    fn active(&self) -> MutexGuard<'_, HashMap<String, Arc<AtomicBool>>> {
        self.active.lock().expect("nothing panics while it is held")
    }

    fn start(
        self: &Arc<Self>,
        server: &Arc<impl Server>,
        client: &Client,
        id: &Value,
        params: &Value,
    ) -> JoinHandle<()> {
        let call = Call {
            id: id.clone(),
            tool: params["name"].as_str().unwrap_or_default().to_owned(),
            arguments: params["arguments"].clone(),
            token: params["_meta"].get("progressToken").cloned(),
            client: client.clone(),
            cancelled: Arc::default(),
        };
        self.active().insert(id.to_string(), Arc::clone(&call.cancelled));
        let (calls, server) = (Arc::clone(self), Arc::clone(server));
        thread::spawn(move || {
            // Cancelled or answered, the call is over.
            let _ = server.call(&call);
            calls.active().remove(&call.id.to_string());
            calls.finished.notify_all();
        })
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

/// Serves until stdin ends or the time is up.
pub(crate) fn serve(server: impl Server) {
    let server = Arc::new(server);
    if server.listen().http.is_some() {
        if let Err(error) = http::serve(&server) {
            eprintln!("{error}");
            process::exit(1);
        }
        return;
    }
    let calls = Arc::new(Calls::default());
    for line in std::io::stdin().lock().split(b'\n').map_while(Result::ok) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(message) => drop(dispatch(&server, &calls, &Client::Stdio, &message)),
            Err(_) => server.garbled(&Client::Stdio),
        }
    }
    calls.finish();
}

/// Does what a message asks for; a call of a tool goes on behind it.
fn dispatch(
    server: &Arc<impl Server>,
    calls: &Arc<Calls>,
    client: &Client,
    message: &Value,
) -> Option<JoinHandle<()>> {
    let method = message["method"].as_str()?;
    let params = &message["params"];
    match (method, message.get("id")) {
        (_, id) if !server.knows(method) => server.puzzled(client, id, method),
        ("initialize", Some(id)) => initialize(server.as_ref(), client, id, params),
        ("tools/list", Some(id)) => client.answer(id, described(server.tools())),
        ("tools/call", Some(id)) => return Some(calls.start(server, client, id, params)),
        ("ping", Some(id)) => client.answer(id, "{}"),
        ("notifications/initialized", None) => server.initialized(client),
        ("notifications/cancelled", None) => calls.cancel(&params["requestId"]),
        (_, id) => server.puzzled(client, id, method),
    }
    None
}

fn initialize(server: &impl Server, client: &Client, id: &Value, params: &Value) {
    client.answer(id, introduction(server, params["protocolVersion"].as_str()));
}

/// The result of `initialize`, as JSON.
pub(crate) fn introduction(server: &impl Server, asked: Option<&str>) -> String {
    let version = quoted(&server.protocol_version(asked));
    let capabilities = server.capabilities();
    let (name, release) = server.identity();
    let info = format!(r#"{{"name":{},"version":{}}}"#, quoted(name), quoted(release));
    format!(r#"{{"protocolVersion":{version},"capabilities":{capabilities},"serverInfo":{info}}}"#)
}
