//! Events of calls that their clients gave up while the work continues.

use std::time::Duration;

use crate::progress::ids::CallId;

/// An event about the work of a call that its client gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateNews {
    /// The kind of event.
    pub event: LateEvent,
    /// The name of the tool.
    pub tool: String,
    /// The time since the work began.
    pub age: Duration,
    /// Number of calls that have asked for this work so far.
    pub attempts: u32,
    /// The open call that the event is about; `None` if no call is open.
    pub call: Option<CallId>,
    /// The age at which the client gives calls up, if that was learned.
    pub clock: Option<Duration>,
    /// Whether the connection has already had an event of this kind. One line in the log is enough.
    pub is_repeated: bool,
}

/// The kinds of events of late answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateEvent {
    /// The client gave the call up because its timer expired; the work continues.
    Kept,
    /// The client was told that the work continues.
    Told,
    /// The same call came again and waits for the same work.
    Joined,
    /// The answer came while no client waited for it.
    Finished,
    /// The same call came again and got the answer that waited.
    Fetched,
    /// The client did not return; the work was cancelled at the server, or the answer was dropped.
    Expired,
    /// The client made another call; the work was cancelled at the server, or the answer was dropped.
    MovedOn,
    /// The answer was dropped, because the limit on kept answers was reached or the server ended.
    Dropped,
    /// The client was not told that the work continues, because it has not returned after earlier notices.
    NotTold,
}

impl LateEvent {
    /// Every event, in the order of the enum.
    pub const ALL: [Self; 9] = [
        Self::Kept,
        Self::Told,
        Self::Joined,
        Self::Finished,
        Self::Fetched,
        Self::Expired,
        Self::MovedOn,
        Self::Dropped,
        Self::NotTold,
    ];

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Told => "told",
            Self::Joined => "joined",
            Self::Finished => "finished",
            Self::Fetched => "fetched",
            Self::Expired => "expired",
            Self::MovedOn => "moved-on",
            Self::Dropped => "dropped",
            Self::NotTold => "not-told",
        }
    }
}
