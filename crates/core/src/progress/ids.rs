//! The names of streams, calls, requests and tokens.

use bytes::Bytes;

use crate::protocol::jsonrpc::Key;

/// The number of a client stream of one filter, or of an upstream stream that belongs to requests
/// ([`Intake::pair`](crate::progress::Intake::pair)). The shell chooses the numbers; no number may mean both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The stream for client messages that belong to no stream.
    pub const NOWHERE: Self = Self(u64::MAX);
}

/// The client of a stream, as far as known: streams of one principal may see each other's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Principal {
    /// The shell has given this number to a principal.
    Known(u64),
    /// The client is not known: the stream counts as a client of its own.
    Stream(StreamId),
}

/// Names one call of a filter; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u64);

/// An id or a token: the client's text, and the server's text for it.
#[derive(Debug, Clone)]
pub(crate) struct MappedId {
    pub(crate) client: Bytes,
    pub(crate) server: Key,
    /// Whether the two texts differ.
    pub(crate) translated: bool,
}

impl MappedId {
    /// One name for client and server.
    pub(crate) fn same(client: Bytes, server: Key) -> Self {
        Self { client, server, translated: false }
    }

    /// Whether every client reads the server's `text` as the name: strict clients refuse `2.0` and `2e0` for `2`.
    pub(crate) fn is_read_in(&self, text: &Bytes) -> bool {
        // Servers in Godot write each number as a float, and so the id 2 as `2.0`.
        *text == self.client
            || Key::read(text).is_some_and(|key| {
                key == self.server && (text.starts_with(b"\"") || *text == key.to_json())
            })
    }

    /// Whether `text` is the name for both sides.
    pub(crate) fn is_just(&self, text: &[u8]) -> bool {
        !self.translated && *self.client == *text
    }
}
