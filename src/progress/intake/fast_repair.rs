//! The fast path for progress that needs a repair: a notification with the members of the specification and no
//! others, on the stream of its only call.
//!
//! The steps are those of the ordinary path; the message is read once, and a report that may be written at once
//! does not wait in a queue. A property test compares both paths.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::call::{Call, Pending};
use crate::progress::dialect::{Dialect, standard};
use crate::progress::event::Origin;
use crate::progress::filter::Filter;
use crate::progress::gate::stream::StreamKind;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::fast_path::FastForward;
use crate::progress::intake::hold::{SourceMessage, plan};
use crate::progress::payload::Payload;
use crate::progress::policy::StreamPacing;
use crate::progress::topology::Topology;
use crate::progress::verdict::{Repairs, Verdict};
use crate::protocol::jsonrpc::{Framing, Key};

/// The result of the fast path.
#[derive(Debug, PartialEq, Eq)]
pub enum FastPath {
    /// The message takes the ordinary path; nothing has changed.
    NotTaken,
    /// The message is to be forwarded unchanged.
    Unchanged,
    /// This is to be written in the place of the message.
    Rewritten(Payload),
    /// The message has been withheld, or its report waits: [`Filter::poll_transmit`] has it in time.
    Kept,
}

impl Filter {
    /// Takes a server message on `stream`, if the message is progress with the usual members, or a log message that
    /// is no progress. `frame` is the event
    /// that `text` came in. `is_elsewhere` says whether a token is active in other sessions only.
    pub fn fast_repair(
        &mut self,
        now: Instant,
        stream: StreamId,
        (text, frame): (&Bytes, &Bytes),
        is_elsewhere: impl FnOnce(&Key) -> bool,
    ) -> FastPath {
        let read = match self.fast_forward(now, stream, text) {
            FastForward::Done => return FastPath::Unchanged,
            FastForward::Read(members) => Some(members),
            FastForward::Unread => None,
        };
        let Some(members) = read.or_else(|| self.intake.templates.read(text)) else {
            let is_log = self.fast_log(now, stream, text);
            return if is_log { FastPath::Unchanged } else { FastPath::NotTaken };
        };
        if !self.has_sole_reporter(stream) {
            return FastPath::NotTaken;
        }
        let report = standard::report_of(&members, text);
        if let Some(token) = &report.about.token {
            let is_of_another =
                self.topology == Topology::RequestOfSession && !self.correlator.knows_token(token);
            if is_of_another || !self.has_token(token) && is_elsewhere(token) {
                return FastPath::NotTaken;
            }
        }
        let origin = Origin::Stream(stream);
        let claim = self.correlate(origin, STANDARD, report);
        let read = claim.and_then(|claim| self.accept(origin, claim, None));
        self.intake.received_at = Some(now);
        let number = self.intake.next_number();
        let (id, report) = match read {
            Ok(read) => read,
            Err(unread) => {
                let (id, reason) = unread.into_parts();
                self.record(number, id, Verdict::Withheld(reason));
                return FastPath::Kept;
            }
        };
        let arrived = SourceMessage {
            message: Some(number),
            raw: report.repairs.is_empty().then(|| Payload::from(frame.clone())),
            framing: Framing::Within(frame.clone()),
            bytes: text.len(),
            done: Repairs::default(),
        };
        let is_next = self.correlator.ledger.get(id).is_some_and(|call| {
            let planned = plan(&self.gate, now, call, &report);
            call.pending.first().is_none() && !planned.thin && planned.due <= now
        });
        if !is_next {
            self.hold(now, id, arrived, report);
            return FastPath::Kept;
        }
        let order = self.gate.next_order();
        self.send_at_once(id, &arrived.into_pending(report, order, now, false))
    }

    /// Sends a report that waits for nothing.
    fn send_at_once(&mut self, id: CallId, pending: &Pending) -> FastPath {
        let rendered = self.render(pending.due, id, pending);
        let (fate, verdict) = match rendered {
            Ok((payload, verdict)) => (FastPath::Rewritten(payload), verdict),
            Err(reason) => (FastPath::Kept, Verdict::Withheld(reason)),
        };
        if let Some(number) = pending.message {
            self.record(number, Some(id), verdict);
        }
        // A beat that is put off is looked at when it would have been due.
        if self.correlator.ledger.get(id).is_some_and(|call| call.wake.is_none()) {
            self.schedule(id);
        }
        fate
    }

    /// Whether progress on a stream is read by the standard dialect alone, and is about its only call.
    fn has_sole_reporter(&mut self, stream: StreamId) -> bool {
        let is_free = self.gate.streams.get(&stream).is_some_and(|on| {
            on.kind == StreamKind::Exchange
                && on.pacing == StreamPacing::Immediate
                && on.queue.is_empty()
                && !on.replays
                && on.midway.is_none()
        });
        let is_plain = is_free
            && !self.policy.call.observes()
            && !self.topology.has_strangers()
            && !self.correlator.ledger.overflowed
            && self.correlator.elsewhere.is_empty()
            && self.intake.large_messages.is_empty()
            && self.intake.done.is_empty();
        if !is_plain || !self.policy.has_standard_alone() {
            return false;
        }
        let sole = self.correlator.ledger.sole_mut();
        sole.is_some_and(|(_, call)| call.stream == stream && call.is_plain())
    }
}

/// The dialect of the specification.
const STANDARD: Dialect = Dialect::BuiltIn(&standard::DIALECT);

impl Call {
    /// Whether nothing but the standard dialect and the call's own token decides on its progress.
    fn is_plain(&self) -> bool {
        let settings = self.settings();
        self.task.is_none()
            && self.paired.is_none()
            && self.token.as_ref().is_some_and(|token| !token.translated)
            && !self.shadow
            && !self.is_subscription()
            && !settings.observes()
            && settings.has_standard()
    }
}
