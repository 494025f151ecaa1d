//! A server of HTTP/2 that allows few streams on a connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::once;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::http_client::{Client, rest, until};
use super::proxy::{Proxy, Start};
use super::{call, json};
use crate::support::STUCK;

/// A server in the runtime of its test. Calls hang from their first progress on, until they are let go.
struct FewStreams {
    address: String,
    /// Connections that have been accepted.
    accepted: Arc<AtomicUsize>,
    /// Calls that wait, or whose answer is on its way.
    open: Arc<AtomicUsize>,
    /// Every call up to this number may be answered.
    answered: watch::Sender<usize>,
    /// Connections up to this number are closed in good order.
    closed: watch::Sender<usize>,
}

/// Counts a call until its response is dropped.
struct OpenCall(Arc<AtomicUsize>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FewStreams {
    /// A server that allows so many streams on a connection, and so many connections.
    async fn start(streams: u32, connections: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (accepted, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let ((answered, answers), (closed, closes)) = (watch::channel(0), watch::channel(0));
        let (count, calls) = (Arc::clone(&accepted), Arc::clone(&open));
        tokio::spawn(async move {
            let begun = Arc::<AtomicUsize>::default();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if count.load(Ordering::SeqCst) == connections {
                    continue;
                }
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let (calls, begun) = (Arc::clone(&calls), Arc::clone(&begun));
                let (answers, mut closes) = (answers.clone(), closes.clone());
                let service = service_fn(move |request| {
                    let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                    answer(request, number, Arc::clone(&calls), answers.clone())
                });
                tokio::spawn(async move {
                    let mut connection = std::pin::pin!(
                        http2::Builder::new(TokioExecutor::new())
                            .max_concurrent_streams(streams)
                            .serve_connection(TokioIo::new(stream), service)
                    );
                    tokio::select! {
                        ended = connection.as_mut() => return drop(ended),
                        _ = closes.wait_for(|closed| *closed >= number) => {}
                    }
                    connection.as_mut().graceful_shutdown();
                    drop(connection.await);
                });
            }
        });
        Self { address, accepted, open, answered, closed }
    }

    fn route(&self) -> String {
        format!(
            "upstream.url = \"http://{}/mcp\"\nupstream.http2 = true\nheartbeat.enabled = false",
            self.address
        )
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Waits until so many calls are open.
    async fn has_open(&self, calls: usize) {
        let some = async {
            while self.open.load(Ordering::SeqCst) != calls {
                sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = timeout(STUCK, some).await;
        waited.unwrap_or_else(|_| panic!("{} are open", self.open.load(Ordering::SeqCst)));
    }

    /// Lets the calls up to this number go.
    fn answer_up_to(&self, number: usize) {
        self.answered.send(number).unwrap();
    }
}

/// The events of a call: progress at once, and the answer when the call may go.
async fn answer(
    request: Request<Incoming>,
    number: usize,
    calls: Arc<AtomicUsize>,
    mut answers: watch::Receiver<usize>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    calls.fetch_add(1, Ordering::SeqCst);
    let open = OpenCall(calls);
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let id = json(std::str::from_utf8(&body).unwrap())["id"].to_string();
    let last = once(async move {
        let _open = open;
        let _ = answers.wait_for(|answered| *answered >= number).await;
        Ok(Frame::data(Bytes::from(super::result_event(&id))))
    });
    let first = Frame::data(Bytes::from(": begun\n\n"));
    let events = futures::stream::iter([Ok(first)]).chain(last);
    let response = Response::builder().header("content-type", "text/event-stream");
    Ok(response.body(StreamBody::new(events).boxed_unsync()).unwrap())
}

/// The head and the text of the response to a call.
async fn outcome(address: String, id: usize) -> (HeaderMap, u16, String) {
    let mut client = Client::plain(&address, false).await;
    let response = client.send("POST", &address, &[], call(id.to_string(), "\"t\"")).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (headers, status, rest(response).await)
}

#[tokio::test]
async fn more_long_calls_than_a_connection_has_streams_are_all_answered() {
    let server = FewStreams::start(3, usize::MAX).await;
    let proxy = Proxy::with(&Start::default(), &server.route());
    let calls: Vec<_> =
        (1..=20).map(|id| tokio::spawn(outcome(proxy.address().to_owned(), id))).collect();
    // All requests run at once: none waits for another.
    server.has_open(20).await;
    assert_eq!(server.accepted(), 7);
    server.answer_up_to(20);
    for (id, call) in (1..).zip(calls) {
        let (_, status, text) = timeout(STUCK, call).await.unwrap().unwrap();
        assert_eq!((status, &json(&text)["id"]), (200, &id.into()), "{text}");
    }
}

#[tokio::test]
async fn a_stream_whose_client_leaves_makes_room_on_its_connection() {
    let server = FewStreams::start(2, usize::MAX).await;
    let proxy = Proxy::with(&Start::default(), &server.route());
    for _ in 0..5 {
        let mut left = Vec::new();
        for id in 1..=2 {
            let mut client = Client::plain(proxy.address(), false).await;
            let call = call(id.to_string(), "\"t\"");
            let mut response = client.send("POST", proxy.address(), &[], call).await;
            until(&mut response, "begun").await;
            left.push((client, response));
        }
        drop(left);
        server.has_open(0).await;
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_call_waits_for_the_end_of_another_where_the_server_takes_no_more_connections() {
    let server = FewStreams::start(1, 1).await;
    let proxy = Proxy::with(&Start::default(), &server.route());
    let first = tokio::spawn(outcome(proxy.address().to_owned(), 1));
    server.has_open(1).await;
    let second = tokio::spawn(outcome(proxy.address().to_owned(), 2));
    server.answer_up_to(2);
    for (id, call) in [(1, first), (2, second)] {
        let (_, status, text) = timeout(STUCK, call).await.unwrap().unwrap();
        assert_eq!((status, &json(&text)["id"]), (200, &id.into()), "{text}");
    }
}

#[tokio::test]
async fn a_call_beyond_all_streams_is_refused_in_time_and_may_come_again() {
    let server = FewStreams::start(1, usize::MAX).await;
    let route = format!("{}\nconnect_timeout = \"4s\"", server.route());
    let proxy = Proxy::with(&Start::default(), &route);
    let mut clients = Vec::new();
    let mut open = Vec::new();
    for number in 0..256 {
        // Milepost allows an HTTP/2 client 100 streams per connection.
        if number % 100 == 0 {
            clients.push(Client::plain(proxy.address(), true).await);
        }
        let client = clients.last_mut().unwrap();
        let call = call(number.to_string(), "\"t\"");
        let mut response = client.send("POST", proxy.address(), &[], call).await;
        until(&mut response, "begun").await;
        open.push(response);
    }
    let (headers, status, text) = outcome(proxy.address().to_owned(), 256).await;
    assert_eq!((status, &headers["retry-after"]), (503, &"1".parse().unwrap()), "{text}");
    let error = json(&text);
    assert_eq!(error["id"], 256);
    assert!(error["error"]["message"].as_str().unwrap().contains("no further stream"), "{text}");
    drop(open.pop());
    server.has_open(255).await;
    server.answer_up_to(1000);
    let (_, status, text) = outcome(proxy.address().to_owned(), 257).await;
    assert_eq!((status, &json(&text)["id"]), (200, &257.into()), "{text}");
    assert_eq!(server.accepted(), 256);
}

#[tokio::test]
async fn a_connection_that_the_server_closes_keeps_its_calls_and_gets_no_more() {
    let server = FewStreams::start(100, usize::MAX).await;
    let proxy = Proxy::with(&Start::default(), &server.route());
    let first = tokio::spawn(outcome(proxy.address().to_owned(), 1));
    server.has_open(1).await;
    server.closed.send(1).unwrap();
    let mut later = Vec::new();
    while server.accepted() < 2 {
        let known = server.open.load(Ordering::SeqCst);
        later.push(tokio::spawn(outcome(proxy.address().to_owned(), 1)));
        server.has_open(known + 1).await;
    }
    server.answer_up_to(1000);
    for call in later.into_iter().chain([first]) {
        let (_, status, text) = timeout(STUCK, call).await.unwrap().unwrap();
        assert_eq!((status, &json(&text)["id"]), (200, &1.into()), "{text}");
    }
}

#[tokio::test]
async fn a_request_that_the_server_refuses_unread_is_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let route = format!(
        "upstream.url = \"http://{}/mcp\"\nupstream.http2 = true",
        listener.local_addr().unwrap()
    );
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut bodies = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            if bodies.is_empty() {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            } else {
                let head = Response::builder().header("content-type", "text/event-stream");
                let mut events = respond.send_response(head.body(()).unwrap(), false).unwrap();
                events.send_data(super::result_event("1").into(), true).unwrap();
            }
            bodies.push(request.uri().to_string());
        }
        bodies.len()
    });
    let proxy = Proxy::with(&Start::default(), &route);
    let (_, status, text) = outcome(proxy.address().to_owned(), 1).await;
    assert_eq!((status, &json(&text)["id"]), (200, &1.into()), "{text}");
    drop(proxy);
    assert_eq!(timeout(STUCK, server).await.unwrap().unwrap(), 2);
}
