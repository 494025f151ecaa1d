//! A client of any bytes before a proxy over HTTP: functions of any bytes that panic where the proxy does, or where
//! its server gets a request that another reader could read in another way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use milepost::config::routes::{Environment, Routes};
use milepost::gateway::dispatch::Proxy;
use milepost::observe::durations::DurationStore;
use milepost::transport::http::client::InProcess;
use milepost::transport::http::endpoints::RouteTable;
use milepost::transport::http::io::Io;
use milepost::transport::http::via::Via;
use milepost::transport::http::write_state::WriteState;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};

use crate::codec::cut_input::{Cut, cut};

const ROOM: usize = 64 << 10;

const FILE: &str = r#"
[[route]]
path = "/r"
upstream.url = "http://up.example/base/mcp?key=own"
upstream.sse = "http://up.example/base/sse"
[[route]]
path = "/lines"
upstream.command = ["server"]
"#;

/// Reading the file takes longer than a conversation.
static ROUTES: OnceLock<Routes> = OnceLock::new();

/// One connection of a client, as [`cut`] produces it. No input may cause a panic. Each request that reaches the server
/// has one length, and one line for its target and for each header. The client's answer begins like HTTP.
pub(crate) fn http(data: &[u8]) {
    let Some(Cut { pieces, .. }) = cut(data) else { return };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    let failed = Arc::new(AtomicBool::new(false));
    runtime.block_on(converse(&pieces, &failed));
    drop(runtime);
    assert!(!failed.load(Ordering::Relaxed), "a task has panicked");
}

/// Runs a part of the conversation on a task of its own, and notes when the task panics.
fn spawn(failed: &Arc<AtomicBool>, task: impl Future<Output = ()> + Send + 'static) {
    let failed = Arc::clone(failed);
    tokio::spawn(async move {
        if std::panic::AssertUnwindSafe(task).catch_unwind().await.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
    });
}

async fn converse(pieces: &[&[u8]], failed: &Arc<AtomicBool>) {
    let routes = ROUTES.get_or_init(|| {
        let routes = Routes::parse("proxy.toml".as_ref(), FILE, &Environment::default());
        routes.expect("a route file")
    });
    let noted = Arc::clone(failed);
    let connect = move || -> BoxFuture<'static, std::io::Result<Io>> {
        let (near, far) = duplex(ROOM);
        spawn(&noted, serve(far));
        async move { Ok(Box::new(near) as Io) }.boxed()
    };
    let connect: InProcess = Arc::new(connect);
    let memory = DurationStore::default();
    let proxy = Proxy::new(routes, Via::named(7), Some(&connect), &memory, &[]).expect("a proxy");
    let places = Arc::new(RouteTable::new(routes.iter()));

    let (near, far) = duplex(ROOM);
    spawn(failed, listen(far, Arc::clone(&proxy), places));
    let (mut from, mut to) = tokio::io::split(near);
    let says = async {
        for piece in pieces {
            if to.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = to.shutdown().await;
    };
    let mut answer = Vec::new();
    let hears = from.read_to_end(&mut answer);
    // Virtual time, so the timeout costs nothing: it ends streams that neither side closes.
    let _ = tokio::time::timeout(Duration::from_secs(60), futures::future::join(says, hears)).await;
    let begins = &answer[..answer.len().min(5)];
    assert!(b"HTTP/".starts_with(begins), "{:?}", String::from_utf8_lossy(&answer));
}

/// Serves the connection of the client.
async fn listen(io: DuplexStream, proxy: Arc<Proxy>, places: Arc<RouteTable>) {
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let place = places.find(request.uri().path());
        let proxy = Arc::clone(&proxy);
        async move {
            // The listener checks the path, so this server does not.
            let (route, part) = match place {
                Some(place) => (place.route, place.part),
                None => return Err(std::io::Error::other("no such path")),
            };
            let served = proxy.served().swap_remove(route);
            Ok(proxy.handle(served, part, request, WriteState::default()).await)
        }
    });
    let mut connection = hyper::server::conn::http1::Builder::new();
    connection.auto_date_header(false);
    // Ignore the error: the client has disconnected.
    let _: Result<(), hyper::Error> = connection.serve_connection(TokioIo::new(io), service).await;
}

/// A server: a strict reader of requests that answers each with a result, with events, or as a line.
async fn serve(io: impl AsyncRead + AsyncWrite + Send + Unpin) {
    let (mut from, mut to) = tokio::io::split(io);
    let mut heard = Vec::new();
    let mut buffer = vec![0; ROOM];
    loop {
        while let Some(length) = one_request(&heard) {
            let request: Vec<u8> = heard.drain(..length).collect();
            let answer: &[u8] = if request.starts_with(b"{") || request.starts_with(b"[") {
                b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n"
            } else if request.len().is_multiple_of(2) {
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n\
                  {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"
            } else {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
                  data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"
            };
            if to.write_all(answer).await.is_err() {
                return;
            }
        }
        match from.read(&mut buffer).await {
            Ok(count @ 1..) => heard.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}

/// The length of the request or line that `text` begins with; `None` where more has to come. A request that two
/// readers could read in two ways is a panic.
fn one_request(text: &[u8]) -> Option<usize> {
    let line = memchr::memchr(b'\n', text)? + 1;
    if matches!(text[0], b'{' | b'[' | b'"') {
        return Some(line);
    }
    let head = memchr::memmem::find(text, b"\r\n\r\n")? + 4;
    let mut lines = text[..head - 4].split(|&byte| byte == b'\n');
    let start = lines.next().unwrap_or_default();
    let words = start.strip_suffix(b"\r").unwrap_or(start).split(|&byte| byte == b' ');
    assert_eq!(words.count(), 3, "{:?}", String::from_utf8_lossy(start));
    let (mut lengths, mut chunked, mut hosts) = (Vec::new(), 0, 0);
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = memchr::memchr(b':', line).expect("a colon in each header");
        let (name, value) = (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii());
        let is_token =
            |byte: &u8| byte.is_ascii_graphic() && !b"(),/:;<=>?@[\\]{}\"".contains(byte);
        assert!(!name.is_empty() && name.iter().all(is_token), "{name:?}");
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{value:?}");
        match &name[..] {
            b"content-length" => lengths.push(std::str::from_utf8(value).unwrap().parse().unwrap()),
            b"transfer-encoding" => {
                assert_eq!(value, b"chunked");
                chunked += 1;
            }
            b"host" => {
                assert_eq!(value, b"up.example");
                hosts += 1;
            }
            _ => {}
        }
    }
    assert!(lengths.len() + chunked < 2 && hosts == 1, "{:?}", String::from_utf8_lossy(text));
    if chunked == 0 {
        let end = head + lengths.first().copied().unwrap_or(0_usize);
        return (text.len() >= end).then_some(end);
    }
    let mut at = head;
    loop {
        let end = at + memchr::memmem::find(text.get(at..)?, b"\r\n")?;
        let size = std::str::from_utf8(&text[at..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        at = end + 2 + size + 2;
        if size == 0 {
            return (text.len() >= at).then_some(at);
        }
    }
}
