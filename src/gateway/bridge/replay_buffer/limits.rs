//! The bounds of the messages of one client stream.

use bytes::Bytes;

use super::{BufferState, BufferedMessage, MessageClass};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::transport::byte_budget::ByteRoom;

/// Messages kept for one stream. A client that reconnects later has missed the oldest
/// notifications; a server gets an error for its oldest requests.
pub(super) const EVENTS_MAX: usize = 1000;

/// Bytes of messages kept for one stream. Beyond the limit the oldest notifications are dropped.
const BYTES_MAX: usize = 1 << 20;

/// Bytes of answers and server requests kept for one stream, because clients wait for these
/// messages. Beyond the limit a server gets an error for its oldest requests, and then a client finds an
/// error in place of an answer.
const ANSWERS_MAX: usize = 16 << 20;

/// Bytes of messages that clients of a session have taken and that its streams keep for clients that
/// reconnect. Beyond the limit a stream drops those of its own, the oldest first.
pub(super) const TAKEN_MAX: usize = 16 << 20;

/// A stream that keeps no more bytes does not count for [`TAKEN_MAX`].
const TAKEN_FREE: usize = 64 << 10;

/// The ids of the requests in a message: one, or those of an array.
pub(super) fn requests(message: Bytes) -> impl Iterator<Item = Bytes> {
    let message = Message::parse(message);
    let all = message.elements().filter(|one| one.kind() == Kind::Request);
    all.filter_map(|one| one.id())
}

impl BufferState {
    fn remove(&mut self, place: usize) -> Option<BufferedMessage> {
        let gone = self.messages.remove(place)?;
        self.bytes -= gone.bytes;
        if gone.whole {
            self.kept[gone.class as usize] -= 1;
        }
        if let Ok(place) = self.requests.binary_search(&gone.number) {
            self.requests.remove(place);
        }
        Some(gone)
    }

    /// Counts a message that is whole now.
    pub(super) fn note_whole(&mut self, class: MessageClass, number: u64) {
        self.kept[class as usize] += 1;
        if class == MessageClass::Request {
            // A large request is whole after later requests.
            let place = self.requests.partition_point(|other| *other < number);
            self.requests.insert(place, number);
        }
    }

    /// Drops the oldest requests of the server that the client was not given, where there are too many: a
    /// server may wait for their answers for ever.
    pub(super) fn refuse_requests(&mut self) {
        self.drop_received();
        while self.requests.len() > EVENTS_MAX
            || !self.requests.is_empty() && self.bytes > ANSWERS_MAX
        {
            // The client has a part of the next message already.
            let begun = usize::from(self.position.pieces > 0);
            let read = self.position.number + begun as u64;
            let oldest = self.requests.partition_point(|number| *number <= read);
            let Some(number) = self.requests.get(oldest).copied() else { return };
            let place = self.messages.partition_point(|one| one.number < number);
            let Some(gone) = self.remove(place) else { return };
            self.unread = self.unread.saturating_sub(gone.bytes);
            let text = gone.pieces.iter().flatten().copied().collect::<Bytes>();
            self.refused.extend(requests(text));
        }
    }

    fn drop_received(&mut self) {
        let received = self.received;
        let is_done = |one: &BufferedMessage| one.whole && one.number <= received;
        while self.messages.front().is_some_and(is_done)
            && (!self.resumable || self.messages.len() > EVENTS_MAX)
        {
            self.remove(0);
        }
    }

    /// Drops messages to make room: first the oldest notifications, except those that a client is
    /// about to take. Messages that have been taken are dropped at once where no client resumes.
    pub(crate) fn make_room(&mut self) {
        self.drop_received();
        let received = self.received;
        while self.kept[MessageClass::Other as usize] > 0
            && (self.messages.len() > EVENTS_MAX || self.bytes > BYTES_MAX)
        {
            let goes = |one: &BufferedMessage| one.class == MessageClass::Other && one.whole;
            let end = match self.attached {
                true => self.messages.partition_point(|one| one.number <= received),
                false => self.messages.len(),
            };
            let Some(place) = self.messages.range(..end).position(goes) else { break };
            self.remove(place);
        }
        if self.bytes <= ANSWERS_MAX {
            return;
        }
        let (position, attached) = (self.position, self.attached);
        for one in &mut self.messages {
            let done = match one.number.cmp(&(position.number + 1)) {
                _ if !attached => usize::MAX,
                std::cmp::Ordering::Less => usize::MAX,
                std::cmp::Ordering::Equal => position.pieces,
                std::cmp::Ordering::Greater => 0,
            };
            while self.bytes > ANSWERS_MAX
                && one.lost < done
                && let Some(piece) = one.pieces.pop_front()
            {
                one.lost += 1;
                one.bytes -= piece.len();
                self.bytes -= piece.len();
            }
        }
    }

    /// Drops the oldest messages that the client has taken while the streams of the session keep too many
    /// bytes of such messages: `room` counts them.
    pub(crate) fn forget_taken(&mut self, room: &mut ByteRoom) {
        let received = self.received;
        let is_done = |one: &&BufferedMessage| one.whole && one.number <= received;
        let mut taken = 0;
        if self.bytes > TAKEN_FREE {
            taken = self.messages.iter().take_while(is_done).map(|one| one.bytes).sum();
        }
        let others = room.held().saturating_sub(self.taken);
        let mut fits =
            |taken: usize| others + taken <= TAKEN_MAX && room.resize(others + taken).is_ok();
        while taken > 0
            && !fits(taken)
            && self.messages.front().as_ref().is_some_and(is_done)
            && let Some(gone) = self.remove(0)
        {
            taken -= gone.bytes;
        }
        room.count(others + taken);
        self.taken = taken;
    }
}
