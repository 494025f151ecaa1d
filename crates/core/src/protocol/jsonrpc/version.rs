//! The member `jsonrpc`. Strict clients refuse a message without it.

use std::ops::Range;

use bytes::Bytes;

use super::{Kind, Message};
use crate::protocol::json;

/// The only value that JSON-RPC 2.0 allows.
pub(super) const VERSION: &[u8] = br#""2.0""#;

/// What the member `jsonrpc` of a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// The message has no `jsonrpc`.
    Missing,
    /// The value is `"2.0"`.
    Right,
    /// The value is not `"2.0"`.
    Wrong,
}

impl Version {
    pub(super) fn of(value: &[u8]) -> Self {
        if value == VERSION { Self::Right } else { Self::Wrong }
    }
}

impl Message {
    /// Whether `jsonrpc` is `"2.0"`.
    pub fn is_versioned(&self) -> bool {
        self.version == Version::Right
    }

    /// Returns a range of [`Message::raw`] and its replacement that give a message `"jsonrpc":"2.0"`. `None` if the
    /// message already has it, or is not a single request, notification or response.
    pub fn missing_version(&self) -> Option<(Range<usize>, Bytes)> {
        let is_single = matches!(self.kind, Kind::Request | Kind::Notification | Kind::Response);
        if !is_single || self.is_versioned() {
            return None;
        }
        let mut members = json::Members::new(&self.raw);
        if self.version == Version::Wrong
            && let Some(version) = members
                .by_ref()
                .filter(|one| json::key_is(&self.raw[one.key.clone()], "jsonrpc"))
                .last()
        {
            return Some((version.value, Bytes::from_static(VERSION)));
        }
        // A message has at least one member, so the comma is valid.
        let start = json::skip_space(&self.raw, 0) + 1;
        Some((start..start, Bytes::from_static(br#""jsonrpc":"2.0","#)))
    }

    /// Whether the message is an answer with neither a result nor an error.
    pub fn is_empty_answer(&self) -> bool {
        self.kind == Kind::Response && self.result.is_none() && self.error.is_none()
    }

    /// Converts an object with `error`, but without id or version, into the error response that the server means. Only
    /// for text in the response to a request, because on standard output such an object may be a line of a log.
    #[must_use]
    pub fn or_bare_error(mut self) -> Self {
        let error = self.error.clone().filter(|_| self.kind == Kind::Noise);
        let is_error = error.is_some_and(|error| self.raw[error] != *b"null");
        let end = self.object_range().map(|object| json::skip_space(&self.raw, object.end));
        if is_error && end == Some(self.raw.len()) {
            self.kind = Kind::Response;
        }
        self
    }

    /// Returns the range of the outermost object in [`Message::raw`].
    pub fn object_range(&self) -> Option<Range<usize>> {
        let start = json::skip_space(&self.raw, 0);
        json::skip_value(&self.raw, start).map(|end| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, kind: Kind, with_version: &str) {
        let message = Message::parse(Bytes::from(text.to_owned()));
        assert_eq!(message.kind(), kind, "{text}");
        let mut mended = text.to_owned();
        if let Some((place, new)) = message.missing_version() {
            mended.replace_range(place, std::str::from_utf8(&new).unwrap());
        }
        assert_eq!(mended, with_version);
        let again = Message::parse(mended.into());
        assert_eq!(again.missing_version(), None);
        assert_eq!((again.kind(), again.id()), (kind, message.id()));
    }

    #[test]
    fn a_message_gets_the_version_that_it_lacks() {
        use Kind::{Noise, Notification, Opaque, Request, Response};
        let right = r#"{"id":1,"jsonrpc":"2.0","result":{}}"#;
        check(right, Response, right);
        for other in [r#""1.0""#, "2.0", "2", "null", r#""2""#, r#"{"a":[1]}"#] {
            check(&right.replace(r#""2.0""#, other), Response, right);
        }
        check(r#" {"id":1,"result":{}}"#, Response, r#" {"jsonrpc":"2.0","id":1,"result":{}}"#);
        check(r#"{"method":"m"}"#, Notification, r#"{"jsonrpc":"2.0","method":"m"}"#);
        check(r#"{"id":"a","method":"m"}"#, Request, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
        check(r#"{"level":"info","id":1}"#, Noise, r#"{"level":"info","id":1}"#);
        check(r#"{"jsonrpc":"1.0"}"#, Opaque, r#"{"jsonrpc":"1.0"}"#);
    }

    #[test]
    fn an_error_alone_is_one_where_answers_come() {
        let kind = |text: &'static str| Message::parse(text.into()).or_bare_error().kind();
        assert_eq!(kind(r#"{"error":"Session not found"}"#), Kind::Response);
        assert_eq!(kind(r#"{"error":{"code":5},"status":404}"#), Kind::Response);
        for other in
            [r#"{"error":null}"#, r#"{"error":"cut off""#, r#"{"error":"a"} x"#, r#"{"a":1}"#]
        {
            assert_eq!(kind(other), Kind::Noise, "{other}");
        }
        let message = Message::parse(r#"{"error":"a"}"#.into()).or_bare_error();
        assert_eq!(message.missing_version().unwrap().0, 1..1);
    }

    #[test]
    fn an_id_alone_is_an_answer_without_result_and_error() {
        let is_empty = |text: &'static str| {
            let message = Message::parse(Bytes::from_static(text.as_bytes()));
            message.is_empty_answer()
        };
        assert!(is_empty(r#"{"jsonrpc":"2.0","id":1}"#));
        assert!(is_empty(r#"{"jsonrpc":"1.0","id":"a","content":[]}"#));
        for other in [
            r#"{"id":1}"#,
            r#"{"jsonrpc":"2.0","id":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
        ] {
            assert!(!is_empty(other), "{other}");
        }
    }
}
