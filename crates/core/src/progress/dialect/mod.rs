//! The forms in which servers report progress. Each dialect reads one form into a [`Report`].
//!
//! A dialect makes no decisions: later steps decide whether the request is active, the value rises, and the client
//! wants progress. A new dialect is one file and its `mod` line here, one line in [`ALL`], one transcript in a file of
//! `tests/data/golden`, a row in `docs/dialects.md`, its name in `proxy.toml`.

mod codex;
mod custom;
pub(super) mod fields;
mod lsp;
mod meaning;
mod overheard;
pub(crate) mod plain_progress;
pub(super) mod report;
pub(super) mod standard;
mod tasks_progress;
mod text_chunk;
mod tool_notifications;
mod tools_progress;

use std::sync::Arc;
use std::{fmt, slice};

use crate::protocol::jsonrpc::Message;

pub use custom::{Count, CustomDialect, Final, Pointer, PointerFind};
pub use fields::Fields;
pub use report::{About, BuiltIn, Original, Report, TextSource};

/// One form in which servers report progress.
#[derive(Clone, PartialEq)]
pub enum Dialect {
    /// A built-in dialect.
    BuiltIn(&'static BuiltIn),
    /// A dialect that a route file describes.
    Custom(Arc<CustomDialect>),
    /// Text that was written for people.
    Text(TextSource),
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(_) | Self::Text(_) => f.write_str(self.name()),
            Self::Custom(dialect) => dialect.fmt(f),
        }
    }
}

impl Dialect {
    /// Returns the name in route files, flags and logs.
    pub fn name(&self) -> &str {
        match self {
            Self::BuiltIn(dialect) => dialect.name,
            Self::Custom(dialect) => &dialect.name,
            Self::Text(source) => source.name(),
        }
    }

    /// Whether the dialect reads text from `source` as progress.
    pub fn listens_to(&self, source: TextSource) -> bool {
        self.sources().contains(&source)
    }

    /// Returns the notification methods that the dialect reads.
    pub fn methods(&self) -> impl Iterator<Item = &str> {
        let (known, own) = match self {
            Self::BuiltIn(dialect) => (dialect.methods, &[][..]),
            Self::Custom(dialect) => (&[][..], &dialect.methods[..]),
            Self::Text(_) => (&[][..], &[][..]),
        };
        known.iter().copied().chain(own.iter().map(String::as_str))
    }

    /// Whether the dialect reads a notification method.
    pub fn reads(&self, method: &str) -> bool {
        self.methods().any(|known| known == method)
    }

    /// Whether the dialect claims a notification method, so that its messages are replaced by progress.
    pub fn claims(&self, method: &str) -> bool {
        !self.passes_original() && self.reads(method)
    }

    /// Whether the dialect reads a notification method whose messages are also forwarded unchanged, like log messages.
    pub fn overhears(&self, method: &str) -> bool {
        self.passes_original() && self.reads(method)
    }

    fn passes_original(&self) -> bool {
        matches!(self, Self::BuiltIn(dialect) if dialect.original == Original::Passes)
    }

    /// Returns the sources of text that the dialect reads in addition to messages.
    pub fn sources(&self) -> &[TextSource] {
        match self {
            Self::BuiltIn(_) => &[],
            Self::Custom(dialect) => &dialect.sources,
            Self::Text(source) => slice::from_ref(source),
        }
    }

    /// Returns the custom dialect for objects in text from `source`, if it has a pointer to their request.
    pub(super) fn that_names(&self, source: TextSource) -> Option<&CustomDialect> {
        match self {
            Self::Custom(own) if own.sources.contains(&source) => {
                (own.token.is_some() || own.request_id.is_some()).then_some(own)
            }
            _ => None,
        }
    }

    /// Whether servers of the dialect answer tool calls with bare results.
    pub fn has_bare_results(&self) -> bool {
        matches!(self, Self::BuiltIn(dialect) if dialect.bare_results)
    }

    /// Reads one message with the dialect's fast path, with the same result as [`Dialect::read`]. `None` only means
    /// that the fast path cannot read the message, or that the dialect has no fast path.
    pub(super) fn read_plain(&self, message: &Message) -> Option<Report> {
        match self {
            Self::BuiltIn(dialect) if dialect.name == STANDARD => standard::read_plain(message),
            _ => None,
        }
    }

    /// Whether a message of one of its methods has members that the dialect reads as a value or a text.
    pub fn finds_content(&self, message: &Message) -> bool {
        let Some(params) = message.params().as_ref().and_then(Fields::read) else { return false };
        let method = message.method().unwrap_or_default();
        let report = self.read(&method, message, &params);
        report.is_some_and(|report| report.figure.is_some() || report.message.is_some())
    }

    /// Reads one message of one of its methods; `None` if it cannot be read.
    pub(super) fn read(&self, method: &str, message: &Message, params: &Fields) -> Option<Report> {
        match self {
            Self::BuiltIn(dialect) => (dialect.read)(method, message, params),
            Self::Custom(dialect) => dialect.read(message.raw()),
            Self::Text(_) => None,
        }
    }
}

/// The name of the dialect of the specification.
pub const STANDARD: &str = standard::DIALECT.name;

/// All built-in dialects.
pub static ALL: [Dialect; 11] = [
    Dialect::BuiltIn(&standard::DIALECT),
    Dialect::BuiltIn(&tools_progress::DIALECT),
    Dialect::BuiltIn(&tool_notifications::DIALECT),
    Dialect::BuiltIn(&overheard::DIALECT),
    Dialect::BuiltIn(&text_chunk::DIALECT),
    Dialect::BuiltIn(&lsp::DIALECT),
    Dialect::BuiltIn(&tasks_progress::DIALECT),
    Dialect::BuiltIn(&codex::DIALECT),
    Dialect::Text(TextSource::Log),
    Dialect::Text(TextSource::Stderr),
    Dialect::Text(TextSource::Stdout),
];

/// Returns the dialects that are on by default.
pub fn defaults() -> impl Iterator<Item = Dialect> {
    // Text is not meant as progress, so it is read as progress only if a route enables that.
    let is_default = |dialect: &&Dialect| matches!(dialect, Dialect::BuiltIn(d) if d.default);
    ALL.iter().filter(is_default).cloned()
}

/// Returns the built-in dialect with a name.
pub fn named(name: &str) -> Option<Dialect> {
    ALL.iter().find(|dialect| dialect.name() == name).cloned()
}
