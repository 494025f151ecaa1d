//! The body of a POST to a session of the bridge, as a message.

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body as _;

use super::modern;
use crate::gateway::bridge::responses::{PARSE_ERROR, refused};
use crate::gateway::refusals::{keep_or_refuse, read_or_refuse, refuse};
use crate::gateway::route_state::RouteState;
use crate::progress::{BATCH_MAX, RefusalRule};
use crate::protocol::jsonrpc::{INVALID_REQUEST, Kind, Message};
use crate::transport::http::body::Body;
use crate::transport::http::request_body::RequestBody;
use crate::transport::mcp_http::content::on_one_line;
use crate::transport::mcp_http::request_body;
use crate::transport::mcp_http::request_body::{PostedBody, ReadBody};

/// The body of a POST.
pub(crate) enum PostedMessage {
    /// A complete message, on one line.
    Whole(Message),
    /// A message that is too large to be in memory as a whole.
    Large(RequestBody),
}

impl PostedMessage {
    pub(crate) fn message(&self) -> Option<&Message> {
        match self {
            Self::Whole(message) => Some(message),
            Self::Large(_) => None,
        }
    }
}

/// Reads the body of a POST; the error is the response for a body that is not a message.
pub(crate) async fn read(
    state: &RouteState,
    parts: &Parts,
    body: PostedBody,
) -> Result<PostedMessage, Box<Response<Body>>> {
    let read = match read_or_refuse(state, body, parts).await? {
        ReadBody::Large(body) => take_large(state, parts, body).await?,
        whole => whole,
    };
    match read {
        ReadBody::Large(body) => Ok(PostedMessage::Large(body)),
        ReadBody::Whole(bytes) => whole_message(state, &bytes).map(PostedMessage::Whole),
    }
}

/// Returns the message of a complete body. The error is the response for a body that is not a message.
fn whole_message(state: &RouteState, bytes: &Bytes) -> Result<Message, Box<Response<Body>>> {
    let line = bytes.slice_ref(bytes.trim_ascii());
    let message = Message::parse(on_one_line(line));
    if message.elements().nth(BATCH_MAX).is_some() {
        state.shared.counts.refuse(RefusalRule::LongBatch);
        let why = format!("a batch of more than {BATCH_MAX} messages");
        let refusal = refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, &why, None);
        return Err(Box::new(refusal));
    }
    if message.kind() != Kind::Noise {
        return Ok(message);
    }
    let why = "the body of this request is no JSON-RPC message";
    Err(Box::new(refused(StatusCode::BAD_REQUEST, PARSE_ERROR, why, None)))
}

/// Handles a large body for a server that must not get an incomplete message.
async fn take_large(
    state: &RouteState,
    parts: &Parts,
    body: RequestBody,
) -> Result<ReadBody, Box<Response<Body>>> {
    let not_taken = |unread| Box::new(refuse(state, &unread, parts));
    let max = state.route.max_request_bytes;
    // A shared server gets ids that Milepost makes. Replacing the id needs the whole message in memory.
    if modern::date_of(&parts.headers, None).is_some() {
        let bytes = request_body::whole(body, max).await.map_err(not_taken)?;
        return keep_or_refuse(state, parts, bytes).map(ReadBody::Whole);
    }
    // A body without a length may turn out to be too long when its server already has a part of it.
    Ok(ReadBody::Large(match body.size_hint().exact() {
        Some(_) => body,
        None => body.spool(max).await.map_err(not_taken)?,
    }))
}

/// Reads a large body into memory, so that its message can get another id.
pub(crate) async fn hold(
    state: &RouteState,
    parts: &Parts,
    body: RequestBody,
) -> Result<Message, Box<Response<Body>>> {
    let read = request_body::whole(body, state.route.max_request_bytes).await;
    let read = read.map_err(|unread| refuse(state, &unread, parts))?;
    let bytes = keep_or_refuse(state, parts, read)?;
    whole_message(state, &bytes)
}
