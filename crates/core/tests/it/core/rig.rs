//! A filter with a clock that tests move, and a record of its output.

use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost_core::progress::dialect::TextSource;
use milepost_core::progress::{
    Disposition, Filter, FilterEvent, Fragment, LargeRepairs, Origin, Outcome, Pacing, Policy,
    StreamId, StreamKind, StreamPacing, Transmit, Verdict,
};
use milepost_core::protocol::jsonrpc::{Kind, Message, Scan};

/// Returns an answer as its client reads it from a file, in pieces of at most `piece` bytes.
pub(crate) fn from_file(repairs: &mut LargeRepairs, answer: &str, piece: usize) -> String {
    let mut scan = Scan::default();
    scan.feed(answer.as_bytes());
    let mut told = Vec::new();
    for piece in answer.as_bytes().chunks(piece).chain([&[][..]]) {
        let (bytes, length) = (Bytes::copy_from_slice(piece), piece.len());
        told.extend(repairs.apply(&scan, bytes, 0..length, length == 0).to_bytes());
    }
    String::from_utf8(told).unwrap()
}

/// One client on one connection. The client reads immediately, or does not read for a while.
pub(crate) struct Rig {
    pub(crate) filter: Filter,
    pub(crate) policy: Policy,
    /// The messages that the client got, in order.
    pub(crate) told: Vec<Transmit>,
    /// The text that was written to standard error.
    pub(crate) noise: Vec<Bytes>,
    /// The numbers of the server's messages with their verdicts, in the order of the verdicts.
    pub(crate) verdicts: Vec<(u64, Verdict)>,
    /// How the calls ended.
    pub(crate) ended: Vec<Outcome>,
    /// The number of messages that the server has sent. Each element of a batch counts.
    pub(crate) messages: u64,
    /// Whether the client has stopped reading.
    pub(crate) stalled: bool,
    /// Whether everything that may be written is written together.
    pub(crate) gathered: bool,
    start: Instant,
    now: Duration,
}

const WIRE: StreamId = StreamId(0);

impl Rig {
    pub(crate) fn new(policy: Policy) -> Self {
        let mut filter = Filter::new(policy.clone());
        filter.open_stream(WIRE, StreamKind::Shared, StreamPacing::ByCall);
        Self {
            filter,
            policy,
            told: Vec::new(),
            noise: Vec::new(),
            verdicts: Vec::new(),
            ended: Vec::new(),
            messages: 0,
            stalled: false,
            gathered: false,
            start: Instant::now(),
            now: Duration::ZERO,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.start + self.now
    }

    /// Passes a message of the client to the filter. Returns the bytes for the server.
    pub(crate) fn client(&mut self, text: &[u8]) -> Bytes {
        let message = Message::parse(Bytes::copy_from_slice(text));
        let payload = self.filter.client_message(self.now(), WIRE, &message);
        self.drain();
        payload.to_bytes()
    }

    /// Passes a message of the server to the filter.
    pub(crate) fn server(&mut self, text: &[u8]) {
        let message = Message::parse(Bytes::copy_from_slice(text));
        self.messages += match message.kind() {
            Kind::Batch => message.elements().count() as u64,
            _ => 1,
        };
        let fate = self.filter.server_message(self.now(), Origin::Shared, &message);
        self.note(fate);
        self.drain();
    }

    /// Passes a line of the server's standard error to the filter.
    pub(crate) fn errors(&mut self, line: &str) {
        let now = self.now();
        self.filter.intake_mut().text_line(now, TextSource::Stderr, line);
        self.drain();
    }

    /// Passes a message of the server that is too long to be kept whole to the filter, in these pieces.
    pub(crate) fn server_in_pieces(
        &mut self,
        pieces: &[&[u8]],
        mut between: impl FnMut(&mut Self),
    ) {
        for (index, piece) in pieces.iter().enumerate() {
            if index == 0 {
                self.begin(piece)
            } else {
                self.piece(piece)
            }
            between(self);
        }
        self.over();
    }

    /// Begins a message of the server that is too long to be kept whole.
    pub(crate) fn begin(&mut self, head: &[u8]) {
        self.messages += 1;
        let head = Bytes::copy_from_slice(head);
        let text = 0..head.len();
        let now = self.now();
        let fate = self.filter.intake_mut().begin_large(now, Origin::Shared, head, text);
        self.note(fate);
        self.drain();
    }

    /// Passes another piece of the long message to the filter.
    pub(crate) fn piece(&mut self, piece: &[u8]) {
        let piece = Bytes::copy_from_slice(piece);
        let text = 0..piece.len();
        let now = self.now();
        let fate = self.filter.intake_mut().large_piece(now, Origin::Shared, piece, text);
        self.note(fate);
        self.drain();
    }

    /// Ends the long message.
    pub(crate) fn over(&mut self) {
        let now = self.now();
        self.filter.intake_mut().finish_large(now, Origin::Shared);
        self.drain();
    }

    /// Ends the server.
    pub(crate) fn gone(&mut self) {
        self.filter.server_gone(self.now(), "the server has exited", None);
        self.drain();
    }

    /// Closes the client's stream by `Filter::close_stream` or `Filter::cancel_stream`.
    pub(crate) fn close(&mut self, close: fn(&mut Filter, Instant, StreamId)) {
        let now = self.now();
        close(&mut self.filter, now, WIRE);
        self.drain();
    }

    /// Lets time pass, and calls the filter whenever a timeout asks for that.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while !self.stalled
            && let Some(at) = self.filter.poll_timeout().map(|at| at - self.start)
            && at <= end
        {
            self.now = self.now.max(at);
            self.drain();
        }
        self.now = end;
        self.drain();
    }

    /// Lets the client read again.
    pub(crate) fn resume(&mut self) {
        self.stalled = false;
        self.drain();
    }

    /// Returns everything that the client got, joined.
    pub(crate) fn told_bytes(&self) -> Vec<u8> {
        self.told.iter().flat_map(|transmit| transmit.payload.to_bytes()).collect()
    }

    fn note(&mut self, fate: Disposition) {
        if let Disposition::NotAMessage(bytes) = fate {
            self.noise.push(bytes);
        }
    }

    fn drain(&mut self) {
        while !self.stalled && self.write() {}
        while self.filter.poll_to_server().is_some() {}
        while let Some(record) = self.filter.poll_event() {
            match record {
                FilterEvent::Message { number, verdict, .. } => {
                    self.verdicts.push((number, verdict))
                }
                FilterEvent::Call(call) => self.ended.push(call.outcome),
                FilterEvent::Opened(_)
                | FilterEvent::TakenOver(_)
                | FilterEvent::Heartbeat(_)
                | FilterEvent::Late(_)
                | FilterEvent::Task(_)
                | FilterEvent::Refused(_)
                | FilterEvent::UnansweringError(_) => {}
            }
        }
        let asks = self.filter.poll_timeout().map(|at| at - self.start);
        assert!(
            self.stalled || asks.is_none_or(|at| at > self.now),
            "at {:?} the filter has nothing to say but asks for {asks:?}",
            self.now
        );
    }

    fn write(&mut self) -> bool {
        let mut some = false;
        while let Some(transmit) = self.filter.poll_transmit(self.now(), WIRE) {
            self.told.push(transmit);
            some = true;
            if !self.gathered {
                break;
            }
        }
        if some {
            self.filter.written(self.now(), WIRE);
        }
        some
    }
}

/// Asserts that each message got exactly one verdict. Only the filter decides how many messages a line has, so a
/// missing verdict shows as a gap in the numbers, or as too few numbers.
#[track_caller]
pub(crate) fn assert_one_verdict_each(rig: &Rig) {
    let mut numbers: Vec<u64> = rig.verdicts.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    let count = numbers.len() as u64;
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "{:?}", rig.verdicts);
    assert!(count >= rig.messages, "{} messages came: {:?}", rig.messages, rig.verdicts);
}

/// Turns pacing and heartbeats off.
pub(crate) fn bare(mut policy: Policy) -> Policy {
    policy.call.pacing = Pacing::IMMEDIATE;
    policy.call.heartbeat.enabled = false;
    policy
}

/// Asserts that no other message is between the pieces of a message.
#[track_caller]
pub(crate) fn assert_pieces_stand_together(told: &[Transmit]) {
    let mut open = false;
    for transmit in told {
        assert!(!open || transmit.part != Fragment::Whole, "within a message: {transmit:?}");
        open = transmit.part == Fragment::Piece;
    }
}
