//! The MCP client of one server over HTTP: keeps messages in order, and reacts to answers.

mod messages;
mod recovery;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::exchange::{HeadEvent, PostExchange, PostExchanges};
use super::http_sse::{HttpSseEvent, HttpSseStream};
use super::inbox::{Inbox, ResponseStream};
use super::listen_stream::ListenStream;
use super::outgoing::{Outgoing, RequestKind};
use super::pending::{PendingRequest, PendingRequests};
use super::requests;
use super::send_queue::SendQueue;
use super::session::{SessionPhase, UpstreamSession};
use super::target::UpstreamTarget;
use super::tool_refresh::ToolRefresh;
use crate::progress::input::UPSTREAM_STREAMS;
use crate::progress::{Origin, StreamId};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Kind, METHOD_NOT_FOUND, Message, error_answer, own_error};
use crate::protocol::mcp::DISCOVER;
use crate::relay::legs::{ClientHeaders, FromServer};
use crate::transport::http::client::Sending;
use crate::transport::http::client::UpstreamError;
use crate::transport::mcp_http::request_body::cancels_in;
use crate::transport::mcp_http::tool_headers::ToolHeaders;

/// Maximum number of concurrent POSTs to one server. Each uses a connection; further requests wait.
const POSTS_MAX: usize = 128;

/// Maximum number of unanswered requests to one server. Further requests wait.
const ASKED_MAX: usize = 4096;

/// Whether a server was ever asked, and whether it ever answered.
#[derive(Debug, Clone, Default)]
pub struct Reachability {
    tried: Arc<AtomicBool>,
    reached: Arc<AtomicBool>,
}

impl Reachability {
    /// Whether the server was asked but never answered.
    pub fn has_failed(&self) -> bool {
        self.tried.load(Relaxed) && !self.reached.load(Relaxed)
    }
}

/// The client of one server.
pub(crate) struct UpstreamClient {
    pub(crate) target: UpstreamTarget,
    reachability: Reachability,
    session: UpstreamSession,
    queue: SendQueue,
    exchanges: PostExchanges,
    pending: PendingRequests,
    listen: ListenStream,
    /// The POSTs whose answers are expected on the GET stream.
    elsewhere: BTreeSet<StreamId>,
    /// The stream of HTTP+SSE, if the server uses this transport as far as is known.
    http_sse: Option<HttpSseStream>,
    tools: ToolHeaders,
    refresh: ToolRefresh,
    pub(crate) inbox: Inbox,
    /// The index of the exchange that is read first next time, so that all take turns.
    turn: usize,
    last_stream: u64,
}

impl UpstreamClient {
    pub(crate) fn new(target: UpstreamTarget) -> Self {
        let http_sse = target.endpoint.is_none().then(HttpSseStream::default);
        Self {
            target,
            reachability: Reachability::default(),
            session: UpstreamSession::default(),
            queue: SendQueue::default(),
            exchanges: PostExchanges::default(),
            pending: PendingRequests::default(),
            listen: ListenStream::default(),
            elsewhere: BTreeSet::new(),
            http_sse,
            tools: ToolHeaders::default(),
            refresh: ToolRefresh::default(),
            inbox: Inbox::default(),
            turn: 0,
            last_stream: UPSTREAM_STREAMS,
        }
    }

    pub(crate) fn reachability(&self) -> Reachability {
        self.reachability.clone()
    }

    fn next_stream(&mut self) -> StreamId {
        self.last_stream += 1;
        StreamId(self.last_stream)
    }

    /// Sends a client message as soon as possible. Returns the stream on which its answers come, if they have a
    /// separate stream.
    pub(crate) fn send(&mut self, message: Message, headers: &ClientHeaders) -> Option<StreamId> {
        let is_array = message.kind() == Kind::Batch;
        // An array is sent whole, even if it contains cancellations that need not be sent. `fold` instead of `any`,
        // because each cancellation of an array must be noted.
        let is_needless =
            cancels_in(&message).iter().map(|cancel| self.cancel(cancel)).fold(false, |a, b| a | b);
        if is_needless && !is_array {
            return None;
        }
        if self.http_sse.is_some() && message.method().is_some_and(|method| method == DISCOVER) {
            // HTTP+SSE is older than `server/discover`, and such servers may never answer it.
            if let Some(id) = message.id().filter(|_| message.kind() == Kind::Request) {
                let why = "the server speaks HTTP+SSE of 2024-11-05";
                let error = error_answer(&id, METHOD_NOT_FOUND, why, None);
                self.inbox.push_from(Origin::Shared, Message::parse(error));
            }
            return None;
        }
        let stream = self.next_stream();
        let out = Outgoing::new(message, headers.clone(), stream);
        let has_requests = out.has_requests();
        self.queue.push(out);
        self.pump();
        (has_requests && self.http_sse.is_none()).then_some(stream)
    }

    /// Cancels a request without a notification to the server, if possible: an unsent request is dropped, and in
    /// 2026-07-28 closing the stream cancels. Returns whether no notification is needed.
    fn cancel(&mut self, cancel: &Message) -> bool {
        let params = cancel.params().unwrap_or_default();
        let id = json::member(&params, "requestId");
        let Some(id) = id.as_ref().and_then(Key::read) else { return false };
        // The request was not sent yet, so the server gets neither the request nor its cancellation.
        if self.queue.cancel(&id) || self.refresh.cancel(&id) {
            return true;
        }
        // The request is unknown here: only a server with a session may still know it.
        let Some(stream) = self.pending.stream_of(&id) else { return !self.session.has_begun() };
        let modern = self.exchanges.get(stream).is_some_and(|exchange| exchange.out.modern);
        if modern {
            // Closing the stream cancels its request.
            self.pending.take(stream);
            self.drop_exchange(stream);
        } else {
            // A cancelled request may stay unanswered.
            self.pending.answer(&id, Some(stream));
            if !self.pending.has(stream) {
                self.elsewhere.remove(&stream);
            }
            self.linger(stream);
        }
        modern
    }

    /// Whether no message may be sent now.
    fn is_blocked(&self) -> bool {
        let unnamed = self.http_sse.as_ref().is_some_and(|stream| !stream.is_named());
        unnamed || self.session.phase != SessionPhase::Free
    }

    /// Whether the maximum number of requests is open.
    fn is_busy(&self) -> bool {
        self.exchanges.open() >= POSTS_MAX || self.pending.len() >= ASKED_MAX
    }

    /// Sends all messages that may be sent. Each notification or answer must be accepted before the next message is
    /// sent; requests are sent simultaneously, up to the limit.
    pub(crate) fn pump(&mut self) -> bool {
        if self.session.phase == SessionPhase::Lost && !self.queue.is_empty() && self.can_renew() {
            self.renew();
            return true;
        }
        if self.session.phase == SessionPhase::Renews && !self.is_renewing() {
            self.fail_renewal("the server did not let it begin");
            return true;
        }
        let (mut moved, mut at) = (false, 0);
        // Check both conditions before each message, because the message just sent may make the next one wait.
        while !self.is_blocked() && !self.exchanges.are_ordered() {
            let Some(out) = self.queue.next(&mut at, !self.is_busy()) else { break };
            self.launch(out);
            moved = true;
        }
        moved
    }

    /// Sends a message now.
    fn launch(&mut self, out: Outgoing) {
        self.reachability.tried.store(true, Relaxed);
        self.session.note_sent(&out);
        self.pending.add(&out);
        match self.post(&out) {
            Ok(sending) => {
                let session = self.session.number_for(&out);
                self.exchanges.insert(PostExchange::new(out, sending, session));
            }
            Err(why) => {
                tracing::warn!(why, "a message cannot be sent");
                self.refuse_all(out.stream, &why, None);
            }
        }
    }

    fn post(&self, out: &Outgoing) -> Result<Sending, String> {
        let destination = match &self.http_sse {
            None => self.target.endpoint.as_ref().map(|target| (target, target.uri(None))),
            Some(stream) => self
                .target
                .sse_endpoint()
                .and_then(|target| Some((target, target.at(stream.endpoint.clone()?)))),
        };
        let destination = destination.ok_or("there is nowhere to send it to")?;
        requests::post(&self.target, destination, out, &self.session, &self.tools)
    }

    /// Whether a sent or waiting message may not have reached the server yet.
    pub(crate) fn is_sending(&self) -> bool {
        !self.queue.is_empty() || self.exchanges.await_head()
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.queue.is_full()
    }

    /// Waits for the heads of responses, and reads bodies that are not answers. Returns whether something happened.
    pub(crate) fn poll_heads(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        for stream in self.exchanges.streams() {
            let Some(exchange) = self.exchanges.get_mut(stream) else { continue };
            let Poll::Ready(event) = exchange.poll_head(cx) else { continue };
            moved = true;
            match event {
                HeadEvent::Progress => {}
                HeadEvent::Head(response) => self.accept_head(stream, *response),
                HeadEvent::Unreachable(error) => self.mark_unreachable(stream, &error),
                HeadEvent::Resumed(response, id) => self.accept_resumed(stream, *response, id),
                HeadEvent::ResumeFailed(id, error) => self.resume_later(stream, id, Some(&error)),
                HeadEvent::ErrorRead => self.take_error(stream),
                HeadEvent::Finished => self.drop_exchange(stream),
            }
        }
        moved
    }

    /// Reads one item if one is available: from the stream whose large message is being forwarded, or else from the
    /// streams in turn.
    pub(crate) fn poll_items(&mut self, cx: &mut Context<'_>) -> bool {
        match self.inbox.midway() {
            Some(ResponseStream::Exchange(stream)) => return self.poll_exchange(stream, cx),
            Some(ResponseStream::Listen) => return self.poll_listen(cx),
            // This stream is read by `poll_http_sse`.
            Some(ResponseStream::HttpSse) => return false,
            None => {}
        }
        // Copy the list, because an item may end its exchange.
        let streams = self.exchanges.streams();
        self.turn = self.turn.wrapping_add(1);
        for at in 0..streams.len() {
            let stream = streams[(self.turn.wrapping_add(at)) % streams.len()];
            if self.poll_exchange(stream, cx) {
                return true;
            }
        }
        self.poll_listen(cx)
    }

    fn poll_exchange(&mut self, stream: StreamId, cx: &mut Context<'_>) -> bool {
        let Some(exchange) = self.exchanges.get_mut(stream) else { return false };
        let Poll::Ready(item) = exchange.poll_item(cx) else { return false };
        match item {
            Some(Ok(item)) => self.receive(ResponseStream::Exchange(stream), item),
            Some(Err(error)) => self.end_response(stream, Some(&error)),
            None => self.end_response(stream, None),
        }
        true
    }

    fn poll_listen(&mut self, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(item) = self.listen.poll(cx) else { return false };
        match item {
            Some(item) => self.receive(ResponseStream::Listen, item),
            None if !self.listen.may_open() => self.fail_elsewhere("the server has no GET stream"),
            None => {}
        }
        true
    }

    /// Opens the stream of HTTP+SSE if there is something to send, and reads it with `reads`.
    pub(crate) fn poll_http_sse(&mut self, cx: &mut Context<'_>, reads: bool) -> bool {
        let wanted = !self.queue.is_empty();
        let Some(stream) = &mut self.http_sse else { return false };
        let Poll::Ready(event) = stream.poll(cx, wanted, reads) else { return false };
        match event {
            HttpSseEvent::Wanted => self.connect_http_sse(),
            HttpSseEvent::Answered(response) => {
                self.reachability.reached.store(true, Relaxed);
                if let Err(why) = stream.accept(*response) {
                    self.lose_http_sse(&why);
                }
            }
            HttpSseEvent::Endpoint(named) => self.take_endpoint(&named),
            HttpSseEvent::Item(item) => self.receive(ResponseStream::HttpSse, item),
            HttpSseEvent::Lost(why) => self.lose_http_sse(&why),
            HttpSseEvent::Failed(error) => {
                let why = self.error_text(&error);
                self.lose_http_sse(&why);
            }
        }
        true
    }

    /// Answers a request with an error of Milepost's own.
    fn refuse(&mut self, request: &PendingRequest, why: &str, status: Option<u16>) {
        self.fail(request, own_error(&request.id, why, status), why);
    }

    /// Answers a request with `error`. For a request of the leg itself, handles its failure because of `why`.
    fn fail(&mut self, request: &PendingRequest, error: Bytes, why: &str) {
        match request.kind {
            RequestKind::Renewal => return self.fail_renewal(why),
            RequestKind::Refresh => return self.fail_refresh(),
            RequestKind::Initialize => self.session.phase = SessionPhase::Free,
            RequestKind::Tools | RequestKind::Other => {}
        }
        let from = match self.http_sse {
            Some(_) => ResponseStream::HttpSse,
            None => ResponseStream::Exchange(request.stream),
        };
        self.inbox.push(from, Message::parse(error));
    }

    /// Answers all requests of a POST with an error of Milepost's own.
    fn refuse_all(&mut self, stream: StreamId, why: &str, status: Option<u16>) {
        for request in self.pending.take(stream) {
            self.refuse(&request, why, status);
        }
    }

    fn drop_exchange(&mut self, stream: StreamId) {
        self.exchanges.remove(stream);
        // The large message on this stream ends here. Until then no other stream is read.
        self.inbox.close(ResponseStream::Exchange(stream));
    }

    /// Reads the rest of a POST's response for a limited time, once its requests are answered or cancelled.
    fn linger(&mut self, stream: StreamId) {
        if !self.pending.has(stream)
            && self.http_sse.is_none()
            && let Some(oldest) = self.exchanges.linger(stream)
        {
            self.drop_exchange(oldest);
        }
    }

    /// Returns the next time at which something is due. `idle` is the longest silence of a server that is allowed.
    pub(crate) fn next_due(&self, idle: Option<Duration>) -> Option<Instant> {
        let http_sse = self.http_sse.as_ref().and_then(|stream| stream.due(idle));
        let absent = self.listen.absent_at().filter(|_| !self.elsewhere.is_empty());
        let own = [self.listen.due(), self.session.due(), http_sse, absent];
        own.into_iter().flatten().chain(self.exchanges.next_due(idle)).min()
    }

    /// Does all work that is due.
    pub(crate) fn act(&mut self, now: Instant, idle: Option<Duration>) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        // Collect the streams first, because an exchange may be removed in the loop.
        for stream in self.exchanges.due_at(now, idle) {
            let Some(exchange) = self.exchanges.get_mut(stream) else { continue };
            if is_due(exchange.ahead_until) {
                exchange.ahead_until = None;
                tracing::warn!(
                    "the server is slow to accept a notification; later messages are sent first"
                );
            }
            if exchange.reads_error() {
                self.take_error(stream);
            } else if is_due(exchange.leaves_at) {
                self.drop_exchange(stream);
            } else if is_due(exchange.silent_until(idle)) {
                self.mark_unreachable(stream, &UpstreamError::Idle(idle.unwrap_or_default()));
            } else {
                self.resume(stream);
            }
        }
        if is_due(self.session.due()) {
            self.expire_renewal();
        }
        if is_due(self.listen.due()) {
            self.open_listen();
        }
        if !self.elsewhere.is_empty() && is_due(self.listen.absent_at()) {
            self.fail_elsewhere("its GET stream is closed");
        }
        if is_due(self.http_sse.as_ref().and_then(|stream| stream.due(idle))) {
            self.expire_http_sse(idle);
        }
    }

    /// Returns the request that ends the session at the server, if there is a session.
    pub(crate) fn end_session(&self) -> Option<Sending> {
        // HTTP+SSE has no request that ends a session: the session ends with its stream.
        if self.http_sse.is_some() {
            return None;
        }
        requests::delete(&self.target, &self.session)
    }

    /// Drops all open and waiting requests.
    pub(crate) fn stop(&mut self) {
        self.queue.take_all();
        self.exchanges.clear();
        self.pending.take_all();
        self.elsewhere.clear();
        self.listen = ListenStream::default();
        self.http_sse = self.http_sse.take().map(|_| HttpSseStream::default());
        self.refresh = ToolRefresh::default();
        self.inbox = Inbox::default();
    }

    /// Returns the next message for the relay, without waiting.
    pub(crate) fn pop(&mut self) -> Option<FromServer> {
        self.inbox.pop()
    }
}
