//! A POST to a Streamable HTTP endpoint: registered, sent on, and answered in whatever form the server
//! answers, or as a stream if it takes long (rules A3, A4, U).

use crate::transport::mcp_http::request_body::{Posted, asks};
use crate::transport::mcp_http::request_head::{LATE_UPGRADE, RequestHead};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::exchange::Exchange;
use super::session::Session;
use crate::gateway::direct::event_stream::{EventStream, Silence};
use crate::gateway::direct::response::{Answer, JsonBody, PostUpstream};
use crate::gateway::dispatch::Proxy;
use crate::gateway::refusals::refuse;
use crate::gateway::route_state::Site;
use crate::observe::events::FilterId;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::lines::INSPECT_MAX;
use crate::protocol::mcp::Revision;
use crate::protocol::trace_context::TraceContext;
use crate::protocol::{json, mcp};
use crate::relay::trace_of;
use crate::transport::http::body::Body;
use crate::transport::http::client::{Sending, UpstreamBody, UpstreamError};
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::write_state::Outlet;
use crate::transport::mcp_http::content::Content;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::target::Target;
use crate::transport::mcp_http::{header_mirror, request_body};

/// The longest JSON answer, in bytes, that is held whole so that a fault in it can be repaired. A
/// longer answer is forwarded while it arrives.
const JSON_HELD_MAX: usize = 256 << 10;

/// One POST.
pub(crate) struct Post {
    proxy: Arc<Proxy>,
    pub(crate) site: Arc<Site>,
    asked: RequestHead,
    session: Option<Arc<Session>>,
    message: Option<Message>,
    outlet: Outlet,
}

impl Proxy {
    pub(crate) async fn post(
        self: &Arc<Self>,
        site: &Arc<Site>,
        target: &Target,
        mut parts: Parts,
        body: Posted,
        ours: bool,
        outlet: Outlet,
    ) -> Response<Body> {
        let read = match request_body::read(
            body,
            &parts.headers,
            site.route.max_request_bytes,
            INSPECT_MAX,
        )
        .await
        {
            Ok(read) => read,
            Err(unread) => return refuse(site, &unread, parts.version),
        };
        let (message, body) = request_body::for_server(read, &site.policy, &mut parts.headers);
        if let Some(message) = &message
            && let Err(refusal) = header_mirror::check(&parts.headers, message)
        {
            return *refusal;
        }
        let asked = RequestHead::of(site.caller(&parts.headers), &parts);
        let post = Post {
            proxy: Arc::clone(self),
            site: Arc::clone(site),
            session: asked.session_id().and_then(|id| site.sessions.find(id)),
            asked,
            message,
            outlet,
        };
        if asks(post.message.as_ref()) {
            let trace = trace_of(&parts.headers);
            let request = self.onward(site, target, parts, body, ours);
            return post.ask(target, request, trace).await;
        }
        let own = (post.begins() && site.route.own_get).then(|| {
            let mut headers = parts.headers.clone();
            if ours {
                headers.remove(header::AUTHORIZATION);
            }
            headers
        });
        let request = self.onward(site, target, parts, body, ours);
        Box::pin(post.tell(target, request, own)).await
    }
}

impl Post {
    async fn ask(
        self,
        target: &Target,
        request: Request<RequestBody>,
        trace: Option<TraceContext>,
    ) -> Response<Body> {
        let client = target.client.clone();
        let Some(counted) = self.site.count() else {
            return crate::gateway::refusals::unavailable(
                "too many streams are open on this route",
            );
        };
        let cancel = self.proxy.teller(&self.site, &client, &request);
        let mut sending: Sending = async move { client.send(request).await }.boxed();
        let revision = self.revision();
        let mut exchange = Exchange::new(
            &self.site.policy,
            self.session.as_ref(),
            self.message.as_ref(),
            revision,
            trace,
            &self.site.audience,
        );
        let method = self.message.as_ref().and_then(Message::method);
        let listens = method.as_deref() == Some(mcp::LISTEN);
        exchange.begins((!listens).then(|| self.site.calls.open()), cancel);
        if let Some(lifecycle) = self.site.route.lifecycle() {
            exchange.only_answers(lifecycle);
        }
        let deadline = self.upgrades().map(|after| Instant::now() + after);
        let elapsed = async {
            match deadline {
                None => std::future::pending().await,
                Some(at) => sleep_until(at).await,
            }
        };
        let head = tokio::select! {
            biased;
            head = sending.as_mut() => head,
            () = elapsed => return self.upgrade(exchange, Answer::Head(sending), counted),
            () = self.proxy.ending.wait() => {
                Err(UpstreamError::BrokenOff(crate::transport::http::shutdown::SHUTTING_DOWN))
            }
        };
        match head {
            Ok(response) => self.respond(response, exchange, deadline, counted).await,
            Err(error) => {
                exchange.release();
                self.unreachable(&error)
            }
        }
    }

    /// A POST that asks nothing: notifications and answers of the client.
    async fn tell(
        self,
        target: &Target,
        request: Request<RequestBody>,
        own_get: Option<HeaderMap>,
    ) -> Response<Body> {
        let begins = self.begins();
        let tell = self.proxy.teller(&self.site, &target.client, &request).filter(|_| begins);
        let told = || {
            let session = self.session.as_ref()?;
            Some(session.told(self.message.as_ref()?, &self.site.policy))
        };
        if !begins {
            told();
        }
        let open = self.site.calls.open();
        match target.client.send(request).await {
            Err(error) => self.unreachable(&error),
            Ok(response) => {
                self.learn(response.status(), response.headers(), None);
                // Nothing may come before it.
                if begins && response.status().is_success() {
                    let ours = told().unwrap_or_default();
                    if let Some(tell) = tell {
                        ours.into_iter().for_each(tell);
                    }
                }
                if let Some(headers) = own_get.filter(|_| response.status().is_success()) {
                    self.proxy.hold_get(&self.site, self.asked.caller, headers);
                }
                self.proxy.piped(&self.site, response, Some(open))
            }
        }
    }

    /// Whether the client says that its session can begin.
    fn begins(&self) -> bool {
        let method = self.message.as_ref().and_then(Message::method);
        method.as_deref() == Some(mcp::INITIALIZED)
    }

    /// The revision that holds for this request, unless it says so itself.
    fn revision(&self) -> Option<Revision> {
        let own = self.message.as_ref().and_then(header_mirror::date_in);
        let own = own.and_then(|date| Revision::from_date(&date));
        let agreed = || self.session.as_ref().and_then(|session| session.revision());
        own.or_else(agreed).or(self.asked.revision)
    }

    /// When the client gets a stream although the server has not answered (rule A4); `None`: never.
    fn upgrades(&self) -> Option<Duration> {
        let after = self.site.route.upgrade_after?;
        let message = self.message.as_ref().filter(|message| message.kind() == Kind::Request)?;
        let method = message.method()?;
        let listed = self.site.route.upgrade_methods.iter().any(|listed| *listed == *method);
        let proven = match &self.session {
            Some(session) => session.is_proven(),
            // The server may have lost it, and says so with a status.
            None if self.asked.session_id().is_some() => false,
            None => self.site.proven.contains(self.asked.caller),
        };
        let meta = json::member(&message.params().unwrap_or_default(), "_meta");
        let token = meta.and_then(|meta| json::member(&meta, "progressToken"));
        let known = token.is_some() || self.asked.names_revision;
        let wanted = (listed || method == mcp::TOOLS_CALL) && proven && known;
        let after = if self.asked.limits_events { after.max(LATE_UPGRADE) } else { after };
        (wanted && self.asked.reads_events && self.origin_headers().is_some()).then_some(after)
    }

    /// What the client's origin has to be told; `None` if that is not known yet.
    fn origin_headers(&self) -> Option<HeaderMap> {
        // Where the proxy answers for CORS itself, it does so for every response.
        if self.asked.origin.is_none() || self.site.route.cors.is_some() {
            return Some(HeaderMap::new());
        }
        self.site.known_origins.lock().ok()?.of(self.asked.origin.as_ref())
    }

    /// What a response of the server tells of the session and of the caller.
    pub(crate) fn learn(&self, status: StatusCode, headers: &HeaderMap, beside: Option<FilterId>) {
        if let (Some(origin), Ok(mut known)) = (&self.asked.origin, self.site.known_origins.lock())
        {
            known.note(Some(origin), headers);
        }
        let id = self.asked.session_id();
        if status.is_success() {
            match (&self.session, id) {
                (Some(session), _) => session.prove(true),
                (None, None) => self.site.proven.set(self.asked.caller, true),
                (None, Some(id)) => {
                    let policy = &self.site.policy;
                    self.site.sessions.find_or_begin(id, policy, true, beside).prove(true);
                }
            }
        } else if status == StatusCode::UNAUTHORIZED {
            match &self.session {
                Some(session) => session.prove(false),
                None => self.site.proven.set(self.asked.caller, false),
            }
        } else if status == StatusCode::NOT_FOUND
            && let Some(id) = id
        {
            self.site.sessions.forget(id);
        }
    }

    /// The session that the server has begun with this answer.
    pub(crate) fn begin(&self, headers: &HeaderMap, exchange: &mut Exchange) {
        let (Some(id), Some(message)) = (headers.get(SESSION_ID), &self.message) else { return };
        let sessions = &self.site.sessions;
        let is_new = message.method().as_deref() == Some(mcp::INITIALIZE);
        match &self.session {
            // Some servers name a new session in every answer: it means the client's own then.
            Some(session) if !is_new => sessions.also_called(id.as_bytes(), session),
            _ => {
                let policy = &self.site.policy;
                let beside = exchange.filter_id();
                let session = sessions.find_or_begin(id.as_bytes(), policy, !is_new, beside);
                session.prove(true);
                exchange.join(&session, message, &self.site.policy);
            }
        }
    }

    async fn respond(
        self,
        response: Response<UpstreamBody>,
        mut exchange: Exchange,
        deadline: Option<Instant>,
        counted: crate::gateway::route_state::Counted,
    ) -> Response<Body> {
        self.learn(response.status(), response.headers(), exchange.filter_id());
        if response.status() != StatusCode::OK {
            let open = exchange.release();
            return self.proxy.piped(&self.site, response, open);
        }
        self.begin(response.headers(), &mut exchange);
        let kind = Content::of(response.headers());
        let (parts, body) = response.into_parts();
        match kind {
            Content::Events => {
                let response = self.proxy.answered(&self.site, parts, true, Body::empty());
                let stream = self.stream(exchange, Answer::Events(body), counted, false);
                response.map(|_| stream)
            }
            Content::Json => self.json(parts, body, exchange, deadline, counted).await,
            Content::Other => {
                if parts.headers.contains_key(header::CONTENT_ENCODING) {
                    tracing::warn!(
                        route = self.site.route.path,
                        "the server compresses although asked not to; this answer is not looked at"
                    );
                }
                let open = exchange.release();
                self.proxy.piped(&self.site, Response::from_parts(parts, body), open)
            }
        }
    }

    /// A JSON answer: held while it is short, so that it can be mended.
    async fn json(
        self,
        parts: http::response::Parts,
        mut body: UpstreamBody,
        mut exchange: Exchange,
        deadline: Option<Instant>,
        counted: crate::gateway::route_state::Counted,
    ) -> Response<Body> {
        let mut held = Vec::new();
        let mut bytes = 0;
        let long = |size: usize| size > JSON_HELD_MAX;
        let announced = body.size().lower();
        if usize::try_from(announced).is_ok_and(|size| !long(size)) {
            loop {
                let next = std::future::poll_fn(|cx| body.poll_data(cx));
                let next = match deadline {
                    None => next.await,
                    Some(at) => match timeout_at(at, next).await {
                        Ok(next) => next,
                        Err(_) => {
                            let answer = Answer::Json(JsonBody::new(body.into(), held));
                            return self.upgrade(exchange, answer, counted);
                        }
                    },
                };
                match next {
                    Some(Ok(chunk)) => {
                        bytes += chunk.len();
                        held.push(chunk);
                        if long(bytes) {
                            break;
                        }
                    }
                    Some(Err(error)) => {
                        exchange.release();
                        return self.unreachable(&error);
                    }
                    None => {
                        let whole = joined(held);
                        let told = exchange.body(&whole);
                        let changed = told.is_some();
                        let body = Body::from(told.unwrap_or(whole));
                        return self.proxy.answered(&self.site, parts, changed, body);
                    }
                }
            }
        }
        // Nothing can be said behind it, and it ends its requests: it need not be looked at.
        let open = exchange.release();
        let held = (!held.is_empty()).then(|| joined(held));
        let body = Body::piped(held, body, open);
        self.proxy.answered(&self.site, parts, false, body)
    }

    /// The client gets a stream now; what the server answers will be an event on it.
    fn upgrade(
        self,
        exchange: Exchange,
        answer: Answer,
        counted: crate::gateway::route_state::Counted,
    ) -> Response<Body> {
        self.site.counts.upgraded();
        let mut headers = self.origin_headers().unwrap_or_default();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.headers = headers;
        let response = self.proxy.answered(&self.site, parts, false, Body::empty());
        let stream = self.stream(exchange, answer, counted, true);
        response.map(|_| stream)
    }

    fn stream(
        self,
        exchange: Exchange,
        answer: Answer,
        counted: crate::gateway::route_state::Counted,
        greets: bool,
    ) -> Body {
        let silence =
            Silence { keep_alive: self.site.route.keep_alive, idle: self.site.route.idle_timeout };
        let (proxy, outlet) = (Arc::clone(&self.proxy), self.outlet.clone());
        // What an answer that has begun may yet teach needs no headers.
        let post = (!matches!(answer, Answer::Events(_))).then_some(self);
        let upstream = PostUpstream { answer, post };
        let mut stream = EventStream::new(exchange, upstream, silence, outlet);
        if greets {
            stream.greet();
        }
        proxy.stream(stream, counted)
    }

    fn unreachable(&self, error: &UpstreamError) -> Response<Body> {
        let id = self.message.as_ref().and_then(Message::id);
        crate::gateway::refusals::unreachable(&self.site, error, id)
    }
}

fn joined(pieces: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(pieces) {
        Ok([only]) => only,
        Err(pieces) => Bytes::from(pieces.concat()),
    }
}
