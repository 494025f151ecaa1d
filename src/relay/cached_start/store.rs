//! Stores the answers of a server's last start, in one small file for each server and client.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::platform::files;
use crate::protocol::exact_value::exact_params;
use crate::protocol::order;
use crate::protocol::trace_context::to_hex;
use crate::transport::child::{KeptStarts, Program};
use crate::transport::random::random_id;

/// Maximum number of bytes of a file that is read or written. Longer answers are not stored.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Maximum number of files in the directory. One more removes the oldest.
const FILES_MAX: usize = 256;

/// The answers of a server's last start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartAnswers {
    /// The result of `initialize`.
    pub(crate) initialize: Value,
    /// The results of requests for lists, by method.
    pub(crate) lists: BTreeMap<String, Value>,
}

/// Variables that identify a terminal, a login or the start of a process, and so change with each start. The answers of
/// a server should not depend on them.
const CHANGING_NAMES: [&str; 17] = [
    "_",
    "COLUMNS",
    "DBUS_SESSION_BUS_ADDRESS",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LINES",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SYSTEMD_EXEC_PID",
    "TERM_SESSION_ID",
    "TRACEPARENT",
    "WINDOWID",
    "XDG_SESSION_ID",
];

/// Where the answers of one server are stored.
#[derive(Clone)]
pub(crate) struct StartStore {
    folder: PathBuf,
    /// A digest of everything that the answers may depend on, except for the client.
    server: Context,
    has_one_principal: bool,
}

impl StartStore {
    /// Returns the store for the answers of `program`; `None` if they are not to be stored.
    pub(crate) fn of(program: &Program) -> Option<Self> {
        let KeptStarts { folder, scope, principal } = program.starts.clone()?;
        // Include the directory, because relative paths in a command depend on it.
        let cwd = program.cwd.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        let environment = program.environment();
        let is_stable = |name: &OsStr| !CHANGING_NAMES.iter().any(|changing| name == *changing);
        let environment = environment.iter().filter(|(name, _)| is_stable(name));
        let mut server = Context::new(&SHA256);
        // Each list begins with its length, so that parts of one list cannot be taken for parts of the next.
        let lists: [Vec<&[u8]>; 5] = [
            program.command.iter().map(|part| part.as_encoded_bytes()).collect(),
            vec![cwd.as_os_str().as_encoded_bytes()],
            environment
                .flat_map(|(name, value)| [name.as_encoded_bytes(), value.as_encoded_bytes()])
                .collect(),
            scope.iter().map(String::as_bytes).collect(),
            principal.iter().map(String::as_bytes).collect(),
        ];
        for list in lists {
            server.update(&(list.len() as u64).to_le_bytes());
            list.into_iter().for_each(|part| add(&mut server, part));
        }
        Some(Self { folder, server, has_one_principal: principal.is_some() })
    }

    /// Whether all stored answers are for one principal.
    pub(crate) fn has_one_principal(&self) -> bool {
        self.has_one_principal
    }

    /// Returns the file for a client that sends this `initialize`; `None` if the message is ambiguous, so that two
    /// servers could read it differently.
    pub(crate) fn file_of(&self, initialize: &[u8]) -> Option<PathBuf> {
        let params = exact_params(initialize)?;
        // The name is a digest, because arguments and variables may contain secrets.
        let mut whole = self.server.clone();
        add(&mut whole, params.to_string().as_bytes());
        let name = to_hex(whole.finish().as_ref());
        Some(self.folder.join(format!("{name}.json")))
    }
}

/// Adds a part, preceded by its length, to a digest.
fn add(context: &mut Context, part: &[u8]) {
    context.update(&(part.len() as u64).to_le_bytes());
    context.update(part);
}

/// Reads the answers in a file; returns `None` if the file does not exist, or other users could have written it.
pub(crate) fn read(path: &Path) -> Option<StartAnswers> {
    let mut options = OpenOptions::new();
    // Do not follow symbolic links, and check the open file: the path could lead to another file after the check.
    let file = files::without_link(options.read(true)).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    // The client takes the content for the server's own answer, so another user must not have written it.
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

/// Writes the answers of a start, in place of those of the last start.
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
    // Write a new file and rename it, so that a reader sees the complete old file or the complete new one.
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
    order::sort(&mut files);
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

    fn program(folder: &Path, command: &[&str]) -> Program {
        let command = command.iter().map(OsString::from).collect();
        let starts = KeptStarts { folder: folder.to_owned(), ..KeptStarts::default() };
        Program { command, starts: Some(starts), ..Program::default() }
    }

    fn file(program: &Program, params: &str) -> Option<PathBuf> {
        let text = format!(r#"{{"id":1,"method":"initialize","params":{params}}}"#);
        StartStore::of(program).unwrap().file_of(text.as_bytes())
    }

    fn path(folder: &Path, command: &[&str]) -> PathBuf {
        file(&program(folder, command), "{}").unwrap()
    }

    #[test]
    fn the_answers_belong_to_a_command_and_a_client() {
        let folder = tempfile::tempdir().unwrap();
        let of = |command: &[&str], params: &str| {
            file(&program(folder.path(), command), params).unwrap()
        };
        let known = of(&["a", "b"], r#"{"protocolVersion":"1","_meta":{"traceparent":"1"}}"#);
        assert_eq!(known, of(&["a", "b"], r#"{"protocolVersion":"1"}"#));
        assert_ne!(known, of(&["a", "c"], r#"{"protocolVersion":"1"}"#));
        assert_ne!(known, of(&["a b"], r#"{"protocolVersion":"1"}"#));
        assert_ne!(known, of(&["a", "b"], r#"{"protocolVersion":"2"}"#));
        assert_ne!(known, of(&["a", "b"], r#"{"protocolVersion":"1","_meta":{"user":"ada"}}"#));
        for twice in [r#"{"a":1,"a":2}"#, r#"{"_meta":{},"_meta":{"user":"ada"}}"#] {
            assert_eq!(file(&program(folder.path(), &["a"]), twice), None);
        }
    }

    #[test]
    fn the_answers_belong_to_an_environment_a_route_and_a_principal() {
        let folder = tempfile::tempdir().unwrap();
        let plain = || program(folder.path(), &["a"]);
        let of = |program: &Program| file(program, "{}").unwrap();
        let with_env = |name: &str, value: &str| {
            of(&Program { env: vec![(name.into(), value.into())], ..plain() })
        };
        let starts = |change: &dyn Fn(&mut KeptStarts)| {
            let mut other = plain();
            other.starts.as_mut().map(change);
            of(&other)
        };
        let inherited = std::env::vars_os().find(|(name, _)| name == "PATH").unwrap();
        let without_path = Program { left_out: [inherited.0].into(), ..plain() };
        let mut all = vec![
            of(&plain()),
            of(&without_path),
            with_env("TOKEN", "a"),
            with_env("TOKEN", "b"),
            with_env("TOKENa", ""),
            of(&Program { cwd: Some("/".into()), ..plain() }),
            starts(&|it| it.scope = vec!["/a".into()]),
            starts(&|it| it.scope = vec!["/a".into(), "preset".into()]),
            starts(&|it| it.principal = Some("/a".into())),
            starts(&|it| it.principal = Some("header:ada".into())),
        ];
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(with_env("SHLVL", "7"), of(&plain()));
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_nobody_else_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder.path().join("starts"), &["a"]);
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
            let path = path(folder.path(), &[&number.to_string()]);
            write(&path, &StartAnswers::default()).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), FILES_MAX);
    }
}
