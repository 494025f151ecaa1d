//! Files. The directories of a user's profile have access lists that keep other users out, and files inherit these
//! lists. So no list is read or written here.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf, is_separator};

/// `FILE_FLAG_OPEN_REPARSE_POINT`: opens a link itself, not its target.
const LINK_ITSELF: u32 = 0x0020_0000;

/// The extensions of programs if `PATHEXT` names none.
const ENDINGS: &str = ".EXE;.CMD;.BAT;.COM";

/// Creates a directory, and missing directories above it. They inherit the access list of the directory above.
///
/// # Errors
/// If the system refuses.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Changes nothing: a new file inherits the access list of its directory.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Opens a symbolic link itself instead of its target, as `O_NOFOLLOW` does on Unix.
pub fn without_link(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(LINK_ITSELF)
}

/// Returns true: the access list of the directory keeps other users out.
pub fn is_own(_: &Metadata) -> bool {
    true
}

/// Returns true: the access list of the directory keeps other users out.
pub fn is_private(_: &Metadata) -> bool {
    true
}

/// Returns `None`: access lists are not read, so it is unknown whether other users may create files in a directory.
pub fn folder_writer(_: &Metadata) -> Option<String> {
    None
}

/// Returns false: whether this user is an administrator is not checked on Windows.
pub fn is_administrator() -> bool {
    false
}

/// Returns two numbers that identify a file in most cases; the second one is its creation time.
pub fn identity(known: &Metadata) -> (u64, u64) {
    (0, known.creation_time())
}

/// Returns the time of the last change of the content, in steps of 100 ns since 1601.
pub fn modified(known: &Metadata) -> (i64, i64) {
    (known.last_write_time().cast_signed(), 0)
}

/// Whether the system reports who may change a file. It is false, because access lists are not read.
pub const TELLS_WRITERS: bool = false;

/// Returns `None`: it is unknown whether other users may change a file.
pub fn other_writer(_: &Metadata) -> Option<String> {
    None
}

/// Does nothing: the new file already belongs to this user.
///
/// # Errors
///
/// Never.
pub fn give_to_owner_of(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Returns the program at a path: this path, or the path with a program extension such as `.exe`.
pub fn program_at(path: PathBuf) -> Option<PathBuf> {
    if path.extension().is_some() && path.is_file() {
        return Some(path);
    }
    let endings = env::var("PATHEXT").unwrap_or_else(|_| ENDINGS.to_owned());
    let whole = |ending: &str| {
        let mut whole = path.clone().into_os_string();
        whole.push(ending);
        PathBuf::from(whole)
    };
    endings.split(';').map(whole).find(|path| path.is_file())
}

/// Whether a command is a path, so that `PATH` is not searched.
pub fn is_path(command: &OsStr) -> bool {
    command.as_encoded_bytes().iter().any(|byte| is_separator(char::from(*byte)))
}

/// Writes all bytes at a position of a file.
///
/// # Errors
/// If the system refuses.
pub fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_write(bytes, at)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => {
                bytes = bytes.get(count..).unwrap_or_default();
                at += count as u64;
            }
        }
    }
    Ok(())
}

/// Fills `bytes` from a position of a file.
///
/// # Errors
/// If the system refuses, or the file ends earlier.
pub fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_read(bytes, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                bytes = bytes.get_mut(count..).unwrap_or_default();
                at += count as u64;
            }
        }
    }
    Ok(())
}

/// Returns a path that another process has sent; `None` if it is not text.
pub fn path_of(bytes: &[u8]) -> Option<&Path> {
    str::from_utf8(bytes).ok().map(Path::new)
}

/// Returns the home directory of this user, as the environment names it.
pub fn home() -> Option<OsString> {
    env::var_os("USERPROFILE")
}

/// Returns the directory for the state of programs, as the environment names it.
pub fn state_home() -> Option<OsString> {
    env::var_os("XDG_STATE_HOME").or_else(|| env::var_os("LOCALAPPDATA"))
}
