//! The state of a route while it is served: its settings, its server, its counters and limits.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use http::request::Parts;
use http::{HeaderMap, header};

use crate::config::routes::{Route, Routes};
use crate::gateway::client_limits::fair_share::SharePermit;
use crate::gateway::client_limits::{ClientPermit, LimitedClient, OverLimit};
use crate::gateway::observers::Observers;
use crate::observe::durations::{DurationStore, label_of_route};
use crate::observe::log::LogBudget;
use crate::observe::metrics::RouteCounts;
use crate::progress::Policy;
use crate::transport::byte_budget::{ByteBudget, ByteShare};
use crate::transport::http::client::InProcess;
use crate::transport::http::client_name::ClientName;
use crate::transport::http::forwarder::Forwarder;
use crate::transport::http::in_flight::InFlight;
use crate::transport::http::shutdown::Shutdown;
use crate::transport::mcp_http::target::Target;

/// The settings and the server of a route, for calls that begin now. A call keeps the state with which it began. After
/// a reload, later calls get a new state.
pub(crate) struct RouteState {
    pub(crate) route: Arc<Route>,
    /// The policy for clients with the same transport as the server.
    pub(crate) policy: Arc<Policy>,
    /// The policy for clients with another transport than the server.
    pub(crate) bridge_policy: Arc<Policy>,
    /// The policy for a server that clients share.
    pub(crate) shared_policy: Arc<Policy>,
    /// The policy of sessions that other replicas serve too: see [`RouteState::quiet_policy`].
    pub(crate) quiet: OnceLock<Arc<Policy>>,
    /// The server's Streamable HTTP endpoint.
    pub(crate) endpoint: Option<Target>,
    /// The server's HTTP+SSE endpoint.
    pub(crate) sse: Option<Target>,
    /// Whether even clients with the server's own transport get sessions of Milepost, because their calls may continue
    /// while they are away.
    pub(crate) bridges: bool,
    /// Whether clients of 2026-07-28 can use an older server.
    pub(crate) translates_eras: bool,
    pub(crate) forwarder: Forwarder,
    /// A number for the contents of the files that the upstream names: see [`Target`].
    pub(crate) files: u64,
    pub(crate) generation: u64,
    pub(crate) shared: Arc<RouteShared>,
}

/// The part of a route's state that survives a reload if the server stays the same.
pub(crate) struct RouteShared {
    pub(crate) counts: Arc<RouteCounts>,
    pub(crate) observers: Arc<Observers>,
    /// The directory of data that outlives the process.
    pub(crate) folder: Option<PathBuf>,
    /// Connects to a server inside the process, in place of a child.
    pub(crate) in_process: Option<InProcess>,
    /// The number of open calls.
    pub(crate) calls: Arc<InFlight>,
    /// Signals the shutdown of Milepost.
    pub(crate) shutdown: Arc<Shutdown>,
    /// Signals the end of the last call to a server that the route no longer has. Streams on which clients only listen
    /// then end too.
    pub(crate) over: Shutdown,
    hasher: RandomState,
    /// The number of a caller without certificate and `Authorization`.
    anonymous: u64,
    streams: AtomicUsize,
    /// Number of requests whose bodies are being read.
    reading: AtomicUsize,
    /// The budget for incomplete request bodies, of all routes.
    pub(crate) bodies: Arc<ByteBudget>,
    /// The budget for large answers in files, of all routes.
    pub(crate) spilled: Arc<ByteBudget>,
    /// The budget for messages that wait in memory, of all routes.
    pub(crate) kept: Arc<ByteBudget>,
    /// The log lines about a server that has nothing at the address of the route.
    pub(crate) missing_endpoint: LogBudget,
    /// Counts the reloads of the settings.
    generation: AtomicU64,
    /// The state for calls that begin from now on.
    latest: Mutex<Weak<RouteState>>,
    /// Whether the route has another server now.
    retired: AtomicBool,
}

impl RouteShared {
    pub(crate) fn new(
        observers: Arc<Observers>,
        folder: Option<&Path>,
        connect: Option<&InProcess>,
        calls: &Arc<InFlight>,
        shutdown: &Arc<Shutdown>,
        [bodies, spilled, kept]: [&Arc<ByteBudget>; 3],
    ) -> Self {
        let hasher = RandomState::new();
        Self {
            counts: Arc::clone(&observers.counts),
            observers,
            folder: folder.map(Path::to_owned),
            in_process: connect.cloned(),
            calls: InFlight::among(calls),
            shutdown: Arc::clone(shutdown),
            over: Shutdown::default(),
            anonymous: caller_of(&hasher, None, &HeaderMap::new()),
            hasher,
            streams: AtomicUsize::new(0),
            reading: AtomicUsize::new(0),
            bodies: Arc::clone(bodies),
            spilled: Arc::clone(spilled),
            kept: Arc::clone(kept),
            missing_endpoint: LogBudget::one_a_minute(),
            generation: AtomicU64::new(0),
            latest: Mutex::default(),
            retired: AtomicBool::new(false),
        }
    }

    /// Whether the route now has another server, so that this server gets no new requests.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Returns the share of a client in the budget for messages that wait in memory.
    pub(crate) fn kept_share(&self, client: Option<&LimitedClient>) -> ByteShare {
        self.kept.share(client.map(LimitedClient::number))
    }

    /// Marks the server as replaced.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Returns the number of open streams of clients.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }
}

/// Why a stream was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoRoom {
    /// The route has reached `max_streams`.
    #[error("too many streams are open on this route")]
    Route,
    /// The client has reached its limit.
    #[error(transparent)]
    Client(#[from] OverLimit),
}

/// Counts an open stream of a client until it is dropped.
pub(crate) struct StreamPermit {
    state: Arc<RouteState>,
    _client: Option<ClientPermit>,
    /// The permit of the call, if the stream is a call on a shared child.
    share: Option<SharePermit>,
}

impl StreamPermit {
    /// Returns the state of the route that the stream belongs to.
    pub(crate) fn state(&self) -> &RouteState {
        &self.state
    }

    /// Adds the permit of a call on a shared child to the stream.
    pub(crate) fn count_share(&mut self, share: Option<SharePermit>) {
        self.share = share;
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.state.shared.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Limit of the requests whose bodies may be read at the same time, beyond the places that are free for streams.
pub(crate) const READING_SPARE: usize = 64;

/// Counts a request until its body has been read.
pub(crate) struct ReadingPermit<'a> {
    route: &'a RouteShared,
    _client: Option<ClientPermit>,
}

impl Drop for ReadingPermit<'_> {
    fn drop(&mut self) {
        self.route.reading.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Follows the newest state of a route, for sessions and streams that outlive a reload.
pub(crate) struct RouteWatch {
    state: Arc<RouteState>,
}

impl RouteWatch {
    pub(crate) fn new(state: &Arc<RouteState>) -> Self {
        Self { state: Arc::clone(state) }
    }

    /// Returns the state that was the newest at the last check.
    pub(crate) fn state(&self) -> &Arc<RouteState> {
        &self.state
    }

    /// Checks for a newer state, and returns true if there is one.
    pub(crate) fn has_changed(&mut self) -> bool {
        let latest = self.state.latest();
        let changed = latest.is_some();
        self.state = latest.unwrap_or_else(|| Arc::clone(&self.state));
        changed
    }
}

impl RouteState {
    /// Makes this the state for calls that begin from now on.
    pub(crate) fn publish(self: &Arc<Self>) {
        let shared = &self.shared;
        *shared.latest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(self);
        // Written after the state (release order): a reader that sees the new generation must find it.
        shared.generation.store(self.generation, Ordering::Release);
    }

    /// Returns the state for new calls, if there is a newer state than this.
    pub(crate) fn latest(&self) -> Option<Arc<Self>> {
        if self.shared.generation.load(Ordering::Acquire) <= self.generation {
            return None;
        }
        self.shared.latest.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Returns the policy of the route without heartbeats: if two replicas serve a session, neither knows the
    /// heartbeats of the other, so that their values would conflict.
    pub(crate) fn quiet_policy(&self) -> &Arc<Policy> {
        self.quiet.get_or_init(|| Arc::new(self.policy.without_heartbeats()))
    }

    /// Counts one more stream of a client.
    ///
    /// # Errors
    /// If the route or the client has reached its limit.
    pub(crate) fn permit(
        self: &Arc<Self>,
        client: Option<&LimitedClient>,
    ) -> Result<StreamPermit, NoRoom> {
        let client = client.map_or(Ok(None), LimitedClient::stream)?;
        // Counted before the comparison, so that only one of two concurrent streams gets the last place.
        let open = self.shared.streams.fetch_add(1, Ordering::Relaxed);
        let permit = StreamPermit { state: Arc::clone(self), _client: client, share: None };
        if open < self.route.max_streams { Ok(permit) } else { Err(NoRoom::Route) }
    }

    /// Counts a request of a client while its body is read. More such requests than streams are allowed, because most
    /// of them end quickly: a cancellation, for example, is a request of its own.
    ///
    /// # Errors
    ///
    /// If the route or the client has too many streams and such requests.
    pub(crate) fn reading(
        &self,
        client: Option<&LimitedClient>,
    ) -> Result<ReadingPermit<'_>, NoRoom> {
        let client = client.map_or(Ok(None), |client| client.reading(READING_SPARE))?;
        let reading = self.shared.reading.fetch_add(1, Ordering::Relaxed);
        let permit = ReadingPermit { route: &self.shared, _client: client };
        let max = self.route.max_streams.saturating_add(READING_SPARE);
        if reading + self.shared.streams() < max { Ok(permit) } else { Err(NoRoom::Route) }
    }

    /// Returns a number for the caller with this certificate and `Authorization`.
    pub(crate) fn caller(&self, parts: &Parts) -> u64 {
        let certificate = parts.extensions.get::<ClientName>();
        // Most clients show neither, and two hashes cost more than a look.
        if certificate.is_none() && !parts.headers.contains_key(header::AUTHORIZATION) {
            return self.shared.anonymous;
        }
        caller_of(&self.shared.hasher, certificate, &parts.headers)
    }

    /// Whether some clients with the server's own transport are served through a relay of Milepost.
    pub(crate) fn may_bridge(&self) -> bool {
        self.bridges || self.translates_eras
    }

    /// Returns a number for this `Authorization`.
    pub(crate) fn credentials(&self, headers: &HeaderMap) -> u64 {
        credentials_of(&self.shared.hasher, headers)
    }
}

/// A number for the caller with this certificate and the `Authorization` in `headers`.
fn caller_of(hasher: &RandomState, certificate: Option<&ClientName>, headers: &HeaderMap) -> u64 {
    hasher.hash_one((certificate, credentials_of(hasher, headers)))
}

/// A number for the `Authorization` in `headers`.
fn credentials_of(hasher: &RandomState, headers: &HeaderMap) -> u64 {
    let values: Vec<&[u8]> =
        headers.get_all(header::AUTHORIZATION).iter().map(|value| value.as_bytes()).collect();
    // Hashed with a random key: the number reveals nothing about the credentials, and is valid as long as the process
    // runs.
    hasher.hash_one(values)
}

/// The policy of a route, with the durations that were learned of its calls.
pub(crate) fn policy_of(
    routes: &Routes,
    route: &Route,
    old: Option<&RouteState>,
    memory: &DurationStore,
) -> Policy {
    let mut policy = routes.policy(route);
    policy.learned = match old {
        // Another server may be slower or faster, so the durations of the old server are not used.
        Some(old) if label_of_route(&old.route) == label_of_route(route) => {
            let learned = Arc::clone(&old.policy.learned);
            if policy.needs_durations() && !old.policy.needs_durations() {
                memory.load(&label_of_route(route), &learned);
            }
            learned
        }
        _ => {
            let label = label_of_route(route);
            let learned = memory.of(&label);
            if policy.needs_durations() {
                memory.load(&label, &learned);
            }
            learned
        }
    };
    policy
}
