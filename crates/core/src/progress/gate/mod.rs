//! The gate of each client stream decides which messages may be written now, and with which content.
//!
//! The gate checks tokens, values, and whether a request has been answered, at the time of writing. The stages before
//! the gate only make claims.

mod handover;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::progress::correlate::call::{Call, LastSent};
use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::pending::{Pending, Thinning};
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::correlate::wording::Wording;
use crate::progress::dialect::report::{ReportView, join, message_text};
use crate::progress::event::summary::Outcome;
use crate::progress::event::{FilterEvent, Origin};
use crate::progress::gate::heartbeat::{next_heartbeat, send_heartbeat};
use crate::progress::gate::orphans::release_orphans_on;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, TransmitKind};
use crate::progress::policy::Messages;
use crate::progress::streams::stream::{Item, ItemKind};
use crate::progress::verdict::{Reason, Repair, Repairs, Verdict};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Framing, Key, own_error};

pub(crate) mod heartbeat;
pub(crate) mod hold;
pub(crate) mod notification;
pub(crate) mod orphans;
pub(crate) mod questions;
pub(crate) mod server_tasks;
pub(crate) mod state;

/// The period in which an exact duplicate of the last notification is withheld. After it, a duplicate shows that the
/// call is alive.
const DUPLICATE_WITHIN: Duration = Duration::from_secs(1);

/// If progress could not be written for this time, newer progress of the same call replaces it, because the client
/// reads too slowly. A client that stops reading only for a moment gets all reports.
const COLLAPSE_AFTER: Duration = Duration::from_secs(5);

/// The form in which a report is sent to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rendered {
    /// The server's bytes, unchanged.
    AsCame,
    /// The server's bytes without their total, after these repairs. `gate.rewritten` contains an equal notification
    /// that Milepost has written.
    WithoutTotal(Repairs),
    /// A notification that Milepost has written, after these repairs.
    Rewritten(Repairs),
}

impl Gate {
    /// Sends the due notification of a call: a waiting report, else a heartbeat.
    pub(crate) fn send_due(&mut self, now: Instant, id: CallId) -> Option<Payload> {
        if let Some(call) = self.calls.open.get_mut(id) {
            call.wake = None;
        }
        let notification = self.send_pending(now, id).or_else(|| send_heartbeat(self, now, id));
        if notification.is_some()
            && let Some(call) = self.calls.open.get(id)
            && let Some(stream) = self.calls.streams.get_mut(&call.stream)
        {
            // An answer to this call waits until the shell reports that these bytes are written.
            stream.unwritten.push(id);
        }
        self.schedule(id);
        notification
    }

    fn send_pending(&mut self, now: Instant, id: CallId) -> Option<Payload> {
        self.replace_ripe(now, id);
        let call = self.calls.open.get_mut(id)?;
        let min_interval = call.min_interval(&self.calls.streams);
        let first = call.pending.first().filter(|first| first.due <= now)?;
        // A heartbeat may have been sent since the report was planned, so the interval is counted from the last
        // notification.
        if first.thinning != Thinning::No
            && let Some(sent) = call.sent.at
            && now < sent + min_interval
        {
            call.pending.delay_first(sent + min_interval);
            return None;
        }
        let mut stale = Vec::new();
        while call.pending.first().is_some_and(|first| first.due + COLLAPSE_AFTER < now)
            && call.pending.second().is_some_and(|second| second.due <= now)
        {
            stale.extend(call.pending.give_way());
        }
        let pending = call.pending.pop_front()?;
        let is_observed = call.is_observed();
        for old in stale {
            self.supersede(id, &old, Reason::Superseded);
        }
        let rendered = self.render(now, id, &pending);
        let (payload, verdict) = match rendered {
            Ok((payload, verdict)) => (Some(payload), verdict),
            Err(reason) => (None, Verdict::Withheld(reason)),
        };
        if let Some(number) = pending.message {
            self.calls.events.push_verdict(number, Some(id), verdict);
        }
        // In observe mode the report was forwarded unchanged when it arrived.
        payload.filter(|_| !is_observed)
    }

    /// Returns the notification for a report. Called at the time of writing. Invariant: for a correct report, the bytes
    /// are the server's own.
    pub(crate) fn render(
        &mut self,
        now: Instant,
        id: CallId,
        pending: &Pending,
    ) -> Result<(Payload, Verdict), Reason> {
        let done = pending.done;
        let form = self.render_view(now, id, &pending.report.view(), (done, pending.raw.is_some()));
        self.calls.open.share_value(id);
        let stream = self.calls.open.get(id).map(|call| call.stream);
        let stream = stream.and_then(|stream| self.calls.streams.get(&stream));
        // A client that resumes sends the last event id that it received. If an earlier id were written after a later
        // message, the server would repeat that message.
        let is_overtaken = pending.framing != Framing::Itself
            && stream.is_some_and(|stream| stream.passed > pending.order);
        let framed =
            |payload: Payload| if is_overtaken { payload.without_event_id() } else { payload };
        Ok(match form? {
            Rendered::AsCame => {
                (framed(pending.raw.clone().unwrap_or_default()), Verdict::of(done))
            }
            Rendered::WithoutTotal(repairs) => {
                let figure = pending.report.figure.as_ref();
                let total = figure.and_then(|figure| figure.total.as_ref());
                let raw = pending.raw.as_ref().zip(total);
                let payload = raw.and_then(|(raw, total)| raw.without_member(&total.text));
                let own = || Payload::own(self.take_rewritten()).in_place_of(&pending.framing);
                (framed(payload.unwrap_or_else(own)), Verdict::Repaired(repairs))
            }
            Rendered::Rewritten(repairs) => {
                let text = self.take_rewritten();
                let payload = Payload::own(text).in_place_of(&pending.framing);
                (framed(payload), Verdict::Repaired(repairs))
            }
        })
    }

    /// Decides how a report is sent now, and counts it. If Milepost's own notification is sent instead,
    /// `gate.rewritten` contains it. `done`: the repairs of the frame. `has_raw`: the server's bytes may be written.
    pub(crate) fn render_view(
        &mut self,
        now: Instant,
        id: CallId,
        report: &ReportView<'_>,
        (done, has_raw): (Repairs, bool),
    ) -> Result<Rendered, Reason> {
        let rendered = self.try_render(now, id, report, (done, has_raw));
        let Some(call) = self.calls.open.get_mut(id) else { return rendered };
        match &rendered {
            Ok(rendered) => {
                call.account.sent_from_text += u64::from(report.from_text);
                call.note_sent(now);
                let repairs = match rendered {
                    Rendered::AsCame => done,
                    Rendered::WithoutTotal(repairs) | Rendered::Rewritten(repairs) => *repairs,
                };
                call.account.repaired(repairs);
            }
            Err(reason) => call.account.withheld(*reason),
        }
        rendered
    }

    fn try_render(
        &mut self,
        now: Instant,
        id: CallId,
        report: &ReportView<'_>,
        (done, has_raw): (Repairs, bool),
    ) -> Result<Rendered, Reason> {
        let wording = self.calls.wording_of(id);
        let Some(call) = self.calls.open.get_mut(id) else { return Err(Reason::Late) };
        if call.token.is_none() {
            return Err(Reason::NoToken);
        }
        let policy = call.settings();
        let (messages, on_fall) = (policy.messages, policy.on_fall);
        let leaves_total_out = policy.answers.total;
        // Text from log messages or standard error is not joined, because it is not a piece of a longer text.
        let appends = messages == Messages::Append && report.message.is_some() && !report.from_text;
        if let (Some(stream), Some(figure)) =
            (self.calls.streams.get_mut(&call.stream), &report.figure)
            && stream.replays
        {
            // The server repeats messages that the client may already have. The first value above the last value ends
            // the repetition.
            if !call.meter.would_rise(figure.value.value) {
                return Err(Reason::Duplicate);
            }
            stream.replays = false;
        }
        let repeats = |(last, at): &(LastSent, Instant)| {
            now < *at + DUPLICATE_WITHIN && last.is_repeated_by(report)
        };
        if !appends
            // Another proxy between Milepost and the server may send the same heartbeat.
            && [&call.sent.last, &call.sent.last_heartbeat].into_iter().flatten().any(repeats)
        {
            return Err(Reason::Duplicate);
        }
        // Done before `take`: if values now come from a member instead of a text, the meter must forget the old scale.
        if report.figure.is_some() {
            call.meter.note_source(report.in_words);
        }
        let emitted = call.meter.take(report.figure.as_ref(), on_fall)?;
        call.sent.remember(LastSent::figures(report), report.message, now);
        let mut message = words_to_send(call, report, appends);
        let mut repairs = call.repairs_of(report);
        if let Some(repair) = emitted.repair {
            repairs.add(repair);
        }
        if appends {
            repairs.add(Repair::Message);
        }
        let is_compliant = repairs.is_empty() && has_raw;
        // Compliant server bytes never change, except that an impossible total is left out.
        let emitted = match is_compliant && !leaves_total_out {
            true => emitted,
            false => emitted.within_total(&mut repairs),
        };
        if is_compliant && repairs.is_empty() {
            return Ok(Rendered::AsCame);
        }
        if wording == Wording::None && !is_compliant {
            message = None;
        } else if wording == Wording::Any && report.message.is_none() && !is_compliant {
            repairs.add(Repair::Message);
            let running = || Cow::Owned(json::quote(&format!("{}: running", call.label())).into());
            message = Some(call.sent.last_words().map_or_else(running, message_text));
        }
        let out = &mut self.rewritten;
        notification::write(out, call, &emitted, message.as_deref(), report);
        repairs.join(done);
        Ok(match is_compliant {
            true => Rendered::WithoutTotal(repairs),
            false => Rendered::Rewritten(repairs),
        })
    }

    /// Moves a call whose stream has closed to the stream on which the server sends its messages now. A task may
    /// outlive the stream of its request: if the server has one stream for all messages, the task continues on the
    /// session stream.
    pub(crate) fn rebind_stream(&mut self, origin: Origin, id: CallId) {
        let Some(call) = self.calls.open.get(id) else { return };
        let now_on = match origin {
            Origin::Stream(now_on) => Some(now_on),
            Origin::Shared => {
                let is_task = call.task.is_some() && self.calls.streams.topology.is_whole();
                self.calls.streams.common_session_stream().filter(|_| is_task)
            }
        };
        let Some(now_on) = now_on else { return };
        if self.calls.streams.has_stream(call.stream) || !self.calls.streams.has_stream(now_on) {
            return;
        }
        self.calls.open.move_to(id, now_on);
        if let Some(call) = self.calls.open.get_mut(id) {
            call.wake = None;
        }
        self.schedule(id);
    }

    /// Opens the call of a request that goes to the server. Returns `None` if too many calls are open.
    pub(crate) fn enter(
        &mut self,
        now: Instant,
        stream: StreamId,
        request: (&str, Option<String>),
        draft: CallDraft,
    ) -> Option<CallId> {
        let id = self.calls.open_call(now, stream, request, draft)?;
        self.schedule(id);
        Some(id)
    }

    /// Schedules the next time at which a call may have a notification to send.
    pub(crate) fn schedule(&mut self, id: CallId) {
        let Some(call) = self.calls.open.get(id) else { return };
        let first = call.pending.first().map(|first| first.order);
        let pending = call.pending.due().zip(first);
        let heartbeat = next_heartbeat(self, call).map(|at| (at, u64::MAX));
        let wake = [pending, heartbeat].into_iter().flatten().min();
        let (before, stream) = (call.wake, call.stream);
        if before == wake {
            return;
        }
        // A heartbeat that is already in the queue keeps its place.
        if pending.is_none()
            && let (Some((at, _)), Some((same, u64::MAX))) = (before, wake)
            && at == same
        {
            return;
        }
        // Each notification postpones the heartbeat. The earlier wake-up is kept, and the time is computed again at the
        // wake-up. Otherwise every notification would change the ordered map twice.
        if let (Some((at, u64::MAX)), Some((later, u64::MAX))) = (before, wake)
            && at <= later
        {
            return;
        }
        if let Some(stream) = self.calls.streams.get_mut(&stream) {
            if let Some((at, order)) = before {
                stream.wakes.remove(&(at, order, id));
            }
            if let Some((at, order)) = wake {
                stream.wakes.insert((at, order, id), ());
            }
        }
        if let Some(call) = self.calls.open.get_mut(id) {
            call.wake = wake;
        }
    }

    /// Answers a call with an error in place of the server.
    pub(crate) fn answer_with_error(
        &mut self,
        now: Instant,
        id: CallId,
        why: &str,
        status: Option<u16>,
        outcome: Outcome,
    ) {
        let Some(call) = self.calls.open.get(id) else { return };
        let (stream, client_id) = (call.stream, call.id.client.clone());
        // Read before the call ends, because the guard is stored in the call.
        let guards = smallvec![self.calls.open.guard_of(id, &self.calls.streams)];
        self.end_call(now, id, Tombstone::Cancelled, outcome);
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(Key::read(&client_id))),
            payload: Payload::own(own_error(&client_id, why, status)),
            guards,
            verdicts: SmallVec::new(),
        };
        self.calls.enqueue_own(stream, item);
    }

    /// Ends a call and removes its names. Its waiting reports are dropped, or are sent before its answer if no answer
    /// needs a pause.
    pub(crate) fn end_call(
        &mut self,
        now: Instant,
        id: CallId,
        tombstone: Tombstone,
        outcome: Outcome,
    ) {
        let answered = outcome.is_answer();
        // Done before the call's names are removed, because a notification needs the call's token.
        if answered {
            self.flush_pending(now, id);
        }
        if tombstone == Tombstone::Cancelled {
            self.calls.given_up_at = Some(now);
        }
        let Some(mut call) = self.calls.open.close(id, tombstone) else { return };
        self.asked.remove(&id);
        self.calls.last_ends.note(call.principal, now);
        // The request is answered. Another possible answer that waited on the stream is now an orphan.
        release_orphans_on(self, call.paired.unwrap_or(call.stream));
        self.calls.forget_policies();
        if let Some(stream) = self.calls.streams.get_mut(&call.stream)
            && let Some((at, order)) = call.wake
        {
            stream.wakes.remove(&(at, order, id));
        }
        let reason = if answered { Reason::Overtaken } else { Reason::Late };
        for old in call.pending.take() {
            call.account.withheld(reason);
            self.withhold(id, &old, reason);
        }
        // Each call has exactly one record. The filter that serves a shadow's call writes it.
        if !call.shadow && !call.is_recorded {
            let client = self.calls.handshake.client.as_ref();
            call.client = call.client.take().or_else(|| client.cloned());
            call.revision = call.revision.or(self.calls.handshake.revision);
            let summary = call.summary(id, now, outcome);
            self.calls.events.push_back(FilterEvent::Call(Box::new(summary)));
        }
    }
}

/// Returns the text of `report` for the client, as JSON text. With `appends` it follows the earlier text of the call.
/// If the result differs from the server's text, the call keeps it, because it may be sent again.
fn words_to_send<'a>(
    call: &mut Call,
    report: &ReportView<'a>,
    appends: bool,
) -> Option<Cow<'a, [u8]>> {
    let joined = match (&call.sent.joined, report.message) {
        (Some(first), Some(more)) if appends => Some(join(first, more)),
        _ => None,
    };
    let is_clean = report.has_clean_words && joined.is_none();
    let message = match joined {
        Some(joined) => Some(Cow::Owned(message_text(&joined).into_owned())),
        None => report.message.map(|said| match is_clean {
            true => Cow::Borrowed(said),
            false => message_text(said),
        }),
    };
    if appends || (!is_clean && message.as_deref() != report.message) {
        // Copied, because a slice would keep the whole read buffer in memory for as long as the call is open.
        call.sent.last_message = message.as_deref().map(Bytes::copy_from_slice);
    }
    if appends {
        call.sent.joined.clone_from(&call.sent.last_message);
    }
    message
}
