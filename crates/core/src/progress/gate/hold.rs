//! Reports that wait at their call: until the gate sends them when they are due, or sends them before the call's
//! answer.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::arrived_message::ArrivedMessage;
use crate::progress::correlate::call::Call;
use crate::progress::correlate::pending::{Pending, Thinning};
use crate::progress::dialect::report::{Report, ReportView};
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, TransmitKind};
use crate::progress::policy::Coalesce;
use crate::progress::streams::ClientStreams;
use crate::progress::streams::stream::{Guard, Item, ItemKind, MessageVerdict};
use crate::progress::verdict::{Reason, Repairs, Verdict};
use crate::protocol::jsonrpc::{Framing, Key};

/// The message that contained a report.
#[derive(Debug, Default)]
pub(crate) struct SourceMessage {
    /// The number of the message; `None` if the message already has its verdict.
    pub(crate) message: Option<u64>,
    /// The message for the client, if it needs no repair.
    pub(crate) raw: Option<Payload>,
    pub(crate) framing: Framing,
    /// The length of the message, in bytes.
    pub(crate) bytes: usize,
    /// The repairs of the message's frame.
    pub(crate) done: Repairs,
}

impl SourceMessage {
    /// Returns the report of this message in the form in which it waits.
    pub(crate) fn into_pending(self, report: Report, order: u64, planned: PlannedSend) -> Pending {
        let Self { message, raw, framing, bytes, done } = self;
        let PlannedSend { due, ripe, thinning } = planned;
        Pending { message, order, due, ripe, thinning, raw, framing, report, bytes, done }
    }
}

/// The times and the thinning of a report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedSend {
    pub(crate) due: Instant,
    /// See [`Pending::ripe`].
    pub(crate) ripe: Instant,
    pub(crate) thinning: Thinning,
}

/// Decides when a report that arrives now may be sent.
pub(crate) fn plan(
    streams: &ClientStreams,
    now: Instant,
    call: &Call,
    report: &ReportView<'_>,
) -> PlannedSend {
    let min_interval = call.min_interval(streams);
    let pacing = streams.pacing_of(call.stream, call.settings());
    let rises = report.repairs.is_empty()
        && report.figure.as_ref().is_some_and(|figure| {
            // The value must also be above the values that wait before it. Otherwise it needs a repair when it is sent.
            let ahead = call.pending.last_figure();
            call.meter.would_rise(figure.value.value)
                && ahead.is_none_or(|ahead| figure.value.value > ahead.value.value)
        });
    // `min_interval = "0"` turns thinning off.
    let is_thinned =
        (!rises || streams.client_is_slow || call.settings().coalesce == Coalesce::All)
            && !min_interval.is_zero();
    let ripe = now + pacing.hold;
    let due = ripe.max(call.opened + pacing.first_after);
    if !is_thinned {
        return PlannedSend { due, ripe, thinning: Thinning::No };
    }
    let next = call.sent.at.map_or(now, |sent| sent + min_interval);
    // If answers keep a pause after progress, the first report of a burst is not replaced, so that the client sees the
    // beginning of the burst.
    let begins_burst = pacing.keeps_distance() && call.pending.first().is_none() && next <= due;
    let thinning = if begins_burst { Thinning::First } else { Thinning::Rest };
    PlannedSend { due: due.max(next), ripe, thinning }
}

impl Gate {
    /// Adds a report to the waiting reports of its call.
    pub(crate) fn hold(
        &mut self,
        now: Instant,
        id: CallId,
        arrived: SourceMessage,
        report: Report,
    ) {
        let order = self.calls.streams.next_order();
        let Some(call) = self.calls.open.get_mut(id) else { return };
        if !self.calls.streams.has_stream(call.stream) {
            if let Some(number) = arrived.message {
                self.calls.events.push_verdict(number, Some(id), Verdict::Withheld(Reason::Gone));
            }
            return;
        }
        let planned = plan(&self.calls.streams, now, call, &report.view());
        self.keep_waiting(now, id, arrived.into_pending(report, order, planned));
    }

    /// Adds a report to the waiting reports. The new report may replace some of them.
    pub(crate) fn keep_waiting(&mut self, now: Instant, id: CallId, mut pending: Pending) {
        let Some(call) = self.calls.open.get_mut(id) else { return };
        let sent = call.meter.emitted();
        let replaced = call.pending.make_room(now, &mut pending, sent);
        let lacks_words = pending.report.message.is_none();
        let gone = call.pending.push(pending);
        if lacks_words {
            self.keep_words_of(id, &replaced);
        }
        self.supersede_all(id, &replaced);
        for old in gone {
            self.supersede(id, &old, Reason::Superseded);
        }
        self.schedule(id);
    }

    /// Replaces the first waiting progress by newer progress whose `hold` is over.
    pub(super) fn replace_ripe(&mut self, now: Instant, id: CallId) {
        while let Some(call) = self.calls.open.get_mut(id)
            && let Some(old) = call.pending.replace_first(now)
        {
            let first = call.pending.first();
            let old = [old];
            if first.is_some_and(|first| first.report.message.is_none()) {
                self.keep_words_of(id, &old);
            }
            self.supersede_all(id, &old);
        }
    }

    /// Keeps the text of the newest replaced report as the last text, for a newer report that is sent without a text.
    /// Without this a later report without a text would get an older text.
    pub(crate) fn keep_words_of(&mut self, id: CallId, replaced: &[Pending]) {
        let newest = replaced.iter().max_by_key(|old| old.order);
        if let Some(words) = newest.and_then(|old| old.report.message.as_deref())
            && let Some(call) = self.calls.open.get_mut(id)
        {
            call.sent.last_message = Some(Bytes::copy_from_slice(words));
        }
    }

    /// Records reports that a newer report replaces.
    pub(crate) fn supersede_all(&mut self, id: CallId, replaced: &[Pending]) {
        for old in replaced {
            self.supersede(id, old, Reason::Superseded);
        }
    }

    pub(crate) fn supersede(&mut self, id: CallId, old: &Pending, reason: Reason) {
        if let Some(call) = self.calls.open.get_mut(id) {
            call.account.withheld(reason);
        }
        self.withhold(id, old, reason);
    }

    /// Records the verdict on a report that is withheld. A report without a number of its own gets no verdict.
    pub(super) fn withhold(&mut self, id: CallId, report: &Pending, reason: Reason) {
        if let Some(number) = report.message {
            self.calls.events.push_verdict(number, Some(id), Verdict::Withheld(reason));
        }
    }

    /// Adds a plain report on the stream of its only call to the waiting reports. Does the same as `Gate::hold`.
    pub(crate) fn hold_view(
        &mut self,
        now: Instant,
        id: CallId,
        number: u64,
        report: &ReportView<'_>,
        planned: PlannedSend,
        arrived: &ArrivedMessage<'_>,
    ) {
        let (source, bytes) = (arrived.source, arrived.text.len());
        let order = self.calls.streams.next_order();
        let frame = arrived.held_frame();
        let raw = report.repairs.is_empty().then(|| Payload::from(frame.clone()));
        let framing = Framing::Within(frame);
        let (message, done) = (Some(number), Repairs::default());
        let arrived = SourceMessage { message, raw, framing, bytes, done };
        let report = Report::of_view(report, source);
        self.keep_waiting(now, id, arrived.into_pending(report, order, planned));
    }

    /// Sends the waiting progress of a call before its answer, if answers need no pause after progress.
    pub(super) fn flush_pending(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.calls.open.get(id) else { return };
        // If answers keep a pause after progress, progress that is written now would delay the answer by the whole
        // guard.
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
                // The client got the server's bytes on arrival, so only the verdict is still missing.
                Ok((_, verdict)) if is_observed => {
                    if let Some(number) = pending.message {
                        self.calls.events.push_verdict(number, Some(id), verdict);
                    }
                }
                Ok(rendered) => self.enqueue_rendered(target, id, &kind, &pending, rendered),
                Err(reason) => self.withhold(id, &pending, reason),
            }
        }
    }

    /// Returns the guard of an answer that has just arrived. Before that, progress of the call that has to be sent
    /// first is put into the queue.
    pub(crate) fn guard_behind_progress(&mut self, now: Instant, id: CallId) -> Guard {
        // Progress is queued first, because sending it changes the time from which the guard is counted.
        let behind = self.queue_ripe_progress(now, id);
        let guard = self.calls.open.guard_of(id, &self.calls.streams);
        if behind == 0 { guard } else { Guard { behind, unwritten: Some(id), ..guard } }
    }

    /// Puts progress into the queue whose `hold` has ended and that waits only for answers of other calls or for
    /// `min_interval`. The client then sees the last report of a burst before the answer. Returns the order number of
    /// the last queued report; 0 if there is none. An answer waits for this progress at most as long as twice its
    /// guard; if that is not enough, no progress is queued.
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
            false => stream.written_at(now, u64::MAX),
        });
        // The answer waits for this progress, and then keeps its own pause. Without this limit, a busy stream could
        // delay the answer further and further.
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
                Err(reason) => self.withhold(id, &pending, reason),
            }
        }
        last
    }

    /// Removes and returns the next progress of a call, if its `hold` has ended.
    fn take_ripe(&mut self, now: Instant, id: CallId) -> Option<Pending> {
        self.replace_ripe(now, id);
        let call = self.calls.open.get_mut(id)?;
        call.pending.first().filter(|first| first.ripe <= now)?;
        call.pending.pop_front()
    }

    /// Whether progress may be written before the answer of its call. It may not if pieces of a large answer have
    /// already been written, because the call was unknown until then. It may not if another request has the same token
    /// either: that request's progress may be written first, and this progress would then have a lower value.
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
