//! Requests of clients on their way to an old server.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{FacePhase, FaceRequest, ModernFace, OPEN_MAX, REMOVED};
use crate::progress::Payload;
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::{json, mcp};

/// The member of `_meta` with the level of the log messages that a request wants.
const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The levels of log messages, the least urgent first.
pub(super) const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl ModernFace {
    /// Takes a request of a client.
    pub(super) fn request(&mut self, sent: &Message) {
        let method = sent.method().unwrap_or_default().into_owned();
        match &*method {
            mcp::DISCOVER => return self.discover(sent),
            mcp::LISTEN => return self.listen(sent),
            removed if REMOVED.contains(&removed) => return self.refuse_method(sent, &method),
            _ => {}
        }
        let Some(key) = sent.id_key() else { return };
        if self.open.len() >= OPEN_MAX {
            return self.refuse(sent, "too many requests are open on this server");
        }
        let params = sent.params().unwrap_or_default();
        if json::member(&params, "requestState").is_some() {
            return self.retry(sent, &params);
        }
        let meta = json::member(&params, "_meta").unwrap_or_default();
        let level = json::member(&meta, META_LOG_LEVEL);
        let level = level.and_then(|level| Some(json::decode_str(&level)?.into_owned()));
        self.ask_for_logs(level.as_deref());
        let token = json::member(&meta, "progressToken").and_then(|token| Key::read(&token));
        let open = FaceRequest { method, wants_logs: level, token, child_id: None };
        self.open.insert(key, open);
        self.to_server.push_back(without_modern_members(sent));
    }

    /// Answers `server/discover` from the child's answer to `initialize`.
    fn discover(&mut self, sent: &Message) {
        let FacePhase::Ready(started) = &self.phase else { return };
        let mut capabilities = started["capabilities"].clone();
        if let Some(resources) = capabilities.get_mut("resources").and_then(Value::as_object_mut) {
            resources.remove("subscribe");
        }
        if let Some(all) = capabilities.as_object_mut() {
            // Tasks of 2025-11-25 are no tasks of 2026-07-28.
            all.remove("tasks");
        }
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": capabilities,
            "ttlMs": 0, "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": started["serverInfo"]},
        });
        if let Some(words) = started.get("instructions") {
            result["instructions"] = words.clone();
        }
        self.answer_with(sent, result);
    }

    pub(super) fn answer_with(&mut self, sent: &Message, result: Value) {
        let Some(id) = sent.id() else { return };
        let text = [br#"{"jsonrpc":"2.0","id":"#, &id[..], br#","result":"#].concat();
        let text = [&text[..], result.to_string().as_bytes(), b"}"].concat();
        self.to_client.push_back(Message::parse(Bytes::from(text)));
    }

    /// The child logs for all its requests at once: it is asked for the most talkative level that any wants.
    fn ask_for_logs(&mut self, wanted: Option<&str>) {
        let FacePhase::Ready(started) = &self.phase else { return };
        let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
        let Some(new) = wanted.and_then(rank) else { return };
        let known = self.log_level.as_deref().and_then(rank);
        if started["capabilities"].get("logging").is_none() || known.is_some_and(|old| old <= new) {
            return;
        }
        self.log_level = wanted.map(str::to_owned);
        let id = format!("milepost-level-{new}");
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": mcp::SET_LEVEL, "params": {"level": wanted}}));
    }

    /// Takes a notification of a client: it may give a request up.
    pub(super) fn client_notification(&mut self, sent: &Message) {
        let params = sent.params().unwrap_or_default();
        let id = json::member(&params, "requestId").and_then(|id| Key::read(&id));
        let Some(id) = id.filter(|_| sent.method().as_deref() == Some(mcp::CANCELLED)) else {
            return self.to_server.push_back(sent.raw().clone());
        };
        self.waiting.retain(|waiting| waiting.id_key().as_ref() != Some(&id));
        self.listeners.retain(|listener| listener.key != id);
        let Some(open) = self.open.remove(&id) else { return };
        self.cancel(&open.child_id.unwrap_or(id));
    }

    /// Cancels a request at the child.
    pub(super) fn cancel(&mut self, id: &Key) {
        let head = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#;
        let tail = br#","reason":"the client has given the request up"}}"#;
        self.to_server.push_back(Bytes::from([&head[..], &id.to_json(), tail].concat()));
    }
}

/// A request without the members of `_meta` that only 2026-07-28 has.
fn without_modern_members(sent: &Message) -> Bytes {
    let Some(params) = sent.params() else { return sent.raw().clone() };
    let Some(meta) = json::member(&params, "_meta") else { return sent.raw().clone() };
    let kept = json::Members::new(&meta).filter(|member| {
        let key = meta.slice(member.key.clone());
        let name = json::decode_str(&key);
        !name.is_some_and(|name| name.starts_with(mcp::META_PREFIX))
    });
    let kept: Vec<&[u8]> = kept.map(|member| &meta[member.key.start..member.value.end]).collect();
    let text = [b"{", &kept.join(&b","[..])[..], b"}"].concat();
    replaced(sent.raw(), &meta, Bytes::from(text))
}

/// A text with another text in the place of a part.
pub(super) fn replaced(raw: &Bytes, part: &Bytes, new: Bytes) -> Bytes {
    let start = (part.as_ptr() as usize).checked_sub(raw.as_ptr() as usize);
    let range = start.map(|start| start..start + part.len()).filter(|range| range.end <= raw.len());
    range.map_or_else(|| raw.clone(), |range| Payload::splice(raw, range, new).to_bytes())
}
