//! Judges each scenario from the reports of a client.

use serde_json::Value;

use super::client::{ClientReport, ReportedCall, tool};
use super::scenarios::Scenario;
use super::{ScenarioFinding, ScenarioOutcome};
use crate::lab::doctor::findings::shown;
use crate::lab::reference::script::{FLOOD, STEPS};

/// Returns the judgement of one scenario.
pub(super) fn outcome(scenario: Scenario, reports: &[ClientReport]) -> ScenarioOutcome {
    let asked = tool(scenario);
    let place = |report: &ClientReport| report.calls.iter().position(|call| call.tool == asked);
    let found = reports.iter().find_map(|report| Some((report, place(report)?)));
    let Some((report, place)) = found else {
        return ScenarioOutcome::NotAssessed(format!("the report has no call of `{asked}`"));
    };
    let calls = report.calls.get(place..).unwrap_or_default();
    let [call, later @ ..] = calls else {
        return ScenarioOutcome::NotAssessed(format!("the report has no call of `{asked}`"));
    };
    let mut faults = Vec::new();
    if call.outcome != "result" {
        faults.push(ScenarioFinding::new("the call has no result", ending(call)));
    }
    match later.first() {
        None if scenario != Scenario::ClientCorrect => {
            return ScenarioOutcome::NotAssessed(format!("no call was made after `{asked}`"));
        }
        Some(next) if next.outcome != "result" => {
            faults.push(ScenarioFinding::new("the next call has no result", ending(next)));
        }
        _ => {}
    }
    let mut notes = shows(scenario, call, &mut faults);
    if !faults.is_empty() {
        return ScenarioOutcome::Failed(faults);
    }
    for error in &report.errors {
        ScenarioFinding::new("the client complained", shown(error.as_bytes())).add_to(&mut notes);
    }
    if notes.is_empty() { ScenarioOutcome::Passed } else { ScenarioOutcome::Noted(notes) }
}

fn ending(call: &ReportedCall) -> String {
    let why = call.error.as_deref().unwrap_or_default();
    shown(format!("{}: {why}", call.outcome).as_bytes())
}

/// Returns the values that a client has shown; `None` for a value that is not a number.
fn values(call: &ReportedCall) -> Vec<Option<f64>> {
    call.progress.iter().map(|shown| shown.first().and_then(Value::as_f64)).collect()
}

/// Judges what the client showed: adds to the faults, and returns the remarks.
fn shows(
    scenario: Scenario,
    call: &ReportedCall,
    faults: &mut Vec<ScenarioFinding>,
) -> Vec<ScenarioFinding> {
    let shown = values(call);
    let list = || format!("{:?}", shown.iter().flatten().collect::<Vec<_>>());
    let steps: Vec<Option<f64>> = (1..=STEPS).map(|step| Some(f64::from(step))).collect();
    let rises = shown.iter().zip(shown.iter().skip(1)).all(|(one, next)| next > one);
    let note = |what: &str| vec![ScenarioFinding::new(what, list())];
    if shown.is_empty() && scenario != Scenario::ClientSilent {
        return note("no progress was shown: the client may have given no token");
    }
    let mut fault = |what: &str| faults.push(ScenarioFinding::new(what, list()));
    match scenario {
        Scenario::ClientCorrect if shown != steps => fault("a step is missing or wrong"),
        Scenario::ClientLate if shown.len() > steps.len() => {
            return note("progress behind the answer was shown");
        }
        Scenario::ClientLate if shown != steps => {
            fault("a step before the answer is missing or wrong")
        }
        Scenario::ClientGlued if shown != steps => {
            fault("the step together with the answer is missing")
        }
        Scenario::ClientNull if shown.contains(&None) => fault("null was shown as a number"),
        Scenario::ClientNull if !(shown.contains(&Some(1.0)) && shown.contains(&Some(2.0))) => {
            fault("a correct step is missing");
        }
        Scenario::ClientInvented if shown != [Some(1.0), Some(2.0)] => {
            fault("progress of an unknown token was shown, or a correct step is missing");
        }
        Scenario::ClientFalling if !rises => return note("values that fall were shown"),
        Scenario::ClientFlooded if shown.last() != Some(&Some(f64::from(FLOOD))) => {
            return note("the last one of a flood was not shown");
        }
        _ => {}
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> ClientReport {
        serde_json::from_str(text).unwrap()
    }

    /// Checks the outcome of a scenario.
    #[track_caller]
    fn check(scenario: Scenario, text: &str, outcome: &str) {
        assert_eq!(super::outcome(scenario, &[report(text)]).name(), outcome);
    }

    #[test]
    fn a_client_that_loses_the_step_beside_the_answer_fails() {
        let whole = r#"{"calls":[{"tool":"glued","outcome":"result","progress":[[1],[2],[3],[4,4,"m"]]},{"tool":"correct","outcome":"result"}]}"#;
        check(Scenario::ClientGlued, whole, "passed");
        let lost = whole.replace(",[4,4,\"m\"]", "");
        check(Scenario::ClientGlued, &lost, "failed");
        check(Scenario::ClientLate, whole, "not assessed");
    }

    #[test]
    fn a_client_that_dies_of_a_call_has_not_survived() {
        let text = |next: &str| {
            format!(
                r#"{{"calls":[{{"tool":"late","outcome":"result","progress":[[1],[2],[3],[4]]}},{{"tool":"correct","outcome":"{next}","error":"closed"}}]}}"#
            )
        };
        check(Scenario::ClientLate, &text("result"), "passed");
        check(Scenario::ClientLate, &text("error"), "failed");
        let complaint =
            text("result").replace("{\"calls\"", "{\"errors\":[\"unknown token\"],\"calls\"");
        check(Scenario::ClientLate, &complaint, "noted");
    }

    #[test]
    fn a_client_without_tokens_is_noted_and_not_blamed() {
        let text = r#"{"calls":[{"tool":"correct","outcome":"result"}]}"#;
        check(Scenario::ClientCorrect, text, "noted");
    }
}
