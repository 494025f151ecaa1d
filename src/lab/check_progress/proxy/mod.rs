//! Tests a proxy, with the reference server behind it and the reference client in front of it. Each act has its own
//! session and its own process of the proxy, so that no fault hides another fault.

mod acts;
mod calls;
mod judge;
mod process;
mod template;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;
use tempfile::NamedTempFile;
use tokio::sync::watch;

pub use self::template::{ProxyTemplate, TemplateError};
use acts::{ActRecord, PairTerms, ProxyAct};

use super::scenarios::{Scenario, ScenarioSubject};
use super::shell;
use super::{Judged, ProgressReport, ScenarioOutcome, ScenarioResult};
use crate::lab::doctor::DoctorError;
use crate::lab::doctor::revisions::until_signals;
use crate::lab::reference::seen::{SeenFacts, SeenNotes};
use crate::lab::reference::{ReferenceHttp, ReferenceTerms};
use crate::protocol::mcp::Revision;

/// The proxy to judge.
#[derive(Debug, Clone)]
pub struct ProxyTerms {
    /// The command lines of the proxy, one for each pair of transports.
    pub templates: Vec<ProxyTemplate>,
    /// Deadline for an answer.
    pub timeout: Duration,
    /// How long the long calls take; `None` if no long call is made.
    pub long: Option<Duration>,
    /// The revision that the client asks for.
    pub revision: &'static str,
}

impl ProxyTerms {
    /// Whether the revision has no sessions: 2026-07-28.
    fn is_modern(&self) -> bool {
        self.revision >= Revision::V2026_07_28.date()
    }
}

/// Judges a proxy by the scenarios of `only` that are for proxies.
pub(super) async fn judge(
    terms: ProxyTerms,
    only: &[Scenario],
) -> Result<ProgressReport, DoctorError> {
    let (tell, stop) = watch::channel(false);
    until_signals(&tell, in_each_pair(terms, only, stop)).await
}

async fn in_each_pair(
    terms: ProxyTerms,
    only: &[Scenario],
    stop: watch::Receiver<bool>,
) -> Result<ProgressReport, DoctorError> {
    let (mut results, mut unstarted) = (Vec::new(), Vec::new());
    let mut places: LiteMap<_, _> = LiteMap::new();
    for template in &terms.templates {
        let count = places.entry(template.pair()).or_insert(0);
        *count += 1;
        let place = match *count {
            1 => template.pair(),
            again => format!("{} {again}", template.pair()),
        };
        let mut stopped = stop.clone();
        let outcomes = tokio::select! {
            outcomes = pair(&terms, template, only) => outcomes?,
            _ = stopped.wait_for(|stop| *stop) => return Err(DoctorError::Interrupted),
        };
        unstarted.extend(outcomes.unstarted.map(|why| format!("{place}: {why}")));
        for (scenario, outcome) in outcomes.all {
            if only.contains(&scenario) {
                results.push(ScenarioResult { scenario, place: Some(place.clone()), outcome });
            }
        }
    }
    let commands = terms.templates.iter().map(ToString::to_string).collect();
    Ok(ProgressReport { judged: Judged::Proxy { commands }, results, unstarted })
}

/// The outcomes of all scenarios for one pair of transports.
struct PairOutcomes {
    all: Vec<(Scenario, ScenarioOutcome)>,
    /// The reason, if the proxy does not start.
    unstarted: Option<String>,
}

/// Judges the scenarios for one pair of transports.
async fn pair(
    terms: &ProxyTerms,
    template: &ProxyTemplate,
    only: &[Scenario],
) -> Result<PairOutcomes, DoctorError> {
    let failed = |error: std::io::Error| DoctorError::Server(format!("no file for notes: {error}"));
    let notes = NamedTempFile::new().map_err(failed)?;
    let seen = SeenNotes::append(notes.path()).map_err(failed)?;
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let (seen, is_modern) = (Arc::new(seen), terms.is_modern());
    let reference = ReferenceTerms { notes: seen, silence: Duration::ZERO, is_modern };
    let reference = ReferenceHttp::listen(loopback, reference).await.map_err(failed)?;
    let modern = is_modern.then_some(Revision::V2026_07_28);
    let server = shell::server_command(Some(notes.path()), None, modern);
    let (url, sse) = (reference.url(), reference.sse_url());
    let places = [("{server}", &*server), ("{url}", &*url), ("{sse}", &*sse)];
    let places = places.map(|(place, text)| (place, text.to_owned()));
    let pair = PairTerms { terms, template, notes: notes.path(), places: places.to_vec() };
    let mut records: Vec<ActRecord> = Vec::new();
    for act in ProxyAct::ALL {
        if !act.is_for(only, terms, template) {
            continue;
        }
        let record = pair.play(act).await?;
        let has_begun = record.has_begun;
        records.push(record);
        // If the proxy does not start in the first act, skip the other acts: each would wait for it again.
        if !has_begun && records.len() == 1 {
            break;
        }
    }
    let facts = SeenFacts::read(notes.path());
    let outcome = |scenario| (scenario, judge::outcome(scenario, &records, &facts, &pair));
    let all = Scenario::of_subject(ScenarioSubject::Proxy).map(outcome).collect();
    let unstarted = records.into_iter().find(|record| !record.has_started);
    Ok(PairOutcomes { all, unstarted: unstarted.and_then(|record| record.trouble) })
}
