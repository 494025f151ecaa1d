//! The command line: as typed, then as meant.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use tracing::Level;

use crate::progress::dialect::Dialect;
use crate::progress::{BeatValue, Coalesce, Messages, Mode, OnFall, Policy, Scale, TokenIs};
use crate::routes::{Routes, RoutesError, Upstream};
use crate::settings::{
    ANSWER_REPAIRS, CallSettings, Settings, Word, dialects, positive_time, scale, time,
};
use crate::telemetry::LogFormat;

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
    /// Stand in front of a stdio server: put `milepost wrap --` before its command
    #[command(
        after_help = "Example: milepost wrap -- npx -y @modelcontextprotocol/server-everything\n\n\
        Standard output belongs to the protocol; what Milepost has to say is on standard error. \
        The exit code is the server's."
    )]
    Wrap(Box<Wrap>),
    /// Serve the routes of a file over HTTP
    Serve(Serve),
    /// Say what is wrong with a route file, or what it leads to
    Check(Check),
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
    /// What is logged, and how.
    #[command(flatten)]
    pub log: LogArgs,
    /// The server's command and its arguments
    #[arg(required_unless_present = "config", trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
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
    /// Take the settings, and the command unless one is given, of a route of this file; flags
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
    /// the defaults), text-chunk, lsp, tasks-progress, and those of the file
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
    /// Read "45%" and "234/520" in the words of notifications that have no number
    #[arg(long)]
    figures_in_text: bool,
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
    /// The server's command and its arguments.
    pub command: Vec<OsString>,
    /// What its environment has besides ours.
    pub env: Vec<(OsString, OsString)>,
    /// The folder that it runs in; `None`: ours.
    pub cwd: Option<PathBuf>,
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
    /// The route leads elsewhere.
    #[error(
        "{}: the route {route} has no `upstream.command`; the server's command is expected after `--`",
        file.display()
    )]
    NoCommand {
        /// The route file.
        file: PathBuf,
        /// The path of the route.
        route: String,
    },
}

impl Wrap {
    /// What the arguments and the route file mean together.
    ///
    /// # Errors
    /// If the route file cannot be used, or does not fit the arguments.
    pub fn resolve(&self) -> Result<Wrapped, WrapError> {
        let (policy, command) = (Policy::default(), self.command.clone());
        let mut wrapped = Wrapped { policy, command, env: Vec::new(), cwd: None };
        let mut own = Vec::new();
        if let Some(file) = &self.policy.config {
            let routes = Routes::load(file)?;
            routes.apply_defaults(&mut wrapped.policy);
            let name = self.policy.route.as_deref();
            // With a command of its own, a file needs no route.
            match routes.find(name) {
                Err(_) if name.is_none() && !self.command.is_empty() => {}
                found => {
                    let route = found?;
                    route.apply(&mut wrapped.policy);
                    match &route.upstream {
                        Upstream::Command(stdio) => {
                            if self.command.is_empty() {
                                wrapped.command.clone_from(&stdio.command);
                            }
                            wrapped.env.clone_from(&stdio.env);
                            wrapped.cwd.clone_from(&stdio.cwd);
                        }
                        _ if self.command.is_empty() => {
                            let (file, route) = (file.clone(), route.path.clone());
                            return Err(WrapError::NoCommand { file, route });
                        }
                        _ => {}
                    }
                }
            }
            own = routes.dialects().to_vec();
        }
        self.policy.settings(&own).map_err(WrapError::Dialect)?.apply(&mut wrapped.policy);
        Ok(wrapped)
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
            dialects: (!dialects.is_empty()).then_some(dialects),
            no_repair: self.answers.no_repair.clone(),
            keep_original: on(figures.keep_original),
            token_is: figures.token_is,
            words_in_2024: on(figures.words_in_2024),
            call: CallSettings {
                heartbeat: beats.no_heartbeat.then_some(false),
                heartbeat_after: beats.heartbeat_after,
                heartbeat_every: beats.heartbeat_every,
                heartbeat_max: beats.heartbeat_max,
                heartbeat_value: beats.heartbeat_value,
                on_fall: figures.on_fall,
                scale: figures.scale,
                figures_in_text: on(figures.figures_in_text),
                messages: figures.messages,
                call_timeout: beats.call_timeout.map(Some),
            },
            tools: Vec::new(),
        })
    }
}
