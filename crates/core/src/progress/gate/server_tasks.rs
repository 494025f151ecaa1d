//! Tasks of 2025-11-25 that the server runs. The call of a task continues after its first answer, and ends with the
//! task.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::progress::correlate::call::{Call, Task};
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::summary::Outcome;
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::{json, mcp};

/// Limit of the time for which a task is remembered, even if its time to live is missing or longer.
const TASK_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The error code for an unknown task (MCP 2025-11-25, Tasks).
const INVALID_PARAMS: &[u8] = b"-32602";

/// Turns a call whose answer is a `CreateTaskResult` into a task. The token of the call stays valid. Returns false if
/// `task` has no id, or has already ended.
pub(crate) fn becomes_task(gate: &mut Gate, now: Instant, id: CallId, task: &Bytes) -> bool {
    let Some(text) = json::member(task, "taskId") else { return false };
    let Some(key) = Key::read(&text) else { return false };
    // A task that has ended sends no more progress, so its call ends with this answer.
    if is_over(task) {
        return false;
    }
    let ttl = json::member(task, "ttl").and_then(|ttl| json::number(&ttl));
    // The unit is milliseconds (MCP 2025-11-25, Tasks). Clamped, because `from_secs_f64` panics
    // on negative and very large values.
    let ttl = ttl.map_or(TASK_MAX, |ms| Duration::from_secs_f64(ms.clamp(0.0, 1e9) / 1e3));
    gate.calls.open.continue_as_task(id, now + ttl.min(TASK_MAX));
    let open = gate.calls.open.get(id);
    let keeps_distance = open.is_some_and(|call| {
        gate.calls.streams.pacing_of(call.stream, call.settings()).keeps_distance()
    });
    if let Some(call) = gate.calls.open.get_mut(id) {
        call.task = Some(Task { id: key, text, notes: None });
        // Waiting progress is written after the answer. If it were written directly before, the answer would come
        // without the pause that its client needs.
        if keeps_distance {
            call.pending.go_last();
        }
    }
    gate.schedule(id);
    true
}

/// Notes an answer about tasks, which may show that a task has ended.
pub(crate) fn note_task_answer(gate: &mut Gate, now: Instant, id: CallId, message: &Message) {
    let Some(call) = gate.calls.open.get(id) else { return };
    let method = call.method.clone();
    if &*method == mcp::TASKS_LIST {
        let Some(tasks) = message.result().and_then(|result| json::member(&result, "tasks")) else {
            return;
        };
        for task in json::elements(&tasks).map(|(found, _)| found).unwrap_or_default() {
            note_task(gate, now, &tasks.slice(task));
        }
        return;
    }
    // `tasks/result` is answered only when the task has ended. An unknown task counts as ended too.
    let asked = call.about_task.clone();
    let unknown = message.error().and_then(|error| json::member(&error, "code"));
    let over = &*method == mcp::TASKS_RESULT || unknown.is_some_and(|c| *c == *INVALID_PARAMS);
    match (asked, over) {
        (Some(task), true) => end_task(gate, now, &task),
        _ => {
            if let Some(result) = message.result() {
                note_task(gate, now, &result);
            }
        }
    }
}

/// Ends a task if the server describes it as ended.
pub(crate) fn note_task(gate: &mut Gate, now: Instant, task: &Bytes) {
    let id = json::member(task, "taskId").and_then(|id| Key::read(&id));
    if let Some(id) = id.filter(|_| is_over(task)) {
        end_task(gate, now, &id);
    }
}

/// Ends all tasks, because another filter of the session has received their end.
pub(crate) fn end_tasks(gate: &mut Gate, now: Instant) {
    let tasks = gate.calls.open.iter().filter(|(_, call)| call.task.is_some());
    let tasks: Vec<CallId> = tasks.map(|(id, _)| id).collect();
    for id in tasks {
        gate.end_call(now, id, Tombstone::Answered, Outcome::TaskEnded);
    }
}

pub(crate) fn end_task(gate: &mut Gate, now: Instant, task: &Key) {
    let is_meant = |call: &Call| call.task.as_ref().is_some_and(|own| own.id == *task);
    let found = gate.calls.open.iter().find(|(_, call)| is_meant(call)).map(|(id, _)| id);
    if let Some(id) = found {
        gate.end_call(now, id, Tombstone::Answered, Outcome::TaskEnded);
    }
}

fn is_over(task: &Bytes) -> bool {
    let status = json::member(task, "status");
    let status = status.as_ref().and_then(|status| json::decode_str(status));
    matches!(status.as_deref(), Some("completed" | "failed" | "cancelled"))
}
