//! The body of a response that reads a stream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

use super::session::{BridgeSession, ENDED};
use crate::gateway::bridge::subscription::{ReadStatus, Subscription};
use crate::gateway::direct::event_stream::{BLOCKED_FOR, SLOW_AFTER, SLOW_FOR};
use crate::gateway::route_state::StreamPermit;
use crate::protocol::sse;
use crate::transport::http::body::{Batch, BodyProducer};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::write_state::WriteState;

/// As what a stream is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    /// As events with ids of ours.
    Events,
    /// As events without ids: nobody comes back for them.
    Plain,
    /// As one JSON answer.
    Json,
}

/// Reads a stream for one response.
pub(crate) struct ResponseBody {
    attached: Subscription,
    session: Arc<BridgeSession>,
    form: ResponseForm,
    out: Batch,
    outlet: WriteState,
    keep_alive: Option<Duration>,
    /// When something was written last.
    written: Instant,
    /// When the client was given what it has not taken yet.
    given: Option<Instant>,
    /// The connection has been asked once whether it has taken that.
    asked: bool,
    slow_until: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    /// The session ends with this response.
    ends_session: bool,
    _counted: StreamPermit,
}

impl ResponseBody {
    /// `first`: what stands ahead of all that is said.
    pub(crate) fn new(
        attached: Subscription,
        session: &Arc<BridgeSession>,
        form: ResponseForm,
        first: &Bytes,
        (keep_alive, outlet, counted): (Option<Duration>, WriteState, StreamPermit),
    ) -> Self {
        let mut out = Batch::default();
        out.raw(first);
        let now = Instant::now();
        // Without comments nobody can tell whether such a client is there.
        session.listening.fetch_add(usize::from(keep_alive.is_none()), Ordering::Relaxed);
        Self {
            attached,
            session: Arc::clone(session),
            form,
            out,
            outlet,
            keep_alive,
            written: now,
            given: None,
            asked: false,
            slow_until: None,
            timer: Box::pin(sleep_until(now)),
            ends_session: false,
            _counted: counted,
        }
    }

    /// The session ends when its client closes this stream (rule L-07).
    pub(crate) fn ends_session(mut self) -> Self {
        self.ends_session = true;
        self
    }

    fn be_slow(&mut self, slow: bool) {
        if slow != self.slow_until.is_some() {
            self.session.bell.slow(slow);
        }
        self.slow_until = slow.then(|| Instant::now() + SLOW_FOR);
    }

    /// Finds out whether the client has taken what it was given. Whoever asks for more has only room
    /// for it; whether its connection took what there was, shows when that has been tried.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(given) = self.given else { return Poll::Ready(()) };
        let now = Instant::now();
        if !self.asked {
            self.asked = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if now >= given + SLOW_AFTER {
            self.be_slow(true);
        }
        if self.outlet.is_blocked() {
            // Who writes to the client does not say when that goes on.
            self.timer.as_mut().reset(now + BLOCKED_FOR);
            return self.timer.as_mut().poll(cx);
        }
        self.given = None;
        self.asked = false;
        self.attached.taken();
        self.session.touch();
        if self.slow_until.is_some_and(|until| now >= until) {
            self.be_slow(false);
        }
        Poll::Ready(())
    }

    fn collect(&mut self) -> ReadStatus {
        match self.form {
            ResponseForm::Events => self.attached.events(true, &mut self.out),
            ResponseForm::Plain => self.attached.events(false, &mut self.out),
            ResponseForm::Json => self.attached.pieces(&mut self.out),
        }
    }

    fn give(&mut self) -> Option<Bytes> {
        let bytes = self.out.take()?;
        let now = Instant::now();
        self.written = now;
        self.given.get_or_insert(now);
        self.asked = false;
        Some(bytes)
    }
}

impl BodyProducer for ResponseBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        self.attached.register(cx);
        loop {
            if let Some(bytes) = self.give() {
                return Poll::Ready(Some(Ok(bytes)));
            }
            let goes = self.collect();
            if !self.out.is_empty() {
                continue;
            }
            match goes {
                ReadStatus::On => {}
                ReadStatus::Elsewhere if self.form == ResponseForm::Json => {
                    let why = "the answer was not given to its end";
                    return Poll::Ready(Some(Err(UpstreamError::BrokenOff(why))));
                }
                ReadStatus::Elsewhere => return Poll::Ready(None),
                ReadStatus::Over => {
                    self.attached.taken();
                    return Poll::Ready(None);
                }
            }
            ready!(self.poll_taken(cx));
            if self.given.is_some() {
                continue;
            }
            let Some(after) = self.keep_alive.filter(|_| self.form != ResponseForm::Json) else {
                return Poll::Pending;
            };
            let due = self.written + after;
            if self.timer.deadline() != due {
                self.timer.as_mut().reset(due);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // Within a large message there is no place for a comment; it would not help either.
            self.written = Instant::now();
            if !self.attached.is_midway() {
                self.out.raw(&Bytes::from_static(sse::COMMENT));
            }
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.slow_until.is_some() {
            self.session.bell.slow(false);
        }
        self.session.listening.fetch_sub(usize::from(self.keep_alive.is_none()), Ordering::Relaxed);
        if self.ends_session {
            self.session.end(ENDED);
        }
    }
}
