//! The correlation ladder finds the request that a report is about: first by its token, then by looser evidence. A rung
//! is used only if it leads to exactly one call.
//!
//! Over Streamable HTTP a request has its own stream, and nearly all messages about the request arrive there. Each
//! request therefore has its own filter, so that requests do not wait for one another. The session's filter also knows
//! every open request, as a *shadow*: for a shadow it writes nothing, but it finds the request of a message that
//! arrives on another stream. If a request's stream closes before the answer, the session's filter takes the request
//! over.

use std::time::Instant;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::open_calls::Attributed;
use crate::progress::correlate::place::OVER;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::dialect::report::About;
use crate::progress::event::Origin;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::verdict::{Reason, Repair};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp;
use crate::protocol::mcp::Revision;

// Each request is known to two filters. A single filter for the whole session would save 12,000 instructions and 8
// allocations per small request (docs/performance.md). But then floods of several requests would share the session's
// lock, and a panic would end the progress of the whole session.
impl Correlator {
    /// Finds the only call that a report can be about. A rung is used only if it leads to exactly one call, because a
    /// wrong guess would move the progress bar of another call.
    pub(crate) fn attribute(
        &mut self,
        about: &About,
        origin: Origin,
    ) -> Result<Attributed, Reason> {
        // The stream of a single POST is decisive: two clients, or a careless client, may use the same token at the
        // same time, but on this stream only one request can be meant.
        if let Some(token) = &about.token {
            if let Some(found) = self.names.own_on(origin, token, &self.open, &self.streams) {
                return Ok(found);
            }
            // The token belongs to a call of another session, so it cannot name a call here, even if a call here has an
            // equal token.
            if self.names.elsewhere.contains(token) {
                return Err(Reason::Unknown);
            }
        }
        if let Some(token) = &about.token
            && let Some(found) = self.names.by_token(token, &self.open)
        {
            // From 2026-07-28 on, a stream carries messages of its own request only.
            let is_foreign = self.open.get(found.0).is_some_and(|call| {
                call.revision >= Some(Revision::V2026_07_28)
                    && self.open.is_elsewhere(origin, call, &self.streams)
            });
            return if is_foreign { Err(Reason::Unknown) } else { Ok(found) };
        }
        // The number of tombstones is limited. A name that Milepost has given is recognised even after its tombstone
        // was dropped.
        let dead = about.token.as_ref().and_then(|token| {
            let given = || self.given.was_given(token, &self.streams).then_some(Tombstone::Token);
            self.open.ledger.was_token(token).or_else(given)
        });
        // On the stream of a single request, a report is about that request whatever its token is, unless the token
        // belongs to an ended call.
        if dead != Some(Tombstone::Token)
            && let Some(call) = self.open.sole_call_on(origin, &self.streams)
        {
            return Ok(self.open.learn(about, call));
        }
        if let Some(call) = self.open.own_task_of(about).filter(|_| dead.is_none()) {
            return Ok((call, Some(Repair::Token)));
        }
        // A name that a client has given takes precedence over a name that was learned from the server.
        if let Some(id) = &about.request {
            if let Some(call) = self.open.ledger.call_of_answer(id) {
                return Ok((call, Some(Repair::Token)));
            }
            if self.open.ledger.was_id_in_any_spelling(id).is_some()
                || self.given.was_given(id, &self.streams)
            {
                return Err(Reason::Late);
            }
        }
        if let Some(token) = &about.token {
            if let Some(call) = self.open.ledger.by_alias(token) {
                // If different clients share the server, it may use one name for requests of several clients.
                if self.streams.topology.has_strangers() && self.guess(about, origin) != Ok(call) {
                    return Err(Reason::Ambiguous);
                }
                return Ok((call, Some(Repair::Token)));
            }
            if dead.is_none() {
                self.names.note_late_id(token, &self.open);
            }
            // The token of an ended call must never be taken for the token of the next call, nor for the id of another
            // call.
            if dead.is_some() || self.names.was_id_for_token(token, &self.open) {
                return Err(Reason::Late);
            }
            if let Some(call) = self.names.by_token_as_id(token, &self.open) {
                return Ok((call, Some(Repair::Token)));
            }
        }
        // From here on, a call is chosen only because no other call is open. If the report has the name of an ended
        // call, this choice is not safe.
        let now = self.received_at;
        let mut names = about.token.iter().chain(&about.request);
        if names.any(|name| self.names.is_of_no_call(name, now, &self.open)) {
            // The name must not mean a later call either, even after the answer that contains the name is forgotten.
            self.names.note_stray(about, &self.open);
            return Err(Reason::Late);
        }
        // The loosest rung: the names did not help, but perhaps only one call is open.
        let guessed = self.guess(about, origin);
        // No call is open. A call that opens later must not get the reports under this name.
        if guessed == Err(Reason::Unknown) {
            self.names.note_stray(about, &self.open);
        }
        Ok(self.open.learn(about, guessed?))
    }

    pub(crate) fn guess(&self, about: &About, origin: Origin) -> Result<CallId, Reason> {
        // All requests of this stream have ended. The report is about one of them, and not about another stream.
        if self.open.is_stale(origin, &self.streams) {
            return Err(Reason::Unknown);
        }
        let call = self.open.by_other_names(about)?;
        if self.open.is_of_other_request(origin, call, &self.streams) {
            return Err(Reason::Unknown);
        }
        self.unless_over(call)
    }

    /// Returns the call that a message without a name must be about, or an error if the message may be about an ended
    /// call.
    pub(crate) fn unless_over(&self, id: CallId) -> Result<CallId, Reason> {
        let call = self.open.get(id).ok_or(Reason::Unknown)?;
        if self.may_mean_over(call) { Err(Reason::Ambiguous) } else { Ok(id) }
    }

    /// Whether a message that names no request may be about an ended request of a client other than the client of
    /// `call`, the only open call.
    pub(crate) fn may_mean_over(&self, call: &Call) -> bool {
        let ended = self.last_ends.of_others(call.principal);
        let ended = ended.filter(|_| self.streams.topology.has_strangers());
        ended.is_some_and(|at| self.received_at.is_none_or(|now| now < at + OVER))
    }

    /// Returns the client stream of the call that a message is about. `None` if the message is neither progress nor an
    /// answer, or the call is unknown.
    pub fn find_stream(&mut self, origin: Origin, message: &Message) -> Option<StreamId> {
        self.stream_by(origin, message, |calls, about| {
            let meant: Result<Attributed, _> = calls.attribute(about, origin);
            meant.ok().map(|(call, _)| call)
        })
    }

    /// Does the same as [`Self::find_stream`], but finds the call of progress only by its token.
    pub fn find_named_stream(&mut self, origin: Origin, message: &Message) -> Option<StreamId> {
        self.stream_by(origin, message, |calls, about| {
            let (token, ledger) = (about.token.as_ref()?, &calls.open.ledger);
            ledger.by_token(token).or_else(|| ledger.by_token_in_other_spelling(token))
        })
    }

    /// Returns the client stream of the call that an answer is for, or that `call_of` finds for progress.
    fn stream_by(
        &mut self,
        origin: Origin,
        message: &Message,
        call_of: impl Fn(&mut Self, &About) -> Option<CallId>,
    ) -> Option<StreamId> {
        let call = match message.kind() {
            Kind::Response => self.open.ledger.call_of_answer(&message.id_key()?)?,
            Kind::Notification if self.may_be_of_unseen(origin, message) => return None,
            Kind::Notification => {
                let (policies, method) = (self.policy.clone(), message.method()?);
                let mut reports = policies.reports(&method, message);
                reports.find_map(|(_, report)| call_of(self, &report.about))?
            }
            _ => return None,
        };
        self.open.get(call).map(|call| call.stream)
    }

    /// Does the same as [`Correlator::find_stream`](crate::progress::Correlator::find_stream), and notes that the
    /// message has arrived at `now`.
    pub fn stream_of_arrived(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Option<StreamId> {
        self.received_at = Some(now);
        self.find_stream(origin, message)
    }

    /// Learns an unknown token from the stream of a single request: from then on the token means
    /// that request on every stream.
    pub fn learn_from(&mut self, origin: Origin, message: &Message) {
        if self.open.sole_call_on(origin, &self.streams).is_some()
            && message.kind() == Kind::Notification
        {
            self.find_stream(origin, message);
        }
    }

    /// Whether an array that came on the stream `on` contains a message that names a request of another stream by token
    /// or id.
    pub fn is_for_others(&mut self, on: StreamId, message: &Message) -> bool {
        // If an array were judged as one message, all its progress would go to the call on whose stream it came.
        let origin = Origin::Stream(on);
        message.kind() == Kind::Batch
            && message
                .elements()
                .any(|one| self.find_named_stream(origin, &one).is_some_and(|stream| stream != on))
    }

    /// Whether a message is progress with the token of an ended request.
    pub fn is_late(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && self.policy.named_token(message).is_some_and(|token| {
                self.open.ledger.by_token(&token).is_none()
                    && self.open.ledger.was_token(&token) == Some(Tombstone::Token)
            })
    }

    /// Whether a message is compliant progress whose token is unknown here, but may belong to one of the requests that
    /// this filter of the session has not seen.
    pub(crate) fn may_be_of_unseen(&self, origin: Origin, message: &Message) -> bool {
        let is_unseen = |token: &Key| {
            !self.names.knows_token(token, &self.open)
                && self.open.ledger.by_token_in_other_spelling(token).is_none()
        };
        self.open.is_incomplete()
            && self.streams.topology.keeps_shadows()
            && message.method().as_deref() == Some(mcp::PROGRESS)
            && self.open.sole_call_on(origin, &self.streams).is_none()
            && self.policy.reports(mcp::PROGRESS, message).any(|(_, report)| {
                report.repairs.is_empty()
                    && report.figure.is_some()
                    && report.about.token.as_ref().is_some_and(is_unseen)
            })
    }
}
