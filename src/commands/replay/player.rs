//! A player feeds the recorded events of one filter to a new filter, by the clock of the recording.

mod command;

pub(super) use command::written;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::observe::transcript::{At, Line, escape, read_time, summary, unescape};
use crate::progress::dialect::TextSource;
use crate::progress::durations::Learned;
use crate::progress::{
    Disposition, Filter, FilterEvent, Fragment, Origin, Pacing, Policy, Reason, StreamId,
    StreamKind, Verdict,
};
use crate::protocol::jsonrpc::{Message, Scan};
use crate::protocol::mcp::Revision;
use crate::relay::{SOLE_STREAM, UPSTREAM_STREAMS};

/// A recording tells when something was done, a little after it was due. What is due by more than this is
/// done without it being told.
const SLACK: Duration = Duration::from_millis(100);

/// What came out, as lines of a transcript.
pub(super) type Out = Vec<String>;

/// What a filter is responsible for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// One client on the only stream.
    Wire,
    /// Clients that open their streams themselves; whether they are strangers to each other.
    Open(bool),
    /// One POST.
    Exchange(Option<Revision>),
    /// One POST of a session.
    Request(Option<Revision>),
    /// What the streams of a session share.
    Session,
}

impl Begins {
    /// What a line says that tells of it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (what, date) = text.split_once(' ').unwrap_or((text, ""));
        let revision = Revision::from_date(date);
        Ok(match what {
            "open" => Self::Open(false),
            "shared" => Self::Open(true),
            "exchange" => Self::Exchange(revision),
            "request" => Self::Request(revision),
            "session" => Self::Session,
            _ => {
                let expected = "open, shared, exchange, request or session is expected";
                return Err(format!("nothing begins as {what:?}; {expected}"));
            }
        })
    }
}

/// A filter, its clients, and a clock that stands still unless told otherwise.
pub(super) struct Player {
    filter: Filter,
    learned: Arc<Learned>,
    pacing: Pacing,
    /// There is one client, on one stream.
    is_wire: bool,
    /// Strangers share the server.
    is_shared: bool,
    start: Instant,
    /// The time of the recording.
    clock: Instant,
    /// The time of the filter: what is done a little early is done when it is due.
    now: Instant,
    /// Time does not pass over what is due: settings are others than those of the recording.
    pub(super) eager: bool,
    streams: BTreeSet<StreamId>,
    /// What a client said last.
    asked: Option<(StreamId, Message)>,
    /// What the server said last.
    said: Option<(Origin, Message)>,
    /// What is done with the next message, if it is not just said.
    aside: Option<String>,
    /// The next message passes in pieces; why it broke off, if it did.
    large: Option<Option<String>>,
    /// A message that its client gets as it is.
    passes: Option<String>,
    /// Streams whose client has not taken yet what it was told.
    unwritten: BTreeSet<StreamId>,
    waits: BTreeSet<StreamId>,
    out: Out,
    messages: u64,
    /// What became of messages of the server, by number.
    pub(super) verdicts: BTreeMap<u64, Verdict>,
    /// Heartbeats.
    pub(super) beats: u64,
}

impl Player {
    pub(super) fn new(policy: &Arc<Policy>, begins: Begins, start: Instant) -> Self {
        let (pacing, learned) = (policy.pacing, Arc::clone(&policy.learned));
        let mut policy = Arc::clone(policy);
        if begins == Begins::Open(true) {
            Arc::make_mut(&mut policy).remap = true;
        }
        let mut filter = match begins {
            Begins::Request(_) => Filter::of_request(policy),
            Begins::Session => Filter::of_session(policy),
            _ => Filter::new(policy),
        };
        if let Begins::Request(revision) | Begins::Exchange(revision) = begins {
            filter.open_stream(SOLE_STREAM, StreamKind::Exchange, Pacing::IMMEDIATE);
            filter.agreed_on(revision);
        }
        if begins == Begins::Wire {
            filter.open_stream(SOLE_STREAM, StreamKind::Shared, pacing);
        }
        Self {
            filter,
            learned,
            pacing,
            is_wire: begins == Begins::Wire,
            is_shared: begins == Begins::Open(true),
            start,
            clock: start,
            now: start,
            eager: false,
            streams: BTreeSet::from([SOLE_STREAM]),
            asked: None,
            said: None,
            aside: None,
            large: None,
            passes: None,
            unwritten: BTreeSet::new(),
            waits: BTreeSet::new(),
            out: Out::new(),
            messages: 0,
            verdicts: BTreeMap::new(),
            beats: 0,
        }
    }

    /// What came out since it was asked last.
    pub(super) fn take(&mut self) -> Out {
        std::mem::take(&mut self.out)
    }

    /// The time that has passed.
    pub(super) fn time(&self) -> Duration {
        self.clock.saturating_duration_since(self.start)
    }

    /// Something comes in. Answers with the numbers of the server's messages in it.
    ///
    /// # Errors
    /// What is expected instead.
    pub(super) fn input(&mut self, line: &Line<'_>) -> Result<Range<u64>, String> {
        let before = self.filter.messages();
        match line.sign {
            b'>' => self.client_says(line)?,
            b'<' => self.server_says(line)?,
            b'2' => {
                let text = unescape(line.text)?;
                let line = String::from_utf8_lossy(&text);
                self.filter.overheard(self.now, TextSource::Stderr, &line);
            }
            _ => self.command(&String::from_utf8_lossy(&unescape(line.text)?))?,
        }
        self.records();
        self.messages = self.filter.messages();
        Ok(before + 1..self.messages + 1)
    }

    fn client_says(&mut self, line: &Line<'_>) -> Result<(), String> {
        let stream = match line.at {
            At::Only => SOLE_STREAM,
            At::Nowhere => StreamId::NOWHERE,
            At::Stream(stream) | At::Client(stream) => StreamId(stream),
        };
        if self.is_wire && stream != SOLE_STREAM {
            return Err("a client on its only stream is expected".to_owned());
        }
        let message = Message::parse(Bytes::from(unescape(line.text)?.into_owned()));
        if self.large.take().is_some() {
            let mut scan = Scan::default();
            scan.feed(message.raw());
            self.filter.client_passed(self.now, stream, &scan);
            return Ok(());
        }
        if self.aside.take().is_some_and(|aside| aside == "refused") {
            self.filter.withdrawn(self.now, &message);
            return Ok(());
        }
        let sent = self.filter.client_message(self.now, stream, &message).to_bytes();
        if sent.is_empty() {
            self.out.push("^ nothing".to_owned());
        } else if sent != *message.raw() {
            self.out.push(format!("^ {}", escape(&sent)));
        }
        self.asked = Some((stream, message));
        Ok(())
    }

    fn server_says(&mut self, line: &Line<'_>) -> Result<(), String> {
        let origin = match line.at {
            At::Only | At::Nowhere | At::Stream(0) => Origin::Shared,
            At::Stream(stream) => Origin::Stream(upstream(stream)),
            At::Client(stream) => Origin::Stream(StreamId(stream)),
        };
        let text = Bytes::from(unescape(line.text)?.into_owned());
        let now = self.now;
        if let Some(broken) = self.large.take() {
            let whole = 0..text.len();
            self.filter.server_passing(now, origin, text, whole);
            match broken {
                Some(why) => self.filter.server_broke_off(now, origin, &why),
                None => self.filter.server_passed(now, origin),
            }
            return Ok(());
        }
        let message = Message::parse(text);
        match self.aside.take().as_deref() {
            None => {
                let fate = self.filter.server_message(now, origin, &message);
                if let Disposition::NotAMessage(noise) = fate {
                    let text = noise.strip_suffix(b"\n").unwrap_or(&noise);
                    self.out.push(format!("e {}", escape(text)));
                }
            }
            Some("settled") => self.filter.settled(now, &message),
            Some("whose") => drop(self.filter.stream_meant(origin, &message, false)),
            Some("learns") => self.filter.learn_from(origin, &message),
            Some(_) => drop(self.filter.server_message_here(now, origin, &message)),
        }
        self.said = Some((origin, message));
        Ok(())
    }

    /// What was told has been taken, unless a client is said to wait, or it is said of this stream later.
    pub(super) fn written(&mut self, later: &BTreeSet<StreamId>) {
        let all = std::mem::take(&mut self.unwritten);
        for stream in all {
            if self.waits.contains(&stream) || later.contains(&stream) {
                self.unwritten.insert(stream);
            } else {
                self.filter.written(self.now, stream);
                self.records();
            }
        }
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// If that is no time.
    pub(super) fn pass(&mut self, text: &str) -> Result<(), String> {
        let end = self.clock + read_time(text)?;
        while self.eager
            && self.waits.is_empty()
            && let Some(due) = self.filter.poll_timeout()
            && due + SLACK <= end
        {
            self.now = self.now.max(due);
            if !self.drain() {
                break;
            }
        }
        self.clock = end;
        self.now = self.now.max(end);
        Ok(())
    }

    /// The same for a transcript of tests: all comes out when it is due.
    ///
    /// # Errors
    /// If that is no time.
    pub(super) fn pass_exactly(&mut self, text: &str) -> Result<(), String> {
        let begin = self.now;
        let end = begin + read_time(text)?;
        while let Some(due) = self.filter.poll_timeout()
            && due <= end
        {
            self.now = self.now.max(due);
            let before = self.out.len();
            self.drain();
            if self.out.len() > before && self.now > begin {
                self.out.insert(before, format!("@ {:?}", self.now - begin));
            }
        }
        (self.now, self.clock) = (end, end);
        self.drain();
        Ok(())
    }

    /// A client is told something that was recorded at this time.
    pub(super) fn tell(&mut self, at: At) {
        if let Some(text) = self.passes.take() {
            self.unwritten.insert(SOLE_STREAM);
            return self.out.push(text);
        }
        match at {
            At::Stream(stream) => self.look(StreamId(stream), SLACK),
            _ => self.look(SOLE_STREAM, SLACK),
        }
    }

    /// Tells what is due on a stream, or will be so soon.
    fn look(&mut self, stream: StreamId, soon: Duration) {
        if !self.poll(stream)
            && let Some(due) = self.filter.poll_stream_timeout(stream)
            && due <= self.now + soon
        {
            self.now = self.now.max(due);
            self.poll(stream);
        }
    }

    /// The recording of it is over: a client on its only stream has been told all that there was.
    pub(super) fn end(&mut self) {
        if self.is_wire {
            self.written(&BTreeSet::new());
            self.drain();
        }
    }

    /// All that can be told is told, one message after the other; whether there was any.
    pub(super) fn drain(&mut self) -> bool {
        let mut any = false;
        self.out.extend(self.passes.take());
        let streams: Vec<StreamId> = self.streams.iter().copied().collect();
        for stream in streams {
            while self.poll(stream) {
                any = true;
                self.written(&BTreeSet::new());
            }
        }
        any
    }

    /// One message to a client; whether there was one.
    pub(super) fn poll(&mut self, stream: StreamId) -> bool {
        let mut pieces: Vec<u8> = Vec::new();
        let mut any = false;
        while let Some(transmit) = self.filter.poll_transmit(self.now, stream) {
            any = true;
            pieces.extend_from_slice(&transmit.payload.to_bytes());
            if transmit.part != Fragment::Piece {
                break;
            }
        }
        if any {
            self.unwritten.insert(stream);
            let text = escape(pieces.strip_suffix(b"\n").unwrap_or(&pieces));
            self.out.push(match stream {
                SOLE_STREAM => format!("= {text}"),
                StreamId(number) => format!("={number} {text}"),
            });
        }
        self.records();
        any
    }

    fn records(&mut self) {
        while let Some(record) = self.filter.poll_record() {
            match record {
                FilterEvent::Message { number, verdict, .. } => {
                    self.verdicts.insert(number, verdict);
                    if let Verdict::Withheld(reason) = verdict
                        && reason != Reason::Noise
                    {
                        self.out.push(format!("x {}", reason.name()));
                    }
                }
                FilterEvent::Call(call) => {
                    self.learned.learn(&call);
                    self.out.push(format!("~ {}", summary(&call)));
                }
                FilterEvent::Heartbeat(_) => self.beats += 1,
                FilterEvent::Opened(_) | FilterEvent::TakenOver(_) => {}
            }
        }
        while let Some(payload) = self.filter.poll_to_server() {
            self.out.push(format!("^ {}", escape(&payload.to_bytes())));
        }
    }
}

fn upstream(stream: u64) -> StreamId {
    StreamId(UPSTREAM_STREAMS.saturating_add(stream.saturating_sub(1)))
}
