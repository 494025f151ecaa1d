//! Named pipes in place of local sockets, and options of connections.
//!
//! A file in the directory of sockets, which is in the user's profile, announces a pipe of the same name. Other users
//! can neither create such a file nor write to the pipe, because of the default access list of pipes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::net::windows::named_pipe::{
    ClientOptions, NamedPipeClient, NamedPipeServer, ServerOptions,
};
use tokio::time::sleep;

/// The prefix of the paths of pipes.
const PIPES: &str = r"\\.\pipe\";

/// `ERROR_PIPE_BUSY`: all instances of the pipe have a client.
const BUSY: i32 = 231;

/// The pause before the next attempt to open a busy pipe.
const PAUSE: Duration = Duration::from_millis(10);

/// A connection between two processes of this machine.
pub type LocalConnection = NamedPipeServer;

/// The side that connects to a [`SocketListener`].
pub type LocalClient = NamedPipeClient;

/// A named pipe, and the file that announces it.
#[derive(Debug)]
pub struct SocketListener {
    name: OsString,
    /// The instance for the next client.
    next: Mutex<Arc<NamedPipeServer>>,
}

/// Returns the name of the pipe that a file announces, without [`PIPES`].
fn name_of(path: &Path) -> OsString {
    let mut name = OsString::from("milepost-");
    name.push(path.file_stem().unwrap_or_default());
    name
}

/// Returns the path of the pipe that a file announces.
fn pipe_of(path: &Path) -> OsString {
    let mut pipe = OsString::from(PIPES);
    pipe.push(name_of(path));
    pipe
}

impl SocketListener {
    /// Creates a pipe to which no other user can write, and its file.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let name = pipe_of(path);
        let first = ServerOptions::new().first_pipe_instance(true).create(&name)?;
        File::create_new(path)?;
        Ok(Self { name, next: Mutex::new(Arc::new(first)) })
    }

    /// Returns the next connection. Cancel-safe.
    ///
    /// # Errors
    /// If the system cannot accept a connection.
    pub async fn accept(&self) -> io::Result<Option<LocalConnection>> {
        let taken = Arc::clone(&self.next.lock().unwrap_or_else(PoisonError::into_inner));
        taken.connect().await?;
        // Create the next instance before returning this one, so that a client that connects in between finds a pipe.
        let next = ServerOptions::new().create(&self.name)?;
        let mut place = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(next);
        Ok(Arc::into_inner(taken))
    }
}

/// Connects to the process of a pipe.
///
/// # Errors
/// If the process has ended ([`is_refusal`]) or belongs to another user.
pub async fn connect(path: &Path) -> io::Result<LocalClient> {
    let pipe = pipe_of(path);
    loop {
        match ClientOptions::new().open(&pipe) {
            Err(error) if error.raw_os_error() == Some(BUSY) => sleep(PAUSE).await,
            opened => return opened,
        }
    }
}

/// Whether an error of [`connect`] means that the process of the pipe has ended.
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Whether an entry of a folder may be the file of a pipe.
pub fn is_socket(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file())
}

/// Whether the pipe of a file no longer exists. Searches the list of pipes, because opening the pipe would use up an
/// instance that a client needs.
pub fn is_stale(path: &Path, _: Option<i32>) -> bool {
    let name = name_of(path);
    let Ok(pipes) = fs::read_dir(PIPES) else { return false };
    let mut names = pipes.flatten().map(|pipe| pipe.file_name());
    !names.any(|other| OsStr::eq_ignore_ascii_case(&other, &name))
}

/// Creates the directory for the files of pipes.
///
/// # Errors
/// If the system refuses.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// Does nothing: Windows has no such limits.
pub fn limit_waiting(_: &TcpStream) {}

/// Does nothing: Windows itself decides when it acknowledges.
pub fn acknowledge(_: &TcpStream) {}
