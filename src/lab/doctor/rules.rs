//! The rules of `doctor`: for each fault a description, the effect, the section of the specification, and Milepost's
//! cure.

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The fault hurts some client.
    Fault,
    /// The fault may hurt some client now and then.
    Risk,
    /// Not a fault, but worth knowing.
    Note,
}

impl Weight {
    /// Returns the name, for people and machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Risk => "risk",
            Self::Note => "note",
        }
    }
}

/// The section of the specification about progress.
const FLOW: &str = "Progress, \"Progress Flow\"";
const BEHAVIOR: &str = "Progress, \"Behavior Requirements\"";
const RESPONSES: &str = "Base Protocol, \"Responses\"";
const STDIO: &str = "Transports, \"stdio\"";
const SENDING: &str = "Transports, \"Sending Messages to the Server\"";

/// The rules in the order of reports: each with its name, the fault, the section of the specification
/// or the affected clients, and Milepost's cure.
macro_rules! rules {
    ($(
        $(#[doc = $doc:literal])+
        $rule:ident: $name:literal, $what:literal, $specification:expr, $remedy:literal;
    )+) => {
        /// One possible fault of a server. The variants are in the order of reports.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[doc = $doc])+ $rule,)+
        }

        impl Rule {
            /// Every rule, in the order of reports.
            pub const ALL: [Self; [$(Self::$rule),+].len()] = [$(Self::$rule),+];

            /// Returns the name, for machines and documents.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$rule => $name,)+ }
            }

            /// Returns the description of the fault.
            pub const fn what(self) -> &'static str {
                match self { $(Self::$rule => $what,)+ }
            }

            /// Returns the section of the specification, or the affected clients if the specification leaves the point
            /// open.
            pub const fn specification(self) -> &'static str {
                match self { $(Self::$rule => $specification,)+ }
            }

            /// Returns the name of Milepost's cure (`docs/verdicts.md`), or the setting that cures the fault; empty
            /// without a cure.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$rule => $remedy,)+ }
            }
        }
    };
}

rules! {
    /// The call is not answered.
    NoAnswer: "no-answer", "the call is never answered", RESPONSES, "";
    /// The answer is replaced by an error of Milepost's.
    AnswerReplaced: "answer-replaced",
        "the call ends with an error of Milepost's in place of the server's answer", RESPONSES, "";
    /// The call is refused because of its token.
    TokenType: "token-type",
        "the call fails because of its progress token, and is answered with a token of another type or without one",
        FLOW, "`ask.token_type`";
    /// No client can begin.
    NoLifecycle: "no-lifecycle",
        "`initialize` is not known: no client can begin",
        "Lifecycle, \"Initialization\"", "upstream.lifecycle";
    /// The server ends after `server/discover`.
    DiscoverEnds: "discover-ends",
        "the server ends over `server/discover`, the first question of clients of 2026-07-28",
        RESPONSES, "on by default: it is answered in the server's place";
    /// The server never answers `server/discover`.
    DiscoverSilent: "discover-silent",
        "`server/discover`, the first question of clients of 2026-07-28, is never answered",
        RESPONSES, "on by default: it is answered in the server's place";
    /// Progress has a nonstandard method that Milepost understands by default.
    Method: "method",
        "progress comes under a method that is not of the specification: clients ignore it",
        FLOW, "repair `dialect`";
    /// Progress in a dialect that is off by default.
    MethodOff: "method-off",
        "progress comes under a method that is not of the specification, in a dialect that \
        Milepost knows and that is off by default",
        FLOW, "repair `dialect`, with `dialects`";
    /// An unknown method whose notifications look like progress.
    MethodUnknown: "method-unknown",
        "a method that is not of the specification looks like progress",
        FLOW, "repair `dialect`, with a [[dialect]] of your own";
    /// An unknown method whose notifications may be about anything.
    MethodOther: "method-other",
        "a notification of a method that is not of the specification comes during the call; if it \
        tells how far the call is, clients do not show it",
        FLOW, "repair `dialect`, with a [[dialect]] of your own";
    /// The server sends the id of the request as the token.
    TokenIsId: "token-is-id",
        "the id of the request stands where the client's token belongs", FLOW, "repair `token`";
    /// The token comes back as another type.
    TokenSpelling: "token-spelling",
        "the client's token comes back as another type (a string for a number, or the reverse)",
        FLOW, "repair `token`";
    /// A token that no request has.
    TokenInvented: "token-invented",
        "the token is one that no client gave: hosts report an unknown token, and some drop the \
        connection",
        BEHAVIOR, "repair `token`";
    /// Progress has no token.
    TokenMissing: "token-missing", "progress has no `progressToken`", FLOW, "repair `token`";
    /// Progress for a call that did not ask for progress.
    Unasked: "unasked",
        "progress is sent for a call that gave no token", BEHAVIOR, "withheld as `no-token`";
    /// Progress has no value.
    FigureMissing: "figure-missing",
        "progress has no `progress`: clients refuse the whole notification",
        FLOW, "repair `number`";
    /// The value is null.
    FigureNull: "figure-null",
        "`progress` is null: clients refuse the whole notification", FLOW, "repair `number`";
    /// The value is not a number.
    FigureType: "figure-type",
        "`progress` is no number: clients refuse the whole notification", FLOW, "repair `number`";
    /// The value repeats.
    FigureRepeats: "figure-repeats",
        "`progress` repeats; it has to increase with each notification",
        FLOW, "repair `lift`, or withheld as `duplicate`";
    /// The value falls.
    FigureFalls: "figure-falls",
        "`progress` falls; it has to increase with each notification",
        FLOW, "repair `lift` or `rebase`";
    /// The value is above its total.
    AboveTotal: "above-total",
        "`progress` is above `total`, or `total` is zero or less",
        "not forbidden; clients show more than all of it", "repair `total`";
    /// The total is not a number.
    Total: "total",
        "`total` is null or no number: the TypeScript SDK refuses the whole notification",
        FLOW, "repair `total`";
    /// The text is not a string.
    Words: "message",
        "`message` is null or no string: the TypeScript SDK refuses the whole notification",
        FLOW, "repair `message`";
    /// Text that strict JSON parsers refuse.
    Unicode: "unicode",
        "text that not every client can read stands in a message: clients refuse the message, and some end the \
        connection",
        "Transports: \"JSON-RPC messages MUST be UTF-8 encoded\"", "repair `unicode`";
    /// Several messages on one line.
    SplitLine: "split-line",
        "several messages, or a message and other text, stand on one line: clients cannot read the line",
        STDIO, "repair `split-line`";
    /// A message is not well-formed JSON-RPC.
    Envelope: "envelope",
        "a message is not well-formed JSON-RPC 2.0",
        "Base Protocol, \"Messages\"", "repair `envelope`";
    /// An array of messages.
    Array: "array",
        "several messages come in one array, which only 2025-03-26 knows",
        "Base Protocol of 2025-06-18, \"Messages\"", "repair `batch`";
    /// Progress after the answer.
    AfterAnswer: "after-answer",
        "progress comes after the answer: hosts report an unknown token, and some drop the \
        connection",
        BEHAVIOR, "withheld as `late`";
    /// Progress comes immediately before the answer.
    Glued: "glued",
        "progress comes together with the answer (within 20 ms): clients of the TypeScript SDK \
        take the answer first, lose the progress and report an unknown token",
        "allowed; measured with the TypeScript SDK",
        "on by default: `hold` and `guard`, withheld as `overtaken`";
    /// Progress on the GET stream.
    OnGet: "on-get",
        "progress of a call comes on the GET stream: clients that open none never see it",
        "Transports, \"Listening for Messages from the Server\"",
        "on by default: it is moved to its call; `own_get` for clients that open no GET stream";
    /// An event has a name that no client listens to.
    EventName: "event-name",
        "messages come as events of a name that no client listens to",
        "WHATWG HTML, \"Server-sent events\": only `message` events are heard",
        "on by default: event names are mended";
    /// The id of the answer is spelled differently.
    AnswerId: "answer-id",
        "the id of an answer is spelled differently from that of its request: some clients wait on",
        RESPONSES, "repair `response-id`";
    /// An answer that matches no request.
    AnswerOrphan: "answer-orphan",
        "there is an answer to a request that nobody made",
        RESPONSES, "withheld as `orphan-answer`";
    /// A second answer.
    AnswerSecond: "answer-second",
        "a request is answered a second time", RESPONSES, "withheld as `second-answer`";
    /// A result without an id.
    AnswerNoId: "answer-no-id",
        "there is a result without an id: some clients close the connection",
        RESPONSES, "withheld as `missing-id`";
    /// An error in answer to a notification.
    AnswersNotification: "answers-notification",
        "a notification is answered with an error without an id: some clients close the connection",
        "JSON-RPC 2.0, \"Notification\"", "withheld as `missing-id`";
    /// Members that are null.
    NullMembers: "null-members",
        "an answer has members that are null and do not belong to it, such as `method` beside `result`: strict \
        clients refuse the answer",
        RESPONSES, "repair `error-shape`";
    /// An error without code or message.
    ErrorShape: "error-shape",
        "an error has no code or no message: clients cannot read it and wait on",
        RESPONSES, "repair `error-shape`";
    /// A result that is not a tool result.
    BareResult: "bare-result",
        "the result of the call has no `content`: clients refuse it",
        "Tools, \"Calling Tools\"", "repair `bare-result`";
    /// Text on standard output.
    Noise: "noise",
        "text that is no message stands on standard output: some clients close the connection",
        STDIO, "withheld as `noise`";
    /// An event that is not a message.
    EventNoise: "event-noise",
        "events come whose data is no message, such as `data: ping`: some clients report an error for each",
        SENDING, "on by default: each becomes a comment (`noise`)";
    /// The client gets no message for a long time.
    Silence: "silence",
        "the client is told nothing for long, and cannot know whether the call goes on",
        "allowed; clients give up after 5 s to 5 min", "on by default: `heartbeat`";
    /// A response does not begin for a long time.
    FirstByte: "first-byte",
        "the response does not begin for long: clients and proxies give up on connections \
        without a byte",
        SENDING, "on by default: `upgrade_after` and `keep_alive`";
    /// A stream that stays open after its answer.
    StaysOpen: "stays-open",
        "the stream of a response stays open behind its answer",
        SENDING, "`upstream.lifecycle.end_with_answer`";
    /// Standard error shows how far the call is.
    AsideProgress: "stderr-progress",
        "standard error tells how far the call is, where no client looks",
        STDIO, "`dialects` with \"stderr\"";
    /// Standard error has lines during the call.
    AsideText: "stderr-text",
        "lines without figures come on standard error during the call; if they tell what it does, \
        clients do not show it",
        STDIO, "`dialects` with \"stderr\", if these lines are for users";
    /// Standard output has other text during the call.
    StdoutProgress: "stdout-progress",
        "text on standard output tells how far the call is, where no client looks",
        STDIO, "`dialects` with \"stdout\"";
    /// Standard output has text during the call.
    StdoutText: "stdout-text",
        "text without figures comes on standard output during the call; if it tells what the call does, clients do \
        not show it",
        STDIO, "`dialects` with \"stdout\", if these lines are for users";
    /// Texts show how far the call is, in an unknown form.
    FigureInWords: "figure-in-words",
        "the words of the call tell how far it is, in a form that is not known by default",
        FLOW, "`extract`";
    /// The server waits for a token in the arguments.
    TokenInArguments: "token-in-arguments",
        "the server reports nothing unless the token stands in the arguments of the call, where no \
        client puts it",
        FLOW, "`ask.token_in_arguments`";
    /// Messages that are pieces of one text.
    Pieces: "pieces",
        "the messages of progress are pieces of one text: clients show each piece alone",
        FLOW, "`messages` = \"append\"";
    /// Values whose total is clear but not sent.
    NoTotal: "no-total",
        "`progress` looks like a percentage, or parts of one, and has no `total`: clients cannot show \
        a bar",
        FLOW, "`scale`";
    /// Counters without a total, beside texts with a total.
    BareCounter: "bare-counter",
        "`progress` counts without a total, and the words have one (\"Step 2 of 4\"): clients show a number without \
        an end",
        FLOW, "`value_from` = \"words\"";
    /// Too many notifications.
    Flood: "flood",
        "a call has more than 50 notifications in a second",
        "Progress, \"Implementation Notes\"", "`coalesce` = \"all\"";
    /// Log messages show how far the call is.
    LogProgress: "log-progress",
        "log messages come during the call; if they tell how far it is, clients do not show it",
        "Logging, \"Log Message Notifications\"", "`dialects` with \"log\"";
}

impl Rule {
    /// Returns the weight of the finding.
    pub const fn weight(self) -> Weight {
        match self {
            Self::Glued => Weight::Risk,
            Self::StaysOpen
            | Self::MethodOther
            | Self::AsideProgress
            | Self::AsideText
            | Self::StdoutProgress
            | Self::StdoutText
            | Self::FigureInWords
            | Self::TokenInArguments
            | Self::Pieces
            | Self::NoTotal
            | Self::BareCounter
            | Self::Flood
            | Self::LogProgress => Weight::Note,
            _ => Weight::Fault,
        }
    }

    /// Whether the only effect is that clients do not show the messages: nothing breaks.
    pub const fn only_hides(self) -> bool {
        matches!(self, Self::Method | Self::MethodOff | Self::MethodUnknown | Self::OnGet)
    }

    /// Whether the finding is about many notifications together. The proxy repairs and thins notifications, so their
    /// habits may be others behind it.
    pub const fn is_about_habits(self) -> bool {
        matches!(self, Self::Pieces | Self::NoTotal | Self::BareCounter | Self::Flood)
    }

    /// Whether the cure brings the content of the messages to the client. With other rules the messages are withheld,
    /// are not progress, or reach the client without a cure.
    pub const fn is_about_content(self) -> bool {
        matches!(
            self,
            Self::Method
                | Self::MethodOff
                | Self::MethodUnknown
                | Self::MethodOther
                | Self::TokenIsId
                | Self::TokenSpelling
                | Self::TokenInvented
                | Self::TokenMissing
                | Self::FigureMissing
                | Self::FigureNull
                | Self::FigureType
                | Self::FigureRepeats
                | Self::FigureFalls
                | Self::AboveTotal
                | Self::Total
                | Self::Words
                | Self::Unicode
                | Self::SplitLine
                | Self::OnGet
                | Self::EventName
                | Self::AsideProgress
                | Self::StdoutProgress
                | Self::TokenInArguments
                | Self::Pieces
                | Self::LogProgress
        )
    }
}
