//! The answers of a server's last start, in one small file for each command and client.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::platform::files;
use crate::progress::durations::fingerprint;
use crate::transport::child::Program;
use crate::transport::random::random_id;

/// The longest file that is read or written, in bytes. The answers of a server that says more are not kept.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Files in the folder. One more removes the oldest.
const FILES_MAX: usize = 256;

/// The answers of a server's last start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartAnswers {
    /// The result of `initialize`.
    pub(crate) initialize: Value,
    /// The results of requests for lists, by method.
    pub(crate) lists: BTreeMap<String, Value>,
}

/// The place of the answers of one command.
#[derive(Debug, Clone)]
pub(crate) struct StartStore {
    folder: PathBuf,
    command: Vec<Vec<u8>>,
}

impl StartStore {
    /// The place of the answers of `program`; `None` if they are not kept.
    pub(crate) fn of(program: &Program) -> Option<Self> {
        let folder = program.starts.clone()?;
        let bytes = |text: &OsStr| text.as_encoded_bytes().to_vec();
        let cwd = program.cwd.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        let command = program.command.iter().map(|part| bytes(part));
        Some(Self { folder, command: command.chain([bytes(cwd.as_os_str())]).collect() })
    }

    /// The file of a client whose `initialize` has these parameters.
    pub(crate) fn file_of(&self, params: &[u8]) -> PathBuf {
        // The file shows no arguments, which may be secrets.
        let client = serde_json::from_slice::<Value>(params).map(|mut params| {
            if let Some(members) = params.as_object_mut() {
                members.remove("_meta");
            }
            params.to_string()
        });
        let client = client.unwrap_or_default();
        let parts = || self.command.iter().map(Vec::as_slice).chain([client.as_bytes()]);
        let (one, other) = (fingerprint(parts()), fingerprint(parts().chain([&b"2"[..]])));
        self.folder.join(format!("{one:016x}{other:016x}.json"))
    }
}

/// The answers in a file; `None` if there is no such file, or other users could have written it.
pub(crate) fn read(path: &Path) -> Option<StartAnswers> {
    let mut options = OpenOptions::new();
    let file = files::without_link(options.read(true)).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let is_own = metadata.is_file()
        && files::is_own(&metadata)
        && files::is_private(&metadata)
        && metadata.len() <= FILE_BYTES_MAX;
    if !is_own {
        tracing::warn!(path = %path.display(), "the answers of the last start are not used: other users may write the file");
        return None;
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Writes the answers of a start, in the place of those of the last start.
///
/// # Errors
/// If the system refuses.
pub(crate) fn write(path: &Path, answers: &StartAnswers) -> io::Result<()> {
    let text = serde_json::to_vec(answers)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return remove(path);
    }
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    files::make_private_folder(folder)?;
    remove_oldest(folder);
    // A reader has the whole file, old or new.
    let name = random_id().ok_or(io::ErrorKind::Unsupported)?;
    let made = folder.join(format!("{name}.new"));
    let mut options = OpenOptions::new();
    let mut file = files::private(options.write(true).create_new(true)).open(&made)?;
    let written = file.write_all(&text).and_then(|()| fs::rename(&made, path));
    if written.is_err() {
        let _ = fs::remove_file(&made);
    }
    written
}

/// Removes the answers of a start.
///
/// # Errors
/// If the system refuses.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let age = |entry: &fs::DirEntry| entry.metadata().and_then(|data| data.modified()).ok();
    let mut files: Vec<_> = entries.flatten().map(|entry| (age(&entry), entry.path())).collect();
    files.sort();
    for (_, path) in files.iter().take(files.len().saturating_sub(FILES_MAX - 1)) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn store(folder: &Path, command: &[&str]) -> StartStore {
        let command = command.iter().map(OsString::from).collect();
        let program = Program { command, starts: Some(folder.to_owned()), ..Program::default() };
        StartStore::of(&program).unwrap()
    }

    #[test]
    fn the_answers_belong_to_a_command_and_a_client() {
        let folder = tempfile::tempdir().unwrap();
        let of = |command: &[&str], params: &str| {
            store(folder.path(), command).file_of(params.as_bytes())
        };
        let known = of(&["a", "b"], r#"{"protocolVersion":"1","_meta":{"x":1}}"#);
        assert_eq!(known, of(&["a", "b"], r#"{"protocolVersion":"1"}"#));
        assert_ne!(known, of(&["a", "c"], r#"{"protocolVersion":"1"}"#));
        assert_ne!(known, of(&["a b"], r#"{"protocolVersion":"1"}"#));
        assert_ne!(known, of(&["a", "b"], r#"{"protocolVersion":"2"}"#));
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_nobody_else_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = store(&folder.path().join("starts"), &["a"]).file_of(b"{}");
        assert_eq!(read(&path), None);
        let answers =
            StartAnswers { initialize: serde_json::json!({"a": 1}), ..StartAnswers::default() };
        write(&path, &answers).unwrap();
        assert_eq!(read(&path), Some(answers));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read(&path), None);
        remove(&path).unwrap();
        remove(&path).unwrap();
    }

    #[test]
    fn the_oldest_file_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..FILES_MAX + 3 {
            let path = store(folder.path(), &[&number.to_string()]).file_of(b"{}");
            write(&path, &StartAnswers::default()).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), FILES_MAX);
    }
}
