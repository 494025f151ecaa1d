//! Connected byte streams.

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use crate::observe::metrics::MeteredIo;
use crate::platform::sockets::{self, LocalConnection};

/// Anything that bytes go over.
pub trait IoStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Acknowledges what has been read, at once. TCP waits up to 40 ms for bytes that the acknowledgement could go
    /// with.
    fn acknowledge(&self) {}
}

/// A connected byte stream.
pub type Io = Box<dyn IoStream>;

impl IoStream for DuplexStream {}

impl IoStream for LocalConnection {}

impl IoStream for TcpStream {
    fn acknowledge(&self) {
        sockets::acknowledge(self);
    }
}

impl IoStream for client::TlsStream<TcpStream> {
    fn acknowledge(&self) {
        sockets::acknowledge(self.get_ref().0);
    }
}

impl IoStream for server::TlsStream<TcpStream> {}

impl IoStream for MeteredIo<Io> {
    fn acknowledge(&self) {
        self.get_ref().acknowledge();
    }
}
