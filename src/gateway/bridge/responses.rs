//! Responses that the bridge itself makes: heads of streams and of JSON, and JSON-RPC errors.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use crate::protocol::json;
use crate::protocol::jsonrpc::{INVALID_REQUEST, own_error};
use crate::transport::http::body::Body;

/// The JSON-RPC error code for text that is not JSON.
pub(crate) const PARSE_ERROR: i32 = -32700;

pub(crate) fn json_head() -> HeaderMap {
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(header::CONTENT_TYPE, json)])
}

pub(crate) fn no_method() -> Response<Body> {
    let mut response =
        refusal(StatusCode::METHOD_NOT_ALLOWED, "use POST, or GET and DELETE with a session", None);
    let allow = HeaderValue::from_static("GET, POST, DELETE");
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

/// Returns the response to a GET whose client does not accept events.
pub(crate) fn no_events() -> Response<Body> {
    let why = "this is a stream of events; send Accept: text/event-stream";
    refusal(StatusCode::NOT_ACCEPTABLE, why, None)
}

/// Returns the response with a JSON-RPC error of Milepost, for the request `id` if it is known.
pub(crate) fn refusal(status: StatusCode, why: &str, id: Option<&[u8]>) -> Response<Body> {
    refused(status, INVALID_REQUEST, why, id)
}

pub(crate) fn refused(
    status: StatusCode,
    code: i32,
    why: &str,
    id: Option<&[u8]>,
) -> Response<Body> {
    let text = match id {
        Some(id) => own_error(id, why, None),
        None => {
            let head = format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"#);
            let why = json::quote(why);
            let tail = br#","data":{"proxy":"milepost"}}}"#;
            Bytes::from([head.as_bytes(), &why, tail].concat())
        }
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    *response.headers_mut() = json_head();
    response
}
