//! Messages without a stream of their own: on the stream that is held for a client, and events for another stream than
//! that on which they came.

use std::future::pending;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Session, SessionState};
use crate::gateway::direct::claim::ClaimSender;
use crate::gateway::direct::mailbox::{MAILBOX_LIMIT, Mail};
use crate::gateway::limit_notices::tell_of_dropped_mail;
use crate::progress::{Origin, StreamId};
use crate::transport::clock::now;

impl Session {
    /// Notes that a stream is held that `caller` may claim. Returns false if one is already held.
    pub(crate) fn hold(&self, caller: u64, claim: ClaimSender) -> bool {
        let mut shared = self.lock();
        let free = shared.held.is_none();
        if free {
            shared.held = Some((caller, claim));
            shared.let_go = false;
        }
        free
    }

    /// Whether Milepost holds a stream in the client's place.
    pub(crate) fn is_held(&self) -> bool {
        self.lock().held.is_some()
    }

    pub(crate) fn release(&self) {
        self.lock().held = None;
    }

    /// Tells responses whose answers would come on a GET stream that no such stream will be opened.
    pub(crate) fn end_waits(&self) {
        let shared = self.lock();
        for mailbox in shared.streams.values().filter(|mailbox| mailbox.takes_answers()) {
            // Ignore the result: a mailbox always has room for this one message (`NEWS_MAX`).
            let _ = mailbox.put(Mail::SessionOver);
        }
    }

    /// Notes that a large message on a listening stream is complete. Responses without an open request are told,
    /// because the message may have been the answer to one of them.
    pub(crate) fn end_large(&self, on: StreamId) {
        let mut shared = self.lock();
        let SessionState { filter, streams, listening, .. } = &mut *shared;
        filter.finish_large(now(), Origin::Stream(on), None);
        let responses = streams.iter().filter(|(id, _)| !listening.contains(id));
        for (id, mailbox) in responses {
            if filter.try_with(|filter| filter.intake().has_calls_on(*id)) == Some(false) {
                // Ignore the result: a mailbox always has room for the few messages of this kind (`NEWS_MAX`).
                let _ = mailbox.put(Mail::AllSettled);
            }
        }
    }

    /// Whether a request of a stream is unanswered.
    pub(crate) fn has_calls_on(&self, stream: StreamId) -> bool {
        self.lock().filter.try_with(|filter| filter.intake().has_calls_on(stream)) == Some(true)
    }

    /// Closes the held stream, because the client does not use the session. Its next message opens the stream again.
    pub(crate) fn let_go(&self) {
        let mut shared = self.lock();
        shared.held = None;
        shared.let_go = true;
    }

    /// Whether the held stream was closed for lack of use, and none was held since.
    pub(crate) fn was_let_go(&self) -> bool {
        self.lock().let_go
    }

    /// Completes when the client has not used the session for `limit`; never without a limit. Messages of the server on
    /// the held stream do not count as use.
    pub(crate) async fn unused(&self, limit: Option<Duration>) {
        let Some(limit) = limit else { return pending().await };
        loop {
            let since = self.idle_since().map(|_| self.spoken());
            let until = since.unwrap_or_else(Instant::now) + limit;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// Returns the time of the client's last use. Does not call [`Session::lock`], which would count as a use.
    fn spoken(&self) -> Instant {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).spoken
    }

    /// Counts a message that is dropped because `limit` is reached.
    pub(crate) fn count_dropped(&self, limit: &'static str) {
        tell_of_dropped_mail(&self.lock().counts, limit);
    }

    /// Claims the held stream. Only its caller may have it, because a session id is no proof of identity.
    pub(crate) fn claim(&self, caller: u64) -> Option<ClaimSender> {
        let mut shared = self.lock();
        let (_, claim) = shared.held.take_if(|(owner, _)| *owner == caller)?;
        Some(claim)
    }

    /// Offers an event of a stream without a client to another stream on which the client listens,
    /// or to a response that the client waits for.
    pub(crate) fn offer(&self, from: StreamId, event: &bytes::Bytes) -> bool {
        let mut shared = self.lock();
        let SessionState { filter, streams, listening, .. } = &mut *shared;
        let mut others = streams.iter().filter(|(id, mailbox)| **id != from && mailbox.is_read());
        others.any(|(id, mailbox)| {
            let mut waits =
                || filter.try_with(|filter| filter.intake().has_calls_on(*id)) == Some(true);
            (listening.contains(id) || waits()) && mailbox.put(Mail::Event(event.clone()))
        })
    }

    /// Writes an event on a stream, or on another stream on which the client listens if the first is closed.
    pub(crate) fn write_on(&self, stream: StreamId, event: bytes::Bytes) {
        let mailbox = self.lock().streams.get(&stream).cloned();
        let written = match mailbox {
            Some(mailbox) => mailbox.put(Mail::Event(event)),
            None => self.offer(stream, &event),
        };
        if !written {
            self.count_dropped(MAILBOX_LIMIT);
        }
    }
}
