//! A JSON answer to a POST: a short answer is held and repaired, a long answer is repaired while it is forwarded.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::exchange::Exchange;
use super::post::Post;
use super::response::{JsonBody, UpstreamAnswer};
use crate::gateway::route_state::StreamPermit;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::transport::http::body::Body;
use crate::transport::http::client::UpstreamBody;
use crate::transport::http::forwarder::BodyOrigin;
use crate::transport::mcp_http::content::{Content, is_whole};
use crate::transport::mcp_http::event_message::UNENDED_WAIT;

/// Limit of the bytes of a JSON answer that is held whole so that a fault in it can be repaired. A longer answer is
/// repaired while it is forwarded.
const JSON_HELD_MAX: usize = 256 << 10;

/// The time for which the head of a long JSON answer waits for the first bytes of its body.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Whether a complete JSON body is not the answer: it is empty, or its status 202 announces no answer and the body is
/// not one either.
fn is_no_answer(status: StatusCode, body: &Bytes) -> bool {
    let message = || Message::parse(body.slice_ref(body.trim_ascii()));
    let is_answer = || matches!(message().kind(), Kind::Response | Kind::Batch);
    body.trim_ascii().is_empty() || status == StatusCode::ACCEPTED && !is_answer()
}

impl Post {
    /// Reads a JSON answer: held while it is short, so that it can be repaired.
    pub(crate) async fn json(
        self: Box<Self>,
        mut parts: http::response::Parts,
        mut body: UpstreamBody,
        mut exchange: Box<Exchange>,
        deadline: Option<Instant>,
        permit: StreamPermit,
    ) -> Response<Body> {
        let (mut held, mut bytes) = (SmallVec::<[Bytes; 1]>::new(), 0);
        let long = |size: usize| size > JSON_HELD_MAX;
        let announced = body.size().lower();
        if usize::try_from(announced).is_ok_and(|size| !long(size)) {
            loop {
                // Only a body whose end is not known yet is searched for the end of its message.
                let has_all = !body.is_end()
                    && held.last().is_some_and(|last| last.trim_ascii().ends_with(b"}"))
                    && is_whole(&held.concat());
                let next = async {
                    let next = std::future::poll_fn(|cx| body.poll_data(cx));
                    match deadline {
                        // All answers have arrived, so do not wait long for the end of a body that may never end.
                        _ if has_all => timeout(UNENDED_WAIT, next).await.ok().or(Some(None)),
                        None => Some(next.await),
                        Some(at) => timeout_at(at, next).await.ok(),
                    }
                };
                let next = tokio::select! {
                    // Progress first: a report that came before the answer must be written before it.
                    biased;
                    cancelled = exchange.next_progress() => {
                        if let Some(answers) = cancelled {
                            return self.answered_here(answers);
                        }
                        if !self.opens_for_progress(&mut exchange) {
                            exchange.write_elsewhere();
                            continue;
                        }
                        None
                    }
                    next = next => next,
                };
                let Some(next) = next else {
                    let answer = UpstreamAnswer::Json(JsonBody::new(body.into(), held));
                    return self.upgrade(exchange, answer, permit);
                };
                match next {
                    Some(Ok(chunk)) => {
                        bytes += chunk.len();
                        held.push(chunk);
                        if long(bytes) {
                            break;
                        }
                    }
                    Some(Err(error)) => {
                        exchange.release();
                        return self.unreachable(&error);
                    }
                    None => {
                        let whole = joined(held);
                        if is_no_answer(parts.status, &whole) {
                            let body = Body::from(whole);
                            let answer = self.answer_elsewhere(parts, body, exchange, permit);
                            return Box::pin(answer).await;
                        }
                        self.make_readable(&mut parts, Content::Json);
                        let rewritten = exchange.body(&whole);
                        if let Some(due) = exchange.answer_due() {
                            sleep_until(due).await;
                        }
                        let source =
                            rewritten.as_ref().map_or(BodyOrigin::Server, |_| BodyOrigin::Milepost);
                        let body = Body::from(rewritten.unwrap_or(whole));
                        return self.direct.state.forwarder.response(parts, source, body);
                    }
                }
            }
        }
        self.make_readable(&mut parts, Content::Json);
        // Boxed: the case is rare, and would make the future of every short answer larger.
        Box::pin(self.long_json(parts, body, held, exchange)).await
    }

    /// Forwards a JSON answer that is too long for memory.
    async fn long_json(
        self: Box<Self>,
        parts: http::response::Parts,
        mut body: UpstreamBody,
        mut held: SmallVec<[Bytes; 1]>,
        mut exchange: Box<Exchange>,
    ) -> Response<Body> {
        if held.is_empty() {
            // Wait only briefly, because the head must not be delayed if the server pauses after it. The response then
            // has no `Content-Length`.
            let first = std::future::poll_fn(|cx| body.poll_data(cx));
            match timeout(FIRST_WAIT, first).await {
                Ok(Some(Ok(chunk))) => held.push(chunk),
                Ok(Some(Err(error))) => {
                    exchange.release();
                    return self.unreachable(&error);
                }
                Ok(None) | Err(_) => {}
            }
        }
        let head = joined(held);
        if !exchange.passes_unread(&head) {
            let body = Body::Stream(Box::new(exchange.long_answer(head, body)));
            return self.direct.state.forwarder.response(parts, BodyOrigin::Milepost, body);
        }
        // The answer is the whole response and ends its requests, so its text is not parsed.
        let open = exchange.release();
        let body = Body::piped((!head.is_empty()).then_some(head), body, open);
        self.direct.state.forwarder.response(parts, BodyOrigin::Server, body)
    }
}

fn joined(pieces: SmallVec<[Bytes; 1]>) -> Bytes {
    match pieces.into_inner() {
        Ok([only]) => only,
        Err(pieces) => Bytes::from(pieces.concat()),
    }
}
