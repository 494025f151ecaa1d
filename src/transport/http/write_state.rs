//! The write state of a client's connection: whether the client reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state of writing to one client. While writing is blocked, the writers wait, and afterwards write only the newest
/// progress.
#[derive(Debug, Clone, Default)]
pub struct WriteState {
    is_blocked: Arc<AtomicBool>,
}

impl WriteState {
    /// Whether the last bytes could not be written yet.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// Says whether the last bytes could be written.
    pub fn block(&self, blocked: bool) {
        if self.is_blocked() != blocked {
            self.is_blocked.store(blocked, Ordering::Relaxed);
        }
    }
}
