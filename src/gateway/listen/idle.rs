//! Closes connections on which no request is open.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Version;
use http_body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::SetOnce;
use tokio::time::{Instant, sleep, sleep_until};

/// The interval of checks whether a connection that will be closed has got its first request.
const LOOK: Duration = Duration::from_millis(10);

/// When connections are closed on which no request is open.
#[derive(Debug, Clone)]
pub(super) struct IdleRule {
    /// The time without a request on HTTP/1.1; `None`: such a connection is not closed.
    pub(super) http1: Option<Duration>,
    /// The time without a request on HTTP/2; `None`: such a connection is not closed.
    pub(super) http2: Option<Duration>,
    /// Counts the connections that are closed.
    pub(super) ended: Counter,
}

impl Default for IdleRule {
    fn default() -> Self {
        let after = Some(Duration::from_secs(5 * 60));
        Self { http1: after, http2: after, ended: Counter::default() }
    }
}

/// The open requests of a connection: each is open from its head to the end of its answer. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct OpenAnswers {
    answers: Arc<Answers>,
}

#[derive(Debug)]
struct Answers {
    open: AtomicUsize,
    /// Number of requests that have arrived so far.
    entered: AtomicU64,
    version: SetOnce<Version>,
    begun: Instant,
    /// Milliseconds from `begun` to the end of the last answer.
    last_end: AtomicU64,
}

impl OpenAnswers {
    /// Returns a state without requests, whose idle time begins now.
    pub(super) fn new() -> Self {
        let answers = Answers {
            open: AtomicUsize::default(),
            entered: AtomicU64::default(),
            version: SetOnce::new(),
            begun: Instant::now(),
            last_end: AtomicU64::default(),
        };
        Self { answers: Arc::new(answers) }
    }

    /// Notes that a request has arrived.
    pub(super) fn enter(&self) -> OpenAnswer {
        self.answers.open.fetch_add(1, Ordering::Relaxed);
        self.answers.entered.fetch_add(1, Ordering::Relaxed);
        OpenAnswer { answers: Arc::clone(&self.answers) }
    }

    /// The client has shown its version of HTTP.
    pub(super) fn set_version(&self, version: Version) {
        // The first call counts, and there is no second one.
        let _ = self.answers.version.set(version);
    }

    /// Returns the number of the head to which the client's next bytes belong; `None` while a request is open.
    pub(super) fn next_head(&self) -> Option<u64> {
        let is_free = self.answers.open.load(Ordering::Acquire) == 0;
        is_free.then(|| self.answers.entered.load(Ordering::Relaxed))
    }

    /// Waits until no request was open for the time in `rule` for the client's HTTP version.
    pub(super) async fn idle_by(&self, rule: &IdleRule) {
        let after = match *self.answers.version.wait().await {
            Version::HTTP_2 => rule.http2,
            _ => rule.http1,
        };
        match after {
            Some(after) => self.idle(after).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until a request has arrived, for at most `most`.
    pub(super) async fn begun(&self, most: Duration) {
        let until = Instant::now() + most;
        let has_begun = || {
            self.answers.open.load(Ordering::Relaxed) > 0
                || self.answers.last_end.load(Ordering::Relaxed) > 0
        };
        while !has_begun() && Instant::now() < until {
            sleep(LOOK).await;
        }
    }

    /// Waits until no request was open for the time `after`.
    pub(super) async fn idle(&self, after: Duration) {
        loop {
            if self.answers.open.load(Ordering::Acquire) > 0 {
                // An answer that ends during this sleep has ended less than `after` ago.
                sleep(after).await;
                continue;
            }
            let last_end = Duration::from_millis(self.answers.last_end.load(Ordering::Relaxed));
            let at = self.answers.begun + last_end + after;
            if at <= Instant::now() {
                return;
            }
            sleep_until(at).await;
        }
    }
}

/// Marks a request as open until its answer has ended.
#[derive(Debug)]
pub(super) struct OpenAnswer {
    answers: Arc<Answers>,
}

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        let since = self.answers.begun.elapsed().as_millis();
        // Rounded up, so that the connection is not closed too early.
        let since = u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1);
        // Stored before the count goes down: a reader that sees no open request sees when the last one ended.
        self.answers.last_end.fetch_max(since, Ordering::Relaxed);
        self.answers.open.fetch_sub(1, Ordering::Release);
    }
}

/// The body of an answer; the request is open until it is dropped.
pub(super) struct LastingBody<B> {
    pub(super) body: B,
    pub(super) _open: OpenAnswer,
}

impl<B: Body + Unpin> Body for LastingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(300);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_no_request_was_open_for_so_long() {
        let (answers, begun) = (OpenAnswers::new(), Instant::now());
        let waiting = answers.clone();
        let idle = tokio::spawn(async move {
            waiting.idle(AFTER).await;
            Instant::now()
        });
        sleep(AFTER - Duration::from_secs(1)).await;
        let (first, second) = (answers.enter(), answers.enter());
        sleep(AFTER * 3).await;
        drop(first);
        sleep(AFTER * 3).await;
        assert!(!idle.is_finished());
        drop(second);
        let ended = Instant::now() - begun;
        let since = idle.await.unwrap() - begun;
        let late = since.checked_sub(ended + AFTER).unwrap();
        assert!(late <= Duration::from_millis(2), "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_request_is_waited_for() {
        let (answers, begun) = (OpenAnswers::new(), Instant::now());
        answers.begun(AFTER).await;
        assert_eq!(Instant::now() - begun, AFTER);
        drop(answers.enter());
        answers.begun(AFTER).await;
        assert_eq!(Instant::now() - begun, AFTER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_any_request_is_idle_from_its_beginning() {
        let begun = Instant::now();
        OpenAnswers::new().idle(AFTER).await;
        assert_eq!(Instant::now() - begun, AFTER);
    }
}
