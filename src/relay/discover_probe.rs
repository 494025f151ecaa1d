//! Handles `server/discover`, the first request of a client of 2026-07-28, to a server that may be older.
//!
//! The client falls back to `initialize` if the answer is an error. But some old servers end when they get a request
//! before `initialize`, others never answer it, and some end at the next message. At that moment nothing has been
//! negotiated. So the proxy answers that the method is unknown, and starts the server again if it has ended.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::progress::Payload;
use crate::protocol::jsonrpc::{Key, Kind, METHOD_NOT_FOUND, Message, error_answer};
use crate::protocol::{json, mcp};
use crate::relay::legs::FromServer;

/// Deadline for an answer to `server/discover`, counted from the request, or from the server's first byte if that comes
/// later: a server that is installed at its first start is silent for a long time. Servers that know the request answer
/// in milliseconds; clients give up after 10 s (Python, Rust) or a minute (TypeScript), and the Rust SDK treats an
/// answer that crosses its next request as an error.
const PATIENCE: Duration = Duration::from_secs(8);

/// Maximum number of client messages after `server/discover` that are sent again to a new server. A client with more
/// messages has not waited for the answer.
const RESENT_MAX: usize = 16;

/// Whether the server is known to answer `server/discover`, or known not to.
#[derive(Debug, Default)]
pub struct Era(AtomicU8);

const OLD: u8 = 1;
const NEW: u8 = 2;

impl Era {
    /// Whether the server is known not to answer `server/discover`.
    pub fn is_old(&self) -> bool {
        self.0.load(Ordering::Relaxed) == OLD
    }

    fn is_new(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NEW
    }

    /// Sets the era. A server that has answered once counts as new, however slow it is at other times.
    fn set(&self, era: u8) {
        self.0.fetch_max(era, Ordering::Relaxed);
    }

    /// Learns from an answer. An error other than "method not found" may be about the client's request, and does not
    /// show that the server is old.
    fn learn(&self, answer: &Message) {
        if answer.result().is_some() {
            self.set(NEW);
        } else if answer.error_code() == Some(METHOD_NOT_FOUND) {
            self.set(OLD);
        }
    }
}

#[derive(Debug)]
enum ProbeState {
    /// The client has sent nothing yet.
    Fresh,
    /// The client has sent `server/discover`, and the server has not answered anything since.
    Probing(Box<OpenQuestion>),
    /// The client was refused or has gone on. If the server still answers the request with this id, the answer is
    /// dropped.
    Late(Key),
    /// After the next answer of the server, the client gets this error for its request.
    Owed(Message),
    /// Client and server have agreed on a revision.
    Agreed,
}

#[derive(Debug)]
struct OpenQuestion {
    /// The id of `server/discover`, as the server knows it.
    key: Key,
    id: Bytes,
    /// The client messages since `server/discover`.
    sent_since: VecDeque<Payload>,
    deadline: Pin<Box<Sleep>>,
    /// Whether the server has sent a message.
    has_spoken: bool,
    /// Whether the client has received the error for its request.
    refused: bool,
    /// Whether the client no longer waits: it has sent `initialize`, and accepts no answer before the answer to that.
    is_abandoned: bool,
}

/// The probe of one server: limits the wait for its answer to `server/discover`.
pub(crate) struct DiscoverProbe {
    era: Arc<Era>,
    state: ProbeState,
    /// Whether the server has sent a message, on any stream.
    pub(crate) awake: bool,
    /// The message to the client in the server's place.
    pub(crate) own: Option<Message>,
    /// The messages for the new server that replaces the ended one.
    again: Option<VecDeque<Payload>>,
}

impl DiscoverProbe {
    /// Returns a probe. `era` is the known era of the server, and is updated from its answers.
    pub(crate) fn new(era: Arc<Era>) -> Self {
        Self { era, state: ProbeState::Fresh, awake: false, own: None, again: None }
    }

    /// Whether the server ended when it got `server/discover`. The client then gets the error for an unknown method.
    pub(crate) fn has_failed(&mut self) -> bool {
        if let ProbeState::Probing(question) = &mut self.state {
            tracing::info!("the server ended after server/discover; starting the server again");
            self.era.set(OLD);
            let (is_abandoned, id) =
                (question.is_abandoned, (!question.refused).then(|| unknown(&question.id)));
            // The new server gets the client's later messages, but not `server/discover` again.
            self.again = Some(std::mem::take(&mut question.sent_since));
            self.state = ProbeState::Agreed;
            match id {
                Some(refusal) if is_abandoned => self.state = ProbeState::Owed(refusal),
                refusal => self.own = refusal.or_else(|| self.own.take()),
            }
        }
        self.again.is_some()
    }

    /// Returns the messages that an ended server did not answer.
    pub(crate) fn take_unanswered(&mut self) -> VecDeque<Payload> {
        self.again.take().unwrap_or_default()
    }

    /// Whether the probe has nothing more to do.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state, ProbeState::Agreed) && self.own.is_none() && self.again.is_none()
    }

    /// Ends the probe. Later messages are not kept, so a server that ends is not started again.
    pub(crate) fn settle(&mut self) {
        self.state = match std::mem::replace(&mut self.state, ProbeState::Agreed) {
            ProbeState::Probing(probe) if probe.refused => ProbeState::Late(probe.key),
            ProbeState::Fresh | ProbeState::Probing(_) => ProbeState::Agreed,
            state => state,
        };
    }

    /// Answers in the server's place after the deadline. Returns whether the deadline had passed.
    pub(crate) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> bool {
        let ProbeState::Probing(probe) = &mut self.state else { return false };
        if probe.refused || probe.is_abandoned {
            return false;
        }
        if self.awake && !std::mem::replace(&mut probe.has_spoken, true) {
            probe.deadline.as_mut().reset(Instant::now() + PATIENCE);
        }
        if probe.deadline.as_mut().poll(cx).is_pending() {
            return false;
        }
        tracing::info!("the server does not answer server/discover; continuing without an answer");
        self.era.set(OLD);
        probe.refused = true;
        self.own = Some(unknown(&probe.id));
        true
    }

    /// Notes a message for the server. `message` is the client's original text. Returns false if the message must not
    /// be sent to the server.
    pub(crate) fn note_sent(&mut self, message: Option<&Message>, payload: &Payload) -> bool {
        let request = message.filter(|message| message.kind() == Kind::Request);
        let is = |name: &str| request.and_then(Message::method).as_deref() == Some(name);
        match &mut self.state {
            ProbeState::Fresh if request.is_some() => {
                let asks = is(mcp::DISCOVER) && !self.era.is_new();
                // Parse the text for the server, which may know the request under another id.
                let text = asks.then(|| Message::parse(payload.to_bytes()));
                let text = text.and_then(|text| Some((text.id_key()?, text.id()?)));
                let Some((key, id)) = text else {
                    self.state = ProbeState::Agreed;
                    return true;
                };
                if self.era.is_old() {
                    self.own = Some(unknown(&id));
                    return false;
                }
                let deadline = Box::pin(sleep_until(Instant::now() + PATIENCE));
                let (sent_since, has_spoken) = (VecDeque::new(), self.awake);
                let (refused, is_abandoned) = (false, false);
                let question = OpenQuestion {
                    key,
                    id,
                    sent_since,
                    deadline,
                    has_spoken,
                    refused,
                    is_abandoned,
                };
                self.state = ProbeState::Probing(Box::new(question));
            }
            ProbeState::Probing(question) if question.sent_since.len() < RESENT_MAX => {
                question.is_abandoned |= is(mcp::INITIALIZE);
                question.sent_since.push_back(payload.clone());
            }
            ProbeState::Probing(_) => self.settle(),
            _ => {}
        }
        true
    }

    /// Examines a server message. Returns `None` if it must not be forwarded.
    pub(crate) fn intercept(&mut self, from_server: FromServer) -> Option<FromServer> {
        self.awake = true;
        let FromServer::Message(origin, message) = from_server else { return Some(from_server) };
        // Only answers show whether the server knows `server/discover`.
        if message.kind() != Kind::Response {
            return Some(FromServer::Message(origin, message));
        }
        let id = message.id_key();
        // A client that falls back to `initialize` may reuse its ids, so the same id then means another request.
        let agrees = || {
            let result = message.result();
            result.is_some_and(|result| json::member(&result, "protocolVersion").is_some())
        };
        let (passes, next) = match std::mem::replace(&mut self.state, ProbeState::Agreed) {
            ProbeState::Probing(probe)
                if probe.refused && id.as_ref() == Some(&probe.key) && agrees() =>
            {
                self.era.set(OLD);
                (true, ProbeState::Agreed)
            }
            ProbeState::Late(key) if id.as_ref() == Some(&key) && agrees() => {
                self.era.set(OLD);
                (true, ProbeState::Agreed)
            }
            ProbeState::Probing(probe) if id.as_ref() == Some(&probe.key) => {
                self.era.learn(&message);
                (!probe.refused, ProbeState::Agreed)
            }
            ProbeState::Probing(probe) if probe.refused || probe.is_abandoned => {
                // The server works, but has answered a later request first, so it does not know `server/discover`.
                if !probe.refused {
                    self.era.set(OLD);
                    self.own = Some(unknown(&probe.id));
                }
                (true, ProbeState::Late(probe.key))
            }
            ProbeState::Late(key) if id.as_ref() == Some(&key) => {
                self.era.learn(&message);
                (false, ProbeState::Agreed)
            }
            ProbeState::Owed(refusal) => {
                self.own = Some(refusal);
                (true, ProbeState::Agreed)
            }
            state => (true, state),
        };
        self.state = next;
        passes.then_some(FromServer::Message(origin, message))
    }
}

/// Returns the answer of a server that does not know `server/discover`.
pub fn unknown(id: &[u8]) -> Message {
    let why = "the server does not answer server/discover: it speaks an older revision";
    Message::parse(error_answer(id, METHOD_NOT_FOUND, why, None))
}
