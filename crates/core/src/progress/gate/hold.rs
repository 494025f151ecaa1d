//! Reports wait on their call until the gate sends them.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::arrived_message::ArrivedMessage;
use crate::progress::correlate::call::Call;
use crate::progress::correlate::pending::{Pending, Thinning};
use crate::progress::dialect::report::{Report, ReportView};
use crate::progress::ids::CallId;
use crate::progress::payload::Payload;
use crate::progress::policy::Coalesce;
use crate::progress::streams::ClientStreams;
use crate::progress::verdict::{Reason, Repairs, Verdict};
use crate::protocol::jsonrpc::Framing;

/// The message that a report came in.
#[derive(Debug, Default)]
pub(crate) struct SourceMessage {
    /// The number of the message, unless the message has its verdict already.
    pub(crate) message: Option<u64>,
    /// The message for the client, if it needs no repair.
    pub(crate) raw: Option<Payload>,
    pub(crate) framing: Framing,
    /// The length of the message.
    pub(crate) bytes: usize,
    /// The repairs of the frame.
    pub(crate) done: Repairs,
}

impl SourceMessage {
    /// The report of the message, which waits.
    pub(crate) fn into_pending(self, report: Report, order: u64, planned: PlannedSend) -> Pending {
        let Self { message, raw, framing, bytes, done } = self;
        let PlannedSend { due, ripe, thinning } = planned;
        Pending { message, order, due, ripe, thinning, raw, framing, report, bytes, done }
    }
}

/// The time at which a report may be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedSend {
    pub(crate) due: Instant,
    /// See [`Pending::ripe`].
    pub(crate) ripe: Instant,
    pub(crate) thinning: Thinning,
}

/// The time at which a report that arrives now may be sent.
pub(crate) fn plan(
    streams: &ClientStreams,
    now: Instant,
    call: &Call,
    report: &ReportView<'_>,
) -> PlannedSend {
    let is_slow = streams.client_is_slow;
    let min_interval = call.min_interval(is_slow);
    let pacing = streams.pacing_of(call.stream, call.settings());
    let rises = report.repairs.is_empty()
        && report.figure.as_ref().is_some_and(|figure| {
            // The report must also rise above those that wait before it, or it will need a repair
            // when its turn comes.
            let ahead = call.pending.last_figure();
            call.meter.would_rise(figure.value.value)
                && ahead.is_none_or(|ahead| figure.value.value > ahead.value.value)
        });
    // A route with `min_interval = "0"` asks for no thinning at all.
    let is_thinned =
        (!rises || is_slow || call.settings().coalesce == Coalesce::All) && !min_interval.is_zero();
    let ripe = now + pacing.hold;
    let due = ripe.max(call.opened + pacing.first_after);
    if !is_thinned {
        return PlannedSend { due, ripe, thinning: Thinning::No };
    }
    let next = call.sent.at.map_or(now, |sent| sent + min_interval);
    // Where answers keep a distance from progress, the first report of a burst is not replaced, so
    // that the client sees the beginning of the burst.
    let begins_burst = pacing.keeps_distance() && call.pending.first().is_none() && next <= due;
    let thinning = if begins_burst { Thinning::First } else { Thinning::Rest };
    PlannedSend { due: due.max(next), ripe, thinning }
}

use crate::progress::gate::state::Gate;

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

    /// Adds a report to those that wait, some of which give way to it.
    pub(crate) fn keep_waiting(&mut self, now: Instant, id: CallId, mut pending: Pending) {
        let Some(call) = self.calls.open.get_mut(id) else { return };
        let sent = call.meter.emitted();
        let replaced = call.pending.make_room(now, &mut pending, sent);
        let has_words = pending.report.message.is_some();
        let gone = call.pending.push(pending);
        self.supersede_all(id, &replaced, has_words);
        for old in gone {
            self.supersede(id, &old, Reason::Superseded);
        }
        self.schedule(id);
    }

    /// Lets the first waiting progress give way to newer progress whose `hold` is over.
    pub(super) fn replace_ripe(&mut self, now: Instant, id: CallId) {
        while let Some(call) = self.calls.open.get_mut(id)
            && let Some(old) = call.pending.replace_first(now)
        {
            let has_words = call.pending.first().is_none_or(|first| first.report.message.is_some());
            self.supersede_all(id, &[old], has_words);
        }
    }

    /// Records reports that a newer report replaces. If the newer report goes out without words,
    /// the words of the newest replaced report count as the last words: a later report without
    /// words must not get older ones.
    pub(crate) fn supersede_all(&mut self, id: CallId, replaced: &[Pending], has_words: bool) {
        let newest = replaced.iter().max_by_key(|old| old.order).filter(|_| !has_words);
        if let Some(words) = newest.and_then(|old| old.report.message.as_deref())
            && let Some(call) = self.calls.open.get_mut(id)
        {
            call.sent.last_message = Some(Bytes::copy_from_slice(words));
        }
        for old in replaced {
            self.supersede(id, old, Reason::Superseded);
        }
    }

    pub(crate) fn supersede(&mut self, id: CallId, old: &Pending, reason: Reason) {
        if let Some(call) = self.calls.open.get_mut(id) {
            call.account.withheld(reason);
        }
        if let Some(number) = old.message {
            self.calls.events.push_verdict(number, Some(id), Verdict::Withheld(reason));
        }
    }

    /// Adds a plain report on the stream of its only call to the waiting reports, as `Gate::hold` does.
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
}
