//! The end of a task: the server's answer, or the reason for the lack of an answer.

use std::time::Instant;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::progress::clients;
use crate::progress::correlate::mended_body::mended_body;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::DetachedWork;
use crate::progress::detached::tasks::requests::NO_TASK;
use crate::progress::detached::tasks::table::{KeptAnswer, TaskEnd, TaskState, TaskWork};
use crate::progress::event::FilterEvent;
use crate::progress::event::summary::Outcome;
use crate::progress::event::task::{TaskEvent, TaskNews};
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::payload::{Payload, TransmitKind, spliced};
use crate::progress::streams::stream::{Guard, Item, ItemKind};
use crate::progress::verdict::{Repair, Repairs, Verdict};
use crate::protocol::json;
use crate::protocol::jsonrpc::{INVALID_PARAMS, Key, Message, error_answer};

/// The reason in the cancellation of a call whose task has expired.
const EXPIRED: &str = "the time to live of the task is over";

impl DetachedWork {
    /// The answer with its repairs, in memory of its own: it may wait for an hour.
    fn mended_task_answer(
        &self,
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

    /// Whether a task with this answer has failed. VS Code throws the payload of a failed task away, so that for
    /// VS Code a task whose tool reports an error is complete.
    fn is_task_failure(&self, gate: &Gate, answer: &Message) -> bool {
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

    /// Ends a task, and keeps its answer.
    pub(crate) fn close_task(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: &str,
        state: TaskState,
        answer: KeptAnswer,
        event: TaskEvent,
    ) {
        let Some(task) = self.task_mut(id) else { return };
        task.finish(TaskEnd { state, answer });
        task.details.changed = now;
        task.details.asked.clear();
        let news = task.news(event, now);
        gate.calls.events.push_back(FilterEvent::Task(Box::new(news)));
    }

    /// Gives the answer of a task to all requests that wait for it.
    pub(crate) fn answer_waiting(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: &str,
        guard: Option<Guard>,
    ) {
        let Some(task) = self.task_mut(id) else { return };
        for call in std::mem::take(&mut task.details.waiting) {
            let Some(waiting) = gate.calls.open.get(call) else { continue };
            let client_id = waiting.id.client.clone();
            let Some(text) = self.task(id).and_then(|task| task.answer_to(&client_id)) else {
                continue;
            };
            self.answer_waiting_call(gate, now, call, &client_id, text, guard);
            let Some(task) = self.task_mut(id) else { continue };
            if task.fetch() {
                let news = task.news(TaskEvent::Fetched, now);
                gate.calls.events.push_back(FilterEvent::Task(Box::new(news)));
            }
        }
    }

    fn answer_waiting_call(
        &self,
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

    /// Fails the task of an answer that is too large to be kept.
    pub(crate) fn fail_large_task(&mut self, gate: &mut Gate, now: Instant, id: &Key) {
        let Some(task) = self.running_task(id) else { return };
        let (id, call) = (task.details.id.clone(), task.details.call);
        gate.end_call(now, call, Tombstone::Answered, Outcome::Result);
        let why = "the answer is too large to be kept for a task; call the tool without a task";
        let answer = KeptAnswer::None(why.to_owned());
        self.close_task(gate, now, &id, TaskState::Failed, answer, TaskEvent::Failed);
        self.answer_waiting(gate, now, &id, None);
    }

    /// Fails the tasks that still run, because the server has ended.
    pub(crate) fn fail_tasks(&mut self, gate: &mut Gate, now: Instant, why: &str) {
        let running: Vec<String> = self
            .tasks
            .iter()
            .flat_map(|tasks| tasks.working())
            .map(|task| task.details.id.clone())
            .collect();
        for id in running {
            let answer = KeptAnswer::None(why.to_owned());
            self.close_task(gate, now, &id, TaskState::Failed, answer, TaskEvent::Failed);
            self.answer_waiting(gate, now, &id, None);
        }
    }

    /// Forgets the tasks whose time to live is over; the server can stop its work.
    pub(crate) fn expire_tasks(&mut self, gate: &mut Gate, now: Instant) {
        let Some(tasks) = &mut self.tasks else { return };
        for task in tasks.works.take_over(now) {
            if task.is_running() {
                gate.calls.to_server.cancel(&task.server_id, EXPIRED);
                gate.end_call(now, task.details.call, Tombstone::Cancelled, Outcome::TaskEnded);
            }
            if task.is_open() {
                self.note_task_event(gate, &task, TaskEvent::Expired, now);
            }
            self.refuse_waiting(gate, now, &task.details.waiting);
        }
    }

    fn refuse_waiting(&self, gate: &mut Gate, now: Instant, waiting: &[CallId]) {
        for call in waiting {
            let Some(client_id) = gate.calls.open.get(*call).map(|call| call.id.client.clone())
            else {
                continue;
            };
            let text = error_answer(&client_id, INVALID_PARAMS, NO_TASK, None);
            self.answer_waiting_call(gate, now, *call, &client_id, text, None);
        }
    }

    /// Takes the server's answer to a call that runs as a task. Returns false if the answer belongs
    /// to another call.
    pub(crate) fn take_task_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        message: &Message,
        (number, done): (u64, Repairs),
    ) -> bool {
        if !self.offers_tasks() {
            return false;
        }
        let Some(key) = message.id_key() else { return false };
        // An open request with this id goes first: the client may have used the id of the task's
        // request again.
        if gate.calls.open.ledger.by_id(&key).is_some() {
            return false;
        }
        let Some(task) = self.running_task(&key) else { return false };
        let (id, call) = (task.details.id.clone(), task.details.call);
        let mut repairs = done;
        repairs.add(Repair::Task);
        let answer = self.mended_task_answer(gate, call, message, &mut repairs);
        // Before the call ends, because the guard is read from the call.
        let guard = gate.calls.open.guard_of(call, &gate.calls.streams);
        // After the repairs, which need the call: this ends it.
        self.note_answer(gate, now, call, message);
        let room = gate.calls.policy.call.tasks.bytes;
        let bytes = answer.raw().len();
        let has_room = self.tasks.as_mut().is_some_and(|tasks| tasks.works.make_bytes(bytes, room));
        if !has_room || !self.take_kept_room(bytes) {
            let why = format!(
                "the answer of {bytes} bytes has no room (tasks.bytes, server.max_kept_bytes)"
            );
            self.close_task(
                gate,
                now,
                &id,
                TaskState::Failed,
                KeptAnswer::None(why),
                TaskEvent::Failed,
            );
        } else {
            let failed = self.is_task_failure(gate, &answer);
            let state = if failed { TaskState::Failed } else { TaskState::Completed };
            let event = if failed { TaskEvent::Failed } else { TaskEvent::Completed };
            self.close_task(gate, now, &id, state, KeptAnswer::Server(answer), event);
        }
        gate.calls.events.push_verdict(number, Some(call), Verdict::of(repairs));
        self.answer_waiting(gate, now, &id, Some(guard));
        true
    }

    pub(crate) fn note_task_event(
        &self,
        gate: &mut Gate,
        task: &TaskWork,
        event: TaskEvent,
        now: Instant,
    ) {
        gate.calls.events.push_back(FilterEvent::Task(Box::new(task.news(event, now))));
    }

    pub(crate) fn note_refused_task(&self, gate: &mut Gate, tool: Option<&str>, _now: Instant) {
        let tool = tool.unwrap_or_default().to_owned();
        let news = TaskNews { event: TaskEvent::Refused, tool, age: std::time::Duration::ZERO };
        gate.calls.events.push_back(FilterEvent::Task(Box::new(news)));
    }
}
