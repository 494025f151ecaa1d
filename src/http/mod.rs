//! The data path of `milepost serve`: requests for a route, and what its server says to them.
//!
//! ```text
//! client ──> post ──> Exchange::new (its filter) ──> upstream ──> server
//!                          │ enters                     │
//!                      [session]  <── Listening ── GET  │ response
//!                          │ mail                       │
//! client <── body <── EventStream <── Exchange <── sse <┘
//! ```
//!
//! Each exchange is one value in one task: the client's connection polls the body of its response, and
//! that reads the server's connection. Only what a session's streams have to know of each other is
//! shared (`session`).

pub(crate) mod authority;
mod body;
pub mod cors;
mod demo;
mod exchange;
mod get;
pub mod headers;
mod legacy;
mod mailbox;
mod marks;
mod mirrored;
mod own_get;
pub mod places;
mod post;
mod reading;
mod refusal;
mod session;
mod site;
mod stream;
mod upstream;
mod via;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use tokio::sync::futures::OwnedNotified;

use crate::jsonrpc::own_error;
use crate::progress::Policy;
use crate::routes::{Route, Routes};
use body::{RequestBody, Source};
use headers::{Onward, Passage};
use places::{Part, Place};
use post::Content;
use site::{Counted, SESSION_ID, Site, Target};
use stream::{EventStream, Judge, Silence, Upstream};
use upstream::UpstreamBody;

pub use body::Body;
pub use refusal::Refusal;
pub use site::SiteError;
pub use upstream::{InProcess, Io, UpstreamError, Wire};
pub use via::Via;

fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// An error and what led to it, on one line.
fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Every route while it is served.
pub struct Proxy {
    sites: Vec<Arc<Site>>,
    via: Via,
    ending: Arc<tokio::sync::Notify>,
    ended: AtomicBool,
}

impl Proxy {
    /// Nothing is connected before the first request.
    ///
    /// # Errors
    /// If a route's certificates cannot be used or its address is none.
    pub fn new(routes: &Routes, via: Via) -> Result<Arc<Self>, SiteError> {
        Self::reaching(routes, via, None)
    }

    /// The same; servers that are reached over HTTP are reached through `connect`, if there is one,
    /// instead of the network.
    ///
    /// # Errors
    /// If a route's certificates cannot be used or its address is none.
    pub fn reaching(
        routes: &Routes,
        via: Via,
        connect: Option<&InProcess>,
    ) -> Result<Arc<Self>, SiteError> {
        let mut defaults = Policy::default();
        routes.apply_defaults(&mut defaults);
        let site = |route: &Route| Site::new(route.clone(), &defaults, connect).map(Arc::new);
        let sites = routes.iter().map(site);
        let sites = sites.collect::<Result<_, _>>()?;
        Ok(Arc::new(Self { sites, via, ending: Arc::default(), ended: AtomicBool::new(false) }))
    }

    /// Ends every stream as its protocol ends it: open requests are answered with an error.
    pub fn end_streams(&self) {
        self.ended.store(true, Ordering::Release);
        self.ending.notify_waiters();
    }

    /// Answers a request that was let in and belongs to `place`. `ours`: its `Authorization` was for
    /// us.
    pub async fn handle(
        self: Arc<Self>,
        place: Place,
        request: Request<Incoming>,
        ours: bool,
    ) -> Response<Body> {
        let Some(site) = self.sites.get(place.route).cloned() else {
            return text(StatusCode::NOT_FOUND, "there is no such route");
        };
        let (parts, body) = request.into_parts();
        if let Some(cors) = &site.route.cors
            && cors::is_preflight(&parts.method, &parts.headers)
        {
            let (status, headers) = cors::preflight(cors, &parts.headers);
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            return response;
        }
        match place.part {
            Part::WellKnown(path) => self.well_known(&site, &parts, &path, ours).await,
            Part::Sse => self.open_wire(&site, parts, ours).await,
            Part::Messages(_) => self.post_to_wire(&site, parts, body, ours).await,
            Part::Endpoint => self.endpoint(site, parts, body, ours).await,
        }
    }

    async fn endpoint(
        self: &Arc<Self>,
        site: Arc<Site>,
        parts: Parts,
        body: Incoming,
        ours: bool,
    ) -> Response<Body> {
        let Some(target) = &site.endpoint else {
            // A client that finds no Streamable HTTP here looks for HTTP+SSE with a GET (rule L-09).
            return match parts.method {
                Method::GET if site.sse.is_some() => self.open_wire(&site, parts, ours).await,
                _ => text(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "this route has no Streamable HTTP endpoint",
                ),
            };
        };
        if site.route.opaque {
            let body = RequestBody::Passing(Default::default(), Box::new(body));
            return self.forward(&site, target, &parts, body, ours).await;
        }
        match parts.method {
            Method::POST => self.post(&site, target, parts, body, ours).await,
            Method::GET => self.get(&site, target, parts, ours).await,
            _ => {
                let body = RequestBody::Passing(Default::default(), Box::new(body));
                let response = self.forward(&site, target, &parts, body, ours).await;
                if parts.method == Method::DELETE
                    && (response.status().is_success()
                        || response.status() == StatusCode::NOT_FOUND)
                    && let Some(id) = parts.headers.get(SESSION_ID)
                {
                    site.sessions.forget(id.as_bytes());
                }
                response
            }
        }
    }

    /// Sends a request on and answers with what comes, as it comes.
    async fn forward(
        &self,
        site: &Arc<Site>,
        target: &Target,
        parts: &Parts,
        body: RequestBody,
        ours: bool,
    ) -> Response<Body> {
        let request = self.onward(site, target, parts, body, ours);
        match target.client.send(request).await {
            Ok(response) => self.piped(site, &parts.headers, response),
            Err(error) => unreachable(site, &error, parts.method.clone(), None),
        }
    }

    async fn well_known(
        &self,
        site: &Arc<Site>,
        parts: &Parts,
        path: &str,
        ours: bool,
    ) -> Response<Body> {
        let (Some(target), Ok(path)) =
            (site.endpoint.as_ref().or(site.sse.as_ref()), PathAndQuery::try_from(path))
        else {
            return text(StatusCode::NOT_FOUND, "there is no such document");
        };
        let mut request = self.onward(site, target, parts, RequestBody::empty(), ours);
        *request.uri_mut() = target.at(path);
        match target.client.send(request).await {
            Ok(response) => self.piped(site, &parts.headers, response),
            Err(error) => unreachable(site, &error, parts.method.clone(), None),
        }
    }

    async fn get(
        self: &Arc<Self>,
        site: &Arc<Site>,
        target: &Target,
        parts: Parts,
        ours: bool,
    ) -> Response<Body> {
        if let Some(held) = self.held_get(site, &parts.headers).await {
            return held;
        }
        let Some(counted) = site.count() else {
            return unavailable("too many streams are open on this route");
        };
        let request = self.onward(site, target, &parts, RequestBody::empty(), ours);
        let response = match target.client.send(request).await {
            Ok(response) => response,
            Err(error) => return unreachable(site, &error, Method::GET, None),
        };
        if let Some(id) = parts.headers.get(SESSION_ID)
            && response.status() == StatusCode::NOT_FOUND
        {
            site.sessions.forget(id.as_bytes());
        }
        if response.status() != StatusCode::OK || Content::of(response.headers()) != Content::Events
        {
            return self.piped(site, &parts.headers, response);
        }
        let (head, body) = response.into_parts();
        let listening = own_get::listening(site, &parts.headers);
        let stream = EventStream::new(listening, body, silence(site), false);
        let body = self.stream(stream, counted);
        self.answered(site, &parts.headers, head, true, body)
    }

    /// The request as it goes to the server.
    fn onward(
        &self,
        site: &Site,
        target: &Target,
        parts: &Parts,
        body: RequestBody,
        ours: bool,
    ) -> Request<RequestBody> {
        let passage = Passage {
            via: &self.via,
            rules: &site.route.request_headers,
            received: parts.version,
            body_changes: false,
        };
        let onward = Onward {
            host: Some(&target.authority),
            opaque: site.route.opaque,
            authorization_was_ours: ours,
        };
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = target.uri(parts.uri.query());
        *request.headers_mut() = headers::request_headers(&parts.headers, &passage, &onward);
        request
    }

    /// The server's answer as it is.
    fn piped(
        &self,
        site: &Site,
        asked: &HeaderMap,
        response: Response<UpstreamBody>,
    ) -> Response<Body> {
        let (parts, body) = response.into_parts();
        self.answered(site, asked, parts, false, Body::piped(None, body))
    }

    /// The server's status and headers with a body. `changes`: it is not the one that came.
    fn answered(
        &self,
        site: &Site,
        asked: &HeaderMap,
        parts: http::response::Parts,
        changes: bool,
        body: Body,
    ) -> Response<Body> {
        let passage = Passage {
            via: &self.via,
            rules: &site.route.response_headers,
            received: parts.version,
            body_changes: changes,
        };
        let mut response = Response::new(body);
        *response.status_mut() = parts.status;
        *response.headers_mut() = headers::response_headers(&parts.headers, &passage);
        cors::answer(site.route.cors.as_ref(), asked, response.headers_mut());
        response
    }

    /// The body of a response of events, ended when the proxy ends.
    fn stream<J: Judge + 'static, U: Upstream<J> + 'static>(
        &self,
        stream: EventStream<J, U>,
        counted: Counted,
    ) -> Body {
        let ending = Arc::clone(&self.ending).notified_owned();
        Body::Stream(Box::new(Ended { stream, ending: Box::pin(ending), _counted: counted }))
    }

    /// How a server is told that nobody waits for a request any more.
    fn canceller(&self, site: &Arc<Site>, request: &Request<RequestBody>) -> exchange::Tell {
        let site = Arc::clone(site);
        let (uri, headers) = (request.uri().clone(), request.headers().clone());
        Box::new(move |payload| {
            let Some(target) = &site.endpoint else { return };
            let mut request = Request::new(RequestBody::from(payload.to_bytes()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            request.headers_mut().remove(header::CONTENT_LENGTH);
            let client = Arc::clone(&target.client);
            tokio::spawn(async move {
                if let Err(error) = client.send(request).await {
                    tracing::warn!(error = in_full(&error), "a request could not be cancelled");
                }
            });
        })
    }
}

fn silence(site: &Site) -> Silence {
    Silence { keep_alive: site.route.keep_alive, idle: site.route.idle_timeout }
}

/// A stream that ends when the proxy does.
struct Ended<J, U> {
    stream: EventStream<J, U>,
    ending: std::pin::Pin<Box<OwnedNotified>>,
    _counted: Counted,
}

impl<J: Judge, U: Upstream<J>> Source for Ended<J, U> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        if self.ending.poll_unpin(cx).is_ready() {
            self.stream.break_off("the proxy is shutting down");
            self.ending = Box::pin(Arc::<tokio::sync::Notify>::default().notified_owned());
        }
        self.stream.poll(cx)
    }
}

/// A response of ours in words.
fn text(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(format!("{why}\n"))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn unavailable(why: &str) -> Response<Body> {
    tracing::warn!(why, "refused");
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

fn refuse(unread: &reading::Unread, parts: &Parts) -> Response<Body> {
    tracing::info!(path = parts.uri.path(), why = unread.why, "refused");
    let mut response = text(unread.status, &unread.why);
    // What is left of its body is not read.
    if parts.version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The server could not be asked: an error for the request's id, if it has one.
fn unreachable(
    site: &Site,
    error: &UpstreamError,
    method: Method,
    id: Option<Bytes>,
) -> Response<Body> {
    let why = in_full(error);
    tracing::warn!(route = site.route.path, error = why, "the server could not be asked");
    let status = match error {
        UpstreamError::ConnectTimeout { .. } | UpstreamError::Idle(_) => {
            StatusCode::GATEWAY_TIMEOUT
        }
        _ => StatusCode::BAD_GATEWAY,
    };
    let Some(id) = id.filter(|_| method == Method::POST) else {
        return text(status, &why);
    };
    let mut response = Response::new(Body::from(own_error(&id, &why, None)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
