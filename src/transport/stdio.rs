//! Milepost's standard input and output as the leg towards the client.
//!
//! The event loop drives pipes and sockets. It cannot drive terminals and files, so threads read and write those.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::observe::log::shared_stderr;
use crate::platform::streams;

/// A stream of bytes to read.
pub type ByteReader = Box<dyn AsyncRead + Send + Unpin>;
/// A stream of bytes to write.
pub type ByteWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Returns Milepost's standard input.
pub fn input() -> ByteReader {
    streams::input().unwrap_or_else(|| Box::new(tokio::io::stdin()))
}

/// Returns Milepost's standard output.
pub fn output() -> ByteWriter {
    streams::output().unwrap_or_else(|| Box::new(tokio::io::stdout()))
}

/// Returns Milepost's standard error, for the text of a child. Log lines are written between the lines of the text.
pub fn error() -> ByteWriter {
    Box::new(ChildTextWriter { writing: None })
}

/// Limit of the bytes of a child's text that are handed to a thread together.
const ERROR_PIECE: usize = 64 << 10;

/// Writes the text of a child in a thread, piece by piece, because standard error may block.
struct ChildTextWriter {
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl ChildTextWriter {
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let written = ready!(Pin::new(writing).poll(cx));
        self.writing = None;
        Poll::Ready(written.unwrap_or_else(|error| Err(io::Error::other(error))))
    }
}

impl AsyncWrite for ChildTextWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        text: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // One piece at a time, so that the text keeps its order and a child that writes without end has to wait.
        ready!(this.poll_written(cx))?;
        let piece = text[..text.len().min(ERROR_PIECE)].to_vec();
        let size = piece.len();
        this.writing = Some(spawn_blocking(move || shared_stderr::write_child_text(&piece)));
        Poll::Ready(Ok(size))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_written(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl Drop for ChildTextWriter {
    fn drop(&mut self) {
        shared_stderr::end_child_text();
    }
}
