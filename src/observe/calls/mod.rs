//! The calls of a proxy for observers: open calls, recently ended calls, and the messages
//! and verdicts of each.
//!
//! ```text
//! filter ─> WatchedConversation ─> Entry (a mutex of its own) <─┐
//!                │ opens, ends                                  │ looks, a few times a second
//!                └────────> Table ──────────────────────────────┴─ Looking ─> page
//!                └────────> Taps ─> queue of each ─> tap
//! ```
//! Calls share no lock on the way of a message, except while an observer reads `/tap`. Observers
//! delay nothing.

mod cancel;
mod conversation;
mod entry;
mod look;
mod show;
mod taps;
mod text;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use conversation::WatchedConversation;
use entry::{CallEnd, CallEntry};
use futures::task::AtomicWaker;
use serde::Serialize;

use crate::config::values::nearest;
use crate::observe::events::{FilterId, Observer, ObserverFactory, Scope};
use crate::progress::policy::masks::Masks;
use crate::progress::{CallStats, OpenCall, Outcome, Policy, Summary};

pub use cancel::CancelError;
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

/// Maximum number of open calls in the table of `milepost wrap` without an observer. Further calls are only counted.
pub const QUIET_OPEN_MAX: usize = 48;

/// Maximum number of ended calls in the table of `milepost wrap` without an observer. The oldest are dropped first.
pub const QUIET_ENDED_MAX: usize = 16;

/// Bytes of the messages that `milepost wrap` keeps without an observer, in all calls. Its table then takes less than
/// 100 KB.
pub const QUIET_BYTES_MAX: usize = 32 << 10;

/// The path of the admin listener that shows each message.
pub const PATH_OF_TAP: &str = "/tap";

/// Routes with counters of their own. A route file has a handful; each version of the file may have
/// other routes.
const ROUTES_MAX: usize = 1024;

/// A route, and the totals of its calls.
#[derive(Debug)]
struct RouteTotals {
    name: Box<str>,
    /// The name that the server gave itself first.
    server: OnceLock<Box<str>>,
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
        self.repaired += account.repaired.total();
        self.withheld += account.withheld.total();
    }
}

/// Whether an outcome is a failure.
fn has_failed(outcome: Outcome) -> bool {
    let ended_early = matches!(outcome, Outcome::ServerGone | Outcome::ProxyStopped);
    ended_early || matches!(outcome, Outcome::ToolError | Outcome::Error | Outcome::TimedOut)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks leaves no value inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bounds of a table.
#[derive(Debug, Clone, Copy)]
struct TableBounds {
    open: usize,
    ended: usize,
    bytes: usize,
}

const WHOLE: TableBounds = TableBounds { open: OPEN_MAX, ended: ENDED_MAX, bytes: BYTES_MAX };

const QUIET: TableBounds =
    TableBounds { open: QUIET_OPEN_MAX, ended: QUIET_ENDED_MAX, bytes: QUIET_BYTES_MAX };

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
    /// Observers that read the table now.
    looking: AtomicUsize,
    /// Whether the table keeps little while it has no observer.
    is_quiet: bool,
    /// No more calls are accepted.
    is_stopping: AtomicBool,
    use_seen: AtomicBool,
    use_waker: AtomicWaker,
}

/// An observer of a table, which keeps all that its bounds allow meanwhile.
#[derive(Debug)]
struct Look {
    table: Arc<Table>,
}

impl Look {
    fn begin(table: &Arc<Table>) -> Self {
        table.looking.fetch_add(1, Ordering::Relaxed);
        Self { table: Arc::clone(table) }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        // The last observer has left: a quiet table goes back to its small bounds.
        if self.table.looking.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.table.shrink();
        }
    }
}

impl Table {
    /// Returns a table of the calls of these routes, and of routes that are added later.
    pub fn new<'a>(routes: impl IntoIterator<Item = &'a str>) -> Arc<Self> {
        let table = Self::empty();
        for route in routes {
            table.route(route);
        }
        Arc::new(table)
    }

    /// Returns the table of one server, which keeps little while it has no observer.
    pub fn quiet(server: &str) -> Arc<Self> {
        let table = Self { is_quiet: true, ..Self::empty() };
        table.route(server);
        Arc::new(table)
    }

    fn empty() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            begun: (Instant::now(), since),
            known: Mutex::default(),
            bytes: Arc::default(),
            taps: Taps::default(),
            looking: AtomicUsize::new(0),
            is_quiet: false,
            is_stopping: AtomicBool::new(false),
            use_seen: AtomicBool::new(false),
            use_waker: AtomicWaker::new(),
        }
    }

    /// The observers that receive each message.
    pub fn taps(&self) -> &Taps {
        &self.taps
    }

    /// Returns the number of routes that an observer of this route, or of all routes, sees.
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

    /// Tells observers that no more calls are accepted.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Ready once a client has sent a message. One task can wait.
    pub fn poll_use(&self, cx: &Context<'_>) -> Poll<()> {
        // Register before the check: a message between the two would otherwise wake no task.
        self.use_waker.register(cx.waker());
        if self.use_seen.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Notes that a client has sent a message.
    fn note_use(&self) {
        // A plain load first, because each message comes here, but only the first one has work to do.
        if !self.use_seen.load(Ordering::Relaxed) {
            self.use_seen.store(true, Ordering::Release);
            self.use_waker.wake();
        }
    }

    fn bounds(&self) -> TableBounds {
        let is_alone = self.is_quiet && self.looking.load(Ordering::Relaxed) == 0;
        if is_alone { QUIET } else { WHOLE }
    }

    /// Drops entries beyond the smaller limits, when the last observer has disconnected.
    fn shrink(&self) {
        let mut known = lock(&self.known);
        let more = known.ended.len().saturating_sub(self.bounds().ended);
        known.ended.drain(..more);
        drop(known);
        self.make_room();
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
        let route =
            Arc::new(RouteTotals { name: name.into(), server: OnceLock::new(), open, ended });
        known.routes.push(Arc::clone(&route));
        Some(route)
    }

    /// Adds a call to the table, if there is room.
    fn open(
        &self,
        route: &Arc<RouteTotals>,
        call: &OpenCall<'_>,
        how: (&Masks, bool),
    ) -> Option<Arc<CallEntry>> {
        let mut known = lock(&self.known);
        let bounds = self.bounds();
        if known.open.len() >= bounds.open {
            // A call that the filter of a session has taken over may never end, because its client may have
            // disconnected.
            let adrift = known.open.values().find(|entry| entry.moves() > 0).cloned();
            let adrift = known.open.remove(&adrift?.number)?;
            adrift.change(|state| state.end(self.now(), CallEnd::Unanswered, None));
            known.retire(adrift, bounds.ended);
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
        // The lock of the entry is released before the table is locked.
        // Elsewhere the table is locked first, then an entry.
        entry.change(|state| state.end(at, ended, summary));
        let mut known = lock(&self.known);
        if let Some(entry) = known.open.remove(&entry.number) {
            known.retire(entry, self.bounds().ended);
        }
    }

    /// Drops messages if there are too many.
    fn make_room(&self) {
        let max = self.bounds().bytes;
        // Without the lock of the table: the limit is rarely reached, and each message comes here.
        if self.bytes.load(Ordering::Relaxed) <= max {
            return;
        }
        let known = lock(&self.known);
        for entry in known.ended.iter().chain(known.open.values()) {
            // More than needed is removed, so that the next clean-up does not follow at once.
            if self.bytes.load(Ordering::Relaxed) <= max / 8 * 7 {
                return;
            }
            entry.forget();
        }
    }

    /// Returns all calls, those that opened first at the beginning.
    fn all(&self) -> Vec<Arc<CallEntry>> {
        let known = lock(&self.known);
        let mut all: Vec<Arc<CallEntry>> =
            known.ended.iter().chain(known.open.values()).cloned().collect();
        // Sorted without the lock, which calls need to open or end.
        drop(known);
        all.sort_by_key(|entry| entry.number);
        all
    }
}

impl CallTable {
    fn retire(&mut self, entry: Arc<CallEntry>, max: usize) {
        if self.ended.len() >= max {
            self.ended.pop_front();
        }
        self.ended.push_back(entry);
    }
}

/// Makes the observers that fill a table.
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
        Some(Box::new(WatchedConversation::new(&self.0, route, scope, how)))
    }
}

#[cfg(test)]
mod tests;
