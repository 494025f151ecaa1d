//! The state after a filter has failed: its connection is forwarded unchanged, with progress withheld.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::FilterGuard;
use crate::progress::input::Input;
use crate::progress::{Disposition, FilterEvent, Origin, Reason, StreamId, Transmit, Verdict};
use crate::protocol::jsonrpc::{Kind, Message};

/// The state after the filter has failed: every message is forwarded unchanged.
#[derive(Debug, Default)]
pub(super) struct Failed {
    pub(super) queue: VecDeque<(StreamId, Transmit)>,
    pub(super) records: VecDeque<FilterEvent>,
    numbers: u64,
    /// A large message is passing that must be withheld.
    pub(super) withholding: bool,
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
        let (queue, at_work) = left.unwrap_or_default();
        let at_work = at_work.filter(|_| !self.policy.id_mapping);
        self.failed = Some(Box::new(Failed { queue: queue.into(), ..Failed::default() }));
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

    pub(super) fn push(&mut self, stream: StreamId, transmit: Transmit) {
        if let Some(failed) = &mut self.failed {
            failed.queue.push_back((stream, transmit));
        }
    }

    pub(super) fn stream_of(&self, origin: Origin) -> StreamId {
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
