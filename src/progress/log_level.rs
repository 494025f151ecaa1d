//! Whether log messages have been requested from a server.

/// Whether a server is asked for log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Level {
    /// It has not said that it has any.
    #[default]
    Unknown,
    /// It has, and may be asked.
    Free,
    /// It is not asked any more.
    Settled,
    /// It is asked, and has not answered yet.
    Asked,
}
