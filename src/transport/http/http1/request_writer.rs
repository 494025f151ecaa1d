//! Writes a request to a server: the head (RFC 9112, 3), and the body while it arrives (6).

use std::borrow::Cow;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method, Request};
use http_body::Body;
use tokio::io::AsyncWrite;

use super::link_error::LinkError;
use crate::transport::http::io::Io;
use crate::transport::http::request_body::{RequestBody, RequestBodyError};

/// Limit of the bytes of a body that is copied after its head, so that both are sent in a single write.
const COPIED_BODY_MAX: usize = 16 << 10;

/// Writes one request.
pub(super) struct RequestWriter {
    /// The head of the request or of a chunk, as text; freed once it is written.
    text: Vec<u8>,
    /// Number of bytes of `text` that are written.
    written: usize,
    /// The current piece of the body.
    data: Bytes,
    /// The bytes after the current piece.
    end: &'static [u8],
    /// The rest of the body, which has not been read yet.
    body: Option<RequestBody>,
    /// Whether the head has waited once for the first piece of the body.
    has_waited: bool,
    length: RequestLength,
}

/// How the server knows the end of the body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestLength {
    /// The request has no body.
    Empty,
    /// By the declared length: the number of bytes that are still to come.
    Known(u64),
    Chunked,
}

impl RequestWriter {
    /// Returns a writer that has written nothing yet, and the headers of the request.
    pub(super) fn new(request: Request<RequestBody>) -> (Self, HeaderMap) {
        let (head, mut body) = request.into_parts();
        let length = match body.size_hint().exact() {
            // The end is checked first, because a body that has ended also has an exact length of 0.
            _ if body.is_end_stream() => RequestLength::Empty,
            Some(length) => RequestLength::Known(length),
            // Requests with these methods have no body unless a length is given.
            None if [Method::GET, Method::HEAD].contains(&head.method) => RequestLength::Empty,
            None => RequestLength::Chunked,
        };
        let (text, data) = <(Vec<u8>, Bytes)>::default();
        let mut writer =
            Self { text, written: 0, data, end: b"", body: None, has_waited: false, length };
        match &mut body {
            _ if length == RequestLength::Empty => writer.text = text_of(&head, length, 0),
            RequestBody::Whole(whole) => {
                writer.data = whole.take().unwrap_or_default();
                let copied = Some(writer.data.len()).filter(|length| *length <= COPIED_BODY_MAX);
                writer.text = text_of(&head, length, copied.unwrap_or_default());
                if copied.is_some() {
                    writer.text.extend_from_slice(&std::mem::take(&mut writer.data));
                }
            }
            _ => {
                writer.text = text_of(&head, length, 0);
                writer.body = Some(body);
            }
        }
        (writer, head.headers)
    }

    /// Ready once the whole request is written.
    ///
    /// # Errors
    /// If the connection or the body fails.
    pub(super) fn poll(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), LinkError>> {
        loop {
            // The head waits for the first piece, so that both are sent in a single write.
            let waits =
                self.data.is_empty() && self.end.is_empty() && self.poll_data(cx)?.is_pending();
            let is_unwritten = self.written == 0 && !self.text.is_empty();
            if waits && is_unwritten && !std::mem::replace(&mut self.has_waited, true) {
                // hyper returns a piece only if its connection is polled after the body, so the task polls again.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_pieces(io, cx))?;
            // All bytes that are available are written, and the body has no more for now.
            if waits {
                // Flushed, because no further bytes may come for a long time.
                let _ = Pin::new(&mut *io).poll_flush(cx)?;
                return Poll::Pending;
            }
            if self.body.is_none() {
                return Pin::new(io).poll_flush(cx).map_err(LinkError::Io);
            }
        }
    }

    /// Takes the next piece of the body, if there is more of it.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, LinkError> {
        let Some(body) = &mut self.body else { return Ok(Poll::Ready(())) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Some(Err(error))) => return Err(LinkError::RequestBody(error)),
            Poll::Ready(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    self.queue(data)?;
                }
            }
            Poll::Ready(None) => {
                self.body = None;
                match self.length {
                    RequestLength::Chunked => self.end = b"0\r\n\r\n",
                    RequestLength::Empty | RequestLength::Known(0) => {}
                    // With fewer bytes than declared, the server would take the next request for the rest of this body.
                    RequestLength::Known(_) => return Err(other_length()),
                }
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Makes `data` the next piece of the body to be written.
    fn queue(&mut self, data: Bytes) -> Result<(), LinkError> {
        // An empty chunk would be the end of the body (RFC 9112, 7.1).
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.length {
            RequestLength::Chunked => {
                write!(self.text, "{:x}\r\n", data.len())?;
                self.end = b"\r\n";
            }
            RequestLength::Known(left) => {
                // The server would take bytes beyond the declared length for the next request.
                *left = left.checked_sub(data.len() as u64).ok_or_else(other_length)?;
            }
            RequestLength::Empty => return Err(other_length()),
        }
        self.data = data;
        Ok(())
    }

    fn poll_pieces(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let text = &self.text[self.written..];
            if text.is_empty() && self.data.is_empty() && self.end.is_empty() {
                (self.text, self.written) = (Vec::new(), 0);
                return Poll::Ready(Ok(()));
            }
            let pieces = [IoSlice::new(text), IoSlice::new(&self.data), IoSlice::new(self.end)];
            let mut count = ready!(Pin::new(&mut *io).poll_write_vectored(cx, &pieces))?;
            // A write of zero bytes would be repeated forever.
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_text = count.min(text.len());
            self.written += of_text;
            count -= of_text;
            let of_data = count.min(self.data.len());
            self.data.advance(of_data);
            count -= of_data;
            self.end = &self.end[count..];
        }
    }
}

fn other_length() -> LinkError {
    let why = "the body has another length than it said".to_owned();
    LinkError::RequestBody(RequestBodyError::Unreadable(why))
}

/// Returns the head of a request, with room for `room` bytes after it.
fn text_of(head: &Parts, length: RequestLength, room: usize) -> Vec<u8> {
    let target = match head.uri.path_and_query() {
        Some(path) if head.uri.scheme().is_none() => Cow::Borrowed(path.as_str()),
        // A proxy expects the whole URL, and for CONNECT only host and port (RFC 9112, 3.2).
        _ => Cow::Owned(head.uri.to_string()),
    };
    let lines = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let fixed = head.method.as_str().len() + target.len() + 48;
    let mut text = Vec::with_capacity(fixed + lines.sum::<usize>() + room);
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| text.extend_from_slice(part));
    put(&[head.method.as_str().as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\n"]);
    let mut number = [0; 20];
    let known = match length {
        RequestLength::Known(length) => decimal(length, &mut number),
        RequestLength::Empty if head.headers.contains_key(CONTENT_LENGTH) => b"0",
        _ => b"",
    };
    let mut is_said = known.is_empty();
    for (name, value) in &head.headers {
        // The length is that of the body that is really sent, whatever the headers say.
        let value = match *name {
            // RFC 9112, 6.1 and 6.2: a message must not have both a length and chunks.
            TRANSFER_ENCODING => continue,
            // The length is written once, at its position among the client's headers.
            CONTENT_LENGTH if std::mem::replace(&mut is_said, true) => continue,
            CONTENT_LENGTH => known,
            _ => value.as_bytes(),
        };
        put(&[name.as_str().as_bytes(), b": ", value, b"\r\n"]);
    }
    if !is_said {
        put(&[b"content-length: ", known, b"\r\n"]);
    }
    if length == RequestLength::Chunked {
        put(&[b"transfer-encoding: chunked\r\n"]);
    }
    put(&[b"\r\n"]);
    text
}

/// The digits of a number, without the formatting of the standard library, which costs ten times as much. Twenty digits
/// suffice for every number.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        (first, number) = (first - 1, number / 10);
        if number == 0 {
            break;
        }
    }
    &digits[first..]
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(request: Request<RequestBody>, expected: &str) {
        let (writer, _) = RequestWriter::new(request);
        let mut text = writer.text;
        text.extend_from_slice(&writer.data);
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    fn post(lengths: &[&'static str], body: &'static str) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::from(Bytes::from_static(body.as_bytes())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "/r?x=1".parse().unwrap();
        request.headers_mut().insert("host", HeaderValue::from_static("up.example"));
        for length in lengths {
            let length = HeaderValue::from_static(length);
            request.headers_mut().append(CONTENT_LENGTH, length);
        }
        request
    }

    #[test]
    fn a_number_has_its_digits() {
        for number in [0, 7, 10, 99, 1_204, 10_000_000_000, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_request_has_the_length_of_the_body_that_is_sent() {
        let head = "POST /r?x=1 HTTP/1.1\r\nhost: up.example\r\n";
        check(post(&[], "hello"), &format!("{head}content-length: 5\r\n\r\nhello"));
        check(post(&["5"], "hello"), &format!("{head}content-length: 5\r\n\r\nhello"));
        check(post(&["7", "8"], "hello"), &format!("{head}content-length: 5\r\n\r\nhello"));
        check(post(&[], ""), &format!("{head}\r\n"));
        check(post(&["0", "0"], ""), &format!("{head}content-length: 0\r\n\r\n"));
        let mut proxied = post(&[], "");
        *proxied.uri_mut() = "http://up.example/r?x=1".parse().unwrap();
        let whole = "POST http://up.example/r?x=1 HTTP/1.1\r\nhost: up.example\r\n\r\n";
        check(proxied, whole);
        let mut connect = post(&[], "");
        *connect.method_mut() = Method::CONNECT;
        *connect.uri_mut() = "up.example:443".parse().unwrap();
        check(connect, "CONNECT up.example:443 HTTP/1.1\r\nhost: up.example\r\n\r\n");
        check(post(&["7"], ""), &format!("{head}content-length: 0\r\n\r\n"));
        let mut coded = post(&[], "hello");
        coded.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        check(coded, &format!("{head}content-length: 5\r\n\r\nhello"));
    }
}
