//! The start of a session's server side.

use http::HeaderMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tracing::Instrument;

use super::Bridge;
use super::responses::refusal;
use super::session::{BridgeSession, ServerPermit, SessionKind};
use crate::config::routes::{StdioUpstream, Upstream};
use crate::gateway::bridge::client_leg::SessionLeg;
use crate::gateway::bridge::server_log::ServerLog;
use crate::gateway::bridge::shared_servers::EndNotice;
use crate::gateway::route_state::{RouteState, RouteWatch};
use crate::observe::error_chain::error_chain;
use crate::observe::events::Scope;
use crate::observe::log::Connection;
use crate::progress::Pacing;
use crate::relay::child_session::{ChildSession, SpoolLimits};
use crate::relay::http_upstream::{HttpUpstreamLeg, UpstreamTarget};
use crate::relay::{DiagnosticsSink, Relay, ServerLeg, child_session, remote_session};
use crate::transport::child::Program;
use crate::transport::http::body::Body;

/// A request for a session.
pub(crate) struct SessionRequest<'a> {
    /// The kind of session that is wanted.
    pub(crate) whose: SessionKind,
    /// The id of the request that asks for it.
    pub(crate) id: Option<&'a [u8]>,
    /// `Authorization` was for us.
    pub(crate) ours: bool,
}

impl Bridge {
    /// Starts a session of its own with a server of its own; what the client is told if that cannot be.
    pub(crate) fn begin_session(
        &self,
        wanted: &SessionRequest<'_>,
    ) -> Result<Arc<BridgeSession>, Box<Response<Body>>> {
        let refuse = |status, why: &str| {
            tracing::warn!(route = self.state.route.path, why, "no session");
            Err(Box::new(refusal(status, why, wanted.id)))
        };
        if self.state.shared.shutdown.has_ended() {
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                crate::transport::http::shutdown::SHUTTING_DOWN,
            );
        }
        let (max, limit) = match &self.state.route.upstream {
            Upstream::Command(stdio) => (stdio.max_children, "max_children"),
            _ => (self.state.route.max_sessions, "max_sessions"),
        };
        let sessions = &self.sessions;
        let Some(running) = sessions.count(max, &self.servers) else {
            let why = format!("as many sessions run on this route as may: see {limit}");
            return refuse(StatusCode::SERVICE_UNAVAILABLE, &why);
        };
        let Some((session, commands)) = sessions.begin(wanted.whose) else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "no session id can be made");
        };
        let pacing = match wanted.whose {
            SessionKind::HttpSse => self.state.pacing(),
            SessionKind::Own | SessionKind::Shared => Pacing::IMMEDIATE,
        };
        let is_shared = wanted.whose == SessionKind::Shared;
        let streams = SessionLeg::new(
            Arc::clone(&session),
            Arc::clone(sessions),
            commands,
            pacing,
            is_shared.then(|| Arc::clone(&self.era)),
            RouteWatch::new(&self.state),
            &self.state.shared.shutdown,
        );
        let started = match &self.state.route.upstream {
            Upstream::Command(stdio) => self.start(stdio, &session, streams, running),
            _ => {
                let server = HttpUpstreamLeg::new(target_of(&self.state, wanted.ours));
                let mut relay =
                    Relay::new(Arc::clone(&self.state.policy), streams, server, no_noise());
                relay.observed_by(self.state.shared.observers.emitter(
                    None,
                    Scope::Whole,
                    &self.state.policy,
                ));
                let log = self.state.shared.observers.log();
                let span = tracing::info_span!("session", route = %self.state.route.path);
                tokio::spawn(carry(relay, log, running).instrument(span));
                Ok(())
            }
        };
        match started {
            Ok(()) => Ok(session),
            Err(why) => refuse(StatusCode::BAD_GATEWAY, &why),
        }
    }

    /// The session of the server that this caller shares; started if there is none. The refusal if there
    /// can be none.
    pub(crate) async fn shared_session(
        &self,
        headers: &HeaderMap,
        id: Option<&[u8]>,
    ) -> Result<Arc<BridgeSession>, Box<Response<Body>>> {
        let restarts = match &self.state.route.upstream {
            Upstream::Command(stdio) => stdio.restart,
            _ => true,
        };
        let dead = || {
            let why = "the MCP server has died, and is not started again: see restart";
            Box::new(refusal(StatusCode::BAD_GATEWAY, why, id))
        };
        let start = |again: bool| {
            if again {
                self.state.shared.counts.child_restarted();
            }
            self.begin_session(&SessionRequest { whose: SessionKind::Shared, id, ours: false })
        };
        self.shared.session_of(headers, restarts, dead, start).await
    }

    /// Starts a child and the task that carries what is said; why that cannot be.
    fn start(
        &self,
        stdio: &StdioUpstream,
        session: &Arc<BridgeSession>,
        streams: SessionLeg,
        running: ServerPermit,
    ) -> Result<(), String> {
        let policy = match session.whose {
            SessionKind::Own | SessionKind::HttpSse => Arc::clone(&self.state.policy),
            SessionKind::Shared => Arc::clone(&self.state.shared_policy),
        };
        let emitter = self.state.shared.observers.emitter(None, Scope::Whole, &policy);
        let shared = Arc::clone(&self.state.shared);
        let (servers, session) = (Arc::clone(&self.shared), Arc::clone(session));
        let limits = SpoolLimits { max_frame: stdio.max_frame, max_spill: stdio.max_spill };
        let era = Arc::clone(&self.era);
        if let Some(connect) = shared.in_process.clone() {
            tokio::spawn(async move {
                let log = shared.observers.log();
                let _ends = EndNotice { servers, session };
                let Ok(io) = connect().await else { return };
                let (from, to) = tokio::io::split(io);
                let server = child_session::stand_in(Box::new(from), Box::new(to), limits, era);
                let mut relay = Relay::new(policy, streams, server, no_noise());
                relay.observed_by(emitter);
                carry(relay, log, running).await;
            });
            return Ok(());
        }
        let program = Program {
            command: stdio.command.clone(),
            env: stdio.env.clone(),
            cwd: stdio.cwd.clone(),
        };
        let noise = Box::new(ServerLog::default());
        let relay = |server, diagnostics| {
            let mut relay = Relay::new(policy, streams, server, diagnostics);
            relay.observed_by(emitter);
            relay
        };
        let log = shared.observers.log();
        let host = ChildSession::start(program, Some(limits), era, noise, log, relay);
        let mut host = host.map_err(|error| {
            shared.counts.upstream_error("child");
            error_chain(&error)
        })?;
        let child = shared.counts.child_started();
        // Not before: a notice that is dropped because nothing started would lock the table of shared
        // servers, and the caller holds that lock.
        let ends = EndNotice { servers, session };
        let span = tracing::info_span!("session", route = %self.state.route.path, pid = host.id());
        let task = async move {
            let (_running, _child, _ends) = (running, child, ends);
            host.run(None).await;
        };
        tokio::spawn(task.instrument(span));
        Ok(())
    }
}

fn no_noise() -> DiagnosticsSink {
    DiagnosticsSink::new(Box::new(ServerLog::default()), None)
}

/// Carries what clients and a server say that is no child, until either has said its last word.
async fn carry<S: ServerLeg>(relay: Relay<SessionLeg, S>, log: Connection, _running: ServerPermit) {
    // Whoever ends a session has no interest in calls that are open.
    remote_session::run(relay, Duration::ZERO, log, std::future::pending()).await;
}

/// How long the server of a new session may take to answer its first request.
pub(crate) fn start_timeout(state: &RouteState) -> Option<Duration> {
    match &state.route.upstream {
        Upstream::Command(stdio) => Some(stdio.start_timeout),
        _ => None,
    }
}

/// The server of a route, for a session.
fn target_of(state: &Arc<RouteState>, ours: bool) -> UpstreamTarget {
    let endpoints = (state.endpoint.clone(), state.sse.clone());
    let newest = Arc::clone(state);
    let latest = Box::new(move || newest.latest().map(|latest| Arc::clone(&latest.route)));
    UpstreamTarget::served(
        &state.route,
        endpoints,
        latest,
        &state.forwarder.via,
        ours,
        &state.shared.counts,
    )
}
