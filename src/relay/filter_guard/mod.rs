//! A filter that fails open: a panic in it turns its connection into plain forwarding with progress
//! withheld, and harms no other. One whose server different clients share cannot do that: nobody would
//! know whose a message is. Then nothing passes any more ([`Guarded::is_lost`]).

mod connection;

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::observe::events::{Place, Witness};
use crate::observe::transcript::settings;
use crate::progress::dialect::Source;
use crate::progress::{
    Fate, Filter, Origin, Part, Payload, Policy, QUEUE_MAX, Reason, Record, StreamId, Transmit,
    Verdict,
};
use crate::protocol::jsonrpc::{Kind, Message, Scan};

/// A [`Filter`] whose panics stay inside.
#[derive(Debug)]
pub struct Guarded {
    filter: Filter,
    policy: Arc<Policy>,
    /// Where the client reads what came on no stream of its own.
    home: StreamId,
    failed: Option<Box<Failed>>,
    witness: Option<Box<Witness>>,
    /// What the witness knows, and nobody else has asked for yet.
    recorded: VecDeque<Record>,
}

/// What goes on once the filter has failed: everything is to be written as it came.
#[derive(Debug, Default)]
struct Failed {
    queue: VecDeque<(StreamId, Transmit)>,
    records: VecDeque<Record>,
    numbers: u64,
    /// A large message is passing that must be withheld.
    withholding: bool,
}

/// Tells of something that was decided, and before that whom it is about.
fn decided(witness: &mut Witness, filter: &Filter, record: &Record) {
    if let Record::Opened(call) | Record::TakenOver(call) = record
        && let Some(opened) = filter.opened(*call)
    {
        witness.knows(&opened);
    }
    witness.decided(record);
}

impl Guarded {
    /// Guards `filter`, whose policy is `policy`.
    pub fn new(filter: Filter, policy: Arc<Policy>, home: StreamId) -> Self {
        Self { filter, policy, home, failed: None, witness: None, recorded: VecDeque::new() }
    }

    /// Tells `witness` all that passes from now on.
    pub fn watched_by(&mut self, witness: Option<Witness>) {
        self.witness = witness.map(Box::new);
    }

    /// Which filter of which conversation this is, if anyone looks on.
    pub fn place(&self) -> Option<Place> {
        self.witness.as_ref().map(|witness| witness.place())
    }

    /// Asks the filter about something that happens to the connection, which those who look on know as `command`.
    pub fn happens<T>(
        &mut self,
        now: Option<Instant>,
        command: impl FnOnce() -> String,
        question: impl FnOnce(&mut Filter) -> T,
    ) -> Option<T> {
        if let Some(witness) = &mut self.witness {
            witness.command(now, command());
        }
        let answer = self.ask(question);
        self.note();
        answer
    }

    /// [`Filter::policy`].
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// [`Filter::take`].
    pub fn take(&mut self, policy: &Arc<Policy>) {
        let taken = self.ask(|filter| {
            filter.take(policy);
            Arc::clone(filter.policy())
        });
        let Some(taken) = taken.filter(|taken| !Arc::ptr_eq(taken, &self.policy)) else { return };
        self.policy = taken;
        if let Some(witness) = &mut self.witness {
            // What is wanted: what of it holds yet follows from what has been said.
            let settings = settings::write(policy).words;
            witness.command(None, format!("settings {settings}").trim_end());
        }
    }

    /// Tells what was decided just now.
    fn note(&mut self) {
        let Some(witness) = &mut self.witness else { return };
        if self.failed.is_some() {
            return;
        }
        while let Some(record) = self.filter.poll_record() {
            decided(witness, &self.filter, &record);
            self.recorded.push_back(record);
        }
        witness.settled();
    }

    /// Asks the filter; `None` if it has failed, now or before.
    pub fn ask<T>(&mut self, question: impl FnOnce(&mut Filter) -> T) -> Option<T> {
        if self.failed.is_some() {
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

    /// Whether the filter has failed and nothing can pass without it: the connection is to be ended.
    pub fn is_lost(&self) -> bool {
        self.failed.is_some() && self.policy.remap
    }

    fn fail_open(&mut self) {
        tracing::error!(
            "the progress filter has failed; this connection goes on without progress \
             (please report the panic above)"
        );
        if let Some(mut witness) = self.witness.take() {
            witness.command(None, "failed");
        }
        let filter = &mut self.filter;
        let left = catch_unwind(AssertUnwindSafe(|| filter.salvage()));
        let (queue, at_work) = left.unwrap_or_default();
        let at_work = at_work.filter(|_| !self.policy.remap);
        self.failed = Some(Box::new(Failed { queue: queue.into(), ..Failed::default() }));
        if let Some((stream, message)) = at_work {
            self.forward(stream.unwrap_or(self.home), &message);
        }
    }

    /// Plain forwarding, progress withheld.
    fn forward(&mut self, stream: StreamId, message: &Message) -> Fate {
        if message.kind() == Kind::Noise {
            return Fate::Noise(message.raw().clone());
        }
        let is_batch = message.kind() == Kind::Batch;
        let elements: Vec<Message> =
            if is_batch { message.elements().collect() } else { Vec::new() };
        let progress = self.is_progress(message) || elements.iter().any(|e| self.is_progress(e));
        let lost = self.policy.remap;
        if !progress && !lost {
            self.push(stream, Payload::of(message), Part::Whole);
        }
        for element in elements.iter().filter(|_| progress && !lost) {
            if !self.is_progress(element) {
                self.push(stream, Payload::of(element), Part::Whole);
            }
        }
        let verdict = if lost || (progress && !is_batch) {
            Verdict::Withheld(Reason::FailedOpen)
        } else {
            Verdict::Forwarded
        };
        if let Some(failed) = &mut self.failed {
            failed.numbers += 1;
            let number = failed.numbers;
            failed.records.push_back(Record::Message { number, call: None, verdict });
        }
        Fate::Taken
    }

    fn is_progress(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && message.method().is_some_and(|method| self.policy.claims(&method))
    }

    fn push(&mut self, stream: StreamId, payload: Payload, part: Part) {
        if let Some(failed) = &mut self.failed {
            failed.queue.push_back((stream, Transmit { payload, part }));
        }
    }

    fn stream_of(&self, origin: Origin) -> StreamId {
        match origin {
            Origin::Wire => self.home,
            Origin::Stream(id) if self.filter.has_stream(id) => id,
            // It pairs with requests that are no longer known.
            Origin::Stream(_) => self.home,
        }
    }

    /// [`Filter::client_message`].
    pub fn client_message(&mut self, now: Instant, stream: StreamId, message: &Message) -> Payload {
        if let Some(witness) = &mut self.witness {
            witness.client(now, stream, message.raw());
        }
        let answer = self.ask(|filter| filter.client_message(now, stream, message));
        if let (Some(witness), Some(payload)) = (&mut self.witness, &answer) {
            let sent = payload.to_bytes();
            if sent != *message.raw() {
                witness.to_server(sent);
            }
        }
        self.note();
        match answer {
            Some(payload) => payload,
            None if self.policy.remap => Payload::default(),
            None => Payload::of(message),
        }
    }

    /// [`Filter::client_passed`].
    pub fn client_passed(&mut self, now: Instant, stream: StreamId, scan: &Scan) {
        if let Some(witness) = &mut self.witness {
            witness.client_passed(now, stream, scan);
        }
        self.ask(|filter| filter.client_passed(now, stream, scan));
        self.note();
    }

    /// [`Filter::overheard`], of its standard error.
    pub fn overheard(&mut self, now: Instant, line: &str) {
        if let Some(witness) = &mut self.witness {
            witness.overheard(now, line);
        }
        self.ask(|filter| filter.overheard(now, Source::Stderr, line));
        self.note();
    }

    /// [`Filter::poll_to_server`].
    pub fn poll_to_server(&mut self) -> Option<Payload> {
        let payload = self.ask(Filter::poll_to_server).flatten()?;
        if let Some(witness) = &mut self.witness {
            witness.to_server(payload.to_bytes());
        }
        Some(payload)
    }

    /// [`Filter::written`].
    pub fn written(&mut self, now: Instant, stream: StreamId) {
        if let Some(witness) = &mut self.witness {
            witness.written(now, stream);
        }
        self.ask(|filter| filter.written(now, stream));
        self.note();
    }

    /// [`Filter::server_message`].
    pub fn server_message(&mut self, now: Instant, origin: Origin, message: &Message) -> Fate {
        if let Some(witness) = &mut self.witness {
            witness.server(now, origin, message.raw(), self.filter.messages() + 1);
        }
        let fate =
            self.judge(origin, message, |filter| filter.server_message(now, origin, message));
        if let (Some(witness), Fate::Noise(text)) = (&mut self.witness, &fate) {
            witness.noise(text);
        }
        self.note();
        fate
    }

    /// [`Filter::server_message_here`], of a message that was said to this filter before.
    pub fn server_message_here(&mut self, now: Instant, origin: Origin, message: &Message) -> Fate {
        self.here(now, origin, message, |witness| witness.command(Some(now), "here"))
    }

    /// [`Filter::server_message_here`], of a message that was said elsewhere.
    pub fn server_message_from_elsewhere(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Fate {
        let number = self.filter.messages() + 1;
        let tell = |witness: &mut Witness| witness.moved(now, origin, message.raw(), number);
        self.here(now, origin, message, tell)
    }

    fn here(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
        tell: impl FnOnce(&mut Witness),
    ) -> Fate {
        if let Some(witness) = self.witness.as_deref_mut() {
            tell(witness);
        }
        let fate =
            self.judge(origin, message, |filter| filter.server_message_here(now, origin, message));
        self.note();
        fate
    }

    /// [`Filter::plain_progress`], of the text of a whole message.
    pub fn plain_progress(&mut self, now: Instant, stream: StreamId, text: &Bytes) -> bool {
        let number = self.filter.messages() + 1;
        let plain = self.ask(|filter| filter.plain_progress(now, stream, text));
        let is_plain = plain == Some(true);
        if let Some(witness) = self.witness.as_mut().filter(|_| is_plain) {
            witness.server(now, Origin::Stream(stream), text, number);
            let transmit = Transmit { payload: text.clone().into(), part: Part::Whole };
            witness.told(now, stream, &transmit);
            self.note();
            self.written(now, stream);
        }
        is_plain
    }

    fn judge(
        &mut self,
        origin: Origin,
        message: &Message,
        question: impl FnOnce(&mut Filter) -> Fate,
    ) -> Fate {
        let failed_before = self.failed.is_some();
        match self.ask(question) {
            Some(fate) => fate,
            // What the filter was at work on when it failed has been salvaged.
            None if !failed_before => Fate::Taken,
            None => self.forward(self.stream_of(origin), message),
        }
    }

    /// [`Filter::server_passing`].
    pub fn server_passing(
        &mut self,
        now: Instant,
        origin: Origin,
        head: Bytes,
        text: Range<usize>,
    ) -> Fate {
        if let (Some(witness), Some(text)) = (&mut self.witness, head.get(text.clone())) {
            witness.server_passing(origin, self.filter.messages() + 1);
            witness.server_piece(origin, text);
        }
        let (piece, place) = (head.clone(), text.clone());
        if let Some(fate) = self.ask(|filter| filter.server_passing(now, origin, piece, place)) {
            if let (Some(witness), Fate::Noise(_)) = (&mut self.witness, &fate) {
                witness.server_passing_noise(origin);
            }
            return fate;
        }
        let mut scan = Scan::default();
        scan.feed(&head[text.clone()]);
        let claimed = scan.method().is_some_and(|method| self.policy.claims(&method));
        if let Some(failed) = &mut self.failed {
            failed.withholding = claimed || self.policy.remap;
        }
        self.server_piece(now, origin, head, text)
    }

    /// [`Filter::server_piece`].
    pub fn server_piece(
        &mut self,
        now: Instant,
        origin: Origin,
        piece: Bytes,
        text: Range<usize>,
    ) -> Fate {
        if let (Some(witness), Some(text)) = (&mut self.witness, piece.get(text.clone())) {
            witness.server_piece(origin, text);
        }
        let copy = piece.clone();
        if let Some(fate) = self.ask(|filter| filter.server_piece(now, origin, copy, text)) {
            return fate;
        }
        self.push_piece(origin, piece, Part::Piece);
        Fate::Taken
    }

    /// [`Filter::server_passed`].
    pub fn server_passed(&mut self, now: Instant, origin: Origin) {
        if let Some(witness) = &mut self.witness {
            witness.server_passed(now, origin, None);
        }
        if self.ask(|filter| filter.server_passed(now, origin)).is_none() {
            self.push_piece(origin, Bytes::new(), Part::End);
        }
        self.note();
    }

    /// [`Filter::server_broke_off`].
    pub fn server_broke_off(&mut self, now: Instant, origin: Origin, why: &str) {
        if let Some(witness) = &mut self.witness {
            witness.server_passed(now, origin, Some(why));
        }
        if self.ask(|filter| filter.server_broke_off(now, origin, why)).is_none() {
            self.push_piece(origin, Bytes::new(), Part::End);
        }
        self.note();
    }

    fn push_piece(&mut self, origin: Origin, piece: Bytes, part: Part) {
        let withholding = self.failed.as_ref().is_some_and(|failed| failed.withholding);
        if !withholding && !self.policy.remap {
            self.push(self.stream_of(origin), piece.into(), part);
        }
    }

    /// [`Filter::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Instant, stream: StreamId) -> Option<Transmit> {
        let looks = self.witness.is_some()
            && self.poll_stream_timeout(stream).is_some_and(|due| due <= now);
        if let Some(transmit) = self.ask(|filter| filter.poll_transmit(now, stream)) {
            let first = self.witness.as_ref().and_then(|_| self.filter.poll_record());
            match (&mut self.witness, &transmit) {
                (Some(witness), Some(transmit)) => witness.told(now, stream, transmit),
                (Some(witness), None) if looks || first.is_some() => witness.looked(now, stream),
                _ => {}
            }
            if let (Some(witness), Some(record)) = (&mut self.witness, first) {
                decided(witness, &self.filter, &record);
                self.recorded.push_back(record);
            }
            self.note();
            return transmit;
        }
        let queue = &mut self.failed.as_mut()?.queue;
        let place = queue.iter().position(|(to, _)| *to == stream)?;
        queue.remove(place).map(|(_, transmit)| transmit)
    }

    /// [`Filter::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.failed.is_some() { None } else { self.filter.poll_timeout() }
    }

    /// [`Filter::poll_stream_timeout`].
    pub fn poll_stream_timeout(&self, stream: StreamId) -> Option<Instant> {
        if self.failed.is_some() { None } else { self.filter.poll_stream_timeout(stream) }
    }

    /// [`Filter::poll_record`]. Who polls it learns from the calls that end how long they take: whatever
    /// carries messages asks here.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.note();
        let recorded = self.recorded.pop_front();
        if let Some(failed) = &mut self.failed {
            return recorded.or_else(|| failed.records.pop_front());
        }
        let record = recorded.or_else(|| self.filter.poll_record());
        if let Some(Record::Call(call)) = &record {
            self.policy.learned.learn(call);
        }
        record
    }

    /// [`Filter::is_full`].
    pub fn is_full(&self) -> bool {
        let Some(failed) = &self.failed else { return self.filter.is_full() };
        failed.queue.iter().map(|(_, transmit)| transmit.payload.len()).sum::<usize>() >= QUEUE_MAX
    }

    /// [`Filter::is_drained`].
    pub fn is_drained(&self) -> bool {
        self.failed.as_ref().map_or_else(|| self.filter.is_drained(), |f| f.queue.is_empty())
    }

    /// [`Filter::open_calls`].
    pub fn open_calls(&self) -> usize {
        if self.failed.is_some() { 0 } else { self.filter.open_calls() }
    }
}
