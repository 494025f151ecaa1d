//! A session of the reference server: answers requests, plays scripts, and notes the messages that arrive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use litemap::LiteMap;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::script::{self, ReferenceStep, ScriptLine};
use super::seen::SeenNotes;
use crate::gateway::mcp_server::ReplyStream;
use crate::protocol::jsonrpc::METHOD_NOT_FOUND;
use crate::protocol::mcp::{
    CANCELLED, DISCOVER, INITIALIZE, META_REVISION, META_SERVER, Revision, TOOLS_CALL, TOOLS_LIST,
};

/// The name of the server.
pub const NAME: &str = "milepost-reference";

/// The tools with their descriptions.
pub const TOOLS: [(&str, &str); 9] = [
    ("correct", "Reports four steps, then answers"),
    ("late", "Reports one step more behind its answer"),
    ("glued", "Writes its last step and its answer in one piece"),
    ("null", "Reports null in place of numbers and texts"),
    ("invented", "Reports for a token that nobody has given"),
    ("falling", "Reports values that repeat and fall"),
    ("silent", "Says nothing, then answers"),
    ("flooded", "Reports two thousand steps at once"),
    ("play", "Plays the script in its arguments"),
];

/// Maximum number of simultaneous calls of a session. Further calls get an error.
const CALLS_MAX: usize = 1000;

/// The error code of 2026-07-28 for an unsupported revision.
const UNSUPPORTED_REVISION: i32 = -32022;

/// Deadline for a client to answer a ping.
const PING_WAIT: Duration = Duration::from_secs(5);

/// The settings of the server.
#[derive(Debug, Clone)]
pub struct ReferenceTerms {
    /// The notes about the messages that arrive.
    pub notes: Arc<SeenNotes>,
    /// How long the tool `silent` takes.
    pub silence: Duration,
    /// Whether the server also supports 2026-07-28, which has no handshake.
    pub is_modern: bool,
}

/// One client.
#[derive(Debug)]
pub(super) struct ReferenceSession {
    terms: ReferenceTerms,
    /// The running calls by the text of their ids; the value tells of a cancellation.
    calls: Mutex<LiteMap<String, watch::Sender<bool>>>,
    /// The pings without an answer.
    pings: Mutex<LiteMap<String, oneshot::Sender<()>>>,
    next_ping: AtomicU64,
}

/// Ignore poisoning: no code panics while it has a lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReferenceSession {
    pub(super) fn new(terms: ReferenceTerms) -> Arc<Self> {
        let (calls, pings) = (Mutex::default(), Mutex::default());
        Arc::new(Self { terms, calls, pings, next_ping: AtomicU64::new(1) })
    }

    /// Handles a message. If it is a request, returns the future that answers it on `stream`.
    pub(super) fn receive(
        self: &Arc<Self>,
        message: Value,
        stream: ReplyStream,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if message["method"].is_string() && message.get("id").is_some() {
            let session = Arc::clone(self);
            return Some(async move { session.answer(&message, &stream).await });
        }
        self.take(&message);
        None
    }

    /// Handles a message that is not a request.
    fn take(&self, message: &Value) {
        if message["method"] == CANCELLED {
            let id = message["params"]["requestId"].to_string();
            if let Some(call) = locked(&self.calls).get(&id) {
                call.send_replace(true);
            }
        } else if message.get("method").is_none()
            && let Some(waiting) = locked(&self.pings).remove(&message["id"].to_string())
        {
            let _ = waiting.send(());
        }
    }

    /// Answers a request on its stream.
    async fn answer(&self, request: &Value, stream: &ReplyStream) {
        let id = &request["id"];
        let params = &request["params"];
        let date = params["_meta"].get(META_REVISION).filter(|_| self.terms.is_modern);
        let is_modern = date.is_some();
        let result = match request["method"].as_str().unwrap_or_default() {
            _ if date.is_some_and(|date| date != Revision::V2026_07_28.date()) => {
                Err((UNSUPPORTED_REVISION, format!("this server does not speak {date:?}")))
            }
            DISCOVER if self.terms.is_modern => Ok(described()),
            INITIALIZE => Ok(greeting(params)),
            "ping" if !is_modern => Ok(json!({})),
            TOOLS_LIST => Ok(if is_modern { kept(tools()) } else { tools() }),
            TOOLS_CALL => match self.script(params) {
                Ok(steps) => return self.call(id, params, steps, stream).await,
                Err(why) => Err((-32602, why)),
            },
            other => Err((METHOD_NOT_FOUND, format!("unknown method {other}"))),
        };
        let answer = match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err((code, message)) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
            }
        };
        stream.say([answer.to_string()]).await;
    }

    fn script(&self, params: &Value) -> Result<Vec<ReferenceStep>, String> {
        if locked(&self.calls).len() >= CALLS_MAX {
            return Err("too many calls".to_owned());
        }
        match params["name"].as_str().unwrap_or_default() {
            "play" => script::of_arguments(&params["arguments"]),
            tool => script::of_tool(tool, self.terms.silence)
                .ok_or_else(|| format!("there is no tool {tool:?}")),
        }
    }

    async fn call(
        &self,
        id: &Value,
        params: &Value,
        steps: Vec<ReferenceStep>,
        stream: &ReplyStream,
    ) {
        let key = key(params);
        self.terms.notes.call(key, params["_meta"].get("progressToken"));
        let (tell, mut cancelled) = watch::channel(false);
        locked(&self.calls).insert(id.to_string(), tell);
        let played = tokio::select! {
            () = self.play(id, params, steps, stream) => true,
            _ = cancelled.wait_for(|is| *is) => false,
            // In 2026-07-28 a client over HTTP cancels by disconnecting. In earlier revisions it may return for the
            // rest.
            () = stream.left(), if params["_meta"].get(META_REVISION).is_some() => false,
        };
        locked(&self.calls).remove(&id.to_string());
        if !played {
            self.terms.notes.cancelled(key);
        }
    }

    async fn play(
        &self,
        id: &Value,
        params: &Value,
        steps: Vec<ReferenceStep>,
        stream: &ReplyStream,
    ) {
        let (key, token) = (key(params), params["_meta"].get("progressToken"));
        for step in steps {
            sleep(step.wait).await;
            let mut messages = Vec::new();
            for line in &step.lines {
                match line {
                    ScriptLine::Ping => self.ping(key, stream).await,
                    ScriptLine::HangUp => stream.hang_up().await,
                    ScriptLine::Answer => messages.push(answer(id, params)),
                    line => messages.extend(line.progress(token)),
                }
            }
            if !messages.is_empty() {
                stream.say(messages).await;
            }
        }
    }

    /// Sends a ping, and waits for the client's answer.
    async fn ping(&self, key: &Value, stream: &ReplyStream) {
        let number = self.next_ping.fetch_add(1, Ordering::Relaxed);
        let id = json!(format!("ping-{number}"));
        let (tell, told) = oneshot::channel();
        locked(&self.pings).insert(id.to_string(), tell);
        let ping = json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
        stream.say([ping.to_string()]).await;
        if let Ok(Ok(())) = timeout(PING_WAIT, told).await {
            self.terms.notes.answered(key);
        }
        locked(&self.pings).remove(&id.to_string());
    }
}

/// Returns the answer to a call. It has the call's key and token, so that a client cannot confuse two answers.
fn answer(id: &Value, params: &Value) -> String {
    let (key, meta) = (key(params), &params["_meta"]);
    let token = meta.get("progressToken");
    let token = token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
    let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
    let text = format!("{key}: done, {token}");
    let mut result = json!({ "content": [{ "type": "text", "text": text }] });
    if meta.get(META_REVISION).is_some() {
        result = complete(result);
    }
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

/// Returns the key of a call, which notes and answers have.
fn key(params: &Value) -> &Value {
    match &params["arguments"]["key"] {
        Value::Null => &params["name"],
        key => key,
    }
}

/// Adds the members that 2026-07-28 requires in a result.
fn complete(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result["_meta"] = json!({ (META_SERVER): us() });
    result
}

/// Adds the members with which 2026-07-28 lets clients cache a result.
fn kept(mut result: Value) -> Value {
    result["ttlMs"] = json!(0);
    result["cacheScope"] = json!("private");
    complete(result)
}

/// Returns the answer to `server/discover`.
fn described() -> Value {
    let versions = [Revision::V2026_07_28.date()];
    kept(json!({ "supportedVersions": versions, "capabilities": { "tools": {} } }))
}

fn us() -> Value {
    json!({ "name": NAME, "version": env!("CARGO_PKG_VERSION") })
}

fn greeting(params: &Value) -> Value {
    let newest = Revision::V2025_11_25.date();
    let asked = params["protocolVersion"].as_str().unwrap_or_default();
    let known = |date: &str| Revision::ALL.iter().any(|(_, own)| *own == date) && *date <= *newest;
    json!({
        "protocolVersion": if known(asked) { asked } else { newest },
        "capabilities": { "tools": {} },
        "serverInfo": us(),
    })
}

fn tools() -> Value {
    let one = |(name, description): (&str, &str)| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": { "type": "object" },
        })
    };
    json!({ "tools": TOOLS.map(one) })
}
