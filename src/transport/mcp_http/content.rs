//! Kinds of response bodies, and JSON rewritten to one line.

use bytes::Bytes;
use http::{HeaderMap, header};

/// The kind of a body, as far as it can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Events,
    Json,
    Other,
}

impl Content {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let packed = headers
            .get(header::CONTENT_ENCODING)
            .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        if packed { Self::Other } else { Self::unpacked(headers) }
    }

    /// The kind of the body after decompression.
    pub(crate) fn unpacked(headers: &HeaderMap) -> Self {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match kind {
            kind if kind.eq_ignore_ascii_case("text/event-stream") => Self::Events,
            kind if kind.eq_ignore_ascii_case("application/json") => Self::Json,
            _ => Self::Other,
        }
    }
}

/// JSON without line ends: they are space between its parts, and would end an event's line or a line of
/// stdio.
pub(crate) fn on_one_line(chunk: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &chunk).is_none() {
        return chunk;
    }
    chunk.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_become_spaces() {
        assert_eq!(on_one_line(Bytes::from_static(b"{\r\n\"a\":\r1}\n")), &b"{  \"a\": 1} "[..]);
        assert_eq!(on_one_line(Bytes::from_static(b"{}")), &b"{}"[..]);
    }
}
