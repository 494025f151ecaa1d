//! The report of `check-progress` in the formats of other tools: JUnit XML and SARIF 2.1.0.

use std::fmt::Write;

use serde_json::{Value, json};

use super::report::described;
use super::scenarios::{Duty, Scenario, ScenarioSubject};
use super::{ProgressReport, ScenarioOutcome, ScenarioResult};

/// Returns the report as JUnit XML: a suite for each revision or pair of transports, a case for each scenario.
pub(super) fn junit(report: &ProgressReport) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    // The `testsuites` element has no `skipped`, because Jenkins's schema allows `skipped` only in `testsuite`.
    let (tests, failures, _) = counts(&report.results);
    let _ = writeln!(
        text,
        "<testsuites name=\"milepost check-progress\" tests=\"{tests}\" failures=\"{failures}\">"
    );
    for results in report.results.chunk_by(|one, next| one.place == next.place) {
        let place = results.first().and_then(|result| result.place.as_deref()).unwrap_or("all");
        let (tests, failures, skipped) = counts(results);
        let _ = writeln!(
            text,
            "  <testsuite name=\"{place}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">"
        );
        for result in results {
            case(&mut text, place, result);
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn counts(results: &[ScenarioResult]) -> (usize, usize, usize) {
    let count =
        |is: fn(&ScenarioOutcome) -> bool| results.iter().filter(|r| is(&r.outcome)).count();
    let failed = count(|outcome| matches!(outcome, ScenarioOutcome::Failed(_)));
    (results.len(), failed, count(|outcome| matches!(outcome, ScenarioOutcome::NotAssessed(_))))
}

fn case(to: &mut String, place: &str, result: &ScenarioResult) {
    let id = result.scenario.id();
    let _ = write!(to, "    <testcase classname=\"milepost.{place}\" name=\"{id}\"");
    let _ = match &result.outcome {
        ScenarioOutcome::Passed => writeln!(to, "/>"),
        ScenarioOutcome::NotAssessed(why) => {
            writeln!(to, "><skipped message=\"{}\"/></testcase>", escaped(why))
        }
        ScenarioOutcome::Failed(_) => {
            let (title, duty) = (result.scenario.title(), result.scenario.duty().name());
            let (title, text) = (escaped(title), escaped(&explained(result)));
            writeln!(
                to,
                "><failure message=\"{title}\" type=\"{duty}\">{text}</failure></testcase>"
            )
        }
        ScenarioOutcome::Noted(_) => {
            writeln!(to, "><system-out>{}</system-out></testcase>", escaped(&explained(result)))
        }
    };
}

/// Returns the findings of a result, why they matter, and how to mend them.
fn explained(result: &ScenarioResult) -> String {
    let mut text = String::new();
    for finding in result.outcome.findings() {
        let _ = writeln!(text, "{}\ne.g. {}", described(finding), finding.example);
    }
    let scenario = result.scenario;
    let (section, why, mend) = (scenario.section(), scenario.why(), scenario.mend());
    let _ = write!(text, "spec: {section}\nwhy: {why}\nmend: {mend}");
    text
}

/// Escapes a text for XML. XML 1.0 cannot represent some characters, which become spaces.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' => out.push('\n'),
            '\u{fffe}' | '\u{ffff}' => out.push(' '),
            sign if sign.is_control() => out.push(' '),
            sign => out.push(sign),
        }
    }
    out
}

/// Returns the report as SARIF 2.1.0: a rule for each scenario, a result for each scenario that failed or was noted.
pub(super) fn sarif(report: &ProgressReport) -> String {
    let rule = |scenario: Scenario| {
        json!({
            "id": scenario.id(),
            "shortDescription": { "text": scenario.title() },
            "fullDescription": { "text": scenario.why() },
            "help": { "text": scenario.mend() },
            "defaultConfiguration": { "level": level(scenario) },
            "properties": { "duty": scenario.duty().name(), "section": scenario.section() },
        })
    };
    let result = |result: &ScenarioResult| {
        let level = match &result.outcome {
            ScenarioOutcome::Failed(_) => level(result.scenario),
            ScenarioOutcome::Noted(_) => "note",
            ScenarioOutcome::Passed | ScenarioOutcome::NotAssessed(_) => return None,
        };
        Some(json!({
            "ruleId": result.scenario.id(),
            "level": level,
            "message": { "text": explained(result) },
            "locations": [{ "logicalLocations": [{
                "fullyQualifiedName": result.id(),
                "kind": "module",
            }] }],
            "partialFingerprints": { "scenario/v1": result.id() },
            "properties": { (place_name(result.scenario)): result.place },
        }))
    };
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "milepost check-progress",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": Scenario::of_subject(report.judged.subject()).map(rule).collect::<Value>(),
            } },
            "results": report.results.iter().filter_map(result).collect::<Value>(),
        }],
    });
    format!("{log}\n")
}

/// Returns the word for the place of a result: a revision, or a pair of transports.
fn place_name(scenario: Scenario) -> &'static str {
    match scenario.subject() {
        ScenarioSubject::Server => "revision",
        ScenarioSubject::Proxy | ScenarioSubject::Client => "transports",
    }
}

const fn level(scenario: Scenario) -> &'static str {
    match scenario.duty() {
        Duty::Must => "error",
        Duty::Should | Duty::Survival => "warning",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_servers_cannot_leave_its_element() {
        assert_eq!(escaped("</failure>\"&\u{1}\u{ffff}é"), "&lt;/failure&gt;&quot;&amp;  é");
    }
}
