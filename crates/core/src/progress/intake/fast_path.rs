//! The fast path for the most frequent message: compliant progress on the stream of its own
//! request.
//!
//! Any other message takes the ordinary path, with the same result (a property test compares both paths). The fast path
//! does not write a message, but forwards the server's bytes.

use std::time::Instant;

use crate::progress::correlate::call::{Call, ProtocolValues};
use crate::progress::dialect::plain_progress::{PlainMembers, PlainProgress};
use crate::progress::gate::state::Gate;
use crate::progress::ids::StreamId;
use crate::progress::intake::log_template::LogTemplates;
use crate::progress::intake::template::Templates;
use crate::progress::policy::{Coalesce, Messages, StreamPacing, ValueFrom};
use crate::progress::streams::stream::StreamKind;
use crate::progress::value::is_total_of;
use crate::progress::verdict::Verdict;
use crate::protocol::mcp;

/// The result of an attempt to forward progress unchanged.
pub(crate) enum FastForward<'a> {
    /// The caller forwards the message unchanged.
    Done,
    /// The message takes another path. Its members have been read.
    Read(PlainMembers<'a>),
    /// The message takes another path, and has not been read.
    Unread,
}

/// The fast paths of messages on the stream of their only call, with templates of the last messages there.
#[derive(Debug, Default)]
pub(crate) struct FastPaths {
    /// Templates of the last plain progress.
    pub(super) templates: Templates,
    /// Templates of the last log messages.
    pub(super) log_templates: LogTemplates,
}

impl FastPaths {
    /// Handles a server message on `stream`, if it is progress that can be forwarded unchanged and immediately. For any
    /// other message, nothing changes. `messages`: the number of messages so far.
    pub(crate) fn forward<'a>(
        &mut self,
        gate: &mut Gate,
        messages: &mut u64,
        now: Instant,
        stream: StreamId,
        text: &'a [u8],
    ) -> FastForward<'a> {
        if !is_unhindered(gate, stream) {
            return FastForward::Unread;
        }
        let Some((id, call)) = gate.calls.open.sole_mut() else {
            return FastForward::Unread;
        };
        let policy = call.settings();
        let is_ready = call.stream == stream
            && call.is_quiet()
            && policy.coalesce == Coalesce::Repaired
            && policy.messages == Messages::Replace
            && policy.scale.is_none()
            && policy.value_from == ValueFrom::Progress
            && policy.has_standard()
            && &*call.method != mcp::LISTEN;
        if !is_ready {
            return FastForward::Unread;
        }
        // The text is read last, because reading is the most expensive step.
        let Some(members) = self.templates.read(text) else { return FastForward::Unread };
        let leaves_total_out = policy.answers.total;
        let rises = |plain: &PlainProgress<'_>| {
            let has_total =
                plain.total.is_none_or(|total| is_total_of(total.value, plain.progress));
            (has_total || !leaves_total_out)
                && call.token.as_ref().is_some_and(|token| token.is_just(plain.token))
                && call.meter.rise(plain.progress, plain.total)
        };
        let Some(plain) = PlainProgress::of(members).filter(rises) else {
            return FastForward::Read(members);
        };
        call.note_plain(now, &plain);
        let is_unplanned = call.wake.is_none();
        gate.calls.received_at = Some(now);
        *messages += 1;
        gate.calls.events.push_verdict(*messages, Some(id), Verdict::Forwarded);
        // A wake-up that is already planned stays, because it can only be too early. The heartbeat's time is then
        // computed again.
        if is_unplanned {
            gate.schedule(id);
        }
        FastForward::Done
    }
}

/// Whether messages on this stream can be forwarded immediately.
pub(crate) fn is_unhindered(gate: &Gate, id: StreamId) -> bool {
    // If one of these conditions is false, the ordinary path would do more than forward the message: delay, reorder,
    // withhold or rename it.
    gate.calls.streams.get(&id).is_some_and(|stream| {
        stream.kind == StreamKind::Exchange
            && stream.pacing == StreamPacing::Immediate
            && stream.queue.is_empty()
            && !stream.replays
            && stream.midway.is_none()
    }) && !gate.calls.policy.observes()
        && !gate.calls.streams.topology.has_strangers()
        && !gate.calls.streams.client_is_slow
}

impl Call {
    /// Whether no report of the call waits, and the server has not marked a report as its last.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pending.first().is_none() && self.reports.last_of.is_none() && self.task.is_none()
    }

    fn note_plain(&mut self, now: Instant, plain: &PlainProgress<'_>) {
        self.account.received += 1;
        self.reports.began = true;
        self.reports.protocol_values = ProtocolValues::Members;
        self.reports.has_figure = true;
        self.note_sent(now);
        let total = plain.total.map(|total| total.value);
        self.sent.remember((Some(plain.progress), total), plain.message, now);
    }
}
