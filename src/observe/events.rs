//! The events of one filter: the inputs that reach it and the decisions that follow. Observers, such as
//! recordings and the table of calls, see all events and change nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::observe::cancellations::CancelInbox;
use crate::progress::input::{Input, stream_of};
use crate::progress::{
    Filter, FilterEvent, Form, Fragment, OpenCall, Origin, Policy, StreamId, Transmit, TransmitKind,
};
use crate::protocol::jsonrpc::{Kind, Scan};
use crate::protocol::sse::{Events, SseFrame};

/// Maximum distance of times that count as equal. Messages are sent in the order in which they are due, so a replay
/// stays exact.
pub const APART: Duration = Duration::from_micros(1);

/// Maximum number of large messages that are remembered until their client has received them completely. Only a few are
/// in transit at one time.
const PASSED_MAX: usize = 64;

/// One thing that has happened at a filter.
#[derive(Debug, Clone)]
pub struct ObserverEvent {
    /// The time.
    pub at: Instant,
    /// The kind.
    pub kind: EventKind,
}

/// The kinds of events. A message that came in pieces appears here without its text.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "events are shown one by one and not kept")]
pub enum EventKind {
    /// The filter takes an input. The next message of the server has this number.
    Input(Input, u64),
    /// The server gets another message than the client has sent, or an additional message.
    ToServer(Bytes),
    /// A client is sent something. The decisions about it follow.
    ToClient(StreamId, Bytes),
    /// A line that is not a message, and goes to standard error.
    Noise(Bytes),
    /// The filter has decided something.
    Decided(FilterEvent),
}

impl EventKind {
    /// Returns the number of bytes of the messages and texts in an event, which count against limits.
    pub fn bytes(&self) -> usize {
        match self {
            // Before the general arm, which would copy the line.
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

    /// Ends the decisions about an input.
    fn settle(&mut self) {}

    /// The cancellations of operators for calls of the filter, if the observer passes some on.
    fn cancellations(&self) -> Option<&Arc<CancelInbox>> {
        None
    }
}

/// The part of a conversation that a filter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A whole connection: one client, or several clients with a connection each.
    Whole,
    /// The requests of one HTTP POST, and the messages to their client.
    Exchange,
    /// The other messages to the clients of an HTTP session.
    Session,
}

/// Names a filter and its conversation. No number is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterId {
    /// The conversation: that of an HTTP session has the filters of all its exchanges.
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
}

/// A message that comes in pieces.
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

    /// A small message in its place.
    fn stand_in(&self) -> Bytes {
        if self.is_noise {
            return Bytes::from(format!("{} bytes left out", self.len));
        }
        let text = self.scan.stand_in(self.len);
        // An incomplete message has no end here either.
        if self.scan.is_whole() { text } else { text.slice(..text.len() - 1) }
    }
}

/// The event emitter of one filter passes its events to the observers.
#[derive(Debug)]
pub struct EventEmitter {
    id: FilterId,
    observers: Vec<Box<dyn Observer>>,
    /// The cancellations of operators for calls of the filter.
    cancellations: Option<Arc<CancelInbox>>,
    last: Instant,
    /// Large messages of the server, with their numbers.
    large: BTreeMap<Option<StreamId>, (Large, u64)>,
    /// Large messages that came in SSE events, until their clients have been sent all of them.
    passed: BTreeMap<Option<StreamId>, (Bytes, u64)>,
    /// Large messages to clients, and whether they are sent in SSE events.
    large_to_clients: BTreeMap<StreamId, (Large, bool)>,
    /// Streams whose client has not read all of its messages.
    unwritten: BTreeSet<StreamId>,
    /// The streams for which observers have got [`Input::MarkUnread`].
    waits: BTreeSet<StreamId>,
}

/// Returns the message in an SSE event: the client reads no other part of the event.
fn unframed(text: Bytes) -> Bytes {
    let mut events = Events::new(usize::MAX);
    events.push(text.clone());
    match events.next() {
        Some(SseFrame::Event(event)) => event.data().unwrap_or(text),
        _ => text,
    }
}

impl EventEmitter {
    /// An emitter for `observers`, from `start` on; `None` if there are none.
    pub fn new(id: FilterId, start: Instant, observers: Vec<Box<dyn Observer>>) -> Option<Self> {
        let mut inboxes = observers.iter().filter_map(|observer| observer.cancellations());
        let cancellations = inboxes.next().cloned();
        let emitter = Self {
            id,
            observers,
            cancellations,
            last: start,
            large: BTreeMap::new(),
            passed: BTreeMap::new(),
            large_to_clients: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            waits: BTreeSet::new(),
        };
        (!emitter.observers.is_empty()).then_some(emitter)
    }

    /// The filter.
    pub fn filter_id(&self) -> FilterId {
        self.id
    }

    /// The cancellations of operators for calls of the filter.
    pub fn cancellations(&self) -> Option<&Arc<CancelInbox>> {
        self.cancellations.as_ref()
    }

    fn put(&mut self, at: Instant, kind: EventKind) {
        // Times never fall, because a replay adds up the differences.
        self.last = self.last.max(at);
        let event = ObserverEvent { at: self.last, kind };
        self.observers.iter_mut().for_each(|observer| observer.on_event(&event));
    }

    /// The filter takes an input. The next message of the server has this `number`.
    pub fn input(&mut self, now: Instant, input: Input, number: u64) {
        let at = if input.is_sequel() { self.last } else { now };
        match &input {
            Input::MarkWritten(stream) => {
                // A replay assumes that messages are written at once, so only other cases are recorded.
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
        // A replay assumes that clients read at once, unless an input says otherwise.
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

    /// Records an input that the filter takes at the time of the previous input.
    pub fn sequel(&mut self, input: Input, number: u64) {
        self.input(self.last, input, number);
    }

    /// The server is sent this.
    pub fn to_server(&mut self, text: Bytes) {
        self.put(self.last, EventKind::ToServer(text));
    }

    /// The server begins a large message, which has this number.
    pub fn begin_large(&mut self, origin: Origin, number: u64, piece: &[u8]) {
        self.large.insert(stream_of(origin), (Large::default(), number));
        self.large_piece(origin, piece);
    }

    /// The large message is none.
    pub fn mark_large_noise(&mut self, origin: Origin) {
        if let Some((large, _)) = self.large.get_mut(&stream_of(origin)) {
            large.is_noise = true;
        }
    }

    /// No more of large messages comes.
    fn break_off(&mut self, at: Instant, why: &str) {
        while let Some((stream, _)) = self.large.first_key_value() {
            let origin = stream.map_or(Origin::Shared, Origin::Stream);
            self.finish_large(at, origin, Some(why));
        }
    }

    /// The server sends a piece of a large message.
    pub fn large_piece(&mut self, origin: Origin, piece: &[u8]) {
        if let Some((large, _)) = self.large.get_mut(&stream_of(origin)) {
            large.feed(piece);
        }
    }

    /// The end of a large message; `broken`: the reason why its rest is missing.
    pub fn finish_large(&mut self, at: Instant, origin: Origin, broken: Option<&str>) {
        let stream = stream_of(origin);
        let Some((large, number)) = self.large.remove(&stream) else { return };
        let text = large.stand_in();
        // A client that has disconnected never reads its large message to the end, so the entry would stay for ever.
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

    /// A client is sent something.
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
                // The bytes left out are counted here, because a repair may have made the message longer.
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

    /// A decision of `filter`.
    pub fn decision_of(&mut self, filter: &Filter, event: &FilterEvent) {
        // The data of a call that opens or continues here.
        if let FilterEvent::Opened(call) | FilterEvent::TakenOver(call) = event
            && let Some(call) = filter.calls().opened(*call)
        {
            // Before the decision, so that an observer knows the call that the decision is about.
            self.observers.iter_mut().for_each(|observer| observer.on_call(&call));
        }
        self.put(self.last, EventKind::Decided(event.clone()));
    }

    /// The decisions about an input are complete.
    pub fn end_decisions(&mut self) {
        self.observers.iter_mut().for_each(|observer| observer.settle());
    }
}
