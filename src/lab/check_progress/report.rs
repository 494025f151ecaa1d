//! The report of `check-progress`, as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Judged, ProgressReport, ScenarioFinding, ScenarioOutcome, ScenarioResult};
use crate::lab::doctor::findings::shown;

/// The version of the JSON report. It is raised when a member changes its meaning or is removed.
const FORM: u32 = 1;

impl ProgressReport {
    /// Returns the report as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let _ = match &self.judged {
            Judged::Server { name, reached, wire } => {
                let name = name.as_deref().unwrap_or("a server that does not say its name");
                writeln!(text, "{name}, over {}: {reached}", wire.name())
            }
            Judged::Proxy { commands } => {
                commands.iter().try_for_each(|command| writeln!(text, "the proxy: {command}"))
            }
            Judged::Client { name } => {
                let name = name.as_deref().unwrap_or("a client that does not say its name");
                writeln!(text, "{name}")
            }
        };
        let mut last = None;
        for result in &self.results {
            if last != Some(&result.place) {
                let _ = writeln!(text, "\n{}", self.heading(result));
                last = Some(&result.place);
            }
            write_result(&mut text, result);
        }
        let count = |name: &str| self.results.iter().filter(|r| r.outcome.name() == name).count();
        let counts = ["passed", "failed", "noted", "not assessed"];
        let counts = counts.map(|name| format!("{} {name}", count(name)));
        let _ = writeln!(text, "\n{}", counts.join(", "));
        text
    }

    fn heading<'a>(&self, result: &'a ScenarioResult) -> &'a str {
        match (&result.place, &self.judged) {
            (Some(place), _) => place,
            (None, Judged::Client { .. }) => "All calls",
            (None, _) => "All revisions",
        }
    }

    /// Returns the report as JSON, on one line.
    pub(super) fn json(&self) -> String {
        let one = |result: &ScenarioResult| {
            let scenario = result.scenario;
            let reason = match &result.outcome {
                ScenarioOutcome::NotAssessed(why) => Some(why),
                _ => None,
            };
            let is_server = matches!(self.judged, Judged::Server { .. });
            json!({
                "id": result.id(),
                "scenario": scenario.id(),
                "revision": result.place.as_ref().filter(|_| is_server),
                "transports": result.place.as_ref().filter(|_| !is_server),
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
        let mut report = json!({
            "form": FORM,
            "milepost": env!("CARGO_PKG_VERSION"),
            "passed": self.is_passed(),
            "results": self.results.iter().map(one).collect::<Value>(),
        });
        match &self.judged {
            Judged::Server { name, reached, wire } => {
                report["server"] =
                    json!({ "name": name, "reached": reached, "transport": wire.name() });
            }
            Judged::Proxy { commands } => report["proxy"] = json!({ "commands": commands }),
            Judged::Client { name } => report["client"] = json!({ "name": name }),
        }
        format!("{report}\n")
    }
}

fn write_result(to: &mut String, result: &ScenarioResult) {
    let scenario = result.scenario;
    let (outcome, id) = (result.outcome.name(), scenario.id());
    let duty = scenario.duty().name();
    let _ = writeln!(to, "  {outcome:<12}  {id:<24} {duty:<8}  {}", scenario.title());
    if let ScenarioOutcome::NotAssessed(why) = &result.outcome {
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

/// Returns a finding on one line, without its example.
pub(super) fn described(finding: &ScenarioFinding) -> String {
    let name = finding.name.as_ref().map(|name| format!(" ({})", shown(name.as_bytes())));
    let name = name.unwrap_or_default();
    let rule = finding.rule.map(|rule| format!("{rule}{name}, ")).unwrap_or_default();
    format!("{rule}{}x: {}", finding.count, finding.what)
}

fn finding(finding: &ScenarioFinding) -> Value {
    json!({
        "rule": finding.rule,
        "name": finding.name,
        "count": finding.count,
        "what": finding.what,
        "example": finding.example,
    })
}
