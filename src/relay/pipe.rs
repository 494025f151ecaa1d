//! A leg of newline-delimited messages: stdio, on either side.

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

/// Bytes that one read may take, as many as a pipe holds.
const READ_BYTES: usize = 64 << 10;

/// Room below which a new buffer is made.
const READ_MIN: usize = 8 << 10;

/// Bytes that are written together. Larger payloads are written alone.
const BATCH_BYTES: usize = 64 << 10;

/// Bytes of whole messages for the server that wait for the end of a message in pieces. Beyond the limit the
/// server is not read: its requests may be answered with further messages.
const WAITING_MAX: usize = QUEUE_MAX;

/// One side that speaks in lines.
pub struct Pipe {
    reader: ByteReader,
    writer: ByteWriter,
    buffer: BytesMut,
    lines: Lines,
    /// Bytes that have been read so far.
    bytes_read: u64,
    /// Whether the reader has not ended.
    open: bool,
    /// Whether the other side no longer gets any bytes.
    gone: bool,
    outbox: Outbox,
    /// Bytes are passed on as they come.
    is_raw: bool,
    /// Bytes that have just come, if they are.
    fresh: Option<Bytes>,
    /// Whether pieces of a large message are in the outbox without a line end.
    midway: bool,
    /// Whole messages that wait for this line end, in their order. A message between two pieces of another
    /// would break both.
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

    /// A pipe that holds lines of up to `limit` bytes whole.
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

    /// The number of bytes that have been read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// A frame that has been read already.
    fn next_frame(&mut self) -> Option<PipeRead> {
        if let Some(fresh) = self.fresh.take() {
            return Some(PipeRead::Fresh(fresh));
        }
        // After the end of the input, the rest without a line end is the last frame.
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
            // A waiting message keeps its read buffer alive, so small messages share a buffer.
            if self.buffer.capacity() - self.buffer.len() < READ_MIN {
                // Doubled for a long line, so that growing copies the line once and not with each read.
                self.buffer.reserve(READ_BYTES.max(self.buffer.len()));
            }
            let read = ready!(pin!(self.reader.read_buf(&mut self.buffer)).poll(cx));
            // An error ends the input in the same way as its end: nothing more can be read.
            let bytes = read.unwrap_or_default();
            self.open = bytes > 0;
            self.bytes_read += bytes as u64;
            if self.is_raw && bytes > 0 {
                let fresh = &self.buffer[self.buffer.len() - bytes..];
                // In raw mode the bytes are forwarded unchanged, and are decoded in addition, for observers.
                self.fresh = Some(Bytes::copy_from_slice(fresh));
            }
        }
    }

    /// Ready when all is written (`true`) or nothing can be any more.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.outbox.is_empty() {
            let written = ready!(pin!(self.outbox.write(&mut self.writer)).poll(cx));
            if written.is_err() {
                self.gone = true;
                // The other end no longer reads, so the unwritten bytes would only take memory.
                self.drop_unwritten();
                return Poll::Ready(false);
            }
        }
        Poll::Ready(true)
    }

    fn put(&mut self, payload: &Payload) {
        // In raw mode only the bytes of the other side are written.
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

    /// Ends a large message. If the message did not arrive as a line, its line end is added.
    fn end_pieces(&mut self) {
        if std::mem::take(&mut self.midway) {
            self.outbox.push(Bytes::from_static(b"\n"));
        }
        self.release();
    }

    /// Lets the waiting messages follow a message in pieces that has its line end.
    fn release(&mut self) {
        if !self.midway {
            self.outbox.append(&mut self.waiting);
        }
    }

    fn drop_unwritten(&mut self) {
        (self.outbox, self.waiting) = (Outbox::default(), Outbox::default());
    }
}

/// The client event of a frame.
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
        // A message is decided only when all earlier bytes are written: until then a newer report may replace it.
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
            // A broken message gets its line end too: the error of its request is then a line of its own.
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
        // Bytes that were read but not taken are dropped.
        self.open = false;
        self.buffer.clear();
    }

    fn discard(&mut self) {
        self.drop_unwritten();
    }
}

/// The server event of a frame; `None` if there is none.
fn from_server(read: PipeRead) -> FromServer {
    match read {
        PipeRead::Fresh(bytes) => FromServer::Raw(bytes),
        PipeRead::Frame(LineFrame::Line(line)) => {
            FromServer::Message(Origin::Shared, Message::parse(line))
        }
        // A last line may lack its line end: it counts if it is whole.
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
        // No waker is registered: only this task shortens `waiting`.
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
