//! The way to a server: the one place that decides which address, which forward proxy and which TLS a connection has.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address_race::{Attempts, Family, in_turns, race};
use super::io::Io;
use super::tcp;

/// TLS towards a server, and the name that its certificate has to have.
pub(crate) type TlsName = (TlsConnector, ServerName<'static>);

/// The reason why there is no connection. `to` is the server, with the addresses that were tried.
#[derive(Debug)]
pub(super) enum DialError {
    /// No address can be connected to, or TLS failed.
    Failed { to: String, source: io::Error },
    /// The time is over.
    Late { to: String, within: Duration },
}

/// Makes the connections to one server.
pub(crate) struct Dialer {
    /// The name or address of the server, without brackets.
    host: String,
    port: u16,
    tls: Option<TlsName>,
    /// HTTP/2 is spoken; with TLS, if the server chooses it.
    http2: bool,
    /// The family of addresses that connected last.
    family: Mutex<Family>,
}

impl Dialer {
    /// The way to a server. `host` is a name or an address without brackets. With `http2`, HTTP/2 is spoken; with TLS
    /// too, if the server chooses it.
    pub(crate) fn new(host: String, port: u16, tls: Option<TlsName>, http2: bool) -> Self {
        Self { host, port, tls, http2, family: Mutex::default() }
    }

    /// Whether connections may speak HTTP/2.
    pub(super) fn offers_http2(&self) -> bool {
        self.http2
    }

    /// Host and port, for people.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Connects within this time, and says whether HTTP/2 is spoken.
    ///
    /// # Errors
    /// If no address of the server can be connected to, TLS fails, or the time is over.
    pub(super) async fn connect(&self, within: Duration) -> Result<(Io, bool), DialError> {
        let mut attempts = Attempts::default();
        let connected = timeout(within, self.open(&mut attempts)).await;
        // An address that the route names itself needs no second mention.
        let is_address = self.host.parse::<IpAddr>().is_ok();
        let to = || if is_address { self.name() } else { format!("{}{attempts}", self.name()) };
        match connected {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(source)) => Err(DialError::Failed { to: to(), source }),
            Err(_) => Err(DialError::Late { to: to(), within }),
        }
    }

    async fn open(&self, attempts: &mut Attempts) -> io::Result<(Io, bool)> {
        let tcp = self.first_hop(lookup_host((&*self.host, self.port)).await?, attempts).await?;
        let Some((connector, name)) = &self.tls else { return Ok((Box::new(tcp), self.http2)) };
        let tls = connector.connect(name.clone(), tcp).await?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Box::new(tls), is_http2))
    }

    /// Connects to the first of these addresses that answers.
    async fn first_hop(
        &self,
        addresses: impl Iterator<Item = SocketAddr>,
        attempts: &mut Attempts,
    ) -> io::Result<TcpStream> {
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
    use tokio::net::TcpListener;

    use super::*;
    use crate::transport::http::client::UpstreamError;

    /// A port that is open on one loopback address and closed on the other; `None` on a machine without IPv6.
    async fn one_open(open: &str, closed: &str) -> Option<(TcpListener, Vec<SocketAddr>)> {
        let listener = TcpListener::bind((open, 0)).await.ok()?;
        let port = listener.local_addr().ok()?.port();
        // Nothing else may listen there meanwhile.
        let held = TcpListener::bind((closed, port)).await.ok()?;
        drop(held);
        let addresses = [closed, open].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
        Some((listener, addresses.to_vec()))
    }

    #[tokio::test]
    async fn a_dead_address_is_passed_over_and_the_family_that_connected_comes_first() {
        for (open, closed, family) in
            [("127.0.0.1", "::1", Family::V4), ("::1", "127.0.0.1", Family::V6)]
        {
            let Some((_listener, addresses)) = one_open(open, closed).await else { return };
            let dialer = Dialer::new("server.test".to_owned(), 80, None, false);
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
            assert_eq!(attempts.to_string(), format!(" (tried {open})"));
        }
    }

    #[tokio::test]
    async fn the_error_names_the_addresses_of_a_name() {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        for (host, names) in [("localhost", true), ("127.0.0.1", false)] {
            let dialer = Dialer::new(host.to_owned(), port, None, false);
            let Err(error) = dialer.connect(Duration::from_secs(10)).await else {
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
