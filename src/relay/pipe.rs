//! A leg with newline-delimited messages (stdio), for either side.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::progress::{Fragment, Origin, Payload, QUEUE_MAX, StreamId, Transmit};
use crate::protocol::jsonrpc::Message;
use crate::protocol::lines::{INSPECT_MAX, LineFrame, Lines};
use crate::relay::legs::{
    Backlog, ClientHeaders, ClientLeg, FromClient, FromServer, LegFact, MessagePart, SOLE_STREAM,
    ServerLeg,
};
use crate::relay::outbox::Outbox;
use crate::transport::stdio::{ByteReader, ByteWriter};

/// Maximum number of bytes of one read: as many as a pipe has.
const READ_BYTES: usize = 64 << 10;

/// A new buffer is made if less room than this is left.
const READ_MIN: usize = 8 << 10;

/// Maximum number of bytes that are written together. Larger payloads are written separately.
const BATCH_BYTES: usize = 64 << 10;

/// Maximum number of bytes of whole messages for the server that wait until a message in pieces has ended. Beyond the
/// limit the server is not read, because its requests may cause further messages.
const WAITING_MAX: usize = QUEUE_MAX;

/// One side that is used through lines of text.
pub struct Pipe {
    reader: ByteReader,
    writer: ByteWriter,
    buffer: BytesMut,
    lines: Lines,
    /// Number of bytes that have been read so far.
    bytes_read: u64,
    /// Whether the reader has not ended.
    open: bool,
    /// Whether the other side accepts no more bytes.
    gone: bool,
    outbox: Outbox,
    /// Whether bytes are forwarded as they come.
    is_raw: bool,
    /// In raw mode, bytes that were just read.
    fresh: Option<Bytes>,
    /// Whether the outbox has pieces of a large message without its line ending.
    midway: bool,
    /// Whole messages that wait for this line ending. A message between two pieces of another would break both.
    waiting: Outbox,
}

/// The result of reading.
enum PipeRead {
    Fresh(Bytes),
    Frame(LineFrame),
    End,
}

impl Pipe {
    /// Returns a leg whose side sends through `reader` and receives through `writer`.
    pub fn new(reader: ByteReader, writer: ByteWriter) -> Self {
        Self::holding(reader, writer, INSPECT_MAX)
    }

    /// Returns a leg that keeps lines of up to `limit` bytes whole.
    pub fn holding(reader: ByteReader, writer: ByteWriter, limit: usize) -> Self {
        Self {
            reader,
            writer,
            buffer: BytesMut::new(),
            bytes_read: 0,
            lines: Lines::new(limit),
            open: true,
            gone: false,
            outbox: Outbox::default(),
            is_raw: false,
            fresh: None,
            midway: false,
            waiting: Outbox::default(),
        }
    }

    /// Returns the number of bytes that have been read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Returns a frame that is already in the buffer.
    fn next_frame(&mut self) -> Option<PipeRead> {
        if let Some(fresh) = self.fresh.take() {
            return Some(PipeRead::Fresh(fresh));
        }
        // After the end of the input, the rest without a line ending is the last frame.
        let frame = if self.open {
            self.lines.decode(&mut self.buffer)
        } else {
            self.lines.finish(&mut self.buffer)
        };
        frame.map(PipeRead::Frame)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<PipeRead> {
        loop {
            if let Some(read) = self.next_frame() {
                return Poll::Ready(read);
            }
            if !self.open {
                return Poll::Ready(PipeRead::End);
            }
            // Small messages share a buffer, because a waiting message keeps its whole buffer in memory.
            if self.buffer.capacity() - self.buffer.len() < READ_MIN {
                // Double the buffer for a long line, so that the line is not copied at each read.
                self.buffer.reserve(READ_BYTES.max(self.buffer.len()));
            }
            let read = ready!(pin!(self.reader.read_buf(&mut self.buffer)).poll(cx));
            // An error ends the input as its end does, because nothing more can be read.
            let bytes = read.unwrap_or_default();
            self.open = bytes > 0;
            self.bytes_read += bytes as u64;
            if self.is_raw && bytes > 0 {
                let fresh = &self.buffer[self.buffer.len() - bytes..];
                // In raw mode, forward the bytes unchanged, but decode them too, for observers.
                self.fresh = Some(Bytes::copy_from_slice(fresh));
            }
        }
    }

    /// Writes the outbox. Ready with `true` when all is written, or `false` when nothing more can be.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.outbox.is_empty() {
            let written = ready!(pin!(self.outbox.write(&mut self.writer)).poll(cx));
            if written.is_err() {
                self.gone = true;
                // The other side no longer reads, so unwritten bytes would only use memory.
                self.drop_unwritten();
                return Poll::Ready(false);
            }
        }
        Poll::Ready(true)
    }

    fn put(&mut self, payload: &Payload) {
        // In raw mode, write only the bytes of the other side.
        if !self.is_raw {
            let outbox = if self.midway { &mut self.waiting } else { &mut self.outbox };
            outbox.push_message(payload);
        }
    }

    fn put_piece(&mut self, piece: Bytes) {
        let Some(last) = piece.last().copied().filter(|_| !self.is_raw) else { return };
        self.outbox.push(piece);
        self.midway = last != b'\n';
        self.release();
    }

    /// Ends a large message. Adds a line ending if the message did not come as a line.
    fn end_pieces(&mut self) {
        if std::mem::take(&mut self.midway) {
            self.outbox.push(Bytes::from_static(b"\n"));
        }
        self.release();
    }

    /// Moves the waiting messages to the outbox, if the message in pieces has its line ending.
    fn release(&mut self) {
        if !self.midway {
            self.outbox.append(&mut self.waiting);
        }
    }

    fn drop_unwritten(&mut self) {
        (self.outbox, self.waiting) = (Outbox::default(), Outbox::default());
    }
}

/// Converts a frame into an event of the client side.
fn from_client(read: PipeRead) -> FromClient {
    match read {
        PipeRead::Fresh(bytes) => FromClient::Raw(bytes),
        PipeRead::Frame(LineFrame::Line(line) | LineFrame::Rest(line)) => {
            FromClient::Message(SOLE_STREAM, Message::parse(line), None)
        }
        PipeRead::Frame(LineFrame::Start(piece)) => FromClient::Start(SOLE_STREAM, piece, None),
        PipeRead::Frame(LineFrame::Chunk(piece)) => FromClient::Piece(piece),
        PipeRead::Frame(LineFrame::End { .. }) => FromClient::End,
        PipeRead::End => FromClient::Done,
    }
}

impl ClientLeg for Pipe {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromClient> {
        self.poll_read(cx).map(from_client)
    }

    fn try_receive(&mut self) -> Option<FromClient> {
        self.next_frame().map(from_client)
    }

    fn is_ready(&self, stream: StreamId) -> bool {
        // Decide a message only after all earlier bytes are written, because until then a newer report may replace it.
        stream == SOLE_STREAM && self.outbox.is_empty()
    }

    fn is_full(&self, _: StreamId) -> bool {
        self.outbox.bytes >= BATCH_BYTES
    }

    fn send(&mut self, _: StreamId, Transmit { payload, part, .. }: Transmit) {
        if self.gone {
            return;
        }
        match part {
            Fragment::Whole => self.put(&payload),
            Fragment::Piece => payload.pieces().for_each(|piece| self.put_piece(piece.clone())),
            // End a broken message with a line ending too, so that the error for its request is on a separate line.
            Fragment::End | Fragment::Broken => {
                payload.pieces().for_each(|piece| self.put_piece(piece.clone()));
                self.end_pieces();
            }
        }
    }

    fn send_raw(&mut self, bytes: Bytes) {
        if !self.gone {
            self.outbox.push(bytes);
        }
    }

    fn finish(&mut self, _: StreamId) {}

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<(StreamId, bool)> {
        self.poll_write(cx).map(|ok| (SOLE_STREAM, ok))
    }

    fn is_writing(&self) -> bool {
        !self.outbox.is_empty()
    }

    fn is_behind(&self) -> bool {
        self.outbox.bytes >= QUEUE_MAX
    }

    fn enter_raw_mode(&mut self) -> bool {
        self.is_raw = true;
        true
    }

    fn stop_reading(&mut self) {
        // Drop bytes that were read but not used.
        self.open = false;
        self.buffer.clear();
    }

    fn discard(&mut self) {
        self.drop_unwritten();
    }
}

/// Converts a frame into an event of the server side.
fn from_server(read: PipeRead) -> FromServer {
    match read {
        PipeRead::Fresh(bytes) => FromServer::Raw(bytes),
        PipeRead::Frame(LineFrame::Line(line)) => {
            FromServer::Message(Origin::Shared, Message::parse(line))
        }
        // A last line without a line ending counts as a message if it is complete.
        PipeRead::Frame(LineFrame::Rest(rest)) if is_whole(&rest) => {
            FromServer::Message(Origin::Shared, Message::parse(rest))
        }
        PipeRead::Frame(LineFrame::Rest(rest)) => FromServer::Noise(rest),
        PipeRead::Frame(LineFrame::Start(piece)) => FromServer::Start(Origin::Shared, piece),
        PipeRead::Frame(LineFrame::Chunk(piece)) => FromServer::Piece(Origin::Shared, piece),
        PipeRead::Frame(LineFrame::End { terminated }) => {
            FromServer::End(Origin::Shared, terminated)
        }
        PipeRead::End => FromServer::Done,
    }
}

impl ServerLeg for Pipe {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        // Do not register a waker, because only this task shortens `waiting`.
        if self.waiting.bytes >= WAITING_MAX {
            return Poll::Pending;
        }
        self.poll_read(cx).map(from_server)
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        let reads = self.waiting.bytes < WAITING_MAX;
        reads.then(|| self.next_frame()).flatten().map(from_server)
    }

    fn send(
        &mut self,
        _: Option<&Message>,
        payload: Payload,
        _: &ClientHeaders,
    ) -> Option<StreamId> {
        self.put(&payload);
        None
    }

    fn send_part(&mut self, part: MessagePart, _: &ClientHeaders) {
        match part {
            MessagePart::Start(piece) | MessagePart::Piece(piece) => self.put_piece(piece),
            MessagePart::End | MessagePart::BrokenOff => self.end_pieces(),
            MessagePart::Raw(bytes) => self.outbox.push(bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.poll_write(cx)
    }

    fn backlog(&self) -> Backlog {
        Backlog::of(!self.outbox.is_empty(), self.outbox.bytes >= QUEUE_MAX)
    }

    fn enter_raw_mode(&mut self) -> bool {
        self.is_raw = true;
        true
    }

    fn note(&mut self, _: &LegFact) {}

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let closed = pin!(self.writer.shutdown()).poll(cx);
        // A pipe is only closed by dropping its writer.
        if closed.is_ready() {
            self.writer = Box::new(tokio::io::sink());
        }
        closed.map(drop)
    }

    fn stop(&mut self) {
        self.open = false;
        self.buffer.clear();
        self.drop_unwritten();
    }
}

/// Whether the rest at the end of the input is a complete JSON value.
fn is_whole(rest: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(rest).is_ok()
}
