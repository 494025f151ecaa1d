//! The state of incoming messages: their number, and the messages that have arrived only in part.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::correlator::Correlator;
use crate::progress::detached::DetachedWork;
use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::Report;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::large_answer::LargeRepairs;
use crate::progress::intake::log_template::LogTemplates;
use crate::progress::intake::template::Templates;
use crate::progress::policy::Policy;
use crate::progress::verdict::{Reason, Repairs};
use crate::protocol::jsonrpc::{Key, Message, Scan};
use crate::protocol::unicode::ReadablePieces;

/// A large message of the server that is passing.
#[derive(Debug)]
pub(crate) struct LargeMessage {
    pub(crate) number: u64,
    pub(crate) scan: Scan,
    pub(crate) fate: LargeDisposition,
    pub(crate) stream: Option<StreamId>,
    /// The call of the answer, if known.
    pub(crate) call: Option<CallId>,
    /// The streams and the ids of the requests that the message answers, which stay open until it is whole.
    pub(crate) answers: Vec<(StreamId, Bytes)>,
    /// Answers of an array whose calls have ended.
    pub(crate) ended: usize,
    /// Whether enough is known, so that the rest need not be read.
    pub(crate) known: bool,
    /// The repairs of an answer.
    pub(crate) repairs: LargeRepairs,
    /// Makes the text readable, unless the route leaves it as it is.
    pub(crate) readable: Option<ReadablePieces>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LargeDisposition {
    Forward,
    Withhold(Reason),
    Noise,
}

/// The reports that the dialects have read in a message, kept until the message has been handled,
/// so that the message is read once. Several steps need them: whose message it is, whether its
/// token is another session's, and what it reports.
#[derive(Debug)]
pub(crate) struct MessageReports {
    /// The text of the message. As long as it is held here, no other text has its place in memory.
    pub(crate) raw: Bytes,
    pub(crate) reports: Vec<(Dialect, Report)>,
}

impl MessageReports {
    pub(crate) fn is_of(&self, message: &Message) -> bool {
        let raw = message.raw();
        self.raw.as_ptr() == raw.as_ptr() && self.raw.len() == raw.len()
    }
}

/// The part of a filter that takes messages of the server.
#[derive(Debug)]
pub struct Intake {
    /// The number of messages so far. Messages are numbered from 1.
    pub(crate) messages: u64,
    /// Large messages that have not come whole, by their upstream stream; without one on a single wire.
    pub(crate) large_messages: BTreeMap<Option<StreamId>, LargeMessage>,
    /// The message that is being worked on, in case the work fails.
    pub(crate) at_work: Option<(Option<StreamId>, Message)>,
    /// Repairs of what the next message came in.
    pub(crate) done: Repairs,
    /// The reports that were read in the current message.
    pub(crate) reports: Option<MessageReports>,
    /// The shapes of the last plain progress.
    pub(crate) templates: Templates,
    /// The shapes of the last log messages.
    pub(crate) log_templates: LogTemplates,
    pub(crate) gate: Gate,
    pub(crate) detached: DetachedWork,
}

impl Intake {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self {
            messages: 0,
            large_messages: BTreeMap::new(),
            at_work: None,
            done: Repairs::default(),
            reports: None,
            templates: Templates::default(),
            log_templates: LogTemplates::default(),
            detached: DetachedWork::new(&policy),
            gate: Gate::new(Correlator::new(policy)),
        }
    }

    /// Sets the policy of calls that open from now on. Open calls keep their policy, also for the
    /// server's messages about them. Settings of the whole connection stay: whether the server is
    /// shared (`id_mapping`), and the facts learned about the server. A change to or from a policy that only
    /// observes applies with the first call that opens while no other call is open.
    pub fn set_policy(&mut self, policy: &Arc<Policy>) {
        self.reports = None;
        self.gate.calls.set_policy(policy, !self.large_messages.is_empty());
        self.detached.follow(&self.gate.calls.policy);
    }

    /// Applies the changes that waited for the end of all calls, when a new call opens.
    pub(crate) fn apply_pending_policy(&mut self) {
        if self.gate.calls.policy.wanted.observes() != self.gate.calls.policy.now.observes() {
            let wanted = Arc::clone(&self.gate.calls.policy.wanted);
            self.set_policy(&wanted);
        }
    }

    /// The number of a message that has just come.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.messages += 1;
        self.messages
    }

    /// The number of large messages that have begun to answer a request.
    pub(crate) fn answering(&self) -> usize {
        self.large_messages.values().filter(|large| !large.answers.is_empty()).count()
    }

    /// The number of server messages so far. Messages are numbered from 1 in the order of arrival.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether a client stream has a request without an answer.
    pub fn has_calls_on(&self, stream: StreamId) -> bool {
        self.gate.calls.open.has_unanswered_on(stream)
            || self.detached.held().is_some_and(|held| held.is_on(stream))
    }

    /// Notes that the response to a POST has ended. An answer that fits no open request counts as
    /// the answer to the request of the POST, if that request has no other answer.
    pub fn response_ended(&mut self, now: Instant, on: StreamId) {
        self.detached.response_ended(&mut self.gate, now, on);
    }

    /// The time at which the next request ends by itself.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.detached.next_expiry(&self.gate)
    }

    /// Whether the next message of the server may be kept.
    pub fn may_keep(&self) -> bool {
        self.detached.may_keep(&self.gate)
    }

    /// Bytes that may be kept of a large answer to a call that goes on without its client.
    pub fn late_room(&self, id: Option<&Key>) -> Option<usize> {
        self.detached.late.as_ref()?.room(&self.gate, id, &self.detached.kept_room)
    }

    /// Whether a stream has nothing to be written now, and nothing ends by itself now.
    pub fn has_nothing_due(&self, now: Instant, stream: StreamId) -> bool {
        self.detached.has_nothing_due(&self.gate, now, stream)
    }

    /// Notes that the server sends its messages about the requests in `message`, which a client has
    /// just sent on the stream `client`, on the stream `upstream`, whose number must not be that of
    /// a client stream. Messages on it come from `Origin::Stream(upstream)` then, and messages on
    /// an upstream stream that pairs with no request from
    /// [`Origin::Shared`](crate::progress::Origin::Shared).
    pub fn pair(&mut self, client: StreamId, message: &Message, upstream: StreamId) {
        let Self { gate, detached, .. } = self;
        detached.pair(gate, client, message, upstream);
    }

    /// The token that the progress in a message names. The reports are kept for the next step.
    pub(crate) fn named_token(&mut self, message: &Message) -> Option<Key> {
        // Whose message it is, whether its token is another session's, and what it says are three
        // questions. One reading for all of them, with the parameters read in one pass, about
        // halved the instructions of a flood of progress.
        if self.reports.as_ref().is_none_or(|known| !known.is_of(message)) {
            let reports = self.gate.calls.policy.read_reports(message);
            self.reports = Some(MessageReports { raw: message.raw().clone(), reports });
        }
        let mut reports = self.reports.iter().flat_map(|known| &known.reports);
        reports.find_map(|(_, report)| report.about.token.clone())
    }

    /// The reports in a message, each with its dialect.
    pub(crate) fn take_reports(&mut self, message: &Message) -> Vec<(Dialect, Report)> {
        match self.reports.take().filter(|known| known.is_of(message)) {
            Some(known) => known.reports,
            None => self.gate.calls.policy.read_reports(message),
        }
    }
}
