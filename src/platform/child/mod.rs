//! A server as a child process: started apart from this process, waited for, and ended with all its descendants. The
//! types here are for all systems; each system's own module does the work.

mod error;
mod exit;
mod program;

use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::platform::system;

pub use crate::platform::system::process::{
    ChildProcess, Signal, adopt_orphans, check_reserve, descriptor_limit, is_needed_variable,
    is_of_this_machine, is_reserved, raise_descriptor_limit, run_hidden, shell,
};
pub use error::SpawnError;
pub(in crate::platform) use error::StartFault;
pub use exit::Exit;
pub(in crate::platform) use exit::LOST;
pub use program::{KeptStarts, Program, start_folder};

/// Deadline for a server to end by itself after its standard input was closed. Servers that flush a store or end a
/// browser need seconds; a user at a prompt does not want to wait longer.
pub const EXIT_GRACE: Duration = Duration::from_secs(5);

/// Deadline for a server to end after SIGTERM. Its handler may have to do all the work that the closed input did not
/// cause.
pub const TERM_GRACE: Duration = Duration::from_secs(5);

/// Where a server's standard error goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stderr {
    /// To Milepost's standard error.
    Inherit,
    /// To [`ChildPipes::stderr`], which must be read for as long as the server runs.
    Piped,
}

/// The server's standard streams. The output streams may stay open after the server has ended, if a process that it
/// started has them open, but only until [`ChildProcess::sweep`].
#[derive(Debug)]
pub struct ChildPipes {
    /// The server's standard input; dropping the handle ends the input.
    pub stdin: ChildStdin,
    /// The server's standard output.
    pub stdout: ChildStdout,
    /// The server's standard error; `None` if it goes to Milepost's standard error.
    pub stderr: Option<ChildStderr>,
}

/// The deadlines for a server to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grace {
    /// The time from the end of its input to SIGTERM.
    pub exit: Duration,
    /// The time from SIGTERM to SIGKILL.
    pub term: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self { exit: EXIT_GRACE, term: TERM_GRACE }
    }
}

/// Starts a server in a separate process group; on Windows, in a separate job.
///
/// Must be called inside a tokio runtime with I/O enabled. Blocks for about a millisecond, until the system has begun
/// to execute the program.
///
/// # Errors
///
/// If the program or directory does not exist, the program cannot be executed, or the system refuses.
pub fn spawn(program: &Program, stderr: Stderr) -> Result<(ChildProcess, ChildPipes), SpawnError> {
    system::process::start(program, stderr).map_err(|source| SpawnError::new(program, source))
}
