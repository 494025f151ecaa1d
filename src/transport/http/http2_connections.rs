//! HTTP/2 connections to one server, shared by its requests.
//!
//! A server announces how many streams it allows on a connection. A request beyond this number would wait inside the
//! HTTP library until another request ends, perhaps forever. So the open streams of each connection are counted here,
//! and another connection is opened when all are full.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::request_body::{RequestBody, RequestBodyError};
use crate::transport::tasks;

/// Limit of the HTTP/2 connections to one server. A further request waits until another request ends.
const CONNECTIONS_MAX: usize = 256;

/// Limit of the concurrent streams on one HTTP/2 connection, if the server allows more.
const UPSTREAM_STREAMS_MAX: usize = 1000;

/// Limit of the bytes that one stream buffers in each direction, which is also the most that a slow reader costs.
const STREAM_BUFFER_MAX: usize = 64 << 10;

/// The flow-control window of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The interval of pings to a silent server with open streams.
const PING: Duration = Duration::from_secs(20);

/// The connections to one server.
#[derive(Default)]
pub(crate) struct Http2Connections {
    open: Mutex<Vec<Arc<Http2Link>>>,
    /// Signals that a stream has ended, or that a connection has begun or ended.
    changed: Notify,
}

/// One HTTP/2 connection to the server.
struct Http2Link {
    sender: http2::SendRequest<CountedBody>,
    /// Number of open streams. Changed only while the list is locked.
    streams: AtomicUsize,
    limit: Arc<StreamLimit>,
}

impl Http2Link {
    fn has_room(&self) -> bool {
        let max = self.limit.now.load(Ordering::Acquire).min(UPSTREAM_STREAMS_MAX);
        self.streams.load(Ordering::Relaxed) < max
    }

    fn is_unused(&self) -> bool {
        self.streams.load(Ordering::Relaxed) == 0
    }
}

/// The number of streams that the server allows on a connection. It is 0 until the server has announced it.
#[derive(Default)]
struct StreamLimit {
    now: AtomicUsize,
    /// Reads the allowed number from the connection.
    read: OnceLock<Box<dyn Fn() -> Option<usize> + Send + Sync>>,
    changed: Notify,
}

impl StreamLimit {
    fn update(&self) {
        if let Some(now) = self.read.get().and_then(|read| read())
            && self.now.swap(now, Ordering::AcqRel) != now
        {
            self.changed.notify_one();
        }
    }
}

/// Runs the tasks of a connection for hyper. Each step of a task may have read SETTINGS with another number of streams,
/// so the limit is read again after each step.
#[derive(Clone)]
struct LimitWatch {
    limit: Arc<StreamLimit>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for LimitWatch {
    fn execute(&self, task: F) {
        let limit = Arc::clone(&self.limit);
        let mut task = task.boxed();
        tasks::spawn(poll_fn(move |cx| {
            let polled = task.as_mut().poll(cx);
            limit.update();
            polled
        }));
    }
}

/// Why a connection did not begin.
pub(crate) enum OpenError {
    /// The connection failed, or its bytes are not HTTP/2.
    Http(hyper::Error),
    /// The server closed the connection.
    Closed,
}

impl Http2Connections {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Http2Link>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a future that completes at the next change after this moment.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Wakes everything that waits for a change.
    pub(crate) fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Whether one more connection may be opened.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().len() < CONNECTIONS_MAX
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns a stream of the oldest connection that has room; `None` if all are full.
    pub(crate) fn stream(self: &Arc<Self>) -> Option<Http2Stream> {
        let mut open = self.lock();
        // The task of a connection removes it from the list shortly after its end. Until then no request may use it.
        open.retain(|link| !link.sender.is_closed());
        let link = open.iter().find(|link| link.has_room())?;
        // Counted while the lock is still held, so that two requests cannot take the last stream.
        link.streams.fetch_add(1, Ordering::Relaxed);
        Some(Http2Stream { connections: Arc::clone(self), link: Arc::clone(link) })
    }

    /// Begins a connection over `io`, and waits until the server has announced how many streams it allows.
    ///
    /// # Errors
    /// If the server does not speak HTTP/2.
    pub(crate) async fn begin<T>(self: &Arc<Self>, io: T) -> Result<(), OpenError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let limit = Arc::new(StreamLimit::default());
        let handshake = http2::Builder::new(LimitWatch { limit: Arc::clone(&limit) })
            // No stream before the server's SETTINGS: a server that allows few would refuse the first requests.
            .initial_max_send_streams(0)
            .initial_stream_window_size(u32::try_from(STREAM_BUFFER_MAX).ok())
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(STREAM_BUFFER_MAX)
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .handshake(TokioIo::new(io));
        let (sender, connection) = handshake.await.map_err(OpenError::Http)?;
        // The connection owns its executor, which owns the limit, so a strong reference would be a cycle.
        let connection = Arc::new(Mutex::new(connection));
        let known = Arc::downgrade(&connection);
        // Set only now: the function needs the connection, which needs its executor from the beginning.
        let _ = limit.read.set(Box::new(move || {
            let connection = known.upgrade()?;
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            Some(connection.current_max_send_streams())
        }));
        limit.update();
        // The lock is held for only one poll, because the watch reads the limit in other tasks.
        let mut driven: BoxFuture<'static, hyper::Result<()>> = poll_fn(move |cx| {
            connection.lock().unwrap_or_else(PoisonError::into_inner).poll_unpin(cx)
        })
        .boxed();
        while limit.now.load(Ordering::Acquire) == 0 {
            tokio::select! {
                ended = &mut driven => {
                    return Err(ended.err().map_or(OpenError::Closed, OpenError::Http));
                }
                () = limit.changed.notified() => {}
            }
        }
        // Listed only when the limit is known, because a stream before that would wait inside hyper.
        self.lock().push(Arc::new(Http2Link { sender, streams: AtomicUsize::new(0), limit }));
        self.notify();
        // `Weak`, so that the task of a connection does not keep the pool of a removed route.
        let connections = Arc::downgrade(self);
        tasks::spawn(async move {
            if let Err(error) = driven.await {
                tracing::debug!(%error, "an HTTP/2 connection to a server has ended");
            }
            if let Some(connections) = connections.upgrade() {
                connections.lock().retain(|link| !link.sender.is_closed());
                connections.notify();
            }
        });
        Ok(())
    }

    /// Notes that a stream has ended. Of the connections without a stream only one is kept.
    fn release(&self, link: &Arc<Http2Link>) {
        let mut open = self.lock();
        link.streams.fetch_sub(1, Ordering::Relaxed);
        if link.is_unused() && open.iter().filter(|link| link.is_unused()).count() > 1 {
            open.retain(|other| !Arc::ptr_eq(other, link));
        }
        // The lock is released before the wake-up, because the task that waits for a stream needs it immediately.
        drop(open);
        // A stream has ended, so a waiting request may continue.
        self.changed.notify_one();
    }
}

/// A stream, which is counted on its connection until this is dropped.
pub(crate) struct Http2Stream {
    connections: Arc<Http2Connections>,
    link: Arc<Http2Link>,
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.connections.release(&self.link);
    }
}

/// A request that got no response.
pub(crate) struct Unanswered {
    pub(crate) error: hyper::Error,
    /// The request, if the server provably did not take it.
    pub(crate) request: Option<Request<RequestBody>>,
}

impl Http2Stream {
    /// Sends a request and waits for the head of the response. The stream counts until the bodies of the request and of
    /// the response are dropped.
    pub(crate) async fn send(
        self,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Arc<Self>), Box<Unanswered>> {
        // hyper does not return a request that the server refuses, so a copy is made first. Only a body in memory can
        // be copied.
        let copy = copy_of(&request);
        let permit = Arc::new(self);
        let request = request.map(|body| CountedBody { body, _permit: Arc::clone(&permit) });
        let mut sender = permit.link.sender.clone();
        match sender.try_send_request(request).await {
            Ok(response) => Ok((response, permit)),
            Err(mut failed) => {
                // `take_message` returns the request only if it was never written; after a server's refusal the copy is
                // needed.
                let unsent = failed.take_message().map(|unsent| unsent.map(|body| body.body));
                let error = failed.into_error();
                let request = unsent.or_else(|| copy.filter(|_| is_refused(&error)));
                Err(Box::new(Unanswered { error, request }))
            }
        }
    }
}

/// Copies a request whose body is in memory.
fn copy_of(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let RequestBody::Whole(body) = request.body() else { return None };
    let mut copy = Request::new(RequestBody::Whole(body.clone()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Whether the server reports that it has not processed a request: it is at its limit, or it closes the connection
/// gracefully.
fn is_refused(error: &hyper::Error) -> bool {
    let Some(error) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else {
        return false;
    };
    let reason = error.reason();
    // RFC 9113, 8.7: a request refused with REFUSED_STREAM, or after the last stream that a GOAWAY names, was not
    // processed and may be sent again.
    error.is_remote()
        && (error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
            || error.is_go_away() && reason == Some(h2::Reason::NO_ERROR))
}

/// The body of a request. Its stream counts as open until the body is sent or dropped.
struct CountedBody {
    body: RequestBody,
    _permit: Arc<Http2Stream>,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
