//! The clock of connections: tokio's, so that tests can pause the time.

use std::time::Duration;

/// The current time, as the sans-IO core takes it.
pub(crate) fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the pause before the next attempt: `first` without a failure, doubled with each further failure, at most
/// `longest`.
pub(crate) fn growing_pause(first: Duration, longest: Duration, failures: u32) -> Duration {
    // Saturating, because a server that is unreachable for days has any number of failures.
    first.saturating_mul(2_u32.saturating_pow(failures)).min(longest)
}
