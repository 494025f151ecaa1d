//! The thread that reads and writes the file, and the queue of durations for this thread.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tracing::{debug, warn};

use super::place::path_in_label;
use super::store::{PendingSamples, Store, StoreError, ToolRow};
use crate::progress::durations::{LearnedDurations, SampleOutcome};

/// Maximum number of tools whose durations wait to be written. Durations of further tools are kept in memory only.
const WAITING_MAX: usize = 1024;

// The calls of a busy server are written together: a write for each of them would keep the disk awake.
/// The shortest pause between two writes of the state file.
const APART: Duration = Duration::from_millis(100);
/// The additional pause for each call in the last write.
const APART_FOR_EACH: Duration = Duration::from_millis(50);
/// The longest pause between two writes of the state file.
const APART_MAX: Duration = Duration::from_secs(10);

/// The time until the file is tried again after it was in use.
const AGAIN: Duration = Duration::from_secs(5);

/// Routes whose stored durations are to be loaded.
type Loads = Vec<(Arc<str>, Weak<LearnedDurations>)>;

/// The waiting work of the thread.
#[derive(Default)]
struct WriteQueue {
    loads: Loads,
    added: PendingSamples,
    /// Tools in `added`, and their calls.
    tools: usize,
    calls: u32,
    /// The thread has nothing to do and is to be woken.
    idle: bool,
    closing: bool,
    /// The thread has ended.
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
    /// Starts the thread. `None` if the system gives none: then nothing is kept.
    pub(super) fn start(store: Store) -> Option<Arc<Self>> {
        let writer = Arc::new(Self::default());
        let own = Arc::clone(&writer);
        let run = move || {
            let _over = NotifyEnd(&own);
            own.run(store);
        };
        let started = thread::Builder::new().name("durations".to_owned()).spawn(run);
        started.is_ok().then_some(writer)
    }

    /// A call has ended.
    pub(super) fn note(&self, route: &Arc<str>, tool: &str, ended: SampleOutcome) {
        let mut queue = self.lock();
        // The thread has ended, so the call would never be taken out of the queue.
        if queue.over {
            return;
        }
        let full = queue.tools >= WAITING_MAX;
        if !queue.added.contains_key(route) {
            if full {
                return;
            }
            queue.added.insert(Arc::clone(route), Default::default());
        }
        let Some(tools) = queue.added.get_mut(route) else { return };
        match tools.get_mut(tool) {
            Some(durations) => durations.note(ended),
            None if full => return,
            None => {
                tools.entry(tool.into()).or_default().note(ended);
                queue.tools += 1;
            }
        }
        queue.calls = queue.calls.saturating_add(1);
        self.wake(&mut queue);
    }

    /// Requests that the stored durations of a route are added to `learned`.
    pub(super) fn load(&self, route: Arc<str>, learned: &Arc<LearnedDurations>) {
        let mut queue = self.lock();
        queue.loads.push((route, Arc::downgrade(learned)));
        self.wake(&mut queue);
    }

    /// Waits until all is written, but not for longer than `patience`.
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
        // Waking a thread is the most expensive step here, so it is done only once.
        if mem::take(&mut queue.idle) {
            self.changed.notify_one();
        }
    }

    fn run(&self, mut store: Store) {
        let mut warned = false;
        loop {
            let (mut loads, added, calls) = self.next();
            if loads.is_empty() && added.is_empty() {
                return;
            }
            // Loads come first: clients wait for their result, and the file must be read anyway before it is written.
            let loaded = load(&mut store, &loads).map(|()| loads.clear());
            let done = match loaded {
                Ok(()) if !added.is_empty() => store.add(&added, super::now()),
                loaded => loaded,
            };
            match done {
                Ok(()) => self.pause((APART_FOR_EACH * calls).clamp(APART, APART_MAX)),
                Err(error @ StoreError::Busy { .. }) => {
                    if !mem::replace(&mut warned, true) {
                        warn!(%error, "what is known of durations waits");
                    }
                    if self.put_back(loads, added) {
                        return;
                    }
                    self.pause(AGAIN);
                }
                Err(error) => {
                    // The file is not tried again: the same fault would recur, and calls continue without the file.
                    let why = std::error::Error::source(&error).map(ToString::to_string);
                    let why = why.unwrap_or_default();
                    warn!(%error, why, "how long tools take is forgotten at the end");
                    return;
                }
            }
        }
    }

    /// Waits for work and returns it; nothing at the end.
    fn next(&self) -> (Loads, PendingSamples, u32) {
        let mut queue = self.lock();
        queue.idle = true;
        let nothing = |queue: &mut WriteQueue| {
            queue.loads.is_empty() && queue.added.is_empty() && !queue.closing
        };
        let woken = self.changed.wait_while(queue, nothing);
        let mut queue = woken.unwrap_or_else(PoisonError::into_inner);
        queue.idle = false;
        queue.tools = 0;
        let calls = mem::take(&mut queue.calls);
        (mem::take(&mut queue.loads), mem::take(&mut queue.added), calls)
    }

    /// Puts failed work back, before newer work. Returns whether the writer is being closed.
    fn put_back(&self, loads: Loads, added: PendingSamples) -> bool {
        let mut queue = self.lock();
        // Before newer work: the durations of a tool are kept oldest first.
        queue.loads.splice(..0, loads);
        for (route, tools) in added {
            for (tool, older) in tools {
                let known = queue.added.entry(Arc::clone(&route)).or_default();
                known.entry(tool).or_default().precede(&older);
            }
        }
        queue.tools = queue.added.values().map(std::collections::BTreeMap::len).sum();
        queue.closing
    }

    /// Waits for a time, or until the process ends.
    fn pause(&self, time: Duration) {
        // `close` sets `closing` and wakes the thread, so that the end of the process does not wait for the pause.
        let rested = self.changed.wait_timeout_while(self.lock(), time, |queue| !queue.closing);
        drop(rested.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signals the end of the thread, for any cause.
struct NotifyEnd<'a>(&'a DurationWriter);

impl Drop for NotifyEnd<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.over = true;
        // Waiting calls are dropped: without the thread they would stay until the process ends.
        (queue.added, queue.loads) = Default::default();
        self.0.ended.notify_all();
    }
}

fn load(store: &mut Store, loads: &[(Arc<str>, Weak<LearnedDurations>)]) -> Result<(), StoreError> {
    if loads.is_empty() {
        return Ok(());
    }
    let entries = store.read()?;
    for (route, learned) in loads {
        // A route that was removed meanwhile needs no durations: the queue does not keep it alive.
        let Some(learned) = learned.upgrade() else { continue };
        let own: Vec<&ToolRow> = entries.iter().filter(|entry| *entry.route == **route).collect();
        // In earlier versions the path alone was the label.
        let earlier = entries.iter().filter(|entry| {
            path_in_label(route) == Some(&*entry.route)
                && own.iter().all(|known| known.tool != entry.tool)
        });
        for entry in own.iter().copied().chain(earlier) {
            learned.remember(&entry.tool, &entry.durations);
        }
    }
    Ok(())
}
