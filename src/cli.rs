//! The command line: as typed, then as meant.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing::Level;

use crate::progress::dialect::{self, Dialect};
use crate::progress::{
    AnswerRepairs, BeatValue, Coalesce, Messages, Mode, OnFall, Policy, Scale, TokenIs,
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
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `milepost demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// How long the silent tool is silent
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    pub silence: Duration,
}

#[derive(Debug, Args)]
struct PolicyArgs {
    /// observe: report only; enforce: repair and withhold; full: also break silences
    #[arg(long, value_enum, value_name = "MODE", default_value = "full")]
    mode: ModeArg,
    /// A way of saying progress that is understood; repeat for more. Replaces the defaults, unless
    /// one of them is `defaults`
    #[arg(long = "dialect", value_name = "NAME", value_parser = dialect_names())]
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
    /// Silence before the first heartbeat of a call
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    heartbeat_after: Duration,
    /// Time between heartbeats; twice this once the server has said something for the call
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive)]
    heartbeat_every: Duration,
    /// Age of a call after which it gets no more heartbeats
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = humantime::parse_duration)]
    heartbeat_max: Duration,
    /// lift: the smallest step above the last figure; elapsed: seconds since the call began
    #[arg(long, value_enum, value_name = "VALUE", default_value = "lift")]
    heartbeat_value: BeatArg,
    /// Answer a call with an error, and cancel it, when it is this old
    #[arg(long, value_name = "TIME", value_parser = positive)]
    call_timeout: Option<Duration>,
}

#[derive(Debug, Args)]
struct TimingArgs {
    /// No progress before its call is this old [default: 150ms, 0 for clients known not to need it]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    first_after: Option<Duration>,
    /// A notification waits this long and is dropped if the answer comes meanwhile [default: 30ms,
    /// 0 for clients known not to need it]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    hold: Option<Duration>,
    /// An answer is written no sooner than this after the last notification of its call [default:
    /// 50ms, 0 for clients known not to need it]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    guard: Option<Duration>,
    /// Thinned notifications of one call come no closer than this
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = humantime::parse_duration)]
    min_interval: Duration,
    /// Which notifications are thinned
    #[arg(long, value_enum, value_name = "WHICH", default_value = "repaired")]
    coalesce: CoalesceArg,
}

#[derive(Debug, Args)]
struct FigureArgs {
    /// A figure that repeats or falls is set just above the last (lift), on top of it (rebase), or
    /// withheld (drop)
    #[arg(long, value_enum, value_name = "RULE", default_value = "lift")]
    on_fall: OnFallArg,
    /// What a figure without total counts: percent, unit (parts of 1), or a total such as 250
    #[arg(long, value_name = "SCALE", value_parser = scale)]
    scale: Option<Scale>,
    /// Read "45%" and "234/520" in the words of notifications that have no number
    #[arg(long)]
    figures_in_text: bool,
    /// replace: each message stands for itself; append: they are pieces of one text
    #[arg(long, value_enum, value_name = "HOW", default_value = "replace")]
    messages: MessagesArg,
    /// What the server puts where the token belongs [default: learned]
    #[arg(long, value_enum, value_name = "WHAT")]
    token_is: Option<TokenIsArg>,
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
    #[arg(long = "no-repair", value_enum, value_name = "NAME")]
    no_repairs: Vec<AnswerArg>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeArg {
    Observe,
    Enforce,
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BeatArg {
    Lift,
    Elapsed,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CoalesceArg {
    Repaired,
    All,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnFallArg {
    Lift,
    Rebase,
    Drop,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MessagesArg {
    Replace,
    Append,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TokenIsArg {
    Token,
    RequestId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AnswerArg {
    /// An id in another spelling
    ResponseId,
    /// An error without code or message
    ErrorShape,
    /// A tool result without content
    BareResult,
    /// An answer to no open request, or a second one
    OrphanAnswer,
    /// A result without id
    MissingId,
}

fn dialect_names() -> PossibleValuesParser {
    let names = dialect::ALL.iter().map(|dialect| dialect.name);
    PossibleValuesParser::new(names.chain(["defaults"]))
}

fn level(text: &str) -> Result<Level, String> {
    text.parse().map_err(|_| "one of error, warn, info, debug, trace is expected".to_owned())
}

fn positive(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("more than 0 is expected".to_owned()) } else { Ok(time) }
}

fn scale(text: &str) -> Result<Scale, String> {
    match text {
        "percent" => Ok(Scale::Percent),
        "unit" => Ok(Scale::Unit),
        number => match number.parse::<f64>() {
            Ok(total) if total.is_finite() && total > 0.0 => Ok(Scale::Of(total)),
            _ => Err("percent, unit or a positive number is expected".to_owned()),
        },
    }
}

impl Wrap {
    /// The settings as meant.
    pub fn policy(&self) -> Policy {
        let args = &self.policy;
        let mut policy = Policy {
            mode: match args.mode {
                ModeArg::Observe => Mode::Observe,
                ModeArg::Enforce => Mode::Enforce,
                ModeArg::Full => Mode::Full,
            },
            min_interval: args.timing.min_interval,
            coalesce: match args.timing.coalesce {
                CoalesceArg::Repaired => Coalesce::Repaired,
                CoalesceArg::All => Coalesce::All,
            },
            keep_original: args.figures.keep_original,
            words_in_2024: args.figures.words_in_2024,
            token_is: args.figures.token_is.map(|what| match what {
                TokenIsArg::Token => TokenIs::Token,
                TokenIsArg::RequestId => TokenIs::RequestId,
            }),
            answers: args.answers.switches(),
            ..Policy::default()
        };
        if !args.dialects.is_empty() {
            policy.dialects = dialects(&args.dialects);
        }
        args.timing.apply(&mut policy);
        args.heartbeat.apply(&mut policy);
        args.figures.apply(&mut policy);
        policy
    }
}

/// The dialects of some names, `defaults` standing for those that are on by default.
fn dialects(names: &[String]) -> Vec<&'static Dialect> {
    let mut found: Vec<&'static Dialect> = Vec::new();
    for name in names {
        let meant: Vec<_> = match &**name {
            "defaults" => dialect::defaults().collect(),
            name => dialect::named(name).into_iter().collect(),
        };
        for dialect in meant {
            if !found.iter().any(|known| known.name == dialect.name) {
                found.push(dialect);
            }
        }
    }
    found
}

impl TimingArgs {
    fn apply(&self, policy: &mut Policy) {
        let pacing = &mut policy.pacing;
        for (value, place) in [
            (self.first_after, &mut pacing.first_after),
            (self.hold, &mut pacing.hold),
            (self.guard, &mut pacing.guard),
        ] {
            if let Some(value) = value {
                *place = value;
                // Whoever sets a time means it, whatever client comes.
                policy.spare_known_clients = false;
            }
        }
    }
}

impl HeartbeatArgs {
    fn apply(&self, policy: &mut Policy) {
        let heartbeat = &mut policy.call.heartbeat;
        heartbeat.enabled = !self.no_heartbeat;
        heartbeat.after = self.heartbeat_after;
        heartbeat.every = self.heartbeat_every;
        heartbeat.max = self.heartbeat_max;
        heartbeat.value = match self.heartbeat_value {
            BeatArg::Lift => BeatValue::Lift,
            BeatArg::Elapsed => BeatValue::Elapsed,
        };
        policy.call.call_timeout = self.call_timeout;
    }
}

impl FigureArgs {
    fn apply(&self, policy: &mut Policy) {
        policy.call.on_fall = match self.on_fall {
            OnFallArg::Lift => OnFall::Lift,
            OnFallArg::Rebase => OnFall::Rebase,
            OnFallArg::Drop => OnFall::Drop,
        };
        policy.call.scale = self.scale;
        policy.call.figures_in_text = self.figures_in_text;
        policy.call.messages = match self.messages {
            MessagesArg::Replace => Messages::Replace,
            MessagesArg::Append => Messages::Append,
        };
    }
}

impl AnswerArgs {
    fn switches(&self) -> AnswerRepairs {
        let on = |name| !self.no_repairs.contains(&name);
        AnswerRepairs {
            response_id: on(AnswerArg::ResponseId),
            error_shape: on(AnswerArg::ErrorShape),
            bare_result: on(AnswerArg::BareResult),
            orphan_answer: on(AnswerArg::OrphanAnswer),
            missing_id: on(AnswerArg::MissingId),
        }
    }
}
