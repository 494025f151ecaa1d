//! Requests of an old server to its client. 2026-07-28 has no such requests: the client gets the question as the result
//! of its own request, and answers with its next request.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::request_state::{QuestionNumber, RequestState, StateSeal};
use super::requests::{CAN_ASK, digest_of, token_in};
use super::{FaceRequest, ModernFace, meta_value, result_answer};
use crate::progress::Origin;
use crate::protocol::jsonrpc::{
    INTERNAL_ERROR, INVALID_PARAMS, Key, METHOD_NOT_FOUND, Message, error_answer, own_error,
};
use crate::protocol::{json, mcp};
use crate::relay::legs::{ClientHeaders, FromServer};
use crate::transport::random::random_bytes;

/// Maximum number of questions that wait for the clients of one server. A further question is answered with an error.
const QUESTIONS_MAX: usize = 256;

/// Maximum number of questions whose call is not known yet. A further question is answered with an error.
const UNDECIDED_MAX: usize = 64;

/// Maximum number of bytes of answers that wait for the clients of one server because a question has taken their place.
/// Beyond the limit the client gets an error.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Deadline for the client's next request, which answers the question.
const QUESTION_TTL: Duration = Duration::from_secs(10 * 60);

/// Deadline for only one call to be left that the question can belong to.
const UNDECIDED_TTL: Duration = Duration::from_secs(20);

/// The requests that a client can answer, each with the capability that the client needs.
const KINDS: [(&str, &str); 3] = [
    ("sampling/createMessage", "sampling"),
    ("elicitation/create", "elicitation"),
    ("roots/list", "roots"),
];

/// The error for an answer to an unknown or forgotten question.
const UNKNOWN: &str =
    "this requestState is not known: it has been answered, is too old, or is another client's";

/// A question: a request of the server, which a client answers with its next request.
pub(super) struct Question {
    /// The server's id of the client's request during which the question came.
    call_id: Key,
    /// The client's request during which the question came.
    waits: FaceRequest,
    asked: Asked,
    pub(super) until: Instant,
    /// The server's answer to that request, if it came without waiting for the client.
    answer: Option<FromServer>,
}

impl Question {
    fn held_bytes(&self) -> usize {
        match &self.answer {
            Some(FromServer::Message(_, message)) => message.raw().len(),
            _ => 0,
        }
    }
}

/// A request of the server, as its client is asked it.
pub(super) struct Asked {
    /// The name of the question.
    pub(super) name: String,
    /// The id of the server's request.
    pub(super) server_id: Bytes,
    pub(super) question: Value,
}

/// The request or task during which the server asks a question.
enum Asker {
    /// The request with this id.
    Call(Key),
    /// The task at this index.
    Task(usize),
}

/// A request of the server of which it is not known yet to which call it belongs.
pub(super) struct Undecided {
    origin: Origin,
    message: Message,
    pub(super) until: Instant,
}

impl ModernFace {
    /// Handles a request of the server to its client.
    pub(super) fn question(&mut self, origin: Origin, message: Message, now: Instant) {
        let Some(id) = message.id() else { return };
        // Calls that are due become tasks first, because a task is asked questions in another way.
        self.begin_tasks(now);
        let method = message.method().unwrap_or_default().into_owned();
        // Answer `ping` here: the server only checks whether its client is alive.
        if method == mcp::PING {
            return self.send(result_answer(&id, b"{}"), &None);
        }
        let refused = if KINDS.iter().all(|(kind, _)| *kind != method) {
            Some((METHOD_NOT_FOUND, "clients of this server do not know the method"))
        } else if self.questions.len() >= QUESTIONS_MAX || self.undecided.len() >= UNDECIDED_MAX {
            Some((INTERNAL_ERROR, "too many questions wait for clients"))
        } else {
            None
        };
        if let Some((code, why)) = refused {
            return self.send(error_answer(&id, code, why, None), &None);
        }
        self.undecided.push_back(Undecided { origin, message, until: now + UNDECIDED_TTL });
        self.decide(now);
    }

    /// Asks each waiting question whose call is known by now.
    pub(super) fn decide(&mut self, now: Instant) {
        // Take the list, because questions that are still undecided are put back in their order.
        for undecided in std::mem::take(&mut self.undecided) {
            match self.author(undecided.origin) {
                Some(asker) => self.ask(&asker, &undecided.message, now),
                None if undecided.until <= now => {
                    let why = "no call, or more than one, can be the one that asks";
                    let id = undecided.message.id().unwrap_or_default();
                    self.send(error_answer(&id, INTERNAL_ERROR, why, None), &None);
                }
                None => self.undecided.push_back(undecided),
            }
        }
    }

    /// Returns the request or task that the question belongs to: that of its stream, or else the only open one.
    fn author(&self, origin: Origin) -> Option<Asker> {
        let asks = |open: &FaceRequest| CAN_ASK.contains(&&*open.method);
        let working = self.tasks.iter().enumerate().filter(|(_, task)| task.is_running());
        // A separate stream of the server belongs to one request, so the question belongs to it too.
        if let Origin::Stream(on) = origin {
            let open = self.open.iter().find(|(_, open)| open.stream == Some(on));
            if let Some((key, open)) = open {
                return asks(open).then(|| Asker::Call(key.clone()));
            }
            let mut working = working.clone();
            if let Some((place, _)) =
                working.find(|(_, task)| task.details.request.stream == Some(on))
            {
                return Some(Asker::Task(place));
            }
        }
        let calls = self.open.iter().filter(|(_, open)| asks(open));
        let calls = calls.map(|(key, _)| Asker::Call(key.clone()));
        let mut found = calls.chain(working.map(|(place, _)| Asker::Task(place)));
        let first = found.next()?;
        // With two candidates, a wrong guess would show a client the question of another client.
        found.next().is_none().then_some(first)
    }

    /// Asks a client a question of the server.
    fn ask(&mut self, asker: &Asker, message: &Message, now: Instant) {
        let Some(server_id) = message.id().map(|id| Bytes::copy_from_slice(&id)) else { return };
        let method = message.method().unwrap_or_default().into_owned();
        let capability = KINDS.iter().find(|(kind, _)| *kind == method).map(|(_, name)| *name);
        let request = match asker {
            Asker::Call(key) => self.open.get(key),
            Asker::Task(place) => Some(&self.tasks[*place].details.request),
        };
        let Some(request) = request else { return };
        if capability.is_none_or(|name| !request.capabilities[name].is_object()) {
            let why = "the client of this call has not declared that it can be asked this";
            return self.send(error_answer(&server_id, METHOD_NOT_FOUND, why, None), &None);
        }
        // Without a digest, the client's next request could not be recognised as the same request.
        if matches!(asker, Asker::Call(_)) && request.digest.is_none() {
            let why = "the request of this call is nested too deep, or may be read in two ways";
            return self.send(error_answer(&server_id, INVALID_PARAMS, why, None), &None);
        }
        let question = json!({"method": method, "params": asked_params(message)});
        let name = format!("ask-{}", self.next_name());
        match asker {
            Asker::Task(place) => {
                self.tasks[*place].details.asked.push(Asked { name, server_id, question });
                self.tell_of_task(*place, now);
            }
            Asker::Call(key) => self.hold(key, Asked { name, server_id, question }, now),
        }
    }

    /// Answers a client's request with a question of the server.
    fn hold(&mut self, key: &Key, asked: Asked, now: Instant) {
        if self.states.is_none() {
            self.states = StateSeal::random();
        }
        let Some((number, _)) = random_bytes().zip(self.states.as_ref()) else {
            let why = "the proxy has no random bytes, by which the client's answer would be known";
            return self.send(error_answer(&asked.server_id, INTERNAL_ERROR, why, None), &None);
        };
        let Some(waits) = self.open.remove(key) else { return };
        let question = Question {
            call_id: waits.server_id.clone().unwrap_or_else(|| key.clone()),
            waits,
            asked,
            until: now + QUESTION_TTL,
            answer: None,
        };
        self.ask_client(key, &question, number);
        self.questions.insert(number, question);
    }

    fn ask_client(&mut self, key: &Key, question: &Question, number: QuestionNumber) {
        let state = RequestState { number, digest: question.waits.digest.unwrap_or_default() };
        let state = self.states.as_ref().and_then(|seal| seal.seal(&state));
        let result = json!({
            "resultType": "input_required",
            "inputRequests": {(question.asked.name.as_str()): question.asked.question},
            "requestState": state,
        });
        let text = result_answer(&key.to_json(), result.to_string().as_bytes());
        self.tell_message(Message::parse(text));
    }

    /// Handles a client's request that answers a question. It continues the earlier request.
    pub(super) fn retry(
        &mut self,
        sent: &Message,
        params: &Bytes,
        headers: &ClientHeaders,
        now: Instant,
    ) {
        let text = |name: &str| json::member(params, name);
        let state = text("requestState");
        let state = state.as_ref().and_then(|state| json::decode_str(state));
        let state = state.and_then(|state| self.states.as_ref()?.open(&state));
        let question = state.and_then(|state| Some((state, self.questions.get(&state.number)?)));
        let (Some((state, question)), Some(key)) = (question, sent.id_key()) else {
            return self.refuse_with(sent, INVALID_PARAMS, UNKNOWN);
        };
        let method = sent.method().unwrap_or_default();
        // The state is bound to the request, so that it cannot be used for another request.
        if digest_of(sent) != Some(state.digest) {
            let why = "this requestState belongs to a request with another method or parameters";
            return self.refuse_with(sent, INVALID_PARAMS, why);
        }
        let given = text("inputResponses").and_then(|all| json::member(&all, &question.asked.name));
        if given.as_ref().is_some_and(|given| !given.starts_with(b"{")) {
            let why = format!("inputResponses.{} must be an object", question.asked.name);
            return self.refuse_with(sent, INVALID_PARAMS, &why);
        }
        let Some(mut question) = self.questions.remove(&state.number) else { return };
        match given {
            // The server has already finished without the client's answer.
            _ if question.answer.is_some() => {}
            Some(given) => self.send(result_answer(&question.asked.server_id, &given), headers),
            None => {
                // The request has no answer, so ask the client again.
                question.until = now + QUESTION_TTL;
                self.ask_client(&key, &question, state.number);
                self.questions.insert(state.number, question);
                return;
            }
        }
        question.waits.capabilities = meta_value(sent, mcp::META_CAPABILITIES).unwrap_or_default();
        let what = (&*method, question.waits.tool.as_deref());
        question.waits.task_at = self.task_time(what, &question.waits.capabilities, now);
        self.go_on(question, key, token_in(params));
        self.decide(now);
    }

    /// Continues an earlier request as the request with this id.
    fn go_on(&mut self, question: Question, key: Key, token: Option<Key>) {
        if let (Some(old), Some(new)) = (&question.waits.token, token) {
            self.renamed_tokens.insert(old.clone(), new);
        }
        let open = FaceRequest { server_id: Some(question.call_id), ..question.waits };
        match question.answer {
            Some(FromServer::Message(origin, answer)) => {
                let told = self.modern_answer(&answer, &key, &open);
                self.to_client.push_back(FromServer::Message(origin, told));
            }
            Some(FromServer::Spooled(mut response)) => {
                response.rename(key);
                self.to_client.push_back(FromServer::Spooled(response));
            }
            _ => drop(self.open.insert(key, open)),
        }
        self.forget_renamed_tokens();
    }

    /// Stores an answer to a request in place of which its client was asked a question. Returns any other answer.
    pub(super) fn keep_answer(&mut self, key: &Key, answer: FromServer) -> Option<FromServer> {
        let held: usize = self.questions.values().map(Question::held_bytes).sum();
        let mut questions = self.questions.iter_mut().map(|(_, question)| question);
        let Some(question) = questions.find(|question| question.call_id == *key) else {
            return Some(answer);
        };
        question.answer = Some(match answer {
            FromServer::Message(origin, message) if held + message.raw().len() > HELD_BYTES_MAX => {
                let why = "the answer has no room while the client is asked something";
                let error = own_error(&key.to_json(), why, None);
                FromServer::Message(origin, Message::parse(error))
            }
            answer => answer,
        });
        None
    }

    /// Forgets the tokens of requests that have ended.
    fn forget_renamed_tokens(&mut self) {
        let open = self.open.values().filter_map(|open| open.token.clone());
        let held = self.questions.values().filter_map(|question| question.waits.token.clone());
        let known: Vec<Key> = open.chain(held).collect();
        self.renamed_tokens.retain(|old, _| known.contains(old));
    }

    /// Gives up questions that were not answered before their deadline.
    pub(super) fn forget_old_questions(&mut self, now: Instant) {
        let old = self.questions.iter().filter(|(_, question)| question.until <= now);
        let old: Vec<QuestionNumber> = old.map(|(number, _)| *number).collect();
        for number in old {
            let Some(question) = self.questions.remove(&number) else { continue };
            // The server has finished without the client's answer, so it need not be told.
            if question.answer.is_some() {
                continue;
            }
            let why = "no client has answered in time";
            self.send(error_answer(&question.asked.server_id, INTERNAL_ERROR, why, None), &None);
            self.cancel(&question.call_id, &question.waits.headers);
        }
    }
}

/// Returns the parameters of a question, without members of 2025-11-25 that later revisions do not have.
fn asked_params(message: &Message) -> Value {
    let params = message.params().and_then(|params| serde_json::from_slice::<Value>(&params).ok());
    let mut params = params.unwrap_or_else(|| json!({}));
    if let Some(members) = params.as_object_mut() {
        ["elicitationId", "task"].iter().for_each(|name| drop(members.remove(*name)));
    }
    params
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Face, request};

    #[test]
    fn a_client_is_asked_nothing_about_a_request_that_may_be_read_in_two_ways() {
        let deep = |leaf: &str| {
            format!(r#""name":"a","arguments":{}{leaf}{},"#, "[".repeat(200), "]".repeat(200))
        };
        for params in [&*deep("1"), r#""name":"a","arguments":{"n":1,"n":2},"#] {
            let mut face = Face::ready();
            face.own();
            face.client(&request(2, "tools/call", params));
            face.sent();
            let question =
                r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#;
            assert_eq!(face.server(question), None);
            assert!(face.sent()[0].contains("-32602") && face.own().is_empty(), "{params:.40}");
        }
    }
}
