//! Carries one stdio connection: the place where the filter meets a clock and streams.
//!
//! Four things go on at once: reading either side, and writing what is left for the other. None of
//! them waits for another, so that a client that stops reading does not stop what it sends from
//! reaching the server, and the reverse. What a slow reader leaves behind is bounded: beyond
//! [`QUEUE_MAX`] the other side is no longer read.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep_until, timeout};

use crate::guarded::Guarded;
use crate::jsonrpc::{Message, Scan};
use crate::lines::{Frame, INSPECT_MAX, Lines};
use crate::progress::{
    Fate, Filter, Mode, Origin, Part, Payload, Policy, QUEUE_MAX, Record, StreamId, StreamKind,
    Transmit,
};
use crate::transport::stdio::{Reader, Writer};

/// Room for one read; a pipe holds as much.
const READ_BYTES: usize = 64 << 10;

/// Room below which a new buffer is made.
const READ_MIN: usize = 8 << 10;

/// Bytes that are written together. Larger payloads are written alone.
const BATCH_BYTES: usize = 64 << 10;

/// Text for standard error that waits because nobody reads it. More is left out: it must not keep
/// answers waiting.
const NOISE_MAX: usize = 1 << 20;

/// The four streams of a connection, and where text goes that is no message.
pub struct Legs {
    /// What the client says.
    pub client_in: Reader,
    /// What the client reads.
    pub client_out: Writer,
    /// What the server says.
    pub server_in: Reader,
    /// What the server reads.
    pub server_out: Writer,
    /// Standard error.
    pub noise: Writer,
}

/// What happened in one [`Relay::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something moved.
    Moved,
    /// The client will say nothing more. Comes again once the server has been given all of it.
    ClientDone,
    /// The client reads no more.
    ClientGone,
    /// The server will say nothing more.
    ServerDone,
}

/// Bytes on their way to one writer.
#[derive(Default)]
struct Outbox {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// Something was written and not flushed yet.
    unflushed: bool,
}

impl Outbox {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Whether all of it has reached its reader, as far as we can know.
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && !self.unflushed
    }

    /// Writes as much as goes at once, and flushes after the last piece. Cancel-safe: what was not
    /// written or flushed still is to be.
    async fn write(&mut self, writer: &mut Writer) -> io::Result<()> {
        if self.pieces.is_empty() {
            writer.flush().await?;
            self.unflushed = false;
            return Ok(());
        }
        self.unflushed = true;
        let slices: Vec<IoSlice<'_>> =
            self.pieces.iter().take(16).map(|piece| IoSlice::new(piece)).collect();
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

/// One connection between a client and a server, both on byte streams.
pub struct Relay {
    filter: Guarded,
    legs: Legs,
    /// Bytes pass as they come, and the filter only looks on.
    observing: bool,
    client: Side,
    server: Side,
    to_client: Outbox,
    to_server: Outbox,
    to_noise: Outbox,
    /// A large message of the client that is passing.
    passing: Option<Scan>,
    /// The server's end of input has been told, or is not to be told.
    server_closed: bool,
    client_gone: bool,
}

struct Side {
    buffer: BytesMut,
    lines: Lines,
    open: bool,
}

impl Side {
    fn new() -> Self {
        Self { buffer: BytesMut::new(), lines: Lines::new(INSPECT_MAX), open: true }
    }

    /// A message that waits keeps the buffer it came in; small ones share one.
    fn make_room(&mut self) {
        if self.buffer.capacity() - self.buffer.len() < READ_MIN {
            // As much again for a long line, so that growing copies it once and not once a read.
            self.buffer.reserve(READ_BYTES.max(self.buffer.len()));
        }
    }
}

/// The only client stream of a stdio connection.
const WIRE: StreamId = StreamId(0);

fn guarded(policy: Policy) -> Guarded {
    let policy = Arc::new(policy);
    let mut filter = Filter::new(policy.clone());
    filter.open_stream(WIRE, StreamKind::Shared, policy.pacing);
    Guarded::new(filter, policy, WIRE)
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Relay {
    /// Nothing moves before the first [`Relay::step`].
    pub fn new(policy: Policy, legs: Legs) -> Self {
        Self {
            observing: policy.mode == Mode::Observe,
            filter: guarded(policy),
            legs,
            client: Side::new(),
            server: Side::new(),
            to_client: Outbox::default(),
            to_server: Outbox::default(),
            to_noise: Outbox::default(),
            passing: None,
            server_closed: false,
            client_gone: false,
        }
    }

    /// Waits for the next thing to happen and does what follows from it. Cancel-safe.
    pub async fn step(&mut self) -> Step {
        self.collect();
        let due = self.filter.poll_timeout().map(tokio::time::Instant::from_std);
        let due = due.filter(|_| self.to_client.is_empty());
        let wake = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let reads_client = self.client.open && self.to_server.bytes < QUEUE_MAX;
        let reads_server =
            self.server.open && !self.filter.is_full() && self.to_client.bytes < QUEUE_MAX;
        let Legs { client_in, client_out, server_in, server_out, noise } = &mut self.legs;
        self.client.make_room();
        self.server.make_room();
        tokio::select! {
            read = client_in.read_buf(&mut self.client.buffer), if reads_client => {
                return self.client_read(read);
            }
            read = server_in.read_buf(&mut self.server.buffer), if reads_server => {
                return self.server_read(read);
            }
            written = self.to_client.write(client_out), if !self.to_client.is_empty() => {
                return self.client_written(written.is_ok());
            }
            written = self.to_server.write(server_out), if !self.to_server.is_empty() => {
                return self.server_written(written.is_ok());
            }
            written = self.to_noise.write(noise), if !self.to_noise.is_empty() => {
                if written.is_err() {
                    self.to_noise = Outbox::default();
                }
            }
            () = wake => {}
        }
        Step::Moved
    }

    /// What has just happened, for the log.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.filter.poll_record()
    }

    /// No heartbeats from now on: the server is about to end.
    pub fn stop_beating(&mut self) {
        self.filter.ask(Filter::stop_beating);
    }

    /// Requests that have no answer yet.
    pub fn open_calls(&self) -> usize {
        self.filter.open_calls()
    }

    /// The server is gone: open calls are answered with an error, nothing waits any more, and it is
    /// told nothing more.
    pub fn server_gone(&mut self, why: &str) {
        self.server.open = false;
        self.client.open = false;
        self.to_server = Outbox::default();
        self.filter.ask(|filter| filter.server_gone(now(), why));
    }

    /// Whether the client has not yet taken all that there is for it.
    pub fn is_writing(&self) -> bool {
        !self.to_client.is_empty() || !self.filter.is_drained()
    }

    /// Writes what is left for the client, and then for standard error; gives up on either once it
    /// has taken nothing for as long as `patience`.
    pub async fn finish(&mut self, patience: Duration) {
        self.filter.ask(Filter::flush);
        loop {
            self.collect();
            if self.to_client.is_empty() {
                break;
            }
            let write = self.to_client.write(&mut self.legs.client_out);
            let written = matches!(timeout(patience, write).await, Ok(Ok(())));
            self.client_written(written);
        }
        while !self.to_noise.is_empty() {
            let write = self.to_noise.write(&mut self.legs.noise);
            if !matches!(timeout(patience, write).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// Takes from the filter what can be written now.
    fn collect(&mut self) {
        let now = now();
        while let Some(payload) = self.filter.ask(Filter::poll_to_server).flatten() {
            push_message(&mut self.to_server, payload);
        }
        if self.observing {
            while self.filter.poll_transmit(now, WIRE).is_some() {}
            self.written(now);
        } else if !self.to_client.is_empty() {
            return;
        }
        while !self.observing && self.to_client.bytes < BATCH_BYTES {
            let Some(Transmit { payload, part }) = self.filter.poll_transmit(now, WIRE) else {
                break;
            };
            match part {
                Part::Whole => push_message(&mut self.to_client, payload),
                Part::Piece | Part::End => {
                    payload.pieces().for_each(|piece| self.to_client.push(piece.clone()));
                }
            }
        }
        if self.client_gone {
            self.to_client = Outbox::default();
            while self.filter.poll_transmit(now, WIRE).is_some() {}
            self.written(now);
        }
    }

    fn written(&mut self, now: Instant) {
        self.filter.ask(|filter| filter.written(now, WIRE));
    }

    fn client_read(&mut self, read: io::Result<usize>) -> Step {
        if self.observing {
            self.to_server.push(last(&self.client.buffer, &read));
        }
        if !matches!(read, Ok(1..)) {
            self.client.open = false;
            while let Some(frame) = self.client.lines.finish(&mut self.client.buffer) {
                self.client_frame(frame);
            }
            self.filter.ask(Filter::client_left);
            return Step::ClientDone;
        }
        while let Some(frame) = self.client.lines.decode(&mut self.client.buffer) {
            self.client_frame(frame);
        }
        Step::Moved
    }

    fn client_frame(&mut self, frame: Frame) {
        match frame {
            Frame::Line(line) | Frame::Rest(line) => {
                let payload = self.filter.client_message(now(), WIRE, &Message::parse(line));
                payload.pieces().for_each(|piece| self.say_to_server(piece.clone()));
            }
            Frame::Start(piece) => {
                let mut scan = Scan::default();
                scan.feed(&piece);
                self.passing = Some(scan);
                self.say_to_server(piece);
            }
            Frame::Chunk(piece) => {
                if let Some(scan) = &mut self.passing {
                    scan.feed(&piece);
                }
                self.say_to_server(piece);
            }
            Frame::End { .. } => {
                if let Some(scan) = self.passing.take() {
                    self.filter.client_passed(now(), WIRE, &scan);
                }
            }
        }
    }

    fn say_to_server(&mut self, piece: Bytes) {
        if !self.observing {
            self.to_server.push(piece);
        }
    }

    fn server_read(&mut self, read: io::Result<usize>) -> Step {
        if self.observing {
            self.to_client.push(last(&self.server.buffer, &read));
        }
        let more = matches!(read, Ok(1..));
        let now = now();
        loop {
            let side = &mut self.server;
            let frame = if more {
                side.lines.decode(&mut side.buffer)
            } else {
                side.lines.finish(&mut side.buffer)
            };
            let Some(frame) = frame else { break };
            let judged = match frame {
                Frame::Line(line) => self.server_message(now, line),
                Frame::Start(piece) => {
                    let text = 0..piece.len();
                    self.filter.server_passing(now, Origin::Wire, piece, text)
                }
                Frame::Chunk(piece) => {
                    let text = 0..piece.len();
                    self.filter.server_piece(now, Origin::Wire, piece, text)
                }
                Frame::End { terminated } => {
                    if !terminated {
                        // It was broken off, and lacks its line ending.
                        let end = Bytes::from_static(b"\n");
                        self.filter.server_piece(now, Origin::Wire, end, 0..1);
                    }
                    self.filter.server_passed(now, Origin::Wire);
                    Fate::Taken
                }
                Frame::Rest(rest) if is_whole(&rest) => self.server_message(now, rest),
                Frame::Rest(rest) => Fate::Noise(rest),
            };
            if let Fate::Noise(text) = judged
                && !self.observing
                && self.to_noise.bytes + text.len() <= NOISE_MAX
            {
                push_message(&mut self.to_noise, text.into());
            }
        }
        if more {
            return Step::Moved;
        }
        self.server.open = false;
        Step::ServerDone
    }

    fn server_message(&mut self, now: Instant, line: Bytes) -> Fate {
        self.filter.server_message(now, Origin::Wire, &Message::parse(line))
    }

    fn client_written(&mut self, ok: bool) -> Step {
        if !ok {
            if !self.client_gone {
                tracing::warn!("the client cannot be written to any more");
            }
            self.client_gone = true;
            self.client.open = false;
            self.to_client = Outbox::default();
            self.written(now());
            return Step::ClientGone;
        }
        if self.to_client.is_empty() {
            self.written(now());
        }
        Step::Moved
    }

    fn server_written(&mut self, ok: bool) -> Step {
        if !ok {
            // The server reads no more. It may still say something, and its exit says the rest.
            self.to_server = Outbox::default();
            self.client.open = false;
            return Step::ClientDone;
        }
        if !self.to_server.is_empty() {
            return Step::Moved;
        }
        if self.client.open { Step::Moved } else { Step::ClientDone }
    }

    /// Closes the server's input, so that it knows that nothing more comes; does nothing while it
    /// has not read all of what the client said.
    pub async fn close_server_input(&mut self) {
        if !self.to_server.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.server_closed, true) {
            let _ = self.legs.server_out.shutdown().await;
            self.legs.server_out = Box::new(tokio::io::sink());
        }
    }
}

/// The bytes that a read has added to a buffer.
fn last(buffer: &BytesMut, read: &io::Result<usize>) -> Bytes {
    let fresh = read.as_ref().copied().unwrap_or_default();
    Bytes::copy_from_slice(&buffer[buffer.len() - fresh..])
}

/// A message with a line ending. What arrived has one already.
fn push_message(outbox: &mut Outbox, payload: Payload) {
    let mut last = None;
    for piece in payload.pieces().filter(|piece| !piece.is_empty()) {
        last = piece.last().copied();
        outbox.push(piece.clone());
    }
    if last.is_some_and(|last| last != b'\n') {
        outbox.push(Bytes::from_static(b"\n"));
    }
}

/// Whether what was left at the end of input is one JSON value, and not the first half of one.
fn is_whole(rest: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(rest).is_ok()
}
