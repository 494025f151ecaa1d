//! Every conversation of a rig is recorded, and comes out again when it is played.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use milepost::commands::args::{Cli, Command};
use milepost::lab::replay;
use milepost::observe::events::ObserverFactory;
use milepost::observe::record::{RecordedSecrets, Recording, WriterEnd};
use tempfile::TempDir;

/// The recordings of a rig, which are played at its end.
pub(crate) struct Records {
    folder: TempDir,
    file: PathBuf,
    factory: Arc<dyn ObserverFactory>,
    ending: Option<WriterEnd>,
}

/// Plays a recording, with the settings of the route `/r` of `file` if a file is given. Returns the output, and whether
/// it equals the recording.
fn play(recording: &Path, file: Option<&Path>) -> (String, bool) {
    let mut arguments = vec![Path::new("milepost"), Path::new("replay"), recording];
    if let Some(file) = file {
        arguments.extend(["--route", "/r", "--config"].map(Path::new));
        arguments.push(file);
    }
    let cli = Cli::parse_from(arguments);
    let Command::Replay(args) = cli.command else { panic!("what is that?") };
    let settings = |recorded| args.settings(recorded);
    let played = replay::run(&args.file, args.form(None), settings)
        .unwrap_or_else(|error| panic!("{error}"));
    (played.text, played.is_equal)
}

impl Records {
    /// Of a proxy with this route file.
    pub(crate) fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        fs::write(&file, text).unwrap();
        let recording =
            Recording { folder: folder.path().join("records"), secrets: RecordedSecrets::Unmasked };
        let (records, ending) = recording.start().unwrap();
        Self { folder, file, factory: Arc::new(records), ending: Some(ending) }
    }

    pub(crate) fn factory(&self) -> Arc<dyn ObserverFactory> {
        Arc::clone(&self.factory)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        // A busy machine may need longer for the largest recordings than a process waits at its end.
        self.ending.take().unwrap().wait_for(Duration::from_secs(60));
        for entry in fs::read_dir(self.folder.path().join("records")).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            // A recording contains neither durations that were learned in other conversations, nor lines that were
            // dropped.
            if text.contains("what was known of durations") || text.contains("lines are missing") {
                continue;
            }
            let file = text.contains("# a replay needs").then_some(&*self.file);
            let (shown, is_equal) = play(&path, file);
            assert!(is_equal, "{shown}\n\n{text}");
        }
    }
}
