//! The parts that both forms of a session share: the guard around a filter, the lock of a session, and a server's
//! events.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use milepost_core::progress::input::Input;
use milepost_core::progress::{
    ArrivedMessage, Disposition, FastPath, Filter, FilterEvent, Origin, Policy, RequestMembers,
    StreamId,
};
use milepost_core::protocol::jsonrpc::{Framing, Message};

/// A session and its requests, with the operations that the gateway uses. Functions that handle a message of the server
/// return the number of messages that the client gets.
pub(crate) trait Session: Sync {
    /// One open request.
    type Request;
    const NAME: &'static str;

    /// Returns a session before its handshake.
    fn new(policy: &Arc<Policy>) -> Self;
    /// Handles a request that a client sends.
    fn open(&self, at: Instant, message: &Message, members: &RequestMembers) -> Box<Self::Request>;
    /// Handles a notification that a client sends.
    fn notify(&self, at: Instant, message: &Message);
    /// Handles some events, which one read of the server's response has returned.
    fn read(&self, request: &mut Self::Request, at: Instant, events: &[Event]) -> usize;
    /// Handles the whole body of a JSON response.
    fn body(&self, request: &mut Self::Request, at: Instant, body: &Bytes) -> usize;
    /// Handles the end of the response.
    fn end(&self, request: &mut Self::Request, at: Instant) -> usize;
    /// Ends a request after its client has received the whole response.
    fn close(&self, request: Box<Self::Request>, at: Instant);
    /// Returns how long threads have waited for the session, in nanoseconds, and how often.
    fn waits(&self) -> (u64, u64);
}

/// One event of a server.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) frame: Bytes,
    pub(crate) text: Range<usize>,
}

impl Event {
    fn arrived(&self) -> ArrivedMessage<'_> {
        let text = &self.frame[self.text.clone()];
        ArrivedMessage { text, frame: &self.frame, source: &self.frame }
    }

    fn message(&self) -> Message {
        let text = self.frame.slice(self.text.clone());
        Message::parse(text).framed(Framing::Within(self.frame.clone()))
    }
}

/// A filter in a guard that catches panics, like `FilterGuard` of the proxy, but without observers.
pub(crate) struct Guard {
    filter: Filter,
    policy: Arc<Policy>,
    failed: bool,
    recorded: VecDeque<FilterEvent>,
}

impl Guard {
    pub(crate) fn new(filter: Filter, policy: &Arc<Policy>) -> Self {
        Self { filter, policy: Arc::clone(policy), failed: false, recorded: VecDeque::new() }
    }

    /// Runs `work` on the filter; `None` if the filter has failed, now or before.
    pub(crate) fn run<T>(&mut self, work: impl FnOnce(&mut Filter) -> T) -> Option<T> {
        if self.failed {
            return None;
        }
        let filter = &mut self.filter;
        let done = catch_unwind(AssertUnwindSafe(|| work(filter)));
        self.failed = done.is_err();
        done.ok()
    }

    pub(crate) fn apply(&mut self, at: Instant, input: Input) {
        let _result = self.run(|filter| filter.handle(at, &input));
    }

    pub(crate) fn set_policy(&mut self, policy: &Arc<Policy>) {
        let current = self.run(|filter| {
            filter.set_policy(policy);
            Arc::clone(filter.calls().policy())
        });
        if let Some(current) = current.filter(|current| !Arc::ptr_eq(current, &self.policy)) {
            self.policy = current;
        }
    }

    pub(crate) fn take(
        &mut self,
        at: Instant,
        on: StreamId,
        message: &Message,
        members: Option<&RequestMembers>,
    ) {
        self.run(|filter| filter.intake_mut().client_message_of(at, on, message, members));
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.recorded.is_empty() || !self.filter.calls().events().is_empty()
    }

    fn poll_event(&mut self) -> Option<FilterEvent> {
        self.recorded.pop_front().or_else(|| self.filter.poll_event())
    }

    pub(crate) fn take_events(&mut self) {
        while self.poll_event().is_some() {}
    }

    /// Takes everything that the gateway takes after it has looked at a stream: verdicts, events, and messages for the
    /// server.
    pub(crate) fn note(&mut self, still_open: impl FnOnce(&mut Filter) -> bool) {
        self.run(|filter| filter.calls().handshake().revision());
        loop {
            while self.filter.calls_mut().events_mut().take_run().is_some() {}
            if self.poll_event().is_none() {
                break;
            }
        }
        self.run(still_open);
        while self.run(Filter::poll_to_server).flatten().is_some() {}
    }

    /// Writes what is due on a stream. Returns the number of messages.
    pub(crate) fn drain(&mut self, at: Instant, on: StreamId) -> usize {
        let mut told = 0;
        while self.run(|filter| filter.poll_transmit(at, on)).flatten().is_some() {
            told += 1;
        }
        self.apply(at, Input::MarkWritten(on));
        told
    }

    /// Collects what is due on a stream. A response does this after each event of the ordinary path and after each
    /// read.
    pub(crate) fn collect(
        &mut self,
        at: Instant,
        on: StreamId,
        still_open: impl FnOnce(&mut Filter) -> bool,
    ) -> usize {
        let is_idle = self.filter.intake().has_nothing_due(at, on);
        let told = if is_idle { 0 } else { self.drain(at, on) };
        if !is_idle || self.has_events() {
            self.note(still_open);
        }
        told
    }

    /// Tries the fast path for an event; `None` if the event takes the ordinary path.
    pub(crate) fn fast(&mut self, at: Instant, on: StreamId, event: &Event) -> Option<usize> {
        let fast = |filter: &mut Filter| {
            filter.intake_mut().fast_repair(at, on, event.arrived(), |_| false)
        };
        match self.run(fast)? {
            FastPath::NotTaken => None,
            FastPath::Kept => Some(0),
            FastPath::Unchanged | FastPath::Rewritten => Some(1),
        }
    }

    /// Returns the message of an event for the ordinary path. Also asks which tokens the message names, as the gateway
    /// does, because other sessions have calls too.
    pub(crate) fn ordinary(&mut self, on: StreamId, event: &Event) -> Message {
        let message = event.message();
        self.run(|filter| filter.calls().handshake().revision());
        self.name_tokens(on, &message);
        message
    }

    pub(crate) fn name_tokens(&mut self, on: StreamId, message: &Message) {
        let origin = Origin::Stream(on);
        self.run(|filter| filter.intake_mut().tokens_named(origin, message));
    }

    /// Handles the end of a response, after which an answer that fits no request may count as the missing answer.
    pub(crate) fn end_response(&mut self, at: Instant, on: StreamId) {
        if self.run(|filter| filter.gate().holds_answer(on)) == Some(true) {
            self.apply(at, Input::EndResponse(on));
        }
    }

    pub(crate) fn server_message(&mut self, at: Instant, on: StreamId, message: &Message) -> bool {
        let place = self.run(|filter| filter.server_message(at, Origin::Stream(on), message));
        place == Some(Disposition::NotMine)
    }

    pub(crate) fn open_calls(&self) -> usize {
        self.filter.open_calls()
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }
}

/// The function whose instructions are counted as those under the lock.
#[inline(never)]
fn under_lock<T, R>(state: &mut T, work: impl FnOnce(&mut T) -> R) -> R {
    work(state)
}

/// The lock of a session, which counts how long threads wait for it.
pub(crate) struct Lock<T> {
    inner: Mutex<T>,
    waited: AtomicU64,
    waits: AtomicU64,
}

impl<T> Lock<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner: Mutex::new(inner), waited: AtomicU64::new(0), waits: AtomicU64::new(0) }
    }

    /// Runs `work` under the lock.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        if let Ok(mut free) = self.inner.try_lock() {
            return under_lock(&mut *free, work);
        }
        let from = Instant::now();
        let mut taken = self.inner.lock().unwrap();
        let waited = u64::try_from(from.elapsed().as_nanos()).unwrap();
        self.waited.fetch_add(waited, Ordering::Relaxed);
        self.waits.fetch_add(1, Ordering::Relaxed);
        under_lock(&mut *taken, work)
    }

    pub(crate) fn waits(&self) -> (u64, u64) {
        (self.waited.load(Ordering::Relaxed), self.waits.load(Ordering::Relaxed))
    }
}
