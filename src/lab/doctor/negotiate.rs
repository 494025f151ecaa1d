//! Finds the revisions that a server supports: the client asks for each of them in a separate connection.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::findings::{Finding, shown};
use super::link::Link;
use super::rules::Rule;
use super::traffic::TransportKind;
use super::trouble::Trouble;
use super::{DoctorError, DoctorTarget, Inspection};
use crate::config::routes::{Route, Upstream};
use crate::protocol::jsonrpc::METHOD_NOT_FOUND;
use crate::protocol::mcp::Revision;
use crate::protocol::order;

/// Deadline for the answer to `server/discover`. Servers that know the method answer immediately.
const DISCOVER_MAX: Duration = Duration::from_secs(5);

/// Deadline for the same answer through the proxy, which waits for a slow server before it answers itself.
const PROXY_ANSWERS: Duration = Duration::from_secs(15);

/// A server's answer to a revision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RevisionSupport {
    /// The server speaks the revision.
    Yes,
    /// The server speaks another revision.
    Other(String),
    /// The server does not speak the revision, with the reason.
    No(String),
}

/// Facts about a server before a tool is called.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerFacts {
    /// The server's name and version.
    pub(super) name: Option<String>,
    pub(super) revisions: Vec<(&'static str, RevisionSupport)>,
    /// The findings of the negotiation.
    pub(super) found: Vec<Finding>,
    pub(super) transport: TransportKind,
    pub(super) has_no_lifecycle: bool,
    pub(super) tools: Vec<String>,
    /// The longest time from the start of the server to the answer that begins a session.
    pub(super) slowest: Duration,
}

/// The first exchange of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionStart {
    Handshake(&'static str),
    Modern(&'static str),
    /// No handshake succeeded: calls are made without one.
    None,
}

impl SessionStart {
    pub(super) const fn revision(self) -> Option<&'static str> {
        match self {
            Self::Handshake(date) | Self::Modern(date) => Some(date),
            Self::None => None,
        }
    }
}

impl ServerFacts {
    /// Whether the server supports any known revision.
    fn has_revision(&self) -> bool {
        self.revisions.iter().any(|(_, spoken)| !matches!(spoken, RevisionSupport::No(_)))
    }
}

impl Inspection {
    /// Asks for every revision, each in a separate connection.
    pub(super) async fn negotiate(&self) -> Result<ServerFacts, DoctorError> {
        let transport = match &self.options.server {
            DoctorTarget::Http(route, _) if is_of_2024(route) => TransportKind::Sse,
            DoctorTarget::Http(..) => TransportKind::Streamable,
            DoctorTarget::Command(_) => TransportKind::Stdio,
        };
        let mut known = ServerFacts { transport, ..ServerFacts::default() };
        let wanted = |date: &str| self.options.session.revision.is_none_or(|only| only == date);
        let dates = Revision::ALL.iter().rev().map(|(_, date)| *date).filter(|date| wanted(date));
        let (modern, old): (Vec<_>, Vec<_>) =
            dates.partition(|date| Revision::from_date(date) >= Some(Revision::V2026_07_28));
        let mut first = None;
        for date in old {
            match self.ask_for(date, &mut known).await? {
                Ok(spoken) => known.revisions.push((date, spoken)),
                Err(trouble) => {
                    // Ask for another date only if that can help: a server that does not answer, or is not an MCP
                    // server, would not answer it either. Some servers end when they get a date that they do not know.
                    let may_ask_again = match &trouble {
                        Trouble::Refused { .. } => true,
                        Trouble::Ended(_) => known.revisions.is_empty(),
                        Trouble::Silent(_) | Trouble::Unreadable(..) | Trouble::Failed(_) => false,
                    };
                    if !may_ask_again && !known.has_revision() {
                        return Err(DoctorError::Server(first.unwrap_or(trouble).to_string()));
                    }
                    known.revisions.push((date, RevisionSupport::No(trouble.to_string())));
                    first.get_or_insert(trouble);
                }
            }
        }
        for date in modern {
            self.ask_modern(date, &mut known).await?;
        }
        if !known.has_revision() {
            let is_http = matches!(self.options.server, DoctorTarget::Http(..));
            match first {
                Some(trouble @ Trouble::Refused { .. }) if is_http && is_unknown(&trouble) => {
                    known.has_no_lifecycle = true;
                    known.found.retain(|finding| finding.rule != Rule::DiscoverSilent);
                    known.found.push(Finding::of(Rule::NoLifecycle, trouble.to_string()));
                }
                Some(trouble) => return Err(DoctorError::Server(trouble.to_string())),
                None => {}
            }
        }
        order::sort(&mut known.revisions);
        Ok(known)
    }

    /// Begins a session with a revision up to 2025-11-25.
    async fn ask_for(
        &self,
        date: &'static str,
        known: &mut ServerFacts,
    ) -> Result<Result<RevisionSupport, Trouble>, DoctorError> {
        self.step.show(&format!("asking for {date}"));
        let since = Instant::now();
        let mut client = self.client(self.link(known)?);
        let answer = self.unless_stopped(client.initialize(date)).await;
        known.slowest = known.slowest.max(since.elapsed());
        let entries = client.close().await;
        let mut answer = answer?.map_err(|trouble| trouble.with_clue(&entries));
        if known.transport == TransportKind::Streamable
            && known.revisions.is_empty()
            && matches!(answer, Err(Trouble::Failed(_)))
        {
            // The server may be older than Streamable HTTP.
            known.transport = TransportKind::Sse;
            let mut client = self.client(self.link(known)?);
            let again = self.unless_stopped(client.initialize(date)).await;
            client.close().await;
            match again? {
                Ok(again) => answer = Ok(again),
                Err(_) => known.transport = TransportKind::Streamable,
            }
        }
        Ok(answer.map(|answer| {
            let server = &answer["serverInfo"];
            let words = [&server["name"], &server["version"]];
            let words: Vec<&str> = words.iter().filter_map(|word| word.as_str()).collect();
            known.name.get_or_insert_with(|| shown(words.join(" ").as_bytes()));
            match answer["protocolVersion"].as_str() {
                Some(agreed) if agreed == date => RevisionSupport::Yes,
                Some(other) => RevisionSupport::Other(shown(other.as_bytes())),
                None => RevisionSupport::No("it names no protocolVersion".to_owned()),
            }
        }))
    }

    /// Asks whether the server supports 2026-07-28, with the first request of clients of that revision.
    async fn ask_modern(
        &self,
        date: &'static str,
        known: &mut ServerFacts,
    ) -> Result<(), DoctorError> {
        self.step.show(&format!("asking for {date}"));
        let mut client = self.client(self.link(known)?);
        // A server that started slowly, for example on a busy machine, will start slowly again, so it gets more time.
        let patience = DISCOVER_MAX.max(known.slowest * 3).min(self.options.session.timeout);
        let answer = self.unless_stopped(client.discover(date, patience)).await;
        client.close().await;
        let answer = answer?;
        let is_stdio = matches!(self.options.server, DoctorTarget::Command(_));
        let spoken = match answer {
            Ok(answer) => {
                let known = answer["supportedVersions"].as_array().into_iter().flatten();
                match known.filter_map(Value::as_str).any(|known| known == date) {
                    true => RevisionSupport::Yes,
                    false => RevisionSupport::No("it does not list it".to_owned()),
                }
            }
            Err(trouble) => {
                known.found.extend(fault(&trouble).filter(|_| is_stdio));
                match &trouble {
                    Trouble::Refused { .. } if is_unknown(&trouble) => {
                        RevisionSupport::No("the server does not know `server/discover`".to_owned())
                    }
                    trouble => RevisionSupport::No(trouble.to_string()),
                }
            }
        };
        known.revisions.push((date, spoken));
        Ok(())
    }

    /// Sends the same request through the proxy, and returns the fault of the answer.
    pub(super) async fn discover_again(&self, link: Link) -> Result<Option<Finding>, DoctorError> {
        let mut client = self.client(link);
        let answer = self.unless_stopped(client.discover("2026-07-28", PROXY_ANSWERS)).await;
        client.close().await;
        Ok(answer?.err().as_ref().and_then(fault))
    }

    /// Returns how the session with the calls starts. Takes the newest revision with a handshake, because most clients
    /// use a handshake.
    pub(super) fn beginning(&self, known: &ServerFacts) -> Result<SessionStart, DoctorError> {
        if known.has_no_lifecycle {
            return Ok(SessionStart::None);
        }
        let is_modern = |date: &str| Revision::from_date(date) >= Some(Revision::V2026_07_28);
        let agreed =
            known.revisions.iter().rev().filter(|(_, spoken)| *spoken == RevisionSupport::Yes);
        let agreed: Vec<&'static str> = agreed.map(|(date, _)| *date).collect();
        if let Some(date) = agreed.iter().find(|date| !is_modern(date)) {
            return Ok(SessionStart::Handshake(date));
        }
        if let Some(date) = agreed.first() {
            return Ok(SessionStart::Modern(date));
        }
        let other =
            known.revisions.iter().find(|(_, spoken)| matches!(spoken, RevisionSupport::Other(_)));
        match (other, self.options.session.revision) {
            (_, Some(only)) => Err(DoctorError::Revision(only)),
            (Some((date, _)), None) => Ok(SessionStart::Handshake(date)),
            (None, None) => {
                Err(DoctorError::Server("the server speaks no known revision".to_owned()))
            }
        }
    }
}

/// Whether the transport of the route is HTTP+SSE.
fn is_of_2024(route: &Route) -> bool {
    matches!(&route.upstream, Upstream::Http(http) if http.url.is_none())
}

/// Returns the finding for a server that does not answer the first request.
fn fault(trouble: &Trouble) -> Option<Finding> {
    let rule = match trouble {
        Trouble::Ended(_) => Rule::DiscoverEnds,
        Trouble::Silent(_) => Rule::DiscoverSilent,
        Trouble::Refused { .. } | Trouble::Unreadable(..) | Trouble::Failed(_) => return None,
    };
    Some(Finding::of(rule, trouble.to_string()))
}

/// Whether the server answered that it does not know the method.
fn is_unknown(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Refused { answer, .. }
        if answer.error_code() == Some(METHOD_NOT_FOUND))
}
