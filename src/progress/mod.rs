//! What progress the clients of one upstream connection are told.
//!
//! A [`Filter`] is fed everything that passes, in both directions, and says what is to be written:
//!
//! ```text
//! client ─> client_message ─────────────────────────────────────────────> payload for the server
//!                │ opens a call
//!             [ledger] <─ correlate ─ Report <─ dialect ─┐
//!                │ pending, due at …                     │
//! client <─ poll_transmit <── stream queue <─ answer <── server_message <─ server
//!              gate: token, figure, words decided here
//! ```
//!
//! The contract: time never goes backwards; after every call, and when [`Filter::poll_timeout`]
//! passes, drain [`Filter::poll_transmit`] for each stream that can take bytes, then
//! [`Filter::poll_to_server`] and [`Filter::poll_record`]; when what was drained is written, say so
//! with [`Filter::written`].
//!
//! No clock, no I/O, no tasks, no logs, no randomness, no unordered iteration in here; no input
//! makes it panic, and nothing but progress is ever withheld when a table is full.

pub mod clients;
mod correlate;
pub mod dialect;
pub mod durations;
pub mod extract;
pub mod gate;
pub mod input;
mod intake;
pub mod policy;
mod verdict;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::clients::Client;
use crate::progress::correlate::ladder::Evidence;
use crate::progress::correlate::ledger::{Ledger, Tomb};
use crate::progress::correlate::session_split;
use crate::progress::gate::stream::{Item, ItemKind, Stream};
use crate::progress::policy::ask::Level;
use crate::progress::policy::policies::Policies;
use crate::protocol::jsonrpc::{Message, Scan};
use crate::protocol::mcp::Revision;

pub use crate::progress::correlate::call::{CallId, CallStats, Opened, Outcome, Summary};
pub use crate::progress::correlate::ledger::CALLS_MAX;
pub use crate::progress::gate::heartbeat::WORDS_MAX;
pub use crate::progress::gate::notification::MESSAGE_MAX;
pub use crate::progress::gate::stream::{
    Form, Fragment, Payload, QUEUE_MAX, StreamId, StreamKind, Transmit,
};
pub use policy::{
    AnswerRepairs, CallPolicy, Coalesce, Heartbeat, HeartbeatValue, Messages, Mode, OnFall, Pacing,
    Policy, Scale, TokenIs,
};
pub use verdict::{Reason, Repair, Repairs, Verdict};

/// Where a message of the server came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The upstream's only wire, or a stream for all requests: it says nothing of the request that a
    /// message belongs to.
    Shared,
    /// The upstream stream that pairs with this client stream, or that was said to pair with requests
    /// ([`Filter::pair`]).
    Stream(StreamId),
}

/// Where a message of the server goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// The filter has it; what the client gets of it comes out of [`Filter::poll_transmit`].
    Consumed,
    /// The text is no message: it belongs on standard error.
    NotAMessage(Bytes),
    /// It speaks of no call of this filter, which is one of several of a session: another may know it.
    /// Nothing has become of it yet ([`Filter::server_message_here`]).
    NotMine,
}

/// What an operator may want to know of what has just happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterEvent {
    /// A message of the server ended in this verdict. Messages are numbered from 1 as they come.
    Message {
        /// Its number.
        number: u64,
        /// The call it was about, if that is known.
        call: Option<CallId>,
        /// What became of it.
        verdict: Verdict,
    },
    /// A request was passed on and waits for its answer.
    Opened(CallId),
    /// The client of a request whose stream has closed is told of it here now, where another filter told it
    /// before.
    TakenOver(CallId),
    /// The client was sent a heartbeat.
    Heartbeat(CallId),
    /// A call has ended.
    Call(Box<Summary>),
}

/// What is left of a filter that has failed: messages and their streams, and what it was at work on.
pub type Salvaged = (Vec<(StreamId, Transmit)>, Option<(Option<StreamId>, Message)>);

/// A large message of the server that is passing.
#[derive(Debug)]
struct LargeMessage {
    number: u64,
    scan: Scan,
    fate: LargeDisposition,
    stream: Option<StreamId>,
    /// The call that it is known to answer.
    call: Option<CallId>,
    /// Whose request that is, and its id: the answer is no answer before its end.
    answers: Option<(StreamId, Bytes)>,
    /// Enough is known: the rest need not be read.
    known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LargeDisposition {
    Forward,
    Withhold(Reason),
    Noise,
}

/// The progress of one upstream connection and of all clients that share it. Sans-IO.
#[derive(Debug)]
pub struct Filter {
    policy: Policies,
    part: session_split::FilterRole,
    ledger: Ledger,
    streams: BTreeMap<StreamId, Box<Stream>>,
    /// Where messages go that belong to no request.
    session_stream: Option<StreamId>,
    revision: Option<Revision>,
    /// Who the client is, if it has said so for all of its requests.
    client: Option<Arc<Client>>,
    /// The last byte of the upstream.
    received_at: Option<Instant>,
    alive: bool,
    /// The clients have said their last word.
    left: bool,
    /// The client reads too slowly.
    client_is_slow: bool,
    token_is: Evidence,
    messages: u64,
    order: u64,
    /// By the upstream stream; without one on a single wire.
    large_messages: BTreeMap<Option<StreamId>, LargeMessage>,
    to_server: VecDeque<Payload>,
    events: VecDeque<FilterEvent>,
    /// What is being worked on, in case that fails.
    at_work: Option<(Option<StreamId>, Message)>,
    /// Messages may belong to different streams, though they come on one wire.
    many: bool,
    /// Requests pair with upstream streams.
    pairs: bool,
    /// When a client has last given up a request.
    given_up_at: Option<Instant>,
    level: Level,
    /// The server may have been given tokens that are strings.
    gives_strings: bool,
}

impl Filter {
    /// A filter without streams.
    pub fn new(policy: impl Into<Arc<Policy>>) -> Self {
        let policy = policy.into();
        Self {
            part: session_split::FilterRole::Whole,
            token_is: Evidence::from_setting(policy.token_is),
            ledger: Ledger::new(policy.remap, policy.renames_tokens()),
            many: policy.remap,
            gives_strings: policy.gives_strings(),
            policy: Policies::new(policy),
            streams: BTreeMap::new(),
            session_stream: None,
            revision: None,
            client: None,
            received_at: None,
            alive: true,
            left: false,
            client_is_slow: false,
            messages: 0,
            order: 0,
            large_messages: BTreeMap::new(),
            to_server: VecDeque::new(),
            events: VecDeque::new(),
            at_work: None,
            pairs: false,
            given_up_at: None,
            level: Level::default(),
        }
    }

    /// Adds a client stream. The first shared one also carries what belongs to no request.
    pub fn open_stream(&mut self, id: StreamId, kind: StreamKind, pacing: Pacing) {
        match kind {
            StreamKind::Shared => drop(self.session_stream.get_or_insert(id)),
            StreamKind::Exchange => self.many = true,
        }
        self.streams.insert(id, Box::new(Stream::new(kind, pacing)));
    }

    /// Ends a client stream. Its open calls stay (the client may come back for the answer);
    /// `cancels` also gives them up, as closing a stream does in 2026-07-28, and tells the server.
    pub fn close_stream(&mut self, now: Instant, id: StreamId, cancels: bool) {
        if cancels {
            for call in self.calls_on(id) {
                self.send_cancelled(call, "the client closed its stream");
                self.end_call(now, call, Tomb::Cancelled, Outcome::Cancelled);
            }
        }
        if self.session_stream == Some(id) {
            self.session_stream = None;
        }
        if let Some(stream) = self.streams.remove(&id) {
            for judged in stream.queue.into_iter().flat_map(|item| item.verdicts) {
                self.record(judged.number, judged.call, Verdict::Withheld(Reason::Gone));
            }
        }
    }

    /// The upstream is gone. Each open call is answered with an error that says `why`, and nothing
    /// waits for a guard any more.
    pub fn server_gone(&mut self, now: Instant, why: &str) {
        self.fail_calls(now, why, None);
    }

    /// The same, where the server answered with an HTTP status instead.
    pub fn fail_calls(&mut self, now: Instant, why: &str, status: Option<u16>) {
        self.alive = false;
        self.break_off_large(now, why, status);
        let open: Vec<CallId> = self.ledger.iter().map(|(id, _)| id).collect();
        for id in open {
            if self.ledger.get(id).is_some_and(|call| call.task.is_none()) && !self.left {
                self.answer_with_error(now, id, why, status, Outcome::ServerGone);
            } else {
                self.end_call(now, id, Tomb::Answered, Outcome::ServerGone);
            }
        }
        self.flush();
    }

    /// No heartbeats from now on: the upstream is about to end.
    pub fn stop_beating(&mut self) {
        self.alive = false;
    }

    /// The clients say nothing more and are about to leave. They get what the server still says, but
    /// nothing of ours: the Python SDK fails on what it reads while it closes.
    pub fn client_left(&mut self) {
        self.stop_beating();
        self.left = true;
    }

    /// Nothing waits for a guard any more: the connection is about to end.
    pub fn flush(&mut self) {
        for item in self.streams.values_mut().flat_map(|stream| &mut stream.queue) {
            item.guards.clear();
        }
    }

    /// Whether so much waits on a stream that the server should not be read from.
    pub fn is_full(&self) -> bool {
        self.streams.values().any(|stream| stream.backlog() >= QUEUE_MAX)
    }

    /// The streams of which that is so.
    pub fn full_streams(&self) -> Vec<StreamId> {
        let full = self.streams.iter().filter(|(_, stream)| stream.backlog() >= QUEUE_MAX);
        full.map(|(id, _)| *id).collect()
    }

    /// Whether nothing waits to be written to a client.
    pub fn is_drained(&self) -> bool {
        let drained = |stream: &Stream| stream.queue.is_empty() && stream.observed.is_empty();
        self.streams.values().all(|stream| drained(stream))
    }

    /// Whether a stream has neither a request that waits for its answer nor anything to be written.
    pub fn is_over(&self, stream: StreamId) -> bool {
        !self.has_calls_on(stream)
            && self
                .streams
                .get(&stream)
                .is_none_or(|stream| stream.queue.is_empty() && stream.observed.is_empty())
            && self.large_messages.values().all(|passing| passing.stream != Some(stream))
    }

    /// Requests that are not answered yet.
    pub fn open_calls(&self) -> usize {
        let answering =
            self.large_messages.values().filter(|passing| passing.answers.is_some()).count();
        self.ledger.iter().filter(|(_, call)| call.task.is_none()).count() + answering
    }

    /// Whether every request of its clients has been answered, and the answers are written.
    pub fn has_answered_all(&self) -> bool {
        !self.ledger.overflowed && self.open_calls() == 0 && self.is_drained()
    }

    /// What is to be written to the server besides what its clients say.
    pub fn poll_to_server(&mut self) -> Option<Payload> {
        self.to_server.pop_front()
    }

    /// How many messages the server has said, which are numbered as they come.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// What has just happened, oldest first.
    pub fn poll_record(&mut self) -> Option<FilterEvent> {
        self.events.pop_front()
    }

    /// After a panic inside: every message that was under way to a client, so that nothing but
    /// progress is lost. The filter is not to be used again.
    pub fn salvage(&mut self) -> Salvaged {
        let observing = self.policy.mode == Mode::Observe;
        let mut left: Vec<(StreamId, Transmit)> = Vec::new();
        for (id, stream) in &mut self.streams {
            left.extend(stream.observed.drain(..).map(|transmit| (*id, transmit)));
            let queue = stream.queue.drain(..).filter(|_| !observing);
            left.extend(queue.map(|item| (*id, transmit(item))));
        }
        (left, self.at_work.take())
    }

    fn record(&mut self, number: u64, call: Option<CallId>, verdict: Verdict) {
        self.events.push_back(FilterEvent::Message { number, call, verdict });
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Whether a request of a client stream is not answered yet.
    pub fn has_calls_on(&self, stream: StreamId) -> bool {
        self.ledger.iter().any(|(_, call)| call.stream == stream && call.task.is_none())
    }

    fn calls_on(&self, stream: StreamId) -> Vec<CallId> {
        self.ledger.iter().filter(|(_, call)| call.stream == stream).map(|(id, _)| id).collect()
    }

    /// Puts a message on a client stream, or on the session stream if that one has closed.
    fn enqueue(&mut self, stream: Option<StreamId>, mut item: Item) {
        item.order = self.next_order();
        let open = self.open_or_session_stream(stream);
        match open.and_then(|id| self.streams.get_mut(&id)) {
            Some(stream) => stream.push(item),
            None => {
                for judged in item.verdicts {
                    self.record(judged.number, judged.call, Verdict::Withheld(Reason::Gone));
                }
            }
        }
    }
}

fn transmit(item: Item) -> Transmit {
    let part = match item.kind {
        ItemKind::Piece { end: true, .. } => Fragment::End,
        ItemKind::Piece { end: false, .. } => Fragment::Piece,
        _ => Fragment::Whole,
    };
    Transmit { payload: item.payload, part }
}
