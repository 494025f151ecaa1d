//! Reads responses from bytes. No I/O.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};

use super::body_decoder::BodyDecoder;
use super::malformed::{HEAD_BYTES_MAX, HEADERS_MAX, MalformedResponse};
use super::read_buffer::take_out;

/// Limit of the length of a body that a response may declare, in bytes.
const BODY_BYTES_MAX: u64 = u64::MAX - 2;

/// The largest beginning of a body, in bytes, that is copied with the head that it arrived with. A reader that keeps a
/// part of either keeps both.
const BODY_WITH_HEAD_MAX: usize = 1 << 10;

/// Reads one response. After an error the reader is at its end.
#[derive(Debug)]
pub struct ResponseDecoder {
    /// The method of the request, on which the length of the body depends.
    method: Method,
    /// The beginning of a head that is not complete yet.
    held: BytesMut,
    /// An empty map, whose memory is reused for the headers.
    spare: HeaderMap,
    /// The decoder of the body; `None` before the head has been read.
    body: Option<BodyDecoder>,
    /// Whether the connection may serve another request after this response.
    is_persistent: bool,
    trailers: Option<Box<HeaderMap>>,
    /// The fault after the data that was returned last.
    fault: Option<MalformedResponse>,
}

impl ResponseDecoder {
    /// Returns a decoder for the response to a request with this method.
    pub fn new(method: &Method) -> Self {
        Self {
            method: method.clone(),
            held: BytesMut::new(),
            spare: HeaderMap::new(),
            body: None,
            is_persistent: false,
            trailers: None,
            fault: None,
        }
    }

    /// Reuses the memory of `headers` for the headers of the response.
    pub fn reuse(&mut self, mut headers: HeaderMap) {
        headers.clear();
        self.spare = headers;
    }

    /// Reads the next bytes until the head of the response is complete. Returns the head, and the data of the body that
    /// follows in `bytes`. Interim responses such as 103 are skipped.
    ///
    /// # Errors
    /// If the bytes are not a response, or the length of the body is ambiguous.
    pub fn head(
        &mut self,
        bytes: &mut BytesMut,
    ) -> Result<Option<(Response<()>, Bytes)>, MalformedResponse> {
        if self.held.is_empty() {
            return self.begin(bytes);
        }
        // Only the new bytes are searched for the blank line, so that a head that arrives in single bytes is parsed
        // once. The last two known bytes are searched again, because the blank line may begin there.
        let known = self.held.len().saturating_sub(2);
        self.held.extend_from_slice(bytes);
        if has_blank_line(&self.held[known..]) {
            let mut held = std::mem::take(&mut self.held);
            return self.begin(&mut held);
        }
        let is_short = self.held.len() < HEAD_BYTES_MAX;
        is_short.then_some(None).ok_or(MalformedResponse::HeadTooLong)
    }

    fn begin(
        &mut self,
        bytes: &mut BytesMut,
    ) -> Result<Option<(Response<()>, Bytes)>, MalformedResponse> {
        while !bytes.is_empty() {
            // Only servers may skip empty lines before a message (RFC 9112, 2.2). Before a response, an empty line may
            // be a part of another response.
            if matches!(bytes[0], b'\r' | b'\n') {
                return Err(MalformedResponse::EmptyLine);
            }
            let Some((head, length, copy)) = parse(bytes, &mut self.spare)? else {
                if bytes.len() >= HEAD_BYTES_MAX {
                    return Err(MalformedResponse::HeadTooLong);
                }
                // Copied, because the buffer belongs to the thread and is reused for the next connection.
                self.held = BytesMut::from(&bytes[..]);
                return Ok(None);
            };
            bytes.advance(length);
            let status = head.status();
            // Interim responses precede the final one (RFC 9110, 15.2). 101 is final: another protocol follows.
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                continue;
            }
            self.body = Some(framing(&head, &self.method)?);
            // Set before the body is read, because bytes after the body make the connection unusable.
            self.is_persistent = is_persistent(&head);
            return match self.decode(bytes) {
                Ok(count) => {
                    // A body with a known length is where it was read; chunks were moved together.
                    let is_copied = matches!(self.body, Some(BodyDecoder::Length(_)))
                        && copy.len() >= length + count;
                    let data = match count {
                        0 => Bytes::new(),
                        _ if is_copied => copy.slice(length..length + count),
                        _ => take_out(bytes),
                    };
                    Ok(Some((head, data)))
                }
                // The head is whole and reaches the client. The fault is reported when the body is read.
                Err(fault) => {
                    self.fault = Some(fault);
                    Ok(Some((head, Bytes::new())))
                }
            };
        }
        Ok(None)
    }

    /// Reads all of `bytes`, which follow the head. Returns their data, which may be empty.
    ///
    /// # Errors
    /// If the body is malformed after the data that was returned before.
    pub fn body(&mut self, bytes: &mut BytesMut) -> Result<Bytes, MalformedResponse> {
        self.decode(bytes)?;
        Ok(take_out(bytes))
    }

    /// Reads all of `bytes`, and leaves their data there. Returns the length of the data.
    ///
    /// # Errors
    /// As for [`ResponseDecoder::body`].
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<usize, MalformedResponse> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let Some(body) = &mut self.body else { return Err(MalformedResponse::Incomplete) };
        let decoded = body.decode(bytes);
        let mut fault = decoded.fault;
        if body.is_over() && self.trailers.is_none() {
            match body.take_trailers() {
                Ok(trailers) => self.trailers = trailers,
                Err(malformed) => fault = Some(malformed),
            }
        }
        // Bytes after the response belong to no request, so the connection must not be reused (RFC 9112, 9.2).
        self.is_persistent &= decoded.used == bytes.len();
        self.fault = fault;
        match fault {
            Some(fault) if decoded.data == 0 => Err(fault),
            _ => {
                bytes.truncate(decoded.data);
                Ok(decoded.data)
            }
        }
    }

    /// Notes that the server has closed its side.
    ///
    /// # Errors
    /// If the response is incomplete.
    pub fn close(&mut self) -> Result<(), MalformedResponse> {
        self.is_persistent = false;
        match &mut self.body {
            // Without a length, the close of the connection is the end of the body (RFC 9112, 6.3).
            Some(body @ BodyDecoder::UntilClose) => *body = BodyDecoder::Length(0),
            Some(body) if body.is_over() => {}
            Some(body) => return Err(self.fault.unwrap_or_else(|| body.incomplete())),
            None => return Err(MalformedResponse::Incomplete),
        }
        Ok(())
    }

    /// Returns the fault after the data that was returned last, if the body is malformed there.
    pub fn fault(&self) -> Option<MalformedResponse> {
        self.fault
    }

    /// Whether the whole response has been read.
    pub fn is_over(&self) -> bool {
        self.fault.is_none() && self.body.as_ref().is_some_and(BodyDecoder::is_over)
    }

    /// Whether the whole response has been read, and its connection may serve another request.
    pub fn is_reusable(&self) -> bool {
        self.is_over() && self.is_persistent
    }

    /// Returns the bytes of the body that are still to come, if the head declares its length.
    pub fn left(&self) -> Option<u64> {
        match &self.body {
            Some(BodyDecoder::Length(left)) => Some(*left),
            _ => None,
        }
    }

    /// Returns the number of bytes left in the current piece of the body (a chunk, or the rest), if it is known.
    pub(super) fn piece(&self) -> u64 {
        self.body.as_ref().map_or(0, BodyDecoder::piece)
    }

    /// Returns the trailers, once the response has ended.
    pub fn take_trailers(&mut self) -> Option<Box<HeaderMap>> {
        self.trailers.take()
    }
}

/// Whether an empty line may be in these bytes.
fn has_blank_line(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes)
        .any(|at| matches!(bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// The head at the beginning of `bytes` (RFC 9112, 4 and 5), its length, and the copy that its headers are slices of, if
/// the head is whole. Its headers are in the place of `spare`. What follows a head and is short is copied with it.
fn parse(
    bytes: &[u8],
    spare: &mut HeaderMap,
) -> Result<Option<(Response<()>, usize, Bytes)>, MalformedResponse> {
    let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let length = parser.parse_response_with_uninit_headers(&mut parsed, bytes, &mut lines);
    let length = match length.map_err(MalformedResponse::Head)? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(length) => length,
    };
    // Checked here too, because a single read may bring a head that is longer than the limit.
    if length > HEAD_BYTES_MAX {
        return Err(MalformedResponse::HeadTooLong);
    }
    let (mut head, malformed) =
        (Response::new(()), MalformedResponse::Head(httparse::Error::Status));
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    *head.status_mut() = status.ok_or(malformed)?;
    *head.version_mut() =
        if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    // All values are slices of one copy: one allocation for all headers, and for a small answer.
    let is_small = bytes.len() - length <= BODY_WITH_HEAD_MAX;
    let shared = Bytes::copy_from_slice(if is_small { bytes } else { &bytes[..length] });
    let headers = head.headers_mut();
    *headers = std::mem::take(spare);
    headers.reserve(parsed.headers.len());
    for line in parsed.headers.iter() {
        let start = line.value.as_ptr().addr() - bytes.as_ptr().addr();
        let value = shared.slice(start..start + line.value.len());
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let name = name.map_err(|_| MalformedResponse::Head(httparse::Error::HeaderName))?;
        let value = HeaderValue::from_maybe_shared(value);
        let value = value.map_err(|_| MalformedResponse::Head(httparse::Error::HeaderValue))?;
        headers.append(name, value);
    }
    Ok(Some((head, length, shared)))
}

/// Returns how the end of a body is recognised (RFC 9112, 6.3). A length that two readers may understand differently is
/// refused.
fn framing(head: &Response<()>, method: &Method) -> Result<BodyDecoder, MalformedResponse> {
    let (status, headers) = (head.status(), head.headers());
    let has_none = matches!(
        status,
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    // RFC 9112, 6.3: these responses have no body, whatever their headers say.
    if has_none || method == Method::HEAD {
        return Ok(BodyDecoder::Length(0));
    }
    // RFC 9112, 6.3: an accepted CONNECT makes the connection a tunnel, whatever the headers say.
    if method == Method::CONNECT && status.is_success() {
        return Ok(BodyDecoder::UntilClose);
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(coding), None)
            if head.version() == Version::HTTP_11
                && coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") =>
        {
            // With both headers a second response may be smuggled (RFC 9112, 6.3), so the response is refused.
            let has_length = headers.contains_key(CONTENT_LENGTH);
            let chunked = BodyDecoder::Chunked(<_>::default());
            return (!has_length).then_some(chunked).ok_or(MalformedResponse::TwoLengths);
        }
        // RFC 9112, 6.3: with another coding last, the end of the body is unknown. HTTP/1.0 has no chunks.
        _ => return Err(MalformedResponse::Coding),
    }
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for text in value.as_bytes().split(|byte| *byte == b',') {
            let one = number(text.trim_ascii()).ok_or(MalformedResponse::Length)?;
            // RFC 9112, 6.3: a repeated length is allowed if all values are the same.
            if length.is_some_and(|known| known != one) {
                return Err(MalformedResponse::Length);
            }
            length = Some(one);
        }
    }
    Ok(length.map_or(BodyDecoder::UntilClose, BodyDecoder::Length))
}

fn number(digits: &[u8]) -> Option<u64> {
    // Digits only: the parser of the standard library would also accept a sign.
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok().filter(|number| *number <= BODY_BYTES_MAX)
}

/// Whether the server keeps the connection open (RFC 9112, 9.3). An HTTP/1.0 connection is never reused, whatever the
/// response says.
fn is_persistent(head: &Response<()>) -> bool {
    let headers = head.headers();
    let closes = |value: &HeaderValue| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        // A value that is not ASCII is not understood, so the connection is not reused.
        !value.as_bytes().is_ascii()
            || words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
    };
    // Some servers send a body with these statuses, which would be read as the beginning of the next response, so the
    // connection is not reused. With 304, a length is normal: it is that of the copy that the client already has.
    let has_odd_body = match head.status() {
        StatusCode::NO_CONTENT => {
            headers.contains_key(TRANSFER_ENCODING)
                || headers.get_all(CONTENT_LENGTH).iter().any(|length| length != "0")
        }
        StatusCode::NOT_MODIFIED => headers.contains_key(TRANSFER_ENCODING),
        _ => false,
    };
    head.version() == Version::HTTP_11
        && head.status() != StatusCode::SWITCHING_PROTOCOLS
        && !headers.get_all(CONNECTION).iter().any(closes)
        && !has_odd_body
}
