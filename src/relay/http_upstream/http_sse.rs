//! HTTP+SSE (2024-11-05): one stream for everything that the server says, and an endpoint to post to that
//! it names first.

use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::exchange::Outgoing;
use super::session::Phase;
use super::{HttpUpstream, Source};
use crate::observe::error_chain::error_chain;
use crate::relay::http_upstream::error_status;
use crate::relay::http_upstream::response_reader::{Said, Speech};
use crate::transport::http::client::{Sending, UpstreamBody, UpstreamError};
use crate::transport::http::inflate::PlainBody;
use crate::transport::mcp_http::content::Content;
use crate::transport::mcp_http::sse_endpoint::same_origin;

/// How long a server may take to name its endpoint.
const ENDPOINT_WAIT: Duration = Duration::from_secs(10);

/// Pause before a lost stream is opened again; twice as long each time.
const RETRY: Duration = Duration::from_secs(1);

/// Attempts to open a lost HTTP+SSE stream again before the next message of the client.
const RETRIES_MAX: u32 = 5;

#[derive(Default)]
enum State {
    #[default]
    Idle,
    At(Instant),
    Head(Sending),
    Open(Box<Speech>),
}

/// The stream and its endpoint.
#[derive(Default)]
pub(crate) struct Wire {
    state: State,
    /// Where messages are posted to, once the server has said so.
    pub(crate) endpoint: Option<PathAndQuery>,
    /// Until when it has to be named.
    named_by: Option<Instant>,
    /// Attempts in vain.
    vain: u32,
    /// It is only looked for: what the server said to a POST, and its status.
    refusal: Option<(String, StatusCode)>,
}

impl Wire {
    /// The server has been spoken to on it.
    pub(crate) fn works(&mut self) {
        self.vain = 0;
    }

    pub(crate) fn due(&self, idle: Option<Duration>) -> Option<Instant> {
        match &self.state {
            State::At(at) => Some(*at),
            State::Open(speech) if self.endpoint.is_some() => idle.map(|idle| speech.heard + idle),
            _ => self.named_by,
        }
    }
}

impl HttpUpstream {
    /// The server did not take the first POST: perhaps it speaks HTTP+SSE (rule L-09).
    pub(crate) fn look_for_http_sse(&mut self, out: Outgoing, why: String, status: StatusCode) {
        self.session.phase = Phase::Free;
        self.wire = Some(Wire { refusal: Some((why, status)), ..Wire::default() });
        self.requeue(out);
    }

    fn connect(&mut self) {
        let target = self.upstream.sse.as_ref().or(self.upstream.endpoint.as_ref());
        let sent = match target {
            Some(target) => self.get(target, None),
            None => Err("the route has no server".to_owned()),
        };
        self.reach.tried.store(true, Relaxed);
        match (sent, &mut self.wire) {
            (Ok(sent), Some(wire)) => {
                wire.state = State::Head(sent);
                wire.named_by = Some(Instant::now() + ENDPOINT_WAIT);
            }
            (Err(why), _) => self.wire_lost(&why),
            (Ok(_), None) => {}
        }
    }

    /// It is time to open the stream again, or to give up waiting for the endpoint.
    pub(crate) fn wire_due(&mut self) {
        match self.wire.as_ref().map(|wire| &wire.state) {
            Some(State::At(_)) => self.connect(),
            Some(_) if self.wire.as_ref().is_some_and(|wire| wire.endpoint.is_some()) => {
                let idle = self.upstream.idle.unwrap_or_default();
                self.wire_lost(&UpstreamError::Idle(idle).to_string());
            }
            Some(_) => self.wire_lost("the server names no endpoint to post to"),
            None => {}
        }
    }

    /// Opens the stream, and reads it: until the endpoint is known for whoever has something to say.
    pub(crate) fn poll_wire(&mut self, cx: &mut Context<'_>, reads: bool) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        match &mut wire.state {
            State::Idle if !self.queue.is_empty() => self.connect(),
            State::Idle | State::At(_) => return false,
            State::Head(sent) => {
                let Poll::Ready(answer) = sent.as_mut().poll(cx) else { return false };
                match answer {
                    Ok(response) => self.wire_answered(response),
                    Err(error) => self.wire_lost(&error_chain(&error)),
                }
            }
            State::Open(speech) => {
                if !reads && wire.endpoint.is_some() {
                    return false;
                }
                let Poll::Ready(said) = speech.poll(cx) else { return false };
                match said {
                    Some(Ok(Said::Endpoint(named))) => self.named(&named),
                    Some(Ok(said)) => self.said(Source::Wire, said),
                    Some(Err(error)) => self.wire_lost(&error_chain(&error)),
                    None => self.wire_lost("the server closed the stream"),
                }
            }
        }
        true
    }

    fn wire_answered(&mut self, response: Response<UpstreamBody>) {
        self.reach.reached.store(true, Relaxed);
        let (parts, body) = response.into_parts();
        let events = Content::unpacked(&parts.headers) == Content::Events;
        let plain = PlainBody::new(body, &parts.headers).filter(|_| events);
        match (parts.status, plain, &mut self.wire) {
            (StatusCode::OK, Some(body), Some(wire)) => {
                wire.state = State::Open(Box::new(Speech::events(body)));
            }
            (StatusCode::OK, ..) => self.wire_lost("the server answered with no stream of events"),
            (status, ..) => self.wire_lost(&error_status::told(status, &parts.headers)),
        }
    }

    /// The server has said where it is posted to.
    fn named(&mut self, named: &Bytes) {
        let target = self.upstream.sse.as_ref().or(self.upstream.endpoint.as_ref());
        let base = target.and_then(|target| target.url.as_ref());
        let Some(endpoint) = base.and_then(|base| same_origin(base, named)) else {
            return self.wire_lost("the server names an endpoint of another origin");
        };
        let Some(wire) = &mut self.wire else { return };
        if wire.refusal.take().is_some() {
            tracing::info!("the server speaks HTTP+SSE (2024-11-05)");
        }
        wire.endpoint = Some(endpoint);
        wire.named_by = None;
        if self.session.begun.is_some() {
            tracing::warn!(
                "the stream of the server was lost and is open again: its session is begun again as \
                 the client began it; what the server knew of it is gone"
            );
            self.session.phase = Phase::Lost;
            self.renew();
        }
    }

    /// There is no stream, or no longer: whatever was asked will never be answered.
    fn wire_lost(&mut self, why: &str) {
        let Some(lost) = self.wire.take() else { return };
        self.silenced(Source::Wire);
        if let Some((refusal, status)) = lost.refusal {
            // It was none: what the server said to the POST stands.
            let why = format!("{refusal}; and with GET there is no HTTP+SSE: {why}");
            tracing::warn!(why, "the server cannot be spoken to");
            return self.refuse_first(&why, status);
        }
        tracing::warn!(why, "the server has no stream");
        let was_open = lost.endpoint.is_some();
        let begun = self.session.begun.is_some();
        let retries = begun && (lost.vain < RETRIES_MAX);
        let pause = RETRY * 2_u32.saturating_pow(lost.vain);
        let state = if retries { State::At(Instant::now() + pause) } else { State::Idle };
        let vain = if retries { lost.vain + 1 } else { lost.vain };
        self.wire = Some(Wire { state, vain, ..Wire::default() });
        self.exchanges.clear();
        if self.session.phase == Phase::Renews {
            self.session.phase = Phase::Free;
        }
        for asked in self.asked.take_all() {
            self.refuse(&asked, why, None);
        }
        if !retries || !was_open {
            self.refuse_queue(why);
        }
    }

    /// The message that was sent first gets an error.
    fn refuse_first(&mut self, why: &str, status: StatusCode) {
        let Some(out) = self.queue.pop_front() else { return };
        self.asked.enter(&out.message, out.stream, out.what());
        self.refuse_all(out.stream, why, Some(status.as_u16()));
    }
}
