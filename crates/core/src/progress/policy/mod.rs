//! The policy of a route: every rule that changes, delays or withholds messages, with its default.

pub mod ask;
mod heartbeat;
pub mod late;
pub mod masks;
mod on_fall;
pub(crate) mod policies;
pub(crate) mod request_members;
pub mod tasks;

pub use heartbeat::{Heartbeat, HeartbeatValue};
pub use on_fall::OnFall;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::progress::dialect;
use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::TextSource;
use crate::progress::durations::LearnedDurations;
use crate::progress::extract::Extract;
use crate::progress::policy::ask::{Ask, JsonObject, LogLevel};
use crate::progress::policy::late::Late;
use crate::progress::policy::masks::Masks;
use crate::progress::policy::tasks::Tasks;
use crate::protocol::mcp;

// The settings of a single feature are in the module of that feature.

/// How much the filter changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The filter only reports verdicts, and changes nothing.
    Observe,
    /// The filter also repairs and withholds messages, but adds none.
    Enforce,
    /// The filter also adds heartbeats.
    #[default]
    Full,
}

/// Whether messages on a client stream wait as their [`Pacing`] requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPacing {
    /// Messages never wait, as with Streamable HTTP.
    Immediate,
    /// Messages wait as the settings of their call require, as with stdio and HTTP+SSE.
    ByCall,
}

/// How long the messages of a call wait before they are written to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// The age of a call before its first progress. Earlier progress waits, and is dropped if the answer comes first.
    pub first_after: Duration,
    /// The time that a notification waits. It is dropped if the answer comes in this time.
    pub hold: Duration,
    /// The shortest time between the last notification of a request and its answer.
    pub guard: Duration,
}

impl Pacing {
    /// The pacing for stdio and HTTP+SSE clients. A notification waits until its call is 150 ms old, and waits 30 ms
    /// for an answer that may follow. An answer waits until 50 ms after a notification. The reason is the official
    /// TypeScript SDK: it handles notifications one microtask later than answers, so a notification that it reads
    /// together with the answer is lost and reported as an unknown token, and hosts drop the connection because of this
    /// error. Clients that are known not to need pacing are exempt (`clients/table.rs`).
    ///
    /// A shorter guard loses reports. In a test, a TypeScript client was busy for 60 ms at a time and made 600 calls,
    /// each with a report 35 ms before its answer: 69 calls lost the report with a guard of 50 ms, 364 with 20 ms.
    pub const PACED: Self = Self {
        first_after: Duration::from_millis(150),
        hold: Duration::from_millis(30),
        guard: Duration::from_millis(50),
    };

    /// No pacing, for Streamable HTTP and for clients that are known not to need pacing.
    pub const IMMEDIATE: Self =
        Self { first_after: Duration::ZERO, hold: Duration::ZERO, guard: Duration::ZERO };

    /// Whether pauses are needed between notifications and answers.
    pub(crate) fn keeps_distance(&self) -> bool {
        !self.hold.is_zero() || !self.guard.is_zero()
    }
}

/// Which notifications are thinned to one per `min_interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coalesce {
    /// Only repaired notifications.
    #[default]
    Repaired,
    /// All notifications.
    All,
}

/// What a value without a total counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Hundredths: the total is 100.
    Percent,
    /// Fractions of 1: the total is 1.
    Unit,
    /// Units of which there are this many in total.
    Of(f64),
}

/// Where the value of a report is looked for first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValueFrom {
    /// The number that the server declares.
    #[default]
    Progress,
    /// The value in the message text, if it has a total and the declared number has none.
    Words,
}

/// How the messages of one call relate to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Messages {
    /// Each message is complete in itself and replaces the one before.
    #[default]
    Replace,
    /// The messages are pieces of one text, and are joined.
    Append,
}

/// The settings that can differ from tool to tool.
#[derive(Debug, Clone, PartialEq)]
pub struct CallPolicy {
    /// How much the filter changes.
    pub mode: Mode,
    /// The dialects that are read as progress.
    pub dialects: Vec<Dialect>,
    /// How long messages wait before they are written to a client that needs pauses.
    pub pacing: Pacing,
    /// Whether clients that are known to need no pacing get none.
    pub spare_known_clients: bool,
    /// The shortest time between thinned notifications of one call.
    pub min_interval: Duration,
    /// The notifications that are thinned.
    pub coalesce: Coalesce,
    /// The repairs of answers and other messages.
    pub answers: AnswerRepairs,
    /// What the server sends as token; `None`: this is learned from its messages.
    pub token_is: Option<TokenIs>,
    /// The heartbeats of silent calls.
    pub heartbeat: Heartbeat,
    /// How values that repeat or fall are handled.
    pub on_fall: OnFall,
    /// What a value without a total counts.
    pub scale: Option<Scale>,
    /// Where the value of a report is looked for first.
    pub value_from: ValueFrom,
    /// The patterns that find values in texts.
    pub extract: Extract,
    /// The patterns of secrets that are masked in text.
    pub masks: Masks,
    /// How the messages of a call relate to one another.
    pub messages: Messages,
    /// The age at which a call gets an error and is cancelled; off by default.
    pub call_timeout: Option<Duration>,
    /// Whether heartbeats of a silent call show how much of its usual duration has passed.
    pub estimate: bool,
    /// The members that are added to requests.
    pub ask: Ask,
    /// How the work of calls continues after their clients' timers have expired.
    pub late: Late,
    /// How calls run as Milepost's own tasks.
    pub tasks: Tasks,
}

impl Default for CallPolicy {
    fn default() -> Self {
        Self {
            mode: Mode::Full,
            dialects: dialect::defaults().collect(),
            pacing: Pacing::PACED,
            spare_known_clients: true,
            min_interval: Duration::from_millis(100),
            coalesce: Coalesce::Repaired,
            answers: AnswerRepairs::default(),
            token_is: None,
            heartbeat: Heartbeat::default(),
            on_fall: OnFall::default(),
            scale: None,
            value_from: ValueFrom::default(),
            extract: Extract::default(),
            masks: Masks::default(),
            messages: Messages::default(),
            call_timeout: None,
            estimate: false,
            ask: Ask::default(),
            late: Late::default(),
            tasks: Tasks::default(),
        }
    }
}

impl CallPolicy {
    /// Whether calls are only reported, and nothing about them is changed.
    pub fn observes(&self) -> bool {
        self.mode == Mode::Observe
    }

    /// Whether text of `source` is read as progress.
    pub fn listens_to(&self, source: TextSource) -> bool {
        self.mode == Mode::Full && self.dialects.iter().any(|dialect| dialect.listens_to(source))
    }

    /// Whether the dialect `standard` is on.
    pub(crate) fn has_standard(&self) -> bool {
        self.dialects.iter().any(|dialect| dialect.name() == dialect::STANDARD)
    }
}

/// Repairs of messages that a client's SDK cannot accept or show, each with its switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerRepairs {
    /// `response-id`: an id in another spelling gets the client's own text again.
    pub response_id: bool,
    /// `error-shape`: an error without `code` or `message` gets both; members that are null are left out; an answer
    /// with neither a result nor an error becomes an error.
    pub error_shape: bool,
    /// `envelope`: a message without `"jsonrpc":"2.0"` gets this member.
    pub envelope: bool,
    /// `bare-result`: a result that is not an object becomes an object. A tool result without `content` is wrapped, if
    /// the dialect or the server is known to send such results.
    pub bare_result: bool,
    /// `ping`: an answer which says that the method `ping` is unknown becomes an empty result.
    pub ping: bool,
    /// `orphan-answer`: an answer that matches no open request of this client, or a second answer, is withheld.
    pub orphan_answer: bool,
    /// `missing-id`: a result without an id is withheld, and so is an error without an id that answers no request.
    pub missing_id: bool,
    /// `event-name`: an event with another name, which clients do not read, gets the name `message`. An event without
    /// its blank line gets the line.
    pub event_name: bool,
    /// `unicode`: invalid UTF-8 and lone surrogates become U+FFFD in every message; control characters in strings
    /// become escapes.
    pub unicode: bool,
    /// `split-line`: messages on one line are separated.
    pub split_line: bool,
    /// `noise`: an event whose data is not a message becomes a comment.
    pub noise: bool,
    /// `total`: compliant progress loses a `total` that is below its value, or not above zero.
    pub total: bool,
}

impl AnswerRepairs {
    /// The switches for leaving every answer unchanged.
    pub(crate) const NONE: Self = Self {
        response_id: false,
        error_shape: false,
        envelope: false,
        bare_result: false,
        ping: false,
        orphan_answer: false,
        missing_id: false,
        event_name: false,
        unicode: false,
        split_line: false,
        noise: false,
        total: false,
    };
}

impl Default for AnswerRepairs {
    fn default() -> Self {
        Self {
            response_id: true,
            error_shape: true,
            envelope: true,
            bare_result: true,
            ping: true,
            orphan_answer: true,
            missing_id: true,
            event_name: true,
            unicode: true,
            split_line: true,
            noise: true,
            total: true,
        }
    }
}

/// The name of a request that a server sends as the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenIs {
    /// The token, as the specification requires.
    Token,
    /// The request id.
    RequestId,
}

/// All settings of a route for its filters.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Whether tool results of this server are bare payloads, whatever its dialect.
    pub bare_results: bool,
    /// Whether a translated message is also forwarded in its original form, for clients that were written for it.
    pub keep_original: bool,
    /// Whether texts of Milepost are added to progress of 2024-11-05. There `message` is an unknown member, which
    /// clients ignore or show.
    pub words_in_2024: bool,
    /// Whether Milepost gives every request its own id and token for the server, because several clients share the
    /// server.
    pub id_mapping: bool,
    /// The learned durations of this route's tools.
    pub learned: Arc<LearnedDurations>,
    /// Members that are added to the capabilities of clients: in `initialize`, and from 2026-07-28 on in each request.
    pub capabilities: JsonObject,
    /// The level of the log messages that Milepost requests from a server, if the client requests none. Has no effect
    /// from 2026-07-28 on.
    pub log_level: Option<LogLevel>,
    /// Whether clients get the answers of the child process's last start until the child process has started.
    pub cached_start: bool,
    /// Whether clients of 2026-07-28 can use a server that knows only earlier revisions.
    pub modern: bool,
    /// The settings of tools without settings of their own.
    pub call: CallPolicy,
    /// Settings of single tools.
    pub tools: BTreeMap<String, CallPolicy>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            bare_results: false,
            keep_original: false,
            words_in_2024: true,
            id_mapping: false,
            learned: Arc::default(),
            capabilities: JsonObject::new(),
            log_level: None,
            cached_start: false,
            modern: false,
            call: CallPolicy::default(),
            tools: BTreeMap::new(),
        }
    }
}

impl Policy {
    /// Whether no call is changed (`mode = "observe"` for all tools).
    pub fn observes(&self) -> bool {
        self.everywhere().all(CallPolicy::observes)
    }

    /// Sets the mode of every tool.
    pub fn set_mode(&mut self, mode: Mode) {
        self.call.mode = mode;
        self.tools.values_mut().for_each(|tool| tool.mode = mode);
    }

    /// Gives every tool the mode that it has in `other`.
    pub(crate) fn keep_modes_of(&mut self, other: &Self) {
        self.call.mode = other.call.mode;
        // A tool that only `other` names may have another mode than the route, so it needs an entry here.
        for (tool, known) in &other.tools {
            let own = self.tools.entry(tool.clone()).or_insert_with(|| self.call.clone());
            own.mode = known.mode;
        }
        for (tool, own) in &mut self.tools {
            own.mode = other.of(Some(tool)).mode;
        }
    }

    /// Returns the dialects that claim a method. Which of them applies depends on the message's call, which is found
    /// later.
    pub fn dialects_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Dialect> {
        // A dialect that both the route and a tool name is tried only once.
        let is_everyones =
            |own: &Dialect| self.call.dialects.iter().any(|known| known.name() == own.name());
        let of_tools = self.tools.values().flat_map(|policy| &policy.dialects);
        let of_tools = of_tools.filter(move |dialect| !is_everyones(dialect));
        self.call.dialects.iter().chain(of_tools).filter(move |dialect| dialect.claims(method))
    }

    /// Whether the standard dialect is the only one that reads `notifications/progress`.
    pub(crate) fn has_standard_alone(&self) -> bool {
        self.dialects_of(mcp::PROGRESS).all(|dialect| dialect.name() == dialect::STANDARD)
    }

    /// Whether text of `source` is read as progress for any tool.
    pub fn listens_to(&self, source: TextSource) -> bool {
        self.everywhere().any(|policy| policy.listens_to(source))
    }

    /// Returns the settings of tools without settings of their own, followed by the settings of single tools.
    pub fn everywhere(&self) -> impl Iterator<Item = &CallPolicy> {
        std::iter::once(&self.call).chain(self.tools.values())
    }

    /// Whether a dialect claims a method.
    pub fn claims(&self, method: &str) -> bool {
        self.dialects_of(method).next().is_some()
    }

    /// Whether any call has a timeout.
    pub fn has_timeout(&self) -> bool {
        self.everywhere().any(|policy| policy.call_timeout.is_some())
    }

    /// Whether the work of any call continues after its client gave the call up.
    pub fn has_late(&self) -> bool {
        self.everywhere().any(|policy| policy.late.enabled)
    }

    /// Returns the policy with late answers and tasks off, for a single connection from all clients to the server, on
    /// which every client message reaches the server anyway. `None` if both are already off.
    pub fn without_kept_work(&self) -> Option<Self> {
        let mut policy = (self.has_late() || self.has_tasks()).then(|| self.clone())?;
        for call in std::iter::once(&mut policy.call).chain(policy.tools.values_mut()) {
            (call.late.enabled, call.tasks.enabled) = (false, false);
        }
        Some(policy)
    }

    /// Returns the policy with heartbeats off for all tools.
    pub fn without_heartbeats(&self) -> Self {
        let mut policy = self.clone();
        policy.call.heartbeat.enabled = false;
        policy.tools.values_mut().for_each(|tool| tool.heartbeat.enabled = false);
        policy
    }

    /// Whether any setting depends on what was learned from earlier calls: estimates, heartbeats without a text, whose
    /// value counts the seconds for silent tools, and the ages at which clients give calls up (`late`).
    pub fn needs_durations(&self) -> bool {
        !self.words_in_2024 || self.has_late() || self.everywhere().any(|policy| policy.estimate)
    }

    /// Returns the settings of a tool.
    pub fn of(&self, tool: Option<&str>) -> &CallPolicy {
        // Most routes have no settings for single tools, and this function is called several times per message.
        if self.tools.is_empty() {
            return &self.call;
        }
        tool.and_then(|tool| self.tools.get(tool)).unwrap_or(&self.call)
    }
}
