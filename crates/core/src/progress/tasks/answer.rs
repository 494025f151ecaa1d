//! The end of a task: the server's answer, or the reason why there is none.

use std::time::Instant;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::progress::clients;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::summary::Outcome;
use crate::progress::event::task::TaskEvent;
use crate::progress::filter::Filter;
use crate::progress::gate::stream::{Guard, Item, ItemKind};
use crate::progress::intake::mended_body::mended_body;
use crate::progress::payload::{Payload, TransmitKind, spliced};
use crate::progress::tasks::requests::NO_TASK;
use crate::progress::tasks::table::{KeptAnswer, OwnTask, TaskState};
use crate::progress::verdict::{Repair, Repairs, Verdict};
use crate::protocol::json;
use crate::protocol::jsonrpc::{INVALID_PARAMS, Key, Message, error_answer};

/// The reason that the server is given when nobody came for the answer of a task.
const EXPIRED: &str = "the time to live of the task is over";

impl Filter {
    /// Takes the server's answer to a call that runs as a task. False if the answer is for anybody else.
    pub(crate) fn take_task_answer(
        &mut self,
        now: Instant,
        message: &Message,
        (number, done): (u64, Repairs),
    ) -> bool {
        if !self.own_tasks.is_offered {
            return false;
        }
        let Some(key) = message.id_key() else { return false };
        if self.correlator.ledger.by_id(&key).is_some() {
            return false;
        }
        let Some(task) = self.own_tasks.running(&key) else { return false };
        let (id, call) = (task.id.clone(), task.call);
        let mut repairs = done;
        repairs.add(Repair::Task);
        let answer = self.mended_task_answer(call, message, &mut repairs);
        let guard = self.guard_of(call);
        self.note_answer(now, call, message);
        let room = self.policy.call.tasks.bytes;
        while self.own_tasks.bytes() + answer.raw().len() > room && self.own_tasks.forget_fetched()
        {
        }
        let bytes = answer.raw().len();
        if self.own_tasks.bytes() + bytes > room || !self.take_kept_room(bytes) {
            let why = format!(
                "the answer of {bytes} bytes has no room (tasks.bytes, server.max_kept_bytes)"
            );
            self.close_task(now, &id, TaskState::Failed, KeptAnswer::None(why), TaskEvent::Failed);
        } else {
            let failed = self.is_task_failure(&answer);
            let state = if failed { TaskState::Failed } else { TaskState::Completed };
            let event = if failed { TaskEvent::Failed } else { TaskEvent::Completed };
            self.close_task(now, &id, state, KeptAnswer::Server(answer), event);
        }
        self.record(number, Some(call), Verdict::of(repairs));
        self.answer_waiting(now, &id, Some(guard));
        true
    }

    /// The answer with its repairs, in memory of its own: it may wait for an hour.
    fn mended_task_answer(
        &self,
        call: crate::progress::CallId,
        message: &Message,
        repairs: &mut Repairs,
    ) -> Message {
        let whole = |payload: Payload| Message::parse(Bytes::from(payload.to_bytes().to_vec()));
        let Some(call) = self.correlator.ledger.get(call) else {
            return whole(message.raw().clone().into());
        };
        let switches = call.answer_repairs();
        let body = mended_body(message, call, switches, repairs);
        let pieces = body.map(|body| spliced(message, vec![body]));
        whole(pieces.map_or_else(|| message.raw().clone(), |all| all.to_bytes()).into())
    }

    /// Whether a task with this answer has failed. VS Code throws the payload of a failed task away, so that for
    /// VS Code a task whose tool reports an error is complete.
    fn is_task_failure(&self, answer: &Message) -> bool {
        let Some(result) = answer.result().filter(|_| answer.error_code().is_none()) else {
            return true;
        };
        let keeps_failures =
            !self.client.as_ref().is_some_and(|client| clients::drops_failed_tasks(client));
        keeps_failures && json::member(&result, "isError").is_some_and(|said| said == "true")
    }

    /// A task is over.
    pub(crate) fn close_task(
        &mut self,
        now: Instant,
        id: &str,
        state: TaskState,
        answer: KeptAnswer,
        event: TaskEvent,
    ) {
        let Some(task) = self.own_tasks.get_mut(id) else { return };
        (task.state, task.changed, task.answer) = (state, now, Some(answer));
        task.asked.clear();
        let news = task.news(event, now);
        self.events.push_back(crate::progress::FilterEvent::Task(Box::new(news)));
    }

    /// Gives the answer of a task to all requests that wait for it.
    pub(crate) fn answer_waiting(&mut self, now: Instant, id: &str, guard: Option<Guard>) {
        let Some(task) = self.own_tasks.get_mut(id) else { return };
        for call in std::mem::take(&mut task.waiting) {
            let Some(waiting) = self.correlator.ledger.get(call) else { continue };
            let client_id = waiting.id.client.clone();
            let Some(text) = self.own_tasks.get(id).and_then(|task| task.answer_to(&client_id))
            else {
                continue;
            };
            self.answer_waiting_call(now, call, &client_id, text, guard);
            let Some(task) = self.own_tasks.get_mut(id) else { continue };
            if !std::mem::replace(&mut task.is_fetched, true) {
                let news = task.news(TaskEvent::Fetched, now);
                self.events.push_back(crate::progress::FilterEvent::Task(Box::new(news)));
            }
        }
    }

    fn answer_waiting_call(
        &mut self,
        now: Instant,
        call: crate::progress::CallId,
        client_id: &Bytes,
        text: Bytes,
        guard: Option<Guard>,
    ) {
        let Some(stream) = self.correlator.ledger.get(call).map(|call| call.stream) else { return };
        self.end_call(now, call, Tombstone::Answered, Outcome::Result);
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(Key::read(client_id))),
            payload: Payload::own(text),
            guards: guard.into_iter().collect(),
            verdicts: SmallVec::new(),
        };
        self.enqueue_own(stream, item);
    }

    /// The answer to a call that runs as a task has come, and cannot be kept.
    pub(crate) fn fail_large_task(&mut self, now: Instant, id: &Key) {
        let Some(task) = self.own_tasks.running(id) else { return };
        let (id, call) = (task.id.clone(), task.call);
        self.end_call(now, call, Tombstone::Answered, Outcome::Result);
        let why = "the answer is too large to be kept for a task; call the tool without a task";
        let answer = KeptAnswer::None(why.to_owned());
        self.close_task(now, &id, TaskState::Failed, answer, TaskEvent::Failed);
        self.answer_waiting(now, &id, None);
    }

    /// The server has ended: tasks that run get no answer any more.
    pub(crate) fn fail_tasks(&mut self, now: Instant, why: &str) {
        let running: Vec<String> = self.own_tasks.working().map(|task| task.id.clone()).collect();
        for id in running {
            let answer = KeptAnswer::None(why.to_owned());
            self.close_task(now, &id, TaskState::Failed, answer, TaskEvent::Failed);
            self.answer_waiting(now, &id, None);
        }
    }

    /// Forgets the tasks whose time to live is over; the server can stop its work.
    pub(crate) fn expire_tasks(&mut self, now: Instant) {
        for task in self.own_tasks.take_over(now) {
            if task.is_working() {
                self.cancel_at_server(&task.server_id, EXPIRED);
                self.end_call(now, task.call, Tombstone::Cancelled, Outcome::TaskEnded);
            }
            if !task.is_fetched {
                self.note_task_event(&task, TaskEvent::Expired, now);
            }
            self.refuse_waiting(now, &task);
        }
    }

    fn refuse_waiting(&mut self, now: Instant, task: &OwnTask) {
        for call in &task.waiting {
            let Some(client_id) =
                self.correlator.ledger.get(*call).map(|call| call.id.client.clone())
            else {
                continue;
            };
            let text = error_answer(&client_id, INVALID_PARAMS, NO_TASK, None);
            self.answer_waiting_call(now, *call, &client_id, text, None);
        }
    }
}
