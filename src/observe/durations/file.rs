//! The store's file in the file system: its owner, its permissions, and the renaming of a corrupt file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::platform::files;

/// Maximum number of corrupt state files that are kept under other names. Beyond the limit the oldest is overwritten.
const BAD_MAX: usize = 5;

/// What to do if the file does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingFile {
    /// Nothing: the store is empty.
    Empty,
    /// Create the file and its directory.
    Create,
}

/// Opens the file, which no other user can read. `None` if the file does not exist.
///
/// # Errors
/// If the system refuses, or another user could change the file.
pub(super) fn open(path: &Path, missing: MissingFile) -> io::Result<Option<File>> {
    let create = missing == MissingFile::Create;
    if create && let Some(folder) = path.parent() {
        files::make_private_folder(folder)?;
    }
    let mut options = OpenOptions::new();
    files::private(options.read(true).write(true).create(create));
    // Do not follow a symbolic link, which could lead to another file of Milepost. Do not open a pipe, which could
    // block for ever.
    let file = match files::without_link(&mut options).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
        opened => opened?,
    };
    // Check the open file and not its path, because the path may lead to another file by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() || !files::is_own(&metadata) {
        return Err(io::Error::other("the file belongs to another user"));
    }
    Ok(Some(file))
}

/// Renames a file that cannot be used. Returns `None` if another process has already renamed it, or uses it.
///
/// # Errors
/// If the system refuses.
pub(super) fn set_aside(path: &Path, file: &File) -> io::Result<Option<PathBuf>> {
    // Every process that uses the file under this name holds the lock.
    if file.try_lock().is_err() {
        return Ok(None);
    }
    let moved = is_at(path, &file.metadata()?).then(|| rename(path)).transpose();
    // Ignore the error: closing the file would unlock it too.
    let _ = file.unlock();
    moved
}

fn is_at(path: &Path, metadata: &Metadata) -> bool {
    let same = |there: Metadata| files::identity(&there) == files::identity(metadata);
    fs::symlink_metadata(path).is_ok_and(same)
}

fn rename(path: &Path) -> io::Result<PathBuf> {
    let names = (1..=BAD_MAX).map(|number| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".bad-{number}"));
        PathBuf::from(name)
    });
    let names: Vec<PathBuf> = names.collect();
    let free = names.iter().find(|name| fs::symlink_metadata(name).is_err());
    // If all names are used, the last file is overwritten, so that corrupt files do not accumulate.
    let name = free.or_else(|| names.last()).ok_or(io::ErrorKind::NotFound)?;
    fs::rename(path, name)?;
    Ok(name.clone())
}
