//! Streams on which clients listen for changes (`subscriptions/listen`).

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::tasks::knows_tasks;
use super::{ModernFace, meta_value};
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::{json, mcp};
use crate::relay::legs::ClientHeaders;

/// Maximum number of listening streams at one server. A further stream gets an error.
const LISTENERS_MAX: usize = 1024;

/// Maximum number of resources about which one stream is notified. Further resources are left out of the
/// acknowledgement.
const LISTENED_RESOURCES_MAX: usize = 256;

/// The notifications of changes, each with its member of a subscription and its capability.
const CHANGES: [(&str, &str, &str); 3] = [
    (mcp::TOOLS_CHANGED, "toolsListChanged", "tools"),
    ("notifications/prompts/list_changed", "promptsListChanged", "prompts"),
    ("notifications/resources/list_changed", "resourcesListChanged", "resources"),
];

/// The notification that a resource has changed.
const UPDATED: &str = "notifications/resources/updated";

/// A listening stream.
pub(super) struct Listener {
    key: Key,
    /// The request's id as JSON.
    id: Value,
    methods: Vec<&'static str>,
    resources: Vec<String>,
    tasks: Vec<String>,
}

impl ModernFace {
    /// Handles a client's request to listen for changes of the server.
    pub(super) fn listen(&mut self, sent: &Message, headers: &ClientHeaders) {
        let (Some(key), Some(id)) = (sent.id_key(), sent.id()) else { return };
        let Ok(id) = serde_json::from_slice::<Value>(&id) else { return };
        if self.listeners.len() >= LISTENERS_MAX {
            return self.refuse(sent, "too many streams listen at this server");
        }
        let params = sent.params().unwrap_or_default();
        let wanted = json::member(&params, "notifications").unwrap_or_default();
        // Check the length before parsing, because a client may send a long member.
        if wanted.len() > mcp::META_MAX {
            return self.refuse(sent, "the notifications that are asked for are too many");
        }
        let wanted = serde_json::from_slice::<Value>(&wanted).unwrap_or_default();
        let tasks = wanted["taskIds"].as_array().filter(|tasks| !tasks.is_empty());
        let capabilities = meta_value(sent, mcp::META_CAPABILITIES).unwrap_or_default();
        if tasks.is_some() && self.policy.has_tasks() && !knows_tasks(&capabilities) {
            return self.refuse_without_tasks(sent);
        }
        let known = self.tasks.iter().map(|task| &task.details.id);
        let tasks: Vec<String> = known
            .filter(|id| tasks.is_some_and(|tasks| tasks.iter().any(|task| *task == id.as_str())))
            .cloned()
            .collect();
        let says = |capability: &str, what: &str| {
            let all = self.server_capabilities();
            all.is_some_and(|all| all[capability][what] == json!(true))
        };
        // Only notifications that the server supports are acknowledged.
        let kept = CHANGES.iter().filter(|(_, member, capability)| {
            wanted[member] == json!(true) && says(capability, "listChanged")
        });
        let kept: Vec<_> = kept.collect();
        let mut accepted = Map::new();
        accepted.extend(kept.iter().map(|(_, member, _)| ((*member).to_owned(), json!(true))));
        let methods = kept.iter().map(|(method, ..)| *method).collect();
        let resources = wanted["resourceSubscriptions"].as_array().into_iter().flatten();
        let resources = resources.filter_map(|uri| uri.as_str().map(str::to_owned));
        let is_offered = says("resources", "subscribe");
        let resources: Vec<String> =
            resources.filter(|_| is_offered).take(LISTENED_RESOURCES_MAX).collect();
        if !resources.is_empty() {
            accepted.insert("resourceSubscriptions".to_owned(), json!(resources));
        }
        if !tasks.is_empty() {
            accepted.insert("taskIds".to_owned(), json!(tasks));
        }
        self.tell(&json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {(mcp::META_SUBSCRIPTION): id.clone()}, "notifications": accepted},
        }));
        // All streams share one subscription at the server: only the first stream for a resource begins it, ...
        for uri in resources.iter().filter(|uri| !self.is_watched(uri)).cloned().collect::<Vec<_>>()
        {
            self.ask_server("resources/subscribe", &json!({"uri": uri}), headers);
        }
        self.listeners.push(Listener { key, id, methods, resources, tasks });
    }

    /// Whether a stream listens for changes of a resource.
    fn is_watched(&self, uri: &str) -> bool {
        self.listeners.iter().any(|listener| listener.resources.iter().any(|known| known == uri))
    }

    /// Handles the disconnect of a listening stream's client.
    pub(super) fn stop_listening(&mut self, key: &Key, headers: &ClientHeaders) {
        let Some(place) = self.listeners.iter().position(|listener| listener.key == *key) else {
            return;
        };
        let left = self.listeners.remove(place);
        // ... and only the last stream for the resource ends it.
        for uri in left.resources.iter().filter(|uri| !self.is_watched(uri)).collect::<Vec<_>>() {
            self.ask_server("resources/unsubscribe", &json!({"uri": uri}), headers);
        }
    }

    /// Returns the ids of the streams that are notified about a task.
    pub(super) fn listening_for(&self, task: &str) -> Vec<Value> {
        let hears = |listener: &&Listener| listener.tasks.iter().any(|known| known == task);
        self.listeners.iter().filter(hears).map(|listener| listener.id.clone()).collect()
    }

    /// Passes a change on to each stream that listens for it. Returns false if the notification is not about a change.
    pub(super) fn changed(&mut self, method: &str, message: &Message) -> bool {
        let params = message.params().and_then(|params| serde_json::from_slice(&params).ok());
        let mut params: Value = params.unwrap_or_else(|| json!({}));
        let is_update = method == UPDATED;
        // Other notifications belong to requests, and are handled elsewhere.
        if !is_update && CHANGES.iter().all(|(known, ..)| *known != method) {
            return false;
        }
        let uri = params["uri"].as_str().unwrap_or_default().to_owned();
        let hears = |listener: &&Listener| match is_update {
            true => listener.resources.contains(&uri),
            false => listener.methods.contains(&method),
        };
        let ids: Vec<Value> =
            self.listeners.iter().filter(hears).map(|listener| listener.id.clone()).collect();
        for id in ids {
            if !params["_meta"].is_object() {
                params["_meta"] = json!({});
            }
            params["_meta"][mcp::META_SUBSCRIPTION] = id;
            let told = json!({"jsonrpc": "2.0", "method": method, "params": params});
            self.tell_message(Message::parse(Bytes::from(told.to_string())));
        }
        true
    }
}
