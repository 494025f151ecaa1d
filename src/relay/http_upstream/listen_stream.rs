//! The GET stream of a session: messages of the server that do not belong to a client's request.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderValue, Response};
use tokio::time::Instant;

use crate::transport::clock::growing_pause;
use crate::transport::http::client::Sending;
use crate::transport::http::client::UpstreamBody;
use crate::transport::mcp_http::response_body;
use crate::transport::mcp_http::response_reader::{ResponseItem, ResponseReader};

/// The pause before an ended stream is opened again, unless the server asks for another.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Maximum pause before a lost GET stream is opened again.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// After this time without a GET stream, requests whose answers were expected there get an error.
const ABSENT_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
enum ListenState {
    /// No stream is wanted, or the server has none.
    #[default]
    Off,
    At(Instant),
    Head(Sending),
    Open(Box<ResponseReader>),
}

/// The GET stream.
#[derive(Default)]
pub(crate) struct ListenStream {
    state: ListenState,
    last_id: Option<HeaderValue>,
    retry: Option<Duration>,
    /// Number of failed attempts since the last event.
    vain: u32,
    /// Since when the stream has not been open.
    closed_since: Option<Instant>,
}

impl ListenStream {
    /// Whether the stream is open, or will be opened.
    pub(crate) fn may_open(&self) -> bool {
        !matches!(self.state, ListenState::Off)
    }

    /// Returns the time at which requests no longer wait for a stream that does not open again.
    pub(crate) fn absent_at(&self) -> Option<Instant> {
        self.closed_since.map(|since| since + ABSENT_MAX)
    }

    /// Returns the time at which the stream is opened next.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.state {
            ListenState::At(at) => Some(at),
            _ => None,
        }
    }

    /// Returns the id of the event after which the next request resumes the stream.
    pub(crate) fn last_id(&self) -> Option<&HeaderValue> {
        self.last_id.as_ref()
    }

    /// Remembers the sent request for the stream, or handles the reason why no request can be made.
    pub(crate) fn open(&mut self, sent: Result<Sending, String>) {
        // The time counts from the first attempt, because a server that never opens the stream must be given up too.
        self.closed_since.get_or_insert_with(Instant::now);
        match sent {
            Ok(sent) => self.state = ListenState::Head(sent),
            Err(why) => {
                tracing::debug!(why, "no stream can be opened");
                self.pause();
            }
        }
    }

    /// Waits before the next attempt.
    fn pause(&mut self) {
        let retry = self.retry.unwrap_or(RETRY);
        let pause = growing_pause(retry, PAUSE_MAX.max(retry), self.vain);
        self.vain = self.vain.saturating_add(1);
        self.state = ListenState::At(Instant::now() + pause);
    }

    /// Reads the stream. Ready with `None` if the state of the stream has changed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<ResponseItem>> {
        match &mut self.state {
            ListenState::Off | ListenState::At(_) => return Poll::Pending,
            ListenState::Head(sent) => match ready!(sent.as_mut().poll(cx)) {
                Ok(response) => self.accept(response),
                Err(_) => self.pause(),
            },
            ListenState::Open(reader) => {
                let item = ready!(reader.poll(cx));
                if std::mem::take(&mut reader.has_event) {
                    self.vain = 0;
                }
                if let Some(Ok(item)) = item {
                    return Poll::Ready(Some(item));
                }
                // The next request resumes after the last event.
                self.last_id = reader.last_id.take();
                self.retry = reader.retry.or(self.retry);
                self.closed_since = Some(Instant::now());
                self.pause();
            }
        }
        Poll::Ready(None)
    }

    fn accept(&mut self, response: Response<UpstreamBody>) {
        match response_body::events(response) {
            Ok(body) => {
                let mut reader = ResponseReader::events(body);
                reader.last_id = self.last_id.take();
                self.closed_since = None;
                self.state = ListenState::Open(Box::new(reader));
            }
            // An error of the server (5xx) may be temporary; any other status means that the server has no GET stream.
            Err(parts) if parts.status.is_server_error() => self.pause(),
            // This stream is optional: a server without it answers 405 (MCP 2025-03-26, Streamable HTTP).
            Err(parts) => {
                tracing::debug!(status = %parts.status, "the server offers no listening stream");
                self.state = ListenState::Off;
            }
        }
    }
}
