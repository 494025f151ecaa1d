//! The stream for a server message: found from the stream that the message arrived on, and from the
//! message itself.
//!
//! A connection that many streams share does not name the request of a message. Answers, progress,
//! and the notifications of subscriptions name their request. A message without a name belongs to
//! the only active request, or to no request: then it goes to the session's stream. Where different
//! clients share a server, such a message is withheld.

use std::time::Duration;

use bytes::Bytes;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::correlator::{Correlator, only};
use crate::progress::correlate::id_mapping::restored;
use crate::progress::correlate::ledger::sole;
use crate::progress::dialect::report::{About, Report};
use crate::progress::event::Origin;
use crate::progress::ids::{CallId, Principal, StreamId};
use crate::progress::payload::{Payload, spliced, within};
use crate::progress::verdict::Reason;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::{json, mcp};

/// The time for which a server may still report on an ended request: a message that names no
/// request may be about that request. Servers look for cancellations between their steps, and some
/// report after the answer.
pub(crate) const OVER: Duration = Duration::from_secs(10);

/// The stream of a message (`None`: nowhere) and the bytes for its client; or the reason for
/// withholding the message.
pub(crate) type Placement = Result<(Option<StreamId>, Payload), Reason>;

/// The subscription that a message names which is neither progress nor an answer.
enum SubscriptionRef {
    Nobody,
    /// A subscription that is over.
    Gone(Reason),
    /// An open subscription; the message has its id in these places.
    Call(CallId, Vec<Bytes>),
}

/// Members that name the request which a request of the server is about. The specification has none; some servers
/// write the names that the SDKs use inside.
const RELATED: [&str; 3] = ["relatedRequestId", "related_request_id", "requestId"];

impl Correlator {
    /// Whether a message that names no request may be about an ended request of another client than
    /// the client of the only open `call`.
    pub(crate) fn may_mean_over(&self, call: &Call) -> bool {
        let ended = self.last_ends.of_others(call.principal);
        let ended = ended.filter(|_| self.topology.has_strangers());
        ended.is_some_and(|at| self.received_at.is_none_or(|now| now < at + OVER))
    }

    /// The subscription of 2026-07-28 that a notification names.
    fn named_by(&self, message: &Message) -> SubscriptionRef {
        if !self.topology.has_many_streams() || message.kind() != Kind::Notification {
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
        // Two members may name the subscription. Only those with the same id as the first are
        // rewritten.
        let Some(key) = names.first().and_then(Key::read) else { return SubscriptionRef::Nobody };
        match self.ledger.call_of_answer(&key) {
            Some(call) if self.is_subscription(call) => {
                let same = |name: &Bytes| Key::read(name).as_ref() == Some(&key);
                SubscriptionRef::Call(call, names.into_iter().filter(same).collect())
            }
            _ if !self.topology.has_strangers() => SubscriptionRef::Nobody,
            _ if self.ledger.was_id_in_any_spelling(&key).is_some() => {
                SubscriptionRef::Gone(Reason::Late)
            }
            // A `notifications/cancelled` of a server may end one of the server's own requests.
            _ if ends => SubscriptionRef::Nobody,
            _ => SubscriptionRef::Gone(Reason::Unknown),
        }
    }

    /// Whether a client stream of this number is open.
    pub fn has_stream(&self, id: StreamId) -> bool {
        self.streams.contains_key(&id)
    }

    /// The call of one HTTP request, if messages on its stream can be about no other call.
    pub(crate) fn sole_call_on(&self, origin: Origin) -> Option<CallId> {
        let Origin::Stream(on) = origin else { return None };
        let paired = self.ledger.paired_with(on);
        if !paired.is_empty() {
            return sole(paired.iter().copied());
        }
        let own = self.ledger.on_stream(on).iter().copied();
        self.streams.is_exchange(on).then(|| sole(own))?
    }

    /// Whether a message about `call` arrived on the stream of another HTTP request.
    pub(crate) fn is_elsewhere(&self, origin: Origin, call: &Call) -> bool {
        let Origin::Stream(on) = origin else { return false };
        match call.paired {
            Some(own) => own != on,
            None => call.stream != on && (self.streams.is_exchange(on) || self.is_paired(on)),
        }
    }

    /// Whether a message arrived where a client goes on with the stream of another request than this call's.
    pub(crate) fn is_of_other_request(&self, origin: Origin, call: CallId) -> bool {
        let Origin::Stream(on) = origin else { return false };
        let resumes = self.streams.get(&on).is_some_and(|stream| stream.resumes_request);
        resumes && self.ledger.get(call).is_none_or(|call| call.stream != on)
    }

    /// Whether a message arrived on a stream whose requests have all ended.
    pub(crate) fn is_stale(&self, origin: Origin) -> bool {
        matches!(origin, Origin::Stream(on) if self.topology.is_paired() && !self.has_stream(on) && !self.is_paired(on))
    }

    /// The session stream, unless different clients share the server: then the stream belongs to
    /// none of them.
    pub(crate) fn common_session_stream(&self) -> Option<StreamId> {
        self.session_stream.filter(|_| !self.topology.has_strangers())
    }

    /// The stream to write to: `stream` if it is open, else the session stream.
    pub(crate) fn open_or_session_stream(&self, stream: Option<StreamId>) -> Option<StreamId> {
        stream.filter(|id| self.has_stream(*id)).or_else(|| self.common_session_stream())
    }

    /// The stream of messages that are about no known request.
    pub(crate) fn fallback_stream(&self, origin: Origin) -> Result<Option<StreamId>, Reason> {
        // Streamable HTTP ties a message to a request by the stream that it arrives on. A message
        // stays on that stream as long as the client still reads there.
        if let Origin::Stream(on) = origin
            && (self.has_stream(on) || !self.topology.is_whole())
        {
            return Ok(Some(on));
        }
        if self.topology.needs_no_choice() {
            return Ok(self.session_stream);
        }
        if let Origin::Stream(on) = origin {
            let streams = self.ledger.paired_with(on).iter().filter_map(|id| self.ledger.get(*id));
            let open = streams.map(|call| call.stream).find(|stream| self.has_stream(*stream));
            return match open.or_else(|| self.common_session_stream()) {
                None if self.topology.has_strangers() => Err(Reason::Unknown),
                found => Ok(found),
            };
        }
        // A client that waits for an answer reads. A task has its answer, and a subscription has
        // only its own notifications.
        let asks = |call: &Call| call.task.is_none() && &*call.method != mcp::LISTEN;
        let call = only(self.active(asks));
        let call = call.and_then(|call| self.ledger.get(call).ok_or(Reason::Unknown));
        if !self.topology.has_strangers() {
            let stream = call.ok().map(|call| call.stream);
            let exchange = stream.filter(|stream| self.streams.is_exchange(*stream));
            return Ok(exchange.or(self.session_stream));
        }
        let call = call?;
        // Where different clients share a server, a message of uncertain owner goes to nobody.
        if self.may_mean_over(call) {
            return Err(Reason::Ambiguous);
        }
        if self.has_stream(call.stream) { Ok(Some(call.stream)) } else { Err(Reason::Gone) }
    }

    /// The stream for a message that is neither progress nor an answer, and the bytes for its client.
    pub(crate) fn destination_of(&self, origin: Origin, message: &Message) -> Placement {
        match self.named_by(message) {
            SubscriptionRef::Nobody => {
                self.fallback_stream(origin).map(|stream| (stream, Payload::of(message)))
            }
            SubscriptionRef::Gone(reason) => Err(reason),
            SubscriptionRef::Call(call, names) => {
                let call = self.ledger.get(call).ok_or(Reason::Unknown)?;
                if !self.topology.has_strangers() {
                    return Ok((Some(call.stream), Payload::of(message)));
                }
                let places = names.iter().filter_map(|name| within(message.raw(), name));
                let splices = places.map(|place| (place, call.id.client.clone())).collect();
                Ok((Some(call.stream), spliced(message, splices)))
            }
        }
    }

    /// Whether the server knows a call, or its token, by another name than the client.
    fn translates(&self, call: &Call) -> bool {
        self.topology.has_strangers()
            || call.id.translated
            || call.token.as_ref().is_some_and(|token| token.translated)
    }

    /// A server message about `call` in the form for its client: the same bytes, except for names
    /// given by Milepost.
    pub(crate) fn with_client_names(
        &self,
        call: &Call,
        message: &Message,
        about: &About,
    ) -> Payload {
        if self.translates(call) { restored(call, message, about) } else { Payload::of(message) }
    }

    /// A report that needs no repair, in the form for its client.
    pub(crate) fn for_client(
        &self,
        call: &Call,
        message: &Message,
        report: &Report,
    ) -> Option<Payload> {
        let about = &report.about;
        let replaceable = !self.translates(call)
            || about.token_text.as_ref().is_some_and(|text| within(message.raw(), text).is_some());
        (report.repairs.is_empty() && replaceable)
            .then(|| self.with_client_names(call, message, about))
    }

    /// The calls that a request of the server may be about: those that it names, else those of its stream, else all.
    pub(crate) fn calls_of_question(
        &self,
        origin: Origin,
        message: &Message,
        only_on: Option<StreamId>,
    ) -> Vec<CallId> {
        let ledger = &self.ledger;
        let params = message.params().unwrap_or_default();
        let meta = json::member(&params, "_meta").unwrap_or_default();
        let related = |object| RELATED.iter().find_map(|name| json::member(object, name));
        let named = related(&meta).or_else(|| related(&params)).and_then(|id| Key::read(&id));
        // A name decides alone: if the named call is over, no other call is meant.
        if let Some(named) = named {
            return ledger.by_id(&named).into_iter().collect();
        }
        let on_stream = match (only_on, origin) {
            (Some(on), _) => ledger.on_stream(on),
            (None, Origin::Stream(on)) if ledger.paired_with(on).is_empty() => ledger.on_stream(on),
            (None, Origin::Stream(on)) => ledger.paired_with(on),
            (None, Origin::Shared) => &[],
        };
        if only_on.is_some() || !on_stream.is_empty() {
            return on_stream.to_vec();
        }
        let waits = |call: CallId| {
            ledger.get(call).is_some_and(|call| !call.shadow && !call.is_subscription())
        };
        ledger.iter().map(|(id, _)| id).filter(|id| waits(*id)).collect()
    }

    /// The client whose calls may join each other: all streams of a server that is not shared have one client.
    pub(crate) fn late_principal(&self, stream: StreamId) -> Principal {
        if self.topology.has_strangers() {
            self.streams.principal_of(stream)
        } else {
            Principal::Known(0)
        }
    }

    /// The open call that text names by its token, or else by the id of its request.
    pub(crate) fn call_named_in_text(
        &self,
        About { token, request, .. }: &About,
    ) -> Option<CallId> {
        let by_token = |key: &Key| {
            self.ledger.by_token(key).or_else(|| self.ledger.by_token_in_other_spelling(key))
        };
        let by_id = || self.call_of_answer(request.as_ref()?);
        token.as_ref().and_then(by_token).or_else(by_id)
    }

    /// Whether progress on a stream has to keep its distance from answers.
    pub(crate) fn is_paced(&self, stream: Option<StreamId>) -> bool {
        let Some(stream) = stream else { return true };
        let ledger = &self.ledger;
        let mut calls = ledger.on_stream(stream).iter().filter_map(|id| ledger.get(*id));
        calls.any(|call| self.streams.pacing_of(call.stream, call.settings()).keeps_distance())
    }
}
