//! TCP connections whose peer may vanish without closing them, because a machine loses power or a network is cut.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::transport::child::check_reserve;

/// The silence after which TCP sends the first probe to a peer.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
/// The interval between further probes.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
/// Number of unanswered probes after which a connection has failed.
const KEEPALIVE_TIMES: u32 = 3;

/// Connects to an address. Errors are those of the system.
pub(super) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    // Refused before the last descriptors are used, because they are reserved for operators.
    check_reserve()?;
    let stream = TcpStream::connect(address).await?;
    // Nagle's algorithm would delay a small message until the peer has acknowledged the previous one.
    stream.set_nodelay(true)?;
    notice_vanished_peer(&stream);
    Ok(stream)
}

/// Makes a vanished peer end the connection about a minute after its last bytes. A peer that is only silent answers the
/// probes, however long it is silent.
pub(crate) fn notice_vanished_peer(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    // Ignore the error: without probes a vanished peer is only noticed later.
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_TIMES));
}

/// Whether the peer has neither closed the connection nor sent bytes that are still to be read.
pub(crate) fn is_quiet(stream: &TcpStream) -> bool {
    // `peek` leaves the byte in place. On an open connection without data it returns `WouldBlock`; at the end of the
    // stream it succeeds.
    let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_has_vanished_is_noticed() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = connect(socket.local_addr().unwrap()).await.unwrap();
        assert!(stream.nodelay().unwrap());
        let options = SockRef::from(&stream);
        assert!(options.keepalive().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), KEEPALIVE_AFTER);
        assert_eq!(options.tcp_keepalive_interval().unwrap(), KEEPALIVE_EVERY);
        assert_eq!(options.tcp_keepalive_retries().unwrap(), KEEPALIVE_TIMES);
    }
}
