//! Sessions of the bridge: their ids, and the handles through which request handlers use them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Response, StatusCode};
use tokio::sync::mpsc;

use crate::gateway::bridge::replay_buffer::{ClientReads, OnDisconnect, ReplayBuffer};
use crate::gateway::bridge::signals::{Broken, SessionSignals};
use crate::gateway::client_limits::fair_share::FairShare;
use crate::gateway::client_limits::{ClientPermit, LimitedClient};
use crate::progress::StreamId;
use crate::protocol::jsonrpc::{Key, Message, Scan};
use crate::protocol::mcp::Revision;
use crate::relay::active_tokens::{ActiveTokens, SessionTokens};
use crate::relay::{ClientHeaders, SOLE_STREAM};
use crate::transport::byte_budget::ByteShare;
use crate::transport::http::body::Body;
use crate::transport::http::client_name::ClientName;
use crate::transport::http::in_flight::{InFlight, InFlightGuard};
use crate::transport::mcp_http::request_body::PostedBody;
use crate::transport::mcp_http::tool_headers::ToolHeaders;
use crate::transport::random::random_id;

/// Limit of the client messages that wait for the relay of their session. Further requests wait until there is room.
const COMMANDS_MAX: usize = 64;

/// Limit of ended streams that a session keeps for clients that reconnect. The oldest is dropped first.
const ENDED_MAX: usize = 64;

/// Limit of the bytes of all ended streams that a session keeps for clients that reconnect. The oldest stream is
/// dropped first.
const ENDED_BYTES_MAX: usize = 16 << 20;

/// The error for open requests of a session that the client has ended or that was unused for too long.
pub(crate) const ENDED: Broken =
    Broken { status: StatusCode::NOT_FOUND, why: "the session has ended" };

/// A client message on its way to the relay.
pub(crate) enum SessionCommand {
    /// A message with requests, and the stream for its answers.
    Ask(Arc<ReplayBuffer>, Message, ClientHeaders),
    /// A message without a stream for answers.
    Tell(Message, ClientHeaders),
    /// The first piece of a message that is too large for memory.
    Start(Arc<ReplayBuffer>, Bytes, ClientHeaders),
    /// Another piece of the message.
    Piece(Bytes),
    /// The end of a large message, with its scan, and the stream for its answer.
    End(Arc<ReplayBuffer>, Scan),
}

/// The agreed protocol revision of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgreedRevision {
    pub(crate) date: String,
    pub(crate) revision: Option<Revision>,
}

#[derive(Default)]
struct StreamTable {
    last: u64,
    buffers: BTreeMap<u64, Arc<ReplayBuffer>>,
    agreed: AgreedRevision,
}

/// The kind of a session, by the clients that use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionKind {
    /// A session of one Streamable HTTP client.
    Own,
    /// A session of one HTTP+SSE client, which has a single stream for all messages.
    HttpSse,
    /// A session shared by clients of 2026-07-28, which do not know sessions.
    Shared,
}

/// A session, as request handlers use it.
pub(crate) struct BridgeSession {
    pub(crate) id: String,
    pub(crate) kind: SessionKind,
    /// The number of the principal that all clients of a shared session have in common, if they present credentials.
    pub(crate) principal: Option<u64>,
    /// The number of the caller that owns the session; `None` if no server checks credentials.
    owner: Option<AtomicU64>,
    /// The name in the certificate of the client that began the session, if it presented one.
    certificate: Option<ClientName>,
    /// The client in whose limits the session is counted.
    pub(crate) client: Option<LimitedClient>,
    /// Whether the relay has received a message of a client.
    heard: AtomicBool,
    pub(crate) signals: Arc<SessionSignals>,
    commands: mpsc::Sender<SessionCommand>,
    /// The stream for messages that belong to no request. They wait there until the client opens a GET.
    pub(crate) session_buffer: Arc<ReplayBuffer>,
    /// Locked by the sender of a message in pieces until its end, so that no other message comes between the pieces.
    pub(crate) speaking: tokio::sync::Mutex<()>,
    table: Mutex<StreamTable>,
    /// Whether the client has used the same id for consecutive requests.
    repeats_ids: AtomicBool,
    /// The headers that calls to the tools of a shared server must have, as far as they are known.
    tools: Mutex<ToolHeaders>,
    /// Number of listening clients whose disconnect cannot be noticed.
    pub(crate) listening: AtomicUsize,
    /// The open calls of each client of a shared session.
    pub(crate) shares: FairShare,
}

impl BridgeSession {
    /// Returns a session, and the receiver of its clients' messages.
    fn new(
        id: String,
        kind: SessionKind,
        kept: &ByteShare,
        principal: Option<u64>,
        owner: Option<u64>,
        certificate: Option<ClientName>,
        client: Option<LimitedClient>,
    ) -> (Arc<Self>, mpsc::Receiver<SessionCommand>) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let signals = Arc::new(SessionSignals::new(kept));
        let session_buffer = ReplayBuffer::new(SOLE_STREAM, Arc::clone(&signals));
        let session = Self {
            id,
            kind,
            principal,
            owner: owner.map(AtomicU64::new),
            certificate,
            client,
            heard: AtomicBool::new(false),
            signals,
            commands,
            session_buffer,
            speaking: tokio::sync::Mutex::default(),
            table: Mutex::default(),
            repeats_ids: AtomicBool::new(false),
            tools: Mutex::default(),
            listening: AtomicUsize::new(0),
            shares: FairShare::default(),
        };
        session.touch();
        (Arc::new(session), receiver)
    }

    fn table(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the headers that calls to the server's tools must have, as far as they are known.
    pub(crate) fn tools(&self) -> MutexGuard<'_, ToolHeaders> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the client uses the same id for consecutive requests.
    pub(crate) fn mark_repeated_ids(&self) {
        self.repeats_ids.store(true, Ordering::Relaxed);
    }

    /// Whether a request of this session may need an id that Milepost makes, so that it cannot be forwarded in pieces.
    pub(crate) fn repeats_ids(&self) -> bool {
        self.repeats_ids.load(Ordering::Relaxed)
    }

    /// Whether `caller` owns the session; true for a session without an owner.
    pub(crate) fn belongs_to(&self, caller: u64) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner.load(Ordering::Relaxed) == caller)
    }

    /// Whether a client with this certificate began the session.
    pub(crate) fn began_with(&self, certificate: Option<&ClientName>) -> bool {
        self.certificate.as_ref() == certificate
    }

    /// Returns the name in the certificate of the client that began the session.
    pub(crate) fn certificate(&self) -> Option<&ClientName> {
        self.certificate.as_ref()
    }

    /// Notes that the relay has received a message of a client.
    pub(crate) fn mark_heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether the relay has received a message of a client, so that the server may know of the session.
    pub(crate) fn was_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Makes this caller the owner of the session.
    pub(crate) fn give_to(&self, caller: u64) {
        if let Some(owner) = &self.owner {
            owner.store(caller, Ordering::Relaxed);
        }
    }

    /// Notes a use of the session, which restarts its idle time.
    pub(crate) fn touch(&self) {
        self.signals.touch();
    }

    /// Returns the time since the last use.
    pub(crate) fn unused_for(&self) -> Duration {
        self.signals.unused_for()
    }

    pub(crate) fn set_revision(&self, date: &str) {
        let revision = Revision::from_date(date);
        self.table().agreed = AgreedRevision { date: date.to_owned(), revision };
    }

    pub(crate) fn agreed_revision(&self) -> AgreedRevision {
        self.table().agreed.clone()
    }

    /// Opens a stream for the answers to a POST. `requests`: the requests that the event ids of the stream name.
    pub(crate) fn open(&self, reads: ClientReads, requests: Option<Box<str>>) -> Arc<ReplayBuffer> {
        let mut table = self.table();
        // Old streams are dropped here, because only a new stream needs their memory.
        table.forget();
        table.last += 1;
        let number = table.last;
        let signals = Arc::clone(&self.signals);
        let on_disconnect = match self.kind {
            SessionKind::Shared => OnDisconnect::Cancels,
            SessionKind::Own | SessionKind::HttpSse => OnDisconnect::Keeps,
        };
        let buffer =
            ReplayBuffer::naming(requests, StreamId(number), reads, on_disconnect, signals);
        table.buffers.insert(number, Arc::clone(&buffer));
        buffer
    }

    /// Returns the stream with this number, if it is still known.
    pub(crate) fn find(&self, stream: u64) -> Option<Arc<ReplayBuffer>> {
        if stream == SOLE_STREAM.0 {
            return Some(Arc::clone(&self.session_buffer));
        }
        self.table().buffers.get(&stream).cloned()
    }

    /// Whether a stream keeps an answer that its client has not taken but may still fetch.
    pub(crate) fn keeps_answers(&self) -> bool {
        let table = self.table();
        table.buffers.values().chain([&self.session_buffer]).any(|buffer| buffer.keeps_answers())
    }

    /// Sends a command to the relay; returns false if the session has ended.
    pub(crate) async fn send(&self, command: SessionCommand) -> bool {
        self.signals.mark_present();
        self.commands.send(command).await.is_ok()
    }

    /// Sends a command if the relay has room for it now; returns false otherwise.
    pub(crate) fn try_send(&self, command: SessionCommand) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Whether the session was ended by anything except its server.
    pub(crate) fn was_ended(&self) -> bool {
        self.signals.ended().is_some()
    }

    /// Whether the session accepts no more messages.
    pub(crate) fn is_over(&self) -> bool {
        self.commands.is_closed() || self.signals.ended().is_some()
    }

    /// Ends the session: its open requests get the error `why`, and its server is stopped.
    pub(crate) fn end(&self, why: Broken) {
        self.signals.end(why);
    }
}

impl StreamTable {
    /// Drops ended streams that no client can resume or that are beyond the limits, the oldest first.
    fn forget(&mut self) {
        let (mut count, mut bytes) = (0, 0);
        let mut gone = Vec::new();
        // Newest first, so that the oldest streams are the ones beyond the limits.
        for (number, buffer) in self.buffers.iter().rev().filter(|(_, buffer)| buffer.is_over()) {
            let resumable = buffer.resumable();
            count += usize::from(resumable.is_some());
            bytes += resumable.unwrap_or_default();
            if resumable.is_none() || count > ENDED_MAX || bytes > ENDED_BYTES_MAX {
                gone.push(*number);
            }
        }
        for number in gone {
            self.buffers.remove(&number);
        }
    }
}

/// The sessions of the server that has replaced another server on its route.
pub(crate) trait SessionHeir: Send + Sync {
    /// Whether a session of the previous server can continue here, if its client has sent nothing.
    fn adopts(&self, session: &BridgeSession) -> bool;
    /// Continues a session of the previous server; false if the limit on servers is reached, or it does not start.
    fn adopt(&self, session: &Arc<BridgeSession>, commands: mpsc::Receiver<SessionCommand>)
    -> bool;
    /// Answers a POST for a stream that was handed over while the request was on its way.
    fn post(self: Arc<Self>, parts: Parts, body: PostedBody) -> BoxFuture<'static, Response<Body>>;
}

/// The sessions of a route's bridge.
#[derive(Default)]
pub(crate) struct BridgeSessions {
    known: Mutex<HashMap<String, Arc<BridgeSession>>>,
    /// The sessions of the server that has replaced this one after a reload.
    heir: OnceLock<Weak<dyn SessionHeir>>,
    servers: AtomicUsize,
    /// The progress tokens that are active in these sessions.
    tokens: Arc<ActiveTokens>,
}

/// A permit for a session's server, which counts until it is dropped.
pub(crate) struct ServerPermit {
    sessions: Arc<BridgeSessions>,
    _running: InFlightGuard,
    /// The permits of the client whose request began the session: one for the session, one for the child.
    client: [Option<ClientPermit>; 2],
}

impl ServerPermit {
    /// Adds the permits of a client, whose limits count the session and its child too.
    pub(crate) fn count_for_client(&mut self, permits: [Option<ClientPermit>; 2]) {
        self.client = permits;
    }
}

impl Drop for ServerPermit {
    fn drop(&mut self) {
        self.sessions.servers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BridgeSessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<BridgeSession>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tokens of a new session, which are registered together with those of the other sessions.
    pub(crate) fn tokens(&self) -> SessionTokens {
        SessionTokens::new(&self.tokens)
    }

    /// Returns the number of sessions, and of the messages and bytes that are kept for their clients.
    pub(crate) fn load(&self) -> (usize, usize, usize) {
        // Copied, so that this lock is free when the locks of sessions and buffers are taken below.
        let sessions: Vec<Arc<BridgeSession>> = self.lock().values().cloned().collect();
        let (mut messages, mut bytes) = (0, 0);
        for session in &sessions {
            let table = session.table();
            for buffer in table.buffers.values().chain([&session.session_buffer]) {
                let state = buffer.lock();
                messages += state.messages.len();
                bytes += state.bytes;
            }
        }
        (sessions.len(), messages, bytes)
    }

    /// Returns a permit for one more server, if fewer than `max` of these sessions have one; `running` counts the
    /// servers of all routes.
    pub(crate) fn count(
        self: &Arc<Self>,
        max: usize,
        running: &Arc<InFlight>,
    ) -> Option<ServerPermit> {
        // Counted before the comparison, so that only one of two concurrent requests gets the last place.
        let before = self.servers.fetch_add(1, Ordering::Relaxed);
        let counted = ServerPermit {
            sessions: Arc::clone(self),
            _running: running.open(),
            client: [None, None],
        };
        // Beyond the limit `counted` is dropped, which subtracts it from the count again.
        (before < max).then_some(counted)
    }

    /// Returns a new session; `None` if the system gives no random bytes.
    pub(crate) fn begin(
        &self,
        kind: SessionKind,
        kept: &ByteShare,
        principal: Option<u64>,
        owner: Option<u64>,
        certificate: Option<ClientName>,
        client: Option<LimitedClient>,
    ) -> Option<(Arc<BridgeSession>, mpsc::Receiver<SessionCommand>)> {
        let (session, commands) =
            BridgeSession::new(random_id()?, kind, kept, principal, owner, certificate, client);
        self.enter(&session);
        Some((session, commands))
    }

    /// Adds a session to the table under its id.
    pub(crate) fn enter(&self, session: &Arc<BridgeSession>) {
        self.lock().insert(session.id.clone(), Arc::clone(session));
    }

    /// Returns the session with this id.
    pub(crate) fn find(&self, id: &[u8], kind: SessionKind) -> Option<Arc<BridgeSession>> {
        let id = std::str::from_utf8(id).ok()?;
        self.lock().get(id).filter(|session| session.kind == kind).cloned()
    }

    /// Whether there is a session with this id.
    pub(crate) fn knows(&self, id: &[u8]) -> bool {
        std::str::from_utf8(id).is_ok_and(|id| self.lock().contains_key(id))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Notes that the server of these sessions was replaced, and that `heir` has the sessions of the new server.
    pub(crate) fn set_heir(&self, heir: &Arc<impl SessionHeir + 'static>) {
        let heir = Arc::downgrade(heir);
        let _ = self.heir.set(heir);
    }

    /// Returns the sessions of the server that has replaced this one; `None` if it was not replaced.
    pub(crate) fn heir(&self) -> Option<Arc<dyn SessionHeir>> {
        self.heir.get()?.upgrade()
    }

    /// Wakes all sessions, because the state of their route has changed.
    pub(crate) fn wake_all(&self) {
        self.lock().values().for_each(|session| session.signals.wake());
    }

    pub(crate) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }
}

/// Returns the requests in a message: the key of each, and the text of its id.
pub(crate) fn requests(message: &Message) -> Vec<(Key, Bytes)> {
    use crate::protocol::jsonrpc::Kind;
    let of = |one: &Message| {
        let key = one.id_key().filter(|_| one.kind() == Kind::Request)?;
        // Copied, so that the id does not keep the whole request in memory.
        Some((key, Bytes::copy_from_slice(&one.id()?)))
    };
    match message.kind() {
        Kind::Batch => message.elements().filter_map(|one| of(&one)).collect(),
        _ => of(message).into_iter().collect(),
    }
}
