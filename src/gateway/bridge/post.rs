//! A POST to a session of the bridge: the message goes to the server; the response is one JSON
//! answer if no other message comes before it, else a stream.

use crate::gateway::bridge::responses::{PARSE_ERROR, events_head, json_head, refusal, refused};
use crate::gateway::bridge::{frame, modern};
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::time::{sleep, timeout};

use super::Bridge;
use super::launch::{self, SessionRequest};
use super::session::{BridgeSession, ENDED, SessionCommand, SessionKind, requests};
use super::upload::Upload;
use crate::gateway::bridge::replay_buffer::FirstResponse;
use crate::gateway::bridge::response_body::{ResponseBody, ResponseForm};
use crate::gateway::bridge::subscription::Subscription;
use crate::gateway::refusals::refuse;
use crate::gateway::route_state::{RouteState, StreamPermit};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::lines::INSPECT_MAX;
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp, sse};
use crate::relay::ClientHeaders;
use crate::transport::http::body::Body;
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::content::on_one_line;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::request_body;
use crate::transport::mcp_http::request_body::{PostedBody, asks};
use crate::transport::mcp_http::request_head::RequestHead;

/// After how long a client comes back whose stream has broken off, in milliseconds.
const RETRY_MS: u64 = 1000;

/// What a client has posted.
pub(crate) enum PostedMessage {
    /// A message on one line.
    Whole(Message),
    /// One too large to be held.
    Large(RequestBody),
}

impl PostedMessage {
    pub(crate) fn message(&self) -> Option<&Message> {
        match self {
            Self::Whole(message) => Some(message),
            Self::Large(_) => None,
        }
    }
}

/// Reads the body of a POST; what its client is told if that is no message.
pub(crate) async fn read(
    state: &RouteState,
    parts: &Parts,
    body: PostedBody,
) -> Result<PostedMessage, Box<Response<Body>>> {
    let max = state.route.max_request_bytes;
    // A shared server is told other ids: all of a message has to be there.
    let held_max = if modern::date_of(&parts.headers, None).is_some() { max } else { INSPECT_MAX };
    let read = request_body::read(body, &parts.headers, max, held_max).await;
    match read.map_err(|unread| Box::new(refuse(state, &unread, parts.version)))? {
        request_body::ReadBody::Large(body) => Ok(PostedMessage::Large(body)),
        request_body::ReadBody::Whole(bytes) => {
            let line = bytes.slice_ref(bytes.trim_ascii());
            let message = Message::parse(on_one_line(line));
            if message.kind() != Kind::Noise {
                return Ok(PostedMessage::Whole(message));
            }
            let why = "the body of this request is no JSON-RPC message";
            Err(Box::new(refused(StatusCode::BAD_REQUEST, PARSE_ERROR, why, None)))
        }
    }
}

/// One POST that asks something.
struct PendingPost {
    bridge: Arc<Bridge>,
    session: Arc<BridgeSession>,
    /// How its client reads.
    reads_events: bool,
    reads_json: bool,
    limits_events: bool,
    /// Its client goes by the status of the answer (rule V-07).
    needs_status: bool,
    headers: ClientHeaders,
    /// The ids of its requests.
    ids: Vec<Bytes>,
    outlet: WriteState,
    permit: StreamPermit,
}

impl Bridge {
    pub(crate) async fn post(
        self: &Arc<Self>,
        parts: Parts,
        said: PostedMessage,
        ours: bool,
        outlet: WriteState,
    ) -> Response<Body> {
        if let Some(date) = modern::date_of(&parts.headers, said.message()) {
            let answer = self.post_modern(&parts, said, &date, outlet);
            return Box::pin(answer).await;
        }
        let new = !parts.headers.contains_key(SESSION_ID) && is_initialize(said.message());
        let found = if new { None } else { Some(self.session_named(&parts.headers)) };
        let session = match found.transpose() {
            Ok(session) => session,
            Err(refusal) => return *refusal,
        };
        let (session, message) = match (session, said) {
            (Some(session), PostedMessage::Whole(message)) if !asks(Some(&message)) => {
                (session, message)
            }
            (session, said) => {
                return Box::pin(self.post_requests(&parts, said, session, ours, outlet)).await;
            }
        };
        let _order = session.speaking.lock().await;
        if !session.say(SessionCommand::Tell(message, self.headers_for_server(parts.headers))).await
        {
            return gone(None);
        }
        self.route_response(StatusCode::ACCEPTED, HeaderMap::new(), Body::empty())
    }

    async fn post_requests(
        self: &Arc<Self>,
        parts: &Parts,
        said: PostedMessage,
        session: Option<Arc<BridgeSession>>,
        ours: bool,
        outlet: WriteState,
    ) -> Response<Body> {
        let Some(permit) = self.state.permit() else {
            let why = "too many streams are open on this route";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, why, None);
        };
        let ids: Vec<Bytes> =
            said.message().map(requests).into_iter().flatten().map(|(_, id)| id).collect();
        let new = session.is_none();
        let session = match session {
            Some(session) => session,
            None => {
                let id = ids.first().map(|id| &id[..]);
                match self.begin_session(&SessionRequest { whose: SessionKind::Own, id, ours }) {
                    Ok(session) => session,
                    Err(refusal) => return *refusal,
                }
            }
        };
        let asking = self.asking(parts, session, ids, (outlet, permit));
        if new {
            let unborn = PendingSession(Some(Arc::clone(&asking.session)));
            asking.begin(said, unborn).await
        } else {
            asking.ask(said).await
        }
    }
}

impl Bridge {
    fn asking(
        self: &Arc<Self>,
        parts: &Parts,
        session: Arc<BridgeSession>,
        ids: Vec<Bytes>,
        (outlet, permit): (WriteState, StreamPermit),
    ) -> PendingPost {
        let asked = RequestHead::of(self.state.caller(&parts.headers), parts);
        PendingPost {
            bridge: Arc::clone(self),
            reads_events: asked.reads_events,
            reads_json: !asked.reads_events || asked.reads_json,
            limits_events: asked.limits_events,
            needs_status: false,
            headers: self.headers_for_server(parts.headers.clone()),
            ids,
            outlet,
            permit,
            session,
        }
    }

    /// Asks a server that others ask too.
    pub(crate) async fn ask_shared(
        self: &Arc<Self>,
        parts: &Parts,
        message: Message,
        session: Arc<BridgeSession>,
        outlet: WriteState,
    ) -> Response<Body> {
        let Some(permit) = self.state.permit() else {
            let why = "too many streams are open on this route";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, why, message.id().as_deref());
        };
        let ids = message.id().into_iter().collect();
        let mut asking = self.asking(parts, session, ids, (outlet, permit));
        asking.needs_status = message.method().as_deref() == Some(mcp::DISCOVER);
        asking.ask(PostedMessage::Whole(message)).await
    }
}

/// A session that its client does not know yet: it ends with the request that should begin it.
struct PendingSession(Option<Arc<BridgeSession>>);

impl Drop for PendingSession {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.end(ENDED);
        }
    }
}

fn is_initialize(message: Option<&Message>) -> bool {
    message.is_some_and(|message| {
        message.kind() == Kind::Request && message.method().as_deref() == Some(mcp::INITIALIZE)
    })
}

/// The session has ended while the request was on its way.
fn gone(id: Option<&Bytes>) -> Response<Body> {
    refusal(StatusCode::NOT_FOUND, ENDED.why, id.map(|id| &id[..]))
}

/// The body of a request has no end, or is too long.
pub(crate) fn broken_off() -> Response<Body> {
    let why = "the body of this request broke off, or is longer than max_request_bytes";
    refused(StatusCode::BAD_REQUEST, PARSE_ERROR, why, None)
}

impl PendingPost {
    /// Says it to the server; what the client is told if that cannot be.
    async fn say(&self, said: PostedMessage) -> Result<Subscription, Box<Response<Body>>> {
        let store = self.session.open(!self.reads_events);
        // Whoever leaves from now on has left this stream.
        let attached = store.attach(None);
        let heard = match said {
            PostedMessage::Whole(message) => {
                let _order = self.session.speaking.lock().await;
                self.session.say(SessionCommand::Ask(store, message, self.headers.clone())).await
            }
            PostedMessage::Large(body) => {
                match self.session.say_in_pieces(body, &store, self.headers.clone()).await {
                    Upload::BrokenOff => return Err(Box::new(broken_off())),
                    heard => heard == Upload::Said,
                }
            }
        };
        if heard { Ok(attached) } else { Err(Box::new(self.gone())) }
    }

    /// `initialize`: nothing can be answered before it is known whether there is a session.
    async fn begin(self, said: PostedMessage, mut unborn: PendingSession) -> Response<Body> {
        let attached = match self.say(said).await {
            Ok(attached) => attached,
            Err(refusal) => return *refusal,
        };
        let over = poll_fn(|cx| attached.poll_over(cx));
        let patience = launch::start_timeout(&self.bridge.state);
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
        let (answers, broken) = attached.texts();
        let answer = answers.iter().rev().map(|text| Message::parse(text.clone()));
        let result = answer.filter_map(|answer| answer.result()).next();
        let mut headers = HeaderMap::new();
        if let Some(result) = result.filter(|_| broken.is_none()) {
            let date = json::member(&result, "protocolVersion");
            let date = date.and_then(|date| json::decode_str(&date).map(|date| date.into_owned()));
            self.session.agree(&date.unwrap_or_default());
            if let Ok(id) = HeaderValue::from_str(&self.session.id) {
                headers.insert(SESSION_ID, id);
            }
            unborn.0 = None;
        }
        if self.reads_events && (look == FirstResponse::Events || !self.reads_json) {
            return self.events(attached, headers);
        }
        attached.answers();
        let status = broken.map_or(StatusCode::OK, |broken| broken.status);
        self.json(attached, answers, status, headers)
    }

    async fn ask(self, said: PostedMessage) -> Response<Body> {
        let attached = match self.say(said).await {
            Ok(attached) => attached,
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
                biased;
                look = poll_fn(|cx| attached.poll_look(cx)) => look,
                () = upgrade => FirstResponse::Events,
            }
        } else {
            FirstResponse::Events
        };
        match look {
            FirstResponse::Large => {
                self.read(attached, ResponseForm::Json, &Bytes::new(), json_head())
            }
            FirstResponse::Answers => {
                let (answers, broken) = attached.answers();
                let status = broken.map_or(StatusCode::OK, |broken| broken.status);
                self.json(attached, answers, status, HeaderMap::new())
            }
            _ if self.reads_events => self.events(attached, HeaderMap::new()),
            _ => {
                let (answers, _) = attached.answers();
                self.json(attached, answers, StatusCode::OK, HeaderMap::new())
            }
        }
    }

    /// The session has ended while the request was on its way.
    fn gone(&self) -> Response<Body> {
        if self.session.whose != SessionKind::Shared {
            return gone(self.ids.first());
        }
        let why = "the MCP server has ended";
        refusal(StatusCode::BAD_GATEWAY, why, self.ids.first().map(|id| &id[..]))
    }

    /// When the client gets a stream although there is nothing to be said (rule A4).
    fn upgrades(&self) -> Option<Duration> {
        let may = self.reads_events && !self.needs_status;
        let after = self.bridge.state.route.upgrade_after.filter(|_| may)?;
        Some(if self.limits_events {
            after.max(crate::transport::mcp_http::request_head::LATE_UPGRADE)
        } else {
            after
        })
    }

    /// One answer, or several in an array. If there is none, the request was cancelled.
    fn json(
        self,
        attached: Subscription,
        mut answers: Vec<Bytes>,
        status: StatusCode,
        mut headers: HeaderMap,
    ) -> Response<Body> {
        drop(attached);
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
        let status = match self.session.whose {
            SessionKind::Shared if status == StatusCode::OK => modern::status_of(&body),
            _ => status,
        };
        headers.extend(json_head());
        self.bridge.route_response(status, headers, Body::from(body))
    }

    fn events(self, attached: Subscription, mut headers: HeaderMap) -> Response<Body> {
        headers.extend(events_head());
        let resumes = self.session.agreed().revision >= Some(Revision::V2025_11_25);
        // Clients of earlier revisions take an event without data for a broken message.
        let first = match resumes {
            true => frame::priming(attached.store.id, RETRY_MS),
            false => Bytes::from_static(sse::COMMENT),
        };
        // Who shares a server cannot come back for what is missed (rule R-10).
        let form = if self.session.whose == SessionKind::Shared {
            ResponseForm::Plain
        } else {
            ResponseForm::Events
        };
        self.read(attached, form, &first, headers)
    }

    fn read(
        self,
        attached: Subscription,
        form: ResponseForm,
        first: &Bytes,
        headers: HeaderMap,
    ) -> Response<Body> {
        let means = (self.bridge.state.route.keep_alive, self.outlet, self.permit);
        let reader = ResponseBody::new(attached, &self.session, form, first, means);
        self.bridge.route_response(StatusCode::OK, headers, Body::Stream(Box::new(reader)))
    }
}

/// Several answers in one array (2025-03-26).
fn joined(answers: &[Bytes]) -> Bytes {
    let inner = |text: &Bytes| {
        let array = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
        array.map_or_else(|| text.clone(), |array| text.slice_ref(array))
    };
    let inner: Vec<Bytes> = answers.iter().map(inner).collect();
    Bytes::from([b"[", &inner.join(&b","[..])[..], b"]"].concat())
}
