//! Work that continues without the client that asked for it: late answers, and tasks of 2025-11-25. `store` has the
//! states and the limits of this work. The modern face keeps its tasks of 2026-07-28 in the same kind of store. The
//! shell of a filter determines how many bytes may be kept in addition to the limits of the settings, because other
//! filters keep bytes too.

pub(crate) mod answer;
mod arrivals;
pub(crate) mod cancel;
pub(crate) mod clock;
mod kept_room;
pub(crate) mod late;
pub(crate) mod store;
pub(crate) mod tasks;

use crate::progress::detached::kept_room::KeptRoom;
use crate::progress::detached::late::calls::LateCalls;
use crate::progress::detached::late::held::HeldCalls;
use crate::progress::detached::tasks::table::{TaskTable, TaskWork};
use crate::progress::gate::state::Gate;
use crate::progress::ids::StreamId;
use crate::progress::policy::Policy;
use crate::protocol::jsonrpc::Key;

/// The work that continues without the client that requested it.
#[derive(Debug)]
pub struct DetachedWork {
    /// Late answers; set once a policy allows late answers.
    pub(crate) late: Option<Box<LateCalls>>,
    /// Milepost's own tasks, if the filter's shell lets calls run as tasks.
    pub(crate) tasks: Option<Box<TaskTable>>,
    /// Whether the server has listed its tools while late answers were off. Then the tools' annotations were not read.
    tools_unread: bool,
    /// Whether the current message is part of a batch. No call of a batch is held back or begins a task.
    pub(crate) in_batch: bool,
    pub(crate) kept_room: KeptRoom,
}

impl DetachedWork {
    pub(crate) fn new(policy: &Policy) -> Self {
        let mut work = Self {
            late: None,
            tasks: None,
            tools_unread: false,
            in_batch: false,
            kept_room: KeptRoom::default(),
        };
        work.follow(policy);
        work
    }

    /// Enables late answers if `policy` allows them. They are never disabled again, because running work keeps the
    /// settings with which it began.
    pub(crate) fn follow(&mut self, policy: &Policy) {
        if policy.has_late() && self.late.is_none() {
            self.late = Some(Box::new(LateCalls::new(self.tools_unread)));
        }
    }

    /// Returns the calls that wait for the cancellation of an older call.
    pub(crate) fn held(&self) -> Option<&HeldCalls> {
        self.late.as_ref().map(|late| &late.held)
    }

    /// Returns the calls that wait for the cancellation of an older call.
    pub(crate) fn held_mut(&mut self) -> Option<&mut HeldCalls> {
        self.late.as_mut().map(|late| &mut late.held)
    }

    /// Whether the request with this id from this stream is held back. It may go to the server later
    /// ([`Filter::poll_released`](crate::progress::Filter::poll_released)).
    pub fn is_held(&self, stream: StreamId, id: &Key) -> bool {
        self.held().is_some_and(|held| held.has(stream, id))
    }

    /// Returns Milepost's own tasks, if the client knows about them.
    pub(crate) fn offered_tasks(&self) -> Option<&TaskTable> {
        self.tasks.as_deref().filter(|tasks| tasks.offers.is_offered)
    }

    /// Whether requests with this method wait for one of Milepost's own tasks.
    pub(crate) fn waits_for_task(&self, method: &str) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| tasks.answers(method))
    }

    /// Returns the task whose call the server knows by this id, while the call runs.
    pub(crate) fn running_task(&self, id: &Key) -> Option<&TaskWork> {
        self.tasks.as_ref()?.works.running(id)
    }

    /// Returns the number of Milepost's own tasks that run, or whose answer waits for its client.
    pub fn own_tasks(&self) -> usize {
        let works = self.tasks.iter().flat_map(|tasks| tasks.works.iter());
        works.filter(|task| task.is_open()).count()
    }

    /// Returns the number of bytes of the answers that are kept.
    pub fn kept_bytes(&self) -> usize {
        let late = self.late.as_ref().map_or(0, |late| late.bytes());
        late + self.tasks.as_ref().map_or(0, |tasks| tasks.works.bytes())
    }

    /// Whether the next message of the server may have to be kept.
    pub(crate) fn may_keep(&self, gate: &Gate) -> bool {
        let mut open = gate.calls.open.iter();
        self.late.as_ref().is_some_and(|late| !late.is_empty())
            || self.tasks.as_ref().is_some_and(|tasks| !tasks.works.is_empty())
            || open.any(|(_, call)| call.signature.is_some())
    }
}
