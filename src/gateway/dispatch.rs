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

/// Every route while it is served.
pub struct Proxy {
    pub(crate) routes: Mutex<LiveRoutes>,
    /// The in-process connection to servers, in place of the network.
    pub(crate) connect: Option<InProcess>,
    /// The observers.
    pub(crate) observers: Vec<Arc<dyn ObserverFactory>>,
    pub(crate) metrics: Metrics,
    pub(crate) via: Via,
    pub(crate) shutdown: Arc<Shutdown>,
    pub(crate) calls: Arc<InFlight>,
    /// Servers that run for sessions of the bridge.
    pub(crate) servers: Arc<InFlight>,
    /// Bodies of requests that are not whole.
    pub(crate) bodies: Arc<ByteBudget>,
    /// Large answers in files.
    pub(crate) spilled: Arc<ByteBudget>,
    /// Messages that wait in memory.
    pub(crate) kept: Arc<ByteBudget>,
    /// The connections, streams and sessions of each client.
    pub(crate) clients: Arc<ClientLimits>,
}

impl Proxy {
    /// No server is connected before the first request. `memory` holds the learned durations of the
    /// routes; `observers` see all messages. If there is a `connect`, it replaces the network and
    /// child processes.
    ///
    /// # Errors
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

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The metrics as text, with the present sizes of tables.
    pub fn metrics_text(&self) -> String {
        self.metrics.text(log::lines_dropped(), || self.measure())
    }

    /// Waits until no call is open. The connections that are then left only listen.
    pub async fn calls_done(&self) {
        self.calls.done().await;
    }

    /// Waits until every server started by Milepost has ended; after [`Proxy::end_streams`] each
    /// ends soon.
    pub async fn servers_done(&self) {
        self.servers.done().await;
    }

    /// From now on new sessions should begin at other replicas: a client that begins a session here gets 503, and sends
    /// its request again.
    pub fn turn_newcomers_away(&self) {
        self.shutdown.turn_newcomers_away();
    }

    /// From now on sessions that end with this process accept no new calls: a client that makes a call gets 404, and
    /// begins a new session at another replica. Open calls continue.
    pub fn turn_calls_away(&self) {
        self.shutdown.turn_calls_away();
    }

    /// Ends every stream as its protocol ends it: open requests are answered with an error. Streams
    /// that begin later end at once.
    pub fn end_streams(&self) {
        self.shutdown.end();
    }

    /// Answers an admitted request to an endpoint of a route. `proxy_auth`: its `Authorization` was for
    /// Milepost.
    pub fn handle(
        self: Arc<Self>,
        served: ServedRoute,
        part: EndpointKind,
        request: Request<Incoming>,
        proxy_auth: bool,
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
            // Sessions that Milepost manages outlive a reload, but no new sessions begin after it.
            && live.bridge.sessions.is_empty();
        // Nearly all requests take this path, so that rare cases must not make its future larger.
        if is_call {
            let direct = Arc::clone(&live.direct);
            return Either::Left(direct.post(parts, body, proxy_auth, write_state));
        }
        let rare = async move {
            self.handle_rare(served, part, parts, body, proxy_auth, write_state).await
        };
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
        ServedRoute { mut live, removed }: ServedRoute,
        part: EndpointKind,
        parts: Parts,
        mut body: PostedBody,
        proxy_auth: bool,
        write_state: WriteState,
    ) -> Response<Body> {
        if removed || !live.previous.is_empty() {
            let found = Box::pin(live.find_session(removed, &parts, &part, body));
            (live, body) = match found.await {
                Ok(found) => found,
                Err(refusal) => {
                    if removed && refusal.status() == StatusCode::NOT_FOUND {
                        self.tell_of_removed(&live);
                    }
                    return *refusal;
                }
            };
        }
        match part {
            // Boxed: a rare case must not make the future of a call larger.
            EndpointKind::WellKnown(path) => {
                Box::pin(live.direct.well_known(parts, &path, proxy_auth)).await
            }
            EndpointKind::Sse => {
                Box::pin(open_sse(&live, parts, body, proxy_auth, write_state)).await
            }
            EndpointKind::Messages(_) => Box::pin(post_sse(&live, parts, body, proxy_auth)).await,
            EndpointKind::Endpoint => {
                self.endpoint(live, parts, body, proxy_auth, write_state).await
            }
        }
    }

    async fn endpoint(
        &self,
        live: Arc<LiveRoute>,
        parts: Parts,
        body: PostedBody,
        proxy_auth: bool,
        write_state: WriteState,
    ) -> Response<Body> {
        let (state, direct) = (&live.state, &live.direct);
        let target = state.endpoint.as_ref().filter(|_| !is_for_bridge(&live, &parts));
        let Some(target) = target else {
            // A client of HTTP+SSE may look for its stream here.
            let looks = parts.method == Method::GET && !parts.headers.contains_key(SESSION_ID);
            let looks = looks && state.endpoint.is_none();
            return if looks && state.sse.is_some() {
                Box::pin(open_sse(&live, parts, body, proxy_auth, write_state)).await
            } else {
                Box::pin(self.bridge(live, parts, body, proxy_auth, write_state)).await
            };
        };
        if state.route.opaque {
            let body = RequestBody::from(body);
            return Box::pin(direct.forward(target, parts, body, proxy_auth)).await;
        }
        match parts.method {
            Method::POST => {
                Box::pin(Arc::clone(direct).post(parts, body, proxy_auth, write_state)).await
            }
            Method::GET => Box::pin(direct.get(target, parts, proxy_auth, write_state)).await,
            _ => {
                let body = RequestBody::from(body);
                let head = RequestHead::of(state.caller(&parts), &parts);
                let response = Box::pin(direct.forward(target, parts, body, proxy_auth)).await;
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

    /// Answers a request of a client of Streamable HTTP before a server of another transport.
    async fn bridge(
        &self,
        mut live: Arc<LiveRoute>,
        parts: Parts,
        body: PostedBody,
        proxy_auth: bool,
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
                live.bridge.post(parts, posted, proxy_auth, write_state).await
            }
            // From 2026-07-28 on, MCP has no GET stream to listen to and no session to end.
            _ if modern::date_of(&parts.headers, None).is_some() => no_method(),
            Method::GET => live.bridge.get(&parts, write_state),
            Method::DELETE => live.bridge.delete(&parts),
            _ => no_method(),
        }
    }
}

/// Whether a request to a server of the same transport belongs to a session of Milepost's own. Sessions live across a
/// reload that changes this, and from 2026-07-28 on there are none.
fn is_for_bridge(live: &LiveRoute, parts: &Parts) -> bool {
    match parts.headers.get(SESSION_ID) {
        Some(id) => live.bridge.sessions.knows(id.as_bytes()),
        None if modern::date_of(&parts.headers, None).is_some() => live.state.translates_eras,
        None => live.state.bridges,
    }
}

/// A client of HTTP+SSE opens its stream.
async fn open_sse(
    live: &LiveRoute,
    parts: Parts,
    body: PostedBody,
    proxy_auth: bool,
    write_state: WriteState,
) -> Response<Body> {
    if live.state.shared.shutdown.turns_newcomers_away() {
        return leaving(None);
    }
    match &live.state.sse {
        Some(target) => live.direct.open_stream(target, parts, body, proxy_auth, write_state).await,
        None => live.bridge.open_stream(&parts, proxy_auth, write_state),
    }
}

/// A client of HTTP+SSE posts for its stream.
async fn post_sse(
    live: &LiveRoute,
    parts: Parts,
    body: PostedBody,
    proxy_auth: bool,
) -> Response<Body> {
    match &live.state.sse {
        Some(target) => live.direct.post_to_stream(target, parts, body, proxy_auth).await,
        None => live.bridge.post_to_stream(parts, body).await,
    }
}
