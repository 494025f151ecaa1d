//! How many calls are open: a proxy that is about to stop waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts open calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: AtomicUsize,
    none: Notify,
}

/// A call that is open as long as this is there.
pub(super) struct OpenCall(Arc<Calls>);

impl Calls {
    pub(super) fn open(self: &Arc<Self>) -> OpenCall {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenCall(Arc::clone(self))
    }

    /// Waits until none is open.
    pub(super) async fn done(&self) {
        loop {
            let none = self.none.notified();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::Release) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
