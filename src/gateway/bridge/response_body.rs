//! The body of a response that reads a stream's replay buffer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::session::{BridgeSession, ENDED};
use crate::gateway::bridge::subscription::{EventForm, ReadStatus, Subscription};
use crate::gateway::route_state::StreamPermit;
use crate::protocol::sse;
use crate::transport::http::body::{Batch, BodyProducer};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::client_pacing::ClientPacing;
use crate::transport::http::write_state::WriteState;

/// The form of a response that reads a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    /// Events with event ids of the bridge.
    Events,
    /// Events without ids, for clients that never resume.
    Plain,
    /// One JSON answer.
    Json,
}

/// Reads a stream's replay buffer for one response.
pub(crate) struct BridgeBody {
    subscription: Subscription,
    session: Arc<BridgeSession>,
    form: ResponseForm,
    out: Batch,
    pacing: ClientPacing,
    /// Whether the session ends with this response.
    ends_session: bool,
    _counted: Arc<StreamPermit>,
}

impl BridgeBody {
    /// Returns the body. `first`: the bytes that come before all messages.
    pub(crate) fn new(
        subscription: Subscription,
        session: &Arc<BridgeSession>,
        form: ResponseForm,
        first: &Bytes,
        (keep_alive, write_state, counted): (Option<Duration>, WriteState, Arc<StreamPermit>),
    ) -> Self {
        let mut out = Batch::default();
        out.raw(first);
        // Without comments a client that has vanished is not noticed, and counts as listening until its stream ends.
        session.listening.fetch_add(usize::from(keep_alive.is_none()), Ordering::Relaxed);
        Self {
            subscription,
            session: Arc::clone(session),
            form,
            out,
            pacing: ClientPacing::new(write_state, keep_alive),
            ends_session: false,
            _counted: counted,
        }
    }

    /// Ends the session when its client closes this stream.
    pub(crate) fn ends_session(mut self) -> Self {
        self.ends_session = true;
        self
    }

    fn collect(&mut self) -> ReadStatus {
        match self.form {
            ResponseForm::Events => self.subscription.events(EventForm::WithIds, &mut self.out),
            ResponseForm::Plain => self.subscription.events(EventForm::WithoutIds, &mut self.out),
            ResponseForm::Json => self.subscription.pieces(&mut self.out),
        }
    }
}

impl BodyProducer for BridgeBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        self.subscription.register(cx);
        loop {
            if let Some(bytes) = self.out.take() {
                self.pacing.give();
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
                    self.subscription.acknowledge();
                    return Poll::Ready(None);
                }
            }
            if ready!(self.pacing.poll_taken(cx, || self.session.signals.add_slow_client())) {
                self.subscription.acknowledge();
                self.session.touch();
                if self.pacing.keeps_up() {
                    self.session.signals.remove_slow_client();
                }
            }
            let due = self.pacing.comment_due().filter(|_| self.form != ResponseForm::Json);
            if !due.is_some_and(|due| self.pacing.is_due(due, cx)) {
                return Poll::Pending;
            }
            // A comment cannot be written within a large message.
            self.pacing.comment();
            if !self.subscription.is_midway() {
                self.out.raw(&Bytes::from_static(sse::COMMENT));
            }
        }
    }
}

impl Drop for BridgeBody {
    fn drop(&mut self) {
        if self.pacing.is_slow() {
            self.session.signals.remove_slow_client();
        }
        self.session
            .listening
            .fetch_sub(usize::from(!self.pacing.has_comments()), Ordering::Relaxed);
        if self.ends_session {
            self.session.end(ENDED);
        }
    }
}
