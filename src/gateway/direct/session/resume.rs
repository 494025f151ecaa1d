//! Streams on which the client listens, and what they take over from a stream that the client has left.

use std::sync::{Arc, PoisonError};

use super::{Session, SessionState, SessionStream};
use crate::gateway::direct::mailbox::Mail;
use crate::progress::input::Input;
use crate::progress::{Filter, StreamId, StreamKind, StreamPacing};
use crate::protocol::jsonrpc::Message;
use crate::transport::clock::now;

impl Session {
    /// Opens a stream on which the client listens. `last`: the id of the event after which the client resumes.
    pub(crate) fn listen(self: &Arc<Self>, last: Option<&[u8]>) -> SessionStream {
        let mut shared = self.lock();
        let mut member = shared.join(self, StreamKind::Shared);
        let stream = member.stream;
        shared.listening.insert(stream);
        let Some(id) = last else {
            let opens = Input::OpenStream(stream, StreamKind::Shared, StreamPacing::Immediate);
            shared.filter.apply(now(), opens);
            return member;
        };
        shared.resumed.insert(stream, None);
        // `ids` is always locked after `shared`, or alone.
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let written = ids.streams_of(id);
        member.kind = ids.kind_of(&written);
        shared.filter.apply(now(), Input::OpenReplay(stream, member.kind));
        if written.is_empty() {
            // Another process has written the id, so the session may have requests that are unknown here.
            shared.filter.apply(now(), Input::MarkIncomplete);
        }
        // Some servers count the events of each stream from the start: an id of two open streams identifies neither.
        let mut open = written.into_iter().filter(|old| shared.streams.contains_key(old));
        if let (Some(old), None) = (open.next(), open.next()) {
            shared.replace(old, stream, ids.value_behind(id, old));
            // Moved, because the client may resume with the same id again before an event has arrived.
            ids.move_ids(old, stream);
        }
        member
    }
}

impl SessionStream {
    /// Notes that an event with this id is written on the stream. `before`: the last value that its client received
    /// before.
    pub(crate) fn note_id(&self, id: &[u8], before: Option<f64>) {
        let mut ids = self.session.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.insert(id, self.stream, self.kind, before);
    }

    /// Whether an array that came on the stream contains a message about a request of another stream.
    pub(crate) fn shares(&self, array: &Message) -> bool {
        let ask = |filter: &mut Filter| filter.calls_mut().is_for_others(self.stream, array);
        self.session.with_filter(|filter| filter.try_with(ask)) == Some(true)
    }

    /// Closes a listening stream.
    pub(crate) fn stop_listening(&self) {
        let mut shared = self.session.lock();
        let stream = self.stream;
        shared.listening.remove(&stream);
        shared.resumed.remove(&stream);
        shared.filter.apply(now(), Input::CloseStream(stream, false));
        shared.note();
        shared.waiting.retain(|_, on| *on != stream);
        shared.judged.retain(|(on, ..)| *on != stream);
        shared.streams.remove(&stream);
    }
}

impl SessionState {
    /// Whether a stream repeats messages that the server has kept for this session and whose requests are not all known
    /// here. A token on it means a request of this session, even if another session has an equal token, which is common
    /// because clients count their tokens from small numbers.
    pub(super) fn repeats_unseen(&self, on: StreamId) -> bool {
        self.began_elsewhere && self.resumed.contains_key(&on)
    }

    /// Notes that the client of the stream `old` has reconnected on the stream `new`. `behind` is the value that the
    /// client had received after the last event that it knows; `None` if no event followed. Nothing more is written to
    /// `old`, even if its disconnect has not been noticed.
    fn replace(&mut self, old: StreamId, new: StreamId, behind: Option<Option<f64>>) {
        let Some(mailbox) = self.streams.remove(&old) else { return };
        let is_listening = self.listening.remove(&old);
        let value_on = |filter: &mut Filter| filter.calls().open().value_on(old);
        let sent_value = behind.unwrap_or_else(|| {
            if is_listening {
                self.filter.try_with(value_on).flatten()
            } else {
                mailbox.sent_value()
            }
        });
        self.filter.apply(now(), Input::ResumeStream(old, new, sent_value));
        self.note();
        self.post(&mailbox, Mail::Replaced);
        self.resumed.insert(new, Some(mailbox));
    }
}
