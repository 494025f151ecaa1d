//! The leg towards a server that is reached over HTTP, for clients of another kind: Streamable HTTP of
//! every revision, and HTTP+SSE.
//!
//! ```text
//! say ──> queue ──> launch ──> Exchange: head ──> Speech ──> heard ──> ready ──> poll_receive
//!           │ in order            └─ status ──> failed: an error, another session, HTTP+SSE
//! ```
//!
//! It has no task: whoever polls the leg polls all its exchanges. The heads of responses are waited for
//! while messages are being told, bodies are read only while somebody takes what they say.

mod error_status;
mod exchange;
mod http_sse;
mod listen_stream;
mod pending;
mod response_reader;
mod scheduler;
mod session;
mod target;
mod tool_headers;
mod tool_refresh;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::progress::input::UPSTREAM_STREAMS;
use crate::progress::{Origin, Payload, QUEUE_MAX, StreamId};
use crate::protocol::json;
use crate::protocol::jsonrpc::{
    Key, Kind, METHOD_NOT_FOUND, Message, Scan, error_answer, own_error,
};
use crate::protocol::mcp::{CANCELLED, DISCOVER};
use crate::relay::http_upstream::http_sse::Wire;
use crate::relay::http_upstream::listen_stream::Listen;
use crate::relay::http_upstream::pending::{Asked, Ledger, What};
use crate::relay::http_upstream::response_reader::Said;
use crate::relay::http_upstream::tool_headers::Params;
use crate::relay::http_upstream::tool_refresh::Refresh;
use crate::relay::legs::{FromServer, Headers, Server};
use exchange::{Exchange, Outgoing, State};
use session::{Phase, Session};

use crate::transport::http::client::Sending;
use crate::transport::http::request_body::RequestBody;

pub use crate::relay::http_upstream::target::{Bearer, UpstreamTarget};

/// Messages waiting to be sent to one server. Beyond the limit clients are not read.
const QUEUED_MAX: usize = 1024;

/// Concurrent POSTs to one server. Each is a connection; further requests wait.
const POSTS_MAX: usize = 128;

/// Requests to one server that wait for their answer. Further requests are sent later.
const ASKED_MAX: usize = 4096;

/// How long the server may take to end its session when its client has gone: the official SDKs kill
/// whom they have started within 2 s.
const CLOSE_WAIT: Duration = Duration::from_millis(1500);

/// Where a message comes from that passes in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Exchange(StreamId),
    Listen,
    Wire,
}

impl Source {
    fn origin(self) -> Origin {
        match self {
            Self::Exchange(stream) => Origin::Stream(stream),
            Self::Listen | Self::Wire => Origin::Shared,
        }
    }
}

/// Whether a server has ever answered.
#[derive(Debug, Clone, Default)]
pub struct Reachability {
    tried: Arc<AtomicBool>,
    reached: Arc<AtomicBool>,
}

impl Reachability {
    /// It was looked for and never found.
    pub fn has_failed(&self) -> bool {
        self.tried.load(Ordering::Relaxed) && !self.reached.load(Ordering::Relaxed)
    }
}

/// A server that is reached over HTTP.
pub struct HttpUpstream {
    upstream: UpstreamTarget,
    reach: Reachability,
    session: Session,
    /// Messages of clients that are still to be sent.
    queue: VecDeque<Outgoing>,
    /// A large message of a client, as far as it has come.
    collecting: Option<(BytesMut, Scan, Headers)>,
    exchanges: BTreeMap<StreamId, Exchange>,
    asked: Ledger,
    listen: Listen,
    /// HTTP+SSE, once it is known that this is spoken.
    wire: Option<Wire>,
    params: Params,
    refresh: Refresh,
    /// What the server has said.
    ready: VecDeque<FromServer>,
    /// A message that passes in pieces, which nothing else may come between.
    midway: Option<(Source, Scan)>,
    /// Who is looked at first.
    turn: usize,
    last: u64,
    timer: Pin<Box<Sleep>>,
    closing: Option<(Sending, Pin<Box<Sleep>>)>,
}

impl HttpUpstream {
    /// Nothing is connected before the first message.
    pub fn new(upstream: UpstreamTarget) -> Self {
        let wire = upstream.endpoint.is_none().then(Wire::default);
        Self {
            upstream,
            reach: Reachability::default(),
            session: Session::default(),
            queue: VecDeque::new(),
            collecting: None,
            exchanges: BTreeMap::new(),
            asked: Ledger::default(),
            listen: Listen::default(),
            wire,
            params: Params::default(),
            refresh: Refresh::default(),
            ready: VecDeque::new(),
            midway: None,
            turn: 0,
            last: UPSTREAM_STREAMS,
            timer: Box::pin(sleep_until(Instant::now())),
            closing: None,
        }
    }

    /// Tells whether the server has ever answered, also when this is gone.
    pub fn reach(&self) -> Reachability {
        self.reach.clone()
    }

    fn next_stream(&mut self) -> StreamId {
        self.last += 1;
        StreamId(self.last)
    }

    /// Does what can be done until everything waits. `reads`: bodies are read too, until there is
    /// something to say.
    fn drive(&mut self, cx: &mut Context<'_>, reads: bool) {
        loop {
            let mut moved = self.poll_heads(cx);
            moved |= self.poll_wire(cx, reads && self.ready.is_empty());
            moved |= self.pump();
            if reads && self.ready.is_empty() {
                moved |= self.poll_speech(cx);
            }
            // Last: who has said something has not been silent.
            let moved = moved || self.on_time(cx, reads);
            if !moved || (reads && !self.ready.is_empty()) {
                return;
            }
        }
    }

    /// Reads one thing that is said, if there is one.
    fn poll_speech(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some((source, _)) = &self.midway {
            return match *source {
                Source::Exchange(stream) => self.poll_exchange(stream, cx),
                Source::Listen => self.poll_listen(cx),
                // Its turn is earlier.
                Source::Wire => false,
            };
        }
        let streams: Vec<StreamId> = self.exchanges.keys().copied().collect();
        self.turn = self.turn.wrapping_add(1);
        for at in 0..streams.len() {
            let stream = streams[(self.turn.wrapping_add(at)) % streams.len()];
            if self.poll_exchange(stream, cx) {
                return true;
            }
        }
        self.poll_listen(cx)
    }

    /// What has been said on some stream; `true` if it was a message for the client.
    fn said(&mut self, source: Source, said: Said) {
        match said {
            Said::Message(text) => self.heard(source, Message::parse(text)),
            Said::Start(text) => {
                let mut scan = Scan::default();
                scan.feed(&text);
                self.midway = Some((source, scan));
                self.ready.push_back(FromServer::Start(source.origin(), text));
            }
            Said::Piece(text) => {
                if let Some((_, scan)) = &mut self.midway {
                    scan.feed(&text);
                }
                self.ready.push_back(FromServer::Piece(source.origin(), text));
            }
            Said::End(whole) => {
                let passed = self.midway.take().map(|(_, scan)| scan);
                self.ready.push_back(FromServer::End(source.origin(), whole));
                let scan = passed.filter(|scan| whole && scan.kind() == Kind::Response);
                if let Some(id) = scan.and_then(|scan| scan.id()) {
                    self.answered(source, &id);
                }
            }
            // Elsewhere it is no message.
            Said::Endpoint(_) => {}
        }
    }

    /// A message of the server.
    fn heard(&mut self, source: Source, message: Message) {
        let message = match message.kind() {
            Kind::Noise => {
                tracing::debug!(bytes = message.raw().len(), "the server said what is no message");
                return;
            }
            Kind::Response => match self.settled(source, message) {
                Some(message) => message,
                None => return,
            },
            Kind::Batch => {
                let ids: Vec<Key> = message
                    .elements()
                    .filter(|one| one.kind() == Kind::Response)
                    .filter_map(|one| one.id_key())
                    .collect();
                for id in &ids {
                    self.answered(source, id);
                }
                message
            }
            _ => message,
        };
        self.ready.push_back(FromServer::Message(source.origin(), message));
    }

    fn answered(&mut self, source: Source, id: &Key) -> Option<Asked> {
        let stream = match source {
            Source::Exchange(stream) => Some(stream),
            Source::Listen | Source::Wire => None,
        };
        let asked = self.asked.answered(id, stream)?;
        self.linger(asked.stream);
        if asked.what == What::Initialize {
            self.session.phase = Phase::Free;
        }
        Some(asked)
    }

    /// What the client gets of an answer.
    fn settled(&mut self, source: Source, answer: Message) -> Option<Message> {
        let Some(asked) = answer.id_key().and_then(|id| self.answered(source, &id)) else {
            return Some(answer);
        };
        match asked.what {
            What::Initialize => {
                self.session.agreed(&answer);
                Some(answer)
            }
            What::Renewal => {
                self.renewed(&answer);
                None
            }
            What::Refresh => {
                self.refreshed(&answer);
                None
            }
            What::Tools => Some(self.learned(answer)),
            What::Other => Some(answer),
        }
    }

    /// What a list of tools teaches; the answer without tools that no HTTP client may offer.
    fn learned(&mut self, answer: Message) -> Message {
        let left = answer.result().and_then(|result| self.params.learn(&result));
        match (left, answer.result_range()) {
            (Some(left), Some(range)) => {
                let text = Payload::splice(answer.raw(), range, left).to_bytes();
                Message::parse(text)
            }
            _ => answer,
        }
    }

    /// A request gets an error of ours.
    fn refuse(&mut self, asked: &Asked, why: &str, status: Option<u16>) {
        self.error(asked, own_error(&asked.id, why, status), why);
    }

    /// A request gets this error; `why` for requests of ours.
    fn error(&mut self, asked: &Asked, error: Bytes, why: &str) {
        match asked.what {
            What::Renewal => return self.renewal_failed(why),
            What::Refresh => return self.refresh_failed(),
            What::Initialize => self.session.phase = Phase::Free,
            What::Tools | What::Other => {}
        }
        let origin = match self.wire {
            Some(_) => Origin::Shared,
            None => Origin::Stream(asked.stream),
        };
        self.ready.push_back(FromServer::Message(origin, Message::parse(error)));
    }

    /// All requests of a POST get an error.
    fn refuse_all(&mut self, stream: StreamId, why: &str, status: Option<u16>) {
        for asked in self.asked.take(stream) {
            self.refuse(&asked, why, status);
        }
    }

    /// Nothing more is read of this, whatever it was saying.
    fn silenced(&mut self, source: Source) {
        if self.midway.as_ref().is_some_and(|(midway, _)| *midway == source) {
            self.midway = None;
            self.ready.push_back(FromServer::End(source.origin(), false));
        }
    }

    /// Whether a client's request is given up without a word: what a cancel does in 2026-07-28, and
    /// what it does to a request that was never sent.
    fn gives_up(&mut self, cancel: &Message) -> bool {
        let params = cancel.params().unwrap_or_default();
        let id = json::member(&params, "requestId");
        let Some(id) = id.as_ref().and_then(Key::read) else { return false };
        let is_it = |out: &Outgoing| {
            out.message.kind() == Kind::Request && out.message.id_key().as_ref() == Some(&id)
        };
        if let Some(at) = self.queue.iter().position(is_it) {
            self.queue.remove(at);
            return true;
        }
        if let Some(at) = self.refresh.waiting.iter().position(|(out, _)| is_it(out)) {
            self.refresh.waiting.remove(at);
            return true;
        }
        let Some(stream) = self.asked.find(&id) else { return self.session.begun.is_none() };
        let modern = self.exchanges.get(&stream).is_some_and(|exchange| exchange.out.modern);
        if modern {
            // Closing its stream cancels it (rule B-02).
            self.asked.take(stream);
            self.drop_exchange(stream);
        } else {
            // It needs no answer any more.
            self.asked.answered(&id, Some(stream));
            self.linger(stream);
        }
        modern
    }

    fn queued_bytes(&self) -> usize {
        self.queue.iter().map(|out| out.message.raw().len()).sum()
    }

    /// The server is told that its session is over, if it has one.
    fn farewell(&self) -> Option<Sending> {
        let target = self.upstream.endpoint.as_ref().filter(|_| self.wire.is_none())?;
        self.session.id.as_ref()?;
        let own = self.session.headers();
        let uri = target.uri(None);
        let body = RequestBody::empty();
        let said = &self.session.said;
        let request = self.upstream.request(target, uri, Method::DELETE, said, own, body).ok()?;
        Some(exchange::sending(target, request))
    }
}

impl Server for HttpUpstream {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        if self.ready.is_empty() {
            self.drive(cx, true);
        }
        self.ready.pop_front().map_or(Poll::Pending, Poll::Ready)
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        self.ready.pop_front()
    }

    fn send(&mut self, message: &Message, payload: Payload, headers: &Headers) -> Option<StreamId> {
        let text = payload.to_bytes();
        let message = if text == *message.raw() { message.clone() } else { Message::parse(text) };
        if message.method().is_some_and(|method| method == CANCELLED) && self.gives_up(&message) {
            return None;
        }
        if self.wire.is_some() && message.method().is_some_and(|method| method == DISCOVER) {
            // HTTP+SSE is older than the question, and its servers may never answer.
            if let Some(id) = message.id().filter(|_| message.kind() == Kind::Request) {
                let why = "the server speaks HTTP+SSE of 2024-11-05";
                let error = Message::parse(error_answer(&id, METHOD_NOT_FOUND, why, None));
                self.ready.push_back(FromServer::Message(Origin::Shared, error));
            }
            return None;
        }
        let stream = self.next_stream();
        let out = Outgoing::new(message, headers.clone(), stream);
        let asks = out.asks();
        self.queue.push_back(out);
        self.pump();
        (asks && self.wire.is_none()).then_some(stream)
    }

    fn send_start(&mut self, piece: Bytes, headers: &Headers) {
        self.collecting = Some((BytesMut::new(), Scan::default(), headers.clone()));
        self.send_piece(piece);
    }

    fn send_piece(&mut self, piece: Bytes) {
        if let Some((text, scan, _)) = &mut self.collecting {
            scan.feed(&piece);
            // What is too long is only read for its id.
            if text.len() <= self.upstream.message_max {
                text.extend_from_slice(&piece);
            }
        }
    }

    fn send_end(&mut self) {
        let Some((text, scan, headers)) = self.collecting.take() else { return };
        let message = Message::parse(text.freeze());
        if message.raw().len() <= self.upstream.message_max {
            self.send(&message, Payload::of(&message), &headers);
            return;
        }
        let why = format!("the message is longer than {} bytes", self.upstream.message_max);
        tracing::warn!(why, "a message of the client is not sent");
        if let Some(id) = scan.id().filter(|_| scan.kind() == Kind::Request) {
            let error = Message::parse(own_error(&id.to_json(), &why, Some(413)));
            self.ready.push_back(FromServer::Message(Origin::Shared, error));
        }
    }

    fn send_raw(&mut self, _: Bytes) {}

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.drive(cx, false);
        if self.is_writing() { Poll::Pending } else { Poll::Ready(true) }
    }

    fn is_writing(&self) -> bool {
        let has_no_head = |exchange: &Exchange| matches!(exchange.state, State::Head(_));
        !self.queue.is_empty() || self.exchanges.values().any(has_no_head)
    }

    fn is_behind(&self) -> bool {
        self.queue.len() >= QUEUED_MAX || self.queued_bytes() >= QUEUE_MAX
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.closing.is_none() {
            self.stop();
            let Some(farewell) = self.farewell() else { return Poll::Ready(()) };
            let patience = sleep_until(Instant::now() + CLOSE_WAIT);
            self.closing = Some((farewell, Box::pin(patience)));
        }
        let Some((farewell, patience)) = &mut self.closing else { return Poll::Ready(()) };
        // A server that keeps its sessions says 405, and that is fine.
        if farewell.as_mut().poll(cx).is_pending() && patience.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.closing = None;
        Poll::Ready(())
    }

    fn stop(&mut self) {
        self.queue.clear();
        self.collecting = None;
        self.exchanges.clear();
        self.asked.take_all();
        self.listen = Listen::default();
        self.wire = self.wire.take().map(|_| Wire::default());
        self.refresh = Refresh::default();
        self.ready.clear();
        self.midway = None;
    }
}
