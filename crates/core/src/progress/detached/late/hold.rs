//! A call that repeats an open call waits for a moment: some clients send the cancellation of a call after the
//! call that repeats the cancelled one.

use std::time::{Duration, Instant};

use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::signature::Signature;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::DetachedWork;
use crate::progress::detached::late::held::{HeldCall, ReleasedRequest};
use crate::progress::event::summary::Outcome;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, Principal, StreamId};
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp;

/// The age of an open call below which no clock of a client is about to run out. The same call goes to the server
/// at once then: the client wants the work twice.
const REPEATED_AGE_MIN: Duration = Duration::from_secs(5);

impl DetachedWork {
    /// Lets a call wait if its client seems to have given an open call for the same work up. Returns the draft of
    /// a call that does not wait.
    pub(crate) fn hold_repeated(
        &mut self,
        gate: &Gate,
        now: Instant,
        stream: StreamId,
        message: &Message,
        tool: Option<&str>,
        draft: CallDraft,
    ) -> Option<CallDraft> {
        let who = gate.calls.streams.late_principal(stream);
        let is_repeated =
            || draft.signature.as_deref().is_some_and(|what| self.is_open(gate, now, who, what));
        let has_room = self.late.as_ref().is_some_and(|late| late.held.has_room(message));
        if self.in_batch || !has_room || !is_repeated() {
            return Some(draft);
        }
        let Some(late) = &mut self.late else { return Some(draft) };
        late.held.hold(now, stream, message, (tool, draft));
        None
    }

    /// Whether a call for this work is open, and so old that its client's clock may have run out. With
    /// `repeated_after` no cancellation is expected.
    fn is_open(&self, gate: &Gate, now: Instant, who: Principal, what: &Signature) -> bool {
        gate.calls.open.iter().any(|(_, call)| {
            now >= call.opened + REPEATED_AGE_MIN
                && call.signature.as_deref() == Some(what)
                && call.task.is_none()
                && !call.shadow
                && call.settings().late.repeated_after.is_none()
                && gate.calls.streams.late_principal(call.stream) == who
        })
    }

    /// Sends the held calls to the server that have waited for their whole time.
    pub(crate) fn release_due(&mut self, gate: &mut Gate, now: Instant) {
        while let Some(held) = self.late.as_mut().and_then(|late| late.held.take_due(now)) {
            self.release(gate, now, held);
        }
    }

    /// Sends every held call to the server, because the client sends nothing more.
    pub(crate) fn release_all(&mut self, gate: &mut Gate, now: Instant) {
        while let Some(held) = self.late.as_mut().and_then(|late| late.held.take_first()) {
            self.release(gate, now, held);
        }
    }

    fn release(&mut self, gate: &mut Gate, now: Instant, held: HeldCall) {
        let HeldCall { stream, message, draft, tool, .. } = held;
        self.move_on(gate, now, gate.calls.streams.late_principal(stream));
        let payload = self.enter_sent(gate, now, stream, &message, (mcp::TOOLS_CALL, tool), draft);
        if !payload.is_empty()
            && let Some(late) = &mut self.late
        {
            late.held.released.push_back(ReleasedRequest { stream, message, payload });
        }
    }

    /// Opens the held calls without sending them to the server, so that they end with the other
    /// calls.
    pub(crate) fn enter_held(&mut self, gate: &mut Gate, now: Instant) {
        while let Some(held) = self.late.as_mut().and_then(|late| late.held.take_first()) {
            self.enter_unsent(gate, now, held);
        }
    }

    /// Cancels a call that waits. False if no call with this id does.
    pub(crate) fn cancel_held(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        id: &Key,
    ) -> bool {
        let who = gate.calls.streams.late_principal(stream);
        let is_meant = |call: &HeldCall| {
            call.is_named(id) && gate.calls.streams.late_principal(call.stream) == who
        };
        let Some(held) = self.take_held(is_meant) else { return false };
        self.drop_held(gate, now, held);
        true
    }

    /// Cancels the calls that wait and came on this stream.
    pub(crate) fn cancel_held_on(&mut self, gate: &mut Gate, now: Instant, stream: StreamId) {
        while let Some(held) = self.take_held(|call| call.stream == stream) {
            self.drop_held(gate, now, held);
        }
    }

    /// Takes the oldest held call for which `is_meant` is true.
    fn take_held(&mut self, is_meant: impl Fn(&HeldCall) -> bool) -> Option<HeldCall> {
        let held = &mut self.late.as_mut()?.held;
        held.place_of(is_meant).and_then(|place| held.take_at(place))
    }

    fn drop_held(&self, gate: &mut Gate, now: Instant, held: HeldCall) {
        if let Some(id) = self.enter_unsent(gate, now, held) {
            gate.end_call(now, id, Tombstone::Cancelled, Outcome::Cancelled);
        }
    }

    /// Opens a call that the server is not sent.
    fn enter_unsent(&self, gate: &mut Gate, now: Instant, held: HeldCall) -> Option<CallId> {
        let HeldCall { stream, mut draft, tool, .. } = held;
        if gate.calls.streams.topology.has_strangers() {
            // On a shared server the client's own names may be the names of another client's
            // requests.
            draft.id.server = gate.calls.give_name();
            draft.token = None;
        }
        self.enter(gate, now, stream, mcp::TOOLS_CALL, tool, draft)
    }

    /// Whether the request with this id that came on this stream waits, and may go to the server later
    /// ([`Filter::poll_released`](crate::progress::Filter::poll_released)).
    pub fn is_held(&self, stream: StreamId, id: &Key) -> bool {
        self.late.as_ref().is_some_and(|late| late.held.has(stream, id))
    }

    /// The next request that has waited and goes to the server now.
    pub fn poll_released(&mut self) -> Option<ReleasedRequest> {
        self.late.as_mut()?.held.released.pop_front()
    }

    /// Lets a held call join the same work, which goes on without its client.
    pub(crate) fn join_held(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        who: Principal,
        what: &Signature,
    ) {
        let is_meant = |call: &HeldCall| {
            call.draft.signature.as_deref() == Some(what)
                && gate.calls.streams.late_principal(call.stream) == who
        };
        let Some(HeldCall { stream, draft, .. }) = self.take_held(is_meant) else { return };
        if let Some(work) = self.late.as_mut().and_then(|late| late.take_same(who, what)) {
            self.rejoin(gate, now, stream, work, draft);
        }
    }
}
