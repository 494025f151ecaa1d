//! Begins tasks: the client immediately gets a task, and the server gets an ordinary call.

use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::progress::correlate::call::{Task, TaskNotes};
use crate::progress::correlate::draft::CallDraft;
use crate::progress::detached::store::Work;
use crate::progress::detached::tasks::answer::{note, note_refused};
use crate::progress::detached::tasks::table::{OwnTask, TaskTable};
use crate::progress::event::task::TaskEvent;
use crate::progress::gate::state::Gate;
use crate::progress::ids::StreamId;
use crate::progress::payload::{Payload, TransmitKind, spliced, within};
use crate::progress::policy::request_members::with_token_in_meta;
use crate::progress::streams::stream::{Item, ItemKind};
use crate::protocol::json;
use crate::protocol::jsonrpc::{
    INTERNAL_ERROR, INVALID_PARAMS, Key, METHOD_NOT_FOUND, Message, error_answer,
};

/// The shortest time to live of a task. With a shorter time the client could not fetch the answer.
const TTL_MIN: Duration = Duration::from_secs(1);

/// The error code and the reason of a refusal.
type TaskRefusal = (i32, String);

impl TaskTable {
    /// Begins a task, and returns the call for the server.
    pub(crate) fn begin(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        message: &Message,
        (method, tool): (&str, Option<String>),
        mut draft: CallDraft,
    ) -> Payload {
        let client_id = Bytes::copy_from_slice(&draft.id.client);
        let ttl = match self.ttl_for(gate, message, tool.as_deref()) {
            Ok(ttl) => ttl,
            Err((code, why)) => {
                refuse(gate, stream, &client_id, (code, &why), tool.as_deref());
                return Payload::default();
            }
        };
        let Some(id) = self.next_id() else { return Payload::default() };
        let text = json::quote(&id);
        let sent = without_member(message, "task");
        let sent = if draft.token.is_some() { sent } else { with_token_in_meta(&sent, &id) };
        let (server_id, client_key) = (draft.id.server.clone(), Key::read(&client_id));
        // The server gets an ordinary call. Late answers are not needed, because the client of a task can ask for the
        // answer at any time.
        (draft.asks_for_task, draft.signature) = (false, None);
        let has_token = draft.token.is_some();
        let name = tool.clone().unwrap_or_default();
        let Some(call) = gate.enter(now, stream, (method, tool), draft) else {
            let why = "too many requests are open on this upstream";
            refuse(gate, stream, &client_id, (INTERNAL_ERROR, why), Some(&name));
            return Payload::default();
        };
        // Without a token the client asks for progress by the task's id, so the server may report with this id as
        // token.
        let alias = (!has_token).then(|| Key::Text(Bytes::from(id.clone())));
        let notes = Some(Box::new(TaskNotes::new(now)));
        let about = Key::read(&text).map(|id| Task { id, text, notes });
        gate.calls.open.begin_own_task(call, now + ttl, about, alias.as_ref());
        gate.schedule(call);
        let details = OwnTask {
            id,
            call,
            client_id: client_key.unwrap_or_else(|| server_id.clone()),
            tool: name,
            changed: now,
            waiting: Vec::new(),
            asked: Vec::new(),
        };
        let task = Work::new(server_id, now, now + ttl, details);
        let made = format!(r#"{{"task":{}}}"#, task.show(gate, now, |at| self.date(at)));
        note(gate, &task, TaskEvent::Began, now);
        self.works.add(task);
        answer_request(gate, stream, &client_id, &made);
        gate.calls.policy.for_server(&sent)
    }

    /// Returns the time to live of the task that a call asks for, or the reason why the call cannot be a task.
    fn ttl_for(
        &mut self,
        gate: &Gate,
        message: &Message,
        tool: Option<&str>,
    ) -> Result<Duration, TaskRefusal> {
        let params = message.params().unwrap_or_default();
        let wanted = json::member(&params, "task").unwrap_or_default();
        let invalid = |why: &str| Err((INVALID_PARAMS, why.to_owned()));
        // Milepost would remove only one of two equal keys, and JSON readers differ in which one they use. So the
        // request is refused.
        if message.repeats_a_key() || members_named(&params, "task") > 1 {
            return invalid("a member of this request occurs twice");
        }
        if !wanted.starts_with(b"{") {
            return invalid("params.task must be an object, such as {\"ttl\": 60000}");
        }
        let asked = json::member(&wanted, "ttl").filter(|ttl| *ttl != "null");
        let asked = match &asked {
            None => None,
            Some(text) => match json::number(text).filter(|ms| *ms >= 0.0) {
                // Limited, because `from_secs_f64` panics on very large values.
                Some(ms) => Some(Duration::from_secs_f64(ms.min(1e12) / 1e3)),
                None => return invalid("params.task.ttl must be a number of milliseconds"),
            },
        };
        let policy = std::sync::Arc::clone(gate.calls.policy.now());
        let Some(settings) = policy.of(tool).task_settings() else {
            let tool = tool.unwrap_or_default();
            let why = format!("calls of the tool {tool:?} cannot run as tasks");
            return Err((METHOD_NOT_FOUND, why));
        };
        if !self.works.make_room() {
            let why = "too many tasks are open; fetch the results of some, or cancel some";
            return Err((INTERNAL_ERROR, why.to_owned()));
        }
        Ok(asked.map_or(settings.ttl, |asked| asked.min(settings.ttl)).max(TTL_MIN))
    }
}

/// Answers a client's request about tasks with this result.
pub(crate) fn answer_request(gate: &mut Gate, stream: StreamId, id: &Bytes, result: &str) {
    let text = [br#"{"jsonrpc":"2.0","id":"#, &id[..], br#","result":"#, result.as_bytes()];
    let text = Bytes::from([&text.concat()[..], b"}"].concat());
    enqueue_answer(gate, stream, id, text);
}

/// Answers a client's request about tasks with an error.
pub(crate) fn refuse(
    gate: &mut Gate,
    stream: StreamId,
    id: &Bytes,
    (code, why): (i32, &str),
    tool: Option<&str>,
) {
    note_refused(gate, tool);
    enqueue_answer(gate, stream, id, error_answer(id, code, why, None));
}

fn enqueue_answer(gate: &mut Gate, stream: StreamId, id: &Bytes, text: Bytes) {
    let item = Item {
        order: 0,
        kind: ItemKind::Whole(TransmitKind::Answer(Key::read(id))),
        payload: Payload::own(text),
        guards: SmallVec::new(),
        verdicts: SmallVec::new(),
    };
    gate.calls.enqueue_own(stream, item);
}

/// Returns how many members of an object have this name.
fn members_named(object: &Bytes, name: &str) -> usize {
    let is_named = |member: &json::Member| json::key_is(&object[member.key.clone()], name);
    json::Members::new(object).filter(is_named).count()
}

/// Returns a request without the member `name` of its parameters.
fn without_member(message: &Message, name: &str) -> Message {
    let params = message.params().unwrap_or_default();
    let members: Vec<json::Member> = json::Members::new(&params).collect();
    let place = members.iter().position(|one| json::key_is(&params[one.key.clone()], name));
    let (Some(place), Some(at)) = (place, within(message.raw(), &params)) else {
        return message.clone();
    };
    // The range includes one of the commas beside the member.
    let range = match (place.checked_sub(1).map(|before| &members[before]), members.get(place + 1))
    {
        (_, Some(next)) => members[place].key.start..next.key.start,
        (Some(before), None) => before.value.end..members[place].value.end,
        (None, None) => members[place].key.start..members[place].value.end,
    };
    let range = at.start + range.start..at.start + range.end;
    Message::parse(spliced(message, vec![(range, Bytes::new())]).to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_taken_out_wherever_it_stands() {
        for (before, after) in [
            (r#"{"task":{"ttl":1},"name":"a"}"#, r#"{"name":"a"}"#),
            (r#"{"name":"a", "task" : {} , "b":1}"#, r#"{"name":"a", "b":1}"#),
            (r#"{"name":"a" , "task":{}}"#, r#"{"name":"a"}"#),
            (r#"{ "task":{} }"#, r#"{  }"#),
            (r#"{"name":"a"}"#, r#"{"name":"a"}"#),
        ] {
            let request = |params: &str| {
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
            };
            let message = Message::parse(Bytes::from(request(before)));
            assert_eq!(*without_member(&message, "task").raw(), request(after));
        }
    }
}
