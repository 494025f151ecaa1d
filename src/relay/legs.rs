//! The legs of a relay: clients on one side, a server on the other, each behind a leg that knows
//! the transport. A leg reads and frames the messages of its side, and writes the messages to its
//! side.
//!
//! The text of a message has no line ends: a leg whose framing allows line ends replaces them by
//! spaces (rule B-07).

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::progress::{Origin, Pacing, Payload, Policy, StreamId, StreamKind, Transmit};
use crate::protocol::jsonrpc::Message;
use crate::protocol::trace_context::TraceContext;
use crate::relay::spooled_response::SpooledResponse;

/// The headers of the HTTP request that a message came in, if it came in one.
pub type Headers = Option<Arc<HeaderMap>>;

/// The headers that say which trace a request belongs to (W3C Trace Context).
pub const TRACE_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

/// Which trace the headers of a request say that it belongs to.
pub fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let [parent, state] = &TRACE_HEADERS;
    let mut parents = headers.get_all(parent).iter();
    match (parents.next(), parents.next()) {
        (Some(only), None) => {
            let state = headers.get_all(state).iter().map(HeaderValue::as_bytes);
            TraceContext::read(only.as_bytes(), state)
        }
        _ => None,
    }
}

/// The first number of the upstream streams that a [`Server`] names: client streams are numbered
/// below it, so that the two are never taken for each other.
pub const UPSTREAM_STREAMS: u64 = 1 << 63;

/// The only client stream of a connection that has one, such as stdio.
pub const SOLE_STREAM: StreamId = StreamId(0);

/// What clients say or do.
#[derive(Debug)]
pub enum FromClient {
    /// A client reads on this stream from now on.
    Opened(StreamId, StreamKind, Pacing),
    /// It does so no more, and will not come back. `true`: that gives up the requests of the stream
    /// (2026-07-28).
    Closed(StreamId, bool),
    /// A message for the server.
    Message(StreamId, Message, Headers),
    /// The first piece of a message that is too large to be held; more follow, and an end.
    Start(StreamId, Bytes, Headers),
    /// More of it.
    Piece(Bytes),
    /// It is over.
    End,
    /// What they ask from now on goes by this.
    Settings(Arc<Policy>),
    /// Bytes as they came, where both legs pass them on unread.
    Raw(Bytes),
    /// Clients say nothing more.
    Done,
    /// Nothing is to be written to clients any more.
    Gone,
}

/// What the server says.
pub enum FromServer {
    /// A message.
    Message(Origin, Message),
    /// The first piece of a message that is too large to be held; more follow, and an end.
    Start(Origin, Bytes),
    /// More of it.
    Piece(Origin, Bytes),
    /// It is over; `false`: it was broken off.
    End(Origin, bool),
    /// A whole answer that is too large to be held.
    Spooled(Box<SpooledResponse>),
    /// Text that is no message.
    Noise(Bytes),
    /// Bytes as they came, where both legs pass them on unread.
    Raw(Bytes),
    /// The server says nothing more.
    Done,
    /// The server takes nothing more; it may still say something.
    Deaf,
}

/// The leg towards clients.
///
/// All that is polled may be polled again after `Pending`: nothing is lost between.
pub trait Clients: Send {
    /// What clients say next.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromClient>;

    /// What they have said already: known without waiting.
    fn try_receive(&mut self) -> Option<FromClient> {
        None
    }

    /// Puts the streams that have taken all they were given at the end of `streams`: what they are
    /// told next is decided now.
    fn ready_streams(&mut self, streams: &mut Vec<StreamId>);

    /// Whether a stream has been given enough for one write.
    fn is_full(&self, stream: StreamId) -> bool;

    /// Gives something to a stream.
    fn send(&mut self, stream: StreamId, transmit: Transmit);

    /// Bytes as they came from the server; a leg that was not told to pass bytes gets none.
    fn send_raw(&mut self, bytes: Bytes);

    /// The requests of a stream that is one HTTP exchange have all been answered, or given up, and the
    /// stream has been given everything: it ends.
    fn finish(&mut self, stream: StreamId);

    /// Writes what was given. Ready with a stream that has taken all of it, or that takes nothing
    /// any more (`false`).
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<(StreamId, bool)>;

    /// Whether something that was given is not written yet.
    fn is_writing(&self) -> bool;

    /// Whether so much waits to be written that the server should not be read.
    fn is_behind(&self) -> bool;

    /// Whether its streams are of clients that do not know each other, and none is to wait for another
    /// that takes nothing: such a leg is given what waits all the same, and cuts a client off before
    /// that is too much.
    fn are_strangers(&self) -> bool {
        false
    }

    /// Bytes are to be passed on as they come, if this leg can; whether it can.
    fn enter_raw_mode(&mut self) -> bool {
        false
    }

    /// Clients are not read any more.
    fn stop_reading(&mut self);

    /// What was given and is not written is thrown away.
    fn discard(&mut self);

    /// A client reads too slowly: progress is thinned (rule G4).
    fn is_slow(&self) -> bool {
        false
    }

    /// Nothing will be given any more: streams that are still open end.
    fn end(&mut self) {}
}

/// What a leg around another one, its field `server`, does as that one does.
macro_rules! delegate_to_server {
    () => {
        fn send_piece(&mut self, piece: Bytes) {
            self.server.send_piece(piece);
        }

        fn send_end(&mut self) {
            self.server.send_end();
        }

        fn send_raw(&mut self, bytes: Bytes) {
            self.server.send_raw(bytes);
        }

        fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
            self.server.poll_flush(cx)
        }

        fn is_writing(&self) -> bool {
            self.server.is_writing()
        }

        fn is_behind(&self) -> bool {
            self.server.is_behind()
        }

        fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            self.server.poll_close(cx)
        }

        fn stop(&mut self) {
            self.server.stop();
        }
    };
}

pub(crate) use delegate_to_server;

/// The leg towards the server.
///
/// All that is polled may be polled again after `Pending`: nothing is lost between.
pub trait Server: Send {
    /// What the server says next.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer>;

    /// What it has said already: known without waiting.
    fn try_receive(&mut self) -> Option<FromServer> {
        None
    }

    /// Tells the server something: `message` as the client said it, `payload` as the server is to
    /// get it. Answers with the upstream stream of its own on which what the server says to it comes,
    /// numbered from [`UPSTREAM_STREAMS`], if it has one.
    fn send(&mut self, message: &Message, payload: Payload, headers: &Headers) -> Option<StreamId>;

    /// The first piece of a message that is too large to be held.
    fn send_start(&mut self, piece: Bytes, headers: &Headers);

    /// More of it.
    fn send_piece(&mut self, piece: Bytes);

    /// It is over.
    fn send_end(&mut self);

    /// Bytes as they came from the client; a leg that was not told to pass bytes gets none.
    fn send_raw(&mut self, bytes: Bytes);

    /// Writes what the server was told. Ready when all of it has been written (`true`), or nothing
    /// can be any more (`false`).
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool>;

    /// Whether something is not written yet.
    fn is_writing(&self) -> bool;

    /// Whether so much waits to be written that clients should not be read.
    fn is_behind(&self) -> bool;

    /// Bytes are to be passed on as they come, if this leg can; whether it can.
    fn enter_raw_mode(&mut self) -> bool {
        false
    }

    /// The server has said something on its standard error.
    fn stderr_activity(&mut self) {}

    /// The server is told that nothing more comes. To be polled until it is ready.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// The server is not read any more, and told nothing more.
    fn stop(&mut self);
}
