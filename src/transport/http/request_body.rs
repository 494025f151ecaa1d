//! The body of a request on its way to a server.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::request::Parts;
use http::{StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::config::routes::Route;
use crate::transport::byte_budget::{BudgetExceeded, ByteBudget, ByteRoom};
use crate::transport::spill::{Spill, SpillError};

/// Limit of a client's pause within the body of a request.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The time for which a client may send the body of a request as slowly as it likes.
pub(crate) const RATE_GRACE: Duration = Duration::from_secs(10);

/// The time for which the rest of a refused body is read and thrown away. A connection that is closed with unread bytes
/// is reset, and a client that writes all of its request before it reads would lose the response.
const REST_WAIT: Duration = Duration::from_secs(10);

/// Why the body of a request is refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestBodyError {
    /// The body is longer than the route's limit, in bytes.
    #[error("the body of a request may have {0} bytes on this route")]
    TooLarge(usize),
    /// The client paused for too long.
    #[error("the body of the request paused for more than {max:?}", max = PAUSE_MAX)]
    Paused,
    /// The client took longer for the whole body than the route allows.
    #[error("the body of a request may take {0:?} on this route")]
    TooLong(Duration),
    /// The client sent fewer bytes per second than the route requires.
    #[error("the body of a request must come with {0} bytes a second on this route")]
    TooSlow(u64),
    /// The limit for the bytes of all incomplete bodies is reached.
    #[error("too many bytes of requests that are not whole are held, try again later")]
    NoRoom,
    /// The limit for the bytes of all messages that wait in memory is reached.
    #[error("too many bytes of messages wait here, try again later (server.max_kept_bytes)")]
    Full,
    /// The client's share of the memory for waiting messages is used up.
    #[error(
        "too many bytes of messages wait here for this client, try again later (a quarter of server.max_kept_bytes)"
    )]
    ClientFull,
    /// The client disconnected, or the body is malformed.
    #[error("the body of the request cannot be read: {0}")]
    Unreadable(String),
    /// The disk is full, or the temporary directory does not exist.
    #[error("the body of the request could not be kept in a temporary file (see TMPDIR): {0}")]
    NotKept(String),
}

impl From<BudgetExceeded> for RequestBodyError {
    fn from(_: BudgetExceeded) -> Self {
        Self::NoRoom
    }
}

impl RequestBodyError {
    /// Returns the reason as it appears in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too-large",
            Self::Paused => "paused",
            Self::TooLong(_) => "too-long",
            Self::TooSlow(_) => "too-slow",
            Self::NoRoom => "no-room",
            Self::Full => "full",
            Self::ClientFull => "client-full",
            Self::Unreadable(_) => "unreadable",
            Self::NotKept(_) => "not-kept",
        }
    }

    /// Returns the status of the response to the client.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            // RFC 9110, 15.5.9: 408 means that a request did not arrive completely in time. A client may send it again.
            Self::Paused | Self::TooLong(_) | Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            // All clients together have used up the budget, so this client is not at fault and may retry.
            Self::NoRoom | Self::Full => StatusCode::SERVICE_UNAVAILABLE,
            Self::ClientFull => StatusCode::TOO_MANY_REQUESTS,
            Self::Unreadable(_) => StatusCode::BAD_REQUEST,
            Self::NotKept(_) => StatusCode::INSUFFICIENT_STORAGE,
        }
    }
}

/// The first error of a body while it is sent. Over HTTP/2 the sender only gets an error of hyper, so this one is
/// reported instead.
pub(crate) type BodyFault = Arc<OnceLock<RequestBodyError>>;

/// The body of a request to a server.
pub(crate) enum RequestBody {
    /// The whole body.
    Whole(Option<Bytes>),
    /// A body that is too large for memory: its beginning, and the rest while it arrives.
    Passing(Box<PassingBody>),
    /// A body that is too large for memory, in a file.
    Spooled(Box<SpooledBody>),
}

impl RequestBody {
    /// Returns an empty body.
    pub(crate) fn empty() -> Self {
        Self::Whole(None)
    }

    /// Returns a body that is forwarded while it arrives, without limits of length and rate.
    pub(crate) fn unlimited(body: Incoming) -> Self {
        Self::Passing(Box::new(PassingBody::unlimited(body)))
    }

    /// Returns the unchanged body, if it is forwarded while it arrives and no byte of it was read.
    pub(crate) fn into_unread(self) -> Option<Incoming> {
        match self {
            // Bytes that were read are in `first` and cannot be put back into hyper's body.
            Self::Passing(mut passing) if passing.first.is_empty() => passing.rest.take(),
            _ => None,
        }
    }

    /// Returns where the error of a body is stored if it fails while it is sent.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        match self {
            Self::Passing(passing) => Some(Arc::clone(&passing.fault)),
            _ => None,
        }
    }

    /// Writes a body of at most `max` bytes to a file, and returns it when it is complete.
    ///
    /// # Errors
    ///
    /// If the body is longer or incomplete, or the file cannot be written.
    pub(crate) async fn spool(mut self, max: usize) -> Result<Self, RequestBodyError> {
        let mut spill = Spill::new(max as u64);
        let mut room = match &self {
            Self::Passing(passing) => passing.limits.as_ref().map(|limits| limits.budget.room()),
            _ => None,
        };
        while let Some(frame) = self.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            // Counted before the write, so that the budget also limits the bytes in files.
            room.as_mut().map_or(Ok(()), |room| room.hold(data.len()))?;
            spill.push(data).await.map_err(|error| match error {
                SpillError::Full { .. } => RequestBodyError::TooLarge(max),
                SpillError::Io(error) => RequestBodyError::NotKept(error.to_string()),
            })?;
        }
        let left = spill.size();
        let pieces = spill.into_reader().boxed();
        Ok(Self::Spooled(Box::new(SpooledBody { pieces, left, _room: room })))
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

/// A body in a file.
pub(crate) struct SpooledBody {
    pieces: BoxStream<'static, std::io::Result<Bytes>>,
    /// Bytes that have not been read from the file yet.
    left: u64,
    _room: Option<ByteRoom>,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Passing(passing) => passing.poll_frame(cx),
            Self::Spooled(spooled) => spooled.pieces.as_mut().poll_next(cx).map(|piece| {
                let piece = piece?.map_err(|error| RequestBodyError::NotKept(error.to_string()));
                Some(piece.map(|piece| {
                    spooled.left = spooled.left.saturating_sub(piece.len() as u64);
                    Frame::data(piece)
                }))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Passing(passing) => passing.is_end(),
            Self::Spooled(spooled) => spooled.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Passing(passing) => passing.size(),
            Self::Spooled(spooled) => SizeHint::with_exact(spooled.left),
        }
    }
}

/// The limits of a body that is forwarded while it arrives.
pub(crate) struct BodyLimits {
    /// Limit of the bytes of the whole body.
    pub(crate) max: usize,
    /// Whether the rest of a refused body is read, because the client uses HTTP/1, which cannot refuse a body without
    /// closing the connection.
    pub(crate) reads_rest: bool,
    /// Deadline for the client to send the whole body.
    timeout: Option<Duration>,
    /// Minimum of the bytes per second that the client sends on average, after [`RATE_GRACE`]; 0: no minimum.
    min_rate: u64,
    pub(crate) budget: Arc<ByteBudget>,
}

impl BodyLimits {
    /// Returns the limits of the body of a request with this head.
    pub(crate) fn of(parts: &Parts, route: &Route, budget: &Arc<ByteBudget>) -> Self {
        Self {
            max: route.max_request_bytes,
            // HTTP/2 can end a single stream without closing the connection.
            reads_rest: parts.version < Version::HTTP_2,
            timeout: route.body_timeout,
            min_rate: route.body_min_rate as u64,
            budget: Arc::clone(budget),
        }
    }

    /// Reads the rest of a refused body, if this is needed to keep the response from being lost.
    pub(crate) fn refuse(&self, mut rest: Incoming) {
        // `Drop` also calls this function, perhaps outside a runtime, where nothing more can be read.
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.reads_rest || rest.is_end_stream() {
            return;
        }
        // Detached: the response to the client does not wait for the rest of the request.
        let read_all = async move {
            let read = async { while let Some(Ok(_)) = rest.frame().await {} };
            if timeout(REST_WAIT, read).await.is_err() {
                tracing::debug!("the rest of a refused body has no end");
            }
        };
        runtime.spawn(read_all.boxed());
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) fn awaits_leave(parts: &Parts) -> bool {
        parts.headers.contains_key(header::EXPECT)
    }
}

/// The pace at which the body of a request arrives. Only the time in which Milepost waits for the client is counted,
/// because a server may read slowly.
#[derive(Debug, Default)]
pub(crate) struct BodyPace {
    pub(crate) bytes: u64,
    waited: Duration,
    waits_since: Option<Instant>,
}

impl BodyPace {
    /// Notes that Milepost waits for the client from `now` on. Returns the end of this wait.
    pub(crate) fn wait(&mut self, now: Instant, limits: &BodyLimits) -> Instant {
        self.waits_since = Some(now);
        let left = limits.timeout.unwrap_or(Duration::MAX).min(self.rate_limit(limits));
        now + left.saturating_sub(self.waited).min(PAUSE_MAX)
    }

    /// Notes that bytes of the client have arrived.
    pub(crate) fn stop_waiting(&mut self, now: Instant) {
        // The time in which the server does not read is not counted, because the client cannot send then.
        self.waited += self.waits_since.take().map_or(Duration::ZERO, |since| now - since);
    }

    /// Returns the error for a client that has sent nothing until the wait ended.
    pub(crate) fn error(&mut self, now: Instant, limits: &BodyLimits) -> RequestBodyError {
        self.stop_waiting(now);
        // The limit of the route is reported first, because the author of the route file has set it.
        match limits.timeout {
            Some(timeout) if self.waited >= timeout => RequestBodyError::TooLong(timeout),
            _ if self.waited >= self.rate_limit(limits) => {
                RequestBodyError::TooSlow(limits.min_rate)
            }
            _ => RequestBodyError::Paused,
        }
    }

    /// Returns the time in which the current number of bytes must have arrived.
    fn rate_limit(&self, limits: &BodyLimits) -> Duration {
        // A `min_rate` of 0 means no minimum, and cannot be a divisor.
        match self.bytes.checked_div(limits.min_rate) {
            Some(seconds) => Duration::from_secs(seconds).max(RATE_GRACE),
            None => Duration::MAX,
        }
    }
}

/// A body that is forwarded while it arrives.
pub(crate) struct PassingBody {
    first: VecDeque<Bytes>,
    /// The rest of the body; `None` once it is over or refused.
    rest: Option<Incoming>,
    limits: Option<BodyLimits>,
    /// Limit of the bytes of `rest` that may still come.
    left: usize,
    pace: BodyPace,
    /// The end of the current wait for the client.
    pause: Option<Pin<Box<Sleep>>>,
    /// The account of the bytes in `first`.
    room: Option<ByteRoom>,
    fault: BodyFault,
}

impl PassingBody {
    /// Returns a body without limits of length and pace.
    fn unlimited(rest: Incoming) -> Self {
        Self {
            first: VecDeque::new(),
            rest: Some(rest),
            limits: None,
            left: usize::MAX,
            pace: BodyPace::default(),
            pause: None,
            room: None,
            fault: BodyFault::default(),
        }
    }

    /// Returns a body that begins with `first`. The limits of size and rate include these bytes.
    pub(crate) fn new(
        first: VecDeque<Bytes>,
        rest: Incoming,
        (limits, pace, room): (BodyLimits, BodyPace, ByteRoom),
    ) -> Self {
        let begun: usize = first.iter().map(Bytes::len).sum();
        let mut body = Self::unlimited(rest);
        body.left = limits.max.saturating_sub(begun);
        (body.first, body.limits, body.pace, body.room) = (first, Some(limits), pace, Some(room));
        body
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        if let Some(bytes) = self.first.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        // The beginning is no longer in memory, so its bytes are not counted in the budget any more.
        self.room = None;
        let Some(rest) = &mut self.rest else {
            // A refused body repeats its error, because it must never look like a complete body.
            return Poll::Ready(self.fault.get().cloned().map(Err));
        };
        let error = match Pin::new(rest).poll_frame(cx) {
            Poll::Pending => match self.delay(cx) {
                Some(error) => error,
                None => return Poll::Pending,
            },
            Poll::Ready(None) => {
                self.rest = None;
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => RequestBodyError::Unreadable(error.to_string()),
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if self.pause.take().is_some() {
                    self.pace.stop_waiting(Instant::now());
                }
                self.pace.bytes += bytes as u64;
                match self.left.checked_sub(bytes) {
                    Some(left) => {
                        self.left = left;
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    None => RequestBodyError::TooLarge(
                        self.limits.as_ref().map_or(usize::MAX, |limits| limits.max),
                    ),
                }
            }
        };
        // Set before the rest is refused, because the sender reads the reason as soon as the body ends in an error.
        let _ = self.fault.set(error.clone());
        self.refuse();
        Poll::Ready(Some(Err(error)))
    }

    /// Returns the error for a client that takes too long.
    fn delay(&mut self, cx: &mut Context<'_>) -> Option<RequestBodyError> {
        let limits = self.limits.as_ref()?;
        let pause = match &mut self.pause {
            Some(pause) => pause,
            none => {
                let deadline = self.pace.wait(Instant::now(), limits);
                none.insert(Box::pin(sleep_until(deadline)))
            }
        };
        pause.as_mut().poll(cx).is_ready().then(|| self.pace.error(Instant::now(), limits))
    }

    fn is_end(&self) -> bool {
        // A body without a rest may have been refused and then ends in an error, which only a poll shows.
        self.first.is_empty() && self.rest.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size(&self) -> SizeHint {
        // Without an exact size the body is sent to the server in chunks.
        let held = self.first.iter().map(Bytes::len).sum::<usize>() as u64;
        let rest = self.rest.as_ref().and_then(|rest| rest.size_hint().exact());
        rest.map_or_else(SizeHint::new, |rest| SizeHint::with_exact(held + rest))
    }

    fn refuse(&mut self) {
        if let (Some(rest), Some(limits)) = (self.rest.take(), &self.limits) {
            limits.refuse(rest);
        }
    }
}

/// Reads the rest of a body that the server did not want. A server may answer before it has read the request, and the
/// client must be able to read that answer.
impl Drop for PassingBody {
    fn drop(&mut self) {
        self.refuse();
    }
}
