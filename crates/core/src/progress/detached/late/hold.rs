//! A call that repeats an open call waits briefly: some clients send the cancellation of a call after the call that
//! repeats it.

use std::time::{Duration, Instant};

use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::signature::Signature;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::late::held::{HeldCall, HeldCalls};
use crate::progress::event::summary::Outcome;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, Principal, StreamId};
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp;

/// The age of an open call below which no clock of a client is about to run out. The same call goes to the server
/// at once then: the client wants the work twice.
const REPEATED_AGE_MIN: Duration = Duration::from_secs(5);

impl HeldCalls {
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
            || draft.signature.as_deref().is_some_and(|what| is_open(gate, now, who, what));
        if !self.has_room(message) || !is_repeated() {
            return Some(draft);
        }
        self.hold(now, stream, message, (tool, draft));
        None
    }

    /// Opens the held calls without sending them to the server, so that they end with the other
    /// calls.
    pub(crate) fn enter_all(&mut self, gate: &mut Gate, now: Instant) {
        while let Some(held) = self.take_first() {
            enter_unsent(gate, now, held);
        }
    }

    /// Cancels a call that waits. False if no call with this id does.
    pub(crate) fn cancel(
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
        let Some(held) = self.take(is_meant) else { return false };
        drop_held(gate, now, held);
        true
    }

    /// Cancels the calls that wait and came on this stream.
    pub(crate) fn cancel_on(&mut self, gate: &mut Gate, now: Instant, stream: StreamId) {
        while let Some(held) = self.take(|call| call.stream == stream) {
            drop_held(gate, now, held);
        }
    }

    /// Takes the oldest call of this principal for the same work.
    pub(crate) fn take_same(
        &mut self,
        gate: &Gate,
        who: Principal,
        what: &Signature,
    ) -> Option<HeldCall> {
        self.take(|call| {
            call.draft.signature.as_deref() == Some(what)
                && gate.calls.streams.late_principal(call.stream) == who
        })
    }
}

/// Whether a call for this work is open, and so old that its client's clock may have run out. With
/// `repeated_after` no cancellation is expected.
fn is_open(gate: &Gate, now: Instant, who: Principal, what: &Signature) -> bool {
    gate.calls.open.iter().any(|(_, call)| {
        now >= call.opened + REPEATED_AGE_MIN
            && call.signature.as_deref() == Some(what)
            && call.task.is_none()
            && !call.shadow
            && call.settings().late.repeated_after.is_none()
            && gate.calls.streams.late_principal(call.stream) == who
    })
}

fn drop_held(gate: &mut Gate, now: Instant, held: HeldCall) {
    if let Some(id) = enter_unsent(gate, now, held) {
        gate.end_call(now, id, Tombstone::Cancelled, Outcome::Cancelled);
    }
}

/// Opens a call that the server is not sent.
fn enter_unsent(gate: &mut Gate, now: Instant, held: HeldCall) -> Option<CallId> {
    let HeldCall { stream, mut draft, tool, .. } = held;
    if gate.calls.streams.topology.has_strangers() {
        // On a shared server the client's own names may be the names of another client's
        // requests.
        draft.id.server = gate.calls.give_name();
        draft.token = None;
    }
    gate.enter(now, stream, (mcp::TOOLS_CALL, tool), draft)
}
