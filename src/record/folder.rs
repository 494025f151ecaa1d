//! The folder of recordings: names, and how many are kept.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

/// Recordings that are kept in a folder; the oldest make room.
pub(super) const FILES_MAX: usize = 1000;

/// Conversations that may begin in one second.
const TRIES: usize = 10_000;

/// What names of recordings end in.
const END: &str = ".transcript";

/// Makes the file of a conversation, which only its owner can read: `2026-01-31T09-59-59Z-0001.transcript`.
pub(super) fn begin(folder: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    make_room(folder);
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(':', "-");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    for counter in 1..TRIES {
        match options.open(folder.join(format!("{time}-{counter:04}{END}"))) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn make_room(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // Times of one length sort as text.
    let mut names: Vec<String> = names.filter(|name| is_ours(name)).collect();
    names.sort();
    let surplus = (names.len() + 1).saturating_sub(FILES_MAX);
    for name in names.iter().take(surplus) {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// Whether a file is a recording: nothing else is removed.
fn is_ours(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(END) else { return false };
    let mut parts = stem.split("Z-");
    let is = |part: Option<&str>, also: &str| {
        part.is_some_and(|part| part.chars().all(|c| c.is_ascii_digit() || also.contains(c)))
    };
    is(parts.next(), "-T") && is(parts.next(), "") && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..FILES_MAX + 5 {
            let name = format!("2020-01-01T00-00-00Z-{n:04}{END}");
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(folder.path().join("1-mine.transcript"), "").unwrap();
        drop(begin(folder.path()).unwrap());
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), FILES_MAX + 1);
        assert_eq!(names[0], "1-mine.transcript");
        assert_eq!(names[1], "2020-01-01T00-00-00Z-0006.transcript");
    }
}
