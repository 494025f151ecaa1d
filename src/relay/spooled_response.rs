//! Responses too large for memory, in a file, and their reading back for the client of the request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use crate::progress::{LargeRepairs, Repairs, SpooledAnswer, StreamId};
use crate::protocol::jsonrpc::{Key, Scan};
use crate::transport::spill::Spill;

/// A whole response in a file, and the ids and kind that a scan has found in it.
pub struct SpooledResponse {
    scan: Scan,
    spill: Spill,
}

impl SpooledResponse {
    /// A response of which `scan` has read all, in the file `spill`.
    pub(crate) fn new(scan: Scan, spill: Spill) -> Self {
        Self { scan, spill }
    }

    /// The id that it answers, as the server knows it.
    pub(crate) fn id(&self) -> Option<Key> {
        self.scan.id()
    }

    /// The repairs that it needs, if its request allows them.
    pub(crate) fn needed_repairs(&self) -> Repairs {
        LargeRepairs::needed(&self.scan)
    }

    /// Reads the response for a client stream, with the client's own id in place of Milepost's id.
    pub(crate) fn into_reader_for(self, answer: SpooledAnswer) -> SpoolReader {
        let SpooledAnswer { stream, repairs } = answer;
        let rest = Some(self.spill.into_reader().boxed());
        SpoolReader { stream, scan: self.scan, repairs, rest, begun: false }
    }
}

/// Reads a [`SpooledResponse`] back for one client stream.
pub(crate) struct SpoolReader {
    pub(crate) stream: StreamId,
    scan: Scan,
    repairs: LargeRepairs,
    /// `None` behind the last piece.
    rest: Option<BoxStream<'static, std::io::Result<Bytes>>>,
    /// A part of the response has been given out: nothing may come between its parts.
    pub(crate) begun: bool,
}

impl SpoolReader {
    /// The next piece; `None` after the last.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
            let piece = match ready!(Pin::new(rest).poll_next(cx)) {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => {
                    tracing::error!(%error, "an answer stored in a file cannot be read; the answer is cut off");
                    Bytes::new()
                }
                None => Bytes::new(),
            };
            self.begun = true;
            let is_last = piece.is_empty();
            if is_last {
                self.rest = None;
            }
            let text = 0..piece.len();
            let repaired = self.repairs.apply(&self.scan, piece, text, is_last).to_bytes();
            if !repaired.is_empty() {
                return Poll::Ready(Some(repaired));
            }
        }
    }
}
