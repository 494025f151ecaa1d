//! The answers to calls that continue without their clients, and the ends of such calls. Answers that were just given
//! are here too, because the client may have given the call up in that moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::progress::client_habits::Habit;
use crate::progress::detached::kept_room::KeptRoom;
use crate::progress::detached::late::calls::{GivenCall, LateCall, LateCalls, LateWork};
use crate::progress::detached::late::habits::{HabitKey, millis};
use crate::progress::detached::store::Work;
use crate::progress::event::FilterEvent;
use crate::progress::event::late::LateEvent;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, Principal};
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::jsonrpc::{Key, Message};

/// The reason for cancelling work at the server after its client did not return.
const NOBODY_CAME: &str = "the client has given the request up and did not ask again";

/// Limit of the time for which a given answer is remembered. If a client's timer expires while the answer is on the
/// way, the client's cancellation arrives after the answer.
const CROSSING_MAX: Duration = Duration::from_secs(5);

/// The lowest age of a call at which a client's own clock can have run out.
const CLOCK_MIN: Duration = Duration::from_secs(1);

impl LateCalls {
    /// Remembers for a moment the answer that a call gets, because its client may just have given the call up.
    pub(crate) fn note_given(
        &mut self,
        gate: &Gate,
        now: Instant,
        id: CallId,
        message: &Message,
        kept_room: &mut KeptRoom,
    ) {
        let Some(call) = gate.calls.open.get(id) else { return };
        if call.signature.is_none() {
            return;
        }
        let late = self.late_of(gate, call.settings(), call.tool.as_deref());
        let Some(late) = late else { return };
        let client = HabitKey::of(gate, call);
        self.note_habit(gate, &client, Habit::Lived(millis(call.waited_at(now))));
        let is_young = now < call.opened + CLOCK_MIN;
        let bytes = message.raw().len();
        let has_room = self.bytes() + bytes <= late.bytes;
        let is_kept = !is_young && has_room && kept_room.take(bytes);
        let Some(call) = gate.calls.open.get(id) else { return };
        let Some(signature) = &call.signature else { return };
        let answer = is_kept.then(|| Message::parse(Bytes::copy_from_slice(message.raw())));
        let is_joined = call.joined.is_some();
        // A call that has joined work is remembered even without its answer, because the server has never seen its id
        // and must not get its cancellation.
        if answer.is_none() && !is_joined {
            return;
        }
        let details = LateCall {
            token: call.token.as_ref().map(|token| token.server.clone()),
            paired: None,
            // The work has been answered, so no more reports on it will come.
            learned_names: Vec::new(),
            principal: gate.calls.streams.late_principal(call.stream),
            signature: (**signature).clone(),
            policy: Arc::clone(&call.policy),
            attempts: call.attempts,
            client,
            is_told: false,
        };
        let until = now + CROSSING_MAX;
        let work = Work::new(call.id.server.clone(), call.opened, until, details);
        let client_id = call.id.client.clone();
        self.remember(GivenCall { client_id, work, answer, is_joined });
    }

    /// Gives up the calls that a client has abandoned, because the client makes another call.
    pub(crate) fn move_on(&mut self, gate: &mut Gate, now: Instant, who: Principal) {
        self.forget_given(who);
        for work in self.works.take_if(|work| work.details.principal == who) {
            self.note_told_in_vain(gate, &work);
            give_up(gate, now, &work, LateEvent::MovedOn);
        }
    }

    /// Gives up the work of calls whose deadline has passed.
    pub(crate) fn expire(&mut self, gate: &mut Gate, now: Instant) {
        for call in self.take_over(now) {
            self.note_told_in_vain(gate, &call);
            give_up(gate, now, &call, LateEvent::Expired);
        }
    }

    /// Returns the server's id of the call that an answer with this id is for, if the call continues without its
    /// client.
    fn id_of_answer(&self, gate: &Gate, id: &Key) -> Option<Key> {
        let ledger = &gate.calls.open.ledger;
        // An open request with exactly this id takes precedence over work that its client has given up.
        if self.any_running().is_none() || ledger.by_id(id).is_some() {
            return None;
        }
        if self.works.running(id).is_some() {
            return Some(id.clone());
        }
        // An exact id, even of an ended request, takes precedence over another spelling of an id.
        let is_unknown = ledger.call_of_answer(id).is_none() && ledger.was_id(id).is_none();
        is_unknown.then(|| self.running_in_other_spelling(id)).flatten()
    }

    /// Whether an answer with this id is for a call that continues without its client.
    pub(crate) fn is_answer(&self, gate: &Gate, id: &Key) -> bool {
        self.id_of_answer(gate, id).is_some()
    }

    /// Returns how many bytes of the answer with this id may be kept until its client fetches it. Without an id, the
    /// answer may be for any call. `None` if no call that continues without its client expects this answer.
    pub(crate) fn room(
        &self,
        gate: &Gate,
        id: Option<&Key>,
        kept_room: &KeptRoom,
    ) -> Option<usize> {
        let some = self.any_running().filter(|_| id.is_none_or(|id| self.is_answer(gate, id)));
        let room = some?.details.policy.call.late.bytes;
        Some(room.saturating_sub(self.bytes()).min(kept_room.left()))
    }

    /// Handles the answer to a call that continues without its client. Returns false if the answer belongs to another
    /// call.
    pub(crate) fn take_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        message: &Message,
        number: u64,
        kept_room: &mut KeptRoom,
    ) -> bool {
        let key = message.id_key().and_then(|key| self.id_of_answer(gate, &key));
        let Some(key) = key else { return false };
        let is_taken = kept_room.take(message.raw().len());
        let bytes = message.raw().len() + self.bytes();
        let Some(work) = self.works.running_mut(&key) else { return false };
        work.until = now + work.details.terms().finished;
        let has_room = is_taken && bytes <= work.details.policy.call.late.bytes;
        let event = if has_room { LateEvent::Finished } else { LateEvent::Dropped };
        gate.calls.events.push_back(FilterEvent::Late(Box::new(work.news(event, now))));
        if event == LateEvent::Finished {
            // Copied, because the answer may wait for minutes, and a slice would keep a whole read buffer in memory.
            work.finish(Message::parse(Bytes::copy_from_slice(message.raw())));
        } else {
            self.works.take_running(&key);
        }
        // This message itself reaches no client. If a client fetches the answer later, Milepost sends it in a message
        // of its own.
        gate.calls.events.push_verdict(number, None, Verdict::Withheld(Reason::CancelledAnswer));
        true
    }

    /// Forgets a call that continues without its client, because its answer cannot be kept.
    pub(crate) fn drop_answer(&mut self, gate: &mut Gate, now: Instant, id: &Key) {
        if let Some(work) = self.works.take_running(id) {
            note(gate, now, &work, LateEvent::Dropped);
        }
    }

    /// Forgets the calls that continue without their clients, because the server has ended.
    pub(crate) fn drop_all(&mut self, gate: &mut Gate, now: Instant) {
        for work in self.take_all() {
            note(gate, now, &work, LateEvent::Dropped);
        }
    }
}

/// Gives up work whose answer no client will get, and cancels it at the server.
fn give_up(gate: &mut Gate, now: Instant, work: &LateWork, event: LateEvent) {
    note(gate, now, work, event);
    if work.is_running() {
        gate.calls.to_server.cancel(&work.server_id, NOBODY_CAME);
    }
}

/// Reports an event of a call that continues without its client.
pub(super) fn note(gate: &mut Gate, now: Instant, work: &LateWork, event: LateEvent) {
    gate.calls.events.push_back(FilterEvent::Late(Box::new(work.news(event, now))));
}
