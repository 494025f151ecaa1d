//! Answers without an id. A server that does not know a notification, or cannot read a message, answers with an error
//! whose id is null. No client can match such an error, and the TypeScript SDK reports a failure.

use crate::progress::correlate::call::Call;
use crate::progress::event::{FilterEvent, Origin};
use crate::progress::filter::Filter;
use crate::progress::ids::CallId;
use crate::progress::intake::answer::RepairedAnswer;
use crate::progress::one_line::one_line;
use crate::progress::verdict::Reason;
use crate::protocol::json;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::terminal::plain;

/// Codes of errors without id that one filter reports to the log, so that a server that sends such errors all the
/// time does not fill the log.
pub(crate) const TOLD_CODES_MAX: usize = 4;

impl Filter {
    /// The verdict on an answer whose id is no id.
    pub(crate) fn answer_without_id(
        &mut self,
        origin: Origin,
        message: &Message,
    ) -> RepairedAnswer {
        let settings = self.settings_of_orphan(origin);
        let is_fault = is_missing(message) && settings.answers.missing_id && !settings.observes();
        let is_strangers = self.topology.has_strangers() && message.result().is_some();
        if !(is_fault || is_strangers) {
            return RepairedAnswer::fallback_stream(message, self.fallback_stream(origin));
        }
        if message.result().is_none() {
            self.tell_of_error(message);
        }
        RepairedAnswer::withheld(Reason::MissingId)
    }

    /// The request that an error without id may answer, because the error came on the stream of a single request.
    pub(crate) fn call_of_error_without_id(
        &self,
        origin: Origin,
        message: &Message,
    ) -> Option<CallId> {
        let is_error = message.kind() == Kind::Response && message.result().is_none();
        let own = self.sole_call_on(origin).filter(|_| is_error && is_missing(message))?;
        let is_open = |call: &&Call| call.task.is_none() && call.answer_repairs().response_id;
        self.correlator.ledger.get(own).filter(is_open).map(|_| own)
    }

    /// Tells the operator of an error that no client gets.
    fn tell_of_error(&mut self, message: &Message) {
        let (told, code) = (&mut self.intake.told_codes, message.error_code());
        if told.contains(&code) || told.len() >= TOLD_CODES_MAX {
            return;
        }
        told.push(code);
        let error = message.error().unwrap_or_default();
        let words = json::member(&error, "message").unwrap_or(error);
        let words = json::decode_str(&words).unwrap_or_else(|| json::lossy(&words));
        let words = plain(&self.policy.call.masks.mask(&words));
        let words = one_line(&words, "");
        self.events.push_back(FilterEvent::UnansweringError(words.into()));
    }
}

/// Whether the id of an answer is missing or null.
fn is_missing(message: &Message) -> bool {
    message.id().is_none_or(|id| *id == *b"null")
}
