//! `milepost check-progress`: named scenarios for what a server does with progress, in every revision
//! that the server speaks. The sessions and the judgement are those of `doctor`.

mod exports;
mod report;
pub mod scenarios;

use std::io;
use std::path::{Path, PathBuf};

use crate::commands::doctor::findings::{Answer, Examined, Finding};
use crate::commands::doctor::revisions::{RevisionSessions, in_each_revision};
use crate::commands::doctor::rules::Weight;
use crate::commands::doctor::traffic::TransportKind;
use crate::commands::doctor::{DoctorError, Options};
use scenarios::Scenario;

/// The server to judge, and the options.
#[derive(Debug, Clone)]
pub struct CheckProgressOptions {
    /// The server, the call, and the settings of each session.
    pub doctor: Options,
    /// The scenarios to judge.
    pub only: Vec<Scenario>,
    /// The report on standard output is JSON.
    pub json: bool,
    /// The file for the report as JUnit XML.
    pub junit: Option<PathBuf>,
    /// The file for the report as SARIF 2.1.0.
    pub sarif: Option<PathBuf>,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct CheckedProgress {
    /// The report.
    pub text: String,
    /// Whether no scenario has failed.
    pub is_passed: bool,
}

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckProgressError {
    /// The server cannot be used.
    #[error(transparent)]
    Server(#[from] DoctorError),
    /// A report cannot be written.
    #[error("cannot write {0}")]
    Write(PathBuf, #[source] io::Error),
}

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq)]
enum ScenarioOutcome {
    /// The server does what it has to do.
    Passed,
    /// Some client is hurt.
    Failed(Vec<Finding>),
    /// Worth knowing; no client is hurt.
    Noted(Vec<Finding>),
    /// Nothing was seen that would tell, with the reason.
    NotAssessed(&'static str),
}

impl ScenarioOutcome {
    const fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Noted(_) => "noted",
            Self::NotAssessed(_) => "not assessed",
        }
    }

    fn findings(&self) -> &[Finding] {
        match self {
            Self::Failed(findings) | Self::Noted(findings) => findings,
            Self::Passed | Self::NotAssessed(_) => &[],
        }
    }
}

/// One scenario in one revision.
#[derive(Debug, Clone)]
struct ScenarioResult {
    scenario: Scenario,
    /// The revision; `None`: the scenario is about all of them, or no client can begin.
    revision: Option<&'static str>,
    outcome: ScenarioOutcome,
}

impl ScenarioResult {
    /// The name of the result. It is the same in each run.
    fn id(&self) -> String {
        match self.revision {
            Some(date) => format!("{}@{date}", self.scenario.id()),
            None => self.scenario.id().to_owned(),
        }
    }
}

/// Everything that was judged.
struct ProgressReport {
    name: Option<String>,
    reached: String,
    wire: TransportKind,
    results: Vec<ScenarioResult>,
}

impl ProgressReport {
    fn is_passed(&self) -> bool {
        !self.results.iter().any(|result| matches!(result.outcome, ScenarioOutcome::Failed(_)))
    }
}

/// Judges a server, writes the files of the options, and returns the report.
///
/// # Errors
/// If the server cannot be used, or a file cannot be written.
pub async fn run(options: CheckProgressOptions) -> Result<CheckedProgress, CheckProgressError> {
    let CheckProgressOptions { doctor, only, json, junit, sarif } = options;
    let report = judge(in_each_revision(doctor).await?, &only);
    let write = |file: Option<&Path>, text: fn(&ProgressReport) -> String| match file {
        Some(file) => std::fs::write(file, text(&report))
            .map_err(|error| CheckProgressError::Write(file.to_owned(), error)),
        None => Ok(()),
    };
    write(junit.as_deref(), exports::junit)?;
    write(sarif.as_deref(), exports::sarif)?;
    let text = if json { report.json() } else { report.text() };
    Ok(CheckedProgress { text, is_passed: report.is_passed() })
}

fn judge(seen: RevisionSessions, only: &[Scenario]) -> ProgressReport {
    let mut results = Vec::new();
    let wanted = |scenario: &Scenario| only.contains(scenario);
    if only.contains(&Scenario::Begins) {
        let outcome =
            outcome(&seen.negotiation, Scenario::Begins).unwrap_or(ScenarioOutcome::Passed);
        results.push(ScenarioResult { scenario: Scenario::Begins, revision: None, outcome });
    }
    for (revision, examined) in &seen.sessions {
        let others = Scenario::ALL.into_iter().filter(|one| *one != Scenario::Begins);
        for scenario in others.filter(wanted) {
            let unseen = || match unseen(scenario, examined, seen.wire) {
                Some(why) => ScenarioOutcome::NotAssessed(why),
                None => ScenarioOutcome::Passed,
            };
            let outcome = outcome(&examined.findings, scenario).unwrap_or_else(unseen);
            results.push(ScenarioResult { scenario, revision: *revision, outcome });
        }
    }
    ProgressReport { name: seen.name, reached: seen.reached, wire: seen.wire, results }
}

/// The outcome where there are findings.
fn outcome(findings: &[Finding], scenario: Scenario) -> Option<ScenarioOutcome> {
    let its = findings.iter().filter(|finding| Scenario::of(finding.rule) == scenario);
    let its: Vec<Finding> = its.cloned().collect();
    let is_fault = |finding: &Finding| finding.rule.weight() != Weight::Note;
    match its.is_empty() {
        true => None,
        false if its.iter().any(is_fault) => Some(ScenarioOutcome::Failed(its)),
        false => Some(ScenarioOutcome::Noted(its)),
    }
}

/// The reason why a session without findings tells nothing about a scenario.
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
    }
}
