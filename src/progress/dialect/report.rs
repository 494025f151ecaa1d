//! The output of every dialect: a report of progress, and the request that the report may be about.

use bytes::Bytes;

use crate::progress::dialect::fields::Fields;
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repairs;
use crate::protocol::jsonrpc::{Key, Message};

/// A dialect that Milepost knows.
#[derive(Debug)]
pub struct BuiltIn {
    /// Its name in route files, flags and logs.
    pub name: &'static str,
    /// The notification methods that it claims.
    pub methods: &'static [&'static str],
    /// Whether it is understood unless a route says otherwise.
    pub default: bool,
    /// Its servers answer tool calls with bare results.
    pub bare_results: bool,
    /// Reads one message of one of `methods`; `None` if it cannot be read.
    pub read: fn(method: &str, message: &Message, params: &Fields) -> Option<Report>,
}

impl PartialEq for BuiltIn {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Where a server writes for other eyes than the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextSource {
    /// Its standard error.
    Stderr,
    /// Text among its messages that is none.
    Stdout,
    /// `notifications/message`; clients get those all the same.
    Log,
}

impl TextSource {
    /// Its name in route files, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Stdout => "stdout",
            Self::Log => "log",
        }
    }
}

/// Whom a report may be about, in the server's words.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// What stands where the token belongs.
    pub token: Option<Key>,
    /// The raw text of that.
    pub token_text: Option<Bytes>,
    /// A request id that the dialect declares as one.
    pub request: Option<Key>,
    /// The raw text of that.
    pub request_text: Option<Bytes>,
    /// A tool.
    pub tool: Option<String>,
    /// A task of 2025-11-25.
    pub task: Option<Key>,
}

/// What a server claims in one message.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Whom it is about.
    pub about: About,
    /// How far it is.
    pub figure: Option<ProgressValue>,
    /// Its words, as a JSON string.
    pub message: Option<Bytes>,
    /// The words continue those of the last report.
    pub chunk: bool,
    /// It was read in text that was not meant as progress.
    pub from_text: bool,
    /// The server says that this is the last one.
    pub last: bool,
    /// Members that the specification does not know, each `"key":value`.
    pub members: Vec<Bytes>,
    /// The server's `_meta`.
    pub meta: Option<Bytes>,
    /// What had to be mended to read it. Empty: it is what the specification asks for, but for the
    /// token and the figure, which only the request and its meter can judge.
    pub repairs: Repairs,
}

impl Report {
    /// It is told in the place of an older one. What was counted still holds when it has only words.
    pub(in crate::progress) fn take_over(&mut self, old: &Self) {
        if self.figure.is_none() {
            self.figure.clone_from(&old.figure);
        }
    }
}
