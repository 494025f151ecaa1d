//! Clients of 2026-07-28: no sessions, each POST on its own, one server for all that present the same
//! `Authorization`.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use tokio::time::sleep_until;

use super::launch::Wanted;
use super::session::{Kind, Session};
use super::slot::Found;
use super::{REVISION, json_head, refusal};
use crate::http::Proxy;
use crate::http::body::Body;
use crate::http::site::Site;
use crate::json;
use crate::jsonrpc::{METHOD_NOT_FOUND, Message};
use crate::mcp::{self, Revision};
use crate::probe;
use crate::routes::Upstream;

/// The specification's code for a revision that is not known (26:basic §Error Codes).
const UNSUPPORTED_REVISION: i32 = -32022;

/// Codes that are said with the status 400 (rule H-12): parameters, headers, capabilities, revision.
const BAD_REQUEST: [i64; 4] = [-32602, -32020, -32021, -32022];

/// Whether a request is of a revision without sessions: its body says so; one without a request has
/// only its header.
pub(super) fn is_modern(headers: &HeaderMap, message: Option<&Message>) -> bool {
    let params = message.and_then(Message::params).unwrap_or_default();
    let meta = json::member(&params, "_meta").unwrap_or_default();
    match date_in(&meta) {
        Some(date) => is_modern_date(&date),
        None => names_modern(headers),
    }
}

/// Whether the header names such a revision.
pub(super) fn names_modern(headers: &HeaderMap) -> bool {
    let date = headers.get(REVISION).and_then(|date| date.to_str().ok());
    date.is_some_and(is_modern_date)
}

fn is_modern_date(date: &str) -> bool {
    Revision::from_date(date) >= Some(Revision::V2026_07_28)
}

fn date_in(meta: &Bytes) -> Option<String> {
    Some(json::words(&json::member(meta, mcp::META_REVISION)?)?.into_owned())
}

/// The status of an answer (rule H-12).
pub(super) fn status(answer: &Bytes) -> StatusCode {
    let error = Message::parse(answer.clone()).error().unwrap_or_default();
    let code = json::member(&error, "code");
    let code = code.and_then(|code| std::str::from_utf8(&code).ok()?.trim().parse::<i64>().ok());
    match code {
        Some(code) if code == i64::from(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code) if BAD_REQUEST.contains(&code) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// Clients that know an earlier revision too go on with that.
fn unsupported(message: Option<&Message>) -> Response<Body> {
    let id = message.and_then(Message::id).unwrap_or_else(|| Bytes::from_static(b"null"));
    let params = message.and_then(Message::params).unwrap_or_default();
    let meta = json::member(&params, "_meta").unwrap_or_default();
    let requested = json::quote(&date_in(&meta).unwrap_or_default());
    let legacy = Revision::ALL.iter().filter(|(revision, _)| *revision < Revision::V2026_07_28);
    let supported: Vec<Bytes> = legacy.map(|(_, date)| json::quote(date)).collect();
    let head = format!(
        r#","error":{{"code":{UNSUPPORTED_REVISION},"message":"Unsupported protocol version","data":{{"proxy":"milepost","supported":["#
    );
    let text: [&[u8]; 7] = [
        br#"{"jsonrpc":"2.0","id":"#,
        &id,
        head.as_bytes(),
        &supported.join(&b","[..]),
        br#"],"requested":"#,
        &requested,
        b"}}}",
    ];
    respond(StatusCode::BAD_REQUEST, text.concat().into())
}

fn respond(status: StatusCode, text: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    *response.headers_mut() = json_head();
    response
}

impl Proxy {
    /// The session that whoever presents this `Authorization` shares, begun if there is none; what the
    /// client is told if that cannot be.
    pub(super) async fn shared_session(
        &self,
        site: &Arc<Site>,
        parts: &Parts,
        message: Option<&Message>,
        ours: bool,
    ) -> Result<Arc<Session>, Box<Response<Body>>> {
        let stdio = match &site.route.upstream {
            Upstream::Command(stdio) if stdio.share => stdio,
            _ => return Err(Box::new(unsupported(message))),
        };
        let id = message.and_then(Message::id);
        let id = id.as_deref();
        let slot = site.bridge.slot(site.caller(&parts.headers));
        // One is started, however many ask.
        let _starting = slot.starting.lock().await;
        let at = match slot.find(stdio.restart) {
            Found::Runs(session) => return Ok(session),
            Found::StartsAt(at) => at,
            Found::Died => {
                let why = "the MCP server has ended and is not started again: see restart";
                return Err(Box::new(refusal(StatusCode::BAD_GATEWAY, why, id)));
            }
        };
        let discovers = message.and_then(Message::method).as_deref() == Some(mcp::DISCOVER);
        if discovers && site.era.is_old() {
            let answer = probe::unknown(id.unwrap_or(b"null"));
            return Err(Box::new(respond(StatusCode::NOT_FOUND, answer.raw().clone())));
        }
        sleep_until(at).await;
        self.begin_session(site, &Wanted { kind: Kind::Shared(Arc::clone(&slot)), id, ours })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::error_answer;

    #[test]
    fn statuses_follow_the_codes_of_the_specification() {
        let of = |code: i32| status(&error_answer(b"1", code, "", None)).as_u16();
        assert_eq!(of(-32601), 404);
        for code in [-32602, -32020, -32021, -32022] {
            assert_eq!(of(code), 400);
        }
        for code in [-32603, -32000, -32700, 5] {
            assert_eq!(of(code), 200);
        }
        let result = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"code":-32601}}"#);
        assert_eq!(status(&result), 200);
    }
}
