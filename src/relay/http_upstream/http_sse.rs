//! The stream of HTTP+SSE (2024-11-05). It carries the endpoint for POSTs, and then all messages of the server.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::error_status;
use crate::transport::http::client::Sending;
use crate::transport::http::client::{UpstreamBody, UpstreamError};
use crate::transport::mcp_http::response_body;
use crate::transport::mcp_http::response_reader::{ResponseItem, ResponseReader};

/// Deadline for a server to send its `endpoint` event.
const ENDPOINT_WAIT: Duration = Duration::from_secs(10);

/// The first pause before a lost stream is opened again. Each further pause is twice as long.
const RETRY: Duration = Duration::from_secs(1);

/// Maximum number of attempts to reopen a lost stream before the client sends another message.
const RETRIES_MAX: u32 = 5;

#[derive(Default)]
enum HttpSseState {
    #[default]
    Idle,
    At(Instant),
    Head(Sending),
    Open(Box<ResponseReader>),
}

/// An event of the stream that the leg acts on.
pub(crate) enum HttpSseEvent {
    /// A message waits to be sent, so the stream must be requested.
    Wanted,
    /// The server has answered the request for the stream.
    Answered(Box<Response<UpstreamBody>>),
    Item(ResponseItem),
    /// The server has named its endpoint.
    Endpoint(Bytes),
    Lost(String),
    /// The stream cannot be opened, or has failed.
    Failed(UpstreamError),
}

/// What is due when the waiting time is over.
pub(crate) enum Due {
    /// The stream must be requested again.
    Connect,
    Lost(String),
}

/// The stream of HTTP+SSE and its endpoint.
#[derive(Default)]
pub(crate) struct HttpSseStream {
    state: HttpSseState,
    /// The endpoint for messages, once the server has named it.
    pub(crate) endpoint: Option<PathAndQuery>,
    /// Deadline for the endpoint.
    named_by: Option<Instant>,
    /// Number of failed attempts.
    vain: u32,
    /// The server's refusal of a POST, if the stream is being tried because of that refusal.
    pub(crate) refusal: Option<(String, StatusCode)>,
}

impl HttpSseStream {
    /// Returns a stream to be tried after the server has refused a POST.
    pub(crate) fn after_refusal(why: String, status: StatusCode) -> Self {
        Self { refusal: Some((why, status)), ..Self::default() }
    }

    /// Resets the number of failed attempts, because the server has accepted a session on the stream.
    pub(crate) fn mark_working(&mut self) {
        self.vain = 0;
    }

    pub(crate) fn is_named(&self) -> bool {
        self.endpoint.is_some()
    }

    /// Returns the next time at which something is due. `idle` is the longest silence of the server that is allowed.
    pub(crate) fn due(&self, idle: Option<Duration>) -> Option<Instant> {
        match &self.state {
            HttpSseState::At(at) => Some(*at),
            // Until the endpoint is named, `named_by` is the deadline; afterwards the idle time counts.
            HttpSseState::Open(reader) if self.is_named() => idle.map(|idle| reader.read_at + idle),
            _ => self.named_by,
        }
    }

    /// Returns what to do at the time of [`HttpSseStream::due`].
    pub(crate) fn expire(&self, idle: Option<Duration>) -> Due {
        match self.state {
            HttpSseState::At(_) => Due::Connect,
            _ if self.is_named() => {
                Due::Lost(UpstreamError::Idle(idle.unwrap_or_default()).to_string())
            }
            _ => Due::Lost("the server names no endpoint to post to".to_owned()),
        }
    }

    /// Waits for the response to the request for the stream.
    pub(crate) fn connect(&mut self, sent: Sending) {
        self.state = HttpSseState::Head(sent);
        self.named_by = Some(Instant::now() + ENDPOINT_WAIT);
    }

    /// Opens and reads the stream. `wanted`: a message waits to be sent. Reads messages only with `reads`, but always
    /// reads the endpoint.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        wanted: bool,
        reads: bool,
    ) -> Poll<HttpSseEvent> {
        let is_named = self.is_named();
        Poll::Ready(match &mut self.state {
            HttpSseState::Idle if wanted => HttpSseEvent::Wanted,
            HttpSseState::Idle | HttpSseState::At(_) => return Poll::Pending,
            HttpSseState::Head(sent) => match ready!(sent.as_mut().poll(cx)) {
                Ok(response) => HttpSseEvent::Answered(Box::new(response)),
                Err(error) => HttpSseEvent::Failed(error),
            },
            // While the relay accepts no messages, read only the endpoint, because no message can be sent without it.
            HttpSseState::Open(_) if !reads && is_named => return Poll::Pending,
            HttpSseState::Open(reader) => match ready!(reader.poll(cx)) {
                Some(Ok(ResponseItem::Endpoint(named))) => HttpSseEvent::Endpoint(named),
                Some(Ok(item)) => HttpSseEvent::Item(item),
                Some(Err(error)) => HttpSseEvent::Failed(error),
                None => HttpSseEvent::Lost("the server closed the stream".to_owned()),
            },
        })
    }

    /// Begins to read the stream.
    ///
    /// # Errors
    /// The reason why the response is not an event stream.
    pub(crate) fn accept(&mut self, response: Response<UpstreamBody>) -> Result<(), String> {
        match response_body::events(response) {
            Ok(body) => {
                self.state = HttpSseState::Open(Box::new(ResponseReader::events(body)));
                Ok(())
            }
            Err(parts) if parts.status.is_success() => {
                Err("the server answered with no stream of events".to_owned())
            }
            Err(parts) => Err(error_status::explain(&parts, b"")),
        }
    }

    /// Sets the endpoint that the server has named.
    pub(crate) fn set_endpoint(&mut self, endpoint: PathAndQuery) {
        if self.refusal.take().is_some() {
            tracing::info!("the server speaks HTTP+SSE (2024-11-05)");
        }
        self.endpoint = Some(endpoint);
        self.named_by = None;
    }

    /// Returns the successor of this lost stream. If there is a session, the successor is opened even without a waiting
    /// message, but only a few times.
    pub(crate) fn successor(&self, has_session: bool) -> Self {
        // Without a session nothing is lost: the next message opens a new stream.
        if !has_session || self.vain >= RETRIES_MAX {
            return Self { vain: self.vain, ..Self::default() };
        }
        let pause = RETRY * 2_u32.saturating_pow(self.vain);
        let state = HttpSseState::At(Instant::now() + pause);
        Self { state, vain: self.vain + 1, ..Self::default() }
    }

    /// Whether the stream will be opened again without a waiting message.
    pub(crate) fn is_scheduled(&self) -> bool {
        matches!(self.state, HttpSseState::At(_))
    }
}
