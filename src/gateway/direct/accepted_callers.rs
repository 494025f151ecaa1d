//! Remembers the callers that a server without sessions has accepted. Only their calls may get an early stream, because
//! a refusal such as 401 needs its own status. The table has no lock, because every call reads it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of callers that are remembered. Callers with the same index in the table replace each other.
const CALLERS: usize = 1024;

/// A set of callers that may forget some.
pub(crate) struct AcceptedCallers {
    callers: Box<[AtomicU64; CALLERS]>,
}

impl Default for AcceptedCallers {
    fn default() -> Self {
        Self { callers: Box::new([const { AtomicU64::new(0) }; CALLERS]) }
    }
}

impl AcceptedCallers {
    fn place(&self, caller: u64) -> &AtomicU64 {
        &self.callers[usize::try_from(caller % CALLERS as u64).unwrap_or_default()]
    }

    pub(crate) fn contains(&self, caller: u64) -> bool {
        self.place(caller).load(Ordering::Relaxed) == caller
    }

    /// Notes that the server has accepted a caller.
    pub(crate) fn accept(&self, caller: u64) {
        self.place(caller).store(caller, Ordering::Relaxed);
    }

    /// Notes that the server has refused a caller.
    pub(crate) fn refuse(&self, caller: u64) {
        // Ignore the result: another caller may have taken the place meanwhile.
        let _ =
            self.place(caller).compare_exchange(caller, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_proven_until_it_is_refused_or_another_takes_its_place() {
        let proven = AcceptedCallers::default();
        assert!(!proven.contains(7));
        proven.accept(7);
        assert!(proven.contains(7));
        proven.refuse(7);
        assert!(!proven.contains(7));
        proven.accept(7);
        proven.accept(7 + CALLERS as u64);
        assert!(!proven.contains(7));
        proven.refuse(7);
        assert!(proven.contains(7 + CALLERS as u64));
    }
}
