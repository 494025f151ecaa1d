//! Messages on their way out: put on the stream of a client, or sent to the server.

use std::time::Instant;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::place::Placement;
use crate::progress::correlate::repaired_answer::RepairedAnswer;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, Transmit, TransmitKind};
use crate::progress::policy::StreamPacing;
use crate::progress::streams::stream::{Guard, Item, ItemKind, MessageVerdict, Stream, StreamKind};
use crate::progress::verdict::{Reason, Repairs, Verdict};
use crate::protocol::json;
use crate::protocol::jsonrpc::{INVALID_REQUEST, Key, Message, error_answer, own_error};

impl Correlator {
    /// Answers a request that was not passed on, or that has no other answer.
    pub(crate) fn refuse(
        &mut self,
        stream: StreamId,
        client_id: &Bytes,
        why: &str,
        status: Option<u16>,
    ) {
        self.answer_refused(stream, client_id, own_error(client_id, why, status));
    }

    /// Answers a request that is not as a request should be, and was not passed on.
    pub(crate) fn refuse_as_invalid(&mut self, stream: StreamId, client_id: &Bytes, why: &str) {
        let answer = error_answer(client_id, INVALID_REQUEST, why, None);
        self.answer_refused(stream, client_id, answer);
    }

    pub(crate) fn answer_refused(&mut self, stream: StreamId, client_id: &Bytes, answer: Bytes) {
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(Key::read(client_id))),
            payload: Payload::own(answer),
            guards: SmallVec::new(),
            verdicts: SmallVec::new(),
        };
        self.enqueue_own(stream, item);
    }

    /// Notes that everything given out for a stream has been written.
    pub fn written(&mut self, now: Instant, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for call in std::mem::take(&mut stream.unwritten) {
            if let Some(call) = self.ledger.get_mut(call) {
                // The distance that an answer keeps begins when the bytes are written: the client
                // cannot read progress that is still in a buffer of Milepost.
                call.sent.at = call.sent.at.max(Some(now));
            }
        }
        stream.written(now);
    }

    /// Shares the value among all calls with one token, because a client identifies progress by its
    /// token.
    pub(crate) fn share_value(&mut self, id: CallId) {
        let emitted = self.ledger.get(id).and_then(|call| call.meter.emitted());
        for holder in self.ledger.holders(id) {
            if let Some(call) = self.ledger.get_mut(holder) {
                call.meter.raise_to(emitted);
            }
        }
    }

    /// The guard that an answer to `call` has to wait for.
    pub(crate) fn guard_of(&self, call: CallId) -> Guard {
        // Observe mode does not delay an answer.
        let found = self.ledger.get(call).filter(|found| !found.is_observed());
        let Some(found) = found else { return Guard::default() };
        let unwritten =
            self.streams.get(&found.stream).is_some_and(|stream| stream.unwritten.contains(&call));
        let wait = self.streams.pacing_of(found.stream, found.settings()).guard;
        Guard { last: found.sent.at, unwritten: unwritten.then_some(call), behind: 0, wait }
    }

    /// Gives each heartbeat that is due a place behind everything that waits now: answers that come later do
    /// not hold it up.
    pub(crate) fn place_heartbeats(&mut self, now: Instant, id: StreamId) {
        let order = self.order;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for (at, call) in stream.due_heartbeats(now) {
            // `u64::MAX` stands for a heartbeat that has no place yet: such a heartbeat sorts
            // behind everything else of the same moment.
            stream.wakes.remove(&(at, u64::MAX, call));
            stream.wakes.insert((at, order, call), ());
            if let Some(call) = self.ledger.get_mut(call) {
                call.wake = Some((at, order));
            }
        }
    }

    pub(crate) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Whether no bytes wait for a client.
    pub fn is_drained(&self) -> bool {
        self.streams.values().all(|stream| stream.is_drained())
    }

    /// Adds a client stream. The first shared stream also carries messages of no request.
    pub fn open_stream(&mut self, id: StreamId, kind: StreamKind, pacing: StreamPacing) {
        match kind {
            StreamKind::Shared => drop(self.session_stream.get_or_insert(id)),
            StreamKind::Exchange => self.topology.open_exchange(),
        }
        self.streams.insert(id, Box::new(Stream::new(kind, pacing)));
    }

    /// Removes a client stream. The messages that wait there go nowhere.
    pub(crate) fn close_stream(&mut self, id: StreamId) {
        if self.session_stream == Some(id) {
            self.session_stream = None;
        }
        let Some(stream) = self.streams.remove(&id) else { return };
        // Every server message gets exactly one verdict, also if its stream closes before it is
        // written.
        for judged in stream.queue.into_iter().flat_map(|item| item.verdicts) {
            self.record(judged.number, judged.call, Verdict::Withheld(Reason::Gone));
        }
    }

    /// Sets the principal of a client stream: streams of one principal may see each other's
    /// messages. A stream without a principal counts as a client of its own.
    pub fn set_principal(&mut self, id: StreamId, principal: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.principal = Some(principal);
        }
    }

    /// Lets everything go out without waiting for a guard: the connection is about to end.
    pub fn flush(&mut self) {
        for item in self.streams.iter_mut().flat_map(|(_, stream)| &mut stream.queue) {
            item.guards.clear();
        }
    }

    /// Whether so many bytes wait on a stream that the server should not be read.
    pub fn is_full(&self) -> bool {
        self.streams.full().next().is_some()
    }

    /// The streams on which so much waits that the server should not be read from.
    pub fn full_streams(&self) -> Vec<StreamId> {
        self.streams.full().collect()
    }

    /// From now on the filter notes which client streams change: see [`Correlator::next_changed`](crate::progress::Correlator::next_changed).
    pub fn note_changes(&mut self) {
        self.streams.note_changes();
    }

    /// A client stream that may have something to write, another [`Correlator::stream_due`](crate::progress::Correlator::stream_due), or no requests any more
    /// ([`Filter::is_over`](crate::progress::Filter::is_over)) since the shell last looked at the stream.
    pub fn next_changed(&mut self) -> Option<StreamId> {
        self.streams.next_changed()
    }

    /// Notes that the shell has looked at a stream, and has taken all that could be written.
    pub fn settle_changes(&mut self, stream: StreamId) {
        self.streams.settle(stream);
    }

    /// The time of the next [`Filter::poll_transmit`](crate::progress::Filter::poll_transmit) for
    /// one stream, or of the next call that times out, on any stream.
    pub fn poll_stream_timeout(&self, id: StreamId) -> Option<Instant> {
        let own = self.streams.get(&id).and_then(|stream| stream.timeout());
        let expiry = self.ledger.next_expiry().map(|(at, _)| at);
        [own, expiry].into_iter().flatten().min()
    }

    /// The time at which a stream may have something to write, if nothing happens before.
    pub fn stream_due(&self, stream: StreamId) -> Option<Instant> {
        self.streams.get(&stream).and_then(|stream| stream.timeout())
    }

    pub(crate) fn record(&mut self, number: u64, call: Option<CallId>, verdict: Verdict) {
        self.events.push_verdict(number, call, verdict);
    }

    /// Puts a message on a client stream, or on the session stream if that one has closed.
    pub(crate) fn enqueue(&mut self, stream: Option<StreamId>, mut item: Item) {
        // The place is given on arrival, so that progress that came earlier and is due goes out
        // first.
        item.order = self.next_order();
        let open = self.open_or_session_stream(stream);
        match open.and_then(|id| self.streams.get_mut(&id)) {
            Some(stream) => stream.push(item),
            None => {
                for judged in item.verdicts {
                    self.record(judged.number, judged.call, Verdict::Withheld(Reason::Gone));
                }
            }
        }
    }

    pub(crate) fn send_answer(&mut self, judged: RepairedAnswer, number: u64, done: Repairs) {
        let Some(payload) = judged.payload else {
            self.record(number, judged.call, judged.verdict);
            return;
        };
        let mut repairs = done;
        if let Verdict::Repaired(own) = judged.verdict {
            repairs.join(own);
        }
        let verdict = Verdict::of(repairs);
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(judged.id)),
            payload,
            guards: judged.guard.into_iter().collect(),
            verdicts: smallvec![MessageVerdict { number, call: judged.call, verdict }],
        };
        self.enqueue(judged.stream, item);
    }

    /// Cancels a call at the server.
    pub(crate) fn send_cancelled(&mut self, call: CallId, reason: &str) {
        if let Some(call) = self.ledger.get(call) {
            let id = call.id.server.clone();
            self.cancel_at_server(&id, reason);
        }
    }

    /// A message with the additions for its server (`ask`).
    pub(crate) fn for_server(&self, message: &Message) -> Payload {
        self.policy.with_members(message).unwrap_or_else(|| message.raw().clone()).into()
    }

    /// Cancels the request with this id at the server.
    pub(crate) fn cancel_at_server(&mut self, id: &Key, reason: &str) {
        let id = id.to_json();
        let reason = json::quote(reason);
        let mut text =
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#
                .to_vec();
        text.extend_from_slice(&id);
        text.extend_from_slice(br#","reason":"#);
        text.extend_from_slice(&reason);
        text.extend_from_slice(b"}}");
        self.to_server.push_back(Bytes::from(text).into());
    }

    /// Adds the client's message to its stream.
    pub(crate) fn observe(&mut self, stream: Option<StreamId>, transmit: Transmit) -> bool {
        self.observe_part(stream, None, transmit)
    }

    /// Adds a whole message to a stream, or a piece of the large message `of`.
    pub(crate) fn observe_part(
        &mut self,
        stream: Option<StreamId>,
        of: Option<u64>,
        transmit: Transmit,
    ) -> bool {
        let open = self.open_or_session_stream(stream).and_then(|id| self.streams.get_mut(&id));
        let Some(stream) = open else { return false };
        stream.observed.get_or_insert_default().push(of, transmit);
        true
    }

    /// Adds a message of Milepost's own to a stream. An HTTP request needs its answer in any mode.
    pub(crate) fn enqueue_own(&mut self, stream: StreamId, item: Item) {
        let kind = self.streams.get(&stream).map(|stream| stream.kind);
        let needed = kind == Some(StreamKind::Exchange) || self.topology.has_strangers();
        if self.policy.observes() && self.topology.is_whole() && needed {
            self.observe(Some(stream), item.into_transmit());
            return;
        }
        self.enqueue(Some(stream), item);
    }

    /// Forwards a message that is neither progress nor an answer.
    pub(crate) fn forward(
        &mut self,
        placed: Placement,
        (number, call): (u64, Option<CallId>),
        message: &Message,
        done: Repairs,
    ) {
        let (stream, payload) = match placed {
            Ok(found) => found,
            Err(reason) => return self.record(number, call, Verdict::Withheld(reason)),
        };
        let verdict = Verdict::of(done);
        let verdicts = smallvec![MessageVerdict { number, call, verdict }];
        let kind = ItemKind::Whole(TransmitKind::of(message));
        self.enqueue(stream, Item { order: 0, kind, payload, guards: SmallVec::new(), verdicts });
    }
}
