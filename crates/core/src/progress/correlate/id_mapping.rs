//! The mapping of ids: towards the server a request has an id and a token of the proxy's, and every message
//! about the request gets the client's own back. Where different clients share one server, this holds for
//! each request. Otherwise it holds for a request whose id or token the server already knows from another
//! open request.
//!
//! Only these texts are replaced; every other byte is unchanged. Where clients share a server, a message that
//! cannot be mapped never reaches the server, where its id could mean another client's request.

use std::time::Instant;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::given_names::NAME_MAX;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::dialect::report::{About, Report};
use crate::progress::event::{FilterEvent, RefusalRule};
use crate::progress::filter::Filter;
use crate::progress::ids::{CallId, MappedId, StreamId};
use crate::progress::payload::{Payload, spliced, within};
use crate::protocol::jsonrpc::{Key, Kind, Message};

impl Filter {
    /// Gives the request an id and a token of Milepost's own, in the places of the client's.
    pub(crate) fn map_ids(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
        method: &str,
        tool: Option<String>,
        mut draft: CallDraft,
    ) -> Payload {
        let key = self.give_name();
        let bare = self.policy.without_token(message, tool.as_deref(), draft.token.as_ref());
        let message = bare.as_ref().unwrap_or(message);
        let raw = message.raw();
        let mut splices = vec![(message.id_range(), key.to_json())];
        draft.id.server = key.clone();
        draft.id.translated = !self.topology.has_strangers();
        let in_arguments = self.policy.token_in_arguments(message, tool.as_deref());
        draft.token = draft.token.or_else(|| {
            let client = in_arguments.clone()?;
            Key::read(&client).map(|token| MappedId::same(client, token))
        });
        if let Some(token) = &mut draft.token {
            token.server = self.policy.own_token(tool.as_deref(), key);
            token.translated = true;
            splices.push((within(raw, &token.client), token.server.to_json()));
        }
        let copy = self.policy.copy_of(method, tool.as_deref(), draft.token.as_ref());
        if let (Some(text), Some(copy)) = (in_arguments, copy) {
            // Also one that is no token: a lenient server could read another client's in it.
            splices.retain(|(place, _)| *place != within(raw, &text));
            splices.push((within(raw, &text), copy.to_json()));
        }
        let asked = self.policy.members_for(message, tool.as_deref(), draft.token.as_ref());
        splices.extend(asked.into_iter().map(|(place, new)| (Some(place), new)));
        let id = draft.id.client.clone();
        let Some(call) = self.enter(now, stream, method, tool, draft) else {
            // Without an entry the answer could not find its client.
            self.refuse(stream, &id, "too many requests are open on this upstream", None);
            return Payload::default();
        };
        self.plan_late(now, call);
        let splices = splices.into_iter().filter_map(|(place, new)| Some((place?, new))).collect();
        spliced(message, splices).to_bytes().into()
    }

    /// Whether the server may still answer another request under the id of this one, or report on another
    /// request under its token. Some hosted clients hold several conversations in one session and give every
    /// request the same id.
    pub(crate) fn repeats_names(&self, stream: StreamId, draft: &CallDraft) -> bool {
        let id = &draft.id.server;
        // The client has an answer to these requests, or needs none. The server still works on them.
        if self.late.is_running(id) || self.own_tasks.running(id).is_some() {
            return true;
        }
        if !self.topology.finds_answers_by_id() {
            return false;
        }
        let ledger = &self.correlator.ledger;
        let is_elsewhere =
            |call: &CallId| ledger.get(*call).is_some_and(|call| call.stream != stream);
        // The Python SDK answers a cancelled request with an error.
        ledger.all_by_id(id).iter().any(is_elsewhere)
            || ledger.was_id(id) == Some(Tombstone::Cancelled)
            || draft
                .token
                .as_ref()
                .is_some_and(|token| ledger.all_by_token(&token.server).iter().any(is_elsewhere))
    }

    /// Whether a client's cancellation of `id` may mean requests of several streams: the client does not
    /// say which, and the cancellation of another conversation's request would leave that one unanswered.
    pub(crate) fn may_mean_several(&self, stream: StreamId, id: &Key) -> bool {
        if !self.topology.finds_answers_by_id() {
            return false;
        }
        let ledger = &self.correlator.ledger;
        let calls = ledger.by_client_id(stream, id);
        let streams = calls.iter().filter_map(|call| Some(ledger.get(*call)?.stream));
        let mut others = streams.skip_while(|on| {
            calls
                .first()
                .and_then(|first| ledger.get(*first))
                .is_some_and(|call| call.stream == *on)
        });
        others.next().is_some()
    }

    /// Refuses a message that a server may read otherwise than we do: the server could answer
    /// another client's request, or cancel it.
    pub(crate) fn refuse_ambiguous(&mut self, stream: StreamId, message: &Message) -> bool {
        let in_arguments = self.policy.copies_tokens();
        let Some(member) = message.ambiguous_member(in_arguments) else { return false };
        let id = message.id().filter(|id| **id != *b"null" && message.kind() != Kind::Response);
        if let Some(id) = id {
            self.refuse_as_invalid(stream, &id, &format!("{member}: see docs/transports.md"));
        }
        self.events.push_back(FilterEvent::Refused(RefusalRule::AmbiguousMember));
        true
    }

    /// Refuses a message whose names cannot be replaced: for the server the names could mean
    /// another client's request.
    pub(crate) fn refuse_unreadable(&mut self, stream: StreamId, message: &Message) -> Payload {
        if let Some(id) = message.id().filter(|id| **id != *b"null") {
            self.refuse(stream, &id, "the proxy cannot read this message", None);
        }
        Payload::default()
    }

    /// A name that no request of this server has or had.
    pub(crate) fn give_name(&mut self) -> Key {
        loop {
            let number = self.gate.next_order();
            let name = match self.correlator.name_key {
                Some(key) => key.name(number),
                None if self.topology.has_strangers() => number,
                // Far from the ids of clients, which count from small numbers.
                None => NAME_MAX - number % NAME_MAX,
            };
            let name = Key::Integer(i64::try_from(name).unwrap_or(i64::MAX));
            if !self.correlator.is_taken(&name) {
                return name;
            }
        }
    }

    /// Whether `key` can only be a name given by Milepost, although no active request has it.
    pub(crate) fn was_given(&self, key: &Key) -> bool {
        let number = match key {
            Key::Integer(number) => u64::try_from(*number).ok(),
            Key::Text(text) if self.correlator.gives_strings => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
            }
            _ => None,
        };
        self.topology.has_strangers()
            && number
                .and_then(|name| {
                    self.correlator.name_key.map_or(Some(name), |key| key.number(name))
                })
                .is_some_and(|number| (1..=self.gate.order).contains(&number))
    }

    /// Whether the server knows a call, or its token, by another name than the client.
    fn translates(&self, call: &Call) -> bool {
        self.topology.has_strangers()
            || call.id.translated
            || call.token.as_ref().is_some_and(|token| token.translated)
    }

    /// A server message about `call` in the form for its client: the same bytes, except for names
    /// given by Milepost.
    pub(crate) fn with_client_names(
        &self,
        call: &Call,
        message: &Message,
        about: &About,
    ) -> Payload {
        if self.translates(call) { restored(call, message, about) } else { Payload::of(message) }
    }

    /// A report that needs no repair, in the form for its client.
    pub(crate) fn for_client(
        &self,
        call: &Call,
        message: &Message,
        report: &Report,
    ) -> Option<Payload> {
        let about = &report.about;
        let replaceable = !self.translates(call)
            || about.token_text.as_ref().is_some_and(|text| within(message.raw(), text).is_some());
        (report.repairs.is_empty() && replaceable)
            .then(|| self.with_client_names(call, message, about))
    }
}

/// Replaces Milepost's names by the client's names.
fn restored(call: &Call, message: &Message, about: &About) -> Payload {
    let is_meant = |token: &&MappedId| {
        about.token.as_ref().is_some_and(|key| *key == token.server || key.respelled(&token.server))
    };
    let token = call.token.as_ref().filter(is_meant);
    let token = about.token_text.as_ref().zip(token);
    let id = Some(&call.id).filter(|id| about.request.as_ref() == Some(&id.server));
    let id = about.request_text.as_ref().zip(id);
    let named = [token, id].into_iter().flatten();
    let splices = named
        .filter_map(|(text, name)| Some((within(message.raw(), text)?, name.client.clone())))
        .collect();
    spliced(message, splices)
}
