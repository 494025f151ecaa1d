//! Milepost's standard error. A log line is written only between two lines of the child's standard error.

use std::io::{self, Write};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Deadline for the child to end its line, counted from the beginning of that line, while a log line waits. After the
/// deadline a newline is written first, because a prompt may never end its line.
const LINE_END_WAIT: Duration = Duration::from_secs(2);

static STDERR: LazyLock<SharedWriter<io::Stderr>> =
    LazyLock::new(|| SharedWriter::new(io::stderr()));

/// Writes text of a child to Milepost's standard error, unchanged. Log lines that wait for the end of the child's line
/// are written behind that line. Blocks while nobody reads standard error.
///
/// # Errors
/// If the text cannot be written.
pub fn write_child_text(text: &[u8]) -> io::Result<()> {
    STDERR.write_child_text(text)
}

/// Notes that the child writes nothing more, so that log lines no longer wait for the end of its last line.
pub fn end_child_text() {
    STDERR.end_child_text();
}

/// Whether the child's last line is unfinished, so that log lines wait.
pub(super) fn has_open_line() -> bool {
    STDERR.has_open_line()
}

/// Writes whole log lines to Milepost's standard error, between two lines of the child.
///
/// # Errors
/// If the lines cannot be written.
pub(super) fn write_log_lines(lines: &[u8]) -> io::Result<()> {
    STDERR.write_log_lines(lines)
}

// A thread holds `to` while it writes, and blocks as long as nobody reads standard error. `state` is therefore a lock of
// its own, which is never held during a write: `has_open_line` and `end_child_text` never block. A thread that needs both
// locks takes `to` first, so that no two threads wait for each other.
struct SharedWriter<W> {
    to: Mutex<W>,
    state: Mutex<SharedState>,
    changed: Condvar,
    /// Deadline for the child to end its line, counted from the beginning of that line, while a log line waits.
    line_end_wait: Duration,
}

#[derive(Default)]
struct SharedState {
    /// The time when the child began its unfinished line.
    open_line: Option<Instant>,
    /// The log lines that wait for the end of the child's line. Only the log thread writes.
    waiting: Option<Vec<u8>>,
    /// Whether the child's output has ended.
    has_ended: bool,
}

impl SharedState {
    fn is_line_open(&self) -> bool {
        self.open_line.is_some() && !self.has_ended
    }
}

impl<W: Write> SharedWriter<W> {
    fn new(to: W) -> Self {
        let (to, state, changed) = (Mutex::new(to), Mutex::default(), Condvar::new());
        Self { to, state, changed, line_end_wait: LINE_END_WAIT }
    }

    fn writer(&self) -> MutexGuard<'_, W> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_open_line(&self) -> bool {
        self.lock().is_line_open()
    }

    fn write_child_text(&self, text: &[u8]) -> io::Result<()> {
        let mut to = self.writer();
        self.lock().has_ended = false;
        let (lines, rest) = text.split_at(memchr::memrchr(b'\n', text).map_or(0, |at| at + 1));
        if !lines.is_empty() {
            to.write_all(lines)?;
            // The waiting log lines are written here and not by the log's thread: a child that writes without a pause
            // would begin its next line before that thread runs.
            let waiting = {
                let mut state = self.lock();
                state.open_line = None;
                state.waiting.take()
            };
            if let Some(waiting) = waiting {
                self.changed.notify_all();
                to.write_all(&waiting)?;
            }
        }
        if !rest.is_empty() {
            self.lock().open_line.get_or_insert_with(Instant::now);
            to.write_all(rest)?;
        }
        to.flush()
    }

    fn end_child_text(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    fn write_log_lines(&self, lines: &[u8]) -> io::Result<()> {
        let mut to = self.writer();
        let mut state = self.lock();
        if let Some(begun) = state.open_line.filter(|_| !state.has_ended) {
            // Unlock, so that the child's text can be written meanwhile.
            drop(to);
            state.waiting = Some(lines.to_vec());
            let patience = self.line_end_wait.saturating_sub(begun.elapsed());
            let waits = |state: &mut SharedState| state.waiting.is_some() && !state.has_ended;
            drop(self.changed.wait_timeout_while(state, patience, waits));
            to = self.writer();
            state = self.lock();
            // Nothing waits any more: `write_child_text` has taken the log lines. It has also written them, because it
            // holds `to` until then.
            if state.waiting.take().is_none() {
                return Ok(());
            }
        }
        let is_open = state.open_line.take().is_some();
        drop(state);
        if is_open {
            to.write_all(b"\n")?;
        }
        to.write_all(lines)?;
        to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A deadline that no test reaches: the log line is written when the child's line ends.
    const PATIENT: Duration = Duration::from_secs(3600);

    fn written(shared: &SharedWriter<Vec<u8>>) -> String {
        String::from_utf8(shared.writer().clone()).unwrap()
    }

    fn wait_for_log(shared: &SharedWriter<Vec<u8>>) {
        while shared.lock().waiting.is_none() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_log_line_waits_for_the_end_of_a_line() {
        let shared = SharedWriter { line_end_wait: PATIENT, ..SharedWriter::new(Vec::new()) };
        shared.write_child_text(b"one\ntw").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| shared.write_log_lines(b"LOG\n").unwrap());
            wait_for_log(&shared);
            shared.write_child_text(b"o").unwrap();
            shared.write_child_text(b"!\nthr").unwrap();
        });
        shared.write_child_text(b"ee\n").unwrap();
        shared.write_log_lines(b"LOG\n").unwrap();
        assert_eq!(written(&shared), "one\ntwo!\nLOG\nthree\nLOG\n");
    }

    #[test]
    fn a_line_without_an_end_is_ended() {
        let mut shared = SharedWriter::new(Vec::new());
        let begun = Instant::now();
        shared.write_child_text(b"name? ").unwrap();
        shared.write_log_lines(b"LOG\n").unwrap();
        assert!(begun.elapsed() >= LINE_END_WAIT);
        shared.line_end_wait = PATIENT;
        shared.write_child_text(b"again? ").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| shared.write_log_lines(b"LOG\n").unwrap());
            wait_for_log(&shared);
            shared.end_child_text();
        });
        assert_eq!(written(&shared), "name? \nLOG\nagain? \nLOG\n");
    }
}
