//! Begins sessions: gets a permit for the server, makes the client leg, and launches the server.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use tokio::sync::mpsc;

use super::Bridge;
use super::face_clients::{capabilities_in, is_known};
use super::responses::refusal;
use super::session::{BridgeSession, ServerPermit, SessionCommand, SessionKind};
use crate::config::routes::Upstream;
use crate::gateway::bridge::client_leg::SessionLeg;
use crate::gateway::bridge::shared_servers::{AfterDeath, EndNotice, caller};
use crate::gateway::client_limits::{ClientPermit, LimitedClient, OverLimit};
use crate::gateway::launch::Launch;
use crate::gateway::limit_notices::tell_of_full_route;
use crate::gateway::refusals::{over_limit, retry_later};
use crate::gateway::route_state::{RouteState, RouteWatch};
use crate::observe::log::may_log_refusal;
use crate::observe::metrics::RouteLimit;
use crate::progress::StreamPacing;
use crate::protocol::jsonrpc::Message;
use crate::relay::http_upstream::HeadersAccepted;
use crate::transport::byte_budget::ByteShare;
use crate::transport::http::body::Body;
use crate::transport::http::client_name::ClientName;
use crate::transport::http::shutdown::SHUTTING_DOWN;

/// A request for a session.
pub(crate) struct SessionRequest<'a> {
    /// The kind of session that is requested.
    pub(crate) kind: SessionKind,
    /// The id of the client's request that begins the session.
    pub(crate) id: Option<&'a [u8]>,
    /// The number of the principal of all clients that will share the server, if they present
    /// credentials.
    pub(crate) principal: Option<u64>,
    /// The number of the caller that owns the session; `None` if no server checks credentials.
    pub(crate) owner: Option<u64>,
    /// The name in the client's certificate.
    pub(crate) certificate: Option<ClientName>,
    /// The name of the principal of all these clients, from a certificate or a trusted front.
    pub(crate) named: Option<&'a ClientName>,
    /// The client whose limits apply.
    pub(crate) client: Option<&'a LimitedClient>,
}

impl Bridge {
    /// Starts a session with its own server; the error is the response for the client.
    pub(crate) fn begin_session(
        &self,
        request: &SessionRequest<'_>,
    ) -> Result<Arc<BridgeSession>, Box<Response<Body>>> {
        let running = self.server_permit(request)?;
        let kept = self.kept_of(request);
        let begun = self.sessions.begin(
            request.kind,
            &kept,
            request.principal,
            request.owner,
            request.certificate.clone(),
            request.client.cloned(),
        );
        let Some((session, commands)) = begun else {
            let why = "no session id can be made";
            return Err(self.no_session(StatusCode::INTERNAL_SERVER_ERROR, why, request.id));
        };
        self.start_session(request, running, Arc::clone(&session), commands).map(|()| session)
    }

    /// Returns the client's share of the budget for messages in memory.
    fn kept_of(&self, request: &SessionRequest<'_>) -> ByteShare {
        // Clients without credentials share a server with unknown others, so its memory is counted for none of them.
        let is_own = request.kind != SessionKind::Shared || request.principal.is_some();
        self.state.shared.kept_share(request.client.filter(|_| is_own))
    }

    /// Starts the server of a session whose clients send `commands`; the error is the response for the client.
    pub(crate) fn start_session(
        &self,
        request: &SessionRequest<'_>,
        running: ServerPermit,
        session: Arc<BridgeSession>,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> Result<(), Box<Response<Body>>> {
        let is_shared = request.kind == SessionKind::Shared;
        let pacing = match request.kind {
            SessionKind::HttpSse => StreamPacing::ByCall,
            SessionKind::Own | SessionKind::Shared => StreamPacing::Immediate,
        };
        let policy = if is_shared { &self.state.shared_policy } else { &self.state.bridge_policy };
        let clients = SessionLeg::new(
            Arc::clone(&session),
            Arc::clone(&self.sessions),
            commands,
            pacing,
            (is_shared && !self.state.translates_eras).then(|| Arc::clone(&self.era)),
            RouteWatch::new(&self.state),
            &self.state.shared.shutdown,
        );
        // Created inside the task: dropping the notice takes the lock of the table of shared servers, which the caller
        // holds if the start fails. The permit is returned before the notice.
        let (servers, ends) = (Arc::clone(&self.shared), Arc::clone(&session));
        let held = move || (running, EndNotice { servers, session: ends });
        let accepted = request.owner.map(|_| {
            let (state, owned) = (Arc::clone(&self.state), Arc::clone(&session));
            Box::new(move |headers: &HeaderMap| owned.give_to(state.credentials(headers)))
                as HeadersAccepted
        });
        let launch = Launch {
            state: &self.state,
            era: &self.era,
            policy,
            // A shared server only knows Milepost's own tokens, which no other session uses.
            tokens: (!is_shared).then(|| self.sessions.tokens()),
            principal: request.named.cloned(),
            kept: self.kept_of(request),
            accepted,
        };
        match launch.start(clients, held) {
            Ok(()) => Ok(()),
            // The cause is on this machine, such as no free descriptor, so a later request may succeed.
            Err(failed) if failed.is_local => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let refused = self.no_session(status, &failed.why, request.id);
                Err(Box::new(retry_later(*refused)))
            }
            Err(failed) => Err(self.no_session(StatusCode::BAD_GATEWAY, &failed.why, request.id)),
        }
    }

    fn no_session(&self, status: StatusCode, why: &str, id: Option<&[u8]>) -> Box<Response<Body>> {
        if let Some(left_out) = may_log_refusal() {
            let left_out = (left_out > 0).then_some(left_out);
            tracing::warn!(route = self.state.route.path, why, left_out, "no session");
        }
        Box::new(refusal(status, why, id))
    }

    /// Returns the permit for one more server; the error is the refusal of the request.
    pub(crate) fn server_permit(
        &self,
        request: &SessionRequest<'_>,
    ) -> Result<ServerPermit, Box<Response<Body>>> {
        let busy = StatusCode::SERVICE_UNAVAILABLE;
        if self.state.shared.shutdown.has_ended() {
            return Err(Box::new(retry_later(*self.no_session(busy, SHUTTING_DOWN, request.id))));
        }
        let (max, limit, key) = match &self.state.route.upstream {
            Upstream::Command(stdio) => (stdio.max_children, RouteLimit::Children, "max_children"),
            _ => (self.state.route.max_sessions, RouteLimit::Sessions, "max_sessions"),
        };
        let Some(mut permit) = self.sessions.count(max, &self.servers) else {
            tell_of_full_route(&self.state, limit);
            let why = format!("as many sessions run on this route as may: see {key}");
            return Err(Box::new(retry_later(refusal(busy, &why, request.id))));
        };
        if let Some(client) = request.client {
            let counted = self.count_for(client, request.kind).map_err(|over| {
                let answer = |status| refusal(status, &over.to_string(), request.id);
                Box::new(over_limit(&over, answer))
            })?;
            permit.count_for_client(counted);
        }
        Ok(permit)
    }

    /// Counts a new session and its server for a client.
    fn count_for(
        &self,
        client: &LimitedClient,
        kind: SessionKind,
    ) -> Result<[Option<ClientPermit>; 2], OverLimit> {
        // A client of a shared server has no session to count.
        let session = if kind == SessionKind::Shared { None } else { client.session()? };
        let is_child = matches!(self.state.route.upstream, Upstream::Command(_));
        let child = if is_child { client.child()? } else { None };
        Ok([session, child])
    }

    /// Returns the session of the server that this caller shares, and starts one if there is none. The error is the
    /// refusal for the client.
    pub(crate) async fn shared_session(
        &self,
        parts: &Parts,
        message: &Message,
    ) -> Result<Arc<BridgeSession>, Box<Response<Body>>> {
        let id = message.id();
        let id = id.as_deref();
        let after_death = match &self.state.route.upstream {
            Upstream::Command(stdio) if !stdio.restart => AfterDeath::Stays,
            _ => AfterDeath::Restarts,
        };
        let dead = || {
            let why = "the MCP server has died, and is not started again: see restart";
            Box::new(refusal(StatusCode::BAD_GATEWAY, why, id))
        };
        let start = |again: bool| {
            if again {
                self.state.shared.counts.record_child_restart();
            }
            let principal = is_known(parts).then(|| self.state.caller(parts));
            self.begin_session(&SessionRequest {
                kind: SessionKind::Shared,
                id,
                principal,
                owner: None,
                // No certificate name is needed: a shared session is found by its caller, never by an id.
                certificate: None,
                named: parts.extensions.get(),
                client: parts.extensions.get(),
            })
        };
        // A child does not see `Authorization`, so a client keeps its child when its token is renewed.
        let is_over_http = matches!(self.state.route.upstream, Upstream::Http(_));
        let mut caller = caller(parts, is_over_http).into_vec();
        if self.state.translates_eras {
            // A server older than 2026-07-28 learns the capabilities of its client only once, so only clients with the
            // same capabilities share it.
            caller.extend([&[2], &capabilities_in(message)[..]].concat());
        }
        self.shared.session_of(caller.into(), after_death, dead, start).await
    }
}

/// Returns the deadline for the first answer of a new session's server.
pub(crate) fn start_timeout(state: &RouteState) -> Option<Duration> {
    match &state.route.upstream {
        Upstream::Command(stdio) => Some(stdio.start_timeout),
        _ => None,
    }
}
