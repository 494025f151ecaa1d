//! Separates what no client can read on one line: several messages, a message and text after it, or a message after a
//! byte order mark.

use bytes::Bytes;

use super::{Framing, Kind, Message};
use crate::protocol::json;
use crate::protocol::unicode::BOM;

/// Limit of the messages on one line that are separated. A line with more messages is forwarded unchanged.
const ON_ONE_LINE_MAX: usize = 1000;

impl Message {
    /// Returns the messages of a line that begins with a complete message and continues after it, and the text after
    /// the last message, which may be empty. Blanks and commas may separate the messages.
    pub fn on_one_line(&self) -> Option<(Vec<Self>, Bytes)> {
        if self.kind != Kind::Opaque {
            return None;
        }
        let raw = self.raw();
        let mut messages = Vec::new();
        let mut at = json::skip_space(raw, 0);
        while raw.get(at) == Some(&b'{')
            && let Some(end) = json::skip_value(raw, at)
        {
            let message = Self::parse(raw.slice(at..end)).framed(Framing::Apart(None));
            let is_message =
                matches!(message.kind, Kind::Request | Kind::Notification | Kind::Response);
            if !is_message {
                break;
            }
            if messages.len() == ON_ONE_LINE_MAX {
                return None;
            }
            messages.push(message);
            at = json::skip_space(raw, end);
            if raw.get(at) == Some(&b',') {
                at = json::skip_space(raw, at + 1);
            }
        }
        (!messages.is_empty()).then(|| (messages, raw.slice(at..)))
    }

    /// Returns the message after a byte order mark, which is not part of JSON.
    pub fn behind_mark(&self) -> Option<Self> {
        let is_marked = self.kind == Kind::Noise && self.raw().starts_with(BOM);
        let message = is_marked.then(|| Self::parse(self.raw().slice(BOM.len()..)))?;
        (message.kind != Kind::Noise).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&[&str], &str)>) {
        let found = Message::parse(Bytes::from(line.to_owned())).on_one_line();
        let found = found.map(|(messages, rest)| {
            let texts: Vec<Bytes> = messages.iter().map(|one| one.raw().clone()).collect();
            (texts, rest)
        });
        let expected = expected.map(|(messages, rest)| {
            let texts: Vec<Bytes> =
                messages.iter().map(|one| Bytes::from((*one).to_owned())).collect();
            (texts, Bytes::from(rest.to_owned()))
        });
        assert_eq!(found, expected, "{line}");
    }

    const ONE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"a":"}{"}}"#;
    const TWO: &str = r#"{"jsonrpc":"2.0","method":"m"}"#;

    #[test]
    fn messages_on_one_line_are_found() {
        check(&format!("{ONE}\n"), None);
        for between in ["", " ", "\t\r", ",", " , "] {
            check(&format!("{ONE}{between}{TWO}\r\n"), Some((&[ONE, TWO], "")));
        }
        check(&format!("{ONE} done\n"), Some((&[ONE], "done\n")));
        check(&format!("{ONE}{{\"id\":2,\"resu\n"), Some((&[ONE], "{\"id\":2,\"resu\n")));
        let log = format!("{{\"level\":1}}{TWO}");
        check(&format!("{ONE}{log}"), Some((&[ONE], &log)));
        check(&format!("text {ONE}{TWO}"), None);
        check(&TWO.repeat(ON_ONE_LINE_MAX + 1), None);
        check(&format!("[{ONE},{TWO}]"), None);
    }
}
