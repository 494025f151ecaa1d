//! Routes and listeners with all values resolved: a value that has a default is not optional.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use super::authorities::Authorities;
use super::client_maxima::ClientMaxima;
use super::front_header::FrontHeader;
use super::header_rules::HeaderRules;
use super::inherited_env::InheritedEnv;
use super::lifecycle::Lifecycle;
use super::presets::Preset;
use crate::config::settings::Settings;
use crate::config::values::ip_net::IpNet;
use crate::config::values::proxy_url::ProxyChoice;
use crate::config::values::text::OriginOrAny;
use crate::config::values::{StateDir, Word};
#[cfg(test)]
use crate::policy_file::text::TextValue;
use crate::policy_file::text::texts;
use crate::progress::{Mode, Policy};

/// A secret, which is never shown in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
}

impl Secret {
    /// Wraps `text`, so that debug output does not show it.
    pub fn new(text: String) -> Self {
        Self { text }
    }

    /// Returns the secret itself.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// `[server]`: the listener for clients, and the clients that it accepts.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// The address clients connect to.
    pub listen: SocketAddr,
    /// Host names that are answered, in addition to the listener's own name and loopback names.
    pub allowed_hosts: Vec<String>,
    /// Browser origins whose requests are accepted, in addition to loopback origins.
    pub allowed_origins: Vec<String>,
    /// The addresses of front proxies. Headers in which they name their clients are trusted, and limits for clients do
    /// not apply to the fronts themselves.
    pub trusted_proxies: Vec<IpNet>,
    /// The header in which fronts name their clients.
    pub front_header: FrontHeader,
    /// The header in which fronts name the user of a request; `None`: they name no user.
    pub principal: Option<HeaderName>,
    /// Whether requests are refused that a page of another site can send without its origin, or as a form.
    pub check_pages: bool,
    /// Whether every host name is answered; `allowed_hosts` is then ignored.
    pub insecure: bool,
    /// The URL of this listener as clients know it, if a front rewrites paths.
    pub public_url: Option<Url>,
    /// The certificate and key of the listener (PEM files); without them it speaks plain HTTP.
    pub tls: Option<ServerTls>,
    /// PEM file with the authorities that must have signed the client's certificate; `None`: no certificate is needed.
    pub client_ca_file: Option<PathBuf>,
    /// The token that clients have to present as `Authorization: Bearer`; none by default.
    pub bearer: Option<Secret>,
    /// The time after SIGTERM in which the listener is not ready, but still serves.
    pub linger: Duration,
    /// The time that open calls may continue after SIGTERM and `linger`.
    pub drain: Duration,
    /// Limit of open client connections; more are refused with 503.
    pub max_connections: usize,
    /// Time without a request after which an HTTP/1.1 connection is closed; `None`: never.
    pub http1_idle_timeout: Option<Duration>,
    /// Time without a request after which an HTTP/2 connection is closed; `None`: never.
    pub http2_idle_timeout: Option<Duration>,
    /// The limits of each client.
    pub clients: ClientMaxima,
    /// Whether `serve` raises its soft limit of descriptors to the hard limit.
    pub raise_descriptors: bool,
    /// Limit of the bytes of a request head; a larger one is refused with 431.
    pub max_header_bytes: usize,
    /// Limit of the bytes of all incomplete request bodies together; requests above it are refused with 503.
    pub max_unread_bytes: usize,
    /// Limit of the bytes of all large answers in files together; calls above it get errors.
    pub max_spilled_bytes: usize,
    /// Limit of the bytes of all messages in memory that wait for clients or servers.
    pub max_kept_bytes: usize,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7332)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            front_header: FrontHeader::default(),
            principal: None,
            check_pages: true,
            insecure: false,
            public_url: None,
            tls: None,
            client_ca_file: None,
            bearer: None,
            linger: Duration::ZERO,
            drain: Duration::from_secs(30),
            max_connections: 10_000,
            http1_idle_timeout: Some(Duration::from_secs(5 * 60)),
            http2_idle_timeout: Some(Duration::from_secs(5 * 60)),
            clients: ClientMaxima::default(),
            raise_descriptors: true,
            max_header_bytes: 64 << 10,
            max_unread_bytes: 256 << 20,
            max_spilled_bytes: 4 << 30,
            max_kept_bytes: 256 << 20,
        }
    }
}

/// A certificate and its key. Paths are relative to the route file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(
    rename = "Certificate",
    deny_unknown_fields,
    expecting = "a table such as { certificate = \"certificate.pem\", key = \"key.pem\" }"
)]
pub struct ServerTls {
    /// PEM file with the certificate and those that lead to its root.
    #[serde(deserialize_with = "path", serialize_with = "path_text")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub certificate: PathBuf,
    /// PEM file with the private key.
    #[serde(deserialize_with = "path", serialize_with = "path_text")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub key: PathBuf,
}

fn path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    String::deserialize(from).map(PathBuf::from)
}

fn path_text<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// `[state]`: the directory of data that outlives the process.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StateSettings {
    /// The directory; `None` if the file does not set it.
    pub dir: Option<StateDir>,
}

/// `[admin]`: the listener for operators.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    /// The address; `None`: there is no admin listener.
    pub listen: Option<SocketAddr>,
    /// The token that operators have to present to see or change anything.
    pub bearer: Option<Secret>,
    /// Whether a token is created at startup if `bearer` is not set.
    pub make_token: bool,
}

impl Admin {
    /// Returns settings without an admin listener.
    pub fn none() -> Self {
        Self { listen: None, ..Self::default() }
    }
}

impl Default for Admin {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7333));
        Self { listen: Some(listen), bearer: None, make_token: true }
    }
}

/// The server behind a route.
#[derive(Clone, PartialEq)]
pub enum Upstream {
    /// The embedded legacy server.
    Demo,
    /// A stdio server.
    Command(StdioUpstream),
    /// A server reached over HTTP.
    Http(HttpUpstream),
}

impl Upstream {
    /// Whether `other` is the same server: the same command in the same folder, or the same addresses. Limits,
    /// times and other options may differ.
    pub fn is_same_server(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Demo, Self::Demo) => true,
            (Self::Command(one), Self::Command(other)) => {
                one.command == other.command
                    && one.env == other.env
                    && one.inherit_env == other.inherit_env
                    && one.cwd == other.cwd
            }
            (Self::Http(one), Self::Http(other)) => one.url == other.url && one.sse == other.sse,
            _ => false,
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demo => f.write_str("Demo"),
            Self::Command(stdio) => stdio.fmt(f),
            Self::Http(http) => http.fmt(f),
        }
    }
}

/// A stdio server: how its children are started, and the limits of their number and lifetime.
#[derive(Clone, PartialEq)]
pub struct StdioUpstream {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Environment variables of the child, in addition to those inherited.
    pub env: Vec<(OsString, OsString)>,
    /// The variables of Milepost that the child inherits under `serve`. Under `wrap` it inherits all.
    pub inherit_env: InheritedEnv,
    /// The variables that the route file uses for secrets and for other servers, which the child does not inherit.
    pub(super) private_env: BTreeSet<String>,
    /// The working directory of the child; `None`: Milepost's own.
    pub cwd: Option<PathBuf>,
    /// Whether clients of 2026-07-28 share one child per `Authorization`; otherwise they are refused.
    pub share: bool,
    /// Limit of running children; more sessions are refused with 503.
    pub max_children: usize,
    /// Limit of open calls on a shared child, divided among its clients; 0: no limit.
    pub max_shared_calls: usize,
    /// The time after its start within which a child must answer its first request.
    pub start_timeout: Duration,
    /// Time without use after which a session or a shared child is ended; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Time after which a session is ended if its client has closed the GET stream and sends nothing; `None`: only
    /// [`StdioUpstream::idle_timeout`] ends it.
    pub abandoned_timeout: Option<Duration>,
    /// Whether a shared child that has died is started again; otherwise its clients get errors.
    pub restart: bool,
    /// Maximum number of bytes of a shared child's message that is kept in memory; a longer message goes to a temporary
    /// file.
    pub max_frame: usize,
    /// Maximum number of bytes of a shared child's message that goes to a temporary file; the caller of a longer
    /// message gets an error.
    pub max_spill: usize,
}

impl StdioUpstream {
    /// Returns a server with default settings.
    pub fn new(command: Vec<OsString>) -> Self {
        Self {
            command,
            env: Vec::new(),
            inherit_env: InheritedEnv::All,
            private_env: BTreeSet::new(),
            cwd: None,
            share: true,
            max_children: 100,
            max_shared_calls: 1000,
            start_timeout: Duration::from_secs(60),
            idle_timeout: Some(Duration::from_secs(30 * 60)),
            abandoned_timeout: None,
            restart: true,
            max_frame: 16 << 20,
            max_spill: 1 << 30,
        }
    }
}

impl StdioUpstream {
    /// Returns those of the variables `names` that the server does not inherit under `serve`.
    pub fn left_out(&self, names: impl IntoIterator<Item = OsString>) -> BTreeSet<OsString> {
        self.inherit_env.left_out(names, &self.private_env)
    }
}

/// Arguments and variables may be secrets, so only the command is shown.
impl fmt::Debug for StdioUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Command").field(&self.command.first()).finish()
    }
}

/// A server reached over HTTP.
#[derive(Clone, Default, PartialEq)]
pub struct HttpUpstream {
    /// The server's Streamable HTTP endpoint, if it has one.
    pub url: Option<Url>,
    /// The server's HTTP+SSE endpoint (2024-11-05), if it has one. A server has at least one of the two endpoints.
    pub sse: Option<Url>,
    /// Whether requests without TLS use HTTP/2. With TLS the version is negotiated.
    pub http2: bool,
    /// The forward proxy through which the server is reached; `None`: the one that environment variables name.
    pub proxy: Option<ProxyChoice>,
    /// The certificate authorities that are trusted; `None`: the system's.
    pub ca_file: Option<Authorities>,
    /// PEM files with the certificate chain and the key that Milepost presents to the server.
    pub client_certificate: Option<ServerTls>,
    /// The answers that Milepost gives in the place of a server that does not know `initialize`.
    pub lifecycle: Option<Box<Lifecycle>>,
}

impl HttpUpstream {
    /// Returns a server with a Streamable HTTP endpoint and default settings.
    pub fn new(url: Url) -> Self {
        Self { url: Some(url), ..Self::default() }
    }
}

/// A query may contain a secret, so only the endpoint is shown.
impl fmt::Debug for HttpUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |url: &Option<Url>| {
            url.as_ref().map(|url| format!("{}{}", url.origin().ascii_serialization(), url.path()))
        };
        f.debug_struct("Http")
            .field("url", &place(&self.url))
            .field("sse", &place(&self.sse))
            .field("http2", &self.http2)
            .finish_non_exhaustive()
    }
}

/// The handling of headers in which a front names its client: `X-Forwarded-*` and `Forwarded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedRule {
    /// The headers pass unchanged.
    #[default]
    Pass,
    /// The headers are left out.
    Drop,
    /// The client is added; values from senders that are not trusted fronts are removed.
    Append,
}

impl Word for ForwardedRule {
    const WORDS: &'static [(&'static str, Self)] =
        &[("pass", Self::Pass), ("drop", Self::Drop), ("append", Self::Append)];
}

/// CORS, answered in the place of the upstream.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table such as { origins = [\"*\"] }")]
pub struct Cors {
    /// The origins that may read answers; "*" means every admitted origin.
    #[serde(deserialize_with = "texts::<OriginOrAny, _>")]
    #[cfg_attr(test, schemars(with = "Vec<TextValue<OriginOrAny>>"))]
    pub origins: Vec<String>,
}

/// One route: a server and how its progress is treated.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The path where clients find the route; also its name.
    pub path: String,
    /// The URL of the route for clients, if a front rewrites paths.
    pub public_url: Option<Url>,
    /// The server behind the route.
    pub upstream: Upstream,
    /// Whether the route is only piped, so that no message is read or changed.
    pub opaque: bool,
    /// Headers of requests.
    pub request_headers: HeaderRules,
    /// Headers of responses.
    pub response_headers: HeaderRules,
    /// What happens to request headers in which a front names its client.
    pub forwarded: ForwardedRule,
    /// Deadline for connecting to the upstream.
    pub connect_timeout: Duration,
    /// Deadline for the upstream's answer to a request of Milepost's own.
    pub own_request_timeout: Duration,
    /// Time without a byte from the upstream after which its stream is given up; off by default.
    pub idle_timeout: Option<Duration>,
    /// Time without use after which a session that Milepost serves in front of an HTTP server is ended; `None`: never.
    pub session_idle_timeout: Option<Duration>,
    /// Time without an answer after which a POST is answered with a stream; `None`: never.
    pub upgrade_after: Option<Duration>,
    /// Methods besides `tools/call` whose POST may be answered with an early stream.
    pub upgrade_methods: Vec<String>,
    /// Silence of a stream after which a comment is written; `None`: never.
    pub keep_alive: Option<Duration>,
    /// Whether Milepost holds a GET stream for sessions whose client opens none.
    pub own_get: bool,
    /// Whether the proxy answers for CORS; otherwise the upstream does.
    pub cors: Option<Cors>,
    /// Limit of the bytes of a request body; a larger one is refused with 413.
    pub max_request_bytes: usize,
    /// Deadline for a client to send the body of a request; `None`: no deadline.
    pub body_timeout: Option<Duration>,
    /// Minimum number of bytes per second of a request body after the first ten seconds; 0: no minimum.
    pub body_min_rate: usize,
    /// Limit of open streams; more are refused with 503.
    pub max_streams: usize,
    /// Maximum number of sessions that are remembered; a new session replaces the one unused for longest.
    pub max_sessions: usize,
    /// The preset that supplies values for keys that the route does not have, if the route names one.
    pub preset: Option<Preset>,
    pub(super) preset_settings: Settings,
    pub(super) settings: Settings,
}

impl Route {
    /// Returns a route with default settings.
    pub fn new(path: String, upstream: Upstream) -> Self {
        Self {
            path,
            public_url: None,
            upstream,
            opaque: false,
            request_headers: HeaderRules::default(),
            response_headers: HeaderRules::default(),
            forwarded: ForwardedRule::default(),
            connect_timeout: Duration::from_secs(10),
            own_request_timeout: Duration::from_secs(30),
            idle_timeout: None,
            session_idle_timeout: Some(Duration::from_secs(30 * 60)),
            upgrade_after: Some(Duration::from_secs(5)),
            upgrade_methods: Vec::new(),
            keep_alive: Some(Duration::from_secs(15)),
            own_get: false,
            cors: None,
            max_request_bytes: 64 << 20,
            body_timeout: Some(Duration::from_secs(120)),
            body_min_rate: 1024,
            max_streams: 10_000,
            max_sessions: 10_000,
            preset: None,
            preset_settings: Settings::default(),
            settings: Settings::default(),
        }
    }

    /// Returns the path of the upstream; empty for a command.
    pub fn upstream_path(&self) -> &str {
        match &self.upstream {
            Upstream::Http(http) => http.url.as_ref().or(http.sse.as_ref()).map_or("", Url::path),
            Upstream::Command(_) | Upstream::Demo => "",
        }
    }

    /// Returns the path of the route as clients write it, without a final slash.
    pub fn public_path(&self) -> &str {
        self.public_url.as_ref().map_or(&*self.path, Url::path).trim_end_matches('/')
    }

    /// Returns the answers that Milepost gives in the place of the server, if it gives any.
    pub fn lifecycle(&self) -> Option<&Lifecycle> {
        match &self.upstream {
            Upstream::Http(upstream) => upstream.lifecycle.as_deref(),
            _ => None,
        }
    }

    /// Whether bare results of tools are wrapped.
    pub fn wraps_results(&self) -> bool {
        self.lifecycle().is_some_and(|lifecycle| lifecycle.wrap_results)
    }

    /// Changes `policy` by the settings of the route and its preset.
    pub fn apply(&self, policy: &mut Policy) {
        self.preset_settings.apply(policy);
        self.settings.apply(policy);
        policy.bare_results |= self.wraps_results();
        if self.opaque {
            policy.set_mode(Mode::Observe);
        }
    }
}
