//! The state of the intake: the number of messages, and the messages that have arrived only in part.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::arrived_message::ArrivedMessage;
use crate::progress::correlate::correlator::Correlator;
use crate::progress::detached::{DetachedWork, clock};
use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::{Report, TextSource};
use crate::progress::event::Origin;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::fast_path::{FastForward, FastPaths};
use crate::progress::intake::fast_repair::FastPath;
use crate::progress::intake::large_answer::LargeRepairs;
use crate::progress::intake::text_source;
use crate::progress::policy::Policy;
use crate::progress::verdict::{Reason, Repairs, Verdict};
use crate::protocol::jsonrpc::{Key, Kind, Message, Scan};
use crate::protocol::unicode::ReadablePieces;

/// A large message of the server that is being forwarded in pieces.
#[derive(Debug)]
pub(crate) struct LargeMessage {
    pub(crate) number: u64,
    pub(crate) scan: Scan,
    pub(crate) fate: LargeDisposition,
    pub(crate) stream: Option<StreamId>,
    /// The call that the message answers, if known.
    pub(crate) call: Option<CallId>,
    /// The streams and ids of the requests that the message answers. They count as open until the message is complete.
    pub(crate) answers: Vec<(StreamId, Bytes)>,
    /// Number of answers in an array whose calls have already ended.
    pub(crate) ended: usize,
    /// Whether enough is known about the message, so that the rest need not be read.
    pub(crate) known: bool,
    /// The repairs that the answer needs.
    pub(crate) repairs: LargeRepairs,
    /// Repairs unreadable characters; `None` if the route turns that repair off.
    pub(crate) readable: Option<ReadablePieces>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LargeDisposition {
    Forward,
    Withhold(Reason),
    Noise,
}

/// The reports that the dialects have read in a message. They are kept until the message is handled, so that it is read
/// only once. Three steps need them: finding the message's owner, checking whether its token belongs to another
/// session, and reading its report.
#[derive(Debug)]
pub(crate) struct MessageReports {
    /// The text of the message. While it is kept here, no other text can be at the same address.
    pub(crate) raw: Bytes,
    pub(crate) reports: Vec<(Dialect, Report)>,
}

impl MessageReports {
    pub(crate) fn is_of(&self, message: &Message) -> bool {
        let raw = message.raw();
        self.raw.as_ptr() == raw.as_ptr() && self.raw.len() == raw.len()
    }
}

/// The part of a filter that handles arriving messages.
#[derive(Debug)]
pub struct Intake {
    /// The number of messages so far. Messages are numbered from 1.
    pub(crate) messages: u64,
    /// Large messages that are incomplete, by the server's stream; `None` if one connection carries all messages.
    pub(crate) large_messages: BTreeMap<Option<StreamId>, LargeMessage>,
    /// The message that is being handled, in case the filter panics.
    pub(crate) at_work: Option<(Option<StreamId>, Message)>,
    /// The repairs of the frame that contained the next message.
    pub(crate) done: Repairs,
    /// The reports that were read in the current message.
    pub(crate) reports: Option<MessageReports>,
    pub(crate) fast: FastPaths,
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
            fast: FastPaths::default(),
            detached: DetachedWork::new(&policy),
            gate: Gate::new(Correlator::new(policy)),
        }
    }

    /// Sets the policy of calls that open from now on. Open calls keep their policy, also for the server's messages
    /// about them. The settings of the whole connection do not change: whether clients share the server (`id_mapping`),
    /// and what was learned about the server. A change to or from a policy that only observes takes effect with the
    /// first call that opens while no other call is open.
    pub fn set_policy(&mut self, policy: &Arc<Policy>) {
        self.reports = None;
        self.gate.calls.set_policy(policy, !self.large_messages.is_empty());
        self.detached.follow(&self.gate.calls.policy);
    }

    /// Applies a policy change that had to wait until all calls had ended. Called when a new call opens.
    pub(crate) fn apply_pending_policy(&mut self) {
        if self.gate.calls.policy.wanted.observes() != self.gate.calls.policy.now.observes() {
            let wanted = Arc::clone(&self.gate.calls.policy.wanted);
            self.set_policy(&wanted);
        }
    }

    /// Returns the number of a message that has just arrived.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.messages += 1;
        self.messages
    }

    /// Returns the number of large messages that have begun to answer a request.
    pub(crate) fn answering(&self) -> usize {
        self.large_messages.values().filter(|large| !large.answers.is_empty()).count()
    }

    /// Returns the number of server messages so far. Messages are numbered from 1 in the order of arrival.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Handles a server message on `stream`, if it is progress that can be forwarded unchanged and immediately. Returns
    /// false and changes nothing for any other message.
    pub fn fast_path(&mut self, now: Instant, stream: StreamId, text: &[u8]) -> bool {
        let Self { fast, gate, messages, large_messages, done, .. } = self;
        let is_clear = large_messages.is_empty() && done.is_empty();
        is_clear && matches!(fast.forward(gate, messages, now, stream, text), FastForward::Done)
    }

    /// Handles a server message on `stream`, if it is progress with the usual members, or a log message that is not
    /// progress. `is_elsewhere` returns whether a token is active in other sessions only.
    pub fn fast_repair(
        &mut self,
        now: Instant,
        stream: StreamId,
        arrived: ArrivedMessage<'_>,
        is_elsewhere: impl FnOnce(&Key) -> bool,
    ) -> FastPath {
        // If one of these conditions is false, the ordinary path would do more than forward or repair the message.
        if !self.large_messages.is_empty() || !self.done.is_empty() {
            return FastPath::NotTaken;
        }
        self.fast.repair(&mut self.gate, &mut self.messages, now, stream, arrived, is_elsewhere)
    }

    /// Returns the text that has to be written in place of the last message ([`FastPath::Rewritten`]).
    pub fn rewritten(&self) -> &[u8] {
        &self.gate.rewritten
    }

    /// Handles a line that the server has written outside of messages, in the form that a terminal would show.
    pub fn text_line(&mut self, now: Instant, source: TextSource, line: &str) {
        text_source::take_line(&mut self.gate, now, source, line);
    }

    /// Returns the stream of the call that a log notification is about, if another filter sends the progress of the
    /// call ([`Input::HearLog`](crate::progress::input::Input::HearLog)).
    pub fn stream_of_log(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Option<StreamId> {
        text_source::stream_of_log(&mut self.gate, now, origin, message)
    }

    /// Whether a client stream has a request without an answer.
    pub fn has_calls_on(&self, stream: StreamId) -> bool {
        self.gate.calls.open.has_unanswered_on(stream)
            || self.detached.held().is_some_and(|held| held.is_on(stream))
    }

    /// Notes that the response to a POST has ended. If the request of the POST has no answer yet, an answer in the
    /// response that fits no open request now counts as its answer.
    pub fn response_ended(&mut self, now: Instant, on: StreamId) {
        self.detached.response_ended(&mut self.gate, now, on);
    }

    /// Returns the time at which the next request times out.
    pub fn next_expiry(&self) -> Option<Instant> {
        clock::next_expiry(&self.detached, &self.gate)
    }

    /// Whether the next message of the server may have to be kept.
    pub fn may_keep(&self) -> bool {
        self.detached.may_keep(&self.gate)
    }

    /// Returns how many bytes of a large answer may be kept, if the answer is for a call that continues without its
    /// client.
    pub fn late_room(&self, id: Option<&Key>) -> Option<usize> {
        self.detached.late.as_ref()?.room(&self.gate, id, &self.detached.kept_room)
    }

    /// Whether a stream has no message to write now, and no timer that is due now.
    pub fn has_nothing_due(&self, now: Instant, stream: StreamId) -> bool {
        clock::has_nothing_due(&self.detached, &self.gate, now, stream)
    }

    /// Notes that the server sends its messages about the requests in `message` on the stream `upstream`. The client
    /// has just sent `message` on the stream `client`. The number of `upstream` must not be the number of a client
    /// stream. Pass messages on it with `Origin::Stream(upstream)`, and messages on a stream that pairs with no request
    /// with [`Origin::Shared`].
    pub fn pair(&mut self, client: StreamId, message: &Message, upstream: StreamId) {
        let Self { gate, detached, .. } = self;
        detached.pair(gate, client, message, upstream);
    }

    /// Returns the token that the progress in a message names. The reports that were read are kept for the next step.
    pub(crate) fn named_token(&mut self, message: &Message) -> Option<Key> {
        // Three steps need the reports: finding the message's owner, checking whether its token belongs to another
        // session, and reading its report. Reading the message once for all three, and the parameters in one pass, has
        // about halved the instructions of a flood of progress.
        if self.reports.as_ref().is_none_or(|known| !known.is_of(message)) {
            let reports = self.gate.calls.policy.read_reports(message);
            self.reports = Some(MessageReports { raw: message.raw().clone(), reports });
        }
        let mut reports = self.reports.iter().flat_map(|known| &known.reports);
        reports.find_map(|(_, report)| report.about.token.clone())
    }

    /// Returns the reports in a message, each with its dialect.
    pub(crate) fn take_reports(&mut self, message: &Message) -> Vec<(Dialect, Report)> {
        match self.reports.take().filter(|known| known.is_of(message)) {
            Some(known) => known.reports,
            None => self.gate.calls.policy.read_reports(message),
        }
    }

    /// The open call that an answer with this id answers.
    pub(super) fn answered_call(&self, id: &Key) -> Option<CallId> {
        self.gate.calls.open.ledger.call_of_answer(id)
    }

    /// Whether the request of a message may be known to another filter of the session. This filter has only one request
    /// of the session.
    pub(crate) fn is_of_another_filter(&mut self, message: &Message) -> bool {
        match message.kind() {
            // The id of an ended request of this filter still belongs to this filter, even if the client has reused it
            // since.
            Kind::Response => message.id_key().is_some_and(|key| {
                let ledger = &self.gate.calls.open.ledger;
                ledger.by_id(&key).is_none() && ledger.was_id(&key).is_none()
            }),
            Kind::Notification => self.named_token(message).is_some_and(|token| {
                !self.gate.calls.names.knows_token(&token, &self.gate.calls.open)
            }),
            _ => false,
        }
    }

    /// Returns the tokens in the progress of a message, without those that certainly mean an open call here: the tokens
    /// of open calls, and their ids, because some servers send ids in place of tokens. An id counts only if no other
    /// filter knows requests of the session, if its call has a token, and on the call's own stream. An unknown token on
    /// the stream of another request means that request. A request without a token gets no progress, and no other
    /// request must get it instead.
    pub fn tokens_named(&mut self, origin: Origin, message: &Message) -> Vec<Key> {
        let named = match message.kind() {
            Kind::Notification => self.named_token(message).into_iter().collect(),
            Kind::Batch => message
                .elements()
                .filter_map(|one| self.gate.calls.policy.named_token(&one))
                .collect(),
            _ => Vec::new(),
        };
        let open = &self.gate.calls.open;
        let of_stream = self.gate.calls.open.sole_call_on(origin, &self.gate.calls.streams);
        let by_id = |id: &Key| {
            let call =
                open.ledger.by_id(id).filter(|call| of_stream.is_none_or(|own| own == *call));
            call.and_then(|call| open.get(call))
        };
        // Without these conditions, a token of another session that equals the id of a request here would seem to
        // belong to this session, and a text of one session would be shown to the client of another.
        let is_told = |id: &Key| by_id(id).is_some_and(|call| call.token.is_some());
        let is_id = |token: &Key| self.gate.calls.streams.topology.is_whole() && is_told(token);
        named
            .into_iter()
            .filter(|token| !self.gate.calls.open.has_token(token) && !is_id(token))
            .collect()
    }

    /// Counts a message as withheld because it is not about a request of this filter. It must not be taken for progress
    /// of the filter's own request.
    pub fn note_out_of_place(&mut self, reason: Reason) {
        self.messages += 1;
        self.gate.calls.events.push_verdict(self.messages, None, Verdict::Withheld(reason));
    }

    /// Notes that another filter has delivered a server message: the answer to a request, or a message about a task.
    /// `on`: the stream of the request, if known.
    pub fn note_delivery(&mut self, now: Instant, on: Option<StreamId>, message: &Message) {
        if message.kind() == Kind::Notification {
            return self.server_notification(now, message);
        }
        let call = message.id_key().and_then(|id| {
            let own = on.and_then(|on| self.gate.calls.open.asked_on(on, &id));
            let other = || self.answered_call(&id);
            // The late answer to a cancelled request is not the answer to a newer request with its
            // id, which waits on its own stream.
            own.or_else(|| {
                other().filter(|call| {
                    !self.gate.calls.open.waits_elsewhere(*call, on, &self.gate.calls.streams)
                })
            })
        });
        if let Some(call) = call {
            if self.gate.calls.open.has_come_back_elsewhere(call, on, &self.gate.calls.streams) {
                return self.gate.note_answer_where_left(call);
            }
            // The answer has already been written. `delivered` prevents the end of the call from writing waiting
            // progress after it.
            self.gate.delivered = Some(call);
            self.detached.note_answer(&mut self.gate, now, call, message);
            self.gate.delivered = None;
        }
    }

    /// Returns the number of the message that came last.
    pub fn last_number(&self) -> u64 {
        self.messages
    }
}
