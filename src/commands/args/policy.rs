//! Flags for the settings of a route.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::ask::AskArgs;
use crate::config::settings::{
    ANSWER_REPAIRS, CallSettings, Settings, Word, dialects, positive_time, scale, time,
};
use crate::progress::dialect::Dialect;
use crate::progress::extract::Extract;
use crate::progress::policy::masks::Masks;
use crate::progress::{Coalesce, HeartbeatValue, Messages, Mode, OnFall, Scale, TokenIs};

#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    /// Take the settings, and the server unless one is given, of a route of this file; flags
    /// override them
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The path of that route, if the file has several
    #[arg(long, value_name = "PATH", requires = "config")]
    pub(super) route: Option<String>,
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
    #[command(flatten, next_help_heading = "Requests")]
    ask: AskArgs,
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
    #[arg(long, value_name = "VALUE", value_parser = words::<HeartbeatValue>())]
    heartbeat_value: Option<HeartbeatValue>,
    /// Let heartbeats of a silent call tell how much of its usual time has passed, from the third call
    /// of a tool on: 12s of about 40s
    #[arg(long)]
    estimate: bool,
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
pub(super) fn words<T: Word + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let known = T::WORDS.iter().map(|(word, _)| *word);
    PossibleValuesParser::new(known).try_map(|word| T::read(&word))
}

impl PolicyArgs {
    /// What the flags say; `own`: dialects that a route file describes.
    pub(super) fn settings(&self, own: &[Dialect]) -> Result<Settings, String> {
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
            capabilities: self.ask.capabilities(),
            log_level: self.ask.log_level(),
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
                estimate: on(beats.estimate),
                ask: self.ask.settings(),
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
