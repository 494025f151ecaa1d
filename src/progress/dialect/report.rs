//! The output of every dialect: a report of progress, and the request that the report may be about.

use bytes::Bytes;

use crate::progress::dialect::fields::Fields;
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repairs;
use crate::protocol::jsonrpc::{Key, Message};

/// A dialect that Milepost knows.
#[derive(Debug)]
pub struct BuiltIn {
    /// The name in route files, flags and logs.
    pub name: &'static str,
    /// The notification methods that it claims.
    pub methods: &'static [&'static str],
    /// Whether the dialect is on by default.
    pub default: bool,
    /// Whether servers of this dialect answer tool calls with bare results.
    pub bare_results: bool,
    /// Reads one message of one of `methods`; `None` if it cannot be read.
    pub read: fn(method: &str, message: &Message, params: &Fields) -> Option<Report>,
}

impl PartialEq for BuiltIn {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A source of text that a server writes for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextSource {
    /// The server's standard error.
    Stderr,
    /// Lines on standard output that are no messages.
    Stdout,
    /// `notifications/message`; clients still get these messages.
    Log,
}

impl TextSource {
    /// The name in route files, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Stdout => "stdout",
            Self::Log => "log",
        }
    }
}

/// The names of the request that a report may be about, as the server wrote them.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The value in the place of the token.
    pub token: Option<Key>,
    /// The raw text of the member above.
    pub token_text: Option<Bytes>,
    /// A request id that the dialect declares as one.
    pub request: Option<Key>,
    /// The raw text of the member above.
    pub request_text: Option<Bytes>,
    /// A tool.
    pub tool: Option<String>,
    /// A task of 2025-11-25.
    pub task: Option<Key>,
}

/// The claims of a server in one message.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The request that the report is about.
    pub about: About,
    /// The value.
    pub figure: Option<ProgressValue>,
    /// The value was read in words, and the server has not declared it.
    pub in_words: bool,
    /// The message, as a JSON string.
    pub message: Option<Bytes>,
    /// Whether the message continues the message of the last report.
    pub chunk: bool,
    /// The report was read in text that was not meant as progress.
    pub from_text: bool,
    /// Whether the server marks the report as the last one.
    pub last: bool,
    /// Members that the specification does not know, each `"key":value`.
    pub members: Vec<Bytes>,
    /// The server's `_meta`.
    pub meta: Option<Bytes>,
    /// The repairs that reading the report has needed. Empty: the report follows the specification,
    /// except for the token and the value, which only the request and its meter can judge.
    pub repairs: Repairs,
}

impl Report {
    /// Replaces an older report. The older value stays if the new report has only a message.
    pub(in crate::progress) fn take_over(&mut self, old: &Self) {
        if self.figure.is_none() {
            self.figure.clone_from(&old.figure);
            self.in_words = old.in_words;
        }
    }
}
