//! A POST to a Streamable HTTP endpoint: registered, sent on, and answered in whatever form the server
//! answers, or as a stream if it takes long (rules A3, A4, U).

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::body::{Body, RequestBody};
use super::exchange::Exchange;
use super::session::Session;
use super::site::{SESSION_ID, Site, Target};
use super::stream::{EventStream, Silence, Upstream};
use super::upstream::{UpstreamBody, UpstreamError};
use super::{Proxy, mirrored, reading, refuse};
use crate::json;
use crate::jsonrpc::{Kind, Message};
use crate::mcp::{self, Revision};

/// The header that names the revision agreed on (rule V-02).
const REVISION: &str = "mcp-protocol-version";

/// A JSON answer up to this length is held until it is whole, so that a fault in it can be mended. A
/// longer one passes as it comes; clients read neither before its end.
const JSON_HELD_MAX: usize = 256 << 10;

/// The body of an error that is read to see whether it is an answer.
const ERROR_READ_MAX: usize = 64 << 10;

type Sending = BoxFuture<'static, Result<Response<UpstreamBody>, UpstreamError>>;

/// One POST.
struct Post {
    proxy: Arc<Proxy>,
    site: Arc<Site>,
    /// The client's headers.
    headers: HeaderMap,
    session: Option<Arc<Session>>,
    message: Option<Message>,
}

impl Proxy {
    pub(super) async fn post(
        self: &Arc<Self>,
        site: &Arc<Site>,
        target: &Target,
        parts: Parts,
        body: Incoming,
        ours: bool,
    ) -> Response<Body> {
        let read = match reading::read(body, &parts.headers, site.route.max_request_bytes).await {
            Ok(read) => read,
            Err(refusal) => return refuse(&refusal, &parts),
        };
        let (message, body) = match read {
            reading::Read::Whole(bytes) => (Some(Message::parse(bytes.clone())), bytes.into()),
            reading::Read::Large(body) => (None, body),
        };
        if let Some(message) = &message
            && let Err(refusal) = mirrored::check(&parts.headers, message)
        {
            return *refusal;
        }
        let id = parts.headers.get(SESSION_ID);
        let post = Post {
            proxy: Arc::clone(self),
            site: Arc::clone(site),
            session: id.and_then(|id| site.sessions.find(id.as_bytes())),
            headers: parts.headers.clone(),
            message,
        };
        let request = self.onward(site, target, &parts, body, ours);
        post.go(target, request).await
    }
}

/// Whether a message has requests, whose answers are waited for.
fn asks(message: Option<&Message>) -> bool {
    match message {
        // One too large to be read is as likely a request as not.
        None => true,
        Some(message) => match message.kind() {
            Kind::Request => true,
            Kind::Batch => message.elements().any(|one| one.kind() == Kind::Request),
            _ => false,
        },
    }
}

impl Post {
    async fn go(self, target: &Target, request: Request<RequestBody>) -> Response<Body> {
        let client = Arc::clone(&target.client);
        if !asks(self.message.as_ref()) {
            return self.notify(client, request).await;
        }
        let Some(counted) = self.site.count() else {
            return super::unavailable("too many streams are open on this route");
        };
        let cancel = self.proxy.canceller(&self.site, &request);
        let mut sending: Sending = async move { client.send(request).await }.boxed();
        let revision = self.revision();
        let mut exchange = Exchange::new(
            &self.site.policy,
            self.session.as_ref(),
            self.message.as_ref(),
            revision,
        );
        exchange.tells(cancel);
        let deadline = self.upgrades().map(|after| Instant::now() + after);
        let head = match deadline {
            None => sending.as_mut().await,
            Some(at) => match timeout_at(at, sending.as_mut()).await {
                Ok(head) => head,
                Err(_) => return self.upgrade(exchange, Answer::Head(sending), counted),
            },
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
    async fn notify(
        self,
        client: Arc<super::upstream::Client>,
        request: Request<RequestBody>,
    ) -> Response<Body> {
        if let (Some(session), Some(message)) = (&self.session, &self.message) {
            session.told(message);
        }
        match client.send(request).await {
            Err(error) => self.unreachable(&error),
            Ok(response) => {
                self.learn(response.status(), response.headers());
                let begun = self.message.as_ref().and_then(Message::method);
                if response.status().is_success()
                    && begun.as_deref() == Some("notifications/initialized")
                {
                    self.proxy.hold_get(&self.site, &self.headers);
                }
                self.proxy.piped(&self.site, &self.headers, response)
            }
        }
    }

    /// The revision that holds for this request, unless it says so itself.
    fn revision(&self) -> Option<Revision> {
        let own = self.message.as_ref().and_then(own_revision);
        let agreed = || self.session.as_ref().and_then(|session| session.revision());
        let date = || self.headers.get(REVISION)?.to_str().ok().and_then(Revision::from_date);
        own.or_else(agreed).or_else(date)
    }

    /// When the client gets a stream although the server has not answered (rule A4); `None`: never.
    fn upgrades(&self) -> Option<std::time::Duration> {
        let after = self.site.route.upgrade_after?;
        let message = self.message.as_ref().filter(|message| message.kind() == Kind::Request)?;
        let method = message.method()?;
        let listed = self.site.route.upgrade_methods.iter().any(|listed| *listed == *method);
        let proven = match &self.session {
            Some(session) => session.is_proven(),
            None => self.site.is_proven(&self.headers),
        };
        let meta = json::member(&message.params().unwrap_or_default(), "_meta");
        let token = meta.and_then(|meta| json::member(&meta, "progressToken"));
        let known = token.is_some() || self.headers.contains_key(REVISION);
        let wanted = (listed || method == mcp::TOOLS_CALL) && proven && known;
        (wanted && accepts_events(&self.headers) && self.origin_headers().is_some())
            .then_some(after)
    }

    /// What the client's origin has to be told; `None` if that is not known yet.
    fn origin_headers(&self) -> Option<HeaderMap> {
        if !self.headers.contains_key(header::ORIGIN) {
            return Some(HeaderMap::new());
        }
        if let Some(cors) = &self.site.route.cors {
            let mut headers = HeaderMap::new();
            super::cors::answer(Some(cors), &self.headers, &mut headers);
            return Some(headers);
        }
        self.site.known_origins.lock().ok()?.of(&self.headers)
    }

    /// What a response of the server tells of the session and of the caller.
    fn learn(&self, status: StatusCode, headers: &HeaderMap) {
        if let Ok(mut known) = self.site.known_origins.lock() {
            known.note(&self.headers, headers);
        }
        let id = self.headers.get(SESSION_ID);
        if status.is_success() {
            match (&self.session, id) {
                (Some(session), _) => session.prove(true),
                (None, None) => self.site.prove(&self.headers, true),
                (None, Some(id)) => {
                    let policy = &self.site.policy;
                    self.site.sessions.find_or_begin(id.as_bytes(), policy, true).prove(true);
                }
            }
        } else if status == StatusCode::UNAUTHORIZED {
            match &self.session {
                Some(session) => session.prove(false),
                None => self.site.prove(&self.headers, false),
            }
        } else if status == StatusCode::NOT_FOUND
            && let Some(id) = id
        {
            self.site.sessions.forget(id.as_bytes());
        }
    }

    /// The session that the server has begun with this answer.
    fn begin(&self, headers: &HeaderMap, exchange: &mut Exchange) {
        let (Some(id), Some(message)) = (headers.get(SESSION_ID), &self.message) else { return };
        let sessions = &self.site.sessions;
        let is_new = message.method().as_deref() == Some(mcp::INITIALIZE);
        match &self.session {
            // Some servers name a new session in every answer: it means the client's own then.
            Some(session) if !is_new => sessions.also_called(id.as_bytes(), session),
            _ => {
                let session = sessions.find_or_begin(id.as_bytes(), &self.site.policy, !is_new);
                session.prove(true);
                exchange.join(&session, message);
            }
        }
    }

    async fn respond(
        self,
        response: Response<UpstreamBody>,
        mut exchange: Exchange,
        deadline: Option<Instant>,
        counted: super::site::Counted,
    ) -> Response<Body> {
        self.learn(response.status(), response.headers());
        if response.status() != StatusCode::OK {
            exchange.release();
            return self.proxy.piped(&self.site, &self.headers, response);
        }
        self.begin(response.headers(), &mut exchange);
        let kind = Content::of(response.headers());
        let (parts, body) = response.into_parts();
        match kind {
            Content::Events => {
                let (site, asked) = (&self.site, &self.headers);
                let response = self.proxy.answered(site, asked, parts, true, Body::empty());
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
                exchange.release();
                self.proxy.piped(&self.site, &self.headers, Response::from_parts(parts, body))
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
        counted: super::site::Counted,
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
                            let answer = Answer::Json(JsonBody::new(body, held));
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
                        return self.proxy.answered(
                            &self.site,
                            &self.headers,
                            parts,
                            changed,
                            body,
                        );
                    }
                }
            }
        }
        // Nothing can be said behind it, and it ends its requests: it need not be looked at.
        exchange.release();
        let held = (!held.is_empty()).then(|| joined(held));
        let body = Body::piped(held, body);
        self.proxy.answered(&self.site, &self.headers, parts, false, body)
    }

    /// The client gets a stream now; what the server answers will be an event on it.
    fn upgrade(
        self,
        exchange: Exchange,
        answer: Answer,
        counted: super::site::Counted,
    ) -> Response<Body> {
        let mut headers = self.origin_headers().unwrap_or_default();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.headers = headers;
        let response = self.proxy.answered(&self.site, &self.headers, parts, false, Body::empty());
        let stream = self.stream(exchange, answer, counted, true);
        response.map(|_| stream)
    }

    fn stream(
        self,
        exchange: Exchange,
        answer: Answer,
        counted: super::site::Counted,
        greets: bool,
    ) -> Body {
        let silence =
            Silence { keep_alive: self.site.route.keep_alive, idle: self.site.route.idle_timeout };
        let proxy = Arc::clone(&self.proxy);
        // What an answer that has begun may yet teach needs no headers.
        let post = (!matches!(answer, Answer::Events(_))).then_some(self);
        let upstream = PostUpstream { answer, post };
        proxy.stream(EventStream::new(exchange, upstream, silence, greets), counted)
    }

    fn unreachable(&self, error: &UpstreamError) -> Response<Body> {
        let id = self.message.as_ref().and_then(Message::id);
        super::unreachable(&self.site, error, Method::POST, id)
    }
}

fn own_revision(message: &Message) -> Option<Revision> {
    let meta = json::member(&message.params()?, "_meta")?;
    let date = json::member(&meta, mcp::META_REVISION)?;
    Revision::from_date(&json::words(&date)?)
}

fn joined(pieces: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(pieces) {
        Ok([only]) => only,
        Err(pieces) => Bytes::from(pieces.concat()),
    }
}

/// Whether a client says in so many words that it reads events (rule U-01).
fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("text/event-stream"));
        let refused = parts.any(|part| {
            part.to_ascii_lowercase().strip_prefix("q=").and_then(|q| q.trim().parse().ok())
                == Some(0.0)
        });
        named && !refused
    })
}

/// What a body is, as far as we can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Events,
    Json,
    Other,
}

impl Content {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let encoded = headers
            .get(header::CONTENT_ENCODING)
            .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match kind {
            _ if encoded => Self::Other,
            kind if kind.eq_ignore_ascii_case("text/event-stream") => Self::Events,
            kind if kind.eq_ignore_ascii_case("application/json") => Self::Json,
            _ => Self::Other,
        }
    }
}

/// What the server of a POST answers with, as far as is known.
enum Answer {
    /// Nothing yet.
    Head(Sending),
    Events(UpstreamBody),
    /// JSON, which the client gets as an event.
    Json(JsonBody),
    /// A status that is no success, and the beginning of its body.
    Failure(StatusCode, UpstreamBody, BytesMut),
    Over,
}

/// A JSON body that becomes an event.
struct JsonBody {
    body: UpstreamBody,
    held: std::collections::VecDeque<Bytes>,
    begun: bool,
}

impl JsonBody {
    fn new(body: UpstreamBody, held: Vec<Bytes>) -> Self {
        Self { body, held: held.into(), begun: false }
    }
}

struct PostUpstream {
    answer: Answer,
    /// Who asked, while the server has not answered.
    post: Option<Post>,
}

impl PostUpstream {
    fn begin(&mut self, response: Response<UpstreamBody>, exchange: &mut Exchange) {
        let (parts, body) = response.into_parts();
        if let Some(post) = &self.post {
            post.learn(parts.status, &parts.headers);
            if parts.status == StatusCode::OK {
                post.begin(&parts.headers, exchange);
            }
        }
        self.answer = match Content::of(&parts.headers) {
            Content::Events if parts.status == StatusCode::OK => Answer::Events(body),
            Content::Json if parts.status == StatusCode::OK => {
                Answer::Json(JsonBody::new(body, Vec::new()))
            }
            _ => Answer::Failure(parts.status, body, BytesMut::new()),
        };
    }
}

/// Line ends in JSON text are space between its parts; in an event they would end a line.
fn on_one_line(chunk: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &chunk).is_none() {
        return chunk;
    }
    chunk.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

impl Upstream<Exchange> for PostUpstream {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            match &mut self.answer {
                Answer::Over => return Poll::Ready(None),
                Answer::Events(body) => return body.poll_data(cx),
                Answer::Head(sending) => match std::task::ready!(sending.as_mut().poll(cx)) {
                    Ok(response) => self.begin(response, exchange),
                    Err(error) => {
                        self.answer = Answer::Over;
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                Answer::Json(json) => {
                    if !std::mem::replace(&mut json.begun, true) {
                        return Poll::Ready(Some(Ok(Bytes::from_static(
                            b"event: message\ndata: ",
                        ))));
                    }
                    if let Some(chunk) = json.held.pop_front() {
                        return Poll::Ready(Some(Ok(on_one_line(chunk))));
                    }
                    match std::task::ready!(json.body.poll_data(cx)) {
                        Some(Ok(chunk)) => return Poll::Ready(Some(Ok(on_one_line(chunk)))),
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                        None => {
                            self.answer = Answer::Over;
                            return Poll::Ready(Some(Ok(Bytes::from_static(b"\n\n"))));
                        }
                    }
                }
                Answer::Failure(status, body, read) => {
                    let next = std::task::ready!(body.poll_data(cx));
                    if let Some(Ok(chunk)) = next
                        && read.len() < ERROR_READ_MAX
                    {
                        read.extend_from_slice(&chunk);
                        continue;
                    }
                    let (status, text) = (*status, read.split().freeze());
                    self.answer = Answer::Over;
                    let answer = Message::parse(on_one_line(text));
                    if answer.kind() == Kind::Response && exchange.awaits(&answer) {
                        return Poll::Ready(Some(Ok(crate::sse::write(answer.raw()))));
                    }
                    tracing::warn!(
                        route = self.post.as_ref().map(|post| &*post.site.route.path),
                        %status,
                        "the server refused a request whose answer had begun as a stream"
                    );
                    exchange.fail(
                        &format!("the server answered with HTTP status {status}"),
                        Some(status.as_u16()),
                    );
                }
            }
        }
    }
}
