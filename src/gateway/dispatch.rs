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

use crate::gateway::refusals::{text, unavailable, unreachable};
use std::sync::{Arc, Mutex};

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::config::routes::Routes;
use crate::gateway::direct::event_stream::{EventStream, Silence};
use crate::gateway::direct::held_stream;
use crate::gateway::live_routes::{Served, Sites};
use crate::gateway::route_state::{Counted, Site};
use crate::observe::durations::DurationStore;
use crate::observe::events::ObserverFactory;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::transport::http::client::{InProcess, UpstreamBody};
use crate::transport::http::endpoints::Part;
use crate::transport::http::headers::{Onward, Passage, request_headers, response_headers};
use crate::transport::http::in_flight::{Calls, OpenCall};
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::shutdown::{Ending, PipedStream};
use crate::transport::mcp_http::content::Content;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::request_body::Posted;
use crate::transport::mcp_http::request_head::RequestHead;
use crate::transport::mcp_http::target::{Target, TargetError};

use crate::transport::http::body::Body;
use crate::transport::http::via::Via;
use crate::transport::http::write_state::Outlet;

/// Every route while it is served.
pub struct Proxy {
    pub(crate) sites: Mutex<Sites>,
    /// What servers are reached through in place of the network.
    pub(crate) connect: Option<InProcess>,
    /// Those who look on.
    pub(crate) observers: Vec<Arc<dyn ObserverFactory>>,
    pub(crate) metrics: Metrics,
    pub(crate) via: Via,
    pub(crate) ending: Ending,
    pub(crate) calls: Arc<Calls>,
    /// Servers that run for sessions of ours.
    pub(crate) servers: Arc<Calls>,
}

impl Proxy {
    /// Nothing is connected before the first request. `memory` has and gets what is learned of the routes;
    /// `observers` are shown what passes. Servers are reached through `connect`, if there is one, instead of
    /// the network, and such a connection takes the place of a child.
    ///
    /// # Errors
    /// If a route's certificates cannot be used or its address is none.
    pub fn new(
        routes: &Routes,
        via: Via,
        connect: Option<&InProcess>,
        memory: &DurationStore,
        observers: &[Arc<dyn ObserverFactory>],
    ) -> Result<Arc<Self>, TargetError> {
        let proxy = Self {
            sites: Mutex::default(),
            connect: connect.cloned(),
            observers: observers.to_vec(),
            metrics: Metrics::new(),
            via,
            ending: Ending::default(),
            calls: Arc::default(),
            servers: Arc::default(),
        };
        let prepared = proxy.prepare(routes, memory)?;
        let (_, nothing) = proxy.take(routes, prepared);
        nothing.go();
        Ok(Arc::new(proxy))
    }

    /// What has been counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The same as text, with what is in the tables now.
    pub fn metrics_text(&self) -> String {
        self.metrics.text(log::lines_dropped(), || self.measure())
    }

    /// Waits until no call is open. What is left then only listens.
    pub async fn calls_done(&self) {
        self.calls.done().await;
    }

    /// Waits until no server runs that we have started; after [`Proxy::end_streams`] each ends soon.
    pub async fn servers_done(&self) {
        self.servers.done().await;
    }

    /// Ends every stream as its protocol ends it: open requests are answered with an error. Streams
    /// that begin later end at once.
    pub fn end_streams(&self) {
        self.ending.end();
    }

    /// Answers a request that was let in and belongs to a part of a route. `ours`: its `Authorization` was
    /// for us.
    pub async fn handle(
        self: Arc<Self>,
        served: Served,
        part: Part,
        request: Request<Incoming>,
        ours: bool,
        outlet: Outlet,
    ) -> Response<Body> {
        let Served { mut site, late } = served;
        let (parts, body) = request.into_parts();
        let mut body = Posted::Fresh(body);
        if late || !site.before.is_empty() {
            let meant = Box::pin(self.meant(Served { site, late }, &parts, &part, body));
            (site, body) = match meant.await {
                Ok(meant) => meant,
                Err(refusal) => return *refusal,
            };
        }
        match part {
            // In boxes: what is rare must not make the way of a call larger.
            Part::WellKnown(path) => Box::pin(self.well_known(&site, parts, &path, ours)).await,
            Part::Sse => Box::pin(self.open_wire(&site, parts, body, ours, outlet)).await,
            Part::Messages(_) => Box::pin(self.post_to_wire(&site, parts, body, ours)).await,
            Part::Endpoint => self.endpoint(site, parts, body, ours, outlet).await,
        }
    }

    pub(crate) async fn endpoint(
        self: &Arc<Self>,
        site: Arc<Site>,
        parts: Parts,
        body: Posted,
        ours: bool,
        outlet: Outlet,
    ) -> Response<Body> {
        let Some(target) = &site.endpoint else {
            // A client of HTTP+SSE may look for its stream here (rule L-09).
            let looks = parts.method == Method::GET && !parts.headers.contains_key(SESSION_ID);
            return if looks && site.sse.is_some() {
                Box::pin(self.open_wire(&site, parts, body, ours, outlet)).await
            } else {
                Box::pin(self.bridge(&site, parts, body, ours, outlet)).await
            };
        };
        if site.route.opaque {
            let body = RequestBody::from(body);
            return Box::pin(self.forward(&site, target, parts, body, ours)).await;
        }
        match parts.method {
            Method::POST => self.post(&site, target, parts, body, ours, outlet).await,
            Method::GET => Box::pin(self.get(&site, target, parts, ours, outlet)).await,
            _ => {
                let body = RequestBody::from(body);
                let asked = RequestHead::of(site.caller(&parts.headers), &parts);
                let response = Box::pin(self.forward(&site, target, parts, body, ours)).await;
                let status = response.status();
                if asked.method == Method::DELETE
                    && (status.is_success() || status == StatusCode::NOT_FOUND)
                    && let Some(id) = asked.session_id()
                {
                    site.sessions.forget(id);
                }
                response
            }
        }
    }

    /// Sends a request on and answers with what comes, as it comes.
    pub(crate) async fn forward(
        &self,
        site: &Arc<Site>,
        target: &Target,
        parts: Parts,
        body: RequestBody,
        ours: bool,
    ) -> Response<Body> {
        // A GET may be a stream that never ends; nobody waits for that.
        let open = (parts.method == Method::POST).then(|| site.calls.open());
        let request = self.onward(site, target, parts, body, ours);
        match target.client.send(request).await {
            Ok(response)
                if open.is_none() && Content::of(response.headers()) == Content::Events =>
            {
                let (parts, body) = response.into_parts();
                let piped = PipedStream::new(body, &self.ending);
                self.answered(site, parts, false, Body::Stream(Box::new(piped)))
            }
            Ok(response) => self.piped(site, response, open),
            Err(error) => unreachable(site, &error, None),
        }
    }

    pub(crate) async fn well_known(
        &self,
        site: &Arc<Site>,
        parts: Parts,
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
            Ok(response) => self.piped(site, response, None),
            Err(error) => unreachable(site, &error, None),
        }
    }

    pub(crate) async fn get(
        self: &Arc<Self>,
        site: &Arc<Site>,
        target: &Target,
        parts: Parts,
        ours: bool,
        outlet: Outlet,
    ) -> Response<Body> {
        let asked = RequestHead::of(site.caller(&parts.headers), &parts);
        if let Some(held) = self.held_get(site, &asked, &outlet).await {
            return held;
        }
        let (head, body, counted) = match self.open_events(site, target, parts, ours).await {
            Ok(opened) => opened,
            Err(response) => {
                if let Some(id) = asked.session_id()
                    && response.status() == StatusCode::NOT_FOUND
                {
                    site.sessions.forget(id);
                }
                return *response;
            }
        };
        let listening = held_stream::listening(site, &asked);
        let stream = EventStream::new(listening, body, Silence::of(&site.route), outlet);
        let body = self.listened(stream, counted);
        self.answered(site, head, true, body)
    }

    /// Asks the server for a stream of events with a GET; what the client is answered if there is none.
    pub(crate) async fn open_events(
        &self,
        site: &Arc<Site>,
        target: &Target,
        parts: Parts,
        ours: bool,
    ) -> Result<(http::response::Parts, UpstreamBody, Counted), Box<Response<Body>>> {
        let Some(counted) = site.count() else {
            return Err(Box::new(unavailable("too many streams are open on this route")));
        };
        let request = self.onward(site, target, parts, RequestBody::empty(), ours);
        let response = match target.client.send(request).await {
            Ok(response) => response,
            Err(error) => return Err(Box::new(unreachable(site, &error, None))),
        };
        let is_events = Content::of(response.headers()) == Content::Events;
        if response.status() != StatusCode::OK || !is_events {
            return Err(Box::new(self.piped(site, response, None)));
        }
        let (head, body) = response.into_parts();
        Ok((head, body, counted))
    }

    /// The request as it goes to the server.
    pub(crate) fn onward(
        &self,
        site: &Site,
        target: &Target,
        parts: Parts,
        body: RequestBody,
        ours: bool,
    ) -> Request<RequestBody> {
        let passage = Passage {
            via: &self.via,
            rules: &site.route.request_headers,
            received: parts.version,
            // The length of a body that stays here must not go on.
            body_changes: matches!(body, RequestBody::Whole(None)),
        };
        let onward = Onward {
            host: Some(&target.host),
            opaque: site.route.opaque,
            authorization_was_ours: ours,
        };
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = target.uri(parts.uri.query());
        *request.headers_mut() = request_headers(parts.headers, &passage, &onward);
        request
    }

    /// The server's answer as it is.
    pub(crate) fn piped(
        &self,
        site: &Site,
        response: Response<UpstreamBody>,
        open: Option<OpenCall>,
    ) -> Response<Body> {
        let (parts, body) = response.into_parts();
        self.answered(site, parts, false, Body::piped(None, body, open))
    }

    /// The server's status and headers with a body. `changes`: it is not the one that came.
    pub(crate) fn answered(
        &self,
        site: &Site,
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
        *response.headers_mut() = response_headers(parts.headers, &passage);
        response
    }
}
