//! Messages that are too large for memory, which the relay adds in pieces.

use bytes::Bytes;

use super::{BufferedMessage, MessageClass, ReplayBuffer};
use crate::protocol::jsonrpc::{Kind, Scan};

impl ReplayBuffer {
    /// Adds the first piece of a message that is too large for memory. Returns the number of the message, for
    /// [`ReplayBuffer::more`], and whether a connected client has to take the piece.
    pub(crate) fn begin(&self, kind: Kind, id: Option<Bytes>, piece: &Bytes) -> (u64, bool) {
        let class = match kind {
            Kind::Response => MessageClass::Answer,
            Kind::Request => MessageClass::Request,
            _ => MessageClass::Other,
        };
        self.push(class, id, piece.clone(), false)
    }

    /// Adds a piece of the large message with this number. `last`: the envelope of the message, given with its last
    /// piece. Messages that were added after the first piece wait until the last.
    pub(crate) fn more(&self, number: u64, piece: &Bytes, last: Option<&Scan>) -> bool {
        let mut state = self.lock();
        let (attached, bytes) = (state.attached, piece.len());
        let found = state.messages.binary_search_by_key(&number, |one| one.number);
        let Some(large) = found.ok().and_then(|place| state.messages.get_mut(place)) else {
            return false;
        };
        if !piece.is_empty() {
            large.pieces.push_back(piece.clone());
            large.bytes += bytes;
        }
        if let Some(scan) = last {
            large.whole = true;
            if scan.kind() == Kind::Response {
                large.class = MessageClass::Answer;
                large.id = scan.id().map(|id| id.to_json()).or_else(|| large.id.take());
            }
            let class = large.class;
            state.note_whole(class, number);
        }
        state.bytes += bytes;
        self.pushed(state, bytes);
        attached
    }

    /// Notes that the rest of the large message with this number will not arrive. Returns whether a connected client
    /// has to take the following messages.
    pub(crate) fn break_off_message(&self, number: u64) -> bool {
        let mut state = self.lock();
        let found = state.messages.binary_search_by_key(&number, |one| one.number);
        if let Ok(place) = found {
            let begun = state.position.number + 1 == number && state.position.pieces > 0;
            match state.messages.get_mut(place) {
                Some(large) if begun => large.broken_off = true,
                // The client has received no part of this message, so it can be dropped.
                _ => state.forget(place),
            }
        }
        let attached = state.attached;
        self.pushed(state, 0);
        attached
    }
}

impl BufferedMessage {
    /// Whether no further piece of the message will come.
    pub(crate) fn is_complete(&self) -> bool {
        self.whole || self.broken_off
    }
}
