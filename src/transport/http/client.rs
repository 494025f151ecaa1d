//! Connections to the server of a route.
//!
//! The reader of a response drives its HTTP/1 connection, in the same task: there is no task and no
//! channel between the server's bytes and the client's, and when a client leaves, the connection
//! ends with its response. HTTP/2 connections are shared and have a task of their own.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::observe::error_chain::error_chain;
use crate::observe::metrics::Traffic;
use crate::transport::http::request_body::{BodyFault, RequestBody, RequestBodyError};

/// Unused connections kept open to one server.
const IDLE_MAX: usize = 64;

/// The time that an idle connection is kept: servers commonly close idle connections after 5 s, and a
/// request that meets the close is lost.
const IDLE_FOR: Duration = Duration::from_secs(3);

/// Bytes that one connection buffers in each direction. A client that reads slowly costs no more.
const BUFFER_MAX: usize = 64 << 10;

/// Anything that bytes go over.
pub trait IoStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> IoStream for T {}

/// A connected byte stream.
pub type Io = Box<dyn IoStream>;

/// Makes connections inside this process.
pub type InProcess = Arc<dyn Fn() -> BoxFuture<'static, io::Result<Io>> + Send + Sync>;

/// The way to open a connection to a route's server.
#[derive(Clone)]
pub(crate) enum Connector {
    /// Over the network.
    Tcp {
        /// The name or address of the server.
        host: String,
        /// The port of the server.
        port: u16,
        /// With TLS, and as whom the server has to show itself.
        tls: Option<(TlsConnector, ServerName<'static>)>,
        /// HTTP/2 is spoken without having been negotiated.
        http2: bool,
    },
    /// Within this process.
    InProcess(InProcess),
}

/// The reason why a server could not be reached, or did not answer in full.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The connection to the server cannot be made.
    #[error("cannot connect to {to}")]
    Connect {
        /// Host and port.
        to: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Connecting took too long.
    #[error("cannot connect to {to} within {within:?}")]
    ConnectTimeout {
        /// Host and port.
        to: String,
        /// The time that was allowed.
        within: Duration,
    },
    /// The connection failed, or its bytes are not HTTP.
    #[error("the connection to the server failed")]
    Http(#[from] hyper::Error),
    /// The compressed body cannot be read.
    #[error("the server's compressed response cannot be read")]
    Compressed(#[source] io::Error),
    /// The client's request has no end, or is too long.
    #[error(transparent)]
    RequestBody(RequestBodyError),
    /// We ended it.
    #[error("{0}")]
    BrokenOff(&'static str),
    /// The server sent nothing for too long.
    #[error("the server sent nothing for {0:?}")]
    Idle(Duration),
    /// The server switched to another protocol without a request.
    #[error("the server switched to another protocol without a request")]
    Switched,
}

impl UpstreamError {
    /// The error and its causes for clients of others: without the address of the server.
    pub(crate) fn for_clients(&self) -> String {
        match self {
            Self::Connect { source, .. } => format!("cannot connect to the server: {source}"),
            Self::ConnectTimeout { within, .. } => {
                format!("cannot connect to the server within {within:?}")
            }
            other => error_chain(other),
        }
    }

    /// The name in metrics; `None` if Milepost itself is the cause.
    pub(crate) fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Connect { .. } => Some("connect"),
            Self::ConnectTimeout { .. } => Some("connect-timeout"),
            Self::Http(_) | Self::Switched => Some("http"),
            Self::Compressed(_) => Some("compressed"),
            Self::Idle(_) => Some("idle"),
            Self::RequestBody(_) | Self::BrokenOff(_) => None,
        }
    }
}

/// A request that is being sent, until there is a head.
pub(crate) type Sending = BoxFuture<'static, Result<Response<UpstreamBody>, UpstreamError>>;

type Http1Connection = http1::Connection<TokioIo<Io>, RequestBody>;

/// An HTTP/1 connection that is driven by its user.
struct Http1Link {
    sender: http1::SendRequest<RequestBody>,
    /// The connection; `None` after its end.
    connection: Option<Http1Connection>,
}

impl Http1Link {
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.poll_unpin(cx).is_ready()
        {
            self.connection = None;
        }
    }

    /// Whether another request may be sent on the connection.
    fn is_idle(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Unused connections, and since when. The oldest are at the front, and none is used again
/// that is older than one in use.
#[derive(Default)]
struct IdleLinks {
    links: Vec<(Instant, Http1Link)>,
    /// A task closes them when their time has come.
    is_watched: bool,
}

impl IdleLinks {
    fn close_old(&mut self) {
        let fresh = self.links.iter().position(|(since, _)| since.elapsed() < IDLE_FOR);
        let old = fresh.unwrap_or(self.links.len());
        self.links.drain(..old);
    }
}

/// The server of a route, and its unused connections.
pub(crate) struct ConnectionPool {
    connector: Connector,
    connect_timeout: Duration,
    traffic: Traffic,
    idle: Mutex<IdleLinks>,
    shared: tokio::sync::Mutex<Option<http2::SendRequest<RequestBody>>>,
}

enum Connected {
    One(Box<Http1Link>),
    Shared(http2::SendRequest<RequestBody>),
}

impl ConnectionPool {
    /// No connection is made before the first request. `traffic` counts their bytes.
    pub(crate) fn new(connector: Connector, connect_timeout: Duration, traffic: &Traffic) -> Self {
        let (traffic, idle) = (traffic.clone(), Mutex::default());
        let shared = tokio::sync::Mutex::default();
        Self { connector, connect_timeout, traffic, idle, shared }
    }

    /// Sends a request to the server and waits for the head of the response. A request that provably was
    /// not written is sent again on a new connection; any other is not.
    ///
    /// # Errors
    /// If there is no connection, or it fails before there is a head.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let fault = request.body().fault();
        loop {
            let idle = self.take_idle();
            let reused = idle.is_some();
            let connected = match idle {
                Some(link) => Connected::One(Box::new(link)),
                // In a box: it is large, and rare.
                None => Box::pin(self.connect()).await?,
            };
            let mut link = match connected {
                Connected::One(link) => link,
                Connected::Shared(mut sender) => {
                    let response = sender.send_request(request).await;
                    let response = response.map_err(|error| cause(error, fault.as_ref()))?;
                    return Ok(response.map(UpstreamBody::shared));
                }
            };
            // HTTP/2 has been offered, and this is none: a server is asked for a path then.
            if request.uri().scheme().is_some()
                && let Some(path) = request.uri().path_and_query().cloned()
            {
                *request.uri_mut() = path.into();
            }
            let mut sent = Box::pin(link.sender.try_send_request(request));
            let answered = poll_fn(|cx| {
                link.drive(cx);
                sent.as_mut().poll(cx)
            });
            match answered.await {
                // `Upgrade` is never forwarded, and HTTP/2 has no such status.
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(UpstreamError::Switched);
                }
                Ok(response) => {
                    return Ok(response.map(|incoming| UpstreamBody {
                        source: BodySource::Theirs(incoming),
                        link: Some(*link),
                        client: Some(Arc::clone(self)),
                    }));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(cause(error.into_error(), fault.as_ref())),
                },
            }
        }
    }

    fn take_idle(&self) -> Option<Http1Link> {
        loop {
            let (since, mut link) = self.idle.lock().ok()?.links.pop()?;
            if since.elapsed() < IDLE_FOR && link.is_idle() {
                return Some(link);
            }
        }
    }

    fn keep(self: &Arc<Self>, mut link: Http1Link) {
        if link.is_idle()
            && let Ok(mut idle) = self.idle.lock()
        {
            idle.close_old();
            if idle.links.len() < IDLE_MAX {
                idle.links.push((Instant::now(), link));
            }
            if !idle.is_watched
                && let Ok(runtime) = Handle::try_current()
            {
                idle.is_watched = true;
                runtime.spawn(Self::close_idle(Arc::downgrade(self)));
            }
        }
    }

    /// Closes connections that have been idle for long enough, until none is left.
    async fn close_idle(pool: Weak<Self>) {
        let mut due = Instant::now() + IDLE_FOR;
        loop {
            sleep_until(due).await;
            let Some(pool) = pool.upgrade() else { return };
            let Ok(mut idle) = pool.idle.lock() else { return };
            idle.close_old();
            match idle.links.first() {
                Some((since, _)) => due = *since + IDLE_FOR,
                None => {
                    idle.is_watched = false;
                    return;
                }
            }
        }
    }

    async fn connect(&self) -> Result<Connected, UpstreamError> {
        let (io, negotiated) = match &self.connector {
            Connector::InProcess(connect) => (connect().await, false),
            Connector::Tcp { http2: true, tls: None, .. } => return self.connect_shared().await,
            Connector::Tcp { tls, .. } => {
                if tls.is_some()
                    && let Some(sender) = self.shared_sender().await
                {
                    return Ok(Connected::Shared(sender));
                }
                self.connect_tcp().await?
            }
        };
        let to = self.name();
        let io = io.map_err(|source| UpstreamError::Connect { to, source })?;
        let io: Io = Box::new(self.traffic.over(io));
        if negotiated {
            return self.share(io).await;
        }
        let handshake = http1::Builder::new()
            .max_buf_size(BUFFER_MAX)
            .preserve_header_case(true)
            .handshake(TokioIo::new(io));
        let (sender, connection) = handshake.await?;
        Ok(Connected::One(Box::new(Http1Link { sender, connection: Some(connection) })))
    }

    async fn connect_tcp(&self) -> Result<(io::Result<Io>, bool), UpstreamError> {
        let Connector::Tcp { host, port, tls, .. } = &self.connector else {
            return Ok((Err(io::ErrorKind::Unsupported.into()), false));
        };
        let connect = async {
            let tcp = TcpStream::connect((&**host, *port)).await?;
            tcp.set_nodelay(true)?;
            let Some((connector, name)) = tls else { return Ok((Box::new(tcp) as Io, false)) };
            let tls = connector.connect(name.clone(), tcp).await?;
            let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok((Box::new(tls) as Io, http2))
        };
        let within = self.connect_timeout;
        match timeout(within, connect).await {
            Err(_) => Err(UpstreamError::ConnectTimeout { to: self.name(), within }),
            Ok(Ok((io, http2))) => Ok((Ok(io), http2)),
            Ok(Err(error)) => Ok((Err(error), false)),
        }
    }

    async fn shared_sender(&self) -> Option<http2::SendRequest<RequestBody>> {
        let shared = self.shared.lock().await;
        shared.as_ref().filter(|sender| !sender.is_closed()).cloned()
    }

    async fn connect_shared(&self) -> Result<Connected, UpstreamError> {
        if let Some(sender) = self.shared_sender().await {
            return Ok(Connected::Shared(sender));
        }
        let (io, _) = self.connect_tcp().await?;
        let to = self.name();
        let io = io.map_err(|source| UpstreamError::Connect { to, source })?;
        self.share(Box::new(self.traffic.over(io))).await
    }

    async fn share(&self, io: Io) -> Result<Connected, UpstreamError> {
        let handshake = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(u32::try_from(BUFFER_MAX).ok())
            .initial_connection_window_size(1 << 20)
            .max_send_buf_size(BUFFER_MAX)
            .timer(hyper_util::rt::TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(20))
            .handshake(TokioIo::new(io));
        let (sender, connection) = handshake.await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP/2 connection to a server has ended");
            }
        });
        *self.shared.lock().await = Some(sender.clone());
        Ok(Connected::Shared(sender))
    }

    /// Host and port, for people.
    fn name(&self) -> String {
        match &self.connector {
            Connector::Tcp { host, port, .. } => format!("{host}:{port}"),
            Connector::InProcess(_) => "the embedded server".to_owned(),
        }
    }
}

/// Why a request failed: because of its own body, or of the connection.
fn cause(error: hyper::Error, fault: Option<&BodyFault>) -> UpstreamError {
    match fault.and_then(|fault| fault.get()) {
        Some(unread) => UpstreamError::RequestBody(unread.clone()),
        None => error.into(),
    }
}

/// The body of a response. Dropping it before its end closes its connection.
pub(crate) struct UpstreamBody {
    source: BodySource,
    link: Option<Http1Link>,
    client: Option<Arc<ConnectionPool>>,
}

/// The source of a body.
enum BodySource {
    /// The server.
    Theirs(Incoming),
    /// A body of the proxy in the server's place: the whole body, until it is taken.
    Ours(Option<Bytes>),
}

impl UpstreamBody {
    fn shared(incoming: Incoming) -> Self {
        Self { source: BodySource::Theirs(incoming), link: None, client: None }
    }

    /// A body of Milepost's own.
    pub(crate) fn own(bytes: Bytes) -> Self {
        let source = BodySource::Ours(Some(bytes).filter(|bytes| !bytes.is_empty()));
        Self { source, link: None, client: None }
    }

    /// Whether the body is known to be over.
    pub(crate) fn is_end(&self) -> bool {
        match &self.source {
            BodySource::Theirs(incoming) => incoming.is_end_stream(),
            BodySource::Ours(bytes) => bytes.is_none(),
        }
    }

    /// The length of the body, if it is known.
    pub(crate) fn size(&self) -> SizeHint {
        match &self.source {
            BodySource::Theirs(incoming) => incoming.size_hint(),
            BodySource::Ours(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }

    /// The next frame.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let incoming = match &mut self.source {
            BodySource::Theirs(incoming) => incoming,
            BodySource::Ours(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
        };
        let mut frame = Pin::new(&mut *incoming).poll_frame(cx);
        if frame.is_pending()
            && let Some(link) = &mut self.link
        {
            link.drive(cx);
            frame = Pin::new(incoming).poll_frame(cx);
        }
        let frame = std::task::ready!(frame);
        if frame.is_none()
            && let (Some(link), Some(client)) = (self.link.take(), self.client.take())
        {
            client.keep(link);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(UpstreamError::Http)))
    }

    /// The next bytes; trailers are left out.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            match std::task::ready!(self.poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
            }
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // A body that is over without having been asked once more.
        if self.is_end()
            && let (Some(link), Some(client)) = (self.link.take(), self.client.take())
        {
            client.keep(link);
        }
    }
}
