//! The write state of a client's connection: whether the client reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether writing to one client is blocked. Meanwhile the writers wait, and then write only the newest progress.
#[derive(Debug, Clone, Default)]
pub struct WriteState {
    is_blocked: Arc<AtomicBool>,
}

impl WriteState {
    /// Whether the last bytes could not be written yet.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// Notes whether the last bytes could be written.
    pub fn block(&self, blocked: bool) {
        if self.is_blocked() != blocked {
            self.is_blocked.store(blocked, Ordering::Relaxed);
        }
    }
}
