//! The tasks of one connection, and what was negotiated about tasks.

use std::time::{Duration, Instant};

use crate::progress::correlate::given_names::NameKey;
use crate::progress::detached::store::{KeptBytes, Work, WorkStore};
use crate::progress::detached::tasks::date::rfc_3339;
use crate::progress::detached::tasks::offer::TaskOffers;
use crate::progress::event::task::{TaskEvent, TaskNews};
use crate::progress::ids::CallId;
use crate::protocol::jsonrpc::{Key, Message};

/// Maximum number of a server's requests about one task that wait for the client's answers. A further request does not
/// change the status of the task.
const ASKED_MAX: usize = 64;

/// The prefix of the ids of tasks.
const PREFIX: &str = "mp-";

/// The error for a task that is unknown or forgotten, or belongs to another client.
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

/// An answer that waits for its client.
#[derive(Debug)]
pub(crate) enum KeptAnswer {
    /// The server's, with its repairs, under the id that the server knows.
    Server(Message),
    /// The reason why there is none.
    None(String),
}

/// The end of a task.
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

/// The state of one task.
#[derive(Debug)]
pub(crate) struct OwnTask {
    pub(crate) id: String,
    /// The call, as long as it runs.
    pub(crate) call: CallId,
    /// The id of the client's request that made the task.
    pub(crate) client_id: Key,
    pub(crate) tool: String,
    /// The time of the last change of the state.
    pub(crate) changed: Instant,
    /// Requests for the answer that are open.
    pub(crate) waiting: Vec<CallId>,
    /// The server's requests to the client that have no answer yet.
    pub(crate) asked: Vec<Key>,
}

/// One task.
pub(crate) type TaskWork = Work<OwnTask, TaskEnd>;

impl TaskWork {
    /// The state of the task.
    pub(crate) fn state(&self) -> TaskState {
        self.answer().map_or(TaskState::Working, |end| end.state)
    }

    /// The event `event` of this task.
    pub(crate) fn news(&self, event: TaskEvent, now: Instant) -> TaskNews {
        TaskNews { event, tool: self.details.tool.clone(), age: self.age(now) }
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
    pub(crate) offers: TaskOffers,
    pub(crate) works: WorkStore<OwnTask, TaskEnd>,
    count: u64,
}

impl TaskTable {
    /// Lets calls run as Milepost's own tasks, if the settings say so. The ids of the tasks are derived from `key`;
    /// `millis` is the time `now` in milliseconds since 1970.
    pub(crate) fn enable(&mut self, now: Instant, key: NameKey, millis: u64) {
        self.clock = Some(TaskClock { key, moment: (now, millis) });
    }

    /// The id of the next task.
    pub(crate) fn next_id(&mut self) -> Option<String> {
        let clock = self.clock?;
        self.count += 1;
        // A task id is enough to ask for the answer, so it must not be guessable.
        Some(format!("{PREFIX}{}", clock.key.unguessable(self.count)))
    }

    /// The date of a moment.
    pub(crate) fn date(&self, at: Instant) -> String {
        let millis = self.clock.map_or(0, |clock| {
            let (moment, millis) = clock.moment;
            let passed = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            // `at` may lie before the moment at which the clock was set.
            let later = millis.saturating_add(passed(at.saturating_duration_since(moment)));
            later.saturating_sub(passed(moment.saturating_duration_since(at)))
        });
        rfc_3339(millis)
    }

    /// The task of this id.
    pub(crate) fn get(&self, id: &str) -> Option<&TaskWork> {
        self.works.iter().find(|task| task.details.id == id)
    }

    /// The task of this id.
    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut TaskWork> {
        self.works.iter_mut().find(|task| task.details.id == id)
    }

    /// The task of a call that runs.
    pub(crate) fn of_call(&self, call: CallId) -> Option<&TaskWork> {
        self.working().find(|task| task.details.call == call)
    }

    /// The task that the client's request of this id made.
    pub(crate) fn made_by(&self, id: &Key) -> Option<&TaskWork> {
        // The newest, because clients reuse ids.
        self.works.iter().rev().find(|task| task.details.client_id == *id)
    }

    /// Every task that runs.
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
