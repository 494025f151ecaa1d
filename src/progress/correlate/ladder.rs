//! Which request a report is about: the correlation ladder (rules T3, T4, T5).

use crate::progress::correlate::correlator::{Attributed, sole};
use crate::progress::correlate::ledger::Tomb;
use crate::progress::dialect::report::About;
use crate::progress::event::Origin;
use crate::progress::filter::Filter;
use crate::progress::ids::CallId;
use crate::progress::verdict::{Reason, Repair};
use crate::protocol::mcp::Revision;

impl Filter {
    /// Finds the one call that a report can be about. Each rung holds only if exactly one call
    /// results; a wrong guess would move the wrong bar.
    pub(crate) fn attribute(
        &mut self,
        about: &About,
        origin: Origin,
    ) -> Result<Attributed, Reason> {
        if let Some(token) = &about.token
            && let Some(found) = self.correlator.by_token(token)
        {
            return match self.correlator.ledger.get(found.0) {
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
        let dead = about.token.as_ref().and_then(|token| {
            let given = || self.was_given(token).then_some(Tomb::Token);
            self.correlator.ledger.was_token(token).or_else(given)
        });
        if dead != Some(Tomb::Token)
            && let Some(call) = self.sole_call_on(origin)
        {
            return Ok(self.correlator.learned(about, call));
        }
        if let Some(id) = &about.request {
            let found = self
                .correlator
                .ledger
                .by_id(id)
                .or_else(|| sole(self.correlator.ledger.by_respelled_id(id)));
            if let Some(call) = found {
                return Ok((call, Some(Repair::Token)));
            }
            if self.correlator.ledger.was_id_in_any_spelling(id).is_some() || self.was_given(id) {
                return Err(Reason::Late);
            }
        }
        if let Some(token) = &about.token {
            if let Some(call) = self.correlator.ledger.by_alias(token) {
                // Where different clients share the server it may have used it for both.
                if self.topology.has_strangers() && self.guess(about, origin) != Ok(call) {
                    return Err(Reason::Ambiguous);
                }
                return Ok((call, Some(Repair::Token)));
            }
            // The token of a call that has ended is never taken for the next one's, nor for the id
            // of another call.
            if dead.is_some() {
                return Err(Reason::Late);
            }
            if let Some(call) = self.correlator.by_token_as_id(token) {
                return Ok((call, Some(Repair::Token)));
            }
        }
        let call = self.guess(about, origin)?;
        Ok(self.correlator.learned(about, call))
    }

    pub(crate) fn guess(&self, about: &About, origin: Origin) -> Result<CallId, Reason> {
        if self.is_stale(origin) {
            return Err(Reason::Unknown);
        }
        if self.recently_cancelled() {
            return Err(Reason::Ambiguous);
        }
        self.correlator.by_other_names(about)
    }
}
