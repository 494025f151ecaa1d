//! Logs on standard error: one line per call, and counts at the end of a connection.

mod advice;
mod batches;
mod budget;
mod call_line;
mod directives;
mod lines;
mod messages;
pub mod shared_stderr;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{panic, thread};

use litemap::LiteMap;
use tracing::{Level, Metadata, field, info, warn};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

pub(crate) use budget::LogBudget;
pub use budget::may_log_refusal;
pub use directives::{DirectiveError, read_level};
pub use messages::MessageLog;

use advice::advise;
use batches::Batches;
use call_line::{counts, nonzero};

use crate::observe::metrics::RouteCounts;
use crate::observe::otlp;
use crate::observe::otlp::{SpanEvent, SpanMark};
use crate::progress::clients::Client;
use crate::progress::{
    CallId, FilterEvent, KindCounts, LateNews, Reason, Repair, TaskNews, Verdict,
};
use crate::protocol::trace_context::TraceContext;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object in each line.
    Json,
}

/// Deadline for the line of a warning, an error or a panic to be written, because standard error may be blocked. The
/// program waits for it.
const WARNING_WAIT: Duration = Duration::from_millis(100);

/// Deadline for the last lines to be written at the end of the program.
const END_WAIT: Duration = Duration::from_secs(1);

/// The log lines that are not written yet.
static LINES: Batches = Batches::new();

/// The guard of the log. Dropping the guard writes the remaining lines.
#[must_use]
pub struct Log(());

impl Drop for Log {
    fn drop(&mut self) {
        shared_stderr::end_child_text();
        LINES.close(END_WAIT);
    }
}

/// Writes the waiting log lines before other text goes to standard error. Waits at most 100 ms.
pub fn flush() {
    LINES.flush(WARNING_WAIT);
}

/// The buffer of one log line.
struct LineBuffer {
    /// Whether the line must be written before the program continues.
    is_urgent: bool,
}

impl<'a> MakeWriter<'a> for LineBuffer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self { is_urgent: false }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Self {
        Self { is_urgent: *of.level() <= Level::WARN }
    }
}

// Each write is a whole line: the subscriber formats a line before it writes the line.
impl io::Write for LineBuffer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.add(line);
        if self.is_urgent {
            // Do not wait if a child's line is unfinished: this thread may be the one that must write its end.
            let is_late = shared_stderr::has_open_line();
            LINES.flush(if is_late { Duration::ZERO } else { WARNING_WAIT });
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The environment variable with a log filter.
const VARIABLE: &str = "MILEPOST_LOG";

/// The log filter of the environment is not valid.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE}: {0}")]
pub struct LogStartError(FilterWordsError);

/// Sends log lines of `level` and above to standard error. `MILEPOST_LOG` replaces the level by a filter: `level`,
/// `target` or `target=level`, with commas between. A line of `WARN` or `ERROR` is written when the call that logs it
/// returns, unless standard error is blocked; other lines follow within 10 ms.
///
/// # Errors
/// If `MILEPOST_LOG` is not a filter.
pub fn start(level: Level, format: LogFormat) -> Result<Log, LogStartError> {
    let own = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let text = own.unwrap_or_else(|| of_level(level.as_str()));
    let filter = parsed(&text).map_err(LogStartError)?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(LineBuffer { is_urgent: false });
    let filtered = tracing_subscriber::registry().with(filter);
    // Ignore the error: a second start, as in tests, changes nothing.
    let started = match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(has_colors()).fmt_fields(lines::PlainFields);
            filtered.with(lines.event_format(lines::Plain)).try_init().is_ok()
        }
        LogFormat::Json => {
            let lines = lines.fmt_fields(lines::Json).event_format(lines::Json);
            filtered.with(lines).try_init().is_ok()
        }
    };
    if started {
        let now = Mutex::new(text.clone());
        let _ = RUNNING.set(ProcessLog { start: text, now, handle });
        start_writer();
    }
    Ok(Log(()))
}

/// Whether text lines have colours: if standard error is a terminal and `NO_COLOR` is not set.
fn has_colors() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !is_refused
}

/// Starts the thread that writes the lines. A panic first has the waiting lines written.
fn start_writer() {
    let say_dropped = |lines| warn!(target: "milepost", lines, "log lines were left out");
    let run = move || LINES.run(shared_stderr::write_log_lines, say_dropped);
    // Ignore the error: without the thread nothing is logged, but calls continue.
    let _ = thread::Builder::new().name("log".to_owned()).spawn(run);
    let next = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        flush();
        next(panic);
    }));
}

/// Returns the filter for a level. The servers' standard error has its own target.
fn of_level(level: &str) -> String {
    let level = level.to_lowercase();
    format!("milepost={level},server={level}")
}

/// The HTTP/2 library. Its log has the path of each request that it cannot read, and a path may contain a secret.
const CAPPED: &str = "h2";

/// Reads a filter of levels and targets. Unless the filter names the [`CAPPED`] library, its lines are `INFO` at most.
fn parsed(words: &str) -> Result<Targets, FilterWordsError> {
    directives::check(words)?;
    let words: Vec<&str> =
        words.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let filter: Targets = words.join(",").parse()?;
    let is_capped = |word: &&str| word.split(['=', ':']).next() == Some(CAPPED);
    if words.iter().any(is_capped) {
        return Ok(filter);
    }
    Ok(filter.with_target(CAPPED, LevelFilter::INFO))
}

/// The reason why a text is not a log filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterWordsError {
    /// A word is unknown.
    #[error(transparent)]
    Directive(#[from] DirectiveError),
    /// Another fault.
    #[error("{0}; for example \"debug\" or \"milepost=debug,server=info\"")]
    Syntax(#[from] ParseError),
}

/// The log of this process.
struct ProcessLog {
    /// The filter with which the log was started.
    start: String,
    now: Mutex<String>,
    handle: reload::Handle<Targets, Registry>,
}

static RUNNING: OnceLock<ProcessLog> = OnceLock::new();

/// The reason why the log filter was not changed.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The log was not started.
    #[error("this process has no log that can be changed")]
    NoLog,
    /// The text is not a filter.
    #[error("no log filter: {0}")]
    Words(#[from] FilterWordsError),
}

/// Returns the current log filter; `None` if the log was not started.
pub fn filter() -> Option<String> {
    let running = RUNNING.get()?;
    Some(running.now.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Changes the log filter: a level, or levels for targets.
///
/// # Errors
/// If the log was not started, or the text is not a filter.
pub fn set_filter(words: &str) -> Result<(), FilterError> {
    let words = words.trim();
    let text = match words.parse::<Level>() {
        Ok(level) => of_level(level.as_str()),
        Err(_) => words.to_owned(),
    };
    let filter = parsed(&text)?;
    let running = RUNNING.get().ok_or(FilterError::NoLog)?;
    let mut now = running.now.lock().unwrap_or_else(PoisonError::into_inner);
    running.handle.reload(filter).map_err(|_| FilterError::NoLog)?;
    info!(target: "milepost", from = now.as_str(), to = text, "log level changed");
    *now = text;
    Ok(())
}

/// Restores the log filter with which the log was started.
///
/// # Errors
/// If the log was not started.
pub fn reset_filter() -> Result<(), FilterError> {
    let running = RUNNING.get().ok_or(FilterError::NoLog)?;
    set_filter(&running.start)
}

/// Returns the number of log lines that were left out.
pub fn lines_dropped() -> u64 {
    LINES.dropped()
}

// Counting happens where filter events are recorded, so that all kinds of connections are counted in the same way. The
// counters of the route are looked up once: a message then costs one or two relaxed additions (13 ns each, 44 ns if two
// threads add simultaneously), a tool call three histograms (200 ns). Sizes (sessions, streams, kept bytes) are read
// only for a scrape.
/// Logs the events of one connection, and counts them for the summary at the end of the connection.
#[derive(Debug, Default)]
pub struct Connection {
    withheld: KindCounts<Reason>,
    repaired: KindCounts<Repair>,
    forwarded: u64,
    beats: u64,
    without_token: u64,
    client: Who,
    /// The counters of the route, for metrics.
    counts: Option<Arc<RouteCounts>>,
    /// The number of unanswered requests.
    open: i64,
    /// The first repair and withheld message of each open call, for spans.
    marks: LiteMap<CallId, Vec<SpanMark>>,
}

/// Maximum number of calls of one connection for which repaired or withheld messages are remembered for spans.
const MARKED_MAX: usize = 1024;

/// The clients that have made calls on a connection.
#[derive(Debug, Default)]
enum Who {
    /// No client has sent its name.
    #[default]
    Unknown,
    One(Arc<Client>),
    Several,
}

impl Who {
    fn add(&mut self, client: &Arc<Client>) {
        match self {
            Self::Unknown => *self = Self::One(Arc::clone(client)),
            Self::One(known) if known != client => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }

    /// Returns the name for the line of the connection, if a client has sent its name.
    fn name(&self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::One(client) => Some(client.to_string()),
            Self::Several => Some("several".to_owned()),
        }
    }
}

impl Connection {
    /// Returns a connection that also counts for a route.
    pub fn of(counts: &Arc<RouteCounts>) -> Self {
        let mut connection = Self::default();
        connection.counts = Some(Arc::clone(counts));
        connection
    }

    /// Returns the counters of the connection's route.
    pub fn counts(&self) -> Option<&Arc<RouteCounts>> {
        self.counts.as_ref()
    }

    /// Logs and counts one event.
    pub fn note(&mut self, record: &FilterEvent) {
        if let FilterEvent::Message { call, verdict, .. } = record {
            return self.note_verdict(*call, *verdict, 1);
        }
        if let Some(counts) = &self.counts {
            counts.note(record);
            let more = match record {
                FilterEvent::Opened(_) => 1,
                // The call may have been opened by another filter, so do not count below zero.
                FilterEvent::Call(_) if self.open > 0 => -1,
                _ => 0,
            };
            if more != 0 {
                self.open += more;
                counts.in_flight(more);
            }
        }
        match record {
            FilterEvent::Opened(_)
            | FilterEvent::TakenOver(_)
            | FilterEvent::Refused(_)
            | FilterEvent::Message { .. } => {}
            FilterEvent::Heartbeat(_) => self.beats += 1,
            FilterEvent::UnansweringError(words) => warn!(
                route = self.counts.as_deref().map(RouteCounts::route),
                words = &**words,
                "the server sent an error without an id: no client can use such an error, and it was not forwarded"
            ),
            FilterEvent::Late(news) => self.note_late(news),
            FilterEvent::Task(news) => self.note_task(news),
            FilterEvent::Call(summary) => {
                if let Some(client) = &summary.client {
                    self.client.add(client);
                }
                self.without_token += u64::from(summary.lacks_token);
                let marks = self.marks.remove(&summary.call).unwrap_or_default();
                let route = self.counts.as_deref().map(RouteCounts::route);
                let trace = otlp::record(summary, route, &marks);
                let of_client = || summary.trace.as_deref().map(TraceContext::trace_id);
                call_line::write(summary, route, trace.or_else(of_client).as_deref());
                advise(summary);
            }
        }
    }

    /// Counts the same verdict on several messages.
    pub fn note_verdict(&mut self, call: Option<CallId>, verdict: Verdict, times: u64) {
        if let Some(counts) = &self.counts {
            counts.note_verdict(verdict, times);
        }
        match verdict {
            Verdict::Forwarded => self.forwarded += times,
            Verdict::Repaired(repairs) => {
                for repair in repairs.iter() {
                    self.mark(call, SpanEvent::Repaired(repair));
                    self.repaired.add(repair, times);
                }
            }
            Verdict::Withheld(reason) => {
                self.mark(call, SpanEvent::Withheld(reason));
                self.withheld.add(reason, times);
            }
        }
    }

    /// Logs an event about work that continues after its client gave up the call.
    fn note_late(&self, news: &LateNews) {
        if news.is_repeated {
            return;
        }
        info!(
            route = self.counts.as_deref().map(RouteCounts::route),
            event = news.event.name(),
            tool = &*news.tool,
            age = %humantime::format_duration(Duration::from_secs(news.age.as_secs())),
            calls = news.attempts,
            clock = news.clock.map(|clock| field::display(humantime::format_duration(clock))),
            "late answer"
        );
    }

    /// Logs an event of one of Milepost's own tasks.
    fn note_task(&self, news: &TaskNews) {
        info!(
            route = self.counts.as_deref().map(RouteCounts::route),
            event = news.event.name(),
            tool = &*news.tool,
            age = %humantime::format_duration(Duration::from_secs(news.age.as_secs())),
            "task"
        );
    }

    /// Adds an event about a message of a call to the call's span.
    fn mark(&mut self, call: Option<CallId>, event: SpanEvent) {
        let Some(call) = call.filter(|_| otlp::is_on()) else { return };
        if self.marks.len() < MARKED_MAX || self.marks.contains_key(&call) {
            let marks = self.marks.entry(call).or_default();
            // A span records each reason and repair once, so that a flood cannot fill the span.
            if marks.iter().all(|mark| mark.event != event) {
                marks.push(SpanMark { at: Instant::now(), event });
            }
        }
    }

    /// Logs the counts of the connection, without counts that are zero.
    pub fn finish(&self) {
        info!(
            forwarded = nonzero(self.forwarded),
            repaired = counts(&self.repaired, |repair| repair.name()),
            withheld = counts(&self.withheld, |reason| reason.name()),
            heartbeats = nonzero(self.beats),
            without_token = nonzero(self.without_token),
            client = self.client.name(),
            route = self.counts.as_deref().map(RouteCounts::route),
            "connection over"
        );
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(counts) = &self.counts
            && self.open > 0
        {
            counts.in_flight(-self.open);
        }
    }
}
