//! The data path of `milepost serve`: requests for a route, and the server's responses.
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
//! the body reads the server's connection. The exchanges share only the state of their session
//! (`session`).

use std::future::Future;
use std::sync::{Arc, Mutex};

use futures::future::Either;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::config::routes::{Routes, Server};
use crate::gateway::bridge::responses::{no_method, refusal};
use crate::gateway::bridge::{modern, posted_message};
use crate::gateway::client_limits::ClientLimits;
use crate::gateway::live_routes::{LiveRoute, LiveRoutes, ServedRoute};
use crate::gateway::refusals::{leaving, no_route};
use crate::observe::durations::DurationStore;
use crate::observe::events::ObserverFactory;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::transport::byte_budget::ByteBudget;
use crate::transport::http::body::Body;
use crate::transport::http::client::InProcess;
use crate::transport::http::endpoints::EndpointKind;
use crate::transport::http::in_flight::InFlight;
use crate::transport::http::refusal::Refusal;
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::shutdown::{MOVED, Shutdown};
use crate::transport::http::via::Via;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::request_body::PostedBody;
use crate::transport::mcp_http::request_head::RequestHead;
use crate::transport::mcp_http::target::TargetError;

/// All routes that are served, and what they share.
pub struct Proxy {
    pub(crate) routes: Mutex<LiveRoutes>,
    /// Connects to servers inside the process, in place of the network.
    pub(crate) connect: Option<InProcess>,
    /// Makes the observers of each route's messages.
    pub(crate) observers: Vec<Arc<dyn ObserverFactory>>,
    pub(crate) metrics: Metrics,
    pub(crate) via: Via,
    pub(crate) shutdown: Arc<Shutdown>,
    pub(crate) calls: Arc<InFlight>,
    /// The number of servers that run for sessions of the bridge.
    pub(crate) servers: Arc<InFlight>,
    /// The budget for incomplete request bodies.
    pub(crate) bodies: Arc<ByteBudget>,
    /// The budget for large answers in files.
    pub(crate) spilled: Arc<ByteBudget>,
    /// The budget for messages that wait in memory.
    pub(crate) kept: Arc<ByteBudget>,
    /// What is counted for each client: connections, streams, sessions and so on.
    pub(crate) clients: Arc<ClientLimits>,
}

impl Proxy {
    /// Returns a proxy for the routes. Servers are connected at the first request. `memory` holds the learned durations
    /// of the routes; `observers` see all messages. `connect`, if given, replaces the network and child processes.
    ///
    /// # Errors
    ///
    /// If a route's certificates cannot be used or its address is not valid.
    pub fn new(
        routes: &Routes,
        via: Via,
        connect: Option<&InProcess>,
        memory: &DurationStore,
        observers: &[Arc<dyn ObserverFactory>],
    ) -> Result<Arc<Self>, TargetError> {
        let metrics = Metrics::new();
        let proxy = Self {
            routes: Mutex::default(),
            connect: connect.cloned(),
            observers: observers.to_vec(),
            clients: ClientLimits::new(&metrics),
            metrics,
            via,
            shutdown: Arc::default(),
            calls: Arc::default(),
            servers: Arc::default(),
            bodies: Arc::default(),
            spilled: Arc::default(),
            kept: Arc::default(),
        };
        let prepared = proxy.prepare(routes, memory)?;
        let (_, nothing) = proxy.apply(routes, prepared);
        nothing.retire();
        Ok(Arc::new(proxy))
    }

    /// Sets the limits that all routes share.
    pub(crate) fn set_maxima(&self, server: &Server) {
        self.bodies.set_max(server.max_unread_bytes as u64);
        self.spilled.set_max(server.max_spilled_bytes as u64);
        self.kept.set_max(server.max_kept_bytes as u64);
        self.clients.set_maxima(&server.clients);
    }

    /// Sets the limits of resources that all routes share.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the metrics.
    pub fn metrics_text(&self) -> String {
        self.metrics.text(log::lines_dropped(), || self.measure())
    }

    /// Waits until no call is open. The remaining streams are then only those on which clients listen.
    pub async fn calls_done(&self) {
        self.calls.done().await;
    }

    /// Waits until every server started by Milepost has ended; after [`Proxy::end_streams`] they end soon.
    pub async fn servers_done(&self) {
        self.servers.done().await;
    }

    /// Sends new sessions to other replicas from now on: a client that begins a session here gets 503, and tries again.
    pub fn turn_newcomers_away(&self) {
        self.shutdown.turn_newcomers_away();
    }

    /// Refuses new calls, from now on, in sessions that end with this process: the client gets 404, and begins a new
    /// session at another replica. Open calls continue.
    pub fn turn_calls_away(&self) {
        self.shutdown.turn_calls_away();
    }

    /// Ends every stream in the way of its protocol: open requests are answered with an error. Streams that begin later
    /// end immediately.
    pub fn end_streams(&self) {
        self.shutdown.end();
    }

    /// Answers an admitted request to an endpoint of a route. An `Authorization` in the request is the client's for the
    /// server.
    pub fn handle(
        self: Arc<Self>,
        served: ServedRoute,
        part: EndpointKind,
        request: Request<Incoming>,
        write_state: WriteState,
    ) -> impl Future<Output = Response<Body>> + Send + use<> {
        let (parts, body) = request.into_parts();
        let body = PostedBody::Fresh(body);
        let ServedRoute { live, removed } = &served;
        let is_call = part == EndpointKind::Endpoint
            && parts.method == Method::POST
            && live.state.endpoint.is_some()
            && !(*removed || live.state.route.opaque || live.state.may_bridge())
            && live.previous.is_empty()
            // Only without a session of Milepost's own: such sessions may continue after a reload.
            && live.bridge.sessions.is_empty();
        // Nearly all requests take this path. Rare cases are handled elsewhere, to keep its future small.
        if is_call {
            let direct = Arc::clone(&live.direct);
            return Either::Left(direct.post(parts, body, write_state));
        }
        let rare = async move { self.handle_rare(served, part, parts, body, write_state).await };
        Either::Right(Box::pin(rare))
    }

    /// Counts a request to a route that the file no longer has, and logs it, as requests to unknown paths are.
    fn tell_of_removed(&self, live: &LiveRoute) {
        self.metrics.count_refusal(Refusal::NoRoute.name());
        let Some(left_out) = log::may_log_refusal() else { return };
        tracing::info!(
            reason = Refusal::NoRoute.name(),
            status = StatusCode::NOT_FOUND.as_u16(),
            route = live.state.route.path,
            left_out = (left_out > 0).then_some(left_out),
            "refused: a reload has removed the route, whose open calls continue"
        );
    }

    /// Answers a request of any kind, on a route with any history.
    async fn handle_rare(
        &self,
        served: ServedRoute,
        part: EndpointKind,
        parts: Parts,
        body: PostedBody,
        write_state: WriteState,
    ) -> Response<Body> {
        let (live, body) = match served.removed || !served.live.previous.is_empty() {
            false => (served.live, body),
            true => match Box::pin(served.find_session(&parts, &part, body)).await {
                Ok(found) => found,
                Err(refusal) => {
                    if served.removed && refusal.status() == StatusCode::NOT_FOUND {
                        self.tell_of_removed(&served.live);
                    }
                    return *refusal;
                }
            },
        };
        match part {
            // Boxed: a rare case must not make the future of a call larger.
            EndpointKind::WellKnown(path) => Box::pin(live.direct.well_known(parts, &path)).await,
            EndpointKind::Sse => Box::pin(open_sse(&live, parts, body, write_state)).await,
            EndpointKind::Messages(_) => Box::pin(post_sse(&live, parts, body)).await,
            EndpointKind::Endpoint => self.endpoint(live, parts, body, write_state).await,
        }
    }

    async fn endpoint(
        &self,
        live: Arc<LiveRoute>,
        parts: Parts,
        body: PostedBody,
        write_state: WriteState,
    ) -> Response<Body> {
        let (state, direct) = (&live.state, &live.direct);
        let target = state.endpoint.as_ref().filter(|_| !is_for_bridge(&live, &parts));
        let Some(target) = target else {
            // A client of HTTP+SSE may look for its stream at this path.
            let looks = parts.method == Method::GET && !parts.headers.contains_key(SESSION_ID);
            let looks = looks && state.endpoint.is_none();
            return if looks && state.sse.is_some() {
                Box::pin(open_sse(&live, parts, body, write_state)).await
            } else {
                Box::pin(self.bridge(live, parts, body, write_state)).await
            };
        };
        if state.route.opaque {
            let body = RequestBody::from(body);
            return Box::pin(direct.forward(target, parts, body)).await;
        }
        match parts.method {
            Method::POST => Box::pin(Arc::clone(direct).post(parts, body, write_state)).await,
            Method::GET => Box::pin(direct.get(target, parts, write_state)).await,
            _ => {
                let body = RequestBody::from(body);
                let head = RequestHead::of(state.caller(&parts), &parts);
                let response = Box::pin(direct.forward(target, parts, body)).await;
                let status = response.status();
                if head.method == Method::DELETE
                    && let Some(id) = head.session_id()
                {
                    if status.is_success() {
                        direct.sessions.forget(id);
                    } else if status == StatusCode::NOT_FOUND {
                        direct.sessions.forget_for(id, head.caller);
                    }
                }
                response
            }
        }
    }

    /// Answers a request of a Streamable HTTP client on a route whose server has another transport.
    async fn bridge(
        &self,
        mut live: Arc<LiveRoute>,
        parts: Parts,
        body: PostedBody,
        write_state: WriteState,
    ) -> Response<Body> {
        match parts.method {
            Method::POST => {
                let posted = match posted_message::read(&live.state, &parts, body).await {
                    Ok(posted) => posted,
                    Err(refusal) => return *refusal,
                };
                // A request without a session may have been sent before the route got another server.
                if !parts.headers.contains_key(SESSION_ID) {
                    live = match self.current_for(&live) {
                        Some(now) if now.state.endpoint.is_none() || now.state.may_bridge() => now,
                        Some(_) => return refusal(StatusCode::SERVICE_UNAVAILABLE, MOVED, None),
                        None => return no_route(),
                    };
                }
                live.bridge.post(parts, posted, write_state).await
            }
            // From 2026-07-28 on, MCP has neither a GET stream nor sessions to end.
            _ if modern::date_of(&parts.headers, None).is_some() => no_method(),
            Method::GET => live.bridge.get(&parts, write_state),
            Method::DELETE => live.bridge.delete(&parts),
            _ => no_method(),
        }
    }
}

/// Whether a request to a server of the same transport belongs to a session of Milepost itself. Such sessions continue
/// even if a reload changes whether new ones begin. From 2026-07-28 on there are none.
fn is_for_bridge(live: &LiveRoute, parts: &Parts) -> bool {
    match parts.headers.get(SESSION_ID) {
        Some(id) => live.bridge.sessions.knows(id.as_bytes()),
        None if modern::date_of(&parts.headers, None).is_some() => live.state.translates_eras,
        None => live.state.bridges,
    }
}

/// Opens the stream of an HTTP+SSE client.
async fn open_sse(
    live: &LiveRoute,
    parts: Parts,
    body: PostedBody,
    write_state: WriteState,
) -> Response<Body> {
    if live.state.shared.shutdown.turns_newcomers_away() {
        return leaving(None);
    }
    match &live.state.sse {
        Some(target) => live.direct.open_stream(target, parts, body, write_state).await,
        None => live.bridge.open_stream(&parts, write_state),
    }
}

/// A client of HTTP+SSE posts for its stream.
async fn post_sse(live: &LiveRoute, parts: Parts, body: PostedBody) -> Response<Body> {
    match &live.state.sse {
        Some(target) => live.direct.post_to_stream(target, parts, body).await,
        None => live.bridge.post_to_stream(parts, body).await,
    }
}
