//! Limits for each client, so that one client cannot use up what all clients share.
//!
//! A client is the name in a verified certificate, else the name that a trusted front gives, else the address of its
//! connection, or the address that a trusted front names. A request with an `Authorization` header also counts for the
//! value of that header, because Milepost sees no client address over loopback or behind a front that names none.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use prometheus_client::metrics::counter::Counter;

use self::start_rate::StartRate;
use crate::config::routes::ClientMaxima;
use crate::config::values::ip_net::IpNet;
use crate::observe::log::LogBudget;
use crate::observe::metrics::Metrics;
use crate::transport::http::client_name::ClientName;
use crate::transport::http::forwarded;

pub(crate) mod fair_share;
mod start_rate;

/// The time after which a client may repeat a request that exceeded its limit.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Number of leading bits of an IPv6 address that identify a client: one household or machine usually has all addresses
/// with the same prefix.
const IPV6_PREFIX: u32 = 64;

/// A client whose permits are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CountedClient {
    /// The clients of an address, or of an IPv6 prefix of 64 bits.
    Address(IpAddr),
    /// The clients with a name, from a certificate or a header of a trusted front.
    Named(ClientName),
    /// The clients that present the `Authorization` of this number.
    Credentials(u64),
}

impl CountedClient {
    /// Returns the client of a request, by its name or address; `None` if neither can be limited.
    fn of_request(
        remote: IpAddr,
        name: Option<&ClientName>,
        headers: &HeaderMap,
        fronts: &[IpNet],
    ) -> Option<Self> {
        let is_front = is_front(remote, fronts);
        // A name is verified, so it takes precedence over an address.
        match name {
            // The certificate of a front identifies the front, which is not the client.
            Some(name) if !is_front || name.is_of_header() => Some(Self::Named(name.clone())),
            _ if is_front => Self::of_address(forwarded::client_named(headers, fronts)?),
            _ => Self::of_address(remote),
        }
    }

    /// Returns the client of a connection; `None` if no limit applies to it. The certificate is not known yet.
    fn of_connection(remote: IpAddr, fronts: &[IpNet]) -> Option<Self> {
        // All clients of a front share its connections.
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
        // Loopback is not counted: all users of a machine have this address, and so has a front that is not configured.
        (!address.is_loopback()).then_some(Self::Address(address))
    }
}

impl fmt::Display for CountedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address @ IpAddr::V6(_)) => write!(f, "{address}/{IPV6_PREFIX}"),
            Self::Address(address) => address.fmt(f),
            Self::Named(name) => f.write_str(name.as_str()),
            Self::Credentials(number) => write!(f, "authorization:{number:016x}"),
        }
    }
}

fn is_front(address: IpAddr, fronts: &[IpNet]) -> bool {
    fronts.iter().any(|net| net.contains(address))
}

/// The limits that apply to each client. Each variant is what is counted.
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

    /// Returns the name of the counter.
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

    /// Returns what is limited as text, and the key of the limit.
    fn texts(self) -> (&'static str, &'static str) {
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
            // The route's key sets this limit, and [`fair_share`] counts it.
            Self::SharedCalls => 0,
        }
    }
}

/// The error for a client that has reached a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this client has as many {} as it may: see {}", limit.texts().0, limit.texts().1)]
pub(crate) struct OverLimit {
    /// The client that has reached the limit, for the log.
    pub(crate) client: CountedClient,
    /// The limit that was reached.
    pub(crate) limit: ClientLimit,
    /// The time after which the client may try again.
    pub(crate) retry_after: Duration,
}

impl OverLimit {
    /// Logs which client has reached which limit.
    pub(crate) fn tell(&self) {
        static TOLD: [LogBudget; ClientLimit::ALL.len()] =
            [const { LogBudget::one_a_minute() }; ClientLimit::ALL.len()];
        if let Some(left_out) = TOLD[self.limit as usize].take(Instant::now()) {
            let (things, key) = self.limit.texts();
            tracing::warn!(
                client = %self.client,
                limit = key,
                left_out = (left_out > 0).then_some(left_out),
                "refused: the client has as many {things} as one client may, and gets 429: raise the limit, or name \
                 the front of many users in `trusted_proxies`"
            );
        }
    }
}

/// What is counted for one client.
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

/// The permits of each client. An entry is removed with its last permit, or a minute after the last start of a child,
/// so that there are never more entries than permits and recent starts.
pub struct ClientLimits {
    maxima: ArcSwap<ClientMaxima>,
    hasher: RandomState,
    known: Mutex<HashMap<CountedClient, ClientEntry>>,
    refused: [Counter; ClientLimit::ALL.len()],
}

impl ClientLimits {
    /// Returns limits without any permits. Refusals are counted in `metrics`.
    pub(crate) fn new(metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self {
            maxima: ArcSwap::default(),
            hasher: RandomState::new(),
            known: Mutex::default(),
            refused: ClientLimit::ALL.map(|limit| metrics.client_limit(limit.name())),
        })
    }

    /// Sets new limits. Open requests, streams and connections continue.
    pub(crate) fn set_maxima(&self, maxima: &ClientMaxima) {
        self.maxima.store(Arc::new(maxima.clone()));
    }

    /// The client of a request, or `None` if no limit applies to it.
    ///
    /// Milepost does not check the values of `Authorization` that it forwards. A client that invents a new value for
    /// each request is still counted by its address.
    pub(crate) fn client_of(
        self: &Arc<Self>,
        remote: IpAddr,
        name: Option<&ClientName>,
        headers: &HeaderMap,
        fronts: &[IpNet],
    ) -> Option<LimitedClient> {
        let named = CountedClient::of_request(remote, name, headers, fronts);
        let credentials = headers
            .get(AUTHORIZATION)
            .map(|value| CountedClient::Credentials(self.hasher.hash_one(value.as_bytes())));
        let (client, besides) = match (named, credentials) {
            (Some(name @ CountedClient::Named(_)), _) => (name, None),
            (Some(address), credentials) => (address, credentials),
            (None, Some(credentials)) => (credentials, None),
            (None, None) => return None,
        };
        Some(LimitedClient { client, besides, limits: Arc::clone(self) })
    }

    /// Counts a connection from `remote`; `None` if no limit applies to it.
    pub(crate) fn connect(
        self: &Arc<Self>,
        remote: IpAddr,
        fronts: &[IpNet],
    ) -> Result<Option<ClientPermit>, OverLimit> {
        let client = CountedClient::of_connection(remote, fronts);
        let take = |client| self.take([Some(client), None], ClientLimit::Connections, 0);
        client.map_or(Ok(None), take)
    }

    /// Counts one more use for each of these clients; `spare` uses beyond the limit are allowed.
    fn take(
        self: &Arc<Self>,
        clients: Counted,
        limit: ClientLimit,
        spare: usize,
    ) -> Result<Option<ClientPermit>, OverLimit> {
        let max = limit.max(&self.maxima.load());
        if max == 0 {
            return Ok(None);
        }
        let max = max.saturating_add(spare);
        // One lock for both the check and the count, so that two concurrent requests cannot both take the last place.
        let mut known = self.lock();
        let count = |client| {
            known.get(client).map_or(0, |entry: &ClientEntry| entry.counts[limit as usize])
        };
        // All counts are checked before one is raised, so that a refused request counts for none of them.
        if let Some(full) = clients.iter().flatten().find(|client| count(client) >= max) {
            return Err(self.refuse(full.clone(), limit));
        }
        for client in clients.iter().flatten() {
            known.entry(client.clone()).or_default().counts[limit as usize] += 1;
        }
        drop(known);
        Ok(Some(ClientPermit { limits: Arc::clone(self), clients, limit }))
    }

    /// Counts a refusal, and returns its error.
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
        // Clients without a permit are removed here: that costs less than the start of a child.
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

/// The clients for which a request or stream is counted: the client itself, and the credentials that it presents.
type Counted = [Option<CountedClient>; 2];

/// A permit for one use of a client's limit, until it is dropped.
pub(crate) struct ClientPermit {
    limits: Arc<ClientLimits>,
    clients: Counted,
    limit: ClientLimit,
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut known = self.limits.lock();
        for client in self.clients.iter().flatten() {
            let Some(entry) = known.get_mut(client) else { continue };
            let count = &mut entry.counts[self.limit as usize];
            *count = count.saturating_sub(1);
            if *count == 0 && !entry.is_needed(Instant::now()) {
                known.remove(client);
            }
        }
    }
}

/// The client of a request, in whose limits the request is counted. Stored in the extensions of the request.
#[derive(Clone)]
pub(crate) struct LimitedClient {
    pub(crate) client: CountedClient,
    /// The credentials that the client presents, if `client` is an address.
    besides: Option<CountedClient>,
    pub(crate) limits: Arc<ClientLimits>,
}

impl LimitedClient {
    /// Returns a number for the client. Two clients have the same number only by chance, and no client can cause that,
    /// because the hash is keyed.
    pub(crate) fn number(&self) -> u64 {
        self.limits.hasher.hash_one(&self.client)
    }

    /// Counts one more use of this limit; `spare` uses beyond the limit are allowed.
    fn take(&self, limit: ClientLimit, spare: usize) -> Result<Option<ClientPermit>, OverLimit> {
        self.limits.take([Some(self.client.clone()), self.besides.clone()], limit, spare)
    }

    /// Counts one more stream.
    ///
    /// # Errors
    /// If the client has reached its limit.
    pub(crate) fn stream(&self) -> Result<Option<ClientPermit>, OverLimit> {
        self.take(ClientLimit::Streams, 0)
    }

    /// Counts a request whose body is being read as a stream; `spare` of them are allowed beyond the limit.
    ///
    /// # Errors
    /// If the client has reached its limit.
    pub(crate) fn reading(&self, spare: usize) -> Result<Option<ClientPermit>, OverLimit> {
        self.take(ClientLimit::Streams, spare)
    }

    /// Counts one more session that Milepost keeps.
    ///
    /// # Errors
    /// If the client has reached its limit.
    pub(crate) fn session(&self) -> Result<Option<ClientPermit>, OverLimit> {
        self.take(ClientLimit::Sessions, 0)
    }

    /// Counts one more child, which starts now.
    ///
    /// # Errors
    /// If the client has reached its limit, or starts children too often.
    pub(crate) fn child(&self) -> Result<Option<ClientPermit>, OverLimit> {
        // If the start is refused, the permit is dropped, which subtracts it from the count.
        let child = self.take(ClientLimit::Children, 0)?;
        for client in [Some(&self.client), self.besides.as_ref()].into_iter().flatten() {
            self.limits.start(client, Instant::now())?;
        }
        Ok(child)
    }
}

#[cfg(test)]
mod tests;
