//! Answers a POST to a session of the bridge. The message goes to the server. The response is one JSON answer if no
//! other message comes before it, else a stream.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::time::{sleep, timeout};

use super::Bridge;
use super::begin::{self, SessionRequest};
use super::session::{BridgeSession, ENDED, SessionCommand, SessionKind, requests};
use super::upload::Upload;
use crate::gateway::bridge::posted_message::PostedMessage;
use crate::gateway::bridge::replay_buffer::{ClientReads, FirstResponse};
use crate::gateway::bridge::response_body::{BridgeBody, ResponseForm};
use crate::gateway::bridge::responses::{PARSE_ERROR, json_head, refusal, refused};
use crate::gateway::bridge::subscription::Subscription;
use crate::gateway::bridge::{frame, modern, posted_message};
use crate::gateway::fleet::event_id;
use crate::gateway::fleet::session::FleetSession;
use crate::gateway::refusals::{events_head, leaving};
use crate::gateway::route_state::StreamPermit;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp, sse};
use crate::relay::ClientHeaders;
use crate::transport::http::body::Body;
use crate::transport::http::outliving::{Outlives, set_outlives};
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::request_body::asks;
use crate::transport::mcp_http::request_head::RequestHead;

/// The time after which a client resumes a broken stream, in milliseconds (`retry`).
const RETRY_MS: u64 = 1000;

/// The error of a call in a session that ends with its replica.
const STOPPING: &str = "this replica is stopping, and the MCP server of this session with it; initialize a new session";

/// One POST that contains requests.
struct PendingPost {
    bridge: Arc<Bridge>,
    session: Arc<BridgeSession>,
    /// The content types that the client accepts.
    reads_events: bool,
    reads_json: bool,
    limits_events: bool,
    /// Whether the client reads the status of the response (2026-07-28), which the first answer then decides.
    needs_status: bool,
    headers: ClientHeaders,
    /// The ids of the requests in this POST.
    ids: Vec<Bytes>,
    /// The ids of the requests, as event ids contain them in a fleet.
    named: Option<Box<str>>,
    write_state: WriteState,
    permit: Arc<StreamPermit>,
}

impl Bridge {
    pub(crate) async fn post(
        self: &Arc<Self>,
        parts: Parts,
        posted: PostedMessage,
        write_state: WriteState,
    ) -> Response<Body> {
        if let Some(date) = modern::date_of(&parts.headers, posted.message()) {
            if asks(posted.message()) {
                set_outlives(Outlives::Nothing);
            }
            let answer = self.post_modern(&parts, posted, &date, write_state);
            return Box::pin(answer).await;
        }
        let new = !parts.headers.contains_key(SESSION_ID) && is_initialize(posted.message());
        if new && self.state.shared.shutdown.turns_newcomers_away() {
            return leaving(posted.message().and_then(Message::id).as_deref());
        }
        let found = if new { None } else { Some(self.session_named(&parts)) };
        let session = match found.transpose() {
            Ok(session) => session,
            Err(refusal) => return *refusal,
        };
        let (session, message) = match (session, posted) {
            (Some(session), PostedMessage::Whole(message)) if !asks(Some(&message)) => {
                (session, message)
            }
            (session, posted) => {
                return Box::pin(self.post_requests(&parts, posted, session, write_state)).await;
            }
        };
        // Waits until no large message is sent in pieces: its sender has this lock until the end.
        let _order = session.speaking.lock().await;
        if !session.send(SessionCommand::Tell(message, self.headers_for_server(&parts))).await {
            return gone(None);
        }
        self.route_response(StatusCode::ACCEPTED, HeaderMap::new(), Body::empty())
    }

    async fn post_requests(
        self: &Arc<Self>,
        parts: &Parts,
        posted: PostedMessage,
        session: Option<Arc<BridgeSession>>,
        write_state: WriteState,
    ) -> Response<Body> {
        set_outlives(Outlives::UntilSent);
        let permit = match self.stream_permit(parts, None) {
            Ok(permit) => permit,
            Err(refusal) => return *refusal,
        };
        let repeats_ids = session.as_ref().is_some_and(|session| session.repeats_ids());
        let posted = match posted {
            // An id that was used before is replaced by one of Milepost, for which the whole message must be in memory.
            PostedMessage::Large(body) if repeats_ids => {
                match posted_message::hold(&self.state, parts, body).await {
                    Ok(message) => PostedMessage::Whole(message),
                    Err(refusal) => return *refusal,
                }
            }
            posted => posted,
        };
        let ids: Vec<Bytes> =
            posted.message().map(requests).into_iter().flatten().map(|(_, id)| id).collect();
        let new = session.is_none();
        let session = match session {
            // This replica will stop soon and cut the call, so the client should make it in its next session.
            Some(_) if self.state.shared.shutdown.turns_calls_away() => {
                let id = ids.first().map(|id| &id[..]);
                return refusal(StatusCode::NOT_FOUND, STOPPING, id);
            }
            Some(session) => session,
            None => {
                let id = ids.first().map(|id| &id[..]);
                match self.begin_session(&SessionRequest {
                    kind: SessionKind::Own,
                    id,
                    principal: None,
                    owner: self.owner_of(&parts.headers),
                    certificate: parts.extensions.get().cloned(),
                    named: parts.extensions.get(),
                    client: parts.extensions.get(),
                }) {
                    Ok(session) => session,
                    Err(refusal) => return *refusal,
                }
            }
        };
        let asking = self.asking(parts, session, ids, (write_state, permit));
        if new {
            let unborn = PendingSession { session: Some(Arc::clone(&asking.session)) };
            asking.begin(posted, unborn).await
        } else {
            asking.ask(posted).await
        }
    }
}

impl Bridge {
    fn asking(
        self: &Arc<Self>,
        parts: &Parts,
        session: Arc<BridgeSession>,
        ids: Vec<Bytes>,
        (write_state, permit): (WriteState, Arc<StreamPermit>),
    ) -> PendingPost {
        let asked = RequestHead::of(self.state.caller(parts), parts);
        PendingPost {
            bridge: Arc::clone(self),
            reads_events: asked.reads_events,
            reads_json: !asked.reads_events || asked.reads_json,
            limits_events: asked.limits_events,
            needs_status: false,
            headers: self.headers_for_server(parts),
            named: FleetSession::of(parts).and_then(|_| event_id::requests_part(&ids)),
            ids,
            write_state,
            permit,
            session,
        }
    }

    /// Sends a request to a server that other clients use too.
    pub(crate) async fn ask_shared(
        self: &Arc<Self>,
        parts: &Parts,
        message: Message,
        session: Arc<BridgeSession>,
        write_state: WriteState,
    ) -> Response<Body> {
        let permit = match self.shared_permit(parts, &session.shares, message.id().as_deref()) {
            Ok(permit) => permit,
            Err(refusal) => return *refusal,
        };
        let ids = message.id().into_iter().collect();
        let mut asking = self.asking(parts, session, ids, (write_state, permit));
        asking.needs_status = message.method().as_deref() == Some(mcp::DISCOVER);
        asking.ask(PostedMessage::Whole(message)).await
    }
}

/// A session that its client does not know yet: it ends with the request that should begin it.
struct PendingSession {
    session: Option<Arc<BridgeSession>>,
}

impl Drop for PendingSession {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.end(ENDED);
        }
    }
}

fn is_initialize(message: Option<&Message>) -> bool {
    message.is_some_and(|message| {
        message.kind() == Kind::Request && message.method().as_deref() == Some(mcp::INITIALIZE)
    })
}

/// Returns the response to a request whose session ended while it was on its way.
fn gone(id: Option<&Bytes>) -> Response<Body> {
    refusal(StatusCode::NOT_FOUND, ENDED.why, id.map(|id| &id[..]))
}

/// Returns the response to a request whose body ended too early.
pub(crate) fn broken_off() -> Response<Body> {
    let why = "the body of this request broke off";
    refused(StatusCode::BAD_REQUEST, PARSE_ERROR, why, None)
}

impl PendingPost {
    /// Sends the message to the server; the error is the response for the client.
    async fn send(&self, posted: PostedMessage) -> Result<Subscription, Box<Response<Body>>> {
        let reads = match self.reads_events {
            true => ClientReads::Everything,
            false => ClientReads::Answers,
        };
        let buffer = self.session.open(reads, self.named.clone());
        // Attached before the message is sent: a client that disconnects from now on is noticed.
        let subscription = buffer.attach(None);
        let complete = match posted {
            PostedMessage::Whole(message) => {
                let _order = self.session.speaking.lock().await;
                let ask = SessionCommand::Ask(Arc::clone(&buffer), message, self.headers.clone());
                self.session.send(ask).await
            }
            PostedMessage::Large(body) => {
                match self.session.send_in_pieces(body, &buffer, self.headers.clone()).await {
                    Upload::BrokenOff => return Err(Box::new(broken_off())),
                    complete => complete == Upload::Complete,
                }
            }
        };
        if !complete {
            return Err(Box::new(self.gone()));
        }
        // Counted only after the message has reached the relay: otherwise nothing would return the permit.
        buffer.count(&self.permit);
        Ok(subscription)
    }

    /// Answers `initialize`. The response waits until the session exists or has failed.
    async fn begin(self, posted: PostedMessage, mut unborn: PendingSession) -> Response<Body> {
        let subscription = match self.send(posted).await {
            Ok(subscription) => subscription,
            Err(refusal) => return *refusal,
        };
        let over = poll_fn(|cx| subscription.poll_over(cx));
        let patience = begin::start_timeout(&self.bridge.state);
        let over = async {
            match patience {
                Some(patience) => timeout(patience, over).await.ok(),
                None => Some(over.await),
            }
        };
        let Some(look) = over.await else {
            let why = "the MCP server did not answer in time: see start_timeout";
            tracing::warn!(route = self.bridge.state.route.path, why, "no session");
            let id = self.ids.first().map(|id| &id[..]);
            return refusal(StatusCode::GATEWAY_TIMEOUT, why, id);
        };
        let (answers, broken) = subscription.texts();
        let answer = answers.iter().rev().map(|text| Message::parse(text.clone()));
        let result = answer.filter_map(|answer| answer.result()).next();
        let mut headers = HeaderMap::new();
        if let Some(result) = result.filter(|_| broken.is_none()) {
            let date = json::member(&result, "protocolVersion");
            let date = date.and_then(|date| json::decode_str(&date).map(|date| date.into_owned()));
            self.session.set_revision(&date.unwrap_or_default());
            if let Ok(id) = HeaderValue::from_str(&self.session.id) {
                headers.insert(SESSION_ID, id);
            }
            unborn.session = None;
        }
        if self.reads_events && (look == FirstResponse::Events || !self.reads_json) {
            return self.events(subscription, headers);
        }
        subscription.answers();
        let status = broken.map_or(StatusCode::OK, |broken| broken.status);
        self.json(subscription, answers, status, headers)
    }

    async fn ask(self, posted: PostedMessage) -> Response<Body> {
        let subscription = match self.send(posted).await {
            Ok(subscription) => subscription,
            Err(refusal) => return *refusal,
        };
        let look = if self.reads_json {
            let upgrade = async {
                match self.upgrades() {
                    Some(after) => sleep(after).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // If the answer has arrived by now, the client gets it as JSON, even if the timer has expired too.
                biased;
                look = poll_fn(|cx| subscription.poll_first_response(cx)) => look,
                () = upgrade => FirstResponse::Events,
            }
        } else {
            FirstResponse::Events
        };
        match look {
            FirstResponse::Large => {
                self.read(subscription, ResponseForm::Json, &Bytes::new(), json_head())
            }
            FirstResponse::Answers => {
                let (answers, broken) = subscription.answers();
                let status = broken.map_or(StatusCode::OK, |broken| broken.status);
                self.json(subscription, answers, status, HeaderMap::new())
            }
            _ if self.reads_events => self.events(subscription, HeaderMap::new()),
            _ => {
                let (answers, _) = subscription.answers();
                self.json(subscription, answers, StatusCode::OK, HeaderMap::new())
            }
        }
    }

    /// Returns the response to this POST if its session ended in the meantime.
    fn gone(&self) -> Response<Body> {
        if self.session.kind != SessionKind::Shared {
            return gone(self.ids.first());
        }
        let why = "the MCP server has ended";
        refusal(StatusCode::BAD_GATEWAY, why, self.ids.first().map(|id| &id[..]))
    }

    /// Returns the time after which the client gets a stream although no message has arrived; `None`: never.
    fn upgrades(&self) -> Option<Duration> {
        let may = self.reads_events && !self.needs_status;
        let after = self.bridge.state.route.upgrade_after.filter(|_| may)?;
        Some(if self.limits_events {
            after.max(crate::transport::mcp_http::request_head::LATE_UPGRADE)
        } else {
            after
        })
    }

    /// Returns the JSON response: one answer, or an array of several. If there is none, the request was cancelled.
    fn json(
        self,
        subscription: Subscription,
        mut answers: Vec<Bytes>,
        status: StatusCode,
        mut headers: HeaderMap,
    ) -> Response<Body> {
        drop(subscription);
        let body = match answers.len() {
            0 if self.reads_events => {
                headers.extend(events_head());
                return self.bridge.route_response(status, headers, Body::empty());
            }
            0 => {
                let id = self.ids.first().map_or(&b"null"[..], |id| id);
                crate::protocol::jsonrpc::own_error(id, "the request was cancelled", None)
            }
            1 => answers.swap_remove(0),
            _ => joined(&answers),
        };
        let status = match self.session.kind {
            SessionKind::Shared if status == StatusCode::OK => modern::status_of(&body),
            _ => status,
        };
        headers.extend(json_head());
        self.bridge.route_response(status, headers, Body::from(body))
    }

    fn events(self, subscription: Subscription, mut headers: HeaderMap) -> Response<Body> {
        headers.extend(events_head());
        let resumes = self.session.agreed_revision().revision >= Some(Revision::V2025_11_25);
        // Clients of earlier revisions misread an event without data as a broken message.
        let first = match resumes {
            true => frame::priming(subscription.buffer.event_id(0), RETRY_MS),
            false => Bytes::from_static(sse::COMMENT),
        };
        // A client of a shared server has no session, so it cannot resume the stream: no event ids.
        let form = if self.session.kind == SessionKind::Shared {
            ResponseForm::Plain
        } else {
            ResponseForm::Events
        };
        self.read(subscription, form, &first, headers)
    }

    fn read(
        self,
        subscription: Subscription,
        form: ResponseForm,
        first: &Bytes,
        headers: HeaderMap,
    ) -> Response<Body> {
        let delivery = (self.bridge.state.route.keep_alive, self.write_state, self.permit);
        let reader = BridgeBody::new(subscription, &self.session, form, first, delivery);
        self.bridge.route_response(StatusCode::OK, headers, Body::Stream(Box::new(reader)))
    }
}

/// Joins several answers into one array (2025-03-26).
fn joined(answers: &[Bytes]) -> Bytes {
    let inner = |text: &Bytes| {
        let array = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
        array.map_or_else(|| text.clone(), |array| text.slice_ref(array))
    };
    let inner: Vec<Bytes> = answers.iter().map(inner).collect();
    Bytes::from([b"[", &inner.join(&b","[..])[..], b"]"].concat())
}
