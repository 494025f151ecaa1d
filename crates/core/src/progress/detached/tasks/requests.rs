//! Handles the clients' requests about tasks: `tasks/get`, `tasks/result` and `tasks/cancel`.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::open_calls::only;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::tasks::begin::{answer_request, refuse};
use crate::progress::detached::tasks::table::{KeptAnswer, NO_TASK, TaskState, TaskTable};
use crate::progress::event::Origin;
use crate::progress::event::summary::Outcome;
use crate::progress::event::task::TaskEvent;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::Payload;
use crate::protocol::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, Key, METHOD_NOT_FOUND, Message};
use crate::protocol::{json, mcp};

/// The reason in the cancellation that is sent to the server.
const CANCELLED: &str = "the client has cancelled the task";

impl TaskTable {
    /// Handles a request about tasks, and returns the message for the server.
    pub(crate) fn request(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        message: &Message,
        (method, tool): (&str, Option<String>),
        draft: CallDraft,
    ) -> Payload {
        if method == mcp::TOOLS_CALL {
            return self.begin(gate, now, stream, message, (method, tool), draft);
        }
        let client_id = Bytes::copy_from_slice(&draft.id.client);
        let id = message.params().and_then(|params| json::member(&params, "taskId"));
        let id = id.as_ref().and_then(|id| json::decode_str(id));
        let task = id.as_ref().and_then(|id| self.get(id));
        let refused = match (method, &id, task) {
            (mcp::TASKS_GET | mcp::TASKS_RESULT | mcp::TASKS_CANCEL, None, _) => {
                Some((INVALID_PARAMS, "params.taskId must be a string".to_owned()))
            }
            (mcp::TASKS_GET | mcp::TASKS_RESULT | mcp::TASKS_CANCEL, _, None) => {
                Some((INVALID_PARAMS, NO_TASK.to_owned()))
            }
            // MCP 2025-11-25, Tasks: cancelling a task that has ended is refused with -32602.
            (mcp::TASKS_CANCEL, _, Some(task)) if !task.is_running() => {
                let why = format!("the task is over already, and is {}", task.state().name());
                Some((INVALID_PARAMS, why))
            }
            (mcp::TASKS_GET | mcp::TASKS_RESULT | mcp::TASKS_CANCEL, ..) => None,
            _ => Some((METHOD_NOT_FOUND, format!("this server has no method {method:?}"))),
        };
        if let Some((code, why)) = refused {
            refuse(gate, stream, &client_id, (code, &why), None);
            return Payload::default();
        }
        let id = id.unwrap_or_default().into_owned();
        match method {
            mcp::TASKS_RESULT => self.wait_for(gate, now, stream, &id, draft),
            mcp::TASKS_CANCEL => self.cancel(gate, now, &id, CANCELLED, Outcome::Cancelled),
            _ => {}
        }
        if method != mcp::TASKS_RESULT
            && let Some(task) = self.get(&id)
        {
            let shown = task.show(gate, now, |at| self.date(at));
            answer_request(gate, stream, &client_id, &shown);
        }
        Payload::default()
    }

    /// Whether Milepost itself answers requests of this method. They wait for a task.
    pub(crate) fn answers(&self, method: &str) -> bool {
        self.offers.is_offered && method == mcp::TASKS_RESULT
    }

    /// Opens the call of a client that waits for a task's answer.
    fn wait_for(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        id: &str,
        mut draft: CallDraft,
    ) {
        let client_id = Bytes::copy_from_slice(&draft.id.client);
        (draft.token, draft.signature) = (None, None);
        let Some(call) = gate.enter(now, stream, (mcp::TASKS_RESULT, None), draft) else {
            let why = "too many requests are open on this upstream";
            return refuse(gate, stream, &client_id, (INTERNAL_ERROR, why), None);
        };
        let Some(task) = self.get_mut(id) else { return };
        task.details.waiting.push(call);
        if !task.is_running() {
            self.answer_waiting(gate, now, id, None);
        }
    }

    /// Ends a request that waits for a task's answer, because its client gives the request up. Returns false if the
    /// request does not wait for a task.
    pub(crate) fn stop_waiting(&mut self, gate: &mut Gate, now: Instant, call: CallId) -> bool {
        let has_waited = self.forget_waiting(gate, call);
        if has_waited {
            gate.end_call(now, call, Tombstone::Cancelled, Outcome::Cancelled);
        }
        has_waited
    }

    /// Stops a request from waiting for a task's answer. Returns false if the request does not wait for a task.
    pub(crate) fn forget_waiting(&mut self, gate: &Gate, call: CallId) -> bool {
        let method = gate.calls.open.get(call).map(|call| &*call.method);
        if !method.is_some_and(|method| self.answers(method)) {
            return false;
        }
        for task in self.works.iter_mut() {
            task.details.waiting.retain(|waiting| *waiting != call);
        }
        true
    }

    /// Cancels a task at the server, with the reason `why`.
    pub(crate) fn cancel(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: &str,
        why: &str,
        outcome: Outcome,
    ) {
        let Some(task) = self.get(id) else { return };
        let (call, server_id) = (task.details.call, task.server_id.clone());
        gate.calls.to_server.cancel(&server_id, why);
        gate.end_call(now, call, Tombstone::Cancelled, outcome);
        let answer = KeptAnswer::None(why.to_owned());
        self.close(gate, now, id, TaskState::Cancelled, answer, TaskEvent::Cancelled);
        // A cancelled task counts as fetched, so that it is the first to be forgotten.
        if let Some(task) = self.get_mut(id) {
            task.fetch();
        }
        self.answer_waiting(gate, now, id, None);
    }

    /// Finds the task that a request of the server is about. Returns the task, and the request with the task's id
    /// added, for the stream on which the task's client waits.
    pub(crate) fn place_question(
        &mut self,
        gate: &Gate,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Option<(CallId, (Option<StreamId>, Payload))> {
        let call = self.asked_by_server(gate, origin, message)?;
        let payload = self.of_call(call)?.related_request(message)?;
        let stream =
            self.waiting_stream(gate, call).or_else(|| gate.calls.streams.common_session_stream());
        if let Some(id) = message.id_key() {
            self.note_asked(call, id, now);
        }
        Some((call, (stream, payload)))
    }

    /// Whether a request of the server is about one of Milepost's own tasks.
    pub(crate) fn is_asked(&self, gate: &Gate, origin: Origin, message: &Message) -> bool {
        self.asked_by_server(gate, origin, message).is_some()
    }

    /// Returns the task that a request of the server is about; `None` if several tasks are possible.
    fn asked_by_server(&self, gate: &Gate, origin: Origin, message: &Message) -> Option<CallId> {
        // `ping` does not ask a person, so it does not set the task to `input_required`.
        if !self.offers.is_offered || message.method().as_deref() == Some(mcp::PING) {
            return None;
        }
        let of_stream = gate.calls.open.sole_call_on(origin, &gate.calls.streams);
        let only = || {
            let calls = gate.calls.open.active(|call| call.is_tool_call());
            only(calls).ok()
        };
        let call = of_stream.or_else(only)?;
        let task = gate.calls.open.get(call)?.task.as_ref()?;
        task.notes.as_ref().map(|_| call)
    }

    /// Returns the stream on which a client waits for the task of a call.
    fn waiting_stream(&self, gate: &Gate, call: CallId) -> Option<StreamId> {
        let task = self.of_call(call)?;
        let waiting = task.details.waiting.iter().filter_map(|id| gate.calls.open.get(*id));
        waiting.map(|call| call.stream).find(|stream| gate.calls.streams.has_stream(*stream))
    }

    /// Whether this request of the client began a task. The id of such a request cannot be cancelled any more.
    pub(crate) fn has_made(&self, id: &Key) -> bool {
        self.offers.is_offered && self.made_by(id).is_some()
    }
}

/// Whether a request is about Milepost's own tasks.
pub(crate) fn is_for_tasks(method: &str, message: &Message) -> bool {
    let params = || message.params().unwrap_or_default();
    let begins = || method == mcp::TOOLS_CALL && json::member(&params(), "task").is_some();
    method.starts_with(mcp::TASKS) || begins()
}
