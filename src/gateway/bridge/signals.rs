//! The signals between request handlers and the relay of their session.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::progress::StreamId;
use crate::transport::byte_budget::{ByteRoom, ByteShare};
use crate::transport::sync::{AtomicBool, AtomicUsize, AtomicWaker, Mutex, MutexGuard};

/// The error of a stream that ended before its requests were answered.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub(crate) status: StatusCode,
    pub(crate) why: &'static str,
}

/// Signals that wake the relay of a session, each with its reason.
pub(crate) struct SessionSignals {
    relay: AtomicWaker,
    drained: Mutex<VecDeque<StreamId>>,
    disconnected: Mutex<VecDeque<StreamId>>,
    end: Mutex<Option<Broken>>,
    slow: AtomicUsize,
    used: Mutex<Option<Instant>>,
    /// Whether the client has closed the stream for messages that belong to no request, and has sent nothing since.
    has_left: AtomicBool,
    /// The room in memory for the streams' messages, if they need more than a little.
    kept: Mutex<ByteRoom>,
}

/// Returns the signals of a session without a memory limit.
#[cfg(test)]
impl Default for SessionSignals {
    fn default() -> Self {
        let budget = std::sync::Arc::new(crate::transport::byte_budget::ByteBudget::default());
        budget.set_max(u64::MAX);
        Self::new(&budget.share(None))
    }
}

impl SessionSignals {
    /// Returns the signals of a session whose client has this share of the memory for waiting messages.
    pub(crate) fn new(kept: &ByteShare) -> Self {
        Self {
            relay: AtomicWaker::new(),
            drained: Mutex::default(),
            disconnected: Mutex::default(),
            end: Mutex::default(),
            slow: AtomicUsize::new(0),
            used: Mutex::default(),
            has_left: AtomicBool::new(false),
            kept: Mutex::new(kept.room()),
        }
    }

    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.relay.register(cx.waker());
    }

    /// Notes that the client of a stream has read everything, or has disconnected.
    pub(crate) fn mark_drained(&self, stream: StreamId) {
        self.drained.lock().unwrap_or_else(PoisonError::into_inner).push_back(stream);
        self.relay.wake();
    }

    pub(crate) fn next_drained(&self) -> Option<StreamId> {
        self.drained.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Notes that the client of a stream has disconnected, and thereby cancels its requests.
    pub(crate) fn mark_disconnected(&self, stream: StreamId) {
        self.disconnected.lock().unwrap_or_else(PoisonError::into_inner).push_back(stream);
        self.relay.wake();
    }

    pub(crate) fn next_disconnected(&self) -> Option<StreamId> {
        self.disconnected.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Asks the relay to end the session. Only the first reason counts.
    pub(crate) fn end(&self, why: Broken) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.relay.wake();
    }

    pub(crate) fn ended(&self) -> Option<Broken> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the room in memory for the messages that the streams keep.
    pub(crate) fn kept(&self) -> MutexGuard<'_, ByteRoom> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the relay, because a state outside this type may have changed.
    pub(crate) fn wake(&self) {
        self.relay.wake();
    }

    /// Notes a use of the session, which restarts its idle time.
    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Returns the time since the last use.
    pub(crate) fn unused_for(&self) -> Duration {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.map_or(Duration::ZERO, |used| used.elapsed())
    }

    /// Notes that the client has closed the stream for messages that belong to no request.
    pub(crate) fn mark_left(&self) {
        self.has_left.store(true, Ordering::Relaxed);
        self.relay.wake();
    }

    /// Notes a request of the client, which shows that it has not left.
    pub(crate) fn mark_present(&self) {
        self.has_left.store(false, Ordering::Relaxed);
        self.touch();
    }

    /// Whether the client has closed the stream for messages that belong to no request, and has sent no request since.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Notes that a client has become slow.
    pub(crate) fn add_slow_client(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a slow client is no longer slow, or has disconnected.
    pub(crate) fn remove_slow_client(&self) {
        self.slow.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed) > 0
    }
}
