//! Bytes sent and received over connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A fact about the connection to a server that operators should know although no request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerNotice {
    /// A redirect of the server was followed.
    Redirected,
    /// The server closed an idle connection that Milepost expected to be still open.
    ClosedEarly,
    /// The route began to use a proxy.
    Proxy,
    /// The route does not use the proxy that the environment names.
    ProxyUnused,
    /// A response has a compression that Milepost does not support.
    Undecoded,
    /// A request used the last valid token, because the token file cannot be used now.
    TokenFile,
}

impl ServerNotice {
    /// All notices.
    pub(super) const ALL: [Self; 6] = [
        Self::Redirected,
        Self::ClosedEarly,
        Self::Proxy,
        Self::ProxyUnused,
        Self::Undecoded,
        Self::TokenFile,
    ];

    /// Returns the name in metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Redirected => "redirected",
            Self::ClosedEarly => "closed-early",
            Self::Proxy => "proxy",
            Self::ProxyUnused => "proxy-unused",
            Self::Undecoded => "undecoded",
            Self::TokenFile => "token-file",
        }
    }
}

/// Counts the bytes from and to a peer, and notices about a server. The default's counters are not in any metric.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    pub(super) received: Counter,
    pub(super) sent: Counter,
    pub(super) notices: Arc<[Counter; ServerNotice::ALL.len()]>,
}

impl Traffic {
    /// Counts a notice about the server.
    pub(crate) fn notice(&self, notice: ServerNotice) {
        self.notices[notice as usize].inc();
    }

    /// Wraps `io`, to count its bytes in both directions.
    pub fn over<I>(&self, io: I) -> MeteredIo<I> {
        MeteredIo { io, traffic: self.clone() }
    }
}

/// A connection whose bytes are counted.
#[derive(Debug)]
pub struct MeteredIo<I> {
    io: I,
    traffic: Traffic,
}

impl<I> MeteredIo<I> {
    /// Returns the connection.
    pub fn get_ref(&self) -> &I {
        &self.io
    }
}

fn count(counter: &Counter, written: &Poll<io::Result<usize>>) {
    if let Poll::Ready(Ok(bytes)) = written {
        counter.inc_by(*bytes as u64);
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for MeteredIo<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        this.traffic.received.inc_by(buffer.filled().len().saturating_sub(before) as u64);
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for MeteredIo<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, bytes);
        count(&this.traffic.sent, &written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, slices);
        count(&this.traffic.sent, &written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
