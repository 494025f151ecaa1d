//! Arriving messages, and the part that takes each. Work that goes on without its client is asked
//! first where there is such work; otherwise no message meets it.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::draft::CallDraft;
use crate::progress::detached::DetachedWork;
use crate::progress::event::Origin;
use crate::progress::gate::state::Gate;
use crate::progress::ids::StreamId;
use crate::progress::payload::Payload;
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp;

impl DetachedWork {
    /// Takes a request of a client, and returns the message for the server. The request may be about tasks of
    /// Milepost's own, or for work that goes on already.
    pub(crate) fn enter_request(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        message: &Message,
        (method, tool): (&str, Option<String>),
        mut draft: CallDraft,
    ) -> Payload {
        // First, because a call that asks for a task becomes one, and joins no other work.
        if self.offers_tasks() && self.is_for_tasks(method, message) {
            return self.task_request(gate, now, stream, message, (method, tool), draft);
        }
        if self.late.is_some() && method == mcp::TOOLS_CALL {
            let joined = self.join_late(gate, now, stream, message, tool.as_deref(), draft);
            let Some(other) = joined else { return Payload::default() };
            draft = other;
        }
        self.enter_sent(gate, now, stream, message, (method, tool), draft)
    }

    /// Ends the work that waits for a server that has ended. Calls that are held back are opened,
    /// so that they end with the other open calls.
    pub(crate) fn server_gone(&mut self, gate: &mut Gate, now: Instant, why: &str) {
        if self.late.is_some() {
            self.drop_late_calls(gate, now);
        }
        if self.tasks.is_some() {
            self.fail_tasks(gate, now, why);
        }
        if self.late.is_some() {
            // The caller ends all open calls with an error afterwards, and these with them.
            self.enter_held(gate, now);
        }
    }

    /// Learns from `initialize` who the client is.
    pub(crate) fn learn_client(&mut self, gate: &Gate, params: &Bytes) {
        if self.tasks.is_some() {
            self.note_task_client(gate, params);
        }
    }

    /// Takes an answer of the server to the work that waits for it, or to the open call.
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
        // In this order, because an answer to work without a client fits no open request, and would
        // be judged as an orphan.
        self.late.is_some() && self.take_late_answer(gate, now, message, number)
            || self.tasks.is_some() && self.take_task_answer(gate, now, message, (number, done))
            || self.keep_orphan(gate, origin, message, number, done)
    }

    /// Forwards a request of the server. A request about a task of Milepost's own gets the name of
    /// the task, and goes to the stream on which its client waits.
    pub(crate) fn server_request(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        origin: Origin,
        message: &Message,
        number: u64,
        mut done: Repairs,
    ) {
        let mut placed = gate.calls.destination_of(origin, message);
        let mut about = gate.calls.open.sole_call_on(origin, &gate.calls.streams);
        if self.tasks.is_some()
            && let Some((call, place)) = self.place_task_question(gate, now, origin, message)
        {
            (placed, about) = (Ok(place), Some(call));
            done.add(Repair::Task);
        }
        let has_strangers = gate.calls.streams.topology.has_strangers();
        match &placed {
            Ok((Some(on), _)) if has_strangers => {
                gate.note_question(now, origin, message, Some(*on));
            }
            Ok(_) if !has_strangers => gate.note_question(now, origin, message, None),
            _ => {}
        }
        gate.calls.forward(placed, (number, about), message, done);
    }

    /// Notes that the client has answered a request of the server: the call or the task that the
    /// request was about goes on.
    pub(crate) fn note_client_answer(&mut self, gate: &mut Gate, now: Instant, message: &Message) {
        if let Some(id) = message.id_key().filter(|_| !gate.asked.is_empty()) {
            gate.end_question(now, &id);
        }
        if let Some(tasks) = self.tasks.as_mut().filter(|tasks| tasks.is_offered)
            && let Some(id) = message.id_key()
        {
            tasks.note_client_answer(&id, now);
        }
    }
}
