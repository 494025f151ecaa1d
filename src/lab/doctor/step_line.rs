//! The line that tells in a terminal what `doctor` does at the moment.

use std::io::{self, IsTerminal, Write};

/// A line on standard error that is written over by the next one; nothing where no terminal is.
#[derive(Debug)]
pub(super) struct StepLine {
    is_shown: bool,
}

impl StepLine {
    pub(super) fn of_stderr() -> Self {
        Self { is_shown: io::stderr().is_terminal() }
    }

    /// Shows what is done from now on.
    pub(super) fn show(&self, what: &str) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\u{1b}[2K{what} ...");
        }
    }
}

impl Drop for StepLine {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\u{1b}[2K");
        }
    }
}
