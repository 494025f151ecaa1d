//! Finds the messages in a line or an event, even if plain clients cannot read them.

use bytes::Bytes;

use super::rules::Rule;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::{control_characters, unicode};

/// The messages that a lenient reader finds in one line or event.
pub(super) struct Legible {
    /// The messages, each in a form that every client can read.
    pub(super) messages: Vec<Message>,
    /// The reasons why plain clients cannot read the original text, some with the kind of the fault.
    pub(super) faults: Vec<(Rule, Option<&'static str>)>,
}

impl Legible {
    /// Reads a line or an event. Text that contains no message is returned unchanged.
    pub(super) fn of(message: &Message) -> Self {
        let mut faults = Vec::new();
        let marked = message.behind_mark();
        let has_mark = marked.is_some();
        let mut message = marked.unwrap_or_else(|| message.clone());
        if message.kind() == Kind::Noise {
            return Self { messages: vec![message], faults };
        }
        if has_mark {
            faults.push((Rule::Unicode, Some("byte order mark")));
        }
        if let Some(mended) = unicode::readable(message.raw()) {
            let kind = if !unicode::is_utf8(message.raw()) {
                "not UTF-8"
            } else if control_characters::escaped(message.raw()).is_some() {
                "control character"
            } else {
                "half of a surrogate pair"
            };
            faults.push((Rule::Unicode, Some(kind)));
            message = Message::parse(Bytes::from(mended));
        }
        let messages = match message.on_one_line() {
            Some((messages, _)) => {
                faults.push((Rule::SplitLine, None));
                messages
            }
            None => vec![message],
        };
        Self { messages, faults }
    }

    /// Whether a lenient reader finds a message.
    pub(super) fn is_message(message: &Message) -> bool {
        message.kind() != Kind::Noise || message.behind_mark().is_some()
    }
}
