//! Several replicas behind one load balancer: any replica can answer any request.
//!
//! ```text
//! client ─> any replica ─> whose session? ─┬─ mine ──────> the routes
//!                                          ├─ another's ─> its fleet address ─> the routes there
//!                                          └─ gone ──────> the routes here, if the server has an address
//! ```
//!
//! The id of a session that a client is given is sealed ([`seal`]): it contains the replica that owns the session and
//! the id of the server. The replica that gets a request opens the id. There is no membership and no election, and a
//! store only if the operator wants one: [`heirs`]. A replica passes a request on once, as it came.

pub mod course;
pub(crate) mod event_id;
mod forward;
pub mod heirs;
pub(crate) mod passport;
pub(crate) mod peers;
pub mod seal;
pub(crate) mod session;
#[cfg(feature = "fleet-valkey")]
pub(crate) mod valkey;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use self::course::{Course, RequestSender, course};
use self::forward::unreachable_now;
use self::heirs::{Heir, Heirs, OwnerStore, SessionKey};
use self::passport::{ClientFacts, PassportError, PassportOffice};
use self::peers::Peers;
use self::seal::{IdKind, Opened, Owner, Seal, SealedId};
use self::session::{FleetSeal, FleetSession, rename};
use crate::config::routes::{self, FleetKey, Route, Upstream};
use crate::gateway::bridge::NO_SESSION;
use crate::gateway::bridge::responses::refusal;
use crate::gateway::dispatch::Proxy;
use crate::gateway::refusals::{events_head, text};
use crate::observe::metrics::{FleetCounts, FleetEvent};
use crate::progress::ReplicaHop;
use crate::protocol::trace_context::to_hex;
use crate::transport::http::body::Body;
use crate::transport::http::endpoints::EndpointKind;
use crate::transport::http::in_flight::InFlight;
use crate::transport::http::shutdown::Shutdown;
use crate::transport::mcp_http::header_names::LAST_EVENT_ID;
use crate::transport::random::random_bytes;

pub use self::peers::DialReplica;

/// The error for a request whose owner has ended together with the server.
const LOST: &str =
    "the replica that ran the MCP server of this session has ended; initialize a new session";

/// This replica as a member of its fleet.
pub struct FleetMember {
    /// The address on which this replica accepts requests that other replicas pass on.
    pub(crate) listen: SocketAddr,
    seal: Arc<FleetSeal>,
    /// How a call of this replica's sessions has arrived, for its log and trace: directly, or passed on by another
    /// replica.
    hops: [Arc<ReplicaHop>; 2],
    office: PassportOffice,
    /// The nonce of the next passport. Nonces count up from a random number, so that no two replicas use the same
    /// nonce.
    nonces: AtomicU64,
    peers: Peers,
    /// Decides who serves sessions whose owners have ended; `None` if no store is configured.
    heirs: Option<Heirs>,
    counts: FleetCounts,
    calls: Arc<InFlight>,
    shutdown: Arc<Shutdown>,
}

/// Limit of the replicas that are tried for one request, one after the other: the session's owner, and heirs that the
/// store names.
const REPLICAS_TRIED_MAX: usize = 3;

/// Marks a request that another replica has passed on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassedOn;

impl FleetMember {
    /// Makes a proxy a member of the fleet of these settings. `dial`, if given, replaces the network. `None` if the
    /// system gives no random bytes.
    pub fn join(
        settings: &routes::Fleet,
        proxy: &Proxy,
        dial: Option<DialReplica>,
    ) -> Option<Arc<Self>> {
        Self::join_with(settings, proxy, dial, None)
    }

    /// Makes a proxy a member of a fleet with a store, which decides who serves a session whose owner has ended.
    pub fn join_with(
        settings: &routes::Fleet,
        proxy: &Proxy,
        dial: Option<DialReplica>,
        store: Option<Arc<dyn OwnerStore>>,
    ) -> Option<Arc<Self>> {
        let keys = || settings.keys.iter().map(FleetKey::reveal);
        let [boot, nonce] = random_numbers()?;
        let me = Owner { address: settings.advertise, boot };
        Some(Arc::new(Self {
            listen: settings.listen,
            heirs: store.map(|store| Heirs::of(me, store)),
            hops: [false, true]
                .map(|forwarded| Arc::new(ReplicaHop { owner: me.address.to_string(), forwarded })),
            seal: Arc::new(FleetSeal { me, seal: Seal::new(keys())?, seals: settings.seal }),
            office: PassportOffice::new(keys()),
            nonces: AtomicU64::new(nonce),
            peers: Peers::new(dial),
            counts: proxy.metrics.fleet(),
            // Requests that are passed on are counted as calls too.
            calls: Arc::clone(&proxy.calls),
            shutdown: Arc::clone(&proxy.shutdown),
        }))
    }

    /// Returns the settings as text. Keys are shown by their numbers, which every sealed id contains.
    pub(crate) fn words(settings: &routes::Fleet) -> String {
        let routes::Fleet { keys, listen, advertise, seal, .. } = settings;
        let numbers = Seal::new(keys.iter().map(FleetKey::reveal));
        let numbers: Vec<u8> = numbers.iter().flat_map(Seal::numbers).collect();
        format!("listen {listen}, advertise {advertise}, keys {}, seal {seal}", to_hex(&numbers))
    }

    /// Accepts a request that another replica passes on: removes the signed facts about its client from the headers and
    /// returns them.
    ///
    /// # Errors
    ///
    /// If it was not passed on just now by a replica with the same key.
    pub(crate) fn admit(&self, parts: &mut Parts) -> Result<ClientFacts, PassportError> {
        let client = self.office.check(parts, self.seal.me.address, now_ms())?;
        parts.headers.remove(passport::FORWARDED);
        parts.extensions.insert(PassedOn);
        self.counts.count(FleetEvent::Received);
        Ok(client)
    }

    /// Decides where a request is served. A returned request is served here, and has the session id that the server
    /// knows. The error is the response: that of the owner, or a refusal.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        route: &Arc<Route>,
        part: &EndpointKind,
        request: Request<Incoming>,
        client: &ClientFacts,
    ) -> Result<Request<Incoming>, Box<Response<Body>>> {
        if route.opaque {
            return Ok(request);
        }
        let (mut parts, body) = request.into_parts();
        let is_passed_on = parts.extensions.get::<PassedOn>().is_some();
        let sender = if is_passed_on { RequestSender::Replica } else { RequestSender::Client };
        let mut session = FleetSession::new(&self.seal, route, client.name.clone());
        let (kind, opened) = session.opened(part, &parts);
        let mut request = match opened {
            Opened::Plain => {
                parts.extensions.insert(session);
                return Ok(Request::from_parts(parts, body));
            }
            Opened::Forged => return Err(Box::new(no_session(kind))),
            Opened::Sealed(SealedId { owner, id }) => {
                session.note_name(kind, &parts, &id);
                let request = Request::from_parts(parts, body);
                let heritage = self.heritage(route, part, &id);
                // Whether any replica can serve the session. A replica that shuts down keeps the sessions that others
                // cannot.
                let moves = has_address(route, part);
                let found = self.find_server(owner, heritage, moves, sender, request, client);
                let (request, place) = found.await?;
                session.is_taken_over = place == ServedHere::Unsettled;
                let (mut parts, body) = request.into_parts();
                let way = match place {
                    ServedHere::Unsettled => Arc::new(ReplicaHop {
                        owner: owner.address.to_string(),
                        forwarded: is_passed_on,
                    }),
                    _ => Arc::clone(&self.hops[usize::from(is_passed_on)]),
                };
                parts.extensions.insert(way);
                rename(kind, &mut parts, &id);
                let request = Request::from_parts(parts, body);
                if place != ServedHere::Owned {
                    self.take_over(route, part, &request)?;
                }
                request
            }
        };
        request.extensions_mut().insert(session);
        Ok(request)
    }

    /// Returns the name of a session in the store, if another replica can inherit the session.
    fn heritage(
        &self,
        route: &Route,
        part: &EndpointKind,
        id: &[u8],
    ) -> Option<(&Heirs, SessionKey)> {
        let heirs = self.heirs.as_ref().filter(|_| has_address(route, part))?;
        Some((heirs, SessionKey::of(&route.path, id)))
    }

    /// Finds the replica that serves a request. Returns the request if it is this replica, else passes it on; the error
    /// is then the response.
    async fn find_server(
        self: &Arc<Self>,
        owner: Owner,
        heritage: Option<(&Heirs, SessionKey)>,
        moves: bool,
        sender: RequestSender,
        mut request: Request<Incoming>,
        client: &ClientFacts,
    ) -> Result<(Request<Incoming>, ServedHere), Box<Response<Body>>> {
        let me = self.seal.me;
        if heritage.is_some_and(|(heirs, session)| heirs.is_mine(session)) {
            return Ok((request, ServedHere::Owned));
        }
        let mut decided = course(owner, me, sender, |peer| self.peers.is_down(peer));
        let (mut target, mut gone) = (owner, None);
        for _ in 0..REPLICAS_TRIED_MAX {
            match decided {
                Course::Here => return Ok((request, ServedHere::Owned)),
                // The replica that passed the request on may not know that the heir at this address has ended, so the
                // store is asked.
                Course::Loop if heritage.is_none() => break,
                Course::Loop | Course::Gone => {}
                Course::Elsewhere(_) if moves && self.peers.is_leaving(target) => {}
                Course::Elsewhere(_) => {
                    match self.pass_on(target, request, client).await {
                        Ok(response) => return Err(Box::new(response)),
                        // The session still exists on that replica, so it must not be begun again elsewhere.
                        Err(unreached) if unreached.is_own_fault && !moves => {
                            return Err(Box::new(unreachable_now()));
                        }
                        Err(unreached) => request = *unreached.request,
                    }
                }
            }
            let Some((heirs, session)) = heritage else {
                return Ok((request, ServedHere::Unsettled));
            };
            let heir = match heirs.settle(session, gone).await {
                Heir::Me => return Ok((request, ServedHere::Inherited)),
                Heir::Unknown => return Ok((request, ServedHere::Unsettled)),
                Heir::Other(heir) => heir,
            };
            decided = course(heir, me, sender, |peer| self.peers.is_down(peer));
            if decided == Course::Loop {
                break;
            }
            // If this heir cannot be reached either, the next claim replaces it.
            (target, gone) = (heir, Some(heir));
        }
        if decided == Course::Loop {
            self.counts.count(FleetEvent::Loop);
            let why = "another replica has passed this request on, and its session is not here";
            return Err(Box::new(text(StatusCode::LOOP_DETECTED, why)));
        }
        Ok((request, ServedHere::Unsettled))
    }

    /// Takes over a session whose owner has ended, if its server can be reached from here. The error is the response
    /// for a session whose server was lost with the owner.
    fn take_over(
        &self,
        route: &Route,
        part: &EndpointKind,
        request: &Request<Incoming>,
    ) -> Result<(), Box<Response<Body>>> {
        if has_address(route, part) {
            self.counts.count(FleetEvent::TakenOver);
            return Ok(());
        }
        self.counts.count(FleetEvent::Lost);
        let last = request.headers().get(LAST_EVENT_ID).filter(|_| request.method() == Method::GET);
        let lost = last.map_or_else(Vec::new, |id| event_id::requests_in(id.as_bytes()));
        if lost.is_empty() {
            // The route's own code answers that the session does not exist.
            return Ok(());
        }
        // No other replica can ever answer these requests.
        tracing::info!(
            route = route.path,
            requests = lost.len(),
            "a stream was lost with its replica"
        );
        let mut response = Response::new(Body::from(event_id::error_events(&lost, LOST)));
        *response.headers_mut() = events_head();
        Err(Box::new(response))
    }
}

/// How this replica serves a request of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServedHere {
    /// This replica owns the session.
    Owned,
    /// This replica has inherited the session.
    Inherited,
    /// The owner has ended, but no heir is decided, so other replicas may serve the session at the same time.
    Unsettled,
}

/// Whether every replica can reach the server for a request.
fn has_address(route: &Route, part: &EndpointKind) -> bool {
    matches!(&route.upstream, Upstream::Http(http) if http.url.is_some())
        && *part == EndpointKind::Endpoint
}

/// Returns the response to a client that names an unknown session.
fn no_session(kind: IdKind) -> Response<Body> {
    match kind {
        IdKind::Session => refusal(StatusCode::NOT_FOUND, NO_SESSION, None),
        IdKind::Endpoint => {
            text(StatusCode::NOT_FOUND, "there is no such stream; open one with a GET")
        }
    }
}

/// Returns the milliseconds since 1970.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns two random numbers; `None` if the system has none.
fn random_numbers() -> Option<[u64; 2]> {
    let bytes = random_bytes::<16>()?;
    let (one, rest) = bytes.split_first_chunk::<8>()?;
    Some([u64::from_be_bytes(*one), u64::from_be_bytes(*rest.first_chunk::<8>()?)])
}

/// Rewrites the target of a request to the form of HTTP/1.1: the path, with the host in a header.
fn in_origin_form(parts: &mut Parts) {
    if let Some(authority) = parts.uri.authority().map(|authority| authority.as_str().to_owned()) {
        if !parts.headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::try_from(authority)
        {
            parts.headers.insert(HOST, host);
        }
        if let Some(target) = parts.uri.path_and_query().cloned() {
            parts.uri = target.into();
        }
    }
}
