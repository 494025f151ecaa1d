//! Names and dates of the Model Context Protocol specification.

use std::borrow::Cow;

/// The revisions of the specification, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05: HTTP+SSE; progress has no `message` yet.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, and the only one with batches.
    V2025_03_26,
    /// 2025-06-18.
    V2025_06_18,
    /// 2025-11-25: tasks whose token stays valid after the first answer.
    V2025_11_25,
    /// 2026-07-28: no sessions, no `initialize`; each request names the revision.
    V2026_07_28,
}

impl Revision {
    /// Every revision with its date.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::V2024_11_05, "2024-11-05"),
        (Self::V2025_03_26, "2025-03-26"),
        (Self::V2025_06_18, "2025-06-18"),
        (Self::V2025_11_25, "2025-11-25"),
        (Self::V2026_07_28, "2026-07-28"),
    ];

    /// The date of the revision.
    pub fn date(self) -> &'static str {
        Self::ALL.iter().find(|(own, _)| *own == self).map_or("", |(_, date)| *date)
    }

    /// The revision of a date; an unknown date counts as the newest revision that is not younger.
    pub fn from_date(date: &str) -> Option<Self> {
        let is_date = date.len() == 10 && date.starts_with("20");
        // Dates in this form sort in the order of their text.
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
/// The tools of a server.
pub const TOOLS_LIST: &str = "tools/list";
/// A call of a tool.
pub const TOOLS_CALL: &str = "tools/call";
/// The server has other tools.
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
/// The method with which a client sets its log level, up to 2025-11-25.
pub const SET_LEVEL: &str = "logging/setLevel";
/// Progress as the specification has it.
pub const PROGRESS: &str = "notifications/progress";
/// The server's log messages.
pub const LOG: &str = "notifications/message";
/// Either side cancels one of its requests.
pub const CANCELLED: &str = "notifications/cancelled";
/// A task of 2025-11-25 has changed its status.
pub const TASK_STATUS: &str = "notifications/tasks/status";
/// A stream of notifications (2026-07-28); carries no progress.
pub const LISTEN: &str = "subscriptions/listen";
/// The prefix of methods of notifications about subscriptions.
pub const SUBSCRIPTIONS: &str = "notifications/subscriptions/";
/// The prefix of the methods of tasks.
pub const TASKS: &str = "tasks/";
/// The state of a task.
pub const TASKS_GET: &str = "tasks/get";
/// A client answers a server's question about a task, from 2026-07-28 on.
pub const TASKS_UPDATE: &str = "tasks/update";
/// A client gives a task up.
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// Either side checks whether the other is alive.
pub const PING: &str = "ping";
/// The result of a task; its answer ends the task.
pub const TASKS_RESULT: &str = "tasks/result";
/// All tasks.
pub const TASKS_LIST: &str = "tasks/list";

/// Returns a method name that outlives its message, without an allocation for the methods of nearly all requests.
pub fn owned_method(method: &str) -> Cow<'static, str> {
    let known =
        [TOOLS_CALL, TOOLS_LIST, INITIALIZE, LISTEN].into_iter().find(|known| *known == method);
    known.map_or_else(|| Cow::Owned(method.to_owned()), Cow::Borrowed)
}

/// `_meta` key of a request of 2026-07-28 that names its revision.
pub const META_REVISION: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of a request's `_meta` with the client's name, from 2026-07-28 on.
pub const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// The longest value, in bytes, of a member of `_meta` that is taken apart: the parts of a value need twenty times its
/// bytes. Real clients write less than a hundredth of this.
pub const META_MAX: usize = 64 << 10;
/// The member of a request's `_meta` with the client's capabilities, from 2026-07-28 on.
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The member of a result's `_meta` with the server's name, from 2026-07-28 on.
pub const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// The member of a request's `_meta` with the level of the log messages that the client wants, from 2026-07-28 on.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta` key that ties a message to a `subscriptions/listen` (2026-07-28).
pub const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// The prefix of the `_meta` keys that a request of 2026-07-28 must have.
pub const META_PREFIX: &str = "io.modelcontextprotocol/";
/// `_meta` keys with the trace of a request, in the formats of W3C (SEP-414).
pub const META_TRACE: (&str, &str) = ("traceparent", "tracestate");
/// `_meta` key of a request with the baggage of its trace, in the format of W3C (SEP-414).
pub const META_BAGGAGE: &str = "baggage";
/// `_meta` key of a request with the token of its progress.
pub const META_PROGRESS_TOKEN: &str = "progressToken";
/// `_meta` key that ties a message to a task of 2025-11-25.
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
