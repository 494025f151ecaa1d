//! The trait of request handlers behind the dispatcher.

use std::error::Error;
use std::future::{self, Future};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderName, Request, Response};
use http_body::Body as AnyBody;
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;

use super::last_use::LastUse;
use crate::config::routes::{ForwardedRule, Upstream};
use crate::config::values::ip_net::IpNet;
use crate::gateway::client_limits::ClientLimits;
use crate::gateway::dispatch::Proxy;
use crate::gateway::live_routes::ServedRoute;
use crate::gateway::refusals::no_route;
use crate::observe::calls::Table;
use crate::observe::metrics::Traffic;
use crate::transport::http::body::Body;
use crate::transport::http::client_name::{ClientName, LoopbackCaller};
use crate::transport::http::endpoints::RouteMatch;
use crate::transport::http::forwarded::{self, ForwardedBy};
use crate::transport::http::refusal::Refusal;
use crate::transport::http::write_state::WriteState;

/// The client of a connection, and its local address.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The address that it came from.
    pub remote: SocketAddr,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// Whether the connection uses TLS.
    pub secure: bool,
    /// The name in the client's certificate, if the listener asks for one; of an admitted request, that of its
    /// principal.
    pub name: Option<ClientName>,
    /// Whether the client takes written bytes.
    pub write_state: WriteState,
    /// The last use of the connection; `None` where its listener closes no silent connection.
    pub last_use: Option<LastUse>,
}

/// The facts about an admitted request.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The route and endpoint of the request.
    pub route_match: RouteMatch,
    /// The route as it was when the request came.
    pub served: Option<ServedRoute>,
    /// The client of the request.
    pub client: Peer,
    /// Fronts whose headers about their clients are believed.
    pub trusted_proxies: Arc<[IpNet]>,
    /// The header of `principal`, where another than these fronts sends it.
    pub foreign_principal: Option<HeaderName>,
    /// The request's `Authorization` was for this listener and is not forwarded.
    pub authorization_was_ours: bool,
}

/// The routes behind a listener, and the table of their calls for operators.
pub struct Routed(pub Arc<Proxy>, pub Option<Arc<Table>>);

impl Handler for Routed {
    type Body = Body;

    async fn handle(
        &self,
        mut request: Request<Incoming>,
        admitted: Admitted,
    ) -> Response<Self::Body> {
        let Admitted { route_match, served, client, trusted_proxies, .. } = admitted;
        let proxy_auth = admitted.authorization_was_ours;
        match served {
            Some(served) => {
                let (remote, name) = (client.remote.ip(), client.name.as_ref());
                let clients = &self.0.clients;
                let headers = request.headers();
                let limited =
                    clients.client_of(remote, name, headers, &trusted_proxies, proxy_auth);
                if let Some(client) = limited {
                    request.extensions_mut().insert(client);
                }
                let is_front = trusted_proxies.iter().any(|net| net.contains(remote));
                // A call of a server of Streamable HTTP needs no mark, which would cost an allocation.
                let has_own_sessions =
                    matches!(&served.route().upstream, Upstream::Http(http) if http.url.is_some());
                let is_local = client.local.ip().to_canonical().is_loopback() && !is_front;
                if is_local && !proxy_auth && !has_own_sessions {
                    request.extensions_mut().insert(LoopbackCaller);
                }
                let rule = served.route().forwarded;
                let mut is_foreign = rule != ForwardedRule::Pass
                    && forward(rule, &mut request, &client, &trusted_proxies);
                if let Some(header) = admitted.foreign_principal {
                    is_foreign |= request.headers_mut().remove(header).is_some();
                }
                if is_foreign {
                    self.0.metrics().count_forwarded_dropped();
                }
                Arc::clone(&self.0)
                    .handle(served, route_match.part, request, proxy_auth, client.write_state)
                    .await
            }
            None => no_route(),
        }
    }

    fn served(&self) -> Vec<ServedRoute> {
        self.0.served()
    }

    fn metrics(&self) -> Option<String> {
        Some(self.0.metrics_text())
    }

    fn calls(&self) -> Option<&Arc<Table>> {
        self.1.as_ref()
    }

    fn count_refusal(&self, refusal: Refusal) {
        self.0.metrics().count_refusal(refusal.name());
    }

    fn traffic(&self) -> Traffic {
        self.0.metrics().clients().clone()
    }

    fn idle_connections(&self) -> Counter {
        self.0.metrics().idle_connections().clone()
    }

    fn client_limits(&self) -> Option<&Arc<ClientLimits>> {
        Some(&self.0.clients)
    }

    async fn calls_done(&self) {
        self.0.calls_done().await;
    }

    async fn end_streams(&self) {
        self.0.end_streams();
    }
}

/// Applies a route's rule for headers about clients of fronts; true if values were left out.
fn forward(
    rule: ForwardedRule,
    request: &mut Request<Incoming>,
    client: &Peer,
    trusted: &[IpNet],
) -> bool {
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = request.uri().authority().map(Authority::as_str).or(header).map(str::to_owned);
    let by = ForwardedBy {
        client: client.remote.ip(),
        host: host.as_deref(),
        is_secure: client.secure,
        trusted,
    };
    forwarded::apply(rule, request.headers_mut(), &by)
}

/// Answers requests that were let in.
pub trait Handler: Send + Sync + 'static {
    /// The body of its responses.
    type Body: AnyBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Answers one request. The future is dropped when its client leaves, as is the body of the
    /// answer.
    fn handle(
        &self,
        request: Request<Incoming>,
        admitted: Admitted,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Waits until no call is open. While the listener stops, streams that only listen may remain,
    /// and nothing waits for them.
    fn calls_done(&self) -> impl Future<Output = ()> + Send {
        future::pending()
    }

    /// The routes that are served, in the order in which places number them.
    fn served(&self) -> Vec<ServedRoute> {
        Vec::new()
    }

    /// The metrics as Prometheus reads them; `None` if there are none.
    fn metrics(&self) -> Option<String> {
        None
    }

    /// The table of calls; `None` if there are no observers.
    fn calls(&self) -> Option<&Arc<Table>> {
        None
    }

    /// Counts a request that was refused before this handler saw it.
    fn count_refusal(&self, _refusal: Refusal) {}

    /// The counters of bytes to and from clients.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// The counter of connections that ended because no request was open on them.
    fn idle_connections(&self) -> Counter {
        Counter::default()
    }

    /// The connections, streams and sessions of each client; `None` if no limit applies.
    fn client_limits(&self) -> Option<&Arc<ClientLimits>> {
        None
    }

    /// Ends every stream as its protocol has it, and lets no new one begin.
    fn end_streams(&self) -> impl Future<Output = ()> + Send;
}
