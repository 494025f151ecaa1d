//! Tests a client: the reference server sends it correct and faulty progress. The client itself reports what it showed,
//! and whether it survived.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::timeout;

use super::client_judge;
use super::scenarios::{Scenario, ScenarioSubject};
use super::shell;
use super::{CheckProgressError, Judged, ProgressReport, ScenarioResult};
use crate::lab::doctor::DoctorError;
use crate::lab::doctor::revisions::until_signals;
use crate::lab::reference::seen::SeenNotes;
use crate::lab::reference::{ReferenceHttp, ReferenceTerms};
use crate::transport::child::{self, ChildProcess, Grace, SpawnError, Stderr};

/// Maximum number of bytes of a report. A report about two thousand notifications takes a twentieth of that.
const REPORT_BYTES_MAX: u64 = 4 << 20;

/// Deadlines for a driver to end.
const GRACE: Grace = Grace { exit: Duration::from_secs(2), term: Duration::from_secs(2) };

/// The client to judge.
#[derive(Debug, Clone)]
pub struct ClientTerms {
    /// Where the report comes from.
    pub source: ReportSource,
    /// The address at which the reference server listens for HTTP.
    pub listen: SocketAddr,
    /// How long the tool `silent` takes.
    pub silence: Duration,
    /// Deadline for one run of the driver.
    pub timeout: Duration,
}

/// The origin of the report.
#[derive(Debug, Clone)]
pub enum ReportSource {
    /// The command line of a driver, which writes the report to its standard output.
    Driver(String),
    /// A file.
    File(PathBuf),
    /// Standard input, after the operator has called the tools.
    Operator,
}

/// The reason why a client cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The driver does not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The reference server cannot listen.
    #[error("cannot listen at {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The driver did not end before the deadline.
    #[error("the driver did not end within {0:?} and was ended; it was to call `{1}`")]
    Hangs(Duration, &'static str),
    /// The report cannot be read.
    #[error("cannot read the report")]
    Read(#[source] io::Error),
    /// The report is missing.
    #[error(
        "no report: a line with an object with `calls` is expected (docs/check-progress.md), not {0:?}"
    )]
    NoReport(String),
}

/// The report of a client. Other members are allowed.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ClientReport {
    /// The name of the client.
    #[serde(default)]
    pub(super) client: Option<String>,
    pub(super) calls: Vec<ReportedCall>,
    /// The errors that the client reported.
    #[serde(default)]
    pub(super) errors: Vec<String>,
}

/// One call of a report.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ReportedCall {
    pub(super) tool: String,
    /// `result`, `error` or `timeout`.
    pub(super) outcome: String,
    /// Each notification that was shown: progress, total, message.
    #[serde(default)]
    pub(super) progress: Vec<Vec<Value>>,
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// Judges a client by the scenarios of `only` that are for clients.
pub(super) async fn judge(
    terms: ClientTerms,
    only: &[Scenario],
) -> Result<ProgressReport, CheckProgressError> {
    let wanted: Vec<Scenario> =
        Scenario::of_subject(ScenarioSubject::Client).filter(|one| only.contains(one)).collect();
    let (tell, stop) = watch::channel(false);
    let asked = until_signals(&tell, async {
        let mut stop = stop;
        tokio::select! {
            reports = reports(&terms, &wanted) => Ok(reports),
            _ = stop.wait_for(|stop| *stop) => Err(DoctorError::Interrupted),
        }
    });
    let reports = asked.await??;
    let outcome = |scenario: &Scenario| ScenarioResult {
        scenario: *scenario,
        place: None,
        outcome: client_judge::outcome(*scenario, &reports),
    };
    let results = wanted.iter().map(outcome).collect();
    let name = reports.iter().find_map(|report| report.client.clone());
    Ok(ProgressReport { judged: Judged::Client { name }, results, unstarted: Vec::new() })
}

async fn reports(
    terms: &ClientTerms,
    wanted: &[Scenario],
) -> Result<Vec<ClientReport>, ClientError> {
    if let ReportSource::File(file) = &terms.source {
        return Ok(vec![read(&text_of(file).map_err(ClientError::Read)?)?]);
    }
    let (notes, silence) = (Arc::new(SeenNotes::none()), terms.silence);
    let reference = ReferenceTerms { notes, silence, is_modern: false };
    let listens = ReferenceHttp::listen(terms.listen, reference).await;
    let server = listens.map_err(|error| ClientError::Listen(terms.listen, error))?;
    let ReportSource::Driver(driver) = &terms.source else {
        eprint!("{}", instructions(&server, wanted));
        let text = all_of(tokio::io::stdin()).await.map_err(ClientError::Read)?;
        return Ok(vec![read(&text)?]);
    };
    let (command, url, sse) =
        (shell::server_command(None, Some(silence), None), server.url(), server.sse_url());
    let mut reports = Vec::new();
    for scenario in wanted {
        let tool = tool(*scenario);
        let places =
            [("{server}", &*command), ("{url}", &*url), ("{sse}", &*sse), ("{tool}", tool)];
        let line = shell::filled(driver, &places);
        reports.push(read(&drive(&line, tool, terms.timeout + terms.silence).await?)?);
        if !driver.contains("{tool}") {
            break;
        }
    }
    Ok(reports)
}

/// Returns the tool whose calls show a scenario.
pub(super) fn tool(scenario: Scenario) -> &'static str {
    scenario.id().split_once('/').map_or("correct", |(_, tool)| tool)
}

/// Returns the instructions for the operator.
fn instructions(server: &ReferenceHttp, wanted: &[Scenario]) -> String {
    let tools: Vec<&str> = wanted.iter().map(|scenario| tool(*scenario)).collect();
    format!(
        "The server listens at {} (HTTP+SSE: {}); on standard streams it is `milepost check-progress --serve`.\n\
         With the client call each of these tools, and `correct` after each: {}.\n\
         Then write the report (docs/check-progress.md) to standard input, and end it (Ctrl-D).\n",
        server.url(),
        server.sse_url(),
        tools.join(", "),
    )
}

/// Runs a driver, and returns its output. Afterwards ends the driver with all its descendants.
async fn drive(line: &str, tool: &'static str, patience: Duration) -> Result<String, ClientError> {
    let (mut child, pipes) = child::spawn(&shell::program(line), Stderr::Inherit)?;
    // Close the driver's standard input: a driver gets no input.
    drop(pipes.stdin);
    let said = timeout(patience, all_of(pipes.stdout)).await;
    end(&mut child).await;
    match said {
        Ok(said) => said.map_err(ClientError::Read),
        Err(_) => Err(ClientError::Hangs(patience, tool)),
    }
}

async fn end(child: &mut ChildProcess) {
    child.note_descendants().await;
    child.shut_down(GRACE).await;
}

fn text_of(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(REPORT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn all_of(from: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(REPORT_BYTES_MAX).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds the report in a text: either the whole text or, else, the last line that is a report.
fn read(text: &str) -> Result<ClientReport, ClientError> {
    let whole = serde_json::from_str(text).ok();
    let line = || text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    whole.or_else(line).ok_or_else(|| {
        let said = text.lines().last().unwrap_or_default();
        ClientError::NoReport(crate::lab::doctor::findings::shown(said.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_the_last_line_that_is_one() {
        let text = "starting\n{\"calls\":[{\"tool\":\"late\",\"outcome\":\"result\"}]}\nbye\n";
        assert_eq!(read(text).unwrap().calls[0].tool, "late");
        assert!(read("{\n\"client\":\"c\",\n\"calls\":[]}").is_ok());
        assert!(matches!(read("{}\n"), Err(ClientError::NoReport(_))));
    }
}
