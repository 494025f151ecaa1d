//! Types that identify streams, clients, calls, requests and tokens.

use bytes::Bytes;

use crate::protocol::jsonrpc::Key;

/// The number of a client stream of one filter, or of a server's stream that belongs to requests
/// ([`Intake::pair`](crate::progress::Intake::pair)). The shell chooses the numbers, and must not use one number for
/// both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The stream for client messages that belong to no stream.
    pub const NOWHERE: Self = Self(u64::MAX);
}

/// The client of a stream, as far as known. Streams of the same principal may see each other's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Principal {
    /// A client to which the shell has given this number.
    Known(u64),
    /// An unknown client. The stream counts as a client of its own.
    Stream(StreamId),
}

/// Identifies one call of a filter. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u64);

/// A request id or a token, as the client wrote it and as the server knows it.
#[derive(Debug, Clone)]
pub(crate) struct MappedId {
    pub(crate) client: Bytes,
    pub(crate) server: Key,
    /// Whether the two texts differ.
    pub(crate) translated: bool,
}

impl MappedId {
    /// Returns a name that is the same for client and server.
    pub(crate) fn same(client: Bytes, server: Key) -> Self {
        Self { client, server, translated: false }
    }

    /// Whether every client accepts the server's `text` as this name. Strict clients do not accept `2.0` or `2e0` for
    /// `2`.
    pub(crate) fn is_read_in(&self, text: &Bytes) -> bool {
        // Servers in Godot write each number as a float, so the id 2 becomes `2.0`.
        *text == self.client
            || Key::read(text).is_some_and(|key| {
                key == self.server && (text.starts_with(b"\"") || *text == key.to_json())
            })
    }

    /// Whether `text` is this name for both client and server.
    pub(crate) fn is_just(&self, text: &[u8]) -> bool {
        !self.translated && *self.client == *text
    }
}
