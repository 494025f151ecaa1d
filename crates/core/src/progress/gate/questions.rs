//! Requests of the server that the client has to answer before a call continues: elicitation, sampling, roots. While
//! such a question is open, `call_timeout` and `heartbeat.max` are paused, because a person is asked.

use std::time::Instant;

use crate::progress::event::Origin;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::{json, mcp};

/// Pauses the time limits of the calls that a request of the server may be about. `only_on`: the stream of the asked
/// client, if different clients share the server.
pub(crate) fn note_question(
    gate: &mut Gate,
    now: Instant,
    origin: Origin,
    message: &Message,
    only_on: Option<StreamId>,
) {
    let Some(question) = message.id_key() else { return };
    // A client answers `ping` immediately, without asking a person.
    if message.method().as_deref() == Some(mcp::PING) {
        return;
    }
    for id in gate.calls.open.calls_of_question(origin, message, only_on) {
        let Some(call) = gate.calls.open.get_mut(id) else { continue };
        let stopped = call.clock.get_or_insert_default().stop(question.clone(), now);
        gate.asked.insert(id);
        // The longest possible pause is added to the time limit now, and its unused rest is subtracted when the client
        // answers. So no timer has to run while the question is open.
        if let Some(most) = stopped {
            gate.calls.open.put_off(id, |expires| expires + most);
        }
        gate.schedule(id);
    }
}

/// Notes that a question of the server was answered or withdrawn. The time limits of its calls continue.
pub(crate) fn end_question(gate: &mut Gate, now: Instant, question: &Key) {
    let asked: Vec<CallId> = gate.asked.iter().copied().collect();
    for id in asked {
        let call = gate.calls.open.get_mut(id);
        let clock = call.and_then(|call| call.clock.as_mut());
        let Some(rest) = clock.and_then(|clock| clock.go_on(question, now)) else { continue };
        gate.asked.remove(&id);
        gate.calls.open.put_off(id, |expires| expires - rest);
        gate.schedule(id);
    }
}

/// Notes that the server has cancelled one of its own requests.
pub(crate) fn note_withdrawal(gate: &mut Gate, now: Instant, cancelled: &Message) {
    let params = cancelled.params().unwrap_or_default();
    let question = json::member(&params, "requestId").and_then(|id| Key::read(&id));
    if let Some(question) = question {
        end_question(gate, now, &question);
    }
}
