//! The embedded legacy server: three slow tools that report progress with faults of real servers.
//!
//! `pagerank` has a method and a payload of its own, and its last notification repeats the result;
//! `index_files` invents tokens, and its values repeat and fall; `quarterly_report` is silent:
//!
//! ```json
//! {"jsonrpc":"2.0","method":"tools/progress","params":{"id":2,"content":[{"type":"text","text":"{\"percent\":5,\"message\":\"Loading the graph\"}"}],"isFinal":false}}
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"token":"ix9","progress":6,"total":null,"message":"Waiting for the lock"}}
//! ```

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::protocol::json;
use crate::protocol::jsonrpc::{Kind, METHOD_NOT_FOUND, Message};
use crate::protocol::lines::{INSPECT_MAX, LineFrame, Lines};

/// Time between two steps of a tool that talks.
const PACE: Duration = Duration::from_millis(400);

/// Lines waiting to be written by the demo server. A tool with more output waits.
const UNWRITTEN_MAX: usize = 64;

const TOOLS: &str = concat!(
    r#"[{"name":"pagerank","description":"Ranks the nodes of a graph","inputSchema":{"type":"object"}},"#,
    r#"{"name":"index_files","description":"Indexes a project","inputSchema":{"type":"object"}},"#,
    r#"{"name":"quarterly_report","description":"Says nothing for a while, then answers","inputSchema":{"type":"object"}}]"#,
);

/// The progress of `index_files`: value and message.
const INDEXING: [(&str, &str); 10] = [
    ("1", "Scanning src"),
    ("3", "Scanning src/parser"),
    ("6", "Scanning tests"),
    ("6", "Waiting for the lock"),
    ("6", "Waiting for the lock"),
    ("4", "Again: src/parser"),
    ("8", "Scanning docs"),
    ("null", "Compacting"),
    ("12", "Indexed 12 folders"),
    // This one is late: it comes behind the answer.
    ("12", "Index written"),
];

/// Serves one connection until its input ends. `silence` is how long `quarterly_report` takes.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    silence: Duration,
) -> io::Result<()> {
    let mut lines = LineReader::new(input);
    let mut calls = JoinSet::new();
    let (say, mut said): (Sender<String>, Receiver<String>) = channel(UNWRITTEN_MAX);
    loop {
        tokio::select! {
            line = lines.next() => {
                let Some(line) = line else { break };
                let Some(request) = Request::read(line) else { continue };
                calls.spawn(request.serve(say.clone(), silence));
            }
            Some(text) = said.recv() => output.write_all(text.as_bytes()).await?,
            Some(_) = calls.join_next() => {}
        }
    }
    while let Ok(text) = said.try_recv() {
        output.write_all(text.as_bytes()).await?;
    }
    output.shutdown().await
}

/// A request of the client.
struct Request {
    /// The raw id of the request.
    id: String,
    method: String,
    tool: String,
}

impl Request {
    fn read(line: Bytes) -> Option<Self> {
        let message = Message::parse(line);
        if message.kind() != Kind::Request {
            return None;
        }
        let name = json::member(&message.params().unwrap_or_default(), "name").unwrap_or_default();
        Some(Self {
            id: String::from_utf8_lossy(&message.id()?).into_owned(),
            method: message.method()?.into_owned(),
            tool: json::decode_str(&name).unwrap_or_default().into_owned(),
        })
    }

    /// Runs the requested tool and sends its messages. If sending fails, the client has left.
    async fn serve(self, say: Sender<String>, silence: Duration) {
        let after = match (&*self.method, &*self.tool) {
            ("tools/call", "pagerank") => self.pagerank(&say).await,
            ("tools/call", "index_files") => self.index_files(&say).await,
            ("tools/call", "quarterly_report") => {
                sleep(silence).await;
                self.text_result("Revenue is up 4 %")
            }
            ("initialize", _) => self.result(concat!(
                r#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"#,
                r#""serverInfo":{"name":"legacy-demo","version":"1.0.0"}}"#,
            )),
            ("tools/list", _) => self.result(&format!(r#"{{"tools":{TOOLS}}}"#)),
            ("ping", _) => self.result("{}"),
            _ => self.unknown(),
        };
        let _ = say.send(after).await;
    }

    /// Ends with a notification that repeats the result, and then the result.
    async fn pagerank(&self, say: &Sender<String>) -> String {
        let step = |percent: u32, words: &str| {
            self.tools_progress(&format!(r#"{{"percent":{percent},"message":"{words}"}}"#), false)
        };
        let _ = say.send(step(5, "Loading the graph")).await;
        for iteration in 1..=8 {
            sleep(PACE).await;
            let words = format!("Iteration {iteration} of 8");
            let _ = say.send(step(5 + 11 * iteration, &words)).await;
        }
        sleep(PACE).await;
        let result = r#"{"status":"complete","ranks":[["parser",0.31],["lexer",0.22]]}"#;
        self.tools_progress(result, true) + &self.text_result(result)
    }

    /// Ends with the result, and then one more notification.
    async fn index_files(&self, say: &Sender<String>) -> String {
        let lines = INDEXING.map(|(figure, words)| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"token":"ix9","progress":{figure},"total":null,"message":"{words}"}}}}{}"#,
                '\n'
            )
        });
        let [steps @ .., late] = lines;
        for step in steps {
            let _ = say.send(step).await;
            sleep(PACE).await;
        }
        self.text_result("12 folders") + &late
    }

    fn tools_progress(&self, payload: &str, last: bool) -> String {
        let (id, text) = (&self.id, quoted(payload));
        format!(
            r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":{id},"content":[{{"type":"text","text":{text}}}],"isFinal":{last}}}}}{}"#,
            '\n'
        )
    }

    fn text_result(&self, text: &str) -> String {
        let text = quoted(text);
        self.result(&format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#))
    }

    fn result(&self, result: &str) -> String {
        let id = &self.id;
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n")
    }

    fn unknown(&self) -> String {
        let (id, words) = (&self.id, quoted(&format!("unknown: {} {}", self.method, self.tool)));
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{METHOD_NOT_FOUND},\"message\":{words}}}}}\n"
        )
    }
}

fn quoted(words: &str) -> String {
    String::from_utf8_lossy(&json::quote(words)).into_owned()
}

/// The lines that come out of a stream.
pub(crate) struct LineReader<R> {
    from: R,
    buffer: BytesMut,
    lines: Lines,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: BytesMut::new(), lines: Lines::new(INSPECT_MAX) }
    }

    /// The next line with its ending, or `None` at the end. What is too long to be held is skipped.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            while let Some(frame) = self.lines.decode(&mut self.buffer) {
                if let LineFrame::Line(line) = frame {
                    return Some(line);
                }
            }
            if !matches!(self.from.read_buf(&mut self.buffer).await, Ok(1..)) {
                return None;
            }
        }
    }
}
