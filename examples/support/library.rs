//! How the libraries behave over HTTP that legacy servers are made with: what shape their answers
//! have, how they write events, what they say to a request they do not like.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::client::Said;
use super::text::{quoted, uuid};

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENTS: &str = "text/event-stream";

/// The library with which a server speaks HTTP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// The official TypeScript SDK of spring 2025, with one session for all that come. `once`: the
    /// first client is the only one, as with the SDK's own transport.
    TypeScript { once: bool },
    /// The official Python SDK up to 1.28.
    Python,
    /// rmcp 0.12.
    Rmcp012,
    /// rmcp 1.7, which also asks clients to come back when a stream breaks.
    Rmcp17,
    /// mcp-go 0.43.
    McpGo,
    /// The code that KuzuMem-MCP had written by hand.
    KuzuMem,
    /// The same on better-sse.
    BetterSse,
    /// The plan of Plexus.
    Plan,
    /// None, and by the book. `json`: answers are plain JSON, with headers that come `early` or not
    /// before the body.
    Plain { json: bool, early: bool, sessions: bool },
    /// None, with sessions and events, and with an odd place or status for the answers of calls.
    Odd(Answers),
}
use Library::{BetterSse, KuzuMem, McpGo, Odd, Plain, Plan, Python, Rmcp012, Rmcp17, TypeScript};

/// Where a server answers a call, and with which status.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// On the stream of its POST, with 200.
    OnPost,
    /// On the session's GET stream; the POST gets 202.
    OnGet,
    /// On the stream of its POST, with 202.
    Accepted,
}

/// The answer to a POST.
pub(crate) enum Shape {
    Events,
    Json {
        early: bool,
    },
    /// Events if a notification comes before the answer, JSON if not, and no headers until then.
    Late,
}

/// Why a request gets nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Path,
    Method,
    Accept,
    ContentType,
    Body,
    NoSession,
    UnknownSession,
    SecondStream,
    SecondClient,
}

impl Library {
    /// The answer to a request for `method`.
    pub(crate) fn shape(self, method: &str, accept: &str) -> Shape {
        match self {
            TypeScript { .. } | Python | Rmcp012 | Rmcp17 | Odd(_) | Plain { json: false, .. } => {
                Shape::Events
            }
            McpGo => Shape::Late,
            KuzuMem | BetterSse if accept.contains(EVENTS) => Shape::Events,
            Plan if method == "tools/call" => Shape::Events,
            KuzuMem | BetterSse | Plan => Shape::Json { early: false },
            Plain { early, .. } => Shape::Json { early },
        }
    }

    /// The id of a new session; `None`: there are no sessions.
    pub(crate) fn session_id(self) -> Option<String> {
        match self {
            KuzuMem | BetterSse | Plan | Plain { sessions: false, .. } => None,
            Python => Some(uuid().replace('-', "")),
            McpGo => Some(format!("mcp-session-{}", uuid())),
            _ => Some(uuid()),
        }
    }

    /// Whether every answer names the session, not just that to `initialize`.
    pub(crate) fn repeats_session(self) -> bool {
        matches!(self, TypeScript { .. } | Python | Odd(_) | Plain { .. })
    }

    /// The headers of an answer, besides its type.
    pub(crate) fn headers(self, events: bool) -> Vec<(&'static str, String)> {
        let fixed: &[_] = match self {
            _ if !events => &[],
            Python => &[
                ("cache-control", "no-cache, no-transform"),
                ("connection", "keep-alive"),
                ("x-accel-buffering", "no"),
            ],
            BetterSse => &[
                ("cache-control", "no-cache"),
                ("connection", "keep-alive"),
                ("pragma", "no-cache"),
                ("x-accel-buffering", "no"),
            ],
            Rmcp012 | Rmcp17 | Plan | Odd(_) | Plain { .. } => &[("cache-control", "no-cache")],
            _ => &[("cache-control", "no-cache"), ("connection", "keep-alive")],
        };
        let mut headers: Vec<_> =
            fixed.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        match self {
            // A new one every time, which nobody ever asks for.
            Plan => headers.push(("mcp-session-id", uuid())),
            KuzuMem | BetterSse => headers.push(("x-request-id", uuid())),
            _ => {}
        }
        headers
    }

    /// Whether it serves MCP whatever the path.
    pub(crate) fn ignores_path(self) -> bool {
        matches!(self, TypeScript { .. })
    }

    /// Whether clients have to accept both JSON and events.
    pub(crate) fn checks_accept(self) -> bool {
        matches!(self, TypeScript { .. } | Python | Rmcp012 | Rmcp17)
    }

    /// Whether there are GET streams.
    pub(crate) fn listens(self) -> bool {
        match self {
            KuzuMem | BetterSse | Plan => false,
            Plain { json, sessions, .. } => sessions && !json,
            _ => true,
        }
    }

    /// Where a call is answered, and with which status.
    pub(crate) fn answers(self, method: &str) -> Answers {
        match self {
            Odd(answers) if method == "tools/call" => answers,
            _ => Answers::OnPost,
        }
    }

    /// Whether a second GET stream takes the place of the first.
    pub(crate) fn replaces_stream(self) -> bool {
        matches!(self, Rmcp012 | Rmcp17)
    }

    /// How many messages of an array it deals with.
    pub(crate) fn batch(self) -> usize {
        match self {
            TypeScript { .. } | BetterSse => usize::MAX,
            // The server takes the end of the request's body for the client's leaving, and stops.
            KuzuMem => 1,
            _ => 0,
        }
    }

    /// Whether it makes calls of one array one after the other.
    pub(crate) fn queues(self) -> bool {
        self == BetterSse
    }

    /// Whether a notification gets an answer as well.
    pub(crate) fn answers_all(self) -> bool {
        matches!(self, KuzuMem | BetterSse)
    }

    /// Whether the stream of a call ends with the answer.
    pub(crate) fn hangs_up(self, method: &str) -> bool {
        self != KuzuMem || method != "tools/call"
    }

    /// The status of an answer to DELETE.
    pub(crate) fn deleted(self) -> u16 {
        if matches!(self, Rmcp012 | Rmcp17) { 202 } else { 200 }
    }

    /// Status, type and body of an answer to a request it does not like.
    pub(crate) fn refuse(self, refusal: Refusal) -> (u16, &'static str, String) {
        use Refusal as No;
        let (status, words) = match (refusal, self) {
            (No::Path, _) => (404, "Not Found"),
            (No::Method, KuzuMem | BetterSse) => (404, "Cannot do that to /mcp"),
            (No::Method, _) => (405, "Method Not Allowed"),
            (No::Accept, _) => (
                406,
                "Not Acceptable: Client must accept both application/json and text/event-stream",
            ),
            (No::ContentType, McpGo) => (400, "Invalid content type: must be 'application/json'"),
            (No::ContentType, _) => {
                (415, "Unsupported Media Type: Content-Type must be application/json")
            }
            (No::Body, Rmcp012 | Rmcp17) => (415, "fail to deserialize request body"),
            (No::Body, _) => (400, "Parse error"),
            (No::NoSession, Rmcp012 | Rmcp17) => {
                (422, "Unexpected message, expect initialize request")
            }
            (No::NoSession | No::UnknownSession, McpGo) => (400, "Invalid session ID"),
            (No::NoSession, _) => (400, "Bad Request: Mcp-Session-Id header is required"),
            (No::UnknownSession, Rmcp012) => (401, "Unauthorized: Session not found"),
            (No::UnknownSession, Rmcp17) => (404, "Not Found: Session not found"),
            (No::UnknownSession, _) => (404, "Session not found"),
            (No::SecondStream, McpGo) => (400, "Session registration failed"),
            (No::SecondStream, _) => (409, "Conflict: Only one SSE stream is allowed per session"),
            (No::SecondClient, _) => (400, "Invalid Request: Server already initialized"),
        };
        let error = |id| {
            let words = quoted(words);
            format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32600,"message":{words}}},"id":{id}}}"#)
        };
        match self {
            TypeScript { .. } | Odd(_) | Plain { .. } => (status, JSON, error("null")),
            Python => (status, JSON, error(r#""server-error""#)),
            _ => (status, "text/plain; charset=utf-8", words.to_owned()),
        }
    }
}

/// The numbers of the events of a stream, where they have some.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The answer to `initialize`.
    Opening,
    /// The answer to a later request, the n-th of its session.
    Request(u64),
    /// The purpose of a client's GET.
    Session,
}

/// Writes the events of one stream.
pub(crate) struct Events {
    pub(crate) library: Library,
    pub(crate) stream: Stream,
    /// How many there have been.
    pub(crate) count: Arc<AtomicU64>,
}

impl Events {
    /// The text before the first message.
    pub(crate) fn preface(&self) -> Option<String> {
        match self.library {
            BetterSse => Some("retry:2000\n\n".to_owned()),
            Rmcp17 => {
                let id = match self.stream {
                    Stream::Request(_) => self.id()?,
                    _ => "0".to_owned(),
                };
                Some(format!("data: \nid: {id}\nretry: 3000\n\n"))
            }
            _ => None,
        }
    }

    /// The form of a message.
    pub(crate) fn write(&self, said: &Said) -> String {
        let Said { json, answers, event } = said;
        match self.library {
            Python => format!("event: message\r\ndata: {json}\r\n\r\n"),
            Rmcp012 | Rmcp17 => match self.id() {
                Some(id) => format!("data: {json}\nid: {id}\n\n"),
                None => format!("data: {json}\n\n"),
            },
            KuzuMem => format!("event: {}\ndata: {json}\n\n", kuzumem_name(*answers)),
            BetterSse => {
                let (name, id) = (kuzumem_name(*answers), uuid());
                format!("event:{name}\nid:{id}\ndata:{json}\n\n")
            }
            Plan => {
                let id = event.as_deref().unwrap_or("final");
                format!("event: message\nid: {id}\ndata: {json}\n\n")
            }
            _ => format!("event: message\ndata: {json}\n\n"),
        }
    }

    /// The text that is written after a silence, and its length.
    pub(crate) fn keep_alive(&self) -> Option<(Duration, String)> {
        let (every, comment) = match self.library {
            Python => {
                let now = humantime::format_rfc3339_micros(SystemTime::now());
                (15, format!(": ping - {now}\r\n\r\n"))
            }
            Rmcp012 | Rmcp17 => (15, ":\n\n".to_owned()),
            BetterSse => (10, ":\n\n".to_owned()),
            _ => return None,
        };
        Some((Duration::from_secs(every), comment))
    }

    /// rmcp's number of the next event.
    fn id(&self) -> Option<String> {
        let count = || self.count.fetch_add(1, Ordering::Relaxed);
        match self.stream {
            Stream::Opening => None,
            Stream::Request(number) => Some(format!("{}/{number}", count())),
            Stream::Session => Some(count().to_string()),
        }
    }
}

fn kuzumem_name(answers: bool) -> &'static str {
    if answers { "mcpResponse" } else { "mcpNotification" }
}
