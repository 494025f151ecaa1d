//! Requests to the server of a route: how it is reached, its responses, and the errors.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connection_pool::ConnectionPool;
use super::dialer::{DialError, Dialer};
use super::forward_proxy::ProxyRefusal;
use super::http1::body::Http1Body;
use super::http1::link_error::LinkError;
use super::http1::malformed::MalformedResponse;
use super::http2_connections::Http2Stream;
use super::io::Io;
use crate::config::routes::HeaderRules;
use crate::observe::error_chain::error_chain;
use crate::observe::log::LogBudget;
use crate::transport::child::is_of_this_machine;
use crate::transport::http::request_body::RequestBodyError;

/// Makes connections inside this process, in place of the network.
pub type InProcess = Arc<dyn Fn() -> BoxFuture<'static, io::Result<Io>> + Send + Sync>;

/// How connections to a route's server are made.
#[derive(Clone)]
pub(crate) enum Connector {
    /// Over the network.
    Network(Arc<Dialer>),
    /// Inside this process.
    InProcess(InProcess),
}

/// The reason why a server could not be reached, or did not answer completely.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The connection to the server cannot be made.
    #[error("cannot connect to {to}")]
    Connect {
        /// The host and port, with the addresses that were tried.
        to: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Connecting took too long.
    #[error("cannot connect to {to} within {within:?}")]
    ConnectTimeout {
        /// The host and port, with the addresses that were tried.
        to: String,
        /// The time that was allowed.
        within: Duration,
    },
    /// The forward proxy on the way to the server refuses the connection.
    #[error("{0}")]
    Proxy(ProxyRefusal),
    /// Every HTTP/2 stream that the server allows is in use, and none has ended within this time.
    #[error("the server allows no further stream of HTTP/2, and none ended within {0:?}")]
    StreamsFull(Duration),
    /// The HTTP/2 connection or its stream failed, or its bytes are not HTTP/2.
    #[error("the connection to the server failed")]
    Http2(#[from] hyper::Error),
    /// The HTTP/1.1 connection failed.
    #[error("the connection to the server failed")]
    Io(#[source] io::Error),
    /// The server's bytes are not HTTP/1.1, or may be read in two ways.
    #[error("the connection to the server failed")]
    Malformed(#[source] MalformedResponse),
    /// The compressed body cannot be read.
    #[error("the server's compressed response cannot be read")]
    Compressed(#[source] io::Error),
    /// The client's request ended too early, or is too long.
    #[error(transparent)]
    RequestBody(RequestBodyError),
    /// Milepost has ended the response.
    #[error("{0}")]
    BrokenOff(&'static str),
    /// The server sent nothing for too long.
    #[error("the server sent nothing for {0:?}")]
    Idle(Duration),
    /// The server redirects to an address that Milepost does not follow.
    #[error("the server redirects {why}: {to}; the address of the server has to say so")]
    Redirected {
        /// Why the redirect is not followed: to another origin, or once too often.
        why: &'static str,
        /// The target, without parts that may be secret.
        to: String,
    },
    /// The server has moved to another path of its origin, and the request cannot be sent again.
    #[error("the server has moved to another path; send the request again")]
    Moved,
    /// The server answers 401 to the credential that the route sets, so that no sign-in of the client could help.
    #[error("the server refuses the credential of the route")]
    CredentialRefused,
    /// The server switched to another protocol without a request.
    #[error("the server switched to another protocol without a request")]
    Switched,
}

impl From<DialError> for UpstreamError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Failed { to, source } => Self::Connect { to, source },
            DialError::Late { to, within } => Self::ConnectTimeout { to, within },
            DialError::Refused(refusal) => Self::Proxy(refusal),
        }
    }
}

impl From<LinkError> for UpstreamError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Io(error) => Self::Io(error),
            LinkError::Malformed(malformed) => Self::Malformed(malformed),
            LinkError::RequestBody(error) => Self::RequestBody(error),
        }
    }
}

impl UpstreamError {
    /// Returns the error and its causes as text, without the address of the server, which clients must not learn.
    pub(crate) fn for_clients(&self) -> String {
        match self {
            Self::Connect { source, .. } => format!("cannot connect to the server: {source}"),
            Self::ConnectTimeout { within, .. } => {
                format!("cannot connect to the server within {within:?}")
            }
            Self::Proxy(refusal) => {
                format!("the proxy on the way to the server answers {}", refusal.status)
            }
            Self::Redirected { why, .. } => format!("the server redirects {why}"),
            other => error_chain(other),
        }
    }

    /// Whether the cause is in this machine or process, such as no free descriptor.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if is_of_this_machine(source))
    }

    /// Logs that a request to a server failed. A cause in this machine is logged once a minute, with advice, because it
    /// is the same for each request.
    pub(crate) fn log(&self, route: Option<&str>) {
        static TOLD: LogBudget = LogBudget::one_a_minute();
        match self {
            // `ServerClient` logs this error itself, with advice.
            Self::CredentialRefused => {}
            error if error.is_local() => {
                // The text would be the same for each request, so the following ones are only counted.
                let Some(left_out) = TOLD.take(Instant::now()) else { return };
                tracing::warn!(
                    route,
                    error = error_chain(self),
                    left_out = (left_out > 0).then_some(left_out),
                    "no connection to the server can be made for a reason of this machine, and clients may try again: \
                     raise the limit of descriptors (LimitNOFILE, ulimit -n), or look at the ports and the network of \
                     this machine"
                );
            }
            _ => {
                let error = error_chain(self);
                tracing::warn!(route, error, "the request to the server failed");
            }
        }
    }

    /// Returns the name for metrics; `None` if Milepost itself is the cause.
    pub(crate) fn kind(&self) -> Option<&'static str> {
        match self {
            error if error.is_local() => Some("local"),
            Self::Connect { .. } => Some("connect"),
            Self::ConnectTimeout { .. } => Some("connect-timeout"),
            Self::Proxy(_) => Some("proxy"),
            Self::StreamsFull(_) => Some("streams-full"),
            Self::Http2(_) | Self::Io(_) | Self::Malformed(_) | Self::Switched => Some("http"),
            Self::Compressed(_) => Some("compressed"),
            Self::Idle(_) => Some("idle"),
            Self::Redirected { .. } | Self::Moved => Some("redirected"),
            Self::CredentialRefused => Some("credential"),
            Self::RequestBody(_) | Self::BrokenOff(_) => None,
        }
    }
}

/// Marks a request that has the credential of its route and not that of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteCredential;

impl RouteCredential {
    /// Marks a request if these rules of its route set `Authorization`.
    pub(crate) fn mark<B>(request: &mut Request<B>, rules: &HeaderRules) {
        if rules.set.iter().any(|(name, _)| *name == AUTHORIZATION) {
            request.extensions_mut().insert(Self);
        }
    }
}

/// A request that is being sent; completes with the head of the response.
pub(crate) type Sending = BoxFuture<'static, Result<Response<UpstreamBody>, UpstreamError>>;

/// The body of a server's response. Dropping it before its end closes an HTTP/1.1 connection.
pub(crate) struct UpstreamBody {
    source: BodySource,
    /// The first bytes, if they were read to find out the type of the body.
    ahead: Option<Bytes>,
}

/// Where the bytes of a body come from.
enum BodySource {
    /// A server over HTTP/1.1, and the pool that gets the connection back.
    Http1(Http1Body, Arc<ConnectionPool>),
    /// A server over HTTP/2. The stream counts as open until the body is dropped.
    Http2 { incoming: Incoming, _stream: Arc<Http2Stream> },
    /// A body that Milepost has made in the server's place, until it is taken.
    Ours(Option<Bytes>),
}

impl UpstreamBody {
    fn of(source: BodySource) -> Self {
        Self { source, ahead: None }
    }

    /// Returns the body of an HTTP/1.1 response.
    pub(super) fn http1(body: Http1Body, pool: &Arc<ConnectionPool>) -> Self {
        let mut body = Self::of(BodySource::Http1(body, Arc::clone(pool)));
        // A small response arrives completely with its head, so its connection is free even before the client has read
        // the body.
        body.keep_link();
        body
    }

    /// Returns the body of an HTTP/2 response.
    pub(super) fn http2(incoming: Incoming, stream: Arc<Http2Stream>) -> Self {
        Self::of(BodySource::Http2 { incoming, _stream: stream })
    }

    /// Returns a body that Milepost has made.
    pub(crate) fn own(bytes: Bytes) -> Self {
        Self::of(BodySource::Ours(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// Puts bytes back that were read from the beginning of the body.
    pub(crate) fn put_back(&mut self, first: Bytes) {
        self.ahead = Some(first).filter(|first| !first.is_empty());
    }

    /// Whether the body is known to be empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_end() || self.size().exact() == Some(0)
    }

    /// Whether the body is known to have ended.
    pub(crate) fn is_end(&self) -> bool {
        // Bytes that were read ahead must still be returned, even if the source has ended.
        if self.ahead.is_some() {
            return false;
        }
        match &self.source {
            BodySource::Http1(body, _) => body.is_end(),
            BodySource::Http2 { incoming, .. } => incoming.is_end_stream(),
            BodySource::Ours(bytes) => bytes.is_none(),
        }
    }

    /// Returns the length of the rest of the body, if it is known.
    pub(crate) fn size(&self) -> SizeHint {
        if self.ahead.is_some() {
            // The size of the source does not include the bytes that were read ahead.
            return SizeHint::new();
        }
        match &self.source {
            BodySource::Http1(body, _) => body.size(),
            BodySource::Http2 { incoming, .. } => incoming.size_hint(),
            BodySource::Ours(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }

    /// Ready with the next frame.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        if let Some(first) = self.ahead.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match &mut self.source {
            BodySource::Http1(body, _) => {
                let frame = ready!(body.poll_frame(cx));
                // Once the response has arrived completely, the next request may use its connection.
                self.keep_link();
                Poll::Ready(frame.map(|frame| frame.map_err(UpstreamError::from)))
            }
            BodySource::Http2 { incoming, .. } => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(UpstreamError::Http2)))
            }
            BodySource::Ours(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    /// Makes the connection of a finished response available to the next request.
    fn keep_link(&mut self) {
        if let BodySource::Http1(body, pool) = &mut self.source
            // Taken out, so that a second call finds nothing and the connection is not given back twice.
            && let Some(link) = body.take_link()
        {
            pool.keep(link);
        }
    }

    /// Ready with the next bytes. Trailers are left out.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            match ready!(self.poll_frame(cx)) {
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
        // A reader may stop as soon as `is_end` is true, without the poll that returns `None`.
        if self.is_end() {
            self.keep_link();
        }
    }
}
