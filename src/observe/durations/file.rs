//! The store's file in the file system: its owner, its permissions, and the setting aside of a broken file.
//! All code for Unix only is here.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::geteuid;

/// Unreadable state files that are kept aside. The oldest is overwritten.
const BAD_MAX: usize = 5;

/// Opens the file, and creates the file and its folder if `create` is true. No other user can read
/// them. `None` if the file does not exist.
///
/// # Errors
/// If the system refuses, or another user could change the file.
pub(super) fn open(path: &Path, create: bool) -> io::Result<Option<File>> {
    if create && let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).mode(0o600);
    // A link could lead to another file of Milepost's own; a pipe could keep us waiting.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != geteuid().as_raw() {
        return Err(io::Error::other("the file belongs to another user"));
    }
    Ok(Some(file))
}

/// Renames a file that cannot be used. `None` if another process has already renamed the file, or
/// works on it.
///
/// # Errors
/// If the system refuses.
pub(super) fn set_aside(path: &Path, file: &File) -> io::Result<Option<PathBuf>> {
    // A process that has a file of this name open holds this lock.
    if file.try_lock().is_err() {
        return Ok(None);
    }
    let moved = is_at(path, &file.metadata()?).then(|| rename(path)).transpose();
    // When it is closed, too; whatever comes of this.
    let _ = file.unlock();
    moved
}

fn is_at(path: &Path, metadata: &Metadata) -> bool {
    let same = |there: Metadata| (there.dev(), there.ino()) == (metadata.dev(), metadata.ino());
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
    let name = free.or_else(|| names.last()).ok_or(io::ErrorKind::NotFound)?;
    fs::rename(path, name)?;
    Ok(name.clone())
}
