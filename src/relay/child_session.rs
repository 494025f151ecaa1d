//! A relay whose server is a child process: starts the child, and ends it with all its descendants.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use crate::observe::log::Connection;
use crate::platform::signals::Signals;
use crate::protocol::lines::INSPECT_MAX;
use crate::relay::cached_start::CachedStart;
use crate::relay::cached_start::store::StartStore;
use crate::relay::child_leg::ChildLeg;
use crate::relay::discover_probe::Era;
use crate::relay::{ClientLeg, DiagnosticsSink, Pipe, Relay, RelayStep, ServerSide, SpillLimits};
use crate::transport::child::{
    self, ChildPipes, ChildProcess, EXIT_GRACE, Exit, Program, SpawnError, Stderr, TERM_GRACE,
};
use crate::transport::stdio::{ByteReader, ByteWriter};

/// After the child's exit, reading ends when its pipe has been silent for this time. A grandchild that keeps the pipe
/// open would otherwise keep the proxy for ever.
const DRAIN: Duration = Duration::from_millis(500);

/// Deadline for a server to end after the client closed its input and then sent SIGTERM. The official SDKs send SIGKILL
/// to the proxy 2 s later, and then no process would be left to end the server.
const LAST_GRACE: Duration = Duration::from_millis(1500);

/// Deadline for open calls after the client has closed its input: a shell pipeline sends its requests, closes, and
/// still reads. A client that does not want to wait sends SIGTERM.
pub const OPEN_CALLS_GRACE: Duration = Duration::from_secs(20);

/// Deadline for a client to read the last messages after its server has ended. Afterwards the server's pipe is not read
/// any more, even if another process still writes to it.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The next step of stopping a server that does not end by itself.
#[derive(Debug, Clone, Copy)]
enum Stop {
    /// The server has closed its output, so it will probably end soon.
    Mute(Instant),
    Term(Instant),
    Kill(Instant),
}

/// The limits for large messages of a server.
#[derive(Clone)]
pub struct SpoolLimits {
    /// Maximum number of bytes of a message that is kept in memory.
    pub max_frame: usize,
    /// The limits for messages in files.
    pub spill: SpillLimits,
}

/// A child process and the relay in front of it.
pub struct ChildSession<C> {
    relay: Relay<C, ServerSide<ChildLeg>>,
    child: ChildProcess,
    program: Program,
    shared: Option<SpoolLimits>,
    log: Connection,
    stop: Option<Stop>,
    /// Whether the client has ended.
    client_done: bool,
    /// Whether `stop` was delayed because of open calls.
    patient: bool,
}

impl<C: ClientLeg> ChildSession<C> {
    /// Starts a server. Its standard error and stray text go to `diagnostics`. `era`: the revisions that the server is
    /// known to support. `shared`: limits for large messages, if several streams share the server. `relay` builds the
    /// relay from the server's leg; `log` counts its events.
    ///
    /// # Errors
    /// If the server does not start.
    pub fn start(
        program: Program,
        shared: Option<SpoolLimits>,
        era: Arc<Era>,
        diagnostics: ByteWriter,
        log: Connection,
        relay: impl FnOnce(ChildLeg, DiagnosticsSink) -> Relay<C, ServerSide<ChildLeg>>,
    ) -> Result<Self, SpawnError> {
        let (child, pipes) = child::spawn(&program, Stderr::Piped)?;
        let (pipe, errors) = pipe_of(pipes, shared.as_ref(), &log);
        let leg = ChildLeg::new(pipe, era, shared.as_ref().map(|limits| limits.spill.clone()));
        let leg = leg.with_start(StartStore::of(&program).map(CachedStart::new));
        let relay = relay(leg, DiagnosticsSink::new(diagnostics, errors));
        Ok(Self {
            relay,
            child,
            program,
            shared,
            log,
            stop: None,
            client_done: false,
            patient: false,
        })
    }

    /// Returns the process id of the server.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Relays messages until the server and its output have ended. With `signals`, received signals are forwarded to
    /// the server.
    pub async fn run(&mut self, mut signals: Option<Signals>) -> Exit {
        let mut server_done = false;
        let exit = loop {
            let stop = self.stop;
            tokio::select! {
                step = self.relay.step() => match step {
                    RelayStep::Moved => {}
                    RelayStep::ClientDone => self.begin_stop(true).await,
                    RelayStep::ClientGone => self.begin_stop(false).await,
                    RelayStep::ServerDone if self.starts_afresh().await => {}
                    RelayStep::ServerDone => {
                        server_done = true;
                        self.stop.get_or_insert_with(|| Stop::Mute(Instant::now() + DRAIN));
                    }
                },
                exit = self.child.wait() => {
                    // The pipe may still contain the last output, unless its end was read already.
                    if !std::mem::take(&mut server_done) {
                        self.drain().await;
                    }
                    if !self.starts_afresh().await {
                        break exit;
                    }
                }
                signal = next_signal(&mut signals) => {
                    self.child.signal(signal);
                    // Only SIGTERM certainly asks the server to end, so only SIGTERM is followed by a kill.
                    if signal == child::Signal::SIGTERM && !matches!(self.stop, Some(Stop::Kill(_))) {
                        let grace = if self.client_done { LAST_GRACE } else { TERM_GRACE };
                        self.stop = Some(Stop::Kill(Instant::now() + grace));
                        self.relay.stop_heartbeats();
                    }
                }
                () = due(stop) => self.stop_harder().await,
            }
            self.note();
            if self.patient && self.relay.open_calls() == 0 {
                self.patient = false;
                self.stop = Some(Stop::Term(Instant::now() + EXIT_GRACE));
            }
        };
        self.end(exit).await;
        exit
    }

    /// Starts the server again if it ended when it got `server/discover`, which an old server does not know.
    async fn starts_afresh(&mut self) -> bool {
        // A client that sends nothing more does not need a new server.
        if self.client_done || !self.relay.server().inner().has_failed() {
            return false;
        }
        // The server may have closed only its output. End it, so that it does not keep running beside the new server.
        self.child.signal(child::Signal::SIGKILL);
        self.child.sweep().await;
        match child::spawn(&self.program, Stderr::Piped) {
            Err(error) => {
                tracing::error!(%error, "the server does not start again");
                false
            }
            Ok((child, pipes)) => {
                let (pipe, errors) = pipe_of(pipes, self.shared.as_ref(), &self.log);
                if let Some(counts) = self.log.counts() {
                    counts.record_child_restart();
                }
                self.child = child;
                self.relay.server().inner().replace(pipe);
                self.relay.read_server_again(errors);
                true
            }
        }
    }

    fn note(&mut self) {
        while let Some(record) = self.relay.poll_event() {
            self.log.note(&record);
        }
    }

    /// Closes the server's input after the last client message, and sets a deadline for the server to end.
    async fn begin_stop(&mut self, client_reads: bool) {
        self.relay.close_server_input().await;
        self.client_done = true;
        let patient = client_reads && self.relay.open_calls() > 0;
        // If a client stops reading, the deadline becomes earlier. It never becomes later.
        if self.stop.is_none() || (self.patient && !patient) {
            let grace = if patient { OPEN_CALLS_GRACE } else { EXIT_GRACE };
            self.stop = Some(Stop::Term(Instant::now() + grace));
            self.patient = patient;
        }
    }

    async fn stop_harder(&mut self) {
        let next = Instant::now() + TERM_GRACE;
        match self.stop {
            Some(Stop::Mute(_)) => {
                tracing::warn!("the server has closed its output and runs on; ending it");
                self.relay.server_gone("the MCP server closed its output before it answered");
                self.stop = None;
                self.begin_stop(true).await;
            }
            Some(Stop::Term(_)) => {
                tracing::warn!("the server did not end when its input closed; sending SIGTERM");
                self.child.signal(child::Signal::SIGTERM);
                self.patient = false;
                self.stop = Some(Stop::Kill(next));
            }
            Some(Stop::Kill(_)) => {
                tracing::warn!("the server did not end at SIGTERM; sending SIGKILL");
                self.child.signal(child::Signal::SIGKILL);
                self.stop = None;
            }
            None => {}
        }
    }

    /// Handles the end of the server: forwards its remaining output, answers open calls, and ends
    /// its descendants.
    async fn end(&mut self, exit: Exit) {
        // Stop heartbeats first, because they would claim that the calls continue.
        self.relay.stop_heartbeats();
        let open = self.relay.open_calls();
        self.relay.server_gone(&format!("the MCP server ended ({exit}) before it answered"));
        self.relay.finish(LAST_WORDS).await;
        if open > 0 || !self.client_done || exit.code() != 0 {
            tracing::warn!(open_calls = open, "the server ended ({exit})");
        }
        self.note();
        self.log.finish();
        self.child.sweep().await;
    }

    /// Forwards the remaining output in the server's pipe, as long as the client reads. If a grandchild keeps the pipe
    /// open, forwarding ends when no more output arrives.
    async fn drain(&mut self) {
        let end = Instant::now() + LAST_WORDS;
        let mut quiet = Instant::now() + DRAIN;
        let mut read = self.relay.server().inner().bytes_read();
        while Instant::now() < end {
            // The pipe is not read while the client is behind, so its silence then means nothing.
            let until = if self.relay.is_held_up() { end } else { quiet.min(end) };
            match timeout_at(until, self.relay.step()).await {
                Ok(RelayStep::ServerDone | RelayStep::ClientGone) | Err(_) => return,
                Ok(_) => {}
            }
            self.note();
            // Count only the server's bytes: heartbeats and client messages continue without the server.
            let now_read = self.relay.server().inner().bytes_read();
            if now_read != read {
                (read, quiet) = (now_read, Instant::now() + DRAIN);
            }
        }
    }
}

fn pipe_of(
    pipes: ChildPipes,
    shared: Option<&SpoolLimits>,
    log: &Connection,
) -> (Pipe, Option<ByteReader>) {
    let errors = pipes.stderr.map(|errors| Box::new(errors) as ByteReader);
    let (mut from, mut to): (ByteReader, ByteWriter) =
        (Box::new(pipes.stdout), Box::new(pipes.stdin));
    if let Some(counts) = log.counts() {
        from = Box::new(counts.traffic().over(from));
        to = Box::new(counts.traffic().over(to));
    }
    let limit = shared.map_or(INSPECT_MAX, |shared| shared.max_frame);
    (Pipe::holding(from, to, limit), errors)
}

/// Returns the leg towards a server that is not a child process but is used through byte streams like one.
pub fn stand_in(from: ByteReader, to: ByteWriter, shared: SpoolLimits, era: Arc<Era>) -> ChildLeg {
    ChildLeg::new(Pipe::holding(from, to, shared.max_frame), era, Some(shared.spill))
}

async fn next_signal(signals: &mut Option<Signals>) -> child::Signal {
    match signals {
        Some(signals) => signals.next().await,
        None => pending().await,
    }
}

async fn due(stop: Option<Stop>) {
    match stop {
        Some(Stop::Mute(at) | Stop::Term(at) | Stop::Kill(at)) => sleep_until(at).await,
        None => pending().await,
    }
}
