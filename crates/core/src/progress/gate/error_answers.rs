//! Error answers of Milepost's own, for a server that did not answer or was not asked.

use std::time::Instant;

use smallvec::{SmallVec, smallvec};

use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::summary::Outcome;
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::payload::{Payload, TransmitKind};
use crate::progress::streams::stream::{Item, ItemKind};
use crate::protocol::jsonrpc::{Key, own_error};

impl Gate {
    /// Answers a call in the server's place with an error.
    pub(crate) fn answer_with_error(
        &mut self,
        now: Instant,
        id: CallId,
        why: &str,
        status: Option<u16>,
        outcome: Outcome,
    ) {
        let Some(call) = self.calls.open.get(id) else { return };
        let (stream, client_id) = (call.stream, call.id.client.clone());
        // Before the call ends, because the guard is read from the call.
        let guards = smallvec![self.calls.open.guard_of(id, &self.calls.streams)];
        self.end_call(now, id, Tombstone::Cancelled, outcome);
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(Key::read(&client_id))),
            payload: Payload::own(own_error(&client_id, why, status)),
            guards,
            verdicts: SmallVec::new(),
        };
        self.calls.enqueue_own(stream, item);
    }
}
