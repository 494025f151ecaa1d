//! Answers and notifications of an old server, on their way to a client.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::requests::{CAN_ASK, LEVELS, replaced};
use super::{FacePhase, FaceRequest, ModernFace, OWN_ID, result_answer};
use crate::progress::{Origin, Payload};
use crate::protocol::jsonrpc::{INVALID_PARAMS, Key, Message};
use crate::protocol::{json, mcp};
use crate::relay::legs::FromServer;
use crate::relay::spooled_response::SpooledResponse;

/// The error code of earlier revisions for a resource that does not exist.
const NO_RESOURCE: i32 = -32002;

/// The error code of 2025-11-25 for a request before which the user must visit a URL.
const NEEDS_URL: i32 = -32042;

/// The notification of 2025-11-25 that a user has visited a URL. Later revisions do not have it.
const URL_DONE: &str = "notifications/elicitation/complete";

/// Names of members, in lower case, that have a progress token.
const TOKEN_NAMES: [&str; 3] = ["progresstoken", "progress_token", "token"];

/// Names of members, in lower case, that have the id of a request.
const ID_NAMES: [&str; 5] = ["requestid", "request_id", "id", "callid", "toolcallid"];

/// Methods whose results must say in 2026-07-28 how long they may be cached. Older servers do not say that.
const CACHED: [&str; 5] = [
    mcp::TOOLS_LIST,
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

impl ModernFace {
    /// Translates an answer for its client. Returns `None` if no client gets the answer now.
    pub(super) fn answer(
        &mut self,
        origin: Origin,
        message: Message,
        now: Instant,
    ) -> Option<FromServer> {
        let key = message.id_key()?;
        if Self::is_greeting(&key) {
            self.greeted(&message, now);
            return None;
        }
        // The answer to a request of Milepost itself is for no client.
        if matches!(&key, Key::Text(text) if text.starts_with(OWN_ID.as_bytes())) {
            return None;
        }
        let Some((id, open)) = self.take_open(&key) else {
            if self.task_answer(&key, &message, now) {
                return None;
            }
            // The client has cancelled the request, or was asked a question in its place meanwhile.
            return self.keep_answer(&key, FromServer::Message(origin, message));
        };
        let told = self.modern_answer(&message, &id, &open);
        self.decide(now);
        Some(FromServer::Message(origin, told))
    }

    /// Handles a large answer in a file, whose text is not translated.
    pub(super) fn large_answer(
        &mut self,
        mut response: Box<SpooledResponse>,
        now: Instant,
    ) -> Option<FromServer> {
        let Some(key) = response.id() else { return Some(FromServer::Spooled(response)) };
        let Some((id, _)) = self.take_open(&key) else {
            if self.large_task_answer(&key, now) {
                return None;
            }
            return self.keep_answer(&key, FromServer::Spooled(response));
        };
        response.rename(id);
        self.decide(now);
        Some(FromServer::Spooled(response))
    }

    /// Notes that an answer was forwarded in pieces. Its client gets an error if the answer has the wrong id, because
    /// the client's request continued an earlier request.
    pub(super) fn passed_in_pieces(&mut self, key: &Key, now: Instant) {
        let Some((id, _)) = self.take_open(key) else {
            self.large_task_answer(key, now);
            return;
        };
        // The pieces had the id that the server knows, which can no longer be changed.
        if id != *key {
            let why = "the answer is too large for a request that continues an earlier one";
            let error = crate::protocol::jsonrpc::own_error(&id.to_json(), why, None);
            self.tell_message(Message::parse(error));
        }
        self.decide(now);
    }

    /// Removes and returns the open request that the server knows by this id, with the id that its client knows.
    fn take_open(&mut self, key: &Key) -> Option<(Key, FaceRequest)> {
        let continues = |(_, open): &(&Key, &FaceRequest)| open.server_id.as_ref() == Some(key);
        let id = self.open.iter().find(continues).map(|(id, _)| id.clone());
        let id = id.unwrap_or_else(|| key.clone());
        self.open.remove(&id).map(|open| (id, open))
    }

    /// Returns an answer with the id that its client knows, and with the members and error codes of 2026-07-28.
    pub(super) fn modern_answer(&self, message: &Message, id: &Key, open: &FaceRequest) -> Message {
        let message = match message.id_range() {
            Some(range) if message.id_key().as_ref() != Some(id) => {
                Message::parse(Payload::splice(message.raw(), range, id.to_json()).to_bytes())
            }
            _ => message.clone(),
        };
        if let Some(error) = message.error() {
            return self.modern_error(&message, &error, open);
        }
        let Some(result) = message.result().filter(|result| result.starts_with(b"{")) else {
            return message;
        };
        // 2026-07-28 requires this member in each result.
        let mut added: Vec<(&str, Value)> = vec![("resultType", json!("complete"))];
        if CACHED.contains(&&*open.method) {
            added.extend([("ttlMs", json!(0)), ("cacheScope", json!("private"))]);
        }
        let server = match &self.phase {
            FacePhase::Ready(started) => started.get("serverInfo").filter(|name| name.is_object()),
            _ => None,
        };
        let mut result = (result.clone(), result);
        if let Some(server) = server {
            match json::member(&result.0, "_meta") {
                None => added.push(("_meta", json!({(mcp::META_SERVER): server}))),
                Some(meta) if meta.starts_with(b"{") => {
                    let more = with_members(&meta, &[(mcp::META_SERVER, server.clone())]);
                    result.0 = replaced(&result.0, &meta, more);
                }
                Some(_) => {}
            }
        }
        let text = with_members(&result.0, &added);
        Message::parse(replaced(message.raw(), &result.1, text))
    }

    fn modern_error(&self, message: &Message, error: &Bytes, open: &FaceRequest) -> Message {
        let asked = || self.questions_at_addresses(error, open);
        // Milepost may ask the user only if the client has declared the capability for it.
        if message.error_code() == Some(NEEDS_URL)
            && let Some(asked) = asked()
            && let Some(id) = message.id()
        {
            let result = json!({"resultType": "input_required", "inputRequests": asked});
            return Message::parse(result_answer(&id, result.to_string().as_bytes()));
        }
        let code =
            json::member(error, "code").filter(|_| message.error_code() == Some(NO_RESOURCE));
        let code = code
            .map(|code| replaced(message.raw(), &code, Bytes::from(INVALID_PARAMS.to_string())));
        code.map_or_else(|| message.clone(), Message::parse)
    }

    /// Returns the URLs that a user must visit before a request, as questions of 2026-07-28.
    fn questions_at_addresses(&self, error: &Bytes, open: &FaceRequest) -> Option<Value> {
        let can = open.capabilities["elicitation"].get("url").is_some()
            && CAN_ASK.contains(&&*open.method);
        let data = json::member(error, "data").filter(|_| can)?;
        let data = serde_json::from_slice::<Value>(&data).ok()?;
        let all = data["elicitations"].as_array().filter(|all| !all.is_empty())?;
        let asked = all.iter().enumerate().map(|(number, one)| {
            let mut params = one.clone();
            params.as_object_mut().map(|params| params.remove("elicitationId"));
            (format!("url-{number}"), json!({"method": "elicitation/create", "params": params}))
        });
        let mut questions = Map::new();
        questions.extend(asked);
        Some(questions.into())
    }

    /// Translates a notification for its client; returns `None` if no client gets it.
    pub(super) fn server_notification(
        &mut self,
        message: Message,
        now: Instant,
    ) -> Option<Message> {
        let method = message.method()?.into_owned();
        self.note_task_words(&message, now);
        match &*method {
            mcp::LOG if !self.wants_log(&message) => None,
            URL_DONE => None,
            _ if self.changed(&method, &message) => None,
            _ => Some(self.renamed(message)),
        }
    }

    /// Replaces token and id in a message about a request that continues an earlier request, because the server knows
    /// only those of the earlier one.
    fn renamed(&self, message: Message) -> Message {
        let ids = self.open.iter().filter_map(|(id, open)| Some((open.server_id.as_ref()?, id)));
        let ids: Vec<(&Key, &Key)> = ids.collect();
        let tokens: Vec<(&Key, &Key)> = self.renamed_tokens.iter().collect();
        let Some(params) = message.params().filter(|_| !(ids.is_empty() && tokens.is_empty()))
        else {
            return message;
        };
        let meta = json::member(&params, "_meta");
        let mut places: Vec<(Bytes, Bytes)> = Vec::new();
        for object in [Some(params), meta].into_iter().flatten() {
            places.extend(renamed_members(&object, &TOKEN_NAMES, &tokens));
            places.extend(renamed_members(&object, &ID_NAMES, &ids));
        }
        // Replace from the last place to the first, because a replacement moves the places after it.
        places.sort_by_key(|(text, _)| std::cmp::Reverse(text.as_ptr() as usize));
        let start = message.raw().as_ptr() as usize;
        let text = places.into_iter().fold(message.raw().clone(), |raw, (old, new)| {
            let at = old.as_ptr() as usize - start;
            Payload::splice(&raw, at..at + old.len(), new).to_bytes()
        });
        Message::parse(text)
    }

    /// Whether an open request wants log messages of this level.
    fn wants_log(&self, message: &Message) -> bool {
        let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
        let level = message.params().and_then(|params| json::member(&params, "level"));
        let level = level.as_ref().and_then(|level| json::decode_str(level));
        let level = level.as_deref().and_then(rank);
        let wanted = self.open.values().filter_map(|open| rank(open.wants_logs.as_deref()?)).min();
        wanted.is_some_and(|wanted| level.is_none_or(|level| level >= wanted))
    }
}

/// Returns the members with these names whose value is an earlier token or id, with their replacements.
fn renamed_members(object: &Bytes, names: &[&str], keys: &[(&Key, &Key)]) -> Vec<(Bytes, Bytes)> {
    let renamed = json::Members::new(object).filter_map(|member| {
        let name = json::decode_str(&object[member.key])?.to_ascii_lowercase();
        let text = object.slice(member.value);
        let key = Key::read(&text).filter(|_| names.contains(&&*name))?;
        let (_, new) = keys.iter().find(|(old, _)| **old == key)?;
        Some((text, new.to_json()))
    });
    renamed.collect()
}

/// Returns an object with these members added at its beginning. Members that it already has stay.
fn with_members(object: &Bytes, added: &[(&str, Value)]) -> Bytes {
    let is_new = |(name, _): &&(&str, Value)| json::member(object, name).is_none();
    let members: Vec<String> =
        added.iter().filter(is_new).map(|(name, value)| format!("{name:?}:{value}")).collect();
    let is_empty = json::Members::new(object).next().is_none();
    let comma = if is_empty || members.is_empty() { "" } else { "," };
    Bytes::from([b"{", members.join(",").as_bytes(), comma.as_bytes(), &object[1..]].concat())
}
