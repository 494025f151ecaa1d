//! A quick start before a slow server: while a child starts, `initialize`, `ping` and the lists are answered with the
//! server's answers at its last start. All other messages wait for the server.
//!
//! ```text
//!  Fresh ──initialize, no answers are known──> Asking ──the answer──> Started
//!    └────initialize, answers are known──────> Waiting ──the same answer──> Started; what waited goes to the server
//!                                                └──another answer──> Changed: each request gets an error
//! ```
//!
//! The server still gets every request. Its answers are compared with those that the client has already received: if a
//! list differs, a notification tells the client.
//!
//! No principal gets the list of another. If the principal of a session is not known, a list is stored only if the
//! server had read nothing but the beginning of the session and requests for lists, because such a list cannot depend
//! on anything that a client has asked or answered.

pub(crate) mod store;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use litemap::LiteMap;
use serde_json::{Map, Value};

use self::store::{StartAnswers, StartStore};
use crate::progress::Payload;
use crate::protocol::exact_value::exact_params;
use crate::protocol::jsonrpc::{Key, Kind, Message, own_error};
use crate::protocol::{json, mcp};
use crate::relay::legs::FromServer;
use crate::relay::legs::MessagePart;

/// Maximum number of bytes of messages that wait for a server to start. Beyond the limit the client is not read.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Maximum number of concurrent list requests whose answers are compared. The answer to a further request is not
/// stored.
const ASKED_MAX: usize = 64;

/// The error for requests to a server that has changed since its last start.
const CHANGED: &str = "the server has changed since its last start (its revision or its capabilities); connect to it again";

/// The methods that request lists, each with the capability that it belongs to.
const LISTS: [(&str, &str); 4] = [
    (mcp::TOOLS_LIST, "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resources"),
];

/// A message, or a part of one, that waits for the server.
pub(crate) enum HeldMessage {
    /// A message for the server, with the client's original text if it came from a client.
    Whole(Box<(Option<Message>, Payload)>),
    /// A part of a large message.
    Part(MessagePart),
}

enum StartPhase {
    /// The client has not sent `initialize` yet.
    Fresh,
    /// The server was sent `initialize` under this id, and the client waits for its answer.
    Asking(Key),
    /// The client already has the answer of the last start. The server has not answered under this id yet.
    Waiting(Key),
    /// The server has started.
    Started,
    /// The server's answer differs from that at its last start.
    Changed,
}

/// A list request that the server has not answered.
struct ListRequest {
    method: &'static str,
    capability: &'static str,
    /// The list that the client has already received.
    told: Option<Value>,
}

/// The server's answers at its last start, and the messages that wait for this start.
pub(crate) struct CachedStart {
    store: StartStore,
    phase: StartPhase,
    file: Option<PathBuf>,
    /// The answers, as they are in the file or will be written to it.
    known: StartAnswers,
    asked: LiteMap<Key, ListRequest>,
    /// Whether clients have sent nothing from which the server could know more than at the beginning of any session.
    is_pristine: bool,
    held: VecDeque<HeldMessage>,
    held_bytes: usize,
    /// Messages to the client in the server's place.
    own: VecDeque<Message>,
    writes: Arc<Mutex<u64>>,
    written: u64,
}

impl CachedStart {
    /// Returns a start that uses the answers in `store`.
    pub(crate) fn new(store: StartStore) -> Self {
        Self {
            store,
            phase: StartPhase::Fresh,
            file: None,
            known: StartAnswers::default(),
            asked: LiteMap::new(),
            is_pristine: true,
            held: VecDeque::new(),
            held_bytes: 0,
            own: VecDeque::new(),
            writes: Arc::default(),
            written: 0,
        }
    }

    /// Returns the next message to the client in the server's place.
    pub(crate) fn next_own(&mut self) -> Option<Message> {
        self.own.pop_front()
    }

    /// Whether messages wait for the server to start.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.phase, StartPhase::Waiting(_))
    }

    /// Whether any message waits.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether so many messages wait that clients should not be read.
    pub(crate) fn is_behind(&self) -> bool {
        self.held_bytes >= HELD_BYTES_MAX
    }

    /// Queues a message, or a part of one.
    fn hold(&mut self, held: HeldMessage) {
        self.held_bytes += match &held {
            HeldMessage::Whole(whole) => whole.1.len(),
            HeldMessage::Part(
                MessagePart::Start(piece) | MessagePart::Piece(piece) | MessagePart::Raw(piece),
            ) => piece.len(),
            HeldMessage::Part(MessagePart::End | MessagePart::BrokenOff) => 0,
        };
        self.held.push_back(held);
    }

    /// Returns the next queued message, if messages need not wait any more.
    pub(crate) fn release(&mut self) -> Option<HeldMessage> {
        if self.is_waiting() {
            return None;
        }
        let held = self.held.pop_front();
        // Reset the sum only when the queue is empty. Until then it is an upper bound, which is sufficient.
        if self.held.is_empty() {
            self.held_bytes = 0;
        }
        held
    }

    /// Notes a message for the server. Returns false if the message must not be sent now.
    pub(crate) fn note_sent(&mut self, message: Option<&Message>, payload: &Payload) -> bool {
        let is_first = matches!(self.phase, StartPhase::Fresh);
        self.is_pristine =
            self.is_pristine && is_of_beginning(&Message::parse(payload.to_bytes()), is_first);
        let method = message.and_then(Message::method);
        let is_request = message.is_some_and(|message| message.kind() == Kind::Request);
        match &self.phase {
            StartPhase::Fresh if is_request && method.as_deref() == Some(mcp::INITIALIZE) => {
                // The server gets `initialize` immediately, even if the client is answered from the file.
                self.begin(&Message::parse(payload.to_bytes()));
                true
            }
            StartPhase::Waiting(_) => {
                let sent =
                    message.filter(|_| is_request).map(|_| Message::parse(payload.to_bytes()));
                let sent = sent.and_then(|sent| Some((sent.id()?, sent)));
                if let (Some((id, sent)), Some(method)) = (sent, method) {
                    // A server that is starting cannot answer yet.
                    if method == mcp::PING {
                        self.answer(&id, b"{}");
                        return false;
                    }
                    self.ask_list(&method, &sent, &id);
                }
                self.hold(HeldMessage::Whole(Box::new((message.cloned(), payload.clone()))));
                false
            }
            StartPhase::Started if is_request => {
                let is_list = |method: &str| LISTS.iter().any(|(list, _)| *list == method);
                if let Some(method) = method.filter(|method| is_list(method)) {
                    let sent = Message::parse(payload.to_bytes());
                    sent.id().into_iter().for_each(|id| self.ask_list(&method, &sent, &id));
                }
                true
            }
            StartPhase::Changed => {
                if is_request {
                    self.refuse(&Message::parse(payload.to_bytes()));
                }
                false
            }
            _ => true,
        }
    }

    /// Notes a part of a large message for the server. Returns false if the part must not be sent now.
    pub(crate) fn note_part(&mut self, part: &MessagePart) -> bool {
        self.is_pristine = false;
        if self.is_waiting() {
            self.hold(HeldMessage::Part(part.clone()));
        }
        // Drop the rest of a message whose beginning was dropped.
        !matches!(self.phase, StartPhase::Waiting(_) | StartPhase::Changed)
    }

    /// Handles the client's `initialize`: answers it from the file, if there is one.
    fn begin(&mut self, sent: &Message) {
        let (Some(key), Some(id)) = (sent.id_key(), sent.id()) else { return };
        let Some(file) = self.store.file_of(sent.raw()) else {
            self.phase = StartPhase::Started;
            return;
        };
        let known = store::read(&file);
        self.file = Some(file);
        self.phase = match known {
            Some(known) => {
                tracing::info!("the client gets the answers of the server's last start");
                self.answer(&id, known.initialize.to_string().as_bytes());
                self.known = known;
                StartPhase::Waiting(key)
            }
            None => StartPhase::Asking(key),
        };
    }

    /// Handles a client's list request: while the server starts, the client gets the list of the last start.
    fn ask_list(&mut self, method: &str, sent: &Message, id: &Bytes) {
        let Some((method, capability)) = LISTS.iter().find(|(list, _)| *list == method).copied()
        else {
            return;
        };
        // Compare only the first page of a list, and only if the server announces changes of the list.
        let cursor = sent.params().and_then(|params| json::member(&params, "cursor"));
        let Some(key) = sent.id_key().filter(|_| cursor.is_none() && self.says_changes(capability))
        else {
            return;
        };
        if self.asked.len() >= ASKED_MAX {
            return;
        }
        let told = self.known.lists.get(method).filter(|_| self.is_waiting()).cloned();
        // The server gets the request too, and its answer is compared with this one.
        if let Some(told) = &told {
            let text = told.to_string();
            self.answer(id, text.as_bytes());
        }
        self.asked.insert(key, ListRequest { method, capability, told });
    }

    /// Whether the server declares that it announces changes of a list.
    fn says_changes(&self, capability: &str) -> bool {
        let declared = &self.known.initialize["capabilities"][capability]["listChanged"];
        declared.as_bool() == Some(true)
    }

    fn answer(&mut self, id: &Bytes, result: &[u8]) {
        let text = [br#"{"jsonrpc":"2.0","id":"#, &id[..], br#","result":"#, result, b"}"].concat();
        self.own.push_back(Message::parse(Bytes::from(text)));
    }

    fn refuse(&mut self, sent: &Message) {
        if let (Kind::Request, Some(id)) = (sent.kind(), sent.id()) {
            self.own.push_back(Message::parse(own_error(&id, CHANGED, None)));
        }
    }

    /// Examines a server message. Returns `None` if the client must not get it.
    pub(crate) fn intercept(&mut self, from_server: FromServer) -> Option<FromServer> {
        let FromServer::Message(origin, message) = from_server else { return Some(from_server) };
        let answers = message.kind() == Kind::Response;
        let Some(key) = message.id_key().filter(|_| answers) else {
            return Some(FromServer::Message(origin, message));
        };
        let passes = match &self.phase {
            StartPhase::Asking(id) if *id == key => {
                self.phase = StartPhase::Started;
                if let Some(result) = result_of(&message) {
                    self.known.initialize = result;
                    self.save();
                }
                true
            }
            StartPhase::Waiting(id) if *id == key => {
                self.compare_start(&message);
                false
            }
            _ => self.compare_list(&key, &message),
        };
        passes.then_some(FromServer::Message(origin, message))
    }

    /// Compares the server's answer to `initialize` with the answer that the client has already received.
    fn compare_start(&mut self, message: &Message) {
        let result = result_of(message);
        let is_same = result.as_ref().is_some_and(|result| {
            // The client relies on these two members. Others, such as the server's version, may be new.
            ["protocolVersion", "capabilities"]
                .iter()
                .all(|name| result[name] == self.known.initialize[name])
        });
        if let Some(result) = result.filter(|_| is_same) {
            self.phase = StartPhase::Started;
            if result != self.known.initialize {
                self.known.initialize = result;
                self.save();
            }
            return;
        }
        tracing::warn!(
            "the server is another one than at its last start; its client has to connect again"
        );
        self.phase = StartPhase::Changed;
        self.asked.clear();
        self.forget();
        self.held_bytes = 0;
        for held in std::mem::take(&mut self.held) {
            if let HeldMessage::Whole(whole) = held
                && let (Some(_), payload) = &*whole
            {
                let sent = Message::parse(payload.to_bytes());
                // If the request was already answered, the filter withholds this second answer.
                self.refuse(&sent);
            }
        }
    }

    /// Compares the answer to a list request. Returns false if the client has already received an answer.
    fn compare_list(&mut self, key: &Key, message: &Message) -> bool {
        let Some(ListRequest { method, capability, told }) = self.asked.remove(key) else {
            return true;
        };
        // Do not store a list of several pages, because one page is not the whole list.
        let result = result_of(message).filter(|result| result.get("nextCursor").is_none());
        let is_everybodys = self.store.has_one_principal() || self.is_pristine;
        let known = self.known.lists.get(method);
        if known != result.as_ref() {
            let was_known = known.is_some();
            match result.clone().filter(|_| is_everybodys) {
                Some(result) => drop(self.known.lists.insert(method.to_owned(), result)),
                // Remove a list that is outdated, or may be.
                None => drop(self.known.lists.remove(method)),
            }
            if was_known || is_everybodys {
                self.save();
            }
        }
        let Some(told) = told else { return true };
        if Some(&told) != result.as_ref() {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/{capability}/list_changed"}}"#
            );
            self.own.push_back(Message::parse(Bytes::from(text)));
        }
        false
    }

    /// Writes the answers in the background, so that no message waits for the file.
    fn save(&mut self) {
        let known = self.known.clone();
        self.change_file(move |path| store::write(path, &known));
    }

    fn forget(&mut self) {
        self.change_file(store::remove);
    }

    fn change_file(
        &mut self,
        change: impl FnOnce(&std::path::Path) -> std::io::Result<()> + Send + 'static,
    ) {
        let Some(path) = self.file.clone() else { return };
        self.written += 1;
        let (number, last) = (self.written, Arc::clone(&self.writes));
        let work = move || {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            // Blocking threads run in any order, and an older write must not replace a newer one.
            if *last < number {
                *last = number;
                if let Err(error) = change(&path) {
                    tracing::warn!(%error, path = %path.display(), "the answers of this start are not kept");
                }
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(work)),
            Err(_) => work(),
        }
    }
}

/// Whether a server that has read only messages such as this one knows no more about its client than at the beginning
/// of any session.
fn is_of_beginning(sent: &Message, is_first: bool) -> bool {
    let Some(method) = sent.method() else { return false };
    let is_list = || LISTS.iter().any(|(list, _)| *list == method);
    let is_bare = || {
        let params = exact_params(sent.raw());
        params.is_some_and(|params| {
            params.as_object().map_or_else(|| params.is_null(), Map::is_empty)
        })
    };
    // The parameters of the first `initialize` need no check, because the file's name depends on them.
    method == mcp::INITIALIZE && is_first
        || (method == mcp::INITIALIZED || method == mcp::PING || is_list()) && is_bare()
}

/// Returns the result in an answer.
fn result_of(message: &Message) -> Option<Value> {
    serde_json::from_slice(&message.result()?).ok()
}

#[cfg(test)]
mod tests;
