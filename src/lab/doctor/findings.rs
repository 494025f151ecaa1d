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

/// Characters of an example message in a report.
const EXAMPLE_MAX: usize = 200;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The rule that the finding breaks.
    pub rule: Rule,
    /// The number of messages with the fault.
    pub count: usize,
    /// The first occurrence.
    pub example: String,
    /// The dialect or the method, for the cure.
    pub name: Option<String>,
    /// The settings that were drafted from the messages, for the cure.
    pub draft: Option<Draft>,
    /// The texts and values of the messages, for rules whose cure brings them to the client.
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

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// With a result.
    Result,
    /// With a result that reports a failure of the tool.
    ToolError,
    /// With a JSON-RPC error.
    Error,
    /// Not at all.
    #[default]
    None,
}

impl Answer {
    /// The name, for people and machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::ToolError => "tool error",
            Self::Error => "error",
            Self::None => "none",
        }
    }
}

/// One call, as it went.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ObservedCall {
    /// The id of its request.
    pub id: u64,
    /// The tool.
    pub tool: String,
    /// The progress token that it gave, as JSON.
    pub token: Option<Value>,
    /// The end of the call.
    pub answer: Answer,
    /// The text of the error, if the call ends with an error.
    pub refusal: Option<String>,
    /// Whether the error is Milepost's own.
    pub is_own_error: bool,
    /// The duration of the call; without an answer, the time until the last event.
    pub took: Duration,
    /// The time from the request to the server's next byte.
    pub first_byte: Option<Duration>,
    /// From the request to the first progress that a plain client can use.
    pub first_progress: Option<Duration>,
    /// The longest time without a message to a plain client.
    pub silence: Duration,
    /// Notifications of the server that a plain client can use.
    pub usable: usize,
    /// The number of messages of the server that claim to be progress of this call.
    pub reports: usize,
    /// Number of notifications that the proxy has added itself.
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
    /// The server has ended before it answered.
    pub has_ended: bool,
    /// Whether progress, or a log message during a call, came on the GET stream.
    pub uses_get: bool,
    /// The notifications that the proxy withheld because the answer had already come.
    pub overtaken: usize,
    /// The pointers of dialects that found nothing behind the proxy.
    pub missed: Vec<PointerMiss>,
    /// Number of log messages whose text shows how far a call is.
    pub logged: usize,
}

impl Examined {
    /// Whether something that was seen may hurt a client now and then.
    pub fn has_risk(&self) -> bool {
        self.findings.iter().any(|finding| finding.rule.weight() == Weight::Risk)
    }

    /// Returns the findings without habits that the server did not have before.
    pub fn without_new_habits(mut self, before: &Self) -> Self {
        let is_new = |rule: Rule| rule.is_about_habits() && before.count(rule) == 0;
        self.findings.retain(|finding| !is_new(finding.rule));
        self
    }

    /// Adds a finding of another part of `doctor`.
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

    /// Whether the content of a finding reaches a plain client here: some of its texts or values occur in what the
    /// client was sent. `None`: the rule is not about content, or the messages have none.
    pub fn receives(&self, finding: &Finding) -> Option<bool> {
        // Messages beside progress need not arrive.
        if finding.rule == Rule::MethodOther && finding.draft.is_none() {
            return None;
        }
        let has_content = finding.rule.is_about_content() && !finding.content.is_empty();
        has_content.then(|| finding.content.arrives_in(&self.told))
    }

    /// The number of messages that break a rule.
    pub fn count(&self, rule: Rule) -> usize {
        self.findings.iter().filter(|f| f.rule == rule).map(|f| f.count).sum()
    }
}

/// The terms for the examination of a conversation.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The transport of the server.
    pub wire: TransportKind,
    /// 2025-03-26 was agreed on, which knows arrays.
    pub knows_arrays: bool,
    /// A longer silence during a call is a fault.
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
