//! Text that is not for the client: text among the server's messages, and the server's standard error.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::protocol::terminal::Terminal;
use crate::relay::outbox::Outbox;
use crate::transport::stdio::{ByteReader, ByteWriter};

/// Maximum number of bytes of text that wait while standard error is blocked. Further text is dropped, because it must
/// not delay answers; meanwhile the server's own standard error is not read.
const NOISE_MAX: usize = 1 << 20;

/// Maximum number of bytes of one read of a server's standard error.
const ERRORS_READ: usize = 8 << 10;

/// After this time of silence, an ended server counts as having written everything.
const ERRORS_LAST: Duration = Duration::from_millis(100);

/// Deadline for reading standard error after the end of the server, because a process that the server has left behind
/// may write for ever.
const ERRORS_LAST_MAX: Duration = Duration::from_secs(1);

/// Maximum number of lines of one read of standard error that are searched for progress; the newest are searched. Older
/// progress would be replaced before a client shows it.
const LINES_MAX: usize = 16;

/// Maximum number of bytes of standard error that are read before a request is forwarded, because the server wrote them
/// before the request. A pipe has a quarter of this.
const CATCH_UP_MAX: usize = 256 << 10;

/// Takes text that is not for the client, and writes it to Milepost's standard error.
pub struct DiagnosticsSink {
    to: ByteWriter,
    from: Option<ByteReader>,
    read: BytesMut,
    outbox: Outbox,
    /// Splits standard error into lines, if a route reads them.
    terminal: Option<Terminal>,
    lines: VecDeque<String>,
}

/// An event of the sink.
pub(crate) enum Activity {
    /// The server has written something to its standard error.
    ServerWrote,
    /// Something was written, or the end was reached.
    Other,
}

impl DiagnosticsSink {
    /// Returns a sink that writes to `to`. `from` is the server's standard error, if Milepost reads it.
    pub fn new(to: ByteWriter, from: Option<ByteReader>) -> Self {
        let (read, outbox, lines) = (BytesMut::new(), Outbox::default(), VecDeque::new());
        Self { to, from, read, outbox, terminal: None, lines }
    }

    /// Keeps the lines on standard error from now on, until they are taken.
    pub(crate) fn listen(&mut self) {
        self.terminal.get_or_insert_with(Terminal::default);
    }

    /// Takes the newest lines that were written to standard error.
    pub(crate) fn lines(&mut self) -> impl Iterator<Item = String> {
        self.lines.drain(..)
    }

    /// Reads the text that is already in the pipe, which was written before the next message. Does nothing unless the
    /// lines are kept.
    pub(crate) fn catch_up(&mut self) {
        // No waker is needed, because this task polls the sink again before it waits.
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..CATCH_UP_MAX / ERRORS_READ {
            if self.terminal.is_none() || !matches!(self.poll(&mut cx), Poll::Ready(_)) {
                return;
            }
        }
    }

    /// Reads another server's standard error in place of the first one's.
    pub(crate) fn read_from(&mut self, from: Option<ByteReader>) {
        self.from = from;
        self.terminal = self.terminal.take().map(|_| Terminal::default());
    }

    /// Adds a text that is not a message.
    pub(crate) fn put(&mut self, text: Bytes) {
        if self.outbox.bytes + text.len() <= NOISE_MAX {
            self.outbox.push_message(&text.into());
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Activity> {
        if !self.outbox.is_empty() {
            let written = pin!(self.outbox.write(&mut self.to)).poll(cx);
            if let Poll::Ready(written) = written {
                // Ignore the error: if standard error is closed, the relay continues without it.
                if written.is_err() {
                    self.outbox = Outbox::default();
                }
                return Poll::Ready(Activity::Other);
            }
        }
        if let Some(from) = &mut self.from
            && self.outbox.bytes < NOISE_MAX
        {
            self.read.reserve(ERRORS_READ);
            let read = ready!(pin!(from.read_buf(&mut self.read)).poll(cx));
            // An error counts as the end, because nothing more can be read.
            if !matches!(read, Ok(1..)) {
                self.from = None;
                return Poll::Ready(Activity::Other);
            }
            let read = self.read.split().freeze();
            if let Some(terminal) = &mut self.terminal {
                terminal.feed(&read, &mut |line| {
                    if self.lines.len() == LINES_MAX {
                        self.lines.pop_front();
                    }
                    self.lines.push_back(line.to_owned());
                });
            }
            self.outbox.push(read);
            return Poll::Ready(Activity::ServerWrote);
        }
        Poll::Pending
    }

    /// Writes the remaining text, including that of the server's standard error. Gives up if nothing can be written for
    /// `patience`.
    pub(crate) async fn finish(&mut self, patience: Duration) {
        // Stop after a silence: another process may keep standard error open without writing.
        let end = Instant::now() + ERRORS_LAST_MAX;
        while self.from.is_some()
            && Instant::now() < end
            && timeout(ERRORS_LAST, poll_fn(|cx| self.poll(cx))).await.is_ok()
        {}
        self.from = None;
        while !self.outbox.is_empty()
            && timeout(patience, poll_fn(|cx| self.poll(cx))).await.is_ok()
        {}
        // A piece counts as written when a thread has taken it, so flush to wait for the last one.
        if self.outbox.is_empty() {
            let _ = timeout(patience, self.to.flush()).await;
        }
    }
}
