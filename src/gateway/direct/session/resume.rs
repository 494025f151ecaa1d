//! Streams on which the client listens, and what they take over from the stream that the client has left.

use std::sync::{Arc, PoisonError};

use super::{Session, SessionState, SessionStream};
use crate::gateway::direct::mailbox::Mail;
use crate::progress::input::Input;
use crate::progress::{Filter, StreamId, StreamKind, StreamPacing};
use crate::protocol::jsonrpc::Message;
use crate::transport::clock::now;

impl Session {
    /// Opens a stream on which the client listens. `last`: the client has come back for the messages behind the
    /// event of this id.
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
            // Another process has written the id, and may know requests that are unknown here.
            shared.filter.apply(now(), Input::MarkIncomplete);
        }
        // Some servers number the events of each stream from the beginning: an id of two open streams names neither.
        let mut open = written.into_iter().filter(|old| shared.streams.contains_key(old));
        if let (Some(old), None) = (open.next(), open.next()) {
            shared.replace(old, stream, ids.value_behind(id, old));
            // The client may come back with the same id again, before an event has come.
            ids.move_ids(old, stream);
        }
        member
    }
}

impl SessionStream {
    /// An event with this id is written on the stream, whose client has been sent the value `before`.
    pub(crate) fn note_id(&self, id: &[u8], before: Option<f64>) {
        let mut ids = self.session.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.insert(id, self.stream, self.kind, before);
    }

    /// Whether an array that came on the stream has a message about a request of another stream.
    pub(crate) fn shares(&self, array: &Message) -> bool {
        let ask = |filter: &mut Filter| filter.calls_mut().is_for_others(self.stream, array);
        self.session.with_filter(|filter| filter.try_with(ask)) == Some(true)
    }

    /// A listening stream closes.
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
    /// Whether a stream repeats what the server has kept for this very session, whose requests are not all known
    /// here: a token there means one of them, although a call of another session may have an equal one. Clients
    /// count their tokens from small numbers.
    pub(super) fn repeats_unseen(&self, on: StreamId) -> bool {
        self.began_elsewhere && self.resumed.contains_key(&on)
    }

    /// The client of the stream `old` has come back on the stream `new`, and has had its value `behind` the last
    /// event that it knows; `None` if no event followed. Nothing goes to `old` any more, whether or not the
    /// client has been seen to leave.
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
