//! The calls of an act, as the client saw them.

use serde_json::Value;

use super::acts::ActRecord;
use crate::lab::doctor::traffic::{TrafficEntry, TrafficEvent, TrafficStream};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp::{PROGRESS, TOOLS_CALL};

/// A message with its place in the conversation.
#[derive(Debug, Clone)]
pub(super) struct PlacedMessage {
    /// The index among all events.
    pub(super) place: usize,
    /// The time since the conversation began, in milliseconds.
    pub(super) at: u128,
    pub(super) stream: TrafficStream,
    pub(super) body: Value,
}

/// One call.
#[derive(Debug, Clone)]
pub(super) struct ProxiedCall {
    pub(super) key: String,
    pub(super) token: Option<Value>,
    pub(super) sent: usize,
    id: Value,
    pub(super) answers: Vec<PlacedMessage>,
    /// The parameters of progress with the call's token, whatever the token's JSON type.
    pub(super) progress: Vec<PlacedMessage>,
}

impl ProxiedCall {
    /// Returns the values of the progress that arrived.
    pub(super) fn values(&self) -> Vec<Option<f64>> {
        self.progress.iter().map(|one| one.body["progress"].as_f64()).collect()
    }
}

/// The calls, and the progress that belongs to no call.
#[derive(Debug, Default)]
pub(super) struct ProxiedCalls {
    pub(super) calls: Vec<ProxiedCall>,
    pub(super) strays: Vec<PlacedMessage>,
}

/// Returns the text of a token, whatever its JSON type.
fn spelled(token: &Value) -> String {
    token.as_str().map_or_else(|| token.to_string(), str::to_owned)
}

impl ProxiedCalls {
    pub(super) fn of(record: &ActRecord) -> Self {
        let mut found = Self::default();
        for (place, entry) in record.entries.iter().enumerate() {
            match &entry.what {
                TrafficEvent::Sent(message) => found.sent(place, message),
                TrafficEvent::Received { message, stream, .. } => {
                    for element in message.elements() {
                        found.received(place, entry, *stream, &element);
                    }
                }
                _ => {}
            }
        }
        found
    }

    fn sent(&mut self, place: usize, message: &Message) {
        let body: Value = serde_json::from_slice(message.raw()).unwrap_or_default();
        if body["method"] != TOOLS_CALL {
            return;
        }
        let params = &body["params"];
        self.calls.push(ProxiedCall {
            key: params["arguments"]["key"].as_str().unwrap_or_default().to_owned(),
            token: params["_meta"].get("progressToken").cloned(),
            sent: place,
            id: body["id"].clone(),
            answers: Vec::new(),
            progress: Vec::new(),
        });
    }

    fn received(
        &mut self,
        place: usize,
        entry: &TrafficEntry,
        stream: TrafficStream,
        message: &Message,
    ) {
        let Ok(body) = serde_json::from_slice::<Value>(message.raw()) else { return };
        let at = entry.at.as_millis();
        if message.kind() == Kind::Response {
            let call = self.calls.iter_mut().find(|call| spelled(&call.id) == spelled(&body["id"]));
            if let Some(call) = call {
                call.answers.push(PlacedMessage { place, at, stream, body });
            }
        } else if body["method"] == PROGRESS {
            let params = body["params"].clone();
            let token = spelled(&params["progressToken"]);
            let is_its = |call: &&mut ProxiedCall| {
                call.token.as_ref().is_some_and(|own| spelled(own) == token)
            };
            let one = PlacedMessage { place, at, stream, body: params };
            match self.calls.iter_mut().find(is_its) {
                Some(call) => call.progress.push(one),
                None => self.strays.push(one),
            }
        }
    }

    pub(super) fn find(&self, key: &str) -> Option<&ProxiedCall> {
        self.calls.iter().find(|call| call.key == key)
    }
}
