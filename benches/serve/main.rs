//! Measures `milepost serve` under load, beside nginx and haproxy, which do not inspect messages:
//! `cargo bench --bench serve [-- [--rounds N] [SCENARIO...]]`.
//!
//! One thread of this program is the server, another runs all clients. Between them are, in short rounds one after the
//! other, nothing, nginx without buffering, haproxy and milepost, each with one working thread. The report has the CPU
//! time of the process in the middle (from `/proc/PID/task/*/schedstat`), as medians over the rounds, and its ratio to
//! nginx's in the same round. nginx and haproxy are left out if they are not installed.
//!
//! If milepost changes the transport, no other proxy can be compared. What milepost adds to a call is then compared
//! with the same server on its own transport.

mod children;
mod client;
mod http;
mod loads;
mod memory;
mod proxies;
mod rounds;
mod table;
mod upstream;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use loads::Load;
use proxies::{MILEPOST, Target};
use table::{Figure, Row};
use tokio::time::timeout;

/// Number of rounds for each proxy, unless `--rounds` is given.
const ROUNDS: usize = 7;
/// Deadline for every step. Whatever takes longer is stuck.
const STUCK: Duration = Duration::from_secs(120);
/// Number of silent streams.
const IDLE: usize = 2000;
/// Number of clients that do not read.
const STALLED: usize = 50;

const SCENARIOS: [&str; 20] = [
    "json",
    "json-sessions",
    "latency",
    "paced",
    "burst32",
    "burst32-every",
    "flood32",
    "flood32-logs",
    "flood32-wrong",
    "flood32-every",
    "chunk1",
    "big",
    "big-sse",
    "idle",
    "stalled",
    "stalled-logs",
    "slow",
    "stdio",
    "stdio-shared",
    "wrap-url",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(children::SERVER) {
        return children::serve();
    }
    let mut rounds = ROUNDS;
    let mut wanted = Vec::new();
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        if argument == "--rounds" {
            let number = arguments.next().and_then(|number| number.parse().ok());
            rounds = number.ok_or_else(|| io::Error::other("--rounds needs a number"))?;
        } else if let Some(name) = SCENARIOS.into_iter().find(|name| *name == argument) {
            wanted.push(name);
        } else {
            let known = SCENARIOS.join(" ");
            return Err(io::Error::other(format!("{argument} is none of: {known}")));
        }
    }
    if wanted.is_empty() {
        wanted = SCENARIOS.to_vec();
    }
    upstream::epoch();
    let bench = Bench { upstream: upstream::start()?, folder: tempfile::tempdir()?, rounds };
    let mut out = io::stdout();
    let mut figures = Vec::new();
    for name in wanted {
        let load = loads::all().into_iter().find(|load| load.name == name);
        let change = children::SCENARIOS.into_iter().find(|(scenario, _)| *scenario == name);
        figures.push(match (load, change) {
            (Some(load), _) => bench.costs(&mut out, &load).await?,
            (None, Some(change)) => bench.adds(&mut out, change).await?,
            (None, None) => bench.holds(&mut out, name).await?,
        });
    }
    table::summary(&mut out, &figures)
}

struct Bench {
    upstream: SocketAddr,
    folder: tempfile::TempDir,
    rounds: usize,
}

impl Bench {
    async fn start(&self, name: &'static str) -> io::Result<Target> {
        Target::start(name, self.upstream, Path::new(self.folder.path())).await
    }

    /// Measures what a load costs.
    async fn costs(&self, out: &mut impl Write, load: &Load) -> io::Result<Figure> {
        let (mut rows, mut targets) = (Vec::new(), Vec::new());
        for proxy in proxies::NAMES {
            let (target, failed) = match self.start(proxy).await {
                Ok(target) => (Some(target), None),
                Err(error) => (None, Some(error.to_string())),
            };
            targets.push(target);
            rows.push(Row { proxy, rounds: Vec::new(), failed });
        }
        // The first round is only a warm-up.
        for number in 0..=self.rounds {
            for turn in 0..rows.len() {
                let index = (turn + number) % rows.len();
                let (Some(target), Some(row)) = (&targets[index], rows.get_mut(index)) else {
                    continue;
                };
                if row.failed.is_some() {
                    continue;
                }
                let done = timeout(STUCK, rounds::round(load, target)).await;
                match done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(round) if number > 0 => row.rounds.push(round),
                    Ok(_) => {}
                    Err(error) => row.failed = Some(error.to_string()),
                }
            }
        }
        table::show(out, load, &rows)
    }

    /// Measures what a change of transport adds to a call.
    async fn adds(&self, out: &mut impl Write, change: (&'static str, &str)) -> io::Result<Figure> {
        let added = children::added(out, change, self.upstream, self.folder.path(), self.rounds);
        timeout(STUCK, added).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Measures how much memory open streams take, with each proxy started anew.
    async fn holds(&self, out: &mut impl Write, scenario: &'static str) -> io::Result<Figure> {
        let (title, unit) = match scenario {
            "idle" => (format!("{IDLE} silent streams"), "KB a stream"),
            "slow" => (
                "clients that read a tenth of 5,000 events a second".to_owned(),
                "ms, age of the oldest that was read, second by second",
            ),
            _ => (format!("{STALLED} clients that do not read a flood"), "KB a stream, at most"),
        };
        let mut rows = Vec::new();
        for proxy in proxies::NAMES {
            if proxy == "direct" && scenario != "slow" {
                continue;
            }
            let figures = timeout(STUCK, self.hold(proxy, scenario)).await;
            rows.push((proxy, figures.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))));
        }
        table::show_plain(out, &format!("{scenario}: {title}"), unit, &rows)?;
        let own = rows.iter().find(|(proxy, _)| *proxy == MILEPOST);
        let own = own.and_then(|(_, figures)| figures.as_ref().ok());
        let value = own.and_then(|figures| figures.iter().copied().reduce(f64::max));
        Ok(Figure { scenario, value, wrong: None })
    }

    async fn hold(&self, proxy: &'static str, scenario: &str) -> io::Result<Vec<f64>> {
        let target = self.start(proxy).await?;
        match scenario {
            "idle" => Ok(vec![memory::idle(&target, IDLE).await?]),
            "stalled" => Ok(vec![memory::stalled(&target, "own", STALLED).await?]),
            "stalled-logs" => Ok(vec![memory::stalled(&target, "log", STALLED).await?]),
            _ => memory::slow(&target).await,
        }
    }
}
