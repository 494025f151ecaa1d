//! The settings of late answers.

use std::time::Duration;

/// Whether and how the work of a call continues after its client's timer expired (`late`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// Whether the work continues after the client's timer expired.
    pub enabled: bool,
    /// The longest time that the work goes on while no client waits for it.
    pub keep: Duration,
    /// The longest time that an answer waits for its client.
    pub finished: Duration,
    /// Limit of the bytes of waiting answers, for all calls to one server.
    pub bytes: usize,
    /// Members of the arguments that may differ between two calls for the same work, as JSON Pointers (RFC 6901).
    pub ignore: Vec<String>,
    /// The age from which an open call may be repeated without a cancellation: the same call then counts as its
    /// repetition.
    pub repeated_after: RepeatedAfter,
    /// Whether a call is answered with a text for the model before its client gives the call up.
    pub tell: bool,
    /// The age of a call at which `tell` answers.
    pub before: Duration,
    /// Whether the work of tools with `destructiveHint` continues too.
    pub destructive: bool,
}

/// The age from which an open call may be repeated without a cancellation (`late.repeated_after`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatedAfter {
    /// No age: only a call that its client has cancelled can be repeated.
    Off,
    /// The age at which the client gives calls up, if the client was seen to leave calls open and to repeat them. For
    /// other clients the same as `Off`.
    Auto,
    /// This age, for every client.
    Age(Duration),
}

/// The age of a call at which `tell` answers, unless the settings or a known limit of the client say otherwise.
const BEFORE: Duration = Duration::from_secs(55);

impl Late {
    /// Whether `before` is the default. Then a learned or known limit of the client takes precedence over it.
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
