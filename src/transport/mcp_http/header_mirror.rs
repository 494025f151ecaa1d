//! Headers that repeat members of a request of 2026-07-28. A reader of the body must refuse a
//! contradiction. The proxy's decisions depend on the body alone.

use crate::transport::mcp_http::header_names::REVISION;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};
use crate::transport::http::body::Body;

/// The specification's code for headers that do not match (26:basic §Error Codes).
const HEADER_MISMATCH: i32 = -32020;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The headers that repeat members of a request, with the values in the body; `None` for messages
/// without such headers: earlier revisions and notifications.
pub(crate) fn repeats(message: &Message) -> Option<[(HeaderName, Option<String>); 3]> {
    if message.kind() != Kind::Request {
        return None;
    }
    let params = message.params().unwrap_or_default();
    let meta = json::member(&params, "_meta").unwrap_or_default();
    let date = text(&meta, mcp::META_REVISION)?;
    if Revision::from_date(&date).is_some_and(|known| known < Revision::V2026_07_28) {
        return None;
    }
    let method = message.method().unwrap_or_default().into_owned();
    let name = match &*method {
        mcp::TOOLS_CALL | "prompts/get" => text(&params, "name"),
        "resources/read" => text(&params, "uri"),
        method if method.starts_with("tasks/") => text(&params, "taskId"),
        _ => None,
    };
    Some([(REVISION, Some(date)), (METHOD, Some(method)), (NAME, name)])
}

/// Checks that the headers of a request agree with its body; the error is the response. The server
/// judges a missing header.
pub(crate) fn check(headers: &HeaderMap, message: &Message) -> Result<(), Box<Response<Body>>> {
    for (header, body) in repeats(message).into_iter().flatten() {
        let Some(body) = body else { continue };
        for value in headers.get_all(&header) {
            if decoded(value) != body.as_bytes() {
                return Err(Box::new(mismatch(message, &header, &body)));
            }
        }
    }
    Ok(())
}

/// The revision that a request names in its `_meta`, as those from 2026-07-28 on do.
pub(crate) fn date_in(request: &Message) -> Option<String> {
    text(&json::member(&request.params()?, "_meta")?, mcp::META_REVISION)
}

fn text(object: &Bytes, member: &str) -> Option<String> {
    Some(json::decode_str(&json::member(object, member)?)?.into_owned())
}

const SENTINEL: (&[u8], &[u8]) = (b"=?base64?", b"?=");

/// The text between the marks of base64, if they exist.
fn marked(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(SENTINEL.0)?.strip_suffix(SENTINEL.1)
}

/// The value of a header. Text that no header may hold is in base64.
fn decoded(value: &HeaderValue) -> Vec<u8> {
    let value = value.as_bytes().trim_ascii();
    let inner = marked(value);
    inner.and_then(|text| BASE64_STANDARD.decode(text).ok()).unwrap_or_else(|| value.to_vec())
}

/// The value of a header with the text `text`.
pub(crate) fn encoded(text: &str) -> Option<HeaderValue> {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim_matches(' ') == text
        && marked(text.as_bytes()).is_none();
    if plain {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::try_from(format!("=?base64?{}?=", BASE64_STANDARD.encode(text))).ok()
}

fn mismatch(message: &Message, header: &HeaderName, body: &str) -> Response<Body> {
    let id = message.id().unwrap_or_default();
    let why = json::quote(&format!("the header {header} does not say {body:?}, as the body does"));
    let code = format!(r#","error":{{"code":{HEADER_MISMATCH},"message":"#);
    let text: [&[u8]; 5] = [
        br#"{"jsonrpc":"2.0","id":"#,
        &id,
        code.as_bytes(),
        &why,
        br#","data":{"proxy":"milepost"}}}"#,
    ];
    let mut response = Response::new(Body::from(Bytes::from(text.concat())));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_one(headers: &[(&'static str, &str)], body: &str, accepted: bool) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let message = Message::parse(Bytes::copy_from_slice(body.as_bytes()));
        let checked = check(&map, &message);
        assert_eq!(checked.is_ok(), accepted, "{headers:?}");
        if let Err(response) = checked {
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        }
    }

    #[track_caller]
    fn check_encoded(text: &str, value: &str) {
        let header = encoded(text).unwrap();
        assert_eq!(header, value);
        assert_eq!(decoded(&header), text.as_bytes());
    }

    #[test]
    fn what_no_header_may_hold_is_written_in_base64() {
        check_encoded("us-west1", "us-west1");
        check_encoded("two words", "two words");
        check_encoded("", "");
        check_encoded("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?=");
        check_encoded(" padded ", "=?base64?IHBhZGRlZCA=?=");
        check_encoded("line1\nline2", "=?base64?bGluZTEKbGluZTI=?=");
        check_encoded("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=");
    }

    #[test]
    fn headers_say_what_the_body_says() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bar","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let old = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bar"}}"#;
        let task = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t1","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        check_one(&[("mcp-name", "foo")], call, false);
        check_one(&[("mcp-method", "tools/list")], call, false);
        check_one(&[("mcp-protocol-version", "2025-11-25")], call, false);
        check_one(&[("mcp-name", "bar"), ("mcp-method", "tools/call")], call, true);
        check_one(&[("mcp-name", " bar ")], call, true);
        check_one(&[("mcp-name", "=?base64?YmFy?=")], call, true);
        check_one(&[("mcp-name", "=?BASE64?YmFy?=")], call, false);
        check_one(&[], call, true);
        check_one(&[("mcp-protocol-version", "2025-11-25"), ("mcp-name", "foo")], old, true);
        check_one(&[("mcp-name", "t1")], task, true);
        check_one(&[("mcp-name", "t2")], task, false);
    }
}
