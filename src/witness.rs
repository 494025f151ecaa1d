//! What passes through one filter, and what is decided of it, for those who look on: recordings, operators.
//! Nobody who looks on delays or changes anything.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::jsonrpc::{Kind, Scan};
use crate::progress::{Opened, Origin, Part, Policy, Record, StreamId, Transmit};

/// Times that lie closer together are not told apart. What is due first is told first, so they are exact.
pub const APART: Duration = Duration::from_micros(1);

/// Something that has happened.
#[derive(Debug, Clone)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// What.
    pub what: What,
}

/// What has happened. Messages that passed in pieces are told by small ones in their place.
#[derive(Debug, Clone)]
pub enum What {
    /// Something happened to the connection.
    Command(String),
    /// A client says something.
    Client(StreamId, Bytes),
    /// The server gets something else than what a client said, or something besides.
    ToServer(Bytes),
    /// The server says something: its messages have numbers from this one on.
    Server(Option<StreamId>, Bytes, u64),
    /// A line of its standard error is heard.
    Overheard(String),
    /// A client is told something. What was decided of it follows.
    Told(StreamId, Bytes),
    /// A line that is no message goes to standard error.
    Noise(Bytes),
    /// Something was decided.
    Decided(Record),
}

impl What {
    /// Bytes of the messages in it.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Command(text) | Self::Overheard(text) => text.len(),
            Self::Client(_, text)
            | Self::ToServer(text)
            | Self::Server(_, text, _)
            | Self::Told(_, text)
            | Self::Noise(text) => text.len(),
            Self::Decided(_) => 0,
        }
    }
}

/// Someone who looks on at one conversation.
pub trait Onlooker: Debug + Send {
    /// Something has happened.
    fn see(&mut self, event: &Event);

    /// What is known of a call when it is told to be opened or taken over: before that is told.
    fn know(&mut self, _: &Opened<'_>) {}

    /// Nothing more was decided of what has happened.
    fn settle(&mut self) {}
}

/// What of a conversation one filter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// All of it: a client, or several, on wires of their own.
    Whole,
    /// The requests of one HTTP POST, and what their client is told.
    Exchange,
    /// What clients of an HTTP session are told besides.
    Session,
}

/// Where someone looks on at every conversation.
pub trait Lookout: Debug + Send + Sync {
    /// One begins on this route; `None` if nobody looks on at it.
    fn begin(&self, route: &str, view: View, policy: &Policy) -> Option<Box<dyn Onlooker>>;
}

/// A message that passes in pieces.
#[derive(Debug, Default)]
struct Large {
    scan: Scan,
    len: u64,
}

impl Large {
    fn feed(&mut self, piece: &[u8]) {
        self.scan.feed(piece);
        self.len += piece.len() as u64;
    }

    /// A small message in its place.
    fn stand_in(&self) -> Bytes {
        stand_in(&self.scan, self.len)
    }
}

/// A small message that says of a large one what a filter reads.
fn stand_in(scan: &Scan, len: u64) -> Bytes {
    let mut members = vec![r#""jsonrpc":"2.0""#.to_owned()];
    if let Some(id) = scan.id() {
        members.push(format!(r#""id":{}"#, String::from_utf8_lossy(&id.to_json())));
    }
    if let Some(method) = scan.method() {
        let method = crate::json::quote(&method);
        members.push(format!(r#""method":{}"#, String::from_utf8_lossy(&method)));
    }
    let body = if scan.kind() == Kind::Response { "result" } else { "params" };
    members.push(format!(r#""{body}":{{"bytes left out":{len}}}"#));
    Bytes::from(format!("{{{}}}", members.join(",")))
}

/// Tells those who look on what passes through one filter.
#[derive(Debug)]
pub struct Witness {
    onlookers: Vec<Box<dyn Onlooker>>,
    last: Instant,
    /// Large messages of the server, with their numbers.
    large: BTreeMap<Option<StreamId>, (Large, u64)>,
    /// Large messages to clients.
    told: BTreeMap<StreamId, Large>,
    /// Something was given to the client and it has not taken it yet.
    unwritten: bool,
    /// That has been told.
    waits: bool,
    /// The number of the server's last message.
    number: u64,
}

const fn stream_of(origin: Origin) -> Option<StreamId> {
    match origin {
        Origin::Wire => None,
        Origin::Stream(stream) => Some(stream),
    }
}

impl Witness {
    /// Tells `onlookers`, from `start` on; `None` if there are none.
    pub fn new(start: Instant, onlookers: Vec<Box<dyn Onlooker>>) -> Option<Self> {
        let witness = Self {
            onlookers,
            last: start,
            large: BTreeMap::new(),
            told: BTreeMap::new(),
            unwritten: false,
            waits: false,
            number: 0,
        };
        (!witness.onlookers.is_empty()).then_some(witness)
    }

    fn put(&mut self, at: Instant, what: What) {
        self.last = self.last.max(at);
        let event = Event { at: self.last, what };
        self.onlookers.iter_mut().for_each(|onlooker| onlooker.see(&event));
    }

    /// Something comes in while the client still takes what it was told.
    fn input(&mut self, at: Instant, what: What) {
        if self.unwritten && !std::mem::replace(&mut self.waits, true) {
            self.put(at, What::Command("waits".to_owned()));
        }
        self.put(at, what);
    }

    /// Something happens to the connection.
    pub fn command(&mut self, at: Option<Instant>, command: impl Into<String>) {
        let command = command.into();
        self.input(at.unwrap_or(self.last), What::Command(command));
    }

    /// A client says something.
    pub fn client(&mut self, at: Instant, stream: StreamId, text: &Bytes) {
        self.input(at, What::Client(stream, text.clone()));
    }

    /// The same, of which only the envelope was read.
    pub fn client_passed(&mut self, at: Instant, stream: StreamId, scan: &Scan) {
        self.input(at, What::Command("large".to_owned()));
        self.put(at, What::Client(stream, stand_in(scan, 0)));
    }

    /// The server gets this.
    pub fn to_server(&mut self, text: Bytes) {
        self.put(self.last, What::ToServer(text));
    }

    /// The server says something: its messages have numbers from `number` on.
    pub fn server(&mut self, at: Instant, origin: Origin, text: &Bytes, number: u64) {
        self.number = number;
        self.input(at, What::Server(stream_of(origin), text.clone(), number));
    }

    /// The same, which has been told if it was said to this filter first.
    pub fn server_here(&mut self, at: Instant, origin: Origin, text: &Bytes, number: u64) {
        if self.number != number {
            self.server(at, origin, text, number);
        }
    }

    /// It begins to say something large, which has this number.
    pub fn server_passing(&mut self, origin: Origin, number: u64) {
        self.large.insert(stream_of(origin), (Large::default(), number));
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
        self.input(at, What::Command(format!("large{why}")));
        self.put(at, What::Server(stream, large.stand_in(), number));
    }

    /// A line of its standard error is heard.
    pub fn overheard(&mut self, at: Instant, line: &str) {
        self.input(at, What::Overheard(line.to_owned()));
    }

    /// It wrote something that is no message.
    pub fn noise(&mut self, text: &Bytes) {
        self.put(self.last, What::Noise(text.clone()));
    }

    /// A client is told something.
    pub fn told(&mut self, at: Instant, stream: StreamId, transmit: &Transmit) {
        self.unwritten = true;
        let text = transmit.payload.to_bytes();
        match transmit.part {
            Part::Whole => self.put(at, What::Told(stream, text)),
            Part::Piece => self.told.entry(stream).or_default().feed(&text),
            Part::End => {
                let mut large = self.told.remove(&stream).unwrap_or_default();
                large.feed(&text);
                self.put(at, What::Told(stream, large.stand_in()));
            }
        }
    }

    /// The client has taken it.
    pub fn written(&mut self, at: Instant) {
        let late = at.saturating_duration_since(self.last) >= APART;
        let waits = std::mem::take(&mut self.waits);
        if std::mem::take(&mut self.unwritten) && (waits || late) {
            self.put(at, What::Command("written".to_owned()));
        }
    }

    /// Something was decided.
    pub fn decided(&mut self, record: &Record) {
        self.put(self.last, What::Decided(record.clone()));
    }

    /// Says what is known of a call that [`Witness::decided`] will tell of.
    pub fn knows(&mut self, call: &Opened<'_>) {
        self.onlookers.iter_mut().for_each(|onlooker| onlooker.know(call));
    }

    /// Nothing more was decided of what has happened.
    pub fn settled(&mut self) {
        self.onlookers.iter_mut().for_each(|onlooker| onlooker.settle());
    }
}
