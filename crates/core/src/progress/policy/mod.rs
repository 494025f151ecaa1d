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

// The settings of a feature are in the module that uses them.

/// The extent of the filter's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Reports the verdicts and changes nothing.
    Observe,
    /// Repairs and withholds, adds nothing.
    Enforce,
    /// Also sends heartbeats.
    #[default]
    Full,
}

/// Whether the messages of a client stream keep the times of [`Pacing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPacing {
    /// Messages never wait: Streamable HTTP.
    Immediate,
    /// Each call has the times of its own settings: stdio, HTTP+SSE.
    ByCall,
}

/// The times at which the messages of a call may be written to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// No progress before its call is this old. Earlier progress waits, and is dropped if the answer comes first.
    pub first_after: Duration,
    /// A notification waits this long and is dropped if the answer comes meanwhile.
    pub hold: Duration,
    /// An answer is written no sooner than this after the last notification of its request.
    pub guard: Duration,
}

impl Pacing {
    /// For stdio and HTTP+SSE clients: a notification waits until its call is 150 ms old, and 30 ms for an
    /// answer that may follow; an answer waits until 50 ms after a notification. The official TypeScript SDK handles notifications one
    /// microtask later than answers: a notification that it reads together with the answer is lost and
    /// reported as an unknown token, and hosts drop the connection over this error. Clients that are
    /// known not to need this are exempt (`clients/table.rs`).
    ///
    /// A shorter guard costs reports: of 600 calls of a TypeScript client that is busy for 60 ms at a time,
    /// each with a report 35 ms before its answer, 69 lose the report with 50 ms and 364 with 20 ms.
    pub const PACED: Self = Self {
        first_after: Duration::from_millis(150),
        hold: Duration::from_millis(30),
        guard: Duration::from_millis(50),
    };

    /// For Streamable HTTP, and for clients that are known not to need it.
    pub const IMMEDIATE: Self =
        Self { first_after: Duration::ZERO, hold: Duration::ZERO, guard: Duration::ZERO };

    /// Whether notifications keep a distance from answers.
    pub(crate) fn keeps_distance(&self) -> bool {
        !self.hold.is_zero() || !self.guard.is_zero()
    }
}

/// The notifications that are thinned to one per `min_interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coalesce {
    /// Repaired messages only.
    #[default]
    Repaired,
    /// All.
    All,
}

/// The meaning of a value without a total.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Hundredths: `total` is 100.
    Percent,
    /// Fractions of 1: `total` is 1.
    Unit,
    /// Parts of this many.
    Of(f64),
}

/// The place where the value of a report is looked for first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValueFrom {
    /// The number that the server declares.
    #[default]
    Progress,
    /// The value in the text, if it has a total and the number that the server declares has none.
    Words,
}

/// The relation of the messages of one call to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Messages {
    /// Each message is complete by itself.
    #[default]
    Replace,
    /// Messages are pieces of one text and are joined.
    Append,
}

/// The settings that can differ from tool to tool.
#[derive(Debug, Clone, PartialEq)]
pub struct CallPolicy {
    /// The extent of the filter's work.
    pub mode: Mode,
    /// The ways of saying progress that are understood.
    pub dialects: Vec<Dialect>,
    /// The times at which messages may be written to a client that needs them.
    pub pacing: Pacing,
    /// Whether clients that are known not to need pacing are spared it.
    pub spare_known_clients: bool,
    /// The shortest time between thinned notifications of one call.
    pub min_interval: Duration,
    /// The notifications that are thinned.
    pub coalesce: Coalesce,
    /// Repairs of answers.
    pub answers: AnswerRepairs,
    /// The value that the server sends as token; learned if not set.
    pub token_is: Option<TokenIs>,
    /// Silence.
    pub heartbeat: Heartbeat,
    /// Values that repeat or fall.
    pub on_fall: OnFall,
    /// The meaning of a value without a total.
    pub scale: Option<Scale>,
    /// The place where the value of a report is looked for first.
    pub value_from: ValueFrom,
    /// The patterns that find values in texts.
    pub extract: Extract,
    /// The secrets that are masked in text.
    pub masks: Masks,
    /// The relation of the messages of a call to each other.
    pub messages: Messages,
    /// Age at which a call is answered with an error and cancelled; off by default.
    pub call_timeout: Option<Duration>,
    /// Whether heartbeats of a silent call show the elapsed part of its usual time.
    pub estimate: bool,
    /// The members put into requests.
    pub ask: Ask,
    /// The work of calls that clients give up because their timers expired.
    pub late: Late,
    /// Calls that run as tasks of Milepost's own.
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
    /// Whether the calls are reported and nothing of them is changed.
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
    /// `bare-result`: a result that is not an object becomes an object. A tool result without `content` is wrapped, for
    /// dialects and upstreams that are known to send such results.
    pub bare_result: bool,
    /// `ping`: an answer to `ping` that the method is unknown becomes an empty result.
    pub ping: bool,
    /// `orphan-answer`: an answer that matches no open request of this client, or a second answer, is withheld.
    pub orphan_answer: bool,
    /// `missing-id`: a result without an id is withheld, and an error without an id that answers no request.
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
    /// `total`: compliant progress goes without a `total` that is below its value, or zero or less.
    pub total: bool,
}

impl AnswerRepairs {
    /// Every answer stays unchanged.
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

/// The name of a request that an upstream puts in the place of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenIs {
    /// The token, as the specification asks.
    Token,
    /// The request id.
    RequestId,
}

/// All settings of a route for its filters.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Tool results of this upstream are bare payloads, whatever its dialect.
    pub bare_results: bool,
    /// Forward a translated message as well, for clients written for it.
    pub keep_original: bool,
    /// Whether texts of Milepost are added to progress of 2024-11-05. `message` is an unknown member there, which
    /// clients ignore unless they show it.
    pub words_in_2024: bool,
    /// Whether every request gets an id and a token of Milepost's own towards the server, because
    /// several clients share the server.
    pub id_mapping: bool,
    /// The learned durations of this route's tools.
    pub learned: Arc<LearnedDurations>,
    /// Put into the capabilities of clients: of `initialize`, and from 2026-07-28 on of each request.
    pub capabilities: JsonObject,
    /// The log messages that a server is asked for where its client does not ask; never from 2026-07-28
    /// on.
    pub log_level: Option<LogLevel>,
    /// Whether clients of a child get the answers of the child's last start until the child has started.
    pub cached_start: bool,
    /// Whether clients of 2026-07-28 reach a server that knows earlier revisions only.
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
    /// Whether nothing of any call is changed (`mode = "observe"`).
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

    /// The dialects that claim a method. The call of the message, which decides between them, is
    /// known later.
    pub fn dialects_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Dialect> {
        // A dialect that the route and a tool both name is tried once.
        let is_everyones =
            |own: &Dialect| self.call.dialects.iter().any(|known| known.name() == own.name());
        let of_tools = self.tools.values().flat_map(|policy| &policy.dialects);
        let of_tools = of_tools.filter(move |dialect| !is_everyones(dialect));
        self.call.dialects.iter().chain(of_tools).filter(move |dialect| dialect.claims(method))
    }

    /// Whether no other dialect than the standard one claims the standard's progress.
    pub(crate) fn has_standard_alone(&self) -> bool {
        self.dialects_of(mcp::PROGRESS).all(|dialect| dialect.name() == dialect::STANDARD)
    }

    /// Whether text of `source` is read as progress of any tool.
    pub fn listens_to(&self, source: TextSource) -> bool {
        self.everywhere().any(|policy| policy.listens_to(source))
    }

    /// The settings of tools without settings of their own, then the settings of single tools.
    pub fn everywhere(&self) -> impl Iterator<Item = &CallPolicy> {
        std::iter::once(&self.call).chain(self.tools.values())
    }

    /// Whether a dialect claims a method.
    pub fn claims(&self, method: &str) -> bool {
        self.dialects_of(method).next().is_some()
    }

    /// Whether any call has a time-out.
    pub fn has_timeout(&self) -> bool {
        self.everywhere().any(|policy| policy.call_timeout.is_some())
    }

    /// Whether the work of any call continues after its client gave the call up.
    pub fn has_late(&self) -> bool {
        self.everywhere().any(|policy| policy.late.enabled)
    }

    /// Returns the policy with late answers and tasks off, for a single connection between clients and server: there
    /// every message of a client reaches the server in any case. `None` if both are already off.
    pub fn without_kept_work(&self) -> Option<Self> {
        let mut policy = (self.has_late() || self.has_tasks()).then(|| self.clone())?;
        for call in std::iter::once(&mut policy.call).chain(policy.tools.values_mut()) {
            (call.late.enabled, call.tasks.enabled) = (false, false);
        }
        Some(policy)
    }

    /// The policy without heartbeats of any tool.
    pub fn without_heartbeats(&self) -> Self {
        let mut policy = self.clone();
        policy.call.heartbeat.enabled = false;
        policy.tools.values_mut().for_each(|tool| tool.heartbeat.enabled = false);
        policy
    }

    /// Whether anything depends on what was learned of earlier calls: estimates, the seconds that the heartbeats of
    /// silent tools count where they have no words, and the clocks of clients (`late`).
    pub fn needs_durations(&self) -> bool {
        !self.words_in_2024 || self.has_late() || self.everywhere().any(|policy| policy.estimate)
    }

    /// The settings of a tool.
    pub fn of(&self, tool: Option<&str>) -> &CallPolicy {
        // The usual route has no settings of single tools, and this function is called several times per message.
        if self.tools.is_empty() {
            return &self.call;
        }
        tool.and_then(|tool| self.tools.get(tool)).unwrap_or(&self.call)
    }
}
