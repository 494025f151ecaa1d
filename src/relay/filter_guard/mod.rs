//! A filter that fails open: a panic in it turns its connection into plain forwarding with progress
//! withheld, and harms no other. One whose server different clients share cannot do that: nobody would
//! know whose a message is. Then nothing passes any more ([`FilterGuard::is_lost`]).

mod connection;

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::observe::events::{EventEmitter, FilterId};
use crate::observe::transcript::settings;
use crate::progress::dialect::TextSource;
use crate::progress::{
    Disposition, Filter, FilterEvent, Fragment, Origin, Payload, Policy, QUEUE_MAX, Reason,
    StreamId, Transmit, Verdict,
};
use crate::protocol::jsonrpc::{Kind, Message, Scan};

/// A [`Filter`] whose panics stay inside.
#[derive(Debug)]
pub struct FilterGuard {
    filter: Filter,
    policy: Arc<Policy>,
    /// The stream for messages of no request.
    home: StreamId,
    failed: Option<Box<Failed>>,
    emitter: Option<Box<EventEmitter>>,
    /// Events that the emitter has seen and no caller has taken.
    recorded: VecDeque<FilterEvent>,
}

/// The state after the filter has failed: every message is forwarded unchanged.
#[derive(Debug, Default)]
struct Failed {
    queue: VecDeque<(StreamId, Transmit)>,
    records: VecDeque<FilterEvent>,
    numbers: u64,
    /// A large message is passing that must be withheld.
    withholding: bool,
}

/// Tells of something that was decided, and before that whom it is about.
fn decided(emitter: &mut EventEmitter, filter: &Filter, record: &FilterEvent) {
    if let FilterEvent::Opened(call) | FilterEvent::TakenOver(call) = record
        && let Some(opened) = filter.opened(*call)
    {
        emitter.knows(&opened);
    }
    emitter.decided(record);
}

impl FilterGuard {
    /// Guards `filter`, whose policy is `policy`.
    pub fn new(filter: Filter, policy: Arc<Policy>, home: StreamId) -> Self {
        Self { filter, policy, home, failed: None, emitter: None, recorded: VecDeque::new() }
    }

    /// Tells `emitter` all that passes from now on.
    pub fn observed_by(&mut self, emitter: Option<EventEmitter>) {
        self.emitter = emitter.map(Box::new);
    }

    /// The id of the filter for observers, if there are any.
    pub fn filter_id(&self) -> Option<FilterId> {
        self.emitter.as_ref().map(|emitter| emitter.filter_id())
    }

    /// Asks the filter about something that happens to the connection, which those who look on know as `command`.
    pub fn happens<T>(
        &mut self,
        now: Option<Instant>,
        command: impl FnOnce() -> String,
        question: impl FnOnce(&mut Filter) -> T,
    ) -> Option<T> {
        if let Some(emitter) = &mut self.emitter {
            emitter.command(now, command());
        }
        let answer = self.try_with(question);
        self.note();
        answer
    }

    /// [`Filter::policy`].
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// [`Filter::take`].
    pub fn take(&mut self, policy: &Arc<Policy>) {
        let taken = self.try_with(|filter| {
            filter.take(policy);
            Arc::clone(filter.policy())
        });
        let Some(taken) = taken.filter(|taken| !Arc::ptr_eq(taken, &self.policy)) else { return };
        self.policy = taken;
        if let Some(emitter) = &mut self.emitter {
            // What is wanted: what of it holds yet follows from what has been said.
            let settings = settings::write(policy).words;
            emitter.command(None, format!("settings {settings}").trim_end());
        }
    }

    /// Tells what was decided just now.
    fn note(&mut self) {
        let Some(emitter) = &mut self.emitter else { return };
        if self.failed.is_some() {
            return;
        }
        while let Some(record) = self.filter.poll_record() {
            decided(emitter, &self.filter, &record);
            self.recorded.push_back(record);
        }
        emitter.settled();
    }

    /// Asks the filter; `None` if it has failed, now or before.
    pub fn try_with<T>(&mut self, question: impl FnOnce(&mut Filter) -> T) -> Option<T> {
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
        if let Some(mut emitter) = self.emitter.take() {
            emitter.command(None, "failed");
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
    fn forward(&mut self, stream: StreamId, message: &Message) -> Disposition {
        if message.kind() == Kind::Noise {
            return Disposition::NotAMessage(message.raw().clone());
        }
        let is_batch = message.kind() == Kind::Batch;
        let elements: Vec<Message> =
            if is_batch { message.elements().collect() } else { Vec::new() };
        let progress = self.is_progress(message) || elements.iter().any(|e| self.is_progress(e));
        let lost = self.policy.remap;
        if !progress && !lost {
            self.push(stream, Payload::of(message), Fragment::Whole);
        }
        for element in elements.iter().filter(|_| progress && !lost) {
            if !self.is_progress(element) {
                self.push(stream, Payload::of(element), Fragment::Whole);
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
            failed.records.push_back(FilterEvent::Message { number, call: None, verdict });
        }
        Disposition::Consumed
    }

    fn is_progress(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && message.method().is_some_and(|method| self.policy.claims(&method))
    }

    fn push(&mut self, stream: StreamId, payload: Payload, part: Fragment) {
        if let Some(failed) = &mut self.failed {
            failed.queue.push_back((stream, Transmit { payload, part }));
        }
    }

    fn stream_of(&self, origin: Origin) -> StreamId {
        match origin {
            Origin::Shared => self.home,
            Origin::Stream(id) if self.filter.has_stream(id) => id,
            // It pairs with requests that are no longer known.
            Origin::Stream(_) => self.home,
        }
    }

    /// [`Filter::client_message`].
    pub fn client_message(&mut self, now: Instant, stream: StreamId, message: &Message) -> Payload {
        if let Some(emitter) = &mut self.emitter {
            emitter.client(now, stream, message.raw());
        }
        let answer = self.try_with(|filter| filter.client_message(now, stream, message));
        if let (Some(emitter), Some(payload)) = (&mut self.emitter, &answer) {
            let sent = payload.to_bytes();
            if sent != *message.raw() {
                emitter.to_server(sent);
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
        if let Some(emitter) = &mut self.emitter {
            emitter.client_passed(now, stream, scan);
        }
        self.try_with(|filter| filter.client_passed(now, stream, scan));
        self.note();
    }

    /// [`Filter::overheard`], of its standard error.
    pub fn overheard(&mut self, now: Instant, line: &str) {
        if let Some(emitter) = &mut self.emitter {
            emitter.overheard(now, line);
        }
        self.try_with(|filter| filter.overheard(now, TextSource::Stderr, line));
        self.note();
    }

    /// [`Filter::poll_to_server`].
    pub fn poll_to_server(&mut self) -> Option<Payload> {
        let payload = self.try_with(Filter::poll_to_server).flatten()?;
        if let Some(emitter) = &mut self.emitter {
            emitter.to_server(payload.to_bytes());
        }
        Some(payload)
    }

    /// [`Filter::written`].
    pub fn written(&mut self, now: Instant, stream: StreamId) {
        if let Some(emitter) = &mut self.emitter {
            emitter.written(now, stream);
        }
        self.try_with(|filter| filter.written(now, stream));
        self.note();
    }

    /// [`Filter::server_message`].
    pub fn server_message(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Disposition {
        if let Some(emitter) = &mut self.emitter {
            emitter.server(now, origin, message.raw(), self.filter.messages() + 1);
        }
        let fate =
            self.judge(origin, message, |filter| filter.server_message(now, origin, message));
        if let (Some(emitter), Disposition::NotAMessage(text)) = (&mut self.emitter, &fate) {
            emitter.noise(text);
        }
        self.note();
        fate
    }

    /// [`Filter::server_message_here`], of a message that was said to this filter before.
    pub fn server_message_here(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Disposition {
        self.here(now, origin, message, |emitter| emitter.command(Some(now), "here"))
    }

    /// [`Filter::server_message_here`], of a message that was said elsewhere.
    pub fn server_message_from_elsewhere(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Disposition {
        let number = self.filter.messages() + 1;
        let tell = |emitter: &mut EventEmitter| emitter.moved(now, origin, message.raw(), number);
        self.here(now, origin, message, tell)
    }

    fn here(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
        tell: impl FnOnce(&mut EventEmitter),
    ) -> Disposition {
        if let Some(emitter) = self.emitter.as_deref_mut() {
            tell(emitter);
        }
        let fate =
            self.judge(origin, message, |filter| filter.server_message_here(now, origin, message));
        self.note();
        fate
    }

    /// [`Filter::plain_progress`], of the text of a whole message.
    pub fn plain_progress(&mut self, now: Instant, stream: StreamId, text: &Bytes) -> bool {
        let number = self.filter.messages() + 1;
        let plain = self.try_with(|filter| filter.plain_progress(now, stream, text));
        let is_plain = plain == Some(true);
        if let Some(emitter) = self.emitter.as_mut().filter(|_| is_plain) {
            emitter.server(now, Origin::Stream(stream), text, number);
            let transmit = Transmit { payload: text.clone().into(), part: Fragment::Whole };
            emitter.told(now, stream, &transmit);
            self.note();
            self.written(now, stream);
        }
        is_plain
    }

    fn judge(
        &mut self,
        origin: Origin,
        message: &Message,
        question: impl FnOnce(&mut Filter) -> Disposition,
    ) -> Disposition {
        let failed_before = self.failed.is_some();
        match self.try_with(question) {
            Some(fate) => fate,
            // What the filter was at work on when it failed has been salvaged.
            None if !failed_before => Disposition::Consumed,
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
    ) -> Disposition {
        if let (Some(emitter), Some(text)) = (&mut self.emitter, head.get(text.clone())) {
            emitter.server_passing(origin, self.filter.messages() + 1);
            emitter.server_piece(origin, text);
        }
        let (piece, place) = (head.clone(), text.clone());
        if let Some(fate) = self.try_with(|filter| filter.server_passing(now, origin, piece, place))
        {
            if let (Some(emitter), Disposition::NotAMessage(_)) = (&mut self.emitter, &fate) {
                emitter.server_passing_noise(origin);
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
    ) -> Disposition {
        if let (Some(emitter), Some(text)) = (&mut self.emitter, piece.get(text.clone())) {
            emitter.server_piece(origin, text);
        }
        let copy = piece.clone();
        if let Some(fate) = self.try_with(|filter| filter.server_piece(now, origin, copy, text)) {
            return fate;
        }
        self.push_piece(origin, piece, Fragment::Piece);
        Disposition::Consumed
    }

    /// [`Filter::server_passed`].
    pub fn server_passed(&mut self, now: Instant, origin: Origin) {
        if let Some(emitter) = &mut self.emitter {
            emitter.server_passed(now, origin, None);
        }
        if self.try_with(|filter| filter.server_passed(now, origin)).is_none() {
            self.push_piece(origin, Bytes::new(), Fragment::End);
        }
        self.note();
    }

    /// [`Filter::server_broke_off`].
    pub fn server_broke_off(&mut self, now: Instant, origin: Origin, why: &str) {
        if let Some(emitter) = &mut self.emitter {
            emitter.server_passed(now, origin, Some(why));
        }
        if self.try_with(|filter| filter.server_broke_off(now, origin, why)).is_none() {
            self.push_piece(origin, Bytes::new(), Fragment::End);
        }
        self.note();
    }

    fn push_piece(&mut self, origin: Origin, piece: Bytes, part: Fragment) {
        let withholding = self.failed.as_ref().is_some_and(|failed| failed.withholding);
        if !withholding && !self.policy.remap {
            self.push(self.stream_of(origin), piece.into(), part);
        }
    }

    /// [`Filter::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Instant, stream: StreamId) -> Option<Transmit> {
        let looks = self.emitter.is_some()
            && self.poll_stream_timeout(stream).is_some_and(|due| due <= now);
        if let Some(transmit) = self.try_with(|filter| filter.poll_transmit(now, stream)) {
            let first = self.emitter.as_ref().and_then(|_| self.filter.poll_record());
            match (&mut self.emitter, &transmit) {
                (Some(emitter), Some(transmit)) => emitter.told(now, stream, transmit),
                (Some(emitter), None) if looks || first.is_some() => emitter.looked(now, stream),
                _ => {}
            }
            if let (Some(emitter), Some(record)) = (&mut self.emitter, first) {
                decided(emitter, &self.filter, &record);
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
    pub fn poll_record(&mut self) -> Option<FilterEvent> {
        self.note();
        let recorded = self.recorded.pop_front();
        if let Some(failed) = &mut self.failed {
            return recorded.or_else(|| failed.records.pop_front());
        }
        let record = recorded.or_else(|| self.filter.poll_record());
        if let Some(FilterEvent::Call(call)) = &record {
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
