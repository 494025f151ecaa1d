//! Requests of an old server to its client. 2026-07-28 has none: the client gets the question as the result of its
//! own request, and answers with the next one.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{FaceRequest, ModernFace, QUESTION_TTL, Question};
use crate::protocol::jsonrpc::{
    INTERNAL_ERROR, INVALID_PARAMS, Key, METHOD_NOT_FOUND, Message, error_answer,
};
use crate::protocol::{json, mcp};
use crate::transport::random::random_id;

/// Questions that wait for the clients of one server. For a further question the server gets an error.
const QUESTIONS_MAX: usize = 256;

/// The requests that a client answers.
const KINDS: [&str; 3] = ["sampling/createMessage", "elicitation/create", "roots/list"];

/// The name of the only question in a result.
const NAME: &str = "server";

/// The error for an answer to a question that is not, or no more, known.
const UNKNOWN: &str =
    "this requestState is not known: it has been answered, is too old, or is another client's";

impl ModernFace {
    /// The server asks its client something.
    pub(super) fn question(&mut self, message: &Message) {
        let Some(id) = message.id() else { return };
        let method = message.method().unwrap_or_default().into_owned();
        let refused = if method == mcp::PING {
            let text = [br#"{"jsonrpc":"2.0","id":"#, &id[..], br#","result":{}}"#].concat();
            return self.to_server.push_back(Bytes::from(text));
        } else if !KINDS.contains(&&*method) {
            Some((METHOD_NOT_FOUND, "clients of this server do not know the method"))
        } else if self.questions.len() >= QUESTIONS_MAX {
            Some((INTERNAL_ERROR, "too many questions wait for clients"))
        } else {
            None
        };
        let asking = self.only_asking();
        let unknown = (INTERNAL_ERROR, "no request, or more than one, can be the one that asks");
        let (key, handle) = match (refused, asking, random_id()) {
            (None, Some(key), Some(handle)) => (key, handle),
            (refused, ..) => {
                let (code, why) = refused.unwrap_or(unknown);
                return self.to_server.push_back(error_answer(&id, code, why, None));
            }
        };
        let Some(waits) = self.open.remove(&key) else { return };
        let params =
            message.params().and_then(|params| serde_json::from_slice::<Value>(&params).ok());
        let asked = json!({"method": method, "params": params.unwrap_or_else(|| json!({}))});
        let child_id = waits.child_id.clone().unwrap_or_else(|| key.clone());
        let server_id = Bytes::copy_from_slice(&id);
        let until = Instant::now() + QUESTION_TTL;
        self.ask_client(&key, &asked, &handle);
        self.questions.insert(handle, Question { server_id, child_id, waits, asked, until });
    }

    /// The only open request that a server can ask about.
    fn only_asking(&self) -> Option<Key> {
        let asks = |open: &&FaceRequest| {
            [mcp::TOOLS_CALL, "prompts/get", "resources/read"].contains(&&*open.method)
        };
        let mut found = self.open.iter().filter(|(_, open)| asks(open));
        let first = found.next()?.0.clone();
        found.next().is_none().then_some(first)
    }

    /// Answers the request of a client with a question.
    fn ask_client(&mut self, key: &Key, asked: &Value, handle: &str) {
        let result = json!({
            "resultType": "input_required",
            "inputRequests": {NAME: asked},
            "requestState": handle,
        });
        let head = [br#"{"jsonrpc":"2.0","id":"#, &key.to_json()[..], br#","result":"#].concat();
        let text = [&head[..], result.to_string().as_bytes(), b"}"].concat();
        self.to_client.push_back(Message::parse(Bytes::from(text)));
    }

    /// A client answers a question with its next request, which takes the place of the one that waits.
    pub(super) fn retry(&mut self, sent: &Message, params: &Bytes) {
        let text = |name: &str| json::member(params, name);
        let handle = text("requestState");
        let handle = handle.as_ref().and_then(|handle| json::decode_str(handle));
        let known = handle.as_deref().and_then(|handle| self.questions.remove(handle));
        let (Some(handle), Some(question), Some(key)) = (handle, known, sent.id_key()) else {
            return self.refuse_with(sent, INVALID_PARAMS, UNKNOWN);
        };
        if sent.method().as_deref() != Some(&*question.waits.method) {
            self.questions.insert(handle.into_owned(), question);
            let why = "this requestState belongs to a request of another method";
            return self.refuse_with(sent, INVALID_PARAMS, why);
        }
        let given = text("inputResponses").and_then(|all| json::member(&all, NAME));
        let meta = text("_meta").unwrap_or_default();
        let token = json::member(&meta, "progressToken").and_then(|token| Key::read(&token));
        let Some(given) = given else {
            // Not answered yet: the client is asked again.
            self.ask_client(&key, &question.asked, &handle);
            self.questions.insert(handle.into_owned(), question);
            return;
        };
        let answer =
            [br#"{"jsonrpc":"2.0","id":"#, &question.server_id[..], br#","result":"#].concat();
        self.to_server.push_back(Bytes::from([&answer[..], &given[..], b"}"].concat()));
        if let (Some(old), Some(new)) = (&question.waits.token, &token) {
            self.renamed_tokens.insert(old.clone(), new.clone());
        }
        let waits = FaceRequest { child_id: Some(question.child_id), ..question.waits };
        self.open.insert(key, waits);
        self.forget_renamed_tokens();
    }

    /// Tokens of requests that are over mean nothing any more.
    fn forget_renamed_tokens(&mut self) {
        let open: Vec<&Key> = self.open.values().filter_map(|open| open.token.as_ref()).collect();
        let held = self.questions.values().filter_map(|question| question.waits.token.as_ref());
        let known: Vec<&Key> = open.into_iter().chain(held).collect();
        let kept: BTreeMap<Key, Key> = std::mem::take(&mut self.renamed_tokens)
            .into_iter()
            .filter(|(old, _)| known.contains(&old))
            .collect();
        self.renamed_tokens = kept;
    }

    /// Gives up questions that nobody has answered.
    pub(super) fn forget_old_questions(&mut self, now: Instant) {
        let old = self.questions.iter().filter(|(_, question)| question.until <= now);
        let old: Vec<String> = old.map(|(handle, _)| handle.clone()).collect();
        for handle in old {
            if let Some(question) = self.questions.remove(&handle) {
                self.cancel(&question.child_id);
            }
        }
    }
}
