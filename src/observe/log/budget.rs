//! Limits on log lines that anybody can cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of log lines about refused requests per second. A client that sends many such requests would
/// otherwise fill the disk. All of them are counted in the metrics.
const REFUSALS_LOGGED_MAX: u32 = 10;

/// Limit of log lines about refused requests, for all listeners together.
static REFUSALS: LogBudget = LogBudget::new(REFUSALS_LOGGED_MAX, Duration::from_secs(1));

/// A limit of log lines in a time window. Lines beyond it are counted.
pub(crate) struct LogBudget {
    max: u32,
    /// The length of the time window.
    window: Duration,
    state: Mutex<BudgetState>,
}

struct BudgetState {
    begun: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LogBudget {
    const fn new(max: u32, window: Duration) -> Self {
        let state = Mutex::new(BudgetState { begun: None, written: 0, left_out: 0 });
        Self { max, window, state }
    }

    /// Returns a budget of one line a minute, for facts that an operator has to know but that each request would
    /// repeat.
    pub(crate) const fn one_a_minute() -> Self {
        Self::new(1, Duration::from_secs(60))
    }

    /// Takes one line from the budget. Returns the number of lines left out before, or `None` to leave this one out.
    pub(crate) fn take(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= self.window) {
            (state.begun, state.written) = (Some(now), 0);
        }
        if state.written == self.max {
            state.left_out += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

/// Returns the number of earlier lines about refused requests that were left out, if such a line may be written now;
/// otherwise `None`.
pub fn may_log_refusal() -> Option<u64> {
    REFUSALS.take(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_are_written_and_the_next_tells_what_is_missing() {
        let window = Duration::from_secs(1);
        let budget = LogBudget::new(REFUSALS_LOGGED_MAX, window);
        let start = Instant::now();
        let written = (0..1000).filter(|_| budget.take(start).is_some()).count();
        assert_eq!(written, 10);
        assert_eq!(budget.take(start + window), Some(990));
        assert_eq!(budget.take(start + window), Some(0));
    }
}
