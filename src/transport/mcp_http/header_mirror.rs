//! Headers that repeat members of a request of 2026-07-28. A reader of the body must refuse a contradiction. Milepost's
//! decisions depend on the body only.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};
use crate::transport::http::body::Body;
use crate::transport::mcp_http::header_names::REVISION;

/// The specification's code for headers that do not match (26:basic §Error Codes).
const HEADER_MISMATCH: i32 = -32020;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Returns the headers that repeat members of a request, with the values in the body; `None` for messages without such
/// headers: earlier revisions and notifications.
pub(crate) fn repeats(message: &Message) -> Option<[(HeaderName, Option<String>); 3]> {
    repeats_of(message, &date_in(message)?)
}

/// Returns the same as [`repeats`] for a message whose `_meta` names the revision `date`.
fn repeats_of(message: &Message, date: &str) -> Option<[(HeaderName, Option<String>); 3]> {
    if message.kind() != Kind::Request {
        return None;
    }
    let date = date.to_owned();
    // An unknown date is treated as a newer revision, which has the headers too.
    if Revision::from_date(&date).is_some_and(|known| known < Revision::V2026_07_28) {
        return None;
    }
    let method = message.method().unwrap_or_default().into_owned();
    let params = message.params().unwrap_or_default();
    let name = name_member(&method).and_then(|member| text(&params, member));
    Some([(REVISION, Some(date)), (METHOD, Some(method)), (NAME, name)])
}

/// Returns the member of the parameters that `Mcp-Name` repeats.
fn name_member(method: &str) -> Option<&'static str> {
    match method {
        mcp::TOOLS_CALL | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        // The other methods of tasks belong to 2025-11-25, which has no such headers.
        mcp::TASKS_GET | mcp::TASKS_UPDATE | mcp::TASKS_CANCEL => Some("taskId"),
        _ => None,
    }
}

/// Checks that the headers of a request agree with its body, whose `_meta` names the revision `date`. The error is the
/// response. A missing header is left to the server.
pub(crate) fn check(
    headers: &HeaderMap,
    message: &Message,
    date: Option<&str>,
) -> Result<(), Box<Response<Body>>> {
    let repeats = date.and_then(|date| repeats_of(message, date));
    for (header, body) in repeats.into_iter().flatten() {
        // A header whose member is missing in the body cannot be compared; the server decides about it.
        let Some(body) = body else { continue };
        for value in headers.get_all(&header) {
            if decoded(value).is_none_or(|value| value != body.as_bytes()) {
                return Err(Box::new(mismatch(message, &difference(&header, &body))));
            }
        }
    }
    Ok(())
}

/// Checks that a request has each header that 2026-07-28 requires, exactly once, and that each agrees with the body.
/// The error is the response. `Mcp-Name` of a request about a task may be missing. This is the duty of the server
/// (26:http §Server Validation), and of the bridge in its place.
pub(crate) fn require(headers: &HeaderMap, request: &Message) -> Result<(), Box<Response<Body>>> {
    let method = request.method().unwrap_or_default();
    let params = request.params().unwrap_or_default();
    let mut members = vec![(REVISION, date_in(request)), (METHOD, Some(method.to_string()))];
    // The client of FastMCP 4.1 names no task in a header. The task's id in the body is enough.
    let may_lack = method.starts_with(mcp::TASKS) && !headers.contains_key(NAME);
    if let Some(member) = name_member(&method).filter(|_| !may_lack) {
        members.push((NAME, text(&params, member)));
    }
    for (header, member) in members {
        compare(headers, &header, member.as_deref(), |_| false)
            .map_err(|why| Box::new(mismatch(request, &why)))?;
    }
    Ok(())
}

/// Compares a header with the member that it repeats. `alike` returns whether a header with another text means the
/// same.
///
/// # Errors
/// If one of them is missing, the header occurs twice, or its value differs. The error describes the difference.
pub(crate) fn compare(
    headers: &HeaderMap,
    header: &HeaderName,
    member: Option<&str>,
    alike: impl Fn(&[u8]) -> bool,
) -> Result<(), String> {
    let mut values = headers.get_all(header).iter();
    match (values.next(), values.next(), member) {
        (None, _, None) => Ok(()),
        (None, _, Some(member)) => {
            Err(format!("the header {header} is missing; the body says {member:?}"))
        }
        // Two headers may be understood in two ways, even if they are equal.
        (Some(_), Some(_), _) => Err(format!("the header {header} comes twice")),
        (Some(_), None, None) => {
            Err(format!("the header {header} repeats a member that the body does not have"))
        }
        (Some(value), None, Some(member)) => decoded(value)
            .filter(|value| value == member.as_bytes() || alike(value))
            .map(|_| ())
            .ok_or_else(|| difference(header, member)),
    }
}

fn difference(header: &HeaderName, member: &str) -> String {
    format!("the header {header} does not say {member:?}, as the body does")
}

/// Returns the revision that a request names in its `_meta`, as requests from 2026-07-28 on do.
pub(crate) fn date_in(request: &Message) -> Option<String> {
    text(&json::member(&request.params()?, "_meta")?, mcp::META_REVISION)
}

fn text(object: &Bytes, member: &str) -> Option<String> {
    Some(json::decode_str(&json::member(object, member)?)?.into_owned())
}

const SENTINEL: (&[u8], &[u8]) = (b"=?base64?", b"?=");

/// Returns the text between the marks of base64, if the marks are there.
fn marked(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(SENTINEL.0)?.strip_suffix(SENTINEL.1)
}

/// Returns the decoded value of a header. Some text is sent in base64; `None` if it is invalid.
fn decoded(value: &HeaderValue) -> Option<Vec<u8>> {
    let value = value.as_bytes().trim_ascii();
    match marked(value) {
        Some(text) => BASE64_STANDARD.decode(text).ok(),
        None => Some(value.to_vec()),
    }
}

/// Returns the value of a header for `text`.
pub(crate) fn encoded(text: &str) -> Option<HeaderValue> {
    // A text that looks encoded must itself be encoded, so that its reader decodes it to the original text.
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim_matches(' ') == text
        && marked(text.as_bytes()).is_none();
    if plain {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::try_from(format!("=?base64?{}?=", BASE64_STANDARD.encode(text))).ok()
}

/// Returns the response to a request whose headers do not agree with its body, with the reason.
pub(crate) fn mismatch(message: &Message, why: &str) -> Response<Body> {
    let id = message.id().unwrap_or_default();
    let why = json::quote(why);
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
        let checked = check(&map, &message, date_in(&message).as_deref());
        assert_eq!(checked.is_ok(), accepted, "{headers:?}");
        if let Err(response) = checked {
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        }
    }

    #[track_caller]
    fn check_encoded(text: &str, value: &str) {
        let header = encoded(text).unwrap();
        assert_eq!(header, value);
        assert_eq!(decoded(&header).as_deref(), Some(text.as_bytes()));
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
        check_one(&[("mcp-name", "=?base64?YmF?=")], call, false);
        check_one(&[], call, true);
        check_one(&[("mcp-protocol-version", "2025-11-25"), ("mcp-name", "foo")], old, true);
        check_one(&[("mcp-name", "t1")], task, true);
        check_one(&[("mcp-name", "t2")], task, false);
    }

    #[track_caller]
    fn check_required(headers: &[(&'static str, &str)], body: &str, expected: &str) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let message = Message::parse(Bytes::copy_from_slice(body.as_bytes()));
        let found = match require(&map, &message) {
            Ok(()) => String::new(),
            Err(response) => match response.into_body() {
                Body::Whole(Some(text)) => String::from_utf8(text.to_vec()).unwrap(),
                _ => panic!("no words"),
            },
        };
        let expected = match expected {
            "" => String::new(),
            why => format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32020,"message":{why:?},"data":{{"proxy":"milepost"}}}}}}"#
            ),
        };
        assert_eq!(found, expected, "{headers:?}");
    }

    #[test]
    fn who_stands_for_the_server_requires_every_header_once() {
        let of = |method: &str, params: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
            )
        };
        let call = of("tools/call", r#""name":"a","#);
        let date = ("mcp-protocol-version", "2026-07-28");
        let method = ("mcp-method", "tools/call");
        let name = ("mcp-name", "a");
        check_required(&[date, method, name], &call, "");
        check_required(&[date, method, ("mcp-name", "=?base64?YQ==?=")], &call, "");
        let (task, get) = (of("tasks/get", r#""taskId":"a","#), ("mcp-method", "tasks/get"));
        check_required(&[date, get, name], &task, "");
        check_required(&[date, get], &task, "");
        let other = r#"the header mcp-name does not say "a", as the body does"#;
        check_required(&[date, get, ("mcp-name", "b")], &task, other);
        check_required(
            &[method, name],
            &call,
            "the header mcp-protocol-version is missing; the body says \"2026-07-28\"",
        );
        check_required(
            &[date, name],
            &call,
            "the header mcp-method is missing; the body says \"tools/call\"",
        );
        check_required(
            &[date, method],
            &call,
            "the header mcp-name is missing; the body says \"a\"",
        );
        check_required(&[date, method, name, name], &call, "the header mcp-name comes twice");
        check_required(
            &[date, method, ("mcp-name", "b")],
            &call,
            "the header mcp-name does not say \"a\", as the body does",
        );
        check_required(
            &[("mcp-protocol-version", "2027-01-01"), method, name],
            &call,
            "the header mcp-protocol-version does not say \"2026-07-28\", as the body does",
        );
        check_required(
            &[date, method, name],
            &of("tools/call", ""),
            "the header mcp-name repeats a member that the body does not have",
        );
        let read = ("mcp-method", "resources/read");
        check_required(
            &[date, read, ("mcp-name", "a:b")],
            &of("resources/read", r#""uri":"a:b","#),
            "",
        );
        // The header has no meaning for other methods.
        let list = ("mcp-method", "tools/list");
        check_required(&[date, list, name], &of("tools/list", ""), "");
        check_required(&[date, list], &of("tools/list", ""), "");
    }
}
