//! A client's file on disk: reading, a backup, and replacement in one step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

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
        let known = fs::metadata(&place).map_err(unreadable)?;
        if !known.is_file() {
            return Err(unreadable(io::Error::other("a regular file is expected")));
        }
        if known.len() > FILE_MAX {
            return Err(unreadable(io::Error::other("the file is longer than 64 MiB")));
        }
        let bytes = fs::read(&place).map_err(unreadable)?;
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
        let known = fs::metadata(&self.place).map_err(failed)?;
        let mut new = NamedTempFile::new_in(folder).map_err(failed)?;
        if self.has_mark {
            new.write_all(BYTE_ORDER_MARK.as_bytes()).map_err(failed)?;
        }
        new.write_all(text.as_bytes()).map_err(failed)?;
        same_owner(new.path(), &known).map_err(failed)?;
        new.as_file().set_permissions(known.permissions()).map_err(failed)?;
        new.as_file().sync_all().map_err(failed)?;
        let backup = self.keep(&known)?;
        // Clients write their files too.
        if fs::read(&self.place).map_err(failed)? != self.bytes {
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
                    let written = self.fill(&mut file, &path, known);
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

    fn fill(&self, file: &mut File, path: &Path, known: &fs::Metadata) -> io::Result<()> {
        file.write_all(&self.bytes)?;
        same_owner(path, known)?;
        file.set_permissions(known.permissions())?;
        file.sync_all()
    }
}

/// Gives a new file to whom the old one belongs, which matters where an administrator runs this.
fn same_owner(path: &Path, known: &fs::Metadata) -> io::Result<()> {
    let new = fs::metadata(path)?;
    if (new.uid(), new.gid()) == (known.uid(), known.gid()) {
        return Ok(());
    }
    chown(path, Some(known.uid()), Some(known.gid()))
}
