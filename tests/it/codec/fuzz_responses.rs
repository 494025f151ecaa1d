//! Responses of a server, read by Milepost's HTTP/1.1 decoder and by hyper. Where hyper refuses, the decoder refuses;
//! where the decoder reads a response, hyper reads the same; the decoder refuses more only where it says so.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body::Body;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use milepost::transport::http::http1::malformed::MalformedResponse;
use milepost::transport::http::http1::response_decoder::ResponseDecoder;

/// The result of reading a response.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) head: Option<(StatusCode, Version, HeaderMap)>,
    pub(crate) body: Vec<u8>,
    trailers: Option<HeaderMap>,
    pub(crate) end: Ending,
}

/// How the reading of a response ended.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) enum Ending {
    /// The response is over, and its connection can be used again.
    Reusable,
    /// The response is over.
    Over,
    /// More is to come.
    #[default]
    Waiting,
    /// The bytes are not a response.
    Refused,
}

/// The pieces, read by the engine, and why it refuses. With `closes` the server closes the connection behind them.
pub(crate) fn own(
    method: &Method,
    pieces: &[&[u8]],
    closes: bool,
) -> (Reading, Option<MalformedResponse>) {
    let (mut decoder, mut reading) = (ResponseDecoder::new(method), Reading::default());
    let mut fault = None;
    for piece in pieces {
        let mut bytes = BytesMut::from(*piece);
        if bytes.is_empty() {
            continue;
        }
        if reading.head.is_none() {
            match decoder.head(&mut bytes) {
                Ok(None) => continue,
                Ok(Some((head, data))) => {
                    let (head, ()) = head.into_parts();
                    reading.head = Some((head.status, head.version, head.headers));
                    reading.body.extend_from_slice(&data);
                }
                Err(malformed) => fault = Some(malformed),
            }
        } else {
            match decoder.body(&mut bytes) {
                Ok(data) => reading.body.extend_from_slice(&data),
                Err(malformed) => fault = Some(malformed),
            }
        }
        fault = fault.or_else(|| decoder.fault());
        if fault.is_some() {
            break;
        }
    }
    if fault.is_none() && closes {
        fault = decoder.close().err();
    }
    reading.trailers = decoder.take_trailers().map(|trailers| *trailers);
    reading.end = match fault {
        Some(_) => Ending::Refused,
        None if decoder.is_reusable() => Ending::Reusable,
        None if decoder.is_over() => Ending::Over,
        None => Ending::Waiting,
    };
    (reading, fault)
}

/// A server that says the pieces once it has been asked.
struct Server {
    pieces: Arc<Mutex<VecDeque<Vec<u8>>>>,
    closes: bool,
    is_asked: bool,
}

impl Read for Server {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_asked {
            return Poll::Pending;
        }
        let mut pieces = self.pieces.lock().unwrap();
        let Some(mut piece) = pieces.pop_front() else {
            return if self.closes { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        let rest = piece.split_off(piece.len().min(buffer.remaining()));
        buffer.put_slice(&piece);
        if !rest.is_empty() {
            pieces.push_front(rest);
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Server {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The pieces, read by hyper.
pub(crate) fn hypers(method: &Method, pieces: &[&[u8]], closes: bool) -> Reading {
    let pieces = pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| piece.to_vec());
    let pieces: Arc<Mutex<VecDeque<Vec<u8>>>> = Arc::new(Mutex::new(pieces.collect()));
    let server = Server { pieces: Arc::clone(&pieces), closes, is_asked: false };
    let handshake = http1::Builder::new().max_buf_size(64 << 10).handshake(server);
    let (mut sender, connection) =
        handshake.now_or_never().expect("no wait").expect("a connection");
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method.clone();
    let mut connection = Some(connection);
    let mut sent = Some(Box::pin(sender.try_send_request(request)));
    let (mut reading, mut body): (Reading, Option<Incoming>) = Default::default();
    let cx = &mut Context::from_waker(Waker::noop());
    let mut rounds_without_news = 0;
    while rounds_without_news < 4 {
        let before = (pieces.lock().unwrap().len(), reading.body.len(), reading.head.is_some());
        if connection.as_mut().is_some_and(|connection| connection.poll_unpin(cx).is_ready()) {
            connection = None;
        }
        if let Some(Poll::Ready(response)) = sent.as_mut().map(|sent| sent.poll_unpin(cx)) {
            sent = None;
            match response {
                Ok(response) => {
                    let (head, incoming) = response.into_parts();
                    reading.head = Some((head.status, head.version, head.headers));
                    body = Some(incoming);
                }
                Err(_) => reading.end = Ending::Refused,
            }
        }
        match body.as_mut().map(|body| Pin::new(body).poll_frame(cx)) {
            None | Some(Poll::Pending) => {}
            Some(Poll::Ready(None)) => (body, reading.end) = (None, Ending::Over),
            Some(Poll::Ready(Some(Err(_)))) => (body, reading.end) = (None, Ending::Refused),
            Some(Poll::Ready(Some(Ok(frame)))) => match frame.into_data() {
                Ok(data) => reading.body.extend_from_slice(&data),
                Err(frame) => reading.trailers = frame.into_trailers().ok(),
            },
        }
        let after = (pieces.lock().unwrap().len(), reading.body.len(), reading.head.is_some());
        rounds_without_news = if before == after { rounds_without_news + 1 } else { 0 };
    }
    drop(sent);
    if reading.end == Ending::Over && connection.is_some() && sender.is_ready() {
        reading.end = Ending::Reusable;
    }
    reading
}

/// Panics where the two readers do not agree as they must.
pub(crate) fn compare(method: &Method, pieces: &[&[u8]], closes: bool) {
    let (own, fault) = own(method, pieces, closes);
    let hyper = hypers(method, pieces, closes);
    let is_stricter = match fault {
        Some(
            MalformedResponse::TwoLengths
            | MalformedResponse::Coding
            | MalformedResponse::EmptyLine,
        ) => own.head.is_none(),
        // Here the lines of trailers must end with both characters.
        Some(MalformedResponse::Trailers) => {
            let bytes = pieces.concat();
            let mut ends = memchr::memchr_iter(b'\n', &bytes);
            hyper.end != Ending::Refused && ends.any(|at| !bytes[..at].ends_with(b"\r"))
        }
        // hyper's buffer may be larger than its limit.
        Some(MalformedResponse::HeadTooLong) => pieces.concat().len() >= 64 << 10,
        // Spaces after the size of a chunk, and its digits, have a limit here.
        Some(MalformedResponse::Extensions) => hyper.end != Ending::Refused,
        Some(MalformedResponse::Chunk) => {
            let bytes = pieces.concat();
            let mut runs = bytes.split(|byte| !byte.is_ascii_hexdigit());
            // hyper continues after such a size, whether or not the chunk is complete.
            runs.any(|run| run.len() > 16)
        }
        _ => false,
    };
    if is_stricter {
        return;
    }
    let as_reusable = |reading: Reading| match (own.end, reading.end) {
        (Ending::Over, Ending::Reusable) => Reading { end: Ending::Over, ..reading },
        _ => reading,
    };
    let mut expected = as_reusable(hyper);
    if own != expected && expected.head.is_none() && pieces.len() > 1 {
        // hyper misses some ends of heads that arrive in pieces.
        expected = as_reusable(hypers(method, &[&pieces.concat()], closes));
    }
    assert!(own == expected, "{}", {
        let pieces: Vec<_> = pieces.iter().map(|piece| String::from_utf8_lossy(piece)).collect();
        format!("{method} {pieces:?}, closes: {closes}\n{own:?} ({fault:?})\n{expected:?}")
    });
}

/// The first byte says how the request was and whether the server closes, the next two where the rest is cut.
pub(crate) fn responses(data: &[u8]) {
    let [how, first, second, bytes @ ..] = data else { return };
    let method = [Method::GET, Method::POST, Method::HEAD][usize::from(how >> 1) % 3].clone();
    let closes = how & 1 == 1;
    compare(&method, &[bytes], closes);
    let first = usize::from(*first).min(bytes.len());
    let second = (first + usize::from(*second)).min(bytes.len());
    let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
    compare(&method, &pieces, closes);
}
