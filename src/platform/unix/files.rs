//! Files: their owner, their mode, their identity.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::{getegid, geteuid};

/// The permissions of other users.
const OF_OTHERS: u32 = 0o077;

/// The permission bit for writing by all users.
const WORLD_WRITES: u32 = 0o002;

/// The group may write.
const GROUP_WRITES: u32 = 0o020;

/// The permission bits for executing.
const EXECUTABLE: u32 = 0o111;

/// In a folder with this bit only the owner of a file can put another file in its place.
const STICKY: u32 = 0o1000;

/// Makes a folder that only this user can enter, with the folders above it, where it is missing.
///
/// # Errors
/// If the system refuses.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A file that is made with these options can be read and written by this user only.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// With these options neither a link at the end of the path is followed, nor is a pipe waited for.
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

/// Two numbers that no other file has at the same time.
pub fn identity(known: &Metadata) -> (u64, u64) {
    (known.dev(), known.ino())
}

/// The time of the last change of the content: seconds and nanoseconds since 1970.
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
    // Container orchestrators hand over a volume of root by giving it to the group of the process.
    let is_given = known.uid() != own && known.gid() == getegid().as_raw();
    (mode & GROUP_WRITES != 0 && !is_given)
        .then(|| format!("the group with the number {}", known.gid()))
}

/// Gives a new file to the owner of another file. Only the open file is changed, because its path may lead to another
/// file by now.
///
/// # Errors
/// If the system refuses, as it does to all but an administrator.
pub fn give_to_owner_of(file: &File, other: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (other.uid(), other.gid()) {
        fchown(file, Some(other.uid()), Some(other.gid()))?;
    }
    Ok(())
}

/// Returns the program at a path: this path, if it is an executable file.
pub fn program_at(path: PathBuf) -> Option<PathBuf> {
    let found = path.metadata().ok()?;
    (found.is_file() && found.mode() & EXECUTABLE != 0).then_some(path)
}

/// Whether a command is the path of its program, and is not sought in `PATH`.
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
/// If the system refuses, or the file ends before.
pub fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(bytes, at)
}

/// A path as another process has sent it.
pub fn path_of(bytes: &[u8]) -> Option<&Path> {
    Some(Path::new(OsStr::from_bytes(bytes)))
}

/// The home folder of this user, as the environment names it.
pub fn home() -> Option<OsString> {
    env::var_os("HOME")
}

/// The folder for the state of programs, as the environment names it.
pub fn state_home() -> Option<OsString> {
    env::var_os("XDG_STATE_HOME")
}
