//! The relay of one connection: a filter, a clock and two legs.
//!
//! The relay reads both sides and writes to both sides concurrently. None of these four waits for another: a client
//! that stops reading does not stop its own messages to the server, and a server that stops reading does not stop its
//! messages to the client. The bytes for a slow reader are limited: beyond [`QUEUE_MAX`](crate::progress::QUEUE_MAX)
//! the other side is not read.

pub(crate) mod active_tokens;
mod cached_start;
pub mod child_leg;
pub mod child_session;
mod deadlines;
pub mod discover_probe;
pub mod filter_guard;
mod held_requests;
pub mod http_upstream;
mod incoming;
mod late_answers;
mod legs;
mod modern_face;
mod outbox;
mod outgoing;
mod pipe;
pub mod remote_session;
mod server_side;
mod spool;
mod spool_leg;
mod spooled_response;
mod states;
mod stderr;

use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{Sleep, sleep_until, timeout};

use crate::observe::events::EventEmitter;
use crate::progress::dialect::TextSource;
use crate::progress::input::{FilterScope, Input};
use crate::progress::{
    Filter, FilterEvent, NameKey, Origin, Policy, StreamId, StreamKind, StreamPacing, TaskNews,
};
use crate::protocol::jsonrpc::{Message, Scan};
use crate::relay::active_tokens::SessionTokens;
use crate::relay::deadlines::StreamDeadlines;
use crate::relay::filter_guard::FilterGuard;
use crate::relay::held_requests::HeldRequest;
use crate::relay::spooled_response::{LateAnswer, LateReader, SpoolReader};
use crate::relay::states::{
    ClientPace, ClientSide, RelayMode, RelayTurn, ServerInput, ServerOutput,
};
use crate::relay::stderr::Activity;
use crate::transport::byte_budget::ByteShare;
use crate::transport::clock::now;
use crate::transport::random::random_bytes;
use crate::transport::stdio::ByteReader;

pub use crate::relay::spool::SpillLimits;
pub use crate::relay::spool_leg::SpoolLeg;
pub use crate::relay::spooled_response::SpooledResponse;
pub use crate::relay::stderr::DiagnosticsSink;
pub use legs::{
    Backlog, ClientHead, ClientHeaders, ClientLeg, FromClient, FromServer, LegFact, MessagePart,
    SOLE_STREAM, ServerLeg, TRACE_HEADERS, origin_of, trace_of,
};
pub use modern_face::ModernFace;
pub use pipe::Pipe;
pub use server_side::ServerSide;

/// The result of one [`Relay::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayStep {
    /// Bytes were read or written.
    Moved,
    /// Clients send no more messages. This step is returned again after the server has received all messages.
    ClientDone,
    /// Clients no longer read.
    ClientGone,
    /// The server will send nothing more.
    ServerDone,
}

/// An event that the relay waited for.
enum RelayEvent {
    Client(FromClient),
    Server(FromServer),
    ClientWritten(StreamId, bool),
    ServerWritten(bool),
    /// The next piece of a message from a file; `None` at its end, or an error if the rest will not come.
    Piece(StreamId, io::Result<Option<Bytes>>),
    /// An answer read from a file, to a call that continues without its client.
    LateAnswer(Message),
    Stderr(Activity),
    Due,
}

/// One server and its clients.
pub struct Relay<C, S> {
    filter: FilterGuard,
    clients: C,
    server: S,
    mode: RelayMode,
    diagnostics: DiagnosticsSink,
    /// The large client message that is being forwarded, with its stream.
    large_message: Option<(StreamId, Scan)>,
    /// The client streams of which each is one HTTP exchange.
    exchanges: BTreeSet<StreamId>,
    /// The requests that the filter holds.
    held: Vec<HeldRequest>,
    /// The tokens of this relay's calls, among those of other sessions.
    tokens: Option<SessionTokens>,
    /// Readers of answers from files, in order for each stream.
    spooled: Vec<SpoolReader>,
    /// A large message that may be the answer to a call that continues without its client.
    late_answer: Option<LateAnswer>,
    /// Readers of files with answers to calls that continue without their client.
    late_readers: Vec<LateReader>,
    client_side: ClientSide,
    client_pace: ClientPace,
    server_output: ServerOutput,
    server_input: ServerInput,
    turn: RelayTurn,
    timer: Pin<Box<Sleep>>,
    deadlines: StreamDeadlines,
    /// Streams that already have enough bytes for one write, and may have more messages.
    again: Vec<StreamId>,
    leg_tasks: LegTasks,
}

/// The events of tasks and questions that the server's leg keeps itself.
#[derive(Debug, Default)]
struct LegTasks {
    /// The number of tasks and questions that wait for clients.
    open: usize,
    /// Events that the caller has not taken yet. It takes them after each step.
    news: VecDeque<Box<TaskNews>>,
}

impl<S: ServerLeg> Relay<Pipe, S> {
    /// Returns a relay for a single client on byte streams. Nothing is read before the first [`Relay::step`].
    pub fn with_sole_stream(
        policy: impl Into<Arc<Policy>>,
        client: Pipe,
        server: S,
        diagnostics: DiagnosticsSink,
    ) -> Self {
        let policy = policy.into();
        let mut relay = Self::new(Arc::clone(&policy), client, server, diagnostics);
        relay.open(SOLE_STREAM, StreamKind::Shared, StreamPacing::ByCall);
        relay
    }
}

impl<C: ClientLeg, S: ServerLeg> Relay<C, S> {
    /// Returns a relay whose clients open their streams themselves. Nothing is read before the first [`Relay::step`].
    pub fn new(
        policy: impl Into<Arc<Policy>>,
        mut clients: C,
        mut server: S,
        mut diagnostics: DiagnosticsSink,
    ) -> Self {
        let policy = policy.into();
        if policy.listens_to(TextSource::Stderr) {
            diagnostics.listen();
        }
        let observes = policy.observes();
        // The server's leg comes first, because clients must not enter raw mode if the server's leg cannot.
        let is_raw = observes && server.enter_raw_mode() && clients.enter_raw_mode();
        let mut filter = Filter::new(Arc::clone(&policy));
        filter.calls_mut().streams_mut().note_changes();
        Self {
            filter: FilterGuard::new(filter, policy, SOLE_STREAM),
            clients,
            server,
            mode: if is_raw { RelayMode::Raw } else { RelayMode::Filtered },
            diagnostics,
            large_message: None,
            exchanges: BTreeSet::new(),
            held: Vec::new(),
            tokens: None,
            spooled: Vec::new(),
            late_answer: None,
            late_readers: Vec::new(),
            client_side: ClientSide::Open,
            client_pace: ClientPace::Usual,
            server_output: ServerOutput::Open,
            server_input: ServerInput::Open,
            turn: RelayTurn::Clients,
            timer: Box::pin(sleep_until(tokio::time::Instant::now())),
            deadlines: StreamDeadlines::default(),
            again: Vec::new(),
            leg_tasks: LegTasks::default(),
        }
    }

    /// Shows the events of the filter to `emitter` from now on.
    pub fn set_emitter(&mut self, emitter: Option<EventEmitter>) {
        self.filter.set_emitter(emitter);
        let is_open = |filter: &mut Filter| filter.calls().streams().has_stream(SOLE_STREAM);
        if self.filter.try_with(is_open) == Some(false) {
            let strangers = self.clients.are_strangers();
            let begins = match strangers {
                true => FilterScope::Shared(random_bytes().map(NameKey::new)),
                false => FilterScope::Open,
            };
            self.filter.apply(now(), Input::Begin(begins));
        }
        self.enable_tasks();
    }

    /// Counts the messages that are kept in memory for clients that connect later, if the settings keep any.
    pub(crate) fn set_kept(&mut self, share: &ByteShare) {
        if self.filter.policy().has_late() || self.filter.policy().has_tasks() {
            self.filter.set_kept(share.room());
        }
    }

    /// Lets calls run as Milepost's own tasks, if the settings enable that.
    fn enable_tasks(&mut self) {
        let has_tasks = self.filter.policy().has_tasks() && !self.clients.are_strangers();
        let millis = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        if let Some(random) = random_bytes().filter(|_| has_tasks) {
            self.filter.apply(now(), Input::EnableTasks(NameKey::new(random), millis));
        }
    }

    /// Reads the lines of the server's standard error, which may be progress.
    fn read_stderr_lines(&mut self) {
        let now = now();
        for line in self.diagnostics.lines() {
            self.filter.apply(now, Input::Stderr(line.into()));
        }
    }

    /// Later requests use `policy`; open requests keep their settings.
    fn set_policy(&mut self, policy: &Arc<Policy>) {
        if policy.listens_to(TextSource::Stderr) {
            self.diagnostics.listen();
        }
        self.filter.set_policy(policy);
        self.server.note(&LegFact::Policy(Arc::clone(policy)));
    }

    fn open(&mut self, stream: StreamId, kind: StreamKind, pacing: StreamPacing) {
        if kind == StreamKind::Exchange {
            self.exchanges.insert(stream);
        }
        self.filter.apply(now(), Input::OpenStream(stream, kind, pacing));
    }

    /// Waits for the next event and handles it. Cancel-safe.
    pub async fn step(&mut self) -> RelayStep {
        if self.filter.is_lost() && self.client_side != ClientSide::Gone {
            return self.client_written(SOLE_STREAM, false);
        }
        let due = self.collect();
        if let Some(due) = due {
            self.timer.as_mut().reset(due);
        }
        match poll_fn(|cx| self.poll_ready(cx, due.is_some())).await {
            RelayEvent::Client(received) => self.receive_from_clients(received),
            RelayEvent::Server(received) => self.receive_from_server(received),
            RelayEvent::ClientWritten(stream, ok) => self.client_written(stream, ok),
            RelayEvent::ServerWritten(ok) => self.server_written(ok),
            RelayEvent::Piece(stream, piece) => self.send_spooled_piece(stream, piece),
            RelayEvent::LateAnswer(message) => {
                self.filter.server_message(now(), Origin::Shared, &message);
                RelayStep::Moved
            }
            RelayEvent::Stderr(activity) => {
                if matches!(activity, Activity::ServerWrote) {
                    self.server.note(&LegFact::StderrActivity);
                    self.read_stderr_lines();
                }
                RelayStep::Moved
            }
            RelayEvent::Due => RelayStep::Moved,
        }
    }

    /// Whether the server is not being read, because clients are too far behind.
    pub fn is_held_up(&self) -> bool {
        let is_full = !self.clients.are_strangers() && self.filter.is_full();
        is_full || self.clients.is_behind()
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>, timed: bool) -> Poll<RelayEvent> {
        if self.clients.is_writing()
            && let Poll::Ready((stream, ok)) = self.clients.poll_flush(cx)
        {
            return Poll::Ready(RelayEvent::ClientWritten(stream, ok));
        }
        if self.server.backlog().is_writing()
            && let Poll::Ready(ok) = self.server.poll_flush(cx)
        {
            return Poll::Ready(RelayEvent::ServerWritten(ok));
        }
        let first = match self.turn {
            RelayTurn::Clients => RelayTurn::Server,
            RelayTurn::Server => RelayTurn::Clients,
        };
        let second = std::mem::replace(&mut self.turn, first);
        let reads_server = self.server_output == ServerOutput::Open && !self.is_held_up();
        for side in [first, second] {
            if side == RelayTurn::Server
                && reads_server
                && let Poll::Ready(received) = self.server.poll_receive(cx)
            {
                return Poll::Ready(RelayEvent::Server(received));
            }
            if side == RelayTurn::Clients
                && self.client_side == ClientSide::Open
                && !self.server.backlog().is_behind()
                && let Poll::Ready(received) = self.clients.poll_receive(cx)
            {
                return Poll::Ready(RelayEvent::Client(received));
            }
        }
        if !self.spooled.is_empty()
            && let Poll::Ready((stream, piece)) = self.poll_piece(cx)
        {
            return Poll::Ready(RelayEvent::Piece(stream, piece));
        }
        if !self.late_readers.is_empty()
            && let Poll::Ready(message) = self.poll_late(cx)
        {
            return Poll::Ready(RelayEvent::LateAnswer(message));
        }
        if let Poll::Ready(activity) = self.diagnostics.poll(cx) {
            return Poll::Ready(RelayEvent::Stderr(activity));
        }
        if timed && self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(RelayEvent::Due);
        }
        // Check cancellations last, so that they cost nothing while the relay has other work.
        self.filter.poll_cancellations(cx).map(|()| RelayEvent::Due)
    }

    /// Returns the next piece of an answer from a file, for a stream that accepts it.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<(StreamId, io::Result<Option<Bytes>>)> {
        let mut seen = BTreeSet::new();
        for reader in &mut self.spooled {
            let stream = reader.stream;
            if seen.insert(stream)
                && self.clients.is_ready(stream)
                && let Poll::Ready(piece) = reader.poll_next(cx)
            {
                return Poll::Ready((stream, piece));
            }
        }
        Poll::Pending
    }

    /// Returns the next event, for the log.
    pub fn poll_event(&mut self) -> Option<FilterEvent> {
        let own = || self.leg_tasks.news.pop_front().map(FilterEvent::Task);
        let event = self.filter.poll_event().or_else(own);
        if let (Some(FilterEvent::Call(_)), Some(tokens)) = (&event, &mut self.tokens) {
            tokens.renew(&mut self.filter);
        }
        event
    }

    /// Registers this session's tokens on the route, because a server may send progress of one session to another.
    pub(crate) fn set_tokens(&mut self, tokens: Option<SessionTokens>) {
        self.tokens = tokens;
    }

    /// Stops heartbeats, because the server is about to end.
    pub fn stop_heartbeats(&mut self) {
        self.filter.apply(now(), Input::StopHeartbeats);
    }

    /// Returns the number of unanswered requests.
    pub fn open_calls(&self) -> usize {
        self.filter.open_calls()
    }

    /// Handles the end of the server: answers open calls with an error, drops waiting messages, and sends nothing more
    /// to the server.
    pub fn server_gone(&mut self, why: &str) {
        self.server_output = ServerOutput::Ended;
        self.stop_reading_clients();
        self.server.stop();
        let now = now();
        self.filter.apply(now, Input::CloseServer(why.into()));
    }

    /// Milepost stops: open calls get an error with the reason `why`.
    pub fn stop_calls(&mut self, why: &str) {
        self.filter.apply(now(), Input::StopCalls(why.into()));
    }

    /// The leg towards the server.
    pub fn server(&mut self) -> &mut S {
        &mut self.server
    }

    /// Continues with a new server in place of the ended one. `errors` is its standard error.
    pub fn read_server_again(&mut self, errors: Option<ByteReader>) {
        (self.server_output, self.server_input) = (ServerOutput::Open, ServerInput::Open);
        self.diagnostics.read_from(errors);
    }

    /// Whether messages for the server wait to be written.
    pub fn is_sending(&self) -> bool {
        self.server.backlog().is_writing()
    }

    /// Writes the remaining bytes for clients, and then for standard error. Gives up a reader that reads nothing for
    /// `patience`.
    pub async fn finish(&mut self, patience: Duration) {
        self.filter.apply(now(), Input::Flush);
        loop {
            self.collect();
            if !self.clients.is_writing() && self.spooled.is_empty() {
                break;
            }
            match timeout(patience, poll_fn(|cx| self.poll_drain(cx))).await {
                Ok(RelayEvent::Piece(stream, piece)) => self.send_spooled_piece(stream, piece),
                Ok(RelayEvent::ClientWritten(stream, ok)) => self.client_written(stream, ok),
                _ => self.client_written(SOLE_STREAM, false),
            };
        }
        self.clients.end();
        self.diagnostics.finish(patience).await;
    }

    /// Closes the server's input, after the server has read all client messages.
    pub async fn close_server_input(&mut self) {
        if self.server.backlog().is_writing() {
            return;
        }
        if std::mem::replace(&mut self.server_input, ServerInput::Closed) == ServerInput::Open {
            poll_fn(|cx| self.server.poll_close(cx)).await;
        }
    }

    fn written(&mut self, now: Instant, stream: StreamId) {
        self.filter.apply(now, Input::MarkWritten(stream));
    }

    fn stop_reading_clients(&mut self) {
        if self.client_side == ClientSide::Open {
            self.client_side = ClientSide::Unread;
        }
        self.clients.stop_reading();
    }

    fn client_written(&mut self, stream: StreamId, ok: bool) -> RelayStep {
        if ok {
            self.written(now(), stream);
            return RelayStep::Moved;
        }
        if self.client_side != ClientSide::Gone {
            tracing::warn!("the client cannot be written to any more");
        }
        self.written(now(), stream);
        self.filter.apply(now(), Input::CloseClients);
        self.clients_gone()
    }

    /// Drops all further messages to clients.
    fn clients_gone(&mut self) -> RelayStep {
        self.client_side = ClientSide::Gone;
        if self.large_message.take().is_some() {
            // The rest of the message will not arrive, and cancellations for the server wait until the message ends.
            self.server.send_part(MessagePart::BrokenOff, &None);
        }
        self.spooled.clear();
        self.stop_reading_clients();
        self.clients.discard();
        for stream in std::mem::take(&mut self.exchanges) {
            self.filter.apply(now(), Input::CloseStream(stream, false));
        }
        RelayStep::ClientGone
    }

    fn server_written(&mut self, ok: bool) -> RelayStep {
        if !ok {
            // The server has closed its input. Its output is still read, and its exit is reported separately.
            self.stop_reading_clients();
            return RelayStep::ClientDone;
        }
        if self.client_side == ClientSide::Open { RelayStep::Moved } else { RelayStep::ClientDone }
    }
}
