//! How a server process ended: its exit code or signal.

use std::fmt;
use std::process::ExitStatus;

use crate::platform::system::process;

/// How a child process ended: by its exit code or by a signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// The process ended by itself, with this exit code.
    Code(u8),
    /// The signal with this number ended the process.
    Signal(i32),
}

impl Exit {
    /// Returns the exit code that a shell would report: that of the server, or 128 plus the number of the signal.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX),
        }
    }

    /// Returns the exit of a process with this code. On Unix it always fits: the system passes on only the low byte.
    pub(in crate::platform) fn from_code(code: i32) -> Self {
        Self::Code(u8::try_from(code).unwrap_or(u8::MAX))
    }
}

/// Writes, for example, "exit code 3" or "SIGKILL", for use within a sentence or in parentheses.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => match process::signal_name(number) {
                Some(name) => f.write_str(name),
                None => write!(f, "signal {number}"),
            },
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), process::signal_of(status)) {
            (Some(code), _) => Self::from_code(code),
            (None, Some(number)) => Self::Signal(number),
            (None, None) => LOST,
        }
    }
}

/// The exit of a server whose real exit can no longer be determined. It does not count as success.
pub(in crate::platform) const LOST: Exit = Exit::Code(1);
