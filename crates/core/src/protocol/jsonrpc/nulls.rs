//! Null members of an envelope. Serialisers that write every member of a class put `"method":null` and `"error":null`
//! into answers, so a null member must not decide on the kind of a message.

use std::ops::Range;

use super::{Kind, Message};
use crate::protocol::json;

impl Message {
    /// Ignores null members: a null `method`, and a null `result` or `error` if there is also the other one or a
    /// `method`. An answer may have a null `result`.
    pub(super) fn ignore_nulls(&mut self) {
        let is_null = |place: &Option<Range<usize>>| {
            place.clone().is_some_and(|value| self.raw[value] == *b"null")
        };
        let [method, params, result, error, id] =
            [&self.method, &self.params, &self.result, &self.error, &self.id].map(is_null);
        if !(method || params || result || error || id) {
            return;
        }
        if method {
            self.method = None;
        }
        let is_named = self.method.is_some();
        if error && (is_named || self.result.is_some()) {
            self.error = None;
        }
        if result && (is_named || self.error.is_some()) {
            self.result = None;
        }
        // `null` is the usual id of an error that answers no request. Null `params` are kept, because `ask` may replace
        // them.
        let ignored = (method, error && self.error.is_none(), result && self.result.is_none());
        self.has_nulls =
            params || (id && is_named) || matches!(ignored, (true, ..) | (_, true, _) | (.., true));
    }

    /// Whether a member of the envelope is null that a message of this kind does not have.
    pub fn has_nulls(&self) -> bool {
        self.has_nulls && matches!(self.kind, Kind::Request | Kind::Notification | Kind::Response)
    }

    /// Returns the ranges of [`Message::raw`] to remove, so that the members reported by [`Message::has_nulls`] are
    /// gone. Empty if a key is repeated, because JSON readers may differ in which member they use.
    pub fn null_members(&self) -> Vec<Range<usize>> {
        let raw = self.raw();
        let members: Vec<json::Member> = json::Members::new(raw).collect();
        let names = ["id", "method", "params", "result", "error"];
        let count =
            |name| members.iter().filter(|one| json::key_is(&raw[one.key.clone()], name)).count();
        if names.iter().any(|name| count(name) > 1) {
            return Vec::new();
        }
        let is_left_out = |member: &json::Member| {
            let key = &raw[member.key.clone()];
            let is_named = |name| json::key_is(key, name);
            raw[member.value.clone()] == *b"null"
                && (is_named("method")
                    || is_named("params")
                    || (is_named("result") && self.result.is_none())
                    || (is_named("error") && self.error.is_none())
                    || (is_named("id") && self.kind == Kind::Notification))
        };
        let mut places = Vec::new();
        let mut kept_before = false;
        for (place, member) in members.iter().enumerate() {
            if !is_left_out(member) {
                kept_before = true;
            } else if let Some(before) = members[..place].last().filter(|_| kept_before) {
                places.push(before.value.end..member.value.end);
            } else {
                let next = members.get(place + 1).map(|next| next.key.start);
                places.push(member.key.start..next.unwrap_or(member.value.end));
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[track_caller]
    fn check(text: &'static str, kind: Kind, without: &str) {
        let message = Message::parse(Bytes::from_static(text.as_bytes()));
        assert_eq!(message.kind(), kind, "{text}");
        let mut left = text.to_owned();
        for place in message.null_members().into_iter().rev() {
            left.replace_range(place, "");
        }
        assert_eq!(left, without);
        assert_eq!(message.has_nulls(), left != text, "{text}");
        let again = Message::parse(left.into());
        assert_eq!((again.kind(), again.has_nulls()), (kind, false));
        assert_eq!([again.result(), again.error()], [message.result(), message.error()]);
    }

    #[test]
    fn null_members_do_not_decide_the_kind_and_can_be_cut_out() {
        use Kind::{Notification, Request, Response};
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":null,"params":null,"result":{},"error":null}"#,
            Response,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        );
        check(
            r#"{ "method": null, "error" : null , "result":{"error":null}, "id":1, "jsonrpc":"2.0", "params": null }"#,
            Response,
            r#"{ "result":{"error":null}, "id":1, "jsonrpc":"2.0" }"#,
        );
        check(r#"{"id":1,"result":null}"#, Response, r#"{"id":1,"result":null}"#);
        check(r#"{"id":1,"result":null,"error":null}"#, Response, r#"{"id":1,"result":null}"#);
        check(r#"{"id":1,"error":null}"#, Response, r#"{"id":1,"error":null}"#);
        check(
            r#"{"jsonrpc":"2.0","result":null,"id":null,"error":{"code":1,"message":"m"}}"#,
            Response,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":null,"result":null,"error":null}"#,
            Request,
            r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#,
        );
        check(
            r#"{"id":null,"jsonrpc":"2.0","method":"notifications/message","params":{"data":null}}"#,
            Notification,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":null}}"#,
        );
        check(r#"{"id":1,"method":null,"result":0}"#, Response, r#"{"id":1,"result":0}"#);
    }

    #[test]
    fn a_repeated_key_is_left_alone() {
        let text = r#"{"id":1,"result":{},"error":{"code":1},"error":null}"#;
        assert!(Message::parse(text.into()).null_members().is_empty());
    }

    #[test]
    fn large_answers_with_null_members_are_recognised_by_their_ends() {
        let long = "x".repeat(9000);
        let text = format!(r#"{{"method":null,"id":1,"result":{{"a":"{long}"}},"error":null}}"#);
        let message = Message::parse(text.into());
        assert!(message.kind() == Kind::Response && message.has_nulls());
        assert_eq!(message.null_members().len(), 2);
    }
}
