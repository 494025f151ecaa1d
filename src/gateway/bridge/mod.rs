//! Clients of HTTP before a server of another transport: sessions, streams and event ids are ours here.
//!
//! ```text
//! client ──> post ──> Session ──> Streams ┐                 ┌ Pipe ──> child
//!               │ opens                   ├─ Relay (Host) ──┤
//! client <── Reader <── Store <── give ───┘                 └─────────
//! ```
//!
//! Each session has one task, which runs the relay. What a stream is told is kept in its store; who
//! answers a request takes it from there, as one JSON answer or as events, and so does a client that
//! comes back for what it has missed.

mod client_leg;
mod frame;
mod get;
mod http_sse;
mod idle;
mod large;
mod launch;
mod modern;
mod post;
mod replay_buffer;
mod response_body;
mod server_log;
mod session;
mod shared_servers;
mod signals;
mod subscription;
mod upload;

use crate::transport::mcp_http::header_names::{REVISION, SESSION_ID};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header};

use crate::config::routes::Upstream;
use crate::gateway::dispatch::Proxy;
use crate::gateway::route_state::Site;
use crate::protocol::json;
use crate::protocol::jsonrpc::own_error;
use crate::protocol::mcp::Revision;
use crate::relay::{ClientHeaders, TRACE_HEADERS};
use crate::transport::http::body::Body;
use crate::transport::http::write_state::Outlet;
use crate::transport::mcp_http::request_body::Posted;
use session::{Session, Whose};

pub(crate) use crate::gateway::bridge::http_sse::key_in;
pub(crate) use crate::gateway::bridge::shared_servers::SharedServers;
pub(crate) use session::Sessions;

/// The JSON-RPC error code of a request that is not as it should be.
const INVALID_REQUEST: i32 = -32600;

/// The JSON-RPC error code of what is no JSON.
const PARSE_ERROR: i32 = -32700;

/// What a client is told of a session that is not there.
const NO_SESSION: &str = "there is no such session; initialize a new one";

/// After how long a client comes back whose stream has broken off, in milliseconds.
const RETRY_MS: u64 = 1000;

impl Proxy {
    /// Answers a request of a client of Streamable HTTP.
    pub(crate) async fn bridge(
        self: &Arc<Self>,
        site: &Arc<Site>,
        parts: Parts,
        body: Posted,
        ours: bool,
        outlet: Outlet,
    ) -> Response<Body> {
        match parts.method {
            Method::POST => self.bridge_post(site, parts, body, ours, outlet).await,
            // Later revisions have nothing to listen to, and nothing to end (rule H-11).
            _ if modern::date_of(&parts.headers, None).is_some() => no_method(),
            Method::GET => self.bridge_get(site, &parts, outlet),
            Method::DELETE => self.bridge_delete(site, &parts),
            _ => no_method(),
        }
    }

    /// A response of ours with the route's own headers.
    fn said(
        &self,
        site: &Site,
        status: StatusCode,
        headers: HeaderMap,
        body: Body,
    ) -> Response<Body> {
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = status;
        parts.headers = headers;
        parts.version = Version::HTTP_11;
        self.answered(site, parts, false, body)
    }
}

/// The session that a request names; what its client is told if there is none.
fn named(site: &Site, headers: &HeaderMap) -> Result<Arc<Session>, Box<Response<Body>>> {
    let Some(id) = headers.get(SESSION_ID) else {
        let why = "this request names no session; send Mcp-Session-Id, or initialize first";
        return Err(Box::new(refusal(StatusCode::BAD_REQUEST, why, None)));
    };
    let Some(session) = site.bridge.find(id.as_bytes(), Whose::Own) else {
        return Err(Box::new(refusal(StatusCode::NOT_FOUND, NO_SESSION, None)));
    };
    if let Some(date) = headers.get(REVISION) {
        let known = date.to_str().ok().and_then(Revision::from_date);
        let legacy = known.is_some_and(|revision| revision < Revision::V2026_07_28);
        if !legacy && session.agreed().date.as_bytes() != date.as_bytes() {
            let why = "this revision of the protocol is not known; send the one agreed on";
            return Err(Box::new(refusal(StatusCode::BAD_REQUEST, why, None)));
        }
    }
    Ok(session)
}

/// The headers of a client's request, where there is a use for them: a child has none, and only its trace
/// matters.
fn passed(site: &Site, mut headers: HeaderMap) -> ClientHeaders {
    if matches!(site.route.upstream, Upstream::Command(_)) {
        let mut trace = HeaderMap::new();
        for name in TRACE_HEADERS {
            let values = headers.get_all(&name).iter().cloned().collect::<Vec<_>>();
            trace.extend(values.into_iter().map(|value| (name.clone(), value)));
        }
        headers = trace;
    }
    Some(Arc::new(headers))
}

/// Headers of a stream of events.
fn events_head() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers
}

fn json_head() -> HeaderMap {
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(header::CONTENT_TYPE, json)])
}

fn no_method() -> Response<Body> {
    let mut response =
        refusal(StatusCode::METHOD_NOT_ALLOWED, "use POST, or GET and DELETE with a session", None);
    let allow = HeaderValue::from_static("GET, POST, DELETE");
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

/// A JSON-RPC error of ours, for this request if its id is known.
fn refusal(status: StatusCode, why: &str, id: Option<&[u8]>) -> Response<Body> {
    refused(status, INVALID_REQUEST, why, id)
}

fn refused(status: StatusCode, code: i32, why: &str, id: Option<&[u8]>) -> Response<Body> {
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
