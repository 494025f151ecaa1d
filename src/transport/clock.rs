//! The clock of connections: tokio's, so that tests can pause the time.

/// The current time, as the sans-IO core takes it.
pub(crate) fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}
