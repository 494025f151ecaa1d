//! The output of every dialect: a report of progress, and the request that the report may be about.

use std::borrow::Cow;

use bytes::Bytes;

use crate::progress::dialect::fields::Fields;
use crate::progress::value::{Number, NumberView, ProgressValue, ProgressView};
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Message};

/// Limit of the message text of a rewritten notification, in bytes of JSON. Longer text is cut. The limit has room for
/// the text chunks of a whole minute, but not for a flood.
pub const MESSAGE_MAX: usize = 4 << 10;

/// A dialect that is built in.
#[derive(Debug)]
pub struct BuiltIn {
    /// The name in route files, flags and logs.
    pub name: &'static str,
    /// The notification methods that the dialect reads.
    pub methods: &'static [&'static str],
    /// Whether the dialect is on by default.
    pub default: bool,
    /// What happens to the messages that the dialect reads.
    pub original: Original,
    /// Whether servers of this dialect answer tool calls with bare results.
    pub bare_results: bool,
    /// Reads one message of one of `methods`; `None` if it cannot be read.
    pub read: fn(method: &str, message: &Message, params: &Fields) -> Option<Report>,
}

/// What happens to a message that a dialect reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Original {
    /// The client gets the progress in place of the message.
    Replaced,
    /// The client gets the message unchanged, and the progress in addition, because the client may be written for such
    /// messages.
    Passes,
}

impl PartialEq for BuiltIn {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A source of texts that a server writes for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextSource {
    /// The server's standard error.
    Stderr,
    /// Lines on standard output that are not messages.
    Stdout,
    /// `notifications/message`. Clients still get these messages.
    Log,
}

impl TextSource {
    /// Returns the name in route files, flags and logs.
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
    /// The value in place of the token.
    pub token: Option<Key>,
    /// The raw text of `token`.
    pub token_text: Option<Bytes>,
    /// A request id, if the dialect declares that the member is a request id.
    pub request: Option<Key>,
    /// The raw text of `request`.
    pub request_text: Option<Bytes>,
    /// The name of the tool.
    pub tool: Option<String>,
    /// The id of a task (MCP 2025-11-25).
    pub task: Option<Key>,
}

/// The progress that a server reports in one message, before any check.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The request that the report is about.
    pub about: About,
    /// The progress value, with its total.
    pub figure: Option<ProgressValue>,
    /// Whether the value was found in the message text, and not in a member of its own.
    pub in_words: bool,
    /// The message, as a JSON string.
    pub message: Option<Bytes>,
    /// Whether the message continues the message of the last report.
    pub chunk: bool,
    /// Whether the report was read from text that was not meant as progress.
    pub from_text: bool,
    /// Whether the server marks the report as its last.
    pub last: bool,
    /// Members that the specification does not know, each `"key":value`.
    pub members: Vec<Bytes>,
    /// The server's `_meta`.
    pub meta: Option<Bytes>,
    /// The repairs that were needed to read the report. If there are none, the report follows the specification, except
    /// that only the request and its meter can check the token and the value.
    pub repairs: Repairs,
}

/// The content of a report for its client, borrowed from the text of the message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReportView<'a> {
    pub(crate) figure: Option<ProgressView<'a>>,
    /// See [`Report::in_words`].
    pub(crate) in_words: bool,
    /// The message, as a JSON string.
    pub(crate) message: Option<&'a [u8]>,
    /// Whether the message is known to be UTF-8 of at most [`MESSAGE_MAX`] bytes.
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

    /// Returns the report for `view`, whose parts may be slices of `source`. The report has no unknown members.
    pub(in crate::progress) fn of_view(view: &ReportView<'_>, source: &Bytes) -> Self {
        // A slice of the read buffer is shared. Any other text belongs to another buffer and is copied.
        let kept = |part: &[u8]| match source.as_ptr_range().contains(&part.as_ptr()) {
            true => source.slice_ref(part),
            false => Bytes::copy_from_slice(part),
        };
        let number = |of: NumberView<'_>| Number { value: of.value, text: kept(of.text) };
        let figure = view.figure.map(|figure| ProgressValue {
            value: number(figure.value),
            total: figure.total.map(number),
        });
        Self {
            figure,
            in_words: view.in_words,
            message: view.message.map(kept),
            repairs: view.repairs,
            ..Self::default()
        }
    }

    /// Replaces an older report that was not sent to its client. Takes over the older value if this report has none,
    /// and the older text and total if it has none. Returns whether the report now says more than before.
    pub(in crate::progress) fn take_over(&mut self, old: &Self) -> bool {
        let mut says_more = false;
        match (&mut self.figure, &old.figure) {
            (figure @ None, Some(older)) => {
                *figure = Some(older.clone());
                self.in_words = old.in_words;
                says_more = true;
            }
            // A declared value and a value from a text may count different things.
            (Some(own), Some(older)) if own.total.is_none() && self.in_words == old.in_words => {
                own.total.clone_from(&older.total);
                if own.total.is_some() {
                    self.repairs.add(Repair::Total);
                    says_more = true;
                }
            }
            _ => {}
        }
        match (&self.message, &old.message) {
            (Some(own), Some(older)) if self.chunk && old.chunk => {
                self.message = Some(join(older, own));
                says_more = true;
            }
            (None, Some(older)) => {
                self.message = Some(older.clone());
                self.chunk = old.chunk;
                self.repairs.add(Repair::Message);
                says_more = true;
            }
            _ => {}
        }
        says_more
    }
}

/// Joins two pieces of one text into a JSON string. Of a long text only the end is kept.
pub(crate) fn join(first: &[u8], second: &[u8]) -> Bytes {
    let words = |text| json::decode_str(text).unwrap_or_default();
    let all = words(first).into_owned() + &words(second);
    let joined = json::quote(&all);
    if joined.len() <= MESSAGE_MAX {
        return joined;
    }
    // Cut to half of the limit, so that the next pieces do not each need another cut.
    let from = all.len().saturating_sub(MESSAGE_MAX / 2);
    let start = (from..all.len()).find(|&at| all.is_char_boundary(at)).unwrap_or(all.len());
    json::quote(&format!("…{}", &all[start..]))
}

/// Returns a JSON string of at most [`MESSAGE_MAX`] bytes. A longer string is cut between two characters. Bytes that
/// are not UTF-8 become U+FFFD.
pub(crate) fn message_text(text: &[u8]) -> Cow<'_, [u8]> {
    if text.len() <= MESSAGE_MAX {
        return match json::lossy(text) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(mended) => Cow::Owned(mended.into_bytes()),
        };
    }
    let words = json::decode_str(text).unwrap_or_default();
    // Escapes make JSON text longer than the decoded text, but rarely more than three times.
    let mut room = MESSAGE_MAX / 3;
    loop {
        let end = (0..=room.min(words.len())).rev().find(|&at| words.is_char_boundary(at));
        let cut = json::quote(&(words[..end.unwrap_or(0)].to_owned() + "…"));
        if cut.len() <= MESSAGE_MAX {
            return Cow::Owned(cut.into());
        }
        room /= 2;
    }
}
