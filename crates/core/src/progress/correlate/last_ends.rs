//! The times when calls ended last.

use std::time::Instant;

use crate::progress::ids::Principal;

/// The times when calls ended last, by principal.
#[derive(Debug, Default)]
pub(crate) struct LastEnds {
    /// The principal of the call that ended last, and the time of its end.
    last: Option<(Principal, Instant)>,
    /// The last time at which a call of any other principal ended.
    others: Option<Instant>,
}

impl LastEnds {
    /// Notes that a call of `principal` has ended at `now`.
    pub(crate) fn note(&mut self, principal: Principal, now: Instant) {
        // Two values answer the question for every principal: the last end, and the last end of any other principal.
        if let Some((before, at)) = self.last.replace((principal, now))
            && before != principal
        {
            self.others = Some(at);
        }
    }

    /// Returns the last time at which a call of any principal except `principal` ended.
    pub(crate) fn of_others(&self, principal: Principal) -> Option<Instant> {
        let last = self.last.filter(|(who, _)| *who != principal);
        last.map(|(_, at)| at).or(self.others)
    }
}
