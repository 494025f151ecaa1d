//! Bodies of requests to a server, and of responses to a client.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

use crate::progress::{Form, Fragment, Payload, Transmit};
use crate::protocol::sse;
use crate::transport::http::client::{UpstreamBody, UpstreamError};
use crate::transport::http::in_flight::InFlightGuard;

/// Number of bytes of events that are collected for one write, even from several reads.
pub(crate) const BATCH_BYTES: usize = 16 << 10;

/// Limit of the bytes of a piece that is copied together with others. A longer piece is forwarded without a copy.
const COPY_MAX: usize = 4 << 10;

/// A source of the bytes of a response, which produces them when the client reads.
pub(crate) trait BodyProducer: Send {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>>;
}

/// The body of a response to a client.
pub enum Body {
    /// A whole body, until it is taken.
    Whole(Option<Bytes>),
    /// The server's body while it arrives: the part that was read before, the rest, and the guard of the open call.
    #[expect(private_interfaces, reason = "made in here only")]
    Piped(Option<Bytes>, Box<UpstreamBody>, Option<InFlightGuard>),
    /// A stream of events.
    #[expect(private_interfaces, reason = "made in here only")]
    Stream(Box<dyn BodyProducer>),
}

impl Body {
    pub(crate) fn piped(
        held: Option<Bytes>,
        rest: UpstreamBody,
        open: Option<InFlightGuard>,
    ) -> Self {
        Self::Piped(held, Box::new(rest), open)
    }

    /// Returns an empty body.
    pub fn empty() -> Self {
        Self::Whole(None)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Piped(held, rest, _) => match held.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => rest.poll_frame(cx),
            },
            Self::Stream(source) => source.poll(cx).map(|data| data.map(|d| d.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Piped(held, rest, _) => held.is_none() && rest.is_end(),
            // The end of a stream is only known after a poll, because the filter may still add messages.
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Piped(held, rest, _) => {
                let held = held.as_ref().map_or(0, Bytes::len) as u64;
                let rest = rest.size();
                rest.exact().map_or_else(SizeHint::new, |rest| SizeHint::with_exact(held + rest))
            }
            Self::Stream(_) => SizeHint::new(),
        }
    }
}

/// Events that are collected for the next write.
#[derive(Default)]
pub(crate) struct Batch {
    ready: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
    /// Whether bytes have been written on this stream before.
    pub(crate) begun: bool,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// Whether another event of `more` bytes fits.
    pub(crate) fn has_room_for(&self, more: usize) -> bool {
        self.bytes + more < BATCH_BYTES
    }

    /// Copies unchanged bytes, which contain no long event.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.tail.extend_from_slice(bytes);
    }

    /// Adds unchanged bytes.
    pub(crate) fn raw(&mut self, bytes: &Bytes) {
        self.bytes += bytes.len();
        // Short pieces are copied together, so that a single write contains many small events.
        if bytes.len() < COPY_MAX {
            self.tail.extend_from_slice(bytes);
        } else {
            // The collected bytes came before this piece and must be written before it.
            self.close_tail();
            self.ready.push_back(bytes.clone());
        }
    }

    /// Adds the output of a filter.
    pub(crate) fn transmit(&mut self, transmit: &Transmit) {
        let Transmit { payload, part, .. } = transmit;
        match (payload.form(), part) {
            (_, Fragment::Broken) => {
                payload.pieces().for_each(|piece| self.raw(piece));
                // A message that breaks off must end its event, so that the next event is not read as its rest.
                self.raw(&Bytes::from_static(sse::BROKEN_OFF));
            }
            (Form::AsCame, _) | (_, Fragment::Piece | Fragment::End) => {
                payload.pieces().for_each(|piece| self.raw(piece));
            }
            (Form::Own(None), Fragment::Whole) => self.own(payload),
            (Form::Own(Some(frame)), Fragment::Whole) => {
                let before = self.tail.len();
                sse::append_rewritten(&mut self.tail, frame, payload.pieces());
                self.bytes += self.tail.len() - before;
            }
        }
    }

    /// Adds an event whose message is replaced by `text`.
    pub(crate) fn rewritten(&mut self, event: &[u8], text: &[u8]) {
        let before = self.tail.len();
        sse::append_rewritten(&mut self.tail, event, [text]);
        self.bytes += self.tail.len() - before;
    }

    /// Adds a message that Milepost itself has made.
    pub(crate) fn own(&mut self, payload: &Payload) {
        let before = self.tail.len();
        sse::append(&mut self.tail, payload.pieces());
        self.bytes += self.tail.len() - before;
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.ready.push_back(self.tail.split().freeze());
        }
    }

    /// Takes the next bytes to be written.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            // Only if no piece is ready, because the tail comes after all pieces.
            self.close_tail();
        }
        let next = self.ready.pop_front()?;
        self.bytes -= next.len();
        self.begun = true;
        Some(next)
    }
}
