//! Tasks of 2025-11-25: a token outlives the first answer and dies with the task.

use std::time::Instant;

use crate::progress::correlate::call::Task;
use crate::progress::correlate::correlator::Correlator;
use crate::progress::ids::{CallId, StreamId};
use crate::protocol::jsonrpc::Key;

impl Correlator {
    /// Whether a request of a client stream has become a task that is still open.
    pub fn has_tasks_on(&self, stream: StreamId) -> bool {
        let ledger = &self.ledger;
        let is_task = |id: &CallId| ledger.get(*id).is_some_and(|call| call.task.is_some());
        ledger.on_stream(stream).iter().any(is_task)
    }

    /// Whether a request of a client stream has no answer yet.
    pub(crate) fn has_unanswered_on(&self, stream: StreamId) -> bool {
        let is_open = |id: &CallId| self.get(*id).is_some_and(|call| call.task.is_none());
        self.ledger.on_stream(stream).iter().any(is_open)
    }

    /// Lets a call go on as a task of Milepost's own until `expires`. The server may name the call
    /// by `alias`.
    pub(crate) fn begin_own_task(
        &mut self,
        id: CallId,
        expires: Instant,
        task: Option<Task>,
        alias: Option<&Key>,
    ) {
        self.ledger.continue_as_task(id, expires);
        if let Some(alias) = alias {
            self.ledger.learn(alias, id);
        }
        if let (Some(call), Some(task)) = (self.get_mut(id), task) {
            call.task = Some(task);
        }
        self.ledger.expect_own_tasks();
    }
}
