//! A server that sends what a test wants, in three framings.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use nix::libc;
use serde_json::{Value, json};
use socket2::SockRef;

use super::Transport;
use crate::http::serve::scripted_server::{Asked, Upstream};
use crate::support::exchange::reset;
use crate::support::session::signal;
use crate::support::{STUCK, socket_child};

/// Said by the client of a session, or that it is over.
pub(crate) struct Heard {
    /// Sessions are counted from 0.
    pub(crate) session: usize,
    pub(crate) what: What,
    /// The unchanged text of a message.
    pub(crate) text: String,
    /// Where it is answered.
    pub(crate) line: Line,
}

#[derive(Debug, PartialEq)]
pub(crate) enum What {
    Message(Value),
    /// A client resumes after this event.
    Resumes(String),
    /// The session has ended: end of input, closed stream, or DELETE.
    End,
}

/// Where the server says something.
#[derive(Clone)]
pub(crate) enum Line {
    Pipe(Arc<Mutex<TcpStream>>),
    /// A response; whether its head is written.
    Stream(Arc<Mutex<(Asked, bool)>>),
    /// A message that needs no answer.
    Nowhere,
}

impl Line {
    /// Sends a message. Ignores the error if the client has disconnected.
    pub(crate) fn say(&self, message: &Value) {
        self.say_text(&message.to_string());
    }

    pub(crate) fn say_text(&self, message: &str) {
        self.write(&[message.to_owned()]);
    }

    fn say_at_once(&self, messages: &[Value]) {
        self.write(&messages.iter().map(Value::to_string).collect::<Vec<_>>());
    }

    fn write(&self, messages: &[String]) {
        match self {
            Self::Pipe(pipe) => {
                let lines: String = messages.iter().map(|message| format!("{message}\n")).collect();
                drop(pipe.lock().unwrap().write_all(lines.as_bytes()));
            }
            Self::Stream(_) => {
                let events =
                    messages.iter().map(|text| format!("event: message\ndata: {text}\n\n"));
                self.event(&events.collect::<String>());
            }
            Self::Nowhere => panic!("nobody waits for an answer"),
        }
    }

    /// The same, as an event to come back after, where there are events of single requests.
    pub(crate) fn say_numbered(&self, event: &str, message: &Value) {
        self.event(&format!("id: {event}\nretry: 50\ndata: {message}\n\n"));
    }

    fn event(&self, event: &str) {
        let Self::Stream(stream) = self else { panic!("no events are spoken here") };
        let (asked, begun) = &mut *stream.lock().unwrap();
        if !std::mem::replace(begun, true) {
            asked.try_events();
        }
        asked.try_say(event);
    }

    /// Says a message byte for byte.
    pub(crate) fn say_slowly(&self, message: &Value) {
        match self {
            Self::Stream(_) => {
                for byte in format!("data: {message}\n\n").chars() {
                    self.event(&byte.to_string());
                }
            }
            _ => format!("{message}\n").bytes().for_each(|byte| self.raw(&[byte])),
        }
    }

    /// Sends a piece: of a line, or of an event in a chunk of its own.
    pub(crate) fn say_piece(&self, line: &str, event: &str) {
        match self {
            Self::Stream(_) => self.event(event),
            _ => self.raw(line.as_bytes()),
        }
    }

    /// Writes bytes unchanged on the connection.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        match self {
            Self::Pipe(pipe) => drop(pipe.lock().unwrap().write_all(bytes)),
            Self::Stream(stream) => stream.lock().unwrap().0.try_raw(bytes),
            Self::Nowhere => panic!("nobody waits for an answer"),
        }
    }

    /// The end of the connection.
    pub(crate) fn close(&self) {
        if let Some(connection) = self.handle() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Ends a response.
    pub(crate) fn end(&self) {
        if let Self::Stream(stream) = self {
            stream.lock().unwrap().0.try_say("");
        }
    }

    fn handle(&self) -> Option<TcpStream> {
        match self {
            Self::Pipe(pipe) => Some(pipe.lock().unwrap().try_clone().unwrap()),
            Self::Stream(stream) => Some(stream.lock().unwrap().0.connection()),
            Self::Nowhere => None,
        }
    }
}

impl Heard {
    pub(crate) fn message(&self) -> &Value {
        match &self.what {
            What::Message(message) => message,
            what => panic!("{what:?}"),
        }
    }

    /// The id of a request.
    pub(crate) fn id(&self) -> &Value {
        &self.message()["id"]
    }

    /// The progress token of a request.
    pub(crate) fn token(&self) -> &Value {
        &self.message()["params"]["_meta"]["progressToken"]
    }

    /// Says what belongs to this request.
    pub(crate) fn say(&self, message: &Value) {
        self.line.say(message);
    }

    /// Says a message as it stands.
    pub(crate) fn say_text(&self, message: &str) {
        self.line.say_text(message);
    }

    /// Says messages in one write.
    pub(crate) fn say_at_once(&self, messages: &[Value]) {
        self.line.say_at_once(messages);
    }

    /// Says it as an event to come back after.
    pub(crate) fn say_numbered(&self, event: &str, message: &Value) {
        self.line.say_numbered(event, message);
    }

    /// Standard progress.
    pub(crate) fn progress(&self, progress: u32, total: u32) {
        self.say(&self.progress_message(progress, total));
    }

    pub(crate) fn progress_message(&self, progress: u32, total: u32) -> Value {
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
            "progressToken": self.token(), "progress": progress, "total": total}})
    }

    pub(crate) fn result(&self, text: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id(),
               "result": {"content": [{"type": "text", "text": text}]}})
    }

    /// Answers, and ends the response.
    pub(crate) fn answer(&self, text: &str) {
        self.say(&self.result(text));
        self.end();
    }

    /// Ends the response.
    pub(crate) fn end(&self) {
        // The stream of HTTP+SSE is shared by all messages of the session.
        if !matches!(self.what, What::End) && self.owns_line() {
            self.line.end();
        }
    }

    fn owns_line(&self) -> bool {
        matches!(&self.line, Line::Stream(stream) if !stream.lock().unwrap().0.head.contains(SSE_PATH))
    }
}

const SSE_PATH: &str = " /sse ";

/// The facts about a session.
#[derive(Default)]
struct Session {
    /// The line for messages of no request.
    home: Option<Line>,
    pid: Option<u32>,
}

/// The state that the threads of a server share.
struct Shared {
    sessions: Mutex<Vec<Session>>,
    changed: Condvar,
    /// Every connection that there has been.
    connections: Mutex<Vec<TcpStream>>,
    tell: Sender<Heard>,
    /// The session whose child reads nothing.
    deaf: Mutex<Option<usize>>,
    changed_ears: Condvar,
}

pub(crate) struct Server {
    transport: Transport,
    listener: TcpListener,
    shared: Arc<Shared>,
    told: Receiver<Heard>,
    /// Messages that arrived before the test asked for them.
    early: Vec<Heard>,
    /// The commands that a child runs first.
    first: String,
    /// Another command, or another scheme, host and port.
    elsewhere: Option<String>,
}

impl Server {
    /// A child that runs this Python first.
    pub(crate) fn child(first: &str) -> Self {
        let mut server = Self::start(Transport::Stdio);
        first.clone_into(&mut server.first);
        server
    }

    /// Returns a target that is not a server: a command, or the scheme, host and port of an address.
    pub(crate) fn elsewhere(transport: Transport, elsewhere: String) -> Self {
        let mut server = Self::start(transport);
        server.elsewhere = Some(elsewhere);
        server
    }

    pub(crate) fn start(transport: Transport) -> Self {
        let (tell, told) = mpsc::channel();
        let shared = Arc::new(Shared {
            sessions: Mutex::default(),
            changed: Condvar::new(),
            connections: Mutex::default(),
            tell,
            deaf: Mutex::default(),
            changed_ears: Condvar::new(),
        });
        let served = Arc::clone(&shared);
        let listener = if transport == Transport::Stdio {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let accepting = listener.try_clone().unwrap();
            thread::spawn(move || {
                for child in accepting.incoming().map_while(Result::ok) {
                    let shared = Arc::clone(&served);
                    thread::spawn(move || hear_child(&shared, child));
                }
            });
            listener
        } else {
            let upstream = Upstream::start();
            let listener = upstream.listener();
            thread::spawn(move || {
                while let Some(asked) = upstream.next() {
                    match transport {
                        Transport::Http => hear_http(&served, asked),
                        _ => hear_sse(&served, asked),
                    }
                }
            });
            listener
        };
        let (first, elsewhere) = (String::new(), None);
        Self { transport, listener, shared, told, early: Vec::new(), first, elsewhere }
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Returns its address, if it is known.
    fn url(&self) -> String {
        let path = if self.transport == Transport::Sse { "sse" } else { "mcp" };
        match &self.elsewhere {
            Some(elsewhere) => format!("{elsewhere}/{path}"),
            None => format!("http://{}/{path}", self.address()),
        }
    }

    /// How it is started, if it is a child.
    fn command(&self) -> Vec<String> {
        match &self.elsewhere {
            Some(elsewhere) => vec![elsewhere.clone()],
            None => socket_child::command(self.listener.local_addr().unwrap().port(), &self.first),
        }
    }

    /// Returns the arguments of `milepost wrap` for this server.
    pub(crate) fn arguments(&self) -> Vec<String> {
        match self.transport {
            Transport::Stdio => [vec!["--".to_owned()], self.command()].concat(),
            Transport::Http | Transport::Sse => vec![self.url()],
        }
    }

    /// The key of a route to it.
    pub(crate) fn route(&self) -> String {
        match self.transport {
            Transport::Stdio => format!("upstream.command = {}", json!(self.command())),
            Transport::Http => format!("upstream.url = \"{}\"", self.url()),
            Transport::Sse => format!("upstream.sse = \"{}\"", self.url()),
        }
    }

    /// Returns the first message that fits, and keeps the others.
    #[track_caller]
    fn find(&mut self, what: &str, fits: impl Fn(&Heard) -> bool) -> Heard {
        if let Some(at) = self.early.iter().position(&fits) {
            return self.early.remove(at);
        }
        loop {
            let Ok(heard) = self.told.recv_timeout(STUCK) else {
                let early: Vec<_> = self.early.iter().map(|early| &early.what).collect();
                panic!("the server does not hear {what}, but {early:?}")
            };
            if fits(&heard) {
                return heard;
            }
            self.early.push(heard);
        }
    }

    /// The next message of this method.
    #[track_caller]
    pub(crate) fn hear(&mut self, method: &str) -> Heard {
        self.find(
            method,
            |heard| matches!(&heard.what, What::Message(message) if message["method"] == method),
        )
    }

    /// The answer to a request of the server.
    #[track_caller]
    pub(crate) fn hear_answer(&mut self, id: u32) -> Heard {
        self.find("an answer", |heard| {
            matches!(&heard.what, What::Message(message)
                if message["id"] == id && message.get("method").is_none())
        })
    }

    /// Waits for a client that resumes after an event.
    #[track_caller]
    pub(crate) fn hear_resume(&mut self, event: &str) -> Heard {
        self.find("a client that comes back", |heard| heard.what == What::Resumes(event.to_owned()))
    }

    /// The end of a session.
    #[track_caller]
    pub(crate) fn hear_end(&mut self, session: usize) {
        self.find("the end of a session", |heard| {
            heard.what == What::End && heard.session == session
        });
    }

    /// How many sessions there have been.
    pub(crate) fn sessions(&self) -> usize {
        self.shared.sessions.lock().unwrap().len()
    }

    /// Returns the line of a session for messages of no request, once it exists.
    #[track_caller]
    pub(crate) fn home(&self, session: usize) -> Line {
        let none =
            |sessions: &mut Vec<Session>| sessions.get(session).is_none_or(|s| s.home.is_none());
        let sessions = self.shared.sessions.lock().unwrap();
        let (sessions, _) = self.shared.changed.wait_timeout_while(sessions, STUCK, none).unwrap();
        sessions[session].home.clone().expect("nobody listens")
    }

    /// The process of a session.
    pub(crate) fn pid(&self, session: usize) -> Option<u32> {
        self.shared.sessions.lock().unwrap()[session].pid
    }

    /// Dies before the eyes of who waits for the answer to a call: its process is killed, or the connection
    /// of the call reset.
    pub(crate) fn kill(&self, call: Heard) {
        if self.transport == Transport::Stdio {
            return signal("KILL", self.pid(call.session).unwrap());
        }
        let connection = call.line.handle().unwrap();
        if self.transport == Transport::Sse {
            self.shared.sessions.lock().unwrap()[call.session].home = None;
        }
        let peer = connection.peer_addr().ok();
        self.shared.connections.lock().unwrap().retain(|held| held.peer_addr().ok() != peer);
        reset(&connection);
    }

    /// Forgets a session whose end was noticed.
    pub(crate) fn close(&self, session: usize) {
        let home = self.shared.sessions.lock().unwrap()[session].home.take();
        if let Some(home) = home {
            home.close();
        }
    }

    /// Stops or continues to read the input of the child of a session.
    pub(crate) fn set_deaf(&self, session: Option<usize>) {
        *self.shared.deaf.lock().unwrap() = session;
        self.shared.changed_ears.notify_all();
    }

    /// Ends as servers do that crash.
    pub(crate) fn die(&self) {
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.die();
    }
}

impl Shared {
    fn open(&self) -> usize {
        let mut sessions = self.sessions.lock().unwrap();
        sessions.push(Session::default());
        sessions.len() - 1
    }

    fn settle(&self, session: usize, line: &Line) {
        self.sessions.lock().unwrap()[session].home = Some(line.clone());
        self.changed.notify_all();
    }

    fn hold(&self, line: Line) -> Line {
        let mut connections = self.connections.lock().unwrap();
        connections.retain(|connection| !is_over(connection));
        connections.extend(line.handle());
        drop(connections);
        line
    }

    fn tell(&self, session: usize, what: What, line: Line) {
        let _ = self.tell.send(Heard { session, what, text: String::new(), line });
    }

    /// A message of a session; `initialize` is answered at once.
    fn message(&self, session: usize, text: &str, line: &Line) {
        let message: Value = serde_json::from_str(text).unwrap();
        if message["method"] == "initialize" {
            line.say(&introduction(&message));
        } else if message["method"] != "notifications/initialized" {
            let (what, text) = (What::Message(message), text.to_owned());
            let _ = self.tell.send(Heard { session, what, text, line: line.clone() });
        }
    }
}

/// Whether the other side has closed a connection, and everything that it said was read.
fn is_over(connection: &TcpStream) -> bool {
    let look = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let read = SockRef::from(connection).recv_with_flags(&mut [MaybeUninit::uninit()], look);
    match read {
        Ok(length) => length == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn introduction(initialize: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": initialize["id"], "result": {
        "protocolVersion": initialize["params"]["protocolVersion"],
        "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}})
}

fn hear_child(shared: &Shared, child: TcpStream) {
    child.set_nodelay(true).unwrap();
    let mut lines = BufReader::new(child.try_clone().unwrap()).lines().map_while(Result::ok);
    let line = shared.hold(Line::Pipe(Arc::new(Mutex::new(child))));
    let Some(pid) = lines.next() else { return };
    let session = shared.open();
    shared.sessions.lock().unwrap()[session].pid = pid.parse().ok();
    shared.settle(session, &line);
    for text in lines {
        let deaf = shared.deaf.lock().unwrap();
        drop(shared.changed_ears.wait_while(deaf, |deaf| *deaf == Some(session)).unwrap());
        shared.message(session, &text, &line);
    }
    shared.tell(session, What::End, Line::Nowhere);
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn hear_http(shared: &Shared, mut asked: Asked) {
    let session = header(&asked.head, "mcp-session-id").map(|id| id[2..].parse().unwrap());
    let (head, body) = (asked.head.clone(), asked.body.clone());
    if head.starts_with("POST ") {
        let message: Value = serde_json::from_str(&body).unwrap();
        if message["method"] == "initialize" {
            let session = shared.open();
            let headers =
                format!("content-type: application/json\r\nmcp-session-id: s-{session}\r\n");
            return asked.answer("200 OK", &headers, introduction(&message).to_string());
        }
        let Some(session) = session else { return asked.answer("400 Bad Request", "", "") };
        let line = if message["id"].is_null() || message["method"].is_null() {
            asked.answer("202 Accepted", "", "");
            Line::Nowhere
        } else {
            shared.hold(Line::Stream(Arc::new(Mutex::new((asked, false)))))
        };
        return shared.message(session, &body, &line);
    }
    let Some(session) = session else { return asked.answer("405 Method Not Allowed", "", "") };
    if head.starts_with("DELETE ") {
        asked.answer("200 OK", "", "");
        return shared.tell(session, What::End, Line::Nowhere);
    }
    asked.try_events();
    let line = shared.hold(Line::Stream(Arc::new(Mutex::new((asked, true)))));
    match header(&head, "last-event-id") {
        Some(event) => shared.tell(session, What::Resumes(event.to_owned()), line),
        None => shared.settle(session, &line),
    }
}

fn hear_sse(shared: &Arc<Shared>, mut asked: Asked) {
    let path = asked.head.split(' ').nth(1).unwrap().to_owned();
    if let Some((_, session)) = path.split_once("session=") {
        let (session, body): (usize, _) = (session.parse().unwrap(), asked.body.clone());
        let home = shared.sessions.lock().unwrap()[session].home.clone().unwrap();
        asked.answer("202 Accepted", "", "Accepted");
        return shared.message(session, &body, &home);
    }
    if !asked.head.starts_with("GET ") {
        return asked.answer("405 Method Not Allowed", "", "");
    }
    let session = shared.open();
    let connection = asked.connection();
    let line = shared.hold(Line::Stream(Arc::new(Mutex::new((asked, false)))));
    shared.settle(session, &line);
    line.event(&format!("event: endpoint\ndata: /messages?session={session}\n\n"));
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let _ = connection.set_read_timeout(None);
        // Nothing but the end arrives.
        let _ = std::io::copy(&mut &connection, &mut std::io::sink());
        shared.tell(session, What::End, Line::Nowhere);
    });
}
