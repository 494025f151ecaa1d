//! The filter's messages for clients: only streams that may have some are examined.

use std::iter;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{Relay, RelayEvent, SOLE_STREAM};
use crate::progress::input::Input;
use crate::progress::{Filter, StreamId};
use crate::relay::legs::{ClientLeg, ServerLeg};
use crate::relay::states::{ClientPace, ClientSide, RelayMode};
use crate::transport::clock::now;

/// A stream is not looked at again for its time within this.
const AGAIN: Duration = Duration::from_millis(1);

impl<C: ClientLeg, S: ServerLeg> Relay<C, S> {
    /// Takes the writable bytes from the filter, and returns the time of the next look.
    pub(super) fn collect(&mut self) -> Option<tokio::time::Instant> {
        let now = now();
        // Even if no stream is open: work whose clients have disconnected ends by its time limit.
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
            // Messages are given out even for clients that do not read: no client may wait for another
            // (`are_strangers`).
            let full = self.filter.try_with(|filter| filter.calls().streams().full().collect());
            let full: Vec<_> = full.unwrap_or_default();
            for stream in full {
                while let Some(transmit) = self.filter.poll_transmit(now, stream) {
                    self.clients.send(stream, transmit);
                }
            }
        }
        // Streams that already have enough bytes for one write come first, because nothing else marks them as changed.
        let mut looks = std::mem::take(&mut self.again);
        if self.filter.try_with(|_| ()).is_none() {
            // The messages of the failed filter are given out stream by stream.
            looks = self.streams().collect();
        }
        while let Some(stream) = looks.pop().or_else(|| self.next_look(now)) {
            // A stream that is not ready is being written. The end of the write marks the stream as changed.
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

    /// Whether the messages that the filter gives out are not written at all.
    fn writes_nothing(&self) -> bool {
        self.mode == RelayMode::Raw || self.client_side == ClientSide::Gone
    }

    /// The time at which something has waited for its whole time.
    fn next_expiry(&mut self) -> Option<Instant> {
        self.filter.try_with(|filter| filter.intake().next_expiry()).flatten()
    }

    /// The streams of clients.
    fn streams(&self) -> impl Iterator<Item = StreamId> {
        iter::once(SOLE_STREAM).chain(self.exchanges.iter().copied())
    }

    /// A stream that is due or has changed. A thousand silent streams cost nothing.
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
        // Other streams get their turn before this stream.
        if is_full {
            self.again.push(stream);
        }
        // A message that cannot be written although it is due waits for another event.
        let due = due.filter(|_| !is_full).map(|due| due.max(now + AGAIN));
        self.deadlines.set(stream, due);
    }

    fn collect_for(&mut self, stream: StreamId, now: Instant) {
        if self.writes_nothing() {
            // Messages are taken although they are not written, so that the filter decides and counts as usual.
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

    /// Writes the remaining messages for clients when nothing is read any more.
    pub(super) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<RelayEvent> {
        if self.clients.is_writing()
            && let Poll::Ready((stream, ok)) = self.clients.poll_flush(cx)
        {
            return Poll::Ready(RelayEvent::ClientWritten(stream, ok));
        }
        self.poll_piece(cx).map(|(stream, piece)| RelayEvent::Piece(stream, piece))
    }
}
