//! The example servers over HTTP: connections, sessions, and whose messages go to which stream. How
//! all that looks is a matter of the [`Library`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{future, io, thread};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode, request};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time;

use super::client::{Client, Said};
use super::library::{Answers, EVENTS, Events, JSON, Library, Refusal, Shape, Stream};
use super::{Calls, Listen, Server, dispatch};

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answer = Response<Body>;

/// The requests and streams that a client has begun and not ended.
struct Session {
    id: Option<String>,
    calls: Arc<Calls>,
    /// Its GET stream, while it has one.
    ear: Mutex<Option<UnboundedSender<Vec<Said>>>>,
    /// How many requests and how many events of GET streams there have been.
    requests: AtomicU64,
    heard: Arc<AtomicU64>,
}

impl Session {
    fn new(id: Option<String>) -> Arc<Self> {
        let (calls, ear) = (Arc::default(), Mutex::default());
        Arc::new(Self { id, calls, ear, requests: AtomicU64::new(0), heard: Arc::default() })
    }

    fn ear(&self) -> MutexGuard<'_, Option<UnboundedSender<Vec<Said>>>> {
        self.ear.lock().expect("nothing panics while it is held")
    }
}

/// A client that has sent a POST.
#[derive(Clone)]
pub(crate) struct Post {
    stream: UnboundedSender<Vec<Said>>,
    session: Arc<Session>,
}

impl Post {
    /// Says something on the stream that answers the POST, if that is still open.
    pub(crate) fn say(&self, all: Vec<Said>) {
        let _ = self.stream.send(all);
    }

    /// Says something on the session's GET stream, if there is one.
    pub(crate) fn say_aside(&self, said: Said) {
        if let Some(ear) = &*self.session.ear() {
            let _ = ear.send(vec![said]);
        }
    }
}

/// A server and who talks to it.
struct Host<S> {
    server: Arc<S>,
    library: Library,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

/// Serves until stdin ends or the time is up.
pub(crate) fn serve(server: &Arc<impl Server>) -> io::Result<()> {
    let Listen { http: Some(address), lifetime } = server.listen() else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        eprintln!("listening on http://{}/mcp", listener.local_addr()?);
        let (server, library) = (Arc::clone(server), server.library());
        let host = Arc::new(Host { server, library, sessions: Mutex::default() });
        tokio::select! {
            () = end(lifetime) => Ok(()),
            Err(error) = accept(listener, host) => Err(error),
        }
    })
}

async fn end(lifetime: Option<f32>) {
    if let Some(seconds) = lifetime {
        return time::sleep(Duration::from_secs_f32(seconds.clamp(0.0, 1e6))).await;
    }
    let (tell, ended) = oneshot::channel();
    // A thread that nobody waits for: a read of stdin cannot be given up.
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = tell.send(());
    });
    let _ = ended.await;
}

async fn accept(listener: TcpListener, host: Arc<Host<impl Server>>) -> io::Result<Infallible> {
    loop {
        let (connection, _) = listener.accept().await?;
        // Events go out as they come.
        let _ = connection.set_nodelay(true);
        let host = Arc::clone(&host);
        let service = service_fn(move |request| {
            let host = Arc::clone(&host);
            async move { Ok::<_, Infallible>(host.answer(request).await) }
        });
        // Clients come and go as they like.
        let connection = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
        tokio::spawn(async { drop(connection.await) });
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

impl<S: Server> Host<S> {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return self.refuse(Refusal::Body) };
        let body = body.to_bytes();
        if head.uri.path() != "/mcp" && !self.library.ignores_path() {
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let found = self.server.elsewhere(head.method.as_str(), head.uri.path(), &body);
            return found.map_or_else(|| self.refuse(Refusal::Path), |json| self.json(json, None));
        }
        let answered = match head.method {
            Method::POST => self.post(&head, &body).await,
            Method::GET => self.get(&head),
            Method::DELETE => self.delete(&head),
            _ => Err(Refusal::Method),
        };
        answered.unwrap_or_else(|refusal| self.refuse(refusal))
    }

    async fn post(&self, head: &request::Parts, body: &[u8]) -> Result<Answer, Refusal> {
        let accept = header(&head.headers, "accept");
        if self.library.checks_accept() && !(accept.contains(JSON) && accept.contains(EVENTS)) {
            return Err(Refusal::Accept);
        }
        if !header(&head.headers, "content-type").starts_with(JSON) {
            return Err(Refusal::ContentType);
        }
        let messages = match serde_json::from_slice(body) {
            Ok(Value::Array(all)) if self.library.batch() > 0 => {
                all.into_iter().take(self.library.batch()).collect()
            }
            Ok(message @ Value::Object(_)) => vec![message],
            _ => return Err(Refusal::Body),
        };
        let method = messages.first().and_then(|message| message["method"].as_str());
        let method = method.unwrap_or_default().to_owned();
        let opening = method == "initialize";
        let session = if opening { self.open()? } else { self.find(&head.headers)? };
        let asks = |message: &&Value| {
            message["method"].is_string()
                && (message.get("id").is_some() || self.library.answers_all())
        };
        let answers = messages.iter().filter(asks).count();
        let (mut stream, said) = unbounded_channel();
        let place = self.library.answers(&method);
        let ear = session.ear().clone().filter(|_| place == Answers::OnGet);
        let elsewhere = ear.is_some();
        if let Some(ear) = ear {
            stream = ear;
        }
        self.hand_over(messages, Post { stream, session: Arc::clone(&session) });
        let name = self.name(&session, opening);
        if answers == 0 || elsewhere {
            return Ok(self.respond(202, None, name, Full::default().boxed_unsync()));
        }
        let stream = match opening {
            true => Stream::Opening,
            false => Stream::Request(session.requests.fetch_add(1, Ordering::Relaxed)),
        };
        let events = Events { library: self.library, stream, count: Arc::default() };
        let (ready, left) = (events.preface(), answers);
        let mut flow = Flow { events, said, ready, left, ends: self.library.hangs_up(&method) };
        Ok(match self.library.shape(&method, accept) {
            Shape::Events => {
                let mut answer = self.events(flow, name);
                if place == Answers::Accepted {
                    *answer.status_mut() = StatusCode::ACCEPTED;
                }
                answer
            }
            Shape::Json { early: false } => self.json(flow.answer().await, name),
            Shape::Json { early: true } => {
                let body = stream::once(async move { frame(flow.answer().await) });
                let body = StreamBody::new(body).boxed_unsync();
                self.respond(200, Some(JSON), name, body)
            }
            Shape::Late => match flow.said.recv().await {
                Some(said) if said.iter().all(|said| said.answers) => {
                    let json = said.into_iter().map(|said| said.json + "\n").collect();
                    self.json(json, name)
                }
                said => {
                    flow.ready = said.map(|said| flow.write(&said));
                    self.events(flow, name)
                }
            },
        })
    }

    /// Lets the server deal with messages.
    fn hand_over(&self, messages: Vec<Value>, post: Post) {
        let (server, queues) = (Arc::clone(&self.server), self.library.queues());
        let all = move || {
            let calls = Arc::clone(&post.session.calls);
            let client = Client::Http(post);
            for message in &messages {
                let call = dispatch(&server, &calls, &client, message);
                if let Some(call) = call.filter(|_| queues) {
                    let _ = call.join();
                }
            }
        };
        if queues {
            thread::spawn(all);
        } else {
            all();
        }
    }

    fn get(&self, head: &request::Parts) -> Result<Answer, Refusal> {
        if !self.library.listens() {
            return Err(Refusal::Method);
        }
        if !header(&head.headers, "accept").contains(EVENTS) {
            return Err(Refusal::Accept);
        }
        let session = self.find(&head.headers)?;
        let (stream, said) = unbounded_channel();
        let mut ear = session.ear();
        let open = ear.as_ref().is_some_and(|ear| !ear.is_closed());
        if open && !self.library.replaces_stream() {
            return Err(Refusal::SecondStream);
        }
        *ear = Some(stream);
        drop(ear);
        let count = Arc::clone(&session.heard);
        let events = Events { library: self.library, stream: Stream::Session, count };
        let ready = events.preface();
        let flow = Flow { events, said, ready, left: usize::MAX, ends: true };
        Ok(self.events(flow, self.name(&session, false)))
    }

    fn delete(&self, head: &request::Parts) -> Result<Answer, Refusal> {
        if self.library.session_id().is_none() {
            return Err(Refusal::Method);
        }
        let session = self.find(&head.headers)?;
        *session.ear() = None;
        // The one of all clients stays.
        if let Some(id) = &session.id
            && !matches!(self.library, Library::TypeScript { .. })
        {
            self.sessions().remove(id);
        }
        let (status, name) = (self.library.deleted(), self.name(&session, false));
        Ok(self.respond(status, None, name, Full::default().boxed_unsync()))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.lock().expect("nothing panics while it is held")
    }

    /// The session of a client that comes.
    fn open(&self) -> Result<Arc<Session>, Refusal> {
        let Some(id) = self.library.session_id() else { return Ok(Session::new(None)) };
        let mut sessions = self.sessions();
        if let (Library::TypeScript { once }, Some(session)) =
            (self.library, sessions.values().next())
        {
            return if once { Err(Refusal::SecondClient) } else { Ok(Arc::clone(session)) };
        }
        Ok(Arc::clone(sessions.entry(id.clone()).or_insert_with(|| Session::new(Some(id)))))
    }

    /// The session of a client that has come before.
    fn find(&self, headers: &HeaderMap) -> Result<Arc<Session>, Refusal> {
        if self.library.session_id().is_none() {
            return Ok(Session::new(None));
        }
        let id = header(headers, "mcp-session-id");
        match self.sessions().get(id) {
            _ if id.is_empty() => Err(Refusal::NoSession),
            Some(session) => Ok(Arc::clone(session)),
            // The server takes each id that looks like one of its own.
            None if self.library == Library::McpGo && id.starts_with("mcp-session-") => {
                Ok(Session::new(Some(id.to_owned())))
            }
            None => Err(Refusal::UnknownSession),
        }
    }

    /// The session header of an answer.
    fn name<'a>(&self, session: &'a Session, opening: bool) -> Option<&'a str> {
        session.id.as_deref().filter(|_| opening || self.library.repeats_session())
    }

    fn refuse(&self, refusal: Refusal) -> Answer {
        let (status, kind, text) = self.library.refuse(refusal);
        self.respond(status, Some(kind), None, Full::from(text).boxed_unsync())
    }

    fn json(&self, json: String, session: Option<&str>) -> Answer {
        self.respond(200, Some(JSON), session, Full::from(json).boxed_unsync())
    }

    fn events(&self, flow: Flow, session: Option<&str>) -> Answer {
        let body = stream::unfold(flow, |mut flow| async {
            flow.next().await.map(|text| (frame(text), flow))
        });
        self.respond(200, Some(EVENTS), session, StreamBody::new(body).boxed_unsync())
    }

    fn respond(
        &self,
        status: u16,
        kind: Option<&str>,
        session: Option<&str>,
        body: Body,
    ) -> Answer {
        let mut response = Response::builder().status(status);
        if let Some(kind) = kind {
            response = response.header("content-type", kind);
        }
        if let Some(id) = session {
            response = response.header("mcp-session-id", id);
        }
        for (name, value) in self.library.headers(kind == Some(EVENTS)) {
            response = response.header(name, value);
        }
        response.body(body).expect("these headers are in order")
    }
}

fn frame(text: String) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(text.into()))
}

/// The messages of one stream, on their way.
struct Flow {
    events: Events,
    said: UnboundedReceiver<Vec<Said>>,
    /// The bytes that are written already.
    ready: Option<String>,
    /// How many answers are to come.
    left: usize,
    /// Whether the stream ends with the last of them.
    ends: bool,
}

impl Flow {
    /// The bytes that are written next, in one piece.
    async fn next(&mut self) -> Option<String> {
        if self.ready.is_some() {
            return self.ready.take();
        }
        let said = match self.events.keep_alive() {
            _ if self.left == 0 => None,
            Some((every, comment)) => match time::timeout(every, self.said.recv()).await {
                Ok(said) => said,
                Err(_) => return Some(comment),
            },
            None => self.said.recv().await,
        };
        match said {
            Some(said) => Some(self.write(&said)),
            None if self.ends => None,
            None => future::pending().await,
        }
    }

    /// Writes what was said up to the last answer. Nothing comes after it.
    fn write(&mut self, all: &[Said]) -> String {
        let mut text = String::new();
        for said in all {
            if self.left > 0 {
                self.left -= usize::from(said.answers);
                text += &self.events.write(said);
            }
        }
        text
    }

    /// Waits for the answer; all else that is said is lost.
    async fn answer(&mut self) -> String {
        while let Some(all) = self.said.recv().await {
            if let Some(said) = all.into_iter().find(|said| said.answers) {
                return said.json;
            }
        }
        String::new()
    }
}
