//! Responses too large for memory, in a file, and their reading back for the client of the request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use crate::progress::StreamId;
use crate::protocol::jsonrpc::{Key, Scan};
use crate::transport::spill::Spill;

/// Bytes of a spooled response that are read before the first are sent: enough to hold the id.
const HEAD_MIN: usize = 4 << 10;

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

    /// Reads the response for a client stream, with the client's own id in place of Milepost's id.
    pub(crate) fn into_reader_for(self, stream: StreamId, id: Bytes) -> SpoolReader {
        let replace = self.scan.id_place().map(|place| (place, id));
        let rest = self.spill.into_reader(replace).boxed();
        SpoolReader { stream, rest, head: BytesMut::new(), begun: false }
    }
}

/// Reads a [`SpooledResponse`] back for one client stream.
pub(crate) struct SpoolReader {
    pub(crate) stream: StreamId,
    rest: BoxStream<'static, std::io::Result<Bytes>>,
    /// The first bytes, until they show their kind: the id may stand alone.
    head: BytesMut,
    /// A part of the response has been given out: nothing may come between its parts.
    pub(crate) begun: bool,
}

impl SpoolReader {
    /// The next piece; `None` after the last.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        while !self.begun {
            let piece = ready!(self.poll_read(cx));
            self.begun = piece.is_none();
            self.head.extend_from_slice(&piece.unwrap_or_default());
            self.begun |= self.head.len() >= HEAD_MIN;
        }
        if !self.head.is_empty() {
            return Poll::Ready(Some(self.head.split().freeze()));
        }
        self.poll_read(cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = ready!(Pin::new(&mut self.rest).poll_next(cx));
        Poll::Ready(next.and_then(|piece| match piece {
            Ok(piece) => Some(piece),
            Err(error) => {
                tracing::error!(%error, "an answer stored in a file cannot be read; the answer is cut off");
                None
            }
        }))
    }
}
