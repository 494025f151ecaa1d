//! Ends tasks: with the server's answer, or with the reason why there is no answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::progress::clients;
use crate::progress::correlate::mended_body::mended_body;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::kept_room::KeptRoom;
use crate::progress::detached::tasks::table::{
    KeptAnswer, NO_TASK, TaskEnd, TaskState, TaskTable, TaskWork,
};
use crate::progress::event::FilterEvent;
use crate::progress::event::summary::Outcome;
use crate::progress::event::task::{TaskEvent, TaskNews};
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::payload::{Payload, TransmitKind, spliced};
use crate::progress::streams::stream::{Guard, Item, ItemKind};
use crate::progress::verdict::Repairs;
use crate::protocol::json;
use crate::protocol::jsonrpc::{INVALID_PARAMS, Key, Message, error_answer};

/// The reason for cancelling a call at the server after its task has expired.
const EXPIRED: &str = "the time to live of the task is over";

impl TaskTable {
    /// Ends a task, and keeps its answer.
    pub(crate) fn close(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: &str,
        state: TaskState,
        answer: KeptAnswer,
        event: TaskEvent,
    ) {
        let Some(task) = self.get_mut(id) else { return };
        task.finish(TaskEnd { state, answer });
        task.details.changed = now;
        task.details.asked.clear();
        let news = task.news(event, now);
        gate.calls.events.push_back(FilterEvent::Task(Box::new(news)));
    }

    /// Answers all requests that wait for the result of a task.
    pub(crate) fn answer_waiting(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: &str,
        guard: Option<Guard>,
    ) {
        let Some(task) = self.get_mut(id) else { return };
        for call in std::mem::take(&mut task.details.waiting) {
            let Some(waiting) = gate.calls.open.get(call) else { continue };
            let client_id = waiting.id.client.clone();
            let Some(text) = self.get(id).and_then(|task| task.answer_to(&client_id)) else {
                continue;
            };
            answer_waiting_call(gate, now, call, &client_id, text, guard);
            let Some(task) = self.get_mut(id) else { continue };
            if task.fetch() {
                let news = task.news(TaskEvent::Fetched, now);
                gate.calls.events.push_back(FilterEvent::Task(Box::new(news)));
            }
        }
    }

    /// Fails a task because its answer is too large to be kept.
    pub(crate) fn fail_large(&mut self, gate: &mut Gate, now: Instant, id: &Key) {
        let Some(task) = self.works.running(id) else { return };
        let (id, call) = (task.details.id.clone(), task.details.call);
        gate.end_call(now, call, Tombstone::Answered, Outcome::Result);
        let why = "the answer is too large to be kept for a task; call the tool without a task";
        let answer = KeptAnswer::None(why.to_owned());
        self.close(gate, now, &id, TaskState::Failed, answer, TaskEvent::Failed);
        self.answer_waiting(gate, now, &id, None);
    }

    /// Fails the tasks that still run, because the server has ended.
    pub(crate) fn fail_all(&mut self, gate: &mut Gate, now: Instant, why: &str) {
        let running: Vec<String> = self.working().map(|task| task.details.id.clone()).collect();
        for id in running {
            let answer = KeptAnswer::None(why.to_owned());
            self.close(gate, now, &id, TaskState::Failed, answer, TaskEvent::Failed);
            self.answer_waiting(gate, now, &id, None);
        }
    }

    /// Forgets the tasks whose time to live has passed, and cancels their calls at the server.
    pub(crate) fn expire(&mut self, gate: &mut Gate, now: Instant) {
        for task in self.works.take_over(now) {
            if task.is_running() {
                gate.calls.to_server.cancel(&task.server_id, EXPIRED);
                gate.end_call(now, task.details.call, Tombstone::Cancelled, Outcome::TaskEnded);
            }
            if task.is_open() {
                note(gate, &task, TaskEvent::Expired, now);
            }
            refuse_waiting(gate, now, &task.details.waiting);
        }
    }

    /// Returns the id and the call of the task that a server's answer ends; `None` if the answer is for another call.
    pub(crate) fn of_answer(&self, gate: &Gate, message: &Message) -> Option<(String, CallId)> {
        let key = message.id_key().filter(|_| self.offers.is_offered)?;
        // An open request with this id takes precedence: the client may have reused the id of the task's request.
        if gate.calls.open.ledger.by_id(&key).is_some() {
            return None;
        }
        let task = self.works.running(&key)?;
        Some((task.details.id.clone(), task.details.call))
    }

    /// Ends a task with the server's answer, and keeps the answer if there is room.
    pub(crate) fn keep_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: &str,
        answer: Message,
        kept_room: &mut KeptRoom,
    ) {
        let room = gate.calls.policy.call.tasks.bytes;
        let bytes = answer.raw().len();
        if !self.works.make_bytes(bytes, room) || !kept_room.take(bytes) {
            let why = format!(
                "the answer of {bytes} bytes has no room (tasks.bytes, server.max_kept_bytes)"
            );
            self.close(gate, now, id, TaskState::Failed, KeptAnswer::None(why), TaskEvent::Failed);
        } else {
            let failed = is_failure(gate, &answer);
            let state = if failed { TaskState::Failed } else { TaskState::Completed };
            let event = if failed { TaskEvent::Failed } else { TaskEvent::Completed };
            self.close(gate, now, id, state, KeptAnswer::Server(answer), event);
        }
    }
}

/// Returns the repaired answer as a copy, because it may wait for an hour and a slice would keep a whole read buffer.
pub(crate) fn mended_answer(
    gate: &Gate,
    call: CallId,
    message: &Message,
    repairs: &mut Repairs,
) -> Message {
    let whole = |payload: Payload| Message::parse(Bytes::from(payload.to_bytes().to_vec()));
    let Some(call) = gate.calls.open.get(call) else {
        return whole(message.raw().clone().into());
    };
    let switches = call.answer_repairs();
    let body = mended_body(message, call, switches, repairs);
    let pieces = body.map(|body| spliced(message, vec![body]));
    whole(pieces.map_or_else(|| message.raw().clone(), |all| all.to_bytes()).into())
}

/// Whether a task with this answer has failed. VS Code discards the result of a failed task, so for VS Code a task
/// whose tool reports an error counts as completed.
fn is_failure(gate: &Gate, answer: &Message) -> bool {
    let Some(result) = answer.result().filter(|_| answer.error_code().is_none()) else {
        return true;
    };
    let keeps_failures = !gate
        .calls
        .handshake
        .client
        .as_ref()
        .is_some_and(|client| clients::drops_failed_tasks(client));
    keeps_failures && json::member(&result, "isError").is_some_and(|said| said == "true")
}

fn answer_waiting_call(
    gate: &mut Gate,
    now: Instant,
    call: CallId,
    client_id: &Bytes,
    text: Bytes,
    guard: Option<Guard>,
) {
    let Some(stream) = gate.calls.open.get(call).map(|call| call.stream) else { return };
    gate.end_call(now, call, Tombstone::Answered, Outcome::Result);
    let item = Item {
        order: 0,
        kind: ItemKind::Whole(TransmitKind::Answer(Key::read(client_id))),
        payload: Payload::own(text),
        guards: guard.into_iter().collect(),
        verdicts: SmallVec::new(),
    };
    gate.calls.enqueue_own(stream, item);
}

fn refuse_waiting(gate: &mut Gate, now: Instant, waiting: &[CallId]) {
    for call in waiting {
        let Some(client_id) = gate.calls.open.get(*call).map(|call| call.id.client.clone()) else {
            continue;
        };
        let text = error_answer(&client_id, INVALID_PARAMS, NO_TASK, None);
        answer_waiting_call(gate, now, *call, &client_id, text, None);
    }
}

/// Reports an event of a task.
pub(super) fn note(gate: &mut Gate, task: &TaskWork, event: TaskEvent, now: Instant) {
    gate.calls.events.push_back(FilterEvent::Task(Box::new(task.news(event, now))));
}

/// Reports a call that cannot run as a task.
pub(super) fn note_refused(gate: &mut Gate, tool: Option<&str>) {
    let tool = tool.unwrap_or_default().to_owned();
    let news = TaskNews { event: TaskEvent::Refused, tool, age: Duration::ZERO };
    gate.calls.events.push_back(FilterEvent::Task(Box::new(news)));
}
