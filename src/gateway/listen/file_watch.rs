//! Detects changed files by examining the target of each path at intervals.
//!
//! This detects all ways in which files change: written in place, replaced by a rename, or reached through a symbolic
//! link that gets a new target, as in a ConfigMap or Secret of Kubernetes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::platform::files;

// Files are polled instead of watched: every way to replace a file changes the device, inode, time or length at the
// path, and a check every 2 s needs neither another crate nor a limited resource of the system.
/// The interval of the examinations. A change is reported when two examinations have found the same new state, so that
/// a file is not read while it is written.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What identifies the target of a path without reading it; `None` if there is none.
type FileMark = Option<(u64, u64, i64, i64, u64)>;

fn mark(path: &Path) -> FileMark {
    // `metadata` follows symbolic links, because a link may get a new target.
    let found = fs::metadata(path).ok()?;
    let ((device, number), (seconds, nanos)) = (files::identity(&found), files::modified(&found));
    Some((device, number, seconds, nanos, found.len()))
}

fn marks(files: &[PathBuf]) -> Vec<FileMark> {
    files.iter().map(|file| mark(file)).collect()
}

/// Files, and their states at the last examinations.
pub(super) struct FileWatch {
    files: Vec<PathBuf>,
    /// The states that the caller has been told of.
    known: Vec<FileMark>,
    /// The states that the last examination found.
    seen: Vec<FileMark>,
}

impl FileWatch {
    /// Watches these files. Changes are reported relative to their current state.
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        let known = marks(&files);
        Self { files, seen: known.clone(), known }
    }

    /// Watches other files from now on. Files that were watched before keep their known state.
    pub(super) fn watch(&mut self, files: Vec<PathBuf>) {
        if files == self.files {
            return;
        }
        let before = |marks: &[FileMark], file: &PathBuf| {
            let place = self.files.iter().position(|known| known == file)?;
            marks.get(place).copied()
        };
        let known =
            files.iter().map(|file| before(&self.known, file).unwrap_or_else(|| mark(file)));
        let seen = files.iter().map(|file| before(&self.seen, file).unwrap_or_else(|| mark(file)));
        let (known, seen) = (known.collect(), seen.collect());
        *self = Self { files, known, seen };
    }

    /// Checks the files once. A change is reported once, by the second check that finds the same state.
    pub(super) fn check(&mut self) -> FileChange {
        let now = marks(&self.files);
        let is_being_written = now.iter().zip(&self.seen).any(|(now, seen)| match (now, seen) {
            // The same file, but shorter: truncated, and being written again. A replaced file has another inode.
            (Some(now), Some(seen)) => now.0 == seen.0 && now.1 == seen.1 && now.4 < seen.4,
            _ => false,
        });
        let look = if is_being_written {
            FileChange::BeingWritten
        } else if now == self.seen && now != self.known {
            self.known.clone_from(&now);
            FileChange::Changed
        } else {
            FileChange::Same
        };
        self.seen = now;
        look
    }
}

/// The result of one check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileChange {
    /// The files are unchanged, or their change is so new that one more check is needed.
    Same,
    /// The files have changed, and the last two checks found the same state.
    Changed,
    /// A file has become shorter in its place since the last check, so its new content is not complete yet.
    BeingWritten,
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn changes(watch: &mut FileWatch, looks: usize) -> Vec<bool> {
        (0..looks).map(|_| watch.check() == FileChange::Changed).collect()
    }

    #[test]
    fn a_file_that_has_become_shorter_in_its_place_is_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "123").unwrap();
        let mut watch = FileWatch::new(vec![file.clone()]);
        fs::write(&file, "").unwrap();
        assert_eq!(watch.check(), FileChange::BeingWritten);
        fs::write(&file, "12").unwrap();
        assert_eq!([watch.check(), watch.check()], [FileChange::Same, FileChange::Changed]);
        // A file that is renamed into place is complete.
        fs::write(&new, "1").unwrap();
        fs::rename(&new, &file).unwrap();
        assert_eq!([watch.check(), watch.check()], [FileChange::Same, FileChange::Changed]);
    }

    #[test]
    fn a_change_counts_when_it_was_seen_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "1").unwrap();
        let mut watch = FileWatch::new(vec![file.clone()]);
        assert_eq!(changes(&mut watch, 2), [false, false]);
        fs::write(&file, "22").unwrap();
        assert_eq!(changes(&mut watch, 1), [false]);
        fs::write(&file, "333").unwrap();
        assert_eq!(changes(&mut watch, 4), [false, true, false, false]);
    }

    #[test]
    fn a_new_file_under_the_same_name_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "1").unwrap();
        let mut watch = FileWatch::new(vec![file.clone()]);
        fs::write(&new, "2").unwrap();
        fs::rename(&new, &file).unwrap();
        assert_eq!(changes(&mut watch, 3), [false, true, false]);
        // The file is missing for a moment, and then returns.
        fs::remove_file(&file).unwrap();
        assert_eq!(changes(&mut watch, 1), [false]);
        // Another length: the system may give the new file the inode of the old one, in the same tick of its clock.
        fs::write(&file, "33").unwrap();
        assert_eq!(changes(&mut watch, 3), [false, true, false]);
    }

    #[test]
    fn what_a_link_leads_to_counts() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["..1", "..2"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("a"), name).unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/a", at("a")).unwrap();
        let mut watch = FileWatch::new(vec![at("a")]);
        symlink("..2", at("..new")).unwrap();
        fs::rename(at("..new"), at("..data")).unwrap();
        assert_eq!(changes(&mut watch, 3), [false, true, false]);
    }

    #[test]
    fn other_files_are_known_as_they_are_and_the_same_ones_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("1"), folder.path().join("2"));
        fs::write(&one, "1").unwrap();
        fs::write(&other, "2").unwrap();
        let mut watch = FileWatch::new(vec![one.clone()]);
        fs::write(&one, "11").unwrap();
        watch.watch(vec![one, other.clone()]);
        assert_eq!(changes(&mut watch, 3), [false, true, false]);
        fs::write(&other, "22").unwrap();
        assert_eq!(changes(&mut watch, 3), [false, true, false]);
    }
}
