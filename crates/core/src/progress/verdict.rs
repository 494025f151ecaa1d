//! Verdicts on messages, with their reasons and repairs.

/// The verdict on one server message. Each message ends in exactly one verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The client got the message unchanged.
    Forwarded,
    /// The client got the repaired message.
    Repaired(Repairs),
    /// The client did not get the message.
    Withheld(Reason),
}

impl Verdict {
    /// Returns the verdict on a message that its client gets with these repairs.
    pub(crate) const fn of(repairs: Repairs) -> Self {
        if repairs.is_empty() { Self::Forwarded } else { Self::Repaired(repairs) }
    }

    /// Returns the verdict with one more repair; a withheld message stays withheld.
    #[must_use]
    pub(crate) fn with(self, repair: Repair) -> Self {
        let mut repairs = match self {
            Self::Withheld(_) => return self,
            Self::Forwarded => Repairs::default(),
            Self::Repaired(repairs) => repairs,
        };
        repairs.add(repair);
        Self::Repaired(repairs)
    }
}

/// The reason why a message was withheld from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The request has no progress token, so its client wants no progress.
    NoToken,
    /// The request of the report has already been answered or cancelled.
    Late,
    /// The message names no request, and more than one active request is possible.
    Ambiguous,
    /// The message belongs to no active request.
    Unknown,
    /// The message claims to be progress and cannot be read.
    Unreadable,
    /// The client received the same progress less than a second ago.
    Duplicate,
    /// The value repeats or falls, and the route drops such values.
    Fell,
    /// No larger number exists for the value.
    Exhausted,
    /// A newer report replaced the report.
    Superseded,
    /// The answer arrived while the report was held back.
    Overtaken,
    /// The server had already marked an earlier notification of this call as its last.
    AfterFinal,
    /// The message claims to be progress and is longer than the inspection limit.
    TooLong,
    /// The client stream has closed.
    Gone,
    /// The message is an answer, but to no request of this client.
    OrphanAnswer,
    /// The message is a second answer to one request.
    SecondAnswer,
    /// The message is an answer to a request that the client has cancelled or that has timed out.
    CancelledAnswer,
    /// The message is a result without an id, or an error without an id that cannot belong to a request of the client.
    MissingId,
    /// The message is the answer to a request that Milepost itself has sent.
    OwnRequest,
    /// The text is not a message.
    Noise,
    /// The filter has failed for this connection, so progress can no longer be checked.
    FailedOpen,
}

impl Reason {
    /// Every reason, in the order of the enum.
    pub const ALL: [Self; 20] = [
        Self::NoToken,
        Self::Late,
        Self::Ambiguous,
        Self::Unknown,
        Self::Unreadable,
        Self::Duplicate,
        Self::Fell,
        Self::Exhausted,
        Self::Superseded,
        Self::Overtaken,
        Self::AfterFinal,
        Self::TooLong,
        Self::Gone,
        Self::OrphanAnswer,
        Self::SecondAnswer,
        Self::CancelledAnswer,
        Self::MissingId,
        Self::OwnRequest,
        Self::Noise,
        Self::FailedOpen,
    ];

    /// The name in logs, metrics and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no-token",
            Self::Late => "late",
            Self::Ambiguous => "ambiguous",
            Self::Unknown => "unknown-request",
            Self::Unreadable => "unreadable",
            Self::Duplicate => "duplicate",
            Self::Fell => "fell",
            Self::Exhausted => "exhausted",
            Self::Superseded => "superseded",
            Self::Overtaken => "overtaken",
            Self::AfterFinal => "after-final",
            Self::TooLong => "too-long",
            Self::Gone => "gone",
            Self::OrphanAnswer => "orphan-answer",
            Self::SecondAnswer => "second-answer",
            Self::CancelledAnswer => "cancelled-answer",
            Self::MissingId => "missing-id",
            Self::OwnRequest => "own-request",
            Self::Noise => "noise",
            Self::FailedOpen => "failed-open",
        }
    }
}

/// One repair of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Repair {
    /// The server reported the progress in another dialect.
    Dialect,
    /// A foreign token was replaced by the client's own token.
    Token,
    /// The number was missing or unusable, and was computed from the message or from the last value.
    Number,
    /// A value that repeated or fell was lifted.
    Lift,
    /// The value of a new phase was added to the last value.
    Rebase,
    /// A `total` was removed because it is not a number, is not above zero, or is below the value.
    Total,
    /// A message text was made readable, or added.
    Message,
    /// `jsonrpc` was missing or was not `"2.0"`, or a key was repeated (`envelope`).
    Envelope,
    /// The id was replaced by the client's own id text (`response-id`).
    ResponseId,
    /// An error got the `code` and `message` it lacked, an answer with neither result nor error became an error, or
    /// members that were null were left out (`error-shape`).
    ErrorShape,
    /// `bare-result`: a bare tool result was wrapped as content, or a result that was not an object was put into one.
    BareResult,
    /// An answer which says that `ping` is unknown became an empty result (`ping`).
    Ping,
    /// The message was an element of an array that was split or thinned.
    Batch,
    /// The event of the message had another name than `message`, or no blank line (`event-name`).
    EventName,
    /// The message informs its client about one of Milepost's own tasks.
    Task,
    /// `unicode`: invalid UTF-8 and lone surrogates became U+FFFD, or control characters in strings became escapes.
    Unicode,
    /// The message was on one line with other messages, or had text after it (`split-line`).
    SplitLine,
}

impl Repair {
    /// Every repair, in the order of the enum.
    pub const ALL: [Self; 17] = [
        Self::Dialect,
        Self::Token,
        Self::Number,
        Self::Lift,
        Self::Rebase,
        Self::Total,
        Self::Message,
        Self::Envelope,
        Self::ResponseId,
        Self::ErrorShape,
        Self::BareResult,
        Self::Ping,
        Self::Batch,
        Self::EventName,
        Self::Task,
        Self::Unicode,
        Self::SplitLine,
    ];

    /// The name in logs, metrics and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dialect => "dialect",
            Self::Token => "token",
            Self::Number => "number",
            Self::Lift => "lift",
            Self::Rebase => "rebase",
            Self::Total => "total",
            Self::Message => "message",
            Self::Envelope => "envelope",
            Self::ResponseId => "response-id",
            Self::ErrorShape => "error-shape",
            Self::BareResult => "bare-result",
            Self::Ping => "ping",
            Self::Batch => "batch",
            Self::EventName => "event-name",
            Self::Task => "task",
            Self::Unicode => "unicode",
            Self::SplitLine => "split-line",
        }
    }
}

/// A set of repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repairs {
    bits: u32,
}

impl Repairs {
    /// Adds a repair to the set.
    pub fn add(&mut self, repair: Repair) {
        self.bits |= 1 << repair as u16;
    }

    /// Adds all of `other`.
    pub fn join(&mut self, other: Self) {
        self.bits |= other.bits;
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// The repairs in the set.
    pub fn iter(self) -> impl Iterator<Item = Repair> {
        // Each step takes the lowest bit. Nearly all sets are empty, so the loop ends immediately.
        let mut left = self.bits;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            Repair::ALL.get(place).copied()
        })
    }
}

impl FromIterator<Repair> for Repairs {
    fn from_iter<I: IntoIterator<Item = Repair>>(repairs: I) -> Self {
        let mut set = Self::default();
        repairs.into_iter().for_each(|repair| set.add(repair));
        set
    }
}
