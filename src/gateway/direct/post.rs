//! A POST to a Streamable HTTP endpoint. It is forwarded, and answered in the form of the server's answer, or as an
//! event stream if no answer comes in time.

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::time::{Instant, sleep_until};

use super::Direct;
use super::exchange::Exchange;
use super::session::{Session, SessionBeginning};
use crate::config::routes::Route;
use crate::gateway::client_limits::LimitedClient;
use crate::gateway::direct::control::ControlSender;
use crate::gateway::direct::response::{UpstreamAnswer, says_nothing};
use crate::gateway::fleet::session::FleetSession;
use crate::gateway::refusals::{
    events_head, leaving, no_room, no_route, read_or_refuse, unreachable,
};
use crate::gateway::route_state::StreamPermit;
use crate::observe::events::FilterId;
use crate::progress::{Policy, RequestMembers, RequestOrigin};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;
use crate::protocol::mcp::Revision;
use crate::relay::origin_of;
use crate::transport::http::body::Body;
use crate::transport::http::client::{Sending, UpstreamBody, UpstreamError};
use crate::transport::http::forwarder::BodyOrigin;
use crate::transport::http::inflate::PlainBody;
use crate::transport::http::outliving::{Outlives, set_outlives};
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::content::{Content, is_untyped};
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::request_body::{PostedBody, ReadBody, asks};
use crate::transport::mcp_http::request_head::{LATE_UPGRADE, RequestHead};
use crate::transport::mcp_http::response_body::{events_coding, take_events};
use crate::transport::mcp_http::target::ServerClient;
use crate::transport::mcp_http::{header_mirror, request_body};

/// Limit of the time for which progress from another stream waits for the head of the response, if the client gets no
/// stream before the head. After it the progress is written on the other stream.
const HEAD_AFTER_MAX: Duration = Duration::from_millis(100);

/// One POST to a Streamable HTTP endpoint.
pub(crate) struct Post {
    pub(crate) direct: Arc<Direct>,
    pub(crate) request_head: RequestHead,
    session: Option<Arc<Session>>,
    pub(super) message: Option<Message>,
    /// The members of the message that decide about it.
    members: RequestMembers,
    /// The revision that the message names.
    revision: Option<Revision>,
    pub(super) write_state: WriteState,
    client: Option<LimitedClient>,
    /// The headers for the GET stream that Milepost will hold for the session, once the server has accepted the
    /// message.
    own_get: Option<Box<HeaderMap>>,
    /// The settings that apply to the request.
    policy: Arc<Policy>,
}

impl Direct {
    /// Answers a POST to the route's endpoint of Streamable HTTP.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an `async fn` has room for its arguments twice"
    )]
    pub(crate) fn post(
        self: Arc<Self>,
        mut parts: Parts,
        body: PostedBody,
        write_state: WriteState,
    ) -> impl Future<Output = Response<Body>> + Send + use<> {
        async move {
            let read = match read_or_refuse(&self.state, body, &parts).await {
                Ok(read) => read,
                Err(refusal) => return *refusal,
            };
            let (post, body) = match self.begin_post(read, &mut parts, write_state) {
                Ok(begun) => begun,
                Err(refusal) => return *refusal,
            };
            // Boxed: otherwise the future that reads the body would reserve memory for all later steps.
            post.send(parts, body).await
        }
    }

    /// Returns the data of a POST whose body has been read, and the body for the server.
    fn begin_post(
        self: &Arc<Self>,
        read: ReadBody,
        parts: &mut Parts,
        write_state: WriteState,
    ) -> Result<(Box<Post>, RequestBody), Box<Response<Body>>> {
        let (message, body) =
            request_body::for_server(read, &self.state.policy, &mut parts.headers);
        let members = message.as_ref().map(RequestMembers::of).unwrap_or_default();
        let date = members.date();
        if let Some(message) = &message {
            header_mirror::check(&parts.headers, message, date.as_deref())?;
            if self.state.translates_eras && date.is_some() && message.kind() == Kind::Request {
                // The route has been chosen by the headers of the request, so they must match the body.
                header_mirror::require(&parts.headers, message)?;
            }
        }
        if let Some(message) = &message
            && self.state.shared.shutdown.turns_newcomers_away()
            && message.is_method(mcp::INITIALIZE)
            && !parts.headers.contains_key(SESSION_ID)
        {
            return Err(Box::new(leaving(message.id().as_deref())));
        }
        let request_head = RequestHead::of(self.state.caller(parts), parts);
        let is_taken_over = FleetSession::of(parts).is_some_and(FleetSession::is_taken_over);
        let policy = if is_taken_over { self.state.quiet_policy() } else { &self.state.policy };
        let mut post = Box::new(Post {
            direct: Arc::clone(self),
            policy: Arc::clone(policy),
            session: request_head.session_id().and_then(|id| self.sessions.find(id)),
            request_head,
            revision: date.and_then(|date| Revision::from_date(&date)),
            message,
            members,
            write_state,
            client: parts.extensions.get().cloned(),
            own_get: None,
        });
        if self.state.route.own_get
            && (post.begins() || post.session.as_ref().is_some_and(|session| session.was_let_go()))
        {
            post.own_get = Some(Box::new(parts.headers.clone()));
        }
        Ok((post, body))
    }
}

impl Post {
    /// Sends the POST to the server, and answers the client.
    fn send(
        self: Box<Self>,
        parts: Parts,
        body: RequestBody,
    ) -> BoxFuture<'static, Response<Body>> {
        let state = &self.direct.state;
        let Some(target) = &state.endpoint else { return Box::pin(ready(no_route())) };
        let client = target.client.clone();
        let address = target.address(parts.uri.query());
        if asks(self.message.as_ref()) {
            // Before 2026-07-28 a disconnect is not a cancellation, so the request still has to reach the server.
            let is_modern = self.revision() == Some(Revision::V2026_07_28);
            set_outlives(if is_modern { Outlives::Nothing } else { Outlives::UntilSent });
            let origin = origin_of(&parts);
            let observers = Some(&*state.shared.observers);
            let (request, control) = self.request((address, parts, body), observers);
            return Box::pin(self.ask(client, request, origin, control));
        }
        let (request, control) = self.request((address, parts, body), None);
        Box::pin(self.notify(client, request, control))
    }

    async fn ask(
        self: Box<Self>,
        client: ServerClient,
        request: Request<RequestBody>,
        origin: RequestOrigin,
        control: Option<ControlSender>,
    ) -> Response<Body> {
        let permit = match self.direct.state.permit(self.client.as_ref()) {
            Ok(permit) => permit,
            Err(none) => {
                let id = self.message.as_ref().and_then(Message::id);
                return no_room(&self.direct.state, &none, id.as_deref());
            }
        };
        let mut sending: Sending = async move { client.send(request).await }.boxed();
        let revision = self.revision();
        let mut exchange = Exchange::new(
            &self.policy,
            self.session.as_ref(),
            self.message.as_ref().map(|message| (message, &self.members)),
            revision,
            origin,
            &self.direct.state.shared.observers,
            self.direct.sessions.scope(self.session.as_ref(), self.request_head.session_id()),
        );
        let listens = self.is_method(mcp::LISTEN);
        exchange.begins((!listens).then(|| self.direct.state.shared.calls.open()), control);
        if let Some(lifecycle) = self.direct.state.route.lifecycle() {
            exchange.only_answers(lifecycle);
        }
        let deadline = self.upgrades().map(|after| Instant::now() + after);
        let mut elapsed = pin!(async {
            match deadline {
                None => std::future::pending().await,
                Some(at) => sleep_until(at).await,
            }
        });
        let direct = Arc::clone(&self.direct);
        let mut ending = pin!(direct.state.shared.shutdown.wait());
        // Set while progress waits for the head, because the server may be about to begin a stream.
        let mut patience: Option<Instant> = None;
        let head = loop {
            tokio::select! {
                // The head has priority: once it is there, the client needs no early stream.
                biased;
                head = sending.as_mut() => break head,
                cancelled = exchange.next_progress(), if patience.is_none() => {
                    if let Some(answers) = cancelled {
                        return self.answered_here(answers);
                    }
                    if !self.opens_for_progress(&mut exchange) {
                        patience = Some(Instant::now() + HEAD_AFTER_MAX);
                        continue;
                    }
                }
                // A block, because `select!` would otherwise make the timer for each request, even without a waiter.
                () = async { sleep_until(patience.unwrap_or_else(Instant::now)).await },
                    if patience.is_some() => {
                    exchange.write_elsewhere();
                    patience = None;
                    continue;
                }
                () = &mut elapsed => {}
                () = &mut ending => {
                    break Err(UpstreamError::BrokenOff(crate::transport::http::shutdown::SHUTTING_DOWN));
                }
            }
            return self.upgrade(exchange, UpstreamAnswer::Head(sending), permit);
        };
        match head {
            Ok(response) => self.respond(response, exchange, deadline, permit).await,
            Err(error) => {
                exchange.release();
                self.unreachable(&error)
            }
        }
    }

    /// Sends a POST without requests, only with notifications and answers of the client.
    async fn notify(
        self: Box<Self>,
        client: ServerClient,
        request: Request<RequestBody>,
        control: Option<ControlSender>,
    ) -> Response<Body> {
        let control = control.filter(|_| self.begins());
        let open = self.direct.state.shared.calls.open();
        let announced = self.session.as_ref().zip(self.message.as_ref());
        let _notices = announced.map(|(session, message)| session.announce(message));
        match client.send(request).await {
            Err(error) => self.unreachable(&error),
            Ok(response) => {
                self.learn(response.status(), response.headers(), None);
                // The server decides who may use a session: a message that it refuses has no effect here, and Milepost
                // sends no message before the client's first one is accepted.
                if response.status().is_success()
                    && let (Some(session), Some(message)) = (&self.session, &self.message)
                {
                    let own = session.receive_one_way(message, &self.policy);
                    if let Some(control) = control {
                        own.iter().for_each(|payload| control.send(payload));
                    }
                }
                self.direct.state.forwarder.piped(response, Some(open))
            }
        }
    }

    /// Returns the settings of the request's route.
    pub(crate) fn route(&self) -> &Route {
        &self.direct.state.route
    }

    /// Returns the settings that apply to the request.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Whether the message is the client's `initialized` notification.
    fn begins(&self) -> bool {
        self.is_method(mcp::INITIALIZED)
    }

    fn is_method(&self, name: &str) -> bool {
        self.message.as_ref().is_some_and(|message| message.is_method(name))
    }

    /// Returns the revision of this request: the one that it names, or else the one agreed in its session.
    fn revision(&self) -> Option<Revision> {
        let agreed = || self.session.as_ref().and_then(|session| session.revision());
        self.revision.or_else(agreed).or(self.request_head.revision)
    }

    /// Returns the time after which the client gets a stream although the server has not answered; `None`: never.
    fn upgrades(&self) -> Option<Duration> {
        let after = self.direct.state.route.upgrade_after?;
        let message = self.message.as_ref().filter(|message| message.kind() == Kind::Request)?;
        let mut methods = self.direct.state.route.upgrade_methods.iter();
        let listed = methods.any(|listed| message.is_method(listed));
        let proven = match &self.session {
            Some(session) => session.is_proven(self.request_head.caller),
            // The server may no longer know the session, and an early stream would hide the status that says so.
            None if self.request_head.session_id().is_some() => false,
            None => self.direct.accepted.contains(self.request_head.caller),
        };
        let known = self.members.has_token() || self.request_head.names_revision;
        let wanted = (listed || message.is_method(mcp::TOOLS_CALL)) && proven && known;
        let after = if self.request_head.limits_events { after.max(LATE_UPGRADE) } else { after };
        (wanted && self.request_head.reads_events && self.origin_headers().is_some())
            .then_some(after)
    }

    /// Whether progress that came on another stream makes Milepost open a stream for the client.
    pub(crate) fn opens_for_progress(&self, exchange: &mut Exchange) -> bool {
        // A client that limits the size of events is better served with JSON.
        !self.request_head.limits_events && self.upgrades().is_some() && exchange.has_token()
    }

    /// Returns the CORS headers for the client's origin; `None` if they are not known yet.
    pub(crate) fn origin_headers(&self) -> Option<HeaderMap> {
        // If Milepost answers for CORS itself, it adds the headers to every response later.
        if self.request_head.origin.is_none() || self.direct.state.route.cors.is_some() {
            return Some(HeaderMap::new());
        }
        self.direct.origins.lock().ok()?.of(self.request_head.origin.as_ref())
    }

    /// Notes what a response of the server says about the session and the caller.
    pub(crate) fn learn(&self, status: StatusCode, headers: &HeaderMap, beside: Option<FilterId>) {
        if let (true, Some(origin), Ok(mut known)) =
            (status.is_success(), &self.request_head.origin, self.direct.origins.lock())
        {
            known.note(Some(origin), headers);
        }
        let (id, caller) = (self.request_head.session_id(), self.request_head.caller);
        if status.is_success() {
            match (&self.session, id) {
                (Some(session), _) => session.mark_accepted(caller),
                (None, None) => self.direct.accepted.accept(caller),
                (None, Some(id)) => {
                    self.direct
                        .sessions
                        .find_or_begin(id, &self.policy, SessionBeginning::Missed, beside)
                        .mark_accepted(caller);
                }
            }
            if let Some(headers) = &self.own_get {
                self.direct.hold_get(caller, HeaderMap::clone(headers), self.client.clone());
            }
        } else if status == StatusCode::UNAUTHORIZED {
            match &self.session {
                Some(session) => session.refuse(caller),
                None => self.direct.accepted.refuse(caller),
            }
        } else if status == StatusCode::NOT_FOUND {
            match id {
                Some(id) => self.direct.sessions.forget_for(id, caller),
                None => self.tell_of_missing_endpoint(headers),
            }
        }
    }

    /// Enters the session that the server has begun with this answer.
    pub(crate) fn begin(&self, headers: &HeaderMap, exchange: &mut Exchange) {
        let (Some(id), Some(message)) = (headers.get(SESSION_ID), &self.message) else { return };
        let sessions = &self.direct.sessions;
        let is_new = message.is_method(mcp::INITIALIZE);
        match &self.session {
            // Some servers send a new `Mcp-Session-Id` with every response: another name of the client's session.
            Some(session) if !is_new => sessions.also_called(id.as_bytes(), session),
            _ => {
                let policy = &self.policy;
                let beside = exchange.filter_id();
                let beginning = match is_new {
                    true => SessionBeginning::Seen,
                    false => SessionBeginning::Missed,
                };
                let session = sessions.find_or_begin(id.as_bytes(), policy, beginning, beside);
                session.mark_accepted(self.request_head.caller);
                exchange.join(&session, message, &self.policy);
            }
        }
    }

    async fn respond(
        self: Box<Self>,
        response: Response<UpstreamBody>,
        mut exchange: Box<Exchange>,
        deadline: Option<Instant>,
        permit: StreamPermit,
    ) -> Response<Body> {
        let response = self.unless_lost(response).await;
        self.learn(response.status(), response.headers(), exchange.filter_id());
        if !response.status().is_success() {
            let open = exchange.release();
            return self.direct.state.forwarder.piped(response, open);
        }
        self.begin(response.headers(), &mut exchange);
        exchange.accept(&self.policy);
        let (mut parts, body) = response.into_parts();
        if says_nothing(&parts, &body) {
            let body = Body::piped(None, body, None);
            return Box::pin(self.answer_elsewhere(parts, body, exchange, permit)).await;
        }
        if let Some(coding) = events_coding(&parts.headers, self.policy.observes()) {
            let body = take_events(&mut parts, body, coding);
            return self.events(parts, body, exchange, permit);
        }
        let kind = Content::of(&parts.headers);
        if kind == Content::Other && is_untyped(&parts.headers) {
            return Box::pin(self.untyped(parts, body, exchange, deadline, permit)).await;
        }
        match kind {
            Content::Json => self.json(parts, body, exchange, deadline, permit).await,
            Content::Events | Content::Other => self.unread(parts, body, exchange),
        }
    }

    /// Returns the response for an event stream of the server.
    pub(crate) fn events(
        self: Box<Self>,
        mut parts: http::response::Parts,
        body: PlainBody,
        exchange: Box<Exchange>,
        permit: StreamPermit,
    ) -> Response<Body> {
        self.make_readable(&mut parts, Content::Events);
        let response =
            self.direct.state.forwarder.response(parts, BodyOrigin::Milepost, Body::empty());
        let stream = self.stream(exchange, UpstreamAnswer::Events(body), permit);
        response.map(|_| stream)
    }

    /// Sets the response status to 200 and the usual content type, without which some clients do not read the body.
    pub(crate) fn make_readable(&self, parts: &mut http::response::Parts, kind: Content) {
        if !self.policy.observes() {
            parts.status = StatusCode::OK;
            kind.name_in(&mut parts.headers);
        }
    }

    /// Returns a stream for the client now; the server's answer will be an event of the stream.
    pub(crate) fn upgrade(
        self: Box<Self>,
        exchange: Box<Exchange>,
        answer: UpstreamAnswer,
        permit: StreamPermit,
    ) -> Response<Body> {
        self.direct.state.shared.counts.record_upgrade();
        let mut headers = self.origin_headers().unwrap_or_default();
        headers.extend(events_head());
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.headers = headers;
        let response =
            self.direct.state.forwarder.response(parts, BodyOrigin::Server, Body::empty());
        let stream = self.greeting_stream(exchange, answer, permit);
        response.map(|_| stream)
    }

    pub(crate) fn unreachable(&self, error: &UpstreamError) -> Response<Body> {
        let id = self.message.as_ref().and_then(Message::id);
        unreachable(&self.direct.state, error, id)
    }
}
