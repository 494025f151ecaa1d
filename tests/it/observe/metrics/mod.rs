//! `/metrics`: its numbers agree with the conversations.

mod conversations;
pub(crate) mod page;

use std::collections::BTreeMap;

use milepost::observe::metrics::Metrics;
use page::Page;

use crate::core::transcripts::{replay_counting, transcripts};

/// The sums of the call summaries and verdicts of a played transcript.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    ended: BTreeMap<String, u32>,
    withheld: BTreeMap<String, u32>,
    received: u32,
    overheard: u32,
    sent: u32,
    beats: u32,
    late: BTreeMap<String, u32>,
    tasks: BTreeMap<String, u32>,
}

/// Returns the number after a word.
fn behind(line: &str, word: &str) -> u32 {
    let rest = line.split_once(word).map(|(_, rest)| rest);
    rest.map_or(0, |rest| rest.split([' ', ',']).next().unwrap().parse().unwrap())
}

impl Sums {
    fn add(&mut self, played: &str) {
        for line in played.lines() {
            if let Some(reason) = line.strip_prefix("x ") {
                *self.withheld.entry(reason.to_owned()).or_default() += 1;
            }
            let Some(summary) = line.strip_prefix("~ ") else { continue };
            if let Some(event) = summary.strip_prefix("late ") {
                let event = event.split(',').next().unwrap();
                *self.late.entry(event.to_owned()).or_default() += 1;
                continue;
            }
            if let Some(event) = summary.strip_prefix("task ") {
                *self.tasks.entry(event.to_owned()).or_default() += 1;
                continue;
            }
            let outcome = summary.split(' ').next().unwrap();
            *self.ended.entry(outcome.to_owned()).or_default() += 1;
            self.received += behind(summary, " in ");
            self.overheard += behind(summary, " overheard ");
            self.sent += behind(summary, " out ");
            self.beats += behind(summary, " beats ");
        }
    }
}

#[test]
fn the_counters_are_what_the_transcripts_say() {
    let (metrics, mut sums) = (Metrics::new(), Sums::default());
    let counts = metrics.route("/r");
    for transcript in transcripts() {
        sums.add(&replay_counting(&transcript.text, &counts));
    }
    let page = Page::read(&metrics.text(0, || {}));
    let sum = |name: &str, labels: &[(&str, &str)]| page.sum(name, labels);
    for (reason, count) in &sums.withheld {
        let counted = sum("milepost_withheld_total", &[("reason", reason)]);
        assert_eq!(counted, f64::from(*count), "{reason}");
    }
    for (event, count) in &sums.late {
        assert_eq!(
            sum("milepost_late_calls_total", &[("event", event)]),
            f64::from(*count),
            "{event}"
        );
    }
    assert!(sums.late.len() > 5, "{sums:?}");
    for (event, count) in &sums.tasks {
        let counted = sum("milepost_tasks_total", &[("event", event)]);
        assert_eq!(counted, f64::from(*count), "{event}");
    }
    assert!(sums.tasks.len() > 5, "{sums:?}");
    let noise = sum("milepost_withheld_total", &[("reason", "noise")]);
    let withheld: u32 = sums.withheld.values().sum();
    assert_eq!(sum("milepost_withheld_total", &[]), f64::from(withheld) + noise);
    let verdict = |name: &str| sum("milepost_server_messages_total", &[("verdict", name)]);
    assert_eq!(verdict("withheld"), f64::from(withheld) + noise);
    assert!(verdict("forwarded") > 0.0 && verdict("repaired") > 0.0);
    for (outcome, count) in &sums.ended {
        let name = match outcome.as_str() {
            "Result" => "result",
            "ToolError" => "tool error",
            "Interim" => "interim result",
            "Error" => "error",
            "Cancelled" => "cancelled",
            "CancelledByOperator" => "cancelled by operator",
            "TimedOut" => "timed out",
            "ServerGone" => "server gone",
            "ProxyStopped" => "milepost stopped",
            "TaskEnded" => "task ended",
            "Settled" => "settled",
            "ClientLeft" => "client left",
            other => panic!("what is {other}?"),
        };
        let counted = sum("milepost_calls_total", &[("outcome", name)]);
        assert_eq!(counted, f64::from(*count), "{outcome}");
    }
    assert!(sums.received > 100 && sums.beats > 10 && sums.overheard > 10, "{sums:?}");
    assert_eq!(sum("milepost_progress_received_total", &[]), f64::from(sums.received));
    assert_eq!(sum("milepost_overheard_lines_total", &[]), f64::from(sums.overheard));
    assert_eq!(sum("milepost_progress_sent_total", &[]), f64::from(sums.sent));
    let sent = |origin| sum("milepost_progress_sent_total", &[("origin", origin)]);
    assert_eq!(sent("heartbeat") + sent("estimate"), f64::from(sums.beats));
    assert!(["server", "text", "heartbeat", "estimate"].iter().all(|origin| sent(origin) > 0.0));
}

#[test]
fn a_label_may_hold_anything() {
    let metrics = Metrics::new();
    let path = "/a\"b\\c\nd";
    metrics.route(path).record_upgrade();
    metrics.route(path).record_upgrade();
    let page = Page::read(&metrics.text(7, || {}));
    assert_eq!(page.sum("milepost_upgrades_total", &[("route", path)]), 2.0);
    assert_eq!(page.sum("milepost_log_lines_dropped_total", &[]), 7.0);
}
