//! A client's file on disk: reads it, backs it up, and replaces it atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::AdoptError;
use super::repository::Sharing;
use crate::observe::durations::state_dir;
use crate::platform::files;

/// Maximum number of bytes in a client's file; a longer file is refused. Claude Code keeps a history of some megabytes
/// in its file.
const FILE_MAX: u64 = 64 << 20;

/// The directory, inside the state directory, for backups of files that are in a repository.
const BACKUPS: &str = "backups";

/// The byte order mark that some editors put before the text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A file that has been read.
#[derive(Debug)]
pub(super) struct ClientFile {
    /// The path with symbolic links resolved: the target of a link is replaced, the link stays.
    place: PathBuf,
    bytes: Vec<u8>,
    has_mark: bool,
}

impl ClientFile {
    pub(super) fn read(path: &Path) -> Result<(Self, String), AdoptError> {
        let unreadable = |source| AdoptError::Unreadable { path: path.to_owned(), source };
        let place = path.canonicalize().map_err(unreadable)?;
        let (bytes, _) = read(&place).map_err(unreadable)?;
        let text = String::from_utf8(bytes.clone()).map_err(|error| {
            let before = String::from_utf8_lossy(&bytes[..error.utf8_error().valid_up_to()]);
            AdoptError::wrong(path, &before, before.len(), "text in UTF-8 is expected")
        })?;
        let (has_mark, text) = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => (true, rest.to_owned()),
            None => (false, text),
        };
        Ok((Self { place, bytes, has_mark }, text))
    }

    /// Whether the permissions of the file forbid writing.
    pub(super) fn is_read_only(&self) -> bool {
        fs::metadata(&self.place).is_ok_and(|known| known.permissions().readonly())
    }

    /// Returns the place of the backup: beside the file, or in the state directory if the file is in a repository.
    pub(super) fn backup(&self, sharing: &Sharing) -> Backup {
        let outside = sharing.repository().and_then(|_| {
            let folder = state_dir(None, None)?.join(BACKUPS);
            let name = self.place.to_string_lossy().replace('/', "-");
            Some(Backup { path: folder.join(name.trim_start_matches('-')) })
        });
        outside.unwrap_or_else(|| {
            let mut name = self.place.clone().into_os_string();
            name.push(".milepost-backup");
            Backup { path: PathBuf::from(name) }
        })
    }

    /// Replaces the file by `text` and returns the path of the backup. A backup that equals the new text is removed.
    pub(super) fn write(
        &self,
        text: &str,
        backup: &Backup,
        older: OlderBackup,
    ) -> Result<Option<PathBuf>, AdoptError> {
        let failed = |source| AdoptError::Unwritable { path: self.place.clone(), source };
        let folder = self.place.parent().unwrap_or_else(|| Path::new("/"));
        // The client may have written its file since it was read; its change must not be lost.
        let (bytes, known) = read(&self.place).map_err(failed)?;
        if bytes != self.bytes {
            return Err(AdoptError::Changed(self.place.clone()));
        }
        let mut new = NamedTempFile::new_in(folder).map_err(failed)?;
        if self.has_mark {
            new.write_all(BYTE_ORDER_MARK.as_bytes()).map_err(failed)?;
        }
        new.write_all(text.as_bytes()).map_err(failed)?;
        same_access(new.as_file(), &known).map_err(failed)?;
        new.as_file().sync_all().map_err(failed)?;
        let is_as_before = backup.text().as_deref() == Some(text);
        let is_kept = older == OlderBackup::Kept && backup.path.exists();
        if !is_as_before && !is_kept {
            backup
                .write(&self.bytes, &known)
                .map_err(|source| AdoptError::Unwritable { path: backup.path.clone(), source })?;
        }
        if read(&self.place).map_err(failed)?.0 != self.bytes {
            return Err(AdoptError::Changed(self.place.clone()));
        }
        new.persist(&self.place).map_err(|error| failed(error.error))?;
        if is_as_before {
            // Ignore the error: a backup that cannot be removed does no harm.
            let _ = fs::remove_file(&backup.path);
            return Ok(None);
        }
        Ok(Some(backup.path.clone()))
    }
}

/// An existing backup, when the file is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OlderBackup {
    /// The text before this change takes its place.
    Replaced,
    /// It is kept, because `adopt` has already changed the file since the backup.
    Kept,
}

/// The backup of a file. A file has at most one.
#[derive(Debug)]
pub(super) struct Backup {
    path: PathBuf,
}

impl Backup {
    /// Returns the text of the backup, if a backup exists.
    pub(super) fn text(&self) -> Option<String> {
        let (bytes, _) = read(&self.path).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        Some(text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned).unwrap_or(text))
    }

    /// Writes the backup atomically, because an incomplete backup would be worse than none.
    fn write(&self, bytes: &[u8], known: &fs::Metadata) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("/"));
        if !folder.exists() {
            files::make_private_folder(folder)?;
        }
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        same_access(file.as_file(), known)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Returns the content and the metadata of a regular file. Symbolic links are not followed: the path had none when it
/// was checked, unless another process has changed it meanwhile.
fn read(place: &Path) -> io::Result<(Vec<u8>, fs::Metadata)> {
    // Opening a pipe without a writer would block.
    let file = files::without_link(OpenOptions::new().read(true)).open(place)?;
    let known = file.metadata()?;
    if !known.is_file() {
        return Err(io::Error::other("a regular file is expected"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(io::Error::other("the file is longer than 64 MiB"));
    }
    Ok((bytes, known))
}

/// Gives a new file the owner of the old file (which matters if an administrator runs this command), and then the mode
/// of the old file. Only the open file is changed, because its path may lead to another file by now.
fn same_access(file: &File, known: &fs::Metadata) -> io::Result<()> {
    files::give_to_owner_of(file, known)?;
    file.set_permissions(known.permissions())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn owner_and_mode_are_those_of_the_open_file_and_never_of_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["old", "new", "other"] {
            fs::write(at(name), name).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let is_root = nix::unistd::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(at("old"), Some(4711), Some(4712)).unwrap();
        }
        fs::set_permissions(at("old"), fs::Permissions::from_mode(0o640)).unwrap();
        let known = fs::metadata(at("old")).unwrap();
        let new = File::options().write(true).open(at("new")).unwrap();
        // The owner of the directory replaces the new file by a symbolic link.
        fs::remove_file(at("new")).unwrap();
        symlink(at("other"), at("new")).unwrap();
        same_access(&new, &known).unwrap();
        let (other, new) = (fs::metadata(at("other")).unwrap(), new.metadata().unwrap());
        assert_eq!(other.mode() & 0o7777, 0o600);
        assert_eq!(new.mode() & 0o7777, 0o640);
        assert_eq!((new.uid(), new.gid()), (known.uid(), known.gid()));
        assert_eq!(other.uid() == known.uid(), !is_root);
    }

    #[test]
    fn a_link_that_was_put_in_the_place_of_a_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, secret) = (dir.path().join("servers.json"), dir.path().join("secret"));
        fs::write(&file, "{}").unwrap();
        fs::write(&secret, "root's").unwrap();
        let (read, _) = ClientFile::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        symlink(&secret, &file).unwrap();
        assert!(matches!(
            read.write("{}", &read.backup(&Sharing::default()), OlderBackup::Replaced),
            Err(AdoptError::Unwritable { .. })
        ));
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "no backup of the other file, and no new file");
    }
}
