//! The legs of a relay: clients on one side, a server on the other, each behind a leg that knows
//! the transport. A leg reads and frames the messages of its side, and writes the messages to its
//! side.
//!
//! The text of a message has no line ends: a leg whose framing allows line ends replaces them by
//! spaces.

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

/// The head of the HTTP request in which a message came, if it came in one.
pub type ClientHeaders = Option<Arc<ClientHead>>;

/// The head of a client's HTTP request, as far as a relay uses it. The headers are its members.
#[derive(Debug, Clone, Default)]
pub struct ClientHead {
    /// The headers.
    pub headers: HeaderMap,
    /// The way of the request through a fleet.
    pub hop: Option<Arc<ReplicaHop>>,
}

impl ClientHead {
    /// The origin of the messages of the request.
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

/// The origin of the messages of an HTTP request.
pub fn origin_of(parts: &Parts) -> RequestOrigin {
    let hop = parts.extensions.get::<Arc<ReplicaHop>>().cloned();
    RequestOrigin { trace: trace_of(&parts.headers).map(Arc::new), hop }
}

/// The headers with the trace of a request (W3C Trace Context).
pub const TRACE_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

/// The trace that the headers of a request name.
pub fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let [parent, state] = &TRACE_HEADERS;
    let mut parents = headers.get_all(parent).iter();
    match (parents.next(), parents.next()) {
        // A header that occurs twice names no trace.
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
    /// A client reads on this stream from now on.
    Opened(StreamId, StreamKind, StreamPacing),
    /// The stream belongs to the principal of this number.
    Principal(StreamId, u64),
    /// The client has left the stream and will not return. `true`: this cancels the requests of the stream
    /// (2026-07-28).
    Closed(StreamId, bool),
    /// A message for the server.
    Message(StreamId, Message, ClientHeaders),
    /// The first piece of a message that is too large to be held; more follow, and an end.
    Start(StreamId, Bytes, ClientHeaders),
    /// The next piece of a large message.
    Piece(Bytes),
    /// The side has ended.
    End,
    /// The policy of the following requests.
    Settings(Arc<Policy>),
    /// Unchanged bytes, if both legs forward them unread.
    Raw(Bytes),
    /// Clients send nothing more.
    Done,
    /// The clients have left: nothing is to be written to them any more.
    Gone,
    /// No more messages are written to clients, although none has disconnected.
    Over,
}

/// An event from the server's side.
pub enum FromServer {
    /// A message.
    Message(Origin, Message),
    /// The first piece of a message that is too large to be held; more follow, and an end.
    Start(Origin, Bytes),
    /// The next piece of a large message.
    Piece(Origin, Bytes),
    /// The stream has ended; `false`: it was broken off.
    End(Origin, bool),
    /// The response to a POST has ended, and not every request of the POST has an answer.
    ResponseEnds(StreamId),
    /// A whole answer that is too large to be held.
    Spooled(Box<SpooledResponse>),
    /// Text that is not a message.
    Noise(Bytes),
    /// Unchanged bytes, if both legs forward them unread.
    Raw(Bytes),
    /// The server's messages have ended.
    Done,
    /// The server no longer reads, but may still write.
    Deaf,
    /// The number of tasks and questions in the leg that wait for clients, from now on. While it is not 0, the server
    /// is in use.
    InUse(usize),
    /// An event of a task that the leg keeps.
    Task(Box<TaskNews>),
}

/// A part of a message that is too large to be held.
#[derive(Debug, Clone)]
pub enum MessagePart {
    /// The first piece.
    Start(Bytes),
    /// The next piece.
    Piece(Bytes),
    /// The message is over. Other messages that were sent since its first piece follow it.
    End,
    /// The rest of the message will not come.
    BrokenOff,
    /// Bytes as the client sent them; only for a leg in raw mode.
    Raw(Bytes),
}

/// The bytes for a server that are not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backlog {
    /// None.
    Empty,
    /// Some.
    Some,
    /// Too many bytes wait, so that clients should not be read.
    Full,
}

impl Backlog {
    /// Some bytes if `is_writing`, and too many of them if `is_behind`.
    pub fn of(is_writing: bool, is_behind: bool) -> Self {
        match (is_writing, is_behind) {
            (_, true) => Self::Full,
            (true, false) => Self::Some,
            (false, false) => Self::Empty,
        }
    }

    /// Whether bytes are not written yet.
    pub fn is_writing(self) -> bool {
        self > Self::Empty
    }

    /// Whether so many bytes wait that clients should not be read.
    pub fn is_behind(self) -> bool {
        self == Self::Full
    }
}

/// A change that a leg must know, other than a message.
#[derive(Debug, Clone)]
pub enum LegFact {
    /// Later requests use this policy; open requests keep theirs.
    Policy(Arc<Policy>),
    /// The server has written to its standard error.
    StderrActivity,
}

/// The leg towards clients.
///
/// All that is polled may be polled again after `Pending`: nothing is lost between.
pub trait ClientLeg: Send {
    /// Receives the next event from clients.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromClient>;

    /// An event that has arrived already, without waiting.
    fn try_receive(&mut self) -> Option<FromClient> {
        None
    }

    /// Whether a stream has written everything, so that its next messages are decided now. If not,
    /// [`ClientLeg::poll_flush`] returns when it is.
    fn is_ready(&self, stream: StreamId) -> bool;

    /// Whether a stream has enough bytes for one write.
    fn is_full(&self, stream: StreamId) -> bool;

    /// Gives something to a stream.
    fn send(&mut self, stream: StreamId, transmit: Transmit);

    /// Sends bytes unchanged from the server; only for a leg in raw mode.
    fn send_raw(&mut self, bytes: Bytes);

    /// Ends a stream that is one HTTP exchange: its requests have all been answered or given up, and it has been given
    /// all messages.
    fn finish(&mut self, stream: StreamId);

    /// Writes the given bytes. Ready with a stream that has written all of its bytes, or that accepts no more bytes
    /// (`false`).
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<(StreamId, bool)>;

    /// Whether given bytes are not written yet.
    fn is_writing(&self) -> bool;

    /// Whether so many bytes wait to be written that the server should not be read.
    fn is_behind(&self) -> bool;

    /// Whether the streams belong to different clients, so that no client may wait for another that does not read. Such
    /// a leg always gets the waiting bytes, and disconnects a client before too many bytes wait for it.
    fn are_strangers(&self) -> bool {
        false
    }

    /// Bytes are to be passed on as they come, if this leg can; whether it can.
    fn enter_raw_mode(&mut self) -> bool {
        false
    }

    /// Notes how many tasks of ours run or have an answer that waits for its client, for which the
    /// connection is in use, and whether any request of the clients is an open task.
    fn set_tasks(&mut self, _own: usize, _is_open: bool) {}

    /// Clients are not read any more.
    fn stop_reading(&mut self);

    /// Discards unwritten bytes.
    fn discard(&mut self);

    /// A client reads too slowly: progress is thinned.
    fn is_slow(&self) -> bool {
        false
    }

    /// Ends the open streams after the last message.
    fn end(&mut self) {}
}

/// The leg towards the server.
///
/// All that is polled may be polled again after `Pending`: nothing is lost between.
pub trait ServerLeg: Send {
    /// Receives the next event from the server.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer>;

    /// An event that has arrived already, without waiting.
    fn try_receive(&mut self) -> Option<FromServer>;

    /// Sends a message to the server: `payload` is the text for the server, `message` the client's own text (`None`: a
    /// message of Milepost). Returns the upstream stream on which the server answers this message, numbered from
    /// [`crate::progress::input::UPSTREAM_STREAMS`]; `None` if it has no stream of its own.
    fn send(
        &mut self,
        message: Option<&Message>,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId>;

    /// Sends a part of a message that is too large for memory. The headers are those of the message.
    fn send_part(&mut self, part: MessagePart, headers: &ClientHeaders);

    /// Writes the messages for the server. Ready when everything has been written (`true`), or
    /// nothing more can be (`false`).
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool>;

    /// The bytes that are not written yet.
    fn backlog(&self) -> Backlog;

    /// Bytes are to be passed on as they come, if this leg can; whether it can.
    fn enter_raw_mode(&mut self) -> bool;

    /// Passes a change to the leg and to each leg inside it. A leg that does not need the change ignores it.
    fn note(&mut self, fact: &LegFact);

    /// Closes the server's input. Poll until ready.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Stops reading from the server and writing to it.
    fn stop(&mut self);
}
