//! The filter guard lets a filter fail open: after a panic in the filter, its connection is forwarded unchanged, with
//! progress withheld, and other connections continue. If different clients share the server, the receiver of a message
//! would be unknown, so nothing is forwarded any more ([`FilterGuard::is_lost`]).
//!
//! The guard also shows every input and every decision to the observers of the filter.

mod cancel;
mod fail_open;
mod fast_path;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::observe::events::{EventEmitter, FilterId};
use crate::observe::transcript::settings;
use crate::progress::input::{Input, InputResult};
use crate::progress::{
    Disposition, FailedFilter, Filter, FilterEvent, Fragment, Origin, Payload, Policy, QUEUE_MAX,
    Reason, ReleasedRequest, RequestMembers, StreamId, Transmit, VerdictRun,
};
use crate::protocol::jsonrpc::{Key, Message};
use crate::transport::byte_budget::ByteRoom;

/// Maximum number of bytes that a filter is told it may keep. No settings of a filter need more. Exact larger numbers
/// would show in recordings how much other filters keep.
const KEPT_ROOM_MAX: usize = 64 << 20;

/// A [`Filter`] whose panics are caught by the guard.
#[derive(Debug)]
pub struct FilterGuard {
    filter: Filter,
    policy: Arc<Policy>,
    /// The client stream for messages that belong to no request.
    rest: StreamId,
    failed: Option<Box<FailedFilter>>,
    emitter: Option<Box<EventEmitter>>,
    /// Counts the memory of the filter, if it is limited.
    kept: Option<Box<KeptCount>>,
    /// Events that the emitter has seen but no caller has taken.
    recorded: VecDeque<FilterEvent>,
}

/// The memory that a filter uses for kept messages, and its limit.
#[derive(Debug)]
struct KeptCount {
    room: ByteRoom,
    /// The number of bytes that the filter was last told it may keep.
    told: usize,
}

impl FilterGuard {
    /// Guards `filter`, whose policy is `policy`.
    pub fn new(filter: Filter, policy: Arc<Policy>, rest: StreamId) -> Self {
        Self {
            filter,
            policy,
            rest,
            failed: None,
            emitter: None,
            kept: None,
            recorded: VecDeque::new(),
        }
    }

    /// Shows `emitter` all inputs and decisions from now on.
    pub fn set_emitter(&mut self, emitter: Option<EventEmitter>) {
        self.emitter = emitter.map(Box::new);
    }

    /// Counts the memory that the filter uses for kept messages in `room`.
    pub(crate) fn set_kept(&mut self, room: ByteRoom) {
        self.kept = Some(Box::new(KeptCount { room, told: usize::MAX }));
    }

    /// Tells the filter how many bytes of the server's next message it may keep.
    fn offer_room(&mut self, now: Instant) {
        let Some(kept) = &mut self.kept else { return };
        let left = kept.room.left().min(KEPT_ROOM_MAX);
        if left != kept.told && self.failed.is_none() && self.filter.intake().may_keep() {
            kept.told = left;
            self.apply(now, Input::SetKeptRoom(left));
        }
    }

    /// Counts the memory that the filter now uses for kept messages.
    fn count_kept(&mut self) {
        if let Some(kept) = &mut self.kept {
            let before = kept.room.held();
            kept.room.count(if self.failed.is_some() {
                0
            } else {
                self.filter.detached().kept_bytes()
            });
            if kept.room.held() > before {
                // The filter has used some of the bytes, so it must be told the new number.
                kept.told = usize::MAX;
            }
        }
    }

    /// Returns the id of the filter for observers, if there are any.
    pub fn filter_id(&self) -> Option<FilterId> {
        self.emitter.as_ref().map(|emitter| emitter.filter_id())
    }

    /// Applies an input. A failed filter only returns the stream for a server message.
    pub fn apply(&mut self, now: Instant, input: Input) -> InputResult {
        let failed_before = self.failed.is_some();
        self.show(now, || input.clone());
        let output = self.try_with(|filter| filter.handle(now, &input));
        self.note();
        output.unwrap_or_else(|| match &input {
            Input::HandleForeign(origin, message) => {
                InputResult::Server(self.without_filter(*origin, message, failed_before))
            }
            _ => InputResult::Nothing,
        })
    }

    /// Takes over the calls of `own`, another filter of the conversation, whose stream is about to close. `on` is their
    /// stream in this filter.
    pub fn take_over(&mut self, now: Instant, own: &mut Self, on: StreamId) {
        if let Some(from) = own.filter_id() {
            self.show(now, || Input::TakeOver(from.filter, Some(on)));
        }
        own.try_with(|own| {
            self.try_with(|session| own.gate_mut().hand_over(session.gate_mut(), Some(on)))
        });
        self.note();
    }

    /// Shows an input to the observers, if there are any.
    fn show(&mut self, now: Instant, input: impl FnOnce() -> Input) {
        if let Some(emitter) = &mut self.emitter {
            emitter.input(now, input(), self.filter.intake().messages() + 1);
        }
    }

    /// See [`Correlator::policy`](crate::progress::Correlator::policy).
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// See [`Filter::set_policy`].
    pub fn set_policy(&mut self, policy: &Arc<Policy>) {
        let current = self.try_with(|filter| {
            filter.set_policy(policy);
            Arc::clone(filter.calls().policy())
        });
        let Some(current) = current.filter(|current| !Arc::ptr_eq(current, &self.policy)) else {
            return;
        };
        self.policy = current;
        // Record the new settings. A replay can see from the conversation when each of them takes effect.
        if let Some(emitter) = &mut self.emitter {
            let words = settings::write(policy).words;
            emitter
                .sequel(Input::Settings(words.into(), None), self.filter.intake().messages() + 1);
        }
    }

    /// Shows the observers the latest decisions.
    fn note(&mut self) {
        self.count_kept();
        let Some(emitter) = &mut self.emitter else { return };
        if self.failed.is_some() {
            return;
        }
        while let Some(event) = self.filter.poll_event() {
            emitter.decision_of(&self.filter, &event);
            self.recorded.push_back(event);
        }
        emitter.end_decisions();
    }

    /// Runs `question` on the filter; returns `None` if the filter fails now or has failed before.
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

    /// Whether the filter has failed and messages cannot be forwarded without it, so that the connection must end.
    pub fn is_lost(&self) -> bool {
        self.failed.is_some() && self.policy.id_mapping
    }

    /// See [`Filter::client_message`]. The message is borrowed, and only copied for observers.
    pub fn client_message(&mut self, now: Instant, stream: StreamId, message: &Message) -> Payload {
        self.client_message_of(now, stream, message, None)
    }

    /// See [`Intake::client_message_of`](crate::progress::Intake::client_message_of). The message is only copied for
    /// observers.
    pub fn client_message_of(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
        members: Option<&RequestMembers>,
    ) -> Payload {
        self.show(now, || Input::ClientMessage(stream, message.clone()));
        let read = |filter: &mut Filter| {
            filter.intake_mut().client_message_of(now, stream, message, members)
        };
        let answer = self.try_with(read);
        if let (Some(emitter), Some(payload)) = (&mut self.emitter, &answer) {
            let sent = payload.to_bytes();
            if sent != *message.raw() {
                emitter.to_server(sent);
            }
        }
        self.note();
        match answer {
            Some(payload) => payload,
            None if self.policy.id_mapping => Payload::default(),
            None => Payload::of(message),
        }
    }

    /// See [`Filter::poll_to_server`].
    pub fn poll_to_server(&mut self) -> Option<Payload> {
        let payload = self.try_with(Filter::poll_to_server).flatten()?;
        if let Some(emitter) = &mut self.emitter {
            emitter.to_server(payload.to_bytes());
        }
        Some(payload)
    }

    /// See [`Filter::poll_released`].
    pub fn poll_released(&mut self) -> Option<ReleasedRequest> {
        let released = self.try_with(Filter::poll_released).flatten()?;
        if let Some(emitter) = &mut self.emitter {
            emitter.to_server(released.payload.to_bytes());
        }
        Some(released)
    }

    /// See [`Filter::server_message`]. The message is only copied for observers.
    pub fn server_message(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Disposition {
        let failed_before = self.failed.is_some();
        self.offer_room(now);
        self.mark_event_name(now, message);
        self.show(now, || Input::ServerMessage(origin, message.clone()));
        let place = self.try_with(|filter| filter.server_message(now, origin, message));
        let place = place.unwrap_or_else(|| self.without_filter(origin, message, failed_before));
        if let (Some(emitter), Disposition::NotAMessage(text)) = (&mut self.emitter, &place) {
            emitter.noise(text);
        }
        self.note();
        place
    }

    /// Whether events with other names get the name that clients read
    /// ([`Correlator::repairs_event_name`](crate::progress::Correlator::repairs_event_name)).
    pub fn repairs_event_name(&mut self, origin: Origin) -> bool {
        self.try_with(|filter| filter.calls().repairs_event_name(origin)).unwrap_or(true)
    }

    /// Withholds an event whose data is not a message
    /// ([`Correlator::withholds_noise`](crate::progress::Correlator::withholds_noise)). Returns false if the event must
    /// be forwarded.
    pub fn withhold_noise(&mut self, now: Instant, origin: Origin) -> bool {
        let is_withheld =
            self.try_with(|filter| filter.calls().withholds_noise(origin)) == Some(true);
        if is_withheld {
            self.apply(now, Input::OutOfPlace(Reason::Noise));
        }
        is_withheld
    }

    /// Marks the message that comes now as renamed. Marking it earlier could mark another message.
    fn mark_event_name(&mut self, now: Instant, message: &Message) {
        if message.is_renamed() {
            self.apply(now, Input::MarkEventName);
        }
    }

    /// See [`Intake::note_delivery`](crate::progress::Intake::note_delivery). The message is only copied for observers.
    pub fn note_delivery(&mut self, now: Instant, on: Option<StreamId>, message: &Message) {
        self.show(now, || Input::NoteDelivery(on, message.clone()));
        self.try_with(|filter| filter.intake_mut().note_delivery(now, on, message));
        self.note();
    }

    /// Returns the client stream that a message on a listening stream is for. The message is only copied for observers.
    pub fn find_stream(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Option<StreamId> {
        self.show(now, || Input::FindStream(origin, message.clone()));
        let stream = self
            .try_with(|filter| filter.calls_mut().stream_of_arrived(now, origin, message))
            .flatten();
        self.note();
        stream
    }

    /// Handles the server's last message in this filter, because no other filter of the conversation knows its request
    /// ([`Input::HandleLast`]). The message is only copied for observers.
    pub fn handle_last(&mut self, now: Instant, origin: Origin, message: &Message) -> Disposition {
        let failed_before = self.failed.is_some();
        self.mark_event_name(now, message);
        self.show(now, || Input::HandleLast(Some((origin, message.clone()))));
        let place =
            self.try_with(|filter| filter.intake_mut().server_message_here(now, origin, message));
        self.note();
        place.unwrap_or_else(|| self.without_filter(origin, message, failed_before))
    }

    /// Learns a token from a message that another filter handles ([`Input::LearnToken`]).
    pub fn learn_token(&mut self, now: Instant, origin: Origin, message: &Message) {
        self.show(now, || Input::LearnToken(origin, message.clone()));
        self.try_with(|filter| filter.calls_mut().learn_from(origin, message));
        self.note();
    }

    /// Shows the observers that the last message goes to its client unchanged ([`Input::ForwardLast`]).
    pub fn forward_last(&mut self, now: Instant, stream: StreamId, message: &Message) {
        self.show(now, || Input::ForwardLast(Some((stream, message.clone()))));
        self.note();
    }

    /// See [`Intake::pair`](crate::progress::Intake::pair). The message is only copied for observers.
    pub fn pair(&mut self, now: Instant, client: StreamId, message: &Message, upstream: StreamId) {
        self.show(now, || Input::Pair(Some((client, message.clone())), upstream));
        self.try_with(|filter| filter.intake_mut().pair(client, message, upstream));
        self.note();
    }

    /// See [`Intake::late_room`](crate::progress::Intake::late_room).
    pub fn late_room(&mut self, id: Option<&Key>) -> Option<usize> {
        let room = self.try_with(|filter| filter.intake().late_room(id)).flatten()?;
        Some(self.kept.as_ref().map_or(room, |kept| kept.room.left().min(room)))
    }

    /// See [`Intake::begin_large`](crate::progress::Intake::begin_large).
    pub fn begin_large(
        &mut self,
        now: Instant,
        origin: Origin,
        head: Bytes,
        text: Range<usize>,
    ) -> Disposition {
        if let (Some(emitter), Some(text)) = (&mut self.emitter, head.get(text.clone())) {
            emitter.begin_large(origin, self.filter.intake().messages() + 1, text);
        }
        let (piece, place) = (head.clone(), text.clone());
        if let Some(fate) =
            self.try_with(|filter| filter.intake_mut().begin_large(now, origin, piece, place))
        {
            if let (Some(emitter), Disposition::NotAMessage(_)) = (&mut self.emitter, &fate) {
                emitter.mark_large_noise(origin);
            }
            return fate;
        }
        self.begin_without_filter(origin, &head[text.clone()]);
        self.large_piece(now, origin, head, text)
    }

    /// See [`Intake::large_piece`](crate::progress::Intake::large_piece).
    pub fn large_piece(
        &mut self,
        now: Instant,
        origin: Origin,
        piece: Bytes,
        text: Range<usize>,
    ) -> Disposition {
        if let (Some(emitter), Some(text)) = (&mut self.emitter, piece.get(text.clone())) {
            emitter.large_piece(origin, text);
        }
        let copy = piece.clone();
        if let Some(fate) =
            self.try_with(|filter| filter.intake_mut().large_piece(now, origin, copy, text))
        {
            return fate;
        }
        self.piece_without_filter(origin, piece, Fragment::Piece);
        Disposition::Consumed
    }

    /// See [`Intake::finish_large`](crate::progress::Intake::finish_large), or
    /// [`Intake::break_off_server`](crate::progress::Intake::break_off_server) if the rest is missing (`broken`).
    pub fn finish_large(&mut self, now: Instant, origin: Origin, broken: Option<&str>) {
        if let Some(emitter) = &mut self.emitter {
            emitter.finish_large(now, origin, broken);
        }
        let end = |filter: &mut Filter| match broken {
            Some(why) => filter.intake_mut().break_off_server(now, origin, why),
            None => filter.intake_mut().finish_large(now, origin),
        };
        if self.try_with(end).is_none() {
            self.piece_without_filter(origin, Bytes::new(), Fragment::End);
        }
        self.note();
    }

    /// See [`Filter::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Instant, stream: StreamId) -> Option<Transmit> {
        let looks = self.emitter.is_some()
            && self.poll_stream_timeout(stream).is_some_and(|due| due <= now);
        if let Some(transmit) = self.try_with(|filter| filter.poll_transmit(now, stream)) {
            let first = self.emitter.as_ref().and_then(|_| self.filter.poll_event());
            match (&mut self.emitter, &transmit) {
                (Some(emitter), Some(transmit)) => emitter.to_client(now, stream, transmit),
                (Some(emitter), None) if looks || first.is_some() => {
                    emitter.input(
                        now,
                        Input::PollInVain(stream),
                        self.filter.intake().messages() + 1,
                    );
                }
                _ => {}
            }
            if let (Some(emitter), Some(record)) = (&mut self.emitter, first) {
                emitter.decision_of(&self.filter, &record);
                self.recorded.push_back(record);
            }
            self.note();
            return transmit;
        }
        self.failed.as_mut()?.pop(stream)
    }

    /// Whether no poll except that for events would do anything now
    /// ([`Intake::has_nothing_due`](crate::progress::Intake::has_nothing_due)), and no observer sees the polls.
    pub fn is_idle(&self, now: Instant, stream: StreamId) -> bool {
        self.is_unobserved() && self.filter.intake().has_nothing_due(now, stream)
    }

    /// Whether the filter has nothing left to do ([`Filter::is_finished`]), and no observer sees its end.
    pub fn is_finished(&self) -> bool {
        self.is_unobserved() && self.filter.is_finished()
    }

    /// Whether an event waits.
    pub fn has_events(&self) -> bool {
        !self.is_unobserved() || !self.filter.calls().events().is_empty()
    }

    /// Whether the filter has not failed, and no observer needs its events.
    fn is_unobserved(&self) -> bool {
        self.failed.is_none() && self.emitter.is_none() && self.recorded.is_empty()
    }

    /// See [`Filter::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.failed.is_some() { None } else { self.filter.poll_timeout() }
    }

    /// See [`Correlator::poll_stream_timeout`](crate::progress::Correlator::poll_stream_timeout).
    pub fn poll_stream_timeout(&self, stream: StreamId) -> Option<Instant> {
        if self.failed.is_some() { None } else { self.filter.calls().poll_stream_timeout(stream) }
    }

    /// See [`Filter::poll_event`]. Must be polled for every connection, because here the guard also learns durations
    /// from calls that end.
    pub fn poll_event(&mut self) -> Option<FilterEvent> {
        self.note();
        let recorded = self.recorded.pop_front();
        if let Some(failed) = &mut self.failed {
            return recorded.or_else(|| failed.poll_event());
        }
        let record = recorded.or_else(|| self.filter.poll_event());
        if let Some(FilterEvent::Call(call)) = &record {
            self.policy.learned.learn(call);
        }
        record
    }

    /// See [`EventQueue::take_run`](crate::progress::EventQueue::take_run). Returns `None` while the filter is
    /// observed, because observers need each event.
    pub fn poll_verdicts(&mut self) -> Option<VerdictRun> {
        if self.is_unobserved() { self.filter.calls_mut().events_mut().take_run() } else { None }
    }

    /// See [`ClientStreams::is_full`](crate::progress::ClientStreams::is_full).
    pub fn is_full(&self) -> bool {
        let Some(failed) = &self.failed else { return self.filter.calls().streams().is_full() };
        failed.bytes() >= QUEUE_MAX
    }

    /// See [`Filter::open_calls`].
    pub fn open_calls(&self) -> usize {
        if self.failed.is_some() { 0 } else { self.filter.open_calls() }
    }
}
