//! Findings: the faults seen in a conversation, and the result of each call.

use std::time::Duration;

use serde_json::Value;

use super::content::MessageContent;
use super::draft::Draft;
use super::habits::Habits;
use super::rules::{Rule, Weight};
use super::traffic::TransportKind;
use crate::observe::pointer_watch::PointerMiss;
use crate::progress::clients::is_unprintable;
use crate::protocol::order;

/// Maximum number of characters of an example message in a report.
const EXAMPLE_MAX: usize = 200;

/// A fault or risk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The rule that the finding breaks.
    pub rule: Rule,
    /// The number of messages with the fault.
    pub count: usize,
    /// The first message with the fault.
    pub example: String,
    /// The dialect or the method that the cure needs.
    pub name: Option<String>,
    /// The settings that were drafted from the messages, for the cure.
    pub draft: Option<Draft>,
    /// The texts and values of the messages, if the cure brings them to the client.
    pub content: MessageContent,
}

impl Finding {
    /// Returns a finding that is not about a single message.
    pub fn of(rule: Rule, example: impl Into<String>) -> Self {
        Self {
            rule,
            count: 1,
            example: example.into(),
            name: None,
            draft: None,
            content: MessageContent::default(),
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// A result.
    Result,
    /// A result that reports a failure of the tool.
    ToolError,
    /// A JSON-RPC error.
    Error,
    /// No answer.
    #[default]
    None,
}

impl Answer {
    /// Returns the name, for people and machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::ToolError => "tool error",
            Self::Error => "error",
            Self::None => "none",
        }
    }
}

/// One call and what happened to it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ObservedCall {
    /// The id of the request.
    pub id: u64,
    /// The tool.
    pub tool: String,
    /// The progress token that the call gave, as JSON.
    pub token: Option<Value>,
    /// How the call ended.
    pub answer: Answer,
    /// The text of the error, if the call ends with an error.
    pub refusal: Option<String>,
    /// Whether the error is Milepost's own.
    pub is_own_error: bool,
    /// The duration of the call; without an answer, the time until the last event.
    pub took: Duration,
    /// The time from the request to the server's next byte.
    pub first_byte: Option<Duration>,
    /// The time from the request to the first progress that a plain client can use.
    pub first_progress: Option<Duration>,
    /// The longest time without a message to a plain client.
    pub silence: Duration,
    /// The number of the server's notifications that a plain client can use.
    pub usable: usize,
    /// The number of messages of the server that claim to be progress of this call.
    pub reports: usize,
    /// The number of notifications that the proxy added.
    pub added: usize,
    pub(super) habits: Habits,
    pub(super) begun: Duration,
    pub(super) ended: Option<Duration>,
    pub(super) last_progress: Duration,
    pub(super) figure: Option<f64>,
    pub(super) last: Option<(Duration, Option<u64>)>,
}

/// The result of an examination.
#[derive(Debug, Clone, Default)]
pub struct Examined {
    /// The findings, in the order of [`Rule`].
    pub findings: Vec<Finding>,
    /// The calls, in the order in which they were made.
    pub calls: Vec<ObservedCall>,
    /// The texts and values of the progress that a plain client can use.
    pub told: MessageContent,
    /// Whether the server ended before it answered.
    pub has_ended: bool,
    /// Whether progress, or a log message during a call, came on the GET stream.
    pub uses_get: bool,
    /// The number of notifications that the proxy withheld because the answer had already come.
    pub overtaken: usize,
    /// The pointers of dialects that found nothing in messages behind the proxy.
    pub missed: Vec<PointerMiss>,
    /// Number of log messages whose text shows how far a call is.
    pub logged: usize,
}

impl Examined {
    /// Whether some finding is a risk: it may hurt a client now and then.
    pub fn has_risk(&self) -> bool {
        self.findings.iter().any(|finding| finding.rule.weight() == Weight::Risk)
    }

    /// Returns the findings, except for habits that the server did not have in the session `before`.
    pub fn without_new_habits(mut self, before: &Self) -> Self {
        let is_new = |rule: Rule| rule.is_about_habits() && before.count(rule) == 0;
        self.findings.retain(|finding| !is_new(finding.rule));
        self
    }

    /// Adds a finding from another module of `doctor`.
    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
        order::sort_by_key(&mut self.findings, |finding| finding.rule);
    }

    /// Adds a description to the first finding of a rule, if the rule has a finding.
    pub fn explain(&mut self, rule: Rule, why: String) {
        if let Some(finding) = self.findings.iter_mut().find(|finding| finding.rule == rule) {
            finding.example += ": ";
            finding.example += &why;
        }
    }

    /// Whether a plain client received the content of a finding in this session: some of its texts or values. `None` if
    /// the rule is not about content, or the messages have none.
    pub fn receives(&self, finding: &Finding) -> Option<bool> {
        // A message that is not progress need not reach the client.
        if finding.rule == Rule::MethodOther && finding.draft.is_none() {
            return None;
        }
        let has_content = finding.rule.is_about_content() && !finding.content.is_empty();
        has_content.then(|| finding.content.arrives_in(&self.told))
    }

    /// Returns the number of messages that break a rule.
    pub fn count(&self, rule: Rule) -> usize {
        self.findings.iter().filter(|f| f.rule == rule).map(|f| f.count).sum()
    }
}

/// The settings for the examination of a conversation.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The transport of the server.
    pub wire: TransportKind,
    /// Whether the negotiated revision is 2025-03-26, which allows arrays of messages.
    pub knows_arrays: bool,
    /// The longest silence during a call that is not a fault.
    pub silence_max: Duration,
}

/// Returns a message in the form of a report, on one line.
pub fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let plain = text.trim().chars().map(|sign| if is_unprintable(sign) { ' ' } else { sign });
    let mut shown: String = plain.take(EXAMPLE_MAX).collect();
    if text.trim().chars().nth(EXAMPLE_MAX).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_turns_no_text_around() {
        assert_eq!(shown("a\u{202e}b\u{2066}c\u{1b}[2Jd\n".as_bytes()), "a b c [2Jd");
    }
}
