//! A listening socket and its connections.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use http::Request;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error};

use super::connection::{AnswerFuture, ConnectionEnd, HEAD, Http};
use super::handler::Peer;
use super::idle::IdleRule;
use super::last_use::{LastUse, SilentConnections};
use super::shortage::{Shortage, is_of_one_connection};
use crate::config::values::ip_net::IpNet;
use crate::gateway::client_limits::{ClientLimits, ClientPermit, OverLimit};
use crate::observe::metrics::{ConnectionCounts, Traffic};
use crate::platform::sockets::limit_waiting;
use crate::transport::child::is_reserved;
use crate::transport::http::client_name::ClientName;
use crate::transport::http::io::Io;
use crate::transport::http::refusal::Refusal;
use crate::transport::http::tcp::notice_vanished_peer;
use crate::transport::http::write_state::WriteState;
use crate::transport::tasks;

/// The pause before the next accept after the system had no room for another connection. The shortage lasts for some
/// time, and an immediate retry would only take time from the open connections.
const NO_ROOM: Duration = Duration::from_millis(100);

/// Limit of connections that are told at the same time why they are refused: beyond `max_connections`, or beyond the
/// limit of a client. Further ones are closed without an answer.
const TURNED_AWAY_MAX: usize = 64;

/// Number of permits of [`TURNED_AWAY_MAX`] that a refused connection takes if only reserved descriptors are left. It
/// takes more then, so that the reserve suffices for operators.
const TURNED_AWAY_WITHOUT_DESCRIPTOR: u32 = 16;

/// Limit of the connections that are accepted from the queue after a listener has lingered, before its socket closes.
const LAST_ACCEPTED_MAX: usize = 1024;

/// The time that a refused client has to read the refusal.
const TURNING_AWAY: Duration = Duration::from_secs(1);

/// The phase of the listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListenPhase {
    /// Requests are served.
    Serving,
    /// Requests are served, but the listener reports that it is not ready.
    Lingering,
    /// No new connection is accepted, and open requests are finished.
    Draining,
    /// Every connection is cut.
    Over,
}

/// Waits until this phase begins, or until the sender of phases is dropped.
pub(super) async fn wait_for_phase(phases: &mut watch::Receiver<ListenPhase>, phase: ListenPhase) {
    let _ = phases.wait_for(|now| *now >= phase).await;
}

/// Waits for the phase in which only open requests continue. Returns whether the listener has lingered before: clients
/// have then been asked to leave, but those that connect nevertheless are served.
async fn wait_for_drain(phases: &mut watch::Receiver<ListenPhase>) -> bool {
    let now = phases.wait_for(|now| *now >= ListenPhase::Lingering).await;
    let lingers = now.is_ok_and(|now| *now == ListenPhase::Lingering);
    wait_for_phase(phases, ListenPhase::Draining).await;
    lingers
}

/// A listening socket, with the terms for its connections.
pub(super) struct HttpListener {
    socket: TcpListener,
    terms: Arc<ArcSwap<ConnectionTerms>>,
    open: Arc<AtomicUsize>,
    silent: Option<SilentConnections>,
    /// Whether connections may use the reserved descriptors.
    is_for_operators: bool,
    shortage: Shortage,
}

/// The settings for new connections.
#[derive(Clone)]
pub(super) struct ConnectionTerms {
    tls: Option<TlsAcceptor>,
    http: Http,
    connections_max: usize,
    /// The limits of each client, and the fronts, to which they do not apply.
    clients: Option<(Arc<ClientLimits>, Arc<[IpNet]>)>,
}

impl ConnectionTerms {
    /// Returns terms with limits for connections and for the bytes of a head. `traffic` counts the bytes.
    pub(super) fn new(
        tls: Option<TlsAcceptor>,
        (connections_max, head_bytes_max): (usize, usize),
        traffic: Traffic,
    ) -> Self {
        Self { tls, http: Http::new(head_bytes_max, traffic), connections_max, clients: None }
    }

    /// Returns these terms with limits for each client except `fronts`.
    pub(super) fn limiting(self, clients: &Arc<ClientLimits>, fronts: &[IpNet]) -> Self {
        Self { clients: Some((Arc::clone(clients), Arc::from(fronts))), ..self }
    }

    /// Returns these terms with the idle times of `idle`, after which connections are closed.
    pub(super) fn ending_idle(self, idle: IdleRule) -> Self {
        Self { http: self.http.ending_idle(idle), ..self }
    }

    /// Counts a connection of a client; `None` if no limit applies to it.
    fn admit(&self, remote: SocketAddr) -> Result<Option<ClientPermit>, OverLimit> {
        let limits = self.clients.as_ref();
        limits.map_or(Ok(None), |(limits, fronts)| limits.connect(remote.ip(), fronts))
    }
}

/// A permit for a connection, which counts until it is dropped.
struct Room {
    open: Arc<AtomicUsize>,
    _client: Option<ClientPermit>,
}

impl Room {
    /// Counts one more connection. Returns its permit, and whether fewer than `max` others are open.
    fn take(open: &Arc<AtomicUsize>, max: usize, client: Option<ClientPermit>) -> (Self, bool) {
        let before = open.fetch_add(1, Ordering::Relaxed);
        (Self { open: Arc::clone(open), _client: client }, before < max)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HttpListener {
    /// Returns a listener on `socket`, with these terms for its connections.
    pub(super) fn new(socket: TcpListener, terms: ConnectionTerms) -> Self {
        let terms = Arc::new(ArcSwap::from_pointee(terms));
        Self {
            socket,
            terms,
            open: Arc::default(),
            silent: None,
            is_for_operators: false,
            shortage: Shortage::default(),
        }
    }

    /// Returns the listener changed so that, when it is full and another connection arrives, it closes the connection
    /// that was idle for longest. `count` is called for each closed connection.
    pub(super) fn closing_silent(self, count: impl Fn() + Send + Sync + 'static) -> Self {
        Self { silent: Some(SilentConnections::new(count)), ..self }
    }

    /// Returns the listener with counters for connections that are turned away.
    pub(super) fn counting(self, counts: ConnectionCounts) -> Self {
        Self { shortage: Shortage::counted(counts), ..self }
    }

    /// Returns the listener for operators, which serves connections even if only the reserved descriptors are left.
    pub(super) fn for_operators(self) -> Self {
        Self { is_for_operators: true, ..self }
    }

    /// Returns the terms for connections, which can be exchanged.
    pub(super) fn terms(&self) -> Arc<ArcSwap<ConnectionTerms>> {
        Arc::clone(&self.terms)
    }

    /// Returns the address of the listening socket.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until the phase ends, and returns the number of connections that had to be cut.
    pub(super) async fn serve(
        mut self,
        answer: Arc<PeerAnswerer>,
        mut phase: watch::Receiver<ListenPhase>,
    ) -> usize {
        let mut connections = JoinSet::new();
        let server = ConnectionServer {
            answer,
            stop: phase.clone(),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
        };
        let lingered = loop {
            let accepted = tokio::select! {
                // `biased`: once the listener drains, it accepts no connection, however many wait.
                biased;
                lingered = wait_for_drain(&mut phase) => break lingered,
                Some(ended) = connections.join_next() => {
                    note_panic(ended);
                    continue;
                }
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => {
                    // Read here: the phase may change before the task of the connection reads it.
                    let phase = *server.stop.borrow();
                    self.admit(&server, accepted, phase, &mut connections);
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    self.shortage.note(&error);
                    sleep(NO_ROOM).await;
                }
            }
        };
        if lingered {
            // When a socket is closed, the system resets the connections in its queue, so those are accepted first.
            for _ in 0..LAST_ACCEPTED_MAX {
                let Ok((stream, remote)) = socket2::SockRef::from(&self.socket).accept() else {
                    break;
                };
                let stream = std::net::TcpStream::from(stream);
                let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                if let (Ok(stream), Some(remote)) = (ready, remote.as_socket()) {
                    self.admit(&server, (stream, remote), ListenPhase::Lingering, &mut connections);
                }
            }
        }
        // Closed immediately, so that no client waits in the queue of a listener that accepts no more connections.
        drop(self.socket);
        finish(connections, phase).await
    }

    /// Serves a connection that was accepted, or turns its client away.
    fn admit(
        &mut self,
        server: &ConnectionServer,
        (stream, remote): (TcpStream, SocketAddr),
        phase: ListenPhase,
        connections: &mut JoinSet<()>,
    ) {
        let terms = ConnectionTerms::clone(&self.terms.load());
        if !self.is_for_operators && is_reserved(&stream) {
            return self.turn_away_without_descriptor(server, stream, &terms, connections);
        }
        self.shortage.end();
        let room = self.room(&terms, remote);
        let ConnectionTerms { tls, http, .. } = terms;
        let why = match room {
            Ok(room) => {
                let last_use = self.silent.as_ref().map(SilentConnections::first_use);
                let connection = AcceptedConnection {
                    stream,
                    remote,
                    tls,
                    http,
                    room,
                    last_use: last_use.clone(),
                    lingered: phase == ListenPhase::Lingering,
                };
                let run = connection.run(server.answer.clone(), server.stop.clone());
                let task = tasks::spawn_in(connections, run);
                if let (Some(silent), Some(last_use)) = (&mut self.silent, last_use) {
                    silent.add(last_use, task);
                }
                return;
            }
            Err(why) => why,
        };
        // Over TLS the reason would need a handshake, so such a connection is closed without it.
        if let Ok(place) = Arc::clone(&server.turned_away).try_acquire_owned()
            && tls.is_none()
        {
            tasks::spawn_in(connections, refuse(stream, why, place));
        }
    }

    /// Handles a connection when only the descriptors reserved for operators are left: a few clients at a time are told
    /// the reason, and the connections of others are closed.
    fn turn_away_without_descriptor(
        &mut self,
        server: &ConnectionServer,
        stream: TcpStream,
        terms: &ConnectionTerms,
        connections: &mut JoinSet<()>,
    ) {
        self.shortage.note_reserve();
        let places = Arc::clone(&server.turned_away);
        if let Ok(places) = places.try_acquire_many_owned(TURNED_AWAY_WITHOUT_DESCRIPTOR)
            && terms.tls.is_none()
        {
            tasks::spawn_in(connections, refuse(stream, TurnedAway::Busy, places));
        }
    }

    /// Returns a permit for a connection from `remote`, or the reason why there is none.
    fn room(&mut self, terms: &ConnectionTerms, remote: SocketAddr) -> Result<Room, TurnedAway> {
        let client = terms.admit(remote).map_err(|over| {
            over.tell();
            TurnedAway::OverLimit(over)
        })?;
        let (room, is_free) = Room::take(&self.open, terms.connections_max, client);
        // When all places are taken, an idle connection is closed to make room.
        let is_free = is_free || self.silent.as_mut().is_some_and(SilentConnections::close_one);
        if is_free {
            return Ok(room);
        }
        if !self.is_for_operators {
            self.shortage.note_full(terms.connections_max);
        }
        Err(TurnedAway::Busy)
    }
}

/// Answers the requests of a listener.
pub(super) type PeerAnswerer = dyn Fn(Peer, Request<Incoming>) -> AnswerFuture + Send + Sync;

/// The state that the connections of a listener share.
struct ConnectionServer {
    answer: Arc<PeerAnswerer>,
    stop: watch::Receiver<ListenPhase>,
    turned_away: Arc<Semaphore>,
}

/// The reason why a connection is not served.
enum TurnedAway {
    /// The listener serves as many connections as it may.
    Busy,
    /// The client has reached its limit of connections.
    OverLimit(OverLimit),
}

impl TurnedAway {
    /// Returns the status line and the text for a refused client.
    fn answer(&self) -> (&'static str, String) {
        match self {
            Self::Busy => ("503 Service Unavailable", Refusal::Busy.text()),
            Self::OverLimit(over) => ("429 Too Many Requests", over.to_string()),
        }
    }
}

/// Waits for connections that end by themselves, and cuts the remaining ones at the end.
async fn finish(mut connections: JoinSet<()>, mut phase: watch::Receiver<ListenPhase>) -> usize {
    loop {
        tokio::select! {
            ended = connections.join_next() => match ended {
                Some(ended) => note_panic(ended),
                None => return 0,
            },
            () = wait_for_phase(&mut phase, ListenPhase::Over) => {
                let cut = connections.len();
                connections.shutdown().await;
                return cut;
            }
        }
    }
}

/// Logs a panic. It has ended only the connection in which it happened.
fn note_panic(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        error!("a connection has failed by a fault of ours");
    }
}

struct AcceptedConnection {
    stream: TcpStream,
    remote: SocketAddr,
    tls: Option<TlsAcceptor>,
    http: Http,
    room: Room,
    last_use: Option<LastUse>,
    /// Whether the listener lingered, or had lingered, when it accepted the connection.
    lingered: bool,
}

impl AcceptedConnection {
    async fn run(self, answer: Arc<PeerAnswerer>, mut phase: watch::Receiver<ListenPhase>) {
        let Self { stream, remote, tls, http, room, last_use, lingered } = self;
        // Without a local address the connection is already closed.
        let Ok(local) = stream.local_addr() else { return };
        tune(&stream);
        let (secure, write_state) = (tls.is_some(), WriteState::default());
        let secured = tokio::select! {
            secured = secured(stream, tls, remote) => secured,
            false = wait_for_drain(&mut phase), if secure && !lingered => return,
        };
        let ended = match secured {
            Ok((io, name)) => {
                let write = write_state.clone();
                let client = Peer { remote, local, secure, name, write_state: write, last_use };
                let answer = |request| {
                    client.last_use.iter().for_each(LastUse::renew);
                    answer(client.clone(), request)
                };
                let stop = wait_for_drain(&mut phase).map(|lingers| lingers || lingered);
                Box::pin(http.converse(io, write_state, &answer, pin!(stop))).await
            }
            Err(ended) => ended,
        };
        drop(room);
        debug!(ended = ended.name(), from = %remote.ip(), "connection over");
    }
}

/// Returns the connection for HTTP, with TLS or without, and the name in the client's certificate.
async fn secured(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    remote: SocketAddr,
) -> Result<(Io, Option<ClientName>), ConnectionEnd> {
    let Some(tls) = tls else { return Ok((Box::new(stream), None)) };
    match Box::pin(timeout(HEAD, tls.accept(stream))).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates();
            let name = shown.and_then(<[_]>::first).map(ClientName::of_certificate);
            Ok((Box::new(stream), name))
        }
        Ok(Err(error)) => {
            debug!(%error, from = %remote.ip(), "no TLS");
            Err(ConnectionEnd::NoTls)
        }
        Err(_) => Err(ConnectionEnd::TooSlow),
    }
}

/// Sets options of a socket. Errors are ignored: the connection works without the options too.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    notice_vanished_peer(stream);
    limit_waiting(stream);
}

/// Answers a client that the listener cannot serve because it is full.
async fn refuse(mut stream: TcpStream, why: TurnedAway, _place: OwnedSemaphorePermit) {
    let (status, text) = why.answer();
    let text = format!("milepost: {text}\n");
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let tell = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // If a connection is closed with unread bytes, the system resets it, and the client may lose the answer.
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(TURNING_AWAY, tell).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_has_gone_is_noticed() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(socket.local_addr().unwrap()).await.unwrap();
        let (stream, _) = socket.accept().await.unwrap();
        tune(&stream);
        assert!(stream.nodelay().unwrap());
        let options = socket2::SockRef::from(&stream);
        assert!(options.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(options.tcp_user_timeout().unwrap(), Some(Duration::from_mins(5)));
            assert_eq!(options.tcp_notsent_lowat().unwrap(), 16 << 10);
        }
    }
}
