//! Bodies of streams of events: each ends when the proxy does.

use crate::gateway::direct::event_stream::{Chunks, EventStream, Judge};
use crate::gateway::dispatch::Proxy;
use crate::gateway::route_state::Counted;
use crate::transport::http::body::{Body, Source};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::shutdown::SHUTTING_DOWN;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

impl Proxy {
    /// The body of a response of events, ended when the proxy ends.
    pub(crate) fn stream<J: Judge + 'static, U: Chunks<J> + 'static>(
        &self,
        stream: EventStream<J, U>,
        counted: Counted,
    ) -> Body {
        self.ended(stream, counted, None)
    }

    /// The same of a stream on which its client listens: it also ends with the last call to a server that
    /// its route has no more.
    pub(crate) fn listened<J: Judge + 'static, U: Chunks<J> + 'static>(
        &self,
        stream: EventStream<J, U>,
        counted: Counted,
    ) -> Body {
        let over = Box::pin(Arc::clone(counted.site().over.shard()).notified_owned());
        self.ended(stream, counted, Some(over))
    }

    fn ended<J: Judge + 'static, U: Chunks<J> + 'static>(
        &self,
        stream: EventStream<J, U>,
        counted: Counted,
        over: Option<Pin<Box<OwnedNotified>>>,
    ) -> Body {
        let ending = Box::pin(Arc::clone(self.ending.shard()).notified_owned());
        let mut ended = Ended { stream, ending, over, counted };
        if self.ending.has_ended() {
            ended.end(SHUTTING_DOWN);
        }
        if ended.over.is_some() && ended.counted.site().over.has_ended() {
            ended.end(MOVED);
        }
        Body::Stream(Box::new(ended))
    }
}

/// A stream that ends when the proxy does.
struct Ended<J, U> {
    stream: EventStream<J, U>,
    ending: Pin<Box<OwnedNotified>>,
    /// The same for the server of its route.
    over: Option<Pin<Box<OwnedNotified>>>,
    counted: Counted,
}

/// Why streams end on which clients listen to a server that their route has no more.
pub(crate) const MOVED: &str = "this route has another server now";

impl<J: Judge, U: Chunks<J>> Ended<J, U> {
    fn end(&mut self, why: &'static str) {
        self.stream.break_off(why);
        self.over = None;
        // It has come; nobody is to be told twice.
        self.ending = Box::pin(Arc::<Notify>::default().notified_owned());
    }
}

impl<J: Judge, U: Chunks<J>> Source for Ended<J, U> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        if self.ending.poll_unpin(cx).is_ready() {
            self.end(SHUTTING_DOWN);
        }
        if self.over.as_mut().is_some_and(|over| over.poll_unpin(cx).is_ready()) {
            self.end(MOVED);
        }
        let polled = self.stream.poll(cx);
        if let Some((kind, error)) = self.stream.failure() {
            let site = self.counted.site();
            site.counts.upstream_error(kind);
            let route = site.route.path.as_str();
            tracing::warn!(route, error, "the stream of a server has broken off");
        }
        polled
    }
}
