//! Whether log messages have been requested from a server.

/// Whether a server is asked for log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Level {
    /// The server has not announced log messages.
    #[default]
    Unknown,
    /// The server has announced log messages, and may be asked.
    Free,
    /// The server is not asked any more.
    Settled,
    /// The server was asked, and has not answered yet.
    Asked,
}
