//! The endpoints of a route's server, and the client that reaches them.

use std::sync::Arc;
use std::time::Instant;

use http::header::CONTENT_ENCODING;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use url::{Position, Url};

use super::content::Content;
use super::lifecycle::LifecycleResponder;
use super::redirects::Redirects;
use crate::config::routes;
use crate::config::routes::{Environment, HttpUpstream, Route, Upstream};
use crate::observe::log::LogBudget;
use crate::observe::metrics::{ServerNotice, Traffic};
use crate::transport::http::client::{
    Connector, InProcess, RouteCredential, UpstreamBody, UpstreamError,
};
use crate::transport::http::connection_pool::ConnectionPool;
use crate::transport::http::cookies::CookiePlace;
use crate::transport::http::dialer::Dialer;
use crate::transport::http::forward_proxy::{ForwardProxy, ProxyDecision};
use crate::transport::http::inflate::Coding;
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::tls;
use crate::transport::http::tls::{ClientTlsError, ROUTE_AUTHORITIES, TlsPeer};

/// The reason why a route cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// TLS cannot be set up.
    #[error("route {route}")]
    Tls {
        /// The route's path.
        route: String,
        /// The cause.
        #[source]
        source: ClientTlsError,
    },
    /// The address is not that of an HTTP server.
    #[error("route {route}: {url} is not the address of an HTTP server")]
    Address {
        /// The route's path.
        route: String,
        /// The address as the route writes it.
        url: String,
    },
}

/// The connections to a server, and the requests that Milepost answers in its place.
#[derive(Clone)]
pub(crate) struct ServerClient {
    client: Arc<ConnectionPool>,
    lifecycle: Option<Arc<LifecycleResponder>>,
    /// Follows the redirects of the endpoint; `None` on an opaque route, and for a server within this process.
    redirects: Option<Arc<Redirects>>,
    /// Limits the log lines about the refused credential of the route.
    refused_credentials: Arc<LogBudget>,
    /// Limits the log lines about responses that cannot be decompressed.
    undecoded: Arc<LogBudget>,
}

impl ServerClient {
    /// Sends a request and waits for the head of the response. If the route has a lifecycle, Milepost answers some
    /// requests in the server's place.
    ///
    /// # Errors
    /// If there is no connection, or the connection fails before the head.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let is_of_route = request.extensions().get::<RouteCredential>().is_some();
        let response = match (&self.lifecycle, &self.redirects) {
            (None, None) => self.client.send(request).await,
            (None, Some(redirects)) => redirects.send(&self.client, request).await,
            // Boxed: a lifecycle is rare, and would make the future of every call larger.
            (Some(lifecycle), _) => Box::pin(lifecycle.send(&self.client, request)).await,
        }?;
        // The route sets this credential and not the client. A 401 would start a sign-in, which could not help.
        if is_of_route && response.status() == StatusCode::UNAUTHORIZED {
            self.tell_of_refusal();
            return Err(UpstreamError::CredentialRefused);
        }
        // Without `redirects` the route is opaque, and the body is not read.
        if self.redirects.is_some() && is_undecoded(response.headers()) {
            self.tell_of_coding(response.headers());
        }
        Ok(response)
    }

    /// Logs that the server compresses messages in a way that Milepost does not know.
    fn tell_of_coding(&self, headers: &HeaderMap) {
        self.client.traffic().notice(ServerNotice::Undecoded);
        if let Some(left_out) = self.undecoded.take(Instant::now()) {
            tracing::warn!(
                server = self.client.name(),
                coding = ?headers.get(CONTENT_ENCODING),
                left_out = (left_out > 0).then_some(left_out),
                "the server compresses although it was asked not to, in a way that Milepost cannot decode, and the \
                 messages stay unread: let the server, or the proxy before the server, heed `Accept-Encoding: identity` \
                 or use gzip"
            );
        }
    }

    /// Logs that the server refuses the credential of the route.
    fn tell_of_refusal(&self) {
        if let Some(left_out) = self.refused_credentials.take(Instant::now()) {
            tracing::warn!(
                left_out = (left_out > 0).then_some(left_out),
                "the server refuses the credential of the route with 401, and clients get 502: renew `authorization` in \
                 `headers.request.set`, or remove it so that clients sign in themselves"
            );
        }
    }
}

/// Whether a response contains messages in a compression that Milepost does not know.
fn is_undecoded(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_ENCODING)
        && Coding::of(headers).is_none()
        && Content::unpacked(headers) != Content::Other
}

/// One endpoint of a server.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: ServerClient,
    authority: Authority,
    /// The authority of the endpoint, as the value of `Host`.
    pub(crate) host: HeaderValue,
    scheme: Scheme,
    path: PathAndQuery,
    http2: bool,
    /// The URL as written in the route.
    pub(crate) url: Option<Url>,
}

impl Target {
    /// Returns the URI of a request to the endpoint, with the query of the client's request. The client cannot set a
    /// name that is in the route's own query, because some servers would use the client's value.
    pub(crate) fn uri(&self, query: Option<&str>) -> Uri {
        let own_path = || self.path.clone();
        // The route's query is used alone if both together would not be a valid URI.
        let path = match (query, self.path.query()) {
            (None, _) => self.path.clone(),
            (Some(query), None) => joined(self.path.path(), query).unwrap_or_else(own_path),
            (Some(query), Some(own)) => {
                let both = joined_queries(own, query);
                joined(self.path.path(), &both).unwrap_or_else(own_path)
            }
        };
        self.at(path)
    }

    /// Returns what decides which cookies a request to this URI gets.
    pub(crate) fn cookie_place<'a>(&'a self, uri: &'a Uri) -> CookiePlace<'a> {
        CookiePlace {
            host: self.authority.host(),
            path: uri.path(),
            is_secure: self.scheme == Scheme::HTTPS,
        }
    }

    /// Returns the value of `Host` and the URI of a request to the endpoint, with the query of the client's request.
    pub(crate) fn address(&self, query: Option<&str>) -> (&HeaderValue, Uri) {
        (&self.host, self.uri(query))
    }

    /// Returns the URI of another path of the same server.
    pub(crate) fn at(&self, path: PathAndQuery) -> Uri {
        // HTTP/1.1 sends only the path (RFC 9112, 3.2.1); HTTP/2 needs scheme and authority (RFC 9113, 8.3.1).
        if !self.http2 {
            return path.into();
        }
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path.clone());
        Uri::from_parts(parts).unwrap_or_else(|_| path.into())
    }
}

fn joined(path: &str, query: &str) -> Option<PathAndQuery> {
    PathAndQuery::try_from(format!("{path}?{query}")).ok()
}

/// Returns the Streamable HTTP endpoint and the HTTP+SSE endpoint of a route. `connect` replaces the network; the demo
/// server can only be reached through it.
///
/// # Errors
/// If the route's certificates cannot be used or its address is not valid.
pub(crate) fn targets(
    route: &Route,
    connect: Option<&InProcess>,
    traffic: &Traffic,
) -> Result<(Option<Target>, Option<Target>), TargetError> {
    match &route.upstream {
        Upstream::Demo => Ok((connect.map(|connect| in_process(route, connect, traffic)), None)),
        Upstream::Command(_) => Ok((None, None)),
        Upstream::Http(upstream) => {
            let tls = match [&upstream.url, &upstream.sse] {
                // Both endpoints share one TLS configuration, so that the certificates are read once.
                urls if urls.iter().any(|url| is_tls(url.as_ref())) => Some(tls(route, upstream)?),
                _ => None,
            };
            let target = |url: &Option<Url>, lifecycle| {
                let target =
                    |url| target((route, traffic), upstream, url, tls.as_ref(), connect, lifecycle);
                url.as_ref().map(target).transpose()
            };
            let lifecycle = upstream.lifecycle.as_deref();
            // A lifecycle is for servers without an MCP transport, so it does not apply to HTTP+SSE.
            Ok((target(&upstream.url, lifecycle)?, target(&upstream.sse, None)?))
        }
    }
}

/// Returns the endpoint of a server within this process.
fn in_process(route: &Route, connect: &InProcess, traffic: &Traffic) -> Target {
    let connector = Connector::InProcess(Arc::clone(connect));
    let client = Arc::new(ConnectionPool::new(connector, route.connect_timeout, traffic));
    Target {
        client: ServerClient {
            client,
            lifecycle: None,
            redirects: None,
            refused_credentials: Arc::new(LogBudget::one_a_minute()),
            undecoded: Arc::new(LogBudget::one_a_minute()),
        },
        authority: Authority::from_static("localhost"),
        host: HeaderValue::from_static("localhost"),
        scheme: Scheme::HTTP,
        path: PathAndQuery::from_static("/mcp"),
        http2: false,
        url: None,
    }
}

fn is_tls(url: Option<&Url>) -> bool {
    url.is_some_and(|url| url.scheme() == "https")
}

fn target(
    (route, traffic): (&Route, &Traffic),
    upstream: &HttpUpstream,
    url: &Url,
    tls: Option<&TlsConnector>,
    connect: Option<&InProcess>,
    lifecycle: Option<&routes::Lifecycle>,
) -> Result<Target, TargetError> {
    let wrong = || TargetError::Address { route: route.path.clone(), url: url.to_string() };
    let host = url.host_str().ok_or_else(wrong)?;
    let port = url.port_or_known_default().ok_or_else(wrong)?;
    // `Host` has the port only if the port is not the default of the scheme.
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let path = path_of(url).ok_or_else(wrong)?;
    let beside =
        |url: &Option<Url>| url.as_ref().map(|url| path_of(url).ok_or_else(wrong)).transpose();
    let lifecycle = match lifecycle {
        None => None,
        Some(config) => Some(LifecycleResponder {
            endpoint: path.clone(),
            tools: beside(&config.tools)?,
            initialize: beside(&config.initialize)?,
            server: config.server.clone(),
            address: authority.clone(),
            within: route.own_request_timeout,
        }),
    };
    // Brackets are part of the text of an IPv6 address, not of the address.
    let host = host.trim_matches(['[', ']']).to_owned();
    let tls = match tls.filter(|_| url.scheme() == "https") {
        Some(connector) => {
            let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
            Some(TlsPeer { connector: connector.clone(), name, setting: ROUTE_AUTHORITIES })
        }
        None => None,
    };
    let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    let http2 = upstream.http2;
    let connector = match connect {
        Some(connect) => Connector::InProcess(Arc::clone(connect)),
        None => {
            let dialer = Dialer::new(host, port, tls);
            let dialer = if http2 { dialer.with_http2() } else { dialer };
            Connector::Network(Arc::new(dialer.through(proxy((route, traffic), upstream, url)?)))
        }
    };
    let client = ConnectionPool::new(connector, route.connect_timeout, traffic);
    // An opaque route forwards redirects unchanged.
    let redirects = (!route.opaque).then(|| Arc::new(Redirects::new(url.clone())));
    let lifecycle = lifecycle.map(Arc::new);
    Ok(Target {
        client: ServerClient {
            client: Arc::new(client),
            lifecycle,
            redirects,
            refused_credentials: Arc::new(LogBudget::one_a_minute()),
            undecoded: Arc::new(LogBudget::one_a_minute()),
        },
        host: authority.parse().map_err(|_| wrong())?,
        authority: authority.parse().map_err(|_| wrong())?,
        scheme,
        path,
        http2,
        url: Some(url.clone()),
    })
}

/// Returns the route's query, followed by the pairs of the client's query whose names the route does not use.
fn joined_queries(own: &str, query: &str) -> String {
    let name_of = |pair: &str| {
        let pair = url::form_urlencoded::parse(pair.as_bytes()).next();
        pair.map(|(name, _)| name.into_owned())
    };
    let taken: Vec<Option<String>> = own.split('&').map(name_of).collect();
    let mut both = own.to_owned();
    // Compared after decoding: `%61=1` is the name `a` too.
    for pair in query.split('&') {
        let name = name_of(pair);
        if name.is_none() || !taken.contains(&name) {
            both.push('&');
            both.push_str(pair);
        }
    }
    both
}

/// Returns the path and the query of a URL.
fn path_of(url: &Url) -> Option<PathAndQuery> {
    url[Position::BeforePath..Position::AfterQuery].parse().ok()
}

/// Returns the forward proxy for an endpoint, which is logged once for both endpoints of one server.
fn proxy(
    (route, traffic): (&Route, &Traffic),
    upstream: &HttpUpstream,
    url: &Url,
) -> Result<Option<ForwardProxy>, TargetError> {
    let decision = ProxyDecision::of(upstream.proxy.as_ref(), &Environment::of_process(), url);
    // Two endpoints of one origin use the same proxy, so one line is enough.
    let first = upstream.url.as_ref().unwrap_or(url);
    if first == url || first.origin() != url.origin() {
        decision.log(&route.path, url);
        if let Some(notice) = decision.notice() {
            traffic.notice(notice);
        }
    }
    let trusted = upstream.ca_file.clone().unwrap_or_default();
    let proxy = decision.proxy().map(|url| ForwardProxy::new(url, &trusted, ROUTE_AUTHORITIES));
    proxy.transpose().map_err(|source| TargetError::Tls { route: route.path.clone(), source })
}

/// Returns the TLS settings for the server, with the certificates that the route names.
fn tls(route: &Route, upstream: &HttpUpstream) -> Result<TlsConnector, TargetError> {
    let own = upstream.client_certificate.as_ref().map(|own| (&*own.certificate, &*own.key));
    let trusted = upstream.ca_file.clone().unwrap_or_default();
    let protocols = if upstream.http2 { tls::HTTP2_FIRST } else { &[] };
    let connector = tls::connector(&trusted, own, protocols);
    connector.map_err(|source| TargetError::Tls { route: route.path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_routes_query_is_the_routes_alone() {
        for (own, query, both) in [
            ("key=a", "x=1&y=%20", "key=a&x=1&y=%20"),
            ("key=a", "key=b&x=1", "key=a&x=1"),
            ("key=a", "x=1&%6bey=b&key=c", "key=a&x=1"),
            ("key=a&b", "b=2&Key=3&&c", "key=a&b&Key=3&&c"),
            ("a+b=1", "a%20b=2", "a+b=1"),
        ] {
            assert_eq!(joined_queries(own, query), both, "{own} {query}");
        }
    }
}
