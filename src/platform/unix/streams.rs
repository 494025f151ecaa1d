//! Standard input and output of this process, driven by the event loop. Terminals and regular files cannot be.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// Returns standard input, if it is a pipe or a socket.
pub fn input() -> Option<Box<dyn AsyncRead + Send + Unpin>> {
    let fd = io::stdin().as_fd().try_clone_to_owned().ok()?;
    Some(match kind(fd)? {
        StdioKind::Pipe => Box::new(pipe::OpenOptions::new().open_receiver(own(0)).ok()?),
        StdioKind::Socket(stream) => Box::new(stream),
    })
}

/// Returns standard output, if it is a pipe or a socket.
pub fn output() -> Option<Box<dyn AsyncWrite + Send + Unpin>> {
    let fd = io::stdout().as_fd().try_clone_to_owned().ok()?;
    Some(match kind(fd)? {
        StdioKind::Pipe => Box::new(pipe::OpenOptions::new().open_sender(own(1)).ok()?),
        StdioKind::Socket(stream) => Box::new(stream),
    })
}

/// Returns the path under which a pipe can be opened again. Switching it to non-blocking mode instead would also affect
/// the other processes that share the open file, which do not expect that mode.
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
    // Node.js gives its children sockets instead of pipes. No other process shares this end: its mode may change.
    let stream = StdStream::from(OwnedFd::from(file));
    stream.peer_addr().ok()?;
    stream.set_nonblocking(true).ok()?;
    UnixStream::from_std(stream).ok().map(StdioKind::Socket)
}
