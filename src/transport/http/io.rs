//! Connected byte streams.

use tokio::io::{AsyncRead, AsyncWrite};

/// Anything that bytes go over.
pub trait IoStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> IoStream for T {}

/// A connected byte stream.
pub type Io = Box<dyn IoStream>;
