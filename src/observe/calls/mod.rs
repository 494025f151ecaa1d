//! The calls of a proxy for observers: open calls, recently ended calls, and the messages
//! and verdicts of each.
//!
//! ```text
//! filter ─> WatchedConversation ─> Entry (a mutex of its own) <─┐
//!                │ opens, ends                                  │ looks, a few times a second
//!                └────────> Table ──────────────────────────────┴─ Looking ─> page
//!                └────────> Taps ─> queue of each ─> tap
//! ```
//! Messages of different calls share no lock, except while an observer reads `/tap`. Observers never delay a message.

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
use crate::protocol::order;

pub use cancel::CancelError;
pub use look::{CallTableReader, ROUND};
pub use taps::{TapFilter, TapReader, Taps};
pub use text::TEXT_MAX;

// Observers must not slow down calls. Each call in the table has its own mutex. The table's mutex is locked when a call
// opens or ends, and when an observer reads, four times a second. What a page shows is computed from the kept text at
// each read. An observer whose connection is blocked reads nothing, so only `tap` needs a queue, which is bounded.
/// Maximum number of open calls in the table. Further calls are only counted.
pub const OPEN_MAX: usize = 1000;

/// Maximum number of ended calls in the table. The oldest are dropped first.
pub const ENDED_MAX: usize = 500;

/// Maximum number of bytes of all messages that are kept for observers. Beyond this limit the messages of the calls
/// that ended first are dropped, then the messages of the oldest open calls.
pub const BYTES_MAX: usize = 64 << 20;

/// Maximum number of open calls in the table of `milepost wrap` without an observer. Further calls are only counted.
pub const QUIET_OPEN_MAX: usize = 48;

/// Maximum number of ended calls in the table of `milepost wrap` without an observer. The oldest are dropped first.
pub const QUIET_ENDED_MAX: usize = 16;

/// Maximum number of bytes of messages of all calls that `milepost wrap` keeps without an observer. Its table then
/// takes less than 100 KB.
pub const QUIET_BYTES_MAX: usize = 32 << 10;

/// The path of the admin listener that streams every message.
pub const PATH_OF_TAP: &str = "/tap";

/// Maximum number of routes with separate counters. A route file has a handful of routes, but each version of the file
/// may have other ones.
const ROUTES_MAX: usize = 1024;

/// A route, and the totals of its calls.
#[derive(Debug)]
struct RouteTotals {
    name: Box<str>,
    /// The first name that the server gave itself.
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

/// Whether an outcome counts as a failure.
fn has_failed(outcome: Outcome) -> bool {
    let ended_early = matches!(outcome, Outcome::ServerGone | Outcome::ProxyStopped);
    ended_early || matches!(outcome, Outcome::ToolError | Outcome::Error | Outcome::TimedOut)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks leaves no value inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The limits of a table.
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
    /// The number of the newest call.
    last: u64,
    open: BTreeMap<u64, Arc<CallEntry>>,
    ended: VecDeque<Arc<CallEntry>>,
    routes: Vec<Arc<RouteTotals>>,
}

/// The calls of all routes.
#[derive(Debug)]
pub struct Table {
    /// A moment, as an `Instant` and as the time since 1970.
    begun: (Instant, Duration),
    known: Mutex<CallTable>,
    /// Bytes of memory that the messages take.
    bytes: Arc<AtomicUsize>,
    taps: Taps,
    /// The number of observers that read the table now.
    looking: AtomicUsize,
    /// Whether the smaller limits apply while the table has no observer.
    is_quiet: bool,
    /// Whether the process is stopping, so that no more calls are accepted.
    is_stopping: AtomicBool,
    use_seen: AtomicBool,
    use_waker: AtomicWaker,
}

/// An observer of a table. While it exists, the larger limits apply.
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
        // The last observer has left, so the smaller limits of a quiet table apply again.
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

    /// Returns the table of one server. The smaller limits apply while it has no observer.
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

    /// Returns the observers that receive each message.
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

    /// Notes that the process is stopping, for observers.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Completes once a client has sent a message. Only one task can wait.
    pub fn poll_use(&self, cx: &Context<'_>) -> Poll<()> {
        // Register before the check: a message between the two would otherwise wake no task.
        self.use_waker.register(cx.waker());
        if self.use_seen.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Notes that a client has sent a message.
    fn note_use(&self) {
        // A plain load first: every message comes here, but only the first has to set the flag.
        if !self.use_seen.load(Ordering::Relaxed) {
            self.use_seen.store(true, Ordering::Release);
            self.use_waker.wake();
        }
    }

    fn bounds(&self) -> TableBounds {
        let is_alone = self.is_quiet && self.looking.load(Ordering::Relaxed) == 0;
        if is_alone { QUIET } else { WHOLE }
    }

    /// Drops what exceeds the smaller limits, after the last observer has disconnected.
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

    /// Returns a time in milliseconds since 1970.
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

    /// Adds a call to the table; `None` if the table is full.
    fn open(
        &self,
        route: &Arc<RouteTotals>,
        call: &OpenCall<'_>,
        how: (&Masks, bool),
    ) -> Option<Arc<CallEntry>> {
        let mut known = lock(&self.known);
        let bounds = self.bounds();
        if known.open.len() >= bounds.open {
            // If the table is full, a call that a session's filter has taken over makes room. Such a call may never
            // end, because its client may have disconnected.
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

    /// Finds an open call that another filter has opened.
    fn find(&self, route: &Arc<RouteTotals>, call: &OpenCall<'_>) -> Option<Arc<CallEntry>> {
        let known = lock(&self.known);
        let is = |entry: &&Arc<CallEntry>| Arc::ptr_eq(&entry.route, route) && entry.is(call);
        known.open.values().find(is).cloned()
    }

    fn end(&self, entry: &Arc<CallEntry>, at: Instant, ended: CallEnd, summary: Option<&Summary>) {
        // Release the lock of the entry before locking the table, because elsewhere the table is locked before an
        // entry.
        entry.change(|state| state.end(at, ended, summary));
        let mut known = lock(&self.known);
        if let Some(entry) = known.open.remove(&entry.number) {
            known.retire(entry, self.bounds().ended);
        }
    }

    /// Drops messages if they exceed the limit.
    fn make_room(&self) {
        let max = self.bounds().bytes;
        // Check without locking the table: every message comes here, but the limit is rarely reached.
        if self.bytes.load(Ordering::Relaxed) <= max {
            return;
        }
        let known = lock(&self.known);
        for entry in known.ended.iter().chain(known.open.values()) {
            // Remove more than necessary, so that the next message does not lead to another clean-up.
            if self.bytes.load(Ordering::Relaxed) <= max / 8 * 7 {
                return;
            }
            entry.forget();
        }
    }

    /// Returns all calls, the oldest first.
    fn all(&self) -> Vec<Arc<CallEntry>> {
        let known = lock(&self.known);
        let mut all: Vec<Arc<CallEntry>> =
            known.ended.iter().chain(known.open.values()).cloned().collect();
        // Sort after unlocking, because calls need the lock to open or end.
        drop(known);
        order::sort_by_key(&mut all, |entry| entry.number);
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

/// Makes the observers that fill the table.
#[derive(Debug)]
pub struct Watch {
    /// The calls that are shown.
    pub table: Arc<Table>,
}

impl ObserverFactory for Watch {
    fn begin(
        &self,
        _: FilterId,
        route: &str,
        scope: Scope,
        policy: &Arc<Policy>,
    ) -> Option<Box<dyn Observer>> {
        let route = self.table.route(route)?;
        let how = (policy.call.masks.clone(), policy.observes());
        Some(Box::new(WatchedConversation::new(&self.table, route, scope, how)))
    }

    fn has_operators(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
