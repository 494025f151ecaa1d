//! The trait of request handlers behind the dispatcher.

use std::error::Error;
use std::future::{self, Future};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::Either;
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, Request, Response};
use http_body::Body as AnyBody;
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;
use tracing::warn;

use super::last_use::LastUse;
use crate::config::routes::{ForwardedRule, Upstream};
use crate::config::values::ip_net::IpNet;
use crate::gateway::client_limits::ClientLimits;
use crate::gateway::dispatch::Proxy;
use crate::gateway::fleet::FleetMember;
use crate::gateway::fleet::passport::ClientFacts;
use crate::gateway::fleet::session::FleetSession;
use crate::gateway::live_routes::ServedRoute;
use crate::gateway::refusals::no_route;
use crate::observe::calls::Table;
use crate::observe::log::may_log_refusal;
use crate::observe::metrics::{ConnectionCounts, Traffic};
use crate::transport::http::body::Body;
use crate::transport::http::client_name::{ClientName, LoopbackCaller};
use crate::transport::http::endpoints::RouteMatch;
use crate::transport::http::forwarded::{self, ForwardedBy, ForwardedPrefix};
use crate::transport::http::headers::remove_in_order;
use crate::transport::http::refusal::Refusal;
use crate::transport::http::write_state::WriteState;

/// The client of a connection, and its local address.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The address of the client.
    pub remote: SocketAddr,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// Whether the connection uses TLS.
    pub secure: bool,
    /// The name in the client's certificate, if the listener requests one; for an admitted request, the name of its
    /// principal.
    pub name: Option<ClientName>,
    /// Whether the client takes bytes that are written to it.
    pub write_state: WriteState,
    /// The last use of the connection; `None` if its listener never closes an idle connection.
    pub last_use: Option<LastUse>,
}

impl Peer {
    fn facts(&self) -> ClientFacts {
        let Self { remote, local, secure, .. } = *self;
        ClientFacts { remote, local, secure, name: self.name.clone() }
    }

    /// Returns the client of a request that another replica passes on over this connection.
    pub(super) fn passed_on(self, client: ClientFacts) -> Self {
        let ClientFacts { remote, local, secure, name } = client;
        Self { remote, local, secure, name, ..self }
    }
}

/// What is known about an admitted request.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The route and endpoint of the request.
    pub route_match: RouteMatch,
    /// The route at the time when the request arrived.
    pub served: Option<ServedRoute>,
    /// The client of the request.
    pub client: Peer,
    /// Fronts whose headers about their clients are trusted.
    pub trusted_proxies: Arc<[IpNet]>,
    /// Headers that are not forwarded: the `principal` header of clients that are not trusted fronts, and headers that
    /// some servers would take for a header that a setting determines.
    pub foreign_headers: Vec<HeaderName>,
    /// Whether the request's `Authorization` was meant for this listener, so that it is not forwarded.
    pub authorization_was_ours: bool,
}

/// The handler of a listener that has routes.
pub struct Routed {
    /// The routes.
    pub proxy: Arc<Proxy>,
    /// The table of the routes' calls, for operators.
    pub calls: Option<Arc<Table>>,
    /// The connection to other replicas, in a fleet.
    pub fleet: Option<Arc<FleetMember>>,
}

impl Routed {
    /// Serves a request on this replica: counts it for its client, and applies the route's rule for headers of fronts.
    fn serve_here(
        &self,
        served: ServedRoute,
        mut request: Request<Incoming>,
        admitted: Admitted,
    ) -> impl Future<Output = Response<Body>> + Send + use<> {
        let Admitted { route_match, client, trusted_proxies, .. } = admitted;
        // Nothing behind the listener may take its token for a credential of the client.
        if admitted.authorization_was_ours {
            remove_in_order(request.headers_mut(), &AUTHORIZATION);
        }
        let (remote, name) = (client.remote.ip(), client.name.as_ref());
        let clients = &self.proxy.clients;
        let limited = clients.client_of(remote, name, request.headers(), &trusted_proxies);
        if let Some(client) = limited {
            request.extensions_mut().insert(client);
        }
        let is_front = trusted_proxies.iter().any(|net| net.contains(remote));
        // A Streamable HTTP server has its own sessions and does not need the marker, which costs an allocation.
        let has_own_sessions =
            matches!(&served.route().upstream, Upstream::Http(http) if http.url.is_some());
        let is_local = client.local.ip().to_canonical().is_loopback() && !is_front;
        if is_local && !admitted.authorization_was_ours && !has_own_sessions {
            request.extensions_mut().insert(LoopbackCaller);
        }
        // Read before the rules of the route are applied, which may remove the header.
        let prefix = ForwardedPrefix::read(request.headers()).filter(|_| is_front);
        if let Some(prefix) = prefix {
            request.extensions_mut().insert(prefix);
        }
        let rule = served.route().forwarded;
        let mut is_foreign =
            rule != ForwardedRule::Pass && forward(rule, &mut request, &client, &trusted_proxies);
        is_foreign |= !admitted.foreign_headers.is_empty();
        if is_foreign {
            self.proxy.metrics().count_forwarded_dropped();
        }
        let proxy = Arc::clone(&self.proxy);
        proxy.handle(served, route_match.part, request, client.write_state)
    }

    /// Serves a request of a fleet, here or on the replica that owns its session.
    async fn receive(
        &self,
        served: ServedRoute,
        request: Request<Incoming>,
        admitted: Admitted,
    ) -> Response<Body> {
        let Some(fleet) = &self.fleet else {
            return self.serve_here(served, request, admitted).await;
        };
        let facts = admitted.client.facts();
        let is_foreign = !admitted.foreign_headers.is_empty();
        let route = Arc::clone(&served.live.state.route);
        let received = fleet.receive(&route, &admitted.route_match.part, request, &facts);
        let request = match received.await {
            Ok(request) => request,
            Err(response) => {
                if is_foreign {
                    self.proxy.metrics().count_forwarded_dropped();
                }
                return *response;
            }
        };
        let session = request.extensions().get::<FleetSession>().cloned();
        let mut response = self.serve_here(served, request, admitted).await;
        // The ids in the response are sealed, so that the client can send them to any replica.
        if let Some(session) = session {
            session.seal_response(&mut response);
        }
        response
    }
}

impl Handler for Routed {
    type Body = Body;

    fn handle(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        mut admitted: Admitted,
    ) -> impl Future<Output = Response<Self::Body>> + Send + use<> {
        // These headers must reach neither the server nor another replica, which may trust other fronts.
        for header in &admitted.foreign_headers {
            request.headers_mut().remove(header);
        }
        let Some(served) = admitted.served.take() else {
            return Either::Left(future::ready(no_route()));
        };
        if self.fleet.is_none() {
            return Either::Right(Either::Left(self.serve_here(served, request, admitted)));
        }
        // Boxed: the work that only a fleet needs must not make the future of every call larger.
        let routed = Arc::clone(self);
        Either::Right(Either::Right(Box::pin(async move {
            routed.receive(served, request, admitted).await
        })))
    }

    fn served(&self) -> Vec<ServedRoute> {
        self.proxy.served()
    }

    fn metrics(&self) -> Option<String> {
        Some(self.proxy.metrics_text())
    }

    fn calls(&self) -> Option<&Arc<Table>> {
        self.calls.as_ref()
    }

    fn count_refusal(&self, refusal: Refusal) {
        self.proxy.metrics().count_refusal(refusal.name());
    }

    fn traffic(&self) -> Traffic {
        self.proxy.metrics().clients().clone()
    }

    fn idle_connections(&self) -> Counter {
        self.proxy.metrics().idle_connections().clone()
    }

    fn connection_counts(&self) -> ConnectionCounts {
        self.proxy.metrics().connections().clone()
    }

    fn fleet_address(&self) -> Option<SocketAddr> {
        self.fleet.as_ref().map(|fleet| fleet.listen)
    }

    fn passed_on(&self, peer: Peer, parts: &mut Parts) -> Result<Peer, Refusal> {
        let fleet = self.fleet.as_ref().ok_or(Refusal::NotPassedOn)?;
        match fleet.admit(parts) {
            Ok(client) => Ok(peer.passed_on(client)),
            Err(error) => {
                if let Some(left_out) = may_log_refusal() {
                    let left_out = (left_out > 0).then_some(left_out);
                    warn!(reason = error.name(), from = %peer.remote.ip(), left_out, "{error}");
                }
                Err(Refusal::NotPassedOn)
            }
        }
    }

    fn client_limits(&self) -> Option<&Arc<ClientLimits>> {
        Some(&self.proxy.clients)
    }

    fn linger(&self) {
        if self.fleet.is_some() {
            self.proxy.turn_newcomers_away();
        }
    }

    fn drain(&self) {
        if self.fleet.is_some() {
            self.proxy.turn_newcomers_away();
            self.proxy.turn_calls_away();
        }
    }

    async fn calls_done(&self) {
        self.proxy.calls_done().await;
    }

    async fn end_streams(&self) {
        self.proxy.end_streams();
    }
}

/// Applies a route's rule to the headers in which fronts describe their clients. Returns whether values were removed.
fn forward(
    rule: ForwardedRule,
    request: &mut Request<Incoming>,
    client: &Peer,
    trusted: &[IpNet],
) -> bool {
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 names the host in the URI, and HTTP/1.1 in `Host`.
    let host = request.uri().authority().map(Authority::as_str).or(header).map(str::to_owned);
    let by = ForwardedBy {
        client: client.remote.ip(),
        host: host.as_deref(),
        is_secure: client.secure,
        trusted,
    };
    forwarded::apply(rule, request.headers_mut(), &by)
}

/// Answers requests that the dispatcher has admitted.
pub trait Handler: Send + Sync + 'static {
    /// The body of the handler's responses.
    type Body: AnyBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Answers one request. The future is dropped when its client disconnects, and so is the body of the answer. The
    /// future is small, because it is moved into a box for each request.
    fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        admitted: Admitted,
    ) -> impl Future<Output = Response<Self::Body>> + Send + use<Self>;

    /// Notes that the listener will close soon, so that the handler can tell its clients.
    fn linger(&self) {}

    /// Notes that the listener has closed, and only open requests continue.
    fn drain(&self) {}

    /// Waits until no call is open. While the listener stops, streams that only listen may remain,
    /// and nothing waits for them.
    fn calls_done(&self) -> impl Future<Output = ()> + Send {
        future::pending()
    }

    /// Returns the routes that are served, in the order of their numbers in a `RouteMatch`.
    fn served(&self) -> Vec<ServedRoute> {
        Vec::new()
    }

    /// Returns the metrics in the format of Prometheus; `None` if there are none.
    fn metrics(&self) -> Option<String> {
        None
    }

    /// Returns the table of calls; `None` if there are no observers.
    fn calls(&self) -> Option<&Arc<Table>> {
        None
    }

    /// Counts a request that was refused before it reached this handler.
    fn count_refusal(&self, _refusal: Refusal) {}

    /// Returns the counters of bytes to and from clients.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// Returns the counter of connections that were closed because no request was open on them.
    fn idle_connections(&self) -> Counter {
        Counter::default()
    }

    /// Returns the counters of client connections that were turned away.
    fn connection_counts(&self) -> ConnectionCounts {
        ConnectionCounts::default()
    }

    /// Returns the address on which other replicas pass requests on; `None` without a fleet.
    fn fleet_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Returns the client of a request that the replica `peer` passes on.
    ///
    /// # Errors
    /// If the request was not passed on by another replica.
    fn passed_on(&self, _peer: Peer, _parts: &mut Parts) -> Result<Peer, Refusal> {
        Err(Refusal::NotPassedOn)
    }

    /// Returns what is counted for each client; `None` if no limit applies.
    fn client_limits(&self) -> Option<&Arc<ClientLimits>> {
        None
    }

    /// Ends every stream as its protocol requires, and lets no new stream begin.
    fn end_streams(&self) -> impl Future<Output = ()> + Send;
}
