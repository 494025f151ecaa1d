//! Recovery from failures: errors for the client, resumed responses, renewed sessions, and another transport.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use tokio::time::Instant;

use super::UpstreamClient;
use crate::observe::error_chain::error_chain;
use crate::progress::StreamId;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;
use crate::relay::http_upstream::error_status::{self, is_about_access};
use crate::relay::http_upstream::exchange::{HeadOutcome, PostExchange};
use crate::relay::http_upstream::http_sse::{Due, HttpSseStream};
use crate::relay::http_upstream::inbox::ResponseStream;
use crate::relay::http_upstream::listen_stream::ListenStream;
use crate::relay::http_upstream::outgoing::{Outgoing, RequestKind};
use crate::relay::http_upstream::requests;
use crate::relay::http_upstream::session::SessionPhase;
use crate::relay::http_upstream::tool_refresh::ToolRefresh;
use crate::transport::http::client::{UpstreamBody, UpstreamError};
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::lost_session;
use crate::transport::mcp_http::server_words;
use crate::transport::mcp_http::sse_endpoint::same_origin;

/// Recovery of responses to POSTs.
impl UpstreamClient {
    /// Handles the head of a response.
    pub(super) fn accept_head(&mut self, stream: StreamId, response: Response<UpstreamBody>) {
        self.reachability.reached.store(true, Relaxed);
        let (http_sse, listens) = (self.http_sse.is_some(), self.listen.may_open());
        let Some(exchange) = self.exchanges.get_mut(stream) else { return };
        let is_initialized = exchange.out.is(mcp::INITIALIZED);
        if response.status().is_success()
            && let Some(headers) = &exchange.out.headers
        {
            self.session.accept_headers(headers);
            if let Some(accepted) = &self.target.accepted {
                accepted(headers);
            }
        }
        if response.status().is_success() && exchange.out.begins_session() && !http_sse {
            self.session.id = response.headers().get(SESSION_ID).cloned();
        }
        match exchange.accept(response, http_sse, listens) {
            HeadOutcome::Reads => {}
            HeadOutcome::SessionLost => {
                if let Some(PostExchange { out, session, .. }) = self.exchanges.remove(stream) {
                    self.renew_after(out, session, StatusCode::NOT_FOUND);
                }
            }
            HeadOutcome::Refused(status) => {
                self.drop_exchange(stream);
                let why = server_words::refused(status, b"");
                tracing::warn!(why, "a message was refused");
                self.refuse_all(stream, &why, Some(status.as_u16()));
            }
            HeadOutcome::Accepted if is_initialized => self.complete_session(),
            HeadOutcome::Accepted => {}
            HeadOutcome::AnsweredElsewhere => self.wait_elsewhere(stream),
            HeadOutcome::Unreadable(why, status) => {
                self.drop_exchange(stream);
                self.refuse_all(stream, &why, status.map(|status| status.as_u16()));
            }
        }
    }

    /// Returns the text of an error for a client. The client of `wrap` is the user who gave the server's URL, so it
    /// gets all details; clients of `serve` are other users, who do not.
    pub(super) fn error_text(&self, error: &UpstreamError) -> String {
        if self.target.counts.is_some() { error.for_clients() } else { error_chain(error) }
    }

    /// Answers the requests of a POST that got no response.
    pub(super) fn mark_unreachable(&mut self, stream: StreamId, error: &UpstreamError) {
        error.log(None);
        if let (Some(counts), Some(kind)) = (&self.target.counts, error.kind()) {
            counts.upstream_error(kind);
        }
        self.drop_exchange(stream);
        let text = self.error_text(error);
        self.refuse_all(stream, &text, None);
    }

    /// Handles a status that is not a success, with the beginning of its body.
    pub(super) fn take_error(&mut self, stream: StreamId) {
        let Some(exchange) = self.exchanges.remove(stream) else { return };
        let session = exchange.session;
        let Some((out, parts, read)) = exchange.into_failure() else { return };
        let status = parts.status;
        if session.is_some() && lost_session::is_told(status, &read) {
            return self.renew_after(out, session, status);
        }
        let answer = Message::parse(read.clone());
        let is_answer = answer.kind() == Kind::Response;
        let id = answer.id_key();
        if is_answer && id.as_ref().is_some_and(|id| self.pending.has_request(stream, id)) {
            if ToolRefresh::applies_to(&out, &answer) {
                return self.refresh_tools(out, answer.raw().clone());
            }
            // The body is a valid answer with the reason of the refusal.
            return self.receive_message(ResponseStream::Exchange(stream), answer);
        }
        // Logs must not have text of a server, which may contain secrets.
        let logged = error_status::explain(&parts, b"");
        if self.may_be_http_sse(&out, status) {
            self.pending.take(stream);
            return self.try_http_sse(out, logged, status);
        }
        tracing::warn!(why = logged, "a message was refused");
        let why = error_status::explain(&parts, &read);
        let error = answer.error().filter(|_| is_answer && id.is_none());
        for request in self.pending.take(stream) {
            let text = error_status::answer(&request.id, error.as_ref(), &why, &parts);
            self.fail(&request, text, &why);
        }
    }

    /// Handles the end of a response: resumes it if requests of its POST are unanswered.
    pub(super) fn end_response(&mut self, stream: StreamId, error: Option<&UpstreamError>) {
        let Some(exchange) = self.exchanges.get_mut(stream) else { return };
        let last_id = exchange.take_last_id();
        // A response that ends after an answer with an unknown id is complete: resuming it would bring no further
        // messages.
        let is_answered = error.is_none() && exchange.ends_astray;
        let is_over = is_answered || exchange.out.modern || !self.pending.has(stream);
        match last_id.filter(|_| !is_over) {
            Some(id) => self.resume_later(stream, id, error),
            None => self.break_off(stream, error),
        }
    }

    /// Waits for the answers to the requests of a POST on the GET stream.
    fn wait_elsewhere(&mut self, stream: StreamId) {
        self.drop_exchange(stream);
        self.elsewhere.insert(stream);
    }

    /// Answers the requests whose answers were expected on the GET stream with an error.
    pub(super) fn fail_elsewhere(&mut self, why: &str) {
        let why = format!("the server took the request, said nothing in its response, and {why}");
        for stream in std::mem::take(&mut self.elsewhere) {
            tracing::warn!(why, "a request has no answer");
            self.refuse_all(stream, &why, None);
        }
    }

    fn break_off(&mut self, stream: StreamId, error: Option<&UpstreamError>) {
        let exchange = self.exchanges.get(stream);
        let is_unheard =
            exchange.is_some_and(|exchange| !exchange.is_heard && !exchange.out.modern);
        // The answer may still come on the GET stream.
        if is_unheard && error.is_none() && self.listen.may_open() && self.pending.has(stream) {
            return self.wait_elsewhere(stream);
        }
        self.drop_exchange(stream);
        let why = match error {
            Some(error) => error_chain(error),
            None => "the server ended its response without an answer".to_owned(),
        };
        if self.pending.has(stream) {
            tracing::warn!(why, "a request has no answer");
            self.inbox.end_response(stream);
        }
        self.refuse_all(stream, &why, None);
    }

    /// Schedules that a response is resumed after an event, unless too many attempts have failed.
    pub(super) fn resume_later(
        &mut self,
        stream: StreamId,
        id: HeaderValue,
        error: Option<&UpstreamError>,
    ) {
        let Some(exchange) = self.exchanges.get_mut(stream) else { return };
        if !self.pending.has(stream) || !exchange.wait_to_resume(id) {
            self.break_off(stream, error);
        }
    }

    /// Requests the rest of a response.
    pub(super) fn resume(&mut self, stream: StreamId) {
        let exchange = self.exchanges.get_mut(stream);
        let Some((exchange, id)) =
            exchange.and_then(|exchange| exchange.resumes_behind().map(|id| (exchange, id)))
        else {
            return;
        };
        let sent = match &self.target.endpoint {
            Some(target) => requests::get(&self.target, target, &self.session, Some(&id)),
            None => Err(String::new()),
        };
        match sent {
            Ok(sent) => exchange.resume(sent, id),
            Err(why) => {
                self.drop_exchange(stream);
                self.inbox.end_response(stream);
                self.refuse_all(stream, &why, None);
            }
        }
    }

    pub(super) fn accept_resumed(
        &mut self,
        stream: StreamId,
        response: Response<UpstreamBody>,
        id: HeaderValue,
    ) {
        let Some(exchange) = self.exchanges.get_mut(stream) else { return };
        match exchange.accept_resumed(response, id) {
            Ok(()) => {}
            Err((status, id)) if status.is_server_error() => self.resume_later(stream, id, None),
            Err((status, _)) => {
                self.drop_exchange(stream);
                let why = format!(
                    "the server closed the stream of the request, and answered with HTTP status \
                     {status} when it was asked for the rest"
                );
                self.inbox.end_response(stream);
                self.refuse_all(stream, &why, Some(status.as_u16()));
            }
        }
    }
}

/// Recovery of the session and its GET stream.
impl UpstreamClient {
    /// Renews the session if an error without an id, in a response with a success status, says that the session is
    /// lost. Returns whether the message needs no further handling.
    pub(super) fn renews_for(&mut self, from: ResponseStream, message: &Message) -> bool {
        let is_error = message.kind() == Kind::Response && message.id_key().is_none();
        let error = message.error().filter(|_| is_error);
        if !error.is_some_and(|error| lost_session::is_meant(&error)) {
            return false;
        }
        let has_session = |stream: &StreamId| {
            self.exchanges.get(*stream).is_some_and(|exchange| exchange.session.is_some())
        };
        let Some(stream) = from.exchange().filter(has_session) else { return false };
        let Some(exchange) = self.exchanges.remove(stream) else { return false };
        self.inbox.close(from);
        self.renew_after(exchange.out, exchange.session, StatusCode::OK);
        true
    }

    /// Renews the session, and sends `out` again. The server has refused `out` with `status` because it does not know
    /// the session.
    fn renew_after(&mut self, mut out: Outgoing, session: Option<u64>, status: StatusCode) {
        let stream = out.stream;
        // Do not send these again: an answer belongs to a request of the old session, and the renewal sends its own
        // `notifications/initialized`.
        let in_vain = out.message.kind() == Kind::Response || out.is(mcp::INITIALIZED);
        // Send a message again only once, because a server that loses every session must not get it for ever.
        if out.is_retry || out.own.is_some() {
            let why = "the server has lost the session again";
            self.refuse_all(stream, why, Some(status.as_u16()));
        } else if !in_vain {
            self.pending.take(stream);
            out.is_retry = true;
            self.queue.requeue(out);
        }
        // Several requests may report the loss. Only the first of them renews the session.
        if session == Some(self.session.number) && self.session.phase == SessionPhase::Free {
            tracing::warn!(
                status = status.as_u16(),
                "the server does not know the session any more: Milepost begins the session again as \
                 the client began it; the state that the server kept for it is lost"
            );
            self.session.phase = SessionPhase::Lost;
            self.renew();
        }
    }

    pub(super) fn can_renew(&self) -> bool {
        self.http_sse.as_ref().is_none_or(HttpSseStream::is_named)
    }

    /// Renews the session, with the client's own `initialize`.
    pub(super) fn renew(&mut self) {
        self.fail_elsewhere("its session was lost");
        self.close_listen();
        let stream = self.next_stream();
        match self.session.renew(stream) {
            Some(out) => {
                self.session.limit_renewal(Instant::now() + self.target.renewal_timeout);
                self.launch(out);
            }
            None => self.fail_renewal("it never began"),
        }
    }

    /// Whether a message that renews the session is under way.
    pub(super) fn is_renewing(&self) -> bool {
        self.pending.has_kind(RequestKind::Renewal) || self.exchanges.has_own(RequestKind::Other)
    }

    /// Handles the answer to the `initialize` that renews the session.
    pub(super) fn take_renewal(&mut self, answer: &Message) {
        if answer.result().is_none() {
            return self.fail_renewal("the server refuses to begin it again");
        }
        self.session.note_revision(answer);
        let stream = self.next_stream();
        self.launch(self.session.initialized(stream));
    }

    /// Gives up a renewal that does not succeed in time.
    pub(super) fn expire_renewal(&mut self) {
        for stream in self.exchanges.streams() {
            let own = self.exchanges.get(stream).and_then(|exchange| exchange.out.own);
            if matches!(own, Some(RequestKind::Renewal | RequestKind::Other)) {
                self.drop_exchange(stream);
            }
        }
        self.pending.take_kind(RequestKind::Renewal);
        let within = self.target.renewal_timeout;
        self.fail_renewal(&UpstreamError::Idle(within).to_string());
    }

    /// Refuses everything that waits for the session. The next message tries the renewal again.
    pub(super) fn fail_renewal(&mut self, why: &str) {
        tracing::warn!(why, "the session cannot be begun again");
        self.session.phase = SessionPhase::Lost;
        let why = format!("the session with the server was lost: {why}");
        self.refuse_queue(&why);
    }

    /// Opens the GET stream, after the server has accepted the notification that completes the session.
    fn complete_session(&mut self) {
        self.session.complete();
        match &mut self.http_sse {
            Some(stream) => stream.mark_working(),
            None => {
                self.close_listen();
                self.open_listen();
            }
        }
    }

    pub(super) fn open_listen(&mut self) {
        let Some(target) = &self.target.endpoint else { return };
        let behind = self.listen.last_id();
        let sent = requests::get(&self.target, target, &self.session, behind);
        self.listen.open(sent);
    }

    fn close_listen(&mut self) {
        self.listen = ListenStream::default();
        self.inbox.close(ResponseStream::Listen);
    }

    /// Refuses the waiting requests, and drops all other waiting messages.
    fn refuse_queue(&mut self, why: &str) {
        for out in self.queue.take_all() {
            self.pending.add(&out);
            self.refuse_all(out.stream, why, None);
        }
    }
}

/// Recovery of calls whose headers the server refuses.
impl UpstreamClient {
    fn refresh_tools(&mut self, out: Outgoing, refusal: Bytes) {
        self.pending.take(out.stream);
        if self.refresh.add(out, refusal) {
            self.list_tools(None);
        }
    }

    fn list_tools(&mut self, cursor: Option<&Bytes>) {
        let stream = self.next_stream();
        self.launch(self.refresh.list_request(stream, cursor));
    }

    /// Handles a page of the tools. After the last page, the refused calls are sent again.
    pub(super) fn take_tools(&mut self, answer: &Message) {
        let Some(result) = answer.result() else { return self.fail_refresh() };
        self.tools.learn(&result);
        if let Some(cursor) = self.refresh.next_page(&result) {
            return self.list_tools(Some(&cursor));
        }
        for (out, _) in self.refresh.take_all() {
            self.queue.requeue(out);
        }
    }

    /// Gives the clients the server's refusals, because the tools cannot be listed.
    pub(super) fn fail_refresh(&mut self) {
        for (out, refusal) in self.refresh.take_all() {
            let from = ResponseStream::Exchange(out.stream);
            self.receive_message(from, Message::parse(refusal));
        }
    }
}

/// Recovery of HTTP+SSE.
impl UpstreamClient {
    /// Whether the server may use HTTP+SSE, because it refuses the first message of a session.
    fn may_be_http_sse(&self, out: &Outgoing, status: StatusCode) -> bool {
        out.own.is_none()
            && out.kind() == RequestKind::Initialize
            && self.http_sse.is_none()
            && status.is_client_error()
            && status != StatusCode::TOO_MANY_REQUESTS
            && !is_about_access(status)
    }

    /// Tries HTTP+SSE with a server that has refused the first POST.
    fn try_http_sse(&mut self, out: Outgoing, why: String, status: StatusCode) {
        self.session.phase = SessionPhase::Free;
        self.http_sse = Some(HttpSseStream::after_refusal(why, status));
        self.queue.requeue(out);
    }

    /// Requests the stream of HTTP+SSE.
    pub(super) fn connect_http_sse(&mut self) {
        let sent = match self.target.sse_endpoint() {
            Some(target) => requests::get(&self.target, target, &self.session, None),
            None => Err("the route has no server".to_owned()),
        };
        self.reachability.tried.store(true, Relaxed);
        match (sent, &mut self.http_sse) {
            (Ok(sent), Some(stream)) => stream.connect(sent),
            (Err(why), _) => self.lose_http_sse(&why),
            (Ok(_), None) => {}
        }
    }

    /// Opens the stream again or gives it up, if its time has come.
    pub(super) fn expire_http_sse(&mut self, idle: Option<std::time::Duration>) {
        match self.http_sse.as_ref().map(|stream| stream.expire(idle)) {
            Some(Due::Connect) => self.connect_http_sse(),
            Some(Due::Lost(why)) => self.lose_http_sse(&why),
            None => {}
        }
    }

    /// Handles the endpoint that the server has named.
    pub(super) fn take_endpoint(&mut self, named: &Bytes) {
        let base = self.target.sse_endpoint().and_then(|target| target.url.as_ref());
        let Some(endpoint) = base.and_then(|base| same_origin(base, named)) else {
            return self.lose_http_sse("the server names an endpoint of another origin");
        };
        let Some(stream) = &mut self.http_sse else { return };
        // A server may name another endpoint on the same stream. The session then continues.
        let is_new = !stream.is_named();
        stream.set_endpoint(endpoint);
        if is_new && self.session.has_begun() {
            tracing::warn!(
                "the stream of the server was lost and is open again: its session is begun again as \
                 the client began it; what the server knew of it is gone"
            );
            self.session.phase = SessionPhase::Lost;
            self.renew();
        }
    }

    /// Refuses all open requests, which cannot be answered without the stream.
    pub(super) fn lose_http_sse(&mut self, why: &str) {
        let Some(mut lost) = self.http_sse.take() else { return };
        self.inbox.close(ResponseStream::HttpSse);
        if let Some((refusal, status)) = lost.refusal.take() {
            // The server does not use HTTP+SSE, so its refusal of the POST is final.
            let why = format!("{refusal}; and with GET there is no HTTP+SSE: {why}");
            tracing::warn!(why, "no message can be sent to the server");
            return self.refuse_first(&why, status);
        }
        tracing::warn!(why, "the server has no stream");
        let successor = lost.successor(self.session.has_begun());
        let waits = successor.is_scheduled() && lost.is_named();
        self.http_sse = Some(successor);
        self.exchanges.clear();
        if self.session.phase == SessionPhase::Renews {
            self.session.phase = SessionPhase::Free;
        }
        for request in self.pending.take_all() {
            self.refuse(&request, why, None);
        }
        if !waits {
            self.refuse_queue(why);
        }
    }

    /// Refuses the message that waits at the head of the queue, with the server's refusal.
    fn refuse_first(&mut self, why: &str, status: StatusCode) {
        let Some(out) = self.queue.pop() else { return };
        self.pending.add(&out);
        self.refuse_all(out.stream, why, Some(status.as_u16()));
    }
}
