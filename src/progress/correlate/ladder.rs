//! Which request a report is about: the correlation ladder (rules T3, T4, T5).

use crate::progress::correlate::call::Call;
use crate::progress::correlate::correlator::Evidence;
use crate::progress::correlate::ledger::Tomb;
use crate::progress::dialect::report::About;
use crate::progress::event::Origin;
use crate::progress::filter::Filter;
use crate::progress::ids::CallId;
use crate::progress::verdict::{Reason, Repair};
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp::{LISTEN, Revision};

/// The call that a report is about, and how its token had to be mended to know it.
pub(crate) type Attributed = (CallId, Option<Repair>);

impl Filter {
    /// Finds the one call that a report can be about. Each rung holds only if exactly one call
    /// results; a wrong guess would move the wrong bar.
    pub(crate) fn attribute(
        &mut self,
        about: &About,
        origin: Origin,
    ) -> Result<Attributed, Reason> {
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
        let dead = about.token.as_ref().and_then(|token| {
            let given = || self.was_given(token).then_some(Tomb::Token);
            self.ledger.was_token(token).or_else(given)
        });
        if dead != Some(Tomb::Token)
            && let Some(call) = self.sole_call_on(origin)
        {
            return Ok(self.learned(about, call));
        }
        if let Some(id) = &about.request {
            let found = self.ledger.by_id(id).or_else(|| sole(self.ledger.by_respelled_id(id)));
            if let Some(call) = found {
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
            // The token of a call that has ended is never taken for the next one's, nor for the id
            // of another call.
            if dead.is_some() {
                return Err(Reason::Late);
            }
            if let Some(call) = self.by_token_as_id(token) {
                return Ok((call, Some(Repair::Token)));
            }
        }
        let call = self.guess(about, origin)?;
        Ok(self.learned(about, call))
    }

    /// Remembers that the server means `call` by its token.
    fn learned(&mut self, about: &About, call: CallId) -> Attributed {
        if let Some(token) = &about.token {
            self.ledger.learn(token, call);
        }
        (call, Some(Repair::Token))
    }

    /// The call whose token this is; `None` if there is none.
    fn by_token(&mut self, token: &Key) -> Option<Attributed> {
        let as_id = self.ledger.by_id(token);
        if self.token_is == Evidence::OnlyIds
            && let Some(call) = as_id
        {
            return Some((call, Some(Repair::Token)));
        }
        if let Some(call) = self.ledger.by_token(token) {
            if as_id.is_none() {
                self.token_is = Evidence::Tokens;
            }
            return Some((call, None));
        }
        sole(self.ledger.by_respelled_token(token)).map(|call| (call, Some(Repair::Token)))
    }

    /// The call whose id was put where the token belongs.
    fn by_token_as_id(&mut self, token: &Key) -> Option<CallId> {
        let as_id = self.ledger.by_id(token);
        let call = as_id.or_else(|| sole(self.ledger.by_respelled_id(token)))?;
        if self.token_is == Evidence::None {
            self.token_is = Evidence::OnlyIds;
        }
        Some(call)
    }

    pub(crate) fn guess(&self, about: &About, origin: Origin) -> Result<CallId, Reason> {
        if self.is_stale(origin) {
            return Err(Reason::Unknown);
        }
        if self.recently_cancelled() {
            return Err(Reason::Ambiguous);
        }
        self.by_other_names(about)
    }

    fn by_other_names(&self, about: &About) -> Result<CallId, Reason> {
        if let Some(id) = &about.task {
            let of_task = |call: &Call| call.task.as_ref().is_some_and(|task| task.id == *id);
            return sole(self.active(of_task)).ok_or(Reason::Unknown);
        }
        if let Some(tool) = &about.tool {
            return only(self.active(|call| call.tool.as_deref() == Some(tool)));
        }
        match only(self.active(Call::is_tool_call)) {
            Err(Reason::Unknown) => only(self.active(|call| &*call.method != LISTEN)),
            found => found,
        }
    }
}

/// The only one, if there is only one.
pub(crate) fn sole(mut calls: impl Iterator<Item = CallId>) -> Option<CallId> {
    let first = calls.next()?;
    calls.next().is_none().then_some(first)
}

/// The only one, or why there is none.
pub(crate) fn only(mut calls: impl Iterator<Item = CallId>) -> Result<CallId, Reason> {
    let first = calls.next().ok_or(Reason::Unknown)?;
    if calls.next().is_none() { Ok(first) } else { Err(Reason::Ambiguous) }
}
