//! A modern face for an old server: requests of 2026-07-28, which have no session, before a child that knows
//! revisions up to 2025-11-25 only.
//!
//! ```text
//!  client ──request──> requests ──without the members of 2026-07-28──> child
//!         <──answer───  answers  <──answer, progress──────────────────
//!                      questions <──a request of the server: the client answers with its next request
//!                      listeners <──list_changed
//! ```
//!
//! The first request begins the child's session with `initialize`. A first request that is `initialize` itself
//! comes from an older client: then everything passes.

mod answers;
mod listeners;
mod questions;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::progress::Payload;
use crate::protocol::jsonrpc::{Key, Kind, METHOD_NOT_FOUND, Message, error_answer, own_error};
use crate::protocol::{json, mcp};
use crate::relay::legs::FromServer;

/// Requests that wait until the child has answered `initialize`. A further request gets an error.
const WAITING_MAX: usize = 256;

/// Requests whose answers are translated, at one time. A further request gets an error.
const OPEN_MAX: usize = 4096;

/// The longest time that the child's request waits for the client's next request.
const QUESTION_TTL: Duration = Duration::from_secs(10 * 60);

/// The id of Milepost's own `initialize`.
const OWN_ID: &str = "milepost-initialize";

/// The newest revision that old servers know.
const NEWEST: &str = "2025-11-25";

/// Methods of earlier revisions that 2026-07-28 has no more.
const REMOVED: [&str; 5] =
    [mcp::INITIALIZE, mcp::PING, mcp::SET_LEVEL, "resources/subscribe", "resources/unsubscribe"];

/// The state of the child's session.
enum FacePhase {
    /// No request has come.
    Fresh,
    /// The clients are older: everything passes.
    Off,
    /// The child has been sent `initialize`.
    Greeting,
    /// The child's answer to `initialize`.
    Ready(Value),
    /// The child has refused `initialize`, for this reason.
    Refused(String),
}

/// A request that the child has not answered.
struct FaceRequest {
    method: String,
    /// The level of the log messages that the client wants.
    wants_logs: Option<String>,
    /// The token by which the child reports on it.
    token: Option<Key>,
    /// The id by which the child knows the request, if it continues an earlier one.
    child_id: Option<Key>,
}

/// A request of the server, which its client answers with its next request.
struct Question {
    /// The id by which the server knows its own request.
    server_id: Bytes,
    /// The id by which the server knows the request of the client that waits.
    child_id: Key,
    /// The request that waits.
    waits: FaceRequest,
    asked: Value,
    until: Instant,
}

/// A stream that listens.
struct Listener {
    key: Key,
    /// The id as JSON.
    id: Value,
    methods: Vec<&'static str>,
}

/// The modern face of one child.
pub(crate) struct ModernFace {
    phase: FacePhase,
    waiting: VecDeque<Message>,
    open: BTreeMap<Key, FaceRequest>,
    listeners: Vec<Listener>,
    questions: BTreeMap<String, Question>,
    /// The tokens that the child knows of requests that others continue, with the tokens of these.
    renamed_tokens: BTreeMap<Key, Key>,
    /// The level that the child was asked for last.
    log_level: Option<String>,
    to_server: VecDeque<Bytes>,
    to_client: VecDeque<Message>,
}

impl ModernFace {
    /// A face whose clients have not begun.
    pub(crate) fn new() -> Self {
        Self {
            phase: FacePhase::Fresh,
            waiting: VecDeque::new(),
            open: BTreeMap::new(),
            listeners: Vec::new(),
            questions: BTreeMap::new(),
            renamed_tokens: BTreeMap::new(),
            log_level: None,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    /// The next message for the child.
    pub(crate) fn next_to_server(&mut self) -> Option<Payload> {
        self.to_server.pop_front().map(Payload::own)
    }

    /// The next message for a client, in the child's place.
    pub(crate) fn next_own(&mut self) -> Option<Message> {
        self.to_client.pop_front()
    }

    /// Whether the clients are older than 2026-07-28, or have not begun.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self.phase, FacePhase::Off | FacePhase::Fresh)
    }

    /// Takes a message for the child. False if the message goes to the child as it is.
    pub(crate) fn take(&mut self, payload: &Payload) -> bool {
        if matches!(self.phase, FacePhase::Off) {
            return false;
        }
        let sent = Message::parse(payload.to_bytes());
        match (&self.phase, sent.kind()) {
            (FacePhase::Fresh, Kind::Request) => {
                if !is_modern(&sent) {
                    self.phase = FacePhase::Off;
                    return false;
                }
                self.greet(&sent);
                self.wait(sent);
            }
            (FacePhase::Fresh, _) => return false,
            (FacePhase::Greeting, Kind::Request) => self.wait(sent),
            (FacePhase::Refused(why), Kind::Request) => {
                let why = why.clone();
                self.refuse(&sent, &why);
            }
            (_, Kind::Request) => self.request(&sent),
            (_, Kind::Notification) => self.client_notification(&sent),
            // Old servers' requests are answered by the next request of a client.
            _ => {}
        }
        true
    }

    /// Begins the child's session with the capabilities of the first request.
    fn greet(&mut self, first: &Message) {
        let params = first.params().unwrap_or_default();
        let meta = json::member(&params, "_meta").unwrap_or_default();
        let value = |name: &str| {
            json::member(&meta, name).and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        };
        let own = || json!({"name": "milepost", "version": env!("CARGO_PKG_VERSION")});
        let text = json!({
            "jsonrpc": "2.0", "id": OWN_ID, "method": mcp::INITIALIZE,
            "params": {
                "protocolVersion": NEWEST,
                "capabilities": value(mcp::META_CAPABILITIES).unwrap_or_else(|| json!({})),
                "clientInfo": value(mcp::META_CLIENT).unwrap_or_else(own),
            },
        });
        self.to_server.push_back(Bytes::from(text.to_string()));
        self.phase = FacePhase::Greeting;
    }

    fn wait(&mut self, sent: Message) {
        if self.waiting.len() >= WAITING_MAX {
            return self.refuse(&sent, "too many requests wait for the server to start");
        }
        self.waiting.push_back(sent);
    }

    /// The child has answered `initialize`.
    fn greeted(&mut self, answer: &Message) {
        let result = answer.result().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        self.phase = match result {
            Some(result) => {
                let ready = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
                self.to_server.push_back(Bytes::from_static(ready));
                FacePhase::Ready(result)
            }
            None => {
                let said = answer.error().and_then(|error| json::member(&error, "message"));
                let said = said.as_ref().and_then(|said| json::decode_str(said));
                let said = said.unwrap_or_default();
                FacePhase::Refused(format!("the server has refused to begin a session: {said}"))
            }
        };
        for sent in std::mem::take(&mut self.waiting) {
            match &self.phase {
                FacePhase::Refused(why) => {
                    let why = why.clone();
                    self.refuse(&sent, &why);
                }
                _ => self.request(&sent),
            }
        }
    }

    /// Examines a message of the child; `None` if no client gets the message as it came.
    pub(crate) fn intercept(&mut self, received: FromServer) -> Option<FromServer> {
        if self.is_off() {
            return Some(received);
        }
        let FromServer::Message(origin, message) = received else { return Some(received) };
        self.forget_old_questions(Instant::now());
        let message = match message.kind() {
            Kind::Response if message.id_key() == Some(own_key()) => {
                self.greeted(&message);
                None
            }
            Kind::Response => self.answer(message),
            Kind::Request => {
                self.question(&message);
                None
            }
            Kind::Notification => self.server_notification(message),
            _ => Some(message),
        };
        message.map(|message| FromServer::Message(origin, message))
    }

    fn refuse(&mut self, sent: &Message, why: &str) {
        if let Some(id) = sent.id() {
            self.to_client.push_back(Message::parse(own_error(&id, why, None)));
        }
    }

    fn refuse_with(&mut self, sent: &Message, code: i32, why: &str) {
        if let Some(id) = sent.id() {
            self.to_client.push_back(Message::parse(error_answer(&id, code, why, None)));
        }
    }

    fn refuse_method(&mut self, sent: &Message, method: &str) {
        let why = format!("2026-07-28 has no method {method:?}");
        self.refuse_with(sent, METHOD_NOT_FOUND, &why);
    }

    fn tell(&mut self, text: &Value) {
        self.to_client.push_back(Message::parse(Bytes::from(text.to_string())));
    }

    fn send(&mut self, text: &Value) {
        self.to_server.push_back(Bytes::from(text.to_string()));
    }
}

fn own_key() -> Key {
    Key::Text(Bytes::from_static(OWN_ID.as_bytes()))
}

/// Whether a request says that it is one of 2026-07-28.
fn is_modern(sent: &Message) -> bool {
    let params = sent.params().unwrap_or_default();
    let meta = json::member(&params, "_meta").unwrap_or_default();
    json::member(&meta, mcp::META_REVISION).is_some()
}

#[cfg(test)]
mod tests;
