//! The legs of a relay: one towards the clients, one towards a server. Each leg knows its transport: it reads and
//! frames the messages of its side, and writes messages to its side.
//!
//! The text of a message has no line breaks. A leg whose framing allows line breaks replaces them by spaces.

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::progress::{
    Origin, Payload, Policy, ReplicaHop, RequestOrigin, StreamId, StreamKind, StreamPacing,
    TaskNews, Transmit,
};
use crate::protocol::jsonrpc::Message;
use crate::protocol::trace_context::TraceContext;
use crate::relay::spooled_response::SpooledResponse;

/// The head of the HTTP request in which a message came; `None` if it did not come over HTTP.
pub type ClientHeaders = Option<Arc<ClientHead>>;

/// The part of a client's HTTP request head that a relay uses.
#[derive(Debug, Clone, Default)]
pub struct ClientHead {
    /// The headers of the request.
    pub headers: HeaderMap,
    /// How the request came through a fleet.
    pub hop: Option<Arc<ReplicaHop>>,
}

impl ClientHead {
    /// Returns the origin of the messages in the request.
    pub(crate) fn origin(&self) -> RequestOrigin {
        RequestOrigin { trace: trace_of(&self.headers).map(Arc::new), hop: self.hop.clone() }
    }
}

impl Deref for ClientHead {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.headers
    }
}

/// Returns the origin of the messages in an HTTP request.
pub fn origin_of(parts: &Parts) -> RequestOrigin {
    let hop = parts.extensions.get::<Arc<ReplicaHop>>().cloned();
    RequestOrigin { trace: trace_of(&parts.headers).map(Arc::new), hop }
}

/// The headers that name the trace of a request (W3C Trace Context).
pub const TRACE_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

/// Returns the trace that the headers of a request name.
pub fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let [parent, state] = &TRACE_HEADERS;
    let mut parents = headers.get_all(parent).iter();
    match (parents.next(), parents.next()) {
        // A header that occurs twice is ambiguous, so it names no trace.
        (Some(only), None) => {
            let state = headers.get_all(state).iter().map(HeaderValue::as_bytes);
            TraceContext::read(only.as_bytes(), state)
        }
        _ => None,
    }
}

/// The only client stream of a connection such as stdio.
pub const SOLE_STREAM: StreamId = StreamId(0);

/// An event from the clients' side.
#[derive(Debug)]
pub enum FromClient {
    /// A client has opened this stream, and reads on it from now on.
    Opened(StreamId, StreamKind, StreamPacing),
    /// The stream belongs to the principal with this number.
    Principal(StreamId, u64),
    /// The client has closed the stream and will not return. `true`: this cancels the requests of the stream
    /// (2026-07-28).
    Closed(StreamId, bool),
    /// A message for the server.
    Message(StreamId, Message, ClientHeaders),
    /// The first piece of a message that is too large for memory. More pieces and an end follow.
    Start(StreamId, Bytes, ClientHeaders),
    /// The next piece of a large message.
    Piece(Bytes),
    /// The large message has ended.
    End,
    /// The policy for the following requests.
    Settings(Arc<Policy>),
    /// Unchanged bytes, if both legs forward bytes without reading messages.
    Raw(Bytes),
    /// The clients will send nothing more.
    Done,
    /// The clients have disconnected, so nothing must be written to them any more.
    Gone,
    /// The leg ends the connection: nothing is written to clients any more, although none has disconnected.
    Over,
}

/// An event from the server's side.
pub enum FromServer {
    /// A message.
    Message(Origin, Message),
    /// The first piece of a message that is too large for memory. More pieces and an end follow.
    Start(Origin, Bytes),
    /// The next piece of a large message.
    Piece(Origin, Bytes),
    /// The large message has ended; `false` if it was broken off.
    End(Origin, bool),
    /// The response to a POST has ended, but not every request of the POST has an answer.
    ResponseEnds(StreamId),
    /// A whole answer that is too large for memory, in a file.
    Spooled(Box<SpooledResponse>),
    /// Text that is not a message.
    Noise(Bytes),
    /// Unchanged bytes, if both legs forward bytes without reading messages.
    Raw(Bytes),
    /// The server's messages have ended.
    Done,
    /// The server no longer reads, but may still write.
    Deaf,
    /// From now on this number of tasks and questions in the leg wait for clients. While it is not 0, the server is in
    /// use.
    InUse(usize),
    /// An event of a task that the leg itself keeps.
    Task(Box<TaskNews>),
}

/// A part of a message that is too large for memory.
#[derive(Debug, Clone)]
pub enum MessagePart {
    /// The first piece.
    Start(Bytes),
    /// The next piece.
    Piece(Bytes),
    /// The message has ended. Other messages that were sent since its first piece come after it.
    End,
    /// The rest of the message will not come.
    BrokenOff,
    /// Bytes as the client sent them; only for a leg in raw mode.
    Raw(Bytes),
}

/// Whether bytes wait to be written to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backlog {
    /// No bytes wait.
    Empty,
    /// Some bytes wait.
    Some,
    /// So many bytes wait that clients should not be read.
    Full,
}

impl Backlog {
    /// Returns `Full` if `is_behind`, else `Some` if `is_writing`.
    pub fn of(is_writing: bool, is_behind: bool) -> Self {
        match (is_writing, is_behind) {
            (_, true) => Self::Full,
            (true, false) => Self::Some,
            (false, false) => Self::Empty,
        }
    }

    /// Whether bytes wait to be written.
    pub fn is_writing(self) -> bool {
        self > Self::Empty
    }

    /// Whether so many bytes wait that clients should not be read.
    pub fn is_behind(self) -> bool {
        self == Self::Full
    }
}

/// A fact that a leg must know and that is not a message.
#[derive(Debug, Clone)]
pub enum LegFact {
    /// Later requests use this policy. Open requests keep theirs.
    Policy(Arc<Policy>),
    /// The server has written to its standard error.
    StderrActivity,
}

/// The leg towards clients.
///
/// Every poll function may be called again after `Pending`, without loss.
pub trait ClientLeg: Send {
    /// Receives the next event from clients.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromClient>;

    /// Returns an event that has already arrived, without waiting.
    fn try_receive(&mut self) -> Option<FromClient> {
        None
    }

    /// Whether a stream has written everything, so that its next messages can be decided now. If not,
    /// [`ClientLeg::poll_flush`] returns the stream when it has.
    fn is_ready(&self, stream: StreamId) -> bool;

    /// Whether a stream has enough bytes for one write.
    fn is_full(&self, stream: StreamId) -> bool;

    /// Queues a message, or a piece of one, on a stream.
    fn send(&mut self, stream: StreamId, transmit: Transmit);

    /// Sends bytes unchanged from the server; only for a leg in raw mode.
    fn send_raw(&mut self, bytes: Bytes);

    /// Ends a stream that is one HTTP exchange, after all its requests were answered or given up, and all its messages
    /// were queued.
    fn finish(&mut self, stream: StreamId);

    /// Writes the queued bytes. Ready with a stream and `true` if the stream has written all its bytes, or `false` if
    /// it accepts no more.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<(StreamId, bool)>;

    /// Whether queued bytes are not written yet.
    fn is_writing(&self) -> bool;

    /// Whether so many bytes wait to be written that the server should not be read.
    fn is_behind(&self) -> bool;

    /// Whether the streams belong to different clients. Then no client may wait for another that does not read, so such
    /// a leg always gets all messages, and disconnects a client before too many bytes wait for it.
    fn are_strangers(&self) -> bool {
        false
    }

    /// Switches to forwarding bytes without reading messages, if this leg can. Returns whether it can.
    fn enter_raw_mode(&mut self) -> bool {
        false
    }

    /// Notes how many of Milepost's own tasks run, or have an answer that waits for its client (meanwhile the
    /// connection is in use), and whether a client's request is an open task.
    fn set_tasks(&mut self, _own: usize, _is_open: bool) {}

    /// Stops reading from clients.
    fn stop_reading(&mut self);

    /// Discards unwritten bytes.
    fn discard(&mut self);

    /// Whether a client reads too slowly, so that progress is thinned.
    fn is_slow(&self) -> bool {
        false
    }

    /// Ends the open streams, after the last message.
    fn end(&mut self) {}
}

/// The leg towards the server.
///
/// Every poll function may be called again after `Pending`, without loss.
pub trait ServerLeg: Send {
    /// Receives the next event from the server.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer>;

    /// Returns an event that has already arrived, without waiting.
    fn try_receive(&mut self) -> Option<FromServer>;

    /// Sends a message to the server: `payload` is the text for the server, `message` the client's original text
    /// (`None` for a message of Milepost). Returns the upstream stream on which the server answers this message,
    /// numbered from [`crate::progress::input::UPSTREAM_STREAMS`]; `None` if it has no separate stream.
    fn send(
        &mut self,
        message: Option<&Message>,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId>;

    /// Sends a part of a message that is too large for memory. `headers` are those of the message.
    fn send_part(&mut self, part: MessagePart, headers: &ClientHeaders);

    /// Writes the messages for the server. Ready with `true` when all are written, or `false` when no more can be.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool>;

    /// Returns whether bytes wait to be written.
    fn backlog(&self) -> Backlog;

    /// Switches to forwarding bytes without reading messages, if this leg can. Returns whether it can.
    fn enter_raw_mode(&mut self) -> bool;

    /// Passes a fact to the leg and to each leg inside it. A leg that does not need the fact ignores it.
    fn note(&mut self, fact: &LegFact);

    /// Closes the server's input. Must be polled until it is ready.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Stops reading from the server and writing to it.
    fn stop(&mut self);
}
