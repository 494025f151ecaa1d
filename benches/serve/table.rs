//! Medians and ratios, and the tables with them.

use std::io::{self, Write};
use std::time::Duration;

use crate::loads::{Load, Pace};
use crate::proxies::{MILEPOST, NGINX};
use crate::rounds::Round;

/// The results of one proxy's rounds, or the reason why there are none.
pub(crate) struct Row {
    pub(crate) proxy: &'static str,
    pub(crate) rounds: Vec<Round>,
    pub(crate) failed: Option<String>,
}

impl Row {
    fn median(&self, of: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        median(self.rounds.iter().filter_map(of).collect())
    }

    fn sum(&self, of: impl Fn(&Round) -> u64) -> u64 {
        self.rounds.iter().map(of).sum()
    }

    /// Returns the ratio of the CPU time to that of `other`, round by round.
    fn ratio(&self, other: &Self) -> Option<f64> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        median(pairs.filter_map(|(own, other)| Some(own.cpu? / other.cpu?)).collect())
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A result of milepost for the summary.
pub(crate) struct Figure {
    pub(crate) scenario: &'static str,
    pub(crate) value: Option<f64>,
    /// Number of answers that did not arrive unchanged, and of events that are useless for their client.
    pub(crate) wrong: Option<u64>,
}

/// Writes the table of a load. Returns the ratio of milepost's CPU time to nginx's.
pub(crate) fn show(out: &mut impl Write, load: &Load, rows: &[Row]) -> io::Result<Figure> {
    let unit = load.unit;
    writeln!(out, "\n### {}: {}\n", load.name, load.what)?;
    writeln!(
        out,
        "| proxy | CPU per {unit} | to nginx | {unit}s/s | p50 | p99 | got | of no use | answers lost |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    let named = |name| rows.iter().find(|row| row.proxy == name);
    let direct = named("direct");
    // If clients call again after each answer, calls wait for each other: latencies are then not compared with
    // `direct`.
    let is_closed = matches!(load.pace, Pace::Closed(_));
    for row in rows {
        let proxy = row.proxy;
        if let Some(why) = &row.failed {
            writeln!(out, "| {proxy} | {why} |")?;
            continue;
        }
        let time = |of: fn(&Round) -> Option<f64>| {
            let Some(own) = row.median(of) else { return String::new() };
            match direct.and_then(|direct| direct.median(of)) {
                Some(direct) if proxy != "direct" && !is_closed => {
                    format!("{own:.0} µs ({:+.0})", own - direct)
                }
                _ => format!("{own:.0} µs"),
            }
        };
        let (sent, got) = (row.sum(|round| round.sent), row.sum(|round| round.got));
        writeln!(
            out,
            "| {proxy} | {} | {} | {:.0} | {} | {} | {:.1} % | {:.1} % | {} |",
            row.median(|round| round.cpu).map(|cpu| format!("{cpu:.2} µs")).unwrap_or_default(),
            named(NGINX).and_then(|nginx| row.ratio(nginx)).map(two_digits).unwrap_or_default(),
            row.median(|round| Some(round.rate)).unwrap_or_default(),
            time(|round| round.p50),
            time(|round| round.p99),
            percent(got, sent),
            percent(row.sum(|round| round.bad), got),
            row.sum(|round| round.unanswered),
        )?;
    }
    let own = named(MILEPOST).filter(|own| !own.rounds.is_empty());
    Ok(Figure {
        scenario: load.name,
        value: own.and_then(|own| own.ratio(named(NGINX)?)),
        wrong: own.map(|own| own.sum(|round| round.bad + round.unanswered)),
    })
}

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of.max(1) as f64
}

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}

/// Writes a table with a row for each proxy.
pub(crate) fn show_plain(
    out: &mut impl Write,
    title: &str,
    unit: &str,
    rows: &[(&'static str, io::Result<Vec<f64>>)],
) -> io::Result<()> {
    writeln!(out, "\n### {title}\n\n| proxy | {unit} |\n|---|---|")?;
    for (proxy, figures) in rows {
        let text = match figures {
            Ok(figures) => {
                let texts: Vec<_> = figures.iter().map(|figure| format!("{figure:.1}")).collect();
                texts.join(", ")
            }
            Err(error) => error.to_string(),
        };
        writeln!(out, "| {proxy} | {text} |")?;
    }
    Ok(())
}

/// What milepost adds to a call in each round, in microseconds.
#[derive(Default)]
pub(crate) struct Added {
    direct: Vec<f64>,
    through: Vec<f64>,
    cpu: Vec<f64>,
}

impl Added {
    /// Adds a round: how long calls took on the server's own transport and through milepost, and milepost's CPU time
    /// for the latter.
    pub(crate) fn round(&mut self, direct: Vec<Duration>, through: Vec<Duration>, cpu: Duration) {
        self.cpu.push(cpu.as_secs_f64() * 1e6 / through.len() as f64);
        let half = |times: Vec<Duration>| {
            median(times.iter().map(|time| time.as_secs_f64() * 1e6).collect()).unwrap_or_default()
        };
        self.direct.push(half(direct));
        self.through.push(half(through));
    }

    /// Writes the results.
    pub(crate) fn show(
        self,
        out: &mut impl Write,
        scenario: &'static str,
        what: &str,
    ) -> io::Result<Figure> {
        let pairs = self.direct.iter().zip(&self.through);
        let added = median(pairs.map(|(direct, through)| through - direct).collect());
        let [direct, through, cpu] =
            [self.direct, self.through, self.cpu].map(|all| median(all).unwrap_or_default());
        writeln!(out, "\n### {scenario}: {what}\n\n| way | CPU per call | p50 | added |")?;
        writeln!(out, "|---|--:|--:|--:|\n| direct | | {direct:.0} µs | |")?;
        let more = added.unwrap_or_default();
        writeln!(out, "| milepost | {cpu:.1} µs | {through:.0} µs | {more:.0} µs |")?;
        Ok(Figure { scenario, value: added, wrong: None })
    }
}

/// The aims: a scenario, the unit of its result, and the maximum that is aimed at.
const AIMS: [(&str, &str, f64); 18] = [
    ("json", "x nginx's CPU", 1.6),
    ("json-sessions", "x nginx's CPU", 1.6),
    ("paced", "x nginx's CPU", 1.25),
    ("burst32", "x nginx's CPU", 1.5),
    ("burst32-every", "x nginx's CPU", 2.5),
    ("flood32", "x nginx's CPU", 1.5),
    ("flood32-wrong", "x nginx's CPU", 2.5),
    ("flood32-every", "x nginx's CPU", 2.5),
    ("chunk1", "x nginx's CPU", 1.8),
    ("big", "x nginx's CPU", 0.35),
    ("big-sse", "x nginx's CPU", 0.45),
    ("idle", "KB a stream", 24.0),
    ("stalled", "KB a stream", 256.0),
    ("stalled-logs", "KB a stream", 256.0),
    ("slow", "ms at most", 250.0),
    ("stdio", "µs added to a call", 500.0),
    ("stdio-shared", "µs added to a call", 500.0),
    ("wrap-url", "µs added to a call", 500.0),
];

/// Writes a line for each aim for which something was measured.
pub(crate) fn summary(out: &mut impl Write, figures: &[Figure]) -> io::Result<()> {
    writeln!(out, "\n### Aims\n\n| scenario | aim | milepost | |\n|---|--:|--:|---|")?;
    for (scenario, what, most) in AIMS {
        let Some(figure) = figures.iter().find(|figure| figure.scenario == scenario) else {
            continue;
        };
        let (value, verdict) = match figure.value {
            Some(value) if value <= most => (two_digits(value), "met"),
            Some(value) => (two_digits(value), "not met"),
            None => (String::new(), "not measured"),
        };
        writeln!(out, "| {scenario} | {most} {what} | {value} | {verdict} |")?;
    }
    let wrong = figures.iter().filter_map(|figure| figure.wrong).reduce(|sum, more| sum + more);
    let Some(wrong) = wrong else { return Ok(()) };
    let verdict = if wrong == 0 { "met" } else { "not met" };
    writeln!(out, "| all | 0 answers lost or events of no use | {wrong} | {verdict} |")
}
