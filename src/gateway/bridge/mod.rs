//! The bridge: HTTP clients in front of a server with another transport. It makes sessions, streams and event ids.
//!
//! ```text
//! client ──> post ──> BridgeSession ──> SessionLeg ─┐         ┌─ Pipe ──> child
//!               │ opens                             ├─ Relay ─┤
//! client <── ResponseBody <── ReplayBuffer <────────┘         └─ HttpUpstreamLeg ──> server
//! ```
//!
//! Each session has one task, which runs the relay. The `ReplayBuffer` of a stream keeps its messages. A response takes
//! the messages from the buffer, as one JSON answer or as events. A client that resumes takes the missed messages from
//! the same buffer.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};

use self::responses::refusal;
use self::session::{BridgeSession, BridgeSessions, SessionKind};
use self::shared_servers::SharedServers;
use crate::config::routes::Upstream;
use crate::gateway::client_limits::fair_share::FairShare;
use crate::gateway::limit_notices::tell_of_full_route;
use crate::gateway::refusals::{over_limit, retry_later};
use crate::gateway::route_state::{NoRoom, RouteState, StreamPermit};
use crate::observe::metrics::RouteLimit;
use crate::protocol::mcp::Revision;
use crate::relay::discover_probe::Era;
use crate::relay::{ClientHead, ClientHeaders, TRACE_HEADERS};
use crate::transport::http::body::Body;
use crate::transport::http::forwarder::BodyOrigin;
use crate::transport::http::in_flight::InFlight;
use crate::transport::mcp_http::header_names::{REVISION, SESSION_ID};

pub(crate) mod begin;
pub(crate) mod client_leg;
pub(crate) mod face_clients;
pub(crate) mod frame;
pub(crate) mod get;
pub(crate) mod hand_over;
pub(crate) mod http_sse;
pub(crate) mod idle;
pub(crate) mod large;
pub(crate) mod listed_tools;
pub(crate) mod modern;
pub(crate) mod post;
pub(crate) mod posted_message;
pub(crate) mod replay_buffer;
pub(crate) mod response_body;
pub(crate) mod responses;
pub(crate) mod session;
pub(crate) mod shared_servers;
pub(crate) mod signals;
pub(crate) mod subscription;
pub(crate) mod upload;

/// The error for a session that does not exist.
pub(crate) const NO_SESSION: &str = "there is no such session; initialize a new one";

/// The bridge of a route, between HTTP clients and the relays of their sessions. After a reload the new bridge shares
/// the tables of the old one, if the server is the same.
pub(crate) struct Bridge {
    pub(crate) state: Arc<RouteState>,
    pub(crate) sessions: Arc<BridgeSessions>,
    /// Servers that clients of 2026-07-28 share.
    pub(crate) shared: Arc<SharedServers>,
    /// What is known about the revisions that the server, a child, speaks.
    pub(crate) era: Arc<Era>,
    /// The number of servers that run for sessions, of all routes.
    pub(crate) servers: Arc<InFlight>,
}

impl Bridge {
    /// Returns a response that the bridge itself makes, with the route's headers.
    pub(crate) fn route_response(
        &self,
        status: StatusCode,
        headers: HeaderMap,
        body: Body,
    ) -> Response<Body> {
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = status;
        parts.headers = headers;
        parts.version = Version::HTTP_11;
        self.state.forwarder.response(parts, BodyOrigin::Server, body)
    }

    /// Counts one more stream of a request's client. The error is the refusal of the request `id`.
    pub(crate) fn stream_permit(
        &self,
        parts: &Parts,
        id: Option<&[u8]>,
    ) -> Result<Arc<StreamPermit>, Box<Response<Body>>> {
        permit_or_refuse(&self.state, self.state.permit(parts.extensions.get()), id)
    }

    /// Counts one more call of a client on a shared child. The error is the refusal of the request `id`.
    pub(crate) fn shared_permit(
        &self,
        parts: &Parts,
        shares: &FairShare,
        id: Option<&[u8]>,
    ) -> Result<Arc<StreamPermit>, Box<Response<Body>>> {
        let client = parts.extensions.get();
        let permit = self.state.permit(client).and_then(|mut permit| {
            if let (Some(client), Upstream::Command(stdio)) = (client, &self.state.route.upstream) {
                permit.count_share(shares.take(client, stdio.max_shared_calls)?);
            }
            Ok(permit)
        });
        permit_or_refuse(&self.state, permit, id)
    }

    /// Returns the number of the caller to whom a new session belongs. `None` if the server does not see the
    /// credentials of clients: then only the id shows whose session it is.
    pub(crate) fn owner_of(&self, headers: &HeaderMap) -> Option<u64> {
        let rules = &self.state.route.request_headers;
        let is_set = rules.set.iter().any(|(name, _)| name == AUTHORIZATION);
        let is_checked = matches!(self.state.route.upstream, Upstream::Http(_))
            && !is_set
            && !rules.remove.contains(&AUTHORIZATION);
        is_checked.then(|| self.state.credentials(headers))
    }

    /// Whether the client of a request may use a session. Its owner may, and so may a caller with other credentials,
    /// which the server judges; if it accepts them, the session belongs to that caller. The name in the client
    /// certificate must be the one that began the session.
    pub(crate) fn may_speak(&self, session: &BridgeSession, parts: &Parts) -> bool {
        let headers = &parts.headers;
        session.began_with(parts.extensions.get())
            && (headers.contains_key(AUTHORIZATION)
                || session.belongs_to(self.state.credentials(headers)))
    }

    /// Returns the session that a request names. The error is the refusal if there is none, or it is another caller's.
    pub(crate) fn session_named(
        &self,
        parts: &Parts,
    ) -> Result<Arc<BridgeSession>, Box<Response<Body>>> {
        let headers = &parts.headers;
        let Some(id) = headers.get(SESSION_ID) else {
            let why = "this request names no session; send Mcp-Session-Id, or initialize first";
            return Err(Box::new(refusal(StatusCode::BAD_REQUEST, why, None)));
        };
        let session = self.sessions.find(id.as_bytes(), SessionKind::Own);
        let session = session.filter(|session| match parts.method {
            Method::POST => self.may_speak(session, parts),
            // GET and DELETE do not reach a server that could check other credentials, so only the owner may send them.
            _ => {
                session.began_with(parts.extensions.get())
                    && session.belongs_to(self.state.credentials(headers))
            }
        });
        let Some(session) = session else {
            return Err(Box::new(refusal(StatusCode::NOT_FOUND, NO_SESSION, None)));
        };
        if let Some(date) = headers.get(REVISION) {
            // MCP 2025-06-18, Protocol Version Header: a revision that is not supported gets 400.
            let known = date.to_str().ok().and_then(Revision::from_date);
            let legacy = known.is_some_and(|revision| revision < Revision::V2026_07_28);
            if !legacy && session.agreed_revision().date.as_bytes() != date.as_bytes() {
                let why = "this revision of the protocol is not known; send the one agreed on";
                return Err(Box::new(refusal(StatusCode::BAD_REQUEST, why, None)));
            }
        }
        Ok(session)
    }

    /// Returns the headers of a client's request that the server needs. A child gets no headers, so only those of the
    /// trace matter.
    pub(crate) fn headers_for_server(&self, parts: &Parts) -> ClientHeaders {
        let mut headers = HeaderMap::new();
        if matches!(self.state.route.upstream, Upstream::Command(_)) {
            for name in TRACE_HEADERS {
                let values = parts.headers.get_all(&name).iter().cloned();
                headers.extend(values.map(|value| (name.clone(), value)));
            }
        } else {
            headers.clone_from(&parts.headers);
        }
        Some(Arc::new(ClientHead { headers, hop: parts.extensions.get().cloned() }))
    }
}

/// Returns the permit. The error is the refusal of the request `id`.
fn permit_or_refuse(
    state: &RouteState,
    permit: Result<StreamPermit, NoRoom>,
    id: Option<&[u8]>,
) -> Result<Arc<StreamPermit>, Box<Response<Body>>> {
    permit.map(Arc::new).map_err(|none| {
        let answer = |status| refusal(status, &none.to_string(), id);
        Box::new(match &none {
            NoRoom::Route => {
                tell_of_full_route(state, RouteLimit::Streams);
                retry_later(answer(StatusCode::SERVICE_UNAVAILABLE))
            }
            NoRoom::Client(over) => over_limit(over, answer),
        })
    })
}
