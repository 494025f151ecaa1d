//! A filter with a clock that stands still unless told otherwise, and everything that came out of it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost_core::progress::dialect::TextSource;
use milepost_core::progress::{
    Disposition, Filter, FilterEvent, Fragment, LargeRepairs, Origin, Outcome, Pacing, Policy,
    StreamId, StreamKind, StreamPacing, Transmit, Verdict,
};
use milepost_core::protocol::jsonrpc::{Kind, Message, Scan};

/// An answer as its client reads it from a file, in pieces of at most `piece` bytes.
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

/// One client on one wire, played at once or with a client that does not read for a while.
pub(crate) struct Rig {
    pub(crate) filter: Filter,
    pub(crate) policy: Policy,
    /// The messages that the client was given, in order.
    pub(crate) told: Vec<Transmit>,
    /// The text that went to standard error.
    pub(crate) noise: Vec<Bytes>,
    /// Numbers and verdicts of the server's messages, in the order in which they were reached.
    pub(crate) verdicts: Vec<(u64, Verdict)>,
    /// How the calls ended.
    pub(crate) ended: Vec<Outcome>,
    /// How many messages the server has sent, each element of a batch counted.
    pub(crate) messages: u64,
    /// The client does not read.
    pub(crate) stalled: bool,
    /// Everything that may be written goes out in one write.
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

    /// The client says this; what the server gets of it.
    pub(crate) fn client(&mut self, text: &[u8]) -> Bytes {
        let message = Message::parse(Bytes::copy_from_slice(text));
        let payload = self.filter.client_message(self.now(), WIRE, &message);
        self.drain();
        payload.to_bytes()
    }

    /// The server says this.
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

    /// The server writes this line on its standard error.
    pub(crate) fn errors(&mut self, line: &str) {
        let now = self.now();
        self.filter.intake_mut().text_line(now, TextSource::Stderr, line);
        self.drain();
    }

    /// The server says this, too long to be held, in these pieces.
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

    /// The server begins a message that is too long to be held.
    pub(crate) fn begin(&mut self, head: &[u8]) {
        self.messages += 1;
        let head = Bytes::copy_from_slice(head);
        let text = 0..head.len();
        let now = self.now();
        let fate = self.filter.intake_mut().begin_large(now, Origin::Shared, head, text);
        self.note(fate);
        self.drain();
    }

    /// More of it.
    pub(crate) fn piece(&mut self, piece: &[u8]) {
        let piece = Bytes::copy_from_slice(piece);
        let text = 0..piece.len();
        let now = self.now();
        let fate = self.filter.intake_mut().large_piece(now, Origin::Shared, piece, text);
        self.note(fate);
        self.drain();
    }

    /// It is over.
    pub(crate) fn over(&mut self) {
        let now = self.now();
        self.filter.intake_mut().finish_large(now, Origin::Shared);
        self.drain();
    }

    /// The server goes away.
    pub(crate) fn gone(&mut self) {
        self.filter.server_gone(self.now(), "the server has exited", None);
        self.drain();
    }

    /// The client goes away, by `Filter::close_stream` or `Filter::cancel_stream`.
    pub(crate) fn close(&mut self, close: fn(&mut Filter, Instant, StreamId)) {
        let now = self.now();
        close(&mut self.filter, now, WIRE);
        self.drain();
    }

    /// Lets time pass, stopping wherever the filter wants to be asked.
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

    /// The client reads again.
    pub(crate) fn resume(&mut self) {
        self.stalled = false;
        self.drain();
    }

    /// All that was told, piece after piece.
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

/// Whether each message ended in one verdict. The filter alone decides how many messages one line has; a message
/// without a verdict leaves a gap in the numbers, or too few of them.
#[track_caller]
pub(crate) fn assert_one_verdict_each(rig: &Rig) {
    let mut numbers: Vec<u64> = rig.verdicts.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    let count = numbers.len() as u64;
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "{:?}", rig.verdicts);
    assert!(count >= rig.messages, "{} messages came: {:?}", rig.messages, rig.verdicts);
}

/// No pacing, no heartbeats.
pub(crate) fn bare(mut policy: Policy) -> Policy {
    policy.call.pacing = Pacing::IMMEDIATE;
    policy.call.heartbeat.enabled = false;
    policy
}

/// Whether pieces of one message stand together in what was told.
#[track_caller]
pub(crate) fn assert_pieces_stand_together(told: &[Transmit]) {
    let mut open = false;
    for transmit in told {
        assert!(!open || transmit.part != Fragment::Whole, "within a message: {transmit:?}");
        open = transmit.part == Fragment::Piece;
    }
}
