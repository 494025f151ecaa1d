//! Files. The folders of a user's profile have access lists that keep other users out, and files inherit them: here
//! no list is read or written.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf, is_separator};

/// `FILE_FLAG_OPEN_REPARSE_POINT`: a link is opened itself.
const LINK_ITSELF: u32 = 0x0020_0000;

/// The endings of programs where `PATHEXT` names none.
const ENDINGS: &str = ".EXE;.CMD;.BAT;.COM";

/// Makes a folder, with the folders above it, where it is missing. It has the access list of the folder above.
///
/// # Errors
/// If the system refuses.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// A file that is made with these options has the access list of its folder.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Opens a symbolic link itself instead of its target, as `O_NOFOLLOW` does on Unix.
pub fn without_link(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(LINK_ITSELF)
}

/// Whether a file belongs to this user: the access list of its folder answers for that.
pub fn is_own(_: &Metadata) -> bool {
    true
}

/// Whether no other user may read or write a file: the access list of its folder answers for that.
pub fn is_private(_: &Metadata) -> bool {
    true
}

/// The users who may make files in a folder that is for this user alone: access lists are not read.
pub fn folder_writer(_: &Metadata) -> Option<String> {
    None
}

/// Whether this user may read the files of all users.
pub fn is_administrator() -> bool {
    false
}

/// Returns two numbers that identify a file in most cases; the second one is its creation time.
pub fn identity(known: &Metadata) -> (u64, u64) {
    (0, known.creation_time())
}

/// The time of the last change of the content, in steps of 100 ns since 1601.
pub fn modified(known: &Metadata) -> (i64, i64) {
    (known.last_write_time().cast_signed(), 0)
}

/// Whether the system reports who may change a file: access lists are not read.
pub const TELLS_WRITERS: bool = false;

/// The other users who may change a file: not known on Windows.
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

/// Whether a command is the path of its program, and is not sought in `PATH`.
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
/// If the system refuses, or the file ends before.
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

/// A path as another process has sent it; `None` if it is not text.
pub fn path_of(bytes: &[u8]) -> Option<&Path> {
    str::from_utf8(bytes).ok().map(Path::new)
}

/// The home folder of this user, as the environment names it.
pub fn home() -> Option<OsString> {
    env::var_os("USERPROFILE")
}

/// The folder for the state of programs, as the environment names it.
pub fn state_home() -> Option<OsString> {
    env::var_os("XDG_STATE_HOME").or_else(|| env::var_os("LOCALAPPDATA"))
}
