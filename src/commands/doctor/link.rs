//! A connection to a server, as a plain client has it: what it says arrives with the time at which it was
//! read and the number of the read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, sink};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::traffic::Stream;
use super::web::Web;
use crate::observe::log::Connection;
use crate::progress::Policy;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::lines::{Frame, Lines};
use crate::relay::child_session::ChildSession;
use crate::relay::{Pipe, Relay};
use crate::transport::child::{self, Child, Grace, Program, SpawnError, Stderr};
use crate::transport::stdio::{ByteReader, ByteWriter};

/// The longest message, in bytes, that `doctor` holds: answers with images and files are smaller.
pub(super) const HELD_MAX: usize = 64 << 20;

/// The longest line of standard error, in bytes, that `doctor` reads.
const ASIDE_MAX: usize = 64 << 10;

/// Arrivals that wait to be examined. Beyond the limit `doctor` does not read from the server.
const WAITING_MAX: usize = 1024;

/// Room for one read.
const READ_BYTES: usize = 64 << 10;

/// The buffer between a client and the proxy inside this process, in bytes.
const DUPLEX_BYTES: usize = 64 << 10;

/// How long a server has to end when nobody needs it any more. Nothing of it is looked at then.
const GRACE: Grace = Grace { exit: Duration::from_secs(2), term: Duration::from_secs(2) };

/// How long the proxy has to end its server: its own graces, and to sweep.
const PROXY_ENDS: Duration = Duration::from_secs(15);

/// The longest time for writing one message. A server that reads nothing for so long does not read
/// at all.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// How long what a server has left in its pipe is read after its end.
const DRAIN: Duration = Duration::from_millis(500);

/// How long the exit code of a server that has closed its output is waited for.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// Something that has arrived.
pub(super) struct Arrived {
    pub(super) at: Instant,
    pub(super) what: Arrival,
}

/// An arrival from the server.
pub(super) enum Arrival {
    Heard {
        stream: Stream,
        read: u64,
        event: Option<String>,
        text: Bytes,
    },
    Noise(Bytes),
    Aside(String),
    /// The head of a response, and the session that it names.
    Head(Stream, Option<HeaderValue>),
    Over(Stream),
    /// A response that is not MCP, in words.
    Failed(Stream, String),
    /// The server says nothing more.
    Closed,
}

/// Sends arrivals to the client.
#[derive(Clone)]
pub(super) struct Reporter {
    to: mpsc::Sender<Arrived>,
    reads: Arc<AtomicU64>,
}

impl Reporter {
    /// Tells of something; whether anybody listens.
    pub(super) async fn tell(&self, at: Instant, what: Arrival) -> bool {
        self.to.send(Arrived { at, what }).await.is_ok()
    }

    /// The number of a read.
    pub(super) fn read(&self) -> u64 {
        self.reads.fetch_add(1, Ordering::Relaxed)
    }
}

/// A connection to a server.
pub(super) struct Link {
    arrivals: mpsc::Receiver<Arrived>,
    reporter: Reporter,
    tasks: JoinSet<()>,
    way: Way,
    /// Until when what a server has left is read: it has ended.
    left: Option<Instant>,
}

/// The kind of the link.
enum Way {
    Child(ByteWriter, Box<Child>),
    /// A child behind the proxy, inside this process.
    Proxied(ByteWriter, JoinHandle<()>),
    Web(Box<Web>),
}

impl Link {
    fn new(way: Way) -> Self {
        let (to, arrivals) = mpsc::channel(WAITING_MAX);
        let reporter = Reporter { to, reads: Arc::default() };
        Self { arrivals, reporter, tasks: JoinSet::new(), way, left: None }
    }

    /// Starts a server.
    pub(super) fn start(program: &Program) -> Result<Self, SpawnError> {
        let (child, pipes) = child::spawn(program, Stderr::Piped)?;
        let mut link = Self::new(Way::Child(Box::new(pipes.stdin), Box::new(child)));
        link.tasks.spawn(read_lines(Box::new(pipes.stdout), link.reporter.clone()));
        if let Some(errors) = pipes.stderr {
            link.tasks.spawn(read_errors(Box::new(errors), link.reporter.clone()));
        }
        Ok(link)
    }

    /// Starts a server behind the proxy's own filter.
    pub(super) fn start_proxied(policy: Policy, program: &Program) -> Result<Self, SpawnError> {
        let (ours, theirs) = duplex(DUPLEX_BYTES);
        let (reader, writer) = tokio::io::split(theirs);
        let client = Pipe::new(Box::new(reader), Box::new(writer));
        let relay = |server, aside| Relay::with_sole_stream(policy, client, server, aside);
        let era = Arc::default();
        let (noise, log) = (Box::new(sink()), Connection::default());
        let mut host = ChildSession::start(program.clone(), None, era, noise, log, relay)?;
        let running = tokio::spawn(async move {
            host.run(None).await;
        });
        let (reader, writer) = tokio::io::split(ours);
        let mut link = Self::new(Way::Proxied(Box::new(writer), running));
        link.tasks.spawn(read_lines(Box::new(reader), link.reporter.clone()));
        Ok(link)
    }

    /// To a server over HTTP. Nothing is connected.
    pub(super) fn over_http(web: Web) -> Self {
        Self::new(Way::Web(Box::new(web)))
    }

    /// The state of the HTTP connection, if the link is one.
    pub(super) fn web(&mut self) -> Option<&mut Web> {
        match &mut self.way {
            Way::Web(web) => Some(web),
            _ => None,
        }
    }

    /// The next arrival; `None` at `deadline`. May be cancelled at any time.
    pub(super) async fn next(&mut self, deadline: Instant) -> Option<Arrived> {
        if let (Way::Child(_, child), None) = (&mut self.way, self.left) {
            tokio::select! {
                biased;
                arrived = self.arrivals.recv() => return arrived,
                _ = child.wait() => self.left = Some(Instant::now() + DRAIN),
                () = sleep_until(deadline) => return None,
            }
        }
        let until = self.left.map_or(deadline, |left| left.min(deadline));
        match timeout_at(until, self.arrivals.recv()).await {
            Ok(arrived) => arrived,
            // Somebody whom the server has started holds its output open.
            Err(_) if self.left.is_some_and(|left| left <= Instant::now()) => {
                Some(Arrived { at: Instant::now(), what: Arrival::Closed })
            }
            Err(_) => None,
        }
    }

    /// Sends a message to the server; `Err` if the message cannot be sent.
    pub(super) async fn say(&mut self, message: &Message) -> Result<(), String> {
        match &mut self.way {
            Way::Child(writer, _) | Way::Proxied(writer, _) => {
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
            Way::Web(web) => {
                self.tasks.spawn(web.post(message, self.reporter.clone()));
                Ok(())
            }
        }
    }

    /// Opens the GET stream, where there are such.
    pub(super) fn listen(&mut self) {
        if let Way::Web(web) = &self.way {
            self.tasks.spawn(web.get(self.reporter.clone()));
        }
    }

    /// How the server has ended, if it is ours and has.
    pub(super) async fn exit(&mut self) -> Option<String> {
        let Way::Child(_, child) = &mut self.way else { return None };
        timeout(EXIT_WAIT, child.wait()).await.ok().map(|exit| exit.to_string())
    }

    /// Ends the connection, and the server if it is ours, with everything that it has started.
    pub(super) async fn close(mut self) {
        match self.way {
            Way::Child(writer, mut child) => {
                child.note_descendants().await;
                drop(writer);
                child.shut_down(GRACE).await;
            }
            Way::Proxied(writer, mut running) => {
                // Both halves: the client is gone then, and nobody is waited for.
                self.tasks.shutdown().await;
                drop(writer);
                if timeout(PROXY_ENDS, &mut running).await.is_err() {
                    running.abort();
                }
            }
            Way::Web(web) => {
                self.tasks.shutdown().await;
                web.farewell().await;
            }
        }
    }
}

async fn read_lines(mut from: ByteReader, reporter: Reporter) {
    let mut lines = Lines::new(HELD_MAX);
    let mut buffer = BytesMut::new();
    let mut open = true;
    while open {
        buffer.reserve(READ_BYTES);
        open = matches!(from.read_buf(&mut buffer).await, Ok(1..));
        let (at, read) = (Instant::now(), reporter.read());
        loop {
            let frame = if open { lines.decode(&mut buffer) } else { lines.finish(&mut buffer) };
            let Some(frame) = frame else { break };
            let (Frame::Line(text) | Frame::Rest(text)) = frame else { continue };
            let what = if Message::parse(text.clone()).kind() == Kind::Noise {
                Arrival::Noise(text)
            } else {
                Arrival::Heard { stream: Stream::Shared, read, event: None, text }
            };
            if !reporter.tell(at, what).await {
                return;
            }
        }
    }
    reporter.tell(Instant::now(), Arrival::Closed).await;
}

async fn read_errors(mut from: ByteReader, reporter: Reporter) {
    let mut lines = Lines::new(ASIDE_MAX);
    let mut buffer = BytesMut::new();
    let mut open = true;
    while open {
        buffer.reserve(READ_BYTES);
        open = matches!(from.read_buf(&mut buffer).await, Ok(1..));
        let at = Instant::now();
        loop {
            let frame = if open { lines.decode(&mut buffer) } else { lines.finish(&mut buffer) };
            let Some(frame) = frame else { break };
            let (Frame::Line(text) | Frame::Rest(text) | Frame::Start(text)) = frame else {
                continue;
            };
            let line = String::from_utf8_lossy(&text).trim_end().to_owned();
            if !reporter.tell(at, Arrival::Aside(line)).await {
                return;
            }
        }
    }
}
