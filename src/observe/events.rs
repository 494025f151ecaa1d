//! The events of one filter (messages and verdicts) for observers: recordings and operators.
//! Observers delay and change nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::progress::{
    FilterEvent, Form, Fragment, Opened, Origin, Pacing, Policy, StreamId, StreamKind, Transmit,
};
use crate::protocol::jsonrpc::{Kind, Scan};
use crate::protocol::sse::{Events, Frame};

/// Times that lie closer together are not told apart. What is due first is told first, so they are exact.
pub const APART: Duration = Duration::from_micros(1);

/// Large messages that are remembered until their client has received them whole. Only a few are in
/// transit at one time.
const PASSED_MAX: usize = 64;

/// Something that has happened.
#[derive(Debug, Clone)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// What.
    pub kind: EventKind,
}

/// What has happened. Messages that passed in pieces are told by small ones in their place.
#[derive(Debug, Clone)]
pub enum EventKind {
    /// Something happened to the connection.
    Command(String),
    /// A client says something.
    Client(StreamId, Bytes),
    /// The server gets something else than what a client said, or something besides.
    ToServer(Bytes),
    /// The server says something: its messages have numbers from this one on.
    Server(Option<StreamId>, Bytes, u64),
    /// This is done with a message of the server that was said to another filter, or before.
    Aside(String, Option<StreamId>, Bytes),
    /// The server has refused what a client said before.
    Refused(Bytes),
    /// Another filter of the conversation, this part of it, hands its calls over to this one.
    TakesOver(u64),
    /// A line of its standard error is heard.
    Overheard(String),
    /// A client is told something. What was decided of it follows.
    Told(StreamId, Bytes),
    /// A line that is no message goes to standard error.
    Noise(Bytes),
    /// Something was decided.
    Decided(FilterEvent),
}

impl EventKind {
    /// Bytes of the messages in it.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Command(text) | Self::Overheard(text) => text.len(),
            Self::Client(_, text)
            | Self::ToServer(text)
            | Self::Server(_, text, _)
            | Self::Told(_, text)
            | Self::Aside(_, _, text)
            | Self::Refused(text)
            | Self::Noise(text) => text.len(),
            Self::Decided(_) | Self::TakesOver(_) => 0,
        }
    }
}

/// Someone who looks on at one conversation.
pub trait Observer: Debug + Send {
    /// Something has happened.
    fn see(&mut self, event: &Event);

    /// What is known of a call when it is told to be opened or taken over: before that is told.
    fn know(&mut self, _: &Opened<'_>) {}

    /// Nothing more was decided of what has happened.
    fn settle(&mut self) {}
}

/// What of a conversation one filter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of it: a client, or several, on wires of their own.
    Whole,
    /// The requests of one HTTP POST, and what their client is told.
    Exchange,
    /// What clients of an HTTP session are told besides.
    Session,
}

/// A conversation, and which of its filters one is. No number is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterId {
    /// The conversation: that of an HTTP session has the filters of all its exchanges.
    pub conversation: u64,
    /// The filter.
    pub filter: u64,
}

/// Where someone looks on at every conversation.
pub trait ObserverFactory: Debug + Send + Sync {
    /// A filter begins on this route; `None` if nobody looks on at it.
    fn begin(
        &self,
        id: FilterId,
        route: &str,
        scope: Scope,
        policy: &Arc<Policy>,
    ) -> Option<Box<dyn Observer>>;
}

/// A message that passes in pieces.
#[derive(Debug, Default)]
struct Large {
    scan: Scan,
    len: u64,
    /// It is no message.
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
        let text = stand_in(&self.scan, self.len);
        // What broke off does so here too.
        if self.scan.is_whole() { text } else { text.slice(..text.len() - 1) }
    }
}

/// A small message that says of a large one what a filter reads.
fn stand_in(scan: &Scan, len: u64) -> Bytes {
    let mut members = vec![r#""jsonrpc":"2.0""#.to_owned()];
    if let Some(id) = scan.id() {
        members.push(format!(r#""id":{}"#, String::from_utf8_lossy(&id.to_json())));
    }
    if let Some(method) = scan.method() {
        let method = crate::protocol::json::quote(&method);
        members.push(format!(r#""method":{}"#, String::from_utf8_lossy(&method)));
    }
    let body = if scan.kind() == Kind::Response { "result" } else { "params" };
    members.push(format!(r#""{body}":{{"bytes left out":{len}}}"#));
    Bytes::from(format!("{{{}}}", members.join(",")))
}

/// Tells those who look on what passes through one filter.
#[derive(Debug)]
pub struct EventEmitter {
    id: FilterId,
    observers: Vec<Box<dyn Observer>>,
    last: Instant,
    /// Large messages of the server, with their numbers.
    large: BTreeMap<Option<StreamId>, (Large, u64)>,
    /// Those that have passed in events, until their clients have been told all of them.
    passed: BTreeMap<Option<StreamId>, Bytes>,
    /// Large messages to clients, and whether they are told in events.
    told: BTreeMap<StreamId, (Large, bool)>,
    /// Streams whose client was given something and has not taken it yet.
    unwritten: BTreeSet<StreamId>,
    /// Of which that has been told.
    waits: BTreeSet<StreamId>,
}

/// What of an event is a message: its client reads no more of it.
fn unframed(text: Bytes) -> Bytes {
    let mut events = Events::new(usize::MAX);
    events.push(text.clone());
    match events.next() {
        Some(Frame::Event(event)) => event.data().unwrap_or(text),
        _ => text,
    }
}

/// A command about a stream; the first is not named.
fn about(command: &str, stream: StreamId) -> String {
    if stream.0 == 0 { command.to_owned() } else { format!("{command} {}", stream.0) }
}

const fn stream_of(origin: Origin) -> Option<StreamId> {
    match origin {
        Origin::Shared => None,
        Origin::Stream(stream) => Some(stream),
    }
}

impl EventEmitter {
    /// Tells `observers`, from `start` on; `None` if there are none.
    pub fn new(id: FilterId, start: Instant, observers: Vec<Box<dyn Observer>>) -> Option<Self> {
        let emitter = Self {
            id,
            observers,
            last: start,
            large: BTreeMap::new(),
            passed: BTreeMap::new(),
            told: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            waits: BTreeSet::new(),
        };
        (!emitter.observers.is_empty()).then_some(emitter)
    }

    /// Which filter this is.
    pub fn filter_id(&self) -> FilterId {
        self.id
    }

    fn put(&mut self, at: Instant, kind: EventKind) {
        self.last = self.last.max(at);
        let event = Event { at: self.last, kind };
        self.observers.iter_mut().for_each(|observer| observer.see(&event));
    }

    /// Something comes in while clients still take what they were told.
    fn input(&mut self, at: Instant, kind: EventKind) {
        let wait: Vec<StreamId> = self.unwritten.difference(&self.waits).copied().collect();
        for stream in wait {
            self.waits.insert(stream);
            self.put(at, EventKind::Command(about("waits", stream)));
        }
        self.put(at, kind);
    }

    /// Something happens to the connection.
    pub fn command(&mut self, at: Option<Instant>, command: impl Into<String>) {
        let command = command.into();
        self.input(at.unwrap_or(self.last), EventKind::Command(command));
    }

    /// A client says something.
    pub fn client(&mut self, at: Instant, stream: StreamId, text: &Bytes) {
        self.input(at, EventKind::Client(stream, text.clone()));
    }

    /// What a client said before is told of once more: the server has refused it.
    pub fn withdrawn(&mut self, at: Instant, text: &Bytes) {
        self.input(at, EventKind::Refused(text.clone()));
    }

    /// Something is done with a message of the server that is not said here: `command`.
    pub fn aside(&mut self, at: Instant, command: &str, origin: Option<Origin>, text: &Bytes) {
        let stream = origin.and_then(stream_of);
        self.input(at, EventKind::Aside(command.to_owned(), stream, text.clone()));
    }

    /// Another filter of the conversation hands its calls over.
    pub fn takes_over(&mut self, at: Instant, from: FilterId) {
        self.input(at, EventKind::TakesOver(from.filter));
    }

    /// A stream was to say what is due, and nothing came of it.
    pub fn looked(&mut self, at: Instant, stream: StreamId) {
        self.input(at, EventKind::Command(about("looks", stream)));
    }

    /// The same, of which only the envelope was read.
    pub fn client_passed(&mut self, at: Instant, stream: StreamId, scan: &Scan) {
        self.input(at, EventKind::Command("large".to_owned()));
        self.put(at, EventKind::Client(stream, stand_in(scan, 0)));
    }

    /// The server gets this.
    pub fn to_server(&mut self, text: Bytes) {
        self.put(self.last, EventKind::ToServer(text));
    }

    /// The server says something: its messages have numbers from `number` on.
    pub fn server(&mut self, at: Instant, origin: Origin, text: &Bytes, number: u64) {
        self.input(at, EventKind::Server(stream_of(origin), text.clone(), number));
    }

    /// It has said something on another stream that is told on this one.
    pub fn moved(&mut self, at: Instant, origin: Origin, text: &Bytes, number: u64) {
        self.command(Some(at), "moved");
        self.server(at, origin, text, number);
    }

    /// It begins to say something large, which has this number.
    pub fn server_passing(&mut self, origin: Origin, number: u64) {
        self.large.insert(stream_of(origin), (Large::default(), number));
    }

    /// That is no message.
    pub fn server_passing_noise(&mut self, origin: Origin) {
        if let Some((large, _)) = self.large.get_mut(&stream_of(origin)) {
            large.is_noise = true;
        }
    }

    /// Nothing more comes: what is passing has broken off.
    pub fn breaks(&mut self, at: Instant, why: &str) {
        while let Some((stream, _)) = self.large.first_key_value() {
            let origin = stream.map_or(Origin::Shared, Origin::Stream);
            self.server_passed(at, origin, Some(why));
        }
    }

    /// It says a piece of that.
    pub fn server_piece(&mut self, origin: Origin, piece: &[u8]) {
        if let Some((large, _)) = self.large.get_mut(&stream_of(origin)) {
            large.feed(piece);
        }
    }

    /// That was all of it; `broken`: why there is no more.
    pub fn server_passed(&mut self, at: Instant, origin: Origin, broken: Option<&str>) {
        let stream = stream_of(origin);
        let Some((large, number)) = self.large.remove(&stream) else { return };
        let why = broken.map(|why| format!(" broken {why}")).unwrap_or_default();
        self.input(at, EventKind::Command(format!("large{why}")));
        let text = large.stand_in();
        if self.passed.len() >= PASSED_MAX {
            self.passed.clear();
        }
        self.passed.insert(stream, text.clone());
        self.put(at, EventKind::Server(stream, text, number));
    }

    /// A line of its standard error is heard.
    pub fn overheard(&mut self, at: Instant, line: &str) {
        self.input(at, EventKind::Overheard(line.to_owned()));
    }

    /// It wrote something that is no message.
    pub fn noise(&mut self, text: &Bytes) {
        self.put(self.last, EventKind::Noise(text.clone()));
    }

    /// A client is told something.
    pub fn told(&mut self, at: Instant, stream: StreamId, transmit: &Transmit) {
        self.unwritten.insert(stream);
        let text = transmit.payload.to_bytes();
        let is_json = matches!(text.trim_ascii_start().first(), Some(b'{' | b'['));
        match transmit.part {
            Fragment::Whole if is_json || *transmit.payload.form() != Form::AsCame => {
                self.put(at, EventKind::Told(stream, text));
            }
            Fragment::Whole => self.put(at, EventKind::Told(stream, unframed(text))),
            Fragment::Piece => {
                let (large, _) =
                    self.told.entry(stream).or_insert_with(|| (Large::default(), !is_json));
                large.feed(&text);
            }
            Fragment::End => {
                let (mut large, framed) = self.told.remove(&stream).unwrap_or_default();
                large.feed(&text);
                let own = self.passed.remove(&Some(stream)).or_else(|| self.passed.remove(&None));
                let same = own.filter(|_| framed);
                self.put(at, EventKind::Told(stream, same.unwrap_or_else(|| large.stand_in())));
            }
        }
    }

    /// A client has taken it.
    pub fn written(&mut self, at: Instant, stream: StreamId) {
        let late = at.saturating_duration_since(self.last) >= APART;
        let waits = self.waits.remove(&stream);
        if self.unwritten.remove(&stream) && (waits || late) {
            self.put(at, EventKind::Command(about("written", stream)));
        }
    }

    /// A stream of a client is there.
    pub fn opened(&mut self, at: Instant, stream: StreamId, kind: StreamKind, pacing: Pacing) {
        let kind = if kind == StreamKind::Shared { "shared" } else { "exchange" };
        let paced = if pacing == Pacing::IMMEDIATE { "" } else { " paced" };
        self.command(Some(at), format!("opens {} {kind}{paced}", stream.0));
    }

    /// It is not any more.
    pub fn closed(&mut self, at: Instant, stream: StreamId, cancels: bool) {
        self.unwritten.remove(&stream);
        self.waits.remove(&stream);
        self.large.remove(&Some(stream));
        self.passed.remove(&Some(stream));
        self.told.remove(&stream);
        let cancels = if cancels { " cancels" } else { "" };
        self.command(Some(at), format!("closes {}{cancels}", stream.0));
    }

    /// Something was decided.
    pub fn decided(&mut self, record: &FilterEvent) {
        self.put(self.last, EventKind::Decided(record.clone()));
    }

    /// Says what is known of a call that [`EventEmitter::decided`] will tell of.
    pub fn knows(&mut self, call: &Opened<'_>) {
        self.observers.iter_mut().for_each(|observer| observer.know(call));
    }

    /// Nothing more was decided of what has happened.
    pub fn settled(&mut self) {
        self.observers.iter_mut().for_each(|observer| observer.settle());
    }
}
