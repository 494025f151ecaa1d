//! Servers that no longer know a session, and report that with another status than 404.

use http::StatusCode;

/// Texts of servers about a session that they do not know, in lower case and with "session" for each name of its id.
const LOST: [&str; 10] = [
    "no valid session",
    "invalid session",
    "invalid or missing session",
    "unknown session",
    "session not found",
    "session expired",
    "session has expired",
    "session does not exist",
    "session was not found",
    "unknown or expired session",
];

/// Names for the id of a session, longest first.
const NAMES: [&str; 5] =
    ["mcp-session-id header", "mcp-session-id", "mcp session id", "session id", "mcp session"];

/// Limit of the bytes of an error that are searched. Such errors are short.
const SEARCHED_MAX: usize = 4 << 10;

/// Whether the body of an error says that the server does not know the session.
///
/// MCP 2025-03-26 asks for status 404. The session lookup in the examples of the TypeScript SDK and in mcp-go, which
/// many servers copy, answers 400 with text such as "No valid session ID provided"; other servers answer 410 or 503.
pub(crate) fn is_told(status: StatusCode, body: &[u8]) -> bool {
    may_tell(status) && is_meant(body)
}

/// Whether an error with this status may report a lost session in its text.
pub(crate) fn may_tell(status: StatusCode) -> bool {
    [StatusCode::BAD_REQUEST, StatusCode::GONE, StatusCode::SERVICE_UNAVAILABLE].contains(&status)
}

/// Whether an error is about a session that the server does not know.
pub(crate) fn is_meant(error: &[u8]) -> bool {
    let searched = error.get(..SEARCHED_MAX).unwrap_or(error);
    let mut text = String::from_utf8_lossy(searched).to_ascii_lowercase();
    for name in NAMES {
        text = text.replace(name, "session");
    }
    LOST.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_session_is_known_by_its_words() {
        for words in [
            "Bad Request: No valid session ID or not an initialize request",
            "Bad Request: Unknown Mcp-Session-Id header",
            r#"{"error":"Session not found"}"#,
            "Invalid or missing MCP session ID for SSE.",
            "Session ID not found",
            "session expired",
        ] {
            assert!(is_told(StatusCode::BAD_REQUEST, words.as_bytes()), "{words}");
        }
        for words in ["Bad Request: no method", "too many sessions", "the session is busy", ""] {
            assert!(!is_told(StatusCode::BAD_REQUEST, words.as_bytes()), "{words}");
        }
        assert!(is_told(StatusCode::SERVICE_UNAVAILABLE, b"Session not found. Please reconnect."));
        assert!(!is_told(StatusCode::FORBIDDEN, b"invalid session"));
    }
}
