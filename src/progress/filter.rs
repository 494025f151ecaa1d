//! The filter: the progress of one upstream connection and of all clients that share it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::clients::Client;
use crate::progress::correlate::correlator::Evidence;
use crate::progress::correlate::ledger::{Ledger, Tomb};
use crate::progress::correlate::summary::Outcome;
use crate::progress::event::{FilterEvent, Salvaged};
use crate::progress::gate::stream::{Item, QUEUE_MAX, Stream, StreamKind};
use crate::progress::ids::{CallId, StreamId};
use crate::progress::log_level::Level;
use crate::progress::payload::{Payload, Transmit};
use crate::progress::policy::policies::Policies;
use crate::progress::policy::{Mode, Pacing, Policy};
use crate::progress::topology::Topology;
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::jsonrpc::{Message, Scan};
use crate::protocol::mcp::Revision;

/// A large message of the server that is passing.
#[derive(Debug)]
pub(super) struct LargeMessage {
    pub(super) number: u64,
    pub(super) scan: Scan,
    pub(super) fate: LargeDisposition,
    pub(super) stream: Option<StreamId>,
    /// The call that it is known to answer.
    pub(super) call: Option<CallId>,
    /// Whose request that is, and its id: the answer is no answer before its end.
    pub(super) answers: Option<(StreamId, Bytes)>,
    /// Enough is known: the rest need not be read.
    pub(super) known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LargeDisposition {
    Forward,
    Withhold(Reason),
    Noise,
}

/// The progress of one upstream connection and of all clients that share it. Sans-IO.
#[derive(Debug)]
pub struct Filter {
    pub(super) policy: Policies,
    pub(super) topology: Topology,
    pub(super) ledger: Ledger,
    pub(super) streams: BTreeMap<StreamId, Box<Stream>>,
    /// Where messages go that belong to no request.
    pub(super) session_stream: Option<StreamId>,
    pub(super) revision: Option<Revision>,
    /// Who the client is, if it has said so for all of its requests.
    pub(super) client: Option<Arc<Client>>,
    /// The last byte of the upstream.
    pub(super) received_at: Option<Instant>,
    pub(super) alive: bool,
    /// The clients have said their last word.
    pub(super) left: bool,
    /// The client reads too slowly.
    pub(super) client_is_slow: bool,
    pub(super) token_is: Evidence,
    pub(super) messages: u64,
    pub(super) order: u64,
    /// By the upstream stream; without one on a single wire.
    pub(super) large_messages: BTreeMap<Option<StreamId>, LargeMessage>,
    pub(super) to_server: VecDeque<Payload>,
    pub(super) events: VecDeque<FilterEvent>,
    /// What is being worked on, in case that fails.
    pub(super) at_work: Option<(Option<StreamId>, Message)>,
    /// When a client has last given up a request.
    pub(super) given_up_at: Option<Instant>,
    pub(super) level: Level,
    /// The server may have been given tokens that are strings.
    pub(super) gives_strings: bool,
}

impl Filter {
    /// A filter without streams.
    pub fn new(policy: impl Into<Arc<Policy>>) -> Self {
        let policy = policy.into();
        Self {
            topology: Topology::new(policy.remap),
            token_is: Evidence::from_setting(policy.token_is),
            ledger: Ledger::new(policy.remap, policy.renames_tokens()),
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
            given_up_at: None,
            level: Level::default(),
        }
    }

    /// Adds a client stream. The first shared one also carries what belongs to no request.
    pub fn open_stream(&mut self, id: StreamId, kind: StreamKind, pacing: Pacing) {
        match kind {
            StreamKind::Shared => drop(self.session_stream.get_or_insert(id)),
            StreamKind::Exchange => self.topology.open_exchange(),
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
            left.extend(queue.map(|item| (*id, item.into_transmit())));
        }
        (left, self.at_work.take())
    }

    pub(super) fn record(&mut self, number: u64, call: Option<CallId>, verdict: Verdict) {
        self.events.push_back(FilterEvent::Message { number, call, verdict });
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Whether a request of a client stream is not answered yet.
    pub fn has_calls_on(&self, stream: StreamId) -> bool {
        self.ledger.iter().any(|(_, call)| call.stream == stream && call.task.is_none())
    }

    pub(super) fn calls_on(&self, stream: StreamId) -> Vec<CallId> {
        self.ledger.iter().filter(|(_, call)| call.stream == stream).map(|(id, _)| id).collect()
    }

    /// Puts a message on a client stream, or on the session stream if that one has closed.
    pub(super) fn enqueue(&mut self, stream: Option<StreamId>, mut item: Item) {
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
