//! The terminal of this process.

use std::io;

/// The mode of a terminal that passes on each key immediately and does not show it. On Windows keys are always read so.
#[derive(Debug)]
pub struct RawMode(());

impl RawMode {
    /// Does nothing.
    ///
    /// # Errors
    /// Never.
    pub fn begin() -> io::Result<Self> {
        Ok(Self(()))
    }

    /// Does nothing.
    pub fn end(&self) {}
}
