//! Tests with the bytes of a connection, as tables: the answer, how the connection ends, and the handled requests.

mod bad_input;
mod log_lines;
mod requests;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::timeout;

use super::connection::{ConnectionEnd, Http, boxed};
use super::handler::{Admitted, Handler, Peer, Routed};
use crate::config::routes::{Cors, HttpUpstream, Route, Server, Upstream};
use crate::gateway::listen::dispatcher::Dispatcher;
use crate::transport::http::via::Via;
use crate::transport::http::write_state::WriteState;

/// A handler that records each request, and answers with the same text.
#[derive(Default)]
struct Recorder {
    handled: Mutex<Vec<String>>,
}

impl Handler for Recorder {
    type Body = Full<Bytes>;

    fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        admitted: Admitted,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send + use<> {
        Arc::clone(self).record(request, admitted)
    }

    async fn end_streams(&self) {}
}

impl Recorder {
    async fn record(
        self: Arc<Self>,
        request: Request<Incoming>,
        admitted: Admitted,
    ) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        assert!(!parts.uri.path().ends_with("/panic"), "a fault that the test wants");
        let body = match body.collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Err(_) => "(broken off)".to_owned(),
        };
        let Admitted { route_match, authorization_was_ours, .. } = admitted;
        let ours = if authorization_was_ours { " ours" } else { "" };
        let line =
            format!("{} {} {:?}{ours} {body}", parts.method, route_match.route, route_match.part);
        let line = line.trim_end().to_owned();
        self.handled.lock().unwrap().push(line.clone());
        Response::new(Full::from(line))
    }
}

fn http_route(path: &str, url: &str) -> Route {
    let upstream = HttpUpstream { url: Some(url.parse().unwrap()), ..HttpUpstream::default() };
    Route::new(path.to_owned(), Upstream::Http(upstream))
}

/// Returns two routes: `/a` for all clients, `/web` for browsers.
fn routes() -> Vec<Route> {
    let mut web = http_route("/web", "https://up.example/web");
    web.cors = Some(Cors { origins: vec!["*".to_owned()] });
    vec![http_route("/a", "https://up.example/mcp"), web]
}

/// What came of some bytes on a connection.
struct Spoken {
    /// The answer, as far as it arrived.
    answer: String,
    ended: ConnectionEnd,
    handled: Vec<String>,
}

impl Spoken {
    /// The statuses of all answers.
    fn statuses(&self) -> Vec<u16> {
        let lines = self.answer.split("HTTP/1.").skip(1);
        lines.map(|line| line[2..5].parse::<u16>().unwrap()).collect()
    }

    /// The name that a refusal carries in its JSON form, or how the connection ended.
    fn name(&self) -> &str {
        match self.answer.split_once(r#""reason":""#) {
            Some((_, rest)) => rest.split('"').next().unwrap(),
            None => self.ended.name(),
        }
    }
}

/// Sends bytes in pieces on a connection of its own, and reads until it is closed. Time is paused, so that long waits
/// take no time.
async fn speak_in_pieces(server: Server, pieces: &[&[u8]]) -> Spoken {
    speak_at("127.0.0.1:7332", server, pieces).await
}

/// Sends bytes as [`speak_in_pieces`] does, to a listener with another address.
async fn speak_at(address: &str, server: Server, pieces: &[&[u8]]) -> Spoken {
    let handler = Arc::new(Recorder::default());
    let http = Http::new(server.max_header_bytes, crate::observe::metrics::Traffic::default());
    let via = Via::named(0xbad_cafe);
    let front = Arc::new(Dispatcher::new(server, via, &routes(), Arc::clone(&handler)));
    let (ours, theirs) = duplex(1 << 20);
    let local: SocketAddr = address.parse().unwrap();
    let client = Peer {
        remote: local,
        local,
        secure: false,
        name: None,
        write_state: WriteState::default(),
        last_use: None,
    };
    let connection = tokio::spawn(async move {
        let answer =
            |request: Request<Incoming>| boxed(Arc::clone(&front).answer(client.clone(), request));
        let never = pin!(std::future::pending());
        http.converse(Box::new(theirs), WriteState::default(), &answer, never).await
    });
    let (mut read, mut write) = tokio::io::split(ours);
    for piece in pieces {
        // Ignore the error: the listener may already have closed the connection.
        let _ = write.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    let mut answer = Vec::new();
    // Time is paused, so this hour takes no time.
    timeout(Duration::from_secs(3600), read.read_to_end(&mut answer)).await.unwrap().unwrap();
    let ended = connection.await.unwrap();
    let handled = std::mem::take(&mut *handler.handled.lock().unwrap());
    Spoken { answer: String::from_utf8_lossy(&answer).into_owned(), ended, handled }
}

async fn speak(server: Server, bytes: &str) -> Spoken {
    speak_in_pieces(server, &[bytes.as_bytes()]).await
}

/// Returns the size of the future that a function returns for a request.
fn size_of_future<F>(_: impl Fn(Peer, Request<Incoming>) -> F) -> usize {
    size_of::<F>()
}

#[test]
fn the_future_of_a_request_is_small() {
    let dispatcher: Option<Arc<Dispatcher<Routed>>> = None;
    let size =
        size_of_future(|client, request| dispatcher.clone().unwrap().answer(client, request));
    // The future is moved into a box for each request, so its size costs time.
    eprintln!("{size} bytes");
    assert!(size <= 1024, "{size}");
}
