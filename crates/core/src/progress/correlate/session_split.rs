//! A session whose requests each have a filter of their own, and one more filter for their shared
//! state.
//!
//! Over Streamable HTTP a request has its own stream, and nearly all messages about the request
//! arrive there. So each request has a filter that no other request waits for. The session's filter
//! also knows every open request, as a *shadow*: it writes nothing for the request, but finds the
//! request of a message on another stream. When a request's stream closes before its answer, the
//! shadow takes its place.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::progress::correlate::call::{SendHistory, ServerReports};
use crate::progress::correlate::correlator::Attributed;
use crate::progress::correlate::ledger::sole;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::{FilterEvent, Origin};
use crate::progress::filter::Filter;
use crate::progress::gate::stream::StreamKind;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::policy::Policy;
use crate::progress::topology::Topology;
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp;
use crate::protocol::mcp::Revision;

impl Filter {
    /// The filter of one request of a session.
    pub fn of_request(policy: impl Into<Arc<Policy>>) -> Self {
        Self { topology: Topology::RequestOfSession, ..Self::of_lone_request(policy) }
    }

    /// The filter of one request without a session, or of several in one array.
    pub fn of_lone_request(policy: impl Into<Arc<Policy>>) -> Self {
        let mut filter = Self::new(policy);
        filter.correlator.strays.expect_no_call();
        filter
    }

    /// The filter of a session's shared state.
    pub fn of_session(policy: impl Into<Arc<Policy>>) -> Self {
        Self { topology: Topology::Session { has_requests: false }, ..Self::new(policy) }
    }

    /// Sets the revision that was agreed on where this filter did not see the handshake.
    pub fn set_revision(&mut self, revision: Option<Revision>) {
        self.revision = revision.or(self.revision);
    }

    /// The revision that was agreed on, as far as is known.
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// Notes that some requests of this session are unknown: answers cannot be distinguished from
    /// orphans.
    pub fn mark_incomplete(&mut self) {
        self.correlator.ledger.overflowed = true;
    }

    /// Whether another filter of the session may know the request of a message.
    pub(crate) fn is_of_another_filter(&mut self, message: &Message) -> bool {
        if self.topology != Topology::RequestOfSession {
            return false;
        }
        match message.kind() {
            // An id that was its own stays its own: its client may have given it to another request since.
            Kind::Response => message.id_key().is_some_and(|key| {
                let ledger = &self.correlator.ledger;
                ledger.by_id(&key).is_none() && ledger.was_id(&key).is_none()
            }),
            Kind::Notification => {
                self.named_token(message).is_some_and(|token| !self.correlator.knows_token(&token))
            }
            _ => false,
        }
    }

    /// Whether an array that came on the stream `on` has a message about a request of another stream, by the
    /// request's own token or id.
    pub fn is_for_others(&mut self, on: StreamId, message: &Message) -> bool {
        let origin = Origin::Stream(on);
        message.kind() == Kind::Batch
            && message
                .elements()
                .any(|one| self.find_stream(origin, &one, true).is_some_and(|stream| stream != on))
    }

    /// The token that progress names.
    fn token_in(&self, message: &Message) -> Option<Key> {
        let method = message.method()?;
        self.policy.reports(&method, message).find_map(|(_, report)| report.about.token)
    }

    /// Whether a message is progress of an ended request, by the client's own token.
    pub fn is_late(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && self.token_in(message).is_some_and(|token| {
                self.correlator.ledger.by_token(&token).is_none()
                    && self.correlator.ledger.was_token(&token) == Some(Tombstone::Token)
            })
    }

    /// The stream of the call that a server message is about, which has come now ([`Filter::find_stream`]).
    pub fn stream_of_arrived(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Option<StreamId> {
        self.intake.received_at = Some(now);
        self.find_stream(origin, message, false)
    }

    /// The stream of the call that a server message is about, if the message is progress or an
    /// answer and the call is known. `exactly`: only by the call's own token or id.
    pub fn find_stream(
        &mut self,
        origin: Origin,
        message: &Message,
        exactly: bool,
    ) -> Option<StreamId> {
        let call = match message.kind() {
            Kind::Response => self.correlator.ledger.call_of_answer(&message.id_key()?)?,
            Kind::Notification if self.may_be_of_unseen(origin, message) => return None,
            Kind::Notification => {
                let (policies, method) = (self.policy.clone(), message.method()?);
                policies.reports(&method, message).find_map(|(_, report)| {
                    if exactly {
                        let token = report.about.token?;
                        let ledger = &self.correlator.ledger;
                        let looser = || ledger.by_token_in_other_spelling(&token);
                        ledger.by_token(&token).or_else(looser)
                    } else {
                        let meant: Result<Attributed, _> = self.attribute(&report.about, origin);
                        meant.ok().map(|(call, _)| call)
                    }
                })?
            }
            _ => return None,
        };
        self.correlator.ledger.get(call).map(|call| call.stream)
    }

    /// The tokens of calls that are open, by the server's names.
    pub fn tokens(&self) -> SmallVec<[Key; 1]> {
        let calls = self.correlator.ledger.iter();
        calls.filter_map(|(_, call)| Some(call.token.as_ref()?.server.clone())).collect()
    }

    /// Whether a call has exactly this token.
    pub fn has_token(&self, token: &Key) -> bool {
        self.correlator.ledger.by_token(token).is_some()
    }

    /// Whether a request, or the task that the request has become, is open.
    pub fn has_calls(&self) -> bool {
        self.correlator.ledger.iter().next().is_some()
    }

    /// The tokens that the progress in a message names, except tokens of open calls, and except ids of open
    /// requests with a token where no other filter knows requests of the session: some servers put ids in the place of
    /// tokens. A request without one is told nothing, and another request of its session must not be told in its place.
    pub fn tokens_named(&mut self, message: &Message) -> Vec<Key> {
        let named = match message.kind() {
            Kind::Notification => self.named_token(message).into_iter().collect(),
            Kind::Batch => message.elements().filter_map(|one| self.token_in(&one)).collect(),
            _ => Vec::new(),
        };
        let ledger = &self.correlator.ledger;
        let by_id = |id: &Key| ledger.by_id(id).and_then(|call| ledger.get(call));
        let is_told = |id: &Key| by_id(id).is_some_and(|call| call.token.is_some());
        let is_id = |token: &Key| self.topology.is_whole() && is_told(token);
        named.into_iter().filter(|token| !self.has_token(token) && !is_id(token)).collect()
    }

    /// Sets the tokens of the next message that are active in other sessions only: such a token means no call
    /// of this session.
    pub fn active_elsewhere(&mut self, tokens: &[Key]) {
        self.correlator.elsewhere = tokens.to_vec();
    }

    /// A token that means nothing came on the stream of a request: it means that one, wherever it
    /// comes next.
    pub fn learn_from(&mut self, origin: Origin, message: &Message) {
        if self.sole_call_on(origin).is_some() && message.kind() == Kind::Notification {
            self.find_stream(origin, message, false);
        }
    }

    /// A message is about no request of this filter and must not be taken for progress of one.
    pub fn note_out_of_place(&mut self, reason: Reason) {
        self.intake.messages += 1;
        self.record(self.intake.messages, None, Verdict::Withheld(reason));
    }

    /// The stream of the client's open request of this id, if only one stream has such a request.
    pub fn sole_stream_of(&self, id: &Key) -> Option<StreamId> {
        let calls = self.correlator.ledger.all_by_id(id).iter();
        let mut streams = calls.filter_map(|call| Some(self.correlator.ledger.get(*call)?.stream));
        let first = streams.next()?;
        streams.all(|stream| stream == first).then_some(first)
    }

    /// The client's open request of this id: its stream.
    pub fn stream_of(&self, id: &Key) -> Option<StreamId> {
        let call = self.correlator.ledger.by_id(id)?;
        self.correlator.ledger.get(call).map(|call| call.stream)
    }

    /// Notes that another filter has delivered a server message: the answer to a request, or a
    /// message about a task. `on`: the stream of the request, if known.
    pub fn note_delivery(&mut self, now: Instant, on: Option<StreamId>, message: &Message) {
        if message.kind() == Kind::Notification {
            return self.server_notification(now, message);
        }
        let call = message.id_key().and_then(|id| {
            let own = on.and_then(|on| self.correlator.asked_on(on, &id));
            let other = || self.correlator.ledger.call_of_answer(&id);
            own.or_else(|| other().filter(|call| !self.waits_elsewhere(*call, on)))
        });
        if let Some(call) = call {
            // Waiting progress would come behind the answer.
            self.gate.delivered = Some(call);
            self.note_answer(now, call, message);
            self.gate.delivered = None;
        }
    }

    /// Whether a call waits for its answer on an open stream of its own that is not `on`. Its client may have given it
    /// the id of a request that is over.
    fn waits_elsewhere(&self, call: CallId, on: Option<StreamId>) -> bool {
        let (Some(on), Some(call)) = (on, self.correlator.ledger.get(call)) else { return false };
        call.stream != on && call.resumed_from != Some(on) && self.gate.is_exchange(call.stream)
    }

    /// The number of the message that came last.
    pub fn last_number(&self) -> u64 {
        self.intake.messages
    }

    /// Whether the client reads too slowly: then compliant progress is thinned too.
    pub fn set_client_slow(&mut self, slow: bool) {
        self.gate.client_is_slow = slow;
    }

    /// The server has refused a request that was passed on.
    pub fn withdraw(&mut self, now: Instant, message: &Message) {
        let requests = message.id_key().into_iter().chain(
            (message.kind() == Kind::Batch)
                .then(|| message.elements().filter_map(|one| one.id_key()))
                .into_iter()
                .flatten(),
        );
        for id in requests {
            if let Some(call) = self.correlator.ledger.by_id(&id) {
                self.end_call(now, call, Tombstone::Answered, crate::progress::Outcome::Error);
            }
        }
    }

    /// Ends every request of a stream, whatever the cause; tasks go on.
    pub fn settle_stream(&mut self, now: Instant, stream: StreamId) {
        for call in self.correlator.calls_on(stream) {
            if self.correlator.ledger.get(call).is_some_and(|call| call.task.is_some()) {
                continue;
            }
            self.end_call(now, call, Tombstone::Answered, crate::progress::Outcome::Settled);
        }
    }

    /// Hands the calls of a closing stream over to `session`, which sends their progress from now
    /// on. `on`: the stream in `session`, if known. If the client has not left for good
    /// ([`Filter::close_clients`]), `session` also writes the records of the calls.
    pub fn hand_over(&mut self, session: &mut Self, on: Option<StreamId>) {
        let mut taken = Vec::new();
        for (_, call) in self.correlator.ledger.iter() {
            let ledger = &session.correlator.ledger;
            let here = |calls: &[CallId]| {
                let is_here = |id: &CallId| {
                    let call = ledger.get(*id);
                    call.is_some_and(|call| {
                        on.is_none_or(|on| call.stream == on || call.resumed_from == Some(on))
                    })
                };
                calls.iter().copied().find(is_here)
            };
            let id = here(ledger.all_by_id(&call.id.server));
            let token = call.token.as_ref();
            let task = token.and_then(|token| here(ledger.all_by_token(&token.server)));
            let Some(heir) = id.or(task).and_then(|id| session.correlator.ledger.get_mut(id))
            else {
                continue;
            };
            if on.is_some() && heir.resumed_from == on {
                // The client has come back already, and the meter here knows what the client has had.
                heir.resumed_from = None;
                heir.is_recorded = false;
                heir.opened = call.opened;
                heir.origin.clone_from(&call.origin);
                heir.account.join(&call.account);
                taken.extend(id.or(task));
                continue;
            }
            heir.shadow = false;
            heir.is_recorded = self.gate.client_left && call.task.is_none();
            let is_recorded = heir.is_recorded;
            heir.opened = call.opened;
            heir.origin.clone_from(&call.origin);
            heir.sent = SendHistory {
                last_heartbeat: heir.sent.last_heartbeat.take(),
                ..call.sent.clone()
            };
            heir.reports = ServerReports {
                has_figure: heir.reports.has_figure || call.reports.has_figure,
                bare_results: heir.reports.bare_results,
                ..call.reports.clone()
            };
            heir.account = call.account.clone();
            heir.clock.clone_from(&call.clock);
            let sent = heir.meter.emitted();
            heir.meter.clone_from(&call.meter);
            heir.meter.raise_to(sent);
            let is_asked = call.asked_since().is_some();
            session.gate.asked.extend(id.or(task).filter(|_| is_asked));
            taken.extend(id.or(task).filter(|_| !is_recorded));
        }
        session.events.extend(taken.into_iter().map(FilterEvent::TakenOver));
        if !self.gate.client_left {
            self.correlator.ledger.forget_records();
        }
    }

    /// Moves a call whose stream has closed to the stream on which the server sends its messages
    /// now. A task outlives the stream of its request: where the server has one place for all, the task goes on on
    /// the session stream.
    pub(crate) fn rebind_stream(&mut self, origin: Origin, id: CallId) {
        let Some(call) = self.correlator.ledger.get(id) else { return };
        let now_on = match origin {
            Origin::Stream(now_on) => Some(now_on),
            Origin::Shared => {
                let is_task = call.task.is_some() && self.topology.is_whole();
                self.common_session_stream().filter(|_| is_task)
            }
        };
        let Some(now_on) = now_on else { return };
        if self.gate.streams.contains_key(&call.stream) || !self.gate.streams.contains_key(&now_on)
        {
            return;
        }
        self.correlator.ledger.move_to(id, now_on);
        if let Some(call) = self.correlator.ledger.get_mut(id) {
            call.wake = None;
        }
        self.schedule(id);
    }

    /// The time of the next [`Filter::poll_transmit`] for one stream.
    pub fn poll_stream_timeout(&self, id: StreamId) -> Option<Instant> {
        let own = self.gate.streams.get(&id).and_then(|stream| stream.timeout());
        let expiry = self.correlator.ledger.next_expiry().map(|(at, _)| at);
        [own, expiry].into_iter().flatten().min()
    }

    /// Moves the calls of the stream `old` to the stream `on`, on which their client has come back. `sent`: the
    /// value of its only request that the client has had; the server repeats the values behind it.
    pub fn resume_stream(&mut self, now: Instant, old: StreamId, on: StreamId, sent: Option<f64>) {
        for id in self.correlator.calls_on(old) {
            self.correlator.ledger.move_to(id, on);
            if let Some(call) = self.correlator.ledger.get_mut(id) {
                if let (Some((at, order)), Some(stream)) =
                    (call.wake.take(), self.gate.streams.get_mut(&old))
                {
                    stream.wakes.remove(&(at, order, id));
                }
                // The filter of the request has the record until it is handed over.
                call.is_recorded |= std::mem::take(&mut call.shadow);
                // A client that comes back twice: the stream that it left first has the record still.
                call.resumed_from.get_or_insert(old);
                call.sent.at = Some(now);
                call.meter.go_back_to(sent);
            }
            self.schedule(id);
        }
    }

    /// The value that the client of a stream has been sent of the only request there.
    pub fn value_on(&self, stream: StreamId) -> Option<f64> {
        let call = sole(self.correlator.ledger.on_stream(stream).iter().copied())?;
        self.correlator.ledger.get(call)?.meter.emitted()
    }

    /// Whether a message answers a request that has been answered before.
    pub fn is_answered(&self, message: &Message) -> bool {
        message.kind() == Kind::Response
            && message.id_key().is_some_and(|id| {
                self.correlator.ledger.call_of_answer(&id).is_none()
                    && self.correlator.ledger.was_id(&id) == Some(Tombstone::Answered)
            })
    }

    /// Whether a message is compliant progress under a token that means nothing here, in a session of which some
    /// requests may be unknown: the token may be one of theirs.
    pub(crate) fn may_be_of_unseen(&self, origin: Origin, message: &Message) -> bool {
        let is_unseen = |token: &Key| {
            !self.correlator.knows_token(token)
                && self.correlator.ledger.by_token_in_other_spelling(token).is_none()
        };
        self.correlator.ledger.overflowed
            && self.topology.keeps_shadows()
            && message.method().as_deref() == Some(mcp::PROGRESS)
            && self.sole_call_on(origin).is_none()
            && self.policy.reports(mcp::PROGRESS, message).any(|(_, report)| {
                report.repairs.is_empty()
                    && report.figure.is_some()
                    && report.about.token.as_ref().is_some_and(is_unseen)
            })
    }

    /// When the first progress that waits may be written; `None` also if a request ends by itself before.
    pub fn progress_due(&self) -> Option<Instant> {
        let calls = self.correlator.ledger.iter();
        let due = calls.filter_map(|(_, call)| call.pending.due()).min();
        let expiry = self.correlator.ledger.next_expiry().map(|(at, _)| at);
        due.filter(|due| expiry.is_none_or(|expiry| *due < expiry))
    }

    /// Opens a stream on which the server goes on with a stream of the kind `of`, and repeats messages that the client
    /// may already have: values that are not above the last sent value are not new.
    pub fn open_replay(&mut self, id: StreamId, of: StreamKind) {
        self.open_stream(id, StreamKind::Shared, crate::progress::StreamPacing::Immediate);
        if let Some(stream) = self.gate.streams.get_mut(&id) {
            stream.replays = true;
            stream.resumes_request = of == StreamKind::Exchange;
        }
    }
}
