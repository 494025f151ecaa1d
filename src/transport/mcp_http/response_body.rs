//! The body of a response, by its content: events, JSON, or an error.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, header, response};

use crate::transport::http::client::UpstreamBody;
use crate::transport::http::inflate::{Coding, PlainBody};
use crate::transport::mcp_http::content::{Content, on_one_line};

/// Limit of the bytes of an error response that are read to find out whether the body is a JSON-RPC answer.
const ERROR_READ_MAX: usize = 64 << 10;

/// The body of a response.
pub(crate) enum ResponseBody {
    Events(PlainBody),
    Json(PlainBody),
    Other(PlainBody),
    /// The body is compressed in a way that Milepost does not know.
    Unreadable,
}

impl ResponseBody {
    pub(crate) fn new(body: UpstreamBody, headers: &HeaderMap) -> Self {
        match (PlainBody::new(body, headers), Content::unpacked(headers)) {
            (None, _) => Self::Unreadable,
            (Some(body), Content::Events) => Self::Events(body),
            (Some(body), Content::Json) => Self::Json(body),
            (Some(body), Content::Other) => Self::Other(body),
        }
    }
}

/// Returns the stream of events in the response to a GET.
///
/// # Errors
/// If the response is not an event stream: its head.
pub(crate) fn events(response: Response<UpstreamBody>) -> Result<PlainBody, Box<response::Parts>> {
    let (parts, body) = response.into_parts();
    match ResponseBody::new(body, &parts.headers) {
        ResponseBody::Events(body) if parts.status.is_success() => Ok(body),
        _ => Err(Box::new(parts)),
    }
}

/// Returns the compression of an event stream, which may be [`Coding::None`]; `None` if the body is not an event stream
/// that Milepost reads. Some servers compress events although they were asked not to. In observe mode such events are
/// forwarded unchanged.
pub(crate) fn events_coding(headers: &HeaderMap, observes: bool) -> Option<Coding> {
    let is_events = Content::unpacked(headers) == Content::Events;
    let coding = Coding::of(headers).filter(|_| is_events)?;
    (coding == Coding::None || !observes).then_some(coding)
}

/// Returns the body of an event stream, decompressed if needed, and removes the header of the compression.
pub(crate) fn take_events(
    parts: &mut response::Parts,
    body: UpstreamBody,
    coding: Coding,
) -> PlainBody {
    if coding != Coding::None {
        parts.headers.remove(header::CONTENT_ENCODING);
    }
    PlainBody::coded(body, coding)
}

/// The body of a response with an error status, which may be a JSON-RPC answer.
pub(crate) struct ErrorBody {
    body: PlainBody,
    read: BytesMut,
}

impl ErrorBody {
    pub(crate) fn new(body: PlainBody) -> Self {
        Self { body, read: BytesMut::new() }
    }

    /// Reads some of the body. Ready with `false` when nothing more is to be read.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let next = ready!(self.body.poll_data(cx));
        Poll::Ready(match next {
            // A longer error is not a JSON-RPC response, so its rest is not read.
            Some(Ok(chunk)) if self.read.len() < ERROR_READ_MAX => {
                self.read.extend_from_slice(&chunk);
                true
            }
            // If the body breaks off, the bytes that have arrived are used.
            _ => false,
        })
    }

    /// Returns the text that was read, on one line.
    pub(crate) fn take(&mut self) -> Bytes {
        on_one_line(self.read.split().freeze())
    }
}
