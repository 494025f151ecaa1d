//! The HTTP requests of the leg: POST for messages, GET for events, DELETE to end a session.

use std::time::SystemTime;

use futures::FutureExt;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Uri, header};

use super::outgoing::Outgoing;
use super::session::UpstreamSession;
use super::target::UpstreamTarget;
use crate::transport::http::client::Sending;
use crate::transport::http::request_body::RequestBody;
use crate::transport::mcp_http::header_mirror;
use crate::transport::mcp_http::header_names::LAST_EVENT_ID;
use crate::transport::mcp_http::target::Target;
use crate::transport::mcp_http::tool_headers::ToolHeaders;

/// The `Accept` of a POST, as Streamable HTTP requires it.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// The `Accept` of a GET, whose response can only contain events.
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

fn send(target: &Target, request: Request<RequestBody>) -> Sending {
    let client = target.client.clone();
    async move { client.send(request).await }.boxed()
}

/// Sends a request with the session's cookies, and keeps the cookies that the response sets.
fn send_in_session(
    target: &Target,
    mut request: Request<RequestBody>,
    session: &UpstreamSession,
) -> Sending {
    let (target, uri, cookies) = (target.clone(), request.uri().clone(), session.cookies.clone());
    cookies.add_to(request.headers_mut(), target.cookie_place(&uri), SystemTime::now());
    async move {
        let response = target.client.send(request).await?;
        cookies.keep(response.headers(), target.cookie_place(&uri), SystemTime::now());
        Ok(response)
    }
    .boxed()
}

/// Returns the POST of a message.
///
/// # Errors
/// The reason, as text, why the request cannot be made.
pub(crate) fn post(
    upstream: &UpstreamTarget,
    (target, uri): (&Target, Uri),
    out: &Outgoing,
    session: &UpstreamSession,
    tools: &ToolHeaders,
) -> Result<Sending, String> {
    let json = HeaderValue::from_static("application/json");
    let mut own = vec![(header::ACCEPT, BOTH), (CONTENT_TYPE, json)];
    let repeats = header_mirror::repeats(&out.message);
    // 2026-07-28 has no sessions, and its requests may come from different clients.
    let in_session = repeats.is_none();
    if let Some(repeats) = repeats {
        let repeated = repeats
            .into_iter()
            .filter_map(|(name, text)| Some((name, header_mirror::encoded(&text?)?)));
        own.extend(repeated);
        own.extend(tools.headers(&out.message));
    } else if !out.begins_session() {
        own.extend(session.headers());
    }
    let raw = out.message.raw();
    // Leave out spaces and line breaks after a message, which belong to the framing of stdio.
    let end = raw.len() - raw.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
    let body = RequestBody::from(raw.slice(..end));
    let headers = if out.headers.is_some() { &out.headers } else { &session.client_headers };
    let request = upstream.request(target, uri, Method::POST, headers, own, body)?;
    Ok(if in_session { send_in_session(target, request, session) } else { send(target, request) })
}

/// Returns a GET for events: a new stream, or the rest of a stream after the event with this id.
///
/// # Errors
/// The reason, as text, why the request cannot be made.
pub(crate) fn get(
    upstream: &UpstreamTarget,
    target: &Target,
    session: &UpstreamSession,
    behind: Option<&HeaderValue>,
) -> Result<Sending, String> {
    let mut own = vec![(header::ACCEPT, EVENTS)];
    own.extend(session.headers());
    own.extend(behind.map(|id| (LAST_EVENT_ID, id.clone())));
    let (uri, body) = (target.uri(None), RequestBody::empty());
    let request = upstream.request(target, uri, Method::GET, &session.client_headers, own, body)?;
    Ok(send_in_session(target, request, session))
}

/// Returns the DELETE that ends a session; `None` if the session has no id.
pub(crate) fn delete(upstream: &UpstreamTarget, session: &UpstreamSession) -> Option<Sending> {
    let target = upstream.endpoint.as_ref()?;
    session.id.as_ref()?;
    let own = session.headers();
    let (uri, body) = (target.uri(None), RequestBody::empty());
    let client = &session.client_headers;
    let request = upstream.request(target, uri, Method::DELETE, client, own, body).ok()?;
    Some(send_in_session(target, request, session))
}
