//! Milepost's standard input and output as the leg towards the client.
//!
//! Pipes and sockets are driven by the event loop. Terminals and files cannot be, so threads read
//! and write them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::observe::log::shared_stderr;

/// Bytes that come in.
pub type ByteReader = Box<dyn AsyncRead + Send + Unpin>;
/// Bytes that go out.
pub type ByteWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Our standard input.
pub fn input() -> ByteReader {
    let ours = || {
        let fd = io::stdin().as_fd().try_clone_to_owned().ok()?;
        Some(match kind(fd)? {
            StdioKind::Pipe => {
                Box::new(pipe::OpenOptions::new().open_receiver(own(0)).ok()?) as ByteReader
            }
            StdioKind::Socket(stream) => Box::new(stream),
        })
    };
    ours().unwrap_or_else(|| Box::new(tokio::io::stdin()))
}

/// Our standard output.
pub fn output() -> ByteWriter {
    let ours = || {
        let fd = io::stdout().as_fd().try_clone_to_owned().ok()?;
        Some(match kind(fd)? {
            StdioKind::Pipe => {
                Box::new(pipe::OpenOptions::new().open_sender(own(1)).ok()?) as ByteWriter
            }
            StdioKind::Socket(stream) => Box::new(stream),
        })
    };
    ours().unwrap_or_else(|| Box::new(tokio::io::stdout()))
}

/// Our standard error, for the text of a child: log lines stand between its lines.
pub fn error() -> ByteWriter {
    Box::new(ChildTextWriter { writing: None })
}

/// Bytes of the child's text that are handed to a thread at once.
const ERROR_PIECE: usize = 64 << 10;

/// Writes the text of a child in a thread, one piece after the other: standard error may block.
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

/// The path under which a pipe can be opened anew. Switching it to non-blocking mode instead would
/// also affect the other holders of the same open file, who do not expect that mode.
fn own(number: u8) -> impl AsRef<Path> {
    format!("/proc/self/fd/{number}")
}

enum StdioKind {
    Pipe,
    Socket(UnixStream),
}

fn kind(fd: OwnedFd) -> Option<StdioKind> {
    let file = File::from(fd);
    let kind = file.metadata().ok()?.file_type();
    if kind.is_fifo() {
        return Path::new("/proc/self/fd").exists().then_some(StdioKind::Pipe);
    }
    if !kind.is_socket() {
        return None;
    }
    // Node.js gives its children sockets instead of pipes; nobody else holds our end.
    let stream = StdStream::from(OwnedFd::from(file));
    stream.peer_addr().ok()?;
    stream.set_nonblocking(true).ok()?;
    UnixStream::from_std(stream).ok().map(StdioKind::Socket)
}
