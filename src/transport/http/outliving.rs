//! Requests that are completed although their client has closed its connection.
//!
//! hyper drops the future of an answer when the client's side of the connection ends. Many clients close right after
//! the last byte of a notification, a cancellation or an answer to the server: serverless functions, a page that is
//! left, `curl -m`. Such a message is complete, and has to reach the server all the same.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep, timeout};

/// Answers that outlive their connection at the same time, in the whole process. One more is dropped with its
/// connection.
const OUTLIVING_MAX: usize = 1024;

/// The time that the answer to a one-way message may take after its connection has ended.
const OUTLIVING_TIME: Duration = Duration::from_secs(30);

/// The time that a request has to reach the server after its connection has ended. Then the server, too, sees the
/// connection of the request end.
const SENDING_TIME: Duration = Duration::from_millis(500);

/// How an answer continues when its client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlives {
    /// To its end: a notification, a cancellation, an answer to the server, the end of a session.
    ToTheEnd,
    /// Until the server has received the request. Before 2026-07-28 a disconnect is not a cancellation.
    UntilSent,
    /// The answer is dropped: for a stream, and from 2026-07-28 on for a request, because the disconnect is its
    /// cancellation.
    Nothing,
}

/// Number of answers that outlive their connection now.
static OUTLIVING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The rule of the answer that this thread polls.
    static POLLED: Cell<Outlives> = const { Cell::new(Outlives::ToTheEnd) };
}

/// Sets the rule of the answer that is polled now, once its message is known.
pub(crate) fn set_outlives(rule: Outlives) {
    POLLED.set(rule);
}

/// The answer to an HTTP request, which outlives its connection according to its rule.
pub(crate) struct Outliving<R: Send + 'static> {
    answer: Option<Pin<Box<dyn Future<Output = R> + Send>>>,
    rule: Outlives,
}

impl<R: Send + 'static> Outliving<R> {
    /// `rule` holds until [`set_outlives`].
    pub(crate) fn new(answer: Pin<Box<dyn Future<Output = R> + Send>>, rule: Outlives) -> Self {
        Self { answer: Some(answer), rule }
    }
}

impl<R: Send + 'static> Future for Outliving<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        // `set_outlives` is called inside the poll, which cannot reach this future: the rule travels in a thread local.
        // The value before is restored, because an answer may be polled within another.
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
        // Without a runtime, the process is ending.
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
    /// The time limit of a request.
    sending: Option<Pin<Box<Sleep>>>,
}

impl<R> Future for Remainder<R> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let outer = POLLED.replace(self.rule);
        let polled = self.answer.as_mut().poll(context).map(drop);
        // The message may have been read only in this poll, after the disconnect, so its rule is only known now.
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

/// One of the [`OUTLIVING_MAX`] places.
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
