//! Connections to servers. Only this module decides which address, which forward proxy and which TLS a connection uses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::uri::{Authority, Scheme};
use http::{Request, StatusCode, Uri};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::address_race::{Attempts, Family, in_turns, race};
use super::forward_proxy::{ForwardProxy, ProxyRefusal, TunnelError, tunnel};
use super::io::Io;
use super::tcp;
use super::tls::TlsPeer;

/// The reason why no connection was made. `to` is the server, with the proxy and the addresses that were tried.
#[derive(Debug)]
pub(super) enum DialError {
    /// No address can be connected to, or TLS failed.
    Failed { to: String, source: io::Error },
    /// Connecting took too long.
    Late { to: String, within: Duration },
    /// The proxy refuses a connection to the server.
    Refused(ProxyRefusal),
}

/// Opens the connections to one server.
pub(crate) struct Dialer {
    /// The name or address of the server, without brackets.
    host: String,
    port: u16,
    tls: Option<TlsPeer>,
    /// Whether HTTP/2 is used; with TLS, only if the server chooses it.
    http2: bool,
    proxy: Option<ForwardProxy>,
    /// The family of the address that connected last.
    family: Mutex<Family>,
}

impl Dialer {
    /// The way to a server that speaks HTTP/1.1. `host` is a name or an address without brackets.
    pub(crate) fn new(host: String, port: u16, tls: Option<TlsPeer>) -> Self {
        Self { host, port, tls, http2: false, proxy: None, family: Mutex::default() }
    }

    /// The same way, over which HTTP/2 is spoken; with TLS, if the server chooses it.
    pub(crate) fn with_http2(self) -> Self {
        Self { http2: true, ..self }
    }

    /// Returns the dialer changed to use a forward proxy, if `proxy` is one.
    pub(crate) fn through(self, proxy: Option<ForwardProxy>) -> Self {
        Self { proxy, ..self }
    }

    /// Whether connections may use HTTP/2.
    pub(super) fn offers_http2(&self) -> bool {
        self.http2
    }

    /// Returns the host and port, for people.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the host and port as requests name them.
    fn authority(&self) -> String {
        if self.host.contains(':') { format!("[{}]:{}", self.host, self.port) } else { self.name() }
    }

    /// Returns the proxy, if it forwards single requests. Other connections go through a tunnel, in which the proxy
    /// cannot read what TLS protects, and the server can use HTTP/2, which most proxies cannot.
    fn requests_proxy(&self) -> Option<&ForwardProxy> {
        self.proxy.as_ref().filter(|_| self.tls.is_none() && !self.http2)
    }

    /// Rewrites an HTTP/1.1 request to the form that the next hop expects: a path for a server, a whole URL for a proxy
    /// that passes the request on (RFC 9112, 3.2).
    pub(super) fn address<B>(&self, request: &mut Request<B>) {
        let Some(path) = request.uri().path_and_query().cloned() else { return };
        let Some(proxy) = self.requests_proxy() else {
            if request.uri().scheme().is_some() {
                *request.uri_mut() = path.into();
            }
            return;
        };
        // A proxy ignores `Host` if the request has a whole URL (RFC 9112, 3.2.2), so both must name the same host.
        let host =
            request.headers().get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = host.or_else(|| Authority::try_from(self.authority()).ok());
        parts.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        if let Some(authorization) = &proxy.url.authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
    }

    /// Returns the proxy's refusal, if a response with this status is a refusal. Only proxies answer 407 (RFC 9110,
    /// 15.5.8).
    pub(super) fn refusal(&self, status: StatusCode) -> Option<DialError> {
        let proxy = self.requests_proxy()?;
        let is_refusal = status == StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        is_refusal.then(|| DialError::Refused(proxy.refusal(self.name(), status)))
    }

    /// Connects within this time. Returns whether the connection uses HTTP/2.
    ///
    /// # Errors
    /// If no address of the server, or of the proxy, can be connected to, the proxy refuses, TLS fails, or the time is
    /// over.
    pub(super) async fn connect(&self, within: Duration) -> Result<(Io, bool), DialError> {
        let mut attempts = Attempts::default();
        let connected = timeout(within, self.open(&mut attempts)).await;
        let to = || self.name_with(&attempts);
        match (connected, &self.proxy) {
            (Ok(Ok(connected)), _) => Ok(connected),
            (Ok(Err(TunnelError::Refused(status))), Some(proxy)) => {
                Err(DialError::Refused(proxy.refusal(self.name(), status)))
            }
            (Ok(Err(error)), _) => Err(DialError::Failed { to: to(), source: error.into() }),
            (Err(_), _) => Err(DialError::Late { to: to(), within }),
        }
    }

    /// Returns the server and the proxy as text, with the addresses that were tried for the first hop.
    fn name_with(&self, attempts: &Attempts) -> String {
        let (first, proxy) = match &self.proxy {
            None => (&self.host, String::new()),
            Some(proxy) => (&proxy.url.host, format!(" through the proxy {}", proxy.url)),
        };
        // If `first` is itself an address, it is not repeated as an address that was tried.
        let is_address = first.parse::<IpAddr>().is_ok();
        let tried = if is_address { String::new() } else { attempts.to_string() };
        format!("{}{proxy}{tried}", self.name())
    }

    async fn open(&self, attempts: &mut Attempts) -> Result<(Io, bool), TunnelError> {
        let (host, port) = match &self.proxy {
            None => (&*self.host, self.port),
            Some(proxy) => (&*proxy.url.host, proxy.url.port),
        };
        let found = lookup_host((host, port)).await?;
        let mut io: Io = Box::new(self.first_hop(found, attempts).await?);
        if let Some(proxy) = &self.proxy {
            if let Some(peer) = &proxy.tls {
                io = Box::new(peer.connect(io).await?);
            }
            if self.requests_proxy().is_some() {
                // This proxy forwards single requests, so the connection is HTTP/1.1 without a tunnel.
                return Ok((io, false));
            }
            io = tunnel(io, &self.authority(), proxy.url.authorization.as_ref()).await?;
        }
        let Some(peer) = &self.tls else { return Ok((io, self.http2)) };
        let tls = peer.connect(io).await?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Box::new(tls), is_http2))
    }

    /// Connects to the first of these addresses that answers.
    async fn first_hop(
        &self,
        addresses: impl Iterator<Item = SocketAddr>,
        attempts: &mut Attempts,
    ) -> io::Result<TcpStream> {
        // The family that last connected is tried first: if one family does not work, only the first connection is
        // delayed.
        let first = self.family.lock().map(|family| *family).unwrap_or_default();
        let (winner, tcp) = race(in_turns(addresses, first), attempts, tcp::connect).await?;
        if let Ok(mut family) = self.family.lock() {
            *family = Family::of(winner);
        }
        Ok(tcp)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::transport::http::client::UpstreamError;

    /// Returns a port that refuses connections, and that no other program can open while the socket exists.
    fn closed_port(ip: &str, port: u16) -> Option<TcpSocket> {
        let address = SocketAddr::new(ip.parse().unwrap(), port);
        let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() };
        let socket = socket.ok()?;
        socket.bind(address).ok()?;
        Some(socket)
    }

    /// Returns a port that is open on one loopback address and closed on the other; `None` on a machine without IPv6.
    async fn one_open(
        open: &str,
        closed: &str,
    ) -> Option<((TcpListener, TcpSocket), Vec<SocketAddr>)> {
        let listener = TcpListener::bind((open, 0)).await.ok()?;
        let port = listener.local_addr().ok()?.port();
        let held = closed_port(closed, port)?;
        let addresses = [closed, open].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
        Some(((listener, held), addresses.to_vec()))
    }

    #[tokio::test]
    async fn a_dead_address_is_passed_over_and_the_family_that_connected_comes_first() {
        for (open, closed, family) in
            [("127.0.0.1", "::1", Family::V4), ("::1", "127.0.0.1", Family::V6)]
        {
            let Some((_held, addresses)) = one_open(open, closed).await else { return };
            let dialer = Dialer::new("server.test".to_owned(), 80, None);
            // The dead address is first, whichever its family.
            *dialer.family.lock().unwrap() = Family::of(addresses[0]);
            let mut attempts = Attempts::default();
            let tcp = dialer.first_hop(addresses.iter().copied(), &mut attempts).await.unwrap();
            assert_eq!(tcp.peer_addr().unwrap(), addresses[1]);
            let tried = attempts.to_string();
            assert!(tried.starts_with(&format!(" (tried {closed}: ")), "{tried}");
            // The next connection begins with the address that was open.
            assert_eq!(*dialer.family.lock().unwrap(), family);
            let mut attempts = Attempts::default();
            dialer.first_hop(addresses.into_iter(), &mut attempts).await.unwrap();
            let tried = attempts.to_string();
            assert!(tried.starts_with(&format!(" (tried {open}")), "{tried}");
        }
    }

    #[tokio::test]
    async fn the_error_names_the_addresses_of_a_name() {
        let held = closed_port("127.0.0.1", 0).unwrap();
        let port = held.local_addr().unwrap().port();
        for (host, names) in [("localhost", true), ("127.0.0.1", false)] {
            let dialer = Dialer::new(host.to_owned(), port, None);
            let Err(error) = dialer.connect(Duration::from_secs(60)).await else {
                panic!("{host}")
            };
            let error = UpstreamError::from(error);
            let clients = error.for_clients();
            let text = error.to_string();
            assert!(text.starts_with(&format!("cannot connect to {host}:{port}")), "{text}");
            assert_eq!(text.contains("(tried "), names, "{text}");
            assert!(!clients.contains(host) && !clients.contains("127.0.0.1"), "{clients}");
        }
    }
}
