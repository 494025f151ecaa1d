//! The calls of all processes, as `milepost top` knows them.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use litemap::LiteMap;
use serde::Deserialize;

use super::filter::{CallFilter, CallOrder};
use super::row::{CallKey, TopCall, TopRow};
use crate::progress::clients::is_unprintable;
use crate::protocol::order;

/// Maximum number of calls of one process that are kept. The oldest ended calls are dropped first.
const CALLS_MAX: usize = 2000;

/// For how long the calls of an ended process stay visible.
const STAYS: Duration = Duration::from_secs(60);

/// A route, as `/calls` describes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct TopRoute {
    route: String,
    server: Option<String>,
}

/// A process, and its calls.
#[derive(Debug)]
struct TopProcess {
    name: String,
    calls: LiteMap<u64, TopCall>,
    routes: Vec<TopRoute>,
    clock: (u64, Instant),
    ended: Option<Instant>,
    trouble: Option<String>,
}

/// An event of a process that shows its calls.
#[derive(Debug)]
pub(super) enum ProcessNews {
    /// The process shows its calls.
    Begun(String),
    /// An event from `/calls`: its name and its data.
    Event(String, String),
    /// The process reports no more calls; with the reason if it is to be shown to the user.
    Ended(Option<String>),
}

/// All processes.
#[derive(Debug, Default)]
pub(super) struct TopCalls {
    processes: LiteMap<String, TopProcess>,
}

impl TopCalls {
    /// Applies an event of the process with this key.
    pub(super) fn take(&mut self, key: &str, news: ProcessNews, now: Instant) {
        match news {
            ProcessNews::Begun(name) => {
                let process = TopProcess {
                    name,
                    calls: LiteMap::new(),
                    routes: Vec::new(),
                    clock: (0, now),
                    ended: None,
                    trouble: None,
                };
                self.processes.insert(key.to_owned(), process);
            }
            ProcessNews::Event(name, data) => {
                if let Some(process) = self.processes.get_mut(key) {
                    process.hear(&name, &data, now);
                }
            }
            ProcessNews::Ended(trouble) => {
                if let Some(process) = self.processes.get_mut(key) {
                    process.ended = Some(now);
                    process.trouble = trouble;
                }
            }
        }
    }

    /// Drops the processes that ended more than `STAYS` ago.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.processes.retain(|_, process| {
            process.ended.is_none_or(|ended| now.saturating_duration_since(ended) < STAYS)
        });
    }

    /// Returns the keys of the processes that show their calls.
    pub(super) fn running(&self) -> BTreeSet<String> {
        let running = self.processes.iter().filter(|(_, process)| process.ended.is_none());
        running.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the name and the reason of a process that has ended unexpectedly.
    pub(super) fn trouble(&self) -> Option<String> {
        let mut troubles = self.processes.values().filter_map(|process| process.trouble.clone());
        troubles.next_back()
    }

    /// Returns the calls that pass the filter, in the filter's order.
    pub(super) fn rows(&self, filter: &CallFilter, at: Instant) -> Vec<TopRow> {
        let rows = self.processes.iter().flat_map(|(key, process)| process.rows(key, at));
        let mut rows: Vec<TopRow> = rows.collect();
        tell_apart(&mut rows);
        rows.retain(|row| filter.admits(row));
        order::sort_by_key(&mut rows, |row| {
            let end = row.call.ended.unwrap_or(row.now);
            let order = if row.is_open() { row.call.opened } else { u64::MAX - end };
            (!row.is_open(), order, row.key.clone())
        });
        // A stable sort keeps equal calls in the usual order.
        match filter.order {
            CallOrder::Usual => {}
            CallOrder::Time => order::sort_by_key(&mut rows, |row| Reverse(row.took())),
            CallOrder::Tool => {
                order::sort_by(&mut rows, |one, two| one.call.label().cmp(two.call.label()))
            }
            CallOrder::Server => order::sort_by(&mut rows, |one, two| one.place.cmp(&two.place)),
            CallOrder::Changes => {
                order::sort_by_key(&mut rows, |row| Reverse(row.call.change_count()))
            }
        }
        rows
    }

    /// Returns the row of one call, even if the filter excludes it.
    pub(super) fn row(&self, key: &CallKey, at: Instant) -> Option<TopRow> {
        let process = self.processes.get(&key.0)?;
        let mut rows = process.rows(&key.0, at);
        rows.find(|row| row.key == *key)
    }
}

/// Appends the process id to a name that several processes have, such as two `wrap` processes of one server.
fn tell_apart(rows: &mut [TopRow]) {
    let mut keys: LiteMap<&str, BTreeSet<&str>> = LiteMap::new();
    for row in &*rows {
        keys.entry(&row.place).or_default().insert(&row.key.0);
    }
    let several = keys.into_iter().filter(|(_, keys)| keys.len() > 1);
    let several: BTreeSet<String> = several.map(|(place, _)| place.to_owned()).collect();
    for row in rows.iter_mut().filter(|row| several.contains(&row.place)) {
        if let Some(pid) = pid_in(&row.key.0) {
            row.place = format!("{} {pid}", row.place);
        }
    }
}

/// Returns the process id in the path of a local socket, whose name is `wrap-PID-RANDOM.sock`.
fn pid_in(key: &str) -> Option<&str> {
    let name = key.rsplit('/').next()?;
    name.split('-').nth(1).filter(|pid| pid.bytes().all(|digit| digit.is_ascii_digit()))
}

impl TopProcess {
    fn hear(&mut self, name: &str, data: &str, now: Instant) {
        match name {
            "routes" => self.routes = serde_json::from_str(data).unwrap_or_default(),
            "calls" => {
                let calls: Vec<TopCall> = serde_json::from_str(data).unwrap_or_default();
                self.calls.extend(calls.into_iter().map(|call| (call.n, call)));
                while self.calls.len() > CALLS_MAX {
                    let oldest = self.calls.values().find(|call| call.ended.is_some());
                    let oldest = oldest.or_else(|| self.calls.values().next()).map(|call| call.n);
                    oldest.map(|n| self.calls.remove(&n));
                }
            }
            "gone" => {
                let gone: Vec<u64> = serde_json::from_str(data).unwrap_or_default();
                for n in gone {
                    self.calls.remove(&n);
                }
            }
            "now" => self.clock = (data.trim().parse().unwrap_or_default(), now),
            _ => {}
        }
    }

    fn rows(&self, key: &str, at: Instant) -> impl Iterator<Item = TopRow> {
        let (then, since) = self.clock;
        let at = self.ended.unwrap_or(at);
        let passed = at.saturating_duration_since(since).as_millis();
        let now = then.saturating_add(passed.try_into().unwrap_or(u64::MAX));
        self.calls.values().map(move |call| {
            let route = self.routes.iter().find(|route| route.route == call.route);
            let server = route.and_then(|route| route.server.as_deref());
            let is_lost = self.ended.is_some() && call.ended.is_none();
            let place = self.place(&call.route, server);
            TopRow { key: (key.to_owned(), call.n), place, call: call.clone(), now, is_lost }
        })
    }

    /// Returns the process and the server of a call as readable text.
    fn place(&self, route: &str, server: Option<&str>) -> String {
        let place = match (self.name.split_once(' '), server) {
            (Some(("wrap", _)), Some(server)) => format!("wrap {server}"),
            (Some(("wrap", name)), None) => format!("wrap {name}"),
            _ => format!("serve {route}"),
        };
        place.chars().filter(|sign| !is_unprintable(*sign)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::filter::CallTrouble;

    fn event(name: &str, data: &str) -> ProcessNews {
        ProcessNews::Event(name.to_owned(), data.to_owned())
    }

    fn labels(calls: &TopCalls, filter: &CallFilter, at: Instant) -> Vec<String> {
        let rows = calls.rows(filter, at).into_iter();
        rows.map(|row| format!("{} {}", row.place, row.call.label())).collect()
    }

    #[test]
    fn calls_of_all_processes_stand_in_one_order() {
        let now = Instant::now();
        let mut calls = TopCalls::default();
        calls.take("a", ProcessNews::Begun("wrap npx".to_owned()), now);
        calls.take("b", ProcessNews::Begun("serve 127.0.0.1:1".to_owned()), now);
        calls.take("a", event("routes", r#"[{"route":"npx","server":"git"}]"#), now);
        calls.take(
            "a",
            event(
                "calls",
                r#"[{"n":1,"route":"npx","method":"initialize","opened":1},
                    {"n":2,"route":"npx","tool":"old","opened":2,"ended":5,"outcome":"result"},
                    {"n":3,"route":"npx","tool":"long","opened":30}]"#,
            ),
            now,
        );
        let other = r#"[{"n":1,"route":"/x","tool":"first","opened":20},
            {"n":2,"route":"/x","tool":"new","opened":4,"ended":9,"outcome":"tool error"}]"#;
        calls.take("b", event("calls", other), now);
        let all = CallFilter::default();
        let expected =
            ["serve /x first", "wrap git long", "serve /x new", "wrap git old"].map(String::from);
        assert_eq!(labels(&calls, &all, now), expected);
        let words = CallFilter { words: vec!["git".to_owned(), "lo".to_owned()], ..all.clone() };
        assert_eq!(labels(&calls, &words, now), ["wrap git long"]);
        let open = CallFilter { only_open: true, every_method: true, ..all.clone() };
        assert_eq!(labels(&calls, &open, now).len(), 3);
        calls.take("b", event("gone", "[1]"), now);
        assert_eq!(labels(&calls, &all, now).len(), 3);

        calls.take("a", ProcessNews::Ended(None), now);
        assert!(calls.running().contains("b") && !calls.running().contains("a"));
        let row = calls.row(&("a".to_owned(), 3), now).unwrap();
        assert!(row.has_failed() && !row.is_open() && row.outcome() == "its process has ended");
        calls.tidy(now + STAYS);
        assert_eq!(labels(&calls, &all, now), ["serve /x new"]);
    }

    #[test]
    fn processes_of_one_server_are_told_apart_by_their_ids() {
        let now = Instant::now();
        let mut calls = TopCalls::default();
        for (key, name) in [
            ("/run/wrap-12-ab.sock", "git"),
            ("/run/wrap-34-cd.sock", "git"),
            ("/run/wrap-56-ef.sock", "x"),
        ] {
            calls.take(key, ProcessNews::Begun(format!("wrap {name}")), now);
            calls.take(key, event("calls", r#"[{"n":1,"tool":"t","opened":1}]"#), now);
        }
        let all = CallFilter::default();
        assert_eq!(labels(&calls, &all, now), ["wrap git 12 t", "wrap git 34 t", "wrap x t"]);
    }

    #[test]
    fn calls_are_sorted_and_narrowed_to_those_in_trouble() {
        let now = Instant::now();
        let mut calls = TopCalls::default();
        calls.take("a", ProcessNews::Begun("serve 127.0.0.1:1".to_owned()), now);
        let text = r#"[
            {"n":1,"route":"/b","tool":"quick","opened":39000,"spoke":39500,"beats":1},
            {"n":2,"route":"/a","tool":"silent","opened":20000,"spoke":25000},
            {"n":3,"route":"/c","tool":"bad","opened":1000,"ended":3000,"outcome":"tool error",
             "repaired":{"lift":2}},
            {"n":4,"route":"/a","tool":"good","opened":4000,"ended":34000,"outcome":"result"}]"#;
        calls.take("a", event("calls", text), now);
        calls.take("a", event("now", "40000"), now);
        let tools = |order, trouble| {
            let filter = CallFilter { order, trouble, ..CallFilter::default() };
            let rows = calls.rows(&filter, now).into_iter();
            rows.map(|row| row.call.label().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let sorted = |order| tools(order, CallTrouble::Any);
        assert_eq!(sorted(CallOrder::Usual), "silent quick good bad");
        assert_eq!(sorted(CallOrder::Time), "good silent bad quick");
        assert_eq!(sorted(CallOrder::Tool), "bad good quick silent");
        assert_eq!(sorted(CallOrder::Server), "silent good quick bad");
        assert_eq!(sorted(CallOrder::Changes), "bad quick silent good");
        assert_eq!(tools(CallOrder::Usual, CallTrouble::Failed), "bad");
        assert_eq!(tools(CallOrder::Usual, CallTrouble::Silent), "silent");
    }

    #[test]
    fn a_report_without_a_figure_says_so() {
        let call = |text: &str| serde_json::from_str::<TopCall>(text).unwrap();
        let figure = |text: &str| call(text).figure();
        assert_eq!(figure(r#"{"token":true,"progress":"14","total":"40"}"#), "35 %, 14 of 40");
        assert_eq!(figure(r#"{"token":true,"progress":"0.5","total":"1"}"#), "50 %");
        assert_eq!(figure(r#"{"token":true,"progress":"7"}"#), "7");
        assert_eq!(figure(r#"{"token":true,"message":"indexing","sent":3}"#), "no figure");
        assert_eq!(figure(r#"{"token":true}"#), "nothing yet");
        assert_eq!(figure(r#"{"sent":0}"#), "not asked for");
        let changed = call(r#"{"repaired":{"lift":2,"token":1},"withheld":{"late":1},"beats":4}"#);
        assert_eq!(changed.changes(), "repaired ×3, withheld, heartbeat ×4");
        assert_eq!(changed.changes_within(16), "repaired ×3, …");
    }
}
