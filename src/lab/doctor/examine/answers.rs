//! The faults of answers: their ids, their shape, and progress immediately before them.

use serde_json::Value;

use super::{Examiner, GLUED, MessageContext};
use crate::lab::doctor::findings::{Answer, shown};
use crate::lab::doctor::rules::Rule;
use crate::lab::doctor::traffic::TrafficStream;
use crate::protocol::jsonrpc::{METHOD_NOT_FOUND, Message};

impl Examiner {
    pub(super) fn response(&mut self, place: MessageContext<'_>, message: &Message) {
        let text: Value = serde_json::from_slice(message.raw()).unwrap_or_default();
        let id = text.get("id").filter(|id| !id.is_null()).cloned();
        if text.is_null() || !message.is_strict() {
            self.add_finding(Rule::Envelope, message);
        }
        if let Some(error) = text.get("error").filter(|error| !error.is_null())
            && (error["code"].as_i64().is_none() || !error["message"].is_string())
        {
            self.add_finding(Rule::ErrorShape, message);
        }
        if message.is_empty_answer() {
            self.add_finding(Rule::ErrorShape, message);
        }
        if message.has_nulls() {
            self.add_finding(Rule::NullMembers, message);
        }
        let Some(id) = id else {
            if text.get("result").is_some_and(|result| !result.is_null()) {
                self.add_finding(Rule::AnswerNoId, message);
            } else if self.answers_notification(place.stream, &text["error"]) {
                self.add_finding(Rule::AnswersNotification, message);
            }
            return;
        };
        let exact = id.as_u64();
        let spelled = id.as_str().and_then(|id| id.parse().ok());
        // Some servers send the id `2` back as `2.0`.
        let fraction = || message.id_key().and_then(|key| key.to_string().parse().ok());
        let Some(number) = exact.or(spelled).or_else(fraction) else {
            return self.add_finding(Rule::AnswerOrphan, message);
        };
        if let Some(answered) = self.asked.get_mut(&number) {
            if std::mem::replace(answered, true) {
                self.add_finding(Rule::AnswerSecond, message);
            } else {
                self.spelled(exact, message);
            }
            return;
        }
        let Some(at) = self.calls.iter().position(|call| call.id == number) else {
            return self.add_finding(Rule::AnswerOrphan, message);
        };
        if self.calls.get(at).is_some_and(|call| call.ended.is_some()) {
            return self.add_finding(Rule::AnswerSecond, message);
        }
        self.spelled(exact, message);
        self.answered(at, place, &text, message);
    }

    /// Whether an error without an id answers a notification. Such an error may also be about a request whose id the
    /// server could not read; over HTTP it belongs to the POST on whose response it comes.
    fn answers_notification(&self, stream: TrafficStream, error: &Value) -> bool {
        let is_open = self.has_open_call() || self.asked.values().any(|answered| !answered);
        let is_about_ours =
            || error["message"].as_str().is_some_and(|words| words.contains("initialized"));
        let is_unknown = || error["code"].as_i64() == Some(METHOD_NOT_FOUND.into());
        !matches!(stream, TrafficStream::Post(_)) && (!is_open || is_unknown() || is_about_ours())
    }

    fn spelled(&mut self, exact: Option<u64>, message: &Message) {
        if exact.is_none() {
            self.add_finding(Rule::AnswerId, message);
        }
    }

    fn answered(&mut self, at: usize, place: MessageContext<'_>, text: &Value, message: &Message) {
        let answer = match text.get("result").filter(|result| !result.is_null()) {
            None => Answer::Error,
            Some(result) if result["isError"] == true => Answer::ToolError,
            Some(_) => Answer::Result,
        };
        let whole = |result: &Value| {
            result["content"].is_array()
                || ["structuredContent", "task", "resultType", "inputRequests"]
                    .iter()
                    .any(|name| result.get(name).is_some())
        };
        if answer != Answer::Error && !whole(&text["result"]) {
            self.add_finding(Rule::BareResult, message);
        }
        let shared = self.terms.wire.is_shared();
        let Some(call) = self.calls.get_mut(at) else { return };
        call.answer = answer;
        call.is_own_error = text["error"]["data"]["proxy"] == "milepost";
        let refusal = match answer {
            Answer::Error => Some(&text["error"]["message"]),
            Answer::ToolError => Some(&text["result"]["content"][0]["text"]),
            Answer::Result | Answer::None => None,
        };
        call.refusal = refusal.and_then(Value::as_str).map(|words| shown(words.as_bytes()));
        call.ended = Some(place.at);
        call.took = place.at.saturating_sub(call.begun);
        call.silence = call.silence.max(place.at.saturating_sub(call.last_progress));
        if let Some((last, read)) = call.last
            && shared
            && (read == Some(place.read) || place.at.saturating_sub(last) < GLUED)
        {
            self.add_finding(Rule::Glued, message);
        }
    }
}
