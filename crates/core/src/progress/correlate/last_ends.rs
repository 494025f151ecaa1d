//! The last ends of calls.

use std::time::Instant;

use crate::progress::ids::Principal;

/// The last ends of calls, by principal.
#[derive(Debug, Default)]
pub(crate) struct LastEnds {
    /// The call that ended last.
    last: Option<(Principal, Instant)>,
    /// The last end of a call of any other principal.
    others: Option<Instant>,
}

impl LastEnds {
    /// Notes the end of a call of `principal`.
    pub(crate) fn note(&mut self, principal: Principal, now: Instant) {
        // Two values suffice for every principal: the last end, and the last end of another principal.
        if let Some((before, at)) = self.last.replace((principal, now))
            && before != principal
        {
            self.others = Some(at);
        }
    }

    /// The last end of a call of any principal except `principal`.
    pub(crate) fn of_others(&self, principal: Principal) -> Option<Instant> {
        let last = self.last.filter(|(who, _)| *who != principal);
        last.map(|(_, at)| at).or(self.others)
    }
}
