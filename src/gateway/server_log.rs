//! Writes the standard error of a server to the log, line by line and without its secrets.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::progress::policy::masks::Masks;

/// Limit of a log line from a server's standard error, in bytes. A longer line is cut.
const LINE_MAX: usize = 4 << 10;

/// A writer that logs each line that is written to it.
#[derive(Default)]
pub(crate) struct ServerLog {
    masks: Masks,
    line: Vec<u8>,
    /// Whether the line is longer than the part that is kept of it.
    cut: bool,
}

impl ServerLog {
    /// Returns a writer that masks the secrets of a route's server.
    pub(crate) fn masking(masks: Masks) -> Self {
        Self { masks, line: Vec::new(), cut: false }
    }

    fn take(&mut self, text: &[u8]) {
        let mut lines = text.split(|byte| *byte == b'\n');
        if let Some(first) = lines.next() {
            self.more(first);
        }
        for line in lines {
            self.log_line();
            self.more(line);
        }
    }

    fn more(&mut self, text: &[u8]) {
        let room = LINE_MAX - self.line.len();
        self.cut |= text.len() > room;
        self.line.extend_from_slice(&text[..text.len().min(room)]);
    }

    fn log_line(&mut self) {
        let mut line = readable(&self.line);
        if std::mem::take(&mut self.cut) {
            line.push('…');
        }
        self.line.clear();
        if !line.is_empty() {
            let line = &*self.masks.mask(&line);
            tracing::info!(target: "server", line, "server");
        }
    }
}

/// A line as text. Control characters for terminals are removed by the log.
fn readable(line: &[u8]) -> String {
    String::from_utf8_lossy(line.trim_ascii_end()).replace('\t', " ")
}

impl AsyncWrite for ServerLog {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        text: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().take(text);
        Poll::Ready(Ok(text.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for ServerLog {
    fn drop(&mut self) {
        self.log_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_text_without_its_end() {
        assert_eq!(readable(b"plain\r"), "plain");
        assert_eq!(readable(b"one\ttwo"), "one two");
        assert_eq!(readable(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn lines_are_put_together_and_cut_at_their_limit() {
        let mut log = ServerLog::default();
        log.take(b"one ");
        log.take(b"line\nand ");
        assert_eq!(log.line, b"and ");
        log.take(&vec![b'x'; 2 * LINE_MAX]);
        assert_eq!((log.line.len(), log.cut), (LINE_MAX, true));
        log.take(b"\n");
        assert_eq!((log.line.len(), log.cut), (0, false));
    }
}
