//! The calls of `milepost serve` for observers: open calls, recently ended calls, and the messages
//! and verdicts of each.
//!
//! ```text
//! filter ─> Conversation ─> Entry (a mutex of its own) <─┐
//!                │ opens, ends                           │ looks, a few times a second
//!                └────────> Table ───────────────────────┴─ Looking ─> page
//!                └────────> Taps ─> queue of each ─> tap
//! ```
//! Calls share no lock on the way of a message, except while an observer reads `/tap`. Observers
//! delay nothing.

mod conversation;
mod entry;
mod look;
mod show;
mod taps;
mod text;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::config::values::nearest;
use crate::observe::events::{FilterId, Observer, ObserverFactory, Scope};
use crate::progress::policy::masks::Masks;
use crate::progress::{CallStats, OpenCall, Outcome, Policy, Summary};
use conversation::Conversation;
use entry::{CallEnd, CallEntry};

pub use look::{CallTableReader, ROUND};
pub use taps::{TapFilter, TapReader, Taps};
pub use text::TEXT_MAX;

// Observers cost the calls of others nothing. Each call in the table has a mutex of its own; the
// table's mutex is taken when a call opens or ends and when an observer reads, four times a second.
// The page's values are computed from the kept text on reading. An observer whose connection is
// blocked is asked for nothing, so only `tap` has a queue, which is bounded.
/// Open calls in the table of calls. Further calls are only counted.
pub const OPEN_MAX: usize = 1000;

/// Ended calls in the table of calls. The oldest are dropped first.
pub const ENDED_MAX: usize = 500;

/// Bytes of the messages of all calls that are kept for observers. Beyond the limit the messages of
/// the calls that ended first are dropped, then the messages of the oldest open calls.
pub const BYTES_MAX: usize = 64 << 20;

/// The bytes kept after a clean-up, so that the next clean-up is not needed at once.
const BYTES_LEFT: usize = BYTES_MAX / 8 * 7;

/// The path of the admin listener that shows each message.
pub const PATH_OF_TAP: &str = "/tap";

/// Routes with counters of their own. A route file has a handful; each version of the file may have
/// other routes.
const ROUTES_MAX: usize = 1024;

/// A route, and the totals of its calls.
#[derive(Debug)]
struct RouteTotals {
    name: Box<str>,
    open: AtomicI64,
    ended: Mutex<Sums>,
}

/// The totals of a route's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Sums {
    calls: u64,
    received: u64,
    sent: u64,
    beats: u64,
    repaired: u64,
    withheld: u64,
    without_token: u64,
    failed: u64,
}

impl RouteTotals {
    fn opened(&self, more: i64) {
        self.open.fetch_add(more, Ordering::Relaxed);
    }

    fn ended(&self, call: &Summary) {
        self.opened(-1);
        let mut sums = lock(&self.ended);
        sums.calls += 1;
        sums.add(&call.account);
        sums.without_token += u64::from(call.lacks_token);
        sums.failed += u64::from(has_failed(call.outcome));
    }
}

impl Sums {
    fn add(&mut self, account: &CallStats) {
        self.received += account.received;
        self.sent += account.sent;
        self.beats += account.beats;
        self.repaired += account.repaired.values().sum::<u64>();
        self.withheld += account.withheld.values().sum::<u64>();
    }
}

/// Whether an outcome is a failure.
fn has_failed(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::ToolError | Outcome::Error | Outcome::TimedOut | Outcome::ServerGone)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here is left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct CallTable {
    /// The number of the last call.
    last: u64,
    open: BTreeMap<u64, Arc<CallEntry>>,
    ended: VecDeque<Arc<CallEntry>>,
    routes: Vec<Arc<RouteTotals>>,
}

/// The calls of all routes.
#[derive(Debug)]
pub struct Table {
    /// A moment, and its time since 1970.
    begun: (Instant, Duration),
    known: Mutex<CallTable>,
    /// Memory of messages.
    bytes: Arc<AtomicUsize>,
    taps: Taps,
}

impl Table {
    /// A table of the calls of these routes, and of those that begin later.
    pub fn new<'a>(routes: impl IntoIterator<Item = &'a str>) -> Arc<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let table = Self {
            begun: (Instant::now(), since),
            known: Mutex::default(),
            bytes: Arc::default(),
            taps: Taps::default(),
        };
        for route in routes {
            table.route(route);
        }
        Arc::new(table)
    }

    /// The observers that receive each message.
    pub fn taps(&self) -> &Taps {
        &self.taps
    }

    /// The number of routes that an observer of this route, or of all routes, sees.
    ///
    /// # Errors
    /// If there is no such route; the error names the nearest one.
    pub fn watched(&self, route: Option<&str>) -> Result<usize, String> {
        let known = lock(&self.known);
        let names: Vec<&str> = known.routes.iter().map(|route| &*route.name).collect();
        match route {
            None => Ok(names.len()),
            Some(route) if names.contains(&route) => Ok(1),
            Some(route) => Err(match nearest(route, names.iter().copied()) {
                Some(near) => format!("there is no route {route:?}; did you mean {near:?}?"),
                None => format!("there is no route {route:?}; the routes are {}", names.join(", ")),
            }),
        }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Milliseconds since 1970.
    fn ms(&self, at: Instant) -> u64 {
        let (begun, since) = self.begun;
        let later = since + at.saturating_duration_since(begun);
        let time = later.saturating_sub(begun.saturating_duration_since(at));
        time.as_millis().try_into().unwrap_or(u64::MAX)
    }

    fn route(&self, name: &str) -> Option<Arc<RouteTotals>> {
        let mut known = lock(&self.known);
        let found = known.routes.iter().find(|route| &*route.name == name);
        if let Some(route) = found {
            return Some(Arc::clone(route));
        }
        if known.routes.len() >= ROUTES_MAX {
            return None;
        }
        let (open, ended) = (AtomicI64::new(0), Mutex::default());
        let route = Arc::new(RouteTotals { name: name.into(), open, ended });
        known.routes.push(Arc::clone(&route));
        Some(route)
    }

    /// Keeps a call in mind, if there is room.
    fn open(
        &self,
        route: &Arc<RouteTotals>,
        call: &OpenCall<'_>,
        how: (&Masks, bool),
    ) -> Option<Arc<CallEntry>> {
        let mut known = lock(&self.known);
        if known.open.len() >= OPEN_MAX {
            // One that is told of on no stream may never end.
            let adrift = known.open.values().find(|entry| entry.moves() > 0).cloned();
            let adrift = known.open.remove(&adrift?.number)?;
            adrift.change(|state| state.end(self.now(), CallEnd::Unanswered, None));
            known.retire(adrift);
        }
        known.last += 1;
        let entry = Arc::new(CallEntry::new(known.last, route, call, how, &self.bytes));
        known.open.insert(entry.number, Arc::clone(&entry));
        Some(entry)
    }

    /// An open call of another filter.
    fn find(&self, route: &Arc<RouteTotals>, call: &OpenCall<'_>) -> Option<Arc<CallEntry>> {
        let known = lock(&self.known);
        let is = |entry: &&Arc<CallEntry>| Arc::ptr_eq(&entry.route, route) && entry.is(call);
        known.open.values().find(is).cloned()
    }

    fn end(&self, entry: &Arc<CallEntry>, at: Instant, ended: CallEnd, summary: Option<&Summary>) {
        entry.change(|state| state.end(at, ended, summary));
        let mut known = lock(&self.known);
        if let Some(entry) = known.open.remove(&entry.number) {
            known.retire(entry);
        }
    }

    /// Lets messages go if there are too many.
    fn make_room(&self) {
        if self.bytes.load(Ordering::Relaxed) <= BYTES_MAX {
            return;
        }
        let known = lock(&self.known);
        for entry in known.ended.iter().chain(known.open.values()) {
            if self.bytes.load(Ordering::Relaxed) <= BYTES_LEFT {
                return;
            }
            entry.forget();
        }
    }

    /// All calls, those that opened first first.
    fn all(&self) -> Vec<Arc<CallEntry>> {
        let known = lock(&self.known);
        let mut all: Vec<Arc<CallEntry>> =
            known.ended.iter().chain(known.open.values()).cloned().collect();
        drop(known);
        all.sort_by_key(|entry| entry.number);
        all
    }
}

impl CallTable {
    fn retire(&mut self, entry: Arc<CallEntry>) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(entry);
    }
}

/// Looks on for a table.
#[derive(Debug)]
pub struct Watch(pub Arc<Table>);

impl ObserverFactory for Watch {
    fn begin(
        &self,
        _: FilterId,
        route: &str,
        scope: Scope,
        policy: &Arc<Policy>,
    ) -> Option<Box<dyn Observer>> {
        let route = self.0.route(route)?;
        let how = (policy.call.masks.clone(), policy.observes());
        Some(Box::new(Conversation::new(&self.0, route, scope, how)))
    }
}

#[cfg(test)]
mod tests;
