//! The correlation ladder finds the request that a report is about: first by its token, then by looser
//! evidence. A rung of the ladder holds only if exactly one call results.

use crate::progress::correlate::correlator::{Attributed, Correlator, Evidence};
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::dialect::report::About;
use crate::progress::event::Origin;
use crate::progress::ids::CallId;
use crate::progress::verdict::{Reason, Repair};
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp::Revision;

impl Correlator {
    /// The call that runs as a task of Milepost's own, by its id: the client has the answer to the request, and the
    /// server still knows the call by that id.
    fn own_task_named(&self, about: &About) -> Option<CallId> {
        let names = about.request.iter().chain(&about.token);
        names.filter_map(|name| self.ledger.own_task_named(name)).next()
    }

    /// The call that a message without its name can only be about, unless it may be about one that is over.
    pub(crate) fn unless_over(&self, id: CallId) -> Result<CallId, Reason> {
        let call = self.ledger.get(id).ok_or(Reason::Unknown)?;
        if self.may_mean_over(call) { Err(Reason::Ambiguous) } else { Ok(id) }
    }

    /// Finds the one call that a report can be about. Each rung holds only if exactly one call
    /// results; a wrong guess would move the progress bar of another call.
    pub(crate) fn attribute(
        &mut self,
        about: &About,
        origin: Origin,
    ) -> Result<Attributed, Reason> {
        // The stream of one POST goes first: two clients, or a careless one, may use the same token
        // at the same time, but on this stream only one request can be meant.
        if let Some(token) = &about.token {
            if let Some(found) = self.own_on(origin, token) {
                return Ok(found);
            }
            // A name of another session's call means none here, whatever it looks like.
            if self.elsewhere.contains(token) {
                return Err(Reason::Unknown);
            }
        }
        if let Some(token) = &about.token
            && let Some(found) = self.by_token(token)
        {
            return match self.ledger.get(found.0) {
                // From 2026-07-28 on a stream speaks of its own request only.
                Some(call)
                    if call.revision >= Some(Revision::V2026_07_28)
                        && self.is_elsewhere(origin, call) =>
                {
                    Err(Reason::Unknown)
                }
                _ => Ok(found),
            };
        }
        // Tombstones are bounded. A name that Milepost has given is known as one even after its
        // tombstone was dropped.
        let dead = about.token.as_ref().and_then(|token| {
            let given = || self.was_given(token).then_some(Tombstone::Token);
            self.ledger.was_token(token).or_else(given)
        });
        // Whatever token stands on the stream of a single request, the report is about that
        // request, unless the token belongs to a call that is over.
        if dead != Some(Tombstone::Token)
            && let Some(call) = self.sole_call_on(origin)
        {
            return Ok(self.learned(about, call));
        }
        if let Some(call) = self.own_task_named(about).filter(|_| dead.is_none()) {
            return Ok((call, Some(Repair::Token)));
        }
        // A name that a client has given goes before a name that was learned from the server.
        if let Some(id) = &about.request {
            if let Some(call) = self.ledger.call_of_answer(id) {
                return Ok((call, Some(Repair::Token)));
            }
            if self.ledger.was_id_in_any_spelling(id).is_some() || self.was_given(id) {
                return Err(Reason::Late);
            }
        }
        if let Some(token) = &about.token {
            if let Some(call) = self.ledger.by_alias(token) {
                // Where different clients share the server it may have used it for both.
                if self.topology.has_strangers() && self.guess(about, origin) != Ok(call) {
                    return Err(Reason::Ambiguous);
                }
                return Ok((call, Some(Repair::Token)));
            }
            if dead.is_none() {
                self.note_late_id(token);
            }
            // The token of a call that has ended is never taken for the next one's, nor for the id
            // of another call.
            if dead.is_some() || self.was_id_for_token(token) {
                return Err(Reason::Late);
            }
            if let Some(call) = self.by_token_as_id(token) {
                return Ok((call, Some(Repair::Token)));
            }
        }
        // From here on, a call is chosen only because no other call is open. A name that belongs to
        // an ended call is proof against that choice.
        let now = self.received_at;
        let mut names = about.token.iter().chain(&about.request);
        if names.any(|name| self.is_of_no_call(name, now)) {
            // The name belongs to no later call either, also when the answer that has it is forgotten.
            self.note_stray(about);
            return Err(Reason::Late);
        }
        // The loosest rung: no name has helped, but only one open call may be left.
        let guessed = self.guess(about, origin);
        // No call is open. A call that opens later must not get the reports under this name.
        if guessed == Err(Reason::Unknown) {
            self.note_stray(about);
        }
        Ok(self.learned(about, guessed?))
    }

    /// The call of a POST, by a name on the POST's own stream that is exactly its token or id. On
    /// this stream the names belong to the call, even if other calls have them too.
    pub(crate) fn own_on(&mut self, origin: Origin, name: &Key) -> Option<Attributed> {
        let Origin::Stream(on) = origin else { return None };
        let ledger = &self.ledger;
        let is_own = |id: &CallId| {
            ledger.get(*id).is_some_and(|call| match call.paired {
                Some(upstream) => upstream == on,
                None => call.stream == on && self.streams.is_exchange(on),
            })
        };
        let by_token = ledger.all_by_token(name).iter().copied().find(is_own);
        let by_id = ledger.all_by_id(name).iter().copied().find(is_own);
        let is_id =
            |call: &CallId| by_token.is_none() || self.evidence_of(*call) == Evidence::OnlyIds;
        if let Some(call) = by_id.filter(is_id) {
            return Some((call, Some(Repair::Token)));
        }
        if by_token.is_some() && ledger.by_id(name).is_none() {
            self.evidence = Evidence::Tokens;
        }
        by_token.map(|call| (call, None))
    }

    pub(crate) fn guess(&self, about: &About, origin: Origin) -> Result<CallId, Reason> {
        // The report is about one of the ended requests of its stream, not about a request
        // elsewhere.
        if self.is_stale(origin) {
            return Err(Reason::Unknown);
        }
        let call = self.by_other_names(about)?;
        if self.is_of_other_request(origin, call) {
            return Err(Reason::Unknown);
        }
        self.unless_over(call)
    }
}
