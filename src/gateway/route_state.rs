//! A route while it is served: its server, its sessions, and what has been learned of either.

use crate::transport::mcp_http::target::Target;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::{HeaderMap, header};

use super::bridge;
use crate::config::routes::Route;
use crate::gateway::direct::accepted_callers::Proven;
use crate::gateway::direct::http_sse::Wires;
use crate::gateway::direct::session::Sessions;
use crate::observe::events::{EventEmitter, FilterId, ObserverFactory, Scope};
use crate::observe::log::Connection;
use crate::observe::metrics::{RouteCounts, Tables};
use crate::progress::{Pacing, Policy};
use crate::relay::discover_probe::Era;
use crate::transport::http::client::InProcess;
use crate::transport::http::cors::Known;
use crate::transport::http::in_flight::Calls;
use crate::transport::http::shutdown::Ending;

/// A route while it is served: what holds for calls that begin now. A call keeps the one that it began
/// with, and goes on by its settings when others hold.
pub(crate) struct Site {
    pub(crate) route: Arc<Route>,
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
            crate::transport::clock::now(),
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
