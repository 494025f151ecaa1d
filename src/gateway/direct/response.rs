//! The response to a POST whose client has a stream or gets one: events are forwarded as they arrive, JSON becomes one
//! event, and an error status becomes an error.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::exchange::Exchange;
use super::post::Post;
use crate::gateway::direct::event_stream::Chunks;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::sse;
use crate::transport::http::client::{Sending, UpstreamBody, UpstreamError};
use crate::transport::http::inflate::PlainBody;
use crate::transport::mcp_http::content::{Content, on_one_line};
use crate::transport::mcp_http::response_body::{ErrorBody, ResponseBody};
use crate::transport::mcp_http::server_words;

/// The server's answer to a POST, as far as it is known.
pub(crate) enum UpstreamAnswer {
    /// The head has not arrived yet.
    Head(Sending),
    Events(PlainBody),
    /// A JSON body, which the client gets as an event.
    Json(JsonBody),
    /// A status that is not a success, the seconds after which to retry, and the beginning of the body.
    Failure(StatusCode, Option<u64>, ErrorBody),
    /// The response is empty, and the messages come on the GET stream of the session.
    Elsewhere,
    Over,
}

/// A JSON body that becomes an event.
pub(crate) struct JsonBody {
    body: PlainBody,
    held: VecDeque<Bytes>,
    begun: bool,
}

impl JsonBody {
    pub(crate) fn new(body: PlainBody, held: impl IntoIterator<Item = Bytes>) -> Self {
        Self { body, held: held.into_iter().collect(), begun: false }
    }
}

pub(crate) struct PostUpstream {
    pub(crate) answer: UpstreamAnswer,
    /// The POST, until the server has answered.
    pub(crate) post: Option<Box<Post>>,
}

impl PostUpstream {
    fn begin(&mut self, response: Response<UpstreamBody>, exchange: &mut Exchange) {
        let (parts, body) = response.into_parts();
        // Done before the body is read, because its messages may already belong to the session.
        if let Some(post) = &self.post {
            post.learn(parts.status, &parts.headers, exchange.filter_id());
            if parts.status.is_success() {
                post.begin(&parts.headers, exchange);
                exchange.accept(post.policy());
            }
        }
        let is_ok = parts.status.is_success();
        let may_wait = exchange.has_listener() && exchange.may_be_answered_elsewhere();
        if is_ok && says_nothing(&parts, &body) && may_wait {
            exchange.wait_elsewhere();
            self.answer = UpstreamAnswer::Elsewhere;
            return;
        }
        self.answer = match ResponseBody::new(body, &parts.headers) {
            ResponseBody::Events(body) if is_ok => UpstreamAnswer::Events(body),
            ResponseBody::Json(body) if is_ok => UpstreamAnswer::Json(JsonBody::new(body, [])),
            ResponseBody::Events(body) | ResponseBody::Json(body) | ResponseBody::Other(body) => {
                let again = server_words::retry_after(&parts.headers, SystemTime::now());
                UpstreamAnswer::Failure(parts.status, again, ErrorBody::new(body))
            }
            ResponseBody::Unreadable => {
                exchange.fail("the server compressed its answer although asked not to", None);
                UpstreamAnswer::Over
            }
        };
    }
}

/// Whether a successful response contains no answer: it has no body, or its status announces none and its body is no
/// message.
pub(crate) fn says_nothing(parts: &http::response::Parts, body: &UpstreamBody) -> bool {
    let announces_none = [StatusCode::ACCEPTED, StatusCode::NO_CONTENT].contains(&parts.status);
    body.is_empty() || announces_none && Content::unpacked(&parts.headers) == Content::Other
}

impl PostUpstream {
    /// Handles the end of the server's stream. If the server has sent nothing on it, the answer may come on the GET
    /// stream.
    fn end_of_events(
        &mut self,
        exchange: &mut Exchange,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        if !exchange.is_unheard() || !exchange.has_listener() {
            return Poll::Ready(None);
        }
        exchange.wait_elsewhere();
        self.answer = UpstreamAnswer::Elsewhere;
        Poll::Pending
    }
}

impl Chunks<Exchange> for PostUpstream {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            match &mut self.answer {
                UpstreamAnswer::Over => return Poll::Ready(None),
                UpstreamAnswer::Elsewhere => return Poll::Pending,
                UpstreamAnswer::Events(body) => match std::task::ready!(body.poll_data(cx)) {
                    None => return self.end_of_events(exchange),
                    data => return Poll::Ready(data),
                },
                UpstreamAnswer::Head(sending) => match std::task::ready!(sending.as_mut().poll(cx))
                {
                    Ok(response) => self.begin(response, exchange),
                    Err(error) => {
                        self.answer = UpstreamAnswer::Over;
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                UpstreamAnswer::Json(json) => {
                    // Head, body and end of the event are separate pieces, so that an answer of any length can pass.
                    if !std::mem::replace(&mut json.begun, true) {
                        return Poll::Ready(Some(Ok(Bytes::from_static(sse::MESSAGE_HEAD))));
                    }
                    if let Some(chunk) = json.held.pop_front() {
                        return Poll::Ready(Some(Ok(on_one_line(chunk))));
                    }
                    match std::task::ready!(json.body.poll_data(cx)) {
                        Some(Ok(chunk)) => return Poll::Ready(Some(Ok(on_one_line(chunk)))),
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                        None => {
                            self.answer = UpstreamAnswer::Over;
                            return Poll::Ready(Some(Ok(Bytes::from_static(sse::EVENT_END))));
                        }
                    }
                }
                UpstreamAnswer::Failure(status, again, body) => {
                    if std::task::ready!(body.poll(cx)) {
                        continue;
                    }
                    let (status, read) = (*status, body.take());
                    let why =
                        server_words::refused(status, &read) + &server_words::try_again(*again);
                    let answer = Message::parse(read);
                    self.answer = UpstreamAnswer::Over;
                    // An error status may have a JSON-RPC answer as its body, which says more than the status.
                    if answer.kind() == Kind::Response && exchange.awaits(&answer) {
                        return Poll::Ready(Some(Ok(sse::write(answer.raw()))));
                    }
                    tracing::warn!(
                        route = self.post.as_ref().map(|post| &*post.route().path),
                        %status,
                        "the server refused a request whose response had begun as a stream"
                    );
                    exchange.fail(&why, Some(status.as_u16()));
                }
            }
        }
    }
}
