//! A proxy between clients and a server whose every byte a test determines.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use milepost::config::routes::{Environment, Routes};
use milepost::gateway::dispatch::Proxy;
use milepost::observe::durations::DurationStore;
use milepost::transport::http::client::InProcess;
use milepost::transport::http::endpoints::RouteTable;
use milepost::transport::http::headers::remove_in_order;
use milepost::transport::http::io::Io;
use milepost::transport::http::via::Via;
use milepost::transport::http::write_state::WriteState;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::core::checker::Checker;
use crate::http::raw;
use crate::http::raw::{Block, Spoken};
use crate::http::recording::Records;
use crate::support::messages::{INITIALIZED, agreement, initialize};

/// Bytes that a connection holds between its ends.
const ROOM: usize = 64 << 10;

/// The `Accept` header of clients of Streamable HTTP.
pub(crate) const BOTH: &str = "Accept: application/json, text/event-stream";

/// The header of a request whose length is not known at its beginning.
pub(crate) const CHUNKED: &str = "Transfer-Encoding: chunked";

/// A body in chunks, with the end.
pub(crate) fn chunked(body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut text = Vec::new();
    for piece in body.as_ref().chunks(ROOM) {
        text.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        text.extend_from_slice(piece);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}

/// Numbers everything that clients say and are told.
static ORDER: AtomicUsize = AtomicUsize::new(0);

fn next_order() -> usize {
    ORDER.fetch_add(1, Ordering::Relaxed)
}

/// Lets every task run until it has to wait.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    settle().await;
    tokio::time::sleep(time).await;
    settle().await;
}

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A proxy with one route, `/r`, whose server is at `http://up.example/base/mcp` and, for HTTP+SSE, at
/// `http://up.example/base/sse`.
pub(crate) struct Rig {
    proxy: Arc<Proxy>,
    places: Arc<RouteTable>,
    asked: mpsc::UnboundedReceiver<Asked>,
    refuses: Arc<AtomicBool>,
    start: Instant,
    _records: Records,
}

impl Rig {
    /// The route has these keys (TOML) besides.
    pub(crate) fn new(keys: &str) -> Self {
        Self::with("", keys)
    }

    /// The same with these keys ahead of the route.
    pub(crate) fn with(top: &str, keys: &str) -> Self {
        let (connect, asked, refuses) = server();
        Self::reaching(7, [top, keys], connect, asked, refuses)
    }

    /// Returns a rig in which another proxy is the server: requests to that proxy's server appear here.
    pub(crate) fn before(inner: Self, keys: &str) -> Self {
        let Self { proxy, places, asked, refuses, .. } = inner;
        let connect = move || -> BoxFuture<'static, std::io::Result<Io>> {
            let (near, far) = duplex(ROOM);
            tokio::spawn(listen(far, Arc::clone(&proxy), Arc::clone(&places)));
            async move { Ok(Box::new(near) as Io) }.boxed()
        };
        Self::reaching(8, ["", keys], Arc::new(connect), asked, refuses)
    }

    /// Returns a rig whose route leads to a stdio server: each server that is started comes out of the channel.
    pub(crate) fn of_lines(keys: &str) -> (Self, mpsc::UnboundedReceiver<Lines>) {
        let (tell, started) = mpsc::unbounded_channel();
        let connect = move || -> BoxFuture<'static, std::io::Result<Io>> {
            let (near, far) = duplex(ROOM);
            let _ = tell.send(Lines::new(far));
            async move { Ok(Box::new(near) as Io) }.boxed()
        };
        let file = format!("[[route]]\npath = \"/r\"\nupstream.command = [\"server\"]\n{keys}\n");
        let (_, asked) = mpsc::unbounded_channel();
        (Self::of_file(7, &file, Arc::new(connect), asked, Arc::default()), started)
    }

    /// The server has these endpoints and no others, as keys of `upstream`.
    pub(crate) fn having(endpoints: &str) -> Self {
        let (connect, asked, refuses) = server();
        let file = format!("[[route]]\npath = \"/r\"\n{endpoints}\n");
        Self::of_file(7, &file, connect, asked, refuses)
    }

    fn reaching(
        name: u32,
        [top, keys]: [&str; 2],
        connect: InProcess,
        asked: mpsc::UnboundedReceiver<Asked>,
        refuses: Arc<AtomicBool>,
    ) -> Self {
        // The path of the outer route is the path of the inner route.
        let base = if name == 8 { "r" } else { "base" };
        let endpoint = if name == 8 { "r" } else { "base/mcp" };
        let file = format!(
            "{top}\n[[route]]\npath = \"/r\"\nupstream.url = \"http://up.example/{endpoint}\"\n\
             upstream.sse = \"http://up.example/{base}/sse\"\n{keys}\n"
        );
        Self::of_file(name, &file, connect, asked, refuses)
    }

    fn of_file(
        name: u32,
        file: &str,
        connect: InProcess,
        asked: mpsc::UnboundedReceiver<Asked>,
        refuses: Arc<AtomicBool>,
    ) -> Self {
        let routes = Routes::parse("proxy.toml".as_ref(), file, &Environment::default());
        let routes = routes.unwrap_or_else(|error| panic!("{error}"));
        let records = Records::new(file);
        let memory = DurationStore::default();
        let observers = [records.factory()];
        let proxy = Proxy::new(&routes, Via::named(name), Some(&connect), &memory, &observers);
        let (proxy, places) = (proxy.unwrap(), Arc::new(RouteTable::new(routes.iter())));
        Self { proxy, places, asked, refuses, start: Instant::now(), _records: records }
    }

    /// Applies this route file. Returns how many routes have another server.
    #[track_caller]
    pub(crate) fn take(&mut self, file: &str) -> usize {
        let routes = Routes::parse("proxy.toml".as_ref(), file, &Environment::default());
        let routes = routes.unwrap_or_else(|error| panic!("{error}"));
        let prepared = self.proxy.prepare(&routes, &DurationStore::default()).unwrap();
        let (changes, left) = self.proxy.apply(&routes, prepared);
        left.retire();
        let served = self.proxy.served();
        self.places = Arc::new(RouteTable::new(served.iter().map(|served| served.route())));
        changes.moved.len()
    }

    /// Since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The server cannot be reached any more, or can again.
    pub(crate) fn refuse_connections(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Returns the metrics that operators get.
    pub(crate) fn metrics(&self) -> String {
        self.proxy.metrics_text()
    }

    /// Whether no call is open.
    pub(crate) async fn calls_done(&self) -> bool {
        settle().await;
        self.proxy.calls_done().now_or_never().is_some()
    }

    /// The proxy ends all streams.
    pub(crate) fn end_streams(&self) {
        self.proxy.end_streams();
    }

    /// A new connection of a client, to be read and written by hand.
    pub(crate) fn connection(&self) -> DuplexStream {
        let (near, far) = duplex(ROOM);
        tokio::spawn(listen(far, Arc::clone(&self.proxy), Arc::clone(&self.places)));
        near
    }

    /// A client sends a request, on a connection of its own.
    pub(crate) fn send(&self, start: &str, headers: &[&str], body: &[u8]) -> Answer {
        let near = self.connection();
        let said = request("localhost:7332", start, headers, body);
        Answer::to(async { Ok(near) }, said, body, self.start)
    }

    /// A client posts a message to the endpoint of Streamable HTTP.
    pub(crate) fn post(&self, headers: &[&str], body: impl AsRef<[u8]>) -> Answer {
        let mut all = vec![BOTH, "Content-Type: application/json"];
        all.extend(headers);
        self.send("POST /r", &all, body.as_ref())
    }

    /// A client opens a GET stream.
    pub(crate) fn get(&self, headers: &[&str]) -> Answer {
        let mut all = vec!["Accept: text/event-stream"];
        all.extend(headers);
        self.send("GET /r", &all, b"")
    }

    /// The next request that has reached the server.
    #[track_caller]
    pub(crate) fn asked(&mut self) -> BoxFuture<'_, Asked> {
        let caller = std::panic::Location::caller();
        async move {
            settle().await;
            self.asked.try_recv().unwrap_or_else(|_| panic!("the server was not asked: {caller}"))
        }
        .boxed()
    }

    /// A request that has reached the server, if one has.
    pub(crate) async fn try_asked(&mut self) -> Option<Asked> {
        settle().await;
        self.asked.try_recv().ok()
    }

    /// A session that the server has begun, in this revision.
    pub(crate) async fn session(&mut self, id: &str, revision: &str) {
        let answer = self.post(&[], initialize(revision));
        let result = agreement(revision);
        self.asked().await.json(&[&format!("Mcp-Session-Id: {id}")], &result);
        settle().await;
        assert_eq!(answer.text(), result);
        let header = format!("Mcp-Session-Id: {id}");
        let answer = self.post(&[&header], INITIALIZED);
        self.asked().await.accept();
        settle().await;
        assert_eq!(answer.status(), 202);
    }
}

/// A stdio server whose lines a test determines.
pub(crate) struct Lines {
    heard: Arc<Mutex<Vec<u8>>>,
    /// Lines that were looked at.
    seen: usize,
    say: mpsc::UnboundedSender<Vec<u8>>,
    /// Its input was closed.
    closed: Arc<AtomicBool>,
}

impl Lines {
    pub(crate) fn new(io: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (from, to) = tokio::io::split(io);
        Self::of(from, to)
    }

    /// Returns a server with these input and output streams.
    pub(crate) fn of(
        mut from: impl AsyncRead + Send + Unpin + 'static,
        mut to: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
        let closed: Arc<AtomicBool> = Arc::default();
        let (read, over) = (Arc::clone(&heard), Arc::clone(&closed));
        tokio::spawn(async move {
            let mut buffer = vec![0; ROOM];
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                read.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
            over.store(true, Ordering::Relaxed);
        });
        let (say, mut lines) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if to.write_all(&line).await.is_err() {
                    return;
                }
            }
            let _ = to.shutdown().await;
        });
        Self { heard, seen: 0, say, closed }
    }

    /// The lines that it was told since it was asked last.
    pub(crate) async fn told(&mut self) -> Vec<String> {
        settle().await;
        let mut text = self.heard.lock().unwrap().clone();
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<String> = text.lines().skip(self.seen).map(str::to_owned).collect();
        self.seen += lines.len();
        lines
    }

    /// The only line that it was told.
    #[track_caller]
    pub(crate) fn line(&mut self) -> BoxFuture<'_, String> {
        let caller = std::panic::Location::caller();
        async move {
            let told = self.told().await;
            assert_eq!(told.len(), 1, "{caller}: {told:?}");
            told.into_iter().next().unwrap()
        }
        .boxed()
    }

    /// Writes a line.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        let _ = self.say.send(format!("{}\n", line.as_ref()).into_bytes());
    }

    /// Sends bytes unchanged.
    pub(crate) fn raw(&self, bytes: impl AsRef<[u8]>) {
        let _ = self.say.send(bytes.as_ref().to_vec());
    }

    /// Whether its input was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// Returns a server whose answers a test determines: how it is reached, its requests, and a switch that makes it
/// unreachable.
pub(crate) fn server() -> (InProcess, mpsc::UnboundedReceiver<Asked>, Arc<AtomicBool>) {
    let (tell, asked) = mpsc::unbounded_channel();
    let refuses = Arc::new(AtomicBool::new(false));
    let refusing = Arc::clone(&refuses);
    let start = Instant::now();
    let connect = move || -> BoxFuture<'static, std::io::Result<Io>> {
        if refusing.load(Ordering::Relaxed) {
            let refused = std::io::ErrorKind::ConnectionRefused;
            return async move { Err(refused.into()) }.boxed();
        }
        let (near, far) = duplex(ROOM);
        tokio::spawn(serve(far, tell.clone(), start));
        async move { Ok(Box::new(near) as Io) }.boxed()
    };
    (Arc::new(connect), asked, refuses)
}

/// The `Authorization` that the listener asks for in a test.
pub(crate) const LISTENERS_BEARER: &str = "Bearer of-the-listener";

/// The bytes of a request.
pub(crate) fn request(host: &str, start: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{start} HTTP/1.1\r\nHost: {host}\r\n");
    for line in headers {
        head += &format!("{line}\r\n");
    }
    let announced = ["Content-Length", "Transfer-Encoding"];
    let announced = |line: &&str| announced.iter().any(|name| line.starts_with(name));
    if !headers.iter().any(announced) && (!body.is_empty() || start.starts_with("POST")) {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// Serves one connection of a client.
async fn listen(io: DuplexStream, proxy: Arc<Proxy>, places: Arc<RouteTable>) {
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        let place = places.find(request.uri().path());
        let proxy = Arc::clone(&proxy);
        // As the listener does.
        if request.headers().get("authorization").is_some_and(|value| value == LISTENERS_BEARER) {
            remove_in_order(request.headers_mut(), &AUTHORIZATION);
        }
        async move {
            let place = place.unwrap_or_else(|| panic!("no place for {}", request.uri()));
            Ok::<_, Infallible>({
                let served = proxy.served().swap_remove(place.route);
                proxy.handle(served, place.part, request, WriteState::default()).await
            })
        }
    });
    let mut connection = hyper::server::conn::http1::Builder::new();
    connection.auto_date_header(false);
    // Ignore the error: the client has disconnected.
    let _ = connection.serve_connection(TokioIo::new(io), service).await;
}

/// A request as the server got it, and the way to answer it.
pub(crate) struct Asked {
    pub(crate) request: Spoken,
    orders: mpsc::UnboundedSender<Order>,
    seen: Arc<Seen>,
}

/// The facts about the connection on which a request came.
#[derive(Default)]
struct Seen {
    /// When the proxy closed it.
    left: Mutex<Option<Duration>>,
    /// Bytes of the answer that the connection has taken, of those that it was given.
    written: AtomicUsize,
    given: AtomicUsize,
}

enum Order {
    Write(Vec<u8>),
    /// The answer is over; another request may come.
    Over,
}

/// Speaks the server's part on one connection.
pub(crate) async fn serve(
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    asked: mpsc::UnboundedSender<Asked>,
    start: Instant,
) {
    let (mut from, mut to) = tokio::io::split(io);
    let mut last: Option<Arc<Seen>> = None;
    loop {
        let mut bytes = Vec::new();
        let request = loop {
            match raw::read(&bytes, false) {
                Some(request) if request.over => break request,
                _ => {}
            }
            if !matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
                if let Some(seen) = last {
                    *seen.left.lock().unwrap() = Some(start.elapsed());
                }
                return;
            }
        };
        let (orders, mut todo) = mpsc::unbounded_channel();
        let seen = Arc::new(Seen::default());
        last = Some(Arc::clone(&seen));
        let _ = asked.send(Asked { request, orders, seen: Arc::clone(&seen) });
        loop {
            let mut one = [0];
            let order = tokio::select! {
                order = todo.recv() => order,
                read = from.read(&mut one) => {
                    assert_eq!(read.unwrap_or(0), 0, "a request behind one that is not answered");
                    *seen.left.lock().unwrap() = Some(start.elapsed());
                    return;
                }
            };
            match order {
                Some(Order::Write(bytes)) => {
                    for part in bytes.chunks(1024) {
                        if to.write_all(part).await.is_err() {
                            *seen.left.lock().unwrap() = Some(start.elapsed());
                            return;
                        }
                        seen.written.fetch_add(part.len(), Ordering::Relaxed);
                    }
                }
                Some(Order::Over) => break,
                None => return,
            }
        }
    }
}

impl Asked {
    /// The first line without the version.
    pub(crate) fn what(&self) -> &str {
        self.request.start.trim_end_matches(" HTTP/1.1")
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        self.request.text()
    }

    /// Sends bytes unchanged.
    pub(crate) fn raw(&self, bytes: impl AsRef<[u8]>) {
        self.seen.given.fetch_add(bytes.as_ref().len(), Ordering::Relaxed);
        let _ = self.orders.send(Order::Write(bytes.as_ref().to_vec()));
    }

    /// A head and nothing more.
    pub(crate) fn head(&self, status: &str, headers: &[&str]) {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        self.raw(format!("HTTP/1.1 {status}\r\n{lines}\r\n"));
    }

    /// The head of a stream of events.
    pub(crate) fn events(&self, headers: &[&str]) {
        let mut all = vec!["Content-Type: text/event-stream", "Transfer-Encoding: chunked"];
        all.extend(headers);
        self.head("200 OK", &all);
    }

    /// One chunk.
    pub(crate) fn chunk(&self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.raw([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat());
    }

    /// An event with this message, in one chunk.
    pub(crate) fn say(&self, message: impl AsRef<[u8]>) {
        self.chunk([b"event: message\ndata: ", message.as_ref(), b"\n\n"].concat());
    }

    /// The chunks are over; the connection stays.
    pub(crate) fn end(&self) {
        self.raw("0\r\n\r\n");
        let _ = self.orders.send(Order::Over);
    }

    /// A whole answer with a length.
    pub(crate) fn answer(&self, status: &str, headers: &[&str], body: impl AsRef<[u8]>) {
        let length = format!("Content-Length: {}", body.as_ref().len());
        let mut all = headers.to_vec();
        all.push(&length);
        self.head(status, &all);
        self.raw(body);
        let _ = self.orders.send(Order::Over);
    }

    /// A JSON answer.
    pub(crate) fn json(&self, headers: &[&str], body: &str) {
        let mut all = vec!["Content-Type: application/json"];
        all.extend(headers);
        self.answer("200 OK", &all, body);
    }

    /// 202 without a body.
    pub(crate) fn accept(&self) {
        self.answer("202 Accepted", &[], "");
    }

    /// The connection breaks off.
    pub(crate) fn die(self) {}

    /// When the proxy closed the connection, if it has.
    pub(crate) fn left(&self) -> Option<Duration> {
        *self.seen.left.lock().unwrap()
    }

    /// Bytes that the connection was given.
    pub(crate) fn given(&self) -> usize {
        self.seen.given.load(Ordering::Relaxed)
    }

    /// Bytes of the answer that the connection has taken.
    pub(crate) fn written(&self) -> usize {
        self.seen.written.load(Ordering::Relaxed)
    }
}

/// The text that a client has read.
#[derive(Default)]
struct Heard {
    state: Mutex<State>,
    /// The client does not read.
    paused: AtomicBool,
    resumed: Notify,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// The reads: the number of the answer, the time, and how many bytes had arrived.
    reads: Vec<(usize, Duration, usize)>,
    /// The proxy has closed the connection.
    closed: bool,
}

async fn hear(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    request: Vec<u8>,
    heard: Arc<Heard>,
    start: Instant,
) {
    if io.write_all(&request).await.is_err() {
        heard.state.lock().unwrap().closed = true;
        return;
    }
    let mut buffer = vec![0; ROOM];
    loop {
        while heard.paused.load(Ordering::Relaxed) {
            heard.resumed.notified().await;
        }
        let read = io.read(&mut buffer).await.unwrap_or(0);
        let mut state = heard.state.lock().unwrap();
        if read == 0 {
            state.closed = true;
            return;
        }
        state.bytes.extend_from_slice(&buffer[..read]);
        let bytes = state.bytes.len();
        state.reads.push((next_order(), start.elapsed(), bytes));
    }
}

/// A message that a client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) order: usize,
    pub(crate) at: Duration,
    pub(crate) text: String,
}

/// The answer to a request, as far as it has come. Dropping it, or leaving, closes the connection.
pub(crate) struct Answer {
    heard: Arc<Heard>,
    /// The request, and its number.
    said: (usize, String),
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Answer {
    /// Sends a request, of which `body` is a part, on a connection of its own.
    pub(crate) fn to<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        connect: impl Future<Output = std::io::Result<T>> + Send + 'static,
        request: Vec<u8>,
        body: &[u8],
        start: Instant,
    ) -> Self {
        let heard = Arc::new(Heard::default());
        let read = Arc::clone(&heard);
        let said = (next_order(), String::from_utf8_lossy(body).into_owned());
        let task = tokio::spawn(async move {
            match connect.await {
                Ok(io) => hear(io, request, read, start).await,
                Err(_) => read.state.lock().unwrap().closed = true,
            }
        });
        Self { heard, said, task }
    }

    /// The client closes its connection.
    pub(crate) fn leave(&self) {
        self.task.abort();
    }

    /// Returns the part that has arrived; `None` before the head is complete.
    pub(crate) fn spoken(&self) -> Option<Spoken> {
        let state = self.heard.state.lock().unwrap();
        raw::read(&state.bytes, state.closed)
    }

    /// Whether nothing has come.
    pub(crate) fn is_silent(&self) -> bool {
        self.heard.state.lock().unwrap().bytes.is_empty()
    }

    /// Bytes that have come.
    #[allow(dead_code, reason = "for the simulation")]
    pub(crate) fn length(&self) -> usize {
        self.heard.state.lock().unwrap().bytes.len()
    }

    /// Whether the proxy has closed the connection.
    #[allow(dead_code, reason = "for the simulation")]
    pub(crate) fn is_closed(&self) -> bool {
        self.heard.state.lock().unwrap().closed
    }

    #[track_caller]
    fn head(&self) -> Spoken {
        self.spoken().expect("there is no answer yet")
    }

    #[track_caller]
    pub(crate) fn status(&self) -> u16 {
        self.head().status()
    }

    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head().header(name).map(str::to_owned)
    }

    #[track_caller]
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.head().all(name).into_iter().map(str::to_owned).collect()
    }

    /// The body as far as it has come.
    #[track_caller]
    pub(crate) fn body(&self) -> Vec<u8> {
        self.head().body
    }

    #[track_caller]
    pub(crate) fn text(&self) -> String {
        self.head().text()
    }

    /// The body is whole.
    pub(crate) fn is_over(&self) -> bool {
        self.spoken().is_some_and(|spoken| spoken.over)
    }

    /// The connection ended within the answer.
    pub(crate) fn is_broken(&self) -> bool {
        self.heard.state.lock().unwrap().closed && !self.is_over()
    }

    /// The client stops reading, or reads again.
    pub(crate) fn pause(&self, paused: bool) {
        self.heard.paused.store(paused, Ordering::Relaxed);
        self.heard.resumed.notify_one();
    }

    /// The events that are over, comments among them.
    #[track_caller]
    pub(crate) fn blocks(&self) -> Vec<Block> {
        raw::blocks(&self.body())
    }

    /// The messages that have come, as events or as JSON.
    pub(crate) fn told(&self) -> Vec<Told> {
        let Some(spoken) = self.spoken() else { return Vec::new() };
        let (reads, head) = {
            let state = self.heard.state.lock().unwrap();
            // By which read this part of the body had arrived.
            let body = |bytes: usize| raw::read(&state.bytes[..bytes], false);
            let length = |bytes: usize| body(bytes).map_or(0, |spoken| spoken.body.len());
            let reads = state.reads.iter().map(|(order, at, bytes)| (*order, *at, length(*bytes)));
            (reads.collect::<Vec<_>>(), spoken)
        };
        let at = |end: usize| reads.iter().find(|(_, _, bytes)| *bytes >= end).unwrap();
        let told = |end: usize, text: &[u8]| {
            let (order, at, _) = *at(end);
            Told { order, at, text: String::from_utf8_lossy(text).into_owned() }
        };
        match head.header("content-type") {
            Some("text/event-stream") => raw::blocks(&head.body)
                .iter()
                .filter(|block| block.is_message())
                .map(|block| told(block.end, block.data.as_ref().unwrap()))
                .collect(),
            Some("application/json") if head.over => vec![told(head.body.len(), &head.body)],
            _ => Vec::new(),
        }
    }

    /// The same without order and time.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.told().into_iter().map(|told| told.text).collect()
    }
}

/// Checks the messages of these answers against the rules. The answers must be all that the client gets, such as all
/// answers of one session.
#[track_caller]
pub(crate) fn check<'a>(answers: impl IntoIterator<Item = &'a Answer>) {
    let answers: Vec<&Answer> = answers.into_iter().collect();
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let cancels = answers.iter().map(|answer| (answer.said.0, read(&answer.said.1)));
    let cancels = cancels.filter(|(_, said)| said["method"] == "notifications/cancelled");
    let cancels: Vec<(usize, Value)> =
        cancels.map(|(order, said)| (order, said["params"]["requestId"].clone())).collect();
    let mut passed = Vec::new();
    for answer in answers {
        let (asked, id) = (answer.said.0, read(&answer.said.1)["id"].clone());
        // The answer to a request that the client has cancelled does not count as the answer to a newer request with
        // its id.
        let gone = cancels.iter().find(|(order, given_up)| *order > asked && *given_up == id);
        let is_late = |told: &Told| {
            let message = read(&told.text);
            gone.is_some_and(|(order, _)| *order < told.order)
                && message["id"] == id
                && message["method"].is_null()
        };
        passed.push((asked, true, answer.said.1.clone()));
        let told = answer.told().into_iter().filter(|told| !is_late(told));
        passed.extend(told.map(|told| (told.order, false, told.text)));
    }
    passed.sort_by_key(|(order, ..)| *order);
    let mut checker = Checker::default();
    for (_, client, text) in passed {
        if client { checker.client_said(&text) } else { checker.client_told(&text) }
    }
}
