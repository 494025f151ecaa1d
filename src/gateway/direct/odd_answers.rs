//! Responses to POSTs that do not say clearly where the answer is: an empty response, a body without a content type, a
//! lost session, a 404.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode, header};
use tokio::time::{Instant, timeout};
use url::Url;

use super::exchange::Exchange;
use super::post::Post;
use super::response::UpstreamAnswer;
use crate::config::routes::Upstream;
use crate::gateway::refusals::events_head;
use crate::gateway::route_state::{RouteState, StreamPermit};
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp;
use crate::transport::http::body::Body;
use crate::transport::http::client::UpstreamBody;
use crate::transport::http::forwarder::BodyOrigin;
use crate::transport::mcp_http::content::Content;
use crate::transport::mcp_http::lost_session;

/// The time for which a response without a content type waits for the first bytes of its body, which show the type.
const TYPE_WAIT: Duration = Duration::from_secs(5);

impl Post {
    /// Handles requests that the server has accepted without an answer in its response. If the session has a GET
    /// stream, the answers come on it and are written to this response. Otherwise the client gets the response
    /// unchanged, and the requests stay open for a GET stream that it may open.
    pub(crate) async fn answer_elsewhere(
        self: Box<Self>,
        mut parts: Parts,
        body: Body,
        mut exchange: Box<Exchange>,
        permit: StreamPermit,
    ) -> Response<Body> {
        let forwarder = &self.direct.state.forwarder;
        let mut answers: Vec<Bytes> = Vec::new();
        if !exchange.may_be_answered_elsewhere() || exchange.take_answers(&mut answers) {
            if answers.is_empty() {
                let open = exchange.release();
                drop(open);
                return forwarder.response(parts, BodyOrigin::Server, body);
            }
            return self.answered(parts, answers);
        }
        if !exchange.has_listener() {
            drop(exchange.leave_open());
            return forwarder.response(parts, BodyOrigin::Server, body);
        }
        exchange.wait_elsewhere();
        if self.request_head.reads_events && !self.request_head.limits_events {
            self.make_readable(&mut parts, Content::Events);
            parts.headers.extend(events_head());
            let response = forwarder.response(parts, BodyOrigin::Milepost, Body::empty());
            let stream = self.greeting_stream(exchange, UpstreamAnswer::Elsewhere, permit);
            return response.map(|_| stream);
        }
        // The client reads only JSON, so its response begins when all answers have arrived.
        let shared = std::sync::Arc::clone(&self.direct.state.shared);
        let mut ending = std::pin::pin!(shared.shutdown.wait());
        while !exchange.take_answers(&mut answers) {
            tokio::select! {
                () = exchange.next_elsewhere() => {}
                () = &mut ending => exchange.stop(),
            }
        }
        self.answered(parts, answers)
    }

    /// Returns the response, with status 404 if its text says that the server does not know the session. With any other
    /// status clients would continue to use the lost session.
    pub(crate) async fn unless_lost(
        &self,
        mut response: Response<UpstreamBody>,
    ) -> Response<UpstreamBody> {
        let status = response.status();
        let may_be_lost = lost_session::may_tell(status)
            && self.request_head.session_id().is_some()
            && !self.policy().observes()
            // The text of a compressed body cannot be searched.
            && !response.headers().contains_key(header::CONTENT_ENCODING);
        if !may_be_lost {
            return response;
        }
        let body = response.body_mut();
        let first = timeout(TYPE_WAIT, poll_fn(|cx| body.poll_data(cx))).await;
        let Ok(Some(Ok(first))) = first else { return response };
        let is_lost = lost_session::is_meant(&first);
        body.put_back(first);
        if is_lost {
            tracing::warn!(
                route = self.direct.state.route.path,
                status = status.as_u16(),
                "the server does not know a session any more; the client gets status 404, so that it begins a new one"
            );
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        response
    }

    /// Counts a 404 to a request without a session, and says in the log that the route's address is wrong.
    pub(super) fn tell_of_missing_endpoint(&self, headers: &HeaderMap) {
        let method = self.message.as_ref().and_then(Message::method);
        // In 2026-07-28 a 404 with a JSON-RPC error means that the server does not know the method.
        let may_be_answer = Content::of(headers) == Content::Json;
        if may_be_answer && method.as_deref() != Some(mcp::INITIALIZE) {
            return;
        }
        let RouteState { route, shared, .. } = &*self.direct.state;
        shared.counts.upstream_error("not-found");
        let Some(left_out) = shared.missing_endpoint.take(std::time::Instant::now()) else {
            return;
        };
        let Upstream::Http(http) = &route.upstream else { return };
        tracing::warn!(
            route = route.path,
            // Only the path: the rest of an address may contain a secret.
            path = http.url.as_ref().map(Url::path),
            left_out = (left_out > 0).then_some(left_out),
            "the server answers 404 at the address of the route, and clients get this 404: correct the path in \
             `upstream.url`, which for many servers is /mcp"
        );
    }

    /// Returns Milepost's own answers as one JSON body, in the place of the server's response.
    pub(crate) fn answered_here(&self, answers: Vec<Bytes>) -> Response<Body> {
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.headers = self.origin_headers().unwrap_or_default();
        self.answered(parts, answers)
    }

    /// Returns the answers of the requests as one JSON body.
    fn answered(&self, mut parts: Parts, mut answers: Vec<Bytes>) -> Response<Body> {
        self.make_readable(&mut parts, Content::Json);
        parts.headers.remove(header::CONTENT_LENGTH);
        let body = match answers.len() {
            1 => answers.remove(0),
            _ => Bytes::from([b"[", &answers.join(&b","[..])[..], b"]"].concat()),
        };
        self.direct.state.forwarder.response(parts, BodyOrigin::Milepost, Body::from(body))
    }

    /// Returns the response for a body that is not a message or cannot be read.
    pub(crate) fn unread(
        &self,
        parts: Parts,
        body: UpstreamBody,
        exchange: Box<Exchange>,
    ) -> Response<Body> {
        let open = exchange.release();
        self.direct.state.forwarder.piped(Response::from_parts(parts, body), open)
    }

    /// Handles a body with a missing or meaningless content type, by its first bytes.
    pub(crate) async fn untyped(
        self: Box<Self>,
        parts: Parts,
        mut body: UpstreamBody,
        exchange: Box<Exchange>,
        deadline: Option<Instant>,
        permit: StreamPermit,
    ) -> Response<Body> {
        let is_packed = parts.headers.contains_key(header::CONTENT_ENCODING);
        let first = poll_fn(|cx| body.poll_data(cx));
        // The first bytes of a compressed body do not show its type.
        let first = if is_packed { None } else { timeout(TYPE_WAIT, first).await.ok() };
        let kind = match first {
            Some(Some(Ok(first))) => {
                let kind = Content::by_first_bytes(&first);
                body.put_back(first);
                kind
            }
            Some(Some(Err(error))) => {
                exchange.release();
                return self.unreachable(&error);
            }
            Some(None) => {
                let body = Body::empty();
                return self.answer_elsewhere(parts, body, exchange, permit).await;
            }
            None => Content::Other,
        };
        match kind {
            Content::Events => self.events(parts, body.into(), exchange, permit),
            Content::Json => self.json(parts, body, exchange, deadline, permit).await,
            Content::Other => self.unread(parts, body, exchange),
        }
    }
}
