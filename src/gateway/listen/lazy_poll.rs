//! A future that is polled only after it was woken. An ordinary future beside the work of a connection would be polled
//! as often as that work, and nearly always for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// A future that is polled once, and then only after it was woken.
pub(super) struct LazyPoll<'a, F: ?Sized> {
    future: Pin<&'a mut F>,
    bell: Arc<Bell>,
    /// Wakes the future by ringing the bell.
    waker: Waker,
}

/// What a wake-up of the future changes.
struct Bell {
    /// Whether the future was woken since its last poll, or was never polled.
    has_rung: AtomicBool,
    /// The task that polls the future.
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Set before the task is woken, so that the task sees it.
        self.has_rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<'a, F: ?Sized> LazyPoll<'a, F> {
    /// Wraps `future`, which must not have been polled yet.
    pub(super) fn new(future: Pin<&'a mut F>) -> Self {
        let bell = Arc::new(Bell { has_rung: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { future, waker: Waker::from(Arc::clone(&bell)), bell }
    }
}

impl<F: Future + ?Sized> Future for LazyPoll<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Registered before the flag is read: a wake-up between the two is then seen, or wakes this task.
        self.bell.task.register(context.waker());
        if !self.bell.has_rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Reset before the poll, so that a wake-up during the poll causes another one.
        self.bell.has_rung.store(false, Ordering::Release);
        let Self { future, waker, .. } = &mut *self;
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_future_is_polled_after_its_own_wake_ups_only() {
        let (polls, notify) = (Cell::new(0), Notify::new());
        let mut waiting = pin!(async {
            notify.notified().await;
            sleep(Duration::from_secs(1)).await;
        });
        let counted = poll_fn(|cx| {
            polls.set(polls.get() + 1);
            waiting.as_mut().poll(cx)
        });
        let mut counted = pin!(counted);
        let mut lazy = pin!(LazyPoll::new(counted.as_mut()));
        let busy = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            notify.notify_one();
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = lazy.as_mut() => {}
            () = busy => {}
        }
        // Polled at first, after the notification, and after the sleep.
        assert_eq!(polls.get(), 3);
    }
}
