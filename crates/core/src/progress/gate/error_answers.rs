//! Error answers of Milepost's own, for a server that did not answer or was not asked.

use std::time::Instant;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::summary::Outcome;
use crate::progress::filter::Filter;
use crate::progress::gate::stream::{Item, ItemKind};
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, TransmitKind};
use crate::protocol::jsonrpc::{INVALID_REQUEST, Key, error_answer, own_error};

impl Filter {
    /// Answers a call in the server's place with an error.
    pub(crate) fn answer_with_error(
        &mut self,
        now: Instant,
        id: CallId,
        why: &str,
        status: Option<u16>,
        outcome: Outcome,
    ) {
        let Some(call) = self.correlator.ledger.get(id) else { return };
        let (stream, client_id) = (call.stream, call.id.client.clone());
        let guards = smallvec![self.guard_of(id)];
        self.end_call(now, id, Tombstone::Cancelled, outcome);
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(Key::read(&client_id))),
            payload: Payload::own(own_error(&client_id, why, status)),
            guards,
            verdicts: SmallVec::new(),
        };
        self.enqueue_own(stream, item);
    }

    /// Answers a request that was not passed on, or that has no other answer.
    pub(crate) fn refuse(
        &mut self,
        stream: StreamId,
        client_id: &Bytes,
        why: &str,
        status: Option<u16>,
    ) {
        self.answer_refused(stream, client_id, own_error(client_id, why, status));
    }

    /// Answers a request that is not as a request should be, and was not passed on.
    pub(crate) fn refuse_as_invalid(&mut self, stream: StreamId, client_id: &Bytes, why: &str) {
        let answer = error_answer(client_id, INVALID_REQUEST, why, None);
        self.answer_refused(stream, client_id, answer);
    }

    fn answer_refused(&mut self, stream: StreamId, client_id: &Bytes, answer: Bytes) {
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(Key::read(client_id))),
            payload: Payload::own(answer),
            guards: SmallVec::new(),
            verdicts: SmallVec::new(),
        };
        self.enqueue_own(stream, item);
    }
}
