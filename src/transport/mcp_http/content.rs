//! Kinds of response bodies, and JSON rewritten to one line.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};

use crate::protocol::control_characters;
use crate::protocol::json;
use crate::protocol::unicode::BOM;
use crate::transport::byte_budget::in_room_of;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// The kind of a body, as far as Milepost can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Events,
    Json,
    Other,
}

impl Content {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        // The bytes of a compressed body do not show its type.
        let packed = headers
            .get(header::CONTENT_ENCODING)
            .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        if packed { Self::Other } else { Self::unpacked(headers) }
    }

    /// Returns the kind of the body after decompression.
    pub(crate) fn unpacked(headers: &HeaderMap) -> Self {
        // Nearly all servers write one of these two values exactly, so these are compared first.
        match headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes) {
            Some(kind) if kind == JSON.as_bytes() => return Self::Json,
            Some(kind) if kind == EVENTS.as_bytes() => return Self::Events,
            _ => {}
        }
        match media_type(headers) {
            kind if kind.eq_ignore_ascii_case(EVENTS) => Self::Events,
            kind if kind.eq_ignore_ascii_case(JSON) || is_kind_of_json(kind) => Self::Json,
            _ => Self::Other,
        }
    }

    /// Returns the kind of a body whose `Content-Type` does not show it, by its first bytes.
    pub(crate) fn by_first_bytes(first: &[u8]) -> Self {
        // Space is allowed before JSON, and some hand-written servers send a byte order mark there.
        let first = first.strip_prefix(BOM).unwrap_or(first).trim_ascii_start();
        let fields: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
        match first.first() {
            Some(b'{' | b'[') => Self::Json,
            _ if fields.iter().any(|field| first.starts_with(field)) => Self::Events,
            _ => Self::Other,
        }
    }

    /// Writes the usual `Content-Type` for this kind, if the server has written another.
    pub(crate) fn name_in(self, headers: &mut HeaderMap) {
        let known = match self {
            Self::Events => EVENTS,
            Self::Json => JSON,
            Self::Other => return,
        };
        let is_known = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == known);
        if !is_known && !media_type(headers).eq_ignore_ascii_case(known) {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(known));
        }
    }
}

/// Whether the `Content-Type` does not describe the content: hand-written servers leave it out, or their framework
/// writes a default.
pub(crate) fn is_untyped(headers: &HeaderMap) -> bool {
    let kind = media_type(headers);
    kind.is_empty()
        || ["text/plain", "application/octet-stream"]
            .iter()
            .any(|other| kind.eq_ignore_ascii_case(other))
}

fn media_type(headers: &HeaderMap) -> &str {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// Whether a media type other than `application/json` means JSON, such as those of JSON-RPC over HTTP (2008).
fn is_kind_of_json(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    ["application/json-rpc", "application/jsonrequest", "text/json"].contains(&&*kind)
        || kind.starts_with("application/") && kind.ends_with("+json")
}

/// Whether a JSON text is complete.
pub(crate) fn is_whole(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let is_closed = text.ends_with(b"}") || text.ends_with(b"]");
    // The last byte is checked first, so that only a text that may be complete is read through.
    is_closed && json::skip_value(text, 0) == Some(text.len())
}

/// Returns a complete message without line ends, even in strings, in which hand-written JSON may have them.
pub(crate) fn message_on_one_line(text: Bytes) -> Bytes {
    // A fast path for nearly all messages, which are not copied.
    if memchr::memchr2(b'\n', b'\r', &text).is_none() {
        return text;
    }
    on_one_line(control_characters::escaped(&text).map_or(text, Bytes::from))
}

/// Returns JSON without line ends, which are only space between its parts, but would end the line of an event or of
/// stdio.
pub(crate) fn on_one_line(chunk: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &chunk).is_none() {
        return chunk;
    }
    let blank = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
    let line = chunk.iter().map(blank).collect();
    in_room_of(chunk, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_known_by_its_type_or_by_its_first_bytes() {
        let of = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(kind).unwrap());
            Content::of(&headers)
        };
        for kind in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json-rpc",
            "application/jsonrequest",
            "text/json",
            "application/vnd.mcp+json",
        ] {
            assert_eq!(of(kind), Content::Json, "{kind}");
        }
        for kind in ["text/event-stream", "TEXT/EVENT-STREAM", "text/event-stream;charset=UTF-8"] {
            assert_eq!(of(kind), Content::Events, "{kind}");
        }
        assert_eq!([of("text/html"), of("text/plain"), of("")], [Content::Other; 3]);
        let first = Content::by_first_bytes;
        assert_eq!([first(b" {"), first(b"\xEF\xBB\xBF[")], [Content::Json; 2]);
        assert_eq!([first(b"\n\ndata: {"), first(b": ok"), first(b"id: 1")], [Content::Events; 3]);
        assert_eq!([first(b""), first(b"Accepted"), first(b"<html>")], [Content::Other; 3]);
    }

    #[test]
    fn line_ends_become_spaces() {
        assert_eq!(on_one_line(Bytes::from_static(b"{\r\n\"a\":\r1}\n")), &b"{  \"a\": 1} "[..]);
        assert_eq!(on_one_line(Bytes::from_static(b"{}")), &b"{}"[..]);
        let text = Bytes::from_static(b"{\n\"a\":\"x\r\ny\"}\n");
        assert_eq!(message_on_one_line(text), &b"{ \"a\":\"x\\r\\ny\"} "[..]);
    }
}
