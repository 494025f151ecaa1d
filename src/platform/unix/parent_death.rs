//! Ends all servers when this process is killed, by a parent-death signal for each server and a watchdog process. Only
//! on Linux; on other systems servers see only the end of their input.
//!
//! A killed process cannot end its children. So this program itself starts each server
//! ([`start_server`]): it asks the system for a signal at the death of its parent, and then executes
//! the server. The watchdog ([`watch_parent`]), one small process that notices the end of a pipe, ends
//! the processes that the servers started.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use nix::sys::prctl;
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::signal::{Signal, kill},
    unistd::{Pid, close, getpid, getppid},
};

use super::descriptors::{limit_of_servers, lower};
use super::process_tree::{allow_detour, origins_of};
use crate::platform::child::Program;

/// The path of this program, even if its file has been replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The first argument that makes this program start a server.
const START_SERVER: &str = "--start-server";

/// The first argument that makes this program the watchdog.
const WATCH_PARENT: &str = "--watch-parent";

/// The word in place of a limit, for servers that keep the descriptor limit of this process.
const SAME_LIMIT: &str = "same";

/// The exit code of a program that was not found, as shells have it.
const NOT_FOUND: u8 = 127;

/// The exit code of a program that could not be executed, as shells have it.
const NOT_EXECUTABLE: u8 = 126;

/// Deadline from SIGTERM to SIGKILL, for processes of servers whose Milepost was killed.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);

/// Deadline for SIGKILL to have effect.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// The interval at which processes that must end are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs a hidden part of this program (starter, watchdog) if the arguments name one; `None` for an ordinary start.
///
/// Must be called first in `main`. Only a program that calls this function can start its servers through itself.
pub fn run_hidden() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let part = args.next();
    if part.as_deref() == Some(OsStr::new(START_SERVER)) {
        let (parent, report) = (number(args.next())?, number(args.next())?);
        let soft = args.next()?;
        return Some(start_server((parent, report), &soft, &args.next()?, args));
    }
    if part.as_deref() == Some(OsStr::new(WATCH_PARENT)) {
        return Some(watch_parent(number(args.next())?));
    }
    allow_detour();
    None
}

fn number(arg: Option<OsString>) -> Option<i32> {
    arg?.to_str()?.parse().ok()
}

/// Becomes the server. Writes an error to the descriptor `report` of the parent. `soft` is the soft limit of
/// descriptors for the server, or [`SAME_LIMIT`].
fn start_server(
    (parent, report): (i32, i32),
    soft: &OsStr,
    program: &OsStr,
    args: impl Iterator<Item = OsString>,
) -> ExitCode {
    // The reopened descriptor is closed automatically when the server is executed.
    let reopened = File::options().write(true).open(format!("/proc/self/fd/{report}"));
    let _ = close(report);
    #[cfg(target_os = "linux")]
    let _ = prctl::set_pdeathsig(Signal::SIGTERM);
    // The parent may have died before its death signal was requested.
    if getppid() != Pid::from_raw(parent) {
        return ExitCode::FAILURE;
    }
    if let Some(soft) = soft.to_str().and_then(|soft| soft.parse().ok()) {
        lower(soft);
    }
    let error = Command::new(program).args(args).exec();
    let code = error.raw_os_error().unwrap_or(0).to_le_bytes();
    let reported = reopened.and_then(|mut pipe| pipe.write_all(&code));
    if reported.is_err() {
        // The system may hide this process's directory in /proc. The parent reads standard error too, so write there.
        eprintln!("{}: {error}", program.display());
    }
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Waits until the process `parent` is dead, which ends the standard input. Then ends all processes whose mark names
/// `parent`.
fn watch_parent(parent: i32) -> ExitCode {
    wait_for_end(io::stdin());
    let left = |signal| {
        let marked = marked_by(parent);
        for pid in &marked {
            let _ = kill(*pid, signal);
        }
        !marked.is_empty()
    };
    let wait = |patience, signal| {
        let end = Instant::now() + patience;
        while left(signal) && Instant::now() < end {
            thread::sleep(LOOK_EVERY);
        }
    };
    if left(Some(Signal::SIGTERM)) {
        wait(ORPHAN_GRACE, None);
        wait(KILL_PATIENCE, Some(Signal::SIGKILL));
    }
    ExitCode::SUCCESS
}

/// Waits for the end of a pipe. An interrupting signal is not the end.
fn wait_for_end(mut pipe: impl Read) {
    let is_interrupted = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
    while match pipe.read(&mut [0; 16]) {
        Ok(bytes) => bytes > 0,
        Err(error) => is_interrupted(&error),
    } {}
}

/// Returns the living processes that descend from a server of the process `parent`.
fn marked_by(parent: i32) -> Vec<Pid> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw)
        .filter(|pid| {
            *pid != getpid() && origins_of(*pid).iter().any(|(owner, _)| *owner == parent)
        })
        .collect()
}

/// Whether this program can start servers through itself.
pub(super) fn is_startable() -> bool {
    cfg!(target_os = "linux") && Path::new(THIS_PROGRAM).exists()
}

/// The thread that starts servers through this program, and the watchdog.
#[derive(Debug)]
pub(super) struct Starter {
    // The system sends the parent-death signal when the *thread* that started the process ends. So one thread starts
    // all servers, and lives as long as this process.
    commands: mpsc::Sender<(Command, mpsc::Sender<io::Result<Child>>)>,
    /// The watchdog, and the pipe that closes when this process ends.
    watchdog: Option<(Child, ChildStdin)>,
}

impl Starter {
    /// Starts the thread and the watchdog. Returns `None` if this program cannot start servers through itself.
    pub(super) fn new() -> Option<Self> {
        if !is_startable() {
            return None;
        }
        let (commands, waiting) = mpsc::channel::<(Command, mpsc::Sender<_>)>();
        let start = move || {
            for (mut command, started) in waiting {
                let _ = started.send(command.spawn());
            }
        };
        thread::Builder::new().name("starter".to_owned()).spawn(start).ok()?;
        let watchdog = watchdog().inspect_err(|error| {
            tracing::warn!(%error, "without a watchdog, processes of servers stay if Milepost is killed");
        });
        Some(Self { commands, watchdog: watchdog.ok() })
    }

    /// Returns the process id of the watchdog.
    pub(super) fn watchdog(&self) -> Option<Pid> {
        self.watchdog.as_ref().map(|(child, _)| Pid::from_raw(child.id().cast_signed()))
    }

    /// Starts a server and waits until the system executes its program. `prepare` sets the streams, the directory and
    /// the environment. No other process may be started meanwhile.
    ///
    /// # Errors
    /// If the program does not exist or the system refuses, as in a direct start.
    pub(super) fn spawn(
        &self,
        program: &Program,
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<Child> {
        let (mut report, write) = io::pipe()?;
        fcntl(&write, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let mut command = Command::new(THIS_PROGRAM);
        command.arg(START_SERVER).arg(getpid().to_string()).arg(write.as_raw_fd().to_string());
        command
            .arg(limit_of_servers().map_or_else(|| SAME_LIMIT.to_owned(), |soft| soft.to_string()));
        command.arg(program.name()).args(program.args());
        prepare(&mut command);
        let (started, result) = mpsc::channel();
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.commands.send((command, started)).map_err(|_| gone())?;
        let mut child = result.recv().map_err(|_| gone())??;
        // Close this end, so that the pipe ends when executing the server closes the other writing end.
        drop(write);
        let mut error = Vec::new();
        report.read_to_end(&mut error)?;
        match <[u8; 4]>::try_from(&*error) {
            Ok(code) => {
                let _ = child.wait();
                Err(io::Error::from_raw_os_error(i32::from_le_bytes(code)))
            }
            Err(_) => Ok(child),
        }
    }
}

/// Starts the watchdog: a process without Milepost's environment, directory and group.
fn watchdog() -> io::Result<(Child, ChildStdin)> {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg(WATCH_PARENT).arg(getpid().to_string()).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok((child, pipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe that returns one of these results for each read, and then ends.
    struct Pipe(Vec<io::Result<usize>>);

    impl Read for Pipe {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            self.0.pop().unwrap_or(Ok(0))
        }
    }

    #[test]
    fn a_signal_is_no_end_of_the_pipe() {
        let mut pipe = Pipe(vec![Ok(0), Err(io::ErrorKind::Interrupted.into()), Ok(3)]);
        wait_for_end(&mut pipe);
        assert!(pipe.0.is_empty(), "{:?}", pipe.0);
        let mut broken = Pipe(vec![Ok(0), Err(io::ErrorKind::BrokenPipe.into())]);
        wait_for_end(&mut broken);
        assert_eq!(broken.0.len(), 1);
    }
}
