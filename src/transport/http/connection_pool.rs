//! The connections to the server of a route.
//!
//! The task that reads a response also drives its HTTP/1 connection, so that no other task and no channel is between
//! the server's bytes and the client's. When a client disconnects, its HTTP/1 connection ends with the response. HTTP/2
//! connections are shared and each has its own task.

mod idle_links;

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::poll_fn;
use http::{Request, Response, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until, timeout};

use self::idle_links::{IdleLinks, PROVEN_AFTER};
use super::client::{Connector, UpstreamBody, UpstreamError};
use super::http1::body::Http1Body;
use super::http1::link::Http1Link;
use super::http2_connections::{Http2Connections, Http2Stream, OpenError};
use super::io::Io;
use crate::observe::metrics::{ServerNotice, Traffic};
use crate::transport::http::request_body::{BodyFault, RequestBody};
use crate::transport::tasks;

/// The time within which the failure of a request on a reused connection means that the server had closed the idle
/// connection. After a longer time the server may have begun to handle the request.
const CLOSED_WITHIN: Duration = Duration::from_millis(500);

/// The time beyond `connect_timeout` in which a connection attempt of another task can still report why it failed.
const CONNECT_GRACE: Duration = Duration::from_millis(50);

/// Limit of the times that a request is sent again after an HTTP/2 server provably did not take it. Then it fails.
const SENT_AGAIN_MAX: usize = 8;

/// What is known about a connection that has served requests before.
#[derive(Clone, Copy)]
struct Reuse {
    /// The time for which the connection was idle before.
    idle: Duration,
    at: Instant,
}

/// The server of a route, and its unused connections.
pub(crate) struct ConnectionPool {
    connector: Connector,
    connect_timeout: Duration,
    traffic: Traffic,
    idle: Mutex<IdleLinks<Box<Http1Link>>>,
    shared: Arc<Http2Connections>,
    /// Held while an HTTP/2 connection begins, so that requests that come meanwhile can use a stream on it.
    beginning: Arc<tokio::sync::Mutex<()>>,
    /// Whether the server chose HTTP/1 when HTTP/2 was offered.
    chose_http1: AtomicBool,
}

/// A request that got no response.
pub(crate) struct FailedRequest {
    pub(crate) error: UpstreamError,
    /// The request, if no connection could be made for it.
    pub(crate) unsent: Option<Box<Request<RequestBody>>>,
}

impl From<UpstreamError> for FailedRequest {
    fn from(error: UpstreamError) -> Self {
        Self { error, unsent: None }
    }
}

enum Connected {
    One(Box<Http1Link>),
    Shared(Http2Stream),
}

impl ConnectionPool {
    /// Returns a pool without connections. `traffic` counts the bytes of connections.
    pub(crate) fn new(connector: Connector, connect_timeout: Duration, traffic: &Traffic) -> Self {
        // Inside this process a closed connection is noticed at once, so connections can be reused without proof that
        // the server keeps them open.
        let links = match connector {
            Connector::InProcess(_) => IdleLinks::proven(),
            Connector::Network(_) => IdleLinks::new(),
        };
        let (traffic, idle) = (traffic.clone(), Mutex::new(links));
        let (shared, beginning, chose_http1) = Default::default();
        Self { connector, connect_timeout, traffic, idle, shared, beginning, chose_http1 }
    }

    /// Sends a request to the server and waits for the head of the response. A request that an HTTP/2 server provably
    /// did not process is sent again; any other is not.
    ///
    /// # Errors
    /// If no connection can be made, or the connection fails before the head arrives.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        self.try_send(request).await.map_err(|failed| failed.error)
    }

    /// Sends a request as [`ConnectionPool::send`] does. If no connection can be made, the error contains the request.
    ///
    /// # Errors
    /// As for [`ConnectionPool::send`].
    pub(crate) async fn try_send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, FailedRequest> {
        let mut left = SENT_AGAIN_MAX;
        loop {
            let (reuse, idle) = self.take_idle().unzip();
            let connected = match idle {
                Some(link) => Connected::One(link),
                // Boxed: connecting is rare, and would make the future of every call larger.
                None => match Box::pin(self.connect()).await {
                    Ok(connected) => connected,
                    Err(error) => {
                        return Err(FailedRequest { error, unsent: Some(Box::new(request)) });
                    }
                },
            };
            let stream = match connected {
                Connected::One(link) => {
                    self.address(&mut request);
                    return self.ask(link, request, reuse).await.map_err(FailedRequest::from);
                }
                Connected::Shared(stream) => stream,
            };
            // hyper's error does not say why a body could not be read, so the reason is kept here.
            let fault = request.body().fault();
            match Box::pin(stream.send(request)).await {
                Ok((response, stream)) => {
                    return Ok(response.map(|body| UpstreamBody::http2(body, stream)));
                }
                Err(failed) => match failed.request {
                    // The server provably did not process the request (`Http2Stream::send`).
                    Some(untaken) if left > 0 => {
                        left -= 1;
                        request = untaken;
                    }
                    _ => return Err(cause(failed.error, fault.as_ref()).into()),
                },
            }
        }
    }

    /// Sends a request on an HTTP/1.1 connection that was just found open.
    fn ask(
        self: &Arc<Self>,
        mut link: Box<Http1Link>,
        request: Request<RequestBody>,
        reuse: Option<Reuse>,
    ) -> impl Future<Output = Result<Response<UpstreamBody>, UpstreamError>> {
        link.begin(request);
        async move {
            let (head, data) = poll_fn(|cx| link.poll_head(cx)).await.map_err(|error| {
                let error = error.into();
                self.note_unanswered(reuse, &error);
                error
            })?;
            link.promised.note_response(head.headers());
            // This was not requested: Milepost never forwards `Upgrade`, and HTTP/2 does not have this status.
            if head.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Err(UpstreamError::Switched);
            }
            self.check_status(head.status())?;
            Ok(head.map(|()| UpstreamBody::http1(Http1Body::new(link, data), self)))
        }
    }

    /// Rewrites an HTTP/1.1 request to the form that the next hop expects, also if HTTP/2 was offered and not chosen.
    fn address(&self, request: &mut Request<RequestBody>) {
        if let Connector::Network(dialer) = &self.connector {
            dialer.address(request);
        }
    }

    /// Returns an error if the response comes from a proxy on the way and not from the server.
    fn check_status(&self, status: StatusCode) -> Result<(), UpstreamError> {
        match &self.connector {
            Connector::Network(dialer) => {
                dialer.refusal(status).map_or(Ok(()), |error| Err(error.into()))
            }
            Connector::InProcess(_) => Ok(()),
        }
    }

    /// Returns an idle connection that is open, and for how long it was idle.
    fn take_idle(&self) -> Option<(Reuse, Box<Http1Link>)> {
        loop {
            let at = Instant::now();
            // The lock is released before `is_open`, which polls the connection and makes a system call.
            let (idle, mut link) = self.idle.lock().ok()?.take(at)?;
            if !link.is_open() {
                self.note_closed(idle);
                continue;
            }
            if idle >= PROVEN_AFTER {
                self.idle.lock().ok()?.note_open(idle);
            }
            return Some((Reuse { idle, at }, link));
        }
    }

    /// Notes that a request got no response: the server may have closed the connection while it was idle.
    fn note_unanswered(&self, reuse: Option<Reuse>, error: &UpstreamError) {
        if let Some(Reuse { idle, at }) = reuse
            && at.elapsed() < CLOSED_WITHIN
            // A body that the client broke off says nothing about the server.
            && !matches!(error, UpstreamError::RequestBody(_))
        {
            self.note_closed(idle);
        }
    }

    fn note_closed(&self, idle: Duration) {
        self.traffic.notice(ServerNotice::ClosedEarly);
        if self.idle.lock().is_ok_and(|mut links| links.note_closed(Instant::now(), idle)) {
            tracing::warn!(
                server = self.name(),
                "the server closes idle connections early; for a minute each request gets a connection of its own \
                 (let the server keep idle connections for 5 s or longer, or say \"Connection: close\")"
            );
        }
    }

    /// Keeps a connection for the next request, if it can be used again.
    pub(super) fn keep(self: &Arc<Self>, mut link: Box<Http1Link>) {
        if link.is_idle()
            && let Ok(mut idle) = self.idle.lock()
        {
            let promised = link.promised;
            idle.keep(Instant::now(), link, &promised);
            if !idle.is_watched
                && idle.next_close().is_some()
                && let Ok(runtime) = Handle::try_current()
            {
                // The task holds a `Weak`, so that a pool that is dropped closes its connections immediately.
                idle.is_watched = true;
                runtime.spawn(Self::close_idle(Arc::downgrade(self)).boxed());
            }
        }
    }

    /// Closes connections that have been idle for long enough, until none is left.
    async fn close_idle(pool: Weak<Self>) {
        loop {
            let due = {
                let Some(pool) = pool.upgrade() else { return };
                let Ok(mut idle) = pool.idle.lock() else { return };
                idle.close_old(Instant::now());
                let Some(due) = idle.next_close() else {
                    idle.is_watched = false;
                    return;
                };
                due
            };
            sleep_until(due).await;
        }
    }

    async fn connect(self: &Arc<Self>) -> Result<Connected, UpstreamError> {
        let offers_http2 = match &self.connector {
            Connector::InProcess(connect) => {
                let io = connect().await.map_err(|source| self.unconnected(source))?;
                return Ok(self.one(io));
            }
            Connector::Network(dialer) => dialer.offers_http2(),
        };
        loop {
            if offers_http2
                && !self.chose_http1.load(Ordering::Relaxed)
                && let Some(connected) = self.stream().await?
            {
                return Ok(connected);
            }
            let (io, is_http2) = self.connect_tcp().await?;
            if !is_http2 {
                return Ok(self.one(io));
            }
            // An earlier connection had HTTP/1.1, but on this one the server has chosen HTTP/2.
            self.chose_http1.store(false, Ordering::Relaxed);
            self.begin_shared(io).await?;
        }
    }

    /// Returns an HTTP/1 connection over `io`.
    fn one(&self, io: Io) -> Connected {
        Connected::One(Box::new(Http1Link::new(Box::new(self.traffic.over(io)))))
    }

    /// Connects to the server. Returns whether the connection uses HTTP/2.
    async fn connect_tcp(&self) -> Result<(Io, bool), UpstreamError> {
        match &self.connector {
            Connector::Network(dialer) => Ok(dialer.connect(self.connect_timeout).await?),
            Connector::InProcess(_) => Err(self.unconnected(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Returns a stream of an HTTP/2 connection, which is a new one if all others are full. If no more connections can
    /// be opened, waits until another stream ends, for at most the time that connecting may take. `None` if the server
    /// has chosen HTTP/1.
    async fn stream(self: &Arc<Self>) -> Result<Option<Connected>, UpstreamError> {
        // The grace lets a connection attempt that begins here fail first, because its error names the addresses.
        let deadline = Instant::now() + self.connect_timeout + CONNECT_GRACE;
        let (mut begun, mut failed) = (None, None);
        loop {
            let mut changed = pin!(self.shared.changed());
            // Registered before the streams are checked, so that the end of a stream in between is not missed.
            changed.as_mut().enable();
            if let Some(stream) = self.shared.stream() {
                return Ok(Some(Connected::Shared(stream)));
            }
            // A request whose own attempt is running waits for it, because it may bring an HTTP/1.1 connection.
            if begun.is_none() && self.chose_http1.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if begun.is_none()
                && failed.is_none()
                && self.shared.has_room()
                && let Ok(beginning) = Arc::clone(&self.beginning).try_lock_owned()
            {
                // Another request may have opened a connection before this lock was taken.
                if let Some(stream) = self.shared.stream() {
                    return Ok(Some(Connected::Shared(stream)));
                }
                // A task, because the connection also serves other requests if the client of this request disconnects.
                begun = Some(tasks::spawn(Arc::clone(self).begin(beginning)));
            }
            let result = async {
                match &mut begun {
                    Some(task) => task
                        .await
                        .unwrap_or_else(|error| Err(self.unconnected(io::Error::other(error)))),
                    None => pending().await,
                }
            };
            let result = tokio::select! {
                result = result => result,
                () = changed => continue,
                () = sleep_until(deadline) => {
                    let full = || UpstreamError::StreamsFull(self.connect_timeout);
                    let is_alone = self.shared.is_empty();
                    return Err(failed.unwrap_or_else(|| if is_alone { self.late() } else { full() }));
                }
            };
            begun = None;
            match result {
                Ok(None) => {}
                Ok(link) => return Ok(link),
                Err(error) if self.shared.is_empty() => return Err(error),
                // There are other connections, and the server may limit their number, so wait for a stream.
                Err(error) => failed = Some(error),
            }
        }
    }

    /// Begins an HTTP/2 connection. Returns an HTTP/1 connection if the server chooses HTTP/1.
    async fn begin(
        self: Arc<Self>,
        beginning: OwnedMutexGuard<()>,
    ) -> Result<Option<Connected>, UpstreamError> {
        let begun = async {
            let (io, is_http2) = self.connect_tcp().await?;
            self.chose_http1.store(!is_http2, Ordering::Relaxed);
            if is_http2 {
                self.begin_shared(io).await.map(|()| None)
            } else {
                Ok(Some(self.one(io)))
            }
        };
        let begun = begun.await;
        // Released before the wake-up, because a request that is woken may have to begin the next connection.
        drop(beginning);
        self.shared.notify();
        begun
    }

    /// Begins an HTTP/2 connection over `io`, which later requests share.
    async fn begin_shared(&self, io: Io) -> Result<(), UpstreamError> {
        match timeout(self.connect_timeout, self.shared.begin(self.traffic.over(io))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(OpenError::Http(error))) => Err(error.into()),
            Ok(Err(OpenError::Closed)) => {
                Err(self.unconnected(io::ErrorKind::UnexpectedEof.into()))
            }
            Err(_) => Err(self.late()),
        }
    }

    fn unconnected(&self, source: io::Error) -> UpstreamError {
        UpstreamError::Connect { to: self.name(), source }
    }

    fn late(&self) -> UpstreamError {
        UpstreamError::ConnectTimeout { to: self.name(), within: self.connect_timeout }
    }

    /// Returns the counters of the server's traffic.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Returns the host and port of the server, for people.
    pub(crate) fn name(&self) -> String {
        match &self.connector {
            Connector::Network(dialer) => dialer.name(),
            Connector::InProcess(_) => "the embedded server".to_owned(),
        }
    }
}

/// Returns why a request failed: because of its own body, or because of the connection.
fn cause(error: hyper::Error, fault: Option<&BodyFault>) -> UpstreamError {
    match fault.and_then(|fault| fault.get()) {
        Some(unread) => UpstreamError::RequestBody(unread.clone()),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests;
