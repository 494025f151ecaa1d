//! The report of `check-progress`, as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{ProgressReport, ScenarioOutcome, ScenarioResult};
use crate::commands::doctor::findings::{Finding, shown};

/// The form of the report for machines. It changes when a member changes its meaning or goes.
const FORM: u32 = 1;

impl ProgressReport {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let name = self.name.as_deref().unwrap_or("a server that does not say its name");
        let _ = writeln!(text, "{name}, over {}: {}", self.wire.name(), self.reached);
        let mut last = None;
        for result in &self.results {
            if last != Some(result.revision) {
                let _ = writeln!(text, "\n{}", result.revision.unwrap_or("All revisions"));
                last = Some(result.revision);
            }
            write_result(&mut text, result);
        }
        let count = |name: &str| self.results.iter().filter(|r| r.outcome.name() == name).count();
        let counts = ["passed", "failed", "noted", "not assessed"];
        let counts = counts.map(|name| format!("{} {name}", count(name)));
        let _ = writeln!(text, "\n{}", counts.join(", "));
        text
    }

    /// For machines, on one line.
    pub(super) fn json(&self) -> String {
        let one = |result: &ScenarioResult| {
            let scenario = result.scenario;
            let reason = match result.outcome {
                ScenarioOutcome::NotAssessed(why) => Some(why),
                _ => None,
            };
            json!({
                "id": result.id(),
                "scenario": scenario.id(),
                "revision": result.revision,
                "duty": scenario.duty().name(),
                "outcome": result.outcome.name(),
                "reason": reason,
                "title": scenario.title(),
                "section": scenario.section(),
                "why": scenario.why(),
                "mend": scenario.mend(),
                "findings": result.outcome.findings().iter().map(finding).collect::<Value>(),
            })
        };
        let report = json!({
            "form": FORM,
            "milepost": env!("CARGO_PKG_VERSION"),
            "server": {
                "name": self.name,
                "reached": self.reached,
                "transport": self.wire.name(),
            },
            "passed": self.is_passed(),
            "results": self.results.iter().map(one).collect::<Value>(),
        });
        format!("{report}\n")
    }
}

fn write_result(to: &mut String, result: &ScenarioResult) {
    let scenario = result.scenario;
    let (outcome, id) = (result.outcome.name(), scenario.id());
    let duty = scenario.duty().name();
    let _ = writeln!(to, "  {outcome:<12}  {id:<24} {duty:<8}  {}", scenario.title());
    if let ScenarioOutcome::NotAssessed(why) = result.outcome {
        let _ = writeln!(to, "                reason   {why}");
    }
    for finding in result.outcome.findings() {
        let _ = writeln!(to, "                finding  {}", described(finding));
        let _ = writeln!(to, "                e.g.     {}", finding.example);
    }
    if !result.outcome.findings().is_empty() {
        let _ = writeln!(to, "                spec     {}", scenario.section());
        let _ = writeln!(to, "                why      {}", scenario.why());
        let _ = writeln!(to, "                mend     {}", scenario.mend());
    }
}

/// A finding in one line, without its example.
pub(super) fn described(finding: &Finding) -> String {
    let name = finding.name.as_ref().map(|name| format!(" ({})", shown(name.as_bytes())));
    let (rule, name) = (finding.rule, name.unwrap_or_default());
    format!("{}{name}, {}x: {}", rule.name(), finding.count, rule.what())
}

fn finding(finding: &Finding) -> Value {
    json!({
        "rule": finding.rule.name(),
        "name": finding.name,
        "count": finding.count,
        "what": finding.rule.what(),
        "example": finding.example,
    })
}
