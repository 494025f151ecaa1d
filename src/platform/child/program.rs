//! The command line, environment and folder of a server process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The folder, within the folder of data that outlives the process, for the answers of the last starts of servers.
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
    /// The working directory, in which a program such as `./server` is looked up; `None`: the directory of this
    /// process.
    pub cwd: Option<PathBuf>,
    /// The directory for the answers of the server's last start; `None`: such answers are neither given nor kept.
    pub starts: Option<KeptStarts>,
}

/// The place of the answers of a server's starts, and the clients that they are for.
#[derive(Clone, Default)]
pub struct KeptStarts {
    /// The folder of the files.
    pub folder: PathBuf,
    /// The route, its preset, and other facts that distinguish the server from others with the same command.
    pub scope: Vec<String>,
    /// The only principal whose clients use the server; `None` if it is not known.
    pub principal: Option<String>,
}

impl Program {
    pub(in crate::platform) fn args(&self) -> impl Iterator<Item = &OsString> {
        self.command.iter().skip(1)
    }

    /// The environment of the server, in order.
    pub(crate) fn environment(&self) -> BTreeMap<OsString, OsString> {
        let inherited = std::env::vars_os().filter(|(name, _)| !self.left_out.contains(name));
        inherited.chain(self.env.iter().cloned()).collect()
    }

    pub(crate) fn name(&self) -> &OsStr {
        self.command.first().map_or_else(|| OsStr::new(""), OsString::as_os_str)
    }
}

/// Shows only the program, because arguments and variables may be secrets.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(&self.name()).finish()
    }
}
