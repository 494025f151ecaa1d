//! What happens after a filter has failed: its connection is forwarded unchanged, with progress withheld.

use std::sync::Arc;

use bytes::Bytes;

use super::FilterGuard;
use crate::progress::input::Input;
use crate::progress::{Disposition, FailedFilter, Fragment, Origin, StreamId};
use crate::protocol::jsonrpc::Message;

impl FilterGuard {
    pub(super) fn fail_open(&mut self) {
        tracing::error!(
            "the progress filter has failed; this connection goes on without progress \
             (please report the panic above)"
        );
        if let Some(mut emitter) = self.emitter.take() {
            emitter.sequel(Input::FailOpen, self.filter.intake().messages() + 1);
        }
        let policy = Arc::clone(&self.policy);
        let failed = FailedFilter::salvage(&mut self.filter, policy, self.rest);
        self.failed = Some(Box::new(failed));
    }

    /// Handles the first piece of a large message, whose text is `text`.
    pub(super) fn begin_without_filter(&mut self, origin: Origin, text: &[u8]) {
        if let Some(failed) = &mut self.failed {
            failed.begin_large(origin, text);
        }
    }

    /// Handles a later piece of a large message.
    pub(super) fn piece_without_filter(&mut self, origin: Origin, piece: Bytes, part: Fragment) {
        let stream = self.stream_of(origin);
        if let Some(failed) = &mut self.failed {
            failed.large_piece(origin, stream, piece, part);
        }
    }

    fn stream_of(&self, origin: Origin) -> StreamId {
        match origin {
            Origin::Shared => self.rest,
            Origin::Stream(id) if self.filter.calls().streams().has_stream(id) => id,
            // The upstream stream belongs to a request that is no longer known.
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
        let stream = self.stream_of(origin);
        match &mut self.failed {
            Some(failed) if failed_before => failed.forward(stream, message),
            // The failed filter was handling this message, and its text has been saved already.
            _ => Disposition::Consumed,
        }
    }
}
