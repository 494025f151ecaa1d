//! Launches a route's server for clients of any transport, and the task that relays their messages.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::config::routes::Upstream;
use crate::gateway::route_state::{RouteShared, RouteState};
use crate::gateway::server_log::ServerLog;
use crate::observe::error_chain::error_chain;
use crate::observe::events::{EventEmitter, Scope};
use crate::observe::log::Connection;
use crate::progress::Policy;
use crate::relay::active_tokens::SessionTokens;
use crate::relay::child_session::{ChildSession, SpoolLimits};
use crate::relay::discover_probe::Era;
use crate::relay::http_upstream::{HeadersAccepted, HttpUpstreamLeg, UpstreamTarget};
use crate::relay::{
    ClientLeg, DiagnosticsSink, ModernFace, Relay, ServerLeg, ServerSide, SpillLimits, SpoolLeg,
    child_session, remote_session,
};
use crate::transport::byte_budget::ByteShare;
use crate::transport::child::{KeptStarts, Program, start_folder};
use crate::transport::http::client_name::ClientName;
use crate::transport::tasks;

/// Limit of the bytes of an HTTP+SSE server's message that goes to a file. For a longer message its caller gets an
/// error.
const SPILL_MAX: u64 = 1 << 30;

/// What the launch of one server needs.
pub(crate) struct Launch<'a> {
    /// The route of the server.
    pub(crate) state: &'a Arc<RouteState>,
    /// What is known about the revisions that the server, a child, speaks.
    pub(crate) era: &'a Arc<Era>,
    /// The settings that apply to the messages.
    pub(crate) policy: &'a Arc<Policy>,
    /// The tokens of the session, which are registered together with those of the route's other sessions; `None` if the
    /// server sees no tokens of clients.
    pub(crate) tokens: Option<SessionTokens>,
    /// The only principal whose clients use the server; `None` if it is not known.
    pub(crate) principal: Option<ClientName>,
    /// The clients' share of the budget for messages in memory.
    pub(crate) kept: ByteShare,
    /// Receives the headers of requests that the server accepts.
    pub(crate) accepted: Option<HeadersAccepted>,
}

/// The reason why a server does not start.
pub(crate) struct FailedLaunch {
    pub(crate) why: String,
    /// Whether the machine has run out of descriptors or memory, so that a later start may succeed.
    pub(crate) is_local: bool,
}

impl Launch<'_> {
    /// Starts the server for `clients`, and the task that relays their messages. The task creates the value of `held`
    /// when it begins and drops the value when it ends.
    ///
    /// # Errors
    /// If the server does not start: the reason.
    pub(crate) fn start<C: ClientLeg + 'static, H: Send>(
        self,
        clients: C,
        held: impl FnOnce() -> H + Send + 'static,
    ) -> Result<(), FailedLaunch> {
        let Self { state, era, policy, tokens, principal, kept, accepted } = self;
        let shared = Arc::clone(&state.shared);
        let emitter = shared.observers.emitter(None, Scope::Whole, policy);
        let (log, policy) = (shared.observers.log(), Arc::clone(policy));
        let span = tracing::info_span!("session", route = &*state.route.path);
        // Only a shared server offers 2026-07-28: a client that begins a session speaks an older revision.
        let mut face = if clients.are_strangers() { ModernFace::of(&policy) } else { None };
        if let Some(face) = &mut face {
            face.set_kept(kept.room());
        }
        let Upstream::Command(stdio) = &state.route.upstream else {
            let target = target_of(state).telling(accepted);
            // One stream of the server carries the answers for all streams of the client.
            let server =
                SpoolLeg::new(HttpUpstreamLeg::new(target), spill_limits(&shared, SPILL_MAX));
            let server = ServerSide::new(server, face);
            let mut relay = relay_of(clients, server, policy, emitter, no_noise());
            relay.set_tokens(tokens);
            relay.set_kept(&kept);
            let task = async move {
                let _held = held();
                carry(relay, log).await;
            };
            tasks::spawn(task.instrument(span));
            return Ok(());
        };
        let spill = spill_limits(&shared, stdio.max_spill as u64);
        let limits = SpoolLimits { max_frame: stdio.max_frame, spill };
        let era = Arc::clone(era);
        if let Some(connect) = shared.in_process.clone() {
            tasks::spawn(async move {
                let _held = held();
                let Ok(io) = connect().await else { return };
                let (from, to) = tokio::io::split(io);
                let server = child_session::stand_in(Box::new(from), Box::new(to), limits, era);
                let server = ServerSide::new(server, face);
                // No child is started, so there is neither a pid nor a standard error.
                let mut relay = relay_of(clients, server, policy, emitter, no_noise());
                relay.set_tokens(tokens);
                relay.set_kept(&kept);
                carry(relay, log).await;
            });
            return Ok(());
        }
        let program = Program {
            command: stdio.command.clone(),
            env: stdio.env.clone(),
            left_out: stdio.left_out(std::env::vars_os().map(|(name, _)| name)),
            cwd: stdio.cwd.clone(),
            starts: starts_of(state, principal),
        };
        let diagnostics = Box::new(ServerLog::masking(policy.call.masks.clone()));
        let relay = |server, diagnostics| {
            let server = ServerSide::new(server, face);
            let mut relay = relay_of(clients, server, policy, emitter, diagnostics);
            relay.set_tokens(tokens);
            relay.set_kept(&kept);
            relay
        };
        let started = ChildSession::start(program, Some(limits), era, diagnostics, log, relay);
        let mut child_session = started.map_err(|error| {
            shared.counts.upstream_error("child");
            FailedLaunch { why: error_chain(&error), is_local: error.is_local() }
        })?;
        let child = shared.counts.record_child_start();
        let span =
            tracing::info_span!("session", route = &*state.route.path, pid = child_session.id());
        let task = async move {
            let (_held, _child) = (held(), child);
            child_session.run(None).await;
        };
        tasks::spawn(task.instrument(span));
        Ok(())
    }
}

/// Returns where a route keeps the answers of its server's last start, if it keeps them.
fn starts_of(state: &RouteState, principal: Option<ClientName>) -> Option<KeptStarts> {
    let route = &state.route;
    let preset = route.preset.map_or("", |preset| preset.name);
    let folder = state.shared.folder.as_deref().filter(|_| state.policy.cached_start)?;
    Some(KeptStarts {
        folder: start_folder(folder),
        scope: vec!["serve".to_owned(), route.path.to_string(), preset.to_owned()],
        principal: principal.map(|name| name.as_str().to_owned()),
    })
}

fn relay_of<C: ClientLeg, S: ServerLeg>(
    clients: C,
    server: S,
    policy: Arc<Policy>,
    emitter: Option<EventEmitter>,
    diagnostics: DiagnosticsSink,
) -> Relay<C, S> {
    let mut relay = Relay::new(policy, clients, server, diagnostics);
    relay.set_emitter(emitter);
    relay
}

fn no_noise() -> DiagnosticsSink {
    DiagnosticsSink::new(Box::new(ServerLog::default()), None)
}

/// Relays messages between clients and a server that is not a child, until either side ends.
async fn carry<C: ClientLeg, S: ServerLeg>(relay: Relay<C, S>, log: Connection) {
    // A client that ends its session need not wait for open calls.
    remote_session::run(relay, Duration::ZERO, log, std::future::pending()).await;
}

/// The server of a route, for a session.
fn target_of(state: &Arc<RouteState>) -> UpstreamTarget {
    let endpoints = (state.endpoint.clone(), state.sse.clone());
    let newest = Arc::clone(state);
    let latest = Box::new(move || newest.latest().map(|latest| Arc::clone(&latest.route)));
    UpstreamTarget::served(
        &state.route,
        endpoints,
        latest,
        &state.forwarder.via,
        &state.shared.counts,
    )
}

fn spill_limits(shared: &RouteShared, max: u64) -> SpillLimits {
    let (budget, counts) = (Arc::clone(&shared.spilled), Arc::clone(&shared.counts));
    SpillLimits { max, budget, counts }
}
