//! The limits of the messages that one client stream keeps.

use bytes::Bytes;

use super::{BufferState, BufferedMessage, MessageClass};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::transport::byte_budget::ByteRoom;

/// Limit of the messages kept for one stream. Beyond it the oldest notifications are dropped, and a server gets errors
/// for its oldest requests.
pub(super) const EVENTS_MAX: usize = 1000;

/// Limit of the bytes kept for one stream. Beyond it the oldest notifications are dropped.
const BYTES_MAX: usize = 1 << 20;

/// Limit of the bytes of answers and server requests kept for one stream. It is higher, because someone waits for them.
/// Beyond it a server gets an error for its oldest requests, and then a client gets an error in the place of an answer.
const ANSWERS_MAX: usize = 16 << 20;

/// Limit of the bytes that all streams of a session keep together. Beyond it a stream drops the oldest messages that
/// its client has taken, which are kept only for a client that resumes.
pub(super) const SESSION_MAX: usize = 16 << 20;

/// A stream that keeps at most this number of bytes is not counted for [`SESSION_MAX`] and `server.max_kept_bytes`.
const UNCOUNTED_MAX: usize = 16 << 10;

/// Returns the ids of the requests in a message: of one request, or of all requests in an array.
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

    /// Removes a message of which no client has received a part.
    pub(super) fn forget(&mut self, place: usize) {
        if let Some(gone) = self.remove(place) {
            self.unread = self.unread.saturating_sub(gone.bytes);
        }
    }

    /// Counts a message that is now complete.
    pub(super) fn note_whole(&mut self, class: MessageClass, number: u64) {
        self.kept[class as usize] += 1;
        if class == MessageClass::Request {
            // A large request may be complete only after later requests, so its place is searched.
            let place = self.requests.partition_point(|other| *other < number);
            self.requests.insert(place, number);
        }
    }

    /// Drops the oldest requests of the server that the client was not given, if there are too many, and notes their
    /// ids: the server must get errors, because it may wait forever for their answers.
    pub(super) fn refuse_requests(&mut self) {
        self.drop_received();
        while self.requests.len() > EVENTS_MAX
            || !self.requests.is_empty() && self.bytes > ANSWERS_MAX
        {
            // The message that the client has begun to receive must not be dropped.
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
        let is_done = |one: &BufferedMessage| one.is_complete() && one.number <= received;
        while self.messages.front().is_some_and(is_done)
            && (!self.resumable || self.messages.len() > EVENTS_MAX)
        {
            self.remove(0);
        }
    }

    /// Drops messages beyond the limits: first the oldest notifications, except those that a client is about to read.
    /// If no client can resume, messages that were read are dropped immediately.
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

    /// Whether the stream keeps bytes that are counted, or did so before.
    pub(super) fn has_counted(&self) -> bool {
        self.counted > 0 || self.bytes > UNCOUNTED_MAX
    }

    /// Counts the bytes of the stream, and drops messages beyond the limit: first those that the client has read,
    /// oldest first, then those for which no client is connected. A connected client gets every message. Messages of
    /// other streams stay. `room` is the room of all streams of the session.
    pub(super) fn fit(&mut self, room: &mut ByteRoom) {
        let others = room.held().saturating_sub(self.counted);
        let received = self.received;
        let is_done = |one: &BufferedMessage| one.is_complete() && one.number <= received;
        let mut fits = |state: &Self, max: usize| {
            let all = others + state.countable();
            all <= max && room.resize(all).is_ok()
        };
        while !fits(self, SESSION_MAX)
            && self.messages.front().is_some_and(is_done)
            && self.remove(0).is_some()
        {}
        if !self.attached {
            while !fits(self, usize::MAX) && self.drop_unread() {}
        }
        let all = self.countable();
        if fits(self, usize::MAX) {
            self.counted = all;
        } else {
            // On their way to a connected client. Once the client has taken the bytes, they are counted or dropped.
            self.counted = self.counted.min(all);
            room.count(others + self.counted);
        }
    }

    fn countable(&self) -> usize {
        if self.bytes > UNCOUNTED_MAX { self.bytes } else { 0 }
    }

    /// Drops one message for which no client is connected: the oldest notification, or else the newest message. The
    /// client gets an error in the place of a dropped answer, and the server gets an error for a dropped request.
    /// Returns false if there is none to drop.
    fn drop_unread(&mut self) -> bool {
        let is_notice = |one: &BufferedMessage| one.class == MessageClass::Other && one.whole;
        if self.kept[MessageClass::Other as usize] > 0
            && let Some(oldest) = self.messages.iter().position(is_notice)
        {
            return self.remove(oldest).is_some();
        }
        let is_request = |one: &BufferedMessage| one.class == MessageClass::Request && one.whole;
        if self.messages.back().is_some_and(is_request) {
            let newest = self.remove(self.messages.len() - 1);
            let text = newest.into_iter().flat_map(|newest| newest.pieces).flatten();
            self.refused.extend(requests(text.collect()));
            return true;
        }
        let is_answer = |one: &&mut BufferedMessage| {
            one.class == MessageClass::Answer && !one.pieces.is_empty()
        };
        let Some(newest) = self.messages.iter_mut().rev().find(is_answer) else { return false };
        newest.lost += newest.pieces.len();
        newest.pieces.clear();
        self.bytes -= std::mem::take(&mut newest.bytes);
        true
    }
}
