//! Signals the shutdown of Milepost, or of a route's server, to every task that waits for it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::body::BodyProducer;
use crate::transport::http::client::{UpstreamBody, UpstreamError};

/// The error of calls that are cut off at the end.
pub(crate) const SHUTTING_DOWN: &str =
    "Milepost is shutting down, and the time of `drain` ended before the server answered";

/// The error of streams on which clients listen, after their route has got another server.
pub(crate) const MOVED: &str = "this route has another server now";

/// Number of groups of waiting tasks, each with its own lock, so that tasks rarely wait for the same lock.
const SHARDS: usize = 16;

/// Whether the shutdown has come, and a way to wait for it.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    ended: AtomicBool,
    /// Whether new sessions should begin at other replicas.
    turns_newcomers_away: AtomicBool,
    /// Whether sessions that end with this process accept no new calls.
    turns_calls_away: AtomicBool,
    waiting: [Arc<Notify>; SHARDS],
    next: AtomicUsize,
}

impl Shutdown {
    pub(crate) fn end(&self) {
        // The flag is set before the wake-up, and waiters register before they read it, so that none misses the end.
        self.ended.store(true, Ordering::SeqCst);
        self.waiting.iter().for_each(|waiting| waiting.notify_waiters());
    }

    /// Notes that other replicas should begin new sessions, because this replica will end soon.
    pub(crate) fn turn_newcomers_away(&self) {
        self.turns_newcomers_away.store(true, Ordering::Relaxed);
    }

    /// Whether a new session should begin at another replica.
    pub(crate) fn turns_newcomers_away(&self) -> bool {
        self.turns_newcomers_away.load(Ordering::Relaxed)
    }

    /// Notes that sessions that end with this process accept no new calls from now on.
    pub(crate) fn turn_calls_away(&self) {
        self.turns_calls_away.store(true, Ordering::Relaxed);
    }

    /// Whether sessions that end with this process accept no new calls.
    pub(crate) fn turns_calls_away(&self) -> bool {
        self.turns_calls_away.load(Ordering::Relaxed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Returns one of the groups that are notified at the end.
    pub(crate) fn shard(&self) -> &Arc<Notify> {
        &self.waiting[self.next.fetch_add(1, Ordering::Relaxed) % SHARDS]
    }

    /// Waits for the end. Returns immediately if it has already come.
    pub(crate) async fn wait(&self) {
        let notified = self.shard().notified();
        if !self.has_ended() {
            notified.await;
        }
    }
}

/// A listening stream that is forwarded unchanged until the shutdown.
pub(crate) struct PipedStream {
    body: UpstreamBody,
    ending: Pin<Box<OwnedNotified>>,
    over: bool,
}

impl PipedStream {
    pub(crate) fn new(body: UpstreamBody, ending: &Shutdown) -> Self {
        // Registered before the flag is read, as in `Shutdown::wait`.
        let notified = Box::pin(Arc::clone(ending.shard()).notified_owned());
        Self { body, ending: notified, over: ending.has_ended() }
    }
}

impl BodyProducer for PipedStream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        self.over = self.over || self.ending.poll_unpin(cx).is_ready();
        if self.over { Poll::Ready(None) } else { self.body.poll_data(cx) }
    }
}
