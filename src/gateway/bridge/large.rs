//! Messages of the server that are too large for memory, on their way to a client's stream.

use std::sync::Arc;

use bytes::Bytes;

use crate::gateway::bridge::client_leg::SessionLeg;
use crate::gateway::bridge::replay_buffer::{ClientReads, ReplayBuffer};
use crate::progress::{Fragment, StreamId};
use crate::protocol::jsonrpc::{Kind, Scan};
use crate::relay::SOLE_STREAM;

/// A large message that arrives in pieces.
pub(crate) struct LargeToClient {
    to: StreamId,
    /// The number of the message on stream `to`.
    number: u64,
    scan: Scan,
}

impl SessionLeg {
    pub(crate) fn piece(&mut self, stream: StreamId, piece: &Bytes, part: Fragment) {
        let last = part == Fragment::End;
        if let Some(large) = self.large.get_mut(&stream) {
            let known = large.scan.kind() == Kind::Response && large.scan.id().is_some();
            // Once the id is known, the rest of a response need not be scanned.
            if !known {
                large.scan.feed(piece);
            }
            let (to, number) = (large.to, large.number);
            let over = last.then_some(&large.scan);
            let attached =
                self.open.get(&to).is_some_and(|buffer| buffer.more(number, piece, over));
            self.note_written(to, attached);
            if last {
                self.refuse_unread(to);
            }
        } else {
            let mut scan = Scan::default();
            scan.feed(piece);
            let (kind, id) = (scan.kind(), scan.id());
            let meant = id.as_ref().filter(|_| kind == Kind::Response && stream == SOLE_STREAM);
            let to = meant.and_then(|id| self.stream_of_request(id)).unwrap_or(stream);
            let takes = |buffer: &Arc<ReplayBuffer>| {
                kind == Kind::Response || buffer.reads == ClientReads::Everything
            };
            let to = if self.open.get(&to).is_some_and(takes) { to } else { SOLE_STREAM };
            if to != stream {
                self.note_written(stream, false);
            }
            let id = id.map(|id| id.to_json());
            let begun = self.open.get(&to).map(|buffer| {
                let (number, attached) = buffer.begin(kind, id, piece);
                if last {
                    buffer.more(number, &Bytes::new(), Some(&scan));
                }
                (number, attached)
            });
            let (number, attached) = begun.unwrap_or_default();
            self.note_written(to, attached);
            self.large.insert(stream, LargeToClient { to, number, scan });
        }
        if last && let Some(large) = self.large.remove(&stream) {
            let answer = large.scan.id().filter(|_| large.scan.kind() == Kind::Response);
            for id in answer.iter().chain(large.scan.answers()) {
                self.settle(self.stream_of_answer(large.to, id), id);
            }
        }
        self.cut_off(stream);
    }

    /// Ends a large message whose rest will not arrive. The error of its request follows.
    pub(crate) fn break_off(&mut self, stream: StreamId) {
        let Some(large) = self.large.remove(&stream) else { return };
        let buffer = self.open.get(&large.to);
        let attached = buffer.is_some_and(|buffer| buffer.break_off_message(large.number));
        self.note_written(large.to, attached);
    }
}
