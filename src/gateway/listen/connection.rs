//! One connection: serves HTTP on it, and reports how it ended.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
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

/// The time that a client has to choose HTTP/1.1 or HTTP/2, and to send the rest of a request's head after its first
/// byte.
pub(super) const HEAD: Duration = Duration::from_secs(10);

/// Bytes that a connection of HTTP/1.1 holds for each direction, unless heads may be larger. More
/// costs memory for each client that does not read, less costs time in large answers. (The lines of
/// a head are limited to 100 by hyper itself; a limit of Milepost's own would cost an allocation each.)
const BUFFER: usize = 64 << 10;

/// The flow-control window of an HTTP/2 stream, in bytes.
const STREAM_WINDOW: u32 = 64 << 10;

/// The flow-control window of an HTTP/2 connection, in bytes.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Maximum number of concurrent HTTP/2 streams of one connection. The client waits with further requests.
const STREAMS_MAX: u32 = 100;

/// The interval of pings to a silent HTTP/2 client, and the time that the client has to answer.
const PING: Duration = Duration::from_secs(20);

/// The time that the client of an idle connection has to answer that the connection ends.
const GOODBYE: Duration = Duration::from_secs(2);

/// The time that a client has to send its first request, if it connected while the listener lingered.
pub(super) const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// The time between the end of an HTTP/2 client's bytes and its report to `h2`. If `h2` sees the end in the same poll,
/// or cannot acknowledge the client's settings, it drops requests that it has read but not passed on: a notification
/// whose client closes at once would be lost.
const END_AFTER: Duration = Duration::from_millis(1);

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The reason for the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ConnectionEnd {
    /// The connection ended in good order.
    Closed,
    /// No request was open on the connection for long.
    Idle,
    /// The bytes were not HTTP.
    Malformed,
    /// The head of a request was too large.
    HeadTooLarge,
    /// The client took too long for the head of a request, or did not answer a ping.
    TooSlow,
    /// The client left in the middle of a request or of its answer.
    CutOff,
    /// TLS could not be agreed on.
    NoTls,
    /// Reading or writing failed.
    Broken,
}

impl ConnectionEnd {
    /// The name in logs.
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
        // An error of the connection's bytes, such as the time limit of a head, is inside that of hyper.
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

/// The future of the answer to a request. Boxed, because every connection reserves memory for one future, even while it
/// is idle.
pub(super) type AnswerFuture<B> = Pin<Box<dyn Future<Output = Response<B>> + Send>>;

/// Answers the requests of a connection.
pub(super) type Answerer<'a, B> = dyn Fn(Request<Incoming>) -> AnswerFuture<B> + Send + Sync + 'a;

/// The HTTP server for connections: HTTP/1.1 and HTTP/2 with their limits.
#[derive(Debug, Clone)]
pub(super) struct Http {
    builder: auto::Builder<TokioExecutor>,
    traffic: Traffic,
    idle: IdleRule,
}

impl Http {
    /// With heads of at most this many bytes; all bytes are counted by `traffic`.
    pub(super) fn new(head_bytes_max: usize, traffic: Traffic) -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            // Without a timer hyper silently applies no time limit.
            .timer(TokioTimer::new())
            // [`Impatient`] limits the time of a head; hyper's limit would count from the end of the answer before.
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

    /// The same with other times for connections on which no request is open.
    pub(super) fn ending_idle(self, idle: IdleRule) -> Self {
        Self { idle, ..self }
    }

    /// Serves the connection until it ends. Once `stop` is ready, open requests are finished and new ones are not
    /// accepted; if it returns true, a client that has not sent a request yet may send one.
    ///
    /// The kinds of connections and of answers are behind pointers: HTTP is compiled once for each kind of body.
    pub(super) async fn converse<B>(
        &self,
        io: Io,
        write_state: WriteState,
        answer: &Answerer<'_, B>,
        stop: Pin<&mut (dyn Future<Output = bool> + Send)>,
    ) -> ConnectionEnd
    where
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let answers = OpenAnswers::new();
        let service = service_fn(|request| {
            let open = answers.enter();
            // The request is completed until the message of a POST changes the rule (`set_outlives`).
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
            // Neither of these two has anything to do with a request, and both would be polled several times for each.
            () = LazyPoll::new(idle) => {
                self.idle.ended.inc();
                // A client of HTTP/2 gets a GOAWAY (RFC 9113, 6.8), and sends no further request here.
                connection.as_mut().graceful_shutdown();
                let ended = tokio::select! {
                    ended = connection.as_mut() => ended,
                    // The connection does not wait for a client that does not close, but a request that has arrived
                    // meanwhile is served.
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
/// with every request, is ignored. A request for another protocol, such as WebSocket, is refused: the client
/// would wait for it.
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

/// Closes the connection of a client that does not show its version of HTTP in time, or that begins the head of an
/// HTTP/1.1 request and does not end it in time. HTTP/2 has pings.
struct Impatient {
    io: MeteredIo<Io>,
    /// The time limit, and the number of bytes of the HTTP/2 preface read so far.
    undecided: Option<(Pin<Box<Sleep>>, usize)>,
    /// The first bytes of HTTP/1.1. A reader that asks for the version is told that no byte has arrived, which means
    /// HTTP/1.1, and hyper then reads these bytes together with the following ones: a head in two reads would double
    /// its buffer.
    first: Vec<u8>,
    /// The end of the bytes of an HTTP/2 client.
    end: Http2End,
    write_state: WriteState,
    answers: OpenAnswers,
    /// The number of the head whose first byte has arrived. If a head begins in the same read as the end of the head
    /// before, its beginning is not noticed: such a connection ends by its idle time.
    head: Option<u64>,
    /// The end of the time of a head that did not come whole, and the number of this head.
    head_limit: Option<(u64, Pin<Box<Sleep>>)>,
}

/// Whether the bytes of an HTTP/2 client have ended.
enum Http2End {
    /// The client speaks HTTP/1.1, or has not shown its version yet.
    NotHttp2,
    Open,
    /// The client no longer reads: written bytes are dropped, and the rest of the client's own bytes is read.
    ReadOnly,
    /// The bytes have ended, perhaps with an error, and `h2` learns of it after [`END_AFTER`].
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

    /// Reads from a client of HTTP/1.1. The time of a head counts from its first byte, so that the connection may be
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
            // Only if this head is still incomplete: otherwise it has arrived meanwhile.
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

    /// The outcome of a write of `length` bytes.
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
                // Only if no byte of an HTTP/2 preface has arrived: bytes taken for a preface have already been passed
                // on.
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
                    this.answers.set_version(!is_http1);
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
