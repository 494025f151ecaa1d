//! A server as a child process on Windows. Its job object ends all its processes when it is closed, and the system
//! closes it at the end of this process.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, CommandWrapper, JobObject, KillOnDrop};
use tokio::process::Command;
use tokio::time::timeout;

use super::files;
use crate::platform::child::{ChildPipes, Exit, Grace, LOST, Program, StartFault, Stderr};

/// `CREATE_NO_WINDOW`: a server does not open a console window.
const NO_WINDOW: u32 = 0x0800_0000;

/// `CREATE_SUSPENDED`: a server does not run before it is in its job.
const SUSPENDED: u32 = 0x0000_0004;

/// `ERROR_BAD_EXE_FORMAT`: the file is not a program.
const NOT_A_PROGRAM: i32 = 193;

/// Deadline for the processes of a job to end.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Variables of the environment without which programs do not run on Windows.
const NEEDED_VARIABLES: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// The requests to end a server, with their names on Unix. Windows has only the last one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// A request to end properly.
    SIGTERM,
    /// A request of a person to end.
    SIGINT,
    /// The terminal was closed.
    SIGHUP,
    /// Immediate end.
    SIGKILL,
}

/// A running server and its job. Dropping it ends all processes of the job.
#[derive(Debug)]
pub struct ChildProcess {
    child: Box<dyn ChildWrapper>,
    id: u32,
    exit: Option<Exit>,
}

/// Sets the flags of the new process. Must be added after [`JobObject`], whose flags it replaces.
#[derive(Debug)]
struct WithoutWindow;

impl CommandWrapper for WithoutWindow {
    fn pre_spawn(&mut self, command: &mut Command, _: &CommandWrap) -> io::Result<()> {
        command.creation_flags(NO_WINDOW | SUSPENDED);
        Ok(())
    }
}

/// Starts a server in a separate job.
pub(in crate::platform) fn start(
    program: &Program,
    stderr: Stderr,
) -> io::Result<(ChildProcess, ChildPipes)> {
    let mut command = Command::new(place(program));
    command.args(program.args()).stdin(Stdio::piped()).stdout(Stdio::piped());
    // Remove variables before setting others, so that the route can set a variable that would otherwise be left out.
    for name in &program.left_out {
        command.env_remove(name);
    }
    command.envs(program.env.iter().map(|(name, value)| (name, value)));
    if stderr == Stderr::Piped {
        command.stderr(Stdio::piped());
    }
    if let Some(folder) = &program.cwd {
        command.current_dir(folder);
    }
    let mut command = CommandWrap::from(command);
    command.wrap(KillOnDrop).wrap(JobObject).wrap(WithoutWindow);
    let mut child = command.spawn()?;
    let (stdin, stdout, stderr) =
        (child.stdin().take(), child.stdout().take(), child.stderr().take());
    let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
    let pipes = ChildPipes {
        stdin: stdin.ok_or_else(missing)?,
        stdout: stdout.ok_or_else(missing)?,
        stderr,
    };
    let id = child.id().ok_or_else(missing)?;
    Ok((ChildProcess { child, id, exit: None }, pipes))
}

/// Returns the file of a program. The system itself would not find `npx.cmd` under the name `npx`, or a program in the
/// server's working directory.
fn place(program: &Program) -> PathBuf {
    let name = Path::new(program.name());
    let base = program.cwd.as_deref().unwrap_or_else(|| Path::new(""));
    let found = if files::is_path(program.name()) {
        files::program_at(base.join(name))
    } else {
        let own = program.env.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case("PATH"));
        let path = own.map(|(_, path)| path.clone()).or_else(|| env::var_os("PATH"));
        let path = path.unwrap_or_default();
        env::split_paths(&path).find_map(|folder| files::program_at(base.join(folder).join(name)))
    };
    found.unwrap_or_else(|| name.to_owned())
}

impl ChildProcess {
    /// Returns the process id of the server.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Waits until the server itself ends, but not for processes that it started. Cancel-safe; may be called again,
    /// even after the end.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = self.child.inner_mut().wait().await.map_or(LOST, Exit::from);
        *self.exit.insert(exit)
    }

    /// Ends the server and its descendants immediately if the signal is SIGKILL. Windows has no other signals.
    pub fn signal(&mut self, signal: Signal) {
        if signal == Signal::SIGKILL {
            // Ignore the error: the job has no processes left.
            let _ = self.child.start_kill();
        }
    }

    /// Records nothing: the job knows the descendants.
    pub fn note_descendants(&mut self) -> impl Future<Output = ()> + use<> {
        std::future::ready(())
    }

    /// Ends a server whose standard input the caller has closed. Waits both times of `grace` for it to end by itself,
    /// then ends its job. Cancel-safe; may be called again.
    pub async fn shut_down(&mut self, grace: Grace) -> Exit {
        // Windows has no signal between the end of the input and the end of the job, so both times are added.
        let _ = timeout(grace.exit + grace.term, self.wait()).await;
        self.sweep().await;
        self.exit.unwrap_or(LOST)
    }

    /// Ends the remaining processes of the job. Cancel-safe; may be called again.
    pub async fn sweep(&mut self) {
        self.signal(Signal::SIGKILL);
        if timeout(KILL_PATIENCE, self.wait()).await.is_err() {
            tracing::warn!(server = self.id, "a process that the server started cannot be ended");
        }
    }
}

/// Does nothing: a job includes orphans.
pub fn adopt_orphans() {}

/// Returns `None`: this program has no hidden parts on Windows.
pub fn run_hidden() -> Option<ExitCode> {
    None
}

/// Does nothing: Windows has no limit on open files.
///
/// # Errors
/// Never.
pub fn raise_descriptor_limit() -> io::Result<()> {
    Ok(())
}

/// Returns the limit of open descriptors of this process.
///
/// # Errors
/// Always: Windows has no limit.
pub fn descriptor_limit() -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether a descriptor is reserved for operators: Windows has no limit, so none is.
pub fn is_reserved<T>(_opened: &T) -> bool {
    false
}

/// Checks nothing: Windows has no limit of descriptors.
///
/// # Errors
/// Never.
pub fn check_reserve() -> io::Result<()> {
    Ok(())
}

/// Whether an error of the system is caused by this machine or process, not by the other side.
pub fn is_of_this_machine(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, NetworkDown, NetworkUnreachable, OutOfMemory};
    matches!(error.kind(), AddrNotAvailable | NetworkDown | NetworkUnreachable | OutOfMemory)
}

/// Whether a server needs this variable of the environment. The case of letters is ignored.
pub fn is_needed_variable(name: &str) -> bool {
    NEEDED_VARIABLES.iter().any(|needed| needed.eq_ignore_ascii_case(name))
}

/// Returns the command that runs a line in the system's shell.
pub fn shell(line: &str) -> Vec<OsString> {
    ["cmd", "/d", "/c", line].map(OsString::from).into()
}

/// Returns `None`: no signals end processes on Windows.
pub(in crate::platform) fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}

/// Returns `None`: signals have no numbers on Windows.
pub(in crate::platform) fn signal_name(_: i32) -> Option<&'static str> {
    None
}

/// Returns the reason why a program does not start.
pub(in crate::platform) fn fault(error: &io::Error) -> StartFault {
    match error.kind() {
        io::ErrorKind::NotFound => StartFault::Missing,
        io::ErrorKind::NotADirectory => StartFault::NoFolder,
        io::ErrorKind::PermissionDenied => StartFault::Closed,
        _ if error.raw_os_error() == Some(NOT_A_PROGRAM) => StartFault::NotAProgram,
        _ => StartFault::Other,
    }
}
