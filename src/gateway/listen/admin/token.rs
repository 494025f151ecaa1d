//! The token for operators if the route file has none, in a file that only this user can read.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::config::routes::Secret;
use crate::platform::files;
use crate::transport::random::random_id;

/// The name of the token's file in the state directory.
const FILE: &str = "admin-token";

/// Number of hexadecimal digits of a token: 128 random bits.
const DIGITS: usize = 32;

/// Limit of the attempts to read or create the file while another process creates it too. The first half of the
/// attempts waits for a token in an empty file, because on a busy machine its writer may be stopped for a long time.
const ATTEMPTS_MAX: usize = 200;

/// The pause between two attempts, which is longer than writing a token takes.
const PAUSE: Duration = Duration::from_millis(10);

/// A token that Milepost made, and its file.
#[derive(Debug)]
pub struct AdminToken {
    path: PathBuf,
    secret: Secret,
}

impl AdminToken {
    /// Returns the path of the token's file in a state directory.
    pub fn place(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// Returns the token of a state directory, made if there is none. Processes that share a directory share the token.
    /// A symbolic link, or a file that other users may read or have written, is replaced by a new file.
    ///
    /// # Errors
    /// If the directory or the file cannot be made, or the system has no random bytes.
    pub fn make(folder: &Path) -> io::Result<Self> {
        files::make_private_folder(folder)?;
        let path = Self::place(folder);
        for attempt in 1..=ATTEMPTS_MAX {
            match Self::open(&path, files::is_own) {
                Ok(token) => return Ok(token),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Another process may have created the file and not written it yet.
                Err(error)
                    if error.kind() == io::ErrorKind::InvalidData && attempt < ATTEMPTS_MAX / 2 =>
                {
                    thread::sleep(PAUSE);
                    continue;
                }
                // `remove_file` removes a link itself, not its target.
                Err(_) => fs::remove_file(&path)?,
            }
            let mut options = OpenOptions::new();
            files::private(options.write(true).create_new(true));
            match options.open(&path) {
                Ok(mut file) => {
                    let text = random_id().ok_or(io::ErrorKind::Unsupported)?;
                    file.write_all(format!("{text}\n").as_bytes())?;
                    return Ok(Self { path, secret: Secret::new(text) });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Reads the token that a running Milepost made. The administrator may read the tokens of all users.
    ///
    /// # Errors
    /// If the file does not contain a token, or this user may not read it.
    pub fn read(path: &Path) -> io::Result<Self> {
        if path.file_name().is_none_or(|name| name != FILE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Self::open(path, |file| files::is_administrator() || files::is_own(file))
    }

    /// Reads the file if this user may have written it, without following a link at its end or waiting for a pipe.
    fn open(path: &Path, is_own: impl FnOnce(&Metadata) -> bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = files::without_link(options.read(true)).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || !is_own(&metadata) || !files::is_private(&metadata) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "other users may read or write the file",
            ));
        }
        let mut text = String::new();
        file.take(DIGITS as u64 + 2).read_to_string(&mut text)?;
        let text = text.trim_end();
        if text.len() != DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file holds no token"));
        }
        Ok(Self { path: path.to_owned(), secret: Secret::new(text.to_owned()) })
    }

    /// The file of the token.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The token.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode()
    }

    #[test]
    fn a_token_is_made_once_for_all_processes_and_for_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("a/b");
        let makers: Vec<_> = (0..8)
            .map(|_| state.clone())
            .map(|state| thread::spawn(move || AdminToken::make(&state).unwrap()))
            .collect();
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
        let first = made[0].secret().reveal();
        assert_eq!(first.len(), DIGITS);
        assert!(made.iter().all(|token| token.secret().reveal() == first));
        let path = AdminToken::place(&state);
        assert_eq!(mode(&path), 0o100_600);
        assert_eq!(mode(&state), 0o40_700);
        assert_eq!(AdminToken::read(&path).unwrap().secret().reveal(), first);
        assert!(!format!("{:?}", made[0]).contains(first));
    }

    #[test]
    fn what_others_may_know_and_what_is_no_token_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = AdminToken::place(folder.path());
        let elsewhere = folder.path().join("elsewhere");
        let known = "0123456789abcdef0123456789abcdef";
        let write = |to: &Path, text: &str, mode| {
            fs::write(to, text).unwrap();
            fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
        };
        let expect_new = |what: &str| {
            assert!(AdminToken::read(&path).is_err(), "{what}");
            let token = AdminToken::make(folder.path()).unwrap();
            assert!(token.secret().reveal() != known && mode(&path) == 0o100_600, "{what}");
            fs::remove_file(&path).unwrap();
        };
        write(&path, known, 0o640);
        expect_new("readable by a group");
        write(&path, "", 0o600);
        expect_new("empty");
        write(&path, "the private key of somebody else...", 0o600);
        expect_new("another text");
        write(&elsewhere, known, 0o600);
        symlink(&elsewhere, &path).unwrap();
        expect_new("a link");
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), known);
        symlink(folder.path().join("nothing"), &path).unwrap();
        expect_new("a link to nothing");
        assert!(!folder.path().join("nothing").exists());
        // Only a file with the usual name is read, whatever another contains.
        assert!(AdminToken::read(&elsewhere).is_err());
    }

    #[test]
    fn where_no_file_can_be_made_there_is_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(AdminToken::make(&file).is_err());
        fs::create_dir(AdminToken::place(folder.path())).unwrap();
        assert!(AdminToken::make(folder.path()).is_err());
    }
}
