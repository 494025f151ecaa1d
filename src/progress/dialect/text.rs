//! What a server writes for other eyes than the client's: its log, its standard error, text among its
//! messages. A line of it is words; a line of a structured log is read by its members.
//!
//! ```json
//! {"level":"info","time":1750000000000,"pid":1,"hostname":"h","component":"MCP-Stdio","tool":"memory-bank","requestId":"u","progressData":{"status":"in_progress","message":"Creating repository...","percent":40},"msg":"Progress notification (stdio no-op)"}
//! {"level":"info","ts":1750000000.1,"caller":"x/y.go:1","msg":"indexing","current":4,"total":9}
//! {"event":"indexing","timestamp":"2025-06-15T12:00:00Z","level":"info","progress":{"step":4,"total":9}}
//! ```
//! Seen in: KuzuMem-MCP on standard error (pino, first form), servers in Go (zap, second), in Python
//! (structlog, third; python-json-logger has `message`), winston and bunyan.

use bytes::Bytes;

use super::fields::number;
use super::{Dialect, Fields, Report};
use crate::json;
use crate::progress::CallPolicy;
use crate::progress::meter::Figure;
use crate::progress::pulse::one_line;
use crate::progress::verdict::Repair;
use crate::terminal;

/// Where a server writes for other eyes than the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Its standard error.
    Stderr,
    /// Text among its messages that is none.
    Stdout,
    /// `notifications/message`; clients get those all the same.
    Log,
}

impl Source {
    /// Its name in route files, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Stdout => "stdout",
            Self::Log => "log",
        }
    }
}

/// Objects that hold what is of interest in a structured line.
const INSIDE: [&str; 3] = ["progressData", "progress", "data"];

/// Members that hold the words of a structured line.
const WORDS: [&str; 4] = ["msg", "message", "event", "text"];

/// Reads a line of a source; `None` if it says nothing.
pub(in crate::progress) fn read(
    source: Source,
    words: &str,
    policy: &CallPolicy,
) -> Option<Report> {
    let trimmed = words.trim();
    if trimmed.starts_with('{') && trimmed.ends_with('}') {
        let text = Bytes::copy_from_slice(trimmed.as_bytes());
        if let Some(fields) = Fields::read(&text) {
            return read_object(source, &text, &fields, policy);
        }
    }
    read_words(trimmed, policy)
}

/// Reads the `data` of a log notification: an object, a string, or any other JSON value, which says
/// nothing.
pub(in crate::progress) fn read_json(
    source: Source,
    data: &Bytes,
    policy: &CallPolicy,
) -> Option<Report> {
    if let Some(words) = json::words(data) {
        return read(source, &words, policy);
    }
    let fields = Fields::read(data)?;
    read_object(source, data, &fields, policy)
}

fn read_object(
    source: Source,
    text: &Bytes,
    fields: &Fields,
    policy: &CallPolicy,
) -> Option<Report> {
    let own = policy.dialects.iter().filter_map(|dialect| match dialect {
        Dialect::Own(own) if own.sources.contains(&source) => own.read(text),
        _ => None,
    });
    if let Some(mut report) = own.into_iter().next() {
        let words = report.message.as_ref().and_then(|message| json::words(message));
        report.message = words.and_then(|words| said(&words, policy));
        return Some(report);
    }
    let inside: Vec<Fields> = INSIDE.iter().filter_map(|name| fields.object(name)).collect();
    let words = fields
        .object("progressData")
        .and_then(|data| data.words(&["message", "status"]))
        .or_else(|| fields.words(&WORDS))
        .or_else(|| inside.iter().find_map(|inner| inner.words(&WORDS)));
    let message = words.as_deref().and_then(|words| said(words, policy));
    let figure = figure(fields)
        .or_else(|| inside.iter().find_map(figure))
        .or_else(|| policy.overheard_figure(words.as_deref()?));
    report(message, figure)
}

fn read_words(words: &str, policy: &CallPolicy) -> Option<Report> {
    let message = said(words, policy)?;
    report(Some(message), policy.overheard_figure(words))
}

fn report(message: Option<Bytes>, figure: Option<Figure>) -> Option<Report> {
    if message.is_none() && figure.is_none() {
        return None;
    }
    let mut report = Report { message, figure, ..Report::default() };
    report.repairs.add(Repair::Dialect);
    Some(report)
}

/// The figure that the members of an object hold.
fn figure(fields: &Fields) -> Option<Figure> {
    fields.figure().or_else(|| {
        let value = fields.get("progress").and_then(number)?;
        let total = fields.get("total").and_then(number);
        Some(Figure { total: total.filter(|total| value.value <= total.value), value })
    })
}

/// Words on one short line as a JSON string, secrets masked; `None` if they are nothing but signs.
fn said(words: &str, policy: &CallPolicy) -> Option<Bytes> {
    let shown = terminal::plain(words);
    let shown = shown.trim();
    let tells = shown.chars().any(char::is_alphanumeric);
    // Masked before it is cut: half a secret looks like none.
    tells.then(|| json::quote(&one_line(&policy.masks.mask(shown), "")))
}
