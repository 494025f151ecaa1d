//! Handles client messages: opens the calls of requests, and ends the calls that clients cancel.

use std::borrow::Cow;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::late::join::is_by_clock;
use crate::progress::dialect::fields::Fields;
use crate::progress::event::late::LateEvent;
use crate::progress::event::request_origin::RequestOrigin;
use crate::progress::event::summary::Outcome;
use crate::progress::event::{FilterEvent, RefusalRule};
use crate::progress::gate::questions::end_question;
use crate::progress::ids::{MappedId, StreamId};
use crate::progress::intake::batch::{BATCH_MAX, refuse_long_batch};
use crate::progress::intake::request_members::RequestMembers;
use crate::progress::intake::state::Intake;
use crate::progress::payload::{Payload, spliced, within};
use crate::protocol::jsonrpc::{Key, Kind, Message, Scan};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

impl Intake {
    /// Handles a client's message, and returns the message for the server: the same bytes, unless several clients share
    /// the server. If the result is empty, nothing is sent to the server.
    pub fn client_message(&mut self, now: Instant, stream: StreamId, message: &Message) -> Payload {
        self.client_message_of(now, stream, message, None)
    }

    /// Does the same as [`Filter::client_message`](crate::progress::Filter::client_message), for a message whose
    /// `members` may already have been read.
    pub fn client_message_of(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
        members: Option<&RequestMembers>,
    ) -> Payload {
        self.at_work = None;
        let is_single = !matches!(message.kind(), Kind::Batch | Kind::Noise);
        if self.gate.calls.streams.topology.has_strangers()
            && is_single
            && self.gate.calls.refuse_ambiguous(stream, message)
        {
            return Payload::default();
        }
        match message.kind() {
            Kind::Batch if message.elements().nth(BATCH_MAX).is_some() => {
                if self.gate.calls.streams.topology.has_strangers() {
                    return refuse_long_batch(&mut self.gate.calls, stream);
                }
                // The batch goes to the server unread, so its requests are unknown, and their answers must not count as
                // orphans.
                self.gate.calls.open.mark_incomplete();
            }
            Kind::Request => return self.open_call(now, stream, message, members),
            Kind::Notification => return self.client_notification(now, stream, message),
            Kind::Batch => {
                let elements = message.elements();
                self.detached.in_batch = true;
                let mut is_changed = self.gate.calls.streams.topology.has_strangers();
                let mut sent: Vec<Bytes> = Vec::new();
                for one in elements {
                    let payload = self.client_message(now, stream, &one).to_bytes();
                    // Client bytes never change: the array is forwarded in its own bytes, unless an element was changed
                    // or removed.
                    is_changed |= payload != self.gate.calls.policy.for_server(&one).to_bytes();
                    sent.push(payload);
                }
                self.detached.in_batch = false;
                if !is_changed {
                    return self.gate.calls.policy.for_server(message);
                }
                sent.retain(|one| !one.is_empty());
                if sent.is_empty() {
                    return Payload::default();
                }
                let text = [b"[", &sent.join(&b","[..])[..], b"]"].concat();
                return Bytes::from(text).into();
            }
            Kind::Opaque | Kind::Noise if self.gate.calls.streams.topology.has_strangers() => {
                return self.gate.calls.refuse_unreadable(stream, message);
            }
            // The server may understand a message that Milepost cannot read, so answers to it must not count as
            // orphans.
            Kind::Opaque => self.gate.calls.open.mark_incomplete(),
            Kind::Response => self.detached.note_client_answer(&mut self.gate, now, message),
            Kind::Noise => {}
        }
        message.raw().clone().into()
    }

    /// Notes a client message that was too large to keep in memory and has been forwarded. Its request gets no
    /// progress, but the answer is not an orphan. Not used for servers that several clients share, because ids have to
    /// be mapped there.
    pub fn finish_large_client(&mut self, now: Instant, stream: StreamId, scan: &Scan) {
        match scan.kind() {
            _ if self.gate.calls.streams.topology.has_strangers() => return,
            Kind::Request => {}
            Kind::Response => {
                if let Some(answered) = scan.id() {
                    end_question(&mut self.gate, now, &answered);
                }
                return;
            }
            Kind::Notification => return,
            _ => return self.gate.calls.open.mark_incomplete(),
        }
        let (Some(key), Some(method)) = (scan.id(), scan.method()) else {
            self.gate.calls.open.mark_incomplete();
            return;
        };
        let draft = CallDraft {
            id: MappedId::same(key.to_json(), key),
            token: None,
            revision: None,
            // The message may have a token, but only its envelope was read.
            lacks_token: false,
            client: None,
            origin: self.gate.calls.streams.origin_of(stream),
            asks_for_task: false,
            about_task: None,
            waits_for_task: self.detached.waits_for_task(&method),
            signature: None,
        };
        self.gate.enter(now, stream, (&method, None), draft);
    }

    fn open_call(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
        members: Option<&RequestMembers>,
    ) -> Payload {
        let (Some(id), Some(key)) = (message.id(), message.id_key()) else {
            if self.gate.calls.streams.topology.has_strangers() {
                return self.gate.calls.refuse_unreadable(stream, message);
            }
            self.gate.calls.open.mark_incomplete();
            return message.raw().clone().into();
        };
        // JSON readers differ in which of two equal keys they use, so the server might read another id than the one
        // that is mapped.
        if self.gate.calls.streams.topology.has_strangers() && message.repeats_a_key() {
            return self.gate.calls.refuse_unreadable(stream, message);
        }
        // Invariant: a call keeps the settings with which it began. A new policy applies from this request on.
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
        let tool = tool.as_ref().filter(|_| is_tool_call).and_then(|tool| json::decode_str(tool));
        let tool = tool.map(Cow::into_owned);
        let lacks_token = is_tool_call && token.is_none();
        let token = token.clone();
        let token = token.and_then(|text| {
            self.gate.calls.policy.token_in(message, &params, tool.as_deref(), text)
        });
        let draft = CallDraft {
            id: MappedId::same(id, key),
            token,
            revision: date.as_ref().and_then(|date| Revision::from_date(&json::decode_str(date)?)),
            lacks_token,
            client: client
                .as_ref()
                .filter(|_| is_tool_call)
                .and_then(|it| self.gate.calls.handshake.client_in(it)),
            origin: RequestOrigin::of_request(trace, self.gate.calls.streams.origin_of(stream)),
            asks_for_task: task.is_some(),
            about_task: about_task
                .as_ref()
                .filter(|_| method.starts_with("tasks/"))
                .and_then(Key::read),
            waits_for_task: self.detached.waits_for_task(&method),
            signature: None,
        };
        if method == mcp::INITIALIZE {
            let calls = &mut self.gate.calls;
            calls.handshake.learn_client(stream, &params, &mut calls.streams);
            self.detached.learn_client(&self.gate, &params);
        } else if method == mcp::SET_LEVEL {
            self.gate.calls.handshake.client_sets_level();
        }
        self.detached.enter_request(&mut self.gate, now, stream, message, (&method, tool), draft)
    }

    fn client_notification(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
    ) -> Payload {
        match message.method().as_deref() {
            Some(mcp::CANCELLED) => return self.client_cancels(now, stream, message),
            Some(mcp::INITIALIZED) => {
                let calls = &mut self.gate.calls;
                calls.handshake.ask_for_logs(&calls.policy, &mut calls.to_server);
            }
            _ => {}
        }
        message.raw().clone().into()
    }

    /// Ends the request that a client cancels, and returns the message for the server.
    fn client_cancels(&mut self, now: Instant, stream: StreamId, message: &Message) -> Payload {
        let params = message.params().unwrap_or_default();
        // If several clients share the server, an id that is not mapped could mean another client's request there.
        let unknown = if self.gate.calls.streams.topology.has_strangers() {
            Payload::default()
        } else {
            message.raw().clone().into()
        };
        let Some(text) = json::member(&params, "requestId") else { return unknown };
        let Some(id) = Key::read(&text) else { return unknown };
        if let Some(held) = self.detached.held_mut()
            && held.cancel(&mut self.gate, now, stream, &id)
        {
            return Payload::default();
        }
        if self.gate.calls.open.may_mean_several(stream, &id) {
            self.gate.calls.events.push_back(FilterEvent::Refused(RefusalRule::AmbiguousCancel));
            return Payload::default();
        }
        // Clients that share a session may use the same id. Then Milepost cannot know whose request is meant.
        let is_one = !self.gate.calls.streams.topology.keeps_shadows()
            || self.gate.calls.open.sole_stream_of(&id).is_some();
        let call =
            self.gate.calls.open.by_client_id(stream, &id).first().copied().filter(|_| is_one);
        let Some(call) = call else {
            // The request was already answered when the task was created, so the task continues.
            let is_settled = self.detached.tasks.as_ref().is_some_and(|tasks| tasks.has_made(&id))
                || self.detached.regain_late(
                    &mut self.gate,
                    now,
                    stream,
                    &id,
                    is_by_clock(&params),
                );
            let unknown = if is_settled { Payload::default() } else { unknown };
            // The call has ended, but its last progress may still wait in the queue before the answer.
            let found = self.gate.calls.streams.get_mut(&stream).map(|stream| stream.purge(&id));
            for judged in found.unwrap_or_default() {
                self.gate.calls.events.push_verdict(judged.number, judged.call, judged.verdict);
            }
            return unknown;
        };
        if let Some(tasks) = &mut self.detached.tasks
            && tasks.stop_waiting(&mut self.gate, now, call)
        {
            return Payload::default();
        }
        if is_by_clock(&params) {
            self.detached.note_given_up(&self.gate, now, call);
            if self.detached.keep_late(&mut self.gate, now, call, LateEvent::Kept) {
                return Payload::default();
            }
        }
        let is_renamed = self.gate.calls.open.get(call).is_some_and(|call| call.id.translated);
        let remaps = self.gate.calls.streams.topology.has_strangers() || is_renamed;
        let unknown = if is_renamed { Payload::default() } else { unknown };
        let place = within(message.raw(), &text).filter(|_| remaps && is_plain(&params));
        let known = self.gate.calls.open.get(call).map(|call| call.id.server.to_json());
        if remaps && place.is_none() {
            // The server may read another id in the client's message than Milepost does, so Milepost sends its own
            // cancellation with the right id.
            self.gate.calls.send_cancelled(call, "the client has cancelled it");
        }
        // MCP 2025-06-18, Cancellation: a client must not cancel `initialize`. If a client does so
        // anyway, the call stays open.
        if self.gate.calls.open.get(call).is_some_and(|call| &*call.method != mcp::INITIALIZE) {
            self.gate.end_call(now, call, Tombstone::Cancelled, Outcome::Cancelled);
        }
        match (place, known) {
            (Some(place), Some(known)) => spliced(message, vec![(place, known)]).to_bytes().into(),
            _ => unknown,
        }
    }
}

/// Whether all JSON readers read the members of `params` in the same way.
pub(crate) fn is_plain(params: &Bytes) -> bool {
    Fields::read(params).is_some_and(|fields| !fields.is_repeated())
}
