//! The parts of an MCP server that Milepost itself implements: the demo server, and the servers of the lab.
//!
//! ```text
//! lines, bodies of POST ──> one future for each request ──> ReplyStream ──> lines, events
//! ```

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::protocol::lines::{INSPECT_MAX, LineFrame, Lines};
use crate::protocol::sse;
use crate::transport::http::io::Io;
use crate::transport::tasks;

/// Limit of the pieces that wait to be written on one stream of a server inside Milepost. At the limit the server
/// waits.
const PIECES_MAX: usize = 64;

/// The body of a response.
pub(crate) type ServedBody = UnsyncBoxBody<Bytes, Infallible>;

/// The future of a response.
pub(crate) type ServedResponse = BoxFuture<'static, Response<ServedBody>>;

/// Serves HTTP/1.1 on a connection. `patience`: the time limit of the head of a request.
///
/// # Errors
/// If the client disconnects in the middle of a message, or its bytes are not HTTP.
pub(crate) async fn serve_http1(
    io: Io,
    patience: Option<Duration>,
    answer: &(dyn Fn(Request<Incoming>) -> ServedResponse + Send + Sync),
) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(patience);
    let service = service_fn(|request| answer(request).map(Ok::<_, Infallible>));
    builder.serve_connection(TokioIo::new(io), service).await
}

/// One write.
#[derive(Debug)]
pub(crate) enum ReplyPiece {
    /// Messages without line ends.
    Messages(Vec<Bytes>),
    /// The response ends here for the client that reads it now.
    HangUp,
}

/// The channel for a server's messages to its client: for the answer to one request, or for all messages.
#[derive(Debug, Clone)]
pub(crate) struct ReplyStream {
    to: mpsc::Sender<ReplyPiece>,
}

impl ReplyStream {
    /// Returns a stream, and the receiver of its pieces.
    pub(crate) fn new() -> (Self, mpsc::Receiver<ReplyPiece>) {
        let (to, from) = mpsc::channel(PIECES_MAX);
        (Self { to }, from)
    }

    /// Sends messages, which are written in one piece. Does nothing if the client has disconnected.
    pub(crate) async fn say<T: Into<Bytes>>(&self, messages: impl IntoIterator<Item = T>) {
        let messages = messages.into_iter().map(Into::into).collect();
        let _ = self.to.send(ReplyPiece::Messages(messages)).await;
    }

    /// Ends the response for the client that reads it now.
    pub(crate) async fn hang_up(&self) {
        let _ = self.to.send(ReplyPiece::HangUp).await;
    }

    /// Waits until the client has disconnected.
    pub(crate) async fn left(&self) {
        self.to.closed().await;
    }

    /// Whether the client has disconnected.
    pub(crate) fn has_left(&self) -> bool {
        self.to.is_closed()
    }
}

/// Serves one client over a pair of byte streams until the input ends. `receive` gets each line, with the stream for
/// its answer. If the line is a request, it returns the future that answers.
///
/// # Errors
/// If the output cannot be written.
pub(crate) async fn serve_lines<F: Future<Output = ()> + Send + 'static>(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    receive: impl Fn(Bytes, ReplyStream) -> Option<F>,
) -> io::Result<()> {
    let (stream, mut pieces) = ReplyStream::new();
    let (mut lines, mut calls) = (LineReader::new(input), JoinSet::new());
    loop {
        tokio::select! {
            line = lines.next() => {
                let Some(line) = line else { break };
                if let Some(call) = receive(line, stream.clone()) {
                    tasks::spawn_in(&mut calls, call);
                }
            }
            Some(piece) = pieces.recv() => write_lines(&mut output, piece).await?,
            Some(_) = calls.join_next() => {}
        }
    }
    while let Ok(piece) = pieces.try_recv() {
        write_lines(&mut output, piece).await?;
    }
    output.shutdown().await
}

async fn write_lines(output: &mut (impl AsyncWrite + Unpin), piece: ReplyPiece) -> io::Result<()> {
    let ReplyPiece::Messages(messages) = piece else { return Ok(()) };
    let mut text = BytesMut::new();
    for message in messages {
        text.extend_from_slice(&message);
        text.extend_from_slice(b"\n");
    }
    output.write_all(&text).await?;
    output.flush().await
}

/// Reads the lines of a stream.
pub(crate) struct LineReader<R> {
    from: R,
    buffer: BytesMut,
    lines: Lines,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: BytesMut::new(), lines: Lines::new(INSPECT_MAX) }
    }

    /// Returns the next line with its ending; `None` at the end of the input. A line that is too long for memory is
    /// skipped. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            while let Some(frame) = self.lines.decode(&mut self.buffer) {
                if let LineFrame::Line(line) = frame {
                    return Some(line);
                }
            }
            if !matches!(self.from.read_buf(&mut self.buffer).await, Ok(1..)) {
                return None;
            }
        }
    }
}

/// Returns the pieces of a stream as events, each as soon as it is there.
pub(crate) fn events(pieces: mpsc::Receiver<ReplyPiece>) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(pieces, |mut pieces| async {
        loop {
            let ReplyPiece::Messages(messages) = pieces.recv().await? else { continue };
            let mut events = BytesMut::new();
            messages.iter().for_each(|text| sse::append(&mut events, [text]));
            return Some((events.freeze(), pieces));
        }
    })
}

/// Returns the first event of HTTP+SSE, which names the address for messages.
pub(crate) fn endpoint_event(address: &str) -> Bytes {
    format!("event: endpoint\ndata: {address}\n\n").into()
}

/// Returns a response of events.
pub(crate) fn event_stream(
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> Response<ServedBody> {
    let frames = events.map(|bytes| Ok(Frame::data(bytes)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Returns a text response without messages.
pub(crate) fn plain(status: StatusCode, text: &'static str) -> Response<ServedBody> {
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = status;
    response
}
