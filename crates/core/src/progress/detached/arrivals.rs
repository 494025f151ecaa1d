//! Passes each arriving message to the part that handles it. Work that continues without its client is asked first
//! whether the message is meant for it.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::DetachedWork;
use crate::progress::detached::tasks::requests::is_for_tasks;
use crate::progress::event::Origin;
use crate::progress::gate::questions::{end_question, note_question};
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, MappedId, StreamId};
use crate::progress::payload::{Payload, spliced, within};
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp;

impl DetachedWork {
    /// Handles a request of a client, and returns the message for the server. The request may be about Milepost's own
    /// tasks, or may ask for work that is already running.
    pub(crate) fn enter_request(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        message: &Message,
        (method, tool): (&str, Option<String>),
        mut draft: CallDraft,
    ) -> Payload {
        // Done first, because a call that asks for a task becomes a task and does not join other work.
        let is_own = self.offered_tasks().is_some() && !self.in_batch;
        let tasks = self.tasks.as_mut().filter(|_| is_own && is_for_tasks(method, message));
        if let Some(tasks) = tasks {
            return tasks.request(gate, now, stream, message, (method, tool), draft);
        }
        if self.late.is_some() && method == mcp::TOOLS_CALL {
            let joined = self.join_late(gate, now, stream, message, tool.as_deref(), draft);
            let Some(other) = joined else { return Payload::default() };
            draft = other;
        }
        self.enter_sent(gate, now, stream, message, (method, tool), draft)
    }

    /// Opens the call of a request that goes to the server, and returns the message for the server.
    pub(crate) fn enter_sent(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        message: &Message,
        (method, tool): (&str, Option<String>),
        draft: CallDraft,
    ) -> Payload {
        if gate.calls.streams.topology.has_strangers() || self.repeats_names(gate, stream, &draft) {
            return self.map_ids(gate, now, stream, message, (method, tool), draft);
        }
        if let Some(id) = gate.enter(now, stream, (method, tool), draft)
            && let Some(late) = &mut self.late
        {
            late.plan(gate, now, id);
        }
        gate.calls.policy.for_server(message)
    }

    /// Replaces the client's id and token in the request by Milepost's own.
    pub(crate) fn map_ids(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        message: &Message,
        (method, tool): (&str, Option<String>),
        mut draft: CallDraft,
    ) -> Payload {
        let key = gate.calls.give_name();
        let bare = gate.calls.policy.without_token(message, tool.as_deref(), draft.token.as_ref());
        let message = bare.as_ref().unwrap_or(message);
        let raw = message.raw();
        let mut splices = vec![(message.id_range(), key.to_json())];
        draft.id.server = key.clone();
        draft.id.translated = !gate.calls.streams.topology.has_strangers();
        let in_arguments = gate.calls.policy.token_in_arguments(message, tool.as_deref());
        draft.token = draft.token.or_else(|| {
            let client = in_arguments.clone()?;
            Key::read(&client).map(|token| MappedId::same(client, token))
        });
        if let Some(token) = &mut draft.token {
            token.server = gate.calls.policy.own_token(tool.as_deref(), key);
            token.translated = true;
            splices.push((within(raw, &token.client), token.server.to_json()));
        }
        let copy = gate.calls.policy.copy_of(method, tool.as_deref(), draft.token.as_ref());
        if let (Some(text), Some(copy)) = (in_arguments, copy) {
            // Replaced even if the argument is not a valid token, because a lenient server could take it for another
            // client's token.
            splices.retain(|(place, _)| *place != within(raw, &text));
            splices.push((within(raw, &text), copy.to_json()));
        }
        let asked = gate.calls.policy.members_for(message, tool.as_deref(), draft.token.as_ref());
        splices.extend(asked.into_iter().map(|(place, new)| (Some(place), new)));
        let id = draft.id.client.clone();
        let Some(call) = gate.enter(now, stream, (method, tool), draft) else {
            // Without an entry for the request, its answer could not be sent to its client.
            gate.calls.refuse(stream, &id, "too many requests are open on this upstream", None);
            return Payload::default();
        };
        if let Some(late) = &mut self.late {
            late.plan(gate, now, call);
        }
        let splices = splices.into_iter().filter_map(|(place, new)| Some((place?, new))).collect();
        spliced(message, splices).to_bytes().into()
    }

    /// Whether the server may still answer another request with the id of this request, or report on another request
    /// with its token. Some hosted clients run several conversations in one session and give every request the same id.
    pub(crate) fn repeats_names(&self, gate: &Gate, stream: StreamId, draft: &CallDraft) -> bool {
        let id = &draft.id.server;
        // The server still works on these requests, although their clients already have an answer or need none.
        if self.late.as_ref().is_some_and(|late| late.works.running(id).is_some())
            || self.running_task(id).is_some()
        {
            return true;
        }
        if !gate.calls.streams.topology.finds_answers_by_id() {
            return false;
        }
        let (open, ledger) = (&gate.calls.open, &gate.calls.open.ledger);
        let is_elsewhere =
            |call: &CallId| open.get(*call).is_some_and(|call| call.stream != stream);
        // The Python SDK answers a cancelled request with an error, so a server may still answer
        // the old request under this id.
        ledger.all_by_id(id).iter().any(is_elsewhere)
            || ledger.was_id(id) == Some(Tombstone::Cancelled)
            || draft
                .token
                .as_ref()
                .is_some_and(|token| ledger.all_by_token(&token.server).iter().any(is_elsewhere))
    }

    /// Notes that the server sends its messages about the requests in `message` on the stream `upstream`. The client
    /// has just sent `message` on the stream `client`. The number of `upstream` must not be the number of a client
    /// stream. Pass messages on it with `Origin::Stream(upstream)`, and messages on a stream that pairs with no request
    /// with [`Origin::Shared`].
    pub(crate) fn pair(
        &self,
        gate: &mut Gate,
        client: StreamId,
        message: &Message,
        upstream: StreamId,
    ) {
        gate.calls.streams.topology.pair();
        match message.kind() {
            Kind::Request => {
                gate.calls.open.pair_request(client, message, upstream);
                let task = message.id_key().and_then(|id| self.tasks.as_ref()?.made_by(&id));
                if let Some(call) =
                    task.filter(|task| task.is_running()).map(|task| task.details.call)
                {
                    gate.calls.open.pair(call, upstream);
                }
            }
            Kind::Batch => {
                for element in message.elements().filter(|one| one.kind() == Kind::Request) {
                    gate.calls.open.pair_request(client, &element, upstream);
                }
            }
            _ => {}
        }
    }

    /// Ends all work that waits for the server, because the server has ended. Calls that are held back are opened, so
    /// that they end together with the other open calls.
    pub(crate) fn server_gone(&mut self, gate: &mut Gate, now: Instant, why: &str) {
        if let Some(late) = &mut self.late {
            late.drop_all(gate, now);
        }
        if let Some(tasks) = &mut self.tasks {
            tasks.fail_all(gate, now, why);
        }
        if let Some(held) = self.held_mut() {
            // Afterwards the caller ends all open calls with an error, including these.
            held.enter_all(gate, now);
        }
    }

    /// Learns from `initialize` whether the client knows tasks.
    pub(crate) fn learn_client(&mut self, gate: &Gate, params: &Bytes) {
        if let Some(tasks) = &mut self.tasks {
            tasks.offers.note_client(gate, params);
        }
    }

    /// Handles an answer of the server for the work or the open call that waits for it.
    pub(crate) fn answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        origin: Origin,
        message: &Message,
        number: u64,
        done: Repairs,
    ) {
        if self.takes_answer(gate, now, origin, message, (number, done)) {
            return;
        }
        let judged = self.repair_answer(gate, now, origin, message, done);
        gate.calls.send_answer(judged, number, done);
    }

    /// Handles an answer for which no client waits: it belongs to work that continues without its client, to one of
    /// Milepost's own tasks, or possibly to the request of its stream. Returns false for any other answer.
    pub(crate) fn takes_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        origin: Origin,
        message: &Message,
        (number, done): (u64, Repairs),
    ) -> bool {
        // Asked first, because an answer to work whose client has disconnected matches no open request, and would
        // otherwise be treated as an orphan.
        let room = &mut self.kept_room;
        self.late.as_mut().is_some_and(|late| late.take_answer(gate, now, message, number, room))
            || self.tasks.is_some() && self.take_task_answer(gate, now, message, (number, done))
            || self.keep_orphan(gate, origin, message, number, done)
    }

    /// Forwards a request of the server. A request about one of Milepost's own tasks gets the id of the task, and goes
    /// to the stream on which the task's client waits.
    pub(crate) fn server_request(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        origin: Origin,
        message: &Message,
        number: u64,
        mut done: Repairs,
    ) {
        let mut placed = gate.calls.destination_of(origin, message);
        let mut about = gate.calls.open.sole_call_on(origin, &gate.calls.streams);
        if let Some(tasks) = &mut self.tasks
            && let Some((call, place)) = tasks.place_question(gate, now, origin, message)
        {
            (placed, about) = (Ok(place), Some(call));
            done.add(Repair::Task);
        }
        let has_strangers = gate.calls.streams.topology.has_strangers();
        match &placed {
            Ok((Some(on), _)) if has_strangers => {
                note_question(gate, now, origin, message, Some(*on));
            }
            Ok(_) if !has_strangers => note_question(gate, now, origin, message, None),
            _ => {}
        }
        gate.calls.forward(placed, (number, about), message, done);
    }

    /// Notes that the client has answered a request of the server, so that the call or task of that request continues.
    pub(crate) fn note_client_answer(&mut self, gate: &mut Gate, now: Instant, message: &Message) {
        if let Some(id) = message.id_key().filter(|_| !gate.asked.is_empty()) {
            end_question(gate, now, &id);
        }
        if let Some(tasks) = self.tasks.as_mut().filter(|tasks| tasks.offers.is_offered)
            && let Some(id) = message.id_key()
        {
            tasks.note_client_answer(&id, now);
        }
    }
}
