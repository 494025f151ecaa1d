//! Handles the server's answers: finds the call that each answer ends, and makes the repairs that the client needs.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::id_mapping::restored_names;
use crate::progress::correlate::mended_body::mended_body;
use crate::progress::correlate::repaired_answer::RepairedAnswer;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::DetachedWork;
use crate::progress::detached::tasks::answer::mended_answer;
use crate::progress::event::Origin;
use crate::progress::event::summary::Outcome;
use crate::progress::gate::orphans::Orphan;
use crate::progress::gate::orphans::{
    answer_without_id, release_orphan, release_orphans_on, take_orphan,
};
use crate::progress::gate::server_tasks::{becomes_task, note_task_answer};
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::spliced;
use crate::progress::verdict::{Reason, Repair, Repairs, Verdict};
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

/// Limit of the length of a result, in bytes, that is searched for `isError`. A result that reports a failure is short,
/// and reading a large result costs too much.
const OUTCOME_MAX: usize = 4 << 10;

/// Returns the place where an id has to be inserted into an answer without an id, and the text to insert.
fn added_id(message: &Message, id: &Bytes) -> Option<(std::ops::Range<usize>, Bytes)> {
    // An answer has at least one member, so the comma is valid.
    let place = json::skip_space(message.raw(), 0) + 1;
    Some((place..place, Bytes::from([br#""id":"#, &id[..], b","].concat())))
}

fn code_of(error: &Bytes) -> Option<i64> {
    std::str::from_utf8(&json::member(error, "code")?).ok()?.parse().ok()
}

/// Returns the outcome that a tool's result states.
fn outcome_of(result: &Bytes) -> Outcome {
    if result.len() > OUTCOME_MAX {
        return Outcome::Result;
    }
    let (mut failed, mut complete) = (false, true);
    for member in json::Members::new(result) {
        let (key, value) = (&result[member.key], &result[member.value]);
        if json::key_is(key, "isError") {
            failed = value == b"true";
        } else if json::key_is(key, "resultType") {
            complete = value == b"\"complete\"";
        }
    }
    match complete {
        _ if failed => Outcome::ToolError,
        true => Outcome::Result,
        false => Outcome::Interim,
    }
}

impl DetachedWork {
    /// Finds the call that is answered, ends the call, and repairs the answer. `done`: the repairs made so far.
    pub(crate) fn repair_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        origin: Origin,
        message: &Message,
        done: Repairs,
    ) -> RepairedAnswer {
        let Some(key) = message.id_key() else {
            return answer_without_id(gate, origin, message);
        };
        if gate.calls.handshake.is_answer_to_us(&key, &gate.calls.open) {
            return RepairedAnswer::withheld(Reason::OwnRequest);
        }
        match gate.calls.open.call_of_answer_on(origin, &key, &gate.calls.streams) {
            Some(id) => self.repair_answer_to(gate, now, origin, id, message, done),
            None => gate.calls.answer_to_nobody(origin, &key, message),
        }
    }

    /// Ends the call that is answered, and repairs the answer.
    pub(crate) fn repair_answer_to(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        origin: Origin,
        id: CallId,
        message: &Message,
        done: Repairs,
    ) -> RepairedAnswer {
        gate.rebind_stream(origin, id);
        // Done while the call is open, because progress that is written before the answer needs the call's token.
        let guard = gate.guard_behind_progress(now, id);
        let Some(call) = gate.calls.open.get(id) else {
            return RepairedAnswer::withheld(Reason::OrphanAnswer);
        };
        let switches = call.settings().answers;
        let is_observed = call.is_observed();
        let id_key = message.id_key();
        let is_exact = message.id().is_some_and(|id| call.id.is_read_in(&id));
        let stream = call.stream;
        let mut repairs = Repairs::default();
        let is_ours = gate.calls.streams.topology.has_strangers() || call.id.translated;
        let restore_id = is_ours || (!is_exact && switches.response_id);
        if restore_id && !is_ours {
            repairs.add(Repair::ResponseId);
        }
        let body = mended_body(message, call, switches, &mut repairs);
        let restore_id = restore_id && (!is_observed || is_ours);
        let answered = if restore_id { Key::read(&call.id.client) } else { id_key };
        let mut splices = if restore_id {
            restored_names(call, message, gate.calls.streams.topology)
        } else {
            Vec::new()
        };
        if restore_id && message.id_range().is_none() {
            splices.extend(added_id(message, &call.id.client));
        }
        splices.extend(body.filter(|_| !is_observed));
        if let Some(tasks) = &mut self.tasks {
            let offers = tasks.offers.changes(gate, id, message);
            if !offers.is_empty() {
                repairs.add(Repair::Task);
                splices.extend(offers);
            }
        }
        let payload = spliced(message, splices);
        if let Some(call) = gate.calls.open.get_mut(id) {
            call.account.repaired(repairs);
            call.account.repaired(done);
        }
        // Done before the call ends, because the signature of the call is read.
        if let Some(late) = &mut self.late {
            late.note_given(gate, now, id, message, &mut self.kept_room);
        }
        self.note_answer(gate, now, id, message);
        let is_changed = !repairs.is_empty() && !is_observed;
        let verdict = if is_changed { Verdict::Repaired(repairs) } else { Verdict::Forwarded };
        let (payload, guard, call) = (Some(payload), Some(guard), Some(id));
        RepairedAnswer { payload, id: answered, guard, verdict, call, stream: Some(stream) }
    }

    /// Keeps an answer that fits no open request, if it may be for the request of its stream. Returns whether it is
    /// kept.
    pub(crate) fn keep_orphan(
        &self,
        gate: &mut Gate,
        origin: Origin,
        message: &Message,
        number: u64,
        done: Repairs,
    ) -> bool {
        let Origin::Stream(on) = origin else { return false };
        let likely = match message.id_key() {
            None => gate.calls.open.call_of_error_without_id(origin, message, &gate.calls.streams),
            Some(key) if gate.calls.handshake.is_answer_to_us(&key, &gate.calls.open) => None,
            Some(key)
                if gate
                    .calls
                    .open
                    .call_of_answer_on(origin, &key, &gate.calls.streams)
                    .is_some() =>
            {
                None
            }
            Some(key) => gate.calls.open.call_of_sole_answer(origin, &key, &gate.calls.streams),
        };
        if likely.is_none() {
            return false;
        }
        let orphan = Orphan { number, message: message.clone(), done };
        // A response contains only one answer, so only the newest candidate is kept.
        if let Some(before) = gate.orphans.get_or_insert_default().waiting.insert(on, orphan) {
            release_orphan(gate, origin, &before);
        }
        true
    }

    /// Notes that the response to a POST has ended. If the request of the POST has no answer yet, a kept answer that
    /// fits no open request now counts as its answer.
    pub(crate) fn response_ended(&mut self, gate: &mut Gate, now: Instant, on: StreamId) {
        let origin = Origin::Stream(on);
        let Some(call) = gate.calls.open.sole_call_on(origin, &gate.calls.streams) else {
            return release_orphans_on(gate, on);
        };
        if let Some(Orphan { number, message, done }) = take_orphan(gate, on) {
            let judged = self.repair_answer_to(gate, now, origin, call, &message, done);
            gate.calls.send_answer(judged, number, done);
        }
    }

    /// Ends the call of an answer, and notes what else the answer says.
    pub(crate) fn note_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: CallId,
        message: &Message,
    ) {
        let Some(call) = gate.calls.open.get(id) else { return };
        let modern = call.revision.or(gate.calls.handshake.revision) == Some(Revision::V2026_07_28);
        let asks_for_task = call.asks_for_task && !modern;
        let (method, is_tool_call) = (call.method.clone(), call.is_tool_call());
        // The outcome is for the record of the call, which is the only reader of `isError`.
        let has_record = !call.shadow && !call.is_recorded;
        let result = message.result();
        if &*method == mcp::TOOLS_LIST
            && let Some(result) = &result
        {
            match &mut self.late {
                Some(late) => late.note_tools(result),
                None => self.tools_unread = true,
            }
        }
        if &*method == mcp::INITIALIZE
            && let Some(result) = &result
        {
            let date = json::member(result, "protocolVersion");
            gate.calls.handshake.revision =
                date.and_then(|date| Revision::from_date(&json::decode_str(&date)?));
            // Milepost has announced 2025-11-25 to the client instead of the server's older revision.
            if self.tasks.as_ref().is_some_and(|tasks| tasks.offers.is_lifted) {
                gate.calls.handshake.revision = Some(Revision::V2025_11_25);
            }
            gate.calls.handshake.learn_server(result);
        }
        if asks_for_task
            && let Some(task) = result.as_ref().and_then(|result| json::member(result, "task"))
            && becomes_task(gate, now, id, &task)
        {
            return;
        }
        if method.starts_with("tasks/") {
            note_task_answer(gate, now, id, message);
        }
        if is_tool_call && let Some(result) = &result {
            gate.calls.names.strays.note_answer(now, result);
        }
        let outcome = match result {
            _ if let Some(error) = message.error() => {
                if let Some(call) = gate.calls.open.get_mut(id) {
                    call.error_code = code_of(&error);
                }
                Outcome::Error
            }
            // The duration of a call that immediately became a task says nothing about the duration of its work.
            _ if asks_for_task => Outcome::Interim,
            Some(result) if is_tool_call && has_record => outcome_of(&result),
            None => Outcome::Error,
            _ => Outcome::Result,
        };
        gate.end_call(now, id, Tombstone::Answered, outcome);
    }

    /// Handles the server's answer to a call that runs as one of Milepost's own tasks. Returns false if the answer
    /// belongs to another call.
    pub(crate) fn take_task_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        message: &Message,
        (number, done): (u64, Repairs),
    ) -> bool {
        let task = self.tasks.as_ref().and_then(|tasks| tasks.of_answer(gate, message));
        let Some((id, call)) = task else { return false };
        let mut repairs = done;
        repairs.add(Repair::Task);
        let answer = mended_answer(gate, call, message, &mut repairs);
        // Done before the call ends, because the guard is read from the call.
        let guard = gate.calls.open.guard_of(call, &gate.calls.streams);
        // Done after the repairs, which need the call, because the call ends here.
        self.note_answer(gate, now, call, message);
        if let Some(tasks) = &mut self.tasks {
            tasks.keep_answer(gate, now, &id, answer, &mut self.kept_room);
            gate.calls.events.push_verdict(number, Some(call), Verdict::of(repairs));
            tasks.answer_waiting(gate, now, &id, Some(guard));
        }
        true
    }

    /// Ends the work whose answer is too large to be kept.
    pub(crate) fn fail_large(&mut self, gate: &mut Gate, now: Instant, id: &Key) {
        if let Some(late) = &mut self.late {
            late.drop_answer(gate, now, id);
        }
        if let Some(tasks) = &mut self.tasks {
            tasks.fail_large(gate, now, id);
        }
    }

    /// Ends the calls that are answered by objects on a line with several objects, which is forwarded unchanged.
    pub(crate) fn retire_seen_answers(&mut self, gate: &mut Gate, now: Instant, message: &Message) {
        for element in message.elements() {
            let answers = element.result().is_some() || element.error().is_some();
            let call = element
                .id_key()
                .filter(|_| answers)
                .and_then(|id| gate.calls.open.ledger.by_id(&id));
            if let Some(call) = call {
                self.note_answer(gate, now, call, &element);
            }
        }
    }
}
