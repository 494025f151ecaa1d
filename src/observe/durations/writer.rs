//! The thread that reads and writes the file of durations, and its queue.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tracing::{debug, warn};

use super::clients::PendingHabits;
use super::place::path_in_label;
use super::store::{PendingSamples, Store, StoreError, ToolRow};
use crate::progress::client_habits::Habit;
use crate::progress::durations::{LearnedDurations, SampleOutcome};

/// Maximum number of tools whose durations wait to be written. Durations of further tools are kept in memory only.
const WAITING_MAX: usize = 1024;

/// Maximum number of events of clients that wait to be written. Further events are kept in memory only.
const EVENTS_MAX: usize = 1024;

// The calls of a busy server are written together, because a write for each of them would keep the disk awake.
/// The shortest pause between two writes of the state file.
const APART: Duration = Duration::from_millis(100);
/// The additional pause for each call in the last write.
const APART_FOR_EACH: Duration = Duration::from_millis(50);
/// The longest pause between two writes of the state file.
const APART_MAX: Duration = Duration::from_secs(10);

/// The wait before the file is tried again after other processes had it open.
const AGAIN: Duration = Duration::from_secs(5);

/// Routes whose stored durations must be loaded.
type Loads = Vec<(Arc<str>, Weak<LearnedDurations>)>;

/// The work of the thread: what it must read and write.
#[derive(Default)]
struct FileWork {
    loads: Loads,
    added: PendingSamples,
    habits: PendingHabits,
    /// The number of calls in `added` plus events in `habits`.
    calls: u32,
}

impl FileWork {
    fn is_empty(&self) -> bool {
        self.loads.is_empty() && self.added.is_empty() && self.habits.is_empty()
    }

    /// Does as much work as possible, and removes from `self` what is done.
    fn do_with(&mut self, store: &mut Store) -> Result<(), StoreError> {
        // Load first, because clients need the result, even if the writes after it fail.
        load(store, &self.loads)?;
        self.loads.clear();
        if !self.added.is_empty() {
            store.add(&self.added, super::now())?;
            self.added.clear();
        }
        if !self.habits.is_empty() {
            store.add_habits(&self.habits, super::now())?;
            self.habits.clear();
        }
        Ok(())
    }
}

/// The waiting work of the thread.
#[derive(Default)]
struct WriteQueue {
    work: FileWork,
    /// The number of tools in `work.added`.
    tools: usize,
    /// The number of events in `work.habits`.
    events: usize,
    /// Whether the thread sleeps and must be woken for work.
    idle: bool,
    closing: bool,
    /// Whether the thread has ended.
    over: bool,
}

/// The thread that writes learned durations to the file.
#[derive(Default)]
pub(super) struct DurationWriter {
    queue: Mutex<WriteQueue>,
    changed: Condvar,
    ended: Condvar,
}

impl DurationWriter {
    /// Starts the thread. Returns `None` if the system cannot start one; then nothing is stored.
    pub(super) fn start(store: Store) -> Option<Arc<Self>> {
        let writer = Arc::new(Self::default());
        let own = Arc::clone(&writer);
        let run = move || {
            let _over = NotifyEnd { writer: &own };
            own.run(store);
        };
        let started = thread::Builder::new().name("durations".to_owned()).spawn(run);
        started.is_ok().then_some(writer)
    }

    /// Adds an ended call to the queue.
    pub(super) fn note(&self, route: &Arc<str>, tool: &str, ended: SampleOutcome) {
        let mut queue = self.lock();
        // The thread has ended, so the call would never be taken out of the queue.
        if queue.over {
            return;
        }
        let full = queue.tools >= WAITING_MAX;
        if !queue.work.added.contains_key(route) {
            if full {
                return;
            }
            queue.work.added.insert(Arc::clone(route), Default::default());
        }
        let Some(tools) = queue.work.added.get_mut(route) else { return };
        match tools.get_mut(tool) {
            Some(durations) => durations.note(ended),
            None if full => return,
            None => {
                tools.entry(tool.into()).or_default().note(ended);
                queue.tools += 1;
            }
        }
        queue.work.calls = queue.work.calls.saturating_add(1);
        self.wake(&mut queue);
    }

    /// Adds an event of a client to the queue.
    pub(super) fn note_habit(&self, route: &Arc<str>, client: &str, habit: Habit) {
        let mut queue = self.lock();
        if queue.over || queue.events >= EVENTS_MAX {
            return;
        }
        let clients = queue.work.habits.entry(Arc::clone(route)).or_default();
        clients.entry(client.into()).or_default().push(habit);
        queue.events += 1;
        queue.work.calls = queue.work.calls.saturating_add(1);
        self.wake(&mut queue);
    }

    /// Requests that the stored durations of a route be added to `learned`.
    pub(super) fn load(&self, route: Arc<str>, learned: &Arc<LearnedDurations>) {
        let mut queue = self.lock();
        queue.work.loads.push((route, Arc::downgrade(learned)));
        self.wake(&mut queue);
    }

    /// Waits until everything is written, but not longer than `patience`.
    pub(super) fn close(&self, patience: Duration) {
        let mut queue = self.lock();
        queue.closing = true;
        self.changed.notify_one();
        let ended = self.ended.wait_timeout_while(queue, patience, |queue| !queue.over);
        let (queue, _) = ended.unwrap_or_else(PoisonError::into_inner);
        if !queue.over {
            debug!("the last calls are not kept: the file was not to be had in time");
        }
    }

    fn wake(&self, queue: &mut WriteQueue) {
        // Wake the thread only once, because that is the most expensive step here.
        if mem::take(&mut queue.idle) {
            self.changed.notify_one();
        }
    }

    fn run(&self, mut store: Store) {
        let mut warned = false;
        loop {
            let mut work = self.next();
            if work.is_empty() {
                return;
            }
            match work.do_with(&mut store) {
                Ok(()) => self.pause((APART_FOR_EACH * work.calls).clamp(APART, APART_MAX)),
                Err(error @ StoreError::Busy { .. }) => {
                    if !mem::replace(&mut warned, true) {
                        warn!(%error, "what is known of durations waits");
                    }
                    if self.put_back(work) {
                        return;
                    }
                    self.pause(AGAIN);
                }
                Err(error) => {
                    // Stop using the file: the same fault would recur, and calls continue without the file.
                    let why = std::error::Error::source(&error).map(ToString::to_string);
                    let why = why.unwrap_or_default();
                    warn!(%error, why, "how long tools take is forgotten at the end");
                    return;
                }
            }
        }
    }

    /// Waits for work and returns it. Returns empty work at the end of the process.
    fn next(&self) -> FileWork {
        let mut queue = self.lock();
        queue.idle = true;
        let nothing = |queue: &mut WriteQueue| queue.work.is_empty() && !queue.closing;
        let woken = self.changed.wait_while(queue, nothing);
        let mut queue = woken.unwrap_or_else(PoisonError::into_inner);
        queue.idle = false;
        (queue.tools, queue.events) = (0, 0);
        mem::take(&mut queue.work)
    }

    /// Puts failed work back into the queue. Returns whether the process is ending.
    fn put_back(&self, work: FileWork) -> bool {
        let mut queue = self.lock();
        // Put it before newer work, because the durations of a tool are ordered from oldest to newest.
        queue.work.loads.splice(..0, work.loads);
        for (route, tools) in work.added {
            for (tool, older) in tools {
                let known = queue.work.added.entry(Arc::clone(&route)).or_default();
                known.entry(tool).or_default().precede(&older);
            }
        }
        for (route, clients) in work.habits {
            for (client, older) in clients {
                let known = queue.work.habits.entry(Arc::clone(&route)).or_default();
                known.entry(client).or_default().splice(..0, older);
            }
        }
        queue.tools = queue.work.added.values().map(BTreeMap::len).sum();
        queue.events = queue.work.habits.values().flat_map(BTreeMap::values).map(Vec::len).sum();
        queue.closing
    }

    /// Waits for `time`, or until the process ends.
    fn pause(&self, time: Duration) {
        // `close` sets `closing` and wakes the thread, so the end of the process does not wait for the pause.
        let rested = self.changed.wait_timeout_while(self.lock(), time, |queue| !queue.closing);
        drop(rested.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signals that the thread has ended, for whatever reason.
struct NotifyEnd<'a> {
    writer: &'a DurationWriter,
}

impl Drop for NotifyEnd<'_> {
    fn drop(&mut self) {
        let mut queue = self.writer.lock();
        queue.over = true;
        // Drop the waiting work, which would otherwise stay in memory until the process ends.
        queue.work = FileWork::default();
        self.writer.ended.notify_all();
    }
}

fn load(store: &mut Store, loads: &[(Arc<str>, Weak<LearnedDurations>)]) -> Result<(), StoreError> {
    if loads.is_empty() {
        return Ok(());
    }
    let entries = store.read()?;
    let clients = store.read_clients()?;
    for (route, learned) in loads {
        // Skip a route that was removed meanwhile. The queue has only a weak reference to it.
        let Some(learned) = learned.upgrade() else { continue };
        let own: Vec<&ToolRow> = entries.iter().filter(|entry| *entry.route == **route).collect();
        // In earlier versions the label was only the path.
        let earlier = entries.iter().filter(|entry| {
            path_in_label(route) == Some(&*entry.route)
                && own.iter().all(|known| known.tool != entry.tool)
        });
        for entry in own.iter().copied().chain(earlier) {
            learned.remember(&entry.tool, &entry.durations);
        }
        for row in clients.iter().filter(|row| *row.route == **route) {
            learned.clients.remember(&row.client, &row.habits);
        }
    }
    Ok(())
}
