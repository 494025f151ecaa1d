//! An HTTP/1.1 connection to a server (RFC 9112, 9).

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response};
use tokio::io::AsyncReadExt;

use super::link_error::LinkError;
use super::malformed::MalformedResponse;
use super::read_buffer::with_buffer;
use super::request_writer::RequestWriter;
use super::response_decoder::ResponseDecoder;
use crate::transport::http::io::Io;
use crate::transport::http::keep_alive::KeepAlive;
use crate::transport::http::request_body::RequestBody;

/// A connection that serves one request at a time. Dropping the connection closes it.
pub(crate) struct Http1Link {
    io: Io,
    request: SendState,
    response: ResponseDecoder,
    /// Whether the head of the response has arrived, and the connection has not been polled since.
    has_new_head: bool,
    /// The server's promise to keep the connection open.
    pub(crate) promised: KeepAlive,
}

/// The state of sending a request.
enum SendState {
    Sending(RequestWriter),
    Sent,
    /// The server no longer reads the request. It may have answered before.
    Broken(Option<io::Error>),
}

/// The next part of a response on a connection.
pub(super) enum BodyPart {
    Data(Bytes),
    /// The end of the response, with its trailers.
    End(Option<Box<HeaderMap>>),
}

impl Http1Link {
    /// Returns a connection that has served nothing yet.
    pub(crate) fn new(io: Io) -> Self {
        let response = ResponseDecoder::new(&Method::GET);
        let (request, promised) = (SendState::Sent, KeepAlive::default());
        Self { io, request, response, has_new_head: false, promised }
    }

    /// Whether the next request can be written to the connection: neither the runtime nor the system has received bytes
    /// or a close from the server.
    pub(crate) fn is_open(&mut self) -> bool {
        self.is_idle() && self.io.is_quiet()
    }

    /// Whether the connection waits for a request, and the server has neither sent a byte nor closed the connection.
    /// Called after a response.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.is_done() && {
            let cx = &mut Context::from_waker(Waker::noop());
            // Checked without registering a wake-up, because no task waits for this connection.
            self.poll_read(cx, |_, _| ()).is_pending()
        }
    }

    /// Whether the request and its response are complete, so that another may follow.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.request, SendState::Sent) && self.response.is_reusable()
    }

    /// Returns the bytes of the body that are still to come, if their number is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.response.left()
    }

    /// Returns the trailers of a response that has ended.
    pub(super) fn take_trailers(&mut self) -> Option<Box<HeaderMap>> {
        self.response.take_trailers()
    }

    /// Returns the byte stream of a connection that a proxy has turned into a tunnel (RFC 9110, 9.3.6). Bytes that came
    /// with the head of the response are not in it.
    pub(crate) fn into_io(self) -> Io {
        self.io
    }

    /// Begins a request on a connection that is unused or idle. [`Http1Link::poll_head`] sends it.
    pub(crate) fn begin(&mut self, request: Request<RequestBody>) {
        // The decoder starts again with the method of the new request, because the last response is complete.
        self.response = ResponseDecoder::new(request.method());
        self.has_new_head = false;
        let (request, headers) = RequestWriter::new(request);
        self.request = SendState::Sending(request);
        // The map of the request's headers is reused for the response, which saves an allocation.
        self.response.reuse(headers);
    }

    /// Sends the request and waits for the head of the response. Returns the head with the part of the body that has
    /// arrived.
    ///
    /// # Errors
    /// If the connection fails, the response is malformed, or the body of the request cannot be read.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Response<()>, Bytes), LinkError>> {
        self.send(cx)?;
        loop {
            match ready!(self.poll_read(cx, ResponseDecoder::head)) {
                Ok(Some(head)) => {
                    if let Some(head) = head? {
                        self.has_new_head = true;
                        return Poll::Ready(Ok(head));
                    }
                }
                // The write may have failed earlier; its error is more useful than the close that followed.
                Ok(None) => return Poll::Ready(Err(self.unanswered(None))),
                Err(error) => return Poll::Ready(Err(self.unanswered(Some(error)))),
            }
        }
    }

    /// Waits for more of the response's body, and sends the rest of the request.
    ///
    /// # Errors
    /// As for [`Http1Link::poll_head`].
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPart, LinkError>> {
        self.send(cx)?;
        loop {
            if self.response.is_over() {
                return Poll::Ready(Ok(BodyPart::End(self.response.take_trailers())));
            }
            // The data before the fault was already returned.
            if let Some(fault) = self.response.fault() {
                return Poll::Ready(Err(fault.into()));
            }
            let read = self.poll_read(cx, ResponseDecoder::body);
            if read.is_pending() && std::mem::take(&mut self.has_new_head) {
                // Many servers, such as all on Python's uvicorn, write the body after the head with Nagle's algorithm
                // on, so that the body waits for this acknowledgement (RFC 9293, 3.7.4). Later pieces seldom follow so
                // closely.
                self.io.acknowledge();
            }
            match ready!(read)? {
                None => self.response.close()?,
                Some(data) => {
                    let data = data?;
                    if !data.is_empty() {
                        return Poll::Ready(Ok(BodyPart::Data(data)));
                    }
                }
            }
        }
    }

    /// Sends the request as far as the connection accepts it.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), LinkError> {
        let SendState::Sending(request) = &mut self.request else { return Ok(()) };
        match request.poll(&mut self.io, cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.request = SendState::Sent,
            Poll::Ready(Err(LinkError::Io(error))) => {
                // The server may have answered before it stopped reading, so its response is read first.
                self.request = SendState::Broken(Some(error));
            }
            Poll::Ready(Err(error)) => {
                self.request = SendState::Broken(None);
                // The client's body has failed after the server got a part of the request, so the connection cannot be
                // used any further.
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the first reason why no head has arrived.
    fn unanswered(&mut self, error: Option<io::Error>) -> LinkError {
        let unsent = match &mut self.request {
            SendState::Broken(error) => error.take(),
            _ => None,
        };
        match unsent.or(error) {
            Some(error) => LinkError::Io(error),
            None => MalformedResponse::Incomplete.into(),
        }
    }

    /// Reads the available bytes, and passes them to `take`. `None` if the server has closed the connection.
    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut ResponseDecoder, &mut BytesMut) -> T,
    ) -> Poll<io::Result<Option<T>>> {
        let Self { io, response, .. } = self;
        with_buffer(response.piece(), |buffer| {
            // All connections of the thread share the buffer, so that an idle connection needs none.
            let count = ready!(pin!(io.read_buf(buffer)).poll(cx))?;
            Poll::Ready(Ok((count > 0).then(|| take(response, buffer.get_mut()))))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use futures::FutureExt;
    use tokio::io::{AsyncWriteExt, DuplexStream, Join, ReadHalf, WriteHalf, duplex, join, split};

    use super::*;
    use crate::transport::http::io::IoStream;

    thread_local! {
        static ACKNOWLEDGED: Cell<u32> = const { Cell::new(0) };
    }

    impl IoStream for Join<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>> {
        fn acknowledge(&self) {
            ACKNOWLEDGED.set(ACKNOWLEDGED.get() + 1);
        }
    }

    #[tokio::test]
    async fn a_head_is_acknowledged_once_where_its_body_is_still_to_come() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n";
        for (first, acknowledged) in [("", 1), ("o", 1), ("done", 0)] {
            ACKNOWLEDGED.set(0);
            let (near, mut far) = duplex(1 << 10);
            let (read, write) = split(near);
            let mut link = Http1Link::new(Box::new(join(read, write)));
            link.begin(Request::new(RequestBody::from(Bytes::new())));
            assert!(poll_fn(|cx| link.poll_head(cx)).now_or_never().is_none());
            far.write_all(format!("{head}{first}").as_bytes()).await.unwrap();
            let (_, begun) = poll_fn(|cx| link.poll_head(cx)).await.ok().unwrap();
            assert_eq!(begun, first);
            for byte in "done"[first.len()..].chars() {
                assert!(poll_fn(|cx| link.poll_body(cx)).now_or_never().is_none());
                far.write_all(byte.to_string().as_bytes()).await.unwrap();
                assert!(matches!(poll_fn(|cx| link.poll_body(cx)).await, Ok(BodyPart::Data(_))));
            }
            assert!(matches!(poll_fn(|cx| link.poll_body(cx)).await, Ok(BodyPart::End(None))));
            assert_eq!(ACKNOWLEDGED.get(), acknowledged, "{first:?}");
        }
    }
}
