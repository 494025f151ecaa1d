//! Files that an author edits: waits until one of them is saved.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

/// The interval at which the files are checked.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Tells whether a file was saved: its modification time and its length; `None` if the file does not exist.
type SavedMark = Option<(SystemTime, u64)>;

/// Files, with their modification times and lengths at the last check.
#[derive(Debug)]
pub struct SavedFiles {
    paths: Vec<PathBuf>,
    seen: Vec<SavedMark>,
}

impl SavedFiles {
    /// Remembers the present state of these files.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let mut files = Self { paths, seen: Vec::new() };
        files.seen = files.marks();
        files
    }

    fn marks(&self) -> Vec<SavedMark> {
        let mark = |path: &PathBuf| {
            let known = fs::metadata(path).ok()?;
            Some((known.modified().ok()?, known.len()))
        };
        self.paths.iter().map(mark).collect()
    }

    /// Waits until a file is saved. If an editor has just removed a file, waits until it exists again.
    pub async fn saved(&mut self) {
        loop {
            sleep(LOOK_EVERY).await;
            let marks = self.marks();
            if marks != self.seen && marks.iter().all(Option::is_some) {
                self.seen = marks;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_saved_file_is_noticed_also_if_it_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        fs::write(&path, "a").unwrap();
        let mut files = SavedFiles::new(vec![path.clone()]);
        fs::remove_file(&path).unwrap();
        assert!(tokio::time::timeout(LOOK_EVERY * 2, files.saved()).await.is_err());
        fs::write(&path, "ab").unwrap();
        files.saved().await;
        assert!(tokio::time::timeout(LOOK_EVERY * 2, files.saved()).await.is_err());
    }
}
