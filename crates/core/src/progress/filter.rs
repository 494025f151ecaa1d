//! The filter: the progress of one upstream connection and of all clients that share it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::progress::clients::Client;
use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::late::LateEvent;
use crate::progress::event::queue::{EventQueue, VerdictRun};
use crate::progress::event::summary::Outcome;
use crate::progress::event::{FilterEvent, Origin, Salvaged};
use crate::progress::gate::stream::{Item, Stream, StreamKind};
use crate::progress::gate::streams::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::state::Intake;
use crate::progress::late::calls::LateCalls;
use crate::progress::log_request::LogRequest;
use crate::progress::payload::Payload;
use crate::progress::policy::policies::Policies;
use crate::progress::policy::{Policy, StreamPacing};
use crate::progress::tasks::table::TaskTable;
use crate::progress::topology::Topology;
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::mcp::Revision;

/// The progress of one upstream connection and of all clients that share it. Sans-IO.
#[derive(Debug)]
pub struct Filter {
    pub(super) policy: Policies,
    pub(super) topology: Topology,
    pub(super) correlator: Correlator,
    pub(super) gate: Gate,
    pub(super) intake: Intake,
    pub(super) revision: Option<Revision>,
    /// The client, if `initialize` named it.
    pub(super) client: Option<Arc<Client>>,
    pub(super) log_request: LogRequest,
    pub(super) late: LateCalls,
    pub(super) own_tasks: TaskTable,
    /// Bytes that may be kept in memory besides those that are kept now; the largest number stands for any.
    pub(super) kept_room: u32,
    pub(super) to_server: VecDeque<Payload>,
    pub(super) events: EventQueue,
}

impl Filter {
    /// A filter without streams.
    pub fn new(policy: impl Into<Arc<Policy>>) -> Self {
        let policy = policy.into();
        Self {
            topology: Topology::new(policy.id_mapping),
            correlator: Correlator::new(&policy),
            gate: Gate::new(),
            intake: Intake::default(),
            revision: None,
            client: None,
            log_request: LogRequest::default(),
            late: LateCalls::default(),
            own_tasks: TaskTable::default(),
            kept_room: u32::MAX,
            to_server: VecDeque::new(),
            events: EventQueue::default(),
            policy: Policies::new(policy),
        }
    }

    /// Adds a client stream. The first shared stream also carries messages of no request.
    pub fn open_stream(&mut self, id: StreamId, kind: StreamKind, pacing: StreamPacing) {
        match kind {
            StreamKind::Shared => drop(self.gate.session_stream.get_or_insert(id)),
            StreamKind::Exchange => self.topology.open_exchange(),
        }
        self.gate.streams.insert(id, Box::new(Stream::new(kind, pacing)));
    }

    /// Sets the principal of a client stream: streams of one principal may see each other's
    /// messages. A stream without a principal counts as a client of its own.
    pub fn set_principal(&mut self, id: StreamId, principal: u64) {
        if let Some(stream) = self.gate.streams.get_mut(&id) {
            stream.principal = Some(principal);
        }
    }

    /// Ends a client stream. Its open calls stay, because the client may resume. With `cancels` the
    /// calls are cancelled at the server too, as in 2026-07-28. Where no stream is left on which
    /// the client could resume, the open calls have their record at once.
    pub fn close_stream(&mut self, now: Instant, id: StreamId, cancels: bool) {
        if cancels {
            self.cancel_held_on(now, id);
            for call in self.correlator.calls_on(id) {
                // A client's clock and a person look alike here.
                if self.keep_late(now, call, LateEvent::Kept) {
                    continue;
                }
                self.send_cancelled(call, "the client closed its stream");
                self.end_call(now, call, Tombstone::Cancelled, Outcome::Cancelled);
            }
        }
        if self.gate.session_stream == Some(id) {
            self.gate.session_stream = None;
        }
        if let Some(stream) = self.gate.streams.remove(&id) {
            for judged in stream.queue.into_iter().flat_map(|item| item.verdicts) {
                self.record(judged.number, judged.call, Verdict::Withheld(Reason::Gone));
            }
        }
        for task in self.correlator.calls_on(id) {
            self.rebind_stream(Origin::Shared, task);
        }
        if self.gate.streams.is_empty() && !self.topology.keeps_shadows() {
            self.leave_open_calls(now);
        }
    }

    /// Ends the open calls of a client that has left. Tasks go on: their requests have an answer.
    fn leave_open_calls(&mut self, now: Instant) {
        self.enter_held(now);
        let open = self.correlator.ledger.iter().filter(|(_, call)| call.task.is_none());
        let open: Vec<CallId> = open.map(|(id, _)| id).collect();
        for id in open {
            self.end_call(now, id, Tombstone::Answered, Outcome::ClientLeft);
        }
    }

    /// Handles the end of the upstream. Each open call gets an error with the reason `why`, and no
    /// message waits for a guard any more.
    pub fn server_gone(&mut self, now: Instant, why: &str) {
        self.fail_calls(now, why, None);
    }

    /// Ends every open call as [`Filter::server_gone`] does, where the server answered with an HTTP status.
    pub fn fail_calls(&mut self, now: Instant, why: &str, status: Option<u16>) {
        self.gate.alive = false;
        self.break_off_large(now, why, status);
        self.drop_late_calls(now);
        self.fail_tasks(now, why);
        self.enter_held(now);
        let open: Vec<CallId> = self.correlator.ledger.iter().map(|(id, _)| id).collect();
        if self.gate.client_left {
            self.leave_open_calls(now);
        }
        for id in open {
            if self.correlator.ledger.get(id).is_some_and(|call| call.task.is_none()) {
                self.answer_with_error(now, id, why, status, Outcome::ServerGone);
            } else {
                self.end_call(now, id, Tombstone::Answered, Outcome::ServerGone);
            }
        }
        self.flush();
    }

    /// No heartbeats from now on: the upstream is about to end.
    pub fn stop_heartbeats(&mut self) {
        self.gate.alive = false;
    }

    /// Notes that the clients send nothing more and are about to leave. The clients still get the
    /// server's messages, but no messages of Milepost's own: the Python SDK fails on them while it
    /// closes.
    pub fn close_clients(&mut self, now: Instant) {
        self.release_all(now);
        self.stop_heartbeats();
        self.gate.client_left = true;
    }

    /// Lets everything go out without waiting for a guard: the connection is about to end.
    pub fn flush(&mut self) {
        for item in self.gate.streams.iter_mut().flat_map(|(_, stream)| &mut stream.queue) {
            item.guards.clear();
        }
    }

    /// Whether so many bytes wait on a stream that the server should not be read.
    pub fn is_full(&self) -> bool {
        self.gate.streams.full().next().is_some()
    }

    /// The streams on which so much waits that the server should not be read from.
    pub fn full_streams(&self) -> Vec<StreamId> {
        self.gate.streams.full().collect()
    }

    /// From now on the filter notes which client streams change: see [`Filter::next_changed`].
    pub fn note_changes(&mut self) {
        self.gate.streams.note_changes();
    }

    /// A client stream that may have something to write, another [`Filter::stream_due`], or no requests any more
    /// ([`Filter::is_over`]) since the shell last looked at the stream.
    pub fn next_changed(&mut self) -> Option<StreamId> {
        self.gate.streams.next_changed()
    }

    /// The shell has looked at a stream, and has taken all that could be written.
    pub fn settle_changes(&mut self, stream: StreamId) {
        self.gate.streams.settle(stream);
    }

    /// The time at which a stream may have something to write, if nothing happens before.
    pub fn stream_due(&self, stream: StreamId) -> Option<Instant> {
        self.gate.streams.get(&stream).and_then(|stream| stream.timeout())
    }

    /// The time at which the next request ends by itself.
    pub fn next_expiry(&self) -> Option<Instant> {
        let expiry = self.correlator.ledger.next_expiry().map(|(at, _)| at);
        // Most filters have neither, and are asked several times for each event.
        if self.late.is_empty() && self.own_tasks.is_empty() {
            return expiry;
        }
        [expiry, self.late.next_due(), self.own_tasks.next_due()].into_iter().flatten().min()
    }

    /// Whether no bytes wait for a client.
    pub fn is_drained(&self) -> bool {
        self.gate.is_drained()
    }

    /// Whether a stream has neither an open request nor waiting bytes.
    pub fn is_over(&self, stream: StreamId) -> bool {
        !self.has_calls_on(stream)
            && self
                .gate
                .streams
                .get(&stream)
                .is_none_or(|stream| stream.queue.is_empty() && stream.observed.is_empty())
            && self.intake.large_messages.values().all(|passing| passing.stream != Some(stream))
    }

    /// Requests that are not answered yet.
    pub fn open_calls(&self) -> usize {
        let answering = self.intake.answering();
        let open = self.correlator.ledger.iter().filter(|(_, call)| call.task.is_none());
        open.count() + self.late.held.len() + answering
    }

    /// Whether every request of the clients has been answered, and the answers have been written.
    pub fn has_answered_all(&self) -> bool {
        !self.correlator.ledger.overflowed && self.open_calls() == 0 && self.is_drained()
    }

    /// The next message of Milepost's own for the server.
    pub fn poll_to_server(&mut self) -> Option<Payload> {
        self.to_server.pop_front()
    }

    /// The number of server messages so far. Messages are numbered from 1 in the order of arrival.
    pub fn messages(&self) -> u64 {
        self.intake.messages
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<FilterEvent> {
        self.events.pop_front()
    }

    /// Whether an event waits.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next events at once, if they are the same verdict on messages that followed each other.
    pub fn poll_verdicts(&mut self) -> Option<VerdictRun> {
        self.events.take_run()
    }

    /// After a panic inside: every message that was under way to a client, so that nothing but
    /// progress is lost. The filter is not to be used again.
    pub(crate) fn salvage(&mut self) -> Salvaged {
        let is_observed = self.policy.observes();
        let streams = self.gate.streams.iter_mut();
        let mut streams = streams.map(|(id, stream)| (*id, stream.salvage(is_observed))).collect();
        let large = self.salvage_large(&mut streams);
        Salvaged { streams, large, at_work: self.intake.at_work.take() }
    }

    pub(super) fn record(&mut self, number: u64, call: Option<CallId>, verdict: Verdict) {
        self.events.push_verdict(number, call, verdict);
    }

    /// Whether a client stream has a request without an answer.
    pub fn has_calls_on(&self, stream: StreamId) -> bool {
        let ledger = &self.correlator.ledger;
        let is_open = |id: &CallId| ledger.get(*id).is_some_and(|call| call.task.is_none());
        ledger.on_stream(stream).iter().any(is_open) || self.late.held.is_on(stream)
    }

    /// Puts a message on a client stream, or on the session stream if that one has closed.
    pub(super) fn enqueue(&mut self, stream: Option<StreamId>, mut item: Item) {
        item.order = self.gate.next_order();
        let open = self.open_or_session_stream(stream);
        match open.and_then(|id| self.gate.streams.get_mut(&id)) {
            Some(stream) => stream.push(item),
            None => {
                for judged in item.verdicts {
                    self.record(judged.number, judged.call, Verdict::Withheld(Reason::Gone));
                }
            }
        }
    }
}
