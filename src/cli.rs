//! The command line: as typed, then as meant.

mod doctor;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use tracing::Level;
use url::Url;

use crate::progress::dialect::Dialect;
use crate::progress::extract::Extract;
use crate::progress::mask::Masks;
use crate::progress::{BeatValue, Coalesce, Messages, Mode, OnFall, Policy, Scale, TokenIs};
use crate::routes::{
    Environment, HeaderRules, HttpUpstream, Route, Routes, RoutesError, StdioUpstream, Upstream,
};
use crate::settings::{
    ANSWER_REPAIRS, CallSettings, Settings, Word, dialects, positive_time, scale, time,
};
use crate::telemetry::LogFormat;

pub use doctor::Doctor;

/// The route file of a folder.
const ROUTE_FILE: &str = "proxy.toml";

/// A transparent MCP proxy that adds progress to legacy servers.
#[derive(Debug, Parser)]
#[command(name = "milepost", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stand in front of a server, for a stdio client: put `milepost wrap --` before its command, or
    /// give its address
    #[command(
        after_help = "Examples:\n  milepost wrap -- npx -y @modelcontextprotocol/server-everything\n  \
        milepost wrap --bearer-env TOKEN https://mcp.example.com/mcp\n\n\
        Standard output belongs to the protocol; what Milepost has to say is on standard error. \
        The exit code is the server's; with an address 0, or 1 if nobody ever answered there."
    )]
    Wrap(Box<Wrap>),
    /// Serve the routes of a file over HTTP
    Serve(Serve),
    /// Say what is wrong with a route file, or what it leads to
    Check(Check),
    /// Say what a server's progress gets wrong, and what cures it
    #[command(
        after_help = "Examples:\n  milepost doctor --call build --args '{\"target\":\"all\"}' --through -- node server.js\n  \
        milepost doctor --call report --timeout 5m https://mcp.example.com/mcp\n\n\
        The exit code is 0 if a plain client would be safe with the server, 1 if it would not, 2 if nothing \
        can be said."
    )]
    Doctor(Box<Doctor>),
    /// Print the JSON Schema of route files
    Schema,
    /// See it work: a legacy server, the proxy and a client in this terminal
    Demo(Demo),
}

/// `milepost wrap`.
#[derive(Debug, Args)]
pub struct Wrap {
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten, next_help_heading = "Server at an address")]
    remote: RemoteArgs,
    /// What is logged, and how.
    #[command(flatten)]
    pub log: LogArgs,
    /// The server's command and its arguments, or its address (`http://…`, `https://…`): Streamable
    /// HTTP or HTTP+SSE
    #[arg(required_unless_present = "config", trailing_var_arg = true, value_name = "CMD|URL")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct RemoteArgs {
    /// A header that every request has, as `Name: value`; repeat for more. `${VAR}` is taken from the
    /// environment
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The file that holds the token to present (`Authorization: Bearer`); it is read again when it
    /// changes
    #[arg(long, value_name = "FILE", conflicts_with = "bearer_env")]
    bearer_file: Option<PathBuf>,
    /// The environment variable that holds it
    #[arg(long, value_name = "VAR")]
    bearer_env: Option<String>,
}

/// What is logged, and how.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The least important log lines that are written
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    pub log_level: Level,
    /// How log lines are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub log_format: LogFormat,
}

/// `milepost serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The route file
    #[arg(value_name = "FILE", default_value = ROUTE_FILE)]
    pub file: PathBuf,
    /// Threads that carry connections [default: one for each core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// What is logged, and how.
    #[command(flatten)]
    pub log: LogArgs,
}

/// `milepost check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The route file
    #[arg(value_name = "FILE", default_value = ROUTE_FILE)]
    pub file: PathBuf,
    /// Print every setting as it is in effect, secrets as "***"
    #[arg(long)]
    pub print: bool,
    /// Print the routes that a client's `mcpServers` file stands for, instead
    #[arg(long, value_name = "JSON", conflicts_with_all = ["file", "print"])]
    pub import: Option<PathBuf>,
}

/// `milepost demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// How long the silent tool is silent
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = time)]
    pub silence: Duration,
}

#[derive(Debug, Args)]
struct PolicyArgs {
    /// Take the settings, and the server unless one is given, of a route of this file; flags
    /// override them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The path of that route, if the file has several
    #[arg(long, value_name = "PATH", requires = "config")]
    route: Option<String>,
    /// observe: report only; enforce: repair and withhold; full: also break silences [default: full]
    #[arg(long, value_name = "MODE", value_parser = words::<Mode>())]
    mode: Option<Mode>,
    /// A way of saying progress that is understood; repeat for more. Replaces the defaults, unless
    /// one of them is `defaults`. There are standard, tools-progress, tool-notifications (those are
    /// the defaults), text-chunk, lsp, tasks-progress, log, stderr, stdout, and those of the file
    #[arg(long = "dialect", value_name = "NAME", value_delimiter = ',')]
    dialects: Vec<String>,
    #[command(flatten, next_help_heading = "Silence")]
    heartbeat: HeartbeatArgs,
    #[command(flatten, next_help_heading = "Timing")]
    timing: TimingArgs,
    #[command(flatten, next_help_heading = "Figures and words")]
    figures: FigureArgs,
    #[command(flatten, next_help_heading = "Answers")]
    answers: AnswerArgs,
}

#[derive(Debug, Args)]
struct HeartbeatArgs {
    /// No heartbeats
    #[arg(long)]
    no_heartbeat: bool,
    /// Silence before the first heartbeat of a call [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    heartbeat_after: Option<Duration>,
    /// Time between heartbeats; twice this once the server has said something for the call
    /// [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    heartbeat_every: Option<Duration>,
    /// Age of a call after which it gets no more heartbeats, and the client's own time-out applies
    /// again [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    heartbeat_max: Option<Duration>,
    /// lift: the smallest step above the last figure; elapsed: seconds since the call began
    /// [default: lift]
    #[arg(long, value_name = "VALUE", value_parser = words::<BeatValue>())]
    heartbeat_value: Option<BeatValue>,
    /// Answer a call with an error, and cancel it, when it is this old [default: never]
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    call_timeout: Option<Duration>,
}

#[derive(Debug, Args)]
struct TimingArgs {
    /// No progress before its call is this old [default: 150ms, 0 for the Python and Rust SDKs]
    #[arg(long, value_name = "TIME", value_parser = time)]
    first_after: Option<Duration>,
    /// A notification waits this long and is dropped if the answer comes meanwhile [default: 30ms,
    /// 0 for the Python and Rust SDKs]
    #[arg(long, value_name = "TIME", value_parser = time)]
    hold: Option<Duration>,
    /// An answer is written no sooner than this after the last notification of its call [default:
    /// 50ms, 0 for the Python and Rust SDKs]
    #[arg(long, value_name = "TIME", value_parser = time)]
    guard: Option<Duration>,
    /// Thinned notifications of one call come no closer than this [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = time)]
    min_interval: Option<Duration>,
    /// Which notifications are thinned: repaired or all [default: repaired]
    #[arg(long, value_name = "WHICH", value_parser = words::<Coalesce>())]
    coalesce: Option<Coalesce>,
}

#[derive(Debug, Args)]
struct FigureArgs {
    /// A figure that repeats or falls is set just above the last (lift), on top of it (rebase), or
    /// withheld (drop) [default: lift]
    #[arg(long, value_name = "RULE", value_parser = words::<OnFall>())]
    on_fall: Option<OnFall>,
    /// What a figure without total counts: percent, unit (parts of 1), or a total such as 250
    #[arg(long, value_name = "SCALE", value_parser = scale)]
    scale: Option<Scale>,
    /// How figures are found in words: `{progress}/{total}`, `{percent}%`, a regular expression with
    /// groups of these names, or `presets` for those that are known; repeat for more [default: presets
    /// in text of log, stderr and stdout, none in messages]
    #[arg(long, value_name = "PATTERN")]
    extract: Vec<String>,
    /// A regular expression of what is not shown of text of log, stderr and stdout, besides what looks
    /// like a secret; repeat for more
    #[arg(long, value_name = "REGEX")]
    mask: Vec<String>,
    /// replace: each message stands for itself; append: they are pieces of one text
    /// [default: replace]
    #[arg(long, value_name = "HOW", value_parser = words::<Messages>())]
    messages: Option<Messages>,
    /// What the server's progress names: the client's token, or the id of the request [default:
    /// learned]
    #[arg(long, value_name = "WHAT", value_parser = words::<TokenIs>())]
    token_is: Option<TokenIs>,
    /// Also put words of Milepost's own into progress of 2024-11-05, which has no `message` yet
    #[arg(long)]
    words_in_2024: bool,
    /// Forward a translated message as well, for clients written for it
    #[arg(long)]
    keep_original: bool,
}

#[derive(Debug, Args)]
struct AnswerArgs {
    /// Leave this fault of answers as it is; repeat for more
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(ANSWER_REPAIRS))]
    no_repair: Vec<String>,
}

/// The words of a setting, and what they mean.
fn words<T: Word + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let known = T::WORDS.iter().map(|(word, _)| *word);
    PossibleValuesParser::new(known).try_map(|word| T::read(&word))
}

fn level(text: &str) -> Result<Level, String> {
    text.parse().map_err(|_| "one of error, warn, info, debug, trace is expected".to_owned())
}

/// What is to be run, and how.
#[derive(Debug)]
pub struct Wrapped {
    /// How progress is treated.
    pub policy: Policy,
    /// What stands behind us.
    pub server: WrappedServer,
}

/// What stands behind `milepost wrap`.
#[derive(Debug)]
pub enum WrappedServer {
    /// A child process.
    Command(StdioUpstream),
    /// A server that is reached over HTTP.
    Http {
        /// Where, and with which headers.
        route: Box<Route>,
        /// The file that holds the token to present.
        bearer_file: Option<PathBuf>,
    },
}

/// Why arguments cannot be used, which the command line alone does not show.
#[derive(Debug, thiserror::Error)]
pub enum WrapError {
    /// The route file cannot be used.
    #[error(transparent)]
    Routes(#[from] RoutesError),
    /// A dialect that neither is built in nor in the route file.
    #[error("--dialect: {0}")]
    Dialect(String),
    /// A header that is none.
    #[error("--header: {0}")]
    Header(String),
    /// A token that is none.
    #[error("--bearer-env: {0}")]
    Bearer(String),
    /// A file that holds no token.
    #[error("--bearer-file: {0}")]
    BearerFile(String),
    /// Something stands behind the address.
    #[error("{0:?} stands behind the address of the server; options come before it")]
    BehindAddress(OsString),
    /// Headers are of no use to a child process.
    #[error("--header, --bearer-file and --bearer-env are for a server at an address")]
    NoAddress,
}

impl Wrap {
    /// What the arguments and the route file mean together.
    ///
    /// # Errors
    /// If the route file cannot be used, or does not fit the arguments.
    pub fn resolve(&self) -> Result<Wrapped, WrapError> {
        let mut policy = Policy::default();
        let mut own = Vec::new();
        let mut route = None;
        if let Some(file) = &self.policy.config {
            let routes = Routes::load(file)?;
            routes.apply_defaults(&mut policy);
            let name = self.policy.route.as_deref();
            // With a server of its own, a file needs no route.
            route = match routes.find(name) {
                Err(_) if name.is_none() && !self.command.is_empty() => None,
                found => Some(found?.clone()),
            };
            if let Some(route) = &route {
                route.apply(&mut policy);
            }
            own = routes.dialects().to_vec();
        }
        self.policy.settings(&own).map_err(WrapError::Dialect)?.apply(&mut policy);
        let server = self.server(route)?;
        Ok(Wrapped { policy, server })
    }

    fn server(&self, route: Option<Route>) -> Result<WrappedServer, WrapError> {
        let mut route = match (address(&self.command)?, route) {
            (Some(url), route) => at_address(url, route),
            (None, Some(route)) if self.command.is_empty() => route,
            (None, route) => {
                let mut stdio = match route.map(|route| route.upstream) {
                    Some(Upstream::Command(stdio)) => stdio,
                    _ => StdioUpstream::new(Vec::new()),
                };
                stdio.command.clone_from(&self.command);
                return self.child(stdio);
            }
        };
        if let Upstream::Command(stdio) = route.upstream {
            return self.child(stdio);
        }
        self.remote.apply(&mut route.request_headers)?;
        let bearer_file = self.remote.bearer_file.clone();
        Ok(WrappedServer::Http { route: Box::new(route), bearer_file })
    }

    fn child(&self, stdio: StdioUpstream) -> Result<WrappedServer, WrapError> {
        if !self.remote.is_empty() {
            return Err(WrapError::NoAddress);
        }
        Ok(WrappedServer::Command(stdio))
    }
}

/// The server's address, if that is what is given.
fn address(command: &[OsString]) -> Result<Option<Url>, WrapError> {
    let Some(first) = command.first().and_then(|first| first.to_str()) else {
        return Ok(None);
    };
    let url = Url::parse(first).ok();
    let url = url.filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    match command.get(1) {
        Some(more) if url.is_some() => Err(WrapError::BehindAddress(more.clone())),
        _ => Ok(url),
    }
}

/// A route to an address. What a route of a file says of its own server holds for this one.
fn at_address(url: Url, route: Option<Route>) -> Route {
    let new = HttpUpstream::new;
    match route {
        Some(mut route) => {
            route.upstream = match route.upstream {
                Upstream::Http(http) => {
                    Upstream::Http(HttpUpstream { url: Some(url), sse: None, ..http })
                }
                _ => Upstream::Http(new(url)),
            };
            route
        }
        None => Route::new("/".to_owned(), Upstream::Http(new(url))),
    }
}

impl RemoteArgs {
    fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.bearer_file.is_none() && self.bearer_env.is_none()
    }

    /// Adds the headers to those of a route.
    fn apply(&self, rules: &mut HeaderRules) -> Result<(), WrapError> {
        let environment = Environment::of_process();
        let mut set = |name: HeaderName, mut value: HeaderValue| {
            value.set_sensitive(true);
            rules.set.retain(|(known, _)| *known != name);
            rules.set.push((name, value));
        };
        for header in &self.headers {
            // Only the name is shown: the value may be a secret.
            let name = header.split_once(':').map(|(name, _)| format!("{name:?}: "));
            let name = name.unwrap_or_default();
            let wrong = |why: &str| WrapError::Header(format!("{name}{why}"));
            let filled = environment.fill(header).map_err(|why| wrong(&why))?;
            let form = "`Name: value` is expected";
            let (name, value) = filled.split_once(':').ok_or_else(|| wrong(form))?;
            let name = name.trim().parse().map_err(|_| wrong(form))?;
            let value = value.trim().parse().map_err(|_| wrong("no header can hold its value"))?;
            set(name, value);
        }
        if let Some(name) = &self.bearer_env {
            let token = environment.get(name).map_err(WrapError::Bearer)?;
            let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let no_token = |_| WrapError::Bearer(format!("{name} holds no token"));
            set(AUTHORIZATION, value.map_err(no_token)?);
        }
        Ok(())
    }
}

impl PolicyArgs {
    fn settings(&self, own: &[Dialect]) -> Result<Settings, String> {
        let on = |flag: bool| flag.then_some(true);
        let (timing, figures, beats) = (&self.timing, &self.figures, &self.heartbeat);
        let dialects = dialects(self.dialects.iter().map(|name| &**name), own)?;
        Ok(Settings {
            mode: self.mode,
            first_after: timing.first_after,
            hold: timing.hold,
            guard: timing.guard,
            min_interval: timing.min_interval,
            coalesce: timing.coalesce,
            no_repair: self.answers.no_repair.clone(),
            keep_original: on(figures.keep_original),
            token_is: figures.token_is,
            words_in_2024: on(figures.words_in_2024),
            call: CallSettings {
                dialects: (!dialects.is_empty()).then_some(dialects),
                heartbeat: beats.no_heartbeat.then_some(false),
                heartbeat_after: beats.heartbeat_after,
                heartbeat_every: beats.heartbeat_every,
                heartbeat_max: beats.heartbeat_max,
                heartbeat_value: beats.heartbeat_value,
                on_fall: figures.on_fall,
                scale: figures.scale,
                extract: read_some(&figures.extract, |patterns| Extract::read(patterns))?,
                masks: read_some(&figures.mask, |patterns| Masks::read(patterns))?,
                messages: figures.messages,
                call_timeout: beats.call_timeout.map(Some),
            },
            tools: Vec::new(),
        })
    }
}

/// What a flag that may be repeated says, if it is there.
fn read_some<'a, T>(
    said: &'a [String],
    read: impl FnOnce(&mut dyn Iterator<Item = &'a str>) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if said.is_empty() {
        return Ok(None);
    }
    read(&mut said.iter().map(|one| &**one)).map(Some)
}
