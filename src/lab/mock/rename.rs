//! Replaces the recorded id and token with those of the client's request.

use std::ops::Range;

use bytes::Bytes;

use crate::protocol::json;
use crate::protocol::json::Members;
use crate::protocol::jsonrpc::{Key, Kind, Message};

/// Maximum number of nested levels in which a recorded id or token is searched for.
const DEPTH_MAX: usize = 8;

/// Names of members of parameters that have a progress token.
const TOKENS: [&str; 4] = ["progressToken", "token", "progress_token", "progressId"];

/// Names of members of parameters that have the id of a request.
const REQUESTS: [&str; 3] = ["requestId", "request_id", "id"];

/// A recorded id or token, and its replacement.
#[derive(Debug, Clone)]
pub(super) struct RenamedKey {
    /// The recorded id or token.
    pub(super) from: Key,
    /// The JSON text of the client's id or token.
    pub(super) to: Bytes,
}

/// The id and the token of one request.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestNames {
    /// The id.
    pub(super) id: Option<RenamedKey>,
    /// The progress token, if the recorded request and the client's request have one.
    pub(super) token: Option<RenamedKey>,
}

impl RequestNames {
    /// Returns a recorded message with the client's id and token. All other bytes stay.
    pub(super) fn rename(&self, text: &Bytes) -> Bytes {
        let message = Message::parse(text.clone());
        match message.kind() {
            Kind::Response => match (message.id_range(), &self.id) {
                (Some(at), Some(id)) if message.id_key().as_ref() == Some(&id.from) => {
                    let (before, behind) = (text.slice(..at.start), text.slice(at.end..));
                    Bytes::from([&before[..], &id.to, &behind].concat())
                }
                _ => text.clone(),
            },
            Kind::Notification | Kind::Request | Kind::Opaque => {
                let Some(params) = message.params() else { return text.clone() };
                let start = params.as_ptr() as usize - text.as_ptr() as usize;
                let mut out = text.slice(..start).to_vec();
                self.value(&params, 0..params.len(), 0, &mut out);
                out.extend_from_slice(&text.slice(start + params.len()..));
                out.into()
            }
            Kind::Batch | Kind::Noise => text.clone(),
        }
    }

    fn value(&self, text: &Bytes, at: Range<usize>, depth: usize, out: &mut Vec<u8>) {
        let value = text.slice(at);
        let mut written = 0;
        match value.first() {
            Some(b'{') if depth < DEPTH_MAX => {
                for member in Members::new(&value) {
                    out.extend_from_slice(&value[written..member.value.start]);
                    written = member.value.end;
                    let name = json::decode_str(&value[member.key.clone()]).unwrap_or_default();
                    match self.named(&name, &value.slice(member.value.clone())) {
                        Some(to) => out.extend_from_slice(to),
                        None => self.value(&value, member.value, depth + 1, out),
                    }
                }
            }
            Some(b'[') if depth < DEPTH_MAX => {
                for element in json::elements(&value).map(|(all, _)| all).unwrap_or_default() {
                    out.extend_from_slice(&value[written..element.start]);
                    written = element.end;
                    self.value(&value, element, depth + 1, out);
                }
            }
            _ => {}
        }
        out.extend_from_slice(&value[written..]);
    }

    /// Returns the replacement of a member's value, if the value is the recorded id or token.
    fn named(&self, name: &str, value: &Bytes) -> Option<&Bytes> {
        let order = if TOKENS.contains(&name) {
            [&self.token, &self.id]
        } else if REQUESTS.contains(&name) {
            [&self.id, &self.token]
        } else {
            return None;
        };
        let key = Key::read(value)?;
        order.into_iter().flatten().find(|renamed| renamed.from == key).map(|renamed| &renamed.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(from: &'static str, to: &'static str) -> Option<RenamedKey> {
        let from = Key::read(&Bytes::from_static(from.as_bytes())).unwrap();
        Some(RenamedKey { from, to: Bytes::from_static(to.as_bytes()) })
    }

    #[track_caller]
    fn check(message: &'static str, expected: &str) {
        let names = RequestNames { id: key("1", "\"a\""), token: key("\"t\"", "7") };
        assert_eq!(names.rename(&Bytes::from_static(message.as_bytes())), expected);
    }

    #[test]
    fn ids_and_tokens_are_exchanged_and_nothing_else() {
        check(
            r#"{"jsonrpc":"2.0", "id":1,"result":{"id":1}}"#,
            r#"{"jsonrpc":"2.0", "id":"a","result":{"id":1}}"#,
        );
        check(r#"{"id":2,"result":{}}"#, r#"{"id":2,"result":{}}"#);
        check(
            r#"{"method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#,
            r#"{"method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#,
        );
        check(
            r#"{"method":"tools/progress","params":{"a":[{"requestId":1}],"n":1,"token":1} }"#,
            r#"{"method":"tools/progress","params":{"a":[{"requestId":"a"}],"n":1,"token":"a"} }"#,
        );
        check("READY 1 t", "READY 1 t");
    }
}
