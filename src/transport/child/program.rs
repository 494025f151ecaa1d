//! The command line, environment and folder of a server process.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

/// The program of a server.
#[derive(Clone, Default)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables of its environment in addition to ours.
    pub env: Vec<(OsString, OsString)>,
    /// The folder that it runs in, from which a program such as `./server` is looked for; `None`: ours.
    pub cwd: Option<PathBuf>,
}

impl Program {
    pub(super) fn args(&self) -> impl Iterator<Item = &OsString> {
        self.command.iter().skip(1)
    }

    pub(crate) fn name(&self) -> &OsStr {
        self.command.first().map_or_else(|| OsStr::new(""), OsString::as_os_str)
    }
}

/// Arguments and variables may be secrets: only what is run is shown.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(&self.name()).finish()
    }
}
