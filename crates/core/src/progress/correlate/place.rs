//! Finds the call that a server message can be about, from the stream on which the message arrived and from the message
//! itself.
//!
//! On a connection that many streams share, the stream does not tell the request. Answers, progress, and the
//! notifications of subscriptions name their request. A message without a name belongs to the only open request;
//! otherwise it belongs to no request and goes to the session's stream. If different clients share a server, such a
//! message is withheld.

use std::time::Duration;

use bytes::Bytes;

use crate::progress::correlate::call::{Call, Resumption};
use crate::progress::correlate::open_calls::{OpenCalls, sole};
use crate::progress::event::Origin;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::Payload;
use crate::progress::streams::ClientStreams;
use crate::progress::streams::stream::Guard;
use crate::progress::topology::Topology;
use crate::progress::verdict::Reason;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::{json, mcp};

/// The time after the end of a request during which a server may still report on it. Until then, a message that names
/// no request may be about the ended one. Servers look for cancellations between their steps, and some report after the
/// answer.
pub(crate) const OVER: Duration = Duration::from_secs(10);

/// The stream for a message (`None`: no stream) and the bytes for its client, or the reason for withholding it.
pub(crate) type Placement = Result<(Option<StreamId>, Payload), Reason>;

/// The subscription that is named by a message which is neither progress nor an answer.
pub(super) enum SubscriptionRef {
    Nobody,
    /// A subscription that has ended.
    Gone(Reason),
    /// An open subscription, and the places in the message that contain its id.
    Call(CallId, Vec<Bytes>),
}

/// Members by which a server's request names the client request that it is about. The specification has no such member;
/// some servers write the internal names of the SDKs.
const RELATED: [&str; 3] = ["relatedRequestId", "related_request_id", "requestId"];

impl OpenCalls {
    /// Returns the call of an HTTP request, if messages on the request's stream can be about no other call.
    pub(crate) fn sole_call_on(&self, origin: Origin, streams: &ClientStreams) -> Option<CallId> {
        let Origin::Stream(on) = origin else { return None };
        let paired = self.paired_with(on);
        if !paired.is_empty() {
            return sole(paired.iter().copied());
        }
        let own = self.on_stream(on).iter().copied();
        streams.is_exchange(on).then(|| sole(own))?
    }

    /// Whether a message about `call` arrived on the stream of a different HTTP request.
    pub(crate) fn is_elsewhere(
        &self,
        origin: Origin,
        call: &Call,
        streams: &ClientStreams,
    ) -> bool {
        let Origin::Stream(on) = origin else { return false };
        match call.paired {
            Some(own) => own != on,
            None => call.stream != on && (streams.is_exchange(on) || self.is_paired(on)),
        }
    }

    /// Whether a message arrived on a stream to which a client has reconnected for a request other than `call`.
    pub(crate) fn is_of_other_request(
        &self,
        origin: Origin,
        call: CallId,
        streams: &ClientStreams,
    ) -> bool {
        let Origin::Stream(on) = origin else { return false };
        let resumes = streams.get(&on).is_some_and(|stream| stream.resumes_request);
        resumes && self.get(call).is_none_or(|call| call.stream != on)
    }

    /// Whether a message arrived on a stream whose requests have all ended.
    pub(crate) fn is_stale(&self, origin: Origin, streams: &ClientStreams) -> bool {
        matches!(origin, Origin::Stream(on) if streams.topology.is_paired() && !streams.has_stream(on) && !self.is_paired(on))
    }

    /// Whether an upstream stream pairs with a call.
    fn is_paired(&self, upstream: StreamId) -> bool {
        !self.paired_with(upstream).is_empty()
    }

    /// Whether progress on a stream needs a pause before an answer.
    pub(crate) fn is_paced(&self, stream: Option<StreamId>, streams: &ClientStreams) -> bool {
        let Some(stream) = stream else { return true };
        let mut calls = self.on_stream(stream).iter().filter_map(|id| self.get(*id));
        calls.any(|call| streams.pacing_of(call.stream, call.settings()).keeps_distance())
    }

    /// Whether a call waits for its answer on its own open stream, and that stream is not `on`. The client may have
    /// given the id of an ended request to the call.
    pub(crate) fn waits_elsewhere(
        &self,
        call: CallId,
        on: Option<StreamId>,
        streams: &ClientStreams,
    ) -> bool {
        let (Some(on), Some(call)) = (on, self.get(call)) else { return false };
        let is_left = call.resumption == Resumption::Left(on);
        call.stream != on && !is_left && streams.is_exchange(call.stream)
    }

    /// Whether a call waits for its answer on a stream other than `on` to which its client has reconnected. On that
    /// stream the server repeats messages that the client may have missed.
    pub(crate) fn has_come_back_elsewhere(
        &self,
        call: CallId,
        on: Option<StreamId>,
        streams: &ClientStreams,
    ) -> bool {
        let (Some(on), Some(call)) = (on, self.get(call)) else { return false };
        let place = streams.get(&call.stream);
        call.stream != on && place.is_some_and(|stream| stream.resumes_request)
    }

    /// Returns the pause that an answer to `call` has to wait for.
    pub(crate) fn guard_of(&self, call: CallId, streams: &ClientStreams) -> Guard {
        // Observe mode does not delay an answer.
        let found = self.get(call).filter(|found| !found.is_observed());
        let Some(found) = found else { return Guard::default() };
        let unwritten =
            streams.get(&found.stream).is_some_and(|stream| stream.unwritten.contains(&call));
        let wait = streams.pacing_of(found.stream, found.settings()).guard;
        Guard { last: found.sent.at, unwritten: unwritten.then_some(call), behind: 0, wait }
    }

    /// Returns the call that an answer with this id is for.
    pub(crate) fn call_of_answer_on(
        &self,
        origin: Origin,
        key: &Key,
        streams: &ClientStreams,
    ) -> Option<CallId> {
        // A careless client repeats ids, but each of its requests has its own upstream stream.
        let own =
            if streams.topology.is_paired() { self.sole_call_on(origin, streams) } else { None };
        own.filter(|own| self.get(*own).is_some_and(|call| call.id.server == *key))
            .filter(|own| self.get(*own).is_some_and(|call| call.task.is_none()))
            .or_else(|| self.ledger.call_of_answer(key))
    }

    /// Returns the request that an answer with an unknown id may be for, because the answer arrived on the stream of a
    /// single request. Some servers answer id 0 with an id of their own.
    pub(crate) fn call_of_sole_answer(
        &self,
        origin: Origin,
        key: &Key,
        streams: &ClientStreams,
    ) -> Option<CallId> {
        let open = |call: &Call| call.task.is_none();
        let own = self.sole_call_on(origin, streams)?;
        let unknown = self.ledger.was_id_in_any_spelling(key).is_none();
        let call = self.get(own).filter(|call| unknown && open(call))?;
        call.answer_repairs().response_id.then_some(own)
    }

    /// Returns the request that an error without an id may answer, because it came on the stream of a single request.
    pub(crate) fn call_of_error_without_id(
        &self,
        origin: Origin,
        message: &Message,
        streams: &ClientStreams,
    ) -> Option<CallId> {
        // JSON-RPC 2.0, section 5: a server that could not read the id of a request answers with an
        // error whose id is null.
        let is_error = message.kind() == Kind::Response && message.result().is_none();
        let own = self.sole_call_on(origin, streams).filter(|_| is_error && is_missing(message))?;
        let is_open = |call: &&Call| call.task.is_none() && call.answer_repairs().response_id;
        self.get(own).filter(is_open).map(|_| own)
    }

    /// Returns the subscription (MCP 2026-07-28) that a notification names.
    pub(super) fn named_by(&self, message: &Message, topology: Topology) -> SubscriptionRef {
        if !topology.has_many_streams() || message.kind() != Kind::Notification {
            return SubscriptionRef::Nobody;
        }
        let (Some(method), Some(params)) = (message.method(), message.params()) else {
            return SubscriptionRef::Nobody;
        };
        let ends = method == mcp::CANCELLED;
        let names: Vec<Bytes> = if ends {
            json::member(&params, "requestId").into_iter().collect()
        } else {
            let meta = json::member(&params, "_meta").unwrap_or_default();
            let in_meta = json::member(&meta, mcp::META_SUBSCRIPTION);
            let beside = method.starts_with(mcp::SUBSCRIPTIONS);
            let beside = beside.then(|| json::member(&params, "subscriptionId")).flatten();
            in_meta.into_iter().chain(beside).collect()
        };
        // Two members may name the subscription. The second is rewritten only if it has the same id as the first.
        let Some(key) = names.first().and_then(Key::read) else { return SubscriptionRef::Nobody };
        match self.ledger.call_of_answer(&key) {
            Some(call) if self.get(call).is_some_and(Call::is_subscription) => {
                let same = |name: &Bytes| Key::read(name).as_ref() == Some(&key);
                SubscriptionRef::Call(call, names.into_iter().filter(same).collect())
            }
            _ if !topology.has_strangers() => SubscriptionRef::Nobody,
            _ if self.ledger.was_id_in_any_spelling(&key).is_some() => {
                SubscriptionRef::Gone(Reason::Late)
            }
            // A `notifications/cancelled` of a server may end one of the server's own requests.
            _ if ends => SubscriptionRef::Nobody,
            _ => SubscriptionRef::Gone(Reason::Unknown),
        }
    }

    /// Returns the calls that a request of the server may be about: the call that it names, else the calls of its
    /// stream, else all calls.
    pub(crate) fn calls_of_question(
        &self,
        origin: Origin,
        message: &Message,
        only_on: Option<StreamId>,
    ) -> Vec<CallId> {
        let params = message.params().unwrap_or_default();
        let meta = json::member(&params, "_meta").unwrap_or_default();
        let related = |object| RELATED.iter().find_map(|name| json::member(object, name));
        let named = related(&meta).or_else(|| related(&params)).and_then(|id| Key::read(&id));
        // If the message names a call, only that call is considered. If it has ended, no other call is meant.
        if let Some(named) = named {
            return self.ledger.by_id(&named).into_iter().collect();
        }
        let on_stream = match (only_on, origin) {
            (Some(on), _) => self.on_stream(on),
            (None, Origin::Stream(on)) if self.paired_with(on).is_empty() => self.on_stream(on),
            (None, Origin::Stream(on)) => self.paired_with(on),
            (None, Origin::Shared) => &[],
        };
        if only_on.is_some() || !on_stream.is_empty() {
            return on_stream.to_vec();
        }
        let waits = |call: CallId| {
            self.get(call).is_some_and(|call| !call.shadow && !call.is_subscription())
        };
        self.iter().map(|(id, _)| id).filter(|id| waits(*id)).collect()
    }
}

/// Whether the id of an answer is missing or null.
pub(crate) fn is_missing(message: &Message) -> bool {
    message.id().is_none_or(|id| *id == *b"null")
}
