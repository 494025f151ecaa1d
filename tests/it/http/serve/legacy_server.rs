//! A legacy server that speaks HTTP/1.1 and HTTP/2, with and without TLS, to many clients at once. It reports under its
//! own method with the id of the request, and names the client in each text.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, oneshot};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A server in a thread of its own, until the value is dropped.
pub(crate) struct Legacy {
    address: SocketAddr,
    shared: Arc<Shared>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Shared {
    /// Calls are answered once so many are open.
    together: Barrier,
    /// The requests, each with its version of HTTP.
    seen: Mutex<Vec<(Version, String)>>,
    /// Where sessions listen.
    listening: Mutex<HashMap<String, UnboundedSender<String>>>,
    /// Streams on which the tool `hang` never says anything more.
    hanging: Mutex<Vec<UnboundedSender<String>>>,
}

impl Legacy {
    /// One that answers calls once so many are open.
    pub(crate) fn start(together: usize, tls: Option<ServerConfig>) -> Self {
        let shared = Arc::new(Shared {
            together: Barrier::new(together),
            seen: Mutex::default(),
            listening: Mutex::default(),
            hanging: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
                tokio::select! {
                    () = serve(listener, tls, served) => {}
                    _ = ended => {}
                }
            });
        });
        Self { address, shared, end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}/mcp", self.address)
    }

    /// Returns the requests since the last call of this function, each with its version of HTTP.
    pub(crate) fn seen(&self) -> Vec<(Version, String)> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }

    /// How many calls hang whose client is still there.
    pub(crate) fn hanging(&self) -> usize {
        let hanging = self.shared.hanging.lock().unwrap();
        hanging.iter().filter(|sender| !sender.is_closed()).count()
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(thread::JoinHandle::join);
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer(request, &shared).await) }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            match tls {
                None => drop(builder.serve_connection(TokioIo::new(stream), service).await),
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    drop(builder.serve_connection(TokioIo::new(stream), service).await);
                }
            }
        });
    }
}

fn events(receiver: UnboundedReceiver<String>) -> Response<Body> {
    let frames = receiver.map(|text| Ok(Frame::data(Bytes::from(text))));
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(StreamBody::new(frames).boxed_unsync()).unwrap()
}

fn whole(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

async fn answer(request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    let session = request.headers().get("mcp-session-id");
    let session = session.map(|id| id.to_str().unwrap().to_owned());
    shared.seen.lock().unwrap().push((request.version(), request.uri().to_string()));
    if request.method() == Method::GET {
        let (sender, receiver) = unbounded();
        sender.unbounded_send(": listening\n\n".to_owned()).unwrap();
        shared.listening.lock().unwrap().insert(session.unwrap(), sender);
        return events(receiver);
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap();
    let (id, params) = (message["id"].clone(), message["params"].clone());
    match message["method"].as_str() {
        Some("initialize") => {
            let result = json!({"jsonrpc": "2.0", "id": id, "result": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "serverInfo": {"name": "legacy", "version": "1"},
            }});
            let mut response = whole(StatusCode::OK, result.to_string());
            let name = format!("session-{}", params["clientInfo"]["name"].as_str().unwrap());
            response.headers_mut().insert("mcp-session-id", name.parse().unwrap());
            response
        }
        Some("tools/call") => {
            let (sender, receiver) = unbounded();
            tokio::spawn(work(Arc::clone(shared), session, id, params, sender));
            events(receiver)
        }
        _ => whole(StatusCode::ACCEPTED, String::new()),
    }
}

async fn work(
    shared: Arc<Shared>,
    session: Option<String>,
    id: Value,
    params: Value,
    own: UnboundedSender<String>,
) {
    let client = params["arguments"]["client"].as_str().unwrap_or_default().to_owned();
    if params["name"] == "hang" {
        own.unbounded_send(progress(&id, "hanging")).unwrap();
        shared.hanging.lock().unwrap().push(own);
        return;
    }
    shared.together.wait().await;
    let elsewhere = session.and_then(|id| shared.listening.lock().unwrap().get(&id).cloned());
    for step in 1..=4 {
        let words = format!("step {step} for {client}.");
        // Every other report comes on the stream on which the session listens.
        let way = elsewhere.as_ref().filter(|_| step % 2 == 1).unwrap_or(&own);
        let _ = way.unbounded_send(progress(&id, &words));
        // Other clients send meanwhile.
        sleep(Duration::from_millis(120)).await;
    }
    let result = json!({"jsonrpc": "2.0", "id": id, "result": {
        "content": [{"type": "text", "text": format!("done for {client}.")}],
    }});
    let _ = own.unbounded_send(format!("data: {result}\n\n"));
}

fn progress(id: &Value, words: &str) -> String {
    let report = json!({"jsonrpc": "2.0", "method": "tools/progress", "params": {
        "id": id,
        "content": [{"type": "text", "text": json!({"message": words}).to_string()}],
        "isFinal": false,
    }});
    format!("data: {report}\n\n")
}
