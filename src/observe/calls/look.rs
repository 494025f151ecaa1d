//! Reads the changes of the table since an observer's last read, as server-sent events.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::show::{CallJson, RouteJson, text};
use super::{Look, Table};

/// The interval of updates to an observer.
pub const ROUND: Duration = Duration::from_millis(250);

/// The interval of messages to an observer if nothing changes, to show that the connection works.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// An observer that reads the table repeatedly.
#[derive(Debug)]
pub struct CallTableReader {
    table: Arc<Table>,
    _look: Look,
    /// The calls that the observer has read, with their version at that time.
    seen: BTreeMap<u64, u64>,
    routes: Vec<RouteJson>,
    knows_stop: bool,
    last_sent: Option<Instant>,
}

impl CallTableReader {
    /// Begins to observe a table. The first [`Self::round`] returns everything.
    pub fn at(table: &Arc<Table>) -> Self {
        Self {
            table: Arc::clone(table),
            _look: Look::begin(table),
            seen: BTreeMap::new(),
            routes: Vec::new(),
            knows_stop: false,
            last_sent: None,
        }
    }

    /// Returns the changes as events; `None` without changes. The first round returns the whole table.
    pub fn round(&mut self) -> Option<String> {
        let all = self.table.all();
        let mut out = String::new();
        let mut seen = BTreeMap::new();
        let mut changed: Vec<CallJson<'_>> = Vec::new();
        for entry in &all {
            // The version is read before the call: a change in between is then sent again in the next round, and not
            // lost.
            let version = entry.version();
            if self.seen.remove(&entry.number) != Some(version) {
                changed.push(self.table.call(entry));
            }
            seen.insert(entry.number, version);
        }
        let gone: Vec<u64> = std::mem::replace(&mut self.seen, seen).into_keys().collect();
        let routes = self.table.routes(&all);
        if routes != self.routes || self.last_sent.is_none() {
            event(&mut out, "routes", &text(&routes));
            self.routes = routes;
        }
        if !gone.is_empty() {
            event(&mut out, "gone", &text(&gone));
        }
        if !changed.is_empty() || self.last_sent.is_none() {
            event(&mut out, "calls", &text(&changed));
        }
        let is_stopping = self.table.is_stopping.load(Ordering::Relaxed);
        if is_stopping && !std::mem::replace(&mut self.knows_stop, true) {
            event(&mut out, "stopping", "true");
        }
        let now = self.table.now();
        let is_silent = self.last_sent.is_some_and(|last_sent| now < last_sent + SIGN_OF_LIFE);
        // Even without a change, a message is sent from time to time, so that a page sees that its connection works.
        if out.is_empty() && is_silent {
            return None;
        }
        event(&mut out, "now", &self.table.ms(now).to_string());
        self.last_sent = Some(now);
        Some(out)
    }
}

fn event(out: &mut String, name: &str, data: &str) {
    let _ = write!(out, "event: {name}\ndata: {data}\n\n");
}
