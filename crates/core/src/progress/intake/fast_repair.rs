//! The fast path for progress that needs a repair: a notification that has only members of the specification, on the
//! stream of its only call.
//!
//! The steps are the same as on the ordinary path, but the message is read only once, and a report that may be written
//! immediately does not enter a queue. A property test compares both paths.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::arrived_message::ArrivedMessage;
use crate::progress::correlate::call::{Call, ProtocolValues};
use crate::progress::correlate::open_calls::Attributed;
use crate::progress::correlate::pending::Thinning;
use crate::progress::dialect;
use crate::progress::dialect::plain_progress::PlainMembers;
use crate::progress::dialect::report::{About, ReportView};
use crate::progress::dialect::{Dialect, standard};
use crate::progress::event::Origin;
use crate::progress::gate::Rendered;
use crate::progress::gate::hold::plan;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::fast_path::{FastForward, FastPaths};
use crate::progress::intake::scale::total_of;
use crate::progress::policy::{StreamPacing, ValueFrom};
use crate::progress::streams::stream::StreamKind;
use crate::progress::topology::Topology;
use crate::progress::value::ProgressValue;
use crate::progress::verdict::{Reason, Repair, Repairs, Verdict};
use crate::protocol::jsonrpc::Key;

/// The result of the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastPath {
    /// The message takes the ordinary path. Nothing has changed.
    NotTaken,
    /// The caller forwards the message unchanged.
    Unchanged,
    /// The caller writes the text in [`Intake::rewritten`](crate::progress::Intake::rewritten) in place of the message.
    Rewritten,
    /// The message was withheld, or its report waits until
    /// [`Filter::poll_transmit`](crate::progress::Filter::poll_transmit) returns it.
    Kept,
}

impl FastPaths {
    /// Handles a server message on `stream`, if it is progress with the usual members, or a log message that is not
    /// progress. `is_elsewhere` returns whether a token is active in other sessions only; `messages` is the number of
    /// messages so far.
    pub(crate) fn repair(
        &mut self,
        gate: &mut Gate,
        messages: &mut u64,
        now: Instant,
        stream: StreamId,
        arrived: ArrivedMessage<'_>,
        is_elsewhere: impl FnOnce(&Key) -> bool,
    ) -> FastPath {
        let text = arrived.text;
        let read = match self.forward(gate, messages, now, stream, text) {
            FastForward::Done => return FastPath::Unchanged,
            FastForward::Read(members) => Some(members),
            FastForward::Unread => None,
        };
        let Some(members) = read.or_else(|| self.templates.read(text)) else {
            let is_log = self.forward_log(gate, messages, now, stream, &arrived);
            return if is_log { FastPath::Unchanged } else { FastPath::NotTaken };
        };
        if !has_sole_reporter(gate, stream) {
            return FastPath::NotTaken;
        }
        let source = arrived.source;
        let meant = meaning_of(gate, Origin::Stream(stream), (source, members.token), is_elsewhere);
        let Some(meant) = meant else { return FastPath::NotTaken };
        gate.calls.received_at = Some(now);
        *messages += 1;
        let number = *messages;
        let taken = meant.map_err(|reason| (None, reason));
        let taken =
            taken.and_then(|meant| take_plain(gate, now, number, meant, &members, &arrived));
        taken.unwrap_or_else(|(id, reason)| {
            gate.calls.events.push_verdict(number, id, Verdict::Withheld(reason));
            FastPath::Kept
        })
    }
}

/// Returns the call that a message's token means on the stream of a single call; `None` if it may mean a call of
/// another session.
fn meaning_of(
    gate: &mut Gate,
    origin: Origin,
    (source, token): (&Bytes, Option<&[u8]>),
    is_elsewhere: impl FnOnce(&Key) -> bool,
) -> Option<Result<Attributed, Reason>> {
    let known = token.and_then(|token| gate.calls.names.known_token(token, &gate.calls.open));
    if let Some(known) = known {
        let may_be_elsewhere = !known.is_given && is_elsewhere(&known.key);
        return (!may_be_elsewhere).then_some(Ok(known.means));
    }
    let key = token.and_then(|token| Key::read(&source.slice_ref(token)));
    let about = About { token: key, ..About::default() };
    if let Some(token) = &about.token {
        // The filter of one request knows only that request. A token that is unknown here may belong to another request
        // of the session, which the ordinary path finds out.
        let is_of_another = gate.calls.streams.topology == Topology::RequestOfSession
            && !gate.calls.names.knows_token(token, &gate.calls.open);
        if is_of_another || !gate.calls.open.has_token(token) && is_elsewhere(token) {
            return None;
        }
    }
    let means = gate.calls.attribute(&about, origin);
    if let (Ok(means), Some(token), Some(key)) = (means, token, about.token) {
        gate.calls.names.note_token(token, key, means, &gate.calls.open);
    }
    Some(means)
}

/// Handles progress with these members. `mended`: the repair of the token that was needed to find the call. An error is
/// the reason for withholding the message, with its call if known.
fn take_plain(
    gate: &mut Gate,
    now: Instant,
    number: u64,
    (id, mended): Attributed,
    members: &PlainMembers<'_>,
    arrived: &ArrivedMessage<'_>,
) -> Result<FastPath, (Option<CallId>, Reason)> {
    let mut report = standard::view_of(members);
    let Some(call) = gate.calls.open.get_mut(id) else {
        return Err((None, Reason::Unknown));
    };
    call.admit_plain(&mut report, members.token, mended).map_err(|reason| (Some(id), reason))?;
    let scale = call.settings().scale.map(total_of);
    if let (Some(scale), Some(figure)) = (&scale, &mut report.figure)
        && figure.total.is_none_or(|total| total.value <= 0.0)
    {
        figure.total = Some(scale.view());
        report.repairs.add(Repair::Total);
    }
    let mut in_words = None;
    if report.figure.is_some() {
        call.reports.protocol_values = ProtocolValues::Members;
    } else {
        in_words = report.message.and_then(|words| call.figure_in_words(words));
        report.in_words = true;
    }
    report.figure = report.figure.or_else(|| in_words.as_ref().map(ProgressValue::view));
    call.reports.has_figure |= report.figure.is_some();
    let planned = plan(&gate.calls.streams, now, call, &report);
    let waits = planned.thinning != Thinning::No || planned.due > now;
    if waits || call.pending.first().is_some() {
        gate.hold_view(now, id, number, &report, planned, arrived);
        return Ok(FastPath::Kept);
    }
    // The ordinary path gives each report an order number, so the fast path has to use one up too.
    gate.calls.streams.next_order();
    let form = (Repairs::default(), report.repairs.is_empty());
    let rendered = gate.render_view(now, id, &report, form);
    // A wake-up that is already planned stays, because it can only be too early. The heartbeat's time is then computed
    // again.
    if gate.calls.open.get(id).is_some_and(|call| call.wake.is_none()) {
        gate.schedule(id);
    }
    let (fate, verdict) = match rendered.map_err(|reason| (Some(id), reason))? {
        Rendered::AsCame => (FastPath::Unchanged, Verdict::Forwarded),
        Rendered::WithoutTotal(repairs) => {
            let total = report.figure.and_then(|figure| figure.total);
            gate.leave_total_out(arrived.text, total);
            (FastPath::Rewritten, Verdict::Repaired(repairs))
        }
        Rendered::Rewritten(repairs) => (FastPath::Rewritten, Verdict::Repaired(repairs)),
    };
    gate.calls.events.push_verdict(number, Some(id), verdict);
    Ok(fate)
}

/// Whether only the standard dialect reads progress on a stream, and all of it is about the stream's only call.
fn has_sole_reporter(gate: &mut Gate, stream: StreamId) -> bool {
    let is_free = gate.calls.streams.get(&stream).is_some_and(|on| {
        on.kind == StreamKind::Exchange
            && on.pacing == StreamPacing::Immediate
            && on.queue.is_empty()
            && !on.replays
            && on.midway.is_none()
    });
    let is_plain = is_free
        && !gate.calls.policy.call.observes()
        && !gate.calls.streams.topology.has_strangers()
        && !gate.calls.open.is_incomplete()
        && gate.calls.names.elsewhere.is_empty();
    if !is_plain || !gate.calls.policy.has_standard_alone() {
        return false;
    }
    let sole = gate.calls.open.sole_mut();
    sole.is_some_and(|(_, call)| call.stream == stream && call.is_plain())
}

impl Call {
    /// Counts a report in the specification's own dialect. An error is the reason why the client does not get the
    /// report.
    fn admit_plain(
        &mut self,
        report: &mut ReportView<'_>,
        token: Option<&[u8]>,
        mended: Option<Repair>,
    ) -> Result<(), Reason> {
        self.account.received += 1;
        self.reports.began = true;
        self.reports.has_figure |= report.figure.is_some();
        let last_of = self.reports.last_of.as_ref().map(Dialect::name);
        // Has to make the same decisions as `Claim::admit` on the ordinary path.
        let is_final = last_of == Some(dialect::STANDARD);
        if is_final && (mended.is_some() || !report.repairs.is_empty()) {
            self.account.withheld(Reason::AfterFinal);
            return Err(Reason::AfterFinal);
        }
        let due = self.token.as_ref().map(|token| &token.client[..]);
        let is_spelled = token
            .is_some_and(|text| Some(text) == due || text.starts_with(b"\"") && mended.is_none());
        if !is_spelled {
            report.repairs.add(Repair::Token);
        }
        Ok(())
    }

    /// Whether only the standard dialect and the call's own token decide on the call's progress.
    fn is_plain(&self) -> bool {
        let settings = self.settings();
        self.task.is_none()
            && self.paired.is_none()
            && self.token.as_ref().is_some_and(|token| !token.translated)
            && !self.shadow
            && !self.is_subscription()
            && !settings.observes()
            && settings.has_standard()
            && settings.value_from == ValueFrom::Progress
    }
}
