//! Client messages: the calls that they open, and the calls that they cancel.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::clients;
use crate::progress::clients::Client;
use crate::progress::correlate::call::{Call, SendHistory, ServerReports};
use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::dialect::fields::Fields;
use crate::progress::event::late::LateEvent;
use crate::progress::event::request_origin::RequestOrigin;
use crate::progress::event::summary::{OpenCall, Outcome};
use crate::progress::event::{FilterEvent, RefusalRule};
use crate::progress::filter::Filter;
use crate::progress::ids::{CallId, MappedId, StreamId};
use crate::progress::intake::batch::BATCH_MAX;
use crate::progress::intake::request_members::RequestMembers;
use crate::progress::late::join::is_by_clock;
use crate::progress::payload::{Payload, spliced, within};
use crate::progress::policy::Mode;
use crate::protocol::jsonrpc::{Key, Kind, Message, Scan};
use crate::protocol::mcp::Revision;
use crate::protocol::trace_context::TraceContext;
use crate::protocol::{json, mcp};

impl Filter {
    /// Takes a client message and returns the message for the server: the same bytes, unless
    /// several clients share the server. The returned message may then be empty: the server gets
    /// nothing.
    pub fn client_message(&mut self, now: Instant, stream: StreamId, message: &Message) -> Payload {
        self.client_message_of(now, stream, message, None)
    }

    /// [`Filter::client_message`], of a message whose `members` may have been read.
    pub fn client_message_of(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
        members: Option<&RequestMembers>,
    ) -> Payload {
        self.intake.at_work = None;
        let is_single = !matches!(message.kind(), Kind::Batch | Kind::Noise);
        if self.topology.has_strangers() && is_single && self.refuse_ambiguous(stream, message) {
            return Payload::default();
        }
        match message.kind() {
            Kind::Batch if message.elements().nth(BATCH_MAX).is_some() => {
                if self.topology.has_strangers() {
                    return self.refuse_long_batch(stream);
                }
                self.correlator.ledger.overflowed = true;
            }
            Kind::Request => return self.open_call(now, stream, message, members),
            Kind::Notification => return self.client_notification(now, stream, message),
            Kind::Batch => {
                let elements = message.elements();
                self.late.in_batch = true;
                let mut is_changed = self.topology.has_strangers();
                let mut sent: Vec<Bytes> = Vec::new();
                for one in elements {
                    let payload = self.client_message(now, stream, &one).to_bytes();
                    is_changed |= payload != self.for_server(&one).to_bytes();
                    sent.push(payload);
                }
                self.late.in_batch = false;
                if !is_changed {
                    return self.for_server(message);
                }
                sent.retain(|one| !one.is_empty());
                if sent.is_empty() {
                    return Payload::default();
                }
                let text = [b"[", &sent.join(&b","[..])[..], b"]"].concat();
                return Bytes::from(text).into();
            }
            Kind::Opaque | Kind::Noise if self.topology.has_strangers() => {
                return self.refuse_unreadable(stream, message);
            }
            // The server may understand a message that we do not: its answers are no orphans.
            Kind::Opaque => self.correlator.ledger.overflowed = true,
            Kind::Response => self.note_client_answer(now, message),
            Kind::Noise => {}
        }
        message.raw().clone().into()
    }

    /// Notes a client message that was too large to be held and has passed. Its request gets no
    /// progress, but its answer is no orphan. Not for servers that several clients share, where
    /// such a message cannot pass unchanged.
    pub fn finish_large_client(&mut self, now: Instant, stream: StreamId, scan: &Scan) {
        match scan.kind() {
            _ if self.topology.has_strangers() => return,
            Kind::Request => {}
            Kind::Response => {
                if let Some(answered) = scan.id() {
                    self.end_question(now, &answered);
                }
                return;
            }
            Kind::Notification => return,
            _ => return self.correlator.ledger.overflowed = true,
        }
        let (Some(key), Some(method)) = (scan.id(), scan.method()) else {
            self.correlator.ledger.overflowed = true;
            return;
        };
        let draft = CallDraft {
            id: MappedId::same(key.to_json(), key),
            token: None,
            revision: None,
            // The message may have one: the message was not read.
            lacks_token: false,
            client: None,
            origin: self.origin_in(stream, &[None, None]),
            asks_for_task: false,
            about_task: None,
            signature: None,
        };
        self.enter(now, stream, &method, None, draft);
    }

    fn open_call(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
        members: Option<&RequestMembers>,
    ) -> Payload {
        let (Some(id), Some(key)) = (message.id(), message.id_key()) else {
            if self.topology.has_strangers() {
                return self.refuse_unreadable(stream, message);
            }
            self.correlator.ledger.overflowed = true;
            return message.raw().clone().into();
        };
        if self.topology.has_strangers() && message.repeats_a_key() {
            return self.refuse_unreadable(stream, message);
        }
        self.apply_pending_policy();
        let params = message.params().unwrap_or_default();
        let read;
        let members = match members {
            Some(members) => members,
            None => {
                read = RequestMembers::of(message);
                &read
            }
        };
        let RequestMembers { tool, task, about_task, token, date, client, trace } = members;
        let method = message.method().unwrap_or_default();
        let is_tool_call = method == mcp::TOOLS_CALL;
        let tool = tool.as_ref().filter(|_| is_tool_call).and_then(|tool| decoded(tool));
        let lacks_token = is_tool_call && token.is_none();
        let token = token.clone();
        let token =
            token.and_then(|text| self.policy.token_in(message, &params, tool.as_deref(), text));
        let draft = CallDraft {
            id: MappedId::same(id, key),
            token,
            revision: date.as_ref().and_then(|date| Revision::from_date(&json::decode_str(date)?)),
            lacks_token,
            client: client.as_ref().filter(|_| is_tool_call).and_then(|it| self.client_in(it)),
            origin: self.origin_in(stream, trace),
            asks_for_task: task.is_some(),
            about_task: about_task
                .as_ref()
                .filter(|_| method.starts_with("tasks/"))
                .and_then(Key::read),
            signature: None,
        };
        if self.is_for_tasks(&method, &params) {
            return self.task_request(now, stream, message, (&method, tool), draft);
        }
        if method == mcp::INITIALIZE {
            self.learn_client(stream, &params);
            self.note_task_client(&params);
        } else if method == mcp::SET_LEVEL {
            self.client_sets_level();
        }
        let names = (&*method, tool.as_deref());
        let Some(draft) = self.join_late(now, stream, message, names, draft) else {
            return Payload::default();
        };
        self.enter_sent(now, stream, message, (&method, tool), draft)
    }

    /// Opens the call of a request that goes to the server, and returns the message for the server.
    pub(crate) fn enter_sent(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
        (method, tool): (&str, Option<String>),
        draft: CallDraft,
    ) -> Payload {
        if self.topology.has_strangers() || self.repeats_names(stream, &draft) {
            return self.map_ids(now, stream, message, method, tool, draft);
        }
        if let Some(id) = self.enter(now, stream, method, tool, draft) {
            self.plan_late(now, id);
        }
        self.for_server(message)
    }

    /// A message with the additions for its server (`ask`).
    pub(crate) fn for_server(&self, message: &Message) -> Payload {
        self.policy.with_members(message).unwrap_or_else(|| message.raw().clone()).into()
    }

    pub(crate) fn enter(
        &mut self,
        now: Instant,
        stream: StreamId,
        method: &str,
        tool: Option<String>,
        draft: CallDraft,
    ) -> Option<CallId> {
        let settings = self.policy.of(tool.as_deref());
        let timeout = settings.call_timeout.filter(|_| settings.mode == Mode::Full);
        let expires = timeout.map(|timeout| now + timeout);
        // Copies: a call may be open for hours, and would keep a whole read buffer from being freed.
        let own =
            |name: MappedId| MappedId { client: Bytes::copy_from_slice(&name.client), ..name };
        let token = draft.token.as_ref();
        let copy = self.policy.copy_of(method, tool.as_deref(), token);
        let copy = copy.filter(|copy| token.is_some_and(|token| token.server != *copy));
        let shadow = self.topology.keeps_shadows();
        let id = self.correlator.ledger.open(Call {
            shadow,
            is_recorded: false,
            stream,
            resumed_from: None,
            principal: self.gate.principal_of(stream),
            policy: Arc::clone(self.policy.now()),
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
            meter: crate::progress::gate::meter::Meter::default(),
            pending: crate::progress::correlate::pending::PendingQueue::default(),
            sent: SendHistory::new(now),
            reports: ServerReports::default(),
            wake: None,
            expires: expires.filter(|_| !shadow && !self.waits_for_task(method)),
            clock: None,
            account: crate::progress::event::summary::CallStats::default(),
            error_code: None,
            signature: draft.signature,
            is_joined: false,
            attempts: 1,
        })?;
        if let Some(copy) = copy {
            self.correlator.ledger.learn(&copy, id);
        }
        if !shadow {
            self.events.push_back(FilterEvent::Opened(id));
        }
        self.schedule(id);
        Some(id)
    }

    /// A request that is open.
    pub fn opened(&self, id: CallId) -> Option<OpenCall<'_>> {
        let call = self.correlator.ledger.get(id)?;
        Some(OpenCall {
            call: id,
            method: &call.method,
            tool: call.tool.as_deref(),
            id: &call.id.client,
            token: call.token.as_ref().map(|token| &token.client),
            client: call.client.as_ref().or(self.client.as_ref()),
            opened: call.opened,
        })
    }

    /// Learns the name of the client from `initialize`.
    fn learn_client(&mut self, stream: StreamId, params: &Bytes) {
        let info = json::member(params, "clientInfo").unwrap_or_default();
        let (name, version) = name_and_version(&info);
        // Where several clients share the server, each would speak for all.
        if !self.topology.has_strangers() {
            self.client = Client::new(&name, &version).map(Arc::new);
        }
        if let Some(stream) = self.gate.streams.get_mut(&stream) {
            stream.is_orderly |= clients::is_orderly(&name, &version);
        }
    }

    /// The client that a request names itself, as from 2026-07-28 on.
    fn client_in(&self, info: &Bytes) -> Option<Arc<Client>> {
        let (name, version) = name_and_version(info);
        let client = Client::new(&name, &version)?;
        let known = self.client.as_ref().filter(|known| ***known == client);
        Some(known.cloned().unwrap_or_else(|| Arc::new(client)))
    }

    /// Gives the following client messages on a stream an origin. A request that names a trace
    /// itself keeps that trace.
    pub fn set_origin(&mut self, stream: StreamId, origin: RequestOrigin) {
        if let Some(stream) = self.gate.streams.get_mut(&stream) {
            stream.origin = origin;
        }
    }

    /// The origin of a request with these members ([`mcp::META_TRACE`]).
    fn origin_in(&self, stream: StreamId, [parent, state]: &[Option<Bytes>; 2]) -> RequestOrigin {
        let own = parent.as_deref().and_then(decoded).and_then(|parent| {
            let state = state.as_deref().and_then(decoded);
            TraceContext::read(parent.as_bytes(), state.as_deref().map(str::as_bytes))
        });
        let around = self.gate.streams.get(&stream).map(|stream| stream.origin.clone());
        let RequestOrigin { trace, hop } = around.unwrap_or_default();
        RequestOrigin { trace: own.map(Arc::new).or(trace), hop }
    }

    /// The client, if `initialize` named it.
    pub fn client(&self) -> Option<&Arc<Client>> {
        self.client.as_ref()
    }

    /// Sets the client where this filter did not see `initialize`.
    pub fn set_client(&mut self, client: Option<Arc<Client>>) {
        self.client = client.or_else(|| self.client.take());
    }

    fn client_notification(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
    ) -> Payload {
        let untouched: Payload = message.raw().clone().into();
        let method = message.method();
        if method.as_deref() != Some(mcp::CANCELLED) {
            if method.as_deref() == Some(mcp::INITIALIZED) {
                self.ask_for_logs();
            }
            return untouched;
        }
        let params = message.params().unwrap_or_default();
        // To a server that several clients share it could mean another one's request.
        let unknown =
            if self.topology.has_strangers() { Payload::default() } else { untouched.clone() };
        let Some(text) = json::member(&params, "requestId") else { return unknown };
        let Some(id) = Key::read(&text) else { return unknown };
        if self.cancel_held(now, stream, &id) {
            return Payload::default();
        }
        if self.may_mean_several(stream, &id) {
            self.events.push_back(FilterEvent::Refused(RefusalRule::AmbiguousCancel));
            return Payload::default();
        }
        // Clients that share a session may use the same id: nobody knows whose request is meant.
        let is_one = !self.topology.keeps_shadows() || self.sole_stream_of(&id).is_some();
        let call = self.correlator.client_call(stream, &id).filter(|_| is_one);
        let Some(call) = call else {
            // The task goes on: the request that made it has its answer.
            let is_settled =
                self.made_task(&id) || self.regain_late(now, stream, &id, is_by_clock(&params));
            let unknown = if is_settled { Payload::default() } else { unknown };
            let found = self.gate.streams.get_mut(&stream).map(|stream| stream.purge(&id));
            for judged in found.unwrap_or_default() {
                self.record(judged.number, judged.call, judged.verdict);
            }
            return unknown;
        };
        if self.stop_waiting(now, call) {
            return Payload::default();
        }
        if is_by_clock(&params) && self.keep_late(now, call, LateEvent::Kept) {
            return Payload::default();
        }
        let is_renamed = self.correlator.ledger.get(call).is_some_and(|call| call.id.translated);
        let remaps = self.topology.has_strangers() || is_renamed;
        let unknown = if is_renamed { Payload::default() } else { unknown };
        let place = within(message.raw(), &text).filter(|_| remaps && is_plain(&params));
        let known = self.correlator.ledger.get(call).map(|call| call.id.server.to_json());
        if remaps && place.is_none() {
            // Its server may read another id than we do.
            self.send_cancelled(call, "the client has cancelled it");
        }
        // A client must not cancel `initialize`; if it does, that changes nothing.
        if self.correlator.ledger.get(call).is_some_and(|call| &*call.method != mcp::INITIALIZE) {
            self.end_call(now, call, Tombstone::Cancelled, Outcome::Cancelled);
        }
        match (place, known) {
            (Some(place), Some(known)) => spliced(message, vec![(place, known)]).to_bytes().into(),
            _ => unknown,
        }
    }

    /// Cancels a call at the server.
    pub(crate) fn send_cancelled(&mut self, call: CallId, reason: &str) {
        if let Some(call) = self.correlator.ledger.get(call) {
            let id = call.id.server.clone();
            self.cancel_at_server(&id, reason);
        }
    }

    /// Cancels the request with this id at the server.
    pub(crate) fn cancel_at_server(&mut self, id: &Key, reason: &str) {
        let id = id.to_json();
        let reason = json::quote(reason);
        let mut text =
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#
                .to_vec();
        text.extend_from_slice(&id);
        text.extend_from_slice(br#","reason":"#);
        text.extend_from_slice(&reason);
        text.extend_from_slice(b"}}");
        self.to_server.push_back(Bytes::from(text).into());
    }
}

/// The text of a JSON string.
fn decoded(text: &[u8]) -> Option<String> {
    json::decode_str(text).map(Cow::into_owned)
}

/// The name and version of an `Implementation`.
fn name_and_version(info: &Bytes) -> (String, String) {
    let text = |key: &str| {
        let text = json::member(info, key).unwrap_or_default();
        json::decode_str(&text).map(|words| words.into_owned()).unwrap_or_default()
    };
    (text("name"), text("version"))
}

/// Whether the members of `params` can be read in one way only.
pub(crate) fn is_plain(params: &Bytes) -> bool {
    Fields::read(params).is_some_and(|fields| !fields.is_repeated())
}
