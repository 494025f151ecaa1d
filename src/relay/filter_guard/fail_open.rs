//! The state after a filter has failed: its connection is forwarded unchanged, with progress withheld.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use super::FilterGuard;
use crate::progress::input::Input;
use crate::progress::{
    Disposition, FilterEvent, Fragment, Origin, Reason, Salvaged, SalvagedLarge, StreamId,
    Transmit, TransmitQueue, Verdict,
};
use crate::protocol::jsonrpc::{Kind, Message, Scan};

/// The state after the filter has failed: every message is forwarded unchanged.
#[derive(Debug, Default)]
pub(super) struct Failed {
    streams: BTreeMap<StreamId, TransmitQueue>,
    pub(super) records: VecDeque<FilterEvent>,
    numbers: u64,
    /// The large messages that are passing, at most one for each stream of the server.
    large: Vec<SalvagedLarge>,
    /// The number of the last large message.
    large_number: u64,
}

impl Failed {
    /// The next message for a client stream.
    pub(super) fn pop(&mut self, stream: StreamId) -> Option<Transmit> {
        self.streams.get_mut(&stream)?.pop()
    }

    /// Bytes that wait for clients.
    pub(super) fn bytes(&self) -> usize {
        self.streams.values().map(TransmitQueue::bytes).sum()
    }

    fn push(&mut self, stream: StreamId, of: Option<u64>, transmit: Transmit) {
        self.streams.entry(stream).or_default().push(of, transmit);
    }

    /// A large message begins.
    fn begin(&mut self, origin: Origin, is_withheld: bool) {
        if let Some(place) = self.large.iter().position(|large| large.origin == origin) {
            // The filter failed over this message, and may have taken its first piece already.
            let number = self.large.swap_remove(place).number;
            self.streams.values_mut().for_each(|queue| queue.forget(number));
        }
        self.large_number += 1;
        self.large.push(SalvagedLarge { origin, number: self.large_number, is_withheld });
    }

    fn piece(&mut self, origin: Origin, stream: StreamId, transmit: Transmit) {
        let Some(place) = self.large.iter().position(|large| large.origin == origin) else {
            return;
        };
        let SalvagedLarge { number, is_withheld, .. } = self.large[place];
        if transmit.part == Fragment::End {
            self.large.swap_remove(place);
        }
        if !is_withheld {
            self.push(stream, Some(number), transmit);
        }
    }
}

impl FilterGuard {
    pub(super) fn fail_open(&mut self) {
        tracing::error!(
            "the progress filter has failed; this connection goes on without progress \
             (please report the panic above)"
        );
        if let Some(mut emitter) = self.emitter.take() {
            emitter.sequel(Input::FailOpen, self.filter.messages() + 1);
        }
        let filter = &mut self.filter;
        let left = catch_unwind(AssertUnwindSafe(|| filter.salvage()));
        let Salvaged { streams, large, at_work } = left.unwrap_or_default();
        let at_work = at_work.filter(|_| !self.policy.id_mapping);
        let large_number = self.filter.messages();
        self.failed = Some(Box::new(Failed { streams, large, large_number, ..Failed::default() }));
        if let Some((stream, message)) = at_work {
            self.forward(stream.unwrap_or(self.rest), &message);
        }
    }

    /// Plain forwarding, progress withheld.
    fn forward(&mut self, stream: StreamId, message: &Message) -> Disposition {
        if message.kind() == Kind::Noise {
            return Disposition::NotAMessage(message.raw().clone());
        }
        let is_batch = message.kind() == Kind::Batch;
        let elements: Vec<Message> =
            if is_batch { message.elements().collect() } else { Vec::new() };
        let progress = self.is_progress(message) || elements.iter().any(|e| self.is_progress(e));
        let lost = self.policy.id_mapping;
        if !progress && !lost {
            self.push(stream, Transmit::of(message));
        }
        for element in elements.iter().filter(|_| progress && !lost) {
            if !self.is_progress(element) {
                self.push(stream, Transmit::of(element));
            }
        }
        let verdict = if lost || (progress && !is_batch) {
            Verdict::Withheld(Reason::FailedOpen)
        } else {
            Verdict::Forwarded
        };
        if let Some(failed) = &mut self.failed {
            failed.numbers += 1;
            let number = failed.numbers;
            failed.records.push_back(FilterEvent::Message { number, call: None, verdict });
        }
        Disposition::Consumed
    }

    fn is_progress(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && message.method().is_some_and(|method| self.policy.claims(&method))
    }

    fn push(&mut self, stream: StreamId, transmit: Transmit) {
        if let Some(failed) = &mut self.failed {
            failed.push(stream, None, transmit);
        }
    }

    /// The first piece of a large message, whose text is `text`.
    pub(super) fn begin_without_filter(&mut self, origin: Origin, text: &[u8]) {
        let mut scan = Scan::default();
        scan.feed(text);
        let claimed = scan.method().is_some_and(|method| self.policy.claims(&method));
        if let Some(failed) = &mut self.failed {
            failed.begin(origin, claimed || self.policy.id_mapping);
        }
    }

    /// A piece of a large message.
    pub(super) fn piece_without_filter(&mut self, origin: Origin, piece: Bytes, is_last: bool) {
        let stream = self.stream_of(origin);
        if let Some(failed) = self.failed.as_mut().filter(|_| !self.policy.id_mapping) {
            failed.piece(origin, stream, Transmit::piece(piece, is_last));
        }
    }

    fn stream_of(&self, origin: Origin) -> StreamId {
        match origin {
            Origin::Shared => self.rest,
            Origin::Stream(id) if self.filter.has_stream(id) => id,
            // The stream pairs with requests that are no longer known.
            Origin::Stream(_) => self.rest,
        }
    }

    /// Handles a message of the server after the filter has failed.
    pub(super) fn without_filter(
        &mut self,
        origin: Origin,
        message: &Message,
        failed_before: bool,
    ) -> Disposition {
        // The message that the filter was at work on when it failed has been salvaged.
        if !failed_before {
            return Disposition::Consumed;
        }
        self.forward(self.stream_of(origin), message)
    }
}
