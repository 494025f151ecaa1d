//! The output of every dialect: a report of progress, and the request that the report may be about.

use bytes::Bytes;

use crate::progress::dialect::fields::Fields;
use crate::progress::value::{Number, NumberView, ProgressValue, ProgressView};
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

/// What a report says to its client, in texts that somebody else keeps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReportView<'a> {
    pub(crate) figure: Option<ProgressView<'a>>,
    /// See [`Report::in_words`].
    pub(crate) in_words: bool,
    /// A JSON string.
    pub(crate) message: Option<&'a [u8]>,
    /// The message is known to be UTF-8 of at most [`MESSAGE_MAX`](crate::progress::MESSAGE_MAX).
    pub(crate) has_clean_words: bool,
    /// See [`Report::from_text`].
    pub(crate) from_text: bool,
    /// Members that the specification does not know, each `"key":value`.
    pub(crate) members: &'a [Bytes],
    pub(crate) meta: Option<&'a [u8]>,
    pub(crate) repairs: Repairs,
}

impl Report {
    pub(in crate::progress) fn view(&self) -> ReportView<'_> {
        ReportView {
            figure: self.figure.as_ref().map(ProgressValue::view),
            in_words: self.in_words,
            message: self.message.as_deref(),
            has_clean_words: false,
            from_text: self.from_text,
            members: &self.members,
            meta: self.meta.as_deref(),
            repairs: self.repairs,
        }
    }

    /// The report that `view` shows, whose parts may stand in `source`.
    pub(in crate::progress) fn of_view(view: &ReportView<'_>, source: &Bytes) -> Self {
        let mut report = Self::default();
        report.renew(view, source);
        report
    }

    /// The report says what `view` shows, a report without other members. The older value stays if that has only a
    /// message.
    pub(in crate::progress) fn renew(&mut self, view: &ReportView<'_>, source: &Bytes) {
        let kept = |part: &[u8]| match source.as_ptr_range().contains(&part.as_ptr()) {
            true => source.slice_ref(part),
            false => Bytes::copy_from_slice(part),
        };
        let number = |of: NumberView<'_>| Number { value: of.value, text: kept(of.text) };
        let figure = view.figure.map(|figure| ProgressValue {
            value: number(figure.value),
            total: figure.total.map(number),
        });
        let (figure, in_words) = match figure {
            Some(figure) => (Some(figure), view.in_words),
            None => (self.figure.take(), self.in_words),
        };
        let message = view.message.map(kept);
        let repairs = view.repairs;
        *self = Self { figure, in_words, message, repairs, ..Self::default() };
    }

    /// Replaces an older report. The older value stays if the new report has only a message.
    pub(in crate::progress) fn take_over(&mut self, old: &Self) {
        if self.figure.is_none() {
            self.figure.clone_from(&old.figure);
            self.in_words = old.in_words;
        }
    }
}
