//! Log lines in batches: a log call only adds a line to a buffer, and a separate thread writes the buffer.

use std::io;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The time for which a log line waits for further lines, so that a busy server writes many lines together.
const BATCH_WAIT: Duration = Duration::from_millis(10);

/// Maximum number of bytes of log lines that wait while standard error is blocked. Further lines are dropped and
/// counted, because a log must not delay calls.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Maximum capacity of the buffer that is kept for the next batch. A flood may need more, but only once.
const KEPT_ROOM: usize = 256 << 10;

/// The buffer of log lines that are not written yet.
#[derive(Debug)]
pub(super) struct Batches {
    state: Mutex<BatchState>,
    /// Wakes the writing thread.
    added: Condvar,
    /// Wakes callers that wait until their lines are written.
    written: Condvar,
}

#[derive(Debug)]
struct BatchState {
    lines: Vec<u8>,
    /// When the first waiting line was added.
    begun: Option<Instant>,
    /// Number of bytes that the thread is writing now.
    writing: usize,
    /// Number of lines added so far, without the dropped ones.
    taken: u64,
    /// Number of lines written so far.
    done: u64,
    /// Whether the lines must be written immediately, without waiting for more.
    hurry: bool,
    /// Whether a caller has waited in vain for the current write. Then no other caller waits for the same write.
    is_stuck: bool,
    dropped: u64,
    /// Number of dropped lines that no log line has reported yet.
    unsaid: u64,
    /// The writing thread, which must never wait for itself.
    writer: Option<ThreadId>,
}

impl Batches {
    pub(super) const fn new() -> Self {
        let state = BatchState {
            lines: Vec::new(),
            begun: None,
            writing: 0,
            taken: 0,
            done: 0,
            hurry: false,
            is_stuck: false,
            dropped: 0,
            unsaid: 0,
            writer: None,
        };
        Self { state: Mutex::new(state), added: Condvar::new(), written: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a complete line. A line beyond the limit is dropped and counted.
    pub(super) fn add(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.lines.len() + state.writing + line.len() > WAITING_BYTES_MAX {
            state.dropped += 1;
            state.unsaid += 1;
            return;
        }
        state.taken += 1;
        state.lines.extend_from_slice(line);
        if state.begun.is_none() {
            state.begun = Some(Instant::now());
            self.added.notify_one();
        }
    }

    /// Has all lines written immediately, and waits for that, but not longer than `patience`. Does not wait if another
    /// caller has already waited in vain for the current write.
    pub(super) fn flush(&self, patience: Duration) {
        let state = self.lock();
        let patience = if state.is_stuck { Duration::ZERO } else { patience };
        self.wait(state, patience);
    }

    /// Writes the last lines as [`Self::flush`] does, but always waits.
    pub(super) fn close(&self, patience: Duration) {
        self.wait(self.lock(), patience);
    }

    fn wait(&self, mut state: MutexGuard<'_, BatchState>, patience: Duration) {
        let taken = state.taken;
        if state.done >= taken {
            return;
        }
        state.hurry = true;
        self.added.notify_one();
        if state.writer == Some(thread::current().id()) {
            return;
        }
        let is_waiting = |state: &mut BatchState| state.done < taken;
        let waited = self.written.wait_timeout_while(state, patience, is_waiting);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_stuck |= waited.timed_out();
    }

    /// Returns the number of lines that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Writes batches in the calling thread, for ever. Calls `say_dropped` with the number of lines dropped since its
    /// last call. A batch that cannot be written is lost.
    pub(super) fn run(
        &self,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
        say_dropped: impl Fn(u64),
    ) -> ! {
        self.lock().writer = Some(thread::current().id());
        let mut batch = Vec::new();
        loop {
            let (taken, unsaid) = self.next(&mut batch);
            // Ignore the error: the failure of standard error cannot be reported anywhere else.
            let _ = write(&batch);
            self.finish(&mut batch, taken);
            if unsaid > 0 {
                say_dropped(unsaid);
            }
        }
    }

    /// Waits for a batch and moves it into `batch`. Returns the number of lines so far, and the number of dropped lines
    /// to report.
    fn next(&self, batch: &mut Vec<u8>) -> (u64, u64) {
        let is_idle = |state: &mut BatchState| state.begun.is_none();
        let state = self.added.wait_while(self.lock(), is_idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let waited = state.begun.map_or(BATCH_WAIT, |begun| begun.elapsed());
        let gathers = |state: &mut BatchState| !state.hurry;
        let wait = BATCH_WAIT.saturating_sub(waited);
        let gathered = self.added.wait_timeout_while(state, wait, gathers);
        let (mut state, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut state.lines, batch);
        (state.writing, state.begun, state.hurry) = (batch.len(), None, false);
        (state.taken, mem::take(&mut state.unsaid))
    }

    /// Notes that a batch is written.
    fn finish(&self, batch: &mut Vec<u8>, taken: u64) {
        batch.clear();
        batch.shrink_to(KEPT_ROOM);
        let mut state = self.lock();
        (state.writing, state.done, state.is_stuck) = (0, taken, false);
        self.written.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{self, Receiver, SyncSender};

    use super::*;

    /// Returns batches whose writes arrive in a channel. A send to the second channel ends a write.
    fn started() -> (Arc<Batches>, Receiver<String>, SyncSender<()>) {
        let batches = Arc::new(Batches::new());
        let (to, writes) = mpsc::channel();
        let (go, may_end) = mpsc::sync_channel(9999);
        let own = Arc::clone(&batches);
        thread::spawn(move || {
            let say = |count: u64| own.add(format!("{count} dropped\n").as_bytes());
            let write = |batch: &[u8]| {
                let _ = to.send(String::from_utf8_lossy(batch).into_owned());
                may_end.recv().map_err(io::Error::other)
            };
            own.run(write, say);
        });
        (batches, writes, go)
    }

    #[test]
    fn a_line_is_written_soon_and_lines_of_one_moment_together() {
        let (batches, writes, go) = started();
        batches.add(b"one\n");
        assert_eq!(writes.recv().unwrap(), "one\n");
        batches.add(b"two\n");
        batches.add(b"three\n");
        go.send(()).unwrap();
        assert_eq!(writes.recv().unwrap(), "two\nthree\n");
    }

    #[test]
    fn a_flush_returns_when_all_lines_are_written() {
        let (batches, writes, go) = started();
        // The thread writes both lines together, or separately if they are more than `BATCH_WAIT` apart.
        go.send(()).unwrap();
        go.send(()).unwrap();
        batches.add(b"one\n");
        batches.add(b"two\n");
        batches.flush(Duration::MAX);
        let written: String = writes.try_iter().collect();
        assert_eq!(written, "one\ntwo\n");
        batches.flush(Duration::MAX);
    }

    #[test]
    fn only_the_first_waits_for_a_write_that_is_blocked() {
        let (batches, writes, go) = started();
        batches.add(b"one\n");
        assert_eq!(writes.recv().unwrap(), "one\n");
        batches.flush(Duration::ZERO);
        batches.add(b"two\n");
        batches.flush(Duration::MAX);
        assert!(writes.try_recv().is_err());
        go.send(()).unwrap();
        go.send(()).unwrap();
        batches.close(Duration::MAX);
        assert_eq!(writes.recv().unwrap(), "two\n");
        batches.add(b"three\n");
        go.send(()).unwrap();
        batches.flush(Duration::MAX);
        assert_eq!(writes.try_recv().unwrap(), "three\n");
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped_counted_and_mentioned() {
        let (batches, writes, go) = started();
        let line = [b"x".repeat((1 << 20) - 1), b"\n".to_vec()].concat();
        batches.add(&line);
        assert_eq!(writes.recv().unwrap().len(), 1 << 20);
        for _ in 0..10 {
            batches.add(&line);
        }
        assert_eq!(batches.dropped(), 7);
        go.send(()).unwrap();
        assert_eq!(writes.recv().unwrap().len(), WAITING_BYTES_MAX - (1 << 20));
        go.send(()).unwrap();
        assert_eq!(writes.recv().unwrap(), "7 dropped\n");
    }
}
