//! The moment at which the proxy ends, told to everyone who waits for something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Waiting takes a lock for a moment; those who wait at the same time rarely take the same one.
const SHARDS: usize = 16;

/// Whether the proxy has ended, and a way to wait for that.
#[derive(Debug, Default)]
pub(super) struct Ending {
    ended: AtomicBool,
    waiting: [Arc<Notify>; SHARDS],
    next: AtomicUsize,
}

impl Ending {
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.waiting.iter().for_each(|waiting| waiting.notify_waiters());
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// One of those that are notified at the end.
    pub(super) fn shard(&self) -> &Arc<Notify> {
        &self.waiting[self.next.fetch_add(1, Ordering::Relaxed) % SHARDS]
    }

    /// Waits for the end, also if it has come already.
    pub(super) async fn wait(&self) {
        let notified = self.shard().notified();
        if !self.has_ended() {
            notified.await;
        }
    }
}
