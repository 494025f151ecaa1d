//! Takes the filter's messages for clients. Only streams that may have messages are examined.

use std::iter;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{Relay, RelayEvent, SOLE_STREAM};
use crate::progress::input::Input;
use crate::progress::{Filter, StreamId};
use crate::relay::legs::{ClientLeg, ServerLeg};
use crate::relay::states::{ClientPace, ClientSide, RelayMode};
use crate::transport::clock::now;

/// Minimum time before a stream is examined again because of its due time.
const AGAIN: Duration = Duration::from_millis(1);

impl<C: ClientLeg, S: ServerLeg> Relay<C, S> {
    /// Queues the filter's messages on the streams that can write, and returns the time of the next examination.
    pub(super) fn collect(&mut self) -> Option<tokio::time::Instant> {
        let now = now();
        // Also needed if no stream is open: work whose clients have disconnected ends by its time limit.
        if self.next_expiry().is_some_and(|expiry| expiry <= now) {
            self.filter.apply(now, Input::Expire);
        }
        while let Some(payload) = self.filter.poll_to_server() {
            self.server.send(None, payload, &None);
        }
        if !self.held.is_empty() {
            self.send_released(now);
        }
        let pace = if self.clients.is_slow() { ClientPace::Slow } else { ClientPace::Usual };
        if pace != std::mem::replace(&mut self.client_pace, pace) {
            self.filter.apply(now, Input::SetClientSlow(pace == ClientPace::Slow));
        }
        if self.writes_nothing() {
            self.collect_for(SOLE_STREAM, now);
            let due = self.filter.poll_stream_timeout(SOLE_STREAM);
            return due.map(tokio::time::Instant::from_std);
        }
        if self.clients.are_strangers() {
            // Take the messages even for clients that do not read, because no client may wait for another
            // (`are_strangers`).
            let full = self.filter.try_with(|filter| filter.calls().streams().full().collect());
            let full: Vec<_> = full.unwrap_or_default();
            for stream in full {
                while let Some(transmit) = self.filter.poll_transmit(now, stream) {
                    self.clients.send(stream, transmit);
                }
            }
        }
        // Streams that already had enough bytes for one write come first, because no change marks them.
        let mut looks = std::mem::take(&mut self.again);
        if self.filter.try_with(|_| ()).is_none() {
            // A failed filter marks no changes, so examine every stream.
            looks = self.streams().collect();
        }
        while let Some(stream) = looks.pop().or_else(|| self.next_look(now)) {
            // Skip a stream that is still writing. The end of the write marks it as changed.
            if self.clients.is_ready(stream) {
                self.look_at(stream, now);
            }
        }
        let tasks = self
            .filter
            .try_with(|filter| (filter.detached().own_tasks(), filter.calls().open().tasks() > 0));
        let (own, is_open) = tasks.unwrap_or_default();
        self.clients.set_tasks(own + self.leg_tasks.open, is_open);
        let due = [self.deadlines.next(), self.next_expiry()].into_iter().flatten().min();
        due.map(tokio::time::Instant::from_std)
    }

    /// Whether the filter's messages are not written at all.
    fn writes_nothing(&self) -> bool {
        self.mode == RelayMode::Raw || self.client_side == ClientSide::Gone
    }

    /// Returns the time at which waiting work or messages expire.
    fn next_expiry(&mut self) -> Option<Instant> {
        self.filter.try_with(|filter| filter.intake().next_expiry()).flatten()
    }

    /// Returns the client streams.
    fn streams(&self) -> impl Iterator<Item = StreamId> {
        iter::once(SOLE_STREAM).chain(self.exchanges.iter().copied())
    }

    /// Returns a stream that is due or has changed. Other streams cost nothing, however many there are.
    fn next_look(&mut self, now: Instant) -> Option<StreamId> {
        let changed = |filter: &mut Filter| filter.calls_mut().streams_mut().next_changed();
        self.deadlines.take_due(now).or_else(|| self.filter.try_with(changed).flatten())
    }

    fn look_at(&mut self, stream: StreamId, now: Instant) {
        self.collect_for(stream, now);
        let settled = |filter: &mut Filter| {
            filter.calls_mut().streams_mut().settle(stream);
            filter.calls().streams().due(stream)
        };
        let due = self.filter.try_with(settled).flatten();
        let is_full = self.clients.is_full(stream);
        // Let other streams have their turn before this one.
        if is_full {
            self.again.push(stream);
        }
        // A message that is due but cannot be written yet waits for another event, not for a time.
        let due = due.filter(|_| !is_full).map(|due| due.max(now + AGAIN));
        self.deadlines.set(stream, due);
    }

    fn collect_for(&mut self, stream: StreamId, now: Instant) {
        if self.writes_nothing() {
            // Take the messages although they are not written, so that the filter decides and counts as usual.
            while self.filter.poll_transmit(now, stream).is_some() {}
            return self.written(now, stream);
        }
        let mut from_file = self.spooled.iter().filter(|reader| reader.stream == stream).peekable();
        // No other message may be written between the pieces of an answer from a file.
        if from_file.peek().is_some_and(|first| first.begun) {
            return;
        }
        let from_file = from_file.peek().is_some();
        while !self.clients.is_full(stream) {
            let Some(transmit) = self.filter.poll_transmit(now, stream) else { break };
            self.clients.send(stream, transmit);
        }
        let is_over = |filter: &mut Filter| filter.is_over(stream);
        if self.exchanges.contains(&stream)
            && !from_file
            // `None`: the filter has failed, and adds nothing more to the stream.
            && self.filter.try_with(is_over) != Some(false)
        {
            self.exchanges.remove(&stream);
            self.filter.apply(now, Input::CloseStream(stream, false));
            self.clients.finish(stream);
        }
    }

    /// Writes the remaining messages for clients, when neither side is read any more.
    pub(super) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<RelayEvent> {
        if self.clients.is_writing()
            && let Poll::Ready((stream, ok)) = self.clients.poll_flush(cx)
        {
            return Poll::Ready(RelayEvent::ClientWritten(stream, ok));
        }
        self.poll_piece(cx).map(|(stream, piece)| RelayEvent::Piece(stream, piece))
    }
}
