//! The settings of heartbeats.

use std::time::Duration;

/// The value of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeartbeatValue {
    /// The smallest step above the last value.
    #[default]
    Lift,
    /// Seconds since the call began.
    Elapsed,
}

/// When a silent call gets heartbeats, and with which value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Whether calls get heartbeats.
    pub enabled: bool,
    /// The silence before the first heartbeat.
    pub after: Duration,
    /// The time between later heartbeats. It is doubled once the server has sent a message for the call.
    pub every: Duration,
    /// The age of a call at which its heartbeats end. The time in which its client was asked a question does not count.
    pub max: Duration,
    /// The value of a heartbeat.
    pub value: HeartbeatValue,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            enabled: true,
            after: Duration::from_secs(2),
            every: Duration::from_secs(5),
            max: Duration::from_secs(30 * 60),
            value: HeartbeatValue::Lift,
        }
    }
}
