//! Every conversation of a rig is recorded, and comes out again when it is played.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::Parser;
use milepost::cli::{Cli, Command};
use milepost::record::{Ending, Recording};
use milepost::replay;
use milepost::witness::Lookout;
use tempfile::TempDir;

/// The recordings of a rig, which are played at its end.
pub(crate) struct Records {
    folder: TempDir,
    file: PathBuf,
    lookout: Arc<dyn Lookout>,
    ending: Option<Ending>,
}

/// Plays a recording with the settings of the route `/r` of `file`: what is shown, and whether it is what
/// was recorded.
pub(crate) fn play(recording: &Path, file: &Path) -> (String, bool) {
    let arguments = ["milepost", "replay", "--route", "/r", "--config"].map(Path::new);
    let cli = Cli::parse_from([&arguments[..], &[file, recording]].concat());
    let Command::Replay(args) = cli.command else { panic!("what is that?") };
    let played = replay::run(&args).unwrap_or_else(|error| panic!("{error}"));
    (played.text, played.is_equal)
}

impl Records {
    /// Of a proxy with this route file.
    pub(super) fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        fs::write(&file, text).unwrap();
        let recording = Recording { folder: folder.path().join("records"), secrets: true };
        let (records, ending) = recording.start().unwrap();
        Self { folder, file, lookout: Arc::new(records), ending: Some(ending) }
    }

    pub(super) fn lookout(&self) -> Arc<dyn Lookout> {
        Arc::clone(&self.lookout)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        self.ending.take().unwrap().wait();
        for entry in fs::read_dir(self.folder.path().join("records")).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            // What was learned of other conversations is in none, nor what found no room.
            if text.contains("what was known of durations") || text.contains("lines are missing") {
                continue;
            }
            let (shown, is_equal) = play(&path, &self.file);
            assert!(is_equal, "{shown}\n\n{text}");
        }
    }
}
