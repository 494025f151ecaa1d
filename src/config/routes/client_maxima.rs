//! What one client may have of what all clients use.

/// What each client may have; 0 is any number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientMaxima {
    /// Open connections.
    pub connections: usize,
    /// Open streams.
    pub streams: usize,
}

impl Default for ClientMaxima {
    fn default() -> Self {
        Self { connections: 256, streams: 512 }
    }
}
