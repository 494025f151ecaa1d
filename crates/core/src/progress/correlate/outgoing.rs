//! Chooses the stream of each outgoing message, and answers requests that are refused.

use std::time::Instant;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::progress::correlate::call::Call;
use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::open_calls::only;
use crate::progress::correlate::place::{Placement, SubscriptionRef};
use crate::progress::correlate::repaired_answer::RepairedAnswer;
use crate::progress::event::{FilterEvent, Origin, RefusalRule};
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, TransmitKind, spliced, within};
use crate::progress::streams::stream::{Item, ItemKind, MessageVerdict, StreamKind};
use crate::progress::verdict::{Reason, Repairs, Verdict};
use crate::protocol::jsonrpc::{
    AmbiguousMember, INVALID_REQUEST, Key, Kind, Message, error_answer, own_error,
};
use crate::protocol::mcp;

impl Correlator {
    /// Answers a request with an error, because it was not forwarded or will get no other answer.
    pub(crate) fn refuse(
        &mut self,
        stream: StreamId,
        client_id: &Bytes,
        why: &str,
        status: Option<u16>,
    ) {
        self.answer_refused(stream, client_id, own_error(client_id, why, status));
    }

    /// Answers an invalid request that was not forwarded.
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

    /// Notes that all messages that were taken for a stream have been written.
    pub fn written(&mut self, now: Instant, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for call in std::mem::take(&mut stream.unwritten) {
            if let Some(call) = self.open.get_mut(call) {
                // The pause between progress and answer begins when the bytes are written: before that, the client
                // cannot read the progress.
                call.sent.at = call.sent.at.max(Some(now));
            }
        }
        stream.written(now);
    }

    /// Puts each heartbeat that is due at the end of the queue. Its place is then fixed, so that answers that arrive
    /// later do not delay it.
    pub(crate) fn place_heartbeats(&mut self, now: Instant, id: StreamId) {
        let order = self.streams.order;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for (at, call) in stream.due_heartbeats(now) {
            // `u64::MAX` marks a heartbeat that is not in the queue yet, so that it is sorted after all messages of
            // that time.
            stream.wakes.remove(&(at, u64::MAX, call));
            stream.wakes.insert((at, order, call), ());
            if let Some(call) = self.open.get_mut(call) {
                call.wake = Some((at, order));
            }
        }
    }

    /// Returns the time at which [`Filter::poll_transmit`](crate::progress::Filter::poll_transmit) has to be called
    /// next for one stream, or at which the next call of any stream times out, if that is earlier.
    pub fn poll_stream_timeout(&self, id: StreamId) -> Option<Instant> {
        let own = self.streams.get(&id).and_then(|stream| stream.timeout());
        let expiry = self.open.next_expiry().map(|(at, _)| at);
        [own, expiry].into_iter().flatten().min()
    }

    pub(crate) fn send_answer(&mut self, judged: RepairedAnswer, number: u64, done: Repairs) {
        let Some(payload) = judged.payload else {
            self.events.push_verdict(number, judged.call, judged.verdict);
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
        self.streams.enqueue(judged.stream, item, &mut self.events);
    }

    /// Tells the server to cancel a call.
    pub(crate) fn send_cancelled(&mut self, call: CallId, reason: &str) {
        if let Some(call) = self.open.get(call) {
            let id = call.id.server.clone();
            self.to_server.cancel(&id, reason);
        }
    }

    /// Adds a message of Milepost's own to a stream. An HTTP request needs its answer even in observe mode.
    pub(crate) fn enqueue_own(&mut self, stream: StreamId, item: Item) {
        let kind = self.streams.get(&stream).map(|stream| stream.kind);
        let needed = kind == Some(StreamKind::Exchange) || self.streams.topology.has_strangers();
        if self.policy.observes() && self.streams.topology.is_whole() && needed {
            self.streams.observe(Some(stream), item.into_transmit());
            return;
        }
        self.streams.enqueue(Some(stream), item, &mut self.events);
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
            Err(reason) => {
                return self.events.push_verdict(number, call, Verdict::Withheld(reason));
            }
        };
        let verdict = Verdict::of(done);
        let verdicts = smallvec![MessageVerdict { number, call, verdict }];
        let kind = ItemKind::Whole(TransmitKind::of(message));
        let item = Item { order: 0, kind, payload, guards: SmallVec::new(), verdicts };
        self.streams.enqueue(stream, item, &mut self.events);
    }

    /// Returns the stream for messages that are about no known request.
    pub(crate) fn fallback_stream(&self, origin: Origin) -> Result<Option<StreamId>, Reason> {
        // Over Streamable HTTP the stream on which a message arrives ties it to a request. The message stays on that
        // stream as long as the client reads there.
        if let Origin::Stream(on) = origin
            && (self.streams.has_stream(on) || !self.streams.topology.is_whole())
        {
            return Ok(Some(on));
        }
        if self.streams.topology.needs_no_choice() {
            return Ok(self.streams.session_stream);
        }
        if let Origin::Stream(on) = origin {
            let streams = self.open.paired_with(on).iter().filter_map(|id| self.open.get(*id));
            let open =
                streams.map(|call| call.stream).find(|stream| self.streams.has_stream(*stream));
            return match open.or_else(|| self.streams.common_session_stream()) {
                None if self.streams.topology.has_strangers() => Err(Reason::Unknown),
                found => Ok(found),
            };
        }
        // A client that waits for an answer is reading its stream. A task already has its answer, and a subscription
        // gets only its own notifications.
        let asks = |call: &Call| call.task.is_none() && &*call.method != mcp::LISTEN;
        let call = only(self.open.active(asks));
        let call = call.and_then(|call| self.open.get(call).ok_or(Reason::Unknown));
        if !self.streams.topology.has_strangers() {
            let stream = call.ok().map(|call| call.stream);
            let exchange = stream.filter(|stream| self.streams.is_exchange(*stream));
            return Ok(exchange.or(self.streams.session_stream));
        }
        let call = call?;
        // Invariant: if different clients share a server, a message whose owner is uncertain is withheld.
        if self.may_mean_over(call) {
            return Err(Reason::Ambiguous);
        }
        if self.streams.has_stream(call.stream) { Ok(Some(call.stream)) } else { Err(Reason::Gone) }
    }

    /// Returns the stream for a message that is neither progress nor an answer, and the bytes for its client.
    pub(crate) fn destination_of(&self, origin: Origin, message: &Message) -> Placement {
        match self.open.named_by(message, self.streams.topology) {
            SubscriptionRef::Nobody => {
                self.fallback_stream(origin).map(|stream| (stream, Payload::of(message)))
            }
            SubscriptionRef::Gone(reason) => Err(reason),
            SubscriptionRef::Call(call, names) => {
                let call = self.open.get(call).ok_or(Reason::Unknown)?;
                if !self.streams.topology.has_strangers() {
                    return Ok((Some(call.stream), Payload::of(message)));
                }
                let places = names.iter().filter_map(|name| within(message.raw(), name));
                let splices = places.map(|place| (place, call.id.client.clone())).collect();
                Ok((Some(call.stream), spliced(message, splices)))
            }
        }
    }

    /// Refuses a message that a server may read in another way than Milepost does, because the server could answer or
    /// cancel another client's request. Returns whether the message was refused.
    pub(crate) fn refuse_ambiguous(&mut self, stream: StreamId, message: &Message) -> bool {
        let in_arguments = self.policy.copies_tokens();
        let Some(member) = AmbiguousMember::of(message, in_arguments) else { return false };
        // JSON-RPC 2.0 answers only requests: no client expects an error about a response, a notification, or an id of
        // null.
        let id = message.id().filter(|id| **id != *b"null" && message.kind() != Kind::Response);
        if let Some(id) = id {
            self.refuse_as_invalid(stream, &id, &format!("{member}: see docs/transports.md"));
        }
        self.events.push_back(FilterEvent::Refused(RefusalRule::AmbiguousMember));
        true
    }

    /// Refuses a message whose names cannot be replaced: the server could take them for another client's request.
    pub(crate) fn refuse_unreadable(&mut self, stream: StreamId, message: &Message) -> Payload {
        if let Some(id) = message.id().filter(|id| **id != *b"null") {
            self.refuse(stream, &id, "the proxy cannot read this message", None);
        }
        Payload::default()
    }

    /// Returns a name that no request to this server has or had.
    pub(crate) fn give_name(&mut self) -> Key {
        let Self { names, open, given, streams, .. } = self;
        // Names of ended calls are not reused, because a late answer must not mean a later call.
        given.give(streams, |name| {
            names.knows_token(name, open) || open.ledger.was_id(name).is_some()
        })
    }
}
