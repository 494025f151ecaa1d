//! A modern face for an old server: translates requests of 2026-07-28, which have no session, for a server that
//! supports only revisions up to 2025-11-25.
//!
//! ```text
//!  client ──request──> requests ──without the members of 2026-07-28──> server
//!         <──answer───  answers  <──answer, progress──────────────────
//!                      questions <──a request of the server: the client answers with its next request
//!                      listeners <──list_changed, updated
//! ```
//!
//! The first request makes Milepost begin the server's session with `initialize`. If the first request is itself
//! `initialize`, the client is older, and everything is forwarded unchanged.

mod answers;
mod begin;
pub(crate) mod leg;
mod listeners;
mod questions;
mod request_state;
mod requests;
mod tasks;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use litemap::LiteMap;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::listeners::Listener;
use self::questions::{Question, Undecided};
use self::request_state::{QuestionNumber, StateSeal};
use self::tasks::{FaceEnd, FaceTask};
use crate::progress::{Origin, Policy, StreamId, TaskNews, WorkStore};
use crate::protocol::jsonrpc::{Key, Kind, METHOD_NOT_FOUND, Message, error_answer, own_error};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};
use crate::relay::legs::{ClientHeaders, FromServer};
use crate::transport::byte_budget::ByteRoom;

/// Maximum number of open requests whose answers are translated. A further request gets an error.
const OPEN_MAX: usize = 4096;

/// The beginning of the ids of requests that Milepost itself sends.
const OWN_ID: &str = "milepost-";

/// The error code for an unsupported revision (26:basic §Error Codes).
const UNSUPPORTED_REVISION: i32 = -32022;

/// Methods of earlier revisions that 2026-07-28 has removed.
const REMOVED: [&str; 5] =
    [mcp::INITIALIZE, mcp::PING, mcp::SET_LEVEL, "resources/subscribe", "resources/unsubscribe"];

/// The state of the server's session.
enum FacePhase {
    /// No request has arrived.
    Fresh,
    /// The clients are older, so everything is forwarded unchanged.
    Off,
    /// `initialize` was sent to the server.
    Greeting,
    /// The server has answered `initialize` with this result.
    Ready(Value),
}

/// A request that the server has not answered.
struct FaceRequest {
    method: String,
    tool: Option<String>,
    came: Instant,
    /// When the call becomes a task, if it is still open then.
    task_at: Option<Instant>,
    /// The lowest level of log messages that the client wants.
    wants_logs: Option<String>,
    /// The token with which the server reports progress on the request.
    token: Option<Key>,
    /// The id by which the server knows the request, if it continues an earlier request.
    server_id: Option<Key>,
    /// The server's stream for messages about the request, if there is a separate one.
    stream: Option<StreamId>,
    headers: ClientHeaders,
    /// The capabilities that the client declares in the request.
    capabilities: Value,
    /// A digest of the parameters, if the client can be asked a question.
    digest: Option<[u8; 32]>,
}

/// A message for the server.
struct ToServer {
    message: Message,
    /// The id of the client's request, if the message is one.
    request: Option<Key>,
    headers: ClientHeaders,
}

/// The modern face of one server.
pub struct ModernFace {
    policy: Arc<Policy>,
    phase: FacePhase,
    /// Requests that wait until the server has answered `initialize`.
    waiting: VecDeque<(Message, ClientHeaders)>,
    /// Deadline for the server's answer to `initialize`.
    waits_until: Option<Instant>,
    open: BTreeMap<Key, FaceRequest>,
    listeners: Vec<Listener>,
    questions: LiteMap<QuestionNumber, Question>,
    /// Seals the states of questions; made with the first question.
    states: Option<StateSeal>,
    undecided: VecDeque<Undecided>,
    tasks: WorkStore<FaceTask, FaceEnd>,
    /// Limits the memory for the answers of tasks, which is shared with all that is kept for clients.
    kept: Option<ByteRoom>,
    /// Events of tasks.
    news: VecDeque<TaskNews>,
    /// The tokens and ids of earlier requests that the server knows, with those of the requests that continue them.
    renamed_tokens: LiteMap<Key, Key>,
    /// The level that the server was asked for last.
    log_level: Option<String>,
    /// The number of names given so far, for the next name.
    count: u64,
    to_server: VecDeque<ToServer>,
    to_client: VecDeque<FromServer>,
}

impl ModernFace {
    /// Returns the face of a server before its clients begin; `None` if the settings do not enable it.
    pub fn of(policy: &Arc<Policy>) -> Option<Self> {
        policy.modern.then(|| Self {
            policy: Arc::clone(policy),
            phase: FacePhase::Fresh,
            waiting: VecDeque::new(),
            waits_until: None,
            open: BTreeMap::new(),
            listeners: Vec::new(),
            questions: LiteMap::new(),
            states: None,
            undecided: VecDeque::new(),
            tasks: WorkStore::default(),
            kept: None,
            news: VecDeque::new(),
            renamed_tokens: LiteMap::new(),
            log_level: None,
            count: 0,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        })
    }

    /// Returns the next message for the server.
    fn next_to_server(&mut self) -> Option<ToServer> {
        self.to_server.pop_front()
    }

    /// Returns the next message for a client in the server's place.
    fn next_own(&mut self) -> Option<FromServer> {
        self.to_client.pop_front()
    }

    /// Whether the clients are older than 2026-07-28, or have not sent a request yet.
    fn is_off(&self) -> bool {
        matches!(self.phase, FacePhase::Off | FacePhase::Fresh)
    }

    /// Handles a message for the server. Returns false if it must be sent unchanged.
    fn take(&mut self, sent: Message, headers: &ClientHeaders, now: Instant) -> bool {
        if matches!(self.phase, FacePhase::Off) {
            return false;
        }
        // Checked before the phase, so that a request of another revision is refused even if it is the first one.
        if sent.kind() == Kind::Request && self.refuse_revision(&sent) {
            return true;
        }
        match (&self.phase, sent.kind()) {
            (FacePhase::Fresh, Kind::Request) => {
                if !is_modern(&sent) {
                    self.phase = FacePhase::Off;
                    return false;
                }
                self.greet(&sent, headers, now);
                self.wait(sent, headers);
            }
            (FacePhase::Fresh, _) => return false,
            (FacePhase::Greeting, Kind::Request) => self.wait(sent, headers),
            (_, Kind::Request) => self.request(&sent, headers, now),
            (_, Kind::Notification) => self.client_notification(&sent, headers),
            // A response is ignored: clients of 2026-07-28 answer the server's questions with their next request.
            _ => {}
        }
        true
    }

    /// Examines a server message. Returns `None` if no client gets it unchanged.
    fn intercept(&mut self, received: FromServer, now: Instant) -> Option<FromServer> {
        if self.is_off() {
            return Some(received);
        }
        match received {
            FromServer::Message(origin, message) => {
                let message = match message.kind() {
                    Kind::Response => return self.answer(origin, message, now),
                    Kind::Request => {
                        self.question(origin, message, now);
                        return None;
                    }
                    Kind::Notification => self.server_notification(message, now)?,
                    // Clients of 2026-07-28 do not support arrays.
                    Kind::Batch => {
                        for part in message.apart() {
                            let told = self.intercept(FromServer::Message(origin, part), now);
                            self.to_client.extend(told);
                        }
                        return None;
                    }
                    _ => message,
                };
                Some(FromServer::Message(origin, message))
            }
            FromServer::Spooled(response) => self.large_answer(response, now),
            received => Some(received),
        }
    }

    /// Counts the memory for the answers of tasks in `room`.
    pub(crate) fn set_kept(&mut self, room: ByteRoom) {
        self.kept = Some(room);
    }

    /// Returns the next time at which something is due.
    fn next_due(&self) -> Option<Instant> {
        let questions = self.questions.values().map(|question| question.until);
        let undecided = self.undecided.iter().map(|undecided| undecided.until);
        let tasks = self.tasks.next_due().map(Instant::from_std);
        let calls = self.open.values().filter_map(|open| open.task_at);
        let own = tasks.into_iter().chain(calls).chain(self.waits_until);
        questions.chain(undecided).chain(own).min()
    }

    /// Does the work that is due.
    fn act(&mut self, now: Instant) {
        if self.waits_until.is_some_and(|until| until <= now) {
            self.give_up_waiting();
        }
        // Tasks first, because a task is asked questions in another way.
        self.begin_tasks(now);
        self.expire_tasks(now);
        self.forget_old_questions(now);
        self.decide(now);
    }

    /// Returns the number of questions and tasks that wait for their clients. Meanwhile the server is in use.
    fn held(&self) -> usize {
        self.questions.len() + self.tasks.iter().filter(|task| task.is_open()).count()
    }

    /// Returns a number for a name that is unique at this server.
    fn next_name(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn refuse(&mut self, sent: &Message, why: &str) {
        if let Some(id) = sent.id() {
            self.tell_message(Message::parse(own_error(&id, why, None)));
        }
    }

    fn refuse_with(&mut self, sent: &Message, code: i32, why: &str) {
        if let Some(id) = sent.id() {
            self.tell_message(Message::parse(error_answer(&id, code, why, None)));
        }
    }

    /// Refuses a request of a revision that the face does not support. Returns false if the request is not refused.
    fn refuse_revision(&mut self, sent: &Message) -> bool {
        let date = meta_value(sent, mcp::META_REVISION);
        let Some(date) = date.filter(|date| *date != Revision::V2026_07_28.date()) else {
            return false;
        };
        let id = sent.id().and_then(|id| serde_json::from_slice::<Value>(&id).ok());
        self.tell(&json!({
            "jsonrpc": "2.0", "id": id,
            "error": {
                "code": UNSUPPORTED_REVISION,
                "message": "this revision is not known here",
                "data": {"supported": [Revision::V2026_07_28.date()], "requested": date},
            },
        }));
        true
    }

    fn refuse_method(&mut self, sent: &Message, method: &str) {
        let why = format!("2026-07-28 has no method {method:?}");
        self.refuse_with(sent, METHOD_NOT_FOUND, &why);
    }

    fn tell(&mut self, text: &Value) {
        self.tell_message(Message::parse(Bytes::from(text.to_string())));
    }

    fn tell_message(&mut self, message: Message) {
        self.to_client.push_back(FromServer::Message(Origin::Shared, message));
    }

    /// Sends a message of Milepost itself to the server.
    fn send(&mut self, text: Bytes, headers: &ClientHeaders) {
        let message = Message::parse(text);
        self.to_server.push_back(ToServer { message, request: None, headers: headers.clone() });
    }

    /// Returns the capabilities that the server has declared.
    fn server_capabilities(&self) -> Option<&Value> {
        match &self.phase {
            FacePhase::Ready(started) => Some(&started["capabilities"]),
            _ => None,
        }
    }
}

/// Returns an answer with this result.
fn result_answer(id: &[u8], result: &[u8]) -> Bytes {
    Bytes::from([br#"{"jsonrpc":"2.0","id":"#, id, br#","result":"#, result, b"}"].concat())
}

/// Returns a member of a request's `_meta`. A member that is too long counts as missing.
fn meta_value(sent: &Message, name: &str) -> Option<Value> {
    let params = sent.params().unwrap_or_default();
    let meta = json::member(&params, "_meta").unwrap_or_default();
    let text = json::member(&meta, name).filter(|text| text.len() <= mcp::META_MAX)?;
    serde_json::from_slice(&text).ok()
}

/// Whether a request declares the revision 2026-07-28.
fn is_modern(sent: &Message) -> bool {
    meta_value(sent, mcp::META_REVISION).is_some()
}

#[cfg(test)]
mod tests;
