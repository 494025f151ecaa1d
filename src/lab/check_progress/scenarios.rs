//! The scenarios for servers, proxies and clients: for each its id, the weight of its rule in the specification, the
//! reason, and the remedy for the author.

use crate::lab::doctor::rules::Rule;

/// The kind of program that a scenario judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScenarioSubject {
    /// A server.
    Server,
    /// A proxy between a client and a server.
    Proxy,
    /// A client.
    Client,
}

impl ScenarioSubject {
    /// Returns the name, for people and machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Proxy => "proxy",
            Self::Client => "client",
        }
    }
}

/// The source of the duty that a scenario tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// The specification says MUST.
    Must,
    /// The specification says SHOULD.
    Should,
    /// The specification does not decide the point, but real clients break or lose progress.
    Survival,
}

impl Duty {
    /// Returns the name, for people and machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Survival => "survival",
        }
    }
}

/// The scenarios in the order of reports: each with its id, its duty, the required behaviour, the section of the
/// specification, the reason, and the remedy.
macro_rules! scenarios {
    ($(
        $(#[doc = $doc:literal])+
        $scenario:ident: $id:literal, $duty:ident, $title:literal, $section:literal,
        $why:literal, $mend:literal;
    )+) => {
        /// One duty of a server, a proxy or a client. The variants are in the order of reports.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Scenario {
            $($(#[doc = $doc])+ $scenario,)+
        }

        impl Scenario {
            /// Every scenario, in the order of reports.
            pub const ALL: [Self; [$(Self::$scenario),+].len()] = [$(Self::$scenario),+];

            /// Returns the id. An id never changes, and is never reused for another scenario.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$scenario => $id,)+ }
            }

            /// Returns the source of the duty.
            pub const fn duty(self) -> Duty {
                match self { $(Self::$scenario => Duty::$duty,)+ }
            }

            /// Returns the required behaviour.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$scenario => $title,)+ }
            }

            /// Returns the section of the specification, or of another standard.
            pub const fn section(self) -> &'static str {
                match self { $(Self::$scenario => $section,)+ }
            }

            /// Returns the effect of the fault.
            pub const fn why(self) -> &'static str {
                match self { $(Self::$scenario => $why,)+ }
            }

            /// Returns the change that mends the fault.
            pub const fn mend(self) -> &'static str {
                match self { $(Self::$scenario => $mend,)+ }
            }
        }
    };
}

scenarios! {
    /// A session begins.
    Begins: "server-begins", Must,
        "the first request of each revision is answered",
        "Lifecycle, \"Initialization\"; Base Protocol, \"Responses\"",
        "clients cannot begin, or wait for seconds before they fall back to an older revision",
        "answer `initialize`, and answer unknown methods with the error -32601 instead of silence or an end";
    /// Each call gets exactly one readable answer.
    Answers: "server-answers", Must,
        "each request has exactly one answer, with its id as it was given",
        "Base Protocol, \"Responses\"; Tools, \"Calling Tools\"",
        "clients wait on, refuse the answer, or close the connection",
        "echo the id with its JSON type, answer once, and give results a `content` and errors a code and a message";
    /// Messages are JSON-RPC.
    Messages: "server-messages", Must,
        "each message is one object of JSON-RPC 2.0",
        "Base Protocol, \"Messages\"",
        "clients refuse the message, and some close the connection",
        "write one JSON object for each message, with `jsonrpc` \"2.0\" and no key twice; write no arrays";
    /// Only messages are written to standard output.
    StandardOutput: "server-standard-output", Must,
        "standard output has nothing but messages",
        "Transports, \"stdio\"",
        "clients take each line for a message: some report an error for each, some close the connection",
        "write logs and banners to standard error";
    /// Progress has the method of the specification.
    Method: "server-method", Must,
        "progress comes as `notifications/progress`",
        "Progress, \"Progress Flow\"",
        "clients ignore other methods: the user sees nothing and the time-out is not reset",
        "send `notifications/progress` with `progressToken` and `progress`";
    /// Progress carries the token that the client gave.
    Token: "server-token", Must,
        "progress carries the token of its call, with the same value and JSON type",
        "Progress, \"Behavior Requirements\"",
        "clients cannot find the call; hosts report an unknown token, and some drop the connection",
        "keep `params._meta.progressToken` of the request as it came, and echo it";
    /// No progress for calls without a token.
    NoToken: "server-no-token", Must,
        "a call without a token has no progress",
        "Progress, \"Behavior Requirements\"",
        "hosts report an unknown token, and some drop the connection",
        "send no progress if the request has no `params._meta.progressToken`";
    /// The value is a number.
    Value: "server-value", Must,
        "`progress` is there, and is a number",
        "Progress, \"Progress Flow\"",
        "clients refuse the whole notification",
        "send a number; without a measure, count the notifications";
    /// The value rises.
    Rises: "server-value-rises", Must,
        "`progress` increases with each notification of a call",
        "Progress, \"Progress Flow\"",
        "bars stand still or jump back, and strict clients refuse the notification",
        "keep the last value of each token, and send only greater values";
    /// The total and the message have their types.
    Members: "server-members", Must,
        "`total` is a number and `message` a string, or they are left out",
        "Progress, \"Progress Flow\"",
        "clients of the TypeScript SDK refuse the whole notification, null included",
        "leave the member out instead of writing null";
    /// The value stays below its total.
    Total: "server-total", Survival,
        "`progress` does not exceed `total`",
        "the specification does not forbid it",
        "clients show more than 100 %",
        "raise `total` when the work grows, or leave it out";
    /// No progress after the answer.
    AfterAnswer: "server-after-answer", Must,
        "progress ends with the answer",
        "Progress, \"Behavior Requirements\"",
        "hosts report an unknown token, and some drop the connection",
        "await all notifications of a call, then answer; retire the token with the answer";
    /// Some time passes between the last progress and the answer.
    BeforeAnswer: "server-before-answer", Survival,
        "the last progress is at least 20 ms before the answer, where both share a stream",
        "the specification allows it",
        "clients of the TypeScript SDK take the answer first, lose the progress and report an unknown token",
        "leave out the last notification: the answer says that the work is done";
    /// Progress comes on the stream of its call.
    Stream: "server-stream", Should,
        "progress comes on the response stream of its call, and the stream ends with the answer",
        "Transports, \"Sending Messages to the Server\"",
        "clients without a GET stream never see the progress",
        "send notifications with the request that they belong to, and close the stream behind the answer";
    /// Events are messages.
    EventName: "server-event-name", Must,
        "messages come in events of the name `message`, or of none",
        "WHATWG HTML, \"Server-sent events\"",
        "no client listens to other names",
        "leave the `event` field out";
    /// A call is not silent for long.
    Silence: "server-silence", Survival,
        "a call with a token is never silent for long",
        "the specification allows it",
        "clients give up after 5 s to 5 min without a word",
        "send progress every few seconds while the work goes on";
    /// A call has few notifications.
    Rate: "server-rate", Should,
        "a call has fewer than 50 notifications in a second",
        "Progress, \"Implementation Notes\"",
        "clients spend their time on drawing, and answers wait behind notifications",
        "send at most some notifications in a second, always with the newest value";
    /// Progress is in the place where clients look for it.
    Place: "server-place", Survival,
        "progress is not told in logs, on standard error, or only for tokens in the arguments",
        "Progress, \"Progress Flow\"",
        "no client looks there",
        "send `notifications/progress` for the token in `params._meta`";
    /// Clients can show the progress.
    Readable: "server-readable", Survival,
        "each message is whole, and a percentage has its `total`",
        "Progress, \"Progress Flow\"",
        "clients show pieces of a sentence, or a number without a bar",
        "send whole messages, and `total` where it is known";
    /// A session begins through the proxy.
    ProxyBegins: "proxy/begins", Must,
        "a session begins through the proxy, with the tools of the server",
        "Lifecycle, \"Initialization\"",
        "nothing else can be said of a proxy through which no session begins",
        "pass `initialize`, `notifications/initialized` and `tools/list` on, and their answers back";
    /// The calls are answered.
    ProxyAnswers: "proxy/answers", Must,
        "each call has exactly one answer, that of the server",
        "Base Protocol, \"Responses\"; Tools, \"Calling Tools\"",
        "users get nothing, or the result of somebody else's call",
        "keep a table from your ids to those of the client, and pass results on as they are";
    /// The server gets a token from the proxy.
    ProxyAsks: "proxy/asks", Survival,
        "the server gets a progress token for each call that has one",
        "Progress, \"Progress Flow\"",
        "a server that gets no token may send no progress",
        "pass `params._meta` on; where you put a token of your own there, put one in";
    /// The proxy keeps the client's token.
    ProxyToken: "proxy/token", Must,
        "progress carries the token of its call, with the same value and JSON type",
        "Progress, \"Behavior Requirements\"",
        "clients cannot find the call; hosts report an unknown token, and some drop the connection",
        "translate your token back to that of the client, with its JSON type";
    /// No notification is lost.
    ProxyArrives: "proxy/arrives", Survival,
        "each notification arrives",
        "Progress, \"Progress Flow\"",
        "the user sees nothing, and the client's time-out is not reset",
        "subscribe to the notifications of the server, and send each to the client";
    /// The proxy keeps values and texts unchanged.
    ProxyValue: "proxy/value", Survival,
        "`progress`, `total` and `message` are those of the server",
        "Progress, \"Progress Flow\"",
        "bars stand still or are wrong, and texts are missing",
        "copy all members of the notification; do not round numbers";
    /// The proxy keeps the order of progress.
    ProxyOrder: "proxy/order", Must,
        "`progress` increases with each notification of a call",
        "Progress, \"Progress Flow\"",
        "bars jump back, and strict clients refuse the notification",
        "send the notifications of a session one after the other, in the order in which they came";
    /// Progress arrives without delay.
    ProxyPrompt: "proxy/prompt", Survival,
        "progress arrives when the server sends it, not together with the answer",
        "the specification allows it",
        "the user looks at nothing, and time-outs end the call",
        "write each notification at once, without a buffer";
    /// No progress follows the answer.
    ProxyAfterAnswer: "proxy/after-answer", Must,
        "progress ends with the answer",
        "Progress, \"Behavior Requirements\"",
        "hosts report an unknown token, and some drop the connection",
        "send the answer behind all notifications that came before it, on the same way";
    /// Two simultaneous calls are kept apart.
    ProxyApart: "proxy/apart", Must,
        "two calls at once have their own progress and their own answers",
        "Progress, \"Behavior Requirements\"",
        "one bar shows the progress of another call",
        "use a token for each call, and never the last one that came";
    /// A call without a token gets no progress.
    ProxyNoToken: "proxy/no-token", Must,
        "a call without a token has no progress",
        "Progress, \"Behavior Requirements\"",
        "hosts report an unknown token, and some drop the connection",
        "send progress only for tokens that the client has given";
    /// A cancellation arrives.
    ProxyCancel: "proxy/cancel", Should,
        "a cancellation reaches the server, with the id that the server knows",
        "Cancellation, \"Behavior Requirements\"",
        "the server works on for nobody",
        "pass `notifications/cancelled` on, with `requestId` translated";
    /// A ping is answered.
    ProxyPing: "proxy/ping", Must,
        "a ping of the server during a call is answered",
        "Ping, \"Behavior Requirements\"",
        "servers take the client for dead and end the session",
        "pass requests of the server to the client and the answers back, or answer pings yourself";
    /// Small steps of progress arrive.
    ProxyHeartbeat: "proxy/heartbeat", Survival,
        "small steps with the same message arrive",
        "Progress, \"Progress Flow\"",
        "servers send them so that time-outs are reset: without them long calls fail",
        "do not drop notifications that look alike, and do not round numbers";
    /// A stream that the server closes is resumed.
    ProxyPolling: "proxy/polling", Should,
        "a response that the server ends early and offers to continue goes on",
        "Transports, \"Sending Messages to the Server\"",
        "the call has no answer although the server has sent one",
        "ask for the rest of the response by GET with `Last-Event-ID`, or let the client do so";
    /// A client that lost a response gets the rest.
    ProxyResume: "proxy/resume", Should,
        "a client that loses a response with event ids gets the rest with `Last-Event-ID`",
        "Transports, \"Resumability and Redelivery\"",
        "the call has no answer although the server has sent one",
        "keep the events of open responses, and send those behind `Last-Event-ID`";
    /// A long call survives.
    ProxyLong: "proxy/long", Survival,
        "a long call is answered, with progress and in silence",
        "Lifecycle, \"Timeouts\"",
        "work that takes minutes never succeeds",
        "set no time-out of your own, or a long one that progress resets";
    /// Correct progress is shown.
    ClientCorrect: "client/correct", Survival,
        "correct progress is shown, each step once and in order",
        "Progress, \"Progress Flow\"",
        "users do not see that work goes on",
        "give `params._meta.progressToken`, and show each notification for the token";
    /// Late progress harms nothing.
    ClientLate: "client/late", Survival,
        "progress behind the answer harms nothing",
        "Progress, \"Behavior Requirements\"",
        "many servers send it; clients that end the connection lose all other calls",
        "ignore notifications for tokens that are over";
    /// Progress together with the answer is shown.
    ClientGlued: "client/glued", Survival,
        "progress that comes together with its answer is shown and harms nothing",
        "the specification allows it",
        "the last step is missing, or is reported as an unknown token",
        "handle messages in the order in which they come";
    /// Members that are null harm nothing.
    ClientNull: "client/null", Survival,
        "progress with null harms nothing",
        "Progress, \"Progress Flow\"",
        "many servers send null for what they do not know",
        "ignore members that are null, and notifications without a number";
    /// Invented tokens harm nothing.
    ClientInvented: "client/invented", Survival,
        "progress for an unknown token harms nothing",
        "Progress, \"Behavior Requirements\"",
        "many servers invent tokens; clients that end the connection lose all other calls",
        "ignore notifications for unknown tokens";
    /// Values that fall or repeat harm nothing.
    ClientFalling: "client/falling", Survival,
        "values that repeat and fall harm nothing",
        "Progress, \"Progress Flow\"",
        "bars jump back",
        "show the greatest value so far";
    /// Silence harms nothing.
    ClientSilent: "client/silent", Survival,
        "a call without progress is answered",
        "Lifecycle, \"Timeouts\"",
        "most tools report nothing",
        "let users set the time-out of a call";
    /// A flood of notifications harms nothing.
    ClientFlooded: "client/flooded", Survival,
        "two thousand notifications at once harm nothing",
        "Progress, \"Implementation Notes\"",
        "clients stand still, run out of memory, or lose the answer",
        "show the newest notification, and drop older ones";
}

impl Scenario {
    /// Returns the kind of program that the scenario judges.
    pub fn subject(self) -> ScenarioSubject {
        match self.id().split_once('/') {
            Some(("proxy", _)) => ScenarioSubject::Proxy,
            Some(("client", _)) => ScenarioSubject::Client,
            _ => ScenarioSubject::Server,
        }
    }

    /// Returns the scenarios for a kind of program, in the order of reports.
    pub fn of_subject(subject: ScenarioSubject) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |one| one.subject() == subject)
    }

    /// Returns the scenario that a finding of `doctor` belongs to.
    pub const fn of(rule: Rule) -> Self {
        match rule {
            Rule::NoLifecycle | Rule::DiscoverEnds | Rule::DiscoverSilent => Self::Begins,
            Rule::NoAnswer
            | Rule::AnswerReplaced
            | Rule::TokenType
            | Rule::AnswersNotification
            | Rule::NullMembers
            | Rule::AnswerId
            | Rule::AnswerOrphan
            | Rule::AnswerSecond
            | Rule::AnswerNoId
            | Rule::ErrorShape
            | Rule::BareResult => Self::Answers,
            Rule::Envelope | Rule::Unicode | Rule::SplitLine | Rule::Array => Self::Messages,
            Rule::Noise => Self::StandardOutput,
            Rule::Method | Rule::MethodOff | Rule::MethodUnknown | Rule::MethodOther => {
                Self::Method
            }
            Rule::TokenIsId | Rule::TokenSpelling | Rule::TokenInvented | Rule::TokenMissing => {
                Self::Token
            }
            Rule::Unasked => Self::NoToken,
            Rule::FigureMissing | Rule::FigureNull | Rule::FigureType => Self::Value,
            Rule::FigureRepeats | Rule::FigureFalls => Self::Rises,
            Rule::Total | Rule::Words => Self::Members,
            Rule::AboveTotal => Self::Total,
            Rule::AfterAnswer => Self::AfterAnswer,
            Rule::Glued => Self::BeforeAnswer,
            Rule::OnGet | Rule::StaysOpen => Self::Stream,
            Rule::EventName | Rule::EventNoise => Self::EventName,
            Rule::Silence | Rule::FirstByte => Self::Silence,
            Rule::Flood => Self::Rate,
            Rule::AsideProgress
            | Rule::AsideText
            | Rule::StdoutProgress
            | Rule::StdoutText
            | Rule::TokenInArguments
            | Rule::LogProgress => Self::Place,
            Rule::Pieces | Rule::NoTotal | Rule::BareCounter | Rule::FigureInWords => {
                Self::Readable
            }
        }
    }

    /// Returns the scenario with this id.
    pub fn find(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.id() == id)
    }
}

/// Returns the list of all scenarios as text.
pub fn list() -> String {
    let one = |scenario: Scenario| {
        let (id, duty) = (scenario.id(), scenario.duty().name());
        format!("{id:<24} {duty:<8}  {}\n", scenario.title())
    };
    Scenario::ALL.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_has_a_rule_and_an_id_of_its_own() {
        for scenario in Scenario::ALL {
            let has_rule = Rule::ALL.into_iter().any(|rule| Scenario::of(rule) == scenario);
            assert_eq!(has_rule, scenario.subject() == ScenarioSubject::Server, "{scenario:?}");
            assert_eq!(Scenario::find(scenario.id()), Some(scenario));
        }
    }
}
