//! An answer of the server, and who takes it: the work that waits for it, or the open call.

use std::time::Instant;

use crate::progress::detached::DetachedWork;
use crate::progress::event::Origin;
use crate::progress::gate::state::Gate;
use crate::progress::verdict::Repairs;
use crate::protocol::jsonrpc::Message;

impl DetachedWork {
    pub(crate) fn answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        origin: Origin,
        message: &Message,
        number: u64,
        done: Repairs,
    ) {
        if self.takes_answer(gate, now, origin, message, (number, done)) {
            return;
        }
        let judged = self.repair_answer(gate, now, origin, message, done);
        gate.calls.send_answer(judged, number, done);
    }

    /// Takes an answer that no client gets now: to work that goes on without its client, to a task of Milepost's own,
    /// or perhaps to the request of its stream.
    pub(crate) fn takes_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        origin: Origin,
        message: &Message,
        (number, done): (u64, Repairs),
    ) -> bool {
        self.take_late_answer(gate, now, message, number)
            || self.take_task_answer(gate, now, message, (number, done))
            || self.keep_orphan(gate, origin, message, number, done)
    }
}
