//! `--record DIR`: conversations as they pass, one file each. Recording neither delays nor changes what
//! passes: events go into a bounded queue, a thread writes them, and what finds no room is left out.

mod folder;
mod masking;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::jsonrpc::{Kind, Scan};
use crate::progress::{Origin, Part, Policy, Reason, Record, StreamId, Summary, Transmit, Verdict};

pub use writer::FILE_MAX;

/// Events that wait to be written: a second of a very busy server.
const EVENTS_MAX: usize = 8192;

/// Bytes of messages that wait to be written: more than the two longest lines that are held.
const BYTES_MAX: usize = 16 << 20;

/// How long the last events may take to be written at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is recorded.
#[derive(Debug)]
enum What {
    /// Something that happened to the connection.
    Command(String),
    Client(StreamId, Bytes),
    ToServer(Bytes),
    Server(Option<StreamId>, Bytes),
    Overheard(String),
    Told(StreamId, Bytes),
    Noise(Bytes),
    Withheld(Reason),
    Ended(Box<Summary>),
}

impl What {
    fn len(&self) -> usize {
        match self {
            Self::Command(text) | Self::Overheard(text) => text.len(),
            Self::Client(_, text)
            | Self::ToServer(text)
            | Self::Server(_, text)
            | Self::Told(_, text)
            | Self::Noise(text) => text.len(),
            Self::Withheld(_) | Self::Ended(_) => 0,
        }
    }
}

#[derive(Debug)]
struct Event {
    at: Instant,
    /// Events that were left out before this one.
    left_out: u64,
    what: What,
}

/// What the recorder and its thread share.
#[derive(Debug, Default)]
struct Shared {
    /// Bytes that wait.
    waiting: AtomicUsize,
    /// Events that were left out and have not been told of.
    left_out: AtomicU64,
}

/// Where conversations are recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The folder.
    pub folder: PathBuf,
    /// Secrets are kept as they are.
    pub secrets: bool,
}

/// Waits for the thread that writes.
#[must_use]
#[derive(Debug)]
pub struct Ending(Receiver<()>);

impl Ending {
    /// Waits until all is written, but not for ever. The recorder must be gone.
    pub fn wait(self) {
        if self.0.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the end of the recording is not written: the disk is too slow");
        }
    }
}

impl Recording {
    /// Begins the record of a conversation.
    ///
    /// # Errors
    /// If no file can be made.
    pub fn begin(&self, policy: &Policy) -> io::Result<(Recorder, Ending)> {
        let file = folder::begin(&self.folder)?;
        let (events, received) = sync_channel(EVENTS_MAX);
        let (over, ended) = channel();
        let shared = Arc::<Shared>::default();
        let start = Instant::now();
        let masks = (!self.secrets).then(|| policy.call.masks.clone());
        let writer = writer::Writer::new(file, masks, start, Arc::clone(&shared));
        let written = crate::transcript::settings::write(policy);
        thread::Builder::new().name("record".to_owned()).spawn(move || {
            writer.run(&written, &received);
            drop(over);
        })?;
        let recorder = Recorder {
            events,
            shared,
            last: start,
            large: BTreeMap::new(),
            told: BTreeMap::new(),
            unwritten: false,
            waits: false,
        };
        Ok((recorder, Ending(ended)))
    }
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

/// Takes what passes through one filter.
#[derive(Debug)]
pub struct Recorder {
    events: SyncSender<Event>,
    shared: Arc<Shared>,
    last: Instant,
    /// Large messages of the server.
    large: BTreeMap<Option<StreamId>, Large>,
    /// Large messages to clients.
    told: BTreeMap<StreamId, Large>,
    /// Something was given to the client and it has not taken it yet.
    unwritten: bool,
    /// That has been told.
    waits: bool,
}

const fn stream_of(origin: Origin) -> Option<StreamId> {
    match origin {
        Origin::Wire => None,
        Origin::Stream(stream) => Some(stream),
    }
}

impl Recorder {
    fn put(&mut self, at: Instant, what: What) {
        self.last = self.last.max(at);
        let len = what.len();
        let waiting = self.shared.waiting.fetch_add(len, Ordering::Relaxed);
        let left_out = self.shared.left_out.swap(0, Ordering::Relaxed);
        let event = Event { at: self.last, left_out, what };
        if waiting.saturating_add(len) > BYTES_MAX || self.events.try_send(event).is_err() {
            self.shared.waiting.fetch_sub(len, Ordering::Relaxed);
            self.shared.left_out.fetch_add(left_out + 1, Ordering::Relaxed);
        }
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

    /// The server says something.
    pub fn server(&mut self, at: Instant, origin: Origin, text: &Bytes) {
        self.input(at, What::Server(stream_of(origin), text.clone()));
    }

    /// It says a piece of something large.
    pub fn server_piece(&mut self, origin: Origin, piece: &[u8]) {
        self.large.entry(stream_of(origin)).or_default().feed(piece);
    }

    /// That was all of it; `broken`: why there is no more.
    pub fn server_passed(&mut self, at: Instant, origin: Origin, broken: Option<&str>) {
        let stream = stream_of(origin);
        let Some(large) = self.large.remove(&stream) else { return };
        let why = broken.map(|why| format!(" broken {why}")).unwrap_or_default();
        self.input(at, What::Command(format!("large{why}")));
        self.put(at, What::Server(stream, large.stand_in()));
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
        let late = at.saturating_duration_since(self.last) >= writer::APART;
        let waits = std::mem::take(&mut self.waits);
        if std::mem::take(&mut self.unwritten) && (waits || late) {
            self.put(at, What::Command("written".to_owned()));
        }
    }

    /// Something was decided.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Message { verdict: Verdict::Withheld(Reason::Noise), .. } => {}
            Record::Message { verdict: Verdict::Withheld(reason), .. } => {
                self.put(self.last, What::Withheld(*reason));
            }
            Record::Call(call) => self.put(self.last, What::Ended(call.clone())),
            Record::Message { .. } | Record::Opened(_) | Record::Beat(_) => {}
        }
    }
}
