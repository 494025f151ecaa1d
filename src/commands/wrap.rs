//! `milepost wrap`: connects Milepost's own standard streams to a child process, or to a server at a URL.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::config::routes::{BearerFile, Route, WrappedServer};
use crate::observe::events::EventEmitter;
use crate::observe::log::Connection;
use crate::platform::signals::Signals;
use crate::progress::Policy;
use crate::protocol::jsonrpc::{Kind, Message, own_error};
use crate::protocol::lines::{INSPECT_MAX, LineFrame, Lines};
use crate::relay::child_session::{ChildSession, OPEN_CALLS_GRACE};
use crate::relay::http_upstream::{HttpUpstreamLeg, UpstreamTarget};
use crate::relay::{DiagnosticsSink, ModernFace, Pipe, Relay, ServerSide, remote_session};
use crate::transport::child::{self, KeptStarts, Program, start_folder};
use crate::transport::http::via::Via;
use crate::transport::mcp_http::target::TargetError;
use crate::transport::stdio;

/// Deadline for a client's first request. `wrap` waits for that request to answer that the server does not start.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// The server of `wrap` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WrappedServerError {
    /// The command cannot be started.
    #[error(transparent)]
    Command(#[from] child::SpawnError),
    /// The server at a URL cannot be used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl WrappedServerError {
    /// Returns the exit code of the process: 127 for a command that cannot be started, as shells have it, otherwise 2.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Command(_) => 127,
            Self::Remote(_) => 2,
        }
    }
}

/// Connects the client on standard streams with the server, until one of them ends. Returns the exit code.
///
/// # Errors
/// If the server cannot be started or used.
pub async fn run_server(
    server: WrappedServer,
    (name, state_dir): (String, Option<PathBuf>),
    policy: Arc<Policy>,
    emitter: Option<EventEmitter>,
) -> Result<u8, WrappedServerError> {
    match server {
        WrappedServer::Command(stdio) => {
            let (command, env, cwd) = (stdio.command, stdio.env, stdio.cwd);
            let starts = state_dir.as_deref().filter(|_| policy.cached_start);
            // The process that runs `wrap` is the only client.
            let starts = starts.map(|state| KeptStarts {
                folder: start_folder(state),
                scope: vec!["wrap".to_owned(), name],
                principal: Some("wrap".to_owned()),
            });
            let program = Program { command, env, cwd, starts, ..Program::default() };
            Ok(run(policy, program, emitter).await?)
        }
        WrappedServer::Http { route, bearer_file } => {
            Ok(run_remote(policy, &route, bearer_file, emitter).await?)
        }
    }
}

/// Runs a server behind the filter until it ends. Returns its exit code.
async fn run(
    policy: Arc<Policy>,
    program: Program,
    emitter: Option<EventEmitter>,
) -> Result<u8, child::SpawnError> {
    child::adopt_orphans();
    let client = Pipe::new(stdio::input(), stdio::output());
    let relay = |server, diagnostics| {
        let server = ServerSide::new(server, ModernFace::of(&policy));
        let mut relay = Relay::with_sole_stream(policy, client, server, diagnostics);
        relay.set_emitter(emitter);
        relay
    };
    match ChildSession::start(
        program,
        None,
        Arc::default(),
        stdio::error(),
        Connection::default(),
        relay,
    ) {
        Ok(mut child) => Ok(child.run(Signals::to_pass_on().ok()).await.code()),
        Err(error) => {
            tell_that_it_does_not_start(&error.to_string()).await;
            Err(error)
        }
    }
}

/// The reason why `wrap` cannot serve a server at a URL.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address or the certificates cannot be used.
    #[error(transparent)]
    Site(#[from] TargetError),
    /// The system has no random bytes.
    #[error("the system has no random bytes")]
    Random(#[from] getrandom::Error),
}

/// Serves the server of `route` to the client on standard input until the client ends, or a signal
/// comes. No connection is made before the client's first message. Returns the exit code: 1 if the
/// server has never answered, otherwise 0.
///
/// # Errors
/// If the route cannot be used.
async fn run_remote(
    policy: Arc<Policy>,
    route: &Route,
    bearer_file: Option<PathBuf>,
    emitter: Option<EventEmitter>,
) -> Result<u8, RemoteError> {
    let upstream =
        UpstreamTarget::new(route, Via::random()?, bearer_file.map(BearerFile::in_file), None)?;
    let server = HttpUpstreamLeg::new(upstream);
    let reach = server.reachability();
    let server = ServerSide::new(server, ModernFace::of(&policy));
    let client = Pipe::new(stdio::input(), stdio::output());
    let diagnostics = DiagnosticsSink::new(stdio::error(), None);
    let mut relay = Relay::with_sole_stream(policy, client, server, diagnostics);
    relay.set_emitter(emitter);
    let mut signals = Signals::to_pass_on().ok();
    remote_session::run(relay, OPEN_CALLS_GRACE, Connection::default(), async {
        match &mut signals {
            Some(signals) => drop(signals.next().await),
            None => std::future::pending().await,
        }
    })
    .await;
    Ok(u8::from(reach.has_failed()))
}

/// Answers the client's first request with the reason, because clients show an error response to the user, but not why
/// a connection closed.
async fn tell_that_it_does_not_start(why: &str) {
    let mut input = stdio::input();
    let mut output = stdio::output();
    let mut lines = Lines::new(INSPECT_MAX);
    let mut buffer = BytesMut::new();
    let first = async {
        loop {
            match input.read_buf(&mut buffer).await {
                Ok(1..) => {}
                _ => return None,
            }
            while let Some(frame) = lines.decode(&mut buffer) {
                let LineFrame::Line(line) = frame else { continue };
                let message = Message::parse(line);
                if message.kind() == Kind::Request {
                    return message.id();
                }
            }
        }
    };
    let Ok(Some(id)) = timeout(FIRST_REQUEST, first).await else { return };
    let answer = [&own_error(&id, why, None)[..], b"\n"].concat();
    let _ = output.write_all(&answer).await;
    let _ = output.flush().await;
}
