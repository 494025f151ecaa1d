//! Events of Milepost's own tasks.

use std::time::Duration;

/// An event of one of Milepost's own tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskNews {
    /// The kind of event.
    pub event: TaskEvent,
    /// The name of the tool.
    pub tool: String,
    /// The time since the task began.
    pub age: Duration,
}

/// The kinds of events of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskEvent {
    /// A call began to run as a task.
    Began,
    /// The server has answered.
    Completed,
    /// The server has answered with an error, or has ended, or its answer could not be kept.
    Failed,
    /// The client, or an operator, has cancelled the task.
    Cancelled,
    /// The client has got the answer for the first time.
    Fetched,
    /// The time to live passed before the client had the answer.
    Expired,
    /// A request about tasks got an error.
    Refused,
}

impl TaskEvent {
    /// All events, in the order of the enum.
    pub const ALL: [Self; 7] = [
        Self::Began,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Fetched,
        Self::Expired,
        Self::Refused,
    ];

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Fetched => "fetched",
            Self::Expired => "expired",
            Self::Refused => "refused",
        }
    }
}
