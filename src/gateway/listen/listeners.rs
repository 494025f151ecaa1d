//! The listeners of a process, from binding their sockets to their end.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use http::Request;
use http::uri::Scheme;
use hyper::body::Incoming;
use listenfd::ListenFd;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};
use url::Url;

use super::admin::{self, AdminApi};
use super::connection::{FIRST_REQUEST, boxed};
use super::descriptors;
use super::handler::Handler;
use super::idle::IdleRule;
use super::listener::{ConnectionTerms, HttpListener, ListenPhase};
use super::stop::{StopSignal, next_signal};
use super::tls::{self, TlsError};
use crate::config::routes::{Admin, Route, Server, Upstream};
use crate::gateway::listen::dispatcher::{Dispatcher, ServingConfig, StopTimes};
use crate::observe::metrics::Traffic;
use crate::platform::service;
use crate::transport::http::refusal::Refusal;
use crate::transport::http::via::Via;
use crate::transport::tasks;

/// Deadline at shutdown for streams to end in the way that HTTP requires.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Deadline for observers to receive the end of their streams.
const FAREWELL: Duration = Duration::from_millis(500);

/// On most systems, only privileged programs may use ports below this one.
const FIRST_FREE_PORT: u16 = 1024;

/// Returns what to do about an address on which the program cannot listen.
fn listen_cure(address: SocketAddr, source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied if address.port() < FIRST_FREE_PORT => {
            "ports below 1024 need a privilege: give it CAP_NET_BIND_SERVICE or a socket of systemd"
        }
        io::ErrorKind::PermissionDenied => "allow it to listen there",
        io::ErrorKind::AddrNotAvailable => "give this machine the address",
        _ => "end what listens there",
    }
}

/// Returns an address that may be free, for an address on which the program cannot listen.
fn other_address(address: SocketAddr, source: &io::Error) -> SocketAddr {
    let (ip, port) = (address.ip(), address.port());
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => SocketAddr::from(([127, 0, 0, 1], port)),
        // The usual ports without a privilege are 8080 and 8443.
        _ if port < FIRST_FREE_PORT => SocketAddr::new(ip, port + 8000),
        _ => SocketAddr::new(ip, port.checked_add(1).unwrap_or(port - 1)),
    }
}

/// The reason why the listeners cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The program cannot listen on an address.
    #[error(
        "cannot listen on {address}; {}, or write another address in [{table}], such as listen = \"{}\"",
        listen_cure(*address, source),
        other_address(*address, source)
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The table of the route file with the address.
        table: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A socket that systemd has passed cannot be used.
    #[error("the socket passed for [{table}] cannot be used; a listening TCP socket is expected")]
    Passed {
        /// The table of the route file whose address the socket replaces.
        table: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Other machines could connect, and no host name is configured.
    #[error(
        "{address} can be reached from other machines; name the hosts that clients use for it in \
         `allowed_hosts` of [server], or listen on 127.0.0.1"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// The certificate cannot be used.
    #[error("cannot serve TLS")]
    Tls(#[from] TlsError),
    /// Signals cannot be received.
    #[error("cannot receive signals")]
    Signals(#[source] io::Error),
}

/// The listeners and their handler.
pub struct Listeners<H> {
    clients: HttpListener,
    /// The listener for other replicas.
    fleet: Option<HttpListener>,
    admin: Option<HttpListener>,
    front: Arc<Dispatcher<H>>,
    handler: Arc<H>,
    tls: bool,
    admin_api: Arc<AdminApi<H>>,
}

impl<H: Handler> Listeners<H> {
    /// Binds the listeners. Clients that connect from now on wait for [`Self::serve`].
    ///
    /// Sockets that systemd has passed replace the addresses of `[server]` (the first) and `[admin]` (the second).
    /// `state` is the directory of the operators' token; `None` if no state is kept.
    ///
    /// # Errors
    /// If it cannot listen on an address, if other machines could connect although neither `allowed_hosts` nor
    /// `insecure` is set, or if the certificate cannot be used.
    pub async fn bind<'a>(
        server: &Server,
        admin: &Admin,
        state: Option<&Path>,
        routes: impl IntoIterator<Item = &'a Route> + Clone,
        via: Via,
        handler: Arc<H>,
    ) -> Result<Self, ServeError> {
        let mut passed = ListenFd::from_env();
        let socket = passed_socket(&mut passed, 0, "server")?;
        let own = socket.as_ref().and_then(|socket| socket.local_addr().ok());
        // A socket of systemd may have another address than the route file.
        let address = own.unwrap_or(server.listen);
        shelter(server, address)?;
        let tls = tls::load(server)?;
        let socket = listen(socket, server.listen, "server").await?;
        let clients = HttpListener::new(socket, terms(server, tls, &*handler))
            .counting(handler.connection_counts());
        let listener = match admin.listen {
            Some(address) => {
                let socket = passed_socket(&mut passed, 1, "admin")?;
                let socket = listen(socket, address, "admin").await?;
                let limits = (admin::CONNECTIONS_MAX, admin::HEAD_BYTES_MAX);
                let terms = ConnectionTerms::new(None, limits, Traffic::default());
                let counter = Arc::clone(&handler);
                let listener = HttpListener::new(socket, terms).for_operators();
                Some(listener.closing_silent(move || counter.count_refusal(Refusal::Busy)))
            }
            None => None,
        };
        let fleet = match handler.fleet_address() {
            Some(address) => {
                // Connections of other replicas have neither an idle time nor limits per client.
                let limits = (descriptors::connections_max(server), server.max_header_bytes);
                let terms = ConnectionTerms::new(None, limits, Traffic::default());
                Some(HttpListener::new(listen(None, address, "fleet").await?, terms))
            }
            None => None,
        };
        let scheme = if server.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        // Only after the addresses are bound: a process that ends at once must not write a token.
        let admin_api = AdminApi::new(server, admin, state, via.clone(), Arc::clone(&handler))
            .knowing(scheme, clients.address().ok());
        let front = Dispatcher::new(server.clone(), via, routes, Arc::clone(&handler));
        let (front, admin_api, tls) = (Arc::new(front), Arc::new(admin_api), server.tls.is_some());
        Ok(Self { clients, fleet, admin: listener, front, handler, tls, admin_api })
    }

    /// Returns access to the settings that can be exchanged at run time.
    pub fn controls(&self) -> Controls<H> {
        let addresses = [self.address().ok(), self.admin_address().ok().flatten()];
        Controls {
            terms: self.clients.terms(),
            front: Arc::clone(&self.front),
            admin_api: Arc::clone(&self.admin_api),
            handler: Arc::clone(&self.handler),
            addresses: addresses.into_iter().flatten().collect(),
        }
    }

    /// Returns the address that clients connect to; port 0 is replaced by the port that the system has chosen.
    ///
    /// # Errors
    /// If the system does not know it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.clients.address()
    }

    /// Returns the address of the admin listener, if one is configured.
    ///
    /// # Errors
    /// If the system does not know it.
    pub fn admin_address(&self) -> io::Result<Option<SocketAddr>> {
        self.admin.as_ref().map(HttpListener::address).transpose()
    }

    /// Serves until the first signal of `stop`. After SIGTERM the listener reports for the time `linger` that it is not
    /// ready, and still serves; the next signal ends this time. Then open calls continue for at most `drain`, streams
    /// end by the rules of their protocol, and the rest is cut. One more signal cuts everything immediately.
    ///
    /// Returns the exit code: 0, or 1 if a request had to be cut.
    pub async fn serve(self, mut stop: mpsc::Receiver<StopSignal>) -> u8 {
        let (clients_phase, clients_follow) = watch::channel(ListenPhase::Serving);
        let (admin_phase, admin_follow) = watch::channel(ListenPhase::Serving);
        let admin = self.admin.map(|listener| {
            let (admin_api, phase) = (Arc::clone(&self.admin_api), clients_phase.subscribe());
            let answer = move |client, request: Request<Incoming>| {
                let (admin_api, phase) = (Arc::clone(&admin_api), *phase.borrow());
                boxed(async move { admin_api.answer(client, phase, request).await })
            };
            tasks::spawn(listener.serve(Arc::new(answer), admin_follow))
        });
        let (fleet_phase, fleet_follow) = watch::channel(ListenPhase::Serving);
        let fleet = self.fleet.map(|listener| {
            let front = Arc::clone(&self.front);
            let answer =
                move |peer, request| boxed(Arc::clone(&front).answer_passed_on(peer, request));
            tasks::spawn(listener.serve(Arc::new(answer), fleet_follow))
        });
        let front = Arc::clone(&self.front);
        let answer = move |client, request| boxed(Arc::clone(&front).answer(client, request));
        let mut clients = tasks::spawn(self.clients.serve(Arc::new(answer), clients_follow));
        // Only now: systemd starts the units that depend on this service.
        service::notify_ready();

        let signal = next_signal(&mut stop).await;
        service::notify_stopping();
        let StopTimes { linger, drain: patience } = self.front.stop_times();
        let linger = (signal == StopSignal::Terminate && !linger.is_zero()).then_some(linger);
        let linger_s = linger.map(|linger| linger.as_secs_f64());
        info!(open = self.front.open(), drain_s = patience.as_secs(), linger_s, "stopping");
        let mut quiet = Duration::ZERO;
        if let Some(linger) = linger {
            clients_phase.send_replace(ListenPhase::Lingering);
            fleet_phase.send_replace(ListenPhase::Lingering);
            self.front.linger();
            if timeout(linger, next_signal(&mut stop)).await.is_err() {
                // A client that has its answer may send the next request immediately, which may still come here until
                // the other replicas know that this one is leaving.
                quiet = FIRST_REQUEST;
            }
            info!(open = self.front.open(), "no new connection is accepted");
        }
        self.front.drain();
        clients_phase.send_replace(ListenPhase::Draining);
        self.handler.calls().into_iter().for_each(|calls| calls.stop());
        let mut code = 0;
        let times = (patience, quiet);
        if !drain(&*self.handler, times, &mut clients, fleet.is_some(), &mut stop).await {
            // Counted before the cut, after which nothing is open.
            let open = self.front.open();
            clients_phase.send_replace(ListenPhase::Over);
            let connections = clients.await.unwrap_or_default();
            // Cutting a connection without an open request loses nothing.
            if open > 0 {
                warn!(connections, requests = open, "cut what was still open");
                code = 1;
            }
        }
        self.admin_api.end_streams();
        // Other replicas can reach the calls that run here until the last one has ended.
        for (listener, phase) in [(fleet, fleet_phase), (admin, admin_phase)] {
            phase.send_replace(ListenPhase::Draining);
            if let Some(mut listener) = listener
                && timeout(FAREWELL, &mut listener).await.is_err()
            {
                phase.send_replace(ListenPhase::Over);
                let _ = listener.await;
            }
        }
        code
    }

    /// Writes one log line per address and route, without secrets.
    pub(super) fn log_addresses<'a>(&self, routes: impl IntoIterator<Item = &'a Route>) {
        let told = |address: io::Result<SocketAddr>| address.map(|address| address.to_string());
        if let Ok(address) = told(self.address()) {
            info!(address, tls = self.tls, "listening");
        }
        if let Some(Ok(address)) = self.fleet.as_ref().map(HttpListener::address) {
            info!(%address, "listening for other replicas");
        }
        if let Ok(Some(address)) = self.admin_address() {
            let page = match io::stderr().is_terminal() {
                true => self.admin_api.secret_start_link(address),
                false => self.admin_api.start_link(address),
            };
            let token_file = self.admin_api.token_file().map(|path| path.display().to_string());
            info!(%address, page, token_file, "listening for operators");
        }
        for route in routes {
            info!(route = route.path, upstream = upstream(&route.upstream), "route");
        }
    }
}

/// Refuses an address that other machines can reach if no host name is configured.
fn shelter(server: &Server, address: SocketAddr) -> Result<(), ServeError> {
    let named = server.insecure || !server.allowed_hosts.is_empty();
    let is_fine = named || address.ip().to_canonical().is_loopback();
    if is_fine { Ok(()) } else { Err(ServeError::Exposed { address }) }
}

fn terms<H: Handler>(server: &Server, tls: Option<TlsAcceptor>, handler: &H) -> ConnectionTerms {
    let connections_max = descriptors::connections_max(server);
    let limits = (connections_max, server.max_header_bytes);
    let idle = IdleRule {
        http1: server.http1_idle_timeout,
        http2: server.http2_idle_timeout,
        ended: handler.idle_connections(),
    };
    let terms = ConnectionTerms::new(tls, limits, handler.traffic()).ending_idle(idle);
    match handler.client_limits() {
        Some(clients) => terms.limiting(clients, &server.trusted_proxies),
        None => terms,
    }
}

/// Exchanges the settings of the listeners at run time.
pub struct Controls<H> {
    terms: Arc<ArcSwap<ConnectionTerms>>,
    front: Arc<Dispatcher<H>>,
    admin_api: Arc<AdminApi<H>>,
    handler: Arc<H>,
    /// The addresses of the listeners.
    addresses: Vec<SocketAddr>,
}

/// Checked settings, which can be applied without an error.
pub struct Readiness(ConnectionTerms);

impl<H: Handler> Controls<H> {
    /// Prepares other settings for the same addresses.
    ///
    /// # Errors
    ///
    /// If other machines could connect although neither `allowed_hosts` nor `insecure` is set, or if the certificate
    /// cannot be used.
    pub fn prepare(&self, server: &Server) -> Result<Readiness, ServeError> {
        // A new file may lack `allowed_hosts`, which an address that other machines can reach needs.
        self.addresses.iter().try_for_each(|address| shelter(server, *address))?;
        let tls = tls::load(server)?;
        Ok(Readiness(terms(server, tls, &*self.handler)))
    }

    /// Applies these settings, and the handler's current routes, to requests and connections from
    /// now on.
    pub fn set_config(&self, ready: Readiness, server: &Server, admin: &Admin) {
        self.front.set_config(ServingConfig::of(server.clone(), self.handler.served()));
        self.admin_api.set_config(server, admin);
        self.terms.store(Arc::new(ready.0));
    }
}

/// Waits for calls and then for streams to end. Returns whether every connection has ended.
async fn drain<H: Handler>(
    handler: &H,
    (patience, quiet): (Duration, Duration),
    clients: &mut JoinHandle<usize>,
    has_fleet: bool,
    stop: &mut mpsc::Receiver<StopSignal>,
) -> bool {
    tokio::select! {
        // In a fleet even a listener without clients waits, because clients of other replicas may have calls here.
        _ = &mut *clients, if !has_fleet => return true,
        () = sleep(patience) => {}
        () = quiet_after_calls(handler, quiet) => {}
        _ = next_signal(stop) => return false,
    }
    // Streams are ended after the calls, because a client may wait for messages until then.
    let end = async {
        handler.end_streams().await;
        let _ = clients.await;
    };
    tokio::select! {
        ended = timeout(LAST_WORDS, end) => ended.is_ok(),
        _ = next_signal(stop) => false,
    }
}

/// Waits until no call is open and none has come for the time `quiet`.
async fn quiet_after_calls<H: Handler>(handler: &H, quiet: Duration) {
    loop {
        handler.calls_done().await;
        if quiet.is_zero() {
            return;
        }
        sleep(quiet).await;
        if handler.calls_done().now_or_never().is_some() {
            return;
        }
    }
}

fn passed_socket(
    passed: &mut ListenFd,
    number: usize,
    table: &'static str,
) -> Result<Option<std::net::TcpListener>, ServeError> {
    passed.take_tcp_listener(number).map_err(|source| ServeError::Passed { table, source })
}

async fn listen(
    passed: Option<std::net::TcpListener>,
    address: SocketAddr,
    table: &'static str,
) -> Result<TcpListener, ServeError> {
    match passed {
        Some(socket) => socket
            // tokio needs a socket that does not block.
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(socket))
            .map_err(|source| ServeError::Passed { table, source }),
        None => TcpListener::bind(address).await.map_err(|source| ServeError::Bind {
            address,
            table,
            source,
        }),
    }
}

/// Returns the upstream of a route for the log: a command without arguments, which may contain secrets, or the origin
/// and path of a URL.
fn upstream(upstream: &Upstream) -> String {
    match upstream {
        Upstream::Demo => "the demo server".to_owned(),
        Upstream::Command(stdio) => {
            stdio.command.first().map(|program| program.display().to_string()).unwrap_or_default()
        }
        Upstream::Http(http) => {
            let url = http.url.as_ref().or(http.sse.as_ref());
            let told = |url: &Url| format!("{}{}", url.origin().ascii_serialization(), url.path());
            url.map(told).unwrap_or_default()
        }
    }
}
