//! Responses of the gateway's own on a route: no such route, too busy, server out of reach.

use crate::gateway::route_state::RouteState;
use crate::observe::error_chain::error_chain;
use crate::protocol::jsonrpc::own_error;
use crate::transport::http::body::Body;
use crate::transport::http::client::UpstreamError;
use crate::transport::mcp_http::request_body::BodyError;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, Version, header};

/// The response where there is no route.
pub(crate) fn no_route() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "there is no such route")
}

/// A response of ours in words.
pub(crate) fn text(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(format!("{why}\n"))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

pub(crate) fn unavailable(why: &str) -> Response<Body> {
    tracing::warn!(why, "refused");
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

pub(crate) fn refuse(state: &RouteState, unread: &BodyError, version: Version) -> Response<Body> {
    tracing::info!(route = state.route.path, why = unread.why, "refused");
    let mut response = text(unread.status, &unread.why);
    // What is left of its body is not read.
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The server could not be asked: an error for the request's id, if it has one.
pub(crate) fn unreachable(
    state: &RouteState,
    error: &UpstreamError,
    id: Option<Bytes>,
) -> Response<Body> {
    let why = error_chain(error);
    tracing::warn!(route = state.route.path, error = why, "the server could not be asked");
    if let Some(kind) = error.kind() {
        state.shared.counts.upstream_error(kind);
    }
    let status = match error {
        UpstreamError::ConnectTimeout { .. } | UpstreamError::Idle(_) => {
            StatusCode::GATEWAY_TIMEOUT
        }
        UpstreamError::BrokenOff(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    };
    let Some(id) = id else { return text(status, &why) };
    let mut response = Response::new(Body::from(own_error(&id, &why, None)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
