//! Bodies of event streams, which end when Milepost shuts down.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::gateway::direct::event_stream::{Chunks, EventHandler, EventStream};
use crate::gateway::route_state::StreamPermit;
use crate::transport::http::body::{Body, BodyProducer};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::shutdown::{MOVED, SHUTTING_DOWN};

/// Returns the body of an event stream that answers a call. It ends at the shutdown of Milepost.
pub(crate) fn of_call<H: EventHandler + 'static, U: Chunks<H> + 'static>(
    stream: EventStream<H, U>,
    permit: StreamPermit,
) -> Body {
    ended(stream, permit, None)
}

/// Returns the body of a stream on which a client listens. After its route was removed or got another server, it also
/// ends with the last call to the old server.
pub(crate) fn of_listener<H: EventHandler + 'static, U: Chunks<H> + 'static>(
    stream: EventStream<H, U>,
    permit: StreamPermit,
) -> Body {
    let over = Box::pin(Arc::clone(permit.state().shared.over.shard()).notified_owned());
    ended(stream, permit, Some(over))
}

fn ended<H: EventHandler + 'static, U: Chunks<H> + 'static>(
    stream: EventStream<H, U>,
    permit: StreamPermit,
    over: Option<Pin<Box<OwnedNotified>>>,
) -> Body {
    let shared = Arc::clone(&permit.state().shared);
    // Registered before the flags are read, so that an end between the two is not missed.
    let shutdown = Box::pin(Arc::clone(shared.shutdown.shard()).notified_owned());
    let mut ended = EndingStream { stream, shutdown, over, permit };
    if shared.shutdown.has_ended() {
        ended.end(SHUTTING_DOWN);
    }
    if ended.over.is_some() && shared.over.has_ended() {
        ended.end(MOVED);
    }
    Body::Stream(Box::new(ended))
}

/// A stream that ends at the shutdown of Milepost.
struct EndingStream<J, U> {
    stream: EventStream<J, U>,
    shutdown: Pin<Box<OwnedNotified>>,
    /// Signals the end of the route's server.
    over: Option<Pin<Box<OwnedNotified>>>,
    permit: StreamPermit,
}

impl<J: EventHandler, U: Chunks<J>> EndingStream<J, U> {
    fn end(&mut self, why: &'static str) {
        self.stream.break_off(why);
        self.over = None;
        // The stream has ended, so a later signal must not end it again.
        self.shutdown = Box::pin(Arc::<Notify>::default().notified_owned());
    }
}

impl<J: EventHandler, U: Chunks<J>> BodyProducer for EndingStream<J, U> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        if self.shutdown.poll_unpin(cx).is_ready() {
            self.end(SHUTTING_DOWN);
        }
        if self.over.as_mut().is_some_and(|over| over.poll_unpin(cx).is_ready()) {
            self.end(MOVED);
        }
        let polled = self.stream.poll(cx);
        if let Some((kind, error)) = self.stream.failure() {
            let state = self.permit.state();
            state.shared.counts.upstream_error(kind);
            let route = state.route.path.as_str();
            tracing::warn!(route, error, "the stream of a server broke off");
        }
        polled
    }
}
