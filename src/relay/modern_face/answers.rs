//! Answers and notifications of an old server on their way to a client.

use bytes::Bytes;
use serde_json::{Value, json};

use super::requests::{LEVELS, replaced};
use super::{FaceRequest, ModernFace};
use crate::progress::Payload;
use crate::protocol::jsonrpc::{INVALID_PARAMS, Key, Message};
use crate::protocol::{json, mcp};

/// The code of earlier revisions for a resource that does not exist.
const NO_RESOURCE: i32 = -32002;

/// The ids of Milepost's own requests for log messages.
const OWN_LEVEL: &[u8] = b"milepost-level-";

/// Methods whose results say how long they may be kept: no old server says so.
const CACHED: [&str; 5] = [
    mcp::TOOLS_LIST,
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

impl ModernFace {
    /// An answer as its client gets it; `None` for an answer to a request of Milepost's own.
    pub(super) fn answer(&mut self, message: Message) -> Option<Message> {
        let key = message.id_key()?;
        if matches!(&key, Key::Text(text) if text.starts_with(OWN_LEVEL)) {
            return None;
        }
        let continues = |(_, open): &(&Key, &FaceRequest)| open.child_id.as_ref() == Some(&key);
        let id = self.open.iter().find(continues).map(|(id, _)| id.clone());
        let id = id.unwrap_or_else(|| key.clone());
        let Some(open) = self.open.remove(&id) else {
            // The client has given it up, or has been asked something meanwhile.
            let is_held = self.questions.values().any(|question| question.child_id == key);
            self.questions.retain(|_, question| question.child_id != key);
            return (!is_held).then_some(message);
        };
        let message = if id == key { message } else { with_id(&message, &id) };
        Some(modern_answer(&message, &open.method))
    }

    /// A notification as a client gets it; `None` if no client does.
    pub(super) fn server_notification(&mut self, message: Message) -> Option<Message> {
        let method = message.method()?.into_owned();
        match &*method {
            mcp::PROGRESS => Some(self.progress(message)),
            mcp::LOG => self.wants_log(&message).then_some(message),
            _ => match self.changed_list(&method) {
                true => None,
                false => Some(message),
            },
        }
    }

    /// Progress of a request that continues an earlier one has the token of the later one.
    fn progress(&self, message: Message) -> Message {
        let renamed = || {
            let token = json::member(&message.params()?, "progressToken")?;
            let key = Key::read(&token)?;
            let child = self.renamed_tokens.get(&key)?;
            Some(replaced(message.raw(), &token, child.to_json()))
        };
        renamed().map_or_else(|| message.clone(), Message::parse)
    }

    /// Whether an open request wants a log message of this level.
    fn wants_log(&self, message: &Message) -> bool {
        let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
        let level = message.params().and_then(|params| json::member(&params, "level"));
        let level = level.as_ref().and_then(|level| json::decode_str(level));
        let level = level.as_deref().and_then(rank);
        let wanted = self.open.values().filter_map(|open| rank(open.wants_logs.as_deref()?)).min();
        wanted.is_some_and(|wanted| level.is_none_or(|level| level >= wanted))
    }
}

/// An answer under another id.
fn with_id(message: &Message, id: &Key) -> Message {
    let Some(range) = message.id_range() else { return message.clone() };
    Message::parse(Payload::splice(message.raw(), range, id.to_json()).to_bytes())
}

/// An answer with the members that 2026-07-28 requires, and its codes.
fn modern_answer(message: &Message, method: &str) -> Message {
    if let Some(error) = message.error() {
        let code =
            json::member(&error, "code").filter(|_| message.error_code() == Some(NO_RESOURCE));
        let code = code
            .map(|code| replaced(message.raw(), &code, Bytes::from(INVALID_PARAMS.to_string())));
        return code.map_or_else(|| message.clone(), Message::parse);
    }
    let Some(result) = message.result().filter(|result| result.starts_with(b"{")) else {
        return message.clone();
    };
    let mut added: Vec<(&str, Value)> = vec![("resultType", json!("complete"))];
    if CACHED.contains(&method) {
        added.extend([("ttlMs", json!(0)), ("cacheScope", json!("private"))]);
    }
    added.retain(|(name, _)| json::member(&result, name).is_none());
    let members: Vec<String> =
        added.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    let is_empty = json::Members::new(&result).next().is_none();
    let comma = if is_empty || members.is_empty() { "" } else { "," };
    let text = [&b"{"[..], members.join(",").as_bytes(), comma.as_bytes(), &result[1..]].concat();
    Message::parse(replaced(message.raw(), &result, Bytes::from(text)))
}
