//! A session whose requests each have a filter of their own, and one more filter for their shared
//! state.
//!
//! Over Streamable HTTP a request has its own stream, and nearly all messages about the request
//! arrive there. So each request has a filter that no other request waits for. The session's filter
//! also knows every open request, as a *shadow*: it writes nothing for the request, but finds the
//! request of a message on another stream. When a request's stream closes before its answer, the
//! shadow takes its place.

use std::time::Instant;

use smallvec::SmallVec;

use crate::progress::correlate::call::Resumption;
use crate::progress::correlate::correlator::{Attributed, Correlator};
use crate::progress::correlate::ledger::sole;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::Origin;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::streams::stream::StreamKind;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp;

// Two filters know each request. One filter for the whole session would save 12,000 instructions
// and 8 allocations of a small request (docs/performance.md). But then floods of several requests
// would share the session's lock, and a panic would end the progress of the whole session.
impl Correlator {
    /// Notes that some requests of this session are unknown: answers cannot be distinguished from
    /// orphans.
    pub fn mark_incomplete(&mut self) {
        self.ledger.overflowed = true;
    }

    /// The token that progress names.
    pub(crate) fn token_in(&self, message: &Message) -> Option<Key> {
        let method = message.method()?;
        self.policy.reports(&method, message).find_map(|(_, report)| report.about.token)
    }

    /// Whether a message is progress of an ended request, by the client's own token.
    pub fn is_late(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && self.token_in(message).is_some_and(|token| {
                self.ledger.by_token(&token).is_none()
                    && self.ledger.was_token(&token) == Some(Tombstone::Token)
            })
    }

    /// The tokens of calls that are open, by the server's names.
    pub fn tokens(&self) -> SmallVec<[Key; 1]> {
        let calls = self.ledger.iter();
        calls.filter_map(|(_, call)| Some(call.token.as_ref()?.server.clone())).collect()
    }

    /// Whether a call has exactly this token.
    pub fn has_token(&self, token: &Key) -> bool {
        self.ledger.by_token(token).is_some()
    }

    /// Whether a request, or the task that the request has become, is open.
    pub fn has_calls(&self) -> bool {
        self.ledger.iter().next().is_some()
    }

    /// Sets the tokens of the next message that are active in other sessions only: such a token means no call
    /// of this session.
    pub fn active_elsewhere(&mut self, tokens: &[Key]) {
        self.elsewhere = tokens.to_vec();
    }

    /// The stream of the client's open request of this id, if only one stream has such a request.
    pub fn sole_stream_of(&self, id: &Key) -> Option<StreamId> {
        let calls = self.ledger.all_by_id(id).iter();
        let mut streams = calls.filter_map(|call| Some(self.ledger.get(*call)?.stream));
        let first = streams.next()?;
        streams.all(|stream| stream == first).then_some(first)
    }

    /// The client's open request of this id: its stream.
    pub fn stream_of(&self, id: &Key) -> Option<StreamId> {
        let call = self.ledger.by_id(id)?;
        self.ledger.get(call).map(|call| call.stream)
    }

    /// The value that the client of a stream has been sent of the only request there.
    pub fn value_on(&self, stream: StreamId) -> Option<f64> {
        let call = sole(self.ledger.on_stream(stream).iter().copied())?;
        self.ledger.get(call)?.meter.emitted()
    }

    /// Whether a message answers a request that has been answered before.
    pub fn is_answered(&self, message: &Message) -> bool {
        message.kind() == Kind::Response
            && message.id_key().is_some_and(|id| {
                self.ledger.call_of_answer(&id).is_none()
                    && self.ledger.was_id(&id) == Some(Tombstone::Answered)
            })
    }

    /// When the first progress that waits may be written; `None` also if a request ends by itself before.
    pub fn progress_due(&self) -> Option<Instant> {
        let calls = self.ledger.iter();
        let due = calls.filter_map(|(_, call)| call.pending.due()).min();
        let expiry = self.ledger.next_expiry().map(|(at, _)| at);
        due.filter(|due| expiry.is_none_or(|expiry| *due < expiry))
    }

    /// Whether an array that came on the stream `on` has a message about a request of another stream, by the
    /// request's own token or id.
    pub fn is_for_others(&mut self, on: StreamId, message: &Message) -> bool {
        // Judged as one message, an array gave all its progress to the call on whose stream it
        // came.
        let origin = Origin::Stream(on);
        message.kind() == Kind::Batch
            && message
                .elements()
                .any(|one| self.find_stream(origin, &one, true).is_some_and(|stream| stream != on))
    }

    /// The stream of the call that a server message is about. The message arrives now
    /// ([`Correlator::find_stream`](crate::progress::Correlator::find_stream)).
    pub fn stream_of_arrived(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Option<StreamId> {
        self.received_at = Some(now);
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
            Kind::Response => self.ledger.call_of_answer(&message.id_key()?)?,
            Kind::Notification if self.may_be_of_unseen(origin, message) => return None,
            Kind::Notification => {
                let (policies, method) = (self.policy.clone(), message.method()?);
                policies.reports(&method, message).find_map(|(_, report)| {
                    if exactly {
                        let token = report.about.token?;
                        let ledger = &self.ledger;
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
        self.ledger.get(call).map(|call| call.stream)
    }

    /// Learns an unknown token from the stream of a single request: from then on the token means
    /// that request on every stream.
    pub fn learn_from(&mut self, origin: Origin, message: &Message) {
        if self.sole_call_on(origin).is_some() && message.kind() == Kind::Notification {
            self.find_stream(origin, message, false);
        }
    }

    /// Whether a call waits for its answer on an open stream of its own that is not `on`. The
    /// client may have given the call the id of a request that is over.
    pub(crate) fn waits_elsewhere(&self, call: CallId, on: Option<StreamId>) -> bool {
        let (Some(on), Some(call)) = (on, self.ledger.get(call)) else { return false };
        let is_left = call.resumption == Resumption::Left(on);
        call.stream != on && !is_left && self.streams.is_exchange(call.stream)
    }

    /// Whether a call waits for its answer on a stream on which its client has come back, and which is not `on`. There
    /// the server repeats what the client may not have had.
    pub(crate) fn has_come_back_elsewhere(&self, call: CallId, on: Option<StreamId>) -> bool {
        let (Some(on), Some(call)) = (on, self.ledger.get(call)) else { return false };
        let place = self.streams.get(&call.stream);
        call.stream != on && place.is_some_and(|stream| stream.resumes_request)
    }

    /// Whether the client reads too slowly: then compliant progress is thinned too.
    pub fn set_client_slow(&mut self, slow: bool) {
        self.streams.client_is_slow = slow;
    }

    /// Whether a message is compliant progress under a token that means nothing here, in a session of which some
    /// requests may be unknown: the token may be one of theirs.
    pub(crate) fn may_be_of_unseen(&self, origin: Origin, message: &Message) -> bool {
        let is_unseen = |token: &Key| {
            !self.knows_token(token) && self.ledger.by_token_in_other_spelling(token).is_none()
        };
        self.ledger.overflowed
            && self.topology.keeps_shadows()
            && message.method().as_deref() == Some(mcp::PROGRESS)
            && self.sole_call_on(origin).is_none()
            && self.policy.reports(mcp::PROGRESS, message).any(|(_, report)| {
                report.repairs.is_empty()
                    && report.figure.is_some()
                    && report.about.token.as_ref().is_some_and(is_unseen)
            })
    }

    /// Opens a stream on which the server goes on with a stream of the kind `of`, and repeats messages that the client
    /// may already have: values that are not above the last sent value are not new.
    pub fn open_replay(&mut self, id: StreamId, of: StreamKind) {
        self.open_stream(id, StreamKind::Shared, crate::progress::StreamPacing::Immediate);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.replays = true;
            stream.resumes_request = of == StreamKind::Exchange;
        }
    }

    /// Whether answers cannot be distinguished from orphans, because some requests are unknown.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.ledger.overflowed
    }
}
