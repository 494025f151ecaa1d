//! Logs: one line per call, counts at the end of a connection. Always on standard error.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use tracing::{Level, debug, info};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::census::CENSUS;
use crate::clients::{self, Client, Situation};
use crate::progress::{Outcome, Reason, Record, Repair, Summary, Verdict};

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Log lines that wait because nobody reads standard error. More are left out: a log must not keep
/// calls waiting.
const LINES_MAX: usize = 10_000;

/// Keeps the log going; what is left of it is written when this is dropped.
#[must_use]
pub struct Log(#[expect(dead_code, reason = "it is there to be dropped")] Option<WorkerGuard>);

/// Sends log lines of `level` and above to standard error. `MILEPOST_LOG` says it more finely, in
/// the words of tracing's `EnvFilter`.
pub fn start(level: Level, format: LogFormat) -> Log {
    let level = level.as_str().to_lowercase();
    // What servers write on their standard error has a target of its own.
    let default = format!("milepost={level},server={level}");
    let filter =
        EnvFilter::try_from_env("MILEPOST_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .thread_name("log")
        .finish(io::stderr());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(writer)
        .with_ansi(io::stderr().is_terminal());
    // A second start, as tests may try, changes nothing.
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Log(started.is_ok().then_some(guard))
}

/// What one connection is told about, line by line, and counted for its end.
#[derive(Debug, Default)]
pub struct Connection {
    withheld: BTreeMap<Reason, u64>,
    repaired: BTreeMap<Repair, u64>,
    forwarded: u64,
    beats: u64,
    without_token: u64,
    client: Who,
}

/// Whose calls a connection has carried.
#[derive(Debug, Default)]
enum Who {
    /// Nobody has said who they are.
    #[default]
    Unknown,
    One(Arc<Client>),
    Several,
}

impl Who {
    fn meet(&mut self, client: &Arc<Client>) {
        match self {
            Self::Unknown => *self = Self::One(Arc::clone(client)),
            Self::One(known) if known != client => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::One(client) => write!(f, "{client}"),
            Self::Several => f.write_str("several"),
        }
    }
}

impl Connection {
    /// Takes one record.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::Message { number, verdict: Verdict::Withheld(reason), .. } => {
                *self.withheld.entry(*reason).or_default() += 1;
                debug!(message = number, reason = reason.name(), "withheld");
            }
            Record::Message { number, verdict: Verdict::Repaired(repairs), .. } => {
                for repair in repairs.iter() {
                    *self.repaired.entry(repair).or_default() += 1;
                    debug!(message = number, repair = repair.name(), "repaired");
                }
            }
            Record::Message { verdict: Verdict::Forwarded, .. } => self.forwarded += 1,
            Record::Beat(_) => self.beats += 1,
            Record::Call(summary) => {
                if let Some(client) = &summary.client {
                    self.client.meet(client);
                }
                self.without_token += u64::from(summary.lacks_token);
                note_call(summary);
                advise(summary);
            }
        }
    }

    /// Says what the connection came to.
    pub fn finish(&self) {
        info!(
            forwarded = self.forwarded,
            repaired = counts(&self.repaired, |repair| repair.name()),
            withheld = counts(&self.withheld, |reason| reason.name()),
            beats = self.beats,
            without_token = self.without_token,
            client = self.client.to_string(),
            "connection over"
        );
    }
}

/// The one line per call. Other requests than `tools/call` are only told at `debug`.
fn note_call(call: &Summary) {
    if !tracing::enabled!(Level::INFO) {
        return;
    }
    let account = &call.account;
    let outcome = match call.outcome {
        Outcome::Result => "result",
        Outcome::ToolError => "tool error",
        Outcome::Interim => "interim result",
        Outcome::Error => "error",
        Outcome::Cancelled => "cancelled",
        Outcome::TimedOut => "timed out",
        Outcome::ServerGone => "server gone",
        Outcome::TaskEnded => "task ended",
        Outcome::Settled => "settled",
    };
    let token = call.token.as_ref().map(|token| String::from_utf8_lossy(token).into_owned());
    macro_rules! line {
        ($level:ident) => {
            $level!(
                tool = call.tool.as_deref().unwrap_or(&call.method),
                token = token.as_deref().unwrap_or("none"),
                took_ms = call.ended.saturating_duration_since(call.opened).as_millis() as u64,
                outcome,
                progress_in = account.received,
                overheard = account.overheard,
                progress_out = account.sent,
                repaired = counts(&account.repaired, |repair| repair.name()),
                dropped = counts(&account.withheld, |reason| reason.name()),
                beats = account.beats,
                "call"
            )
        };
    }
    if call.tool.is_some() { line!(info) } else { line!(debug) }
}

/// Says once of each client what it does not support and what to set in it, when a call shows that.
fn advise(call: &Summary) {
    // Heartbeats have reached it, and it has given up all the same.
    let given_up = call.outcome == Outcome::Cancelled && call.account.beats > 0;
    let situation = match () {
        () if call.lacks_token => Situation::NoToken,
        () if given_up => Situation::GivenUp,
        () => return,
    };
    let client = call.client.as_ref();
    let (name, version) = client.map(|it| (it.name(), it.version())).unwrap_or_default();
    let advice = clients::advice(name, version, situation);
    // A person may have cancelled it; only what is known is said.
    if situation == Situation::GivenUp && !advice.waits_a_fixed_time() {
        return;
    }
    if CENSUS.note(client, situation) {
        let client = client.map(|it| it.to_string());
        info!(client = client.as_deref().unwrap_or("unknown"), "{advice}");
    }
}

/// `lift 3, token 1`, or `none`.
fn counts<K>(counts: &BTreeMap<K, u64>, name: impl Fn(&K) -> &'static str) -> String {
    let words: Vec<String> =
        counts.iter().map(|(key, count)| format!("{} {count}", name(key))).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
