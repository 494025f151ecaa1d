//! HTTP for the commands that act as an MCP server on this machine: a listener, with the guard against web pages of
//! other sites that every listener of Milepost has.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, Stream};
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::config::routes::Server;
use crate::gateway::listen::admission::{admit, admit_body, admit_page};
use crate::gateway::mcp_server::{self, ServedBody, plain, serve_http1};
use crate::protocol::lines::INSPECT_MAX;
use crate::transport::http::via::Via;
use crate::transport::tasks;

/// Maximum number of concurrent connections to a command. Further connections wait.
const CONNECTIONS_MAX: usize = 1000;

/// The hosts under which a client reaches this machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Deadline for a client to send the head of a request; the same for its body.
const PATIENCE: Duration = Duration::from_secs(30);

/// The wait after a connection could not be accepted, for example because no descriptors are left.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

/// Answers whole requests.
pub(super) trait LocalService: Send + Sync + 'static {
    /// Answers a request. If the response is an event stream, its messages follow later.
    fn answer(&self, head: &Parts, body: Bytes) -> Response<ServedBody>;
}

/// A listening server. Dropping the value ends the server and every connection.
#[derive(Debug)]
pub(super) struct LocalServer {
    address: SocketAddr,
    running: AbortHandle,
}

impl LocalServer {
    /// Listens on an address, and answers requests with a service.
    ///
    /// # Errors
    /// If the address cannot be used, or the system has no random bytes.
    pub(super) async fn listen(
        address: SocketAddr,
        service: Arc<dyn LocalService>,
    ) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        // Allow any port in the `Host` header: a proxy on this machine may forward its client's header with another
        // port.
        let allowed_hosts = LOOPBACK.map(str::to_owned).to_vec();
        let server = Server { listen: address, allowed_hosts, ..Server::default() };
        let guard = Arc::new((server, Via::random().map_err(io::Error::other)?));
        let running = tasks::spawn(serve(socket, address, guard, service)).abort_handle();
        Ok(Self { address, running })
    }

    /// Returns the URL of a path, with the port that the system has chosen.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn serve(
    socket: TcpListener,
    address: SocketAddr,
    guard: Arc<(Server, Via)>,
    service: Arc<dyn LocalService>,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        let Ok((stream, _)) = socket.accept().await else {
            sleep(ACCEPT_WAIT).await;
            continue;
        };
        // Disable Nagle's algorithm, because each small piece must be sent immediately.
        let _ = stream.set_nodelay(true);
        let address = stream.local_addr().unwrap_or(address);
        tasks::spawn_in(
            &mut connections,
            converse(Arc::clone(&service), Arc::clone(&guard), address, stream),
        );
    }
}

async fn converse(
    service: Arc<dyn LocalService>,
    guard: Arc<(Server, Via)>,
    address: SocketAddr,
    stream: TcpStream,
) {
    let answer = |request| {
        let (service, guard) = (Arc::clone(&service), Arc::clone(&guard));
        async move { respond(&*service, &guard, address, request).await }.boxed()
    };
    // Ignore the error: a client that disconnects early is not an event here.
    let _ = serve_http1(Box::new(stream), Some(PATIENCE), &answer).await;
}

async fn respond(
    service: &dyn LocalService,
    (server, via): &(Server, Via),
    address: SocketAddr,
    request: Request<Incoming>,
) -> Response<ServedBody> {
    let (head, body) = request.into_parts();
    let admitted = admit(server, via, address, &head)
        .and_then(|()| admit_page(server, &head))
        .and_then(|()| admit_body(server, &head));
    if let Err(refusal) = admitted {
        return refusal.response(&head.method).map(BodyExt::boxed_unsync);
    }
    match timeout(PATIENCE, Limited::new(body, INSPECT_MAX).collect()).await {
        Ok(Ok(body)) => service.answer(&head, body.to_bytes()),
        Ok(Err(_)) => plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
        Err(_) => plain(StatusCode::REQUEST_TIMEOUT, "the body did not come"),
    }
}

/// Returns a response with a stream of events, which must not be cached.
pub(super) fn event_stream(
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> Response<ServedBody> {
    let mut response = mcp_server::event_stream(events);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Locks state that connections share. No code panics while it holds the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Values by name, such as a server's sessions. Beyond `max` values the oldest is removed.
pub(super) struct NewestValues<K, V> {
    max: usize,
    all: Mutex<VecDeque<(K, V)>>,
}

impl<K, V: Clone> NewestValues<K, V> {
    pub(super) fn new(max: usize) -> Self {
        Self { max, all: Mutex::default() }
    }

    /// Adds a value. Returns the oldest value if the limit is exceeded.
    pub(super) fn insert(&self, name: K, value: V) -> Option<V> {
        let mut all = lock(&self.all);
        all.push_back((name, value));
        if all.len() > self.max { all.pop_front().map(|(_, oldest)| oldest) } else { None }
    }

    /// Returns the value with this name.
    pub(super) fn find<Q: ?Sized>(&self, name: &Q) -> Option<V>
    where
        K: PartialEq<Q>,
    {
        lock(&self.all).iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    /// Removes the value with this name.
    pub(super) fn remove<Q: ?Sized>(&self, name: &Q) -> Option<V>
    where
        K: PartialEq<Q>,
    {
        let mut all = lock(&self.all);
        let at = all.iter().position(|(own, _)| own == name)?;
        all.remove(at).map(|(_, value)| value)
    }
}
