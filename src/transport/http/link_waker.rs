//! The waker of a connection that its reader drives: wakes the reader when bytes arrive, and not when the two
//! halves of the connection wake each other while the reader polls both.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use crate::transport::sync::{AtomicBool, AtomicWaker};

/// Polls in a row, where one half of a connection has woken the other. Further ones wait for the next poll of the
/// task: others have their turn.
const POLLS_MAX: usize = 2;

/// What the halves of a connection and the reader share.
#[derive(Debug)]
pub(crate) struct LinkSignal {
    /// The task that reads.
    task: AtomicWaker,
    /// Something may have happened since the last poll that had nothing.
    woken: AtomicBool,
    /// The reader polls now, and looks at `woken` afterwards.
    polling: AtomicBool,
}

impl LinkSignal {
    pub(crate) fn new() -> Self {
        Self {
            task: AtomicWaker::new(),
            woken: AtomicBool::new(true),
            polling: AtomicBool::new(false),
        }
    }

    /// Somebody wakes the connection.
    pub(crate) fn wake(&self) {
        // Whoever polls sees this, or has seen that nobody polls: one of both wakes the task.
        self.woken.store(true, Ordering::SeqCst);
        if !self.polling.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }

    /// The next poll is one, whatever has happened.
    pub(crate) fn renew(&self) {
        self.woken.store(true, Ordering::SeqCst);
    }

    /// Polls with `poll`, if anything may have happened since it had nothing. `own` is the waker that comes here.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        own: &Waker,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.task.register(cx.waker());
        if !self.woken.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        self.polling.store(true, Ordering::SeqCst);
        for _ in 0..POLLS_MAX {
            self.woken.store(false, Ordering::SeqCst);
            if let Poll::Ready(ready) = poll(&mut Context::from_waker(own)) {
                self.renew();
                self.polling.store(false, Ordering::SeqCst);
                return Poll::Ready(ready);
            }
            if !self.woken.load(Ordering::SeqCst) {
                break;
            }
        }
        self.polling.store(false, Ordering::SeqCst);
        if self.woken.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// A [`LinkSignal`] and the waker that comes to it.
#[derive(Debug)]
pub(crate) struct LinkWaker {
    signal: Arc<LinkSignal>,
    waker: Waker,
}

/// The way of a waker to its signal.
struct Bell(Arc<LinkSignal>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

impl LinkWaker {
    pub(crate) fn new() -> Self {
        let signal = Arc::new(LinkSignal::new());
        let waker = Arc::new(Bell(Arc::clone(&signal))).into();
        Self { signal, waker }
    }

    /// [`LinkSignal::renew`].
    pub(crate) fn renew(&self) {
        self.signal.renew();
    }

    /// [`LinkSignal::poll`].
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.signal.poll(cx, &self.waker, poll)
    }
}
