//! A client of each transport, which holds everything that it is told against the rules.

use std::io::{BufRead, BufReader};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::Transport;
use crate::core::checker::Checker;
use crate::support::exchange::{Exchange, reset};
use crate::support::session::Session;
use crate::support::{STUCK, milepost};

/// The stream for messages of no request; over stdio and HTTP+SSE it is the only stream.
pub(crate) const HOME: usize = 0;

/// A message that arrived, or the end of a stream.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) stream: usize,
    /// The id of its event.
    pub(crate) event: Option<String>,
    /// The text of the message; `None` if the stream has ended.
    pub(crate) text: Option<String>,
}

impl Told {
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_else(|| panic!("stream {} has ended", self.stream))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap()
    }
}

enum Way {
    Stdio(Session),
    Http { address: String, path: String, session: String },
    Sse { address: String, endpoint: String },
}

pub(crate) struct Client {
    way: Way,
    /// Its session's number on the server.
    pub(crate) session: usize,
    checker: Checker,
    told: Receiver<Told>,
    tell: Sender<Told>,
    /// Messages that arrived before the test asked for them.
    early: Vec<Told>,
    connections: Arc<Mutex<Vec<(usize, TcpStream)>>>,
    streams: usize,
    gate: Gate,
}

/// Where readers stop while a client does not read.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn set_shut(&self, shut: bool) {
        *self.0.0.lock().unwrap() = shut;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let shut = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(shut, |shut| *shut).unwrap());
    }
}

/// Returns the data of an event, and its id.
fn event(stream: usize, text: &str) -> Option<Told> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let data = field("data: ").filter(|data| !data.is_empty());
    let event = field("id: ").map(str::to_owned);
    (data.is_some() || event.is_some()).then(|| Told {
        stream,
        event,
        text: data.map(str::to_owned),
    })
}

/// Passes on the messages in the response to a request, and its end.
fn read(stream: usize, mut exchange: Exchange, gate: &Gate, tell: &Sender<Told>) {
    let end = Told { stream, event: None, text: None };
    let kind = exchange.try_header("content-type").ok().flatten().unwrap_or_default();
    if kind == "application/json" {
        if let Ok(text) = exchange.try_rest() {
            let _ = tell.send(Told { stream, event: None, text: Some(text) });
        }
    } else if kind == "text/event-stream" {
        while let Ok(Some(text)) = exchange.try_event() {
            gate.pass();
            if let Some(told) = event(stream, &text) {
                let _ = tell.send(told);
            }
        }
    }
    let _ = tell.send(end);
}

impl Client {
    fn new(way: Way, session: usize) -> Self {
        let (tell, told) = mpsc::channel();
        Self {
            way,
            session,
            checker: Checker::default(),
            told,
            tell,
            early: Vec::new(),
            connections: Arc::default(),
            streams: 0,
            gate: Gate::default(),
        }
    }

    /// `milepost wrap` with these arguments.
    pub(crate) fn stdio(
        arguments: &[String],
        variables: &[(&'static str, String)],
        session: usize,
    ) -> Self {
        let mut command = milepost();
        command.args(["wrap", "--no-heartbeat"]).args(arguments);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut wrap = Session::start(&mut command);
        let stdout = wrap.take_stdout();
        let mut client = Self::new(Way::Stdio(wrap), session);
        let (tell, gate) = (client.tell.clone(), client.gate.clone());
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                gate.pass();
                let _ = tell.send(Told { stream: HOME, event: None, text: Some(line) });
            }
            let _ = tell.send(Told { stream: HOME, event: None, text: None });
        });
        client.begin(Transport::Stdio);
        client
    }

    /// Of `milepost serve`.
    pub(crate) fn http(address: &str, path: &str, session: usize) -> Self {
        let (address, path) = (address.to_owned(), path.to_owned());
        let way = Way::Http { address, path, session: String::new() };
        let mut client = Self::new(way, session);
        client.begin(Transport::Http);
        client
    }

    /// The same.
    pub(crate) fn sse(address: &str, path: &str, session: usize) -> Self {
        let way = Way::Sse { address: address.to_owned(), endpoint: String::new() };
        let mut client = Self::new(way, session);
        let mut stream = client.open(HOME, "GET", &format!("{path}/sse"), &[], "");
        let first = stream.event().unwrap();
        let endpoint = first.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end();
        client.way = Way::Sse { address: address.to_owned(), endpoint: endpoint.to_owned() };
        client.reads(HOME, stream);
        client.begin(Transport::Sse);
        client
    }

    #[track_caller]
    fn begin(&mut self, transport: Transport) {
        let version = if transport == Transport::Sse { "2024-11-05" } else { "2025-11-25" };
        let message = json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {
            "protocolVersion": version,
            "capabilities": {"sampling": {}, "roots": {}, "elicitation": {}},
            "clientInfo": {"name": "c", "version": "1"}}})
        .to_string();
        let answer = if transport == Transport::Http {
            self.checker.client_said(&message);
            let mut exchange = self.open(HOME, "POST", self.path(), &[], &message);
            let id = exchange.header("mcp-session-id");
            if let Way::Http { session, .. } = &mut self.way {
                *session = id.expect("no session has begun");
            }
            let answer = exchange.rest();
            self.checker.client_told(&answer);
            answer
        } else {
            self.say_text(&message);
            self.hear().text().to_owned()
        };
        assert!(answer.contains("serverInfo"), "{answer}");
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        if transport == Transport::Http {
            self.listen(HOME, &[]);
        }
    }

    /// Sends a request that can be cut.
    fn open(
        &self,
        stream: usize,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &str,
    ) -> Exchange {
        let (Way::Http { address, .. } | Way::Sse { address, .. }) = &self.way else {
            panic!("this is spoken over HTTP")
        };
        let headers = self.headers(method);
        let mut headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        headers.extend(more);
        let exchange = Exchange::send(address, method, path, &headers, body);
        self.connections.lock().unwrap().push((stream, exchange.connection()));
        exchange
    }

    fn headers(&self, method: &str) -> Vec<(&'static str, String)> {
        let events = "text/event-stream".to_owned();
        let mut headers = match method {
            "GET" => vec![("accept", events)],
            _ => vec![("accept", format!("application/json, {events}"))],
        };
        if method == "POST" {
            headers.push(("content-type", "application/json".to_owned()));
        }
        if let Way::Http { session, .. } = &self.way
            && !session.is_empty()
        {
            headers.push(("mcp-session-id", session.clone()));
            headers.push(("mcp-protocol-version", "2025-11-25".to_owned()));
        }
        headers
    }

    /// Listens once more to what belongs to no request.
    pub(crate) fn listen_again(&mut self) -> usize {
        self.streams += 1;
        self.listen(self.streams, &[]);
        self.streams
    }

    fn listen(&self, stream: usize, headers: &[(&str, &str)]) {
        let mut exchange = self.open(stream, "GET", self.path(), headers, "");
        assert_eq!(exchange.status(), 200, "{}", exchange.rest());
        self.reads(stream, exchange);
    }

    /// Passes on the messages of a stream from now on.
    fn reads(&self, stream: usize, exchange: Exchange) {
        let (tell, gate) = (self.tell.clone(), self.gate.clone());
        thread::spawn(move || read(stream, exchange, &gate, &tell));
    }

    /// The path of its route.
    fn path(&self) -> &str {
        match &self.way {
            Way::Http { path, .. } => path,
            _ => panic!("no path is known"),
        }
    }

    /// Sends a message. Returns the stream on which it is answered.
    #[track_caller]
    pub(crate) fn say(&mut self, message: &Value) -> usize {
        self.say_text(&message.to_string())
    }

    /// Says a message as it stands.
    #[track_caller]
    pub(crate) fn say_text(&mut self, message: &str) -> usize {
        self.checker.client_said(message);
        let asks = message.contains("\"method\"") && message.contains("\"id\"");
        let stream = self.streams + 1;
        match &mut self.way {
            Way::Stdio(wrap) => {
                wrap.tell(message);
                HOME
            }
            Way::Http { .. } => {
                let mut exchange = self.open(stream, "POST", self.path(), &[], message);
                if asks {
                    self.streams = stream;
                    self.reads(stream, exchange);
                } else {
                    assert_eq!(exchange.status(), 202, "{}", exchange.rest());
                }
                stream
            }
            Way::Sse { endpoint, .. } => {
                let endpoint = endpoint.clone();
                let mut exchange = self.open(stream, "POST", &endpoint, &[], message);
                assert_eq!(exchange.status(), 202, "{}", exchange.rest());
                HOME
            }
        }
    }

    /// Calls a tool with a progress token.
    #[track_caller]
    pub(crate) fn call(&mut self, id: u32, token: impl Into<Value>) -> usize {
        let token = token.into();
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "work", "arguments": {}, "_meta": {"progressToken": token}}}))
    }

    #[track_caller]
    pub(crate) fn cancel(&mut self, id: u32) {
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                         "params": {"requestId": id}}));
    }

    /// The status of a POST or GET that may be refused, and its body.
    pub(crate) fn status(&self, method: &str, body: &str) -> (u16, String) {
        let path = match &self.way {
            Way::Sse { endpoint, .. } => endpoint,
            _ => self.path(),
        };
        let mut exchange = self.open(usize::MAX, method, path, &[], body);
        (exchange.status(), exchange.rest())
    }

    #[track_caller]
    fn next(&mut self) -> Told {
        let told = self.told.recv_timeout(STUCK);
        let told = told.unwrap_or_else(|_| panic!("nothing comes; before: {:?}", self.early));
        if let Some(text) = &told.text {
            self.checker.client_told(text);
        }
        told
    }

    /// Returns the next message on any stream. An event that has only an id is skipped.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> Told {
        self.find(|told| told.text.is_some())
    }

    /// Returns the next message on this stream, or its end.
    #[track_caller]
    pub(crate) fn hear_on(&mut self, stream: usize) -> Told {
        self.find(|told| told.stream == stream && (told.text.is_some() || told.event.is_none()))
    }

    #[track_caller]
    fn find(&mut self, fits: impl Fn(&Told) -> bool) -> Told {
        if let Some(at) = self.early.iter().position(&fits) {
            return self.early.remove(at);
        }
        loop {
            let told = self.next();
            if fits(&told) {
                return told;
            }
            self.early.push(told);
        }
    }

    /// Progress, the next thing that comes at all; returns its figure.
    #[track_caller]
    pub(crate) fn hear_progress(&mut self, stream: usize, token: impl Into<Value>) -> f64 {
        let told = self.hear();
        let params = &told.json()["params"];
        assert_eq!(params["progressToken"], token.into(), "{told:?}");
        assert_eq!(told.stream, stream, "{told:?}");
        params["progress"].as_f64().unwrap()
    }

    /// A result, the next thing that comes at all.
    #[track_caller]
    pub(crate) fn hear_result(&mut self, stream: usize, id: u32, text: &str) {
        let told = self.hear();
        let json = told.json();
        assert_eq!(json["id"], id, "{told:?}");
        assert_eq!(json["result"]["content"][0]["text"], text, "{told:?}");
        assert_eq!(told.stream, stream, "{told:?}");
    }

    /// Asks for something else and is told nothing but the answer to that.
    #[track_caller]
    pub(crate) fn hears_nothing(&mut self, server: &mut super::server::Server, id: u32) {
        let stream = self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "fence"}));
        server.hear("fence").answer("fence");
        self.hear_result(stream, id, "fence");
    }

    /// The end of a stream, with nothing before it.
    #[track_caller]
    pub(crate) fn hear_end(&mut self, stream: usize) {
        let told = self.hear_on(stream);
        assert!(told.text.is_none(), "{told:?}");
    }

    /// Cuts the connection of a stream.
    pub(crate) fn cut(&self, stream: usize) {
        for (of, connection) in &*self.connections.lock().unwrap() {
            if *of == stream {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    }

    /// Resumes after an event. Returns the stream on which the messages come.
    #[track_caller]
    pub(crate) fn resume(&mut self, event: &str) -> usize {
        self.streams += 1;
        let stream = self.streams;
        self.listen(stream, &[("last-event-id", event)]);
        stream
    }

    /// Is gone all at once, without a word.
    pub(crate) fn vanish(&mut self) {
        if let Way::Stdio(wrap) = &mut self.way {
            wrap.hang_up();
        }
        for (_, connection) in &*self.connections.lock().unwrap() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Ends the standard input, the session, or the stream.
    #[track_caller]
    pub(crate) fn leave(&mut self) {
        match &mut self.way {
            Way::Stdio(wrap) => wrap.hang_up(),
            Way::Http { .. } => assert_eq!(self.status("DELETE", "").0, 200),
            Way::Sse { .. } => self.cut(HOME),
        }
    }

    /// Stops or continues to read. A message that has begun to arrive is read to its end.
    pub(crate) fn stall(&self, stalled: bool) {
        self.gate.set_shut(stalled);
    }

    /// Disconnects with a reset, so that the other side notices at once.
    pub(crate) fn reset(&mut self) {
        if let Way::Stdio(wrap) = &mut self.way {
            wrap.hang_up();
        }
        for (_, connection) in self.connections.lock().unwrap().drain(..) {
            reset(&connection);
        }
    }

    /// Sends a request byte by byte. Returns the stream on which it is answered.
    #[track_caller]
    pub(crate) fn say_slowly(&mut self, message: &str) -> usize {
        self.checker.client_said(message);
        let (address, path) = match &mut self.way {
            Way::Stdio(wrap) => {
                for byte in message.as_bytes() {
                    wrap.say([*byte]);
                }
                wrap.say("\n");
                return HOME;
            }
            Way::Http { address, path, .. } => (address.clone(), path.clone()),
            Way::Sse { address, endpoint } => (address.clone(), endpoint.clone()),
        };
        let headers = self.headers("POST");
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let mut exchange = Exchange::send_slowly(&address, "POST", &path, &headers, message);
        if matches!(self.way, Way::Sse { .. }) {
            assert_eq!(exchange.status(), 202, "{}", exchange.rest());
            return HOME;
        }
        self.streams += 1;
        self.connections.lock().unwrap().push((self.streams, exchange.connection()));
        self.reads(self.streams, exchange);
        self.streams
    }

    /// The process of `wrap`.
    pub(crate) fn wrap(&self) -> Option<&Session> {
        match &self.way {
            Way::Stdio(wrap) => Some(wrap),
            _ => None,
        }
    }

    /// The exit code of `milepost wrap`.
    #[track_caller]
    pub(crate) fn code(&mut self) -> Option<i32> {
        match &mut self.way {
            Way::Stdio(wrap) => wrap.exit().code(),
            _ => panic!("nothing exits"),
        }
    }
}
