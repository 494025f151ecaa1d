//! Milepost's standard error, where a log line stands between two lines of the child's standard
//! error.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait of a log line for the end of a line of the child, from the beginning of that
/// line. Then a newline is written first: a prompt may have no end.
const LINE_END_WAIT: Duration = Duration::from_secs(2);

static STDERR: LazyLock<SharedWriter<io::Stderr>> =
    LazyLock::new(|| SharedWriter::new(io::stderr()));

/// Writes text of a child to Milepost's standard error, unchanged. Blocks until the text is read.
///
/// # Errors
/// If the text cannot be written.
pub fn write_child_text(text: &[u8]) -> io::Result<()> {
    STDERR.write_child_text(text)
}

/// Lets log lines wait no longer: the child writes nothing more.
pub fn end_child_text() {
    STDERR.end_child_text();
}

/// The log's writer to Milepost's standard error. Each write is a whole line.
#[derive(Debug)]
pub(super) struct LogLines;

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        STDERR.write_log_line(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct SharedWriter<W> {
    state: Mutex<SharedState<W>>,
    changed: Condvar,
    /// Whether the child's output has ended. The flag is outside the lock, because a blocked writer
    /// keeps the lock.
    has_ended: AtomicBool,
}

struct SharedState<W> {
    to: W,
    /// The time when the child began its unfinished line.
    open_line: Option<Instant>,
    /// The log line that waits for the end of the open line. The log has one thread, so there is one.
    waiting: Option<Vec<u8>>,
}

impl<W: Write> SharedWriter<W> {
    fn new(to: W) -> Self {
        let state = SharedState { to, open_line: None, waiting: None };
        let (changed, has_ended) = (Condvar::new(), AtomicBool::new(false));
        Self { state: Mutex::new(state), changed, has_ended }
    }

    fn lock(&self) -> MutexGuard<'_, SharedState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_child_text(&self, text: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        self.has_ended.store(false, Ordering::Relaxed);
        let (lines, rest) = text.split_at(memchr::memrchr(b'\n', text).map_or(0, |at| at + 1));
        if !lines.is_empty() {
            state.to.write_all(lines)?;
            state.open_line = None;
            // Under a flood the log's thread would never find the moment itself.
            if let Some(line) = state.waiting.take() {
                self.changed.notify_all();
                state.to.write_all(&line)?;
            }
        }
        if !rest.is_empty() {
            state.open_line.get_or_insert_with(Instant::now);
            state.to.write_all(rest)?;
        }
        state.to.flush()
    }

    fn end_child_text(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn write_log_line(&self, line: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(begun) = state.open_line {
            state.waiting = Some(line.to_vec());
            let patience = LINE_END_WAIT.saturating_sub(begun.elapsed());
            let waits = |state: &mut SharedState<W>| {
                state.waiting.is_some() && !self.has_ended.load(Ordering::Relaxed)
            };
            let waited = self.changed.wait_timeout_while(state, patience, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.waiting.take().is_none() {
                return Ok(());
            }
        }
        if state.open_line.take().is_some() {
            state.to.write_all(b"\n")?;
        }
        state.to.write_all(line)?;
        state.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn written(shared: &SharedWriter<Vec<u8>>) -> String {
        String::from_utf8(shared.lock().to.clone()).unwrap()
    }

    fn wait_for_log(shared: &SharedWriter<Vec<u8>>) {
        while shared.lock().waiting.is_none() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_log_line_waits_for_the_end_of_a_line() {
        let shared = SharedWriter::new(Vec::new());
        shared.write_child_text(b"one\ntw").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| shared.write_log_line(b"LOG\n").unwrap());
            wait_for_log(&shared);
            shared.write_child_text(b"o").unwrap();
            shared.write_child_text(b"!\nthr").unwrap();
        });
        shared.write_child_text(b"ee\n").unwrap();
        shared.write_log_line(b"LOG\n").unwrap();
        assert_eq!(written(&shared), "one\ntwo!\nLOG\nthree\nLOG\n");
    }

    #[test]
    fn a_line_without_an_end_is_ended() {
        let shared = SharedWriter::new(Vec::new());
        shared.write_child_text(b"name? ").unwrap();
        let begun = Instant::now();
        shared.write_log_line(b"LOG\n").unwrap();
        assert!(begun.elapsed() >= LINE_END_WAIT / 2);
        shared.write_child_text(b"again? ").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| shared.write_log_line(b"LOG\n").unwrap());
            wait_for_log(&shared);
            shared.end_child_text();
        });
        assert_eq!(written(&shared), "name? \nLOG\nagain? \nLOG\n");
    }
}
