//! `milepost doctor`: finds the faults of a server's progress, and their cures.
//!
//! ```text
//! link, web: bytes and times ──> client: entries ──> examine: findings ──> cure ──> through: again
//!                                                                  └───────────────────> report
//! ```

pub mod added;
mod call;
pub(in crate::lab) mod client;
mod client_choice;
mod clue;
pub mod content;
pub mod cure;
pub mod draft;
mod error;
pub mod examine;
pub mod findings;
pub mod grade;
pub mod habits;
mod legible;
mod line_editor;
pub(in crate::lab) mod link;
mod member_names;
mod negotiate;
pub mod playground;
mod real_calls;
mod refused_call;
mod replaced;
mod report;
mod required_arguments;
pub mod revisions;
pub mod rules;
mod silent_call;
mod step_line;
mod through;
pub mod traffic;
pub(in crate::lab) mod trouble;
pub(in crate::lab) mod web;

use std::pin::pin;
use std::time::Duration;

use added::AddedProgress;
use call::{CallPlan, GivenToken};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use client::DoctorClient;
use client_choice::ClientChoice;
use cure::{Behind, Cure, CureTerms};
use examine::examine_through;
use findings::{Examined, Terms};
use grade::Grade;
use link::Link;
use negotiate::{ServerFacts, SessionStart};
use real_calls::{CallLimit, RealCalls};
use revisions::until_signals;
use rules::Rule;
use serde_json::{Map, Value};
use step_line::{StepLine, TICK};
use tokio::sync::watch;
use tokio::time::sleep;
use traffic::TransportKind;
use trouble::Trouble;
use url::Url;
use web::Web;

use crate::config::routes::{Route, Routes};
use crate::config::values::{DEFAULT_DIALECTS, nearest, positive_time};
use crate::lab::color::ColorChoice;
use crate::lab::known_names::KnownNames;
use crate::observe::error_chain::error_chain;
use crate::progress::clients::CLIENTS;
use crate::progress::dialect;
use crate::protocol::mcp::Revision;
use crate::transport::child::Program;
use crate::transport::mcp_http::raw_client::RawHttpClient;

pub use error::DoctorError;

/// For how long `doctor` reads after the answer to a call, for late progress and second answers.
const AFTER: Duration = Duration::from_secs(2);

/// The default client name of the doctor.
pub const NAME: &str = "milepost-doctor";

/// The server to examine, and the options.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server.
    pub server: DoctorTarget,
    /// The tool to call, if any.
    pub call: Option<RequestedCall>,
    /// The settings of each session.
    pub session: SessionArgs,
    /// The route of a route file, if such a route is examined.
    pub configured: Option<ConfiguredRoute>,
}

/// A route of a route file that is examined.
#[derive(Debug, Clone)]
pub struct ConfiguredRoute {
    /// The route file, reduced to this route.
    pub routes: Routes,
    /// The path of the route.
    pub path: String,
}

impl ConfiguredRoute {
    /// Returns the dialects of the route, as a route file has them.
    fn dialects(&self) -> Vec<String> {
        let Ok(route) = self.routes.find(None) else { return Vec::new() };
        let mut names: Vec<String> = self
            .routes
            .policy(route)
            .call
            .dialects
            .iter()
            .map(|one| one.name().to_owned())
            .collect();
        let defaults: Vec<String> = dialect::defaults().map(|one| one.name().to_owned()).collect();
        if defaults.iter().all(|name| names.contains(name)) {
            names.retain(|name| !defaults.contains(name));
            names.insert(0, DEFAULT_DIALECTS.to_owned());
        }
        names
    }
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
    /// Use the name of this client (`clientInfo.name`, or its usual name such as "VS Code"), and print
    /// the known facts about the client
    #[arg(long, value_name = "NAME", value_parser = client_names(), hide_possible_values = true)]
    pub client: Option<String>,
    /// Report in JSON, on one line (docs/doctor.md)
    #[arg(long)]
    pub json: bool,
    /// Colours of the report
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub color: ColorChoice,
}

/// Returns the names of known clients, both their own and their usual names.
fn client_names() -> KnownNames {
    let names = CLIENTS.iter().flat_map(|row| row.names.iter().copied().chain([row.client]));
    // Shells treat a space as the end of a word.
    KnownNames::new(names.filter(|name| !name.contains(' ')))
}

/// Parses the date of a revision of the specification.
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
    /// A URL, with the headers of every request.
    Http(Box<Route>, Url),
}

/// A call to be made.
#[derive(Debug, Clone)]
pub struct RequestedCall {
    /// The tool.
    pub tool: String,
    /// The arguments of the tool.
    pub arguments: Map<String, Value>,
    /// Whether to make the call twice, simultaneously.
    pub concurrent: bool,
    /// Whether to make the call once more, without a progress token.
    pub without_token: bool,
    /// Whether to make no further calls, which would find out what a silent or a refused call needs.
    pub once: bool,
    /// Whether not to ask the user before the first call.
    pub yes: bool,
}

impl RequestedCall {
    /// Returns the limit of calls in `sessions` sessions; `further` calls are allowed in addition unless `once` is set.
    fn limit(&self, sessions: usize, further: usize) -> CallLimit {
        let in_session = 1 + usize::from(self.concurrent) + usize::from(self.without_token);
        let once = in_session * sessions;
        CallLimit { at_most: once + if self.once { 0 } else { further }, once }
    }
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct DoctorResult {
    /// The report.
    pub text: String,
    /// Whether a plain client works well with the server: nothing breaks, and the client shows every report.
    pub is_fine: bool,
}

/// Examines a server and returns the report. Finally ends the server with all its descendants, also after a signal.
///
/// # Errors
/// If the server cannot be used, or cannot be used with these options.
pub async fn run(options: Options) -> Result<DoctorResult, DoctorError> {
    let (tell, stop) = watch::channel(false);
    let json = options.session.json;
    let sessions = 1 + usize::from(options.session.through || options.configured.is_some());
    let limit = options.call.as_ref().map(|ask| ask.limit(sessions, refused_call::TRIES));
    let doctor = Inspection::new(options, limit.unwrap_or_default(), stop);
    let report = until_signals(&tell, doctor.inspect()).await?;
    Ok(DoctorResult {
        text: if json { report.json() } else { report.text() },
        is_fine: Grade::of(&report.before) == Grade::Fine,
    })
}

/// The settings of one session.
#[derive(Default)]
struct SessionTerms {
    wire: TransportKind,
    /// The notifications that the proxy adds in this session.
    added: AddedProgress,
    /// Whether the client does not open a GET stream.
    without_get: bool,
    /// How the calls give their token.
    given: GivenToken,
}

struct Inspection {
    options: Options,
    client: Option<ClientChoice>,
    /// Whether a signal has asked `doctor` to stop.
    stop: watch::Receiver<bool>,
    step: StepLine,
    calls: RealCalls,
}

impl Inspection {
    fn new(options: Options, limit: CallLimit, stop: watch::Receiver<bool>) -> Self {
        let client = options.session.client.as_deref().map(ClientChoice::new);
        let (tool, yes) =
            options.call.as_ref().map(|ask| (&*ask.tool, ask.yes)).unwrap_or_default();
        let calls = RealCalls::new(tool, limit);
        let calls = if yes { calls.agreed() } else { calls };
        Self { options, client, stop, step: StepLine::of_stderr(), calls }
    }

    async fn inspect(&self) -> Result<report::DoctorReport, DoctorError> {
        self.calls.announce();
        let mut known = self.negotiate().await?;
        let beginning = self.beginning(&known)?;
        let link = self.link(&known)?;
        let wire = known.transport;
        let plain = SessionTerms { wire, ..SessionTerms::default() };
        let mut before = self.session(link, beginning, &plain, &mut known).await?;
        if self.is_silent(&before) {
            self.try_arguments(&known, beginning, wire, &mut before).await?;
        } else if self.is_refused(&before) {
            self.try_tokens(&known, beginning, wire, &mut before).await?;
        }
        for finding in known.found.drain(..) {
            before.add(finding);
        }
        let behind = self.behind(&known);
        let dialects = self.options.configured.as_ref().map(ConfiguredRoute::dialects);
        let dialects = dialects.unwrap_or_default();
        let lists_tools = known.has_no_lifecycle && !known.tools.is_empty();
        let server = known.name.as_deref();
        let terms = CureTerms { behind: &behind, lists_tools, server, dialects: &dialects };
        let mut cure = cure::cure(&before, &terms);
        let is_configured = self.options.configured.is_some();
        let after = match self.options.session.through || is_configured {
            true => match self.through(&known, beginning, &cure, &behind, &before).await {
                Err(DoctorError::Interrupted) => return Err(DoctorError::Interrupted),
                after => Some(after.map_err(|error| error_chain(&error))),
            },
            false => None,
        };
        let after = after.map(|after| after.map(|after| after.without_new_habits(&before)));
        match &after {
            // An examined route has some settings already, so the cure has only the missing ones.
            Some(Ok(after)) if is_configured => cure = cure::cure(after, &terms),
            Some(Ok(after)) => cure.uncured = cure::counted_again(after),
            _ => {}
        }
        Ok(self.report(known, beginning, &behind, (before, cure, after)))
    }

    fn report(
        &self,
        known: ServerFacts,
        beginning: SessionStart,
        behind: &Behind,
        (before, cure, after): (Examined, Cure, Option<Result<Examined, String>>),
    ) -> report::DoctorReport {
        let configured = self.options.configured.as_ref();
        report::DoctorReport {
            server: cure::shown(behind),
            wire: known.transport,
            known,
            revision: beginning.revision(),
            called: self.options.call.is_some(),
            made: self.calls.made(),
            configured: configured
                .map(|route| (route.routes.path().display().to_string(), route.path.clone())),
            client: self.client.clone(),
            colors: self.options.session.color.palette(),
            before,
            cure,
            after,
        }
    }

    /// Runs `doing`, unless `doctor` must stop; then it returns early, so that started servers are ended properly.
    /// Shows meanwhile how long the step has lasted.
    async fn unless_stopped<T>(&self, doing: impl Future<Output = T>) -> Result<T, DoctorError> {
        let mut stop = self.stop.clone();
        let mut doing = pin!(doing);
        loop {
            tokio::select! {
                done = &mut doing => return Ok(done),
                _ = stop.wait_for(|stop| *stop) => return Err(DoctorError::Interrupted),
                () = sleep(TICK) => self.step.tick(),
            }
        }
    }

    fn name(&self) -> &str {
        self.client.as_ref().map_or(NAME, ClientChoice::sent)
    }

    fn client(&self, link: Link) -> DoctorClient {
        DoctorClient::new(link, self.name(), self.options.session.timeout)
    }

    fn behind(&self, known: &ServerFacts) -> Behind {
        match &self.options.server {
            DoctorTarget::Command(program) => Behind::Command(program.command.clone()),
            DoctorTarget::Http(_, url) => {
                Behind::Http(url.clone(), known.transport == TransportKind::Sse)
            }
        }
    }

    /// Opens a new connection to the server itself, without the proxy.
    fn link(&self, known: &ServerFacts) -> Result<Link, DoctorError> {
        match &self.options.server {
            DoctorTarget::Command(program) => Ok(Link::start(program)?),
            DoctorTarget::Http(route, _) => web_link(route, known.transport),
        }
    }

    /// Runs one session: lists tools, makes the calls, and judges the conversation.
    async fn session(
        &self,
        link: Link,
        beginning: SessionStart,
        terms: &SessionTerms,
        known: &mut ServerFacts,
    ) -> Result<Examined, DoctorError> {
        let mut client = self.client(link);
        client.listens = !terms.without_get;
        let visit = self.visit(&mut client, beginning, terms.given, known);
        let done = self.unless_stopped(visit).await;
        let entries = client.close().await;
        let unanswered = done??;
        let knows_arrays = beginning.revision() == Some("2025-03-26");
        let silence_max = self.options.session.silence;
        let judged = Terms { wire: terms.wire, knows_arrays, silence_max };
        let mut examined = examine_through(&entries, judged, &terms.added);
        if let Some(why) = unanswered {
            examined.explain(Rule::NoAnswer, why.to_string());
            examined.has_ended = matches!(why, Trouble::Ended(_));
        }
        Ok(examined)
    }

    /// Begins the session, lists the tools, and makes the calls. Returns the reason if a call was not answered.
    async fn visit(
        &self,
        client: &mut DoctorClient,
        beginning: SessionStart,
        given: GivenToken,
        known: &mut ServerFacts,
    ) -> Result<Option<Trouble>, DoctorError> {
        let trouble = |trouble: Trouble| DoctorError::Server(trouble.to_string());
        match beginning {
            SessionStart::Handshake(date) => drop(client.initialize(date).await.map_err(trouble)?),
            SessionStart::Modern(date) => {
                drop(client.discover(date, self.options.session.timeout).await.map_err(trouble)?);
            }
            // Use no id 0: hand-written servers may take 0 for a missing id.
            SessionStart::None => client.next_id = 1,
        }
        known.tools = match beginning {
            SessionStart::None => client.tools_elsewhere().await.unwrap_or_default(),
            _ => match client.tools().await {
                Ok(tools) => tools,
                // `tools/list` may fail: the tools capability is optional.
                Err(Trouble::Refused { .. }) => Vec::new(),
                Err(other) => return Err(trouble(other)),
            },
        };
        let Some(ask) = &self.options.call else { return Ok(None) };
        if !known.tools.contains(&ask.tool) && !known.has_no_lifecycle {
            return Err(no_tool(&ask.tool, &known.tools));
        }
        client.required.check(&ask.tool, &ask.arguments)?;
        if !client.only_reads(&ask.tool) && self.calls.has_to_ask() {
            self.step.clear();
            if !self.calls.ask().await {
                return Err(DoctorError::NotAgreed);
            }
        }
        let at_once = if ask.concurrent && given == GivenToken::InMeta { 2 } else { 1 };
        let (tool, arguments) = (ask.tool.clone(), ask.arguments.clone());
        let wanted = CallPlan { tool, arguments, at_once, given };
        self.step.show(&self.calls.begin(at_once));
        if let Err(trouble) = client.call(&wanted, AFTER).await {
            return Ok(Some(trouble));
        }
        if ask.without_token && given == GivenToken::InMeta {
            let bare = CallPlan { at_once: 1, given: GivenToken::None, ..wanted };
            self.step.show(&self.calls.begin(1));
            return Ok(client.call(&bare, AFTER).await.err());
        }
        Ok(None)
    }
}

/// Returns a link to the server of an HTTP route.
pub(in crate::lab) fn web_link(
    route: &Route,
    transport: TransportKind,
) -> Result<Link, DoctorError> {
    match RawHttpClient::new(route)? {
        Some(visitor) => Ok(Link::over_http(Web::new(visitor, transport))),
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
