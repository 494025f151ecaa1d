//! Where the server side of a session is started.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tracing::Instrument;

use super::said::Said;
use super::session::{Running, Session};
use super::streams::Streams;
use crate::host::Host;
use crate::http::body::Body;
use crate::http::site::Site;
use crate::http::{Proxy, in_full};
use crate::progress::Pacing;
use crate::relay::{Aside, Pipe, Relay};
use crate::routes::{StdioUpstream, Upstream};
use crate::transport::child::{self, Launch, Stderr};

impl Proxy {
    /// Starts a session of its own with a server of its own; what the client is told if that cannot be.
    /// `id`: of the request that asks for it.
    pub(super) fn begin_session(
        &self,
        site: &Arc<Site>,
        wired: bool,
        id: Option<&[u8]>,
    ) -> Result<Arc<Session>, Box<Response<Body>>> {
        let refuse = |status, why: &str| {
            tracing::warn!(route = site.route.path, why, "no session");
            Err(Box::new(super::refusal(status, why, id)))
        };
        let Upstream::Command(stdio) = &site.route.upstream else {
            return refuse(StatusCode::NOT_IMPLEMENTED, "this route has no such endpoint");
        };
        if self.ending.has_ended() {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, crate::http::SHUTTING_DOWN);
        }
        let sessions = &site.bridge;
        let Some(running) = sessions.count(stdio.max_children, &self.servers) else {
            let why = "as many servers run on this route as may: see max_children";
            return refuse(StatusCode::SERVICE_UNAVAILABLE, why);
        };
        let Some((session, commands)) = sessions.begin(wired) else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "no session id can be made");
        };
        let pacing = if wired { site.pacing() } else { Pacing::IMMEDIATE };
        let parts = (&self.calls, &self.ending);
        let streams = Streams::new(
            Arc::clone(&session),
            Arc::clone(sessions),
            commands,
            pacing,
            stdio.idle_timeout,
            parts,
        );
        match start(site, stdio, streams, running) {
            Ok(()) => Ok(session),
            Err(why) => refuse(StatusCode::BAD_GATEWAY, &why),
        }
    }
}

/// Starts a child and the task that carries what is said; why that cannot be.
fn start(
    site: &Site,
    stdio: &StdioUpstream,
    streams: Streams,
    running: Running,
) -> Result<(), String> {
    let launch =
        Launch { command: stdio.command.clone(), env: stdio.env.clone(), cwd: stdio.cwd.clone() };
    let (child, pipes) = child::spawn(&launch, Stderr::Piped).map_err(|error| in_full(&error))?;
    let (route, pid) = (&site.route.path, child.id());
    let server = Pipe::new(Box::new(pipes.stdout), Box::new(pipes.stdin));
    let aside = Aside {
        to: Box::new(Said::default()),
        from: pipes.stderr.map(|stderr| Box::new(stderr) as _),
    };
    let relay = Relay::new(Arc::clone(&site.policy), streams, server, aside);
    let span = tracing::info_span!("session", route = %route, pid);
    let task = async move {
        let _running = running;
        Host::new(relay, child).run(None).await;
    };
    tokio::spawn(task.instrument(span));
    Ok(())
}

/// How long the server of a new session may take to answer its first request.
pub(super) fn start_timeout(site: &Site) -> Option<Duration> {
    match &site.route.upstream {
        Upstream::Command(stdio) => Some(stdio.start_timeout),
        _ => None,
    }
}
