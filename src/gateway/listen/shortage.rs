//! A listener without descriptors: said once, and once that it is over.

use std::fmt;

use tokio::time::{Duration, Instant};
use tracing::{info, warn};

/// The time without a failure after which a shortage is over.
const OVER_AFTER: Duration = Duration::from_secs(5);

/// The times in which a listener could not accept connections.
#[derive(Default)]
pub(super) struct Shortage {
    last: Option<Instant>,
}

impl Shortage {
    /// A connection was not accepted, or not served. Logs the first one of a shortage.
    pub(super) fn note(&mut self, why: &dyn fmt::Display) {
        if self.last.replace(Instant::now()).is_none() {
            warn!(
                error = %why,
                "no connection can be accepted; trying on (LimitNOFILE, ulimit -n, max_connections)"
            );
        }
    }

    /// A connection was accepted and is served.
    pub(super) fn end(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() >= OVER_AFTER) {
            self.last = None;
            info!("connections are accepted again");
        }
    }
}
