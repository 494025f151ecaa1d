//! Whom an example server talks to, over stdio or HTTP.

use std::fmt::Display;
use std::io::Write;
use std::process;

use serde_json::Value;

use super::http::Post;
use super::text::quoted;

/// Whom a server talks to.
#[derive(Clone)]
pub(crate) enum Client {
    /// The client that reads our stdout.
    Stdio,
    /// A client that has sent a POST and waits for its response.
    Http(Post),
}

/// One message of a server.
#[derive(Clone)]
pub(crate) struct Said {
    pub(crate) json: String,
    /// Whether it is the answer to a request.
    pub(crate) answers: bool,
    /// The id of its SSE event, where the tool gives it and not the library.
    pub(crate) event: Option<String>,
}

impl Said {
    /// A message that answers nothing.
    pub(crate) fn notification(json: impl Display) -> Self {
        Self { json: json.to_string(), answers: false, event: None }
    }

    /// The answer to a request.
    pub(crate) fn answer(json: impl Display) -> Self {
        Self { json: json.to_string(), answers: true, event: None }
    }
}

impl Client {
    /// Says something, in one piece.
    pub(crate) fn say(&self, all: Vec<Said>) {
        match self {
            Self::Stdio => {
                let text: String = all.into_iter().map(|said| said.json + "\n").collect();
                write(text.as_bytes());
            }
            Self::Http(post) => post.say(all),
        }
    }

    /// Says something of its own accord: over HTTP that goes to the client's GET stream, and is lost
    /// if there is none.
    pub(crate) fn say_aside(&self, said: Said) {
        match self {
            Self::Stdio => self.say(vec![said]),
            Self::Http(post) => post.say_aside(said),
        }
    }

    /// Answers a request with a result, given as JSON.
    pub(crate) fn answer(&self, id: &Value, result: impl Display) {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        self.say(vec![Said::answer(answer)]);
    }

    /// Answers a request with an error.
    pub(crate) fn refuse(&self, id: &Value, code: i32, message: &str) {
        let message = quoted(message);
        let error = format!(r#"{{"code":{code},"message":{message}}}"#);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
        self.say(vec![Said::answer(answer)]);
    }

    /// Prints text that is no message: it gets in the way of whoever reads stdout, and of nobody
    /// else.
    pub(crate) fn print(&self, text: impl AsRef<[u8]>) {
        if matches!(self, Self::Stdio) {
            write(text.as_ref());
        }
    }
}

/// Writes to stdout in one piece. If nobody reads it any more, the process has no purpose.
fn write(text: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text).and_then(|()| stdout.flush()).is_err() {
        process::exit(0);
    }
}
