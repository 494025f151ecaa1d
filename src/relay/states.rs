//! The states of a relay and of its two sides.

/// Which messages a relay forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayMode {
    /// The messages that the filter gives out.
    Filtered,
    /// Bytes, unchanged. The filter only observes.
    Raw,
}

/// Whether clients are read and written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientSide {
    /// Clients are read and written.
    Open,
    /// Clients are only written: they have sent everything, or the server no longer reads.
    Unread,
    /// Clients are neither read nor written.
    Gone,
}

/// The speed at which clients read, as the filter was last told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientPace {
    Usual,
    Slow,
}

/// The messages of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerOutput {
    /// More may come.
    Open,
    /// The server sends nothing more.
    Ended,
}

/// The end of the messages for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerInput {
    /// The server waits for more.
    Open,
    /// The server was told that nothing more comes.
    Closed,
}

/// The side that is polled first. The sides take turns, so that neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayTurn {
    Server,
    Clients,
}
