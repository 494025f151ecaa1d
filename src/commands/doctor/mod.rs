//! `milepost doctor`: the faults of a server's progress, and their cures.
//!
//! ```text
//! link, web: bytes and times ──> client: entries ──> examine: findings ──> cure ──> through: again
//!                                                                  └───────────────────> report
//! ```

pub mod added;
mod client;
pub mod content;
pub mod cure;
pub mod examine;
pub mod findings;
pub mod habits;
mod link;
mod negotiate;
mod report;
pub mod revisions;
pub mod rules;
mod through;
pub mod traffic;
mod trouble;
mod web;

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Map, Value};
use tokio::sync::watch;
use url::Url;

use crate::config::routes::{HttpUpstream, Route, RoutesError, Upstream};
use crate::config::values::{nearest, positive_time};
use crate::gateway::listen::StartError;
use crate::observe::error_chain::error_chain;
use crate::protocol::mcp::Revision;
use crate::transport::child::{Program, SpawnError};
use crate::transport::mcp_http::raw_client::RawHttpClient;
use crate::transport::mcp_http::target::TargetError;
use added::AddedProgress;
use client::{CallPlan, DoctorClient};
use cure::{Behind, Cure};
use examine::examine_through;
use findings::{Answer, Examined, Finding, ObservedCall, Terms};
use link::Link;
use negotiate::{ServerFacts, SessionStart};
use revisions::until_signals;
use rules::Rule;
use through::Served;
use traffic::TransportKind;
use trouble::Trouble;
use web::Web;

/// The time that `doctor` reads on after the answer to a call: late progress comes within milliseconds.
const AFTER: Duration = Duration::from_millis(300);

/// The default client name of the doctor.
pub const NAME: &str = "milepost-doctor";

/// The server to examine, and the options.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server.
    pub server: DoctorTarget,
    /// The tool to call, if one is to be called.
    pub call: Option<RequestedCall>,
    /// The settings of each session.
    pub session: SessionArgs,
}

/// The options of a session with a server.
#[derive(Debug, Clone, clap::Args)]
pub struct SessionArgs {
    /// Do the same again through the proxy, with the lines that are suggested, and compare
    #[arg(long)]
    pub through: bool,
    /// The longest wait for an answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time)]
    pub timeout: Duration,
    /// The longest time during a call without a message to the client
    #[arg(long, value_name = "TIME", default_value = "11s", value_parser = positive_time)]
    pub silence: Duration,
    /// Ask for this revision alone [default: ask for all, call in the newest with a handshake]
    #[arg(long, value_name = "DATE", value_parser = revision())]
    pub revision: Option<&'static str>,
    /// Use the name of this client (`clientInfo.name`), and print the known facts about the client
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
    /// Report in JSON, on one line (docs/doctor.md)
    #[arg(long)]
    pub json: bool,
}

/// Parses a date of the specification.
pub fn revision() -> impl TypedValueParser<Value = &'static str> {
    let dates = Revision::ALL.map(|(_, date)| date);
    PossibleValuesParser::new(dates).try_map(move |said| {
        dates.into_iter().find(|date| *date == said).ok_or("not a revision of the specification")
    })
}

/// A server.
#[derive(Debug, Clone)]
pub enum DoctorTarget {
    /// A command.
    Command(Program),
    /// An address, with the headers of every request.
    Http(Box<Route>, Url),
}

/// A call to be made.
#[derive(Debug, Clone)]
pub struct RequestedCall {
    /// The tool.
    pub tool: String,
    /// The arguments of the tool.
    pub arguments: Map<String, Value>,
    /// Make it twice at once.
    pub concurrent: bool,
    /// Make it once more, without a progress token.
    pub without_token: bool,
    /// Make no call to try what a silent call needs.
    pub once: bool,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct DoctorResult {
    /// The report.
    pub text: String,
    /// Whether a plain client would be safe.
    pub is_safe: bool,
}

/// The reason why there is no report on a server.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The server does not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The address or the certificates cannot be used.
    #[error(transparent)]
    Site(#[from] TargetError),
    /// The server is not an MCP server, or is not reachable.
    #[error("cannot use the server: {0}")]
    Server(String),
    /// The server has no such tool.
    #[error("the server has no tool {asked:?}; {known}")]
    NoTool {
        /// The requested tool.
        asked: String,
        /// The tools of the server.
        known: String,
    },
    /// The server does not speak the revision.
    #[error(
        "the server does not speak {0}; without --revision Milepost uses the newest revision of the server"
    )]
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

/// Examines a server and returns the report. At the end, also after a signal, ends the server with
/// all its descendants.
///
/// # Errors
/// If the server cannot be used, or not with these options.
pub async fn run(options: Options) -> Result<DoctorResult, DoctorError> {
    let (tell, stop) = watch::channel(false);
    let json = options.session.json;
    let doctor = Inspection { options, stop };
    let report = until_signals(&tell, doctor.inspect()).await?;
    Ok(DoctorResult {
        text: if json { report.json() } else { report.text() },
        is_safe: report.before.is_safe(),
    })
}

/// The terms of one session.
#[derive(Default)]
struct SessionTerms {
    wire: TransportKind,
    /// The notifications that the proxy adds in it.
    added: AddedProgress,
    /// The client opens no GET stream.
    without_get: bool,
    /// The tool is called with the token in its arguments too.
    token_in_arguments: bool,
}

struct Inspection {
    options: Options,
    /// Whether a signal has asked `doctor` to stop.
    stop: watch::Receiver<bool>,
}

impl Inspection {
    async fn inspect(&self) -> Result<report::DoctorReport, DoctorError> {
        let mut known = self.negotiate().await?;
        let beginning = self.beginning(&known)?;
        let link = self.link(&known)?;
        let wire = self.wire(&known);
        let plain = SessionTerms { wire, ..SessionTerms::default() };
        let mut before = self.session(link, beginning, &plain, &mut known).await?;
        if self.is_silent(&before) {
            self.try_arguments(&known, beginning, wire, &mut before).await?;
        }
        for finding in known.found.drain(..) {
            before.add(finding);
        }
        let behind = self.behind(&known);
        let lists_tools = known.has_no_lifecycle && !known.tools.is_empty();
        let cure = cure::cure(&before, &behind, lists_tools, known.name.as_deref());
        let after = match self.options.session.through {
            true => match self.through(&known, beginning, &cure, &behind, &before).await {
                Err(DoctorError::Interrupted) => return Err(DoctorError::Interrupted),
                after => Some(after.map_err(|error| error_chain(&error))),
            },
            false => None,
        };
        let after = after.map(|after| after.map(|after| after.without_new_habits(&before)));
        Ok(report::DoctorReport {
            server: cure::shown(&behind),
            wire,
            known,
            revision: beginning.revision(),
            called: self.options.call.is_some(),
            client: self.options.session.client.clone(),
            before,
            cure,
            after,
        })
    }

    /// Runs `doing` unless `doctor` is to stop, so that started servers can be ended in good order.
    async fn unless_stopped<T>(&self, doing: impl Future<Output = T>) -> Result<T, DoctorError> {
        let mut stop = self.stop.clone();
        tokio::select! {
            done = doing => Ok(done),
            _ = stop.wait_for(|stop| *stop) => Err(DoctorError::Interrupted),
        }
    }

    fn name(&self) -> &str {
        self.options.session.client.as_deref().unwrap_or(NAME)
    }

    fn client(&self, link: Link) -> DoctorClient {
        DoctorClient::new(link, self.name(), self.options.session.timeout)
    }

    fn wire(&self, known: &ServerFacts) -> TransportKind {
        match (&self.options.server, known.is_sse) {
            (DoctorTarget::Command(_), _) => TransportKind::Stdio,
            (DoctorTarget::Http(..), false) => TransportKind::Streamable,
            (DoctorTarget::Http(..), true) => TransportKind::Sse,
        }
    }

    fn behind(&self, known: &ServerFacts) -> Behind {
        match &self.options.server {
            DoctorTarget::Command(program) => Behind::Command(program.command.clone()),
            DoctorTarget::Http(_, url) => Behind::Http(url.clone(), known.is_sse),
        }
    }

    /// A fresh connection to the server itself.
    fn link(&self, known: &ServerFacts) -> Result<Link, DoctorError> {
        match &self.options.server {
            DoctorTarget::Command(program) => Ok(Link::start(program)?),
            DoctorTarget::Http(route, _) => web_link(route, known.is_sse),
        }
    }

    /// Runs one session: lists tools, calls them, and judges the conversation.
    async fn session(
        &self,
        link: Link,
        beginning: SessionStart,
        terms: &SessionTerms,
        known: &mut ServerFacts,
    ) -> Result<Examined, DoctorError> {
        let mut client = self.client(link);
        client.listens = !terms.without_get;
        let copies = terms.token_in_arguments;
        let done = self.unless_stopped(self.visit(&mut client, beginning, copies, known)).await;
        let entries = client.close().await;
        let unanswered = done??;
        let knows_arrays = beginning.revision() == Some("2025-03-26");
        let silence_max = self.options.session.silence;
        let judged = Terms { wire: terms.wire, knows_arrays, silence_max };
        let mut examined = examine_through(&entries, judged, &terms.added);
        if let Some(why) = unanswered {
            examined.explain(Rule::NoAnswer, why.to_string());
        }
        Ok(examined)
    }

    /// Begins, lists and calls; answers with why a call has no answer, if one has none.
    async fn visit(
        &self,
        client: &mut DoctorClient,
        beginning: SessionStart,
        token_in_arguments: bool,
        known: &mut ServerFacts,
    ) -> Result<Option<Trouble>, DoctorError> {
        let trouble = |trouble: Trouble| DoctorError::Server(trouble.to_string());
        match beginning {
            SessionStart::Handshake(date) => drop(client.initialize(date).await.map_err(trouble)?),
            SessionStart::Modern(date) => {
                drop(client.discover(date, self.options.session.timeout).await.map_err(trouble)?);
            }
            // Servers written by hand may take the id 0 for none.
            SessionStart::None => client.next_id = 1,
        }
        known.tools = match beginning {
            SessionStart::None => client.tools_elsewhere().await.unwrap_or_default(),
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
        let wanted = CallPlan {
            tool: ask.tool.clone(),
            arguments: ask.arguments.clone(),
            at_once: if ask.concurrent && !token_in_arguments { 2 } else { 1 },
            without_token: ask.without_token && !token_in_arguments,
            token_in_arguments,
        };
        Ok(client.call(&wanted, AFTER).await.err())
    }

    /// Whether the tool has answered, and nothing that was seen of its calls is progress.
    fn is_silent(&self, before: &Examined) -> bool {
        let can_try = self
            .options
            .call
            .as_ref()
            .is_some_and(|ask| !ask.once && !ask.arguments.contains_key("_meta"));
        let answered = |call: &ObservedCall| call.answer == Answer::Result && call.reports == 0;
        let has_text = before.count(Rule::LogProgress) + before.count(Rule::AsideProgress) > 0;
        can_try && !has_text && !before.calls.is_empty() && before.calls.iter().all(answered)
    }

    /// Calls the tool in a session of its own, with the token in its arguments: some servers look for it
    /// there. If the server reports progress then, that is a finding.
    async fn try_arguments(
        &self,
        known: &ServerFacts,
        beginning: SessionStart,
        wire: TransportKind,
        before: &mut Examined,
    ) -> Result<(), DoctorError> {
        let terms = SessionTerms { wire, token_in_arguments: true, ..SessionTerms::default() };
        let link = self.link(known)?;
        let tried = self.session(link, beginning, &terms, &mut known.clone()).await;
        let tried = match tried {
            Ok(tried) => tried,
            Err(DoctorError::Interrupted) => return Err(DoctorError::Interrupted),
            // The server may refuse what it does not know: then the call stays silent.
            Err(_) => return Ok(()),
        };
        let Some(call) = tried.calls.iter().find(|call| call.reports > 0) else { return Ok(()) };
        let (tool, reports) = (&call.tool, call.reports);
        before.add(Finding {
            count: reports,
            name: Some(tool.clone()),
            content: tried.told.clone(),
            ..Finding::of(
                Rule::TokenInArguments,
                format!("{tool} reports {reports} times with the token in its arguments"),
            )
        });
        Ok(())
    }

    /// Repeats the session behind the proxy; `before` has the findings without the proxy.
    async fn through(
        &self,
        known: &ServerFacts,
        beginning: SessionStart,
        cure: &Cure,
        behind: &Behind,
        before: &Examined,
    ) -> Result<Examined, DoctorError> {
        let mut routes = cure::routes(cure, behind)?;
        // With what is answered in its place, a server has a beginning.
        let beginning = match beginning {
            SessionStart::None => SessionStart::Handshake("2025-06-18"),
            other => other,
        };
        let mut terms = SessionTerms {
            wire: self.wire(known),
            // `own_get` is for clients that open no GET stream.
            without_get: before.uses_get,
            ..SessionTerms::default()
        };
        let mut again = ServerFacts { found: Vec::new(), has_no_lifecycle: false, ..known.clone() };
        match &self.options.server {
            DoctorTarget::Command(program) => {
                let route = routes.find(None)?;
                let policy = routes.policy(route);
                let link = Link::start_proxied(policy.clone(), program, &terms.added)?;
                terms.wire = TransportKind::Stdio;
                let mut after = self.session(link, beginning, &terms, &mut again).await?;
                if before.count(Rule::DiscoverEnds) + before.count(Rule::DiscoverSilent) > 0 {
                    let link = Link::start_proxied(policy, program, &terms.added)?;
                    let found = self.discover_again(link).await?;
                    found.into_iter().for_each(|finding| after.add(finding));
                }
                Ok(after)
            }
            DoctorTarget::Http(route, _) => {
                routes.set_request_headers(&route.request_headers);
                let served = Served::start(&routes, &terms.added).await?;
                let done = async {
                    let url = served.url(known.is_sse)?;
                    let link = web_link(
                        &Route::new("/".to_owned(), Upstream::Http(HttpUpstream::new(url))),
                        known.is_sse,
                    )?;
                    self.session(link, beginning, &terms, &mut again).await
                };
                let done = done.await;
                served.end().await;
                done
            }
        }
    }
}

fn web_link(route: &Route, is_sse: bool) -> Result<Link, DoctorError> {
    match RawHttpClient::new(route)? {
        Some(visitor) => Ok(Link::over_http(Web::new(visitor, is_sse))),
        None => Err(DoctorError::Server("the server has no address".to_owned())),
    }
}

fn no_tool(asked: &str, tools: &[String]) -> DoctorError {
    let names = || tools.iter().map(String::as_str);
    let known = match nearest(asked, names()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if tools.is_empty() => "the server has no tools".to_owned(),
        None => {
            format!(
                "its tools are {}",
                findings::shown(names().collect::<Vec<_>>().join(", ").as_bytes())
            )
        }
    };
    DoctorError::NoTool { asked: asked.to_owned(), known }
}
