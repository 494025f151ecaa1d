//! One call, as `milepost top` shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

/// The silence of a server after which a call counts as silent.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// A call, as `/calls` describes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct TopCall {
    pub(super) n: u64,
    pub(super) route: String,
    pub(super) method: String,
    pub(super) tool: Option<String>,
    pub(super) client: Option<String>,
    pub(super) token: bool,
    pub(super) opened: u64,
    pub(super) ended: Option<u64>,
    pub(super) outcome: Option<String>,
    pub(super) progress: Option<String>,
    pub(super) total: Option<String>,
    pub(super) message: Option<String>,
    pub(super) spoke: Option<u64>,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) overheard: u64,
    pub(super) beats: u64,
    pub(super) repaired: BTreeMap<String, u64>,
    pub(super) withheld: BTreeMap<String, u64>,
    pub(super) messages: usize,
}

/// The identity of a call: the key of its process, and its number there.
pub(super) type CallKey = (String, u64);

/// One line of the table.
#[derive(Debug, Clone)]
pub(super) struct TopRow {
    pub(super) key: CallKey,
    /// The name of the process, and of the route of `serve`.
    pub(super) place: String,
    pub(super) call: TopCall,
    /// The time of its process, in milliseconds since 1970.
    pub(super) now: u64,
    /// The process has ended before the call.
    pub(super) is_lost: bool,
}

impl TopCall {
    /// The tool, or the method of a request that calls none.
    pub(super) fn label(&self) -> &str {
        self.tool.as_deref().unwrap_or(&self.method)
    }

    /// Returns Milepost's changes to the call, as a short text.
    pub(super) fn changes(&self) -> String {
        self.change_words().join(", ")
    }

    /// Returns the changes in at most `columns` columns, if one word fits: no number is cut.
    pub(super) fn changes_within(&self, columns: usize) -> String {
        let mut words = self.change_words();
        let mut text = words.join(", ");
        while text.chars().count() > columns && words.len() > 1 {
            words.pop();
            text = format!("{}, …", words.join(", "));
        }
        text
    }

    /// The number of the changes.
    pub(super) fn change_count(&self) -> u64 {
        self.repaired.values().chain(self.withheld.values()).sum::<u64>() + self.beats
    }

    fn change_words(&self) -> Vec<String> {
        let times = |count: u64| if count > 1 { format!(" ×{count}") } else { String::new() };
        let mut words = Vec::new();
        let repaired: u64 = self.repaired.values().sum();
        let withheld: u64 = self.withheld.values().sum();
        if repaired > 0 {
            words.push(format!("repaired{}", times(repaired)));
        }
        if withheld > 0 {
            words.push(format!("withheld{}", times(withheld)));
        }
        if self.beats > 0 {
            words.push(format!("heartbeat{}", times(self.beats)));
        }
        words
    }

    /// Returns the part of the work that is done, from 0 to 1, if the client has received progress with a total.
    pub(super) fn share(&self) -> Option<f64> {
        let figure: f64 = self.progress.as_ref()?.parse().ok()?;
        let total: f64 = self.total.as_ref()?.parse().ok()?;
        let is_part = total > 0.0 && figure >= 0.0 && (figure + total).is_finite();
        is_part.then(|| (figure / total).min(1.0))
    }

    /// Returns the last value that the client has received, without its text.
    pub(super) fn figure(&self) -> String {
        match (&self.progress, &self.total, self.share()) {
            (Some(progress), Some(total), Some(share)) => {
                let percent = format!("{:.0} %", (share * 100.0).floor());
                match total.as_str() {
                    "1" | "100" => percent,
                    _ => format!("{percent}, {progress} of {total}"),
                }
            }
            (Some(progress), ..) => progress.clone(),
            (None, ..) if !self.token => "not asked for".to_owned(),
            (None, ..) if self.sent > 0 => "no figure".to_owned(),
            (None, ..) => "nothing yet".to_owned(),
        }
    }
}

impl TopRow {
    /// Whether the call is in flight.
    pub(super) fn is_open(&self) -> bool {
        self.call.ended.is_none() && !self.is_lost
    }

    /// Returns the time that the call has taken so far.
    pub(super) fn took(&self) -> Duration {
        let end = self.call.ended.unwrap_or(self.now);
        Duration::from_millis(end.saturating_sub(self.call.opened))
    }

    /// The time since the last message of the server.
    pub(super) fn silence(&self) -> Duration {
        let spoke = self.call.spoke.unwrap_or(self.call.opened);
        Duration::from_millis(self.now.saturating_sub(spoke))
    }

    /// Whether the call is in flight and its server is silent.
    pub(super) fn is_silent(&self) -> bool {
        self.is_open() && self.silence() >= SILENT_AFTER
    }

    /// Returns the outcome as text.
    pub(super) fn outcome(&self) -> &str {
        match &self.call.outcome {
            Some(outcome) => outcome,
            None if self.is_lost => "its process has ended",
            None => "in flight",
        }
    }

    /// Whether the outcome is a failure.
    pub(super) fn has_failed(&self) -> bool {
        let outcome = self.outcome();
        self.is_lost || ["error", "timed", "gone"].iter().any(|word| outcome.contains(word))
    }
}
