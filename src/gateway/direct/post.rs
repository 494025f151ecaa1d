//! A POST to a Streamable HTTP endpoint: it is registered, forwarded, and answered in the form in which the server
//! answers, or as an event stream if no answer comes in time.

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, header};
use tokio::time::{Instant, sleep_until};

use super::exchange::Exchange;
use super::session::Session;
use super::{Direct, stream_body};
use crate::config::routes::Route;
use crate::gateway::client_limits::LimitedClient;
use crate::gateway::direct::control::ControlSender;
use crate::gateway::direct::event_stream::{EventStream, Silence};
use crate::gateway::direct::response::{PostUpstream, UpstreamAnswer, says_nothing};
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

/// The longest time that progress from another stream waits for the head of the response, if the client gets no stream
/// before the head. After it the progress is written on the other stream.
const HEAD_AFTER_MAX: Duration = Duration::from_millis(100);

/// One POST.
pub(crate) struct Post {
    pub(crate) direct: Arc<Direct>,
    pub(crate) request_head: RequestHead,
    session: Option<Arc<Session>>,
    pub(super) message: Option<Message>,
    /// The members of the message that decide about it.
    members: RequestMembers,
    /// The revision that the message names.
    revision: Option<Revision>,
    write_state: WriteState,
    client: Option<LimitedClient>,
    /// The headers for a stream that Milepost holds in the session from now on, once the server accepts the
    /// message.
    own_get: Option<Box<HeaderMap>>,
    /// The settings of the request.
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
        proxy_auth: bool,
        write_state: WriteState,
    ) -> impl Future<Output = Response<Body>> + Send + use<> {
        async move {
            let read = match read_or_refuse(&self.state, body, &parts).await {
                Ok(read) => read,
                Err(refusal) => return *refusal,
            };
            let (post, body) = match self.begin_post(read, &mut parts, proxy_auth, write_state) {
                Ok(begun) => begun,
                Err(refusal) => return *refusal,
            };
            // Boxed: otherwise the future that reads the body would reserve memory for all later steps.
            post.send(parts, body, proxy_auth).await
        }
    }

    /// Returns the data of a POST whose body has been read, and the body for the server.
    fn begin_post(
        self: &Arc<Self>,
        read: ReadBody,
        parts: &mut Parts,
        proxy_auth: bool,
        write_state: WriteState,
    ) -> Result<(Box<Post>, RequestBody), Box<Response<Body>>> {
        let (message, body) =
            request_body::for_server(read, &self.state.policy, &mut parts.headers);
        let members = message.as_ref().map(RequestMembers::of).unwrap_or_default();
        let date = members.date();
        if let Some(message) = &message {
            header_mirror::check(&parts.headers, message, date.as_deref())?;
            if self.state.translates_eras && date.is_some() && message.kind() == Kind::Request {
                // The path of the request was chosen by its headers. If they do not match the body, the path may be
                // wrong.
                header_mirror::require(&parts.headers, message)?;
            }
        }
        if let Some(message) = &message
            && self.state.shared.shutdown.turns_newcomers_away()
            && message.method().as_deref() == Some(mcp::INITIALIZE)
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
            let mut headers = Box::new(parts.headers.clone());
            if proxy_auth {
                headers.remove(header::AUTHORIZATION);
            }
            post.own_get = Some(headers);
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
        proxy_auth: bool,
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
            let is_seen = state.shared.observers.has_any();
            let (request, control) = self.request((address, parts, body), proxy_auth, is_seen);
            return Box::pin(self.ask(client, request, origin, control));
        }
        let (request, control) = self.request((address, parts, body), proxy_auth, false);
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
        let method = self.message.as_ref().and_then(Message::method);
        let listens = method.as_deref() == Some(mcp::LISTEN);
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
        // Set while progress waits for the head: the server may be about to begin a stream.
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
                // A block: `select!` would make the timer for each request, also where nothing waits for it.
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

    /// Sends a POST without requests: notifications and answers of the client.
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
                // The server decides who may use a session, so a message that it refuses has no effect, and Milepost
                // must not add messages before the client's first one.
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

    /// The settings of the request's route.
    pub(crate) fn route(&self) -> &Route {
        &self.direct.state.route
    }

    /// The settings of the request.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Whether the message is the client's `initialized` notification.
    fn begins(&self) -> bool {
        let method = self.message.as_ref().and_then(Message::method);
        method.as_deref() == Some(mcp::INITIALIZED)
    }

    /// The revision of this request where the request names none.
    fn revision(&self) -> Option<Revision> {
        let agreed = || self.session.as_ref().and_then(|session| session.revision());
        self.revision.or_else(agreed).or(self.request_head.revision)
    }

    /// The time after which the client gets a stream although the server has not answered; `None`: never.
    fn upgrades(&self) -> Option<Duration> {
        let after = self.direct.state.route.upgrade_after?;
        let message = self.message.as_ref().filter(|message| message.kind() == Kind::Request)?;
        let method = message.method()?;
        let listed =
            self.direct.state.route.upgrade_methods.iter().any(|listed| *listed == *method);
        let proven = match &self.session {
            Some(session) => session.is_proven(self.request_head.caller),
            // The server may no longer know the session, and must be able to say so with a status.
            None if self.request_head.session_id().is_some() => false,
            None => self.direct.accepted.contains(self.request_head.caller),
        };
        let known = self.members.has_token() || self.request_head.names_revision;
        let wanted = (listed || method == mcp::TOOLS_CALL) && proven && known;
        let after = if self.request_head.limits_events { after.max(LATE_UPGRADE) } else { after };
        (wanted && self.request_head.reads_events && self.origin_headers().is_some())
            .then_some(after)
    }

    /// Whether the client gets a stream for progress that has come on another stream.
    pub(crate) fn opens_for_progress(&self, exchange: &mut Exchange) -> bool {
        // A client that accepts only short events is better served with JSON.
        !self.request_head.limits_events && self.upgrades().is_some() && exchange.has_token()
    }

    /// The CORS headers for the client's origin; `None` if they are not known yet.
    pub(crate) fn origin_headers(&self) -> Option<HeaderMap> {
        // Where the proxy answers for CORS itself, it does so for every response.
        if self.request_head.origin.is_none() || self.direct.state.route.cors.is_some() {
            return Some(HeaderMap::new());
        }
        self.direct.origins.lock().ok()?.of(self.request_head.origin.as_ref())
    }

    /// Learns about the session and the caller from a response of the server.
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
                (None, None) => self.direct.accepted.set(caller, true),
                (None, Some(id)) => {
                    self.direct
                        .sessions
                        .find_or_begin(id, &self.policy, true, beside)
                        .mark_accepted(caller);
                }
            }
            if let Some(headers) = &self.own_get {
                self.direct.hold_get(caller, HeaderMap::clone(headers), self.client.clone());
            }
        } else if status == StatusCode::UNAUTHORIZED {
            match &self.session {
                Some(session) => session.refuse(caller),
                None => self.direct.accepted.set(caller, false),
            }
        } else if status == StatusCode::NOT_FOUND {
            match id {
                Some(id) => self.direct.sessions.forget_for(id, caller),
                None => self.tell_of_missing_endpoint(headers),
            }
        }
    }

    /// The session that the server has begun with this answer.
    pub(crate) fn begin(&self, headers: &HeaderMap, exchange: &mut Exchange) {
        let (Some(id), Some(message)) = (headers.get(SESSION_ID), &self.message) else { return };
        let sessions = &self.direct.sessions;
        let is_new = message.method().as_deref() == Some(mcp::INITIALIZE);
        match &self.session {
            // Some servers send a new `Mcp-Session-Id` with every response: it names the client's session too.
            Some(session) if !is_new => sessions.also_called(id.as_bytes(), session),
            _ => {
                let policy = &self.policy;
                let beside = exchange.filter_id();
                let session = sessions.find_or_begin(id.as_bytes(), policy, !is_new, beside);
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

    /// Passes a stream of events on.
    pub(crate) fn events(
        self: Box<Self>,
        mut parts: http::response::Parts,
        body: PlainBody,
        exchange: Box<Exchange>,
        permit: StreamPermit,
    ) -> Response<Body> {
        self.make_readable(&mut parts, Content::Events);
        let response = self.direct.state.forwarder.response(parts, true, Body::empty());
        let stream = self.stream(exchange, UpstreamAnswer::Events(body), permit, false);
        response.map(|_| stream)
    }

    /// Sets the response status to 200 and the usual content type: some clients read only such a body.
    pub(crate) fn make_readable(&self, parts: &mut http::response::Parts, kind: Content) {
        if !self.policy.observes() {
            parts.status = StatusCode::OK;
            kind.name_in(&mut parts.headers);
        }
    }

    /// Gives the client a stream now; the server's answer will be an event of the stream.
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
        let response = self.direct.state.forwarder.response(parts, false, Body::empty());
        let stream = self.stream(exchange, answer, permit, true);
        response.map(|_| stream)
    }

    pub(crate) fn stream(
        self: Box<Self>,
        exchange: Box<Exchange>,
        answer: UpstreamAnswer,
        permit: StreamPermit,
        has_greeting: bool,
    ) -> Body {
        // A server that answers on another stream says nothing here.
        let is_elsewhere = matches!(answer, UpstreamAnswer::Elsewhere);
        let silence = Silence {
            keep_alive: self.direct.state.route.keep_alive,
            idle: self.direct.state.route.idle_timeout.filter(|_| !is_elsewhere),
        };
        let write_state = self.write_state.clone();
        // The headers of the answer have been read, so its POST is no longer needed.
        let has_begun = matches!(answer, UpstreamAnswer::Events(_) | UpstreamAnswer::Elsewhere);
        let post = (!has_begun).then_some(self);
        let upstream = PostUpstream { answer, post };
        let mut stream = EventStream::new(*exchange, upstream, silence, write_state);
        if has_greeting {
            stream.send_comment_first();
        }
        stream_body::of_call(stream, permit)
    }

    pub(crate) fn unreachable(&self, error: &UpstreamError) -> Response<Body> {
        let id = self.message.as_ref().and_then(Message::id);
        unreachable(&self.direct.state, error, id)
    }
}
