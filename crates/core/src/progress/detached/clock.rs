//! What happens only because time passes: calls time out, and messages become due.

use std::time::Instant;

use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::DetachedWork;
use crate::progress::event::summary::Outcome;
use crate::progress::gate::state::Gate;
use crate::progress::ids::StreamId;
use crate::progress::payload::{Transmit, TransmitKind};

impl DetachedWork {
    /// Returns the time at which the next request times out.
    pub(crate) fn next_expiry(&self, gate: &Gate) -> Option<Instant> {
        let expiry = gate.calls.open.next_expiry().map(|(at, _)| at);
        // Most filters have neither late answers nor tasks, and this is called several times for each event.
        if self.late.is_none() && self.tasks.is_none() {
            return expiry;
        }
        let late = self.late.as_ref().and_then(|late| late.next_due());
        let tasks = self.tasks.as_ref().and_then(|tasks| tasks.works.next_due());
        [expiry, late, tasks].into_iter().flatten().min()
    }

    /// Returns the next bytes to be written on a stream now. Call again until the result is `None`.
    pub(crate) fn poll_transmit(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: StreamId,
    ) -> Option<Transmit> {
        // Done first, because a call that has timed out must not get progress after its error.
        self.expire(gate, now);
        let mut is_unreported = false;
        loop {
            let stream = gate.calls.streams.get_mut(&id)?;
            if let Some((at, place, call)) = stream.due(now) {
                stream.wakes.remove(&(at, place, call));
                if let Some(payload) = gate.send_due(now, call) {
                    let transmit = Transmit::whole(TransmitKind::Progress, payload);
                    if !gate.calls.policy.observes() {
                        return Some(transmit);
                    }
                    is_unreported = true;
                }
                continue;
            }
            let ready = stream.ready(now);
            let item = ready.and_then(|index| stream.take(index));
            let Some(item) = item else {
                // In observe mode the bytes were written on arrival, so the shell reports no write when a message
                // leaves the queue. Without this, an answer that waits until its progress is written would never get
                // its verdict.
                if std::mem::take(&mut is_unreported) {
                    gate.calls.written(now, id);
                    continue;
                }
                gate.calls.place_heartbeats(now, id);
                break;
            };
            // Recorded only when the message leaves the queue, because until then it may still be withheld.
            for judged in &item.verdicts {
                gate.calls.events.push_verdict(judged.number, judged.call, judged.verdict);
            }
            // In observe mode the queue only serves the verdicts. The bytes are in `observed`.
            if !gate.calls.policy.observes() {
                return Some(item.into_transmit());
            }
            is_unreported = true;
        }
        gate.calls.streams.get_mut(&id)?.observed.as_mut()?.pop()
    }

    /// Ends calls and tasks whose time limits have passed.
    /// [`Filter::poll_transmit`](crate::progress::Filter::poll_transmit) also does this, for any stream. A shell has to
    /// call this function if none of its clients reads.
    pub(crate) fn expire(&mut self, gate: &mut Gate, now: Instant) {
        if self.late.is_some() {
            self.expire_late(gate, now);
        }
        if let Some(tasks) = &mut self.tasks {
            tasks.expire(gate, now);
        }
        while let Some((at, id)) = gate.calls.open.next_expiry() {
            if at > now {
                return;
            }
            let timed_out = gate.calls.open.get(id).is_some_and(|call| call.task.is_none());
            if timed_out {
                gate.calls.send_cancelled(id, "no answer within the time allowed by the proxy");
                let why = "the server did not answer within the time allowed";
                gate.answer_with_error(now, id, why, None, Outcome::TimedOut);
            } else {
                gate.end_call(now, id, Tombstone::Answered, Outcome::TaskEnded);
            }
        }
    }

    /// Returns the time at which [`Filter::poll_transmit`](crate::progress::Filter::poll_transmit) has to be called
    /// again if nothing arrives before.
    pub(crate) fn poll_timeout(&self, gate: &Gate) -> Option<Instant> {
        let streams = gate.calls.streams.next_timeout();
        [streams, self.next_expiry(gate)].into_iter().flatten().min()
    }

    /// Whether only events wait. There is no message for the server, and this stream has no message or timer that is
    /// due now, so [`Filter::poll_transmit`](crate::progress::Filter::poll_transmit),
    /// [`Filter::written`](crate::progress::Filter::written) and the other polls would do nothing.
    pub(crate) fn has_nothing_due(&self, gate: &Gate, now: Instant, id: StreamId) -> bool {
        // Called once for each event that arrives alone. If nothing is due, the other polls are left out.
        gate.calls.to_server.is_empty()
            && self.late.as_ref().is_none_or(|late| late.held.released.is_empty())
            && gate.calls.streams.get(&id).is_none_or(|stream| stream.is_quiet(now))
            && self.next_expiry(gate).is_none_or(|at| at > now)
    }
}
