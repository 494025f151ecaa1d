//! Answers that wait until the response that contained them has ended, and errors without an id.

use std::collections::BTreeMap;

use crate::progress::correlate::place::is_missing;
use crate::progress::correlate::repaired_answer::RepairedAnswer;
use crate::progress::event::{FilterEvent, Origin};
use crate::progress::gate::state::Gate;
use crate::progress::ids::StreamId;
use crate::progress::one_line::one_line;
use crate::progress::verdict::{Reason, Repairs};
use crate::protocol::json;
use crate::protocol::jsonrpc::Message;
use crate::protocol::terminal::plain;

/// An answer that fits no open request, and arrived on the stream of an open request.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) number: u64,
    pub(crate) message: Message,
    /// The repairs that were already made.
    pub(crate) done: Repairs,
}

/// Answers that fit no open request.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// Answers that wait until the response that contained them has ended: the newest of each response.
    pub(crate) waiting: BTreeMap<StreamId, Orphan>,
    /// The codes of the errors without id that have been reported to the operator.
    told_codes: Vec<Option<i32>>,
}

/// Limit of the error codes without an id that one filter reports to the log. A server that keeps sending such errors
/// must not fill the log.
pub(crate) const TOLD_CODES_MAX: usize = 4;

/// Decides on an answer that has waited and is now known not to be the answer to the request of its stream.
pub(crate) fn release_orphan(gate: &mut Gate, origin: Origin, orphan: &Orphan) {
    let judged = match orphan.message.id_key() {
        Some(key) => gate.calls.answer_to_nobody(origin, &key, &orphan.message),
        None => answer_without_id(gate, origin, &orphan.message),
    };
    gate.calls.send_answer(judged, orphan.number, orphan.done);
}

/// Removes and returns the answer that waits until the response on this stream has ended.
pub(crate) fn take_orphan(gate: &mut Gate, on: StreamId) -> Option<Orphan> {
    gate.orphans.as_mut()?.waiting.remove(&on)
}

/// Releases the answer that waits on a stream whose request has been answered, or needs no answer.
pub(crate) fn release_orphans_on(gate: &mut Gate, on: StreamId) {
    if let Some(orphan) = take_orphan(gate, on) {
        release_orphan(gate, Origin::Stream(on), &orphan);
    }
}

/// Decides about an answer whose id is missing, null, or neither a string nor a number.
pub(crate) fn answer_without_id(
    gate: &mut Gate,
    origin: Origin,
    message: &Message,
) -> RepairedAnswer {
    let settings = gate.calls.settings_of_orphan(origin);
    // Many servers answer `notifications/initialized` with an error whose id is null. No client can use such an error,
    // and some clients disconnect because of it.
    let is_fault = is_missing(message) && settings.answers.missing_id && !settings.observes();
    let is_strangers = gate.calls.streams.topology.has_strangers() && message.result().is_some();
    if !(is_fault || is_strangers) {
        return RepairedAnswer::fallback_stream(message, gate.calls.fallback_stream(origin));
    }
    if message.result().is_none() {
        tell_of_error(gate, message);
    }
    RepairedAnswer::withheld(Reason::MissingId)
}

/// Reports an error that no client gets to the operator, once for each code.
pub(crate) fn tell_of_error(gate: &mut Gate, message: &Message) {
    let told = &mut gate.orphans.get_or_insert_default().told_codes;
    let code = message.error_code();
    if told.contains(&code) || told.len() >= TOLD_CODES_MAX {
        return;
    }
    told.push(code);
    let error = message.error().unwrap_or_default();
    let words = json::member(&error, "message").unwrap_or(error);
    let words = json::decode_str(&words).unwrap_or_else(|| json::lossy(&words));
    // The text comes from the server and is written to a log and a terminal, so secrets, control characters and line
    // breaks are removed.
    let words = plain(&gate.calls.policy.call.masks.mask(&words));
    let words = one_line(&words, "");
    gate.calls.events.push_back(FilterEvent::UnansweringError(words.into()));
}
