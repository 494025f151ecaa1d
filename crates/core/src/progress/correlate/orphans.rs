//! Answers that fit no open request: the request that they may be meant for, and the settings that decide on them.

use bytes::Bytes;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::correlator::{Correlator, only};
use crate::progress::correlate::repaired_answer::RepairedAnswer;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::Origin;
use crate::progress::ids::CallId;
use crate::progress::payload::within;
use crate::progress::policy::CallPolicy;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::{json, mcp};

impl Correlator {
    /// The call that an answer with this id is for.
    pub(crate) fn call_of_answer_on(&self, origin: Origin, key: &Key) -> Option<CallId> {
        // A careless client repeats ids, but each of its requests has its own upstream stream.
        let own = if self.topology.is_paired() { self.sole_call_on(origin) } else { None };
        own.filter(|own| self.ledger.get(*own).is_some_and(|call| call.id.server == *key))
            .filter(|own| self.ledger.get(*own).is_some_and(|call| call.task.is_none()))
            .or_else(|| self.ledger.call_of_answer(key))
    }

    /// The places where an answer names its call, and the client's name for these places.
    pub(crate) fn restored_names(
        &self,
        id: CallId,
        message: &Message,
    ) -> Vec<(std::ops::Range<usize>, Bytes)> {
        let Some(call) = self.ledger.get(id) else { return Vec::new() };
        let name = &call.id;
        let mut places: Vec<_> = message.id_range().into_iter().collect();
        // The final result of a subscription repeats the id in `_meta` (MCP 2026-07-28).
        if self.topology.has_strangers() && self.is_subscription(id) {
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
        let unknown = self.ledger.was_id_in_any_spelling(key).is_none();
        let call = self.ledger.get(own).filter(|call| unknown && open(call))?;
        call.answer_repairs().response_id.then_some(own)
    }

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
        let is_let = self.ledger.passes_answers(key).unwrap_or_else(of_the_rest);
        // After an overflow the answer may belong to a request that has no entry. Withholding the
        // answer would leave that request without one.
        let passes = is_let || self.ledger.overflowed;
        // Where clients share the server, the answer could be for another client.
        if passes && !self.topology.has_strangers() {
            return RepairedAnswer::fallback_stream(message, self.fallback_stream(origin));
        }
        // Only the exact id: in another spelling, the client may have given the id to a new
        // request.
        if self.ledger.was_id(key) == Some(Tombstone::Ended) && !self.topology.has_strangers() {
            // The first late answer is forwarded. From now on a further one counts as a second
            // answer.
            self.ledger.note_late_answer(key);
            return RepairedAnswer::fallback_stream(message, self.fallback_stream(origin));
        }
        RepairedAnswer::withheld(self.why_orphan(key))
    }

    /// The request that an error without id may answer, because the error came on the stream of a single request.
    pub(crate) fn call_of_error_without_id(
        &self,
        origin: Origin,
        message: &Message,
    ) -> Option<CallId> {
        // JSON-RPC 2.0, section 5: a server that could not read the id of a request answers with an
        // error whose id is null.
        let is_error = message.kind() == Kind::Response && message.result().is_none();
        let own = self.sole_call_on(origin).filter(|_| is_error && is_missing(message))?;
        let is_open = |call: &&Call| call.task.is_none() && call.answer_repairs().response_id;
        self.ledger.get(own).filter(is_open).map(|_| own)
    }

    /// Whether an event gets the name that clients read, if the server gave it another name.
    pub fn repairs_event_name(&self, origin: Origin) -> bool {
        let settings = self.settings_of_orphan(origin);
        settings.answers.event_name && !settings.observes()
    }

    /// Whether an event whose data is no message is withheld.
    pub fn withholds_noise(&self, origin: Origin) -> bool {
        let settings = self.settings_of_orphan(origin);
        settings.answers.noise && !settings.observes()
    }

    /// The settings for an answer that fits no open request: those of the only request that it may be meant
    /// for, else those of the route.
    pub(crate) fn settings_of_orphan(&self, origin: Origin) -> &CallPolicy {
        let sole = || only(self.active(|call| call.task.is_none())).ok();
        let call = self.sole_call_on(origin).or_else(sole);
        let call = call.and_then(|id| self.ledger.get(id));
        call.map_or(&self.policy.call, |call| call.settings())
    }
}

/// Whether the id of an answer is missing or null.
pub(crate) fn is_missing(message: &Message) -> bool {
    message.id().is_none_or(|id| *id == *b"null")
}
