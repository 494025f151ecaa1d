//! The write state of a client's connection: whether the client reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The way to one client, as far as those need to know who have something to say: they say it later,
/// and then only the newest, while it is blocked.
#[derive(Debug, Clone, Default)]
pub struct WriteState(Arc<AtomicBool>);

impl WriteState {
    /// Whether the last bytes could not be written yet.
    pub fn is_blocked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Says whether the last bytes could be written.
    pub fn block(&self, blocked: bool) {
        if self.is_blocked() != blocked {
            self.0.store(blocked, Ordering::Relaxed);
        }
    }
}
