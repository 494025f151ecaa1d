//! Sockets: local ones, and options of connections.

use std::fs::{self, DirBuilder, DirEntry, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
#[cfg(target_os = "linux")]
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// All permission bits of other users: the directory of sockets may have none of them.
const OF_OTHERS: u32 = 0o077;

/// Deadline for a client to acknowledge bytes, or to open a window that was too small for the next packet.
// Linux also counts a window that is not closed but stays smaller than a packet: with 30 s, clients that read slowly
// without a pause were cut off.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_mins(5);

/// Maximum number of bytes that wait in the kernel before they are sent. Messages that wait in Milepost instead can
/// still be replaced by newer progress.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 16 << 10;

/// A connection between two processes of this machine.
pub type LocalConnection = UnixStream;

/// The side that connects to a [`SocketListener`].
pub type LocalClient = UnixStream;

/// A socket file that accepts connections.
#[derive(Debug)]
pub struct SocketListener {
    socket: UnixListener,
}

impl SocketListener {
    /// Creates a socket that only this user can use.
    ///
    /// # Errors
    /// If the path is too long, or the system refuses.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        // On an error, remove the file: a socket that other users may use must not remain.
        if let Err(error) = fs::set_permissions(path, Permissions::from_mode(0o600)) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(Self { socket: listener })
    }

    /// Returns the next connection; `None` for one of another user's process, which is closed. Cancel-safe.
    ///
    /// # Errors
    /// If the system cannot accept a connection.
    pub async fn accept(&self) -> io::Result<Option<LocalConnection>> {
        let (stream, _) = self.socket.accept().await?;
        Ok(is_own(&stream).then_some(stream))
    }
}

/// Connects to the process that listens on a socket.
///
/// # Errors
/// If the process has ended ([`is_refusal`]) or belongs to another user.
pub async fn connect(path: &Path) -> io::Result<LocalClient> {
    let stream = UnixStream::connect(path).await?;
    if is_own(&stream) { Ok(stream) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Whether an error of [`connect`] means that the process of the socket has ended.
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Whether the other side of a connection is a process of this user or of the administrator.
fn is_own(stream: &UnixStream) -> bool {
    let own = geteuid().as_raw();
    stream.peer_cred().is_ok_and(|other| other.uid() == own || other.uid() == 0)
}

/// Whether an entry of a folder is a socket.
pub fn is_socket(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_socket())
}

/// Whether the process `pid` of a socket has ended. This is not certain: a process of another container may have the
/// same number. So a socket is only removed if it also refuses connections.
pub fn is_stale(path: &Path, pid: Option<i32>) -> bool {
    pid.is_none_or(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
        && std::os::unix::net::UnixStream::connect(path).is_err_and(|error| is_refusal(&error))
}

/// Creates the directory of sockets, for this user alone.
///
/// # Errors
/// If the directory is a symbolic link or belongs to another user, or the system refuses.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Do not follow a symbolic link: another user could have put one here.
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if metadata.mode() & OF_OTHERS != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Limits how long bytes may stay unacknowledged, and how many bytes wait in the kernel. Only some systems can.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "no such limits"))]
pub fn limit_waiting(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    {
        let socket = SockRef::from(stream);
        let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        let _ = socket.set_tcp_notsent_lowat(UNSENT);
    }
}

/// Acknowledges received bytes immediately, on systems where a program can request that.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "the system decides"))]
pub fn acknowledge(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(stream).set_tcp_quickack(true);
}
