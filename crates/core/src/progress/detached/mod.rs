//! Work that goes on without the client that asked for it: late answers, and tasks of 2025-11-25. `store` has the states
//! and the bounds of such work; the tasks of 2026-07-28, which the modern face makes, are kept in the same kind of store.
//! How many bytes may be kept besides the limits of the settings, the shell of a filter says: others keep bytes too.

pub(crate) mod answer;
mod arrivals;
mod cancel;
mod clock;
mod enter;
pub(crate) mod late;
pub(crate) mod store;
pub(crate) mod tasks;

use crate::progress::detached::late::calls::LateCalls;
use crate::progress::detached::late::held::HeldCalls;
use crate::progress::detached::tasks::table::{TaskTable, TaskWork};
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::policy::Policy;
use crate::protocol::jsonrpc::Key;

/// The work that goes on without the client that asked for it.
#[derive(Debug)]
pub struct DetachedWork {
    /// Late answers, since the first policy that has some.
    late: Option<Box<LateCalls>>,
    /// Tasks of Milepost's own, if its shell lets calls run as tasks.
    tasks: Option<Box<TaskTable>>,
    /// The server has listed its tools while late answers were off, so that their annotations were
    /// not read. Each tool may be destructive.
    tools_unread: bool,
    /// The message that is read now is a part of a batch, in which no call waits and no task begins.
    pub(crate) in_batch: bool,
    /// Bytes that may be kept in memory besides those that are kept now; the largest number stands for any.
    pub(crate) kept_room: u32,
}

impl DetachedWork {
    pub(crate) fn new(policy: &Policy) -> Self {
        let mut work = Self {
            late: None,
            tasks: None,
            tools_unread: false,
            in_batch: false,
            kept_room: u32::MAX,
        };
        work.follow(policy);
        work
    }

    /// Adds late answers if calls with `policy` may have some. Late answers are never taken away
    /// again, because work that goes on keeps the settings that it began with.
    pub(crate) fn follow(&mut self, policy: &Policy) {
        if policy.has_late() {
            self.late.get_or_insert_default();
        }
    }

    /// The calls that wait for the cancellation of an older call.
    pub(crate) fn held(&self) -> Option<&HeldCalls> {
        self.late.as_ref().map(|late| &late.held)
    }

    fn offers_tasks(&self) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| tasks.is_offered)
    }

    /// The task of this id.
    fn task(&self, id: &str) -> Option<&TaskWork> {
        self.tasks.as_ref()?.get(id)
    }

    /// The id of Milepost's own task whose work is `call`.
    fn own_task_of(&self, call: CallId) -> Option<String> {
        Some(self.tasks.as_ref()?.of_call(call)?.details.id.clone())
    }

    /// The task of this id.
    fn task_mut(&mut self, id: &str) -> Option<&mut TaskWork> {
        self.tasks.as_mut()?.get_mut(id)
    }

    /// The task whose call the server knows by this id, while the call runs.
    pub(crate) fn running_task(&self, id: &Key) -> Option<&TaskWork> {
        self.tasks.as_ref()?.works.running(id)
    }

    /// Tasks of Milepost's own that run, or whose answer waits for its client.
    pub fn own_tasks(&self) -> usize {
        let works = self.tasks.iter().flat_map(|tasks| tasks.works.iter());
        works.filter(|task| task.is_open()).count()
    }

    /// Bytes of the answers that are kept.
    pub fn kept_bytes(&self) -> usize {
        let late = self.late.as_ref().map_or(0, |late| late.bytes());
        late + self.tasks.as_ref().map_or(0, |tasks| tasks.works.bytes())
    }

    /// Whether the next message of the server may be kept.
    pub(crate) fn may_keep(&self, gate: &Gate) -> bool {
        let mut open = gate.calls.iter();
        self.late.as_ref().is_some_and(|late| !late.is_empty())
            || self.tasks.as_ref().is_some_and(|tasks| !tasks.works.is_empty())
            || open.any(|(_, call)| call.signature.is_some())
    }

    /// Sets the number of bytes that may be kept besides the bytes that are kept now.
    pub(crate) fn set_kept_room(&mut self, bytes: usize) {
        self.kept_room = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Reserves bytes for an answer that is to be kept. Returns false if there are not enough.
    pub(crate) fn take_kept_room(&mut self, bytes: usize) -> bool {
        if self.kept_room == u32::MAX {
            return true;
        }
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.kept_room.checked_sub(bytes));
        self.kept_room = left.unwrap_or(self.kept_room);
        left.is_some()
    }
}
