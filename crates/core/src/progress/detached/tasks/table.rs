//! The tasks of one connection, and what has been agreed on about tasks.

use std::time::{Duration, Instant};

use crate::progress::correlate::given_names::NameKey;
use crate::progress::detached::tasks::date::rfc_3339;
use crate::progress::event::task::{TaskEvent, TaskNews};
use crate::progress::ids::CallId;
use crate::protocol::jsonrpc::{Key, Message};

/// Tasks of one connection that are remembered. Where a client makes one more, the oldest task whose answer
/// the client has is forgotten; else the client gets an error.
const TASKS_MAX: usize = 256;

/// Requests of a server about one task that wait for the client's answers. A further request does not change
/// the status of the task.
const ASKED_MAX: usize = 64;

/// The prefix of the ids of tasks.
const PREFIX: &str = "mp-";

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskState {
    Working,
    Completed,
    Failed,
    Cancelled,
}

/// An answer that waits for its client.
#[derive(Debug)]
pub(crate) enum KeptAnswer {
    /// The server's, with its repairs, under the id that the server knows.
    Server(Message),
    /// The reason why there is none.
    None(String),
}

/// One task.
#[derive(Debug)]
pub(crate) struct OwnTask {
    pub(crate) id: String,
    /// The call, as long as it runs.
    pub(crate) call: CallId,
    /// The id by which the server knows the call.
    pub(crate) server_id: Key,
    /// The id of the client's request that made the task.
    pub(crate) client_id: Key,
    pub(crate) tool: String,
    pub(crate) began: Instant,
    /// The time of the last change of the state.
    pub(crate) changed: Instant,
    /// The time to live, from the beginning.
    pub(crate) ttl: Duration,
    pub(crate) state: TaskState,
    pub(crate) answer: Option<KeptAnswer>,
    /// Whether the client has had the answer.
    pub(crate) is_fetched: bool,
    /// Requests for the answer that are open.
    pub(crate) waiting: Vec<CallId>,
    /// The server's requests to the client that have no answer yet.
    pub(crate) asked: Vec<Key>,
}

impl OwnTask {
    /// The time at which the task is forgotten.
    pub(crate) fn until(&self) -> Instant {
        self.began + self.ttl
    }

    /// Whether the server works on the task.
    pub(crate) fn is_working(&self) -> bool {
        self.state == TaskState::Working
    }

    /// The event `event` of this task.
    pub(crate) fn news(&self, event: TaskEvent, now: Instant) -> TaskNews {
        let age = now.saturating_duration_since(self.began);
        TaskNews { event, tool: self.tool.clone(), age }
    }
}

/// The source of ids and dates: the core has neither randomness nor a clock.
#[derive(Debug, Clone, Copy)]
struct TaskClock {
    key: NameKey,
    /// A moment, and its milliseconds since 1970.
    moment: (Instant, u64),
}

/// The tasks of one connection.
#[derive(Debug, Default)]
pub(crate) struct TaskTable {
    clock: Option<TaskClock>,
    /// The client has asked for the revision that has tasks of this form.
    pub(crate) is_wanted: bool,
    /// The client has been told that calls may be tasks.
    pub(crate) is_offered: bool,
    /// The client has been told a newer revision than the server's.
    pub(crate) is_lifted: bool,
    tasks: Vec<OwnTask>,
    count: u64,
}

impl TaskTable {
    /// From now on tasks have ids from `key`. `millis`: the time `now` in milliseconds since 1970.
    pub(crate) fn enable(&mut self, now: Instant, key: NameKey, millis: u64) {
        self.clock = Some(TaskClock { key, moment: (now, millis) });
    }

    /// Whether tasks can have ids and dates.
    pub(crate) fn is_enabled(&self) -> bool {
        self.clock.is_some()
    }

    /// The id of the next task.
    pub(crate) fn next_id(&mut self) -> Option<String> {
        let clock = self.clock?;
        self.count += 1;
        Some(format!("{PREFIX}{}", clock.key.unguessable(self.count)))
    }

    /// The date of a moment.
    pub(crate) fn date(&self, at: Instant) -> String {
        let millis = self.clock.map_or(0, |clock| {
            let (moment, millis) = clock.moment;
            let passed = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            let later = millis.saturating_add(passed(at.saturating_duration_since(moment)));
            later.saturating_sub(passed(moment.saturating_duration_since(at)))
        });
        rfc_3339(millis)
    }

    /// Makes room for one more task; false if there is none.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.tasks.len() < TASKS_MAX {
            return true;
        }
        self.forget_fetched()
    }

    pub(crate) fn add(&mut self, task: OwnTask) {
        self.tasks.push(task);
    }

    /// The task of this id.
    pub(crate) fn get(&self, id: &str) -> Option<&OwnTask> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// The task of this id.
    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut OwnTask> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    /// The id of the task whose call the server knows by this id, while the call runs.
    pub(crate) fn running(&self, id: &Key) -> Option<&OwnTask> {
        self.tasks.iter().find(|task| task.is_working() && task.server_id == *id)
    }

    /// The task of a call that runs.
    pub(crate) fn of_call(&mut self, call: CallId) -> Option<&mut OwnTask> {
        self.tasks.iter_mut().find(|task| task.is_working() && task.call == call)
    }

    /// The call that runs because of the client's request of this id.
    pub(crate) fn made_by(&self, id: &Key) -> Option<&OwnTask> {
        self.tasks.iter().rev().find(|task| task.client_id == *id)
    }

    /// Every task that runs.
    pub(crate) fn working(&self) -> impl Iterator<Item = &OwnTask> {
        self.tasks.iter().filter(|task| task.is_working())
    }

    /// Tasks that run, or whose answer waits for its client.
    pub(crate) fn open(&self) -> usize {
        self.tasks.iter().filter(|task| task.is_working() || !task.is_fetched).count()
    }

    /// A request for an answer is given up.
    pub(crate) fn forget_waiting(&mut self, call: CallId) {
        self.tasks.iter_mut().for_each(|task| task.waiting.retain(|waiting| *waiting != call));
    }

    /// Bytes of the answers that wait.
    pub(crate) fn bytes(&self) -> usize {
        let kept = |task: &OwnTask| match &task.answer {
            Some(KeptAnswer::Server(message)) => message.raw().len(),
            _ => 0,
        };
        self.tasks.iter().map(kept).sum()
    }

    /// Forgets the oldest task whose client has had the answer; false if there is none.
    pub(crate) fn forget_fetched(&mut self) -> bool {
        let over = self.tasks.iter().position(|task| task.is_fetched && !task.is_working());
        over.map(|place| self.tasks.remove(place)).is_some()
    }

    /// Takes the tasks whose time to live is over.
    pub(crate) fn take_over(&mut self, now: Instant) -> Vec<OwnTask> {
        if self.next_due().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let tasks = std::mem::take(&mut self.tasks).into_iter();
        let (over, rest) = tasks.partition(|task| task.until() <= now);
        self.tasks = rest;
        over
    }

    /// Whether there is no task.
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The time at which the next task is forgotten.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.tasks.iter().map(OwnTask::until).min()
    }

    /// The server has asked the client of a task something.
    pub(crate) fn note_asked(&mut self, call: CallId, id: Key, now: Instant) {
        if let Some(task) = self.of_call(call).filter(|task| task.asked.len() < ASKED_MAX) {
            task.asked.push(id);
            task.changed = now;
        }
    }

    /// The client has answered a request of the server.
    pub(crate) fn note_client_answer(&mut self, id: &Key, now: Instant) {
        for task in &mut self.tasks {
            if let Some(place) = task.asked.iter().position(|asked| asked == id) {
                task.asked.remove(place);
                task.changed = now;
            }
        }
    }
}
