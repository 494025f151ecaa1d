//! `milepost check-progress`: named scenarios that test how a server, a proxy or a client treats progress.
//!
//! ```text
//! server: the sessions of `doctor` ───┐
//! proxy: reference client and server ─┼──> scenarios: results ──> report, exports
//! client: the client's own report ────┘
//! ```

pub mod client;
mod client_judge;
mod exports;
pub mod proxy;
mod report;
pub mod scenarios;
mod server;
pub(crate) mod shell;

use std::io;
use std::path::{Path, PathBuf};

use client::{ClientError, ClientTerms};
use proxy::ProxyTerms;
use scenarios::{Scenario, ScenarioSubject};

use crate::lab::color::ColorChoice;
use crate::lab::doctor::findings::Finding;
use crate::lab::doctor::traffic::TransportKind;
use crate::lab::doctor::{DoctorError, Options};

/// The program to judge, and the options.
#[derive(Debug, Clone)]
pub struct CheckProgressOptions {
    /// The program.
    pub checked: CheckedProgram,
    /// The scenarios to judge; those of other kinds of programs are left out.
    pub only: Vec<Scenario>,
    /// Whether the report on standard output is JSON.
    pub json: bool,
    /// The file for the report as JUnit XML.
    pub junit: Option<PathBuf>,
    /// The file for the report as SARIF 2.1.0.
    pub sarif: Option<PathBuf>,
}

impl CheckProgressOptions {
    /// Makes the options that judge a server by all scenarios, from the options of `doctor`.
    pub fn of_server(mut options: Options) -> Self {
        if let Some(call) = &mut options.call {
            (call.concurrent, call.without_token) = (!call.once, !call.once);
        }
        let json = std::mem::take(&mut options.session.json);
        options.session.color = ColorChoice::Never;
        let only = Scenario::of_subject(ScenarioSubject::Server).collect();
        let checked = CheckedProgram::Server(Box::new(options));
        Self { checked, only, json, junit: None, sarif: None }
    }
}

/// The program to judge.
#[derive(Debug, Clone)]
pub enum CheckedProgram {
    /// A server, with the call and the settings of each session.
    Server(Box<Options>),
    /// A proxy.
    Proxy(ProxyTerms),
    /// A client.
    Client(ClientTerms),
}

impl CheckedProgram {
    /// Returns the kind of program.
    pub const fn subject(&self) -> ScenarioSubject {
        match self {
            Self::Server(_) => ScenarioSubject::Server,
            Self::Proxy(_) => ScenarioSubject::Proxy,
            Self::Client(_) => ScenarioSubject::Client,
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct CheckedProgress {
    /// The report.
    pub text: String,
    /// Whether no scenario has failed.
    pub is_passed: bool,
    /// The transports for which the proxy did not start, each with the reason.
    pub unstarted: Vec<String>,
}

/// The reason why no report was made.
#[derive(Debug, thiserror::Error)]
pub enum CheckProgressError {
    /// The server cannot be used, or a signal came.
    #[error(transparent)]
    Server(#[from] DoctorError),
    /// The client's report contains nothing that can be judged.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A report cannot be written.
    #[error("cannot write {0}")]
    Write(PathBuf, #[source] io::Error),
}

/// A fault or remark about one scenario.
#[derive(Debug, Clone, PartialEq)]
struct ScenarioFinding {
    /// The rule of `doctor` that a server breaks; `None` for proxies and clients.
    rule: Option<&'static str>,
    /// The dialect or the method that the finding is about.
    name: Option<String>,
    count: usize,
    what: String,
    example: String,
}

impl ScenarioFinding {
    /// Makes a finding about a proxy or a client.
    fn new(what: impl Into<String>, example: impl Into<String>) -> Self {
        Self { rule: None, name: None, count: 1, what: what.into(), example: example.into() }
    }

    /// Adds a finding, or increases the count of an equal finding.
    fn add_to(self, all: &mut Vec<Self>) {
        match all.iter_mut().find(|one| one.what == self.what) {
            Some(same) => same.count += 1,
            None => all.push(self),
        }
    }
}

impl From<&Finding> for ScenarioFinding {
    fn from(finding: &Finding) -> Self {
        Self {
            rule: Some(finding.rule.name()),
            name: finding.name.clone(),
            count: finding.count,
            what: finding.rule.what().to_owned(),
            example: finding.example.clone(),
        }
    }
}

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq)]
enum ScenarioOutcome {
    /// The program fulfils the scenario.
    Passed,
    /// The program breaks the scenario, and a client or server is harmed.
    Failed(Vec<ScenarioFinding>),
    /// Remarks about behaviour that harms no client or server.
    Noted(Vec<ScenarioFinding>),
    /// The run gave no evidence; with the reason.
    NotAssessed(String),
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

    fn findings(&self) -> &[ScenarioFinding] {
        match self {
            Self::Failed(findings) | Self::Noted(findings) => findings,
            Self::Passed | Self::NotAssessed(_) => &[],
        }
    }

    /// Returns `Failed` with these findings, or `Passed` if there are none.
    fn of(findings: Vec<ScenarioFinding>) -> Self {
        if findings.is_empty() { Self::Passed } else { Self::Failed(findings) }
    }
}

/// The result of one scenario, for one revision or pair of transports.
#[derive(Debug, Clone)]
struct ScenarioResult {
    scenario: Scenario,
    /// The revision of a server, or the transports of a proxy; `None` if the result is for all of them.
    place: Option<String>,
    outcome: ScenarioOutcome,
}

impl ScenarioResult {
    /// Returns the name of the result. It is the same in each run.
    fn id(&self) -> String {
        match &self.place {
            Some(place) => format!("{}@{}", self.scenario.id(), place.replace(' ', "-")),
            None => self.scenario.id().to_owned(),
        }
    }
}

/// The kind of program that was judged.
enum Judged {
    Server { name: Option<String>, reached: String, wire: TransportKind },
    Proxy { commands: Vec<String> },
    Client { name: Option<String> },
}

impl Judged {
    const fn subject(&self) -> ScenarioSubject {
        match self {
            Self::Server { .. } => ScenarioSubject::Server,
            Self::Proxy { .. } => ScenarioSubject::Proxy,
            Self::Client { .. } => ScenarioSubject::Client,
        }
    }
}

/// The results of all scenarios.
struct ProgressReport {
    judged: Judged,
    results: Vec<ScenarioResult>,
    /// The transports for which the proxy did not start, each with the reason.
    unstarted: Vec<String>,
}

impl ProgressReport {
    fn is_passed(&self) -> bool {
        !self.results.iter().any(|result| matches!(result.outcome, ScenarioOutcome::Failed(_)))
    }
}

/// Judges a program, writes the files of the options, and returns the report.
///
/// # Errors
/// If the program cannot be used, or a file cannot be written.
pub async fn run(options: CheckProgressOptions) -> Result<CheckedProgress, CheckProgressError> {
    let CheckProgressOptions { checked, only, json, junit, sarif } = options;
    let report = match checked {
        CheckedProgram::Server(doctor) => server::judge(*doctor, &only).await?,
        CheckedProgram::Proxy(terms) => proxy::judge(terms, &only).await?,
        CheckedProgram::Client(terms) => client::judge(terms, &only).await?,
    };
    let write = |file: Option<&Path>, text: fn(&ProgressReport) -> String| match file {
        Some(file) => std::fs::write(file, text(&report))
            .map_err(|error| CheckProgressError::Write(file.to_owned(), error)),
        None => Ok(()),
    };
    write(junit.as_deref(), exports::junit)?;
    write(sarif.as_deref(), exports::sarif)?;
    let text = if json { report.json() } else { report.text() };
    Ok(CheckedProgress { text, is_passed: report.is_passed(), unstarted: report.unstarted })
}
