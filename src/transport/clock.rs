//! The clock of connections. It is tokio's, so that tests can pause the time.

use std::time::Duration;

/// Returns the current time in the type that the sans-IO core takes.
pub(crate) fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the pause before the next attempt: `first` without a failure, doubled with each further failure, at most
/// `longest`.
pub(crate) fn growing_pause(first: Duration, longest: Duration, failures: u32) -> Duration {
    // Saturating, because the number of failures grows while a server is unreachable for days.
    first.saturating_mul(2_u32.saturating_pow(failures)).min(longest)
}
