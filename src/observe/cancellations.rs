//! Operators' cancellations on their way to the filter that serves the call.
//!
//! Only the filter's own task, or the holder of its lock, may change its calls. So an operator's request waits in the
//! filter's inbox until that task takes it. While the inbox is empty, it costs one registration of a waker each time
//! that the task has nothing to do.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use tokio::sync::oneshot;

use crate::progress::{CancelResult, OperatorCancel};

/// Maximum number of cancellations that wait for one filter. Further ones are refused.
const WAITING_MAX: usize = 64;

/// A call to cancel, and the operator that waits for the result.
#[derive(Debug)]
pub struct CancelRequest {
    /// The call, and the operator's reason.
    pub asked: Arc<OperatorCancel>,
    /// The channel for the result. It is dropped without a result if the filter ends first.
    pub answer: oneshot::Sender<CancelResult>,
}

/// Has the cancellations of a filter taken immediately; for filters that no task polls.
type TakeNow = Box<dyn Fn() + Send + Sync>;

/// The cancellations that wait for one filter.
#[derive(Default)]
pub struct CancelInbox {
    waiting: Mutex<Vec<CancelRequest>>,
    /// Whether a cancellation may wait, for a check without the lock.
    is_filled: AtomicBool,
    waker: AtomicWaker,
    take_now: OnceLock<TakeNow>,
}

impl CancelInbox {
    /// Adds a cancellation. Returns false if too many wait.
    pub fn put(&self, request: CancelRequest) -> bool {
        let Ok(mut waiting) = self.waiting.lock() else { return false };
        if waiting.len() >= WAITING_MAX {
            return false;
        }
        waiting.push(request);
        drop(waiting);
        // Set the flag after adding the request: a reader that sees the flag must find the request.
        self.is_filled.store(true, Ordering::Release);
        match self.take_now.get() {
            Some(take) => take(),
            None => self.waker.wake(),
        }
        true
    }

    /// Sets the function that takes cancellations immediately, for a filter that no task polls.
    pub fn set_taker(&self, take: impl Fn() + Send + Sync + 'static) {
        // Ignore the result: the value is set only once, when the filter begins.
        let _ = self.take_now.set(Box::new(take));
    }

    /// Registers the task to be woken for cancellations.
    pub fn register(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// Whether a cancellation may wait.
    pub fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }

    /// Completes when a cancellation waits.
    pub fn poll_filled(&self, cx: &Context<'_>) -> Poll<()> {
        // Register before the check: a cancellation between the two would otherwise wake no task.
        self.register(cx);
        if self.is_filled() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Takes all waiting cancellations.
    pub fn take(&self) -> Vec<CancelRequest> {
        let Ok(mut waiting) = self.waiting.lock() else { return Vec::new() };
        // Cleared under the lock, so that a request added afterwards sets the flag again.
        self.is_filled.store(false, Ordering::Release);
        std::mem::take(&mut *waiting)
    }
}

impl fmt::Debug for CancelInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelInbox").field("is_filled", &self.is_filled()).finish_non_exhaustive()
    }
}
