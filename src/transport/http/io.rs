//! Byte streams of connections.

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Join, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use crate::observe::metrics::MeteredIo;
use crate::platform::sockets::{self, LocalClient, LocalConnection};
use crate::transport::http::tcp;

/// A bidirectional byte stream.
pub trait IoStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Acknowledges the received bytes immediately. Otherwise TCP delays the acknowledgement by up to 40 ms.
    fn acknowledge(&self) {}

    /// Whether the peer has neither closed the connection nor sent bytes that are still to be read, as far as the
    /// system knows. The system is asked, because the runtime notices both only when it waits.
    fn is_quiet(&self) -> bool {
        true
    }
}

/// A connected byte stream.
pub type Io = Box<dyn IoStream>;

impl IoStream for DuplexStream {}

impl IoStream for LocalConnection {}

// The client's side, in halves: the two sides of a local socket have one type on Unix and two on Windows.
impl IoStream for Join<ReadHalf<LocalClient>, WriteHalf<LocalClient>> {}

impl IoStream for TcpStream {
    fn acknowledge(&self) {
        sockets::acknowledge(self);
    }

    fn is_quiet(&self) -> bool {
        tcp::is_quiet(self)
    }
}

/// TLS over TCP, or over the tunnel of a proxy that may itself use TLS.
impl IoStream for client::TlsStream<Io> {
    fn acknowledge(&self) {
        self.get_ref().0.acknowledge();
    }

    fn is_quiet(&self) -> bool {
        self.get_ref().0.is_quiet()
    }
}

impl IoStream for server::TlsStream<TcpStream> {}

impl IoStream for MeteredIo<Io> {
    fn acknowledge(&self) {
        self.get_ref().acknowledge();
    }

    fn is_quiet(&self) -> bool {
        self.get_ref().is_quiet()
    }
}
