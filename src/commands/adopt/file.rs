//! A client's file on disk: reading, a backup, and replacement in one step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use tempfile::NamedTempFile;

use super::AdoptError;

/// Bytes of a client's file that `adopt` reads. Claude Code keeps a history of some megabytes in
/// its file; a longer file is refused.
const FILE_MAX: u64 = 64 << 20;

/// Backups of one file: enough for years, and no endless search for a free name.
const BACKUPS_MAX: u32 = 1000;

/// The byte order mark that some editors put before the text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A file that has been read.
#[derive(Debug)]
pub(super) struct ClientFile {
    /// The path of the file, links resolved: the target changes, the links stay.
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

    /// Replaces the file by `text`, keeps a backup, and returns the path of the backup.
    pub(super) fn write(&self, text: &str) -> Result<PathBuf, AdoptError> {
        let failed = |source| AdoptError::Unwritable { path: self.place.clone(), source };
        let folder = self.place.parent().unwrap_or_else(|| Path::new("/"));
        // Clients write their files too.
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
        let backup = self.keep(&known)?;
        if read(&self.place).map_err(failed)?.0 != self.bytes {
            return Err(AdoptError::Changed(self.place.clone()));
        }
        new.persist(&self.place).map_err(|error| failed(error.error))?;
        Ok(backup)
    }

    /// Writes a backup under a free name; an older backup with the same content is enough.
    fn keep(&self, known: &fs::Metadata) -> Result<PathBuf, AdoptError> {
        let failed = |path: &Path, source| AdoptError::Unwritable { path: path.to_owned(), source };
        let mut name = self.place.clone().into_os_string();
        name.push(".milepost-backup");
        let first = PathBuf::from(&name);
        let others = (2..=BACKUPS_MAX).map(|number| {
            let mut name = name.clone();
            name.push(format!("-{number}"));
            PathBuf::from(name)
        });
        for path in std::iter::once(first.clone()).chain(others) {
            let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            match created {
                Ok(mut file) => {
                    let written = self.fill(&mut file, known);
                    // Half a backup is worse than none.
                    written
                        .inspect_err(|_| drop(fs::remove_file(&path)))
                        .map_err(|e| failed(&path, e))?;
                    return Ok(path);
                }
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(&path, error));
                }
                Err(_) if fs::read(&path).is_ok_and(|kept| kept == self.bytes) => return Ok(path),
                Err(_) => {}
            }
        }
        Err(failed(
            &first,
            io::Error::other("there are too many backups of this file; remove some"),
        ))
    }

    fn fill(&self, file: &mut File, known: &fs::Metadata) -> io::Result<()> {
        file.write_all(&self.bytes)?;
        same_access(file, known)?;
        file.sync_all()
    }
}

/// The content of a regular file, and whose it is. No link is followed: the path has none, unless
/// somebody has changed it meanwhile.
fn read(place: &Path) -> io::Result<(Vec<u8>, fs::Metadata)> {
    // A pipe without a writer would wait for one.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(place)?;
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

/// Gives a new file to whom the old one belongs, which matters where an administrator runs this, and
/// then the mode of the old one. Only the open file is changed: by now its path may lead to another.
fn same_access(file: &File, known: &fs::Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (known.uid(), known.gid()) {
        fchown(file, Some(known.uid()), Some(known.gid()))?;
    }
    file.set_permissions(known.permissions())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

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
        // Whoever owns the folder puts a link in the place of the new file.
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
        assert!(matches!(read.write("{}"), Err(AdoptError::Unwritable { .. })));
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "no backup of the other file, and no new file");
    }
}
