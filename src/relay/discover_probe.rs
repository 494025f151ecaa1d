//! The first question of a client of 2026-07-28, `server/discover`, to a server that may be older.
//!
//! Such a client asks, and falls back to `initialize` if it gets an error. Some old servers end over a
//! request before `initialize`, others never answer it, and some end over whatever comes next. Nothing
//! has been agreed on at that moment: so the proxy answers that the method is not known, and starts a
//! server that has ended afresh.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::progress::{Origin, Payload, StreamId};
use crate::protocol::jsonrpc::{Key, Kind, METHOD_NOT_FOUND, Message, error_answer};
use crate::protocol::{json, mcp};
use crate::relay::legs::{ClientHeaders, FromServer, ServerLeg, delegate_to_server};

/// How long an answer is waited for, from the question or from the server's first byte if that comes
/// later: a server that is installed at its first start says nothing for long. Servers that know the
/// question answer in milliseconds; clients give up after 10 s (Python, Rust) or a minute (TypeScript),
/// and an answer that crosses their next request is an error to the Rust SDK.
const PATIENCE: Duration = Duration::from_secs(8);

/// Client messages after `server/discover` that are sent again to a server that was started anew. A
/// client with more messages has not waited for the answer.
const RESENT_MAX: usize = 16;

/// The known era of a server: whether the server answers `server/discover`.
#[derive(Debug, Default)]
pub struct Era(AtomicU8);

const OLD: u8 = 1;
const NEW: u8 = 2;

impl Era {
    /// Whether the server is known not to answer.
    pub fn is_old(&self) -> bool {
        self.0.load(Ordering::Relaxed) == OLD
    }

    fn is_new(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NEW
    }

    /// A server that has answered once is new, however slow it may be at other times.
    fn set(&self, era: u8) {
        self.0.fetch_max(era, Ordering::Relaxed);
    }

    /// Takes note of an answer. An error may be about the request of a client, and not how old a server is.
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
    /// The client has sent `server/discover`, and the server has answered nothing since.
    Probing(Box<DiscoverProbe>),
    /// The server has answered something else. An answer to the question goes no further.
    Late(Key),
    /// The client gets the error for its request after the next answer.
    Owed(Message),
    /// Client and server know each other.
    Agreed,
}

#[derive(Debug)]
struct DiscoverProbe {
    /// The question's id as the server knows it.
    key: Key,
    id: Bytes,
    /// The client messages since then.
    sent_since: VecDeque<(Message, Payload)>,
    deadline: Pin<Box<Sleep>>,
    /// The server has said something.
    heard: bool,
    /// Whether the client has received the error for its request.
    refused: bool,
}

impl DiscoverProbe {
    /// Whether the client waits no longer: it takes no answer before the one to its `initialize`.
    fn is_left(&self) -> bool {
        self.sent_since.iter().any(|(message, _)| is_initialize(message))
    }
}

/// A server whose answer to `server/discover` is not waited for for ever.
pub struct Probing<S> {
    server: S,
    era: Arc<Era>,
    state: ProbeState,
    /// The server has said something, on whatever stream.
    awake: bool,
    /// The message in its place.
    own: Option<Message>,
    /// The messages for the new server in place of one that has ended.
    again: Option<VecDeque<(Message, Payload)>>,
}

impl<S: ServerLeg> Probing<S> {
    /// `era` is what is known of this server from before, and is told what turns out.
    pub fn new(server: S, era: Arc<Era>) -> Self {
        Self { server, era, state: ProbeState::Fresh, awake: false, own: None, again: None }
    }

    /// Whether the server has ended over the question. The client is told that there is no such method,
    /// and a fresh server is to take the place of this one.
    pub fn has_failed(&mut self) -> bool {
        if let ProbeState::Probing(probe) = &mut self.state {
            tracing::info!("the server ended over server/discover; starting it afresh");
            self.era.set(OLD);
            let (left, refusal) = (probe.is_left(), (!probe.refused).then(|| unknown(&probe.id)));
            self.again = Some(std::mem::take(&mut probe.sent_since));
            self.state = ProbeState::Agreed;
            match refusal {
                Some(refusal) if left => self.state = ProbeState::Owed(refusal),
                Some(refusal) => self.own = Some(refusal),
                None => {}
            }
        }
        self.again.is_some()
    }

    /// A fresh server takes the place of the one that has ended.
    pub fn replace(&mut self, server: S) {
        self.server = server;
        for (message, payload) in self.again.take().unwrap_or_default() {
            self.server.send(&message, payload, &None);
        }
    }

    /// Ends the probe. Messages sent from now on are not sent again, so a server that ends stays ended.
    fn settle(&mut self) {
        self.state = match std::mem::replace(&mut self.state, ProbeState::Agreed) {
            ProbeState::Probing(probe) if probe.refused => ProbeState::Late(probe.key),
            ProbeState::Fresh | ProbeState::Probing(_) => ProbeState::Agreed,
            state => state,
        };
    }

    /// Answers in the server's place when it is time to.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> bool {
        let ProbeState::Probing(probe) = &mut self.state else { return false };
        if probe.refused || probe.is_left() {
            return false;
        }
        if self.awake && !std::mem::replace(&mut probe.heard, true) {
            probe.deadline.as_mut().reset(Instant::now() + PATIENCE);
        }
        if probe.deadline.as_mut().poll(cx).is_pending() {
            return false;
        }
        tracing::info!("the server does not answer server/discover; going on without");
        self.era.set(OLD);
        probe.refused = true;
        self.own = Some(unknown(&probe.id));
        true
    }

    /// Looks at what the server says; `None` if that goes no further.
    fn intercept(&mut self, said: FromServer) -> Option<FromServer> {
        self.awake = true;
        let FromServer::Message(origin, message) = said else { return Some(said) };
        if message.kind() != Kind::Response {
            return Some(FromServer::Message(origin, message));
        }
        let id = message.id_key();
        // A client that falls back may begin its ids anew.
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
            ProbeState::Probing(probe) if probe.refused || probe.is_left() => {
                // It is alive, and has answered something else first.
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

fn is_initialize(message: &Message) -> bool {
    message.kind() == Kind::Request && message.method().as_deref() == Some(mcp::INITIALIZE)
}

/// The answer of a server that does not know the question.
pub fn unknown(id: &[u8]) -> Message {
    let why = "the server does not answer server/discover: it speaks an older revision";
    Message::parse(error_answer(id, METHOD_NOT_FOUND, why, None))
}

impl<S: ServerLeg> ServerLeg for Probing<S> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        loop {
            if let Some(own) = self.own.take() {
                return Poll::Ready(FromServer::Message(Origin::Shared, own));
            }
            match self.server.poll_receive(cx) {
                Poll::Ready(said) => {
                    if let Some(said) = self.intercept(said) {
                        return Poll::Ready(said);
                    }
                }
                Poll::Pending if self.poll_deadline(cx) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        if let Some(own) = self.own.take() {
            return Some(FromServer::Message(Origin::Shared, own));
        }
        while let Some(said) = self.server.try_receive() {
            if let Some(said) = self.intercept(said) {
                return Some(said);
            }
        }
        None
    }

    fn send(
        &mut self,
        message: &Message,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId> {
        match &mut self.state {
            ProbeState::Fresh if message.kind() == Kind::Request => {
                let text = Message::parse(payload.to_bytes());
                let asks = text.method().as_deref() == Some(mcp::DISCOVER) && !self.era.is_new();
                let (Some(key), Some(id), true) = (text.id_key(), text.id(), asks) else {
                    self.state = ProbeState::Agreed;
                    return self.server.send(message, payload, headers);
                };
                if self.era.is_old() {
                    self.own = Some(unknown(&id));
                    return None;
                }
                let deadline = Box::pin(sleep_until(Instant::now() + PATIENCE));
                let (sent_since, heard, refused) = (VecDeque::new(), self.awake, false);
                let probe = DiscoverProbe { key, id, sent_since, deadline, heard, refused };
                self.state = ProbeState::Probing(Box::new(probe));
            }
            ProbeState::Probing(probe) if probe.sent_since.len() < RESENT_MAX => {
                probe.sent_since.push_back((message.clone(), payload.clone()));
            }
            ProbeState::Probing(_) => self.settle(),
            _ => {}
        }
        self.server.send(message, payload, headers)
    }

    fn send_start(&mut self, piece: Bytes, headers: &ClientHeaders) {
        self.settle();
        self.server.send_start(piece, headers);
    }

    delegate_to_server!();

    fn enter_raw_mode(&mut self) -> bool {
        let passes = self.server.enter_raw_mode();
        if passes {
            // Who only looks on answers nothing.
            self.state = ProbeState::Agreed;
        }
        passes
    }

    fn stderr_activity(&mut self) {
        self.awake = true;
    }
}
