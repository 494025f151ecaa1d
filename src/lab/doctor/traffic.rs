//! The record of a conversation with a server: each event with its time.

use std::time::Duration;

use bytes::Bytes;

use crate::protocol::jsonrpc::Message;

/// The transport of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportKind {
    /// Lines of a child process.
    #[default]
    Stdio,
    /// Streamable HTTP: each request has a response of its own.
    Streamable,
    /// HTTP+SSE of 2024-11-05: everything comes on one stream.
    Sse,
}

impl TransportKind {
    /// Returns the name, for people and machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Streamable => "Streamable HTTP",
            Self::Sse => "HTTP+SSE",
        }
    }

    /// Whether notifications and answers come on one stream. A client may then handle messages of one read in the wrong
    /// order.
    pub const fn is_shared(self) -> bool {
        !matches!(self, Self::Streamable)
    }
}

/// The stream of a server message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficStream {
    /// The server's standard output, or the only stream of HTTP+SSE.
    Shared,
    /// The response to the POST of the request with this id; `None` for the POST of a notification.
    Post(Option<u64>),
    /// The GET stream of Streamable HTTP.
    Get,
}

/// One recorded event.
#[derive(Debug, Clone)]
pub struct TrafficEntry {
    /// The time since the conversation began.
    pub at: Duration,
    /// The event.
    pub what: TrafficEvent,
}

/// An event of the conversation.
#[derive(Debug, Clone)]
pub enum TrafficEvent {
    /// A message that `doctor` sent.
    Sent(Message),
    /// A message that the server sent.
    Received {
        /// The stream on which the message came.
        stream: TrafficStream,
        /// The number of the read; messages that came in one read have the same number.
        read: u64,
        /// The name of the server-sent event with the message, if it has a name.
        event: Option<String>,
        /// The message.
        message: Message,
    },
    /// A line on standard output, or an event, that is not a message.
    Noise(Bytes),
    /// A line on standard error.
    Stderr(String),
    /// The head of a response has arrived.
    Head(TrafficStream),
    /// A stream has ended.
    Over(TrafficStream),
}
