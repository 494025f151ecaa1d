//! The beginning of the session with an old server, at the first request of a client; and `server/discover`.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::tasks::TASKS;
use super::{FacePhase, ModernFace, OWN_ID, meta_value, result_answer};
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};
use crate::relay::legs::ClientHeaders;

/// Maximum number of requests that wait until the server has answered `initialize`. A further request gets an error.
const WAITING_MAX: usize = 256;

/// Deadline for the server to answer `initialize`.
const GREETING_MAX: Duration = Duration::from_secs(60);

/// The newest revision that old servers know.
const NEWEST: &str = "2025-11-25";

/// Returns the id of Milepost's own `initialize`.
fn greeting_id() -> String {
    format!("{OWN_ID}initialize")
}

impl ModernFace {
    /// Sends `initialize` to the server, with the capabilities of the client's first request.
    pub(super) fn greet(&mut self, first: &Message, headers: &ClientHeaders, now: Instant) {
        let own = || json!({"name": "milepost", "version": env!("CARGO_PKG_VERSION")});
        // All clients share one session with the server, so its capabilities are those of the first request.
        let stated = meta_value(first, mcp::META_CAPABILITIES).filter(Value::is_object);
        let capabilities = stated.unwrap_or_else(|| json!({}));
        let text = json!({
            "jsonrpc": "2.0", "id": greeting_id(), "method": mcp::INITIALIZE,
            "params": {
                "protocolVersion": NEWEST,
                "capabilities": capabilities,
                "clientInfo": meta_value(first, mcp::META_CLIENT).unwrap_or_else(own),
            },
        });
        self.send(Bytes::from(text.to_string()), headers);
        self.phase = FacePhase::Greeting;
        self.waits_until = Some(now + GREETING_MAX);
    }

    pub(super) fn wait(&mut self, sent: Message, headers: &ClientHeaders) {
        if self.waiting.len() >= WAITING_MAX {
            return self.refuse(&sent, "too many requests wait for the server to start");
        }
        self.waiting.push_back((sent, headers.clone()));
    }

    /// Refuses the waiting requests, because the server has not answered `initialize` in time.
    pub(super) fn give_up_waiting(&mut self) {
        self.waits_until = None;
        let why =
            format!("the server has not answered initialize for {} s", GREETING_MAX.as_secs());
        for (sent, _) in std::mem::take(&mut self.waiting) {
            self.refuse(&sent, &why);
        }
    }

    /// Whether the message answers Milepost's own `initialize`.
    pub(super) fn is_greeting(key: &Key) -> bool {
        *key == Key::Text(Bytes::from(greeting_id()))
    }

    /// Handles the server's answer to `initialize`.
    pub(super) fn greeted(&mut self, answer: &Message, now: Instant) {
        let result = answer.result().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        self.waits_until = None;
        let waiting = std::mem::take(&mut self.waiting);
        let Some(result) = result else {
            let said = answer.error().and_then(|error| json::member(&error, "message"));
            let said = said.as_ref().and_then(|said| json::decode_str(said));
            let said = said.unwrap_or_default();
            let why = format!("the server has refused to begin a session: {said}");
            // The next request tries again, because a server over HTTP may only have refused a token.
            self.phase = FacePhase::Fresh;
            return waiting.iter().for_each(|(sent, _)| self.refuse(sent, &why));
        };
        self.phase = FacePhase::Ready(result);
        // MCP 2025-11-25, Lifecycle: requests follow only after this notification.
        let ready = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, mcp::INITIALIZED);
        let headers = waiting.front().and_then(|(_, headers)| headers.clone());
        self.send(Bytes::from(ready), &headers);
        for (sent, headers) in waiting {
            self.request(&sent, &headers, now);
        }
    }

    /// Answers `server/discover` from the server's answer to `initialize`.
    pub(super) fn discover(&mut self, sent: &Message) {
        let FacePhase::Ready(started) = &self.phase else { return };
        let mut capabilities = started["capabilities"].clone();
        if let Some(all) = capabilities.as_object_mut() {
            // The tasks of 2025-11-25 have another protocol than those of 2026-07-28.
            all.remove("tasks");
            if self.policy.has_tasks() {
                let extensions = all.entry("extensions").or_insert_with(|| json!({}));
                extensions[TASKS] = json!({});
            }
        }
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": [Revision::V2026_07_28.date()],
            "capabilities": if capabilities.is_object() { capabilities } else { json!({}) },
            "ttlMs": 0, "cacheScope": "private",
            "_meta": {(mcp::META_SERVER): started["serverInfo"]},
        });
        if let Some(words) = started.get("instructions") {
            result["instructions"] = words.clone();
        }
        self.answer_with(sent, &result);
    }

    pub(super) fn answer_with(&mut self, sent: &Message, result: &Value) {
        let Some(id) = sent.id() else { return };
        let text = result_answer(&id, result.to_string().as_bytes());
        self.tell_message(Message::parse(text));
    }
}
