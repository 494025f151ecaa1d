//! Names and dates in the Model Context Protocol specification.

use std::borrow::Cow;

/// The revisions of the specification, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05: HTTP+SSE. Progress has no `message` yet.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP. The only revision with batches.
    V2025_03_26,
    /// 2025-06-18: no batches any more.
    V2025_06_18,
    /// 2025-11-25: tasks. The token of a task stays valid after the first answer.
    V2025_11_25,
    /// 2026-07-28: no sessions and no `initialize`. Each request names the revision.
    V2026_07_28,
}

impl Revision {
    /// All revisions with their dates.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::V2024_11_05, "2024-11-05"),
        (Self::V2025_03_26, "2025-03-26"),
        (Self::V2025_06_18, "2025-06-18"),
        (Self::V2025_11_25, "2025-11-25"),
        (Self::V2026_07_28, "2026-07-28"),
    ];

    /// Returns the date of the revision.
    pub fn date(self) -> &'static str {
        Self::ALL.iter().find(|(own, _)| *own == self).map_or("", |(_, date)| *date)
    }

    /// Returns the revision with a date. An unknown date counts as the newest known revision before it.
    pub fn from_date(date: &str) -> Option<Self> {
        let is_date = date.len() == 10 && date.starts_with("20");
        // Dates in this form can be compared as texts.
        let older = Self::ALL.iter().rev().find(|(_, known)| is_date && *known <= date);
        older.map(|(revision, _)| *revision)
    }
}

/// A client's first request up to 2025-11-25.
pub const INITIALIZE: &str = "initialize";
/// The method with which a client of 2026-07-28 asks a server for its revisions.
pub const DISCOVER: &str = "server/discover";
/// The client's notification at the beginning of a session, up to 2025-11-25.
pub const INITIALIZED: &str = "notifications/initialized";
/// The method with which a client asks for the server's tools.
pub const TOOLS_LIST: &str = "tools/list";
/// The method with which a client calls a tool.
pub const TOOLS_CALL: &str = "tools/call";
/// The notification that the server's tools have changed.
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
/// The method with which a client sets its log level, up to 2025-11-25.
pub const SET_LEVEL: &str = "logging/setLevel";
/// The notification for progress in the specification.
pub const PROGRESS: &str = "notifications/progress";
/// The notification for log messages of the server.
pub const LOG: &str = "notifications/message";
/// The notification with which either side cancels one of its requests.
pub const CANCELLED: &str = "notifications/cancelled";
/// The notification that a task of 2025-11-25 has changed its status.
pub const TASK_STATUS: &str = "notifications/tasks/status";
/// The method with which a client opens a stream of notifications (2026-07-28). The stream carries no progress.
pub const LISTEN: &str = "subscriptions/listen";
/// The prefix of methods of notifications about subscriptions.
pub const SUBSCRIPTIONS: &str = "notifications/subscriptions/";
/// The prefix of the methods of tasks.
pub const TASKS: &str = "tasks/";
/// The method with which a client asks for the state of a task.
pub const TASKS_GET: &str = "tasks/get";
/// The method with which a client answers a server's question about a task, from 2026-07-28 on.
pub const TASKS_UPDATE: &str = "tasks/update";
/// The method with which a client cancels a task.
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// The method with which either side checks whether the other is alive.
pub const PING: &str = "ping";
/// The method with which a client asks for the result of a task. The answer comes when the task has ended.
pub const TASKS_RESULT: &str = "tasks/result";
/// The method with which a client asks for all tasks.
pub const TASKS_LIST: &str = "tasks/list";

/// Returns a method name that outlives its message, without an allocation for the methods of nearly all requests.
pub fn owned_method(method: &str) -> Cow<'static, str> {
    let known =
        [TOOLS_CALL, TOOLS_LIST, INITIALIZE, LISTEN].into_iter().find(|known| *known == method);
    known.map_or_else(|| Cow::Owned(method.to_owned()), Cow::Borrowed)
}

/// The member of a request's `_meta` with the protocol revision, from 2026-07-28 on.
pub const META_REVISION: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of a request's `_meta` with the client's name, from 2026-07-28 on.
pub const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// Limit of the length of a value in `_meta`, in bytes, that is parsed. Parsing needs twenty times the length. Real
/// clients write less than a hundredth of this.
pub const META_MAX: usize = 64 << 10;
/// The member of a request's `_meta` with the client's capabilities, from 2026-07-28 on.
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The member of a result's `_meta` with the server's name, from 2026-07-28 on.
pub const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// The member of a request's `_meta` with the level of the log messages that the client wants, from 2026-07-28 on.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The member of `_meta` that ties a message to a `subscriptions/listen`, from 2026-07-28 on.
pub const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// The prefix of the members of `_meta` that a request must have from 2026-07-28 on.
pub const META_PREFIX: &str = "io.modelcontextprotocol/";
/// The members of `_meta` with the trace of a request, in the W3C formats (SEP-414).
pub const META_TRACE: (&str, &str) = ("traceparent", "tracestate");
/// The member of `_meta` with the baggage of a request's trace, in the W3C format (SEP-414).
pub const META_BAGGAGE: &str = "baggage";
/// The member of a request's `_meta` with the token for its progress.
pub const META_PROGRESS_TOKEN: &str = "progressToken";
/// The member of `_meta` that ties a message to a task of 2025-11-25.
pub const META_RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_between_revisions_count_as_the_older_one() {
        assert_eq!(Revision::from_date("2025-06-18"), Some(Revision::V2025_06_18));
        assert_eq!(Revision::from_date("2026-01-01"), Some(Revision::V2025_11_25));
        assert_eq!(Revision::from_date("2031-01-01"), Some(Revision::V2026_07_28));
        assert_eq!(Revision::from_date("0.1"), None);
        assert_eq!(Revision::from_date("2024-01-01"), None);
    }
}
