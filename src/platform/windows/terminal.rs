//! The terminal of this process.

use std::io;

/// The mode of a terminal that hands over each key at once and shows none: that is how keys are read here.
#[derive(Debug)]
pub struct RawMode(());

impl RawMode {
    /// Begins the mode.
    ///
    /// # Errors
    /// Never.
    pub fn begin() -> io::Result<Self> {
        Ok(Self(()))
    }

    /// Brings back the mode before.
    pub fn end(&self) {}
}
