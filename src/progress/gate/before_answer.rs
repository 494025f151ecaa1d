//! Progress that goes out before the answer of its call.

use std::time::Instant;

use crate::progress::correlate::pending::Pending;
use crate::progress::filter::Filter;
use crate::progress::gate::stream::{Guard, Item, ItemKind, MessageVerdict};
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, TransmitKind};
use crate::progress::verdict::Verdict;
use crate::protocol::jsonrpc::Key;

impl Filter {
    /// Sends waiting progress before the answer where no pacing is needed.
    pub(super) fn flush_pending(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.correlator.ledger.get(id) else { return };
        if self.gate.pacing_of(call).keeps_distance() || !self.can_precede_answer(id) {
            return;
        }
        let (target, key, is_observed) =
            (call.stream, Key::read(&call.id.client), call.is_observed());
        let kind = key.map_or(ItemKind::Whole(TransmitKind::Progress), ItemKind::Progress);
        let Some(call) = self.correlator.ledger.get_mut(id) else { return };
        for pending in call.pending.take() {
            match self.render(now, id, &pending) {
                Ok((_, verdict)) if is_observed => {
                    if let Some(number) = pending.message {
                        self.record(number, Some(id), verdict);
                    }
                }
                Ok(rendered) => self.enqueue_rendered(target, id, &kind, &pending, rendered),
                Err(reason) => {
                    if let Some(number) = pending.message {
                        self.record(number, Some(id), Verdict::Withheld(reason));
                    }
                }
            }
        }
    }

    /// The guard of an answer that has just come. Progress of its call whose time had come, and that waits
    /// only for answers of other calls, is put into the queue before the answer, so that it waits in its order.
    pub(crate) fn guard_behind_progress(&mut self, now: Instant, id: CallId) -> Guard {
        let behind = self.queue_due_progress(now, id);
        let guard = self.guard_of(id);
        if behind == 0 { guard } else { Guard { behind, unwritten: Some(id), ..guard } }
    }

    /// Puts progress into the queue that only answers of other calls hold up. Returns the place of the last
    /// one; 0 if there is none. No answer waits longer than twice its guard for that: then the progress is
    /// left to be dropped.
    fn queue_due_progress(&mut self, now: Instant, id: CallId) -> u64 {
        let Some(call) = self.correlator.ledger.get(id) else { return 0 };
        let Some(first) = call.pending.first().filter(|first| first.due <= now) else { return 0 };
        let (target, guard) = (call.stream, self.gate.pacing_of(call).guard);
        let stream = self.gate.streams.get(&target);
        let until = stream.and_then(|stream| stream.guarded_until(now, first.order));
        let is_soon = until.is_some_and(|until| until <= now + guard);
        let Some(key) = Key::read(&call.id.client) else { return 0 };
        if !is_soon || call.is_observed() || !self.can_precede_answer(id) {
            return 0;
        }
        let kind = ItemKind::Progress(key);
        let mut last = 0;
        while let Some(pending) = self.take_due(now, id) {
            match self.render(now, id, &pending) {
                Ok(rendered) => {
                    self.enqueue_rendered(target, id, &kind, &pending, rendered);
                    last = self.gate.order;
                }
                Err(reason) => {
                    if let Some(number) = pending.message {
                        self.record(number, Some(id), Verdict::Withheld(reason));
                    }
                }
            }
        }
        last
    }

    /// The next progress of a call whose time has come.
    fn take_due(&mut self, now: Instant, id: CallId) -> Option<Pending> {
        let is_slow = self.gate.client_is_slow;
        let call = self.correlator.ledger.get_mut(id)?;
        let next = call.sent.at.map(|sent| sent + call.min_interval(is_slow));
        let first = call.pending.first()?;
        let waits = first.due > now || first.thin && next.is_some_and(|next| next > now);
        if waits { None } else { call.pending.pop_front() }
    }

    /// Whether progress may be put before the answer of its call. Of a large answer pieces may have been
    /// written before its id was known; and the progress of another request with the same token may be
    /// written first and would have to say less.
    fn can_precede_answer(&self, id: CallId) -> bool {
        let Some(call) = self.correlator.ledger.get(id) else { return false };
        let passing = self.gate.streams.get(&call.stream).is_some_and(|stream| stream.is_midway());
        let shared = self.correlator.ledger.holders(id).len() > 1;
        self.gate.delivered != Some(id) && !passing && !shared
    }

    fn enqueue_rendered(
        &mut self,
        target: StreamId,
        id: CallId,
        kind: &ItemKind,
        pending: &Pending,
        (payload, verdict): (Payload, Verdict),
    ) {
        let judged = |number| MessageVerdict { number, call: Some(id), verdict };
        let verdicts = pending.message.map(judged).into_iter().collect();
        let item = Item {
            order: 0,
            kind: kind.clone(),
            payload,
            guards: smallvec::SmallVec::new(),
            verdicts,
        };
        self.enqueue(Some(target), item);
    }

    /// Gives each heartbeat that is due a place behind everything that waits now: answers that come later do
    /// not hold it up.
    pub(super) fn place_heartbeats(&mut self, now: Instant, id: StreamId) {
        let order = self.gate.order;
        let Some(stream) = self.gate.streams.get_mut(&id) else { return };
        for (at, call) in stream.due_heartbeats(now) {
            stream.wakes.remove(&(at, u64::MAX, call));
            stream.wakes.insert((at, order, call), ());
            if let Some(call) = self.correlator.ledger.get_mut(call) {
                call.wake = Some((at, order));
            }
        }
    }
}
