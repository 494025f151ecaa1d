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

use crate::progress::correlate::call::{SendHistory, ServerReports};
use crate::progress::correlate::correlator::Attributed;
use crate::progress::correlate::ledger::Tomb;
use crate::progress::event::{FilterEvent, Origin};
use crate::progress::filter::Filter;
use crate::progress::gate::stream::StreamKind;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::policy::Policy;
use crate::progress::topology::Topology;
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp::Revision;

impl Filter {
    /// The filter of one request of a session.
    pub fn of_request(policy: impl Into<Arc<Policy>>) -> Self {
        Self { topology: Topology::RequestOfSession, ..Self::new(policy) }
    }

    /// The filter of what the requests of a session share.
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

    /// Whether another filter of the session may know better what a message is about.
    pub(crate) fn is_of_another_filter(&self, message: &Message) -> bool {
        if self.topology != Topology::RequestOfSession {
            return false;
        }
        match message.kind() {
            Kind::Response => message
                .id_key()
                .is_some_and(|key| self.correlator.ledger.answered_by(&key).is_none()),
            Kind::Notification => {
                self.token_in(message).is_some_and(|token| !self.correlator.knows_token(&token))
            }
            _ => false,
        }
    }

    /// The token that progress names.
    fn token_in(&self, message: &Message) -> Option<Key> {
        let method = message.method()?;
        self.policy.reports(&method, message).find_map(|(_, report)| report.about.token)
    }

    /// Whether a message is progress of a request that is over, by the client's own token.
    pub fn is_late(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && self.token_in(message).is_some_and(|token| {
                self.correlator.ledger.by_token(&token).is_none()
                    && self.correlator.ledger.was_token(&token) == Some(Tomb::Token)
            })
    }

    /// The stream of the call that a message of the server is about, if it is progress or an answer
    /// and the call is known. `exactly`: by its own token or id, and not by what is likely.
    pub fn stream_meant(
        &mut self,
        origin: Origin,
        message: &Message,
        exactly: bool,
    ) -> Option<StreamId> {
        let call = match message.kind() {
            Kind::Response => self.correlator.ledger.answered_by(&message.id_key()?)?,
            Kind::Notification => {
                let (policies, method) = (self.policy.clone(), message.method()?);
                policies.reports(&method, message).find_map(|(_, report)| {
                    if exactly {
                        let token = report.about.token?;
                        let same = || self.correlator.ledger.by_respelled_token(&token).next();
                        self.correlator.ledger.by_token(&token).or_else(same)
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

    /// The tokens of requests on `stream` that requests of other open streams had before them.
    pub fn tokens_elsewhere(&self, stream: StreamId) -> Vec<Key> {
        let own = self.correlator.ledger.iter().filter(|(_, call)| call.stream == stream);
        let elsewhere = |id: &CallId| {
            let first = self
                .correlator
                .ledger
                .holders(*id)
                .first()
                .and_then(|first| self.correlator.ledger.get(*first));
            let told = |first: &crate::progress::correlate::call::Call| {
                first.stream != stream && self.gate.streams.contains_key(&first.stream)
            };
            first.is_some_and(told)
        };
        let told_elsewhere = own.filter(|(id, _)| elsewhere(id));
        told_elsewhere.filter_map(|(_, call)| Some(call.token.as_ref()?.server.clone())).collect()
    }

    /// Leaves these tokens to another stream. A client knows progress by its token, whatever request
    /// it is for, and two streams could not agree on its figure.
    pub fn leave_to_others(&mut self, tokens: &[Key]) {
        let held = |call: &crate::progress::correlate::call::Call| {
            call.token.as_ref().is_some_and(|token| tokens.contains(&token.server))
        };
        let calls: Vec<CallId> = self
            .correlator
            .ledger
            .iter()
            .filter(|(_, call)| held(call))
            .map(|(id, _)| id)
            .collect();
        for id in calls {
            self.correlator.ledger.take_token(id);
            self.schedule(id);
        }
    }

    /// A token that means nothing came on the stream of a request: it means that one, wherever it
    /// comes next.
    pub fn learn_from(&mut self, origin: Origin, message: &Message) {
        if self.sole_call_on(origin).is_some() && message.kind() == Kind::Notification {
            self.stream_meant(origin, message, false);
        }
    }

    /// A message is about no request of this filter and must not be taken for progress of one.
    pub fn out_of_place(&mut self, reason: Reason) {
        self.intake.messages += 1;
        self.record(self.intake.messages, None, Verdict::Withheld(reason));
    }

    /// The client's open request of this id: its stream.
    pub fn stream_of(&self, id: &Key) -> Option<StreamId> {
        let call = self.correlator.ledger.by_id(id)?;
        self.correlator.ledger.get(call).map(|call| call.stream)
    }

    /// A message of the server has reached its client by another filter: the answer to a request, or
    /// one that tells of a task.
    pub fn settled(&mut self, now: Instant, message: &Message) {
        if message.kind() == Kind::Notification {
            return self.server_notification(now, message);
        }
        let call = message.id_key().and_then(|id| self.correlator.ledger.answered_by(&id));
        if let Some(call) = call {
            self.note_answer(now, call, message);
        }
    }

    /// The number of the message that came last.
    pub fn last_number(&self) -> u64 {
        self.intake.messages
    }

    /// Whether the client reads too slowly: then compliant progress is thinned too (rule G4).
    pub fn client_is_slow(&mut self, slow: bool) {
        self.gate.client_is_slow = slow;
    }

    /// The server has refused a request that was passed on.
    pub fn withdrawn(&mut self, now: Instant, message: &Message) {
        let requests = message.id_key().into_iter().chain(
            (message.kind() == Kind::Batch)
                .then(|| message.elements().filter_map(|one| one.id_key()))
                .into_iter()
                .flatten(),
        );
        for id in requests {
            if let Some(call) = self.correlator.ledger.by_id(&id) {
                self.end_call(now, call, Tomb::Answered, crate::progress::Outcome::Error);
            }
        }
    }

    /// Every request of a stream is over, in whatever way; tasks are not.
    pub fn settle_stream(&mut self, now: Instant, stream: StreamId) {
        for call in self.correlator.calls_on(stream) {
            if self.correlator.ledger.get(call).is_some_and(|call| call.task.is_some()) {
                continue;
            }
            self.end_call(now, call, Tomb::Answered, crate::progress::Outcome::Settled);
        }
    }

    /// The stream of a request is about to close: `session` goes on telling its client.
    pub fn hand_over(&mut self, session: &mut Self) {
        let mut taken = Vec::new();
        for (_, call) in self.correlator.ledger.iter() {
            let id = session.correlator.ledger.by_id(&call.id.server);
            let task = call
                .token
                .as_ref()
                .and_then(|token| session.correlator.ledger.by_token(&token.server));
            let Some(heir) = id.or(task).and_then(|id| session.correlator.ledger.get_mut(id))
            else {
                continue;
            };
            heir.shadow = false;
            heir.opened = call.opened;
            heir.trace.clone_from(&call.trace);
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
            let told = heir.meter.emitted();
            heir.meter.clone_from(&call.meter);
            heir.meter.raise_to(told);
            taken.extend(id.or(task));
        }
        session.events.extend(taken.into_iter().map(FilterEvent::TakenOver));
    }

    /// A call whose stream has closed goes on where the server speaks of it now.
    pub(crate) fn rebind_stream(&mut self, origin: Origin, id: CallId) {
        let Origin::Stream(now_on) = origin else { return };
        let Some(call) = self.correlator.ledger.get(id) else { return };
        if self.gate.streams.contains_key(&call.stream) || !self.gate.streams.contains_key(&now_on)
        {
            return;
        }
        if let Some(call) = self.correlator.ledger.get_mut(id) {
            call.stream = now_on;
            call.wake = None;
        }
        self.schedule(id);
    }

    /// When [`Filter::poll_transmit`] is to be asked again for one stream.
    pub fn poll_stream_timeout(&self, id: StreamId) -> Option<Instant> {
        let own = self.gate.streams.get(&id).and_then(|stream| stream.timeout());
        let expiry = self.correlator.ledger.next_expiry().map(|(at, _)| at);
        [own, expiry].into_iter().flatten().min()
    }

    /// Opens a stream on which the server repeats what the client may have had already: figures that
    /// are not above the last one sent say nothing new (rule N2).
    pub fn open_replay(&mut self, id: StreamId) {
        self.open_stream(id, StreamKind::Shared, crate::progress::Pacing::IMMEDIATE);
        if let Some(stream) = self.gate.streams.get_mut(&id) {
            stream.replays = true;
        }
    }
}
