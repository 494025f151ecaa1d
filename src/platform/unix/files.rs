//! Files: their owner, their permissions, their identity.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::{getegid, geteuid};

/// All permission bits for the group and for other users.
const OF_OTHERS: u32 = 0o077;

/// The permission bit for writing by all users.
const WORLD_WRITES: u32 = 0o002;

/// The permission bit for writing by the group.
const GROUP_WRITES: u32 = 0o020;

/// The permission bits for executing.
const EXECUTABLE: u32 = 0o111;

/// The permission bit of directories in which only the owner of a file can rename or remove the file.
const STICKY: u32 = 0o1000;

/// Creates a directory, and missing directories above it, that only this user can enter.
///
/// # Errors
/// If the system refuses.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes the options create a file that only this user can read and write.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Makes the options fail for a symbolic link at the end of the path, and open a pipe without waiting for a writer.
pub fn without_link(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
}

/// Whether a file belongs to this user.
pub fn is_own(known: &Metadata) -> bool {
    known.uid() == geteuid().as_raw()
}

/// Whether no other user may read, write or execute a file.
pub fn is_private(known: &Metadata) -> bool {
    known.mode() & OF_OTHERS == 0
}

/// Whether this user may read the files of all users.
pub fn is_administrator() -> bool {
    geteuid().is_root()
}

/// Returns two numbers that no other file has at the same time.
pub fn identity(known: &Metadata) -> (u64, u64) {
    (known.dev(), known.ino())
}

/// Returns the time of the last change of the content: seconds and nanoseconds since 1970.
pub fn modified(known: &Metadata) -> (i64, i64) {
    (known.mtime(), known.mtime_nsec())
}

/// Whether the system reports who may change a file.
pub const TELLS_WRITERS: bool = true;

/// Returns the users besides root and this user who may change a file, or the files of a directory, as text; `None` if
/// no other user may. The user's own group does not count.
pub fn other_writer(known: &Metadata) -> Option<String> {
    let mode = known.mode();
    let may = |bit| mode & bit != 0 && !(known.is_dir() && mode & STICKY != 0);
    if known.uid() != 0 && known.uid() != geteuid().as_raw() {
        return Some(format!("the user with the number {}", known.uid()));
    }
    if may(WORLD_WRITES) {
        return Some("every user".to_owned());
    }
    let is_own_group = known.gid() == 0 || known.gid() == getegid().as_raw();
    (may(GROUP_WRITES) && !is_own_group)
        .then(|| format!("the group with the number {}", known.gid()))
}

/// Returns the users besides root and this user who may create files in a directory that is for this user alone, as
/// text; `None` if no other user may. The sticky bit protects only files that already exist.
pub fn folder_writer(known: &Metadata) -> Option<String> {
    let (mode, own) = (known.mode(), geteuid().as_raw());
    if known.uid() != 0 && known.uid() != own {
        return Some(format!("the user with the number {}", known.uid()));
    }
    if mode & WORLD_WRITES != 0 {
        return Some("every user".to_owned());
    }
    // Allowed: container orchestrators give a volume of root to the group of the process.
    let is_given = known.uid() != own && known.gid() == getegid().as_raw();
    (mode & GROUP_WRITES != 0 && !is_given)
        .then(|| format!("the group with the number {}", known.gid()))
}

/// Gives a new file to the owner of another file. Changes the open file: its path may lead to another file by now.
///
/// # Errors
/// If the system refuses. Only an administrator may give a file to another user.
pub fn give_to_owner_of(file: &File, other: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (other.uid(), other.gid()) {
        fchown(file, Some(other.uid()), Some(other.gid()))?;
    }
    Ok(())
}

/// Returns this path if it is an executable file.
pub fn program_at(path: PathBuf) -> Option<PathBuf> {
    let found = path.metadata().ok()?;
    (found.is_file() && found.mode() & EXECUTABLE != 0).then_some(path)
}

/// Whether a command is a path, so that `PATH` is not searched.
pub fn is_path(command: &OsStr) -> bool {
    command.as_encoded_bytes().contains(&b'/')
}

/// Writes all bytes at a position of a file.
///
/// # Errors
/// If the system refuses.
pub fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    file.write_all_at(bytes, at)
}

/// Fills `bytes` from a position of a file.
///
/// # Errors
/// If the system refuses, or the file ends earlier.
pub fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(bytes, at)
}

/// Returns a path that another process has sent.
pub fn path_of(bytes: &[u8]) -> Option<&Path> {
    Some(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns the home directory of this user, as the environment names it.
pub fn home() -> Option<OsString> {
    env::var_os("HOME")
}

/// Returns the directory for the state of programs, as the environment names it.
pub fn state_home() -> Option<OsString> {
    env::var_os("XDG_STATE_HOME")
}
