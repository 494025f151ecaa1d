//! An MCP client that counts and checks what it receives.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use memchr::memmem::{self, Finder};
use tokio::net::TcpSocket;

use crate::http::{Body, Wire};
use crate::upstream;

const PROGRESS: &[u8] = b"\"method\":\"notifications/progress\"";
const FIGURE: &[u8] = b"\"progress\":";
const TOKEN: &[u8] = b"\"progressToken\":";
const MESSAGE: &[u8] = b"\"message\":\"";

/// A tool call without its id and its token.
#[derive(Clone, Default)]
pub(crate) struct Ask {
    pub(crate) tool: &'static str,
    pub(crate) arguments: String,
}

impl Ask {
    pub(crate) fn new(tool: &'static str) -> Self {
        Self { tool, arguments: String::new() }
    }

    /// A call that gets `count` notifications as fast as they are read.
    pub(crate) fn flood(form: &str, count: u64, in_chunk: u64, in_write: u64) -> Self {
        let arguments = format!(
            r#""form":"{form}","count":{count},"in_chunk":{in_chunk},"in_write":{in_write}"#
        );
        Self { tool: "flood", arguments }
    }

    /// A call that gets `count` notifications that contain the time of their sending, in `rate` writes a second.
    pub(crate) fn timed(form: &str, rate: u64, in_write: u64, count: u64) -> Self {
        let arguments =
            format!(r#""form":"{form}","count":{count},"rate":{rate},"in_write":{in_write}"#);
        Self { tool: "timed", arguments }
    }
}

/// One connection.
pub(crate) struct Client {
    wire: Wire,
    head: String,
    /// The members of `_meta` before the token, in all calls.
    meta: &'static str,
}

impl Client {
    /// Connects to `address`. `buffer` is the size of the system's receive buffer.
    pub(crate) async fn connect(
        address: SocketAddr,
        path: &str,
        buffer: Option<u32>,
    ) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        let wire = Wire::new(socket.connect(address).await?)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: bench\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2025-06-18\r\n"
        );
        Ok(Self { wire, head, meta: "" })
    }

    /// Uses 2026-07-28 from now on, and calls only this tool.
    pub(crate) fn be_modern(&mut self, tool: &str) {
        self.head = self.head.replace("2025-06-18", "2026-07-28");
        self.head.push_str(&format!("Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"));
        self.meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"#;
    }

    /// Begins a session, to which all later requests belong.
    pub(crate) async fn begin_session(&mut self) -> io::Result<()> {
        let id = next_id();
        let params = r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#;
        let hello =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{params}}}"#);
        let session = self.post(&hello, "200").await?;
        let session = session.ok_or_else(|| io::Error::other("no session was given"))?;
        self.head.push_str(&format!("Mcp-Session-Id: {session}\r\n"));
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.post(initialized, "202").await?;
        Ok(())
    }

    /// Posts a message that is answered without a stream. Returns the session that the answer names.
    async fn post(&mut self, message: &str, status: &str) -> io::Result<Option<String>> {
        let mut head = self.send(message, status).await?;
        while !self.wire.body(&mut head.body, &mut Vec::new()).await? {}
        Ok(head.value("mcp-session-id").map(str::to_owned))
    }

    async fn send(&mut self, message: &str, status: &str) -> io::Result<crate::http::Head> {
        let length = message.len();
        let all = format!("{}Content-Length: {length}\r\n\r\n{message}", self.head);
        self.wire.write(all.as_bytes()).await?;
        let head = self.wire.head().await?;
        let head = head.ok_or_else(|| io::Error::other("closed without an answer"))?;
        if head.start().split(' ').nth(1) != Some(status) {
            return Err(io::Error::other(format!("{} instead of {status}", head.start())));
        }
        Ok(head)
    }

    /// Calls a tool, and reads the head of the response.
    pub(crate) async fn begin(&mut self, ask: &Ask) -> io::Result<Reply> {
        let id = next_id();
        let (tool, token) = (ask.tool, format!("\"p{id}\""));
        let head = self.send(&tool_call(id, ask, self.meta), "200").await?;
        let is_stream =
            head.value("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let answer = match tool {
            "big" | "big-sse" => upstream::big_answer(&id.to_string()),
            _ => upstream::small_answer(&id.to_string()),
        };
        let tally = Tally { timed: tool == "timed", ..Tally::default() };
        let finders = [PROGRESS, TOKEN, FIGURE].map(Finder::new);
        let (body, text) = (head.body, Vec::new());
        Ok(Reply { body, is_stream, text, searched: 0, token, answer, finders, tally })
    }

    /// Reads a part of a reply, at most `most` bytes. Returns whether the reply is complete.
    pub(crate) async fn read(&mut self, reply: &mut Reply, most: usize) -> io::Result<bool> {
        let done = self.wire.some_of(&mut reply.body, &mut reply.text, most).await?;
        if reply.is_stream {
            reply.take_events();
        } else if done {
            let text = std::mem::take(&mut reply.text);
            reply.take_answer(&text);
        }
        Ok(done)
    }

    /// Calls a tool, and reads the whole response.
    pub(crate) async fn call(&mut self, ask: &Ask) -> io::Result<Tally> {
        let mut reply = self.begin(ask).await?;
        while !self.read(&mut reply, 64 << 10).await? {}
        Ok(reply.tally)
    }
}

/// Returns a tool call with a progress token, and `meta` before the token.
pub(crate) fn tool_call(id: u64, ask: &Ask, meta: &str) -> String {
    let (tool, arguments) = (ask.tool, &ask.arguments);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{{arguments}}},"_meta":{{{meta}"progressToken":"p{id}"}}}}}}"#
    )
}

pub(crate) fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1_000_000);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// The response to one call, as far as it has been read.
pub(crate) struct Reply {
    body: Body,
    is_stream: bool,
    text: Vec<u8>,
    /// `text` has no end of an event before this position.
    searched: usize,
    token: String,
    answer: String,
    finders: [Finder<'static>; 3],
    pub(crate) tally: Tally,
}

/// What a client has received.
#[derive(Default)]
pub(crate) struct Tally {
    /// Number of notifications.
    pub(crate) events: u64,
    /// Number of useless notifications: for another call, or with a value that does not rise.
    pub(crate) bad: u64,
    /// Number of answers that are exactly what the server sent.
    pub(crate) answers: u64,
    /// The ages of notifications that contain the time of their sending.
    pub(crate) delays: Vec<Duration>,
    timed: bool,
    figure: f64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.bad += other.bad;
        self.answers += other.answers;
        self.delays.extend(other.delays);
    }
}

impl Reply {
    fn take_events(&mut self) {
        let text = std::mem::take(&mut self.text);
        let mut start = 0;
        while let Some(length) = memmem::find(&text[self.searched..], b"\n\n") {
            let end = self.searched + length;
            self.take_event(&text[start..end]);
            start = end + 2;
            self.searched = start;
        }
        self.text = text;
        self.text.drain(..start);
        self.searched = self.text.len().saturating_sub(1);
    }

    fn take_event(&mut self, event: &[u8]) {
        let Some(at) = memmem::find(event, b"data:") else { return };
        let data = event[at + 5..].trim_ascii_start();
        if data.starts_with(b"{\"result\"") {
            return self.take_answer(data);
        }
        self.tally.events += 1;
        let [progress, token, figure] = &self.finders;
        if progress.find(data).is_none() {
            self.tally.bad += u64::from(memmem::find(data, b"notifications/message").is_none());
            return;
        }
        let behind = |at: usize, name: &[u8]| &data[at + name.len()..];
        let token = token.find(data).map(|at| behind(at, TOKEN));
        let figure = figure.find(data).and_then(|at| number(behind(at, FIGURE)));
        let is_ours = token.is_some_and(|token| token.starts_with(self.token.as_bytes()));
        let rises = figure.is_some_and(|figure| figure > self.tally.figure);
        let tally = &mut self.tally;
        tally.bad += u64::from(!is_ours || !rises || tally.answers > 0);
        tally.figure = figure.unwrap_or(tally.figure);
        if tally.timed
            && let Some(at) = memmem::find(data, MESSAGE)
            && let Some(sent) = number(behind(at, MESSAGE))
        {
            let now = upstream::epoch().elapsed();
            tally.delays.push(now.saturating_sub(Duration::from_nanos(sent as u64)));
        }
    }

    fn take_answer(&mut self, text: &[u8]) {
        self.tally.answers += u64::from(text == self.answer.as_bytes());
    }
}

/// Returns the number at the beginning of `text`.
fn number(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| !b"0123456789.e-".contains(byte))?;
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}
