//! The messages of one client stream: kept until the client has received them, and for some time after that for a
//! client that resumes.
//!
//! The relay adds messages and a response takes them, in either order. A stream whose client disconnects stays open,
//! because a lost connection does not cancel its requests.

mod large;
mod limits;

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use self::limits::requests;
use crate::gateway::bridge::frame::EventId;
use crate::gateway::bridge::signals::{Broken, SessionSignals};
use crate::gateway::bridge::subscription::Subscription;
use crate::gateway::route_state::StreamPermit;
use crate::progress::{StreamId, TransmitKind};
use crate::protocol::jsonrpc::{Key, own_error};
use crate::transport::http::body::BATCH_BYTES;
use crate::transport::sync::{AtomicWaker, Mutex, MutexGuard};

/// Limit of the bytes of a message that is copied when kept, so that a short message does not keep the whole read
/// buffer in memory.
const COPY_MAX: usize = 4 << 10;

/// The class of a message, which decides how long it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageClass {
    /// An answer: to the only request, to one of several, or to several.
    Answer,
    /// A request of the server.
    Request,
    /// Any other message.
    Other,
}

/// One message.
pub(crate) struct BufferedMessage {
    /// The number of the message in its stream, from 1 on.
    pub(crate) number: u64,
    pub(crate) class: MessageClass,
    /// The id of the request that the message answers, if the message is a response.
    pub(crate) id: Option<Bytes>,
    pub(crate) pieces: VecDeque<Bytes>,
    /// Number of pieces before these that are no longer kept.
    pub(crate) lost: usize,
    pub(crate) bytes: usize,
    /// Whether the message is complete.
    pub(crate) whole: bool,
    /// Whether the rest of the message will not arrive.
    pub(crate) broken_off: bool,
}

/// The position of a client: the number of its last complete message, and its number of pieces of the next one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReadPosition {
    pub(crate) number: u64,
    pub(crate) pieces: usize,
}

#[derive(Default)]
pub(crate) struct BufferState {
    pub(crate) messages: VecDeque<BufferedMessage>,
    pub(crate) bytes: usize,
    /// The number of the last message that was added.
    pub(crate) last: u64,
    /// The position up to which messages were handed to the client.
    pub(crate) position: ReadPosition,
    /// The number of the last message that the client has received.
    pub(crate) received: u64,
    /// The number of complete messages of each class.
    kept: [usize; 3],
    /// The numbers of the server's complete requests, in order.
    requests: VecDeque<u64>,
    /// The ids of the server's requests that no client has read and that are no longer kept.
    refused: Vec<Bytes>,
    /// Bytes of this stream that count in the session's total.
    counted: usize,
    /// Bytes that were handed to the client and that it has not received yet.
    pub(crate) unread: usize,
    /// The number of the newest reader of the stream. Older readers get nothing more.
    pub(crate) reader: u64,
    pub(crate) attached: bool,
    /// Whether the relay waits until the client has received everything.
    pub(crate) relay_waits: bool,
    /// The unanswered requests: the key of each, and the text of its id.
    pub(crate) open: Vec<(Key, Bytes)>,
    /// The open requests that a cancellation may mean. It may also mean a request with the same id on another stream.
    perhaps_cancelled: Vec<Key>,
    /// Whether the relay has received the requests of the stream.
    pub(crate) known_to_relay: bool,
    pub(crate) over: bool,
    pub(crate) broken: Option<Broken>,
    /// Whether the client was given event ids, with which it can resume.
    pub(crate) resumable: bool,
    /// The permit of the stream, until the stream is over.
    permit: Option<Arc<StreamPermit>>,
}

/// The messages that the client of a stream reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientReads {
    /// Only answers, and the client waits for all of them.
    Answers,
    Everything,
}

/// The meaning of a disconnect of a stream's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// The requests stay open, and the client may come back for their answers.
    Keeps,
    /// The client cancels its requests (2026-07-28).
    Cancels,
}

/// The kept messages of one client stream.
pub(crate) struct ReplayBuffer {
    pub(crate) id: StreamId,
    pub(crate) reads: ClientReads,
    on_disconnect: OnDisconnect,
    /// In a fleet: its requests, as event ids name them.
    requests: Option<Box<str>>,
    state: Mutex<BufferState>,
    pub(crate) client: AtomicWaker,
    pub(crate) signals: Arc<SessionSignals>,
}

/// What arrived first for a POST, which decides the form of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstResponse {
    /// The form is not decided yet.
    Wait,
    /// All answers, and no other message before them.
    Answers,
    /// A large answer whose rest has not arrived yet.
    Large,
    /// Messages that only a stream can carry.
    Events,
}

impl ReplayBuffer {
    /// Returns the buffer of a stream that carries messages of every kind and belongs to no request.
    pub(crate) fn new(id: StreamId, signals: Arc<SessionSignals>) -> Arc<Self> {
        Self::naming(None, id, ClientReads::Everything, OnDisconnect::Keeps, signals)
    }

    /// Returns a buffer whose event ids contain the requests of the stream.
    pub(crate) fn naming(
        requests: Option<Box<str>>,
        id: StreamId,
        reads: ClientReads,
        on_disconnect: OnDisconnect,
        signals: Arc<SessionSignals>,
    ) -> Arc<Self> {
        let (state, client) = (Mutex::default(), AtomicWaker::new());
        Arc::new(Self { id, reads, on_disconnect, requests, state, client, signals })
    }

    /// Whether a client that disconnects cancels its requests.
    pub(crate) fn cancels(&self) -> bool {
        self.on_disconnect == OnDisconnect::Cancels
    }

    /// Returns the event id of the message with this number.
    pub(crate) fn event_id(&self, number: u64) -> EventId<'_> {
        EventId { stream: self.id, number, requests: self.requests.as_deref() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a reader after the message with this number, or after the last message that was read. Any earlier
    /// reader gets nothing more.
    pub(crate) fn attach(self: &Arc<Self>, from: Option<u64>) -> Subscription {
        let mut state = self.lock();
        // The new number tells an earlier reader to stop.
        state.reader += 1;
        state.attached = true;
        // A client may name a number that no message has had yet.
        state.received = from.unwrap_or(state.received).min(state.last);
        state.position = ReadPosition { number: state.received, pieces: 0 };
        let reader = state.reader;
        // The lock is released first, because the task that is woken takes it.
        drop(state);
        self.client.wake();
        Subscription::new(self, reader)
    }

    // ---- the relay's side ----

    /// Adds a complete message. Returns whether a connected client has to take it.
    pub(crate) fn put(&self, kind: &TransmitKind, message: &Bytes) -> bool {
        let text = message.trim_ascii_end();
        let text = match text.len() {
            0..COPY_MAX => Bytes::copy_from_slice(text),
            length => message.slice(..length),
        };
        let (class, id) = match kind {
            TransmitKind::Answer(id) => {
                (MessageClass::Answer, id.as_ref().map(|id| self.id_text(id)))
            }
            TransmitKind::Batch(answers, _) if !answers.is_empty() => (MessageClass::Answer, None),
            TransmitKind::Batch(_, true) => (MessageClass::Answer, None),
            TransmitKind::Batch(..) if requests(message.clone()).next().is_some() => {
                (MessageClass::Request, None)
            }
            TransmitKind::Request => (MessageClass::Request, None),
            _ => (MessageClass::Other, None),
        };
        self.push(class, id, text, true).1
    }

    /// Returns an id as its request spells it.
    fn id_text(&self, id: &Key) -> Bytes {
        let state = self.lock();
        let request = state.open.iter().find(|(open, _)| open == id);
        request.map_or_else(|| id.to_json(), |(_, text)| text.clone())
    }

    fn push(
        &self,
        class: MessageClass,
        id: Option<Bytes>,
        text: Bytes,
        whole: bool,
    ) -> (u64, bool) {
        let mut state = self.lock();
        state.last += 1;
        let (number, bytes, attached) = (state.last, text.len(), state.attached);
        let pieces = VecDeque::from([text]);
        state.messages.push_back(BufferedMessage {
            number,
            class,
            id,
            pieces,
            lost: 0,
            bytes,
            whole,
            broken_off: false,
        });
        if whole {
            state.note_whole(class, number);
        }
        state.bytes += bytes;
        self.pushed(state, bytes);
        (number, attached)
    }

    /// Takes the ids of the server's requests that were dropped unread, because too many messages were kept.
    pub(crate) fn take_refused(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.lock().refused)
    }

    fn pushed(&self, mut state: MutexGuard<'_, BufferState>, bytes: usize) {
        // Without a client nobody reads the bytes, so the relay must not wait for that.
        state.relay_waits = state.attached;
        state.unread += bytes;
        state.refuse_requests();
        state.make_room();
        self.fit(&mut state);
        drop(state);
        self.client.wake();
    }

    /// Counts the bytes that the stream keeps, and drops messages if they are too many.
    pub(crate) fn fit(&self, state: &mut BufferState) {
        if state.has_counted() {
            state.fit(&mut self.signals.kept());
        }
    }

    /// Whether enough bytes for one write wait for the client.
    pub(crate) fn is_full(&self) -> bool {
        let state = self.lock();
        state.attached && state.unread >= BATCH_BYTES
    }

    /// Whether the relay has to wait because the client has not taken all bytes. The buffer signals when the client has
    /// taken them.
    pub(crate) fn is_unread(&self) -> bool {
        self.lock().relay_waits
    }

    /// Registers the requests that are answered on this stream. From now on the relay knows the
    /// stream.
    pub(crate) fn expect(&self, requests: impl IntoIterator<Item = (Key, Bytes)>) {
        let mut state = self.lock();
        state.known_to_relay = true;
        state.open.extend(requests);
    }

    /// Notes that a request has its answer, or needs none. Returns false if the request is not known.
    pub(crate) fn settle(&self, id: &Key) -> bool {
        let mut state = self.lock();
        let found = state.open.iter().position(|(open, _)| open == id);
        found.map(|place| state.open.swap_remove(place)).is_some()
    }

    /// Notes the cancellation of a request with this id, which requests on several streams have.
    pub(crate) fn note_cancellation(&self, id: &Key) {
        let mut state = self.lock();
        // At most one entry for each open request.
        let is_new = !state.perhaps_cancelled.contains(id);
        if is_new && state.open.iter().any(|(open, _)| open == id) {
            state.perhaps_cancelled.push(id.clone());
        }
    }

    /// Settles the requests that a cancellation may mean. Returns their number.
    pub(crate) fn settle_cancelled(&self) -> usize {
        let meant = std::mem::take(&mut self.lock().perhaps_cancelled);
        meant.iter().filter(|id| self.settle(id)).count()
    }

    /// Returns the number of requests without an answer.
    pub(crate) fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Whether a connected client waits for an answer.
    pub(crate) fn is_client_waiting(&self) -> bool {
        let state = self.lock();
        state.attached && !state.open.is_empty()
    }

    pub(crate) fn has_request(&self, id: &Key) -> bool {
        self.lock().open.iter().any(|(open, _)| open == id)
    }

    /// Whether the client has disconnected and thereby cancelled its requests.
    pub(crate) fn is_given_up(&self) -> bool {
        self.cancels() && !self.lock().attached
    }

    /// Returns the bytes that were handed to the client and that it has not received.
    pub(crate) fn unread(&self) -> usize {
        self.lock().unread
    }

    /// Disconnects the client, because it has taken nothing for too long.
    pub(crate) fn evict(&self) {
        let mut state = self.lock();
        state.reader += 1;
        state.detach();
        self.fit(&mut state);
        drop(state);
        self.client.wake();
        if self.cancels() {
            self.signals.mark_disconnected(self.id);
        }
    }

    /// Ends the stream.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.over = true;
        let permit = state.permit.take();
        drop(state);
        // Dropped after the lock is released, because another stream may take the place immediately.
        drop(permit);
        self.client.wake();
    }

    /// Ends the stream before all its answers have arrived.
    pub(crate) fn break_off(&self, broken: &Broken) {
        let mut state = self.lock();
        if !state.over {
            state.over = true;
            state.broken = Some(broken.clone());
        }
        let permit = state.permit.take();
        drop(state);
        drop(permit);
        self.client.wake();
    }

    // ---- the session's side ----

    /// Gives the stream a permit until it is over, even without its client. Called when the relay knows the stream.
    pub(crate) fn count(&self, permit: &Arc<StreamPermit>) {
        let mut state = self.lock();
        if !state.over {
            state.permit = Some(Arc::clone(permit));
        }
    }

    /// Returns the permit of the stream, for a client that reconnects.
    pub(crate) fn permit(&self) -> Option<Arc<StreamPermit>> {
        self.lock().permit.clone()
    }

    /// Whether the stream is over.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Returns the bytes kept for a client that may resume; `None` if no client may.
    pub(crate) fn resumable(&self) -> Option<usize> {
        let state = self.lock();
        (state.resumable || !state.over).then_some(state.bytes)
    }

    /// Whether the stream keeps an answer that its client has not taken but may still fetch.
    pub(crate) fn keeps_answers(&self) -> bool {
        let state = self.lock();
        let is_left = |one: &BufferedMessage| {
            one.class == MessageClass::Answer && one.number > state.received
        };
        state.resumable && state.messages.iter().any(is_left)
    }

    /// Whether messages from number `from` on are kept or can still arrive.
    pub(crate) fn has_more(&self, from: u64) -> bool {
        let state = self.lock();
        // An open request may still get its answer, even if the stream itself is over.
        !state.over || state.last > from || !state.open.is_empty()
    }
}

impl Drop for ReplayBuffer {
    fn drop(&mut self) {
        let counted = self.lock().counted;
        if counted > 0 {
            let mut room = self.signals.kept();
            let rest = room.held().saturating_sub(counted);
            room.count(rest);
        }
    }
}

impl BufferState {
    pub(crate) fn detach(&mut self) {
        self.attached = false;
        self.position = ReadPosition { number: self.received, pieces: 0 };
        self.unread = 0;
        self.make_room();
    }

    /// Returns the first message that was not handed to the client completely.
    pub(crate) fn next(&self) -> Option<&BufferedMessage> {
        let place = self.messages.partition_point(|one| one.number <= self.position.number);
        self.messages.get(place)
    }
}

impl BufferState {
    /// The first content of the response to a client that reads these messages.
    pub(crate) fn first_response(&self, reads: ClientReads) -> FirstResponse {
        let large = self.messages.front().is_some_and(|first| {
            first.class == MessageClass::Answer
                && !(first.whole || first.broken_off)
                && self.messages.len() == 1
        });
        let answers =
            || self.messages.iter().all(|one| one.class == MessageClass::Answer && one.whole);
        match (large, self.over) {
            (true, _) if self.open.len() <= 1 => FirstResponse::Large,
            _ if reads == ClientReads::Everything && !answers() => FirstResponse::Events,
            (_, true) => FirstResponse::Answers,
            (_, false) => FirstResponse::Wait,
        }
    }
}

impl BufferedMessage {
    /// Returns the message, or the error in place of a message that was not kept completely.
    pub(crate) fn text(&self, broken: &Option<Broken>) -> Bytes {
        if self.lost == 0 && self.whole {
            return match self.pieces.len() {
                1 => self.pieces.front().cloned().unwrap_or_default(),
                _ => self.pieces.iter().flatten().copied().collect(),
            };
        }
        let not_kept = "the answer could not be kept: it is too large, or too many bytes of messages wait here";
        let why = broken.as_ref().map_or(not_kept, |broken| broken.why);
        own_error(self.id.as_deref().unwrap_or(b"null"), why, None)
    }
}

#[cfg(test)]
mod tests;
