//! Holds a call that repeats an open call back for a moment, because some clients send the cancellation of a call only
//! after the call that repeats it.

use std::time::Instant;

use crate::progress::correlate::signature::Signature;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::late::held::{HeldCall, HeldCalls};
use crate::progress::event::summary::Outcome;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, Principal, StreamId};
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp;

impl HeldCalls {
    /// Opens the held calls without sending them to the server, so that they end together with the other open calls.
    pub(crate) fn enter_all(&mut self, gate: &mut Gate, now: Instant) {
        while let Some(held) = self.take_first() {
            enter_unsent(gate, now, held);
        }
    }

    /// Cancels a call that waits. Returns false if no call with this id waits.
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

    /// Cancels the waiting calls that came on this stream.
    pub(crate) fn cancel_on(&mut self, gate: &mut Gate, now: Instant, stream: StreamId) {
        while let Some(held) = self.take(|call| call.stream == stream) {
            drop_held(gate, now, held);
        }
    }

    /// Removes and returns the oldest waiting call of this principal for the same work.
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

fn drop_held(gate: &mut Gate, now: Instant, held: HeldCall) {
    if let Some(id) = enter_unsent(gate, now, held) {
        gate.end_call(now, id, Tombstone::Cancelled, Outcome::Cancelled);
    }
}

/// Opens a call that is not sent to the server.
fn enter_unsent(gate: &mut Gate, now: Instant, held: HeldCall) -> Option<CallId> {
    let HeldCall { stream, mut draft, tool, .. } = held;
    if gate.calls.streams.topology.has_strangers() {
        // If clients share the server, the client's own names could mean another client's requests there.
        draft.id.server = gate.calls.give_name();
        draft.token = None;
    }
    gate.enter(now, stream, (mcp::TOOLS_CALL, tool), draft)
}
