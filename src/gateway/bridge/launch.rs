//! The start of a session's server side.

use crate::transport::http::via::Via;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tracing::Instrument;

use super::session::{Running, Session, Whose};
use crate::config::routes::{StdioUpstream, Upstream};
use crate::gateway::bridge::client_leg::Streams;
use crate::gateway::bridge::server_log::Said;
use crate::gateway::bridge::shared_servers::Ends;
use crate::gateway::dispatch::Proxy;
use crate::gateway::route_state::{Following, Site};
use crate::observe::error_chain::error_chain;
use crate::observe::events::Scope;
use crate::observe::log::Connection;
use crate::progress::Pacing;
use crate::relay::child_session::{Host, Shared};
use crate::relay::http_upstream::{HttpUpstream, UpstreamTarget};
use crate::relay::{DiagnosticsSink, Relay, Server, child_session, remote_session};
use crate::transport::child::Program;
use crate::transport::http::body::Body;

/// Who asks for a session, and how.
pub(crate) struct Wanted<'a> {
    /// Whose it will be.
    pub(crate) whose: Whose,
    /// The id of the request that asks for it.
    pub(crate) id: Option<&'a [u8]>,
    /// `Authorization` was for us.
    pub(crate) ours: bool,
}

impl Proxy {
    /// Starts a session of its own with a server of its own; what the client is told if that cannot be.
    pub(crate) fn begin_session(
        &self,
        site: &Arc<Site>,
        wanted: &Wanted<'_>,
    ) -> Result<Arc<Session>, Box<Response<Body>>> {
        let refuse = |status, why: &str| {
            tracing::warn!(route = site.route.path, why, "no session");
            Err(Box::new(super::refusal(status, why, wanted.id)))
        };
        if self.ending.has_ended() {
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                crate::transport::http::shutdown::SHUTTING_DOWN,
            );
        }
        let (max, limit) = match &site.route.upstream {
            Upstream::Command(stdio) => (stdio.max_children, "max_children"),
            _ => (site.route.max_sessions, "max_sessions"),
        };
        let sessions = &site.bridge;
        let Some(running) = sessions.count(max, &self.servers) else {
            let why = format!("as many sessions run on this route as may: see {limit}");
            return refuse(StatusCode::SERVICE_UNAVAILABLE, &why);
        };
        let Some((session, commands)) = sessions.begin(wanted.whose) else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "no session id can be made");
        };
        let pacing = match wanted.whose {
            Whose::Wire => site.pacing(),
            Whose::Own | Whose::Shared => Pacing::IMMEDIATE,
        };
        let is_shared = wanted.whose == Whose::Shared;
        let streams = Streams::new(
            Arc::clone(&session),
            Arc::clone(sessions),
            commands,
            pacing,
            is_shared.then(|| Arc::clone(&site.era)),
            Following::new(site),
            &self.ending,
        );
        let started = match &site.route.upstream {
            Upstream::Command(stdio) => start(site, stdio, &session, streams, running),
            _ => {
                let server = HttpUpstream::new(target_of(site, &self.via, wanted.ours));
                let mut relay = Relay::new(Arc::clone(&site.policy), streams, server, no_noise());
                relay.observed_by(site.audience.emitter(None, Scope::Whole, &site.policy));
                let log = site.audience.log();
                let span = tracing::info_span!("session", route = %site.route.path);
                tokio::spawn(carry(relay, log, running).instrument(span));
                Ok(())
            }
        };
        match started {
            Ok(()) => Ok(session),
            Err(why) => refuse(StatusCode::BAD_GATEWAY, &why),
        }
    }
}

fn no_noise() -> DiagnosticsSink {
    DiagnosticsSink::new(Box::new(Said::default()), None)
}

/// Starts a child and the task that carries what is said; why that cannot be.
fn start(
    site: &Arc<Site>,
    stdio: &StdioUpstream,
    session: &Arc<Session>,
    streams: Streams,
    running: Running,
) -> Result<(), String> {
    let policy = match session.whose {
        Whose::Own | Whose::Wire => Arc::clone(&site.policy),
        Whose::Shared => Arc::clone(&site.shared_policy),
    };
    let emitter = site.audience.emitter(None, Scope::Whole, &policy);
    let (site, session) = (Arc::clone(site), Arc::clone(session));
    let shared = Shared { max_frame: stdio.max_frame, max_spill: stdio.max_spill };
    let era = Arc::clone(&site.era);
    if let Some(connect) = site.in_process.clone() {
        tokio::spawn(async move {
            let log = site.audience.log();
            let _ends = Ends { site, session };
            let Ok(io) = connect().await else { return };
            let (from, to) = tokio::io::split(io);
            let server = child_session::stand_in(Box::new(from), Box::new(to), shared, era);
            let mut relay = Relay::new(policy, streams, server, no_noise());
            relay.observed_by(emitter);
            carry(relay, log, running).await;
        });
        return Ok(());
    }
    let program =
        Program { command: stdio.command.clone(), env: stdio.env.clone(), cwd: stdio.cwd.clone() };
    let noise = Box::new(Said::default());
    let relay = |server, diagnostics| {
        let mut relay = Relay::new(policy, streams, server, diagnostics);
        relay.observed_by(emitter);
        relay
    };
    let log = site.audience.log();
    let host = Host::start(program, Some(shared), era, noise, log, relay);
    let mut host = host.map_err(|error| {
        site.counts.upstream_error("child");
        error_chain(&error)
    })?;
    let child = site.counts.child_started();
    let span = tracing::info_span!("session", route = %site.route.path, pid = host.id());
    let task = async move {
        let (_running, _child, _ends) = (running, child, Ends { site, session });
        host.run(None).await;
    };
    tokio::spawn(task.instrument(span));
    Ok(())
}

/// Carries what clients and a server say that is no child, until either has said its last word.
async fn carry<S: Server>(relay: Relay<Streams, S>, log: Connection, _running: Running) {
    // Whoever ends a session has no interest in calls that are open.
    remote_session::run(relay, Duration::ZERO, log, std::future::pending()).await;
}

/// How long the server of a new session may take to answer its first request.
pub(crate) fn start_timeout(site: &Site) -> Option<Duration> {
    match &site.route.upstream {
        Upstream::Command(stdio) => Some(stdio.start_timeout),
        _ => None,
    }
}

/// The server of a route, for a session.
fn target_of(site: &Arc<Site>, via: &Via, ours: bool) -> UpstreamTarget {
    let endpoints = (site.endpoint.clone(), site.sse.clone());
    let (route, counts, site) =
        (Arc::clone(&site.route), Arc::clone(&site.counts), Arc::clone(site));
    let latest = Box::new(move || site.latest().map(|latest| Arc::clone(&latest.route)));
    UpstreamTarget::served(&route, endpoints, latest, via, ours, &counts)
}
