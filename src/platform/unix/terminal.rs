//! The terminal of this process.

use std::io;
use std::sync::{Mutex, PoisonError};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// The mode of a terminal that passes on each key immediately and does not show it. Stores the earlier mode.
#[derive(Debug)]
pub struct RawMode {
    // A mutex, because `Termios` is not `Sync`.
    before: Mutex<Termios>,
}

impl RawMode {
    /// Sets the mode on the terminal of standard input.
    ///
    /// # Errors
    /// If standard input is not a terminal.
    pub fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Self { before: Mutex::new(before) })
    }

    /// Restores the earlier mode.
    pub fn end(&self) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        // Ignore the error: the terminal is already closed.
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &before);
    }
}
