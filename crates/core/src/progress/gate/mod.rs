//! The gate of each client stream: which messages may be written now, and with which content.
//!
//! The gate decides on tokens, values and whether a request has been answered, at the moment of
//! writing. Everything before the gate only makes claims.

mod before_answer;
mod error_answers;
pub(crate) mod heartbeat;
pub mod meter;
pub(crate) mod notification;
mod questions;
mod silence;
pub(crate) mod stream;
pub(crate) mod streams;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::progress::correlate::call::{Call, LastSent};
use crate::progress::correlate::pending::{Pending, Thinning};
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::dialect::report::{ReportView, join};
use crate::progress::event::FilterEvent;
use crate::progress::event::summary::Outcome;
use crate::progress::filter::Filter;
use crate::progress::gate::stream::Guard;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, Transmit, TransmitKind};
use crate::progress::policy::Messages;
use crate::progress::verdict::{Reason, Repair, Repairs, Verdict};
use crate::protocol::json;
use crate::protocol::jsonrpc::Framing;
use crate::protocol::mcp::Revision;

/// The time within which an exact duplicate of the last notification is withheld. Later the
/// duplicate shows that the call is alive.
const DUPLICATE_WITHIN: Duration = Duration::from_secs(1);

/// Progress that could not be written for this long gives way to newer progress of the same call:
/// the client reads too slowly. A client that stands still for a moment gets everything.
const COLLAPSE_AFTER: Duration = Duration::from_secs(5);

/// The form in which a report goes to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rendered {
    /// The server's bytes.
    AsCame,
    /// The server's bytes without their total, after these repairs. A notification of Milepost's own that says the
    /// same is in `gate.rewritten`.
    WithoutTotal(Repairs),
    /// A notification of Milepost's own, after these repairs.
    Rewritten(Repairs),
}

impl Filter {
    /// The next bytes to be written on a stream now. Call again until the answer is `None`.
    pub fn poll_transmit(&mut self, now: Instant, id: StreamId) -> Option<Transmit> {
        self.expire(now);
        loop {
            let stream = self.gate.streams.get_mut(&id)?;
            if let Some((at, place, call)) = stream.due(now) {
                stream.wakes.remove(&(at, place, call));
                if let Some(payload) = self.send_due(now, call) {
                    let transmit = Transmit::whole(TransmitKind::Progress, payload);
                    if !self.policy.observes() {
                        return Some(transmit);
                    }
                }
                continue;
            }
            let ready = stream.ready(now);
            let item = ready.and_then(|index| stream.take(index));
            let Some(item) = item else {
                self.place_heartbeats(now, id);
                break;
            };
            for judged in &item.verdicts {
                self.record(judged.number, judged.call, judged.verdict);
            }
            if !self.policy.observes() {
                return Some(item.into_transmit());
            }
        }
        self.gate.streams.get_mut(&id)?.observed.pop()
    }

    /// The time of the next [`Filter::poll_transmit`], if nothing arrives before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let streams = self.gate.streams.values().filter_map(|stream| stream.timeout()).min();
        [streams, self.next_expiry()].into_iter().flatten().min()
    }

    /// Whether nothing waits but events: no message for the server, and nothing on this stream that is due now.
    /// [`Filter::poll_transmit`], [`Filter::written`] and the other polls would do nothing.
    pub fn has_nothing_due(&self, now: Instant, id: StreamId) -> bool {
        self.to_server.is_empty()
            && self.late.held.released.is_empty()
            && self.gate.streams.get(&id).is_none_or(|stream| stream.is_quiet(now))
            && self.next_expiry().is_none_or(|at| at > now)
    }

    /// Notes that everything given out for a stream has been written.
    pub fn written(&mut self, now: Instant, id: StreamId) {
        let Some(stream) = self.gate.streams.get_mut(&id) else { return };
        for call in std::mem::take(&mut stream.unwritten) {
            if let Some(call) = self.correlator.ledger.get_mut(call) {
                call.sent.at = call.sent.at.max(Some(now));
            }
        }
        stream.written(now);
    }

    /// Sends the due notification of a call: a waiting report, else a heartbeat.
    fn send_due(&mut self, now: Instant, id: CallId) -> Option<Payload> {
        if let Some(call) = self.correlator.ledger.get_mut(id) {
            call.wake = None;
        }
        let notification = self.send_pending(now, id).or_else(|| self.heartbeat(now, id));
        if notification.is_some()
            && let Some(call) = self.correlator.ledger.get(id)
            && let Some(stream) = self.gate.streams.get_mut(&call.stream)
        {
            stream.unwritten.push(id);
        }
        self.schedule(id);
        notification
    }

    fn send_pending(&mut self, now: Instant, id: CallId) -> Option<Payload> {
        self.replace_ripe(now, id);
        let is_slow = self.gate.client_is_slow;
        let call = self.correlator.ledger.get_mut(id)?;
        let min_interval = call.min_interval(is_slow);
        let first = call.pending.first().filter(|first| first.due <= now)?;
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
            self.record(number, Some(id), verdict);
        }
        // The report went to the client as it came, when it came.
        payload.filter(|_| !is_observed)
    }

    /// The notification for a report, decided now: the server's same bytes where they need no repair.
    pub(crate) fn render(
        &mut self,
        now: Instant,
        id: CallId,
        pending: &Pending,
    ) -> Result<(Payload, Verdict), Reason> {
        let done = pending.done;
        let form = self.render_view(now, id, &pending.report.view(), (done, pending.raw.is_some()));
        self.share_value(id);
        let stream = self.correlator.ledger.get(id).map(|call| call.stream);
        let stream = stream.and_then(|stream| self.gate.streams.get(&stream));
        // A client that resumes names the id that came last: behind a later message, an earlier id would make
        // the server repeat that message.
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
                let own = || Payload::own(self.gate.take_rewritten()).in_place_of(&pending.framing);
                (framed(payload.unwrap_or_else(own)), Verdict::Repaired(repairs))
            }
            Rendered::Rewritten(repairs) => {
                let text = self.gate.take_rewritten();
                let payload = Payload::own(text).in_place_of(&pending.framing);
                (framed(payload), Verdict::Repaired(repairs))
            }
        })
    }

    /// Decides on a report now, and counts it. A notification in its place is in `gate.rewritten` afterwards.
    /// `done`: the repairs of the frame. `has_raw`: the server's bytes may go out.
    pub(crate) fn render_view(
        &mut self,
        now: Instant,
        id: CallId,
        report: &ReportView<'_>,
        (done, has_raw): (Repairs, bool),
    ) -> Result<Rendered, Reason> {
        let rendered = self.try_render(now, id, report, (done, has_raw));
        let Some(call) = self.correlator.ledger.get_mut(id) else { return rendered };
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
        let adds_words = report.message.is_none() && self.words_allowed(id);
        let Some(call) = self.correlator.ledger.get_mut(id) else { return Err(Reason::Late) };
        if call.token.is_none() {
            return Err(Reason::NoToken);
        }
        let policy = call.settings();
        let (messages, on_fall) = (policy.messages, policy.on_fall);
        let leaves_total_out = policy.answers.total;
        // Overheard text stands for itself.
        let appends = messages == Messages::Append && report.message.is_some() && !report.from_text;
        if let (Some(stream), Some(figure)) =
            (self.gate.streams.get_mut(&call.stream), &report.figure)
            && stream.replays
        {
            if !call.meter.would_rise(figure.value.value) {
                return Err(Reason::Duplicate);
            }
            stream.replays = false;
        }
        let repeats = |(last, at): &(LastSent, Instant)| {
            now < *at + DUPLICATE_WITHIN && last.is_repeated_by(report)
        };
        if !appends
            && [&call.sent.last, &call.sent.last_heartbeat].into_iter().flatten().any(repeats)
        {
            return Err(Reason::Duplicate);
        }
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
        let emitted = match is_compliant && !leaves_total_out {
            true => emitted,
            false => emitted.within_total(&mut repairs),
        };
        if is_compliant && repairs.is_empty() {
            return Ok(Rendered::AsCame);
        }
        if adds_words && !is_compliant {
            repairs.add(Repair::Message);
            let running = || Cow::Owned(json::quote(&format!("{}: running", call.label())).into());
            message = Some(call.sent.last_words().map_or_else(running, notification::message));
        }
        let out = &mut self.gate.rewritten;
        notification::write(out, call, &emitted, message.as_deref(), report);
        repairs.join(done);
        Ok(match is_compliant {
            true => Rendered::WithoutTotal(repairs),
            false => Rendered::Rewritten(repairs),
        })
    }

    /// Shares the value among all calls with one token, because a client identifies progress by its
    /// token.
    fn share_value(&mut self, id: CallId) {
        let emitted = self.correlator.ledger.get(id).and_then(|call| call.meter.emitted());
        for holder in self.correlator.ledger.holders(id) {
            if let Some(call) = self.correlator.ledger.get_mut(holder) {
                call.meter.raise_to(emitted);
            }
        }
    }

    /// Whether Milepost may add messages to the progress of this call: progress of 2024-11-05 has
    /// no message.
    fn words_allowed(&self, id: CallId) -> bool {
        let own = self.correlator.ledger.get(id).and_then(|call| call.revision);
        self.policy_of(id).words_in_2024 || own.or(self.revision) != Some(Revision::V2024_11_05)
    }

    /// Works out when a call has something to say next.
    pub(crate) fn schedule(&mut self, id: CallId) {
        let Some(call) = self.correlator.ledger.get(id) else { return };
        let first = call.pending.first().map(|first| first.order);
        let pending = call.pending.due().zip(first);
        let heartbeat = self.next_heartbeat(call).map(|at| (at, u64::MAX));
        let wake = [pending, heartbeat].into_iter().flatten().min();
        let (before, stream) = (call.wake, call.stream);
        if before == wake {
            return;
        }
        // A heartbeat that has a place keeps it.
        if pending.is_none()
            && let (Some((at, _)), Some((same, u64::MAX))) = (before, wake)
            && at == same
        {
            return;
        }
        // A beat that is put off again and again is looked at when it would have been due.
        if let (Some((at, u64::MAX)), Some((later, u64::MAX))) = (before, wake)
            && at <= later
        {
            return;
        }
        if let Some(stream) = self.gate.streams.get_mut(&stream) {
            if let Some((at, order)) = before {
                stream.wakes.remove(&(at, order, id));
            }
            if let Some((at, order)) = wake {
                stream.wakes.insert((at, order, id), ());
            }
        }
        if let Some(call) = self.correlator.ledger.get_mut(id) {
            call.wake = wake;
        }
    }

    /// The guard that an answer to `call` has to wait for.
    pub(crate) fn guard_of(&self, call: CallId) -> Guard {
        let found = self.correlator.ledger.get(call).filter(|found| !found.is_observed());
        let Some(found) = found else { return Guard::default() };
        let unwritten = self
            .gate
            .streams
            .get(&found.stream)
            .is_some_and(|stream| stream.unwritten.contains(&call));
        let wait = self.gate.pacing_of(found).guard;
        Guard { last: found.sent.at, unwritten: unwritten.then_some(call), behind: 0, wait }
    }

    /// Ends a call: its names end, and its waiting reports are dropped, or are sent before its
    /// answer where nothing has to wait.
    pub(crate) fn end_call(
        &mut self,
        now: Instant,
        id: CallId,
        tombstone: Tombstone,
        outcome: Outcome,
    ) {
        let answered = outcome.is_answer();
        if answered {
            self.flush_pending(now, id);
        }
        if tombstone == Tombstone::Cancelled {
            self.correlator.given_up_at = Some(now);
        }
        let Some(mut call) = self.correlator.ledger.close(id, tombstone) else { return };
        self.gate.asked.remove(&id);
        self.correlator.last_ends.note(call.principal, now);
        self.release_orphans_on(call.paired.unwrap_or(call.stream));
        self.forget_policies();
        if let Some(stream) = self.gate.streams.get_mut(&call.stream)
            && let Some((at, order)) = call.wake
        {
            stream.wakes.remove(&(at, order, id));
        }
        let reason = if answered { Reason::Overtaken } else { Reason::Late };
        for old in call.pending.take() {
            call.account.withheld(reason);
            if let Some(number) = old.message {
                self.record(number, Some(id), Verdict::Withheld(reason));
            }
        }
        if !call.shadow && !call.is_recorded {
            let client = self.client.as_ref();
            call.client = call.client.take().or_else(|| client.cloned());
            call.revision = call.revision.or(self.revision);
            let summary = call.summary(id, now, outcome);
            self.events.push_back(FilterEvent::Call(Box::new(summary)));
        }
    }

    /// Ends calls past their time-out and tasks past their time to live. [`Filter::poll_transmit`]
    /// of any stream does the same; a shell whose clients all read nothing has to call this
    /// function.
    pub fn expire(&mut self, now: Instant) {
        self.expire_late(now);
        self.expire_tasks(now);
        while let Some((at, id)) = self.correlator.ledger.next_expiry() {
            if at > now {
                return;
            }
            let timed_out = self.correlator.ledger.get(id).is_some_and(|call| call.task.is_none());
            if timed_out {
                self.send_cancelled(id, "no answer within the time allowed by the proxy");
                let why = "the server did not answer within the time allowed";
                self.answer_with_error(now, id, why, None, Outcome::TimedOut);
            } else {
                self.end_call(now, id, Tombstone::Answered, Outcome::TaskEnded);
            }
        }
    }
}

/// The words of `report` as the client gets them, written as JSON text: with `appends`, behind all that the call said
/// before. The call keeps words that are not the server's own, because it may say them again.
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
        Some(joined) => Some(Cow::Owned(notification::message(&joined).into_owned())),
        None => report.message.map(|said| match is_clean {
            true => Cow::Borrowed(said),
            false => notification::message(said),
        }),
    };
    if appends || (!is_clean && message.as_deref() != report.message) {
        // A copy of what may be said again, and no more of it.
        call.sent.last_message = message.as_deref().map(Bytes::copy_from_slice);
    }
    if appends {
        call.sent.joined.clone_from(&call.sent.last_message);
    }
    message
}
