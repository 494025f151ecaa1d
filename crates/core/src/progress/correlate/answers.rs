//! Repairs answers and other messages on their way to a client, chooses the settings for these repairs, and handles
//! answers that fit no open request.

use bytes::Bytes;

use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::id_mapping::restored_names;
use crate::progress::correlate::mended_body::mended_body;
use crate::progress::correlate::open_calls::only;
use crate::progress::correlate::readable::{empty_answer_error, with_text};
use crate::progress::correlate::repaired_answer::RepairedAnswer;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::Origin;
use crate::progress::payload::{Transmit, spliced};
use crate::progress::policy::{AnswerRepairs, CallPolicy};
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::jsonrpc::{Framing, Key, Kind, Message};
use crate::protocol::unicode;
use crate::protocol::unicode::ReadablePieces;

impl Correlator {
    pub(crate) fn answer_to_nobody(
        &mut self,
        origin: Origin,
        key: &Key,
        message: &Message,
    ) -> RepairedAnswer {
        let of_the_rest = || {
            let settings = self.settings_of_orphan(origin);
            !settings.answers.orphan_answer || settings.observes()
        };
        let is_let = self.open.ledger.passes_answers(key).unwrap_or_else(of_the_rest);
        // After an overflow the answer may belong to a request that has no entry here. If it were withheld, that
        // request would never be answered.
        let passes = is_let || self.open.is_incomplete();
        // If clients share the server, the answer may be for another client.
        if passes && !self.streams.topology.has_strangers() {
            return RepairedAnswer::fallback_stream(message, self.fallback_stream(origin));
        }
        // Only the exact id counts, because the client may have used another spelling of the id for a new request.
        if self.open.ledger.was_id(key) == Some(Tombstone::Ended)
            && !self.streams.topology.has_strangers()
        {
            // The first late answer is forwarded. A further late answer counts as a second answer.
            self.open.ledger.note_late_answer(key);
            return RepairedAnswer::fallback_stream(message, self.fallback_stream(origin));
        }
        RepairedAnswer::withheld(self.open.ledger.why_orphan(key))
    }

    /// Returns the settings for an answer that matches no open request: those of the only request that it may be meant
    /// for, else those of the route.
    pub(crate) fn settings_of_orphan(&self, origin: Origin) -> &CallPolicy {
        let sole = || only(self.open.active(|call| call.task.is_none())).ok();
        let call = self.open.sole_call_on(origin, &self.streams).or_else(sole);
        let call = call.and_then(|id| self.open.get(id));
        call.map_or(&self.policy.call, |call| call.settings())
    }

    /// Returns the repairs that are enabled for the request of an answer; for other messages, those of the route.
    pub(crate) fn repairs_of_answer(&self, origin: Origin, message: &Message) -> AnswerRepairs {
        let key = message.id_key().filter(|_| message.kind() == Kind::Response);
        let call = key.and_then(|key| self.open.call_of_answer_on(origin, &key, &self.streams));
        if let Some(call) = call.and_then(|call| self.open.get(call)) {
            return call.answer_repairs();
        }
        let settings = self.settings_of_orphan(origin);
        if settings.observes() { AnswerRepairs::NONE } else { settings.answers }
    }

    /// Whether an event gets the name that clients read, if the server gave it another name.
    pub fn repairs_event_name(&self, origin: Origin) -> bool {
        let settings = self.settings_of_orphan(origin);
        settings.answers.event_name && !settings.observes()
    }

    /// Whether an event whose data is not a message is withheld.
    pub fn withholds_noise(&self, origin: Origin) -> bool {
        let settings = self.settings_of_orphan(origin);
        settings.answers.noise && !settings.observes()
    }

    /// Returns the message with characters that every client can parse; `None` if it already has only such characters.
    /// Adds the repair to `done`.
    pub(crate) fn readable(
        &self,
        origin: Origin,
        message: &Message,
        done: &mut Repairs,
    ) -> Option<Message> {
        let marked = message.behind_mark();
        let text = marked.as_ref().unwrap_or(message).raw();
        let is_fine = message.kind() == Kind::Noise || unicode::is_readable(text);
        if marked.is_none() && is_fine {
            return None;
        }
        if !self.repairs_of_answer(origin, message).unicode {
            return None;
        }
        let readable = unicode::readable(text).map(Bytes::from);
        let text = readable.or_else(|| marked.as_ref().map(|marked| marked.raw().clone()))?;
        done.add(Repair::Unicode);
        Some(with_text(message, text))
    }

    /// Returns the message with the envelope that strict clients expect; `None` if its envelope is already correct. The
    /// new envelope has `"jsonrpc":"2.0"`, no null members, and an error in an empty answer. Adds the repairs to
    /// `done`.
    pub(crate) fn well_formed(
        &self,
        origin: Origin,
        message: &Message,
        done: &mut Repairs,
    ) -> Option<Message> {
        let version = message.missing_version();
        let is_fine = version.is_none() && !message.has_nulls() && !message.is_empty_answer();
        // Faulty progress is left to the gate, which writes it anew with a correct envelope.
        if is_fine || self.policy.claims_progress(message) {
            return None;
        }
        let switches = self.repairs_of_answer(origin, message);
        let error = empty_answer_error(message).filter(|_| switches.error_shape);
        let mut splices = Vec::new();
        if let Some(version) = version.filter(|_| switches.envelope) {
            done.add(Repair::Envelope);
            // The error that replaces the answer has its own `jsonrpc` member.
            splices.extend(Some(version).filter(|_| error.is_none()));
        }
        let has_nulls = error.is_none() && switches.error_shape;
        let nulls = if has_nulls { message.null_members() } else { Vec::new() };
        if error.is_some() || !nulls.is_empty() {
            done.add(Repair::ErrorShape);
        }
        splices.extend(nulls.into_iter().map(|place| (place, Bytes::new())));
        splices.extend(error);
        if splices.is_empty() {
            return None;
        }
        // The ranges refer to the message's text, so the frame is put around the new text afterwards.
        let bare = message.clone().framed(Framing::Itself);
        Some(with_text(message, spliced(&bare, splices).to_bytes()))
    }

    /// Returns the state that repairs the characters of a large message piece by piece; `None` if the route turns that
    /// repair off.
    pub(crate) fn readable_pieces(&self, origin: Origin) -> Option<ReadablePieces> {
        let settings = self.settings_of_orphan(origin);
        (settings.answers.unicode && !settings.observes()).then(ReadablePieces::default)
    }

    /// Returns a repaired answer to an open request, which stays open; `None` if the answer needs no repair.
    pub fn repaired_answer(&self, message: &Message) -> Option<Transmit> {
        let legible = self.legible(message);
        let message = legible.as_ref().unwrap_or(message);
        let key = message.id_key().filter(|_| message.kind() == Kind::Response)?;
        let id = self.open.ledger.call_of_answer(&key)?;
        let call = self.open.get(id).filter(|call| !call.is_observed())?;
        let switches = call.answer_repairs();
        let is_exact = message.id().is_some_and(|id| call.id.is_read_in(&id));
        let differs = !is_exact && switches.response_id;
        let mut splices =
            if differs { restored_names(call, message, self.streams.topology) } else { Vec::new() };
        splices.extend(mended_body(message, call, switches, &mut Repairs::default()));
        let payload = |splices| spliced(message, splices);
        let is_changed = !splices.is_empty() || legible.is_some();
        is_changed.then(|| Transmit { payload: payload(splices), ..Transmit::of(message) })
    }

    /// Returns the message in a form that every client can parse, if its characters or envelope need a repair. The
    /// message need not be the answer to an open request.
    pub fn legible(&self, message: &Message) -> Option<Message> {
        // An HTTP response needs a body, so the answer to a cancelled request is sent too, and the client must be able
        // to parse it.
        let mut done = Repairs::default();
        let readable = self.readable(Origin::Shared, message, &mut done);
        let text = readable.as_ref().unwrap_or(message);
        self.well_formed(Origin::Shared, text, &mut done).or(readable)
    }
}
