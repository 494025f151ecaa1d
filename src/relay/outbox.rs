//! The bytes that wait to be written to one writer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWriteExt;

use crate::progress::Payload;
use crate::transport::stdio::ByteWriter;

/// Maximum number of pieces that are written together.
const SLICES: usize = 16;

/// A queue of bytes.
#[derive(Default)]
pub(crate) struct Outbox {
    pieces: VecDeque<Bytes>,
    pub(crate) bytes: usize,
    /// Whether bytes were written but not flushed.
    unflushed: bool,
}

impl Outbox {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Adds a message with a line ending. A message that arrived on a line already has one.
    pub(crate) fn push_message(&mut self, payload: &Payload) {
        let mut last = None;
        for piece in payload.pieces().filter(|piece| !piece.is_empty()) {
            last = piece.last().copied();
            self.push(piece.clone());
        }
        if last.is_some_and(|last| last != b'\n') {
            self.push(Bytes::from_static(b"\n"));
        }
    }

    /// Moves all bytes of `other` to the end of this outbox.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.pieces.append(&mut other.pieces);
    }

    /// Whether all bytes were written and flushed.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && !self.unflushed
    }

    /// Writes as many bytes as possible together; flushes after the last piece. Cancel-safe: unwritten bytes stay.
    pub(crate) async fn write(&mut self, writer: &mut ByteWriter) -> io::Result<()> {
        if self.pieces.is_empty() {
            writer.flush().await?;
            self.unflushed = false;
            return Ok(());
        }
        self.unflushed = true;
        let slices: Vec<IoSlice<'_>> =
            self.pieces.iter().take(SLICES).map(|piece| IoSlice::new(piece)).collect();
        let mut written = writer.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.bytes -= written;
        while let Some(first) = self.pieces.front_mut() {
            if written < first.len() {
                first.advance(written);
                break;
            }
            written -= first.len();
            self.pieces.pop_front();
        }
        Ok(())
    }
}
