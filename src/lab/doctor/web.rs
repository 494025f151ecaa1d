//! A connection to a server over HTTP, as a plain client uses it: Streamable HTTP, or HTTP+SSE.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};
use tokio::time::{Instant, sleep, timeout};

use super::legible::Legible;
use super::link::{Arrival, HELD_MAX, Reporter};
use super::traffic::{TrafficEvent, TrafficStream, TransportKind};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::sse::{Events, SseFrame};
use crate::transport::http::client::UpstreamError;
use crate::transport::mcp_http::header_mirror;
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, REVISION, SESSION_ID};
use crate::transport::mcp_http::raw_client::{RawHttpClient, RawResponse};
use crate::transport::mcp_http::response_reader::milliseconds;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Maximum number of times that `doctor` resumes a stream that ends before its answer. Servers of 2025-11-25 may end a
/// stream early.
const RESUMED_MAX: usize = 1000;

/// The pause before `doctor` resumes a stream, unless the server sends `retry`.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause before `doctor` resumes a stream, even if `retry` asks for a longer one.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Deadline for the server to answer the DELETE of its session.
const FAREWELL: Duration = Duration::from_secs(2);

/// Maximum number of bytes that are read of a web page in place of an expected answer.
const PAGE_MAX: usize = 64 << 10;

/// Deadline for a plain GET of a page that is not part of MCP.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// A server over HTTP.
#[derive(Clone)]
pub(in crate::lab) struct Web {
    visitor: RawHttpClient,
    /// The message endpoint of HTTP+SSE, once the server has sent it.
    endpoint: Option<RawHttpClient>,
    /// Whether all messages come on the GET stream (HTTP+SSE).
    pub(super) is_sse: bool,
    pub(super) session: Option<HeaderValue>,
    pub(super) revision: Option<HeaderValue>,
    /// If set, the client breaks off each response of a POST once, and asks for its rest.
    breaks_off: Option<BreakOff>,
}

/// How the client breaks off responses: after some messages with event ids.
#[derive(Clone)]
struct BreakOff {
    /// The number of messages of a response after which it is broken off.
    messages: usize,
    /// The number of responses that have been broken off.
    count: Arc<AtomicUsize>,
}

impl Web {
    pub(in crate::lab) fn new(visitor: RawHttpClient, transport: TransportKind) -> Self {
        let is_sse = transport == TransportKind::Sse;
        let (endpoint, session, revision, breaks_off) = (None, None, None, None);
        Self { visitor, endpoint, is_sse, session, revision, breaks_off }
    }

    /// Makes the client break off each later response after this number of messages with event ids, and ask for its
    /// rest. Returns the counter of responses broken off.
    pub(in crate::lab) fn break_off(&mut self, messages: usize) -> Arc<AtomicUsize> {
        let count = Arc::new(AtomicUsize::new(0));
        self.breaks_off = Some(BreakOff { messages, count: Arc::clone(&count) });
        count
    }

    fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let session = self.session.clone().map(|id| (SESSION_ID, id));
        let revision = self.revision.clone().map(|date| (REVISION, date));
        session.into_iter().chain(revision).collect()
    }

    /// Sets the endpoint of HTTP+SSE. Returns whether it can be used: it has to be on the same server.
    pub(super) fn set_endpoint(&mut self, endpoint: &[u8]) -> bool {
        let text = String::from_utf8_lossy(endpoint);
        let text = text.trim();
        let path = match text.split_once("://") {
            Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"),
            None => text,
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let path = PathAndQuery::try_from(path).ok();
        self.endpoint = path.map(|path| self.visitor.at(path));
        self.endpoint.is_some()
    }

    /// Sends a message. The caller runs the returned future as a task.
    pub(super) fn post(
        &self,
        message: &Message,
        reporter: Reporter,
    ) -> impl Future<Output = ()> + use<> {
        let visitor = self.endpoint.clone().unwrap_or_else(|| self.visitor.clone());
        let mut headers = self.headers();
        headers.extend([(ACCEPT, BOTH), (CONTENT_TYPE, JSON)]);
        headers.extend(mirrored(message));
        let id = match message.id_key().filter(|_| message.kind() == Kind::Request) {
            Some(Key::Integer(id)) => u64::try_from(id).ok(),
            _ => None,
        };
        let stream = TrafficStream::Post(id);
        let (body, is_sse) = (message.raw().clone(), self.is_sse);
        let breaks_off = self.breaks_off.clone();
        let mut again = self.headers();
        again.push((ACCEPT, EVENTS));
        async move {
            let posted = async {
                let reply = visitor.send(Method::POST, headers, body).await?;
                // The answer comes on the GET stream.
                if is_sse && reply.status.is_success() {
                    return Ok(());
                }
                let mut left = receive(reply, stream, breaks_off.as_ref(), &reporter).await?;
                for _ in 0..RESUMED_MAX {
                    let Some(Left { event, retry }) = left else { break };
                    sleep(retry).await;
                    let headers = again.iter().cloned().chain([(LAST_EVENT_ID, event)]);
                    let reply = visitor.send(Method::GET, headers, Bytes::new()).await?;
                    left = receive(reply, stream, None, &reporter).await?;
                }
                Ok::<_, UpstreamError>(())
            };
            if let Err(error) = posted.await {
                reporter.fail(stream, &error).await;
            }
        }
    }

    /// Opens the GET stream. The caller runs the returned future as a task.
    pub(super) fn get(&self, reporter: Reporter) -> impl Future<Output = ()> + use<> {
        let (visitor, is_sse) = (self.visitor.clone(), self.is_sse);
        let mut headers = self.headers();
        headers.push((ACCEPT, EVENTS));
        async move {
            let stream = if is_sse { TrafficStream::Shared } else { TrafficStream::Get };
            let listened = async {
                let reply = visitor.send(Method::GET, headers, Bytes::new()).await?;
                receive(reply, stream, None, &reporter).await
            };
            match listened.await {
                Ok(_) if is_sse => drop(reporter.send(Instant::now(), Arrival::Closed).await),
                Ok(_) => {}
                Err(error) => reporter.fail(stream, &error).await,
            }
        }
    }

    /// Fetches another path of this server. Returns the body if it is JSON.
    pub(super) async fn fetch(&self, path: &'static str) -> Option<Bytes> {
        let visitor = self.visitor.at(PathAndQuery::from_static(path));
        let fetch = async {
            let mut reply = visitor.send(Method::GET, [(ACCEPT, JSON)], Bytes::new()).await.ok()?;
            if !reply.status.is_success() || reply.content_type() != "application/json" {
                return None;
            }
            whole(&mut reply, HELD_MAX).await.ok()
        };
        timeout(FETCH_MAX, fetch).await.ok().flatten()
    }

    /// Ends the session with a DELETE.
    pub(super) async fn end_session(&self) {
        if self.session.is_some() && !self.is_sse {
            let send = self.visitor.send(Method::DELETE, self.headers(), Bytes::new());
            let _ = timeout(FAREWELL, send).await;
        }
    }
}

/// Returns the headers that repeat members of a request of 2026-07-28, except for the revision, which is a header of
/// every message.
fn mirrored(message: &Message) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let repeats = header_mirror::repeats(message).into_iter().flatten();
    let repeats = repeats.filter(|(name, _)| *name != REVISION);
    repeats.filter_map(|(name, text)| Some((name, header_mirror::encoded(&text?)?)))
}

/// Reads a whole body, up to `max` bytes.
async fn whole(reply: &mut RawResponse, max: usize) -> Result<Bytes, UpstreamError> {
    let mut body = BytesMut::new();
    while body.len() < max {
        match reply.chunk().await {
            None => break,
            Some(chunk) => body.extend_from_slice(&chunk?),
        }
    }
    Ok(body.freeze())
}

/// The state of a stream that ended without an answer, for resumption.
struct Left {
    /// The id of the stream's last event.
    event: HeaderValue,
    /// The wait before the stream is resumed.
    retry: Duration,
}

/// Reports the messages of a response until its end.
async fn receive(
    mut reply: RawResponse,
    stream: TrafficStream,
    breaks_off: Option<&BreakOff>,
    reporter: &Reporter,
) -> Result<Option<Left>, UpstreamError> {
    let (status, kind) = (reply.status.as_u16(), reply.content_type());
    let session = reply.headers.get(SESSION_ID).cloned();
    reporter.send(Instant::now(), Arrival::Head(stream, session)).await;
    if kind == "text/event-stream" {
        return receive_events(reply, stream, breaks_off, reporter).await;
    }
    let is_json = kind == "application/json";
    let body = whole(&mut reply, if is_json { HELD_MAX } else { PAGE_MAX }).await?;
    let at = Instant::now();
    let message = Message::parse(body.clone());
    let is_message = is_json && Legible::is_message(&message);
    if is_message {
        let read = reporter.read();
        let received = TrafficEvent::Received { stream, read, event: None, message };
        reporter.send(at, Arrival::Seen(received)).await;
    }
    let is_empty = (200..300).contains(&status) && body.iter().all(u8::is_ascii_whitespace);
    let end = match is_message || is_empty {
        true => Arrival::Seen(TrafficEvent::Over(stream)),
        false => Arrival::Failed(stream, refused(status, &kind, &body)),
    };
    reporter.send(at, end).await;
    Ok(None)
}

/// Describes a response that is not MCP.
fn refused(status: u16, kind: &str, body: &[u8]) -> String {
    match (status, kind) {
        (401 | 403, _) => {
            format!(
                "the server requires authorization (status {status}): give --header or --bearer-env"
            )
        }
        (_, "text/html") => {
            format!(
                "the server answers with a web page (status {status}, text/html), not as an MCP endpoint"
            )
        }
        _ => {
            let text = super::findings::shown(body);
            let kind = if kind.is_empty() { "no content type" } else { kind };
            format!("the server answers with status {status} and {kind}: {text}")
        }
    }
}

async fn receive_events(
    mut reply: RawResponse,
    stream: TrafficStream,
    breaks_off: Option<&BreakOff>,
    reporter: &Reporter,
) -> Result<Option<Left>, UpstreamError> {
    let mut events = Events::new(HELD_MAX);
    let (mut last, mut retry, mut answered, mut messages) = (None, RETRY, false, 0);
    while let Some(chunk) = reply.chunk().await {
        events.push(chunk?);
        let (at, read) = (Instant::now(), reporter.read());
        while let Some(frame) = events.next() {
            let SseFrame::Event(event) = frame else { continue };
            if event.has_id() {
                last = event.id().and_then(|id| HeaderValue::from_bytes(id).ok());
            }
            if let Some(line) = event.retry() {
                retry = milliseconds(&line).unwrap_or(retry).min(RETRY_MAX);
            }
            let Some(text) = event.data().filter(|text| !text.is_empty()) else { continue };
            let message = Message::parse(text);
            answered |= message.kind() == Kind::Response;
            let name = event.name().filter(|name| !name.is_empty());
            let event = name.map(|name| String::from_utf8_lossy(name).into_owned());
            let received = TrafficEvent::Received { stream, read, event, message };
            if !reporter.send(at, Arrival::Seen(received)).await {
                return Ok(None);
            }
            messages += 1;
            if let (Some(breaks_off), Some(event), false) = (breaks_off, &last, answered)
                && messages == breaks_off.messages
            {
                breaks_off.count.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(Left { event: event.clone(), retry }));
            }
        }
    }
    let event = last
        .filter(|id| !answered && !id.is_empty() && matches!(stream, TrafficStream::Post(Some(_))));
    if event.is_none() {
        reporter.send(Instant::now(), Arrival::Seen(TrafficEvent::Over(stream))).await;
    }
    Ok(event.map(|event| Left { event, retry }))
}
