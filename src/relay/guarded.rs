//! The filter of one connection, which fails open: a panic in it turns that connection into plain
//! forwarding with progress withheld, and harms no other.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use bytes::Bytes;

use crate::jsonrpc::{Kind, Message, Scan};
use crate::progress::dialect::Dialect;
use crate::progress::{
    Fate, Filter, Origin, Part, Payload, Policy, QUEUE_MAX, Reason, Record, StreamId, StreamKind,
    Transmit, Verdict,
};

/// The only client stream of a stdio connection.
const WIRE: StreamId = StreamId(0);

pub(super) struct Guarded {
    filter: Filter,
    dialects: Vec<Dialect>,
    /// Once the filter has failed: what is to be written, as it came.
    open: Option<VecDeque<Transmit>>,
    records: VecDeque<Record>,
    numbers: u64,
    /// A large message is passing that must be withheld.
    withholding: bool,
}

impl Guarded {
    pub(super) fn new(policy: Policy) -> Self {
        let (pacing, dialects) = (policy.pacing, policy.dialects.clone());
        let mut filter = Filter::new(policy);
        filter.open_stream(WIRE, StreamKind::Shared, pacing);
        Self {
            filter,
            dialects,
            open: None,
            records: VecDeque::new(),
            numbers: 0,
            withholding: false,
        }
    }

    /// Asks the filter; `None` if it has failed, now or before.
    fn ask<T>(&mut self, question: impl FnOnce(&mut Filter) -> T) -> Option<T> {
        if self.open.is_some() {
            return None;
        }
        let filter = &mut self.filter;
        match catch_unwind(AssertUnwindSafe(|| question(filter))) {
            Ok(answer) => Some(answer),
            Err(_) => {
                self.fail_open();
                None
            }
        }
    }

    fn fail_open(&mut self) {
        tracing::error!(
            "the progress filter has failed; this connection goes on without progress \
             (please report the panic above)"
        );
        let filter = &mut self.filter;
        let left = catch_unwind(AssertUnwindSafe(|| filter.salvage()));
        let (queue, at_work) = left.unwrap_or_default();
        self.open = Some(queue.into());
        if let Some(message) = at_work {
            self.forward(Message::parse(message));
        }
    }

    /// Plain forwarding, progress withheld.
    fn forward(&mut self, message: Message) -> Fate {
        if message.kind() == Kind::Noise {
            return Fate::Noise(message.raw().clone());
        }
        let is_batch = message.kind() == Kind::Batch;
        let elements: Vec<Message> =
            if is_batch { message.elements().collect() } else { Vec::new() };
        let progress = self.is_progress(&message) || elements.iter().any(|e| self.is_progress(e));
        if !progress {
            self.push(message.raw().clone(), Part::Whole);
        }
        for element in elements.iter().filter(|_| progress) {
            if !self.is_progress(element) {
                self.push(element.raw().clone(), Part::Whole);
            }
        }
        self.numbers += 1;
        let verdict = if progress && !is_batch {
            Verdict::Withheld(Reason::FailedOpen)
        } else {
            Verdict::Forwarded
        };
        self.records.push_back(Record::Message { number: self.numbers, call: None, verdict });
        Fate::Taken
    }

    fn is_progress(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && message.method().is_some_and(|method| self.claims(&method))
    }

    fn claims(&self, method: &str) -> bool {
        self.dialects.iter().any(|dialect| dialect.claims(method))
    }

    fn push(&mut self, bytes: Bytes, part: Part) {
        if let Some(queue) = &mut self.open {
            queue.push_back(Transmit { payload: bytes.into(), part });
        }
    }

    pub(super) fn client_message(&mut self, now: Instant, message: &Message) -> Payload {
        let answer = self.ask(|filter| filter.client_message(now, WIRE, message));
        answer.unwrap_or_else(|| message.raw().clone().into())
    }

    pub(super) fn client_passed(&mut self, now: Instant, scan: &Scan) {
        self.ask(|filter| filter.client_passed(now, WIRE, scan));
    }

    pub(super) fn server_message(&mut self, now: Instant, line: Bytes) -> Fate {
        let message = Message::parse(line);
        let failed_before = self.open.is_some();
        match self.ask(|filter| filter.server_message(now, Origin::Wire, &message)) {
            Some(fate) => fate,
            // What the filter was at work on when it failed has been salvaged.
            None if !failed_before => Fate::Taken,
            None => self.forward(message),
        }
    }

    pub(super) fn server_passing(&mut self, now: Instant, head: Bytes) -> Fate {
        let mut scan = Scan::default();
        scan.feed(&head);
        // Also for the case that the filter fails while the message passes.
        self.withholding = scan.method().is_some_and(|method| self.claims(&method));
        let piece = head.clone();
        if let Some(fate) = self.ask(|filter| filter.server_passing(now, Origin::Wire, piece)) {
            return fate;
        }
        self.server_piece(now, head)
    }

    pub(super) fn server_piece(&mut self, now: Instant, piece: Bytes) -> Fate {
        let copy = piece.clone();
        if let Some(fate) = self.ask(|filter| filter.server_piece(now, copy)) {
            return fate;
        }
        if !self.withholding {
            self.push(piece, Part::Piece);
        }
        Fate::Taken
    }

    /// A large message is over; one that was broken off gets the line ending it lacks.
    pub(super) fn server_passed(&mut self, now: Instant, terminated: bool) {
        if !terminated {
            self.server_piece(now, Bytes::from_static(b"\n"));
        }
        if self.ask(|filter| filter.server_passed(now)).is_none() && !self.withholding {
            self.push(Bytes::new(), Part::End);
        }
        self.withholding = false;
    }

    pub(super) fn server_gone(&mut self, now: Instant, why: &str) {
        self.ask(|filter| filter.server_gone(now, why));
    }

    pub(super) fn stop_beating(&mut self) {
        self.ask(Filter::stop_beating);
    }

    pub(super) fn client_left(&mut self) {
        self.ask(Filter::client_left);
    }

    pub(super) fn flush(&mut self) {
        self.ask(Filter::flush);
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        match self.ask(|filter| filter.poll_transmit(now, WIRE)) {
            Some(transmit) => transmit,
            None => self.open.as_mut().and_then(VecDeque::pop_front),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.open.is_some() { None } else { self.filter.poll_timeout() }
    }

    pub(super) fn poll_to_server(&mut self) -> Option<Payload> {
        self.ask(Filter::poll_to_server).flatten()
    }

    pub(super) fn poll_record(&mut self) -> Option<Record> {
        let record = if self.open.is_some() { None } else { self.filter.poll_record() };
        record.or_else(|| self.records.pop_front())
    }

    pub(super) fn written(&mut self, now: Instant) {
        self.ask(|filter| filter.written(now, WIRE));
    }

    pub(super) fn is_full(&self) -> bool {
        match &self.open {
            None => self.filter.is_full(),
            Some(queue) => {
                queue.iter().map(|transmit| transmit.payload.len()).sum::<usize>() >= QUEUE_MAX
            }
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        self.open.as_ref().map_or_else(|| self.filter.is_drained(), VecDeque::is_empty)
    }

    pub(super) fn open_calls(&self) -> usize {
        if self.open.is_some() { 0 } else { self.filter.open_calls() }
    }
}
