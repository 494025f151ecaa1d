//! Local sockets through which the processes of one user find each other: a directory with one socket for each process.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::platform::sockets::{self, LocalClient, LocalConnection, SocketListener};
use crate::protocol::order;
use crate::transport::random::random_id;

/// The directory of the sockets below the user's runtime directory.
const BELOW_RUNTIME: &str = "milepost";

/// The directory of the sockets below the state directory.
const BELOW_STATE: &str = "run";

/// The extension of a socket's file name.
const ENDING: &str = "sock";

/// Limit of the sockets in a directory that are examined. Further sockets are left alone.
pub const SOCKETS_MAX: usize = 256;

/// Deadline for a process to accept a connection; after it the process counts as busy.
const BUSY: Duration = Duration::from_millis(500);

/// The pause after a failed accept, because the cause may last.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns the directory of the sockets: below `runtime` (the value of `XDG_RUNTIME_DIR`), else below the state
/// directory. `None` if there is neither.
pub fn folder(runtime: Option<OsString>, state: Option<&Path>) -> Option<PathBuf> {
    // The XDG specification requires that a relative path is ignored.
    let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
    let below = |path: PathBuf| path.join(BELOW_RUNTIME);
    runtime.map(below).or_else(|| Some(state?.join(BELOW_STATE)))
}

/// A socket of this process. Its file is removed on drop.
#[derive(Debug)]
pub struct LocalSocket {
    listener: SocketListener,
    path: PathBuf,
}

impl LocalSocket {
    /// Creates the directory if it is missing, and in it a socket of this process that only this user can use. Sockets
    /// of processes that have ended are removed.
    ///
    /// # Errors
    /// If the directory belongs to another user, or the socket cannot be made.
    pub fn bind(folder: &Path, kind: &str) -> io::Result<Self> {
        // The directory is made first: if it belonged to another user, that user could replace this socket.
        sockets::make_folder(folder)?;
        sweep(folder);
        // The random part distinguishes several sockets of one process.
        let random = random_id().ok_or(io::ErrorKind::Unsupported)?;
        let id = random.get(..8).unwrap_or_default();
        let path = folder.join(format!("{kind}-{}-{id}.{ENDING}", process::id()));
        let listener = SocketListener::bind(&path)?;
        Ok(Self { listener, path })
    }

    /// Returns the next connection from a process of this user. Connections of other users are closed. Cancel-safe.
    pub async fn accept(&self) -> LocalConnection {
        let mut is_told = false;
        loop {
            match self.listener.accept().await {
                Ok(Some(stream)) => return stream,
                Ok(None) => {}
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(%error, "the local socket cannot accept; trying on");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// The file of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the sockets in a directory, sorted by name; an empty list if the directory does not exist.
pub fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_socket = |entry: &fs::DirEntry| {
        entry.path().extension().is_some_and(|ending| ending == ENDING) && sockets::is_socket(entry)
    };
    let found = entries.filter_map(Result::ok).filter(is_socket);
    // Sorted, so that every call lists them in the same order.
    let mut paths: Vec<PathBuf> = found.map(|entry| entry.path()).take(SOCKETS_MAX).collect();
    order::sort(&mut paths);
    paths
}

/// Connects to the process of a socket, which must belong to this user. If the process has ended, the file of the
/// socket is removed.
///
/// # Errors
///
/// If the process has ended, accepts no connection in half a second, or belongs to another user.
pub async fn connect(path: &Path) -> io::Result<LocalClient> {
    match timeout(BUSY, sockets::connect(path)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => {
            // Only a refused connection proves that no process listens. After a timeout the process may be busy, so its
            // socket is kept.
            if sockets::is_refusal(&error) {
                let _ = fs::remove_file(path);
            }
            Err(error)
        }
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Removes the sockets of processes that have ended.
fn sweep(folder: &Path) {
    for path in list(folder) {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        // The name contains the pid, so that the socket of an ended process is recognised without connecting.
        let pid = name.split('-').nth(1).and_then(|pid| pid.parse().ok());
        if sockets::is_stale(&path, pid) {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_is_for_its_user_and_goes_with_its_process() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/run");
        let socket = LocalSocket::bind(&folder, "wrap").unwrap();
        assert_eq!((mode(&folder), mode(socket.path())), (0o700, 0o600));
        assert_eq!(list(&folder), [socket.path()]);
        let (accepted, connected) = tokio::join!(socket.accept(), connect(socket.path()));
        assert!(accepted.peer_cred().is_ok() && connected.is_ok());
        drop(socket);
        assert!(list(&folder).is_empty());
    }

    #[tokio::test]
    async fn what_dead_processes_left_is_removed_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let dead = folder.join("wrap-999999999-0.sock");
        let strange = folder.join("strange.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        drop(std::os::unix::net::UnixListener::bind(&strange).unwrap());
        fs::write(folder.join("notes.sock"), "").unwrap();
        let other = LocalSocket::bind(folder, "serve").unwrap();
        assert_eq!(list(folder), [other.path()]);
        assert!(folder.join("notes.sock").exists());
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        assert!(connect(&dead).await.is_err() && !dead.exists());
    }

    #[tokio::test]
    async fn a_folder_that_others_may_enter_is_closed_and_a_link_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        DirBuilder::new().mode(0o755).create(&folder).unwrap();
        let socket = LocalSocket::bind(&folder, "wrap").unwrap();
        assert_eq!(mode(&folder), 0o700);
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(LocalSocket::bind(&link, "wrap").is_err());
        assert!(LocalSocket::bind(&socket.path().join("x"), "wrap").is_err());
        let long = home.path().join("x".repeat(200));
        assert!(LocalSocket::bind(&long, "wrap").is_err());
    }

    #[test]
    fn the_folder_is_where_running_programs_have_theirs() {
        let home = tempfile::tempdir().unwrap();
        let of = |runtime: Option<&Path>, state: Option<&str>| {
            folder(runtime.map(Into::into), state.map(Path::new))
        };
        assert_eq!(of(Some(home.path()), Some("/s")), Some(home.path().join("milepost")));
        assert_eq!(of(Some(Path::new("/nowhere/at/all")), Some("/s")), Some("/s/run".into()));
        assert_eq!(of(Some(Path::new("relative")), None), None);
        assert_eq!(of(None, Some("/s")), Some("/s/run".into()));
    }
}
