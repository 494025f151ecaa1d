//! Requests of clients, on their way to an old server.

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{FaceRequest, ModernFace, OPEN_MAX, OWN_ID, REMOVED, ToServer, meta_value};
use crate::progress::{Payload, StreamId};
use crate::protocol::exact_value::exact_value;
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::{json, mcp};
use crate::relay::legs::ClientHeaders;

/// The levels of log messages, the least urgent first.
pub(super) const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The methods of requests whose clients can be asked questions (26:mrtr §Supported Requests).
pub(super) const CAN_ASK: [&str; 3] = [mcp::TOOLS_CALL, "prompts/get", "resources/read"];

/// Members of parameters that only 2026-07-28 has. A request with them answers an earlier question.
const ANSWERS: [&str; 2] = ["requestState", "inputResponses"];

impl ModernFace {
    /// Handles a request of a client.
    pub(super) fn request(&mut self, sent: &Message, headers: &ClientHeaders, now: Instant) {
        let method = sent.method().unwrap_or_default().into_owned();
        match &*method {
            mcp::DISCOVER => return self.discover(sent),
            mcp::LISTEN => return self.listen(sent, headers),
            removed if REMOVED.contains(&removed) => return self.refuse_method(sent, &method),
            _ => {}
        }
        let Some(key) = sent.id_key() else { return };
        if self.open.len() >= OPEN_MAX {
            return self.refuse(sent, "too many requests are open on this server");
        }
        let params = sent.params().unwrap_or_default();
        if CAN_ASK.contains(&&*method) && json::member(&params, "requestState").is_some() {
            return self.retry(sent, &params, headers, now);
        }
        let capabilities = meta_value(sent, mcp::META_CAPABILITIES).unwrap_or_default();
        if method.starts_with(mcp::TASKS) {
            return self.task_request(sent, (&method, &params), &capabilities, headers, now);
        }
        let wants_logs = meta_value(sent, mcp::META_LOG_LEVEL)
            .and_then(|level| Some(level.as_str()?.to_owned()));
        self.ask_for_logs(wants_logs.as_deref(), headers);
        let tool = json::member(&params, "name");
        let tool = tool.and_then(|name| Some(json::decode_str(&name)?.into_owned()));
        // The digest reads the whole request, so it is only made if the client can be asked a question.
        let is_asked = CAN_ASK.contains(&&*method)
            && capabilities.as_object().is_some_and(|stated| !stated.is_empty());
        let open = FaceRequest {
            task_at: self.task_time((&method, tool.as_deref()), &capabilities, now),
            tool,
            came: now,
            digest: is_asked.then(|| digest_of(sent)).flatten(),
            method,
            wants_logs,
            token: token_in(&params),
            server_id: None,
            stream: None,
            headers: headers.clone(),
            capabilities,
        };
        self.open.insert(key.clone(), open);
        let message = Message::parse(without_modern_members(sent));
        self.to_server.push_back(ToServer {
            message,
            request: Some(key),
            headers: headers.clone(),
        });
        self.decide(now);
    }

    /// Asks the server for the lowest log level that any request wants, because the server has one level for all
    /// requests.
    fn ask_for_logs(&mut self, wanted: Option<&str>, headers: &ClientHeaders) {
        let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
        let Some(new) = wanted.and_then(rank) else { return };
        let known = self.log_level.as_deref().and_then(rank);
        let logs = self.server_capabilities().is_some_and(|all| all.get("logging").is_some());
        // Never raise the level again, because another request may still need it.
        if !logs || known.is_some_and(|old| old <= new) {
            return;
        }
        self.log_level = wanted.map(str::to_owned);
        self.ask_server(mcp::SET_LEVEL, &json!({"level": wanted}), headers);
    }

    /// Sends a request of Milepost itself, whose answer is ignored.
    pub(super) fn ask_server(&mut self, method: &str, params: &Value, headers: &ClientHeaders) {
        let id = format!("{OWN_ID}{}", self.next_name());
        let text = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(Bytes::from(text.to_string()), headers);
    }

    /// Handles a notification of a client, which may cancel a request.
    pub(super) fn client_notification(&mut self, sent: &Message, headers: &ClientHeaders) {
        let params = sent.params().unwrap_or_default();
        let id = json::member(&params, "requestId").and_then(|id| Key::read(&id));
        let Some(id) = id.filter(|_| sent.method().as_deref() == Some(mcp::CANCELLED)) else {
            return self.send(sent.raw().clone(), headers);
        };
        self.waiting.retain(|(waiting, _)| waiting.id_key().as_ref() != Some(&id));
        // The request either waits for the beginning of the session, or listens, or is open.
        self.stop_listening(&id, headers);
        let Some(open) = self.open.remove(&id) else { return };
        self.cancel(&open.server_id.unwrap_or(id), headers);
    }

    /// Cancels a request at the server.
    pub(super) fn cancel(&mut self, id: &Key, headers: &ClientHeaders) {
        let head = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#;
        let tail = br#","reason":"the client has given the request up"}}"#;
        self.send(Bytes::from([&head[..], &id.to_json(), tail].concat()), headers);
    }

    /// Returns the server's stream for messages about a client's request.
    pub(super) fn stream_of(&self, request: &Key) -> Option<StreamId> {
        self.open.get(request)?.stream
    }

    /// Sets the server's stream for messages about a client's request.
    pub(super) fn note_stream(&mut self, request: &Key, stream: StreamId) {
        if let Some(open) = self.open.get_mut(request) {
            open.stream = Some(stream);
        }
    }
}

/// Returns the progress token of a request.
pub(super) fn token_in(params: &Bytes) -> Option<Key> {
    let meta = json::member(params, "_meta")?;
    Key::read(&json::member(&meta, "progressToken")?)
}

/// Returns a digest that two requests share only if they ask for the same. Returns `None` if the request is ambiguous,
/// so that two readers could read it differently.
pub(super) fn digest_of(sent: &Message) -> Option<[u8; 32]> {
    let mut sent = exact_value(sent.raw())?;
    let method = sent["method"].take();
    let mut value = sent["params"].take();
    if let Some(members) = value.as_object_mut() {
        // Leave out `_meta`: its token and trace may differ in a request that continues another.
        members.remove("_meta");
        ANSWERS.iter().for_each(|name| drop(members.remove(*name)));
    }
    // Include the method, because the same parameters with another method are another request.
    let text = format!("{method} {value}");
    digest(&SHA256, text.as_bytes()).as_ref().try_into().ok()
}

/// Returns a request without the members that only 2026-07-28 has.
fn without_modern_members(sent: &Message) -> Bytes {
    let mut raw = sent.raw().clone();
    let is_answer = |name: &str| ANSWERS.contains(&name);
    let is_modern = |name: &str| name.starts_with(mcp::META_PREFIX);
    if let Some(params) = sent.params() {
        raw = replaced(&raw, &params, without(&params, is_answer));
    }
    let params = Message::parse(raw.clone()).params();
    match params.and_then(|params| json::member(&params, "_meta")) {
        Some(meta) => replaced(&raw, &meta, without(&meta, is_modern)),
        None => raw,
    }
}

/// Returns an object without some of its members.
fn without(object: &Bytes, is_left_out: impl Fn(&str) -> bool) -> Bytes {
    let name = |key: &[u8]| json::decode_str(key).is_some_and(|name| is_left_out(&name));
    if !object.starts_with(b"{") || !json::Members::new(object).any(|it| name(&object[it.key])) {
        return object.clone();
    }
    let kept = json::Members::new(object).filter(|member| !name(&object[member.key.clone()]));
    let kept: Vec<&[u8]> = kept.map(|it| &object[it.key.start..it.value.end]).collect();
    Bytes::from([b"{", &kept.join(&b","[..])[..], b"}"].concat())
}

/// Returns a text in which `part` is replaced by `new`.
pub(super) fn replaced(raw: &Bytes, part: &Bytes, new: Bytes) -> Bytes {
    let start = (part.as_ptr() as usize).checked_sub(raw.as_ptr() as usize);
    let range = start.map(|start| start..start + part.len()).filter(|range| range.end <= raw.len());
    range.map_or_else(|| raw.clone(), |range| Payload::splice(raw, range, new).to_bytes())
}
