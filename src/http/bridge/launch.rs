//! Where the server side of a session is started.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tracing::Instrument;

use super::said::Said;
use super::session::{Kind, Running, Session};
use super::streams::Streams;
use crate::host::{Host, Shared};
use crate::http::body::Body;
use crate::http::site::Site;
use crate::http::towards::{Towards, Way};
use crate::http::{Proxy, in_full};
use crate::probe::Probing;
use crate::progress::{Pacing, Policy};
use crate::relay::{Aside, Pipe, Relay, Server, Step};
use crate::routes::{StdioUpstream, Upstream};
use crate::telemetry::Connection;
use crate::transport::child::Program;

/// How long a client that takes nothing may keep a session whose server has ended.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Without use for so long a session ends that has no server of its own.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Who asks for a session, and how.
pub(super) struct Wanted<'a> {
    pub(super) kind: Kind,
    /// The id of the request that asks for it.
    pub(super) id: Option<&'a [u8]>,
    /// `Authorization` was for us.
    pub(super) ours: bool,
}

impl Proxy {
    /// Starts a session of its own with a server of its own; what the client is told if that cannot be.
    pub(super) fn begin_session(
        &self,
        site: &Arc<Site>,
        wanted: &Wanted<'_>,
    ) -> Result<Arc<Session>, Box<Response<Body>>> {
        let refuse = |status, why: &str| {
            tracing::warn!(route = site.route.path, why, "no session");
            Err(Box::new(super::refusal(status, why, wanted.id)))
        };
        if self.ending.has_ended() {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, crate::http::SHUTTING_DOWN);
        }
        let (max, limit, idle) = match &site.route.upstream {
            Upstream::Command(stdio) => (stdio.max_children, "max_children", stdio.idle_timeout),
            _ => (site.route.max_sessions, "max_sessions", Some(IDLE)),
        };
        let sessions = &site.bridge;
        let Some(running) = sessions.count(max, &self.servers) else {
            let why = format!("as many sessions run on this route as may: see {limit}");
            return refuse(StatusCode::SERVICE_UNAVAILABLE, &why);
        };
        let Some((session, commands)) = sessions.begin(wanted.kind.clone()) else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "no session id can be made");
        };
        let pacing = if session.is_wire() { site.pacing() } else { Pacing::IMMEDIATE };
        let policy = if session.is_shared() { &site.shared_policy } else { &site.policy };
        let policy = Arc::clone(policy);
        let streams = Streams::new(
            Arc::clone(&session),
            Arc::clone(sessions),
            commands,
            pacing,
            idle,
            (&self.calls, &self.ending),
        );
        let started = match &site.route.upstream {
            Upstream::Command(stdio) => start(site, stdio, policy, streams, running),
            _ => {
                let server = Towards::new(Way::of_site(site, &self.via, wanted.ours));
                let relay = Relay::new(policy, streams, server, no_noise());
                let span = tracing::info_span!("session", route = %site.route.path);
                tokio::spawn(carry(relay, running).instrument(span));
                Ok(())
            }
        };
        match started {
            Ok(()) => Ok(session),
            Err(why) => refuse(StatusCode::BAD_GATEWAY, &why),
        }
    }
}

fn no_noise() -> Aside {
    Aside::new(Box::new(Said::default()), None)
}

/// Starts a child and the task that carries what is said; why that cannot be.
fn start(
    site: &Site,
    stdio: &StdioUpstream,
    policy: Arc<Policy>,
    streams: Streams,
    running: Running,
) -> Result<(), String> {
    if let Some(connect) = site.in_process.clone() {
        let era = Arc::clone(&site.era);
        tokio::spawn(async move {
            let Ok(io) = connect().await else { return };
            let (from, to) = tokio::io::split(io);
            let server = Probing::new(Pipe::new(Box::new(from), Box::new(to)), era);
            carry(Relay::new(policy, streams, server, no_noise()), running).await;
        });
        return Ok(());
    }
    let program =
        Program { command: stdio.command.clone(), env: stdio.env.clone(), cwd: stdio.cwd.clone() };
    let shared = Shared { max_frame: stdio.max_frame, max_spill: stdio.max_spill };
    let noise = Box::new(Said::default());
    let relay = |server, aside| Relay::new(policy, streams, server, aside);
    let host = Host::start(program, Some(shared), Arc::clone(&site.era), noise, relay);
    let mut host = host.map_err(|error| in_full(&error))?;
    let span = tracing::info_span!("session", route = %site.route.path, pid = host.id());
    let task = async move {
        let _running = running;
        host.run(None).await;
    };
    tokio::spawn(task.instrument(span));
    Ok(())
}

/// Carries what clients and a server say that is no child, until either has said its last word.
async fn carry<S: Server>(mut relay: Relay<Streams, S>, _running: Running) {
    let mut log = Connection::default();
    let mut over = false;
    while !over {
        match relay.step().await {
            Step::Moved => {}
            Step::ServerDone => over = true,
            Step::ClientDone | Step::ClientGone => {
                over = true;
                relay.close_server_input().await;
            }
        }
        while let Some(record) = relay.poll_record() {
            log.note(&record);
        }
    }
    relay.server_gone("the MCP server ended before it answered");
    relay.finish(LAST_WORDS).await;
    while let Some(record) = relay.poll_record() {
        log.note(&record);
    }
    log.finish();
}

/// How long the server of a new session may take to answer its first request.
pub(super) fn start_timeout(site: &Site) -> Option<Duration> {
    match &site.route.upstream {
        Upstream::Command(stdio) => Some(stdio.start_timeout),
        _ => None,
    }
}
