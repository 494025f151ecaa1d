//! The filter of a conversation. After a panic in the filter, the conversation continues without it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::conversation::output::ConversationEvent;
use crate::progress::{
    Disposition, FailedFilter, Filter, FilterEvent, Fragment, Origin, Payload, Policy, QUEUE_MAX,
    StreamId, StreamKind, StreamPacing, Transmit,
};
use crate::protocol::jsonrpc::Message;

/// A filter, or what is left of the filter after a panic.
#[derive(Debug)]
pub(crate) struct GuardedFilter {
    filter: Filter,
    policy: Arc<Policy>,
    failed: Option<Box<FailedFilter>>,
    /// Whether the failure has been reported.
    is_reported: bool,
    /// The open client streams.
    streams: BTreeMap<StreamId, StreamKind>,
}

impl GuardedFilter {
    /// A filter without streams.
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        let filter = Filter::new(Arc::clone(&policy));
        Self { filter, policy, failed: None, is_reported: false, streams: BTreeMap::new() }
    }

    /// Runs `work` on the filter; `None` if the filter has failed, now or before.
    pub(crate) fn attempt<T>(&mut self, work: impl FnOnce(&mut Filter) -> T) -> Option<T> {
        if self.failed.is_some() {
            return None;
        }
        let filter = &mut self.filter;
        // A panic may leave the filter in an inconsistent state. Afterwards only the messages that it was about to
        // write are taken from it, inside another `catch_unwind`.
        let done = catch_unwind(AssertUnwindSafe(|| work(filter)));
        if done.is_err() {
            let rest = self.place_of(Origin::Shared).unwrap_or(StreamId::NOWHERE);
            let policy = Arc::clone(&self.policy);
            let mut failed = FailedFilter::salvage(&mut self.filter, policy, rest);
            // The failed filter has no open client stream for these messages.
            failed.close_stream(StreamId::NOWHERE);
            self.failed = Some(Box::new(failed));
        }
        done.ok()
    }

    /// Returns the open stream for server messages that come on `origin`, without the help of the filter.
    fn place_of(&self, origin: Origin) -> Option<StreamId> {
        let own = match origin {
            Origin::Stream(stream) if self.streams.contains_key(&stream) => Some(stream),
            Origin::Stream(_) | Origin::Shared => None,
        };
        let mut shared = self.streams.iter().filter(|(_, kind)| **kind == StreamKind::Shared);
        own.or_else(|| shared.next().map(|(stream, _)| *stream))
    }

    pub(crate) fn open_stream(&mut self, id: StreamId, kind: StreamKind, pacing: StreamPacing) {
        self.streams.insert(id, kind);
        self.attempt(|filter| filter.open_stream(id, kind, pacing));
    }

    pub(crate) fn close_stream(&mut self, now: Instant, id: StreamId) {
        self.attempt(|filter| filter.close_stream(now, id));
        self.streams.remove(&id);
        if let Some(failed) = &mut self.failed {
            failed.close_stream(id);
        }
    }

    /// Returns the form of the message that the server gets.
    pub(crate) fn client_message(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
    ) -> Payload {
        let payload = self.attempt(|filter| filter.client_message(now, stream, message));
        // A client's message reaches the server even if the filter has failed.
        payload.unwrap_or_else(|| Payload::of(message))
    }

    pub(crate) fn server_message(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Disposition {
        let failed_before = self.failed.is_some();
        if let Some(place) = self.attempt(|filter| filter.server_message(now, origin, message)) {
            return place;
        }
        let stream = self.place_of(origin);
        match (&mut self.failed, stream) {
            (Some(failed), Some(stream)) if failed_before => failed.forward(stream, message),
            // The message that the filter was handling when it failed has been salvaged.
            _ => Disposition::Consumed,
        }
    }

    /// Begins a line of the server that is too long to be kept whole: takes its first piece.
    pub(crate) fn begin_large(&mut self, now: Instant, head: Bytes) -> Disposition {
        let (piece, text) = (head.clone(), 0..head.len());
        let place = self
            .attempt(|filter| filter.intake_mut().begin_large(now, Origin::Shared, piece, text));
        place.unwrap_or_else(|| {
            if let Some(failed) = &mut self.failed {
                failed.begin_large(Origin::Shared, &head);
            }
            self.large_piece(now, head)
        })
    }

    /// Takes a further piece of a large line.
    pub(crate) fn large_piece(&mut self, now: Instant, piece: Bytes) -> Disposition {
        let (copy, text) = (piece.clone(), 0..piece.len());
        let place =
            self.attempt(|filter| filter.intake_mut().large_piece(now, Origin::Shared, copy, text));
        place.unwrap_or_else(|| self.piece_without_filter(piece, Fragment::Piece))
    }

    /// Takes the end of a large line, or the reason why its rest is missing.
    pub(crate) fn finish_large(&mut self, now: Instant, broken: Option<&str>) -> Disposition {
        let done = self.attempt(|filter| match broken {
            Some(why) => filter.intake_mut().break_off_server(now, Origin::Shared, why),
            None => filter.intake_mut().finish_large(now, Origin::Shared),
        });
        match done {
            Some(()) => Disposition::Consumed,
            None => self.piece_without_filter(Bytes::new(), Fragment::End),
        }
    }

    fn piece_without_filter(&mut self, piece: Bytes, part: Fragment) -> Disposition {
        let stream = self.place_of(Origin::Shared);
        if let (Some(failed), Some(stream)) = (&mut self.failed, stream) {
            failed.large_piece(Origin::Shared, stream, piece, part);
        }
        Disposition::Consumed
    }

    /// Returns the next bytes to be written on a stream now.
    pub(crate) fn poll_transmit(&mut self, now: Instant, stream: StreamId) -> Option<Transmit> {
        match self.attempt(|filter| filter.poll_transmit(now, stream)) {
            Some(transmit) => transmit,
            None => self.failed.as_mut()?.pop(stream),
        }
    }

    /// Returns the next event, oldest first. Learns durations from calls that end.
    pub(crate) fn poll_event(&mut self) -> Option<ConversationEvent> {
        // Events from before the failure come first, because they include the records of calls.
        let event = self.filter.poll_event();
        if let Some(FilterEvent::Call(call)) = &event {
            self.policy.learned.learn(call);
        }
        if let Some(event) = event {
            return Some(ConversationEvent::Decision(event));
        }
        let failed = self.failed.as_mut()?;
        if !std::mem::replace(&mut self.is_reported, true) {
            return Some(ConversationEvent::Failed);
        }
        failed.poll_event().map(ConversationEvent::Decision)
    }

    /// Whether nothing is left to write on a stream. `has_ended`: the server sends nothing more for the stream.
    pub(crate) fn is_over(&mut self, now: Instant, stream: StreamId, has_ended: bool) -> bool {
        let is_exchange = self.streams.get(&stream) == Some(&StreamKind::Exchange);
        let is_over = self.attempt(|filter| {
            is_exchange && filter.is_over(stream)
                || has_ended && filter.intake().has_nothing_due(now, stream)
        });
        let failed = self.failed.as_ref();
        is_over
            .unwrap_or_else(|| has_ended && failed.is_none_or(|failed| failed.is_drained(stream)))
    }

    /// Whether so many bytes wait for clients that the server should not be read.
    pub(crate) fn is_full(&self) -> bool {
        let Some(failed) = &self.failed else { return self.filter.calls().streams().is_full() };
        failed.bytes() >= QUEUE_MAX
    }
}
