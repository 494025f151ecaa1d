//! One POST and its response.

use std::collections::BTreeMap;
use std::collections::btree_map::Values;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode, response};
use tokio::time::Instant;

use super::listen_stream::RETRY;
use super::outgoing::{Outgoing, RequestKind};
use crate::progress::StreamId;
use crate::transport::http::client::Sending;
use crate::transport::http::client::{UpstreamBody, UpstreamError};
use crate::transport::http::inflate::PlainBody;
use crate::transport::mcp_http::content::{Content, is_untyped};
use crate::transport::mcp_http::response_body::{self, ErrorBody, ResponseBody};
use crate::transport::mcp_http::response_reader::{ResponseItem, ResponseReader};

/// Deadline for the server to accept a notification or answer of the client. Until then later messages wait.
const ORDER_WAIT: Duration = Duration::from_secs(10);

/// Deadline for a server to accept a notification or an answer before the POST is given up.
const ACCEPT_WAIT: Duration = Duration::from_secs(60);

/// For how long a response is still read after its requests have been answered. Most responses end immediately, but
/// those of some servers never do.
const LINGER: Duration = Duration::from_secs(10);

/// Maximum number of responses that are still read after their requests have been answered. Beyond the limit the oldest
/// is closed.
const LINGERING_MAX: usize = 16;

/// Maximum number of attempts to resume a stream without receiving an event.
const RESUMES_MAX: u32 = 5;

/// Deadline for the body of an error response.
const ERROR_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of bytes that are read of a body that is not needed. With more, the connection is closed.
const REST_READ_MAX: usize = 64 << 10;

/// The state of an exchange.
enum ExchangeState {
    /// The request was sent.
    Head(Sending),
    /// The server's response is being read.
    Reading(ResponseReader),
    /// The server answered with a status that is not a success; the second field is the beginning of the body.
    Failure(Box<response::Parts>, ErrorBody),
    /// The rest of the body is not needed and is discarded.
    Rest(UpstreamBody, usize),
    /// The server has closed the stream. It will be resumed at this time, after this event.
    Away(Instant, HeaderValue),
    /// The request to resume the stream was sent.
    Back(Sending, HeaderValue),
}

/// An event of an exchange whose response is not being read yet.
pub(crate) enum HeadEvent {
    /// Something happened that the caller need not handle.
    Progress,
    /// The head of the response has arrived.
    Head(Box<Response<UpstreamBody>>),
    /// No response arrived.
    Unreachable(UpstreamError),
    /// The response to a request to resume the stream, after this event, has arrived.
    Resumed(Box<Response<UpstreamBody>>, HeaderValue),
    /// A request to resume the stream got no response.
    ResumeFailed(HeaderValue, UpstreamError),
    /// The body of an error was read.
    ErrorRead,
    /// The response has been read.
    Finished,
}

/// What the head of a response means for the requests of its POST.
pub(crate) enum HeadOutcome {
    /// The response is being read.
    Reads,
    /// The server does not know the session.
    SessionLost,
    /// The status is not a success, and the body cannot be read.
    Refused(StatusCode),
    /// The message was accepted, and the response has no answer.
    Accepted,
    /// The answer will come on the GET stream.
    AnsweredElsewhere,
    /// The response cannot be read. Holds the reason, and the status to report.
    Unreadable(String, Option<StatusCode>),
}

/// One POST.
pub(crate) struct PostExchange {
    pub(crate) out: Outgoing,
    state: ExchangeState,
    /// The number of the session that the message belongs to.
    pub(crate) session: Option<u64>,
    /// The time until which later messages wait for this one.
    pub(crate) ahead_until: Option<Instant>,
    /// The time at which the exchange is given up.
    pub(crate) leaves_at: Option<Instant>,
    /// When the last request was sent.
    sent: Instant,
    /// Whether the last message was an answer to a request that the POST does not have.
    pub(crate) ends_astray: bool,
    /// Whether a message has come in the response.
    pub(crate) is_heard: bool,
    /// Number of failed attempts to resume.
    resumes: u32,
    /// The pause before the stream is resumed, as the server asked for.
    retry: Duration,
}

impl PostExchange {
    pub(crate) fn new(out: Outgoing, sending: Sending, session: Option<u64>) -> Self {
        let now = Instant::now();
        let is_one_way = !out.has_requests();
        Self {
            state: ExchangeState::Head(sending),
            session,
            // POSTs on different connections can arrive in another order, so messages after a notification or an answer
            // wait until the server has accepted it.
            ahead_until: is_one_way.then(|| now + ORDER_WAIT),
            leaves_at: is_one_way.then(|| now + ACCEPT_WAIT),
            sent: now,
            ends_astray: false,
            is_heard: false,
            resumes: 0,
            retry: RETRY,
            out,
        }
    }

    /// Returns the next time at which something is due. `idle` is the longest silence of a server that is allowed.
    pub(crate) fn due(&self, idle: Option<Duration>) -> Option<Instant> {
        let back = match self.state {
            ExchangeState::Away(at, _) => Some(at),
            _ => self.silent_until(idle),
        };
        [back, self.ahead_until, self.leaves_at].into_iter().flatten().min()
    }

    /// Returns the time until which the server may be silent.
    pub(crate) fn silent_until(&self, idle: Option<Duration>) -> Option<Instant> {
        let since = match &self.state {
            ExchangeState::Head(_) | ExchangeState::Back(..) => self.sent,
            ExchangeState::Reading(reader) => reader.read_at,
            _ => return None,
        };
        idle.map(|idle| since + idle)
    }

    /// Whether the head of the first response has not arrived yet.
    pub(crate) fn awaits_head(&self) -> bool {
        matches!(self.state, ExchangeState::Head(_))
    }

    pub(crate) fn reads_error(&self) -> bool {
        matches!(self.state, ExchangeState::Failure(..))
    }

    /// Waits for the head of a response, or reads a body that is not an answer.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<HeadEvent> {
        Poll::Ready(match &mut self.state {
            ExchangeState::Head(sent) => {
                let response = ready!(sent.as_mut().poll(cx));
                self.ahead_until = None;
                match response {
                    Ok(response) => HeadEvent::Head(Box::new(response)),
                    Err(error) => HeadEvent::Unreachable(error),
                }
            }
            ExchangeState::Back(sent, id) => {
                let response = ready!(sent.as_mut().poll(cx));
                let id = id.clone();
                match response {
                    Ok(response) => HeadEvent::Resumed(Box::new(response), id),
                    Err(error) => HeadEvent::ResumeFailed(id, error),
                }
            }
            ExchangeState::Failure(_, body) => match ready!(body.poll(cx)) {
                true => HeadEvent::Progress,
                false => HeadEvent::ErrorRead,
            },
            ExchangeState::Rest(body, read) => match ready!(body.poll_data(cx)) {
                // Read a short rest to its end, so that the connection can be reused for another request.
                Some(Ok(chunk)) if *read < REST_READ_MAX => {
                    *read += chunk.len();
                    HeadEvent::Progress
                }
                _ => HeadEvent::Finished,
            },
            ExchangeState::Reading(_) | ExchangeState::Away(..) => return Poll::Pending,
        })
    }

    /// Handles the head of the response. `http_sse`: answers come on the stream of HTTP+SSE. `listens`: the session has
    /// a GET stream, or will have one soon.
    pub(crate) fn accept(
        &mut self,
        response: Response<UpstreamBody>,
        http_sse: bool,
        listens: bool,
    ) -> HeadOutcome {
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            // MCP 2025-03-26, Session Management: the status 404 means that the server does not know the session.
            if parts.status == StatusCode::NOT_FOUND && self.session.is_some() {
                return HeadOutcome::SessionLost;
            }
            let Some(body) = PlainBody::new(body, &parts.headers) else {
                return HeadOutcome::Refused(parts.status);
            };
            self.leaves_at = Some(Instant::now() + ERROR_WAIT);
            self.state = ExchangeState::Failure(Box::new(parts), ErrorBody::new(body));
            return HeadOutcome::Reads;
        }
        if !self.out.has_requests() || http_sse {
            self.state = ExchangeState::Rest(body, 0);
            self.leaves_at.get_or_insert_with(|| Instant::now() + ACCEPT_WAIT);
            return HeadOutcome::Accepted;
        }
        let announces_none = [StatusCode::ACCEPTED, StatusCode::NO_CONTENT].contains(&parts.status);
        // A body of a readable type is read as the answer, even if the status says that no answer follows.
        let is_untold = announces_none && Content::unpacked(&parts.headers) == Content::Other;
        if is_untold || body.is_empty() {
            // Some servers accept the POST with 202 and answer on the GET stream. 2026-07-28 has no such stream.
            if listens && !self.out.modern {
                return HeadOutcome::AnsweredElsewhere;
            }
            let why = format!(
                "the server answered with HTTP status {} and no content, and has no GET stream for the answer",
                parts.status
            );
            return HeadOutcome::Unreadable(why, Some(parts.status));
        }
        let reader = match ResponseBody::new(body, &parts.headers) {
            ResponseBody::Events(body) => ResponseReader::events(body),
            ResponseBody::Json(body) => ResponseReader::json(body),
            ResponseBody::Other(body) if is_untyped(&parts.headers) => {
                ResponseReader::untyped(body)
            }
            ResponseBody::Other(_) => {
                let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
                let kind = kind.unwrap_or("no content type");
                let why = format!(
                    "the server answered with HTTP status {} and {kind} instead of JSON or events",
                    parts.status
                );
                return HeadOutcome::Unreadable(why, Some(parts.status));
            }
            ResponseBody::Unreadable => {
                let why = "the server compressed its answer although asked not to";
                return HeadOutcome::Unreadable(why.to_owned(), None);
            }
        };
        self.state = ExchangeState::Reading(reader);
        HeadOutcome::Reads
    }

    /// Returns the message, and the head and the beginning of the body of the error response to it.
    pub(crate) fn into_failure(self) -> Option<(Outgoing, Box<response::Parts>, Bytes)> {
        match self.state {
            ExchangeState::Failure(parts, mut body) => Some((self.out, parts, body.take())),
            _ => None,
        }
    }

    /// Reads the next item of the response; returns `None` at its end.
    pub(crate) fn poll_item(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<ResponseItem, UpstreamError>>> {
        let ExchangeState::Reading(reader) = &mut self.state else { return Poll::Pending };
        let item = ready!(reader.poll(cx));
        // An event shows that resuming works, so the attempts are counted from zero again.
        if std::mem::take(&mut reader.has_event) {
            self.resumes = 0;
        }
        Poll::Ready(item)
    }

    /// Takes the id of the event after which an ended response can be resumed.
    pub(crate) fn take_last_id(&mut self) -> Option<HeaderValue> {
        let ExchangeState::Reading(reader) = &mut self.state else { return None };
        // Keep the last pause that the server asked for, if a later response does not name one.
        self.retry = reader.retry.unwrap_or(self.retry);
        reader.last_id.take()
    }

    /// Waits before resuming the response after an event. Returns false after too many failed attempts.
    pub(crate) fn wait_to_resume(&mut self, id: HeaderValue) -> bool {
        if self.resumes >= RESUMES_MAX {
            return false;
        }
        let wait = self.retry * 2_u32.pow(self.resumes.saturating_sub(1));
        self.resumes += 1;
        self.state = ExchangeState::Away(Instant::now() + wait, id);
        true
    }

    /// Returns the id of the event after which the response must be resumed.
    pub(crate) fn resumes_behind(&self) -> Option<HeaderValue> {
        match &self.state {
            ExchangeState::Away(_, id) => Some(id.clone()),
            _ => None,
        }
    }

    /// Remembers the sent request to resume the stream after an event.
    pub(crate) fn resume(&mut self, sending: Sending, id: HeaderValue) {
        self.sent = Instant::now();
        self.state = ExchangeState::Back(sending, id);
    }

    /// Reads a resumed response, which continues after an event.
    ///
    /// # Errors
    /// The status of a response that is not an event stream.
    pub(crate) fn accept_resumed(
        &mut self,
        response: Response<UpstreamBody>,
        id: HeaderValue,
    ) -> Result<(), (StatusCode, HeaderValue)> {
        match response_body::events(response) {
            Ok(body) => {
                let mut reader = ResponseReader::events(body);
                // If the response has no ids, it will be resumed after the same event again.
                reader.last_id = Some(id);
                self.state = ExchangeState::Reading(reader);
                Ok(())
            }
            Err(parts) => Err((parts.status, id)),
        }
    }
}

/// All open POSTs, by the upstream stream of each.
#[derive(Default)]
pub(crate) struct PostExchanges(BTreeMap<StreamId, PostExchange>);

impl PostExchanges {
    pub(crate) fn insert(&mut self, exchange: PostExchange) {
        self.0.insert(exchange.out.stream, exchange);
    }

    pub(crate) fn get(&self, stream: StreamId) -> Option<&PostExchange> {
        self.0.get(&stream)
    }

    pub(crate) fn get_mut(&mut self, stream: StreamId) -> Option<&mut PostExchange> {
        self.0.get_mut(&stream)
    }

    pub(crate) fn remove(&mut self, stream: StreamId) -> Option<PostExchange> {
        self.0.remove(&stream)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn values(&self) -> Values<'_, StreamId, PostExchange> {
        self.0.values()
    }

    pub(crate) fn streams(&self) -> Vec<StreamId> {
        self.0.keys().copied().collect()
    }

    /// Whether the head of some POST's response has not arrived, so that its message may not have reached the server.
    pub(crate) fn await_head(&self) -> bool {
        self.values().any(PostExchange::awaits_head)
    }

    /// Whether messages must wait until a notification or an answer is accepted.
    pub(crate) fn are_ordered(&self) -> bool {
        self.values().any(|exchange| exchange.ahead_until.is_some())
    }

    /// Returns the number of POSTs with unanswered requests.
    pub(crate) fn open(&self) -> usize {
        self.values().filter(|exchange| exchange.leaves_at.is_none()).count()
    }

    /// Whether a message of this kind, sent by the leg itself, is under way.
    pub(crate) fn has_own(&self, kind: RequestKind) -> bool {
        self.values().any(|exchange| exchange.out.own == Some(kind))
    }

    /// Keeps reading a response whose requests have been answered. Returns the response to close if there are too many.
    pub(crate) fn linger(&mut self, stream: StreamId) -> Option<StreamId> {
        let exchange = self.0.get_mut(&stream)?;
        exchange.leaves_at.get_or_insert_with(|| Instant::now() + LINGER);
        // Notifications and answers have `leaves_at` from the beginning, and do not count.
        let lingers = |one: &&PostExchange| one.leaves_at.is_some() && one.out.has_requests();
        let mut lingering = self.values().filter(lingers);
        let is_too_many = lingering.clone().count() > LINGERING_MAX;
        lingering.next().filter(|_| is_too_many).map(|oldest| oldest.out.stream)
    }

    pub(crate) fn next_due(&self, idle: Option<Duration>) -> Option<Instant> {
        self.values().filter_map(|exchange| exchange.due(idle)).min()
    }

    /// Returns the exchanges for which something is due.
    pub(crate) fn due_at(&self, now: Instant, idle: Option<Duration>) -> Vec<StreamId> {
        let is_due = |one: &&PostExchange| one.due(idle).is_some_and(|at| at <= now);
        self.values().filter(is_due).map(|one| one.out.stream).collect()
    }
}
