//! Which routes are served: from a route file, and from the next one without a call being lost.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError, Weak};

use http::request::Parts;
use http::{Method, Response};

use crate::config::routes::{Route, Routes, Upstream};
use crate::gateway::direct::session::Sessions;
use crate::gateway::dispatch::Proxy;
use crate::gateway::refusals::{no_route, refuse};
use crate::gateway::route_state::{Audience, Kept, Site};
use crate::gateway::{bridge, demo_upstream};
use crate::observe::durations::DurationStore;
use crate::observe::metrics::{RouteCounts, Tables};
use crate::progress::Policy;
use crate::protocol::jsonrpc::Message;
use crate::protocol::lines::INSPECT_MAX;
use crate::transport::http::body::Body;
use crate::transport::http::endpoints::Part;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::request_body;
use crate::transport::mcp_http::request_body::{Posted, Read, asks};
use crate::transport::mcp_http::target::{TargetError, targets};

/// Previous servers of a route that are remembered while calls to them are open. Clients can no
/// longer answer requests of older servers.
const BEFORE_MAX: usize = 8;

/// Bytes of a watched file that are compared to find out whether the file has changed.
const COMPARED_MAX: u64 = 16 << 20;

/// A route that is served.
#[derive(Clone)]
pub struct Served {
    pub(crate) site: Arc<Site>,
    /// The file has it no more: only its calls go on.
    pub(crate) late: bool,
}

impl Served {
    /// The route.
    pub fn route(&self) -> &Route {
        &self.site.route
    }

    /// Whether the file has it no more, and only its calls go on.
    pub fn is_late(&self) -> bool {
        self.late
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Served").field(&self.site.route.path).finish()
    }
}

/// How many routes have become what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Were not there before.
    pub added: usize,
    /// Are there no more.
    pub removed: usize,
    /// Have other settings, or another server.
    pub changed: usize,
    /// Of these, those with another server.
    pub moved: usize,
    /// Are as they were.
    pub unchanged: usize,
}

/// Routes that can be served as soon as they are taken ([`Proxy::take`]).
pub struct Prepared {
    sites: Vec<Arc<Site>>,
    /// Those whose server is another one, or that are gone.
    left: Vec<Arc<Site>>,
    late: Vec<Arc<Site>>,
    changes: Changes,
}

/// Routes whose servers are others now, or that are gone.
#[must_use]
pub struct Left(Vec<Arc<Site>>);

impl Left {
    /// No request comes for their servers any more: their calls end, and then all that was there for them.
    pub fn go(self) {
        self.0.into_iter().for_each(Site::leave);
    }
}

/// A site that has been left, until nothing of it is there.
pub(crate) struct Leaving {
    site: Weak<Site>,
    path: String,
    counts: Arc<RouteCounts>,
}

/// What is served, and what was.
#[derive(Default)]
pub(crate) struct Sites {
    now: Vec<Arc<Site>>,
    /// Routes that the file has no more, as long as calls to them are open.
    late: Vec<Weak<Site>>,
    leaving: Vec<Leaving>,
    /// The file that is served.
    routes: Option<Routes>,
}

impl Proxy {
    fn sites(&self) -> MutexGuard<'_, Sites> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The routes that are served, in the order of their file; behind them those that it has no more and
    /// that calls are open to.
    pub fn served(&self) -> Vec<Served> {
        let sites = self.sites();
        let now = sites.now.iter().map(|site| Served { site: Arc::clone(site), late: false });
        let late = sites.late.iter().filter_map(Weak::upgrade);
        now.chain(late.map(|site| Served { site, late: true })).collect()
    }

    /// What it takes to serve these routes. Nothing has changed yet, and nothing is connected. `memory` has
    /// and gets what is learned of them.
    ///
    /// # Errors
    /// If a route's certificates cannot be used or its address is none.
    pub fn prepare(
        &self,
        routes: &Routes,
        memory: &DurationStore,
    ) -> Result<Prepared, TargetError> {
        // Nobody waits for certificates to be read.
        let (now, late, same_defaults) = {
            let sites = self.sites();
            let late: Vec<Arc<Site>> = sites.late.iter().filter_map(Weak::upgrade).collect();
            let old = sites.routes.as_ref();
            (sites.now.clone(), late, old.is_some_and(|old| old.has_defaults_of(routes)))
        };
        let old: BTreeMap<&str, &Arc<Site>> =
            now.iter().map(|site| (site.route.path.as_str(), site)).collect();
        let mut prepared = Prepared {
            sites: Vec::new(),
            left: Vec::new(),
            late: Vec::new(),
            changes: Changes::default(),
        };
        let changes = &mut prepared.changes;
        for route in routes.iter() {
            let old = old.get(route.path.as_str()).copied();
            let site = match old {
                Some(old) if same_defaults && old.is_just(route) => {
                    changes.unchanged += 1;
                    Arc::clone(old)
                }
                Some(old) => {
                    let site = self.site(routes, route, Some(old), memory)?;
                    changes.changed += 1;
                    if !Arc::ptr_eq(&site.kept, &old.kept) {
                        changes.moved += 1;
                        prepared.left.push(Arc::clone(old));
                    }
                    site
                }
                None => {
                    changes.added += 1;
                    let before = late.iter().find(|late| late.route.path == route.path);
                    self.site(routes, route, before, memory)?
                }
            };
            prepared.sites.push(site);
        }
        let is_gone = |path: &str| routes.iter().all(|route| route.path != path);
        let removed = now.iter().filter(|site| is_gone(&site.route.path));
        let removed: Vec<Arc<Site>> = removed.cloned().collect();
        changes.removed = removed.len();
        prepared.late = late.into_iter().filter(|late| is_gone(&late.route.path)).collect();
        prepared.late.extend(removed.iter().cloned());
        prepared.left.extend(removed);
        Ok(prepared)
    }

    /// Serves these routes from now on, and says what has changed. Calls that are open go on as they began.
    /// Servers that routes have no more are let go when nobody is sent to them any more: [`Left::go`].
    pub fn take(&self, routes: &Routes, prepared: Prepared) -> (Changes, Left) {
        let Prepared { sites: now, left, late, changes } = prepared;
        now.iter().for_each(|site| site.holds());
        let mut sites = self.sites();
        sites.now = now;
        sites.late = late.iter().map(Arc::downgrade).collect();
        sites.routes = Some(routes.clone());
        sites.leaving.extend(left.iter().map(|site| Leaving {
            site: Arc::downgrade(site),
            path: site.route.path.clone(),
            counts: Arc::clone(&site.counts),
        }));
        (changes, Left(left))
    }

    /// Where a request is asked that has no session yet: at the server that its route has now.
    pub(crate) fn standing_for(&self, site: &Arc<Site>) -> Option<Arc<Site>> {
        if !site.has_left() {
            return Some(Arc::clone(site));
        }
        let sites = self.sites();
        sites.now.iter().find(|now| now.route.path == site.route.path).cloned()
    }

    fn site(
        &self,
        routes: &Routes,
        route: &Route,
        old: Option<&Arc<Site>>,
        memory: &DurationStore,
    ) -> Result<Arc<Site>, TargetError> {
        // Before they are used: what is written meanwhile is seen the next time.
        let files = files_of(&route.upstream);
        let mut policy = routes.policy(route);
        policy.learned = match old {
            None => memory.of(&route.path, policy.estimates()),
            Some(old) => {
                let learned = Arc::clone(&old.policy.learned);
                if policy.estimates() && !old.policy.estimates() {
                    memory.load(&route.path, &learned);
                }
                learned
            }
        };
        let same =
            old.filter(|old| !old.has_left() && old.route.upstream.is_same_server(&route.upstream));
        let alike = same.filter(|old| {
            old.files == files
                && old.route.upstream == route.upstream
                && old.route.connect_timeout == route.connect_timeout
        });
        let counts = self.metrics.route(&route.path);
        let (endpoint, sse) = match alike {
            Some(old) => (old.endpoint.clone(), old.sse.clone()),
            None => {
                let demo = matches!(route.upstream, Upstream::Demo).then(demo_upstream::connector);
                targets(route, demo.as_ref().or(self.connect.as_ref()), counts.traffic())?
            }
        };
        // What a session knows of its requests it knows by one way of looking at them.
        let looks_alike = same.filter(|old| old.policy.observes() == policy.observes());
        let kept = match same {
            Some(old) => Arc::clone(&old.kept),
            None => {
                let audience = Audience::new(&route.path, counts, &self.observers);
                Arc::new(Kept::new(audience, self.connect.as_ref(), &self.calls))
            }
        };
        let sessions = match looks_alike {
            Some(old) => Arc::clone(&old.sessions),
            None => Arc::new(Sessions::new(route.max_sessions, Arc::clone(&kept.audience))),
        };
        let mut before: Vec<Weak<Site>> = old.map(|old| old.before.clone()).unwrap_or_default();
        before.extend(old.filter(|_| same.is_none()).map(Arc::downgrade));
        before.retain(|site| site.strong_count() > 0);
        before.drain(..before.len().saturating_sub(BEFORE_MAX));
        let shared_policy = Arc::new(Policy { remap: true, ..policy.clone() });
        Ok(Arc::new(Site {
            policy: Arc::new(policy),
            shared_policy,
            endpoint,
            sse,
            sessions,
            before,
            files,
            generation: same.map_or(0, |old| old.generation + 1),
            kept,
            route: Arc::new(route.clone()),
        }))
    }

    /// Tells operators how much is in the tables of every route, with what is left of servers before.
    pub(crate) fn measure(&self) {
        let mut sites = self.sites();
        let Sites { now, leaving, .. } = &mut *sites;
        let mut tables: BTreeMap<&str, (&RouteCounts, Tables)> = BTreeMap::new();
        for site in now.iter() {
            tables.insert(&site.route.path, (&site.counts, site.tables()));
        }
        for left in leaving.iter() {
            let (_, sum) =
                tables.entry(&left.path).or_insert_with(|| (&left.counts, Tables::default()));
            if let Some(site) = left.site.upgrade() {
                *sum += site.tables();
            }
        }
        tables.into_values().for_each(|(counts, tables)| counts.tables(tables));
        leaving.retain(|left| left.site.strong_count() > 0);
    }
}

impl Site {
    /// Whether nothing of its route is another in `route`, and what its files hold is the same.
    fn is_just(&self, route: &Route) -> bool {
        *self.route == *route && self.files == files_of(&route.upstream)
    }
}

/// Stands for what is in the files that an upstream names.
fn files_of(upstream: &Upstream) -> u64 {
    let Upstream::Http(http) = upstream else { return 0 };
    let own = http.client_certificate.iter().flat_map(|own| [&own.certificate, &own.key]);
    contents(http.ca_file.iter().chain(own).map(AsRef::as_ref))
}

/// Stands for what is in files: equal for the same, as long as the process lives.
pub fn contents<'a>(files: impl IntoIterator<Item = &'a Path>) -> u64 {
    static HASHER: OnceLock<RandomState> = OnceLock::new();
    let read = |file: &Path| {
        let mut bytes = Vec::new();
        let read =
            File::open(file).and_then(|file| file.take(COMPARED_MAX).read_to_end(&mut bytes));
        read.is_ok().then_some(bytes)
    };
    let all: Vec<(&Path, Option<Vec<u8>>)> =
        files.into_iter().map(|file| (file, read(file))).collect();
    HASHER.get_or_init(Default::default).hash_one(all)
}

impl Proxy {
    /// Who answers a request where its session may be with a server that the route does not have any more,
    /// and its body. Calls that are open there may need it: what its client answers, a stream that broke
    /// off. No new call begins there.
    pub(crate) async fn meant(
        &self,
        Served { site, late }: Served,
        parts: &Parts,
        part: &Part,
        body: Posted,
    ) -> Result<(Arc<Site>, Posted), Box<Response<Body>>> {
        let Some(before) = site.of_before(parts, part, late) else {
            return if late { Err(Box::new(no_route())) } else { Ok((site, body)) };
        };
        let comes_back = parts.headers.contains_key("last-event-id");
        let (is_for_before, body) = match parts.method {
            Method::POST if *part == Part::Endpoint => {
                let max = site.route.max_request_bytes;
                let read = request_body::read(body, &parts.headers, max, INSPECT_MAX).await;
                let read =
                    read.map_err(|unread| Box::new(refuse(&site, &unread, parts.version)))?;
                let asks = match &read {
                    Read::Whole(bytes) => asks(Some(&Message::parse(bytes.clone()))),
                    Read::Large(_) => true,
                };
                (!asks, Posted::Read(read))
            }
            Method::GET => (before.endpoint.is_none() || comes_back, body),
            _ => (true, body),
        };
        match is_for_before {
            true => Ok((before, body)),
            false if late => Err(Box::new(no_route())),
            false => Ok((site, body)),
        }
    }
}

impl Site {
    /// Who answers a request that belongs to a session with a server that stood here before, or with one of
    /// a route that is there no more (`late`): calls that are open there may need it. No new call begins
    /// there.
    pub(crate) fn of_before(
        self: &Arc<Self>,
        parts: &Parts,
        part: &Part,
        late: bool,
    ) -> Option<Arc<Self>> {
        let own = late.then(|| Arc::clone(self)).into_iter();
        match part {
            Part::Endpoint => {
                let id = parts.headers.get(SESSION_ID)?.as_bytes();
                if !late && self.knows_session(id) {
                    return None;
                }
                own.chain(self.befores()).find(|before| before.knows_session(id))
            }
            Part::Messages(_) => {
                let query = parts.uri.query()?;
                if !late && self.knows_wire(query) {
                    return None;
                }
                own.chain(self.befores()).find(|before| before.knows_wire(query))
            }
            Part::Sse | Part::WellKnown(_) => None,
        }
    }

    fn knows_session(&self, id: &[u8]) -> bool {
        self.sessions.find(id).is_some() || self.bridge.knows(id)
    }

    fn knows_wire(&self, query: &str) -> bool {
        self.wires.knows(query) || bridge::key_in(query).is_some_and(|id| self.bridge.knows(id))
    }
}
