//! Tests a server in each revision that it supports, with the sessions and the judgement of `doctor`.

use super::scenarios::{Scenario, ScenarioSubject};
use super::{Judged, ProgressReport, ScenarioFinding, ScenarioOutcome, ScenarioResult};
use crate::lab::doctor::findings::{Answer, Examined, Finding};
use crate::lab::doctor::revisions::{RevisionSessions, in_each_revision};
use crate::lab::doctor::rules::Weight;
use crate::lab::doctor::traffic::TransportKind;
use crate::lab::doctor::{DoctorError, Options};

/// Judges a server by the scenarios of `only` that are for servers.
pub(super) async fn judge(
    options: Options,
    only: &[Scenario],
) -> Result<ProgressReport, DoctorError> {
    Ok(judged(in_each_revision(options).await?, only))
}

fn judged(seen: RevisionSessions, only: &[Scenario]) -> ProgressReport {
    let mut results = Vec::new();
    let wanted = |scenario: &Scenario| only.contains(scenario);
    if only.contains(&Scenario::Begins) {
        let outcome =
            outcome(&seen.negotiation, Scenario::Begins).unwrap_or(ScenarioOutcome::Passed);
        results.push(ScenarioResult { scenario: Scenario::Begins, place: None, outcome });
    }
    for (revision, examined) in &seen.sessions {
        let others = Scenario::of_subject(ScenarioSubject::Server);
        let others = others.filter(|one| *one != Scenario::Begins);
        for scenario in others.filter(wanted) {
            let unseen = || match unseen(scenario, examined, seen.wire) {
                Some(why) => ScenarioOutcome::NotAssessed(why.to_owned()),
                None => ScenarioOutcome::Passed,
            };
            let outcome = outcome(&examined.findings, scenario).unwrap_or_else(unseen);
            let place = revision.map(str::to_owned);
            results.push(ScenarioResult { scenario, place, outcome });
        }
    }
    let judged = Judged::Server { name: seen.name, reached: seen.reached, wire: seen.wire };
    ProgressReport { judged, results, unstarted: Vec::new() }
}

/// Returns the outcome of a scenario if it has findings.
fn outcome(findings: &[Finding], scenario: Scenario) -> Option<ScenarioOutcome> {
    let its = findings.iter().filter(|finding| Scenario::of(finding.rule) == scenario);
    let its: Vec<&Finding> = its.collect();
    let has_fault = its.iter().any(|finding| finding.rule.weight() != Weight::Note);
    let told: Vec<ScenarioFinding> = its.into_iter().map(ScenarioFinding::from).collect();
    match (told.is_empty(), has_fault) {
        (true, _) => None,
        (false, true) => Some(ScenarioOutcome::Failed(told)),
        (false, false) => Some(ScenarioOutcome::Noted(told)),
    }
}

/// Returns the reason why a session without findings is no evidence about a scenario.
fn unseen(scenario: Scenario, examined: &Examined, wire: TransportKind) -> Option<&'static str> {
    let calls = &examined.calls;
    let usable = calls.iter().map(|call| call.usable).max().unwrap_or_default();
    let no_call = calls.is_empty().then_some("no tool was called: --call NAME");
    let no_report = || match calls.iter().any(|call| call.reports > 0) {
        true => None,
        false => Some("the server reported no progress"),
    };
    let fewer = |least: usize| (usable < least).then_some("too little usable progress was seen");
    let only_on = |has: bool| (!has).then_some("not a matter of this transport");
    match scenario {
        Scenario::Begins | Scenario::Messages => None,
        Scenario::StandardOutput => only_on(wire == TransportKind::Stdio),
        Scenario::EventName => only_on(wire != TransportKind::Stdio),
        Scenario::Stream => only_on(wire == TransportKind::Streamable).or(no_call),
        Scenario::BeforeAnswer => only_on(wire.is_shared()).or(no_call).or_else(no_report),
        Scenario::NoToken => no_call.or_else(|| {
            let tried =
                calls.iter().any(|call| call.token.is_none() && call.answer != Answer::None);
            (!tried).then_some("no call without a token was answered")
        }),
        Scenario::Answers | Scenario::Silence | Scenario::Place => no_call,
        Scenario::Method | Scenario::AfterAnswer | Scenario::Rate => no_call.or_else(no_report),
        Scenario::Token | Scenario::Value | Scenario::Members | Scenario::Total => {
            no_call.or_else(no_report).or_else(|| fewer(1))
        }
        Scenario::Rises | Scenario::Readable => no_call.or_else(no_report).or_else(|| fewer(2)),
        // Scenarios for other kinds of programs.
        _ => Some("not a scenario for servers"),
    }
}
