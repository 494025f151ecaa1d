//! Standard input and output of this process. On Windows the event loop cannot drive them, so threads read and write
//! them.

use tokio::io::{AsyncRead, AsyncWrite};

/// Returns `None`: the event loop cannot drive standard input.
pub fn input() -> Option<Box<dyn AsyncRead + Send + Unpin>> {
    None
}

/// Returns `None`: the event loop cannot drive standard output.
pub fn output() -> Option<Box<dyn AsyncWrite + Send + Unpin>> {
    None
}
