//! The settings of tasks.

use std::time::Duration;

/// The tools whose calls clients may run as tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskOffer {
    /// Tools whose calls usually take at least [`Tasks::after`], according to the known durations.
    #[default]
    Slow,
    /// All tools.
    Always,
    /// No tool.
    Never,
}

/// Whether and how calls run as Milepost's own tasks if the server has no tasks (`tasks`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// Whether calls may run as tasks.
    pub enabled: bool,
    /// The tools that are offered as tasks.
    pub offer: TaskOffer,
    /// The usual duration of calls from which a tool counts as slow.
    pub after: Duration,
    /// The longest time to live of a task, from its beginning.
    pub ttl: Duration,
    /// Limit of the bytes of waiting answers, for all tasks of one connection to a server.
    pub bytes: usize,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            enabled: false,
            offer: TaskOffer::default(),
            after: Duration::from_secs(20),
            ttl: Duration::from_secs(60 * 60),
            bytes: 64 << 20,
        }
    }
}
