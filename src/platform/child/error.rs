//! The reasons why a server could not be started, as messages that say what to do.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use super::program::Program;
use crate::platform::system::{files, process};

/// The reason why a server could not be started. The message says what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The whole command line was given as one word.
    #[error(
        "`{command}` is not a command: give the command and its arguments as words of their own, \
         not quoted together"
    )]
    OneWord {
        /// The command as the user wrote it.
        command: String,
    },
    /// A name without a directory that is in no directory of PATH.
    #[error(
        "`{command}` is in no directory of PATH: install it, or give its full path (programs that \
         start us from a menu often have a shorter PATH than a terminal)"
    )]
    NotInPath {
        /// The command as the user wrote it.
        command: String,
    },
    /// A path at which there is no file.
    #[error("`{command}` does not exist: give the full path of a program, or a name found in PATH")]
    NoSuchFile {
        /// The command as the user wrote it.
        command: String,
    },
    /// A script whose `#!` line, or a program whose loader, names a missing file.
    #[error(
        "`{command}` exists, but its interpreter or loader does not: correct its first line \
         (`#!`), or give the interpreter as the command and the file as its argument"
    )]
    NoInterpreter {
        /// The command as the user wrote it.
        command: String,
    },
    /// The file lacks the permission to be executed, or is a directory.
    #[error(
        "`{command}` may not be executed: make it executable (chmod +x), or give its interpreter \
         as the command and the file as its argument"
    )]
    NotExecutable {
        /// The command as the user wrote it.
        command: String,
    },
    /// The file is neither a program for this machine nor a script that names its interpreter.
    #[error(
        "`{command}` is not a program for this machine: if it is a script, give its interpreter as \
         the command and the file as its argument"
    )]
    NotAProgram {
        /// The command as the user wrote it.
        command: String,
    },
    /// The working directory does not exist.
    #[error("the folder `{folder}` for `{command}` does not exist: name an existing folder", folder = folder.display())]
    NoSuchFolder {
        /// The command as the user wrote it.
        command: String,
        /// The working directory.
        folder: PathBuf,
    },
    /// The working directory is not a directory, or must not be entered.
    #[error("`{command}` cannot run in `{folder}`", folder = folder.display())]
    Folder {
        /// The command as the user wrote it.
        command: String,
        /// The working directory.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refused for another reason.
    #[error("`{command}` could not be started")]
    Refused {
        /// The command as the user wrote it.
        command: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl SpawnError {
    /// Whether the reason is that this machine or process has run out of descriptors or memory.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if process::is_of_this_machine(source))
    }

    pub(crate) fn new(program: &Program, source: io::Error) -> Self {
        let bare = is_bare(program.name());
        let exists = exists(program, program.name());
        let command = program.name().to_string_lossy().into_owned();
        if let Some(folder) = &program.cwd
            && let Err(source) = folder.join(".").metadata()
        {
            let folder = folder.clone();
            return match source.kind() {
                io::ErrorKind::NotFound => Self::NoSuchFolder { command, folder },
                _ => Self::Folder { command, folder, source },
            };
        }
        let first = command.split(' ').next().unwrap_or_default();
        let quoted =
            first != command && (is_bare(first.as_ref()) || self::exists(program, first.as_ref()));
        match process::fault(&source) {
            StartFault::Missing | StartFault::NoFolder if !exists && quoted => {
                Self::OneWord { command }
            }
            // Both faults mean this: if a directory of PATH must not be searched, the system reports "permission
            // denied" instead of "not found".
            StartFault::Missing | StartFault::Closed if !exists && bare => {
                Self::NotInPath { command }
            }
            StartFault::Missing | StartFault::NoFolder if !exists => Self::NoSuchFile { command },
            StartFault::Missing => Self::NoInterpreter { command },
            StartFault::Closed => Self::NotExecutable { command },
            StartFault::NotAProgram => Self::NotAProgram { command },
            StartFault::NoFolder | StartFault::Other => Self::Refused { command, source },
        }
    }
}

/// The system's reason why a program does not start.
pub(in crate::platform) enum StartFault {
    /// A file does not exist: the program, or its interpreter.
    Missing,
    /// A part of the path is not a directory.
    NoFolder,
    /// The program may not be executed.
    Closed,
    /// The file is not a program for this system.
    NotAProgram,
    /// Another fault.
    Other,
}

/// Whether the system looks for the program in `PATH`.
fn is_bare(command: &OsStr) -> bool {
    !files::is_path(command)
}

fn exists(program: &Program, command: &OsStr) -> bool {
    let base = program.cwd.as_deref().unwrap_or_else(|| Path::new(""));
    if !is_bare(command) {
        return base.join(command).exists();
    }
    let own =
        program.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    let path = own.or_else(|| env::var_os("PATH")).unwrap_or_default();
    env::split_paths(&path).any(|directory| base.join(directory).join(command).is_file())
}
