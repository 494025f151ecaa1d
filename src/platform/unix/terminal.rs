//! The terminal of this process.

use std::io;
use std::sync::{Mutex, PoisonError};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// The mode of a terminal that hands over each key at once and shows none; holds the mode before.
#[derive(Debug)]
pub struct RawMode {
    // A mutex, because `Termios` has a cell inside and is not `Sync`.
    before: Mutex<Termios>,
}

impl RawMode {
    /// Begins the mode on the terminal of standard input.
    ///
    /// # Errors
    /// If standard input is no terminal.
    pub fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Self { before: Mutex::new(before) })
    }

    /// Brings back the mode before.
    pub fn end(&self) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        // Ignore the error: the terminal is already closed.
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &before);
    }
}
