//! Streams of clients that listen for changes of lists (`subscriptions/listen`).

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Listener, ModernFace};
use crate::protocol::jsonrpc::Message;
use crate::protocol::{json, mcp};

/// Streams that listen at one server, at one time. A further one gets an error.
const LISTENERS_MAX: usize = 1024;

/// The notifications of changes, each with the member of a subscription and the capability.
const CHANGES: [(&str, &str, &str); 3] = [
    (mcp::TOOLS_CHANGED, "toolsListChanged", "tools"),
    ("notifications/prompts/list_changed", "promptsListChanged", "prompts"),
    ("notifications/resources/list_changed", "resourcesListChanged", "resources"),
];

impl ModernFace {
    /// A client listens for what the server says of itself.
    pub(super) fn listen(&mut self, sent: &Message) {
        let (Some(key), Some(id)) = (sent.id_key(), sent.id()) else { return };
        let Ok(id) = serde_json::from_slice::<Value>(&id) else { return };
        if self.listeners.len() >= LISTENERS_MAX {
            return self.refuse(sent, "too many streams listen at this server");
        }
        let params = sent.params().unwrap_or_default();
        let wanted = json::member(&params, "notifications").unwrap_or_default();
        let says = |capability: &str| match &self.phase {
            super::FacePhase::Ready(started) => {
                started["capabilities"][capability]["listChanged"] == json!(true)
            }
            _ => false,
        };
        let kept = CHANGES.iter().filter(|(_, member, capability)| {
            json::member(&wanted, member).is_some_and(|on| on == "true") && says(capability)
        });
        let kept: Vec<_> = kept.collect();
        let accepted: serde_json::Map<String, Value> =
            kept.iter().map(|(_, member, _)| ((*member).to_owned(), json!(true))).collect();
        let methods = kept.iter().map(|(method, ..)| *method).collect();
        self.tell(&json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {(mcp::META_SUBSCRIPTION): id.clone()}, "notifications": accepted},
        }));
        self.listeners.push(Listener { key, id, methods });
    }

    /// Tells each stream that listens of a change; false if the notification is about no change of a list.
    pub(super) fn changed_list(&mut self, method: &str) -> bool {
        if CHANGES.iter().all(|(known, ..)| *known != method) {
            return false;
        }
        let hears = |listener: &&Listener| listener.methods.contains(&method);
        let told = self.listeners.iter().filter(hears).map(|listener| {
            let meta = json!({(mcp::META_SUBSCRIPTION): listener.id.clone()});
            json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta}})
        });
        for text in told.collect::<Vec<_>>() {
            self.to_client.push_back(Message::parse(Bytes::from(text.to_string())));
        }
        true
    }
}
