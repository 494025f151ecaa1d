//! What the filters of one session tell each other about a message.

use std::time::Instant;

use crate::progress::event::Origin;
use crate::progress::ids::StreamId;
use crate::progress::intake::state::Intake;
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::jsonrpc::{Key, Kind, Message};

impl Intake {
    /// Whether another filter of the session, of which this filter has one request, may know the request of a message.
    pub(crate) fn is_of_another_filter(&mut self, message: &Message) -> bool {
        match message.kind() {
            // An id that this filter's request once had stays with this filter, although the client
            // may have given the id to another request since.
            Kind::Response => message.id_key().is_some_and(|key| {
                let ledger = &self.gate.calls.open.ledger;
                ledger.by_id(&key).is_none() && ledger.was_id(&key).is_none()
            }),
            Kind::Notification => self.named_token(message).is_some_and(|token| {
                !self.gate.calls.names.knows_token(&token, &self.gate.calls.open)
            }),
            _ => false,
        }
    }

    /// The tokens that the progress in a message names, except tokens of open calls, and except ids
    /// of open requests with a token where no other filter knows requests of the session: some
    /// servers put ids in the place of tokens. On the stream of another request this exception does
    /// not hold, as an unknown token there means that request. A request without a token gets no
    /// progress, and another request of its session must not get it instead.
    pub fn tokens_named(&mut self, origin: Origin, message: &Message) -> Vec<Key> {
        let named = match message.kind() {
            Kind::Notification => self.named_token(message).into_iter().collect(),
            Kind::Batch => message
                .elements()
                .filter_map(|one| self.gate.calls.policy.named_token(&one))
                .collect(),
            _ => Vec::new(),
        };
        let open = &self.gate.calls.open;
        let of_stream = self.gate.calls.open.sole_call_on(origin, &self.gate.calls.streams);
        let by_id = |id: &Key| {
            let call =
                open.ledger.by_id(id).filter(|call| of_stream.is_none_or(|own| own == *call));
            call.and_then(|call| open.get(call))
        };
        // Without these conditions, a token of another session that is the id of a request here would
        // count as this session's own, and the text of one session would be shown to the client of
        // another.
        let is_told = |id: &Key| by_id(id).is_some_and(|call| call.token.is_some());
        let is_id = |token: &Key| self.gate.calls.streams.topology.is_whole() && is_told(token);
        named
            .into_iter()
            .filter(|token| !self.gate.calls.open.has_token(token) && !is_id(token))
            .collect()
    }

    /// Counts a message as withheld that is about no request of this filter, and must not be taken
    /// for progress of one.
    pub fn note_out_of_place(&mut self, reason: Reason) {
        self.messages += 1;
        self.gate.calls.events.push_verdict(self.messages, None, Verdict::Withheld(reason));
    }

    /// Notes that another filter has delivered a server message: the answer to a request, or a
    /// message about a task. `on`: the stream of the request, if known.
    pub fn note_delivery(&mut self, now: Instant, on: Option<StreamId>, message: &Message) {
        if message.kind() == Kind::Notification {
            return self.server_notification(now, message);
        }
        let call = message.id_key().and_then(|id| {
            let own = on.and_then(|on| self.gate.calls.open.asked_on(on, &id));
            let other = || self.gate.calls.open.ledger.call_of_answer(&id);
            // The late answer to a cancelled request is not the answer to a newer request with its
            // id, which waits on its own stream.
            own.or_else(|| {
                other().filter(|call| {
                    !self.gate.calls.open.waits_elsewhere(*call, on, &self.gate.calls.streams)
                })
            })
        });
        if let Some(call) = call {
            if self.gate.calls.open.has_come_back_elsewhere(call, on, &self.gate.calls.streams) {
                return self.gate.note_answer_where_left(call);
            }
            // The answer is already out. `delivered` keeps the end of the call from writing the
            // waiting progress behind it.
            self.gate.delivered = Some(call);
            self.detached.note_answer(&mut self.gate, now, call, message);
            self.gate.delivered = None;
        }
    }

    /// The number of the message that came last.
    pub fn last_number(&self) -> u64 {
        self.messages
    }
}
