//! A request of a client enters: its call opens, under the name that the server knows it by.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::call::{Call, Resumption, SendHistory, ServerReports};
use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::DetachedWork;
use crate::progress::event::FilterEvent;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, MappedId, StreamId};
use crate::progress::payload::{Payload, spliced, within};
use crate::progress::policy::Mode;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp;

impl DetachedWork {
    /// Gives the request an id and a token of Milepost's own, in the places of the client's.
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
        draft.id.translated = !gate.calls.topology.has_strangers();
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
            // Replaced even if the argument is not a valid token: a lenient server could read
            // another client's token in it.
            splices.retain(|(place, _)| *place != within(raw, &text));
            splices.push((within(raw, &text), copy.to_json()));
        }
        let asked = gate.calls.policy.members_for(message, tool.as_deref(), draft.token.as_ref());
        splices.extend(asked.into_iter().map(|(place, new)| (Some(place), new)));
        let id = draft.id.client.clone();
        let Some(call) = self.enter(gate, now, stream, method, tool, draft) else {
            // Without an entry the answer could not find its client.
            gate.calls.refuse(stream, &id, "too many requests are open on this upstream", None);
            return Payload::default();
        };
        if self.late.is_some() {
            self.plan_late(gate, now, call);
        }
        let splices = splices.into_iter().filter_map(|(place, new)| Some((place?, new))).collect();
        spliced(message, splices).to_bytes().into()
    }

    /// Whether the server may still answer another request under the id of this one, or report on another
    /// request under its token. Some hosted clients hold several conversations in one session and give every
    /// request the same id.
    pub(crate) fn repeats_names(&self, gate: &Gate, stream: StreamId, draft: &CallDraft) -> bool {
        let id = &draft.id.server;
        // The client has an answer to these requests, or needs none. The server still works on them.
        if self.late.as_ref().is_some_and(|late| late.works.running(id).is_some())
            || self.running_task(id).is_some()
        {
            return true;
        }
        if !gate.calls.topology.finds_answers_by_id() {
            return false;
        }
        let ledger = &gate.calls.ledger;
        let is_elsewhere =
            |call: &CallId| ledger.get(*call).is_some_and(|call| call.stream != stream);
        // The Python SDK answers a cancelled request with an error, so a server may still answer
        // the old request under this id.
        ledger.all_by_id(id).iter().any(is_elsewhere)
            || ledger.was_id(id) == Some(Tombstone::Cancelled)
            || draft
                .token
                .as_ref()
                .is_some_and(|token| ledger.all_by_token(&token.server).iter().any(is_elsewhere))
    }

    /// Notes that the server sends its messages about the requests in `message`, which a client has
    /// just sent on the stream `client`, on the stream `upstream`, whose number must not be that of
    /// a client stream. Messages on it come from `Origin::Stream(upstream)` then, and messages on
    /// an upstream stream that pairs with no request from
    /// [`Origin::Shared`](crate::progress::Origin::Shared).
    pub(crate) fn pair(
        &self,
        gate: &mut Gate,
        client: StreamId,
        message: &Message,
        upstream: StreamId,
    ) {
        gate.calls.topology.pair();
        match message.kind() {
            Kind::Request => {
                gate.calls.pair_request(client, message, upstream);
                let task = message.id_key().and_then(|id| self.tasks.as_ref()?.made_by(&id));
                if let Some(call) =
                    task.filter(|task| task.is_running()).map(|task| task.details.call)
                {
                    gate.calls.pair(call, upstream);
                }
            }
            Kind::Batch => {
                for element in message.elements().filter(|one| one.kind() == Kind::Request) {
                    gate.calls.pair_request(client, &element, upstream);
                }
            }
            _ => {}
        }
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
        if gate.calls.topology.has_strangers() || self.repeats_names(gate, stream, &draft) {
            return self.map_ids(gate, now, stream, message, (method, tool), draft);
        }
        if let Some(id) = self.enter(gate, now, stream, method, tool, draft)
            && self.late.is_some()
        {
            self.plan_late(gate, now, id);
        }
        gate.calls.for_server(message)
    }

    pub(crate) fn enter(
        &self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        method: &str,
        tool: Option<String>,
        draft: CallDraft,
    ) -> Option<CallId> {
        let settings = gate.calls.policy.of(tool.as_deref());
        let timeout = settings.call_timeout.filter(|_| settings.mode == Mode::Full);
        let expires = timeout.map(|timeout| now + timeout);
        // Copies: a call may be open for hours, and would keep a whole read buffer from being freed.
        let own =
            |name: MappedId| MappedId { client: Bytes::copy_from_slice(&name.client), ..name };
        let token = draft.token.as_ref();
        let copy = gate.calls.policy.copy_of(method, tool.as_deref(), token);
        let copy = copy.filter(|copy| token.is_some_and(|token| token.server != *copy));
        let shadow = gate.calls.topology.keeps_shadows();
        let id = gate.calls.ledger.open(Call {
            shadow,
            is_recorded: false,
            stream,
            resumption: Resumption::None,
            principal: gate.calls.streams.principal_of(stream),
            policy: Arc::clone(gate.calls.policy.now()),
            paired: None,
            id: own(draft.id),
            token: draft.token.map(own),
            method: mcp::owned_method(method),
            tool,
            revision: draft.revision,
            lacks_token: draft.lacks_token,
            client: draft.client,
            origin: draft.origin,
            opened: now,
            asks_for_task: draft.asks_for_task,
            task: None,
            about_task: draft.about_task,
            meter: crate::progress::correlate::meter::Meter::default(),
            pending: crate::progress::correlate::pending::PendingQueue::default(),
            sent: SendHistory::new(now),
            reports: ServerReports::default(),
            wake: None,
            // The filter that serves a shadow ends it. `tasks/result` waits as long as its task
            // lives.
            expires: expires.filter(|_| !shadow && !self.waits_for_task(method)),
            clock: None,
            account: crate::progress::event::summary::CallStats::default(),
            error_code: None,
            cancellation: None,
            signature: draft.signature,
            is_joined: false,
            attempts: 1,
        })?;
        if let Some(copy) = copy {
            // The server may report under the copy, which has another type than the token.
            gate.calls.ledger.learn(&copy, id);
        }
        if !shadow {
            gate.calls.events.push_back(FilterEvent::Opened(id));
        }
        gate.schedule(id);
        Some(id)
    }

    /// Whether requests of this method wait for a task of Milepost's own.
    pub(crate) fn waits_for_task(&self, method: &str) -> bool {
        self.offers_tasks() && method == mcp::TASKS_RESULT
    }
}
