//! The engine embedded in a small HTTP proxy: it stands before a server of Streamable HTTP and mends its progress:
//! `cargo run --example embed-http -- --http 127.0.0.1:8080 127.0.0.1:8000 --policy examples/policy.toml`.
//! It sends no requests of the engine's own, which `call_timeout`, `late` and `ask.log_level` of a policy would need.

use std::{collections::BTreeMap, collections::HashMap, sync::Arc, time::Duration, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use milepost_core::conversation::{Conversation, Output};
use milepost_core::progress::{Policy, StreamId, StreamKind};
use milepost_core::protocol::sse::{self, Events, SseFrame};
use tokio::{net::TcpListener, net::TcpStream, sync::Mutex, sync::mpsc, time::sleep_until};

const USAGE: &str = "usage: embed-http --http ADDRESS SERVER [--policy FILE]";
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, Failure>>;
type Shared = Arc<Mutex<Session>>;

/// One session is one conversation. Each request is a stream of it, whose response the client reads.
#[derive(Default)]
struct Session {
    mended: Conversation,
    to_client: BTreeMap<StreamId, mpsc::UnboundedSender<Bytes>>,
    to_server: BTreeMap<StreamId, Bytes>,
    due: Option<Instant>,
    streams: u64,
}

impl Session {
    /// Gives an input to the conversation, and does what follows.
    fn put(&mut self, input: impl FnOnce(&mut Conversation, Instant)) {
        input(&mut self.mended, Instant::now());
        self.due = loop {
            match self.mended.poll() {
                Output::ToClient(stream, message) => drop(self.to_client[&stream].send(message)),
                Output::ToServer(StreamId::NOWHERE, _) | Output::Event(_) => {}
                Output::ToServer(stream, message) => drop(self.to_server.insert(stream, message)),
                Output::Timeout(at) => break at,
            }
        };
    }
}

struct Proxy {
    server: String,
    policy: Arc<Policy>,
    sessions: Mutex<HashMap<HeaderValue, Shared>>,
}

impl Proxy {
    /// The session that headers name, which is `new` if no other is known.
    async fn named(&self, headers: &HeaderMap, new: Shared) -> Shared {
        let Some(id) = headers.get("mcp-session-id").cloned() else { return new };
        Arc::clone(self.sessions.lock().await.entry(id).or_insert(new))
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Failure> {
        let (mut head, body) = request.into_parts();
        let (posts, mut sent) = (head.method == Method::POST, body.collect().await?.to_bytes());
        let kind = if posts { StreamKind::Exchange } else { StreamKind::Shared };
        let new =
            Session { mended: Conversation::new(Arc::clone(&self.policy)), ..Session::default() };
        let shared = self.named(&head.headers, Arc::new(Mutex::new(new))).await;
        let (to_client, mut messages) = mpsc::unbounded_channel();
        let mut session = shared.lock().await;
        session.streams += 1;
        let stream = StreamId(session.streams);
        session.to_client.insert(stream, to_client);
        session.put(|mended, now| mended.open(now, stream, kind));
        if posts {
            session.put(|mended, now| mended.client_message(now, stream, sent));
            sent = session.to_server.remove(&stream).unwrap_or_default();
        }
        drop(session);
        head.headers.remove(header::CONTENT_LENGTH);
        let tcp = TokioIo::new(TcpStream::connect(&self.server).await?);
        let (mut server, connection) = hyper::client::conn::http1::handshake(tcp).await?;
        tokio::spawn(connection);
        let request = Request::from_parts(head, Full::new(sent.clone()));
        let (mut head, body) = server.send_request(request).await?.into_parts();
        head.headers.remove(header::CONTENT_LENGTH);
        let shared = self.named(&head.headers, shared).await;
        let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        if kind.starts_with(b"text/event-stream") {
            tokio::spawn(mend(shared, stream, body));
            let events = futures::stream::unfold(messages, |mut messages| async {
                Some((Ok(Frame::data(sse::write(&messages.recv().await?))), messages))
            });
            return Ok(Response::from_parts(head, StreamBody::new(events).boxed_unsync()));
        }
        let mut body = body.collect().await?.to_bytes();
        let mut session = shared.lock().await;
        if head.status.is_success() {
            session.put(|mended, now| mended.server_message(now, stream, body.clone()));
        } else {
            session.put(|mended, now| mended.refused(now, sent));
        }
        session.put(|mended, now| mended.end(now, stream));
        session.to_client.remove(&stream);
        // A body of JSON has room for the answer alone, which comes last.
        body = std::iter::from_fn(|| messages.try_recv().ok()).last().unwrap_or(body);
        Ok(Response::from_parts(head, Full::new(body).map_err(Into::into).boxed_unsync()))
    }
}

/// Mends the events of a response while it is open.
async fn mend(shared: Shared, stream: StreamId, mut body: Incoming) {
    let mut events = Events::new(4 << 20);
    loop {
        let mut session = shared.lock().await;
        while let Some(frame) = events.next() {
            let SseFrame::Event(event) = frame else { continue };
            let Some(data) = event.data() else { continue };
            session.put(|mended, now| mended.server_message(now, stream, data));
        }
        if session.mended.is_over(stream) || session.to_client[&stream].is_closed() {
            session.put(|mended, now| mended.end(now, stream));
            return drop(session.to_client.remove(&stream));
        }
        let due = session.due.unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
        drop(session);
        tokio::select! {
            frame = body.frame() => match frame {
                Some(Ok(frame)) => events.push(frame.into_data().unwrap_or_default()),
                _ => shared.lock().await.put(|mended, now| mended.response_ended(now, stream)),
            },
            () = sleep_until(due.into()) => shared.lock().await.put(|mended, now| mended.tick(now)),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let [_, _, address, server, rest @ ..] = &words[..] else { return Err(USAGE.into()) };
    let text = if let [_, file] = rest { std::fs::read_to_string(file)? } else { String::new() };
    let policy = Arc::new(Policy::from_toml(&text).map_err(|faults| faults.to_string())?);
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    let proxy = Arc::new(Proxy { server: server.clone(), policy, sessions: Mutex::default() });
    loop {
        let (tcp, proxy) = (listener.accept().await?.0, Arc::clone(&proxy));
        let service = hyper::service::service_fn(move |request| Arc::clone(&proxy).handle(request));
        let http = hyper::server::conn::http1::Builder::new();
        tokio::spawn(http.serve_connection(TokioIo::new(tcp), service));
    }
}
