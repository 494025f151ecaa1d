//! Cancels calls for an operator: the server gets a cancellation, and the client an error.

use std::sync::Arc;
use std::time::Instant;

use crate::progress::detached::tasks::table::TaskTable;
use crate::progress::event::operator_cancel::{CancelResult, OperatorCancel};
use crate::progress::event::summary::Outcome;
use crate::progress::gate::state::Gate;
use crate::protocol::mcp;

/// Ends a call in the same way as a time limit. Later messages of the server about the call are withheld. `tasks`:
/// Milepost's own tasks, if calls may run as tasks.
pub(crate) fn cancel_by_operator(
    gate: &mut Gate,
    tasks: Option<&mut TaskTable>,
    now: Instant,
    asked: &Arc<OperatorCancel>,
) -> CancelResult {
    let id = asked.call;
    // Another filter serves the call of a shadow, and answers its client.
    let Some(call) = gate.calls.open.get_mut(id).filter(|call| !call.shadow) else {
        return CancelResult::Over;
    };
    if call.settings().observes() {
        return CancelResult::Observed;
    }
    if &*call.method == mcp::INITIALIZE {
        return CancelResult::Begins;
    }
    let is_own_task = call.is_own_task();
    if call.task.is_some() && !is_own_task {
        return CancelResult::IsTask;
    }
    call.cancellation = Some(Arc::clone(asked));
    let why = asked.words();
    if is_own_task {
        let Some(tasks) = tasks else { return CancelResult::Over };
        let task = tasks.of_call(id).map(|task| task.details.id.clone());
        let Some(task) = task else { return CancelResult::Over };
        tasks.cancel(gate, now, &task, &why, Outcome::CancelledByOperator);
        return CancelResult::Cancelled;
    }
    // The server does not know a request that waits for one of Milepost's own tasks.
    if tasks.is_none_or(|tasks| !tasks.forget_waiting(gate, id)) {
        gate.calls.send_cancelled(id, &why);
    }
    gate.answer_with_error(now, id, &why, None, Outcome::CancelledByOperator);
    CancelResult::Cancelled
}
