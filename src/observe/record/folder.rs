//! The directory of recordings: the names of the files, and how many are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::platform::files;

/// Maximum number of recordings kept in one folder. The oldest finished recordings are removed.
pub(super) const FILES_MAX: usize = 1000;

/// Maximum number of bytes of all recordings in one directory. The oldest finished recordings are removed. If no
/// recording is finished, the recording that grows beyond the limit ends.
pub(super) const TOTAL_MAX: u64 = 4 << 30;

/// Maximum number of conversations that may begin in one second.
const TRIES: usize = 9_999;

/// The ending of the names of recordings.
const END: &str = ".transcript";

/// Maximum number of characters of a route's path in the name of a recording.
const ROUTE_MAX: usize = 40;

/// For how long the list of files is used before the directory is read again, because other processes may write to it
/// too.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// A folder with recordings.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The recordings in the directory at the last scan, with their lengths in bytes. The names begin with the time, so
    /// they sort by age.
    files: BTreeMap<String, u64>,
    /// Maximum number of bytes of all recordings ([`TOTAL_MAX`], except in tests).
    total_max: u64,
    looked: Option<Instant>,
    /// The recordings that are still being written.
    live: BTreeSet<String>,
    /// The second of the last start, and how many conversations have begun in it.
    second: (String, usize),
}

impl Folder {
    /// Opens the directory, which is created if necessary. Checks that a file can be created in it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        files::make_private_folder(path)?;
        // Check with a random name: in another user's directory, a symbolic link may wait under any name that can be
        // guessed.
        tempfile::Builder::new().prefix(".milepost-").tempfile_in(path)?.close()?;
        Ok(Self {
            path: path.to_owned(),
            files: BTreeMap::new(),
            total_max: TOTAL_MAX,
            looked: None,
            live: BTreeSet::new(),
            second: (String::new(), 0),
        })
    }

    /// Creates the file for a conversation on a route, readable only by its owner. Returns the name, such as
    /// `2026-01-31T09-59-59Z-0001-github.transcript`, and the file. Returns `None` if all recordings that may be kept
    /// are still being written.
    pub(super) fn begin(&mut self, route: &str) -> io::Result<Option<(String, File)>> {
        if !self.make_room() {
            return Ok(None);
        }
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let time = time.replace(':', "-");
        if self.second.0 != time {
            self.second = (time, 0);
        }
        let route = plain(route);
        while self.second.1 < TRIES {
            self.second.1 += 1;
            // The name has the second, so conversations of the same second get different numbers.
            let (time, counter) = (&self.second.0, self.second.1);
            let name = format!("{time}-{counter:04}{route}{END}");
            // Fail if the file exists: another process may record into the same directory.
            match options().create_new(true).open(self.path.join(&name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    self.files.insert(name.clone(), 0);
                    self.live.insert(name.clone());
                    return Ok(Some((name, file)));
                }
            }
        }
        Ok(None)
    }

    /// Opens the file of a conversation again, to append to it.
    pub(super) fn open_again(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        files::without_link(options.append(true)).open(self.path.join(name))
    }

    /// Notes that a recording has grown to this length, and removes the oldest finished recordings if all are too long
    /// together. Returns false if that is not enough.
    pub(super) fn grow(&mut self, name: &str, bytes: u64) -> bool {
        self.files.insert(name.to_owned(), bytes);
        // Delete only finished files.
        while self.files.values().sum::<u64>() > self.total_max {
            let Some(oldest) = self.files.keys().find(|name| !self.live.contains(*name)).cloned()
            else {
                return false;
            };
            self.remove(&oldest);
        }
        true
    }

    fn remove(&mut self, name: &str) {
        // Ignore the error: the next scan finds a file that could not be removed.
        let _ = fs::remove_file(self.path.join(name));
        self.files.remove(name);
    }

    /// Marks a file as finished, so that it may be removed to make room.
    pub(super) fn end(&mut self, name: &str) {
        self.live.remove(name);
    }

    /// Removes the oldest finished recordings if there are too many. Returns false if that is not enough.
    fn make_room(&mut self) -> bool {
        if self.looked.is_none_or(|at| at.elapsed() > KNOWN_FOR) {
            self.looked = Some(Instant::now());
            let entries = fs::read_dir(&self.path).into_iter().flatten();
            let file = |entry: io::Result<fs::DirEntry>| {
                let entry = entry.ok()?;
                let name = entry.file_name().into_string().ok().filter(|name| is_ours(name))?;
                Some((name, entry.metadata().map_or(0, |known| known.len())))
            };
            self.files.clear();
            self.files.extend(entries.filter_map(file));
        }
        // Count one more, for the file to be created.
        let surplus = (self.files.len() + 1).saturating_sub(FILES_MAX);
        let finished = self.files.keys().filter(|name| !self.live.contains(*name));
        let oldest: Vec<String> = finished.take(surplus).cloned().collect();
        oldest.iter().for_each(|name| self.remove(name));
        oldest.len() == surplus
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    files::private(options.write(true));
    options
}

/// Returns a route's path for a file name: letters and digits stay, and all other characters become `-`.
fn plain(route: &str) -> String {
    let plain = |sign: char| if sign.is_ascii_alphanumeric() { sign } else { '-' };
    let text: String = route.chars().take(ROUTE_MAX + 1).map(plain).collect();
    let text = text.trim_matches('-');
    let text = text.get(..ROUTE_MAX).unwrap_or(text);
    if text.is_empty() { String::new() } else { format!("-{text}") }
}

/// Whether a file is a recording, and so may be removed.
fn is_ours(name: &str) -> bool {
    let Some((time, rest)) = name.strip_suffix(END).and_then(|stem| stem.split_once("Z-")) else {
        return false;
    };
    let (counter, route) = rest.split_once('-').map_or((rest, None), |(is, on)| (is, Some(on)));
    let are = |text: &str, also: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || also.contains(c))
    };
    let is_plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    are(time, "-T") && are(counter, "") && route.is_none_or(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_make_room_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..FILES_MAX + 5 {
            let name = format!("2020-01-01T00-00-00Z-{n:04}-x{END}");
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::write(dir.path().join("1-mine.transcript"), "").unwrap();
        let mut folder = Folder::open(dir.path()).unwrap();
        folder.begin("/").unwrap().unwrap();
        let found = names(dir.path());
        assert_eq!(found.len(), FILES_MAX + 1);
        assert_eq!(found[0], "1-mine.transcript");
        assert_eq!(found[1], "2020-01-01T00-00-00Z-0006-x.transcript");
        // No recording is finished, so at the limit no new one begins.
        for _ in 1..FILES_MAX {
            folder.begin("/a/b").unwrap().unwrap();
        }
        assert!(folder.begin("/a/b").unwrap().is_none());
        assert_eq!(names(dir.path()).len(), FILES_MAX + 1);
        let oldest = names(dir.path())[1].clone();
        folder.end(&oldest);
        let (next, _) = folder.begin("/a/b").unwrap().unwrap();
        assert!(next.ends_with("-a-b.transcript") && is_ours(&next), "{next}");
        assert!(!names(dir.path()).contains(&oldest));
    }

    #[test]
    fn the_oldest_make_room_for_bytes_too() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..3 {
            let name = format!("2020-01-01T00-00-00Z-{n:04}-x{END}");
            fs::write(dir.path().join(name), [b'x'; 100]).unwrap();
        }
        let mut folder = Folder::open(dir.path()).unwrap();
        assert_eq!(names(dir.path()).len(), 3, "nothing is left of the trial");
        folder.total_max = 350;
        let (new, _) = folder.begin("/a").unwrap().unwrap();
        assert!(folder.grow(&new, 50));
        assert_eq!(names(dir.path()).len(), 4);
        assert!(folder.grow(&new, 120));
        assert_eq!(names(dir.path())[0], "2020-01-01T00-00-00Z-0001-x.transcript");
        assert!(folder.grow(&new, 350));
        assert_eq!(names(dir.path()), std::slice::from_ref(&new));
        assert!(!folder.grow(&new, 351), "the only one is being written");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed_neither_by_the_trial_nor_by_a_recording() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        fs::write(&secret, "keep").unwrap();
        let records = dir.path().join("records");
        fs::create_dir(&records).unwrap();
        symlink(&secret, records.join(format!(".milepost-{}", std::process::id()))).unwrap();
        let mut folder = Folder::open(&records).unwrap();
        let (name, _) = folder.begin("/a").unwrap().unwrap();
        fs::remove_file(records.join(&name)).unwrap();
        symlink(&secret, records.join(&name)).unwrap();
        folder.open_again(&name).unwrap_err();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "keep");
        assert_eq!(names(&records).len(), 2, "the stranger's link is left alone");
    }

    #[test]
    fn names_are_those_of_routes() {
        for (route, name) in [
            ("", ""),
            ("/", ""),
            ("/github", "-github"),
            ("/a/b", "-a-b"),
            ("/../..", ""),
            ("/Z-1/\u{e9}", "-Z-1"),
            (&"/x".repeat(60), "-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x"),
        ] {
            assert_eq!(plain(route).trim_end_matches('-'), name.trim_end_matches('-'), "{route}");
            assert!(is_ours(&format!("2026-01-31T09-59-59Z-0001{}{END}", plain(route))), "{route}");
        }
        for other in ["Z-1.transcript", "1Z-.transcript", "1Z-1-.transcript", "a.transcript"] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
