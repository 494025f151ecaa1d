//! The filter handles the progress of one server connection and of all clients that share it.

use std::sync::Arc;
use std::time::Instant;

use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::late::held::ReleasedRequest;
use crate::progress::detached::{DetachedWork, clock};
use crate::progress::event::late::LateEvent;
use crate::progress::event::summary::Outcome;
use crate::progress::event::{Disposition, FilterEvent, Origin, Salvaged};
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::state::Intake;
use crate::progress::payload::{Payload, Transmit};
use crate::progress::policy::{Policy, StreamPacing};
use crate::progress::streams::stream::{Stream, StreamKind};
use crate::progress::topology::Topology;
use crate::protocol::jsonrpc::Message;

/// Handles the progress of one server connection and of all clients that share it, without I/O. This type only passes
/// each input to the stage that does the work.
#[derive(Debug)]
pub struct Filter {
    pub(super) intake: Intake,
}

impl Filter {
    /// Returns a filter without streams.
    pub fn new(policy: impl Into<Arc<Policy>>) -> Self {
        Self { intake: Intake::new(policy.into()) }
    }

    /// Returns the filter of one request of a session.
    pub fn of_request(policy: impl Into<Arc<Policy>>) -> Self {
        let mut filter = Self::of_lone_request(policy);
        filter.calls_mut().streams.topology = Topology::RequestOfSession;
        filter
    }

    /// Returns the filter of one request without a session, or of several requests in one array.
    pub fn of_lone_request(policy: impl Into<Arc<Policy>>) -> Self {
        let mut filter = Self::new(policy);
        filter.calls_mut().names.strays.expect_no_call();
        filter
    }

    /// Returns the filter of the state that the requests of a session share.
    pub fn of_session(policy: impl Into<Arc<Policy>>) -> Self {
        let mut filter = Self::new(policy);
        filter.calls_mut().streams.topology = Topology::Session { has_requests: false };
        filter
    }

    /// Returns the stage that knows the open requests, the client streams, and the facts about the connection.
    pub fn calls(&self) -> &Correlator {
        &self.intake.gate.calls
    }

    /// Returns the stage of [`Filter::calls`], so that facts from another filter can be added.
    pub fn calls_mut(&mut self) -> &mut Correlator {
        &mut self.intake.gate.calls
    }

    /// Returns the stage that decides when a client gets which value.
    pub fn gate(&self) -> &Gate {
        &self.intake.gate
    }

    /// Returns the stage of [`Filter::gate`], so that calls can be moved between filters.
    pub fn gate_mut(&mut self) -> &mut Gate {
        &mut self.intake.gate
    }

    /// Returns the stage that reads messages.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Returns the stage of [`Filter::intake`], for messages that come in pieces or in another form.
    pub fn intake_mut(&mut self) -> &mut Intake {
        &mut self.intake
    }

    /// Returns the stage with the work that continues without its client.
    pub fn detached(&self) -> &DetachedWork {
        &self.intake.detached
    }

    /// Handles a client's message, and returns the message for the server: the same bytes, unless several clients share
    /// the server. If the result is empty, nothing is sent to the server.
    pub fn client_message(&mut self, now: Instant, stream: StreamId, message: &Message) -> Payload {
        self.intake.client_message(now, stream, message)
    }

    /// Handles a server's message, and returns what the caller has to do with it.
    pub fn server_message(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Disposition {
        self.intake.server_message(now, origin, message)
    }

    /// Returns the next bytes to be written on a stream now. Call again until the result is `None`.
    pub fn poll_transmit(&mut self, now: Instant, id: StreamId) -> Option<Transmit> {
        clock::poll_transmit(&mut self.intake.detached, &mut self.intake.gate, now, id)
    }

    /// Returns the next time at which the filter has to act without an input.
    pub fn poll_timeout(&self) -> Option<Instant> {
        clock::poll_timeout(&self.intake.detached, &self.intake.gate)
    }

    /// Returns the next message that Milepost itself sends to the server.
    pub fn poll_to_server(&mut self) -> Option<Payload> {
        self.intake.gate.calls.to_server.pop()
    }

    /// Returns the next request that was held back and is sent to the server now.
    pub fn poll_released(&mut self) -> Option<ReleasedRequest> {
        self.intake.detached.held_mut()?.released.pop_front()
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<FilterEvent> {
        self.intake.gate.calls.events.pop_front()
    }

    /// Notes that the bytes taken for a stream have been written.
    pub fn written(&mut self, now: Instant, stream: StreamId) {
        self.intake.gate.calls.written(now, stream);
    }

    /// Adds a client stream. The first shared stream also carries messages that belong to no request.
    pub fn open_stream(&mut self, id: StreamId, kind: StreamKind, pacing: StreamPacing) {
        self.intake.gate.calls.streams.open(id, kind, pacing);
    }

    /// Sets the policy of calls that open from now on.
    pub fn set_policy(&mut self, policy: &Arc<Policy>) {
        self.intake.set_policy(policy);
    }

    /// Ends the calls and tasks whose time limits have passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        clock::expire(&mut self.intake.detached, &mut self.intake.gate, now);
    }

    /// Ends a client stream, and cancels its open calls at the server, as MCP 2026-07-28 requires.
    pub fn cancel_stream(&mut self, now: Instant, id: StreamId) {
        let Intake { gate, detached, .. } = &mut self.intake;
        if let Some(held) = detached.held_mut() {
            held.cancel_on(gate, now, id);
        }
        for call in gate.calls.open.on_stream(id).to_vec() {
            // A closed stream does not show whether the client's timer expired or a person cancelled. If late answers
            // are on, the work continues in both cases.
            detached.note_given_up(gate, now, call);
            if detached.keep_late(gate, now, call, LateEvent::Kept) {
                continue;
            }
            gate.calls.send_cancelled(call, "the client closed its stream");
            gate.end_call(now, call, Tombstone::Cancelled, Outcome::Cancelled);
        }
        self.close_stream(now, id);
    }

    /// Ends a client stream. Its open calls stay open, because the client may resume. If no stream is left on which the
    /// client could resume, the records of the open calls are written immediately.
    pub fn close_stream(&mut self, now: Instant, id: StreamId) {
        let gate = &mut self.intake.gate;
        gate.settle_answered_where_left(now, id);
        gate.calls.streams.close(id, &mut gate.calls.events);
        for task in gate.calls.open.on_stream(id).to_vec() {
            gate.rebind_stream(Origin::Shared, task);
        }
        if gate.calls.streams.is_empty() && !gate.calls.streams.topology.keeps_shadows() {
            leave_open_calls(&mut self.intake, now);
        }
    }

    /// Handles the end of the server connection. Each open call gets an error with the reason `why`, and with the HTTP
    /// `status` if the server answered with a status. No message waits for a guard any more.
    pub fn server_gone(&mut self, now: Instant, why: &str, status: Option<u16>) {
        fail_calls(&mut self.intake, now, (why, status), Outcome::ServerGone);
    }

    /// Notes that the clients send nothing more and are about to disconnect. They still get the server's messages, but
    /// none of Milepost's own, because the Python SDK fails on these while it closes.
    pub fn close_clients(&mut self, now: Instant) {
        let Intake { gate, detached, .. } = &mut self.intake;
        if detached.held().is_some() {
            // These calls wait for a cancellation, which can no longer arrive.
            detached.release_all(gate, now);
        }
        gate.stop_heartbeats();
        gate.client_left = true;
    }

    /// Whether a stream has neither an open request nor waiting bytes.
    pub fn is_over(&self, stream: StreamId) -> bool {
        let open = self.intake.gate.calls.streams.get(&stream);
        !self.intake.has_calls_on(stream)
            && open.is_none_or(|stream| stream.is_drained())
            && self.intake.large_messages.values().all(|passing| passing.stream != Some(stream))
    }

    /// Returns the number of unanswered requests.
    pub fn open_calls(&self) -> usize {
        let answering = self.intake.answering();
        let open = self.intake.gate.calls.open.iter().filter(|(_, call)| call.task.is_none());
        open.count() + self.intake.detached.held().map_or(0, |held| held.len()) + answering
    }

    /// Whether every request of the clients has been answered, and the answers have been written.
    pub fn has_answered_all(&self) -> bool {
        !self.intake.gate.calls.open.is_incomplete()
            && self.open_calls() == 0
            && self.intake.gate.calls.streams.is_drained()
    }

    /// Whether every call has ended, and no message or event waits. Then ending the streams would change nothing.
    pub fn is_finished(&self) -> bool {
        let Intake { gate, detached, large_messages, .. } = &self.intake;
        gate.calls.open.is_empty()
            && gate.calls.events.is_empty()
            && gate.orphans.is_none()
            && large_messages.is_empty()
            && detached.tasks.is_none()
            && detached.late.is_none()
            && self.has_answered_all()
    }

    /// Returns, after a panic in the filter, every message that was on its way to a client, so that only progress is
    /// lost. The filter must not be used again.
    pub(crate) fn salvage(&mut self) -> Salvaged {
        let is_observed = self.intake.gate.calls.policy.observes();
        let rest = |stream: &mut Stream| match is_observed {
            true => stream.observed.take().map(|queue| *queue).unwrap_or_default(),
            false => stream.salvage(),
        };
        let streams = self.intake.gate.calls.streams.iter_mut();
        let mut streams = streams.map(|(id, stream)| (*id, rest(stream))).collect();
        let large = self.intake.salvage_large(&mut streams);
        Salvaged { streams, large, at_work: self.intake.at_work.take() }
    }
}

/// Ends the open calls with an error that has the reason `why`, and the HTTP `status` of the server if there is one.
pub(super) fn fail_calls(
    intake: &mut Intake,
    now: Instant,
    (why, status): (&str, Option<u16>),
    outcome: Outcome,
) {
    // First, because no heartbeat may claim that a dead server still works.
    intake.gate.alive = false;
    // Done before the errors are queued, because an error must not be written between the pieces of a message.
    intake.break_off_large(now, why, status);
    let Intake { gate, detached, .. } = intake;
    detached.server_gone(gate, now, why);
    let open: Vec<CallId> = gate.calls.open.iter().map(|(id, _)| id).collect();
    if gate.client_left {
        leave_open_calls(intake, now);
    }
    let gate = &mut intake.gate;
    for id in open {
        if gate.calls.open.get(id).is_some_and(|call| call.task.is_none()) {
            gate.answer_with_error(now, id, why, status, outcome);
        } else {
            gate.end_call(now, id, Tombstone::Answered, outcome);
        }
    }
    gate.calls.streams.flush();
}

/// Ends the open calls of a client that has disconnected. Tasks continue, because their requests are already
/// answered.
fn leave_open_calls(intake: &mut Intake, now: Instant) {
    let Intake { gate, detached, .. } = intake;
    if let Some(held) = detached.held_mut() {
        held.enter_all(gate, now);
    }
    let open = gate.calls.open.iter().filter(|(_, call)| call.task.is_none());
    let open: Vec<CallId> = open.map(|(id, _)| id).collect();
    for id in open {
        gate.end_call(now, id, Tombstone::Answered, Outcome::ClientLeft);
    }
}
