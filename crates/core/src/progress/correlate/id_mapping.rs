//! The mapping of ids: towards the server a request has an id and a token of the proxy's, and every message
//! about the request gets the client's own back. Where different clients share one server, this holds for
//! each request. Otherwise it holds for a request whose id or token the server already knows from another
//! open request.
//!
//! Only these texts are replaced; every other byte is unchanged. Where clients share a server, a message that
//! cannot be mapped never reaches the server, where its id could mean another client's request.

use crate::progress::correlate::call::Call;
use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::given_names::NAME_MAX;
use crate::progress::dialect::report::About;
use crate::progress::event::{FilterEvent, RefusalRule};
use crate::progress::ids::{MappedId, StreamId};
use crate::progress::payload::{Payload, spliced, within};
use crate::protocol::jsonrpc::{Key, Kind, Message};

impl Correlator {
    /// Whether a client's cancellation of `id` may mean requests of several streams: the client does not
    /// say which, and the cancellation of another conversation's request would leave that one unanswered.
    pub(crate) fn may_mean_several(&self, stream: StreamId, id: &Key) -> bool {
        if !self.topology.finds_answers_by_id() {
            return false;
        }
        let ledger = &self.ledger;
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
        // JSON-RPC 2.0 answers requests only: nobody waits for an error about a response, a
        // notification or an id of null.
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
            let number = self.next_order();
            let name = match self.name_key {
                Some(key) => key.name(number),
                None if self.topology.has_strangers() => number,
                // Far from the ids of clients, which count from small numbers.
                None => NAME_MAX - number % NAME_MAX,
            };
            let name = Key::Integer(i64::try_from(name).unwrap_or(i64::MAX));
            // The names of ended calls are taken too: a late answer must not mean a later call.
            if !self.is_taken(&name) {
                return name;
            }
        }
    }

    /// Whether `key` can only be a name given by Milepost, although no active request has it.
    pub(crate) fn was_given(&self, key: &Key) -> bool {
        let number = match key {
            Key::Integer(number) => u64::try_from(*number).ok(),
            Key::Text(text) if self.gives_strings => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
            }
            _ => None,
        };
        // A number above `order` has not been given to any request yet.
        self.topology.has_strangers()
            && number
                .and_then(|name| self.name_key.map_or(Some(name), |key| key.number(name)))
                .is_some_and(|number| (1..=self.order).contains(&number))
    }
}

/// A message with the client's names in place of Milepost's.
pub(super) fn restored(call: &Call, message: &Message, about: &About) -> Payload {
    let is_meant = |token: &&MappedId| {
        about.token.as_ref().is_some_and(|key| *key == token.server || key.respelled(&token.server))
    };
    // Only names of this call are replaced. Any other text in these places is the server's own.
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
