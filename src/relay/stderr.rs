//! Text that is not for the client: text among the server's messages, and the server's standard
//! error.

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

/// Bytes of text waiting for a blocked standard error. Further text is dropped, because text must
/// not delay answers; meanwhile the server's own standard error is not read.
const NOISE_MAX: usize = 1 << 20;

/// Bytes of one read of a server's standard error.
const ERRORS_READ: usize = 8 << 10;

/// The silence after which a server that has ended counts as having written everything.
const ERRORS_LAST: Duration = Duration::from_millis(100);

/// The longest time that standard error is read after the end of the server. A process that the server has
/// left behind may write for ever.
const ERRORS_LAST_MAX: Duration = Duration::from_secs(1);

/// Maximum number of newest lines of one read of standard error that are searched for progress. Newer progress would
/// replace older lines before a client shows them.
const LINES_MAX: usize = 16;

/// Bytes of standard error that are read before a request is forwarded, because the server wrote
/// them before the request. A pipe holds a quarter of this.
const CATCH_UP_MAX: usize = 256 << 10;

/// The receiver of text that is not for the client.
pub struct DiagnosticsSink {
    to: ByteWriter,
    from: Option<ByteReader>,
    read: BytesMut,
    outbox: Outbox,
    /// The reader of lines on standard error, if a route reads them.
    terminal: Option<Terminal>,
    lines: VecDeque<String>,
}

/// An event of standard error.
pub(crate) enum Activity {
    /// The server has written something on its standard error.
    ServerWrote,
    /// Something was written, or the end was reached.
    Other,
}

impl DiagnosticsSink {
    /// A sink that writes text, and the server's standard error if Milepost reads it, to `to`.
    pub fn new(to: ByteWriter, from: Option<ByteReader>) -> Self {
        let (read, outbox, lines) = (BytesMut::new(), Outbox::default(), VecDeque::new());
        Self { to, from, read, outbox, terminal: None, lines }
    }

    /// From now on the lines on standard error are kept until they are taken.
    pub(crate) fn listen(&mut self) {
        self.terminal.get_or_insert_with(Terminal::default);
    }

    /// The newest lines that were written on standard error.
    pub(crate) fn lines(&mut self) -> impl Iterator<Item = String> {
        self.lines.drain(..)
    }

    /// Reads the text that is in the pipe, which was written before the next message. Does nothing unless the lines are
    /// kept.
    pub(crate) fn catch_up(&mut self) {
        // A no-op waker is enough: this task polls the sink again before it waits.
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..CATCH_UP_MAX / ERRORS_READ {
            if self.terminal.is_none() || !matches!(self.poll(&mut cx), Poll::Ready(_)) {
                return;
            }
        }
    }

    /// Another server's standard error takes the place of the first.
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
            // A reader that fails has ended as well: it returns no more text.
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

    /// Writes the remaining text, including that of the server's standard error; gives up if nothing can be written for
    /// `patience`.
    pub(crate) async fn finish(&mut self, patience: Duration) {
        // A process that keeps standard error open but stays silent has no text about this server.
        let end = Instant::now() + ERRORS_LAST_MAX;
        while self.from.is_some()
            && Instant::now() < end
            && timeout(ERRORS_LAST, poll_fn(|cx| self.poll(cx))).await.is_ok()
        {}
        self.from = None;
        while !self.outbox.is_empty()
            && timeout(patience, poll_fn(|cx| self.poll(cx))).await.is_ok()
        {}
        // The last piece counts as written when a thread has taken it.
        if self.outbox.is_empty() {
            let _ = timeout(patience, self.to.flush()).await;
        }
    }
}
