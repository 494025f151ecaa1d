//! An HTTP/1 connection of hyper's, which the reader of its response drives.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::poll_fn;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::io::Io;
use super::keep_alive::KeepAlive;
use super::link_waker::LinkWaker;
use super::request_body::RequestBody;

/// Bytes that one connection buffers in each direction. A client that reads slowly costs no more.
const BUFFER_MAX: usize = 64 << 10;

type Http1Connection = http1::Connection<TokioIo<SharedIo>, RequestBody>;

/// The bytes of a connection. hyper owns them, and [`Http1Link::is_quiet`] looks at them. Only one of the two is at
/// work at a time: nobody waits for the lock.
#[derive(Clone)]
struct SharedIo(Arc<Mutex<Io>>);

impl SharedIo {
    fn lock(&self) -> MutexGuard<'_, Io> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for SharedIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SharedIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().is_write_vectored()
    }
}

/// An HTTP/1 connection that is driven by its user.
pub(crate) struct Http1Link {
    io: SharedIo,
    sender: http1::SendRequest<RequestBody>,
    /// The connection; `None` after its end.
    connection: Option<Http1Connection>,
    waker: LinkWaker,
    /// What the server has promised for the connection.
    pub(super) promised: KeepAlive,
}

/// Reads and writes what can be.
fn drive(connection: &mut Option<Http1Connection>, cx: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|connection| connection.poll_unpin(cx).is_ready()) {
        // The end of the connection is told by the sender and by the body, which have its error.
        *connection = None;
    }
}

impl Http1Link {
    /// A connection over `io` that has served nothing yet.
    ///
    /// # Errors
    /// Those of hyper.
    pub(super) async fn new(io: Io) -> Result<Self, hyper::Error> {
        let io = SharedIo(Arc::new(Mutex::new(io)));
        let shared = TokioIo::new(io.clone());
        let handshake = http1::Builder::new().max_buf_size(BUFFER_MAX).handshake(shared);
        let (sender, connection) = handshake.await?;
        let (connection, waker, promised) = (Some(connection), LinkWaker::new(), <_>::default());
        Ok(Self { io, sender, connection, waker, promised })
    }

    /// [`IoStream::is_quiet`](super::io::IoStream::is_quiet).
    pub(super) fn is_quiet(&self) -> bool {
        self.io.lock().is_quiet()
    }

    /// Whether another request may be sent on the connection.
    pub(super) fn is_idle(&mut self) -> bool {
        // No task waits for an idle connection, so no waker is registered. After `renew` the next request polls anyway.
        drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.waker.renew();
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// Those of hyper, with the request if nothing of it was sent.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let mut sent = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| self.poll_sent(cx, sent.as_mut())).await
    }

    /// The outcome of `sent`, a request that this connection sends.
    fn poll_sent<F: Future>(&mut self, cx: &Context<'_>, mut sent: Pin<&mut F>) -> Poll<F::Output> {
        let Self { connection, waker, .. } = self;
        waker.poll(cx, |cx| {
            drive(connection, cx);
            sent.as_mut().poll(cx)
        })
    }

    /// The next frame of `body`, which this connection reads.
    pub(super) fn poll_frame(
        &mut self,
        cx: &Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { connection, waker, .. } = self;
        waker.poll(cx, |cx| {
            // The body first: a frame that hyper has read already needs no read from the socket.
            let frame = Pin::new(&mut *body).poll_frame(cx);
            if frame.is_ready() {
                return frame;
            }
            // The connection reads what the body needs, and is asked again.
            drive(connection, cx);
            Pin::new(&mut *body).poll_frame(cx)
        })
    }
}
