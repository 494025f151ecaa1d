//! The waker of a connection that its reader drives: wakes the reader when bytes arrive, and not when the two
//! halves of the connection wake each other while the reader polls both.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use crate::transport::sync::{AtomicUsize, AtomicWaker};

/// Polls in a row, where one half of a connection has woken the other. Further ones wait for the next poll of the
/// task: others have their turn.
const POLLS_IN_A_ROW: usize = 2;

/// Something may have happened since the last poll that had nothing.
const NEWS: usize = 1;

/// The reader polls now, and looks at the news afterwards.
const POLLING: usize = 2;

/// What the halves of a connection and the reader share.
#[derive(Debug)]
pub(crate) struct LinkSignal {
    /// The task that reads.
    task: AtomicWaker,
    /// [`NEWS`] and [`POLLING`], in one value: whoever brings news sees whether the reader will look.
    state: AtomicUsize,
}

impl LinkSignal {
    pub(crate) fn new() -> Self {
        Self { task: AtomicWaker::new(), state: AtomicUsize::new(NEWS) }
    }

    /// Somebody wakes the connection.
    pub(crate) fn wake(&self) {
        // While the reader polls, it looks at the news itself: a wake-up would only poll once more.
        if self.state.fetch_or(NEWS, Ordering::AcqRel) & POLLING == 0 {
            self.task.wake();
        }
    }

    /// The next poll is one, whatever has happened. Nobody polls now.
    pub(crate) fn renew(&self) {
        // The next poll is one even if nothing has been heard: the connection may have bytes in its buffers.
        self.state.store(NEWS, Ordering::Release);
    }

    /// Polls with `poll`, if anything may have happened since it had nothing. `own` is the waker that comes here.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        own: &Waker,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        // Registered before the state is read: news that come in between wake the task.
        self.task.register(cx.waker());
        if self.state.load(Ordering::Acquire) & NEWS == 0 {
            return Poll::Pending;
        }
        for _ in 0..POLLS_IN_A_ROW {
            // The news are taken before the poll: what happens during the poll is news again.
            self.state.swap(POLLING, Ordering::AcqRel);
            if let Poll::Ready(ready) = poll(&mut Context::from_waker(own)) {
                // There may be more than was taken, so the next poll is one whether or not something wakes the task.
                self.state.swap(NEWS, Ordering::AcqRel);
                return Poll::Ready(ready);
            }
            // News that came during the poll are kept, and the loop polls again.
            if self.state.fetch_and(!POLLING, Ordering::AcqRel) & NEWS == 0 {
                return Poll::Pending;
            }
        }
        // The two halves may go on waking each other: other tasks of the thread have their turn first.
        cx.waker().wake_by_ref();
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
