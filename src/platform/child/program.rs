//! The command line, environment and directory of a server process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// Returns the directory, inside the state directory, for the answers of servers' last starts.
pub fn start_folder(state: &Path) -> PathBuf {
    state.join("starts")
}

/// The program of a server.
#[derive(Clone, Default)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables of the server's environment in addition to Milepost's.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of Milepost's environment that the server does not inherit.
    pub left_out: BTreeSet<OsString>,
    /// The working directory, in which a program such as `./server` is looked up; `None` for the directory of this
    /// process.
    pub cwd: Option<PathBuf>,
    /// Where the answers of the server's last start are stored; `None` if they are neither used nor stored.
    pub starts: Option<KeptStarts>,
}

/// Where the answers of a server's starts are stored, and for which clients.
#[derive(Clone, Default)]
pub struct KeptStarts {
    /// The directory of the files.
    pub folder: PathBuf,
    /// The route, its preset, and other facts that distinguish the server from others with the same command.
    pub scope: Vec<String>,
    /// The only principal whose clients use the server; `None` if the principal is unknown.
    pub principal: Option<String>,
}

impl Program {
    pub(in crate::platform) fn args(&self) -> impl Iterator<Item = &OsString> {
        self.command.iter().skip(1)
    }

    /// Returns the environment of the server, sorted by name.
    pub(crate) fn environment(&self) -> BTreeMap<OsString, OsString> {
        let inherited = std::env::vars_os().filter(|(name, _)| !self.left_out.contains(name));
        inherited.chain(self.env.iter().cloned()).collect()
    }

    pub(crate) fn name(&self) -> &OsStr {
        self.command.first().map_or_else(|| OsStr::new(""), OsString::as_os_str)
    }
}

/// Shows only the program, because arguments and variables may contain secrets.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(&self.name()).finish()
    }
}
