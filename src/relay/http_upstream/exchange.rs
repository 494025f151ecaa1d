//! One POST and its response.

use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use futures::FutureExt;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use tokio::time::Instant;

use super::{HttpUpstream, Source};
use crate::observe::error_chain::error_chain;
use crate::progress::StreamId;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;
use crate::relay::http_upstream::listen_stream::RETRY;
use crate::relay::http_upstream::pending;
use crate::relay::http_upstream::pending::What;
use crate::relay::http_upstream::response_reader::Speech;
use crate::relay::http_upstream::target::{BOTH, EVENTS};
use crate::relay::legs::Headers;
use crate::transport::http::client::{Sending, UpstreamBody, UpstreamError};
use crate::transport::http::inflate::PlainBody;
use crate::transport::http::request_body::RequestBody;
use crate::transport::mcp_http::content::Content;
use crate::transport::mcp_http::header_mirror;
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, SESSION_ID};
use crate::transport::mcp_http::target::Target;

/// How long what comes behind a notification or an answer of the client waits for it to be accepted.
const ORDER_WAIT: Duration = Duration::from_secs(10);

/// How long a server may take to accept one at all.
const ACCEPT_WAIT: Duration = Duration::from_secs(60);

/// How long a response is read on when its requests have been answered: it ends most often at once, and
/// with some servers never.
const LINGER: Duration = Duration::from_secs(10);

/// Responses that are still read after their requests have been answered. Beyond the limit the
/// oldest is closed.
const LINGERING_MAX: usize = 16;

/// Attempts to resume a stream that sends nothing.
const RESUMES_MAX: u32 = 5;

/// How long the body of an error is waited for.
const ERROR_WAIT: Duration = Duration::from_secs(5);

/// Bytes of an error response that are read to find out whether the body is a JSON-RPC answer.
pub(crate) const ERROR_READ_MAX: usize = 64 << 10;

/// A message to be sent.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    /// What the client sent it with.
    pub(crate) headers: Headers,
    pub(crate) stream: StreamId,
    /// It is of 2026-07-28: it stands for itself, without a session.
    pub(crate) modern: bool,
    /// It has been sent once, and provably was not taken.
    pub(crate) again: bool,
    /// It is ours.
    pub(crate) own: Option<What>,
}

impl Outgoing {
    pub(crate) fn new(message: Message, headers: Headers, stream: StreamId) -> Self {
        let modern = header_mirror::repeats(&message).is_some();
        Self { message, headers, stream, modern, again: false, own: None }
    }

    /// Whether it has requests in it.
    pub(crate) fn asks(&self) -> bool {
        !pending::requests(&self.message).is_empty()
    }

    pub(crate) fn what(&self) -> What {
        self.own.unwrap_or_else(|| pending::what(&self.message, self.modern))
    }

    pub(crate) fn is(&self, method: &str) -> bool {
        self.message.method().is_some_and(|own| own == method)
    }
}

/// Where an exchange stands.
pub(crate) enum State {
    /// It has been sent.
    Head(Sending),
    /// The server answers.
    Speech(Speech),
    /// It answers with a status that is no success, and this is the beginning of the body.
    Failure(Box<http::response::Parts>, PlainBody, BytesMut),
    /// What it says means nothing.
    Rest(UpstreamBody, usize),
    /// The server has closed the stream; it is gone back to at this time, behind this event.
    Away(Instant, HeaderValue),
    /// It is gone back to.
    Back(Sending, HeaderValue),
}

pub(crate) struct Exchange {
    pub(crate) out: Outgoing,
    pub(crate) state: State,
    /// The number of the session that it was sent in.
    pub(crate) session: Option<u64>,
    /// Until when others wait behind it.
    pub(crate) ahead_until: Option<Instant>,
    /// When it is over at last.
    pub(crate) leaves_at: Option<Instant>,
    /// When the server was asked last.
    sent: Instant,
    /// How often it was gone back to in vain.
    resumes: u32,
    /// The server's time to retry.
    retry: Duration,
}

impl Exchange {
    /// When something happens to it by itself, if a server may be silent for as long as `idle`.
    pub(crate) fn due(&self, idle: Option<Duration>) -> Option<Instant> {
        let back = match self.state {
            State::Away(at, _) => Some(at),
            _ => self.silent_until(idle),
        };
        [back, self.ahead_until, self.leaves_at].into_iter().flatten().min()
    }

    /// Until when the server may say nothing.
    pub(crate) fn silent_until(&self, idle: Option<Duration>) -> Option<Instant> {
        let since = match &self.state {
            State::Head(_) | State::Back(..) => self.sent,
            State::Speech(speech) => speech.heard,
            _ => return None,
        };
        idle.map(|idle| since + idle)
    }
}

/// A request on its way.
pub(crate) fn sending(target: &Target, request: Request<RequestBody>) -> Sending {
    let client = target.client.clone();
    async move { client.send(request).await }.boxed()
}

impl HttpUpstream {
    /// Sends a message now.
    pub(crate) fn launch(&mut self, out: Outgoing) {
        self.reach.tried.store(true, Relaxed);
        let what = out.what();
        if what == What::Initialize {
            self.session.begins(&out);
        }
        if out.headers.is_some() {
            self.session.said.clone_from(&out.headers);
        }
        self.asked.enter(&out.message, out.stream, what);
        let sent = match self.post(&out) {
            Ok(sent) => sent,
            Err(why) => {
                tracing::warn!(why, "a message cannot be sent");
                return self.refuse_all(out.stream, &why, None);
            }
        };
        let now = Instant::now();
        let asks = out.asks();
        let in_session = !out.modern && !matches!(what, What::Initialize | What::Renewal);
        let session = (in_session && self.session.id.is_some()).then_some(self.session.number);
        let exchange = Exchange {
            state: State::Head(sent),
            session,
            ahead_until: (!asks).then(|| now + ORDER_WAIT),
            leaves_at: (!asks).then(|| now + ACCEPT_WAIT),
            sent: now,
            resumes: 0,
            retry: RETRY,
            out,
        };
        self.exchanges.insert(exchange.out.stream, exchange);
    }

    /// The POST of a message.
    fn post(&self, out: &Outgoing) -> Result<Sending, String> {
        let json = HeaderValue::from_static("application/json");
        let mut own = vec![(header::ACCEPT, BOTH), (CONTENT_TYPE, json)];
        if let Some(repeats) = header_mirror::repeats(&out.message) {
            let said = repeats
                .into_iter()
                .filter_map(|(name, text)| Some((name, header_mirror::encoded(&text?)?)));
            own.extend(said);
            own.extend(self.params.headers(&out.message));
        } else if !matches!(out.what(), What::Initialize | What::Renewal) {
            own.extend(self.session.headers());
        }
        let raw = out.message.raw();
        let end =
            raw.len() - raw.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
        let body = RequestBody::from(raw.slice(..end));
        let (target, uri) = self.destination().ok_or("there is nowhere to send it to")?;
        let headers = if out.headers.is_some() { &out.headers } else { &self.session.said };
        let request = self.upstream.request(target, uri, Method::POST, headers, own, body)?;
        Ok(sending(target, request))
    }

    /// Where messages are posted to.
    fn destination(&self) -> Option<(&Target, http::Uri)> {
        let Some(wire) = &self.wire else {
            let target = self.upstream.endpoint.as_ref()?;
            return Some((target, target.uri(None)));
        };
        let target = self.upstream.sse.as_ref().or(self.upstream.endpoint.as_ref())?;
        Some((target, target.at(wire.endpoint.clone()?)))
    }

    /// A GET for events: a new stream, or the rest of one.
    pub(crate) fn get(
        &self,
        target: &Target,
        behind: Option<&HeaderValue>,
    ) -> Result<Sending, String> {
        let mut own = vec![(header::ACCEPT, EVENTS)];
        own.extend(self.session.headers());
        own.extend(behind.map(|id| (LAST_EVENT_ID, id.clone())));
        let (uri, body) = (target.uri(None), RequestBody::empty());
        let request =
            self.upstream.request(target, uri, Method::GET, &self.session.said, own, body)?;
        Ok(sending(target, request))
    }

    pub(crate) fn drop_exchange(&mut self, stream: StreamId) {
        self.exchanges.remove(&stream);
        self.silenced(Source::Exchange(stream));
    }

    /// The requests of a POST have been answered, or given up: its stream may say more for a while.
    pub(crate) fn linger(&mut self, stream: StreamId) {
        if self.asked.has(stream) || self.wire.is_some() {
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(&stream) else { return };
        exchange.leaves_at.get_or_insert_with(|| Instant::now() + LINGER);
        let lingers = |exchange: &&Exchange| exchange.leaves_at.is_some() && exchange.out.asks();
        let lingering = self.exchanges.values().filter(lingers);
        if lingering.clone().count() > LINGERING_MAX
            && let Some(oldest) = lingering.map(|exchange| exchange.out.stream).next()
        {
            self.drop_exchange(oldest);
        }
    }

    /// Waits for the heads of responses, and reads those that are no speech.
    pub(crate) fn poll_heads(&mut self, cx: &mut Context<'_>) -> bool {
        let streams: Vec<StreamId> = self.exchanges.keys().copied().collect();
        let mut moved = false;
        for stream in streams {
            moved |= self.poll_head(stream, cx);
        }
        moved
    }

    fn poll_head(&mut self, stream: StreamId, cx: &mut Context<'_>) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&stream) else { return false };
        match &mut exchange.state {
            State::Head(sent) => {
                let Poll::Ready(answer) = sent.as_mut().poll(cx) else { return false };
                exchange.ahead_until = None;
                match answer {
                    Ok(response) => self.begun(stream, response),
                    Err(error) => self.unreachable(stream, &error),
                }
            }
            State::Back(sent, id) => {
                let Poll::Ready(answer) = sent.as_mut().poll(cx) else { return false };
                let id = id.clone();
                match answer {
                    Ok(response) => self.returned(stream, response, id),
                    Err(error) => self.away(stream, id, Some(&error)),
                }
            }
            State::Failure(_, body, read) => {
                let Poll::Ready(next) = body.poll_data(cx) else { return false };
                if let Some(Ok(chunk)) = next
                    && read.len() < ERROR_READ_MAX
                {
                    read.extend_from_slice(&chunk);
                    return true;
                }
                self.failed(stream);
            }
            State::Rest(body, read) => {
                let Poll::Ready(next) = body.poll_data(cx) else { return false };
                match next {
                    Some(Ok(chunk)) if *read < ERROR_READ_MAX => *read += chunk.len(),
                    _ => self.drop_exchange(stream),
                }
            }
            State::Speech(_) | State::Away(..) => return false,
        }
        true
    }

    /// There is no answer at all.
    pub(crate) fn unreachable(&mut self, stream: StreamId, error: &UpstreamError) {
        let why = error_chain(error);
        tracing::warn!(error = why, "the server could not be asked");
        if let (Some(counts), Some(kind)) = (&self.upstream.counts, error.kind()) {
            counts.upstream_error(kind);
        }
        self.drop_exchange(stream);
        self.refuse_all(stream, &why, None);
    }

    /// There is the head of an answer.
    fn begun(&mut self, stream: StreamId, response: Response<UpstreamBody>) {
        self.reach.reached.store(true, Relaxed);
        let (parts, body) = response.into_parts();
        let Some(exchange) = self.exchanges.get_mut(&stream) else { return };
        if !parts.status.is_success() {
            if parts.status == StatusCode::NOT_FOUND && exchange.session.is_some() {
                return self.session_lost(stream);
            }
            return match PlainBody::new(body, &parts.headers) {
                Some(body) => {
                    exchange.leaves_at = Some(Instant::now() + ERROR_WAIT);
                    exchange.state = State::Failure(Box::new(parts), body, BytesMut::new());
                }
                None => self.refused(stream, parts.status),
            };
        }
        let what = exchange.out.what();
        let (asks, ready) = (exchange.out.asks(), exchange.out.is(mcp::INITIALIZED));
        if matches!(what, What::Initialize | What::Renewal) && self.wire.is_none() {
            self.session.id = parts.headers.get(SESSION_ID).cloned();
        }
        if !asks || self.wire.is_some() {
            // In HTTP+SSE everything that is said comes on the stream.
            exchange.state = State::Rest(body, 0);
            exchange.leaves_at.get_or_insert_with(|| Instant::now() + ACCEPT_WAIT);
            if ready {
                self.ready_taken();
            }
            return;
        }
        let content = Content::unpacked(&parts.headers);
        let nothing = [StatusCode::ACCEPTED, StatusCode::NO_CONTENT].contains(&parts.status);
        if nothing && self.listen.is_open() {
            // The answer comes on the GET stream.
            self.drop_exchange(stream);
            return;
        }
        let plain = PlainBody::new(body, &parts.headers);
        exchange.state = match (content, plain) {
            (Content::Events, Some(body)) => State::Speech(Speech::events(body)),
            (Content::Json, Some(body)) => State::Speech(Speech::json(body)),
            (Content::Other, Some(_)) => {
                let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
                let kind = kind.unwrap_or("no content type");
                let why = format!(
                    "the server answered with HTTP status {} and {kind} instead of JSON or events",
                    parts.status
                );
                self.drop_exchange(stream);
                return self.refuse_all(stream, &why, Some(parts.status.as_u16()));
            }
            (_, None) => {
                let why = "the server compressed its answer although asked not to";
                self.drop_exchange(stream);
                return self.refuse_all(stream, why, None);
            }
        };
    }

    /// Reads one thing of an exchange.
    pub(crate) fn poll_exchange(&mut self, stream: StreamId, cx: &mut Context<'_>) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&stream) else { return false };
        let State::Speech(speech) = &mut exchange.state else { return false };
        let Poll::Ready(said) = speech.poll(cx) else { return false };
        if std::mem::take(&mut speech.has_spoken) {
            exchange.resumes = 0;
        }
        match said {
            Some(Ok(said)) => self.said(Source::Exchange(stream), said),
            Some(Err(error)) => self.ended(stream, Some(&error)),
            None => self.ended(stream, None),
        }
        true
    }

    /// A stream is over.
    fn ended(&mut self, stream: StreamId, error: Option<&UpstreamError>) {
        let Some(exchange) = self.exchanges.get_mut(&stream) else { return };
        let last_id = match &mut exchange.state {
            State::Speech(speech) => {
                exchange.retry = speech.retry.unwrap_or(exchange.retry);
                speech.last_id.take()
            }
            _ => None,
        };
        match last_id.filter(|_| !exchange.out.modern && self.asked.has(stream)) {
            Some(id) => self.away(stream, id, error),
            None => self.broken(stream, error),
        }
    }

    fn broken(&mut self, stream: StreamId, error: Option<&UpstreamError>) {
        self.drop_exchange(stream);
        let why = match error {
            Some(error) => error_chain(error),
            None => "the server ended its response without an answer".to_owned(),
        };
        if self.asked.has(stream) {
            tracing::warn!(why, "a request has no answer");
        }
        self.refuse_all(stream, &why, None);
    }

    /// The stream of a request is gone back to, behind the event of this id, unless that has failed too
    /// often.
    fn away(&mut self, stream: StreamId, id: HeaderValue, error: Option<&UpstreamError>) {
        let Some(exchange) = self.exchanges.get_mut(&stream) else { return };
        if exchange.resumes >= RESUMES_MAX || !self.asked.has(stream) {
            return self.broken(stream, error);
        }
        let wait = exchange.retry * 2_u32.pow(exchange.resumes.saturating_sub(1));
        exchange.resumes += 1;
        exchange.state = State::Away(Instant::now() + wait, id);
    }

    /// It is time to go back.
    pub(crate) fn go_back(&mut self, stream: StreamId) {
        let Some(exchange) = self.exchanges.get(&stream) else { return };
        let State::Away(_, id) = &exchange.state else { return };
        let id = id.clone();
        let sent = match &self.upstream.endpoint {
            Some(target) => self.get(target, Some(&id)),
            None => Err(String::new()),
        };
        match sent {
            Ok(sent) => {
                if let Some(exchange) = self.exchanges.get_mut(&stream) {
                    exchange.sent = Instant::now();
                    exchange.state = State::Back(sent, id);
                }
            }
            Err(why) => {
                self.drop_exchange(stream);
                self.refuse_all(stream, &why, None);
            }
        }
    }

    fn returned(&mut self, stream: StreamId, response: Response<UpstreamBody>, id: HeaderValue) {
        let (parts, body) = response.into_parts();
        let events = Content::unpacked(&parts.headers) == Content::Events;
        let plain = PlainBody::new(body, &parts.headers).filter(|_| events);
        match (parts.status, plain) {
            (StatusCode::OK, Some(body)) => {
                if let Some(exchange) = self.exchanges.get_mut(&stream) {
                    let mut speech = Speech::events(body);
                    speech.last_id = Some(id);
                    exchange.state = State::Speech(speech);
                }
            }
            (status, _) if status.is_server_error() => self.away(stream, id, None),
            (status, _) => {
                self.drop_exchange(stream);
                let why = format!(
                    "the server closed the stream of the request, and answered with HTTP status \
                     {status} when it was asked for the rest"
                );
                self.refuse_all(stream, &why, Some(status.as_u16()));
            }
        }
    }
}

impl HttpUpstream {
    /// Whether messages behind one that is on its way have to wait.
    pub(crate) fn is_ordered(&self) -> bool {
        self.exchanges.values().any(|exchange| exchange.ahead_until.is_some())
    }

    /// Whether the message is told and not asked.
    pub(crate) fn is_told(message: &Message) -> bool {
        message.kind() != Kind::Request && pending::requests(message).is_empty()
    }
}
