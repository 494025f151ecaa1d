//! Tests of HTTP/1.1 connections and their reuse.

use std::sync::mpsc;

use bytes::Bytes;
use futures::FutureExt;
use http::Method;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::sleep;

use super::idle_links::IDLE_FOR;
use super::*;
use crate::transport::http::dialer::Dialer;

const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A pool, and the servers' ends of its connections.
struct Pooled {
    pool: Arc<ConnectionPool>,
    servers: mpsc::Receiver<DuplexStream>,
}

impl Pooled {
    fn new() -> Self {
        let (connected, servers) = mpsc::channel();
        let connect = move || {
            let (client, server) = duplex(1 << 20);
            connected.send(server).unwrap();
            async { Ok(Box::new(client) as Io) }.boxed()
        };
        let connector = Connector::InProcess(Arc::new(connect));
        let pool = ConnectionPool::new(connector, Duration::from_secs(1), &Traffic::default());
        Self { pool: Arc::new(pool), servers }
    }

    /// Returns the server's end of the next connection.
    #[track_caller]
    fn server(&self) -> DuplexStream {
        self.servers.try_recv().expect("no connection")
    }

    /// Sends a request, which gets this text as its response, on a new connection or on `server`.
    async fn ask(
        &self,
        server: &mut Option<DuplexStream>,
        text: &str,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let mut request = Request::new(RequestBody::from(Bytes::from_static(b"{}")));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "/mcp".parse().unwrap();
        let answered = async {
            // Wait until the request has been sent.
            sleep(Duration::from_millis(1)).await;
            if let Ok(new) = self.servers.try_recv() {
                *server = Some(new);
            }
            let server = server.as_mut().unwrap();
            let asked = told(server).await;
            assert!(
                asked.starts_with("POST /mcp HTTP/1.1\r\n") && asked.ends_with("{}"),
                "{asked}"
            );
            server.write_all(text.as_bytes()).await.unwrap();
        };
        tokio::join!(self.pool.send(request), answered).0
    }

    /// Returns the whole body, or the error that ends it.
    async fn text(&self, server: &mut Option<DuplexStream>, text: &str) -> Result<String, String> {
        let response = self.ask(server, text).await.map_err(|error| error.for_clients())?;
        read(response.into_body()).await
    }
}

async fn read(mut body: UpstreamBody) -> Result<String, String> {
    let mut text = Vec::new();
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        text.extend_from_slice(&data.map_err(|error| error.for_clients())?);
    }
    Ok(String::from_utf8(text).unwrap())
}

/// Returns the bytes that have arrived at a server.
async fn told(server: &mut DuplexStream) -> String {
    let mut bytes = vec![0; 1 << 16];
    let count = server.read(&mut bytes).await.unwrap();
    bytes.truncate(count);
    String::from_utf8(bytes).unwrap()
}

/// Whether the connection is closed now.
fn is_closed(server: &mut Option<DuplexStream>) -> bool {
    server.as_mut().unwrap().read(&mut [0]).now_or_never().is_some_and(|read| read.unwrap() == 0)
}

#[tokio::test(start_paused = true)]
async fn a_connection_serves_one_request_after_the_other() {
    let (pooled, server) = (Pooled::new(), &mut None);
    for text in [
        LENGTH,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
        "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        assert_eq!(pooled.text(server, text).await.unwrap(), "hi");
    }
    assert_eq!(pooled.text(server, "HTTP/1.1 204 None\r\n\r\n").await.unwrap(), "");
    assert!(!is_closed(server) && pooled.servers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_closes_by_itself() {
    let (pooled, server) = (Pooled::new(), &mut None);
    pooled.text(server, LENGTH).await.unwrap();
    sleep(IDLE_FOR - Duration::from_millis(10)).await;
    assert!(!is_closed(server));
    sleep(Duration::from_millis(20)).await;
    assert!(is_closed(server));
}

#[tokio::test(start_paused = true)]
async fn a_connection_in_doubt_serves_nothing_more() {
    for text in [
        // A second response, which would be taken for that of the next request.
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        let (pooled, server) = (Pooled::new(), &mut None);
        assert_eq!(pooled.text(server, text).await.unwrap(), "hi");
        assert!(is_closed(server), "{text}");
        assert_eq!(pooled.text(server, LENGTH).await.unwrap(), "hi");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_unasked_answers_nothing() {
    for closes in [false, true] {
        let (pooled, server) = (Pooled::new(), &mut None);
        pooled.text(server, LENGTH).await.unwrap();
        let idle = server.as_mut().unwrap();
        if closes {
            idle.shutdown().await.unwrap();
        } else {
            idle.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await.unwrap();
        }
        let mut new = None;
        assert_eq!(pooled.text(&mut new, LENGTH).await.unwrap(), "hi");
        assert!(is_closed(server));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_early_closes_its_connection() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n";
    for text in [chunked, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"] {
        let (pooled, server) = (Pooled::new(), &mut None);
        let mut body = pooled.ask(server, text).await.unwrap().into_body();
        let data = poll_fn(|cx| body.poll_data(cx)).await.unwrap().unwrap();
        assert_eq!(data, "hi");
        drop(body);
        assert!(is_closed(server), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_closes_its_connection() {
    let pooled = Pooled::new();
    let request = Request::new(RequestBody::from(Bytes::from_static(b"{}")));
    assert!(pooled.pool.send(request).now_or_never().is_none());
    let server = &mut Some(pooled.server());
    let asked = told(server.as_mut().unwrap()).await;
    assert!(asked.starts_with("GET / HTTP/1.1\r\n"), "{asked}");
    assert!(is_closed(server));
}

#[tokio::test(start_paused = true)]
async fn a_response_before_the_end_of_its_request_closes_the_connection() {
    let pooled = Pooled::new();
    // More bytes than the connection buffers.
    let request = Request::new(RequestBody::from(Bytes::from(vec![b'x'; 2 << 20])));
    let answered = async {
        sleep(Duration::from_millis(1)).await;
        let mut server = pooled.server();
        told(&mut server).await;
        server.write_all(LENGTH.as_bytes()).await.unwrap();
        server
    };
    let (response, mut server) = tokio::join!(pooled.pool.send(request), answered);
    assert_eq!(read(response.unwrap().into_body()).await.unwrap(), "hi");
    let rest = timeout(Duration::from_millis(1), server.read_to_end(&mut Vec::new())).await;
    assert!(rest.is_ok_and(|read| read.unwrap() < 2 << 20));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_none_is_an_error_and_closes_its_connection() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\nhi",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nhi",
        "SSH-2.0-OpenSSH_9.9\r\n",
    ] {
        let (pooled, server) = (Pooled::new(), &mut None);
        pooled.text(server, text).await.unwrap_err();
        assert!(is_closed(server), "{text}");
        assert_eq!(pooled.text(server, LENGTH).await.unwrap(), "hi");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_breaks_off_is_an_error() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n";
    for text in ["", "HTTP/1.1 200 OK\r\n", &LENGTH[..LENGTH.len() - 1], chunked] {
        let pooled = Pooled::new();
        let asked = async {
            let request = Request::new(RequestBody::empty());
            let response = pooled.pool.send(request).await;
            read(response.map_err(|error| error.for_clients())?.into_body()).await
        };
        let broken = async {
            sleep(Duration::from_millis(1)).await;
            let mut server = pooled.server();
            told(&mut server).await;
            server.write_all(text.as_bytes()).await.unwrap();
        };
        let (outcome, ()) = tokio::join!(asked, broken);
        assert!(outcome.is_err(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_closes_before_the_time_that_its_server_promises() {
    let (pooled, server) = (Pooled::new(), &mut None);
    let promised = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=2\r\nContent-Length: 2\r\n\r\nhi";
    pooled.text(server, promised).await.unwrap();
    sleep(Duration::from_millis(900)).await;
    assert_eq!(pooled.text(server, promised).await.unwrap(), "hi");
    sleep(Duration::from_millis(990)).await;
    assert!(!is_closed(server));
    sleep(Duration::from_millis(20)).await;
    assert!(is_closed(server));
}

/// Answers one request on each connection, and closes it on command.
fn serve_one_each(
    listener: &std::net::TcpListener,
    close: &mpsc::Receiver<()>,
    closed: &mpsc::Sender<()>,
) {
    use std::io::{Read, Write};
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut asked, mut byte) = (Vec::new(), [0]);
        while !asked.ends_with(b"{}") {
            stream.read_exact(&mut byte).unwrap();
            asked.extend_from_slice(&byte);
        }
        stream.write_all(LENGTH.as_bytes()).unwrap();
        let Ok(()) = close.recv() else { return };
        // The close returns only after the client's side has got the end of the stream.
        SockRef::from(&stream).set_linger(Some(Duration::from_secs(60))).unwrap();
        drop(stream);
        closed.send(()).unwrap();
    }
}

/// The runtime notices the end of a connection only when it waits, and a request may be sent before that.
#[tokio::test]
async fn a_connection_that_the_server_has_closed_just_now_is_not_used() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (host, port) = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
    let (close, told) = mpsc::channel();
    let (closed, is_closed) = mpsc::channel();
    std::thread::spawn(move || serve_one_each(&listener, &told, &closed));
    let connector = Connector::Network(Arc::new(Dialer::new(host, port, None)));
    let pool = ConnectionPool::new(connector, Duration::from_secs(60), &Traffic::default());
    let pool = Arc::new(pool);
    // The server counts as one that keeps connections open.
    pool.idle.lock().unwrap().note_open(PROVEN_AFTER);
    for _ in 0..3 {
        let request = Request::new(RequestBody::from(Bytes::from_static(b"{}")));
        let response = pool.send(request).await.map_err(|error| error.for_clients());
        assert_eq!(read(response.unwrap().into_body()).await.unwrap(), "hi");
        close.send(()).unwrap();
        is_closed.recv().unwrap();
        pool.idle.lock().unwrap().note_open(PROVEN_AFTER);
    }
}
