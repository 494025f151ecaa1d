//! The rules: for each fault of a server its description, its effect, the section of the
//! specification, and Milepost's cure.

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Some client is hurt by it.
    Fault,
    /// Worth knowing.
    Note,
}

/// One thing that can be wrong. The order is that of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// There is no answer.
    NoAnswer,
    /// No client can begin.
    NoLifecycle,
    /// The server ends after `server/discover`.
    DiscoverEnds,
    /// The server never answers `server/discover`.
    DiscoverSilent,
    /// Progress under a method of its own that Milepost understands by default.
    Method,
    /// Progress in a dialect that is off by default.
    MethodOff,
    /// A method that nobody knows and that looks like progress.
    MethodUnknown,
    /// The id of the request stands where the token belongs.
    TokenIsId,
    /// The token is spelled in another type.
    TokenSpelling,
    /// A token that nobody gave.
    TokenInvented,
    /// No token at all.
    TokenMissing,
    /// Progress for a call that asked for none.
    Unasked,
    /// No figure.
    FigureMissing,
    /// The figure is null.
    FigureNull,
    /// The figure is no number.
    FigureType,
    /// The figure repeats.
    FigureRepeats,
    /// The figure falls.
    FigureFalls,
    /// The figure is above its total.
    AboveTotal,
    /// The total is no number.
    Total,
    /// The words are no string.
    Words,
    /// Not well-formed JSON-RPC.
    Envelope,
    /// An array of messages.
    Array,
    /// Progress behind the answer.
    AfterAnswer,
    /// Progress right before the answer.
    Glued,
    /// Progress on the GET stream.
    OnGet,
    /// An event under a name that no client listens to.
    EventName,
    /// The id of the answer is spelled differently.
    AnswerId,
    /// An answer to no request.
    AnswerOrphan,
    /// A second answer.
    AnswerSecond,
    /// A result without an id.
    AnswerNoId,
    /// An error without code or message.
    ErrorShape,
    /// A result that is no tool result.
    BareResult,
    /// Text on standard output.
    Noise,
    /// A call without a word for long.
    Silence,
    /// A response that does not begin for long.
    FirstByte,
    /// A stream that stays open behind its answer.
    StaysOpen,
    /// Standard error tells how far the call is.
    AsideProgress,
    /// Log messages tell how far the call is.
    LogProgress,
}

/// The section of the specification about progress.
const FLOW: &str = "Progress, \"Progress Flow\"";
const BEHAVIOR: &str = "Progress, \"Behavior Requirements\"";
const RESPONSES: &str = "Base Protocol, \"Responses\"";
const STDIO: &str = "Transports, \"stdio\"";
const SENDING: &str = "Transports, \"Sending Messages to the Server\"";

impl Rule {
    /// Every rule, in the order of reports.
    pub const ALL: [Self; 38] = [
        Self::NoAnswer,
        Self::NoLifecycle,
        Self::DiscoverEnds,
        Self::DiscoverSilent,
        Self::Method,
        Self::MethodOff,
        Self::MethodUnknown,
        Self::TokenIsId,
        Self::TokenSpelling,
        Self::TokenInvented,
        Self::TokenMissing,
        Self::Unasked,
        Self::FigureMissing,
        Self::FigureNull,
        Self::FigureType,
        Self::FigureRepeats,
        Self::FigureFalls,
        Self::AboveTotal,
        Self::Total,
        Self::Words,
        Self::Envelope,
        Self::Array,
        Self::AfterAnswer,
        Self::Glued,
        Self::OnGet,
        Self::EventName,
        Self::AnswerId,
        Self::AnswerOrphan,
        Self::AnswerSecond,
        Self::AnswerNoId,
        Self::ErrorShape,
        Self::BareResult,
        Self::Noise,
        Self::Silence,
        Self::FirstByte,
        Self::StaysOpen,
        Self::AsideProgress,
        Self::LogProgress,
    ];

    /// Its name for machines and documents.
    pub const fn name(self) -> &'static str {
        self.explained().0
    }

    /// The description of the fault.
    pub const fn what(self) -> &'static str {
        self.explained().1
    }

    /// The section of the specification, or the affected clients if the specification leaves the
    /// point open.
    pub const fn specification(self) -> &'static str {
        self.explained().2
    }

    /// The name of Milepost's cure (`docs/verdicts.md`), or the setting that cures the fault; empty
    /// without a cure.
    pub const fn remedy(self) -> &'static str {
        self.explained().3
    }

    /// How bad it is.
    pub const fn weight(self) -> Weight {
        match self {
            Self::StaysOpen | Self::AsideProgress | Self::LogProgress => Weight::Note,
            _ => Weight::Fault,
        }
    }

    /// Name, what is wrong, where the specification says so, and what Milepost does about it.
    #[expect(clippy::too_many_lines, reason = "a table")]
    const fn explained(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::NoAnswer => ("no-answer", "the call is never answered", RESPONSES, ""),
            Self::NoLifecycle => (
                "no-lifecycle",
                "`initialize` is not known: no client can begin",
                "Lifecycle, \"Initialization\"",
                "upstream.lifecycle",
            ),
            Self::DiscoverEnds => (
                "discover-ends",
                "the server ends over `server/discover`, the first question of clients of 2026-07-28",
                RESPONSES,
                "on by default: it is answered in the server's place",
            ),
            Self::DiscoverSilent => (
                "discover-silent",
                "`server/discover`, the first question of clients of 2026-07-28, is never answered",
                RESPONSES,
                "on by default: it is answered in the server's place",
            ),
            Self::Method => (
                "method",
                "progress comes under a method that is not of the specification: clients ignore it",
                FLOW,
                "repair `dialect`",
            ),
            Self::MethodOff => (
                "method-off",
                "progress comes under a method that is not of the specification, in a dialect that \
                 Milepost knows and that is off by default",
                FLOW,
                "repair `dialect`, with `dialects`",
            ),
            Self::MethodUnknown => (
                "method-unknown",
                "a method that is not of the specification looks like progress",
                FLOW,
                "repair `dialect`, with a [[dialect]] of your own",
            ),
            Self::TokenIsId => (
                "token-is-id",
                "the id of the request stands where the client's token belongs",
                FLOW,
                "repair `token`",
            ),
            Self::TokenSpelling => (
                "token-spelling",
                "the client's token comes back as another type (a string for a number, or the reverse)",
                FLOW,
                "repair `token`",
            ),
            Self::TokenInvented => (
                "token-invented",
                "the token is one that no client gave: hosts report an unknown token, and some drop the \
                 connection",
                BEHAVIOR,
                "repair `token`",
            ),
            Self::TokenMissing => {
                ("token-missing", "progress has no `progressToken`", FLOW, "repair `token`")
            }
            Self::Unasked => (
                "unasked",
                "progress is sent for a call that gave no token",
                BEHAVIOR,
                "withheld as `no-token`",
            ),
            Self::FigureMissing => (
                "figure-missing",
                "progress has no `progress`: clients refuse the whole notification",
                FLOW,
                "repair `number`",
            ),
            Self::FigureNull => (
                "figure-null",
                "`progress` is null: clients refuse the whole notification",
                FLOW,
                "repair `number`",
            ),
            Self::FigureType => (
                "figure-type",
                "`progress` is no number: clients refuse the whole notification",
                FLOW,
                "repair `number`",
            ),
            Self::FigureRepeats => (
                "figure-repeats",
                "`progress` repeats; it has to increase with each notification",
                FLOW,
                "repair `lift`, or withheld as `duplicate`",
            ),
            Self::FigureFalls => (
                "figure-falls",
                "`progress` falls; it has to increase with each notification",
                FLOW,
                "repair `lift` or `rebase`",
            ),
            Self::AboveTotal => (
                "above-total",
                "`progress` is above `total`",
                "not forbidden; clients show more than all of it",
                "repair `total`",
            ),
            Self::Total => (
                "total",
                "`total` is null or no number: the TypeScript SDK refuses the whole notification",
                FLOW,
                "repair `total`",
            ),
            Self::Words => (
                "message",
                "`message` is null or no string: the TypeScript SDK refuses the whole notification",
                FLOW,
                "repair `message`",
            ),
            Self::Envelope => (
                "envelope",
                "a message is not well-formed JSON-RPC 2.0",
                "Base Protocol, \"Messages\"",
                "repair `envelope`",
            ),
            Self::Array => (
                "array",
                "several messages come in one array, which only 2025-03-26 knows",
                "Base Protocol of 2025-06-18, \"Messages\"",
                "repair `batch`",
            ),
            Self::AfterAnswer => (
                "after-answer",
                "progress comes after the answer: hosts report an unknown token, and some drop the \
                 connection",
                BEHAVIOR,
                "withheld as `late`",
            ),
            Self::Glued => (
                "glued",
                "progress comes together with the answer (within 20 ms): clients of the TypeScript SDK take \
                 the answer first, lose the progress and report an unknown token",
                "allowed; measured with the TypeScript SDK",
                "on by default: `hold` and `guard`, withheld as `overtaken`",
            ),
            Self::OnGet => (
                "on-get",
                "progress of a call comes on the GET stream: clients that open none never see it",
                "Transports, \"Listening for Messages from the Server\"",
                "on by default: it is moved to its call; `own_get` for clients that open no GET stream",
            ),
            Self::EventName => (
                "event-name",
                "messages come as events of a name that no client listens to",
                "WHATWG HTML, \"Server-sent events\": only `message` events are heard",
                "on by default: event names are mended",
            ),
            Self::AnswerId => (
                "answer-id",
                "the id of an answer is spelled differently from that of its request: some clients wait on",
                RESPONSES,
                "repair `response-id`",
            ),
            Self::AnswerOrphan => (
                "answer-orphan",
                "there is an answer to a request that nobody made",
                RESPONSES,
                "withheld as `orphan-answer`",
            ),
            Self::AnswerSecond => (
                "answer-second",
                "a request is answered a second time",
                RESPONSES,
                "withheld as `second-answer`",
            ),
            Self::AnswerNoId => (
                "answer-no-id",
                "there is a result without an id: some clients close the connection",
                RESPONSES,
                "withheld as `missing-id`",
            ),
            Self::ErrorShape => (
                "error-shape",
                "an error has no code or no message: clients cannot read it and wait on",
                RESPONSES,
                "repair `error-shape`",
            ),
            Self::BareResult => (
                "bare-result",
                "the result of the call has no `content`: clients refuse it",
                "Tools, \"Calling Tools\"",
                "repair `bare-result`",
            ),
            Self::Noise => (
                "noise",
                "text that is no message stands on standard output: some clients close the connection",
                STDIO,
                "withheld as `noise`",
            ),
            Self::Silence => (
                "silence",
                "the client is told nothing for long, and cannot know whether the call goes on",
                "allowed; clients give up after 5 s to 5 min",
                "on by default: `heartbeat`",
            ),
            Self::FirstByte => (
                "first-byte",
                "the response does not begin for long: clients and proxies give up on connections \
                 without a byte",
                SENDING,
                "on by default: `upgrade_after` and `keep_alive`",
            ),
            Self::StaysOpen => (
                "stays-open",
                "the stream of a response stays open behind its answer",
                SENDING,
                "`upstream.lifecycle.end_with_answer`",
            ),
            Self::AsideProgress => (
                "stderr-progress",
                "standard error tells how far the call is, where no client looks",
                STDIO,
                "`dialects` with \"stderr\"",
            ),
            Self::LogProgress => (
                "log-progress",
                "log messages come during the call; if they tell how far it is, clients do not show it",
                "Logging, \"Log Message Notifications\"",
                "`dialects` with \"log\"",
            ),
        }
    }
}
