//! A mock over HTTP: Streamable HTTP, and HTTP+SSE for clients that begin with a GET.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use futures::stream::poll_fn;
use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep_until;

use super::script::MockScript;
use super::session::{MISSED_MAX, MockOutput, MockSession, MockTally, MockTerms};
use crate::lab::local_http::{LocalBody, LocalListener, LocalService, event_stream, plain};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::{mcp, sse};
use crate::transport::random::random_id;

/// Sessions of a mock at one time. For one more the oldest ends.
pub const SESSIONS_MAX: usize = 64;

/// Messages that wait for the client on one stream of a mock. Beyond that the session waits.
pub const WAITING_MAX: usize = 64;

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// The parameter that names a session of HTTP+SSE.
const QUERY: &str = "sessionId=";

/// The path that is shown to people; a mock answers at every path.
const PATH: &str = "/mcp";

/// A listener that serves a recording.
pub(super) struct MockListener {
    listener: LocalListener,
    api: Arc<MockApi>,
}

impl MockListener {
    /// Binds an address.
    ///
    /// # Errors
    /// If the address cannot be used, or the system has no random bytes.
    pub(super) async fn bind(
        script: &Arc<MockScript>,
        terms: MockTerms,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let listener = LocalListener::bind(address).await?;
        let (script, sessions, tally) = (Arc::clone(script), Mutex::default(), Arc::default());
        Ok(Self { listener, api: Arc::new(MockApi { script, terms, sessions, tally }) })
    }

    /// The URL for clients.
    pub(super) fn url(&self) -> String {
        format!("http://{}{PATH}", self.listener.address())
    }

    /// Serves until `stop` is ready.
    pub(super) async fn serve(self, stop: impl Future<Output = ()>) -> MockTally {
        tokio::select! {
            never = self.listener.serve(self.api.clone()) => match never {},
            () = stop => {}
        }
        lock(&self.api.tally).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the clients of a mock.
struct MockApi {
    script: Arc<MockScript>,
    terms: MockTerms,
    sessions: Mutex<MockSessions>,
    tally: Arc<Mutex<MockTally>>,
}

/// The sessions by their ids; those without an id share the empty one.
#[derive(Default)]
struct MockSessions {
    all: BTreeMap<String, Arc<HttpSession>>,
    /// The ids in the order of their beginning.
    order: Vec<String>,
}

/// The session of one client.
struct HttpSession {
    state: Mutex<HttpState>,
    changed: Notify,
}

struct HttpState {
    session: MockSession,
    /// The responses that are open, each with the numbers of the requests that it answers.
    posts: Vec<(Vec<u64>, Sender<Bytes>)>,
    /// The stream of a GET.
    stream: Option<Sender<Bytes>>,
    /// Everything goes to the stream of the GET: HTTP+SSE.
    is_old: bool,
    is_over: bool,
    /// What was counted of the session so far.
    counted: MockTally,
}

impl LocalService for MockApi {
    fn answer(&self, parts: &Parts, body: Bytes) -> Response<LocalBody> {
        match parts.method {
            Method::POST => self.post(parts, &Message::parse(body)),
            Method::GET => self.get(parts),
            Method::DELETE => match self.named(parts) {
                Some((id, _)) => {
                    self.remove(&id);
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
    /// The session that a request names; of a request that names none the shared one, if it is there.
    fn named(&self, parts: &Parts) -> Option<(String, Arc<HttpSession>)> {
        let header = parts.headers.get(SESSION).map(|id| id.to_str().unwrap_or_default());
        let query = parts
            .uri
            .query()
            .and_then(|query| query.split('&').find_map(|part| part.strip_prefix(QUERY)));
        let id = header.or(query).unwrap_or_default();
        let session = lock(&self.sessions).all.get(id).cloned()?;
        Some((id.to_owned(), session))
    }

    /// Begins a session.
    fn begin(&self, id: String, is_old: bool) -> Arc<HttpSession> {
        let session = MockSession::new(&self.script, self.terms, Instant::now());
        let state = HttpState {
            session,
            posts: Vec::new(),
            stream: None,
            is_old,
            is_over: false,
            counted: MockTally::default(),
        };
        let session = Arc::new(HttpSession { state: Mutex::new(state), changed: Notify::new() });
        tokio::spawn(drive(Arc::clone(&session)));
        let mut sessions = lock(&self.sessions);
        sessions.order.push(id.clone());
        sessions.all.insert(id, Arc::clone(&session));
        if sessions.order.len() > SESSIONS_MAX {
            let oldest = sessions.order.remove(0);
            sessions.all.remove(&oldest).inspect(end);
        }
        session
    }

    fn remove(&self, id: &str) {
        let mut sessions = lock(&self.sessions);
        sessions.all.remove(id).inspect(end);
        sessions.order.retain(|own| own != id);
    }

    fn post(&self, parts: &Parts, message: &Message) -> Response<LocalBody> {
        if matches!(message.kind(), Kind::Noise | Kind::Opaque) {
            return plain(StatusCode::BAD_REQUEST, "the body is no message of JSON-RPC");
        }
        let is_initialize = message.method().as_deref() == Some(mcp::INITIALIZE);
        let is_named = parts.headers.contains_key(SESSION) || parts.uri.query().is_some();
        let (id, session) = match (self.named(parts), is_initialize && !is_named) {
            (Some((_, session)), false) => (None, session),
            (None, false) if is_named => return no_session(),
            // Clients of revisions without sessions share one.
            (None, false) => (None, self.begin(String::new(), false)),
            (_, true) => match random_id() {
                Some(id) => (Some(id.clone()), self.begin(id, false)),
                None => return plain(StatusCode::INTERNAL_SERVER_ERROR, ""),
            },
        };
        let mut state = lock(&session.state);
        let numbers = state.session.receive(Instant::now(), message);
        self.count(&mut state);
        let mut response = if numbers.is_empty() || state.is_old {
            plain(StatusCode::ACCEPTED, "")
        } else {
            let (sender, events) = channel(WAITING_MAX);
            state.posts.push((numbers, sender));
            stream_of(events)
        };
        drop(state);
        session.changed.notify_one();
        if let Some(id) = id.and_then(|id| HeaderValue::try_from(id).ok()) {
            response.headers_mut().insert(SESSION, id);
        }
        response
    }

    fn get(&self, parts: &Parts) -> Response<LocalBody> {
        let (sender, events) = channel(WAITING_MAX);
        let session = match self.named(parts) {
            Some((_, session)) => session,
            None if parts.headers.contains_key(SESSION) => return no_session(),
            None => {
                let Some(id) = random_id() else {
                    return plain(StatusCode::INTERNAL_SERVER_ERROR, "");
                };
                let path = parts.uri.path();
                let endpoint = format!("event: endpoint\ndata: {path}?{QUERY}{id}\n\n");
                // The queue is empty.
                let _ = sender.try_send(Bytes::from(endpoint));
                self.begin(id, true)
            }
        };
        lock(&session.state).stream = Some(sender);
        session.changed.notify_one();
        stream_of(events)
    }

    /// Adds what a session has counted since the last time.
    fn count(&self, state: &mut HttpState) {
        let (now, before) = (state.session.tally.clone(), &state.counted);
        let mut tally = lock(&self.tally);
        tally.served += now.served - before.served;
        tally.misses += now.misses - before.misses;
        let new = now.missed.iter().skip(before.missed.len()).cloned();
        let room = MISSED_MAX.saturating_sub(tally.missed.len());
        tally.missed.extend(new.take(room));
        drop(tally);
        state.counted = now;
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
            // A client that has left gets nothing.
            let _ = to.send(sse::write(&text)).await;
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
    /// The next message that is due, and its stream.
    fn next(&self) -> Option<(Sender<Bytes>, Bytes)> {
        let mut state = lock(&self.state);
        loop {
            let output = state.session.poll(Instant::now())?;
            let is_message = Message::parse(output.text.clone()).kind() != Kind::Noise;
            if let Some(stream) = state.stream_of(&output).filter(|_| is_message) {
                return Some((stream, output.text));
            }
        }
    }

    /// Ends the responses to requests about which nothing more comes.
    fn close_answered(&self) {
        let mut state = lock(&self.state);
        let HttpState { session, posts, .. } = &mut *state;
        posts.retain(|(numbers, sender)| {
            !sender.is_closed() && numbers.iter().any(|number| session.is_open(*number))
        });
    }
}

impl HttpState {
    /// The stream of a message: the response to its request, else the stream of a GET.
    fn stream_of(&mut self, output: &MockOutput) -> Option<Sender<Bytes>> {
        if output.is_stderr {
            return None;
        }
        let post = self
            .posts
            .iter_mut()
            .position(|(numbers, _)| output.about.is_some_and(|about| numbers.contains(&about)));
        let Some(post) = post else { return self.stream.clone() };
        let (numbers, sender) = self.posts.get_mut(post)?;
        let sender = sender.clone();
        if output.is_answer {
            numbers.retain(|number| Some(*number) != output.about);
        }
        if numbers.is_empty() {
            self.posts.remove(post);
        }
        Some(sender)
    }
}

fn stream_of(mut events: Receiver<Bytes>) -> Response<LocalBody> {
    event_stream(poll_fn(move |cx| events.poll_recv(cx)))
}

fn no_session() -> Response<LocalBody> {
    plain(StatusCode::NOT_FOUND, "there is no such session")
}
