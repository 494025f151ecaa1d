//! Plays a recorded conversation on a filter, by the clock of the recording.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::jsonrpc::Message;
use crate::progress::dialect::Source;
use crate::progress::durations::Learned;
use crate::progress::{
    Fate, Filter, Origin, Part, Policy, Reason, Record, StreamId, StreamKind, Verdict,
};
use crate::relay::{UPSTREAM_STREAMS, WIRE};
use crate::transcript::{Line, escape, read_time, settings, summary, unescape};

/// A recording tells when something was done, a little after it was due. What is due by more than this is
/// done without it being told.
const SLACK: Duration = Duration::from_millis(100);

/// What came out, as lines of a transcript.
pub(super) type Out = Vec<String>;

/// A filter, its client, and a clock that stands still unless told otherwise.
pub(super) struct Player {
    filter: Filter,
    learned: Arc<Learned>,
    start: Instant,
    now: Instant,
    /// What a client said last.
    asked: Option<Message>,
    /// The next message passes in pieces; why it broke off, if it did.
    large: Option<Option<String>>,
    /// The client has not taken yet what it was told.
    unwritten: bool,
    waits: bool,
    out: Out,
    messages: u64,
    /// What became of messages of the server, by number.
    pub(super) verdicts: BTreeMap<u64, Verdict>,
}

impl Player {
    pub(super) fn new(policy: Policy) -> Self {
        let pacing = policy.pacing;
        let learned = Arc::clone(&policy.learned);
        let mut filter = Filter::new(policy);
        filter.open_stream(WIRE, StreamKind::Shared, pacing);
        let start = Instant::now();
        Self {
            filter,
            learned,
            start,
            now: start,
            asked: None,
            large: None,
            unwritten: false,
            waits: false,
            out: Out::new(),
            messages: 0,
            verdicts: BTreeMap::new(),
        }
    }

    /// What came out since it was asked last.
    pub(super) fn take(&mut self) -> Out {
        std::mem::take(&mut self.out)
    }

    /// The time that has passed.
    pub(super) fn time(&self) -> Duration {
        self.now.saturating_duration_since(self.start)
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
                self.filter.overheard(self.now, Source::Stderr, &line);
            }
            _ => self.command(line.text)?,
        }
        self.records();
        self.messages = self.filter.messages();
        Ok(before + 1..self.messages + 1)
    }

    fn client_says(&mut self, line: &Line<'_>) -> Result<(), String> {
        if line.stream.is_some_and(|stream| stream != WIRE.0) {
            return Err("a client on its only stream is expected".to_owned());
        }
        let message = Message::parse(Bytes::from(unescape(line.text)?.into_owned()));
        if self.large.take().is_some() {
            let mut scan = crate::jsonrpc::Scan::default();
            scan.feed(message.raw());
            self.filter.client_passed(self.now, WIRE, &scan);
            return Ok(());
        }
        let sent = self.filter.client_message(self.now, WIRE, &message).to_bytes();
        if sent.is_empty() {
            self.out.push("^ nothing".to_owned());
        } else if sent != *message.raw() {
            self.out.push(format!("^ {}", escape(&sent)));
        }
        self.asked = Some(message);
        Ok(())
    }

    fn server_says(&mut self, line: &Line<'_>) -> Result<(), String> {
        let origin = match line.stream {
            None | Some(0) => Origin::Wire,
            Some(stream) => Origin::Stream(upstream(stream)),
        };
        let text = Bytes::from(unescape(line.text)?.into_owned());
        if let Some(broken) = self.large.take() {
            let whole = 0..text.len();
            self.filter.server_passing(self.now, origin, text, whole);
            match broken {
                Some(why) => self.filter.server_broke_off(self.now, origin, &why),
                None => self.filter.server_passed(self.now, origin),
            }
        } else if let Fate::Noise(noise) =
            self.filter.server_message(self.now, origin, &Message::parse(text))
        {
            self.out.push(format!("e {}", escape(noise.strip_suffix(b"\n").unwrap_or(&noise))));
        }
        Ok(())
    }

    fn command(&mut self, text: &str) -> Result<(), String> {
        let (command, rest) = text.split_once(' ').unwrap_or((text, ""));
        match command {
            "left" => self.filter.client_left(),
            "gone" => self.filter.server_gone(self.now, rest),
            "settings" => {
                let learned = Arc::clone(&self.learned);
                let mut policy = Policy { learned, ..Policy::default() };
                settings::read(&mut policy, rest)?;
                self.filter.take(&Arc::new(policy));
            }
            "ending" => self.filter.stop_beating(),
            "flush" => self.filter.flush(),
            "slow" => self.filter.client_is_slow(true),
            "quick" => self.filter.client_is_slow(false),
            "large" => {
                self.large = Some(rest.strip_prefix("broken ").map(str::to_owned));
            }
            "on" => {
                let stream = rest.parse().map_err(|_| "the number of a stream is expected")?;
                if let Some(asked) = &self.asked {
                    self.filter.pair(WIRE, asked, upstream(stream));
                }
            }
            "waits" => self.waits = true,
            "written" => {
                self.waits = false;
                self.unwritten = true;
                self.written();
            }
            _ => {
                let expected = "one of left, gone, settings, ending, flush, slow, quick, large, on, waits, \
                                written is expected";
                return Err(format!("{command:?} is not known; {expected}"));
            }
        }
        Ok(())
    }

    /// What was told has been taken, unless the client is said to wait.
    pub(super) fn written(&mut self) {
        if !self.waits && std::mem::take(&mut self.unwritten) {
            self.filter.written(self.now, WIRE);
            self.records();
        }
    }

    /// Lets time pass. What was due long before its end comes out.
    ///
    /// # Errors
    /// If that is no time.
    pub(super) fn pass(&mut self, text: &str) -> Result<(), String> {
        let end = self.now + read_time(text)?;
        while !self.waits
            && let Some(due) = self.filter.poll_timeout()
            && due + SLACK <= end
        {
            self.now = self.now.max(due);
            if !self.poll() {
                break;
            }
            while self.poll() {}
            self.written();
        }
        self.now = end;
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
        self.now = end;
        self.drain();
        Ok(())
    }

    /// The client is told something that was recorded at this time.
    pub(super) fn tell(&mut self) {
        if self.poll() {
            return;
        }
        if let Some(due) = self.filter.poll_timeout()
            && due <= self.now + SLACK
        {
            self.now = self.now.max(due);
            self.poll();
        }
    }

    /// All that can be told is told, one message after the other.
    pub(super) fn drain(&mut self) {
        while self.poll() {
            self.written();
        }
    }

    /// One message to the client; whether there was one.
    pub(super) fn poll(&mut self) -> bool {
        let mut pieces: Vec<u8> = Vec::new();
        let mut any = false;
        while let Some(transmit) = self.filter.poll_transmit(self.now, WIRE) {
            any = true;
            pieces.extend_from_slice(&transmit.payload.to_bytes());
            if transmit.part != Part::Piece {
                break;
            }
        }
        if any {
            self.unwritten = true;
            let text = pieces.strip_suffix(b"\n").unwrap_or(&pieces);
            self.out.push(format!("= {}", escape(text)));
        }
        self.records();
        any
    }

    fn records(&mut self) {
        while let Some(record) = self.filter.poll_record() {
            match record {
                Record::Message { number, verdict, .. } => {
                    self.verdicts.insert(number, verdict);
                    if let Verdict::Withheld(reason) = verdict
                        && reason != Reason::Noise
                    {
                        self.out.push(format!("x {}", reason.name()));
                    }
                }
                Record::Call(call) => {
                    self.learned.learn(&call);
                    self.out.push(format!("~ {}", summary(&call)));
                }
                Record::Opened(_) | Record::TakenOver(_) | Record::Beat(_) => {}
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
