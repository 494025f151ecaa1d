//! Standard input and output of this process. The event loop of Windows does not drive them: threads read and
//! write them.

use tokio::io::{AsyncRead, AsyncWrite};

/// Standard input, if the event loop can drive it: never.
pub fn input() -> Option<Box<dyn AsyncRead + Send + Unpin>> {
    None
}

/// Standard output, if the event loop can drive it: never.
pub fn output() -> Option<Box<dyn AsyncWrite + Send + Unpin>> {
    None
}
