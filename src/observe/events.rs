//! The events of one filter: the inputs that reach it and the decisions that follow. Observers, such as
//! recordings and the table of calls, see all events and change nothing.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use litemap::LiteMap;

use crate::observe::cancellations::CancelInbox;
use crate::progress::input::{Input, stream_of};
use crate::progress::{
    Filter, FilterEvent, Form, Fragment, OpenCall, Origin, Policy, StreamId, Transmit, TransmitKind,
};
use crate::protocol::jsonrpc::{Kind, Scan};
use crate::protocol::sse::{Events, SseFrame};

/// Times that differ by at most this count as equal. A replay is still exact, because messages are sent in the order in
/// which they are due.
pub const APART: Duration = Duration::from_micros(1);

/// Maximum number of large messages that are remembered until their clients have received them. Usually only a few are
/// in transit at the same time.
const PASSED_MAX: usize = 64;

/// One event at a filter.
#[derive(Debug, Clone)]
pub struct ObserverEvent {
    /// The time.
    pub at: Instant,
    /// The kind.
    pub kind: EventKind,
}

/// The kinds of events. Here a message that came in pieces has a short text in place of its own.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "events are shown one by one and not kept")]
pub enum EventKind {
    /// The filter takes an input. The number is that of the next server message.
    Input(Input, u64),
    /// The server gets a changed client message, or an additional message.
    ToServer(Bytes),
    /// A message is sent to a client. The decisions about it follow.
    ToClient(StreamId, Bytes),
    /// A line of the server that is not a message was written to standard error.
    Noise(Bytes),
    /// The filter has decided about a message or a call.
    Decided(FilterEvent),
}

impl EventKind {
    /// Returns the number of bytes of the messages and texts in an event, which count against limits.
    pub fn bytes(&self) -> usize {
        match self {
            // A separate arm, because the general one would copy the line.
            Self::Input(Input::Stderr(line), _) => line.len(),
            Self::Input(Input::Settings(words, _), _) => words.len(),
            Self::Input(input, _) => match input.message_line() {
                Some(line) => line.text.len(),
                None => input.words().map_or(0, |words| words.len()),
            },
            Self::ToServer(text) | Self::ToClient(_, text) | Self::Noise(text) => text.len(),
            Self::Decided(_) => 0,
        }
    }
}

/// An observer of the events of one filter.
pub trait Observer: Debug + Send {
    /// Takes an event.
    fn on_event(&mut self, event: &ObserverEvent);

    /// Receives the data of a call, before the event that the call opens or continues here.
    fn on_call(&mut self, _: &OpenCall<'_>) {}

    /// Notes that the decisions about an input are complete.
    fn settle(&mut self) {}

    /// Returns the inbox for operators' cancellations, if the observer has one for this filter.
    fn cancellations(&self) -> Option<&Arc<CancelInbox>> {
        None
    }
}

/// The part of a conversation that a filter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A whole connection, of one client or of several clients.
    Whole,
    /// The requests of one HTTP POST, and the messages to their client.
    Exchange,
    /// The other messages to the clients of an HTTP session.
    Session,
}

/// Identifies a filter and its conversation. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterId {
    /// The conversation. The filters of all exchanges of an HTTP session belong to one conversation.
    pub conversation: u64,
    /// The filter.
    pub filter: u64,
}

/// An observer factory makes an observer for each filter.
pub trait ObserverFactory: Debug + Send + Sync {
    /// Makes the observer of a filter on this route; `None` if the filter has none.
    fn begin(
        &self,
        id: FilterId,
        route: &str,
        scope: Scope,
        policy: &Arc<Policy>,
    ) -> Option<Box<dyn Observer>>;

    /// Whether operators see calls through the observers, and may cancel them ([`Observer::cancellations`]).
    fn has_operators(&self) -> bool {
        false
    }
}

/// A message that arrives in pieces.
#[derive(Debug, Default)]
struct Large {
    scan: Scan,
    len: u64,
    /// Whether the text is not a message.
    is_noise: bool,
}

impl Large {
    fn feed(&mut self, piece: &[u8]) {
        self.scan.feed(piece);
        self.len += piece.len() as u64;
    }

    /// Returns a short message to record in place of the large one.
    fn stand_in(&self) -> Bytes {
        if self.is_noise {
            return Bytes::from(format!("{} bytes left out", self.len));
        }
        let text = self.scan.stand_in(self.len);
        // If the message was incomplete, its short form is incomplete too.
        if self.scan.is_whole() { text } else { text.slice(..text.len() - 1) }
    }
}

/// Passes the events of one filter to its observers.
#[derive(Debug)]
pub struct EventEmitter {
    id: FilterId,
    observers: Vec<Box<dyn Observer>>,
    /// The inbox for operators' cancellations of the filter's calls.
    cancellations: Option<Arc<CancelInbox>>,
    last: Instant,
    /// Large messages of the server, with their numbers.
    large: LiteMap<Option<StreamId>, (Large, u64)>,
    /// Large messages that came in SSE events, until their clients have been sent all of them.
    passed: LiteMap<Option<StreamId>, (Bytes, u64)>,
    /// Large messages to clients, and whether they are sent in SSE events.
    large_to_clients: LiteMap<StreamId, (Large, bool)>,
    /// Streams whose client has not read all of its messages.
    unwritten: BTreeSet<StreamId>,
    /// Streams for which observers were told that messages are unread ([`Input::MarkUnread`]).
    waits: BTreeSet<StreamId>,
}

/// Returns the message in an SSE event, which is the only part that the client reads.
fn unframed(text: Bytes) -> Bytes {
    let mut events = Events::new(usize::MAX);
    events.push(text.clone());
    match events.next() {
        Some(SseFrame::Event(event)) => event.data().unwrap_or(text),
        _ => text,
    }
}

impl EventEmitter {
    /// Makes an emitter for `observers` that begins at `start`; `None` if there are no observers.
    pub fn new(id: FilterId, start: Instant, observers: Vec<Box<dyn Observer>>) -> Option<Self> {
        if observers.is_empty() {
            return None;
        }
        let mut inboxes = observers.iter().filter_map(|observer| observer.cancellations());
        let cancellations = inboxes.next().cloned();
        Some(Self {
            id,
            observers,
            cancellations,
            last: start,
            large: LiteMap::new(),
            passed: LiteMap::new(),
            large_to_clients: LiteMap::new(),
            unwritten: BTreeSet::new(),
            waits: BTreeSet::new(),
        })
    }

    /// Returns the id of the filter.
    pub fn filter_id(&self) -> FilterId {
        self.id
    }

    /// Returns the inbox for operators' cancellations of the filter's calls.
    pub fn cancellations(&self) -> Option<&Arc<CancelInbox>> {
        self.cancellations.as_ref()
    }

    fn put(&mut self, at: Instant, kind: EventKind) {
        // Times must never fall, because a replay adds up their differences.
        self.last = self.last.max(at);
        let event = ObserverEvent { at: self.last, kind };
        self.observers.iter_mut().for_each(|observer| observer.on_event(&event));
    }

    /// Records an input of the filter. `number` is that of the next server message.
    pub fn input(&mut self, now: Instant, input: Input, number: u64) {
        let at = if input.is_sequel() { self.last } else { now };
        match &input {
            Input::MarkWritten(stream) => {
                // A replay assumes that messages are written immediately, so only delays are recorded.
                let late = at.saturating_duration_since(self.last) >= APART;
                let waits = self.waits.remove(stream);
                if self.unwritten.remove(stream) && (waits || late) {
                    self.put(at, EventKind::Input(input, number));
                }
                return;
            }
            Input::CloseStream(stream, _) => {
                self.unwritten.remove(stream);
                self.waits.remove(stream);
                self.large.remove(&Some(*stream));
                self.passed.remove(&Some(*stream));
                self.large_to_clients.remove(stream);
            }
            Input::CloseServer(why) | Input::FailCalls(_, why) | Input::StopCalls(why) => {
                self.break_off(at, why)
            }
            _ => {}
        }
        // A replay assumes that clients read immediately, so unread messages are recorded as an input.
        let wait: Vec<StreamId> = self.unwritten.difference(&self.waits).copied().collect();
        for stream in wait {
            self.waits.insert(stream);
            self.put(at, EventKind::Input(Input::MarkUnread(stream), number));
        }
        let passes = if let Input::ForwardLast(passes) = &input { passes.clone() } else { None };
        self.put(at, EventKind::Input(input, number));
        if let Some((stream, message)) = passes {
            let payload = message.raw().clone().into();
            self.to_client(at, stream, &Transmit::whole(TransmitKind::Other, payload));
            self.input(at, Input::MarkWritten(stream), number);
        }
    }

    /// Records an input that follows from the previous one, at the same time.
    pub fn sequel(&mut self, input: Input, number: u64) {
        self.input(self.last, input, number);
    }

    /// Records a message to the server.
    pub fn to_server(&mut self, text: Bytes) {
        self.put(self.last, EventKind::ToServer(text));
    }

    /// Begins a large message of the server, which has this `number`.
    pub fn begin_large(&mut self, origin: Origin, number: u64, piece: &[u8]) {
        self.large.insert(stream_of(origin), (Large::default(), number));
        self.large_piece(origin, piece);
    }

    /// Marks that the large text is not a message.
    pub fn mark_large_noise(&mut self, origin: Origin) {
        if let Some((large, _)) = self.large.get_mut(&stream_of(origin)) {
            large.is_noise = true;
        }
    }

    /// Ends all large messages, whose rest will not come.
    fn break_off(&mut self, at: Instant, why: &str) {
        while let Some((stream, _)) = self.large.first() {
            let origin = stream.map_or(Origin::Shared, Origin::Stream);
            self.finish_large(at, origin, Some(why));
        }
    }

    /// Adds a piece to a large message of the server.
    pub fn large_piece(&mut self, origin: Origin, piece: &[u8]) {
        if let Some((large, _)) = self.large.get_mut(&stream_of(origin)) {
            large.feed(piece);
        }
    }

    /// Ends a large message. `broken`: the reason if its rest is missing.
    pub fn finish_large(&mut self, at: Instant, origin: Origin, broken: Option<&str>) {
        let stream = stream_of(origin);
        let Some((large, number)) = self.large.remove(&stream) else { return };
        let text = large.stand_in();
        // Limit the entries: one stays for ever if its client disconnects before it has read the message.
        if self.passed.len() >= PASSED_MAX {
            self.passed.clear();
        }
        self.passed.insert(stream, (text.clone(), large.len));
        self.input(at, Input::ServerLarge(origin, text, broken.map(Into::into)), number);
    }

    /// Records text of the server that is not a message.
    pub fn noise(&mut self, text: &Bytes) {
        self.put(self.last, EventKind::Noise(text.clone()));
    }

    /// Records a message, or a piece of one, to a client.
    pub fn to_client(&mut self, at: Instant, stream: StreamId, transmit: &Transmit) {
        self.unwritten.insert(stream);
        let text = transmit.payload.to_bytes();
        let is_json = matches!(text.trim_ascii_start().first(), Some(b'{' | b'['));
        match transmit.part {
            Fragment::Whole if is_json || *transmit.payload.form() != Form::AsCame => {
                self.put(at, EventKind::ToClient(stream, text));
            }
            Fragment::Whole => self.put(at, EventKind::ToClient(stream, unframed(text))),
            Fragment::Piece => {
                let (large, _) = self
                    .large_to_clients
                    .entry(stream)
                    .or_insert_with(|| (Large::default(), !is_json));
                large.feed(&text);
            }
            Fragment::End | Fragment::Broken => {
                let (mut large, framed) = self.large_to_clients.remove(&stream).unwrap_or_default();
                large.feed(&text);
                let own = self.passed.remove(&Some(stream)).or_else(|| self.passed.remove(&None));
                // Use the server's length, because a repair may have made the message longer.
                let is_answer = large.scan.is_whole() && large.scan.kind() == Kind::Response;
                let text = match own {
                    Some((_, len)) if is_answer => large.scan.stand_in(len),
                    Some((text, _)) if framed => text,
                    _ => large.stand_in(),
                };
                self.put(at, EventKind::ToClient(stream, text));
            }
        }
    }

    /// Records a decision of `filter`.
    pub fn decision_of(&mut self, filter: &Filter, event: &FilterEvent) {
        // If a call opens or continues here, its data is passed on first.
        if let FilterEvent::Opened(call) | FilterEvent::TakenOver(call) = event
            && let Some(call) = filter.calls().opened(*call)
        {
            // Observers need the call before the decision about it.
            self.observers.iter_mut().for_each(|observer| observer.on_call(&call));
        }
        self.put(self.last, EventKind::Decided(event.clone()));
    }

    /// Tells observers that the decisions about an input are complete.
    pub fn end_decisions(&mut self) {
        self.observers.iter_mut().for_each(|observer| observer.settle());
    }
}
