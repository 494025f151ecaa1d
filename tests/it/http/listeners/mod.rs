//! Listeners on loopback: what clients see of them while they serve and while they stop.

mod connections;
mod own_process;
mod shutdown;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use milepost::config::routes::{Admin, Route, Server, Upstream};
use milepost::gateway::listen::{Admitted, Handler, Listeners, ServeError, StopSignal};
use milepost::transport::http::via::Via;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::STUCK;

/// POST answers at once, and where `held` stands in the body when the test releases it; GET is a stream until it is told to
/// end, and with `?stubborn` for ever; DELETE is a fault in the middle of the answer.
struct Talker {
    ending: watch::Sender<bool>,
    calls: watch::Sender<usize>,
    /// Held calls are answered.
    released: watch::Sender<bool>,
}

impl Default for Talker {
    fn default() -> Self {
        let (ending, released) = (watch::Sender::new(false), watch::Sender::new(false));
        Self { ending, calls: watch::Sender::new(0), released }
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

fn event(text: &'static str) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

impl Handler for Talker {
    type Body = Body;

    fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        _: Admitted,
    ) -> impl Future<Output = Response<Body>> + Send + use<> {
        Arc::clone(self).talk(request)
    }

    async fn calls_done(&self) {
        let _ = self.calls.subscribe().wait_for(|calls| *calls == 0).await;
    }

    async fn end_streams(&self) {
        self.ending.send_replace(true);
    }
}

impl Talker {
    async fn talk(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let stubborn = request.uri().query() == Some("stubborn");
        match *request.method() {
            Method::GET => {
                let ending = self.ending.subscribe();
                let events = stream::unfold(0, move |number| {
                    let mut ending = ending.clone();
                    async move {
                        match number {
                            0 => Some((event(": hello\n\n"), 1)),
                            1 => {
                                let _ = ending.wait_for(|ending| *ending && !stubborn).await;
                                Some((event("data: bye\n\n"), 2))
                            }
                            _ => None,
                        }
                    }
                });
                Response::new(StreamBody::new(events).boxed_unsync())
            }
            Method::DELETE => {
                let fault = stream::unfold(0, |number| async move {
                    if number > 0 {
                        // By then the bytes have been sent.
                        sleep(Duration::from_millis(100)).await;
                        panic!("a fault that the test wants");
                    }
                    Some((event("half\n"), 1))
                });
                Response::new(StreamBody::new(fault).boxed_unsync())
            }
            _ => {
                self.calls.send_modify(|calls| *calls += 1);
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let text = String::from_utf8_lossy(&body).into_owned();
                if text == "held" {
                    let _ = self.released.subscribe().wait_for(|released| *released).await;
                }
                self.calls.send_modify(|calls| *calls -= 1);
                Response::new(Full::from(format!("done {text}")).boxed_unsync())
            }
        }
    }
}

/// A site that serves.
struct Running {
    address: SocketAddr,
    admin: SocketAddr,
    handler: Arc<Talker>,
    stop: mpsc::Sender<StopSignal>,
    task: JoinHandle<u8>,
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn server() -> Server {
    Server { listen: loopback(), ..Server::default() }
}

async fn bind(server: &Server, admin: &Admin) -> Result<Listeners<Talker>, ServeError> {
    bind_to(server, admin, Arc::default()).await
}

async fn bind_to(
    server: &Server,
    admin: &Admin,
    handler: Arc<Talker>,
) -> Result<Listeners<Talker>, ServeError> {
    let routes = [Route::new("/a".to_owned(), Upstream::Demo)];
    Listeners::bind(server, admin, None, &routes, Via::named(1), handler).await
}

async fn start(server: Server) -> Running {
    let admin = Admin { listen: Some(loopback()), ..Admin::default() };
    let handler = Arc::<Talker>::default();
    let site = bind_to(&server, &admin, Arc::clone(&handler)).await.unwrap();
    let address = site.address().unwrap();
    let admin = site.admin_address().unwrap().unwrap();
    let (stop, stopped) = mpsc::channel(3);
    let task = tokio::spawn(site.serve(stopped));
    Running { address, admin, handler, stop, task }
}

impl Running {
    /// SIGTERM.
    async fn stop(&self) {
        self.signal(StopSignal::Terminate).await;
    }

    async fn signal(&self, signal: StopSignal) {
        self.stop.send(signal).await.unwrap();
    }

    /// Waits until so many calls are open.
    async fn has_calls(&self, count: usize) {
        let mut calls = self.handler.calls.subscribe();
        timeout(STUCK, calls.wait_for(|calls| *calls == count)).await.unwrap().unwrap();
    }

    /// The held calls are answered.
    fn release(&self) {
        self.handler.released.send_replace(true);
    }

    /// Waits until no more connections are accepted.
    async fn refuses(&self) {
        let deadline = Instant::now() + STUCK;
        while TcpStream::connect(self.address).await.is_ok() {
            assert!(Instant::now() < deadline, "it still accepts connections");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the page for operators answers with this status.
    async fn tells(&self, path: &str, expected: u16) {
        let deadline = Instant::now() + STUCK;
        while status(self.admin, path).await != expected {
            assert!(Instant::now() < deadline, "{path} does not answer with {expected}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The exit code, when it has stopped.
    async fn code(self) -> u8 {
        timeout(STUCK, self.task).await.unwrap().unwrap()
    }
}

/// A connection of HTTP/1.1, spoken by hand.
struct Talk(TcpStream);

impl Talk {
    async fn with(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    async fn say(&mut self, head: &str, body: &str) {
        let text = format!(
            "{head} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until `end` has arrived.
    async fn hear(&mut self, end: &str) -> String {
        let mut heard = Vec::new();
        let listen = async {
            while !String::from_utf8_lossy(&heard).contains(end) {
                let read = self.0.read_buf(&mut heard).await.unwrap();
                let text = String::from_utf8_lossy(&heard);
                assert!(read > 0, "closed before {end:?} came: {text}");
            }
        };
        timeout(STUCK, listen).await.unwrap();
        String::from_utf8(heard).unwrap()
    }

    /// Reads until the connection is closed. Returns the bytes, and whether the connection was closed without a reset.
    async fn rest(&mut self) -> (String, bool) {
        let mut heard = Vec::new();
        let end = timeout(STUCK, self.0.read_to_end(&mut heard)).await.unwrap();
        (String::from_utf8_lossy(&heard).into_owned(), end.is_ok())
    }
}

/// The status of one request on a connection of its own.
async fn status(address: SocketAddr, head: &str) -> u16 {
    let mut talk = Talk::with(address).await;
    talk.say(head, "").await;
    talk.hear("\r\n\r\n").await[9..12].parse().unwrap()
}

/// Returns a directory with a certificate for `localhost`, its key, and a file that is neither.
fn certificate() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (folder, certificate, key)
}

/// An error with its causes.
fn said(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", said(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}
