//! A route while it is served: its server, its sessions, and what has been learned of either.

use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use url::Url;

use super::bridge;
use crate::config::routes;
use crate::config::routes::{HttpUpstream, Route, Upstream};
use crate::gateway::demo_upstream;
use crate::gateway::direct::accepted_callers::Proven;
use crate::gateway::direct::http_sse::Wires;
use crate::gateway::direct::session::Sessions;
use crate::observe::events::{EventEmitter, FilterId, ObserverFactory, Scope};
use crate::observe::log::Connection;
use crate::observe::metrics::{RouteCounts, Tables, Traffic};
use crate::progress::{Pacing, Policy};
use crate::relay::discover_probe::Era;
use crate::transport::http::client::{Client, Connector, InProcess};
use crate::transport::http::cors::Known;
use crate::transport::http::in_flight::Calls;
use crate::transport::http::shutdown::Ending;
use crate::transport::mcp_http::lifecycle::Lifecycle;

/// The header that names a session (rule H-09).
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Why a route cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// A file with certificates or a key cannot be used.
    #[error("route {route}: {} cannot be used", file.display())]
    Pem {
        /// The route's path.
        route: String,
        /// The file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// TLS cannot be set up.
    #[error("route {route}: TLS cannot be set up")]
    Tls {
        /// The route's path.
        route: String,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// The address of the server is none.
    #[error("route {route}: {url} is no address of an HTTP server")]
    Address {
        /// The route's path.
        route: String,
        /// What it says.
        url: String,
    },
}

/// One endpoint of a server.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: Arc<Client>,
    authority: Authority,
    /// The same as the value of `Host`.
    pub(crate) host: HeaderValue,
    scheme: Scheme,
    path: PathAndQuery,
    http2: bool,
    /// As written in the route.
    pub(crate) url: Option<Url>,
}

impl Target {
    /// What is asked for: the endpoint itself, with the query of the client's request.
    pub(crate) fn uri(&self, query: Option<&str>) -> Uri {
        let own_path = || self.path.clone();
        let path = match (query, self.path.query()) {
            (None, _) => self.path.clone(),
            (Some(query), None) => joined(self.path.path(), query).unwrap_or_else(own_path),
            (Some(query), Some(own)) => {
                let both = format!("{own}&{query}");
                joined(self.path.path(), &both).unwrap_or_else(own_path)
            }
        };
        self.at(path)
    }

    /// Another path of the same server.
    pub(crate) fn at(&self, path: PathAndQuery) -> Uri {
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

/// A route while it is served: what holds for calls that begin now. A call keeps the one that it began
/// with, and goes on by its settings when others hold.
pub(crate) struct Site {
    pub(crate) route: Route,
    pub(crate) policy: Arc<Policy>,
    /// The same for a server that clients share.
    pub(crate) shared_policy: Arc<Policy>,
    /// Its Streamable HTTP endpoint.
    pub(crate) endpoint: Option<Target>,
    /// Its HTTP+SSE endpoint.
    pub(crate) sse: Option<Target>,
    pub(crate) sessions: Arc<Sessions>,
    /// Those that stood here with other servers, as long as calls to these are open.
    pub(crate) before: Vec<Weak<Self>>,
    /// What the files hold that its upstream names: see [`Target`].
    pub(crate) files: u64,
    pub(crate) generation: u64,
    pub(crate) kept: Arc<Kept>,
}

impl Deref for Site {
    type Target = Kept;

    fn deref(&self) -> &Kept {
        &self.kept
    }
}

/// What of a route stays when its settings change, as long as its server is the same.
pub(crate) struct Kept {
    pub(crate) counts: Arc<RouteCounts>,
    pub(crate) audience: Arc<Audience>,
    pub(crate) wires: Wires,
    /// Sessions of clients before a server of another transport.
    pub(crate) bridge: Arc<bridge::Sessions>,
    /// What is known of the server, if it is a child.
    pub(crate) era: Arc<Era>,
    /// Servers that clients of 2026-07-28 share.
    pub(crate) shared: bridge::SharedServers,
    /// What is connected to in the place of a child.
    pub(crate) in_process: Option<InProcess>,
    pub(crate) known_origins: Mutex<Known>,
    /// Callers that were served before.
    pub(crate) proven: Proven,
    /// Calls that are open.
    pub(crate) calls: Arc<Calls>,
    /// The moment at which its server is another one and the last call to it is over: whoever only
    /// listens ends then.
    pub(crate) over: Ending,
    hasher: RandomState,
    streams: AtomicUsize,
    /// Counts how often its settings were exchanged.
    generation: AtomicU64,
    /// What holds for calls that begin now.
    latest: Mutex<Weak<Site>>,
    /// Its server is another one now.
    left: std::sync::atomic::AtomicBool,
}

impl Kept {
    pub(crate) fn new(
        audience: Arc<Audience>,
        connect: Option<&InProcess>,
        calls: &Arc<Calls>,
    ) -> Self {
        Self {
            counts: Arc::clone(&audience.counts),
            audience,
            wires: Wires::default(),
            bridge: Arc::default(),
            era: Arc::default(),
            shared: bridge::SharedServers::default(),
            in_process: connect.cloned(),
            known_origins: Mutex::default(),
            proven: Proven::default(),
            calls: Calls::among(calls),
            over: Ending::default(),
            hasher: RandomState::new(),
            streams: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            latest: Mutex::default(),
            left: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Whether its server is another one now: it gets no new requests.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

/// Filters that have been looked on at.
static PARTS: AtomicU64 = AtomicU64::new(1);

/// Who is told what passes on a route.
pub(crate) struct Audience {
    route: String,
    counts: Arc<RouteCounts>,
    observers: Vec<Arc<dyn ObserverFactory>>,
}

impl Audience {
    /// Those who look on at this route.
    pub(crate) fn new(
        route: &str,
        counts: Arc<RouteCounts>,
        observers: &[Arc<dyn ObserverFactory>],
    ) -> Arc<Self> {
        Arc::new(Self { route: route.to_owned(), counts, observers: observers.to_vec() })
    }

    /// Counts for the route.
    pub(crate) fn log(&self) -> Connection {
        Connection::of(&self.counts)
    }

    /// Tells those who look on at a filter, if anyone does: one of the same conversation as that of `beside`.
    pub(crate) fn emitter(
        &self,
        beside: Option<FilterId>,
        scope: Scope,
        policy: &Arc<Policy>,
    ) -> Option<EventEmitter> {
        if self.observers.is_empty() {
            return None;
        }
        let filter = PARTS.fetch_add(1, Ordering::Relaxed);
        let id =
            FilterId { conversation: beside.map_or(filter, |beside| beside.conversation), filter };
        let begin =
            |factory: &Arc<dyn ObserverFactory>| factory.begin(id, &self.route, scope, policy);
        EventEmitter::new(
            id,
            crate::gateway::dispatch::now(),
            self.observers.iter().filter_map(begin).collect(),
        )
    }
}

/// A stream that counts while it is there.
pub(crate) struct Counted(Arc<Site>);

impl Counted {
    /// Where it counts.
    pub(crate) fn site(&self) -> &Site {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What holds for a route now, for what goes on for long.
pub(crate) struct Following(Arc<Site>);

impl Following {
    pub(crate) fn new(site: &Arc<Site>) -> Self {
        Self(Arc::clone(site))
    }

    /// What holds now.
    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.0
    }

    /// Looks again; true if something else holds.
    pub(crate) fn has_changed(&mut self) -> bool {
        let latest = self.0.latest();
        let changed = latest.is_some();
        self.0 = latest.unwrap_or_else(|| Arc::clone(&self.0));
        changed
    }
}

impl Site {
    /// From now on this holds for the calls of its route.
    pub(crate) fn holds(self: &Arc<Self>) {
        self.sessions.keep(self.route.max_sessions);
        *self.kept.latest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(self);
        self.kept.generation.store(self.generation, Ordering::Release);
        self.bridge.look();
    }

    /// What holds for the calls of its route instead of this, if anything does.
    pub(crate) fn latest(&self) -> Option<Arc<Self>> {
        if self.kept.generation.load(Ordering::Acquire) <= self.generation {
            return None;
        }
        self.kept.latest.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Its server is another one from now on. Sessions of ours end when their last call is over, and
    /// streams on which clients only listen when the route's last is.
    pub(crate) fn leave(self: Arc<Self>) {
        self.kept.left.store(true, Ordering::Release);
        self.bridge.look();
        tokio::spawn(async move {
            self.calls.done().await;
            self.over.end();
            tracing::debug!(route = self.route.path, "the last call to the server before is over");
        });
    }

    /// How much is in its tables.
    pub(crate) fn tables(&self) -> Tables {
        let (own, kept_messages, kept_bytes) = self.bridge.load();
        Tables {
            sessions: [self.sessions.len(), own, self.wires.len()],
            streams: self.streams.load(Ordering::Relaxed),
            kept_messages,
            kept_bytes,
        }
    }

    /// Those that stood here with other servers.
    pub(crate) fn befores(&self) -> impl Iterator<Item = Arc<Self>> {
        self.before.iter().rev().filter_map(Weak::upgrade)
    }

    /// Counts one more stream; `None` if there are too many.
    pub(crate) fn count(self: &Arc<Self>) -> Option<Counted> {
        let before = self.streams.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(self));
        (before < self.route.max_streams).then_some(counted)
    }

    /// The pacing of HTTP+SSE streams; there is none on others (rule G3).
    pub(crate) fn pacing(&self) -> Pacing {
        self.policy.pacing
    }

    /// Stands for whoever presents this `Authorization`.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> u64 {
        let values: Vec<&[u8]> =
            headers.get_all(header::AUTHORIZATION).iter().map(|value| value.as_bytes()).collect();
        self.hasher.hash_one(values)
    }
}

pub(crate) fn targets(
    route: &Route,
    connect: Option<&InProcess>,
    traffic: &Traffic,
) -> Result<(Option<Target>, Option<Target>), SiteError> {
    match &route.upstream {
        Upstream::Demo => {
            let connector = Connector::InProcess(demo_upstream::connector());
            let target = Target {
                client: Arc::new(Client::new(connector, route.connect_timeout, traffic)),
                authority: Authority::from_static("localhost"),
                host: HeaderValue::from_static("localhost"),
                scheme: Scheme::HTTP,
                path: PathAndQuery::from_static("/mcp"),
                http2: false,
                url: None,
            };
            Ok((Some(target), None))
        }
        Upstream::Command(_) => Ok((None, None)),
        Upstream::Http(upstream) => {
            let tls = match [&upstream.url, &upstream.sse] {
                urls if urls.iter().any(|url| is_tls(url.as_ref())) => Some(tls(route, upstream)?),
                _ => None,
            };
            let target = |url: &Option<Url>, lifecycle| {
                let target =
                    |url| target((route, traffic), upstream, url, tls.as_ref(), connect, lifecycle);
                url.as_ref().map(target).transpose()
            };
            let lifecycle = upstream.lifecycle.as_deref();
            Ok((target(&upstream.url, lifecycle)?, target(&upstream.sse, None)?))
        }
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
) -> Result<Target, SiteError> {
    let wrong = || SiteError::Address { route: route.path.clone(), url: url.to_string() };
    let host = url.host_str().ok_or_else(wrong)?;
    let port = url.port_or_known_default().ok_or_else(wrong)?;
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let path = path_of(url).ok_or_else(wrong)?;
    let beside =
        |url: &Option<Url>| url.as_ref().map(|url| path_of(url).ok_or_else(wrong)).transpose();
    let lifecycle = match lifecycle {
        None => None,
        Some(said) => Some(Lifecycle {
            endpoint: path.clone(),
            tools: beside(&said.tools)?,
            initialize: beside(&said.initialize)?,
            server: said.server.clone(),
            address: authority.clone(),
        }),
    };
    // Brackets belong to the text of an address, not to the address.
    let host = host.trim_matches(['[', ']']).to_owned();
    let tls = match tls.filter(|_| url.scheme() == "https") {
        Some(connector) => {
            let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
            Some((connector.clone(), name))
        }
        None => None,
    };
    let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    let http2 = upstream.http2;
    let connector = match connect {
        Some(connect) => Connector::InProcess(Arc::clone(connect)),
        None => Connector::Tcp { host, port, tls, http2 },
    };
    let client = Client::new(connector, route.connect_timeout, traffic);
    Ok(Target {
        client: Arc::new(client.with_lifecycle(lifecycle)),
        host: authority.parse().map_err(|_| wrong())?,
        authority: authority.parse().map_err(|_| wrong())?,
        scheme,
        path,
        http2,
        url: Some(url.clone()),
    })
}

/// What the server of a URL is asked for.
fn path_of(url: &Url) -> Option<PathAndQuery> {
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    path.parse().ok()
}

/// The system's authorities and the route's own; the route's certificate, if it has one.
fn tls(route: &Route, upstream: &HttpUpstream) -> Result<TlsConnector, SiteError> {
    let pem = |file: &PathBuf| {
        let (route, file) = (route.path.clone(), file.clone());
        move |source| SiteError::Pem { route, file, source }
    };
    let bad = |source| SiteError::Tls { route: route.path.clone(), source };
    let mut roots = RootCertStore::empty();
    // A system without authorities may still do with the route's own.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = &upstream.ca_file {
        for certificate in CertificateDer::pem_file_iter(file).map_err(pem(file))? {
            roots.add(certificate.map_err(pem(file))?).map_err(bad)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(bad)?
        .with_root_certificates(roots);
    let mut config = match &upstream.client_certificate {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain = CertificateDer::pem_file_iter(&own.certificate)
                .and_then(Iterator::collect)
                .map_err(pem(&own.certificate))?;
            let key = PrivateKeyDer::from_pem_file(&own.key).map_err(pem(&own.key))?;
            config.with_client_auth_cert(chain, key).map_err(bad)?
        }
    };
    config.alpn_protocols =
        if upstream.http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { Vec::new() };
    Ok(TlsConnector::from(Arc::new(config)))
}
