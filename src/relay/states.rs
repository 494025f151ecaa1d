//! The states of a relay and of its two sides.

/// What a relay forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayMode {
    /// The messages that the filter allows.
    Filtered,
    /// All bytes, unchanged. The filter only observes.
    Raw,
}

/// Whether clients are read, and whether they are written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientSide {
    /// Clients are read and written to.
    Open,
    /// Clients are only written to: they have sent everything, or the server no longer reads.
    Unread,
    /// Clients are neither read nor written to.
    Gone,
}

/// The speed at which clients read, as the filter was last told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientPace {
    Usual,
    Slow,
}

/// Whether the server may send more messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerOutput {
    /// The server may send more.
    Open,
    /// The server sends nothing more.
    Ended,
}

/// Whether the server's input is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerInput {
    /// The server may get more messages.
    Open,
    /// The server was told that it gets nothing more.
    Closed,
}

/// The side that is polled first. The sides take turns, so that neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayTurn {
    Server,
    Clients,
}
