//! The served routes of a route file, and their replacement by the routes of the next file. No call is lost.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::request::Parts;
use http::{Method, Response};
use tokio::time::sleep;

use crate::config::routes::{Route, Routes, Upstream};
use crate::gateway::bridge::Bridge;
use crate::gateway::bridge::http_sse::key_in;
use crate::gateway::demo_upstream;
use crate::gateway::direct::Direct;
use crate::gateway::direct::sessions::Sessions;
use crate::gateway::dispatch::Proxy;
use crate::gateway::file_contents::files_of;
use crate::gateway::observers::Observers;
use crate::gateway::refusals::{no_route, read_or_refuse, refuse_unread};
use crate::gateway::route_changes::Changes;
use crate::gateway::route_state::{RouteShared, RouteState, policy_of};
use crate::observe::durations::DurationStore;
use crate::observe::metrics::{RouteCounts, Tables};
use crate::progress::Policy;
use crate::protocol::jsonrpc::Message;
use crate::transport::http::body::Body;
use crate::transport::http::endpoints::EndpointKind;
use crate::transport::http::forwarder::Forwarder;
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, SESSION_ID};
use crate::transport::mcp_http::request_body::{PostedBody, ReadBody, asks};
use crate::transport::mcp_http::target::{TargetError, targets};
use crate::transport::tasks;

/// Limit of the previous servers of a route that are kept while they have open calls. Clients can no longer answer
/// requests of even older servers.
const PREVIOUS_MAX: usize = 8;

/// The interval of checks whether a retired route is still used.
const HELD_LOOK: Duration = Duration::from_secs(1);

/// A route with everything that serves it: its state, and the two paths of a request through it.
pub(crate) struct LiveRoute {
    pub(crate) state: Arc<RouteState>,
    pub(crate) direct: Arc<Direct>,
    pub(crate) bridge: Arc<Bridge>,
    /// The earlier values of this route, with other servers, as long as calls to those servers are open.
    pub(crate) previous: Vec<Weak<Self>>,
}

/// A route that is served.
#[derive(Clone)]
pub struct ServedRoute {
    pub(crate) live: Arc<LiveRoute>,
    /// Whether the file no longer has the route, so that only its open calls continue.
    pub(crate) removed: bool,
}

impl ServedRoute {
    /// Returns the route.
    pub fn route(&self) -> &Route {
        &self.live.state.route
    }

    /// Whether the file no longer has the route, so that only its open calls continue.
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// Finds the value of a route for a request whose session may belong to a previous server of the route, and returns
    /// it with the request's body. Open calls of a previous server may need the request: an answer of the client, or a
    /// stream that is resumed. No new call begins on a previous server.
    pub(crate) async fn find_session(
        &self,
        parts: &Parts,
        part: &EndpointKind,
        body: PostedBody,
    ) -> Result<(Arc<LiveRoute>, PostedBody), Box<Response<Body>>> {
        let state = &self.live.state;
        let gone = |body| Err(Box::new(refuse_unread(state, parts, body, no_route())));
        let Some(previous) = self.find_previous(parts, part) else {
            return if self.removed { gone(body) } else { Ok((Arc::clone(&self.live), body)) };
        };
        let comes_back = parts.headers.get(LAST_EVENT_ID).is_some_and(|id| !id.is_empty());
        let (is_for_previous, body) = match parts.method {
            Method::POST if *part == EndpointKind::Endpoint => {
                let read = read_or_refuse(state, body, parts).await?;
                let asks = match &read {
                    ReadBody::Whole(bytes) => asks(Some(&Message::parse(bytes.clone()))),
                    ReadBody::Large(_) => true,
                };
                (!asks, PostedBody::Read(read))
            }
            Method::GET => (previous.state.endpoint.is_none() || comes_back, body),
            _ => (true, body),
        };
        match is_for_previous {
            true => Ok((previous, body)),
            false if self.removed => gone(body),
            false => Ok((Arc::clone(&self.live), body)),
        }
    }

    /// The value with an earlier server, or of a removed route, that has the session of a request.
    fn find_previous(&self, parts: &Parts, part: &EndpointKind) -> Option<Arc<LiveRoute>> {
        let (live, removed) = (&self.live, self.removed);
        let own = removed.then(|| Arc::clone(live)).into_iter();
        let mut all = own.chain(live.previous.iter().rev().filter_map(Weak::upgrade));
        match part {
            EndpointKind::Endpoint => {
                let id = parts.headers.get(SESSION_ID)?.as_bytes();
                if !removed && live.has_session(id) {
                    return None;
                }
                all.find(|previous| previous.has_session(id))
            }
            EndpointKind::Messages(_) => {
                let query = parts.uri.query()?;
                if !removed && live.has_sse_stream(query) {
                    return None;
                }
                all.find(|previous| previous.has_sse_stream(query))
            }
            EndpointKind::Sse | EndpointKind::WellKnown(_) => None,
        }
    }
}

impl fmt::Debug for ServedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServedRoute").field(&self.live.state.route.path).finish()
    }
}

/// Routes that can be served as soon as they apply ([`Proxy::apply`]).
pub struct Prepared {
    routes: Vec<Arc<LiveRoute>>,
    /// Old values of routes that have another server now or were removed.
    retired: Vec<Arc<LiveRoute>>,
    removed: Vec<Arc<LiveRoute>>,
    changes: Changes,
}

/// The old values of routes that have another server or were removed, to be retired.
#[must_use]
pub struct Retired {
    routes: Vec<Arc<LiveRoute>>,
}

impl Retired {
    /// Retires the servers, which get no new requests. A session of the bridge ends with its last call. A stream on
    /// which a client only listens ends with the last call of its route.
    pub fn retire(self) {
        for live in self.routes {
            let shared = Arc::clone(&live.state.shared);
            shared.retire();
            live.bridge.sessions.wake_all();
            tasks::spawn(async move {
                shared.calls.done().await;
                shared.over.end();
                let route = &live.state.route.path;
                tracing::debug!(route, "the last call to the previous server has ended");
                // The new value of the route must find the old one for the answers and cancellations of open calls. A
                // request whose body is still being read is not counted yet, so this task keeps the route alive while a
                // request, a response or a session uses it.
                while live.is_held() {
                    sleep(HELD_LOOK).await;
                }
            });
        }
    }
}

/// A retired route, until nothing uses it any more.
pub(crate) struct Retiring {
    live: Weak<LiveRoute>,
    path: String,
    counts: Arc<RouteCounts>,
}

/// The routes that are served, and earlier ones with open calls.
#[derive(Default)]
pub(crate) struct LiveRoutes {
    now: Vec<Arc<LiveRoute>>,
    /// Routes that the file no longer has, as long as calls to them are open.
    removed: Vec<Weak<LiveRoute>>,
    retiring: Vec<Retiring>,
    /// The route file that is served.
    file: Option<Routes>,
}

impl Proxy {
    fn routes(&self) -> MutexGuard<'_, LiveRoutes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the served routes, in the order of their file, followed by removed routes with open calls.
    pub fn served(&self) -> Vec<ServedRoute> {
        let routes = self.routes();
        let now = routes.now.iter();
        let now = now.map(|live| ServedRoute { live: Arc::clone(live), removed: false });
        let removed = routes.removed.iter().filter_map(Weak::upgrade);
        now.chain(removed.map(|live| ServedRoute { live, removed: true })).collect()
    }

    /// Prepares these routes without any effect and without connections. `memory` holds their learned durations.
    ///
    /// # Errors
    ///
    /// If a route's certificates cannot be used or its address is not valid.
    pub fn prepare(
        &self,
        routes: &Routes,
        memory: &DurationStore,
    ) -> Result<Prepared, TargetError> {
        // The lock is released before certificates are read, so that requests do not wait for files.
        let (now, removed, same_defaults) = {
            let live = self.routes();
            let removed: Vec<Arc<LiveRoute>> =
                live.removed.iter().filter_map(Weak::upgrade).collect();
            let old = live.file.as_ref();
            (live.now.clone(), removed, old.is_some_and(|old| old.has_defaults_of(routes)))
        };
        let mut old: BTreeMap<&str, &Arc<LiveRoute>> = BTreeMap::new();
        old.extend(now.iter().map(|live| (live.state.route.path.as_str(), live)));
        let mut prepared = Prepared {
            routes: Vec::new(),
            retired: Vec::new(),
            removed: Vec::new(),
            changes: Changes::default(),
        };
        let changes = &mut prepared.changes;
        for route in routes.iter() {
            let old = old.get(route.path.as_str()).copied();
            let live = match old {
                Some(old) if same_defaults && old.state.is_just(route) => {
                    changes.unchanged += 1;
                    Arc::clone(old)
                }
                Some(old) => {
                    let live = self.live_route(routes, route, Some(old), memory)?;
                    changes.changed.push(route.path.clone());
                    if !Arc::ptr_eq(&live.state.shared, &old.state.shared) {
                        changes.moved.push(route.path.clone());
                        prepared.retired.push(Arc::clone(old));
                    }
                    live
                }
                None => {
                    changes.added.push(route.path.clone());
                    let before = removed.iter().find(|old| old.state.route.path == route.path);
                    self.live_route(routes, route, before, memory)?
                }
            };
            prepared.routes.push(live);
        }
        let is_gone =
            |live: &&Arc<LiveRoute>| routes.iter().all(|route| route.path != live.state.route.path);
        let gone: Vec<Arc<LiveRoute>> = now.iter().filter(is_gone).cloned().collect();
        changes.removed = gone.iter().map(|live| live.state.route.path.clone()).collect();
        prepared.removed = removed.iter().filter(is_gone).cloned().collect();
        prepared.removed.extend(gone.iter().cloned());
        prepared.retired.extend(gone);
        Ok(prepared)
    }

    /// Serves these routes from now on, and returns the changes. Open calls keep their settings. The caller retires the
    /// previous servers when they get no more requests: [`Retired::retire`].
    pub fn apply(&self, routes: &Routes, prepared: Prepared) -> (Changes, Retired) {
        let Prepared { routes: now, retired, removed, changes } = prepared;
        now.iter().for_each(|live| live.publish());
        self.set_maxima(routes.server());
        let mut live = self.routes();
        live.now = now;
        let bridges = || live.now.iter().map(|now| &now.bridge);
        retired.iter().for_each(|old| old.bridge.find_heir(bridges()));
        live.removed = removed.iter().map(Arc::downgrade).collect();
        live.file = Some(routes.clone());
        live.retiring.extend(retired.iter().map(|live| Retiring {
            live: Arc::downgrade(live),
            path: live.state.route.path.clone(),
            counts: Arc::clone(&live.state.shared.counts),
        }));
        (changes, Retired { routes: retired })
    }

    /// Returns the current value of the route, for a request that has no session yet.
    pub(crate) fn current_for(&self, live: &Arc<LiveRoute>) -> Option<Arc<LiveRoute>> {
        if !live.state.shared.is_retired() {
            return Some(Arc::clone(live));
        }
        let routes = self.routes();
        routes.now.iter().find(|now| now.state.route.path == live.state.route.path).cloned()
    }

    fn live_route(
        &self,
        routes: &Routes,
        route: &Route,
        old: Option<&Arc<LiveRoute>>,
        memory: &DurationStore,
    ) -> Result<Arc<LiveRoute>, TargetError> {
        // Hashed before the files are used, so that the next reload sees a change that happens in between.
        let files = files_of(&route.upstream);
        let policy = policy_of(routes, route, old.map(|old| &*old.state), memory);
        let same = old.filter(|old| {
            !old.state.shared.is_retired()
                && old.state.route.upstream.is_same_server(&route.upstream)
        });
        let alike = same.map(|old| &old.state).filter(|old| {
            old.files == files
                && old.route.upstream == route.upstream
                && old.route.connect_timeout == route.connect_timeout
                && old.route.own_request_timeout == route.own_request_timeout
        });
        let counts = self.metrics.route(&route.path);
        let (endpoint, sse) = match alike {
            Some(old) => (old.endpoint.clone(), old.sse.clone()),
            None => {
                let demo = matches!(route.upstream, Upstream::Demo).then(demo_upstream::connector);
                targets(route, demo.as_ref().or(self.connect.as_ref()), counts.traffic())?
            }
        };
        let shared = match same {
            Some(old) => Arc::clone(&old.state.shared),
            None => {
                let observers = Observers::new(&route.path, counts, &self.observers);
                let connect = self.connect.as_ref();
                let (calls, shutdown) = (&self.calls, &self.shutdown);
                Arc::new(RouteShared::new(
                    observers,
                    memory.folder(),
                    connect,
                    calls,
                    shutdown,
                    [&self.bodies, &self.spilled, &self.kept],
                ))
            }
        };
        let mut previous: Vec<Weak<LiveRoute>> =
            old.map(|old| old.previous.clone()).unwrap_or_default();
        previous.extend(old.filter(|_| same.is_none()).map(Arc::downgrade));
        previous.retain(|live| live.strong_count() > 0);
        previous.drain(..previous.len().saturating_sub(PREVIOUS_MAX));
        let shared_policy = Arc::new(Policy { id_mapping: true, ..policy.clone() });
        let bridge_policy = Arc::new(policy);
        let direct_policy = bridge_policy.without_kept_work().map(Arc::new);
        let route = Arc::new(route.clone());
        let state = Arc::new(RouteState {
            translates_eras: bridge_policy.modern && !route.opaque,
            policy: direct_policy.clone().unwrap_or_else(|| Arc::clone(&bridge_policy)),
            bridge_policy,
            shared_policy,
            quiet: Default::default(),
            endpoint,
            sse,
            bridges: direct_policy.is_some() && !route.opaque,
            forwarder: Forwarder::new(self.via.clone(), &route, shared.counts.traffic()),
            files,
            generation: same.map_or(0, |old| old.state.generation + 1),
            shared,
            route,
        });
        let direct = self.direct(&state, same);
        let bridge = self.bridge_of(&state, same);
        Ok(Arc::new(LiveRoute { state, direct, bridge, previous }))
    }

    /// Returns the direct path of a route. `same`: the route before a reload, if its server is the same.
    fn direct(&self, state: &Arc<RouteState>, same: Option<&Arc<LiveRoute>>) -> Arc<Direct> {
        let observes =
            |old: &&Arc<LiveRoute>| old.state.policy.observes() == state.policy.observes();
        // Shared only if both policies observe or both repair: a session does either for all its requests.
        let sessions = match same.filter(observes) {
            Some(old) => Arc::clone(&old.direct.sessions),
            None => {
                let observers = Arc::clone(&state.shared.observers);
                Arc::new(Sessions::new(state.route.max_sessions, observers))
            }
        };
        let state = Arc::clone(state);
        Arc::new(match same.map(|old| &old.direct) {
            Some(old) => Direct {
                state,
                sessions,
                sse_streams: Arc::clone(&old.sse_streams),
                origins: Arc::clone(&old.origins),
                accepted: Arc::clone(&old.accepted),
            },
            None => Direct {
                state,
                sessions,
                sse_streams: Arc::default(),
                origins: Arc::default(),
                accepted: Arc::default(),
            },
        })
    }

    /// Returns the bridge of a route. `same`: the route before a reload, if its server is the same.
    fn bridge_of(&self, state: &Arc<RouteState>, same: Option<&Arc<LiveRoute>>) -> Arc<Bridge> {
        let (state, servers) = (Arc::clone(state), Arc::clone(&self.servers));
        Arc::new(match same.map(|old| &old.bridge) {
            Some(old) => Bridge {
                state,
                sessions: Arc::clone(&old.sessions),
                shared: Arc::clone(&old.shared),
                era: Arc::clone(&old.era),
                servers,
            },
            None => Bridge {
                state,
                sessions: Arc::default(),
                shared: Arc::default(),
                era: Arc::default(),
                servers,
            },
        })
    }

    /// Measures the tables of every route for operators, together with those of its earlier servers.
    pub(crate) fn measure(&self) {
        let mut routes = self.routes();
        let LiveRoutes { now, retiring, .. } = &mut *routes;
        let mut tables: BTreeMap<&str, (&RouteCounts, Tables)> = BTreeMap::new();
        for live in now.iter() {
            tables.insert(&live.state.route.path, (&live.state.shared.counts, live.tables()));
        }
        for retired in retiring.iter() {
            let (_, sum) =
                tables.entry(&retired.path).or_insert_with(|| (&retired.counts, Tables::default()));
            if let Some(live) = retired.live.upgrade() {
                *sum += live.tables();
            }
        }
        tables.into_values().for_each(|(counts, tables)| counts.tables(tables));
        retiring.retain(|retired| retired.live.strong_count() > 0);
    }
}

impl RouteState {
    /// Whether the settings are the same as those of `route`, and the files that it names are unchanged.
    fn is_just(&self, route: &Route) -> bool {
        *self.route == *route && self.files == files_of(&route.upstream)
    }
}

impl LiveRoute {
    /// Makes these settings apply to calls that begin from now on.
    fn publish(&self) {
        self.direct.sessions.keep(self.state.route.max_sessions);
        self.state.publish();
        self.bridge.sessions.wake_all();
    }

    /// Whether a request, a response or a session still refers to the route or a part of it. Three references to the
    /// state are normal: those of this value, of `direct` and of `bridge`.
    fn is_held(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
            || Arc::strong_count(&self.direct) > 1
            || Arc::strong_count(&self.bridge) > 1
            || Arc::strong_count(&self.state) > 3
    }

    /// Returns the load of the route's tables.
    fn tables(&self) -> Tables {
        let (own, kept_messages, kept_bytes) = self.bridge.sessions.load();
        Tables {
            sessions: [self.direct.sessions.len(), own, self.direct.sse_streams.len()],
            streams: self.state.shared.streams(),
            kept_messages,
            kept_bytes,
        }
    }

    fn has_session(&self, id: &[u8]) -> bool {
        self.direct.sessions.find(id).is_some() || self.bridge.sessions.knows(id)
    }

    fn has_sse_stream(&self, query: &str) -> bool {
        self.direct.sse_streams.knows(query)
            || key_in(query).is_some_and(|id| self.bridge.sessions.knows(id))
    }
}
