//! Replaces a filter that has failed: the connection is forwarded unchanged, and progress is withheld.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use crate::progress::event::{Disposition, FilterEvent, Origin, Salvaged, SalvagedLarge};
use crate::progress::filter::Filter;
use crate::progress::ids::StreamId;
use crate::progress::payload::{Fragment, Transmit};
use crate::progress::policy::Policy;
use crate::progress::transmit_queue::TransmitQueue;
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::jsonrpc::{Kind, Message, Scan};

/// Replaces a [`Filter`] after a panic in it: every message is forwarded unchanged, and progress is withheld. If
/// different clients share the server, the owner of a message is unknown, and no message is forwarded.
#[derive(Debug)]
pub struct FailedFilter {
    policy: Arc<Policy>,
    streams: BTreeMap<StreamId, TransmitQueue>,
    events: VecDeque<FilterEvent>,
    numbers: u64,
    /// The large messages that have not arrived completely, at most one for each stream of the server.
    large: Vec<SalvagedLarge>,
    /// The number of the last large message.
    large_number: u64,
}

impl FailedFilter {
    /// Takes over the messages that `filter` was about to write to its clients. The message that it was handling is
    /// included; if the stream of that message is unknown, the message goes to `rest`. `filter` must not be used again.
    pub fn salvage(filter: &mut Filter, policy: Arc<Policy>, rest: StreamId) -> Self {
        // The state of the filter may be inconsistent. If it panics again, the waiting messages are lost, but the
        // connection continues.
        let left = catch_unwind(AssertUnwindSafe(|| filter.salvage()));
        let Salvaged { streams, large, at_work } = left.unwrap_or_default();
        let (events, numbers, large_number) = (VecDeque::new(), 0, filter.intake().messages());
        let mut failed = Self { policy, streams, events, numbers, large, large_number };
        let at_work = at_work.filter(|_| !failed.is_lost());
        if let Some((stream, message)) = at_work {
            failed.forward(stream.unwrap_or(rest), &message);
        }
        failed
    }

    /// Whether no message can be forwarded, because only the filter knew the owners of messages.
    fn is_lost(&self) -> bool {
        // With mapped ids, only the filter knew which client a message belongs to. Invariant: a message whose owner is
        // uncertain is withheld.
        self.policy.id_mapping
    }

    /// Removes and returns the next message for a client stream.
    pub fn pop(&mut self, stream: StreamId) -> Option<Transmit> {
        self.streams.get_mut(&stream)?.pop()
    }

    /// Removes and returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<FilterEvent> {
        self.events.pop_front()
    }

    /// Number of bytes that wait for clients.
    pub fn bytes(&self) -> usize {
        self.streams.values().map(TransmitQueue::bytes).sum()
    }

    /// Whether nothing waits for a client stream.
    pub fn is_drained(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_none_or(TransmitQueue::is_empty)
    }

    /// Removes a client stream that has closed, with its waiting messages.
    pub fn close_stream(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    fn push(&mut self, stream: StreamId, of: Option<u64>, transmit: Transmit) {
        self.streams.entry(stream).or_default().push(of, transmit);
    }

    /// Forwards a message of the server to a client stream, unless the message is progress.
    pub fn forward(&mut self, stream: StreamId, message: &Message) -> Disposition {
        if message.kind() == Kind::Noise {
            return Disposition::NotAMessage(message.raw().clone());
        }
        let is_batch = message.kind() == Kind::Batch;
        let elements: Vec<Message> =
            if is_batch { message.elements().collect() } else { Vec::new() };
        let progress = self.is_progress(message) || elements.iter().any(|e| self.is_progress(e));
        let lost = self.is_lost();
        if !progress && !lost {
            self.push(stream, None, Transmit::of(message));
        }
        // Of an array only the progress is withheld. The other elements are forwarded as single messages.
        for element in elements.iter().filter(|_| progress && !lost) {
            if !self.is_progress(element) {
                self.push(stream, None, Transmit::of(element));
            }
        }
        let verdict = if lost || (progress && !is_batch) {
            Verdict::Withheld(Reason::FailedOpen)
        } else {
            Verdict::Forwarded
        };
        self.numbers += 1;
        let number = self.numbers;
        self.events.push_back(FilterEvent::Message { number, call: None, verdict });
        Disposition::Consumed
    }

    fn is_progress(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && message.method().is_some_and(|method| self.policy.claims(&method))
    }

    /// Notes that a message in pieces begins with `text`. The caller passes its first piece next.
    pub fn begin_large(&mut self, origin: Origin, text: &[u8]) {
        let mut scan = Scan::default();
        scan.feed(text);
        let claimed = scan.method().is_some_and(|method| self.policy.claims(&method));
        let is_withheld = claimed || self.is_lost();
        if let Some(place) = self.large.iter().position(|large| large.origin == origin) {
            // The filter failed while it handled this message, and may already have accepted the first piece.
            let number = self.large.swap_remove(place).number;
            self.streams.values_mut().for_each(|queue| queue.forget(number));
        }
        self.large_number += 1;
        self.large.push(SalvagedLarge { origin, number: self.large_number, is_withheld });
    }

    /// Forwards a piece of a message to a client stream, unless the message is progress.
    pub fn large_piece(&mut self, origin: Origin, stream: StreamId, piece: Bytes, part: Fragment) {
        let Some(place) = self.large.iter().position(|large| large.origin == origin) else {
            return;
        };
        let SalvagedLarge { number, is_withheld, .. } = self.large[place];
        if part != Fragment::Piece {
            self.large.swap_remove(place);
        }
        if !is_withheld && !self.is_lost() {
            self.push(stream, Some(number), Transmit::part(piece.into(), part));
        }
    }
}
