//! The settings of late answers.

use std::time::Duration;

/// Whether and how the work of a call continues after its client's timer expired (`late`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// Whether it does.
    pub enabled: bool,
    /// The longest time that the work goes on while no client waits for it.
    pub keep: Duration,
    /// The longest time that an answer waits for its client.
    pub finished: Duration,
    /// Bytes of answers that wait, of all calls to one server.
    pub bytes: usize,
    /// Members of the arguments that may differ between two calls for the same work, as JSON Pointers (RFC 6901).
    pub ignore: Vec<String>,
    /// The age of an open call from which the same call counts as its repetition without a cancellation.
    pub repeated_after: RepeatedAfter,
    /// Whether a call is answered with words before its client gives the call up.
    pub tell: bool,
    /// The age of a call at which `tell` answers.
    pub before: Duration,
    /// Whether the work of tools with `destructiveHint` continues too.
    pub destructive: bool,
}

/// The age of an open call from which the same call counts as its repetition (`late.repeated_after`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatedAfter {
    /// Only a call that its client has cancelled is repeated.
    Off,
    /// The clock of a client that was seen to leave calls open and to repeat them; for other clients as `Off`.
    Auto,
    /// This age, for every client.
    Age(Duration),
}

/// The age of a call at which `tell` answers, unless the settings or the client's known limit say otherwise.
const BEFORE: Duration = Duration::from_secs(55);

impl Late {
    /// Whether `before` is the default, so that the learned clock or the known limit of the client counts.
    pub(crate) fn before_is_default(&self) -> bool {
        self.before == BEFORE
    }
}

impl Default for Late {
    fn default() -> Self {
        Self {
            enabled: false,
            keep: Duration::from_secs(30 * 60),
            finished: Duration::from_secs(2 * 60),
            bytes: 64 << 20,
            ignore: Vec::new(),
            repeated_after: RepeatedAfter::Auto,
            tell: false,
            before: BEFORE,
            destructive: false,
        }
    }
}
