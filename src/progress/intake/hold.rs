//! Reports wait on their call until the gate sends them.

use std::time::Instant;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::pending::Pending;
use crate::progress::dialect::report::{Report, ReportView};
use crate::progress::filter::Filter;
use crate::progress::gate::notification;
use crate::progress::gate::streams::Gate;
use crate::progress::ids::CallId;
use crate::progress::intake::arrived_message::ArrivedMessage;
use crate::progress::payload::Payload;
use crate::progress::policy::Coalesce;
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
    pub(crate) fn into_pending(
        self,
        report: Report,
        order: u64,
        due: Instant,
        thin: bool,
    ) -> Pending {
        let Self { message, raw, framing, bytes, done } = self;
        Pending { message, order, due, thin, raw, framing, report, bytes, done }
    }
}

/// The time at which a report may be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedSend {
    pub(crate) due: Instant,
    /// Newer reports may replace the report until then.
    pub(crate) thin: bool,
}

/// The time at which a report that arrives now may be sent.
pub(crate) fn plan(gate: &Gate, now: Instant, call: &Call, report: &ReportView<'_>) -> PlannedSend {
    let is_slow = gate.client_is_slow;
    let min_interval = call.min_interval(is_slow);
    let pacing = gate.pacing_of(call);
    let rises = report.repairs.is_empty()
        && report.figure.as_ref().is_some_and(|figure| {
            let ahead = call.pending.last_figure();
            call.meter.would_rise(figure.value.value)
                && ahead.is_none_or(|ahead| figure.value.value > ahead.value.value)
        });
    let thin =
        (!rises || is_slow || call.settings().coalesce == Coalesce::All) && !min_interval.is_zero();
    let mut due = (now + pacing.hold).max(call.opened + pacing.first_after);
    if thin {
        due = due.max(call.sent.at.map_or(now, |sent| sent + min_interval));
    }
    PlannedSend { due, thin }
}

impl Filter {
    /// Adds a report to the waiting reports of its call.
    pub(crate) fn hold(
        &mut self,
        now: Instant,
        id: CallId,
        arrived: SourceMessage,
        mut report: Report,
    ) {
        let order = self.gate.next_order();
        let Some(call) = self.correlator.ledger.get_mut(id) else { return };
        if !self.gate.streams.contains_key(&call.stream) {
            if let Some(number) = arrived.message {
                self.record(number, Some(id), Verdict::Withheld(Reason::Gone));
            }
            return;
        }
        let PlannedSend { mut due, thin } = plan(&self.gate, now, call, &report.view());
        // Newer progress replaces a pending repaired one.
        if call.pending.last().is_some_and(|last| last.thin)
            && let Some(old) = call.pending.pop_back()
        {
            due = if thin { due.min(old.due) } else { due };
            report.take_over(&old.report);
            if report.chunk && old.report.chunk {
                report.message = match (&old.report.message, &report.message) {
                    (Some(first), Some(second)) => Some(notification::join(first, second)),
                    (first, second) => first.as_ref().or(second.as_ref()).cloned(),
                };
            }
            self.supersede(id, &old, Reason::Superseded);
        }
        let Some(call) = self.correlator.ledger.get_mut(id) else { return };
        let pending = arrived.into_pending(report, order, due, thin);
        for old in call.pending.push(pending) {
            self.supersede(id, &old, Reason::Superseded);
        }
        self.schedule(id);
    }

    /// Adds a plain report on the stream of its only call to the waiting reports, as [`Filter::hold`] does.
    pub(crate) fn hold_view(
        &mut self,
        id: CallId,
        number: u64,
        report: &ReportView<'_>,
        PlannedSend { due, thin }: PlannedSend,
        arrived: &ArrivedMessage<'_>,
    ) {
        let (source, bytes) = (arrived.source, arrived.text.len());
        let order = self.gate.next_order();
        let Some(call) = self.correlator.ledger.get_mut(id) else { return };
        let frame = arrived.held_frame();
        let raw = report.repairs.is_empty().then(|| Payload::from(frame.clone()));
        let framing = Framing::Within(frame);
        let mut superseded = None;
        let gone;
        if let Some(last) = call.pending.last_to_replace(bytes) {
            superseded = last.message.replace(number);
            last.order = order;
            last.due = if thin { due.min(last.due) } else { due };
            last.thin = thin;
            (last.raw, last.framing) = (raw, framing);
            last.report.renew(report, source);
            last.done = Repairs::default();
            call.account.withheld(Reason::Superseded);
            gone = call.pending.trim();
        } else {
            let report = Report::of_view(report, source);
            let arrived = SourceMessage {
                message: Some(number),
                raw,
                framing,
                bytes,
                done: Repairs::default(),
            };
            gone = call.pending.push(arrived.into_pending(report, order, due, thin));
        }
        if let Some(number) = superseded {
            self.record(number, Some(id), Verdict::Withheld(Reason::Superseded));
        }
        for old in gone {
            self.supersede(id, &old, Reason::Superseded);
        }
        self.schedule(id);
    }

    pub(crate) fn supersede(&mut self, id: CallId, old: &Pending, reason: Reason) {
        if let Some(call) = self.correlator.ledger.get_mut(id) {
            call.account.withheld(reason);
        }
        if let Some(number) = old.message {
            self.record(number, Some(id), Verdict::Withheld(reason));
        }
    }
}
