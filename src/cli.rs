//! The command line: as typed, then as meant.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use tracing::Level;

use crate::progress::{BeatValue, Coalesce, Messages, Mode, OnFall, Policy, Scale, TokenIs};
use crate::routes::{Routes, RoutesError, Upstream};
use crate::settings::{
    ANSWER_REPAIRS, CallSettings, Settings, Word, dialect_names, dialects, positive_time, scale,
    time,
};
use crate::telemetry::LogFormat;

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
    /// See it work: a legacy server, the proxy and a client in this terminal
    Demo(Demo),
}

/// `milepost wrap`.
#[derive(Debug, Args)]
pub struct Wrap {
    #[command(flatten)]
    policy: PolicyArgs,
    /// The least important log lines that are written
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    pub log_level: Level,
    /// How log lines are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub log_format: LogFormat,
    /// The server's command and its arguments
    #[arg(required_unless_present = "config", trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
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
    /// one of them is `defaults`
    #[arg(long = "dialect", value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(dialect_names()))]
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

impl Wrap {
    /// The policy and the server's command, as meant.
    ///
    /// # Errors
    /// If the route file cannot be used.
    pub fn resolve(&self) -> Result<(Policy, Vec<OsString>), RoutesError> {
        let mut policy = Policy::default();
        let mut command = self.command.clone();
        if let Some(file) = &self.policy.config {
            let routes = Routes::load(file)?;
            routes.apply_defaults(&mut policy);
            let name = self.policy.route.as_deref();
            // With a command of its own, a file needs no route.
            match routes.find(name) {
                Err(_) if name.is_none() && !command.is_empty() => {}
                found => {
                    let route = found?;
                    route.apply(&mut policy);
                    if let Upstream::Command { command: own, .. } = &route.upstream
                        && command.is_empty()
                    {
                        command.clone_from(own);
                    }
                }
            }
        }
        self.policy.settings().apply(&mut policy);
        Ok((policy, command))
    }
}

impl PolicyArgs {
    fn settings(&self) -> Settings {
        let on = |flag: bool| flag.then_some(true);
        let (timing, figures, beats) = (&self.timing, &self.figures, &self.heartbeat);
        // The names have been checked as they were typed.
        let dialects = dialects(self.dialects.iter().map(|name| &**name)).unwrap_or_default();
        Settings {
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
        }
    }
}
