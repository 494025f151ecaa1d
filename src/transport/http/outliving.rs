//! Requests that are completed although their client has closed its connection.
//!
//! hyper drops the future of an answer when the client's side of the connection ends. Many clients close right after
//! the last byte of a notification, a cancellation or an answer to the server: serverless functions, a page that the
//! user leaves, `curl -m`. Such a message is complete, so it must still reach the server.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep, timeout};

/// Limit of the answers in the whole process that continue after their connections have ended. One more is dropped with
/// its connection.
const OUTLIVING_MAX: usize = 1024;

/// Deadline for the answer to a one-way message after its connection has ended.
const OUTLIVING_TIME: Duration = Duration::from_secs(30);

/// Deadline for a request to reach the server after its connection has ended. Then the connection to the server is
/// closed too.
const SENDING_TIME: Duration = Duration::from_millis(500);

/// How an answer continues when its client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlives {
    /// To its end: for a notification, a cancellation, an answer to the server, or the end of a session.
    ToTheEnd,
    /// Until the server has received the request: before 2026-07-28 a disconnect is not a cancellation.
    UntilSent,
    /// Not at all: for a stream, and for requests from 2026-07-28 on, which a disconnect cancels.
    Nothing,
}

/// Number of answers that now continue after their connections have ended.
static OUTLIVING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The rule of the answer that this thread is polling.
    static POLLED: Cell<Outlives> = const { Cell::new(Outlives::ToTheEnd) };
}

/// Sets the rule of the answer that this thread is polling, once its message is known.
pub(crate) fn set_outlives(rule: Outlives) {
    POLLED.set(rule);
}

/// The answer to an HTTP request, which outlives its connection as its rule says.
pub(crate) struct Outliving<R: Send + 'static> {
    answer: Option<Pin<Box<dyn Future<Output = R> + Send>>>,
    rule: Outlives,
}

impl<R: Send + 'static> Outliving<R> {
    /// Wraps an answer. `rule` applies until [`set_outlives`] is called.
    pub(crate) fn new(answer: Pin<Box<dyn Future<Output = R> + Send>>, rule: Outlives) -> Self {
        Self { answer: Some(answer), rule }
    }
}

impl<R: Send + 'static> Future for Outliving<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        // The code inside the poll calls `set_outlives` but cannot reach this future, so the rule is passed in a thread
        // local. The previous value is restored, because an answer may be polled within another.
        let outer = POLLED.replace(self.rule);
        let polled = match &mut self.answer {
            Some(answer) => answer.as_mut().poll(context),
            None => Poll::Pending,
        };
        self.rule = POLLED.replace(outer);
        if polled.is_ready() {
            self.answer = None;
        }
        polled
    }
}

impl<R: Send + 'static> Drop for Outliving<R> {
    fn drop(&mut self) {
        let rule = self.rule;
        let Some(answer) = self.answer.take().filter(|_| rule != Outlives::Nothing) else { return };
        // If there is no runtime, the process is ending.
        let (Ok(runtime), Some(place)) = (Handle::try_current(), Place::take()) else { return };
        let remainder = async move {
            // A server that never answers must not keep one of the limited places.
            let _ = timeout(OUTLIVING_TIME, Remainder { answer, rule, sending: None }).await;
            drop(place);
        };
        runtime.spawn(remainder.boxed());
    }
}

/// The rest of an answer whose client has disconnected.
struct Remainder<R> {
    answer: Pin<Box<dyn Future<Output = R> + Send>>,
    rule: Outlives,
    /// The deadline for a request to reach the server.
    sending: Option<Pin<Box<Sleep>>>,
}

impl<R> Future for Remainder<R> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let outer = POLLED.replace(self.rule);
        let polled = self.answer.as_mut().poll(context).map(drop);
        // The message may have been read only in this poll, after the disconnect, so its rule is known only now.
        self.rule = POLLED.replace(outer);
        match self.rule {
            Outlives::ToTheEnd => polled,
            Outlives::Nothing => Poll::Ready(()),
            Outlives::UntilSent if polled.is_ready() => polled,
            Outlives::UntilSent => {
                let limit = self.sending.get_or_insert_with(|| Box::pin(sleep(SENDING_TIME)));
                limit.as_mut().poll(context)
            }
        }
    }
}

/// One of the [`OUTLIVING_MAX`] places for answers without a connection.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let more = |count| (count < OUTLIVING_MAX).then_some(count + 1);
        OUTLIVING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok().then_some(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        OUTLIVING.fetch_sub(1, Ordering::Relaxed);
    }
}
