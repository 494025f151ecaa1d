//! Counts connections that a listener turns away, and logs why and what to do.

use std::{fmt, io};

use tokio::time::{Duration, Instant};
use tracing::{info, warn};

use crate::observe::log::LogBudget;
use crate::observe::metrics::ConnectionCounts;

/// The time without a failure after which a shortage counts as over.
const OVER_AFTER: Duration = Duration::from_secs(5);

/// Notes when a listener could not accept connections.
pub(super) struct Shortage {
    last: Option<Instant>,
    counts: ConnectionCounts,
    /// Limits the log lines about connections beyond `max_connections`.
    told: LogBudget,
}

impl Default for Shortage {
    fn default() -> Self {
        Self::counted(ConnectionCounts::default())
    }
}

impl Shortage {
    /// Returns a state without a shortage. `counts` counts the connections that are turned away.
    pub(super) fn counted(counts: ConnectionCounts) -> Self {
        Self { last: None, counts, told: LogBudget::one_a_minute() }
    }

    /// Notes a connection that was turned away because `max` others are open.
    pub(super) fn note_full(&self, max: usize) {
        self.counts.over_limit.inc();
        if let Some(left_out) = self.told.take(std::time::Instant::now()) {
            warn!(
                limit = "max_connections of [server]",
                max,
                left_out = (left_out > 0).then_some(left_out),
                "refused: as many connections of clients are open as may, and further clients are turned away: raise \
                 `max_connections` of [server], and with it the limit of descriptors (LimitNOFILE, ulimit -n)"
            );
        }
    }

    /// Notes a connection that was refused because only the descriptors reserved for operators are left.
    pub(super) fn note_reserve(&mut self) {
        self.counts.without_descriptor.inc();
        self.note(&"the last descriptors are kept for operators");
    }

    /// Notes a connection that was not accepted or not served. Logs the first one in a shortage.
    pub(super) fn note(&mut self, why: &dyn fmt::Display) {
        if self.last.replace(Instant::now()).is_none() {
            warn!(
                error = %why,
                "no connection can be accepted; trying on (LimitNOFILE, ulimit -n, max_connections)"
            );
        }
    }

    /// Notes that a connection was accepted and is served, which may end a shortage.
    pub(super) fn end(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() >= OVER_AFTER) {
            self.last = None;
            info!("connections are accepted again");
        }
    }
}

/// Whether a failed accept is the fault of only one connection, so that the next one may succeed.
pub(super) fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
