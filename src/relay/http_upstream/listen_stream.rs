//! The GET stream of a session: what a server says to nobody's request.

use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use super::{HttpUpstream, Source};
use crate::relay::http_upstream::response_reader::Speech;
use crate::transport::http::client::Sending;
use crate::transport::http::inflate::PlainBody;
use crate::transport::mcp_http::content::Content;

/// How long a stream that has ended is not opened again, unless the server says otherwise.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The longest pause before a lost GET stream is opened again.
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
enum State {
    /// There is none, or the server has none.
    #[default]
    Off,
    At(Instant),
    Head(Sending),
    Open(Box<Speech>),
}

/// The GET stream.
#[derive(Default)]
pub(crate) struct Listen {
    state: State,
    last_id: Option<HeaderValue>,
    retry: Option<Duration>,
    /// Attempts in vain since something came last.
    vain: u32,
}

impl Listen {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        match self.state {
            State::At(at) => Some(at),
            _ => None,
        }
    }

    /// It is tried again after a pause.
    fn pause(&mut self) {
        let retry = self.retry.unwrap_or(RETRY);
        let grown = retry.saturating_mul(2_u32.saturating_pow(self.vain));
        self.vain = self.vain.saturating_add(1);
        self.state = State::At(Instant::now() + grown.min(PAUSE_MAX.max(retry)));
    }
}

impl HttpUpstream {
    /// The session is there: what the server says by itself can come.
    pub(crate) fn open_listen(&mut self) {
        let Some(target) = &self.upstream.endpoint else { return };
        match self.get(target, self.listen.last_id.as_ref()) {
            Ok(sent) => self.listen.state = State::Head(sent),
            Err(why) => {
                tracing::debug!(why, "no stream can be opened");
                self.listen.pause();
            }
        }
    }

    pub(crate) fn close_listen(&mut self) {
        self.listen = Listen::default();
        self.silenced(Source::Listen);
    }

    /// Reads one thing of it.
    pub(crate) fn poll_listen(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.listen.state {
            State::Off | State::At(_) => return false,
            State::Head(sent) => {
                let Poll::Ready(answer) = sent.as_mut().poll(cx) else { return false };
                let Ok(response) = answer else {
                    self.listen.pause();
                    return true;
                };
                let (parts, body) = response.into_parts();
                let events = Content::unpacked(&parts.headers) == Content::Events;
                let plain = PlainBody::new(body, &parts.headers).filter(|_| events);
                match (parts.status, plain) {
                    (StatusCode::OK, Some(body)) => {
                        let mut speech = Speech::events(body);
                        speech.last_id = self.listen.last_id.take();
                        self.listen.state = State::Open(Box::new(speech));
                    }
                    (status, _) if status.is_server_error() => self.listen.pause(),
                    // A server without such a stream is nothing unusual.
                    (status, _) => {
                        tracing::debug!(%status, "the server has no stream of its own");
                        self.listen.state = State::Off;
                    }
                }
            }
            State::Open(speech) => {
                let Poll::Ready(said) = speech.poll(cx) else { return false };
                if std::mem::take(&mut speech.has_spoken) {
                    self.listen.vain = 0;
                }
                if let Some(Ok(said)) = said {
                    self.said(Source::Listen, said);
                } else {
                    self.listen.last_id = speech.last_id.take();
                    self.listen.retry = speech.retry.or(self.listen.retry);
                    self.listen.pause();
                }
            }
        }
        true
    }
}
