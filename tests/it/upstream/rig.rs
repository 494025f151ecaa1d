//! A stdio client in front of an HTTP server: both do what a test tells them, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost::config::routes::{BearerFile, Environment, Routes};
use milepost::observe::log::Connection;
use milepost::relay::child_session::OPEN_CALLS_GRACE;
use milepost::relay::http_upstream::{HttpUpstreamLeg, Reachability, UpstreamTarget};
use milepost::relay::remote_session;
use milepost::relay::{DiagnosticsSink, ModernFace, Pipe, Relay, ServerSide};
use milepost::transport::http::via::Via;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::core::checker::Checker;
use crate::http::rig;
use crate::http::rig::{Asked, settle};
use crate::support::messages::{
    INITIALIZED, MODERN, agreement_to, initialize_with, own_error, request,
};

/// Room enough that nothing ever waits for a reader.
const ROOM: usize = 64 << 20;

/// A client, the proxy, and a server at `http://up.example/base/mcp`.
pub(crate) struct Rig {
    client: Option<DuplexStream>,
    asked: mpsc::UnboundedReceiver<Asked>,
    refuses: Arc<AtomicBool>,
    pub(crate) reach: Reachability,
    task: JoinHandle<()>,
    unread: Vec<u8>,
    checker: Checker,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Rig {
    /// A server at an address.
    pub(crate) fn new() -> Self {
        Self::with("upstream.url = \"http://up.example/base/mcp\"")
    }

    /// A route with these keys.
    pub(crate) fn with(keys: &str) -> Self {
        Self::presenting(keys, None)
    }

    /// Room for so much that the client has not read.
    pub(crate) fn with_room(room: usize) -> Self {
        Self::start("upstream.url = \"http://up.example/base/mcp\"", None, room)
    }

    /// The same with a token.
    pub(crate) fn presenting(keys: &str, bearer: Option<BearerFile>) -> Self {
        Self::start(keys, bearer, ROOM)
    }

    fn start(keys: &str, bearer: Option<BearerFile>, room: usize) -> Self {
        let file = format!(
            "[[route]]\npath = \"/r\"\nfirst_after = \"0s\"\nhold = \"0s\"\nguard = \"0s\"\n{keys}\n"
        );
        let routes = Routes::parse("proxy.toml".as_ref(), &file, &Environment::default());
        let routes = routes.unwrap_or_else(|error| panic!("{error}"));
        let route = routes.find(None).unwrap();
        let (connect, asked, refuses) = rig::server();
        let server = HttpUpstreamLeg::new(
            UpstreamTarget::new(route, Via::named(7), bearer, Some(&connect)).unwrap(),
        );
        let reach = server.reachability();
        let policy = Arc::new(routes.policy(route));
        let server = ServerSide::new(server, ModernFace::of(&policy));
        let (client, near) = duplex(room);
        let (from, to) = tokio::io::split(near);
        let pipe = Pipe::new(Box::new(from), Box::new(to));
        let aside = DiagnosticsSink::new(Box::new(tokio::io::sink()), None);
        let relay = Relay::with_sole_stream(policy, pipe, server, aside);
        let task = tokio::spawn(remote_session::run(
            relay,
            OPEN_CALLS_GRACE,
            Connection::default(),
            std::future::pending(),
        ));
        let (client, unread) = (Some(client), Vec::new());
        Self { client, asked, refuses, reach, task, unread, checker: Checker::default() }
    }

    /// The server cannot be reached any more, or can again.
    pub(crate) fn refuse_connections(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// The client says a line.
    pub(crate) async fn say(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if line.len() < 1 << 20 {
            self.checker.client_said(line);
        }
        let client = self.client.as_mut().unwrap();
        client.write_all(line.as_bytes()).await.unwrap();
        client.write_all(b"\n").await.unwrap();
        settle().await;
    }

    /// The client says nothing more; it still reads.
    pub(crate) async fn close(&mut self) {
        self.client.as_mut().unwrap().shutdown().await.unwrap();
        settle().await;
    }

    /// The client is gone.
    pub(crate) async fn leave(&mut self) {
        self.client = None;
        settle().await;
    }

    /// The proxy has ended.
    pub(crate) async fn has_ended(&self) -> bool {
        settle().await;
        self.task.is_finished()
    }

    /// The lines that the client has been told since it was asked last.
    #[track_caller]
    pub(crate) fn told(&mut self) -> BoxFuture<'_, Vec<String>> {
        let caller = std::panic::Location::caller();
        async move {
            self.read().await;
            let end = self.unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let rest = self.unread.split_off(end);
            assert!(rest.is_empty() || end > 0 || rest.len() > 1 << 20, "half a line: {caller}");
            let text = String::from_utf8(std::mem::replace(&mut self.unread, rest)).unwrap();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for line in lines.iter().filter(|line| line.len() < 1 << 20) {
                self.checker.client_told(line);
            }
            lines
        }
        .boxed()
    }

    async fn read(&mut self) {
        settle().await;
        let Some(client) = &mut self.client else { return };
        let mut buffer = vec![0; 1 << 16];
        while let Some(read) = client.read(&mut buffer).now_or_never() {
            let read = read.unwrap();
            if read == 0 {
                break;
            }
            self.unread.extend_from_slice(&buffer[..read]);
            settle().await;
        }
    }

    /// The only line that the client has been told.
    #[track_caller]
    pub(crate) fn line(&mut self) -> BoxFuture<'_, String> {
        let caller = std::panic::Location::caller();
        let told = self.told();
        async move {
            let lines = told.await;
            assert_eq!(lines.len(), 1, "{lines:?} at {caller}");
            lines.into_iter().next().unwrap()
        }
        .boxed()
    }

    /// The next request that has reached the server.
    #[track_caller]
    pub(crate) fn asked(&mut self) -> BoxFuture<'_, Asked> {
        let caller = std::panic::Location::caller();
        async move {
            settle().await;
            self.asked.try_recv().unwrap_or_else(|_| panic!("the server was not asked: {caller}"))
        }
        .boxed()
    }

    /// A request that has reached the server, if one has.
    pub(crate) async fn try_asked(&mut self) -> Option<Asked> {
        settle().await;
        self.asked.try_recv().ok()
    }

    /// Nothing more has reached the server.
    #[track_caller]
    pub(crate) fn not_asked(&mut self) -> BoxFuture<'_, ()> {
        let caller = std::panic::Location::caller();
        async move {
            settle().await;
            if let Ok(asked) = self.asked.try_recv() {
                panic!("the server was asked {} {} at {caller}", asked.what(), asked.text());
            }
        }
        .boxed()
    }

    /// Begins a session in this revision, without a GET stream.
    pub(crate) async fn session(&mut self, id: Option<&str>, revision: &str) {
        self.begin(id, revision).await.answer("405 Method Not Allowed", &[], "");
        settle().await;
    }

    /// The same; the GET is left open.
    pub(crate) async fn begin(&mut self, id: Option<&str>, revision: &str) -> Asked {
        self.say(initialize(revision)).await;
        let header = id.map(|id| format!("Mcp-Session-Id: {id}"));
        let headers: Vec<&str> = header.iter().map(String::as_str).collect();
        self.asked().await.json(&headers, &agreement_to("0", revision));
        assert_eq!(self.line().await, agreement_to("0", revision));
        self.say(INITIALIZED).await;
        let ready = self.asked().await;
        assert_eq!(ready.text(), INITIALIZED);
        ready.accept();
        let get = self.asked().await;
        assert_eq!(get.what(), "GET /base/mcp");
        get
    }
}

pub(crate) fn initialize(revision: &str) -> String {
    initialize_with(0, r#"{"roots":{}}"#, revision)
}

/// A request of 2026-07-28 whose token is its id; `params` are members.
pub(crate) fn modern(id: &str, method: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    let client = r#""io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}"#;
    let meta = format!(r#""_meta":{{"progressToken":{id},{client},{MODERN}}}"#);
    request(id, method, format!("{{{params}{comma}{meta}}}"))
}

/// The error of the proxy for a request that the server has refused with a status.
pub(crate) fn error(id: &str, why: &str, status: Option<u16>) -> String {
    let status = status.map(|status| format!(r#","httpStatus":{status}"#)).unwrap_or_default();
    own_error(id, why, &status)
}
