//! Events of a filter's connections, and messages between the filters of a session, all reported to
//! observers.

use std::time::Instant;

use super::FilterGuard;
use crate::progress::{Filter, Fragment, Origin, Pacing, StreamId, StreamKind, Transmit};
use crate::protocol::jsonrpc::Message;

impl FilterGuard {
    /// Asks the filter about a message that is not said here, which those who look on know as `command`.
    pub fn aside<T>(
        &mut self,
        now: Instant,
        command: &str,
        (origin, message): (Option<Origin>, &Message),
        question: impl FnOnce(&mut Filter) -> T,
    ) -> Option<T> {
        if let Some(emitter) = &mut self.emitter {
            emitter.aside(now, command, origin, message.raw());
        }
        let answer = self.try_with(question);
        self.note();
        answer
    }

    /// A message of the server goes to its client as it is, behind what has been said before.
    pub fn passes(&mut self, now: Instant, stream: StreamId, message: &Message) {
        if let Some(emitter) = &mut self.emitter {
            emitter.command(Some(now), "passes");
            let payload = message.raw().clone().into();
            emitter.told(now, stream, &Transmit { payload, part: Fragment::Whole });
            emitter.written(now, stream);
        }
    }

    /// [`Filter::withdrawn`].
    pub fn withdrawn(&mut self, now: Instant, message: &Message) {
        if let Some(emitter) = &mut self.emitter {
            emitter.withdrawn(now, message.raw());
        }
        self.try_with(|filter| filter.withdrawn(now, message));
        self.note();
    }

    /// [`Filter::open_stream`].
    pub fn open_stream(&mut self, now: Instant, id: StreamId, kind: StreamKind, pacing: Pacing) {
        if let Some(emitter) = &mut self.emitter {
            emitter.opened(now, id, kind, pacing);
        }
        self.try_with(|filter| filter.open_stream(id, kind, pacing));
    }

    /// [`Filter::close_stream`].
    pub fn close_stream(&mut self, now: Instant, id: StreamId, cancels: bool) {
        if let Some(emitter) = &mut self.emitter {
            emitter.closed(now, id, cancels);
        }
        self.try_with(|filter| filter.close_stream(now, id, cancels));
        self.note();
    }

    /// [`Filter::client_is_slow`].
    pub fn client_is_slow(&mut self, now: Instant, slow: bool) {
        let command = || if slow { "slow" } else { "quick" }.to_owned();
        self.happens(Some(now), command, |filter| filter.client_is_slow(slow));
    }

    /// [`Filter::server_gone`].
    pub fn server_gone(&mut self, now: Instant, why: &str) {
        if let Some(emitter) = &mut self.emitter {
            emitter.breaks(now, why);
        }
        let question = |filter: &mut Filter| filter.server_gone(now, why);
        self.happens(Some(now), || format!("gone {why}"), question);
    }

    /// [`Filter::fail_calls`].
    pub fn fail_calls(&mut self, now: Instant, why: &str, status: Option<u16>) {
        if let Some(emitter) = &mut self.emitter {
            emitter.breaks(now, why);
        }
        let status_said = || status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        let question = |filter: &mut Filter| filter.fail_calls(now, why, status);
        self.happens(Some(now), || format!("fails {} {why}", status_said()), question);
    }

    /// [`Filter::knows_not_all`].
    pub fn knows_not_all(&mut self, now: Instant) {
        self.happens(Some(now), || "knows not all".to_owned(), Filter::knows_not_all);
    }

    /// [`Filter::settle_stream`].
    pub fn settle_stream(&mut self, now: Instant, stream: StreamId) {
        let command = || format!("settles {}", stream.0);
        self.happens(Some(now), command, |filter| filter.settle_stream(now, stream));
    }

    /// [`Filter::settled`].
    pub fn settled(&mut self, now: Instant, message: &Message) {
        self.aside(now, "settled", (None, message), |filter| filter.settled(now, message));
    }

    /// [`Filter::hand_over`]: this one goes on for the stream of `own`, which is about to close.
    pub fn take_over(&mut self, now: Instant, own: &mut Self) {
        if let (Some(emitter), Some(from)) = (&mut self.emitter, own.filter_id()) {
            emitter.takes_over(now, from);
        }
        own.try_with(|own| self.try_with(|session| own.hand_over(session)));
        self.note();
    }
}
