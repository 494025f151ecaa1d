//! The fields of events besides their messages: ids and retry times, which clients need even if the message is
//! withheld.

use std::collections::VecDeque;

use crate::protocol::mcp::Revision;
use crate::protocol::sse::SseEvent;
use crate::transport::http::body::Batch;

/// Limit of the events of one stream whose ids are kept until their messages have a verdict.
const WAITING_MAX: usize = 256;

/// The event ids and retry times of one stream.
#[derive(Default)]
pub(crate) struct EventIds {
    /// Events that wait for a verdict, by the number of their message.
    waiting: VecDeque<(u64, SseEvent)>,
    /// Whether the client has been given an event id.
    id_passed: bool,
}

impl EventIds {
    /// Returns the state of a stream that its client has resumed.
    pub(crate) fn resumed() -> Self {
        Self { id_passed: true, ..Self::default() }
    }

    /// Adds an event whose message has this number and no verdict yet. Returns false if the event has no other fields.
    /// Otherwise the verdict is needed before the next event is read: if the fields of a withheld message were written
    /// after a later event, they would set the client's last event id back.
    pub(crate) fn insert(&mut self, number: u64, event: &SseEvent) -> bool {
        // Beyond the limit an event loses its other fields, but its message is still forwarded.
        let waits = has_id_or_retry(event) && self.waiting.len() < WAITING_MAX;
        if waits {
            self.waiting.push_back((number, event.clone()));
        }
        waits
    }

    /// Whether no event waits for a verdict.
    pub(crate) fn waits_for_none(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Notes that an event has been forwarded unchanged.
    pub(crate) fn note_forwarded(&mut self, event: &SseEvent) {
        self.id_passed |= event.has_id();
    }

    /// The event of a message, which waits for the verdict.
    fn take_waiting(&mut self, number: u64) -> Option<SseEvent> {
        let place = self.waiting.iter().position(|(waits, _)| *waits == number);
        place.and_then(|place| self.waiting.remove(place)).map(|(_, event)| event)
    }

    /// Notes that a message is forwarded.
    pub(crate) fn note_passed(&mut self, number: u64) {
        if let Some(event) = self.take_waiting(number) {
            self.note_forwarded(&event);
        }
    }

    /// Notes that a message is withheld; `out` gets the remaining fields of its event.
    pub(crate) fn note_withheld(
        &mut self,
        number: u64,
        revision: Option<Revision>,
        out: Option<&mut Batch>,
    ) {
        if let (Some(event), Some(out)) = (self.take_waiting(number), out) {
            self.keep_remaining_fields(&event, revision, out);
        }
    }

    /// Keeps the retry time of a withheld event, and the first id of a stream, without which the client cannot resume.
    pub(crate) fn keep_remaining_fields(
        &mut self,
        event: &SseEvent,
        revision: Option<Revision>,
        out: &mut Batch,
    ) {
        // Only clients of MCP 2025-11-25 expect an event with an id and empty data.
        let id = event.id().filter(|_| !self.id_passed && revision == Some(Revision::V2025_11_25));
        let mut text = Vec::new();
        if let Some(retry) = event.retry() {
            text.extend_from_slice(&retry);
            text.push(b'\n');
        }
        if let Some(id) = id {
            self.id_passed = true;
            text.extend_from_slice(b"id: ");
            text.extend_from_slice(id);
            // Makes it an event with empty data, with which servers of this revision begin a stream.
            text.extend_from_slice(b"\ndata:\n");
        }
        if !text.is_empty() {
            text.push(b'\n');
            out.raw(&text.into());
        }
    }
}

/// Whether an event has fields besides its message.
pub(crate) fn has_id_or_retry(event: &SseEvent) -> bool {
    event.has_id() || event.retry().is_some()
}
