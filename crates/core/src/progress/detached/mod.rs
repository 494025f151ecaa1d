//! Work that goes on without the client that asked for it: late answers, and tasks of 2025-11-25. `store` has the states
//! and the bounds of such work; the tasks of 2026-07-28, which the modern face makes, are kept in the same kind of store.
//! How many bytes may be kept besides the limits of the settings, the shell of a filter says: others keep bytes too.

pub(crate) mod answer;
mod clock;
mod enter;
pub(crate) mod late;
mod server_answer;
pub(crate) mod store;
pub(crate) mod tasks;

use crate::progress::detached::late::calls::LateCalls;
use crate::progress::detached::tasks::table::TaskTable;
use crate::progress::gate::state::Gate;

/// The work that goes on without the client that asked for it.
#[derive(Debug)]
pub struct DetachedWork {
    pub(crate) late: LateCalls,
    pub(crate) tasks: TaskTable,
    /// Bytes that may be kept in memory besides those that are kept now; the largest number stands for any.
    pub(crate) kept_room: u32,
}

impl DetachedWork {
    pub(crate) fn new() -> Self {
        Self { late: LateCalls::default(), tasks: TaskTable::default(), kept_room: u32::MAX }
    }

    /// Bytes of the answers that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.late.bytes() + self.tasks.works.bytes()
    }

    /// Whether the next message of the server may be kept.
    pub(crate) fn may_keep(&self, gate: &Gate) -> bool {
        let mut open = gate.calls.iter();
        !self.late.is_empty()
            || !self.tasks.works.is_empty()
            || open.any(|(_, call)| call.signature.is_some())
    }

    /// So many bytes may be kept besides those that are kept now.
    pub(crate) fn set_kept_room(&mut self, bytes: usize) {
        self.kept_room = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Takes room for an answer that is to be kept; false if there is none.
    pub(crate) fn take_kept_room(&mut self, bytes: usize) -> bool {
        if self.kept_room == u32::MAX {
            return true;
        }
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.kept_room.checked_sub(bytes));
        self.kept_room = left.unwrap_or(self.kept_room);
        left.is_some()
    }
}
