//! The server's answers: the call that each answer ends, and the repairs that a client needs to
//! accept the answer.

use std::time::Instant;

use bytes::Bytes;
use smallvec::smallvec;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::Origin;
use crate::progress::event::summary::Outcome;
use crate::progress::filter::Filter;
use crate::progress::gate::stream::{Guard, Item, ItemKind, MessageVerdict};
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::mended_body::mended_body;
use crate::progress::intake::state::Orphan;
use crate::progress::payload::{Payload, Transmit, TransmitKind, spliced, within};
use crate::progress::verdict::{Reason, Repair, Repairs, Verdict};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

/// The longest result, in bytes, that is searched for `isError`. A result that reports a failure is
/// short, and reading a large result costs too much.
const OUTCOME_MAX: usize = 4 << 10;

/// An answer as its client gets it, or the reason why not.
pub(crate) struct RepairedAnswer {
    pub(crate) payload: Option<Payload>,
    /// The client's id of its request.
    pub(crate) id: Option<Key>,
    pub(crate) guard: Option<Guard>,
    pub(crate) verdict: Verdict,
    pub(crate) call: Option<CallId>,
    pub(crate) stream: Option<StreamId>,
}

impl RepairedAnswer {
    pub(crate) fn withheld(reason: Reason) -> Self {
        let verdict = Verdict::Withheld(reason);
        Self { payload: None, id: None, guard: None, verdict, call: None, stream: None }
    }

    /// Forwards an answer to no known request to the stream for such messages.
    pub(crate) fn fallback_stream(
        message: &Message,
        place: Result<Option<StreamId>, Reason>,
    ) -> Self {
        let Ok(stream) = place else { return Self::withheld(Reason::OrphanAnswer) };
        let (payload, id) = (Some(Payload::of(message)), message.id_key());
        Self { payload, id, guard: None, verdict: Verdict::Forwarded, call: None, stream }
    }
}

impl Filter {
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
        number: u64,
        done: Repairs,
    ) {
        if self.takes_answer(now, origin, message, (number, done)) {
            return;
        }
        let judged = self.repair_answer(now, origin, message, done);
        self.send_answer(judged, number, done);
    }

    /// Takes an answer that no client gets now: to work that goes on without its client, to a task of Milepost's own,
    /// or perhaps to the request of its stream.
    pub(crate) fn takes_answer(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
        (number, done): (u64, Repairs),
    ) -> bool {
        self.take_late_answer(now, message, number)
            || self.take_task_answer(now, message, (number, done))
            || self.keep_orphan(origin, message, number, done)
    }

    fn send_answer(&mut self, judged: RepairedAnswer, number: u64, done: Repairs) {
        let Some(payload) = judged.payload else {
            self.record(number, judged.call, judged.verdict);
            return;
        };
        let mut repairs = done;
        if let Verdict::Repaired(own) = judged.verdict {
            repairs.join(own);
        }
        let verdict = Verdict::of(repairs);
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(judged.id)),
            payload,
            guards: judged.guard.into_iter().collect(),
            verdicts: smallvec![MessageVerdict { number, call: judged.call, verdict }],
        };
        self.enqueue(judged.stream, item);
    }

    /// Finds the call that is answered, ends it and mends the answer, to which `done` was done already.
    pub(crate) fn repair_answer(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
        done: Repairs,
    ) -> RepairedAnswer {
        let Some(key) = message.id_key() else { return self.answer_without_id(origin, message) };
        if self.is_answer_to_us(&key) {
            return RepairedAnswer::withheld(Reason::OwnRequest);
        }
        match self.call_of_answer_on(origin, &key) {
            Some(id) => self.repair_answer_to(now, origin, id, message, done),
            None => self.answer_to_nobody(origin, &key, message),
        }
    }

    /// Ends the call that is answered and mends the answer.
    pub(crate) fn repair_answer_to(
        &mut self,
        now: Instant,
        origin: Origin,
        id: CallId,
        message: &Message,
        done: Repairs,
    ) -> RepairedAnswer {
        self.rebind_stream(origin, id);
        let guard = self.guard_behind_progress(now, id);
        let Some(call) = self.correlator.ledger.get(id) else {
            return RepairedAnswer::withheld(Reason::OrphanAnswer);
        };
        let switches = call.settings().answers;
        let is_observed = call.is_observed();
        let id_key = message.id_key();
        let is_exact = message.id().is_some_and(|id| call.id.is_read_in(&id));
        let stream = call.stream;
        let mut repairs = Repairs::default();
        let is_ours = self.topology.has_strangers() || call.id.translated;
        let restore_id = is_ours || (!is_exact && switches.response_id);
        if restore_id && !is_ours {
            repairs.add(Repair::ResponseId);
        }
        let body = mended_body(message, call, switches, &mut repairs);
        let restore_id = restore_id && (!is_observed || is_ours);
        let answered = if restore_id { Key::read(&call.id.client) } else { id_key };
        let mut splices = if restore_id { self.restored_names(id, message) } else { Vec::new() };
        if restore_id && message.id_range().is_none() {
            splices.extend(added_id(message, &call.id.client));
        }
        splices.extend(body.filter(|_| !is_observed));
        let offers = self.task_offers(id, message);
        if !offers.is_empty() {
            repairs.add(Repair::Task);
            splices.extend(offers);
        }
        let payload = spliced(message, splices);
        if let Some(call) = self.correlator.ledger.get_mut(id) {
            call.account.repaired(repairs);
            call.account.repaired(done);
        }
        self.note_given(now, id, message);
        self.note_answer(now, id, message);
        let is_changed = !repairs.is_empty() && !is_observed;
        let verdict = if is_changed { Verdict::Repaired(repairs) } else { Verdict::Forwarded };
        let (payload, guard, call) = (Some(payload), Some(guard), Some(id));
        RepairedAnswer { payload, id: answered, guard, verdict, call, stream: Some(stream) }
    }

    /// The call that an answer with this id is for.
    pub(crate) fn call_of_answer_on(&self, origin: Origin, key: &Key) -> Option<CallId> {
        // A careless client repeats ids, but each of its requests has its own upstream stream.
        let own = if self.topology.is_paired() { self.sole_call_on(origin) } else { None };
        own.filter(|own| {
            self.correlator.ledger.get(*own).is_some_and(|call| call.id.server == *key)
        })
        .filter(|own| self.correlator.ledger.get(*own).is_some_and(|call| call.task.is_none()))
        .or_else(|| self.correlator.ledger.call_of_answer(key))
    }

    /// Keeps an answer that fits no open request, where it may be the answer to the request of its stream.
    pub(crate) fn keep_orphan(
        &mut self,
        origin: Origin,
        message: &Message,
        number: u64,
        done: Repairs,
    ) -> bool {
        let Origin::Stream(on) = origin else { return false };
        let likely = match message.id_key() {
            None => self.call_of_error_without_id(origin, message),
            Some(key) if self.is_answer_to_us(&key) => None,
            Some(key) if self.call_of_answer_on(origin, &key).is_some() => None,
            Some(key) => self.call_of_sole_answer(origin, &key),
        };
        if likely.is_none() {
            return false;
        }
        let orphan = Orphan { number, message: message.clone(), done };
        if let Some(before) = self.intake.orphans.insert(on, orphan) {
            self.release_orphan(origin, &before);
        }
        true
    }

    /// An answer that waited is not the answer to the request of its stream.
    fn release_orphan(&mut self, origin: Origin, orphan: &Orphan) {
        let judged = match orphan.message.id_key() {
            Some(key) => self.answer_to_nobody(origin, &key, &orphan.message),
            None => self.answer_without_id(origin, &orphan.message),
        };
        self.send_answer(judged, orphan.number, orphan.done);
    }

    /// The request of a stream has its answer, or needs none any more.
    pub(crate) fn release_orphans_on(&mut self, on: StreamId) {
        if let Some(orphan) = self.intake.orphans.remove(&on) {
            self.release_orphan(Origin::Stream(on), &orphan);
        }
    }

    /// Whether an answer waits for the end of its response.
    pub fn holds_answer(&self, on: StreamId) -> bool {
        self.intake.orphans.contains_key(&on)
    }

    /// The response to a POST has ended. What answers no open request is the answer to the request of the
    /// POST if that one has no other.
    pub fn response_ended(&mut self, now: Instant, on: StreamId) {
        let origin = Origin::Stream(on);
        let Some(call) = self.sole_call_on(origin) else { return self.release_orphans_on(on) };
        if let Some(Orphan { number, message, done }) = self.intake.orphans.remove(&on) {
            let judged = self.repair_answer_to(now, origin, call, &message, done);
            self.send_answer(judged, number, done);
        }
    }

    /// An answer to an open request as its client needs it, if the answer needs a repair; the request stays open.
    pub fn repaired_answer(&self, message: &Message) -> Option<Transmit> {
        let mut done = Repairs::default();
        let readable = self.readable(Origin::Shared, message, &mut done);
        let message = readable.as_ref().unwrap_or(message);
        let well_formed = self.well_formed(Origin::Shared, message, &mut done);
        let message = well_formed.as_ref().unwrap_or(message);
        let key = message.id_key().filter(|_| message.kind() == Kind::Response)?;
        let id = self.correlator.ledger.call_of_answer(&key)?;
        let call = self.correlator.ledger.get(id).filter(|call| !call.is_observed())?;
        let switches = call.answer_repairs();
        let is_exact = message.id().is_some_and(|id| call.id.is_read_in(&id));
        let differs = !is_exact && switches.response_id;
        let mut splices = if differs { self.restored_names(id, message) } else { Vec::new() };
        splices.extend(mended_body(message, call, switches, &mut Repairs::default()));
        let payload = |splices| spliced(message, splices);
        let is_changed = !splices.is_empty() || !done.is_empty();
        is_changed.then(|| Transmit { payload: payload(splices), ..Transmit::of(message) })
    }

    /// The places where an answer names its call, and the client's name for these places.
    pub(crate) fn restored_names(
        &self,
        id: CallId,
        message: &Message,
    ) -> Vec<(std::ops::Range<usize>, Bytes)> {
        let Some(call) = self.correlator.ledger.get(id) else { return Vec::new() };
        let name = &call.id;
        let mut places: Vec<_> = message.id_range().into_iter().collect();
        // The final result of a subscription says its id once more.
        if self.topology.has_strangers() && self.correlator.is_subscription(id) {
            let meta = message.result().and_then(|result| json::member(&result, "_meta"));
            let again = meta.and_then(|meta| json::member(&meta, mcp::META_SUBSCRIPTION));
            let ours = again.filter(|again| {
                Key::read(again)
                    .is_some_and(|key| key == name.server || key.respelled(&name.server))
            });
            places.extend(ours.and_then(|ours| within(message.raw(), &ours)));
        }
        places.into_iter().map(|place| (place, name.client.clone())).collect()
    }

    /// The possible request of an answer with any id, because the answer arrived on the stream of a
    /// single request: some servers answer id 0 under an id of their own.
    pub(crate) fn call_of_sole_answer(&self, origin: Origin, key: &Key) -> Option<CallId> {
        let open = |call: &Call| call.task.is_none();
        let own = self.sole_call_on(origin)?;
        let unknown = self.correlator.ledger.was_id_in_any_spelling(key).is_none();
        let call = self.correlator.ledger.get(own).filter(|call| unknown && open(call))?;
        call.answer_repairs().response_id.then_some(own)
    }

    fn answer_to_nobody(&mut self, origin: Origin, key: &Key, message: &Message) -> RepairedAnswer {
        let of_the_rest = || {
            let settings = self.settings_of_orphan(origin);
            !settings.answers.orphan_answer || settings.observes()
        };
        let is_let = self.correlator.ledger.passes_answers(key).unwrap_or_else(of_the_rest);
        let passes = is_let || self.correlator.ledger.overflowed;
        // Where clients share the server it could be another one's.
        if passes && !self.topology.has_strangers() {
            return RepairedAnswer::fallback_stream(message, self.fallback_stream(origin));
        }
        // Exactly the id: in another spelling the client may have given it to a new request.
        if self.correlator.ledger.was_id(key) == Some(Tombstone::Ended)
            && !self.topology.has_strangers()
        {
            self.correlator.ledger.note_late_answer(key);
            return RepairedAnswer::fallback_stream(message, self.fallback_stream(origin));
        }
        RepairedAnswer::withheld(self.correlator.why_orphan(key))
    }

    /// Ends the call of an answer, and notes the other facts in the answer.
    pub(crate) fn note_answer(&mut self, now: Instant, id: CallId, message: &Message) {
        let Some(call) = self.correlator.ledger.get(id) else { return };
        let modern = call.revision.or(self.revision) == Some(Revision::V2026_07_28);
        let asks_for_task = call.asks_for_task && !modern;
        let (method, is_tool_call) = (call.method.clone(), call.is_tool_call());
        let result = message.result();
        if &*method == mcp::TOOLS_LIST
            && let Some(result) = &result
        {
            match self.policy.keeps_late() {
                true => self.late.note_tools(result),
                false => self.late.miss_tools(),
            }
        }
        if &*method == mcp::INITIALIZE
            && let Some(result) = &result
        {
            let date = json::member(result, "protocolVersion");
            self.revision = date.and_then(|date| Revision::from_date(&json::decode_str(&date)?));
            if self.own_tasks.is_lifted {
                self.revision = Some(Revision::V2025_11_25);
            }
            self.learn_server(result);
        }
        if asks_for_task
            && let Some(task) = result.as_ref().and_then(|result| json::member(result, "task"))
            && self.becomes_task(now, id, &task)
        {
            return;
        }
        if method.starts_with("tasks/") {
            self.note_task_answer(now, id, message);
        }
        if is_tool_call && let Some(result) = &result {
            self.correlator.strays.note_answer(now, result);
        }
        let outcome = match result {
            _ if let Some(error) = message.error() => {
                if let Some(call) = self.correlator.ledger.get_mut(id) {
                    call.error_code = code_of(&error);
                }
                Outcome::Error
            }
            // A task that was over at once says nothing of how long its work took.
            _ if asks_for_task => Outcome::Interim,
            Some(result) if is_tool_call => outcome_of(&result),
            None => Outcome::Error,
            _ => Outcome::Result,
        };
        self.end_call(now, id, Tombstone::Answered, outcome);
    }

    /// Several objects on one line are forwarded as they are; the answers among them still count.
    pub(crate) fn retire_seen_answers(&mut self, now: Instant, message: &Message) {
        for element in message.elements() {
            let answers = element.result().is_some() || element.error().is_some();
            let call = element
                .id_key()
                .filter(|_| answers)
                .and_then(|id| self.correlator.ledger.by_id(&id));
            if let Some(call) = call {
                self.note_answer(now, call, &element);
            }
        }
    }
}

/// The place of the id that an answer without any gets, and the text for it.
fn added_id(message: &Message, id: &Bytes) -> Option<(std::ops::Range<usize>, Bytes)> {
    // An answer has a member at least, so that a comma is right.
    let place = json::skip_space(message.raw(), 0) + 1;
    Some((place..place, Bytes::from([br#""id":"#, &id[..], b","].concat())))
}

fn code_of(error: &Bytes) -> Option<i64> {
    std::str::from_utf8(&json::member(error, "code")?).ok()?.parse().ok()
}

/// The outcome that the result of a tool states.
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
