//! The tasks of one connection, and what was negotiated about tasks.

use std::time::{Duration, Instant};

use crate::progress::correlate::given_names::NameKey;
use crate::progress::detached::store::{KeptBytes, Work, WorkStore};
use crate::progress::detached::tasks::date::rfc_3339;
use crate::progress::detached::tasks::offer::TaskOffers;
use crate::progress::event::task::{TaskEvent, TaskNews};
use crate::progress::ids::CallId;
use crate::protocol::jsonrpc::{Key, Message};

/// Limit of a server's requests about one task that wait for the client's answers. A further request does not change
/// the status of the task.
const ASKED_MAX: usize = 64;

/// The prefix of the ids of tasks.
const PREFIX: &str = "mp-";

/// The error for a task that is unknown or forgotten, or that belongs to another client.
pub(crate) const NO_TASK: &str = "there is no such task: a task ends with its time to live, and only the client \
                                  that began a task can ask for the task";

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskState {
    Working,
    Completed,
    Failed,
    Cancelled,
}

/// A task's answer that is kept for the client.
#[derive(Debug)]
pub(crate) enum KeptAnswer {
    /// The server's answer with its repairs, under the id that the server knows.
    Server(Message),
    /// The reason why the task has no answer.
    None(String),
}

/// The state in which a task ended, and its answer.
#[derive(Debug)]
pub(crate) struct TaskEnd {
    pub(crate) state: TaskState,
    pub(crate) answer: KeptAnswer,
}

impl KeptBytes for TaskEnd {
    fn kept_bytes(&self) -> usize {
        match &self.answer {
            KeptAnswer::Server(message) => message.kept_bytes(),
            KeptAnswer::None(_) => 0,
        }
    }
}

/// The data of one task.
#[derive(Debug)]
pub(crate) struct OwnTask {
    pub(crate) id: String,
    /// The call of the task, as long as the call runs.
    pub(crate) call: CallId,
    /// The id of the client's request that made the task.
    pub(crate) client_id: Key,
    pub(crate) tool: String,
    /// The time of the last change of the state.
    pub(crate) changed: Instant,
    /// The open requests of clients that wait for the task's answer.
    pub(crate) waiting: Vec<CallId>,
    /// The server's requests to the client that have no answer yet.
    pub(crate) asked: Vec<Key>,
}

/// A task with its state.
pub(crate) type TaskWork = Work<OwnTask, TaskEnd>;

impl TaskWork {
    /// The state of the task.
    pub(crate) fn state(&self) -> TaskState {
        self.answer().map_or(TaskState::Working, |end| end.state)
    }

    /// Returns the report of an event of this task.
    pub(crate) fn news(&self, event: TaskEvent, now: Instant) -> TaskNews {
        TaskNews { event, tool: self.details.tool.clone(), age: self.age(now) }
    }
}

/// The source of task ids and dates, because the core has neither randomness nor a clock.
#[derive(Debug, Clone, Copy)]
struct TaskClock {
    key: NameKey,
    /// A time, and its milliseconds since 1970.
    moment: (Instant, u64),
}

/// The tasks of one connection.
#[derive(Debug, Default)]
pub(crate) struct TaskTable {
    clock: Option<TaskClock>,
    pub(crate) offers: TaskOffers,
    pub(crate) works: WorkStore<OwnTask, TaskEnd>,
    count: u64,
}

impl TaskTable {
    /// Lets calls run as Milepost's own tasks, if the settings allow that. The ids of the tasks are derived from `key`;
    /// `millis` is the time `now` in milliseconds since 1970.
    pub(crate) fn enable(&mut self, now: Instant, key: NameKey, millis: u64) {
        self.clock = Some(TaskClock { key, moment: (now, millis) });
    }

    /// Returns the id of the next task.
    pub(crate) fn next_id(&mut self) -> Option<String> {
        let clock = self.clock?;
        self.count += 1;
        // A task id is enough to ask for the answer, so it must not be guessable.
        Some(format!("{PREFIX}{}", clock.key.unguessable(self.count)))
    }

    /// Returns the date of a time.
    pub(crate) fn date(&self, at: Instant) -> String {
        let millis = self.clock.map_or(0, |clock| {
            let (moment, millis) = clock.moment;
            let passed = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            // `at` may be earlier than the time at which the clock was set.
            let later = millis.saturating_add(passed(at.saturating_duration_since(moment)));
            later.saturating_sub(passed(moment.saturating_duration_since(at)))
        });
        rfc_3339(millis)
    }

    /// Returns the task with this id.
    pub(crate) fn get(&self, id: &str) -> Option<&TaskWork> {
        self.works.iter().find(|task| task.details.id == id)
    }

    /// Returns the task with this id.
    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut TaskWork> {
        self.works.iter_mut().find(|task| task.details.id == id)
    }

    /// Returns the running task of a call.
    pub(crate) fn of_call(&self, call: CallId) -> Option<&TaskWork> {
        self.working().find(|task| task.details.call == call)
    }

    /// Returns the task that the client's request with this id began.
    pub(crate) fn made_by(&self, id: &Key) -> Option<&TaskWork> {
        // The newest task counts, because clients reuse ids.
        self.works.iter().rev().find(|task| task.details.client_id == *id)
    }

    /// Returns all running tasks.
    pub(crate) fn working(&self) -> impl Iterator<Item = &TaskWork> {
        self.works.iter().filter(|task| task.is_running())
    }

    /// Notes a request of the server about a task.
    pub(crate) fn note_asked(&mut self, call: CallId, id: Key, now: Instant) {
        let mut tasks = self.works.iter_mut().filter(|task| task.is_running());
        let task = tasks.find(|task| task.details.call == call).map(|task| &mut task.details);
        if let Some(task) = task.filter(|task| task.asked.len() < ASKED_MAX) {
            task.asked.push(id);
            task.changed = now;
        }
    }

    /// Notes that the client has answered a request of the server.
    pub(crate) fn note_client_answer(&mut self, id: &Key, now: Instant) {
        for task in self.works.iter_mut().map(|task| &mut task.details) {
            if let Some(place) = task.asked.iter().position(|asked| asked == id) {
                task.asked.remove(place);
                task.changed = now;
            }
        }
    }
}
