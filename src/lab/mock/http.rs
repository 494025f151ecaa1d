//! A mock over HTTP: Streamable HTTP, and HTTP+SSE for clients that begin with a GET.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::script::MockScript;
use super::session::{MockOutput, MockSession, MockTally, MockTerms};
use crate::gateway::mcp_server::{ReplyStream, ServedBody, endpoint_event, events, plain};
use crate::lab::local_http::{LocalServer, LocalService, NewestValues, event_stream, lock};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::random::random_id;
use crate::transport::tasks;

/// Maximum number of sessions of a mock. A further session ends the oldest.
pub const SESSIONS_MAX: usize = 64;

/// The query parameter that has the session id of HTTP+SSE.
const QUERY: &str = "sessionId=";

/// The path in the URL that is printed. A mock answers at every path.
const PATH: &str = "/mcp";

/// A mock over HTTP. Dropping the value ends it.
pub(super) struct HttpMock {
    server: LocalServer,
    api: Arc<MockApi>,
}

impl HttpMock {
    /// Serves a script on an address.
    ///
    /// # Errors
    /// If the address cannot be used, or the system has no random bytes.
    pub(super) async fn listen(
        script: &Arc<MockScript>,
        terms: MockTerms,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let (script, sessions) = (Arc::clone(script), NewestValues::new(SESSIONS_MAX));
        let tally = Mutex::default();
        let api = Arc::new(MockApi { script, terms, sessions, tally });
        Ok(Self { server: LocalServer::listen(address, api.clone()).await?, api })
    }

    /// Returns the URL for clients.
    pub(super) fn url(&self) -> String {
        self.server.url(PATH)
    }

    /// Returns the counts so far.
    pub(super) fn tally(&self) -> MockTally {
        lock(&self.api.tally).clone()
    }
}

/// Answers the clients of a mock.
struct MockApi {
    script: Arc<MockScript>,
    terms: MockTerms,
    /// The sessions by id; clients without an id share the session with the empty id.
    sessions: NewestValues<String, Arc<HttpSession>>,
    tally: Mutex<MockTally>,
}

/// The session of one client.
struct HttpSession {
    state: Mutex<HttpState>,
    changed: Notify,
}

/// The transport of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MockTransport {
    StreamableHttp,
    /// All messages go to the stream of the GET.
    HttpSse,
}

struct HttpState {
    session: MockSession,
    /// The open responses, each with the numbers of the requests that it answers.
    posts: Vec<(Vec<u64>, ReplyStream)>,
    /// The GET stream.
    stream: Option<ReplyStream>,
    transport: MockTransport,
    is_over: bool,
}

impl LocalService for MockApi {
    fn answer(&self, parts: &Parts, body: Bytes) -> Response<ServedBody> {
        match parts.method {
            Method::POST => self.post(parts, &Message::parse(body)),
            Method::GET => self.get(parts),
            Method::DELETE => match self.sessions.remove(session_name(parts)) {
                Some(session) => {
                    end(&session);
                    plain(StatusCode::OK, "")
                }
                None => no_session(),
            },
            _ => {
                let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "");
                refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
                refused
            }
        }
    }
}

impl MockApi {
    /// Begins a session.
    fn begin(&self, id: String, transport: MockTransport) -> Arc<HttpSession> {
        let session = MockSession::new(&self.script, self.terms, Instant::now());
        let posts = Vec::new();
        let state = HttpState { session, posts, stream: None, transport, is_over: false };
        let session = Arc::new(HttpSession { state: Mutex::new(state), changed: Notify::new() });
        tasks::spawn(drive(Arc::clone(&session)));
        if let Some(oldest) = self.sessions.insert(id, Arc::clone(&session)) {
            end(&oldest);
        }
        session
    }

    fn post(&self, parts: &Parts, message: &Message) -> Response<ServedBody> {
        if matches!(message.kind(), Kind::Noise | Kind::Opaque) {
            return plain(StatusCode::BAD_REQUEST, "the body is no message of JSON-RPC");
        }
        let is_initialize = message.method().as_deref() == Some(mcp::INITIALIZE);
        let is_named = parts.headers.contains_key(SESSION_ID) || parts.uri.query().is_some();
        let known = self.sessions.find(session_name(parts));
        let (id, session) = match (known, is_initialize && !is_named) {
            (Some(session), false) => (None, session),
            (None, false) if is_named => return no_session(),
            // Clients of revisions without sessions share a session.
            (None, false) => (None, self.begin(String::new(), MockTransport::StreamableHttp)),
            (_, true) => match random_id() {
                Some(id) => (Some(id.clone()), self.begin(id, MockTransport::StreamableHttp)),
                None => return plain(StatusCode::INTERNAL_SERVER_ERROR, ""),
            },
        };
        let mut state = lock(&session.state);
        let numbers = state.session.receive(Instant::now(), message, &mut lock(&self.tally));
        let mut response = if numbers.is_empty() || state.transport == MockTransport::HttpSse {
            plain(StatusCode::ACCEPTED, "")
        } else {
            let (stream, pieces) = ReplyStream::new();
            state.posts.push((numbers, stream));
            event_stream(events(pieces))
        };
        drop(state);
        session.changed.notify_one();
        if let Some(id) = id.and_then(|id| HeaderValue::try_from(id).ok()) {
            response.headers_mut().insert(SESSION_ID, id);
        }
        response
    }

    fn get(&self, parts: &Parts) -> Response<ServedBody> {
        let (stream, pieces) = ReplyStream::new();
        let (endpoint, session) = match self.sessions.find(session_name(parts)) {
            Some(session) => (None, session),
            None if parts.headers.contains_key(SESSION_ID) => return no_session(),
            None => {
                let Some(id) = random_id() else {
                    return plain(StatusCode::INTERNAL_SERVER_ERROR, "");
                };
                let endpoint = endpoint_event(&format!("{}?{QUERY}{id}", parts.uri.path()));
                (Some(endpoint), self.begin(id, MockTransport::HttpSse))
            }
        };
        lock(&session.state).stream = Some(stream);
        session.changed.notify_one();
        event_stream(stream::iter(endpoint).chain(events(pieces)))
    }
}

/// Ends a session and its streams.
fn end(session: &Arc<HttpSession>) {
    let mut state = lock(&session.state);
    state.is_over = true;
    state.posts.clear();
    state.stream = None;
    drop(state);
    session.changed.notify_one();
}

/// Sends the messages of a session when they are due, until the session ends.
async fn drive(session: Arc<HttpSession>) {
    while !lock(&session.state).is_over {
        while let Some((to, text)) = session.next() {
            // Ignore the result: the client may have disconnected.
            to.say([text]).await;
        }
        session.close_answered();
        let due = lock(&session.state).session.next_due(Instant::now());
        let wait = session.changed.notified();
        match due {
            Some(due) => {
                tokio::select! {
                    () = wait => {}
                    () = sleep_until(due.into()) => {}
                }
            }
            None => wait.await,
        }
    }
}

impl HttpSession {
    /// Returns the next message that is due, with its stream.
    fn next(&self) -> Option<(ReplyStream, Bytes)> {
        let mut state = lock(&self.state);
        loop {
            let output = state.session.poll(Instant::now())?;
            let is_message = Message::parse(output.text.clone()).kind() != Kind::Noise;
            if let Some(stream) = state.stream_of(&output).filter(|_| is_message) {
                return Some((stream, output.text));
            }
        }
    }

    /// Ends the responses whose requests need no more messages.
    fn close_answered(&self) {
        let mut state = lock(&self.state);
        let HttpState { session, posts, .. } = &mut *state;
        posts.retain(|(numbers, stream)| {
            !stream.has_left() && numbers.iter().any(|number| session.is_open(*number))
        });
    }
}

impl HttpState {
    /// Returns the stream for a message: the response to its request, or else the GET stream.
    fn stream_of(&mut self, output: &MockOutput) -> Option<ReplyStream> {
        if output.is_stderr {
            return None;
        }
        let post = self
            .posts
            .iter_mut()
            .position(|(numbers, _)| output.about.is_some_and(|about| numbers.contains(&about)));
        let Some(post) = post else { return self.stream.clone() };
        let (numbers, stream) = self.posts.get_mut(post)?;
        let stream = stream.clone();
        if output.is_answer {
            numbers.retain(|number| Some(*number) != output.about);
        }
        if numbers.is_empty() {
            self.posts.remove(post);
        }
        Some(stream)
    }
}

/// Returns the session id of a request; empty if it has none.
fn session_name(parts: &Parts) -> &str {
    let header = parts.headers.get(SESSION_ID).map(|id| id.to_str().unwrap_or_default());
    let query = || parts.uri.query()?.split('&').find_map(|part| part.strip_prefix(QUERY));
    header.or_else(query).unwrap_or_default()
}

fn no_session() -> Response<ServedBody> {
    plain(StatusCode::NOT_FOUND, "there is no such session")
}
