//! Clients of 2026-07-28 in front of a stdio server: there are no sessions, each request has a stream of its own, and
//! the server is shared. The server's answer decides the HTTP status of the response.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use super::Bridge;
use super::posted_message::PostedMessage;
use crate::config::routes::Upstream;
use crate::gateway::bridge::face_clients::is_known;
use crate::gateway::bridge::responses::{json_head, refusal};
use crate::gateway::route_state::RouteState;
use crate::protocol::jsonrpc::{INVALID_PARAMS, Kind, METHOD_NOT_FOUND, Message, error_answer};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};
use crate::relay::discover_probe;
use crate::relay::discover_probe::Era;
use crate::transport::http::body::Body;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::header_mirror;
use crate::transport::mcp_http::header_names::REVISION;

/// The specification's code for a revision that a server does not speak (26:basic §Error Codes).
const UNSUPPORTED_REVISION: i32 = -32022;

/// Error codes that are sent with status 400: invalid parameters, and the specification's codes for mismatched headers,
/// missing capabilities and unsupported revisions.
const BAD_REQUEST: [i32; 4] = [INVALID_PARAMS, -32020, -32021, UNSUPPORTED_REVISION];

/// Returns the revision that a request names in its body or its header, if that revision is 2026-07-28 or later.
/// Requests of earlier revisions do not name it in the body: if a body names a revision, even an unknown one, the
/// server judges it.
pub(crate) fn date_of(headers: &HeaderMap, message: Option<&Message>) -> Option<String> {
    message.and_then(header_mirror::date_in).or_else(|| {
        let date = headers.get(REVISION)?.to_str().ok()?;
        (Revision::from_date(date) >= Some(Revision::V2026_07_28)).then(|| date.to_owned())
    })
}

/// Returns the HTTP status for an answer.
pub(crate) fn status_of(answer: &Bytes) -> StatusCode {
    match Message::parse(answer.clone()).error_code() {
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code) if BAD_REQUEST.contains(&code) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

impl Bridge {
    /// Answers a POST of a client that speaks the revision `date`.
    pub(crate) async fn post_modern(
        self: &Arc<Self>,
        parts: &Parts,
        said: PostedMessage,
        date: &str,
        write_state: WriteState,
    ) -> Response<Body> {
        let PostedMessage::Whole(message) = said else {
            let why = "the body of this request is too large to be read";
            return refusal(StatusCode::PAYLOAD_TOO_LARGE, why, None);
        };
        match message.kind() {
            Kind::Request => {}
            Kind::Notification => {
                // In 2026-07-28 a request is cancelled by closing its stream. Other notifications must not reach a
                // server that other clients share.
                return self.route_response(StatusCode::ACCEPTED, HeaderMap::new(), Body::empty());
            }
            _ => {
                let why = "a request or a notification is expected";
                return refusal(StatusCode::BAD_REQUEST, why, None);
            }
        }
        let id = message.id();
        if !is_complete(&message) {
            let why = "_meta must say protocolVersion and clientCapabilities";
            let text = error_answer(id.as_deref().unwrap_or(b"null"), INVALID_PARAMS, why, None);
            return with_error(StatusCode::BAD_REQUEST, text);
        }
        if let Err(refusal) = header_mirror::require(&parts.headers, &message) {
            return *refusal;
        }
        if let Some(refusal) = self.refuse_newer(parts, &message, date) {
            return refusal;
        }
        if message.method().as_deref() == Some(mcp::INITIALIZE) {
            // A server that also speaks earlier revisions would begin a session for all clients that share it.
            let why = "this revision has no initialize; a client begins with server/discover";
            let text = error_answer(id.as_deref().unwrap_or(b"null"), METHOD_NOT_FOUND, why, None);
            return with_error(StatusCode::NOT_FOUND, text);
        }
        match self.shared_session(parts, &message).await {
            Ok(session) => {
                let checked = session.tools().check(&parts.headers, &message);
                match checked {
                    Ok(()) => self.ask_shared(parts, message, session, write_state).await,
                    Err(refusal) => *refusal,
                }
            }
            Err(refusal) => *refusal,
        }
    }
}

impl Bridge {
    /// Returns the refusal for a client that is newer than its server, if the route has no modern face for the server.
    fn refuse_newer(&self, parts: &Parts, message: &Message, date: &str) -> Option<Response<Body>> {
        if !self.state.translates_eras {
            let why = "this server speaks earlier revisions; begin with initialize";
            let refusal = || too_old(message, date, why);
            return (!shares(&self.state, &self.era)).then(refusal);
        }
        // A server of an earlier revision may keep data of one client. Clients with other credentials must not get that
        // data.
        let why = "this server speaks earlier revisions, and is shared only by clients with the same credentials \
                   (Authorization or a certificate) and by clients on its machine; begin with initialize";
        (!is_known(parts)).then(|| too_old(message, date, why))
    }
}

fn shares(state: &RouteState, era: &Era) -> bool {
    match &state.route.upstream {
        Upstream::Command(stdio) => stdio.share && !era.is_old(),
        _ => false,
    }
}

/// Returns the error for a client whose server cannot be shared, with the reason `why`. The client then falls back to
/// `initialize`.
fn too_old(message: &Message, date: &str, why: &str) -> Response<Body> {
    let id = message.id().unwrap_or_default();
    let (status, text) = if message.method().as_deref() == Some(mcp::DISCOVER) {
        (StatusCode::NOT_FOUND, discover_probe::unknown(&id).raw().clone())
    } else {
        let known = Revision::ALL.iter().rev().map(|(_, date)| *date).skip(1);
        let known: Vec<String> = known.map(|date| format!("\"{date}\"")).collect();
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{UNSUPPORTED_REVISION},"message":{why},"data":{{"supported":[{known}],"requested":{date}}}}}}}"#,
            id = String::from_utf8_lossy(&id),
            known = known.join(","),
            date = String::from_utf8_lossy(&json::quote(date)),
            why = String::from_utf8_lossy(&json::quote(why)),
        );
        (StatusCode::BAD_REQUEST, Bytes::from(text))
    };
    with_error(status, text)
}

fn with_error(status: StatusCode, text: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    *response.headers_mut() = json_head();
    response
}

/// Whether a request has the members about its client that 2026-07-28 requires. If the first request lacks them, a
/// server that also speaks older revisions takes the client for an older one, and then speaks only the older revision
/// to all clients.
fn is_complete(message: &Message) -> bool {
    let params = message.params().unwrap_or_default();
    let meta = json::member(&params, "_meta").unwrap_or_default();
    let says =
        |name, first| json::member(&meta, name).is_some_and(|value| value.first() == Some(first));
    says(mcp::META_REVISION, &b'"') && says(mcp::META_CAPABILITIES, &b'{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &'static str, status: u16) {
        assert_eq!(status_of(&Bytes::from_static(answer.as_bytes())), status, "{answer}");
    }

    #[test]
    fn an_answer_has_its_status() {
        check(r#"{"id":1,"result":{"code":-32601}}"#, 200);
        check(r#"{"id":1,"error":{"code":-32601,"message":"?"}}"#, 404);
        check(r#"{"id":1,"error":{"code":-32602,"message":"?"}}"#, 400);
        check(r#"{"id":1,"error":{"code":-32020}}"#, 400);
        check(r#"{"id":1,"error":{"code":-32021}}"#, 400);
        check(r#"{"id":1,"error":{"code": -32022 }}"#, 400);
        check(r#"{"id":1,"error":{"code":-32000}}"#, 200);
        check(r#"{"id":1,"error":{}}"#, 200);
    }
}
