//! Progress that goes out before the answer of its call.

use std::time::Instant;

use crate::progress::correlate::pending::Pending;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, TransmitKind};
use crate::progress::streams::stream::{Guard, Item, ItemKind, MessageVerdict};
use crate::progress::verdict::Verdict;
use crate::protocol::jsonrpc::Key;

impl Gate {
    /// Sends waiting progress before the answer where no pacing is needed.
    pub(super) fn flush_pending(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.calls.open.get(id) else { return };
        // Where answers keep a distance from progress, progress that is written now would delay the
        // answer by the whole guard.
        if self.calls.streams.pacing_of(call.stream, call.settings()).keeps_distance()
            || !self.can_precede_answer(id)
        {
            return;
        }
        let (target, key, is_observed) =
            (call.stream, Key::read(&call.id.client), call.is_observed());
        let kind = key.map_or(ItemKind::Whole(TransmitKind::Progress), ItemKind::Progress);
        let Some(call) = self.calls.open.get_mut(id) else { return };
        for pending in call.pending.take() {
            match self.render(now, id, &pending) {
                // The client got the server's bytes when they arrived: only the verdict is missing.
                Ok((_, verdict)) if is_observed => {
                    if let Some(number) = pending.message {
                        self.calls.events.push_verdict(number, Some(id), verdict);
                    }
                }
                Ok(rendered) => self.enqueue_rendered(target, id, &kind, &pending, rendered),
                Err(reason) => {
                    if let Some(number) = pending.message {
                        self.calls.events.push_verdict(number, Some(id), Verdict::Withheld(reason));
                    }
                }
            }
        }
    }

    /// The guard of an answer that has just come. Progress of its call that the answer does not overtake is put
    /// into the queue before the answer, so that it waits in its order.
    pub(crate) fn guard_behind_progress(&mut self, now: Instant, id: CallId) -> Guard {
        // First the progress: its sending moves the time that the guard counts from.
        let behind = self.queue_ripe_progress(now, id);
        let guard = self.calls.open.guard_of(id, &self.calls.streams);
        if behind == 0 { guard } else { Guard { behind, unwritten: Some(id), ..guard } }
    }

    /// Puts progress into the queue whose `hold` is over, and that waits only for answers of other calls or for
    /// `min_interval`: of a burst its client is shown the last report that the answer does not overtake. Returns the
    /// place of the last one; 0 if there is none. No answer waits longer than twice its guard for that: then the
    /// progress is left to be dropped.
    fn queue_ripe_progress(&mut self, now: Instant, id: CallId) -> u64 {
        self.replace_ripe(now, id);
        let Some(call) = self.calls.open.get(id) else { return 0 };
        let pacing = self.calls.streams.pacing_of(call.stream, call.settings());
        let is_ripe = |first: &&Pending| {
            pacing.keeps_distance() && first.ripe <= now && call.opened + pacing.first_after <= now
        };
        let Some(first) = call.pending.first().filter(is_ripe) else { return 0 };
        let (target, is_due) = (call.stream, first.due <= now);
        let until = self.calls.streams.get(&target).and_then(|stream| match is_due {
            true => stream.guarded_until(now, first.order),
            false => stream.free_at(now),
        });
        // The answer waits for this progress, and then keeps its own distance: without a bound a
        // busy stream would delay it further and further.
        let is_soon = until.is_some_and(|until| until <= now + pacing.guard);
        let Some(key) = Key::read(&call.id.client) else { return 0 };
        if !is_soon || call.is_observed() || !self.can_precede_answer(id) {
            return 0;
        }
        let kind = ItemKind::Progress(key);
        let mut last = 0;
        while let Some(pending) = self.take_ripe(now, id) {
            match self.render(now, id, &pending) {
                Ok(rendered) => {
                    self.enqueue_rendered(target, id, &kind, &pending, rendered);
                    last = self.calls.streams.order;
                }
                Err(reason) => {
                    if let Some(number) = pending.message {
                        self.calls.events.push_verdict(number, Some(id), Verdict::Withheld(reason));
                    }
                }
            }
        }
        last
    }

    /// The next progress of a call whose `hold` is over.
    fn take_ripe(&mut self, now: Instant, id: CallId) -> Option<Pending> {
        self.replace_ripe(now, id);
        let call = self.calls.open.get_mut(id)?;
        call.pending.first().filter(|first| first.ripe <= now)?;
        call.pending.pop_front()
    }

    /// Whether progress may be put before the answer of its call. Of a large answer pieces may have been
    /// written before its id was known; and the progress of another request with the same token may be
    /// written first and would have to say less.
    fn can_precede_answer(&self, id: CallId) -> bool {
        let Some(call) = self.calls.open.get(id) else { return false };
        let passing = self.calls.streams.get(&call.stream).is_some_and(|stream| stream.is_midway());
        let shared = self.calls.open.holders(id).len() > 1;
        self.delivered != Some(id) && !passing && !shared
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
        self.calls.streams.enqueue(Some(target), item, &mut self.calls.events);
    }
}
