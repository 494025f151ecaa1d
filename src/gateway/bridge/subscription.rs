//! A client that reads a stream: takes its messages from the replay buffer and advances its position.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::frame;
use crate::gateway::bridge::replay_buffer::{
    BufferState, FirstResponse, ReadPosition, ReplayBuffer,
};
use crate::gateway::bridge::signals::Broken;
use crate::protocol::jsonrpc::own_error;
use crate::relay::SOLE_STREAM;
use crate::transport::http::body::Batch;

/// The form of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventForm {
    /// The client can resume.
    WithIds,
    WithoutIds,
}

/// A client that reads a stream. The client counts as gone when this value is dropped.
pub(crate) struct Subscription {
    pub(crate) buffer: Arc<ReplayBuffer>,
    reader: u64,
}

/// The state of a client that reads a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadStatus {
    On,
    /// The client has received everything, and no more will follow.
    Over,
    /// Another reader has replaced this one.
    Elsewhere,
}

impl Subscription {
    pub(crate) fn new(buffer: &Arc<ReplayBuffer>, reader: u64) -> Self {
        Self { buffer: Arc::clone(buffer), reader }
    }

    /// Ready with what has arrived first, if that decides the form of the response. Registers the task to wake.
    pub(crate) fn poll_first_response(&self, cx: &Context<'_>) -> Poll<FirstResponse> {
        let mut state = self.buffer.lock();
        if !self.listens(&state, cx) {
            return Poll::Ready(FirstResponse::Events);
        }
        match state.first_response(self.buffer.reads) {
            FirstResponse::Wait => {
                self.ask_for_more(&mut state);
                Poll::Pending
            }
            look => Poll::Ready(look),
        }
    }

    /// Ready when no more messages will arrive, so that all messages of the stream can be examined.
    pub(crate) fn poll_over(&self, cx: &Context<'_>) -> Poll<FirstResponse> {
        let mut state = self.buffer.lock();
        if !self.listens(&state, cx) || state.over {
            return Poll::Ready(state.first_response(self.buffer.reads));
        }
        self.ask_for_more(&mut state);
        Poll::Pending
    }

    /// Notes that the client has read all it was given, so that the relay may send again.
    fn ask_for_more(&self, state: &mut BufferState) {
        // The client has read all bytes that it was given.
        state.unread = 0;
        if std::mem::take(&mut state.relay_waits) {
            self.buffer.signals.mark_drained(self.buffer.id);
        }
    }

    /// Returns the messages of an ended stream that the client has not received: its answers, and errors for unanswered
    /// requests.
    pub(crate) fn texts(&self) -> (Vec<Bytes>, Option<Broken>) {
        let state = self.buffer.lock();
        let messages = state
            .messages
            .iter()
            // A message that broke off is left out, because its request gets an error below.
            .filter(|one| one.whole || (state.broken.is_none() && !one.broken_off));
        let mut texts: Vec<Bytes> = messages.map(|one| one.text(&state.broken)).collect();
        if let Some(broken) = &state.broken {
            texts.extend(state.open.iter().map(|(_, id)| own_error(id, broken.why, None)));
        }
        (texts, state.broken.clone())
    }

    /// Returns the same as [`Self::texts`], and counts it as given to the client.
    pub(crate) fn answers(&self) -> (Vec<Bytes>, Option<Broken>) {
        let texts = self.texts();
        let mut state = self.buffer.lock();
        state.open.clear();
        state.position = ReadPosition { number: state.last, pieces: 0 };
        drop(state);
        self.acknowledge();
        texts
    }

    /// Writes the available messages as events.
    pub(crate) fn events(&self, form: EventForm, out: &mut Batch) -> ReadStatus {
        let ids = form == EventForm::WithIds;
        let mut state = self.buffer.lock();
        if state.reader != self.reader {
            return ReadStatus::Elsewhere;
        }
        state.resumable |= ids;
        let id = |number| ids.then(|| self.buffer.event_id(number));
        while !out.is_full() {
            let from = state.position.pieces;
            let Some(next) = state.next() else { break };
            let number = next.number;
            let broke_off = next.broken_off || (state.over && !next.whole);
            if broke_off && from == 0 {
                // The rest of the message will not arrive, so its request gets an error.
                state.position = ReadPosition { number, pieces: 0 };
                continue;
            }
            // The first pieces are dropped, so the client gets an error instead of the message.
            if from < next.lost {
                let text = next.text(&state.broken);
                frame::event(id(number), &text, out);
                state.position = ReadPosition { number, pieces: 0 };
                continue;
            }
            if from == 0 {
                frame::head(id(number), out);
            }
            let pieces = next.pieces.iter().skip(from - next.lost);
            let mut count = from;
            for piece in pieces {
                frame::data(piece, out);
                count += 1;
            }
            if next.whole || broke_off {
                if broke_off {
                    frame::broken_off(out)
                } else {
                    frame::tail(out)
                }
                state.position = ReadPosition { number, pieces: 0 };
            } else {
                state.position.pieces = count;
                break;
            }
        }
        // Errors come last, and only once, because `open` is emptied.
        if state.over && state.next().is_none() && !out.is_full() {
            if let Some(broken) = state.broken.clone() {
                for (_, id) in std::mem::take(&mut state.open) {
                    frame::event(None, &own_error(&id, broken.why, None), out);
                }
            }
            return ReadStatus::Over;
        }
        ReadStatus::On
    }

    /// Writes pieces of a large answer for the client, unchanged.
    pub(crate) fn pieces(&self, out: &mut Batch) -> ReadStatus {
        let mut state = self.buffer.lock();
        if state.reader != self.reader {
            return ReadStatus::Elsewhere;
        }
        let Some(large) = state.messages.front_mut() else { return ReadStatus::Over };
        // A client cannot resume in the middle of a message, so pieces that were given to the client are not kept.
        let pieces = std::mem::take(&mut large.pieces);
        large.lost += pieces.len();
        let (count, whole, broken_off) = (large.lost, large.whole, large.broken_off);
        let bytes = std::mem::take(&mut large.bytes);
        state.bytes -= bytes;
        state.position.pieces = count;
        pieces.iter().for_each(|piece| out.raw(piece));
        match (whole, state.over || broken_off) {
            (true, _) => ReadStatus::Over,
            (false, true) => ReadStatus::Elsewhere,
            (false, false) => ReadStatus::On,
        }
    }

    /// Notes that the client has taken the bytes that were written for it.
    pub(crate) fn acknowledge(&self) {
        let mut state = self.buffer.lock();
        if state.reader != self.reader {
            return;
        }
        state.received = state.position.number;
        let (done, pieces) =
            (state.position.pieces, state.next().map(|next| next.lost + next.pieces.len()));
        // Only if the client has taken all pieces: a relay that can still write need not be woken.
        if pieces.is_none_or(|pieces| pieces == done) {
            state.make_room();
            self.ask_for_more(&mut state);
        }
        self.buffer.fit(&mut state);
    }

    /// Whether the client was given a part of a large message, but not yet all of it.
    pub(crate) fn is_midway(&self) -> bool {
        self.buffer.lock().position.pieces > 0
    }

    /// Registers for a wake-up at the next message.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.listens(&self.buffer.lock(), cx);
    }

    /// Registers the task to wake, unless another reader has replaced this one: only one task can be registered.
    fn listens(&self, state: &BufferState, cx: &Context<'_>) -> bool {
        let reads = state.reader == self.reader;
        if reads {
            self.buffer.client.register(cx.waker());
        }
        reads
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.buffer.lock();
        // A reader that was replaced must not change the state.
        if state.reader != self.reader {
            return;
        }
        state.detach();
        self.buffer.fit(&mut state);
        // The idle time without a client starts now.
        self.buffer.signals.touch();
        if self.buffer.id == SOLE_STREAM {
            self.buffer.signals.mark_left();
        }
        // The relay does not know the stream yet, so nothing else would end it.
        if !state.known_to_relay {
            state.over = true;
        }
        self.ask_for_more(&mut state);
        if self.buffer.cancels() && !state.over {
            self.buffer.signals.mark_disconnected(self.buffer.id);
        }
    }
}
