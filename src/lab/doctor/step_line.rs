//! The line in a terminal that shows the current step of `doctor`, and how long it has lasted.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of characters of a step: a line that wraps could not be overwritten.
const STEP_MAX: usize = 64;

/// The interval at which the line is written again.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// A line on standard error that the next line overwrites. Nothing is written if standard error is not a terminal.
#[derive(Debug)]
pub(super) struct StepLine {
    is_shown: bool,
    /// The current step, and the time when it began.
    current: Mutex<Option<(String, Instant)>>,
}

impl StepLine {
    pub(super) fn of_stderr() -> Self {
        Self { is_shown: io::stderr().is_terminal(), current: Mutex::default() }
    }

    /// Shows the current step.
    pub(super) fn show(&self, what: &str) {
        let what = what.chars().take(STEP_MAX).collect();
        self.set(Some((what, Instant::now())));
        self.tick();
    }

    /// Removes the line, to make room for other text.
    pub(super) fn clear(&self) {
        self.set(None);
        self.write("");
    }

    /// Writes the line again, with the time since the step began.
    pub(super) fn tick(&self) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((what, since)) = &*current {
            self.write(&line(what, since.elapsed()));
        }
    }

    fn set(&self, step: Option<(String, Instant)>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    fn write(&self, text: &str) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\u{1b}[2K{text}");
        }
    }
}

impl Drop for StepLine {
    fn drop(&mut self) {
        self.write("");
    }
}

/// Returns a step with the whole seconds that it has lasted, from the first second on.
fn line(what: &str, lasted: Duration) -> String {
    match lasted.as_secs() {
        0 => format!("{what} ..."),
        seconds => format!("{what} ... {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_lasts_shows_its_seconds() {
        assert_eq!(line("calling t", Duration::from_millis(999)), "calling t ...");
        assert_eq!(line("calling t", Duration::from_millis(12_400)), "calling t ... 12 s");
    }
}
