//! Responses that the gateway itself gives on a route: no such route, limit reached, server unreachable.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};

use crate::gateway::client_limits::{LimitedClient, OverLimit};
use crate::gateway::limit_notices::{tell_of_body, tell_of_full_route};
use crate::gateway::route_state::{NoRoom, RouteState};
use crate::observe::metrics::RouteLimit;
use crate::protocol::jsonrpc::{Kind, Message, own_error};
use crate::protocol::lines::INSPECT_MAX;
use crate::transport::byte_budget::{BudgetExceeded, KEPT_MIN};
use crate::transport::http::body::Body;
use crate::transport::http::client::UpstreamError;
use crate::transport::http::forwarder::X_ACCEL_BUFFERING;
use crate::transport::http::request_body::{BodyLimits, RequestBodyError};
use crate::transport::mcp_http::request_body::{self, PostedBody, ReadBody};

/// The number of seconds after which a client may repeat a request that exceeded a limit.
const RETRY_AFTER: &str = "1";

/// Returns the response to a request whose path has no route.
pub(crate) fn no_route() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "there is no such route")
}

/// Returns the headers of an event stream.
pub(crate) fn events_head() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A stream must reach its client without delay, and never come from a cache.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    headers
}

/// Returns a text response made by Milepost.
pub(crate) fn text(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(format!("{why}\n"))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// Returns the response to a request whose stream would exceed a limit: an error for the request `id`, if the request
/// has an id.
pub(crate) fn no_room(state: &RouteState, no_room: &NoRoom, id: Option<&[u8]>) -> Response<Body> {
    let why = no_room.to_string();
    let answer = |status| error_or_text(status, &why, id);
    match no_room {
        NoRoom::Route => {
            tell_of_full_route(state, RouteLimit::Streams);
            retry_later(answer(StatusCode::SERVICE_UNAVAILABLE))
        }
        NoRoom::Client(over) => over_limit(over, answer),
    }
}

/// Adds to a response that the request may be sent again soon.
pub(crate) fn retry_later(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    response
}

/// Returns a response made by Milepost: an error for the request `id`, or text if there is none.
fn error_or_text(status: StatusCode, why: &str, id: Option<&[u8]>) -> Response<Body> {
    let Some(id) = id else { return text(status, why) };
    let mut response = Response::new(Body::from(own_error(id, why, None)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns the response to the first request of a session at a replica that will end: another replica answers the
/// repeated one.
pub(crate) fn leaving(id: Option<&[u8]>) -> Response<Body> {
    let why = "this replica is stopping; send the request again, and another replica will take it";
    retry_later(error_or_text(StatusCode::SERVICE_UNAVAILABLE, why, id))
}

/// Returns the response to a client that has reached a limit: `answer` makes the response from the status.
pub(crate) fn over_limit(
    over: &OverLimit,
    answer: impl FnOnce(StatusCode) -> Response<Body>,
) -> Response<Body> {
    over.tell();
    let mut response = answer(StatusCode::TOO_MANY_REQUESTS);
    let seconds = over.retry_after.as_secs_f64().ceil() as u64;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Returns the response to a request whose body is refused.
pub(crate) fn refuse(
    state: &RouteState,
    unread: &RequestBodyError,
    parts: &Parts,
) -> Response<Body> {
    let mut response = not_taken(state, unread, parts.extensions.get(), None);
    // With HTTP/1.1 a refusal must close the connection: the rest of the body would be read as the next request.
    if parts.version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn not_taken(
    state: &RouteState,
    unread: &RequestBodyError,
    client: Option<&LimitedClient>,
    id: Option<&[u8]>,
) -> Response<Body> {
    tell_of_body(state, unread, client);
    let response = error_or_text(unread.status(), &unread.to_string(), id);
    // Only these two refusals are temporary: they end when other requests end.
    match unread.status() {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => retry_later(response),
        _ => response,
    }
}

/// Returns a response without reading the rest of the request's body.
pub(crate) fn refuse_unread(
    state: &RouteState,
    parts: &Parts,
    body: PostedBody,
    response: Response<Body>,
) -> Response<Body> {
    if let PostedBody::Fresh(body) = body
        && !BodyLimits::awaits_leave(parts)
    {
        BodyLimits::of(parts, &state.route, &state.shared.bodies).refuse(body);
    }
    response
}

/// Reads the body of a request, up to the route's limit. The error is the response.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` has room for its arguments twice"
)]
pub(crate) fn read_or_refuse(
    state: &RouteState,
    body: PostedBody,
    parts: &Parts,
) -> impl Future<Output = Result<ReadBody, Box<Response<Body>>>> + Send {
    async move {
        let _reading = match state.reading(parts.extensions.get()) {
            Ok(reading) => reading,
            Err(none) => {
                let response = no_room(state, &none, None);
                return Err(Box::new(refuse_unread(state, parts, body, response)));
            }
        };
        let limits = BodyLimits::of(parts, &state.route, &state.shared.bodies);
        match request_body::read(body, parts, limits, INSPECT_MAX).await {
            Ok(ReadBody::Whole(bytes)) => keep_or_refuse(state, parts, bytes).map(ReadBody::Whole),
            Ok(large) => Ok(large),
            Err(unread) => Err(Box::new(refuse(state, &unread, parts))),
        }
    }
}

/// Counts a body that waits in memory for its server, until the body is dropped.
///
/// # Errors
///
/// The refusal, if the body would exceed the limit. Because the whole body has arrived, the refusal can contain the id
/// of the request.
pub(crate) fn keep_or_refuse(
    state: &RouteState,
    parts: &Parts,
    bytes: Bytes,
) -> Result<Bytes, Box<Response<Body>>> {
    // Short bodies fit in the buffer of their connection and are not counted (`KEPT_MIN`).
    if bytes.len() < KEPT_MIN {
        return Ok(bytes);
    }
    let client = parts.extensions.get();
    let mut room = state.shared.kept_share(client).room();
    let Err(exceeded) = room.resize(bytes.len()) else { return Ok(room.keep_for(bytes)) };
    let unread = match exceeded {
        BudgetExceeded::All => RequestBodyError::Full,
        BudgetExceeded::Client => RequestBodyError::ClientFull,
    };
    let message = Message::parse(bytes);
    let id = message.id().filter(|_| message.kind() == Kind::Request);
    Err(Box::new(not_taken(state, &unread, client, id.as_deref())))
}

/// Returns the response if the server cannot be reached: an error for the id of the request, if the request has an id.
pub(crate) fn unreachable(
    state: &RouteState,
    error: &UpstreamError,
    id: Option<Bytes>,
) -> Response<Body> {
    if let UpstreamError::RequestBody(unread) = error {
        return not_taken(state, unread, None, id.as_deref());
    }
    // Logged here, because the route is known here.
    error.log(Some(&state.route.path));
    if let Some(kind) = error.kind() {
        state.shared.counts.upstream_error(kind);
    }
    let status = match error {
        UpstreamError::ConnectTimeout { .. } | UpstreamError::Idle(_) => {
            StatusCode::GATEWAY_TIMEOUT
        }
        UpstreamError::BrokenOff(_) => StatusCode::SERVICE_UNAVAILABLE,
        error if may_try_again(error) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    };
    let why = error.for_clients();
    let response = error_or_text(status, &why, id.as_deref());
    if may_try_again(error) { retry_later(response) } else { response }
}

/// Whether the same request may succeed soon, because the server has neither received it nor failed.
fn may_try_again(error: &UpstreamError) -> bool {
    matches!(error, UpstreamError::StreamsFull(_) | UpstreamError::Moved) || error.is_local()
}
