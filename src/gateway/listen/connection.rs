//! One connection: serves HTTP on it, and reports how it ended.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::idle::{IdleRule, LastingBody, OpenAnswers};
use super::lazy_poll::LazyPoll;
use crate::observe::metrics::{MeteredIo, Traffic};
use crate::transport::http::io::Io;
use crate::transport::http::outliving::{Outlives, Outliving};
use crate::transport::http::refusal::Refusal;
use crate::transport::http::write_state::WriteState;
use crate::transport::tasks::BoxedTasks;

/// Deadline for a client to choose HTTP/1.1 or HTTP/2, and to send the rest of a request's head after its first byte.
pub(super) const HEAD: Duration = Duration::from_secs(10);

/// Limit of the buffer of an HTTP/1.1 connection in each direction, in bytes, unless heads may be larger. A larger
/// buffer costs memory for each client that does not read; a smaller one makes large answers slower. (hyper itself
/// limits a head to 100 lines; setting a limit here would cost an allocation for each head.)
const BUFFER: usize = 64 << 10;

/// The flow-control window of an HTTP/2 stream, in bytes.
const STREAM_WINDOW: u32 = 64 << 10;

/// The flow-control window of an HTTP/2 connection, in bytes.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Limit of concurrent HTTP/2 streams on one connection. The client waits with further requests.
const STREAMS_MAX: u32 = 100;

/// The interval of pings to a silent HTTP/2 client, and the deadline for the answer.
const PING: Duration = Duration::from_secs(20);

/// The time that the client of an idle connection has to react to the announced end of the connection.
const GOODBYE: Duration = Duration::from_secs(2);

/// The time that a client which connected while the listener lingered has to send its first request.
pub(super) const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// The delay before `h2` is told that an HTTP/2 client has sent its last byte. If `h2` sees the end in the same poll,
/// or cannot acknowledge the client's settings, it drops requests that it has read but not passed on: a notification of
/// a client that closes immediately would be lost.
const END_AFTER: Duration = Duration::from_millis(1);

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The reason for the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ConnectionEnd {
    /// The connection was closed normally.
    Closed,
    /// No request was open on the connection for too long.
    Idle,
    /// The bytes were not HTTP.
    Malformed,
    /// The head of a request was too large.
    HeadTooLarge,
    /// The client took too long for the head of a request, or did not answer a ping.
    TooSlow,
    /// The client disconnected in the middle of a request or of its answer.
    CutOff,
    /// TLS could not be agreed on.
    NoTls,
    /// Reading or writing failed.
    Broken,
}

impl ConnectionEnd {
    /// Returns the name for logs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Malformed => "malformed",
            Self::HeadTooLarge => "head-too-large",
            Self::TooSlow => "too-slow",
            Self::CutOff => "cut-off",
            Self::NoTls => "no-tls",
            Self::Broken => "broken",
        }
    }

    fn of(error: &(dyn Error + 'static)) -> Self {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::TimedOut => Self::TooSlow,
                // The listener stopped before the client had sent anything.
                io::ErrorKind::Interrupted => Self::Closed,
                _ => Self::Broken,
            };
        }
        // An error of the byte stream, such as a missed deadline for a head, is inside hyper's error.
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        if source.is_some_and(|source| source.kind() == io::ErrorKind::TimedOut) {
            return Self::TooSlow;
        }
        match error.downcast_ref::<hyper::Error>() {
            Some(error) if error.is_parse_too_large() => Self::HeadTooLarge,
            Some(error) if error.is_parse() => Self::Malformed,
            Some(error) if error.is_timeout() => Self::TooSlow,
            Some(error) if error.is_incomplete_message() => Self::CutOff,
            _ => Self::Broken,
        }
    }
}

/// The error of a body.
pub(super) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of an answer, of any kind.
pub(super) type AnyBody = UnsyncBoxBody<Bytes, BodyError>;

/// The future of the answer to a request. Boxed, because every connection reserves memory for one future, even while it
/// is idle.
pub(super) type AnswerFuture = Pin<Box<dyn Future<Output = Response<AnyBody>> + Send>>;

/// Answers the requests of a connection.
pub(super) type Answerer<'a> = dyn Fn(Request<Incoming>) -> AnswerFuture + Send + Sync + 'a;

/// Boxes an answer and its body.
pub(super) fn boxed<B>(answer: impl Future<Output = Response<B>> + Send + 'static) -> AnswerFuture
where
    B: Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    answer.map(|response| response.map(BodyExt::boxed_unsync)).boxed()
}

/// The HTTP server for connections: HTTP/1.1 and HTTP/2 with their limits.
#[derive(Debug, Clone)]
pub(super) struct Http {
    builder: auto::Builder<BoxedTasks>,
    traffic: Traffic,
    idle: IdleRule,
}

impl Http {
    /// Returns a server that accepts heads of at most this many bytes. `traffic` counts all bytes.
    pub(super) fn new(head_bytes_max: usize, traffic: Traffic) -> Self {
        let mut builder = auto::Builder::new(BoxedTasks);
        builder
            .http1()
            // Without a timer hyper silently applies no time limit.
            .timer(TokioTimer::new())
            // [`Impatient`] has the deadline for a head. hyper's would begin at the end of the previous answer.
            .header_read_timeout(None)
            .max_buf_size(head_bytes_max.max(BUFFER));
        builder
            .http2()
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(u32::try_from(head_bytes_max).unwrap_or(u32::MAX))
            .max_send_buf_size(BUFFER)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        Self { builder, traffic, idle: IdleRule::default() }
    }

    /// Returns the server with the idle times of `idle`.
    pub(super) fn ending_idle(self, idle: IdleRule) -> Self {
        Self { idle, ..self }
    }

    /// Serves the connection until it ends. Once `stop` is ready, open requests are finished and new ones are not
    /// accepted; if it returns true, a client that has not sent a request yet may send one.
    ///
    /// The kinds of connections, of answers and of bodies are behind pointers: HTTP is compiled once.
    pub(super) async fn converse(
        &self,
        io: Io,
        write_state: WriteState,
        answer: &Answerer<'_>,
        stop: Pin<&mut (dyn Future<Output = bool> + Send)>,
    ) -> ConnectionEnd {
        let answers = OpenAnswers::new();
        let service = service_fn(|request| {
            let open = answers.enter();
            // Completed even without its client, unless the message of a POST changes the rule (`set_outlives`).
            let rule = match *request.method() {
                Method::POST | Method::DELETE => Outlives::ToTheEnd,
                _ => Outlives::Nothing,
            };
            let answer = Outliving::new(answer(request), rule);
            async {
                let answer = answer.await.map(|body| LastingBody { body, _open: open });
                Ok::<_, Infallible>(answer)
            }
        });
        let io = Impatient::new(self.traffic.over(io), write_state, answers.clone());
        let io = TokioIo::new(io);
        let mut connection = pin!(self.builder.serve_connection(io, service));
        let idle = pin!(answers.idle_by(&self.idle));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            // Polled lazily: neither future depends on requests, and both would be polled several times for each.
            () = LazyPoll::new(idle) => {
                self.idle.ended.inc();
                // A client of HTTP/2 gets a GOAWAY (RFC 9113, 6.8), and sends no further request here.
                connection.as_mut().graceful_shutdown();
                let ended = tokio::select! {
                    ended = connection.as_mut() => ended,
                    // Do not wait for a client that does not close, but answer a request that has arrived in the
                    // meantime.
                    () = async { sleep(GOODBYE).await; answers.idle(GOODBYE).await } => Ok(()),
                };
                return ended.map_or_else(
                    |error| ConnectionEnd::of(&*error),
                    |()| ConnectionEnd::Idle,
                );
            }
            waits = LazyPoll::new(stop) => {
                if waits {
                    tokio::select! {
                        _ = connection.as_mut() => return ConnectionEnd::Closed,
                        () = answers.begun(FIRST_REQUEST) => {}
                    }
                }
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended.map_or_else(|error| ConnectionEnd::of(&*error), |()| ConnectionEnd::Closed)
    }
}

/// Decides about `Upgrade`, which a server may ignore (RFC 9110, 7.8). An offer of HTTP/2, which Java's client sends
/// with every request, is ignored. A request for another protocol, such as WebSocket, is refused, because the client
/// would wait for the switch.
///
/// # Errors
/// If a request asks for a protocol that the listener does not switch to.
pub(super) fn admit_upgrade(parts: &Parts) -> Result<(), Refusal> {
    let named = |line: &HeaderValue| {
        line.as_bytes()
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
    };
    let is_other = |line: &HeaderValue| !line.as_bytes().eq_ignore_ascii_case(b"h2c");
    // `Upgrade` counts only where `Connection` names it (RFC 9110, 7.8).
    let wants_another = parts.headers.get_all(CONNECTION).iter().any(named)
        && parts.headers.get_all(UPGRADE).iter().any(is_other);
    if wants_another { Err(Refusal::Upgrade) } else { Ok(()) }
}

/// Closes the connection of a client that does not show its HTTP version in time, or that does not complete the head of
/// an HTTP/1.1 request in time. HTTP/2 has pings instead.
struct Impatient {
    io: MeteredIo<Io>,
    /// The deadline for the client's HTTP version, and the number of bytes of the HTTP/2 preface read so far.
    undecided: Option<(Pin<Box<Sleep>>, usize)>,
    /// The first bytes of an HTTP/1.1 client. The code that detects the version is told that no byte has arrived, which
    /// means HTTP/1.1, so that hyper reads these bytes together with the following ones. hyper would double its buffer
    /// for a head that comes in two reads.
    first: Vec<u8>,
    /// How far the end of an HTTP/2 client's bytes has come.
    end: Http2End,
    write_state: WriteState,
    answers: OpenAnswers,
    /// The number of the head whose first byte has arrived. The beginning of a head is not noticed if it arrives in the
    /// same read as the end of the previous one; such a connection ends by its idle time.
    head: Option<u64>,
    /// The deadline of an incomplete head, with the number of the head.
    head_limit: Option<(u64, Pin<Box<Sleep>>)>,
}

/// Whether the bytes of an HTTP/2 client have ended.
enum Http2End {
    /// The client speaks HTTP/1.1, or has not shown its version yet.
    NotHttp2,
    Open,
    /// The client no longer reads: written bytes are dropped, and the client's remaining bytes are read.
    ReadOnly,
    /// The client's bytes have ended, perhaps with an error, and `h2` is told after [`END_AFTER`].
    Waits(Pin<Box<Sleep>>, Option<io::Error>),
}

impl Impatient {
    fn new(io: MeteredIo<Io>, write_state: WriteState, answers: OpenAnswers) -> Self {
        Self {
            io,
            undecided: Some((Box::pin(sleep(HEAD)), 0)),
            first: Vec::new(),
            end: Http2End::NotHttp2,
            write_state,
            answers,
            head: None,
            head_limit: None,
        }
    }

    /// Reads from an HTTP/1.1 client. The deadline of a head begins with its first byte, so that the connection may be
    /// without a request for longer.
    fn read_http1(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if !self.first.is_empty() {
            let rest = self.first.split_off(self.first.len().min(buffer.remaining()));
            buffer.put_slice(&std::mem::replace(&mut self.first, rest));
        }
        let mut read = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.head = self.answers.next_head();
            // Bytes that were held back are available, so the read must not be pending, whatever the socket says.
            if read.is_pending() {
                read = Poll::Ready(Ok(()));
            }
        }
        if read.is_pending()
            && let Some(head) = self.head
            // Only if this head is still incomplete: it may have been completed in the meantime.
            && self.answers.next_head() == Some(head)
        {
            let (of, limit) = self.head_limit.get_or_insert_with(|| (head, Box::pin(sleep(HEAD))));
            if *of != head {
                *of = head;
                limit.as_mut().reset(Instant::now() + HEAD);
            }
            ready!(limit.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }

    /// Reads from a client of HTTP/2.
    fn read_http2(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !matches!(self.end, Http2End::Waits(..)) {
            let before = buffer.filled().len();
            let read = ready!(Pin::new(&mut self.io).poll_read(context, buffer));
            if buffer.filled().len() > before {
                return Poll::Ready(read);
            }
            self.end = Http2End::Waits(Box::pin(sleep(END_AFTER)), read.err());
        }
        let Http2End::Waits(wait, error) = &mut self.end else { return Poll::Ready(Ok(())) };
        ready!(wait.as_mut().poll(context));
        Poll::Ready(error.take().map_or(Ok(()), Err))
    }

    /// Returns the outcome of a write of `length` bytes.
    fn written(
        &mut self,
        written: Poll<io::Result<usize>>,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        let is_lost = matches!(self.end, Http2End::ReadOnly | Http2End::Waits(..));
        if matches!((&written, &self.end), (Poll::Ready(Err(_)), Http2End::Open)) {
            // The write error is not reported: the last bytes of the client may still contain a request.
            self.end = Http2End::ReadOnly;
        } else if !is_lost {
            self.write_state.block(written.is_pending());
            return written;
        }
        Poll::Ready(Ok(length))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some((limit, seen)) = &mut this.undecided else {
            return match this.end {
                Http2End::NotHttp2 => this.read_http1(context, buffer),
                _ => this.read_http2(context, buffer),
            };
        };
        let before = buffer.filled().len();
        match Pin::new(&mut this.io).poll_read(context, buffer) {
            Poll::Pending => {
                ready!(limit.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Ready(done) => {
                let new = &buffer.filled()[before..];
                let (count, preface) = (new.len(), &PREFACE[*seen..]);
                let is_http1 = !preface.starts_with(new);
                // Only if no byte of an HTTP/2 preface has arrived before: those bytes have already been passed on.
                if is_http1 && *seen == 0 {
                    this.first = new.to_vec();
                    buffer.set_filled(before);
                }
                *seen += count;
                if !is_http1 && preface.len() <= count {
                    this.end = Http2End::Open;
                }
                if is_http1 || count == 0 || preface.len() <= count {
                    this.undecided = None;
                    let version = if is_http1 { Version::HTTP_11 } else { Version::HTTP_2 };
                    this.answers.set_version(version);
                }
                Poll::Ready(done)
            }
        }
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(context, bytes);
        this.written(written, bytes.len())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(context, slices);
        this.written(written, slices.iter().map(|slice| slice.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
