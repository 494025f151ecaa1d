//! The moment at which the proxy, or the server of a route, ends: told to everyone who waits for something
//! else.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::body::{Body, Source};
use crate::gateway::direct::event_stream::{Chunks, EventStream, Judge};
use crate::gateway::dispatch::Proxy;
use crate::gateway::route_state::Counted;
use crate::transport::http::client::{UpstreamBody, UpstreamError};

/// Waiting takes a lock for a moment; those who wait at the same time rarely take the same one.
const SHARDS: usize = 16;

/// Whether the proxy has ended, and a way to wait for that.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    ended: AtomicBool,
    waiting: [Arc<Notify>; SHARDS],
    next: AtomicUsize,
}

impl Ending {
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.waiting.iter().for_each(|waiting| waiting.notify_waiters());
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// One of those that are notified at the end.
    pub(crate) fn shard(&self) -> &Arc<Notify> {
        &self.waiting[self.next.fetch_add(1, Ordering::Relaxed) % SHARDS]
    }

    /// Waits for the end, also if it has come already.
    pub(crate) async fn wait(&self) {
        let notified = self.shard().notified();
        if !self.has_ended() {
            notified.await;
        }
    }
}

/// A stream to listen on that passes as it is, until the proxy ends.
pub(crate) struct PipedStream {
    body: UpstreamBody,
    ending: Pin<Box<OwnedNotified>>,
    over: bool,
}

impl PipedStream {
    pub(crate) fn new(body: UpstreamBody, ending: &Ending) -> Self {
        let notified = Box::pin(Arc::clone(ending.shard()).notified_owned());
        Self { body, ending: notified, over: ending.has_ended() }
    }
}

impl Source for PipedStream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        self.over = self.over || self.ending.poll_unpin(cx).is_ready();
        if self.over { Poll::Ready(None) } else { self.body.poll_data(cx) }
    }
}

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

/// Why calls are cut at the end.
pub(crate) const SHUTTING_DOWN: &str = "the proxy is shutting down";

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
