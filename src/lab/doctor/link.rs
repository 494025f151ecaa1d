//! A plain client's connection to a server: each message arrives with the time and the number of
//! its read.

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, sink};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::DoctorError;
use super::traffic::{TrafficEvent, TrafficStream};
use super::web::Web;
use crate::config::routes::{BearerFile, Route};
use crate::gateway::listen::StartError;
use crate::observe::error_chain::error_chain;
use crate::observe::events::{EventEmitter, FilterId, ObserverFactory, Scope};
use crate::observe::log::Connection;
use crate::progress::Policy;
use crate::protocol::jsonrpc::Message;
use crate::protocol::lines::{LineFrame, Lines};
use crate::protocol::terminal::Terminal;
use crate::protocol::unicode;
use crate::relay::child_session::ChildSession;
use crate::relay::http_upstream::{HttpUpstreamLeg, UpstreamTarget};
use crate::relay::{DiagnosticsSink, ModernFace, Pipe, Relay, ServerSide, remote_session};
use crate::transport::child::{self, ChildProcess, Grace, Program, SpawnError, Stderr};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::via::Via;
use crate::transport::stdio::{ByteReader, ByteWriter};
use crate::transport::tasks;

/// Maximum number of bytes of a message that `doctor` reads. Answers with images and files are smaller.
pub(super) const HELD_MAX: usize = 64 << 20;

/// Maximum number of arrivals that wait to be examined. Beyond this limit `doctor` does not read from the server.
const WAITING_MAX: usize = 1024;

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// Size of the buffer between a client and the proxy inside this process, in bytes.
const DUPLEX_BYTES: usize = 64 << 10;

/// Deadlines for a server to end after the last call. Messages that it sends then are not examined.
const GRACE: Grace = Grace { exit: Duration::from_secs(2), term: Duration::from_secs(2) };

/// Deadline for the proxy to end its server: the proxy's own deadlines, and the time to end the descendants.
const PROXY_ENDS: Duration = Duration::from_secs(15);

/// Deadline for writing one message. A server that does not read for this time counts as one that no longer reads.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// For how long output is still read after the server's process has ended.
const DRAIN: Duration = Duration::from_millis(500);

/// Deadline for a server that has closed its output to end with an exit code.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// A message, a piece of output or an event that has arrived.
pub(in crate::lab) struct TimedArrival {
    pub(super) at: Instant,
    pub(in crate::lab) what: Arrival,
}

/// An arrival from the server.
pub(in crate::lab) enum Arrival {
    /// An event to examine. Its text may not be a message.
    Seen(TrafficEvent),
    /// The head of a response, and the session that it names.
    Head(TrafficStream, Option<HeaderValue>),
    /// A response that is not MCP, with the reason as text.
    Failed(TrafficStream, String),
    /// The server's output has ended.
    Closed,
}

/// Sends arrivals to the client; readers of the server's streams use it.
#[derive(Clone)]
pub(super) struct Reporter {
    to: mpsc::Sender<TimedArrival>,
    reads: Arc<AtomicU64>,
}

impl Reporter {
    /// Sends an arrival. Returns whether the client still receives arrivals.
    pub(super) async fn send(&self, at: Instant, what: Arrival) -> bool {
        self.to.send(TimedArrival { at, what }).await.is_ok()
    }

    /// Sends the failure of a connection.
    pub(super) async fn fail(&self, stream: TrafficStream, error: &UpstreamError) {
        self.send(Instant::now(), Arrival::Failed(stream, error_chain(error))).await;
    }

    /// Returns the number of a new read.
    pub(super) fn read(&self) -> u64 {
        self.reads.fetch_add(1, Ordering::Relaxed)
    }
}

/// A connection to a server.
pub(in crate::lab) struct Link {
    arrivals: mpsc::Receiver<TimedArrival>,
    reporter: Reporter,
    tasks: JoinSet<()>,
    kind: LinkKind,
    /// The time until which the remaining output of an ended server is read.
    drain_until: Option<Instant>,
}

/// The kind of the link.
enum LinkKind {
    ChildProcess(ByteWriter, Box<ChildProcess>),
    /// A child behind the proxy, inside this process.
    Proxied(ByteWriter, JoinHandle<()>),
    Web(Box<Web>),
}

impl Link {
    fn new(kind: LinkKind) -> Self {
        let (to, arrivals) = mpsc::channel(WAITING_MAX);
        let reporter = Reporter { to, reads: Arc::default() };
        Self { arrivals, reporter, tasks: JoinSet::new(), kind, drain_until: None }
    }

    /// Starts a server as a child process.
    pub(in crate::lab) fn start(program: &Program) -> Result<Self, SpawnError> {
        let (child, pipes) = child::spawn(program, Stderr::Piped)?;
        let mut link = Self::new(LinkKind::ChildProcess(Box::new(pipes.stdin), Box::new(child)));
        tasks::spawn_in(&mut link.tasks, read_lines(Box::new(pipes.stdout), link.reporter.clone()));
        if let Some(errors) = pipes.stderr {
            tasks::spawn_in(&mut link.tasks, read_errors(Box::new(errors), link.reporter.clone()));
        }
        Ok(link)
    }

    /// Starts a server behind the proxy's own filter.
    pub(super) fn start_proxied(
        policy: Policy,
        program: &Program,
        observers: &[Arc<dyn ObserverFactory>],
    ) -> Result<Self, SpawnError> {
        let (ours, theirs) = duplex(DUPLEX_BYTES);
        let (reader, writer) = tokio::io::split(theirs);
        let client = Pipe::new(Box::new(reader), Box::new(writer));
        let policy = Arc::new(policy);
        let emitter = emitter(&policy, observers);
        let relay = |server, diagnostics| {
            let server = ServerSide::new(server, ModernFace::of(&policy));
            let mut relay = Relay::with_sole_stream(policy, client, server, diagnostics);
            relay.set_emitter(emitter);
            relay
        };
        let era = Arc::default();
        let (diagnostics, log) = (Box::new(sink()), Connection::default());
        let mut child = ChildSession::start(program.clone(), None, era, diagnostics, log, relay)?;
        let running = tasks::spawn(async move {
            child.run(None).await;
        });
        let (reader, writer) = tokio::io::split(ours);
        let mut link = Self::new(LinkKind::Proxied(Box::new(writer), running));
        tasks::spawn_in(&mut link.tasks, read_lines(Box::new(reader), link.reporter.clone()));
        Ok(link)
    }

    /// Connects to a server at a URL through the proxy's own filter. The connection is opened for the first message.
    pub(super) fn start_remote(
        policy: Policy,
        route: &Route,
        bearer_file: Option<PathBuf>,
        observers: &[Arc<dyn ObserverFactory>],
    ) -> Result<Self, DoctorError> {
        let (ours, theirs) = duplex(DUPLEX_BYTES);
        let (reader, writer) = tokio::io::split(theirs);
        let client = Pipe::new(Box::new(reader), Box::new(writer));
        let policy = Arc::new(policy);
        let via = Via::random().map_err(StartError::from)?;
        let target = UpstreamTarget::new(route, via, bearer_file.map(BearerFile::in_file), None)?;
        let diagnostics = DiagnosticsSink::new(Box::new(sink()), None);
        let emitter = emitter(&policy, observers);
        let server = HttpUpstreamLeg::new(target);
        let mut relay = Relay::with_sole_stream(policy, client, server, diagnostics);
        relay.set_emitter(emitter);
        let log = Connection::default();
        let running = tasks::spawn(remote_session::run(relay, Duration::ZERO, log, pending()));
        let (reader, writer) = tokio::io::split(ours);
        let mut link = Self::new(LinkKind::Proxied(Box::new(writer), running));
        tasks::spawn_in(&mut link.tasks, read_lines(Box::new(reader), link.reporter.clone()));
        Ok(link)
    }

    /// Returns a link to a server over HTTP. The connection is opened for the first message.
    pub(in crate::lab) fn over_http(web: Web) -> Self {
        Self::new(LinkKind::Web(Box::new(web)))
    }

    /// Returns the state of the HTTP connection, if the link uses HTTP.
    pub(in crate::lab) fn web(&mut self) -> Option<&mut Web> {
        match &mut self.kind {
            LinkKind::Web(web) => Some(web),
            _ => None,
        }
    }

    /// Returns the next arrival; `None` at `deadline`. Cancel-safe.
    pub(in crate::lab) async fn next(&mut self, deadline: Instant) -> Option<TimedArrival> {
        if let (LinkKind::ChildProcess(_, child), None) = (&mut self.kind, self.drain_until) {
            tokio::select! {
                biased;
                arrived = self.arrivals.recv() => return arrived,
                _ = child.wait() => self.drain_until = Some(Instant::now() + DRAIN),
                () = sleep_until(deadline) => return None,
            }
        }
        let until = self.drain_until.map_or(deadline, |left| left.min(deadline));
        match timeout_at(until, self.arrivals.recv()).await {
            Ok(arrived) => arrived,
            // The server has ended, but a process that it started keeps its output open.
            Err(_) if self.drain_until.is_some_and(|left| left <= Instant::now()) => {
                Some(TimedArrival { at: Instant::now(), what: Arrival::Closed })
            }
            Err(_) => None,
        }
    }

    /// Sends a message to the server; `Err` if the message cannot be sent.
    pub(super) async fn send_message(&mut self, message: &Message) -> Result<(), String> {
        match &mut self.kind {
            LinkKind::ChildProcess(writer, _) | LinkKind::Proxied(writer, _) => {
                let line = [&message.raw()[..], b"\n"].concat();
                let write = async {
                    writer.write_all(&line).await?;
                    writer.flush().await
                };
                match timeout(WRITE_MAX, write).await {
                    Err(_) => Err("the server does not read its input".to_owned()),
                    Ok(Err(_)) => Err("the server has closed its input".to_owned()),
                    Ok(Ok(())) => Ok(()),
                }
            }
            LinkKind::Web(web) => {
                tasks::spawn_in(&mut self.tasks, web.post(message, self.reporter.clone()));
                Ok(())
            }
        }
    }

    /// Closes every open response over HTTP.
    pub(in crate::lab) fn leave(&mut self) {
        if matches!(self.kind, LinkKind::Web(_)) {
            self.tasks.abort_all();
        }
    }

    /// Opens the GET stream, if the transport has one.
    pub(super) fn listen(&mut self) {
        if let LinkKind::Web(web) = &self.kind {
            tasks::spawn_in(&mut self.tasks, web.get(self.reporter.clone()));
        }
    }

    /// Returns how a server that `doctor` started has ended, if it has ended.
    pub(in crate::lab) async fn exit(&mut self) -> Option<String> {
        let LinkKind::ChildProcess(_, child) = &mut self.kind else { return None };
        timeout(EXIT_WAIT, child.wait()).await.ok().map(|exit| exit.to_string())
    }

    /// Ends the connection, and the server with all its descendants if `doctor` started it.
    pub(in crate::lab) async fn close(mut self) {
        match self.kind {
            LinkKind::ChildProcess(writer, mut child) => {
                child.note_descendants().await;
                drop(writer);
                child.shut_down(GRACE).await;
            }
            LinkKind::Proxied(writer, mut running) => {
                // Ends both halves, so that no task waits for the client.
                self.tasks.shutdown().await;
                drop(writer);
                if timeout(PROXY_ENDS, &mut running).await.is_err() {
                    running.abort();
                }
            }
            LinkKind::Web(web) => {
                self.tasks.shutdown().await;
                web.end_session().await;
            }
        }
    }
}

/// Returns the event emitter for the only filter of a proxy inside this process.
fn emitter(policy: &Arc<Policy>, observers: &[Arc<dyn ObserverFactory>]) -> Option<EventEmitter> {
    let id = FilterId { conversation: 1, filter: 1 };
    let observers = observers.iter().filter_map(|one| one.begin(id, "", Scope::Whole, policy));
    EventEmitter::new(id, std::time::Instant::now(), observers.collect())
}

async fn read_lines(mut from: ByteReader, reporter: Reporter) {
    let mut lines = Lines::new(HELD_MAX);
    let mut buffer = BytesMut::new();
    // Plain clients keep a byte order mark at the beginning of the stream, but `Lines` removes it, so add it again.
    let mut mark = None;
    let mut open = true;
    while open {
        buffer.reserve(READ_BYTES);
        open = matches!(from.read_buf(&mut buffer).await, Ok(1..));
        let (at, read) = (Instant::now(), reporter.read());
        let mut is_marked = *mark.get_or_insert_with(|| buffer.starts_with(unicode::BOM));
        loop {
            let frame = if open { lines.decode(&mut buffer) } else { lines.finish(&mut buffer) };
            let Some(frame) = frame else { break };
            let (LineFrame::Line(text) | LineFrame::Rest(text)) = frame else { continue };
            let text = match is_marked {
                true => Bytes::from([unicode::BOM, &text].concat()),
                false => text,
            };
            (mark, is_marked) = (Some(false), false);
            let (stream, message) = (TrafficStream::Shared, Message::parse(text));
            let received = TrafficEvent::Received { stream, read, event: None, message };
            if !reporter.send(at, Arrival::Seen(received)).await {
                return;
            }
        }
    }
    reporter.send(Instant::now(), Arrival::Closed).await;
}

/// Reads lines of standard error as the dialect `stderr` does: each state of a redrawn line counts as a line.
async fn read_errors(mut from: ByteReader, reporter: Reporter) {
    let mut terminal = Terminal::default();
    let mut buffer = BytesMut::new();
    let mut open = true;
    while open {
        buffer.reserve(READ_BYTES);
        open = matches!(from.read_buf(&mut buffer).await, Ok(1..));
        let at = Instant::now();
        let mut lines = Vec::new();
        let mut keep = |line: &str| lines.push(line.trim_end().to_owned());
        match open {
            true => terminal.feed(&buffer.split(), &mut keep),
            false => terminal.flush(&mut keep),
        }
        for line in lines {
            if !reporter.send(at, Arrival::Seen(TrafficEvent::Stderr(line))).await {
                return;
            }
        }
    }
}
