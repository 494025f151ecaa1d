//! Counts calls in flight, so that a shutdown can wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts open calls, or running servers.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    open: AtomicUsize,
    none: Notify,
    /// The counter of all calls, in which the calls of this counter count too.
    all: Option<Arc<Self>>,
}

/// An open call, which counts until this value is dropped.
pub(crate) struct InFlightGuard {
    calls: Arc<InFlight>,
}

impl InFlight {
    /// Returns a counter whose calls also count in `all`.
    pub(crate) fn among(all: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { all: Some(Arc::clone(all)), ..Self::default() })
    }

    pub(crate) fn open(self: &Arc<Self>) -> InFlightGuard {
        self.open.fetch_add(1, Ordering::Relaxed);
        if let Some(all) = &self.all {
            all.open.fetch_add(1, Ordering::Relaxed);
        }
        InFlightGuard { calls: Arc::clone(self) }
    }

    fn closed(&self) {
        // `Release`: a task that sees the last call end in `done` must also see everything that the call has done.
        if self.open.fetch_sub(1, Ordering::Release) == 1 {
            self.none.notify_waiters();
        }
    }

    /// Waits until no call or server is open.
    pub(crate) async fn done(&self) {
        loop {
            // Registered before the count is read, so that the end of the last call in between is not missed.
            let none = self.none.notified();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.calls.closed();
        if let Some(all) = &self.calls.all {
            all.closed();
        }
    }
}
