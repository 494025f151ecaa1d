//! A whole conversation between a client and a server, for programs that embed the engine.
//!
//! A [`Conversation`] gets one input at a time, with the time at which the input came: bytes or a message of the client
//! or of the server, a stream that opens or ends, or the time alone. After each input the program takes what
//! [`Conversation::poll`] returns until that is [`Output::Timeout`], and then waits for the next input:
//!
//! - **Over a pair of pipes** (stdio) the conversation cuts the bytes of both sides into lines: [`Conversation::client`]
//!   and [`Conversation::server`], in whatever pieces the bytes come.
//! - **Over HTTP** the program reads requests and events, and gives whole messages, each with its stream:
//!   [`Conversation::open`], [`Conversation::client_message`], [`Conversation::server_message`] and
//!   [`Conversation::end`]. A POST and its response are one stream.
//!
//! Bytes that need no repair are returned unchanged. A panic in the engine ends the repairs, but not the conversation:
//! later messages are returned unchanged, and progress is withheld. This requires unwinding: with `panic = "abort"` the
//! program ends.

mod event_buffer;
mod frames;
mod guarded_filter;
mod output;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::conversation::event_buffer::EventBuffer;
use crate::conversation::guarded_filter::GuardedFilter;
use crate::conversation::wire::{SOLE_STREAM, Wire};
use crate::progress::{
    Disposition, Fragment, Origin, Payload, Policy, StreamId, StreamKind, StreamPacing,
};
use crate::protocol::jsonrpc::Message;
use crate::protocol::lines::INSPECT_MAX;

pub use crate::conversation::event_buffer::{EVENTS_MAX, NOISE_MAX};
pub use crate::conversation::output::{ConversationEvent, Output};

/// The delay before the engine is asked again for a message that is due but has to wait for another input first.
const AGAIN: Duration = Duration::from_millis(1);

/// A conversation between one client and one server, with its progress repaired.
///
/// The conversation does no I/O and has no clock. The `now` of an input must not be before the `now` of an earlier
/// input; if it is, the latest time is used instead. No input makes a method panic, whatever the client or the server
/// sends.
#[derive(Debug)]
pub struct Conversation {
    filter: GuardedFilter,
    /// The time of the latest input; `None` before the first input.
    now: Option<Instant>,
    /// The open client streams, and whether the server's half of each has ended.
    streams: BTreeMap<StreamId, bool>,
    /// Streams that may have something to write now.
    looks: Vec<StreamId>,
    /// Streams whose bytes were given out after the last input.
    unwritten: BTreeSet<StreamId>,
    to_client: VecDeque<(StreamId, Bytes)>,
    to_server: VecDeque<(StreamId, Bytes)>,
    events: EventBuffer,
    /// The framing of both sides, if the bytes come in lines.
    wire: Option<Box<Wire>>,
    /// Limit of a line that is kept whole, in bytes.
    line_max: usize,
}

impl Default for Conversation {
    /// A conversation with the default policy.
    fn default() -> Self {
        Self::new(Policy::default())
    }
}

impl Conversation {
    /// Returns a conversation without open streams or requests.
    ///
    /// The settings [`Policy::id_mapping`] and `tasks` have no effect: a conversation has only one client, and no
    /// random numbers for task ids.
    pub fn new(policy: impl Into<Arc<Policy>>) -> Self {
        let mut policy = policy.into();
        if policy.id_mapping {
            Arc::make_mut(&mut policy).id_mapping = false;
        }
        Self {
            filter: GuardedFilter::new(policy),
            now: None,
            streams: BTreeMap::new(),
            looks: Vec::new(),
            unwritten: BTreeSet::new(),
            to_client: VecDeque::new(),
            to_server: VecDeque::new(),
            events: EventBuffer::default(),
            wire: None,
            line_max: INSPECT_MAX,
        }
    }

    /// Sets the longest line that is kept in memory as a whole, in bytes without its line end; at least 1, and
    /// [`INSPECT_MAX`] by default. A longer line is passed on in pieces, and progress in such a line is withheld. Each
    /// side needs at most this much memory. The method has no effect after the first bytes.
    pub fn hold_lines(&mut self, max: usize) {
        self.line_max = max;
    }

    /// Takes bytes that the client has written on its only stream. Each line is a message. It does not matter how the
    /// bytes are divided between calls. A line that is too long for memory is passed on in pieces
    /// ([`Conversation::hold_lines`]).
    pub fn client(&mut self, now: Instant, bytes: &[u8]) {
        self.with_wire(now, |conversation, now, wire| {
            wire.from_client.push(bytes);
            while let Some(frame) = wire.from_client.next() {
                conversation.client_frame(now, wire, frame);
            }
        });
    }

    /// Takes bytes that the server has written on its only stream, as [`Conversation::client`] does.
    pub fn server(&mut self, now: Instant, bytes: &[u8]) {
        self.with_wire(now, |conversation, now, wire| {
            wire.from_server.push(bytes);
            while let Some(frame) = wire.from_server.next() {
                conversation.server_frame(now, frame);
            }
        });
    }

    /// Notes that the client sends nothing more. It still gets the server's messages, but no messages of the engine
    /// itself. Close the server's input after the next [`Output::Timeout`].
    pub fn client_ended(&mut self, now: Instant) {
        let now = self.begin(now);
        if let Some(mut wire) = self.wire.take() {
            // The last message may lack its line end.
            while let Some(frame) = wire.from_client.finish() {
                self.client_frame(now, &mut wire, frame);
            }
            self.wire = Some(wire);
        }
        self.filter.attempt(|filter| filter.close_clients(now));
        self.look_at_all();
    }

    /// Notes that the server has exited or cannot be reached any more. Each open request gets an error with the reason
    /// `why`, in a few words, such as `the server has exited`.
    pub fn server_ended(&mut self, now: Instant, why: &str) {
        let now = self.begin(now);
        if let Some(mut wire) = self.wire.take() {
            while let Some(frame) = wire.from_server.finish() {
                self.server_frame(now, frame);
            }
            self.wire = Some(wire);
        }
        self.filter.attempt(|filter| filter.server_gone(now, why, None));
        self.look_at_all();
    }

    /// Notes that time has passed: the time of the last [`Output::Timeout`] has come, or a slow write has finished.
    pub fn tick(&mut self, now: Instant) {
        let now = self.begin(now);
        self.filter.attempt(|filter| filter.expire(now));
        self.look_at_all();
    }

    /// Opens a client stream over HTTP: [`StreamKind::Exchange`] for a POST and its response, [`StreamKind::Shared`] for
    /// a GET, whose messages belong to no POST. The program chooses the numbers, and uses each once. Does nothing if the
    /// stream is open.
    pub fn open(&mut self, now: Instant, stream: StreamId, kind: StreamKind) {
        self.begin(now);
        self.open_paced(stream, kind, StreamPacing::Immediate);
        self.look_at_all();
    }

    /// Ends a client stream: its response has ended, or its client has disconnected. Messages that wait for the stream
    /// are dropped. Unanswered requests stay open, because the server may answer them on a GET stream.
    pub fn end(&mut self, now: Instant, stream: StreamId) {
        let now = self.begin(now);
        self.filter.close_stream(now, stream);
        self.streams.remove(&stream);
        self.unwritten.remove(&stream);
        self.to_client.retain(|(of, _)| *of != stream);
        self.look_at_all();
    }

    /// Takes a message that the client has sent on `stream`: the body of a POST. The message for the server follows as
    /// [`Output::ToServer`] with this stream; if none follows, the engine has answered or withheld the message.
    pub fn client_message(&mut self, now: Instant, stream: StreamId, message: Bytes) {
        let now = self.begin(now);
        let payload = self.filter.client_message(now, stream, &Message::parse(message));
        self.send(stream, &payload);
        self.look_at_all();
    }

    /// Takes a message that the server has sent on the response that belongs to `stream`: the data of one event, or a
    /// JSON body. If the message is about a request of another stream, the result is for that stream.
    pub fn server_message(&mut self, now: Instant, stream: StreamId, message: Bytes) {
        let now = self.begin(now);
        let (origin, message) = (Origin::Stream(stream), Message::parse(message));
        let place = self.filter.server_message(now, origin, &message);
        self.note_place(place);
        self.look_at_all();
    }

    /// Notes that the server has refused a message that it was sent, with an HTTP status of 400 or above: the requests in
    /// `message` get their answer from the program.
    pub fn refused(&mut self, now: Instant, message: Bytes) {
        let now = self.begin(now);
        self.filter.attempt(|filter| filter.gate_mut().withdraw(now, &Message::parse(message)));
        self.look_at_all();
    }

    /// Notes that the response that belongs to `stream` has ended. The stream is over when its waiting messages have
    /// been written ([`Conversation::is_over`]).
    pub fn response_ended(&mut self, now: Instant, stream: StreamId) {
        let now = self.begin(now);
        self.streams.entry(stream).and_modify(|has_ended| *has_ended = true);
        self.filter.attempt(|filter| {
            if filter.gate().holds_answer(stream) {
                filter.intake_mut().response_ended(now, stream);
            }
        });
        self.look_at_all();
    }

    /// Returns the next thing to do. Call again after each until the answer is [`Output::Timeout`].
    ///
    /// Bytes of an [`Output::ToClient`] count as written at the time of the next input, because some clients need a pause
    /// between progress and an answer. A timeout may therefore have come already: then call [`Conversation::tick`].
    pub fn poll(&mut self) -> Output {
        let Some(now) = self.now else { return Output::Timeout(None) };
        if let Some((stream, bytes)) = self.next_to_client(now) {
            self.unwritten.insert(stream);
            return Output::ToClient(stream, bytes);
        }
        if let Some((stream, bytes)) = self.next_to_server() {
            return Output::ToServer(stream, bytes);
        }
        if let Some(event) = self.events.pop().or_else(|| self.filter.poll_event()) {
            return Output::Event(event);
        }
        Output::Timeout(self.next_timeout(now))
    }

    /// Whether a client stream has nothing more to write: the requests of an exchange have been answered, or the response
    /// has ended. Then finish the client's response and call [`Conversation::end`]. True for a stream that is not open.
    pub fn is_over(&mut self, stream: StreamId) -> bool {
        let has_ended = self.streams.get(&stream).is_none_or(|has_ended| *has_ended);
        let waits = self.to_client.iter().any(|(of, _)| *of == stream);
        let Some(now) = self.now else { return true };
        !waits && self.filter.is_over(now, stream, has_ended)
    }

    /// Whether so many bytes wait for the client that the server should not be read
    /// ([`QUEUE_MAX`](crate::progress::QUEUE_MAX)). This happens only if the program stops polling while its client
    /// does not read.
    pub fn is_full(&self) -> bool {
        self.filter.is_full()
    }

    /// Begins an input: earlier bytes have been written, and earlier events are kept for later. Returns the time of the
    /// input.
    fn begin(&mut self, now: Instant) -> Instant {
        // The filter relies on a time that never goes backwards.
        let now = self.now.map_or(now, |before| before.max(now));
        self.now = Some(now);
        for stream in std::mem::take(&mut self.unwritten) {
            self.filter.attempt(|filter| filter.written(now, stream));
        }
        self.keep_events();
        now
    }

    /// Begins an input at `now`: treats the bytes given out earlier as written, and keeps untaken events for later.
    /// Returns the time of the input.
    fn with_wire(&mut self, now: Instant, input: impl FnOnce(&mut Self, Instant, &mut Wire)) {
        let now = self.begin(now);
        let mut wire = self.wire.take().unwrap_or_else(|| {
            self.open_paced(SOLE_STREAM, StreamKind::Shared, StreamPacing::ByCall);
            Box::new(Wire::new(self.line_max))
        });
        input(self, now, &mut wire);
        self.wire = Some(wire);
        self.look_at_all();
    }

    fn open_paced(&mut self, stream: StreamId, kind: StreamKind, pacing: StreamPacing) {
        if let std::collections::btree_map::Entry::Vacant(place) = self.streams.entry(stream) {
            place.insert(false);
            self.filter.open_stream(stream, kind, pacing);
        }
    }

    fn look_at_all(&mut self) {
        self.looks.clear();
        // `next_to_client` takes from the end: the stream with the lowest number goes first.
        self.looks.extend(self.streams.keys().rev());
    }

    /// Moves the events that the program has not taken to the bounded buffer.
    fn keep_events(&mut self) {
        while let Some(event) = self.filter.poll_event() {
            self.events.push(event);
        }
    }

    fn note_place(&mut self, place: Disposition) {
        self.keep_events();
        if let Disposition::NotAMessage(text) = place {
            self.events.push(ConversationEvent::Noise(text));
        }
    }

    /// Sends a whole message to the server.
    fn send(&mut self, stream: StreamId, payload: &Payload) {
        match &mut self.wire {
            Some(wire) => wire.to_server.put(payload, Fragment::Whole, stream, &mut self.to_server),
            None if payload.is_empty() => {}
            None => self.to_server.push_back((stream, payload.to_bytes())),
        }
    }

    fn next_to_client(&mut self, now: Instant) -> Option<(StreamId, Bytes)> {
        loop {
            if let Some(next) = self.to_client.pop_front() {
                return Some(next);
            }
            let stream = *self.looks.last()?;
            let Some(transmit) = self.filter.poll_transmit(now, stream) else {
                self.looks.pop();
                continue;
            };
            match self.wire.as_mut().filter(|_| stream == SOLE_STREAM) {
                Some(wire) => {
                    let (payload, part) = (&transmit.payload, transmit.part);
                    wire.to_client.put(payload, part, stream, &mut self.to_client);
                }
                None => self.to_client.push_back((stream, transmit.payload.to_bytes())),
            }
        }
    }

    fn next_to_server(&mut self) -> Option<(StreamId, Bytes)> {
        loop {
            if let Some(next) = self.to_server.pop_front() {
                return Some(next);
            }
            let own = self.filter.attempt(|filter| {
                let own = filter.poll_to_server().map(|payload| (StreamId::NOWHERE, payload));
                own.or_else(|| filter.poll_released().map(|one| (one.stream, one.payload)))
            });
            let (stream, payload) = own.flatten()?;
            self.send(stream, &payload);
        }
    }

    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let unwritten = &self.unwritten;
        let is_quiet = self.filter.attempt(|filter| {
            unwritten.iter().all(|stream| filter.intake().has_nothing_due(now, *stream))
        });
        // Messages wait until the bytes that `poll` has returned are written. The next input counts as the sign that
        // they are, so the program is asked to call `tick` immediately.
        if is_quiet == Some(false) {
            return Some(now);
        }
        self.unwritten.clear();
        let due = self.filter.attempt(|filter| filter.poll_timeout()).flatten();
        due.map(|at| if at <= now { now + AGAIN } else { at })
    }
}
