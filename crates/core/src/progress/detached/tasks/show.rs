//! Shows a task to its client.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::call::TaskNotes;
use crate::progress::detached::tasks::offer::first_member;
use crate::progress::detached::tasks::table::{KeptAnswer, TaskEnd, TaskState, TaskWork};
use crate::progress::dialect::Fields;
use crate::progress::gate::heartbeat;
use crate::progress::gate::state::Gate;
use crate::progress::one_line::one_line;
use crate::progress::payload::{Payload, spliced};
use crate::progress::policy::CallPolicy;
use crate::protocol::json;
use crate::protocol::jsonrpc::{Message, own_error};
use crate::protocol::mcp::META_RELATED_TASK;

/// The time after which a client should ask for the state of a task again, in milliseconds.
const POLL_INTERVAL_MS: u64 = 2000;

impl TaskState {
    /// Returns the specification's word for the state.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl TaskWork {
    /// Returns the specification's word for the state of the task.
    fn status(&self) -> &'static str {
        let asks = self.is_running() && !self.details.asked.is_empty();
        if asks { "input_required" } else { self.state().name() }
    }

    /// Returns the task's answer, for the client's request with this id; `None` if there is no answer yet.
    pub(crate) fn answer_to(&self, client_id: &Bytes) -> Option<Bytes> {
        let message = match &self.answer()?.answer {
            KeptAnswer::Server(message) => message,
            KeptAnswer::None(why) => return Some(own_error(client_id, why, None)),
        };
        let place = message.id_range()?;
        let mut splices = vec![(place, client_id.clone())];
        // MCP 2025-11-25, Tasks: the result of `tasks/result` names its task in `_meta`.
        splices.extend(message.result().and_then(|result| self.related(message, &result)));
        Some(spliced(message, splices).to_bytes())
    }

    /// Returns the member that names the task, to be inserted into `_meta` of the result or parameters of `message`.
    fn related(
        &self,
        message: &Message,
        result: &Bytes,
    ) -> Option<(std::ops::Range<usize>, Bytes)> {
        let own = self.related_member();
        match json::member(result, "_meta") {
            Some(meta) if meta.starts_with(b"{") => first_member(message.raw(), &meta, &own),
            // A `_meta` that is not an object cannot take the name.
            Some(_) => None,
            None => first_member(message.raw(), result, &format!(r#""_meta":{{{own}}}"#)),
        }
    }

    /// Returns a request of the server with the id of its task added; `None` if the id cannot be added.
    pub(crate) fn related_request(&self, message: &Message) -> Option<Payload> {
        let splice = self.related(message, &message.params()?)?;
        Some(spliced(message, vec![splice]))
    }

    /// Returns the task as JSON. `date` writes a time as text.
    pub(crate) fn show(
        &self,
        gate: &Gate,
        now: Instant,
        date: impl Fn(Instant) -> String,
    ) -> String {
        let task = &self.details;
        let call = gate.calls.open.get(task.call).filter(|_| self.is_running());
        let notes = call.and_then(|call| call.task.as_ref()?.notes.as_deref());
        let updated = notes.map_or(task.changed, |notes| notes.at.max(task.changed));
        let words = self.words(gate, now, notes);
        format!(
            r#"{{"taskId":"{}","status":"{}","statusMessage":{},"createdAt":"{}","lastUpdatedAt":"{}","ttl":{},"pollInterval":{POLL_INTERVAL_MS}}}"#,
            task.id,
            self.status(),
            String::from_utf8_lossy(&json::quote(&words)),
            date(self.began),
            date(updated),
            self.ttl().as_millis(),
        )
    }

    /// Returns the status of a task as text for people.
    fn words(&self, gate: &Gate, now: Instant, notes: Option<&TaskNotes>) -> String {
        let task = &self.details;
        let took = || heartbeat::spell(task.changed.saturating_duration_since(self.began));
        if let Some(TaskEnd { state, answer }) = self.answer() {
            return match answer {
                _ if *state == TaskState::Completed => format!("done in {}", took()),
                KeptAnswer::None(why) => one_line(why, ""),
                KeptAnswer::Server(message) => {
                    let said = message.error().and_then(|error| json::member(&error, "message"));
                    let said = said.as_ref().and_then(|said| json::decode_str(said));
                    let said = said.as_deref().unwrap_or("the tool reports an error");
                    one_line(said, "")
                }
            };
        }
        if !task.asked.is_empty() {
            return one_line(&task.tool, ": the server waits for an answer");
        }
        let running = self.age(now);
        let heard = gate.calls.received_at.map_or(self.began, |heard| heard.max(self.began));
        let silence = now.saturating_duration_since(heard);
        let last = notes.map(TaskNotes::words).unwrap_or_default();
        let last = Some(&*last).filter(|words| !words.is_empty());
        match gate.calls.policy.learned.usual(&task.tool) {
            Some(usual) => {
                let expected = usual.expected(running);
                heartbeat::estimate(&task.tool, last, running, silence, expected)
            }
            None => heartbeat::text(&task.tool, last, running, silence),
        }
    }

    fn related_member(&self) -> String {
        format!(r#""{META_RELATED_TASK}":{{"taskId":"{}"}}"#, self.details.id)
    }
}

/// Returns the text and the value of a notification as the status of a task shows them. `settings` are those of the
/// task's call. `None` if no dialect of the settings reads the notification.
pub fn task_words(settings: &CallPolicy, message: &Message, now: Instant) -> Option<String> {
    let method = message.method()?;
    let fields = Fields::read(&message.params()?)?;
    let mut dialects = settings.dialects.iter().filter(|dialect| dialect.reads(&method));
    let report = dialects.find_map(|dialect| dialect.read(&method, message, &fields))?;
    let mut notes = TaskNotes::new(now);
    notes.note(&report, report.figure.as_ref(), now);
    Some(notes.words()).filter(|words| !words.is_empty())
}
