//! The reference server over HTTP: Streamable HTTP at `/mcp`, HTTP+SSE at `/sse`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::Value;

use super::event_stream::EventLog;
use super::http_body::{idle, kept_events, plain_events, preface, shared_events};
use super::session::{ReferenceSession, ReferenceTerms};
use crate::gateway::mcp_server::{ReplyStream, ServedBody, plain};
use crate::lab::local_http::{LocalServer, LocalService, NewestValues};
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp::{META_REVISION, Revision};
use crate::transport::mcp_http::header_mirror;
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, REVISION, SESSION_ID};
use crate::transport::tasks;

/// Maximum number of sessions of a server. A further session ends the oldest.
const SESSIONS_MAX: usize = 1000;

/// Maximum number of streams of a session whose events are kept.
const STREAMS_MAX: usize = 100;

/// A listening server. Dropping the value ends the server.
#[derive(Debug)]
pub struct ReferenceHttp {
    server: LocalServer,
}

impl ReferenceHttp {
    /// Listens on an address.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub async fn listen(address: SocketAddr, terms: ReferenceTerms) -> io::Result<Self> {
        let (sessions, next) = (NewestValues::new(SESSIONS_MAX), AtomicU64::new(1));
        let host = Arc::new(ReferenceHost { terms, sessions, next });
        Ok(Self { server: LocalServer::listen(address, host).await? })
    }

    /// Returns the URL of Streamable HTTP.
    pub fn url(&self) -> String {
        self.server.url("/mcp")
    }

    /// Returns the URL of HTTP+SSE.
    pub fn sse_url(&self) -> String {
        self.server.url("/sse")
    }
}

/// The clients and sessions of the server.
struct ReferenceHost {
    terms: ReferenceTerms,
    /// The sessions by id.
    sessions: NewestValues<String, Arc<HttpReference>>,
    next: AtomicU64,
}

/// One session over HTTP.
struct HttpReference {
    name: String,
    session: Arc<ReferenceSession>,
    /// The streams of requests, by number.
    streams: NewestValues<u64, Arc<EventLog>>,
    /// The only stream of HTTP+SSE.
    shared: Option<ReplyStream>,
}

impl LocalService for ReferenceHost {
    fn answer(&self, head: &Parts, body: Bytes) -> Response<ServedBody> {
        let session = head.uri.query().and_then(|query| query.strip_prefix("session="));
        match (&head.method, head.uri.path()) {
            (&Method::POST, "/mcp") => self.post(&head.headers, &body),
            (&Method::GET, "/mcp") => self.listen(&head.headers),
            (&Method::DELETE, "/mcp") => match self.sessions.remove(session_name(&head.headers)) {
                Some(_) => plain(StatusCode::NO_CONTENT, ""),
                None => no_session(),
            },
            (&Method::GET, "/sse") => self.open_shared(),
            (&Method::POST, "/messages") => self.post_shared(session, &body),
            (_, "/mcp" | "/sse" | "/messages") => {
                plain(StatusCode::METHOD_NOT_ALLOWED, "no such method")
            }
            _ => plain(StatusCode::NOT_FOUND, "nothing is here: /mcp, /sse"),
        }
    }
}

impl ReferenceHost {
    /// Begins a session.
    fn begin(&self, shared: Option<ReplyStream>) -> Arc<HttpReference> {
        let name = format!("reference-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let session = ReferenceSession::new(self.terms.clone());
        let streams = NewestValues::new(STREAMS_MAX);
        let session = Arc::new(HttpReference { name: name.clone(), session, streams, shared });
        self.sessions.insert(name, Arc::clone(&session));
        session
    }

    /// Handles a message over Streamable HTTP.
    fn post(&self, headers: &HeaderMap, body: &Bytes) -> Response<ServedBody> {
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return plain(StatusCode::BAD_REQUEST, "the body is no JSON");
        };
        if self.terms.is_modern && message["params"]["_meta"].get(META_REVISION).is_some() {
            return self.post_modern(headers, body, message);
        }
        let session = match self.sessions.find(session_name(headers)) {
            Some(found) => found,
            None if headers.contains_key(SESSION_ID) => return no_session(),
            None if message["method"] == "initialize" => self.begin(None),
            None => return plain(StatusCode::BAD_REQUEST, "a session begins with initialize"),
        };
        let (stream, pieces) = ReplyStream::new();
        let mut response = match session.session.receive(message, stream) {
            None => plain(StatusCode::ACCEPTED, ""),
            Some(answer) => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let log = EventLog::record(number, pieces);
                let reader = log.read(None);
                session.streams.insert(number, log);
                // A client that disconnects may return for the rest.
                tasks::spawn(answer);
                let revision = headers.get(REVISION).and_then(|date| date.to_str().ok());
                let resumes = revision >= Some(Revision::V2025_11_25.date());
                kept_events(resumes.then(|| preface(&reader)), reader)
            }
        };
        if let Ok(name) = session.name.parse() {
            response.headers_mut().insert(SESSION_ID, name);
        }
        response
    }

    /// Answers a request of 2026-07-28, which has no sessions.
    fn post_modern(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        message: Value,
    ) -> Response<ServedBody> {
        let (stream, pieces) = ReplyStream::new();
        let session = ReferenceSession::new(self.terms.clone());
        let Some(answer) = session.receive(message, stream) else {
            return plain(StatusCode::ACCEPTED, "");
        };
        if header_mirror::require(headers, &Message::parse(body.clone())).is_err() {
            return plain(StatusCode::BAD_REQUEST, "the headers do not repeat the body");
        }
        tasks::spawn(answer);
        plain_events(pieces)
    }

    /// Handles the GET of Streamable HTTP: returns the rest of a stream, or the stream for messages without a request.
    fn listen(&self, headers: &HeaderMap) -> Response<ServedBody> {
        let Some(session) = self.sessions.find(session_name(headers)) else { return no_session() };
        match headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default()) {
            None => idle(),
            Some(id) => match EventLog::place(id) {
                Some((stream, after)) => match session.streams.find(&stream) {
                    Some(log) => kept_events(None, log.read(Some(after))),
                    None => plain(StatusCode::NOT_FOUND, "this stream is not known"),
                },
                None => plain(StatusCode::BAD_REQUEST, "no id of an event"),
            },
        }
    }

    /// Opens the stream of HTTP+SSE.
    fn open_shared(&self) -> Response<ServedBody> {
        let (stream, pieces) = ReplyStream::new();
        let session = self.begin(Some(stream));
        shared_events(pieces, &format!("/messages?session={}", session.name))
    }

    /// Handles a message over HTTP+SSE.
    fn post_shared(&self, session: Option<&str>, body: &[u8]) -> Response<ServedBody> {
        let session = session.and_then(|name| self.sessions.find(name));
        let Some(session) = session else { return no_session() };
        let Some(stream) = session.shared.clone() else { return no_session() };
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return plain(StatusCode::BAD_REQUEST, "the body is no JSON");
        };
        if let Some(answer) = session.session.receive(message, stream) {
            tasks::spawn(answer);
        }
        plain(StatusCode::ACCEPTED, "Accepted")
    }
}

/// Returns the session id of a request over Streamable HTTP; empty if it has none.
fn session_name(headers: &HeaderMap) -> &str {
    headers.get(SESSION_ID).and_then(|name| name.to_str().ok()).unwrap_or_default()
}

fn no_session() -> Response<ServedBody> {
    plain(StatusCode::NOT_FOUND, "this session is not known")
}
