//! `milepost doctor`: what a server's progress gets wrong, and what cures it.
//!
//! ```text
//! link, web: bytes and times ──> client: entries ──> findings ──> cure ──> through: the same again
//!                                                        └──────────> report
//! ```

mod client;
pub mod cure;
pub mod findings;
mod link;
mod report;
pub mod rules;
mod through;
pub mod traffic;
mod web;

use std::time::Duration;

use serde_json::{Map, Value};
use url::Url;

use crate::host::Signals;
use crate::http::SiteError;
use crate::http::visit::Visitor;
use crate::jsonrpc::METHOD_NOT_FOUND;
use crate::mcp::Revision;
use crate::routes::{HttpUpstream, Route, RoutesError, Upstream};
use crate::serve::StartError;
use crate::settings::nearest;
use crate::transport::child::{self, Program, SpawnError};
use client::{Client, Trouble, Wanted};
use cure::{Behind, Cure};
use findings::{Examined, Finding, Terms, examine};
use link::Link;
use rules::Rule;
use through::Served;
use traffic::Wire;
use web::Web;

/// How long the answer to `server/discover` is waited for: servers that know it answer at once.
const DISCOVER_MAX: Duration = Duration::from_secs(5);

/// How long is listened behind the answer to a call: late progress comes within milliseconds.
const AFTER: Duration = Duration::from_millis(300);

/// Who the doctor says it is, unless it is told.
pub const NAME: &str = "milepost-doctor";

/// What is to be looked at, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server.
    pub server: Place,
    /// The tool to call, if one is to be called.
    pub call: Option<Ask>,
    /// The only revision to speak; otherwise all are tried, and the newest is used.
    pub revision: Option<&'static str>,
    /// How long any answer is waited for.
    pub timeout: Duration,
    /// Do it again through the proxy.
    pub through: bool,
    /// Report in JSON.
    pub json: bool,
    /// The client whose name is used, `clientInfo.name`.
    pub client: Option<String>,
    /// A longer silence during a call is a fault.
    pub silence: Duration,
}

/// A server.
#[derive(Debug, Clone)]
pub enum Place {
    /// A command.
    Command(Program),
    /// An address, with what every request has in its headers.
    Http(Box<Route>, Url),
}

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Make it twice at once.
    pub concurrent: bool,
    /// Make it once more, without a progress token.
    pub without_token: bool,
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The report.
    pub text: String,
    /// Whether a plain client would be safe.
    pub is_safe: bool,
}

/// Why nothing can be said of a server.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// It does not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Its address or certificates cannot be used.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// It is no MCP server, or cannot be reached.
    #[error("cannot talk to the server: {0}")]
    Server(String),
    /// It has no such tool.
    #[error("the server has no tool {asked:?}; {known}")]
    NoTool {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: String,
    },
    /// It does not speak the revision.
    #[error("the server does not speak {0}; without --revision the newest that it speaks is used")]
    Revision(&'static str),
    /// The proxy does not start.
    #[error("the proxy does not start")]
    Proxy(#[from] StartError),
    /// The suggested file is none.
    #[error("the suggested lines cannot be used")]
    Lines(#[from] RoutesError),
    /// The proxy's address is none.
    #[error("the proxy has no address")]
    Address(#[from] url::ParseError),
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
}

/// What a server says to a revision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Spoken {
    /// It speaks it.
    Yes,
    /// It speaks another one.
    Other(String),
    /// It does not, in words.
    No(String),
}

/// What is known of a server before a tool is called.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Name and version.
    name: Option<String>,
    revisions: Vec<(&'static str, Spoken)>,
    /// What was found while revisions were asked for.
    found: Vec<Finding>,
    is_sse: bool,
    has_no_lifecycle: bool,
    tools: Vec<String>,
}

/// How a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    Handshake(&'static str),
    Modern(&'static str),
    /// No client can begin: calls are made all the same.
    None,
}

impl Beginning {
    const fn revision(self) -> Option<&'static str> {
        match self {
            Self::Handshake(date) | Self::Modern(date) => Some(date),
            Self::None => None,
        }
    }
}

/// Looks at a server, and says what it has seen. Ends with the server and everything that it has started,
/// also at a signal.
///
/// # Errors
/// If the server cannot be talked to, or not as it was asked for.
pub async fn run(options: Options) -> Result<Outcome, DoctorError> {
    child::adopt_orphans();
    let mut signals = Signals::listen().ok();
    let signal = async {
        match &mut signals {
            Some(signals) => drop(signals.next().await),
            None => std::future::pending().await,
        }
    };
    let json = options.json;
    let doctor = Doctor { options };
    tokio::select! {
        report = doctor.look() => report.map(|report| Outcome {
            text: if json { report.json() } else { report.text() },
            is_safe: report.before.is_safe(),
        }),
        // What is dropped kills its server's group.
        () = signal => Err(DoctorError::Interrupted),
    }
}

struct Doctor {
    options: Options,
}

impl Doctor {
    async fn look(&self) -> Result<report::Report, DoctorError> {
        let mut known = self.negotiate().await?;
        let beginning = self.beginning(&known)?;
        let link = self.link(&known)?;
        let wire = self.wire(&known);
        let mut before = self.session(link, beginning, wire, &mut known).await?;
        for finding in known.found.drain(..) {
            before.add(finding);
        }
        let behind = self.behind(&known);
        let lists_tools = known.has_no_lifecycle && !known.tools.is_empty();
        let cure = cure::cure(&before, &behind, lists_tools);
        let after = match self.options.through {
            true => Some(self.through(&known, beginning, &cure, &behind).await?),
            false => None,
        };
        Ok(report::Report {
            server: cure::shown(&behind),
            wire,
            known,
            revision: beginning.revision(),
            called: self.options.call.is_some(),
            client: self.options.client.clone(),
            before,
            cure,
            after,
        })
    }

    fn name(&self) -> &str {
        self.options.client.as_deref().unwrap_or(NAME)
    }

    fn client(&self, link: Link) -> Client {
        Client::new(link, self.name(), self.options.timeout)
    }

    fn wire(&self, known: &Known) -> Wire {
        match (&self.options.server, known.is_sse) {
            (Place::Command(_), _) => Wire::Stdio,
            (Place::Http(..), false) => Wire::Streamable,
            (Place::Http(..), true) => Wire::Sse,
        }
    }

    fn behind(&self, known: &Known) -> Behind {
        match &self.options.server {
            Place::Command(program) => Behind::Command(program.command.clone()),
            Place::Http(_, url) => Behind::Http(url.clone(), known.is_sse),
        }
    }

    /// A fresh connection to the server itself.
    fn link(&self, known: &Known) -> Result<Link, DoctorError> {
        match &self.options.server {
            Place::Command(program) => Ok(Link::start(program)?),
            Place::Http(route, _) => web_link(route, known.is_sse),
        }
    }

    /// Asks for every revision, each in a connection of its own.
    async fn negotiate(&self) -> Result<Known, DoctorError> {
        let mut known = Known::default();
        let wanted = |date: &str| self.options.revision.is_none_or(|only| only == date);
        let dates = Revision::ALL.iter().rev().map(|(_, date)| *date).filter(|date| wanted(date));
        let (modern, old): (Vec<_>, Vec<_>) =
            dates.partition(|date| Revision::from_date(date) >= Some(Revision::V2026_07_28));
        let mut first = None;
        for date in old {
            match self.ask_for(date, &mut known).await? {
                Ok(spoken) => known.revisions.push((date, spoken)),
                Err(trouble) => {
                    let ended = matches!(trouble, Trouble::Ended(_));
                    known.revisions.push((date, Spoken::No(trouble.to_string())));
                    let first = first.get_or_insert(trouble);
                    // Who has said nothing, or is no MCP server, says nothing to another date either.
                    if !ended || known.revisions.len() > 2 {
                        if !matches!(first, Trouble::Refused { .. }) {
                            return Err(DoctorError::Server(first.to_string()));
                        }
                    }
                }
            }
        }
        for date in modern {
            self.ask_modern(date, &mut known).await?;
        }
        let speaks = |(_, spoken): &(&str, Spoken)| !matches!(spoken, Spoken::No(_));
        if !known.revisions.iter().any(speaks) {
            let is_http = matches!(self.options.server, Place::Http(..));
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
        known.revisions.sort();
        Ok(known)
    }

    /// Begins a session in a revision up to 2025-11-25.
    async fn ask_for(
        &self,
        date: &'static str,
        known: &mut Known,
    ) -> Result<Result<Spoken, Trouble>, DoctorError> {
        let mut client = self.client(self.link(known)?);
        let mut said = client.initialize(date).await;
        client.close().await;
        let is_http = matches!(self.options.server, Place::Http(..));
        if is_http && known.revisions.is_empty() && matches!(said, Err(Trouble::Failed(_))) {
            // It may be older than Streamable HTTP.
            known.is_sse = true;
            let mut client = self.client(self.link(known)?);
            let again = client.initialize(date).await;
            client.close().await;
            match again {
                Ok(_) => said = again,
                Err(_) => known.is_sse = false,
            }
        }
        Ok(said.map(|said| {
            let server = &said["serverInfo"];
            let words = [&server["name"], &server["version"]];
            let words: Vec<&str> = words.iter().filter_map(|word| word.as_str()).collect();
            known.name.get_or_insert_with(|| findings::shown(words.join(" ").as_bytes()));
            match said["protocolVersion"].as_str() {
                Some(agreed) if agreed == date => Spoken::Yes,
                Some(other) => Spoken::Other(findings::shown(other.as_bytes())),
                None => Spoken::No("it names no protocolVersion".to_owned()),
            }
        }))
    }

    /// Asks as a client of 2026-07-28 begins.
    async fn ask_modern(&self, date: &'static str, known: &mut Known) -> Result<(), DoctorError> {
        let mut client = self.client(self.link(known)?);
        let patience = DISCOVER_MAX.min(self.options.timeout);
        let said = client.discover(date, patience).await;
        client.close().await;
        let is_stdio = matches!(self.options.server, Place::Command(_));
        let spoken = match said {
            Ok(said) => {
                let known = said["supportedVersions"].as_array().into_iter().flatten();
                match known.filter_map(Value::as_str).any(|known| known == date) {
                    true => Spoken::Yes,
                    false => Spoken::No("it does not list it".to_owned()),
                }
            }
            Err(trouble) => {
                let rule = match trouble {
                    Trouble::Ended(_) => Some(Rule::DiscoverEnds),
                    Trouble::Silent(_) => Some(Rule::DiscoverSilent),
                    Trouble::Refused { .. } | Trouble::Failed(_) => None,
                };
                if let Some(rule) = rule.filter(|_| is_stdio) {
                    known.found.push(Finding::of(rule, trouble.to_string()));
                }
                match &trouble {
                    Trouble::Refused { .. } if is_unknown(&trouble) => {
                        Spoken::No("it does not know `server/discover`".to_owned())
                    }
                    trouble => Spoken::No(trouble.to_string()),
                }
            }
        };
        known.revisions.push((date, spoken));
        Ok(())
    }

    /// How the session with the calls begins: in the newest revision that has a handshake, as most clients
    /// have one.
    fn beginning(&self, known: &Known) -> Result<Beginning, DoctorError> {
        if known.has_no_lifecycle {
            return Ok(Beginning::None);
        }
        let is_modern = |date: &str| Revision::from_date(date) >= Some(Revision::V2026_07_28);
        let agreed = known.revisions.iter().rev().filter(|(_, spoken)| *spoken == Spoken::Yes);
        let agreed: Vec<&'static str> = agreed.map(|(date, _)| *date).collect();
        if let Some(date) = agreed.iter().find(|date| !is_modern(date)) {
            return Ok(Beginning::Handshake(date));
        }
        if let Some(date) = agreed.first() {
            return Ok(Beginning::Modern(date));
        }
        let other = known.revisions.iter().find(|(_, spoken)| matches!(spoken, Spoken::Other(_)));
        match (other, self.options.revision) {
            (_, Some(only)) => Err(DoctorError::Revision(only)),
            (Some((date, _)), None) => Ok(Beginning::Handshake(date)),
            (None, None) => Err(DoctorError::Server("it speaks no known revision".to_owned())),
        }
    }

    /// One session: tools are listed and called, and what has been seen is judged.
    async fn session(
        &self,
        link: Link,
        beginning: Beginning,
        wire: Wire,
        known: &mut Known,
    ) -> Result<Examined, DoctorError> {
        let mut client = self.client(link);
        let done = self.visit(&mut client, beginning, known).await;
        let entries = client.close().await;
        let unanswered = done?;
        let knows_arrays = beginning.revision() == Some("2025-03-26");
        let silence_max = self.options.silence;
        let mut examined = examine(&entries, Terms { wire, knows_arrays, silence_max });
        if let Some(why) = unanswered {
            examined.explain(Rule::NoAnswer, why.to_string());
        }
        Ok(examined)
    }

    /// Begins, lists and calls; answers with why a call has no answer, if one has none.
    async fn visit(
        &self,
        client: &mut Client,
        beginning: Beginning,
        known: &mut Known,
    ) -> Result<Option<Trouble>, DoctorError> {
        let trouble = |trouble: Trouble| DoctorError::Server(trouble.to_string());
        match beginning {
            Beginning::Handshake(date) => drop(client.initialize(date).await.map_err(trouble)?),
            Beginning::Modern(date) => {
                drop(client.discover(date, self.options.timeout).await.map_err(trouble)?);
            }
            // Servers written by hand may take the id 0 for none.
            Beginning::None => client.next_id = 1,
        }
        known.tools = match beginning {
            Beginning::None => client.tools_elsewhere().await.unwrap_or_default(),
            _ => match client.tools().await {
                Ok(tools) => tools,
                // A server need not have tools.
                Err(Trouble::Refused { .. }) => Vec::new(),
                Err(other) => return Err(trouble(other)),
            },
        };
        let Some(ask) = &self.options.call else { return Ok(None) };
        if !known.tools.contains(&ask.tool) && !known.has_no_lifecycle {
            return Err(no_tool(&ask.tool, &known.tools));
        }
        let wanted = Wanted {
            tool: ask.tool.clone(),
            arguments: ask.arguments.clone(),
            at_once: if ask.concurrent { 2 } else { 1 },
            without_token: ask.without_token,
        };
        Ok(client.call(&wanted, AFTER).await.err())
    }

    /// The same session behind the proxy.
    async fn through(
        &self,
        known: &Known,
        beginning: Beginning,
        cure: &Cure,
        behind: &Behind,
    ) -> Result<Examined, DoctorError> {
        let mut routes = cure::routes(cure, behind)?;
        // With what is answered in its place, a server has a beginning.
        let beginning = match beginning {
            Beginning::None => Beginning::Handshake("2025-06-18"),
            other => other,
        };
        let mut again = Known { found: Vec::new(), has_no_lifecycle: false, ..known.clone() };
        match &self.options.server {
            Place::Command(program) => {
                let route = routes.find(None)?;
                let link = Link::start_proxied(routes.policy(route), program)?;
                self.session(link, beginning, Wire::Stdio, &mut again).await
            }
            Place::Http(route, _) => {
                routes.set_request_headers(&route.request_headers);
                let served = Served::start(&routes).await?;
                let wire = self.wire(known);
                let done = async {
                    let url = served.url(known.is_sse)?;
                    let link = web_link(
                        &Route::new("/".to_owned(), Upstream::Http(HttpUpstream::new(url))),
                        known.is_sse,
                    )?;
                    self.session(link, beginning, wire, &mut again).await
                };
                let done = done.await;
                served.end().await;
                done
            }
        }
    }
}

fn web_link(route: &Route, is_sse: bool) -> Result<Link, DoctorError> {
    match Visitor::new(route)? {
        Some(visitor) => Ok(Link::over_http(Web::new(visitor, is_sse))),
        None => Err(DoctorError::Server("it has no address".to_owned())),
    }
}

/// Whether the method is not known to the server.
fn is_unknown(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Refused { answer, .. }
        if answer.0.error_code() == Some(METHOD_NOT_FOUND))
}

fn no_tool(asked: &str, tools: &[String]) -> DoctorError {
    let names = || tools.iter().map(String::as_str);
    let known = match nearest(asked, names()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if tools.is_empty() => "it has none".to_owned(),
        None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
    };
    DoctorError::NoTool { asked: asked.to_owned(), known }
}
