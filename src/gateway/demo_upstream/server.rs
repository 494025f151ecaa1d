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

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use crate::gateway::mcp_server::{ReplyStream, serve_lines};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Kind, METHOD_NOT_FOUND, Message};

/// Time between two reports of a tool.
const PACE: Duration = Duration::from_millis(400);

const TOOLS: &str = concat!(
    r#"[{"name":"pagerank","description":"Ranks the nodes of a graph","inputSchema":{"type":"object"}},"#,
    r#"{"name":"index_files","description":"Indexes a project","inputSchema":{"type":"object"}},"#,
    r#"{"name":"quarterly_report","description":"Says nothing for a while, then answers","inputSchema":{"type":"object"}}]"#,
);

/// The progress of `index_files`: each value with its message.
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
    // This report is late on purpose: it comes after the answer.
    ("12", "Index written"),
];

/// Serves one connection until its input ends. `silence` is how long `quarterly_report` takes.
///
/// # Errors
/// If the output cannot be written.
pub(crate) async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    silence: Duration,
) -> io::Result<()> {
    serve_lines(input, output, |line, stream| answer(&Message::parse(line), stream, silence)).await
}

/// Returns the future that answers a message on `stream`, if the message is a request.
pub(super) fn answer(
    message: &Message,
    stream: ReplyStream,
    silence: Duration,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    Some(Request::read(message)?.answer(stream, silence))
}

/// A request of the client to the embedded server.
struct Request {
    /// The id of the request, as raw JSON.
    id: String,
    method: String,
    tool: String,
}

impl Request {
    fn read(message: &Message) -> Option<Self> {
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

    /// Runs the requested tool, and sends its messages and the answer.
    async fn answer(self, stream: ReplyStream, silence: Duration) {
        let last = match (&*self.method, &*self.tool) {
            ("tools/call", "pagerank") => self.pagerank(&stream).await,
            ("tools/call", "index_files") => self.index_files(&stream).await,
            ("tools/call", "quarterly_report") => {
                sleep(silence).await;
                vec![self.text_result("Revenue is up 4 %")]
            }
            ("initialize", _) => vec![self.result(concat!(
                r#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"#,
                r#""serverInfo":{"name":"legacy-demo","version":"1.0.0"}}"#,
            ))],
            ("tools/list", _) => vec![self.result(&format!(r#"{{"tools":{TOOLS}}}"#))],
            ("ping", _) => vec![self.result("{}")],
            _ => vec![self.unknown()],
        };
        stream.say(last).await;
    }

    /// Runs a tool whose last notification repeats the result. Returns this notification and the result.
    async fn pagerank(&self, stream: &ReplyStream) -> Vec<String> {
        let step = |percent: u32, words: &str| {
            let payload = format!(r#"{{"percent":{percent},"message":"{words}"}}"#);
            self.tools_progress(&payload)
        };
        stream.say([step(5, "Loading the graph")]).await;
        for iteration in 1..=8 {
            sleep(PACE).await;
            let words = format!("Iteration {iteration} of 8");
            stream.say([step(5 + 11 * iteration, &words)]).await;
        }
        sleep(PACE).await;
        let result = r#"{"status":"complete","ranks":[["parser",0.31],["lexer",0.22]]}"#;
        vec![self.last_tools_progress(result), self.text_result(result)]
    }

    /// Runs a tool whose last notification comes late. Returns the result and this notification.
    async fn index_files(&self, stream: &ReplyStream) -> Vec<String> {
        let lines = INDEXING.map(|(figure, words)| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"token":"ix9","progress":{figure},"total":null,"message":"{words}"}}}}"#
            )
        });
        let [steps @ .., late] = lines;
        for step in steps {
            stream.say([step]).await;
            sleep(PACE).await;
        }
        vec![self.text_result("12 folders"), late]
    }

    fn tools_progress(&self, payload: &str) -> String {
        self.tools_notification(payload, "false")
    }

    fn last_tools_progress(&self, payload: &str) -> String {
        self.tools_notification(payload, "true")
    }

    fn tools_notification(&self, payload: &str, is_final: &str) -> String {
        let (id, text) = (&self.id, quoted(payload));
        format!(
            r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":{id},"content":[{{"type":"text","text":{text}}}],"isFinal":{is_final}}}}}"#
        )
    }

    fn text_result(&self, text: &str) -> String {
        let text = quoted(text);
        self.result(&format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#))
    }

    fn result(&self, result: &str) -> String {
        let id = &self.id;
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
    }

    fn unknown(&self) -> String {
        let (id, words) = (&self.id, quoted(&format!("unknown: {} {}", self.method, self.tool)));
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{METHOD_NOT_FOUND},\"message\":{words}}}}}"
        )
    }
}

fn quoted(words: &str) -> String {
    String::from_utf8_lossy(&json::quote(words)).into_owned()
}
