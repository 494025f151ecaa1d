//! The limits of one client for resources that all clients share.

/// The limits of each client; 0 is any number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientMaxima {
    /// Open connections.
    pub connections: usize,
    /// Open streams.
    pub streams: usize,
    /// Sessions that Milepost keeps.
    pub sessions: usize,
    /// Running children.
    pub children: usize,
    /// Starts of children in a minute.
    pub child_starts: usize,
}

impl Default for ClientMaxima {
    fn default() -> Self {
        Self { connections: 256, streams: 512, sessions: 128, children: 32, child_starts: 60 }
    }
}
