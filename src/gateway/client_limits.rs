//! Limits for each client, so that one client cannot take what all may use.
//!
//! A client is the name of a verified certificate, else the address that its connection or a trusted
//! front names.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderMap;
use prometheus_client::metrics::counter::Counter;

use self::start_rate::StartRate;
use crate::config::routes::ClientMaxima;
use crate::config::values::ip_net::IpNet;
use crate::observe::metrics::Metrics;
use crate::transport::http::client_certificate::CertificateName;
use crate::transport::http::forwarded;

pub(crate) mod fair_share;
mod start_rate;

/// The time after which a client may try again what it has too much of.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bits of an address of IPv6 that belong to one client: a house or a machine has all addresses that begin
/// with them.
const IPV6_PREFIX: u32 = 64;

/// A client whose permits are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CountedClient {
    /// The clients of an address, or of 64 bits of an address of IPv6.
    Address(IpAddr),
    /// The clients of a name in a certificate.
    Certificate(CertificateName),
}

impl CountedClient {
    /// The client of a request, or `None` if no limit applies to it.
    ///
    /// `Authorization` says nothing: Milepost does not check the values that it forwards, so a client would
    /// escape by a new value for each request. The listener's own `bearer` is the same for every client.
    pub(crate) fn of_request(
        remote: IpAddr,
        certificate: Option<&CertificateName>,
        headers: &HeaderMap,
        fronts: &[IpNet],
    ) -> Option<Self> {
        if is_front(remote, fronts) {
            // The certificate of a front names the front, which is no client.
            return Self::of_address(forwarded::client_named(headers, fronts)?);
        }
        match certificate {
            Some(name) => Some(Self::Certificate(name.clone())),
            None => Self::of_address(remote),
        }
    }

    /// The client of a connection, or `None` if no limit applies to it. The certificate is not known yet.
    fn of_connection(remote: IpAddr, fronts: &[IpNet]) -> Option<Self> {
        if is_front(remote, fronts) { None } else { Self::of_address(remote) }
    }

    fn of_address(address: IpAddr) -> Option<Self> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => {
                let net = u128::from(address) & (u128::MAX << (128 - IPV6_PREFIX));
                if address.is_loopback() {
                    return None;
                }
                IpAddr::V6(Ipv6Addr::from(net))
            }
            address => address,
        };
        // All users of a machine, and a front that nobody named, have one address there.
        (!address.is_loopback()).then_some(Self::Address(address))
    }
}

impl fmt::Display for CountedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address @ IpAddr::V6(_)) => write!(f, "{address}/{IPV6_PREFIX}"),
            Self::Address(address) => address.fmt(f),
            Self::Certificate(name) => f.write_str(name.as_str()),
        }
    }
}

fn is_front(address: IpAddr, fronts: &[IpNet]) -> bool {
    fronts.iter().any(|net| net.contains(address))
}

/// A limit for each client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientLimit {
    /// Open connections.
    Connections,
    /// Open streams, and requests whose bodies are being read.
    Streams,
    /// Sessions that Milepost keeps.
    Sessions,
    /// Running children.
    Children,
    /// Starts of children in a minute.
    ChildStarts,
    /// Open calls of a shared child, which each child counts: see [`fair_share`].
    SharedCalls,
}

impl ClientLimit {
    const ALL: [Self; 6] = [
        Self::Connections,
        Self::Streams,
        Self::Sessions,
        Self::Children,
        Self::ChildStarts,
        Self::SharedCalls,
    ];

    /// The name of the counter.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Streams => "streams",
            Self::Sessions => "sessions",
            Self::Children => "children",
            Self::ChildStarts => "child_starts",
            Self::SharedCalls => "shared_calls",
        }
    }

    /// What is limited, and the key of the limit.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Connections => ("connections", "max_client_connections of [server]"),
            Self::Streams => ("streams", "max_client_streams of [server]"),
            Self::Sessions => ("sessions", "max_client_sessions of [server]"),
            Self::Children => ("children", "max_client_children of [server]"),
            Self::ChildStarts => ("child starts", "max_client_child_starts of [server]"),
            Self::SharedCalls => ("calls of a shared child", "upstream.max_shared_calls"),
        }
    }

    fn max(self, maxima: &ClientMaxima) -> usize {
        match self {
            Self::Connections => maxima.connections,
            Self::Streams => maxima.streams,
            Self::Sessions => maxima.sessions,
            Self::Children => maxima.children,
            Self::ChildStarts => maxima.child_starts,
            // A key of the route, and never counted here.
            Self::SharedCalls => 0,
        }
    }
}

/// The refusal of a client that has as much as it may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this client has as many {} as it may: see {}", limit.words().0, limit.words().1)]
pub(crate) struct OverLimit {
    /// The client, for the log.
    pub(crate) client: CountedClient,
    /// The limit.
    pub(crate) limit: ClientLimit,
    /// The time after which the client may try again.
    pub(crate) retry_after: Duration,
}

/// What one client has.
#[derive(Default)]
struct ClientEntry {
    counts: [usize; ClientLimit::ALL.len()],
    starts: StartRate,
}

impl ClientEntry {
    fn is_needed(&self, now: Instant) -> bool {
        self.counts.iter().any(|count| *count > 0) || self.starts.is_needed(now)
    }
}

/// What each client has. An entry leaves with its last permit, or a minute after the last start of a child, so
/// that there are never more entries than permits and recent starts.
pub struct ClientLimits {
    maxima: ArcSwap<ClientMaxima>,
    known: Mutex<HashMap<CountedClient, ClientEntry>>,
    refused: [Counter; ClientLimit::ALL.len()],
}

impl ClientLimits {
    /// No client has anything. Refusals are counted in the metrics.
    pub(crate) fn new(metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self {
            maxima: ArcSwap::default(),
            known: Mutex::default(),
            refused: ClientLimit::ALL.map(|limit| metrics.client_limit(limit.name())),
        })
    }

    /// Sets the limits. What is open stays.
    pub(crate) fn set_maxima(&self, maxima: &ClientMaxima) {
        self.maxima.store(Arc::new(maxima.clone()));
    }

    /// Counts a connection from `remote`; `None` if no limit applies to it.
    pub(crate) fn connect(
        self: &Arc<Self>,
        remote: IpAddr,
        fronts: &[IpNet],
    ) -> Result<Option<ClientPermit>, OverLimit> {
        let client = CountedClient::of_connection(remote, fronts);
        let take = |client| self.take(client, ClientLimit::Connections, 0);
        client.map_or(Ok(None), take)
    }

    /// Counts one more; `spare` more than the limit are allowed.
    fn take(
        self: &Arc<Self>,
        client: CountedClient,
        limit: ClientLimit,
        spare: usize,
    ) -> Result<Option<ClientPermit>, OverLimit> {
        let max = limit.max(&self.maxima.load());
        if max == 0 {
            return Ok(None);
        }
        let mut known = self.lock();
        let counts = &mut known.entry(client.clone()).or_default().counts;
        if counts[limit as usize] >= max.saturating_add(spare) {
            return Err(self.refuse(client, limit));
        }
        counts[limit as usize] += 1;
        drop(known);
        Ok(Some(ClientPermit { limits: Arc::clone(self), client, limit }))
    }

    /// Counts a refusal.
    fn refuse(&self, client: CountedClient, limit: ClientLimit) -> OverLimit {
        self.refused[limit as usize].inc();
        OverLimit { client, limit, retry_after: RETRY_AFTER }
    }

    /// Counts a start of a child.
    fn start(&self, client: &CountedClient, now: Instant) -> Result<(), OverLimit> {
        let limit = ClientLimit::ChildStarts;
        let max = limit.max(&self.maxima.load());
        if max == 0 {
            return Ok(());
        }
        let mut known = self.lock();
        // Those that have no permit leave here, which costs less than the start.
        known.retain(|_, entry| entry.is_needed(now));
        let started = known.entry(client.clone()).or_default().starts.start(max, now);
        started.map_err(|retry_after| {
            self.refused[limit as usize].inc();
            OverLimit { client: client.clone(), limit, retry_after }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CountedClient, ClientEntry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the things that a client may have so many of, until the permit is dropped.
pub(crate) struct ClientPermit {
    limits: Arc<ClientLimits>,
    client: CountedClient,
    limit: ClientLimit,
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut known = self.limits.lock();
        let Some(entry) = known.get_mut(&self.client) else { return };
        let count = &mut entry.counts[self.limit as usize];
        *count = count.saturating_sub(1);
        if *count == 0 && !entry.is_needed(Instant::now()) {
            known.remove(&self.client);
        }
    }
}

/// The client of a request, to whom limits apply. It is an extension of the request.
#[derive(Clone)]
pub(crate) struct LimitedClient {
    pub(crate) client: CountedClient,
    pub(crate) limits: Arc<ClientLimits>,
}

impl LimitedClient {
    /// Counts one more stream.
    ///
    /// # Errors
    /// If the client has as many as it may.
    pub(crate) fn stream(&self) -> Result<Option<ClientPermit>, OverLimit> {
        self.limits.take(self.client.clone(), ClientLimit::Streams, 0)
    }

    /// Counts a request whose body is read, as a stream; `spare` more than streams are allowed.
    ///
    /// # Errors
    /// If the client has as many as it may.
    pub(crate) fn reading(&self, spare: usize) -> Result<Option<ClientPermit>, OverLimit> {
        self.limits.take(self.client.clone(), ClientLimit::Streams, spare)
    }

    /// Counts one more session that Milepost keeps.
    ///
    /// # Errors
    /// If the client has as many as it may.
    pub(crate) fn session(&self) -> Result<Option<ClientPermit>, OverLimit> {
        self.limits.take(self.client.clone(), ClientLimit::Sessions, 0)
    }

    /// Counts one more child, which starts now.
    ///
    /// # Errors
    /// If the client has as many as it may, or starts them too often.
    pub(crate) fn child(&self) -> Result<Option<ClientPermit>, OverLimit> {
        let child = self.limits.take(self.client.clone(), ClientLimit::Children, 0)?;
        self.limits.start(&self.client, Instant::now())?;
        Ok(child)
    }
}

#[cfg(test)]
mod tests;
