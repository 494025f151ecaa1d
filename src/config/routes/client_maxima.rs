//! The limits of one client for resources that all clients share.

/// The limits of each client. 0 means no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientMaxima {
    /// Limit of open connections.
    pub connections: usize,
    /// Limit of open streams.
    pub streams: usize,
    /// Limit of the sessions that Milepost keeps.
    pub sessions: usize,
    /// Limit of running children.
    pub children: usize,
    /// Limit of child starts per minute.
    pub child_starts: usize,
}

impl Default for ClientMaxima {
    fn default() -> Self {
        Self { connections: 256, streams: 512, sessions: 128, children: 32, child_starts: 60 }
    }
}
