//! A server as a child process on Unix. It has its own process group, which is signalled as a whole, and is ended with
//! all its descendants.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io, mem,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{self, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use nix::{errno::Errno, sys::signal::killpg, unistd::Pid};
use tokio::{
    process::{ChildStderr, ChildStdin, ChildStdout},
    signal::unix::{self, SignalKind},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::descriptors;
use super::process_tree::{self, ProcessEntry, ProcessTree};
use super::shared_scan::SharedScan;
use crate::platform::child::{ChildPipes, Exit, Grace, LOST, Program, StartFault, Stderr};

pub use super::descriptors::{check_reserve, descriptor_limit, is_of_this_machine, is_reserved};
pub use super::parent_death::run_hidden;
pub use super::process_tree::adopt_orphans;
pub use nix::sys::signal::Signal;

/// Deadline for the descendants of a dead server to end after SIGTERM. It is short because no client needs their work,
/// and the client waits for the proxy.
const SWEEP_TERM: Duration = Duration::from_secs(1);

/// Deadline for SIGKILL to have effect. The kernel can delay it (an unreachable disk); then the proxy gives up.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// The interval of scans for descendants that still run, because no signal reports their end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running server and its process group. Dropping it kills the group. [`shut_down`](Self::shut_down) ends the server
/// properly, together with processes that have left the group.
///
/// # Which pids may be signalled
///
/// The system cannot reuse a number as a pid or group id while any process, even a zombie, has it as its pid or its
/// group. So the leader of the group is not reaped when it ends: `wait` learns its exit code without reaping, and the
/// zombie reserves the number of the group until `sweep` has emptied the group. Only then is the leader reaped; from
/// then on `leader` is `None`, and no signal is ever sent to the number again. Outside the group only adopted orphans
/// are signalled. Before each signal, the orphan's parent and start time are checked again, under a lock that every
/// reaper must hold: a process that has not been reaped keeps its pid, and only this process can reap it.
#[derive(Debug)]
pub struct ChildProcess {
    /// The server itself, which leads the group; `None` after it has been reaped.
    leader: Option<process::Child>,
    /// The leader's pid, which is also the number of its group.
    pid: Pid,
    tree: ProcessTree,
    exit: Option<Exit>,
    /// Wakes the waiting task when any child of this process ends.
    ended: unix::Signal,
    /// Whether a child may have ended since the last check.
    may_have_ended: bool,
}

/// Raises the soft limit of descriptors of this process to the hard limit. Servers that start later still get the old
/// soft limit, because a program that uses `select` fails with descriptors above 1023.
///
/// Only a starter that becomes the server can restore the limit. Without a starter (everywhere except on Linux) nothing
/// is raised. Must be called after [`adopt_orphans`].
///
/// # Errors
/// If the system refuses.
pub fn raise_descriptor_limit() -> io::Result<()> {
    if process_tree::has_detour() { Ok(descriptors::raise()?) } else { Ok(()) }
}

/// Starts a server and waits until the system executes its program.
pub(in crate::platform) fn start(
    program: &Program,
    stderr: Stderr,
) -> io::Result<(ChildProcess, ChildPipes)> {
    check_reserve()?;
    let ended = listen()?;
    let prepare = |command: &mut Command| {
        for name in &program.left_out {
            command.env_remove(name);
        }
        command
            .envs(program.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        if stderr == Stderr::Piped {
            command.stderr(Stdio::piped());
        }
        if let Some(folder) = &program.cwd {
            command.current_dir(folder);
        }
    };
    let (mut leader, tree) = process_tree::spawn(program, prepare)?;
    let (stdin, stdout, stderr) = (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
    let pid = Pid::from_raw(leader.id().cast_signed());
    // From here on, an error drops `child`, which ends the server.
    let child =
        ChildProcess { leader: Some(leader), pid, tree, exit: None, ended, may_have_ended: true };
    let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
    let pipes = ChildPipes {
        stdin: ChildStdin::from_std(stdin.ok_or_else(missing)?)?,
        stdout: ChildStdout::from_std(stdout.ok_or_else(missing)?)?,
        stderr: stderr.map(ChildStderr::from_std).transpose()?,
    };
    Ok((child, pipes))
}

/// Ensures that this process notices the end of its children, whatever signal settings it has inherited. If SIGCHLD
/// were ignored, the system would reap the children and lose their exit codes; if it were blocked, this process would
/// wait for ever. The threads of a runtime live as long as the runtime, except for blocking threads; because of these,
/// [`adopt_orphans`] unblocks the signal on the main thread.
fn listen() -> io::Result<unix::Signal> {
    let ended = unix::signal(SignalKind::child())?;
    process_tree::watch_exits()?;
    Ok(ended)
}

impl ChildProcess {
    /// Returns the process id of the server, which is also that of its group.
    pub fn id(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Waits until the server itself ends, but not for processes that it started. Cancel-safe; may be called again,
    /// even after the end.
    ///
    /// The dead server stays a zombie until [`sweep`](Self::sweep), which must be called afterwards.
    pub async fn wait(&mut self) -> Exit {
        loop {
            // Check only after a signal: checking costs a system call, and the system reports each end of a child.
            if mem::take(&mut self.may_have_ended) || self.exit.is_some() {
                if let Some(exit) = self.poll_exit() {
                    return exit;
                }
                process_tree::reap_adopted();
            }
            let signalled = self.ended.recv().await.is_some();
            self.may_have_ended = true;
            if !signalled {
                sleep(LOOK_EVERY).await;
            }
        }
    }

    /// Sends `signal` to the server's whole group. Does nothing after the group has ended.
    pub fn signal(&self, signal: Signal) {
        if self.leader.is_some() {
            // Ignore the error: the group has no processes left, or none that this user may signal.
            let _ = killpg(self.pid, signal);
        }
    }

    /// Records the present descendants of the server, so that they are recognised as orphans later, even without the
    /// variable in their environment. If several servers run, call this before closing the standard input of one of
    /// them, because that server may end immediately. A single server cannot be confused with another.
    pub async fn note_descendants(&mut self) {
        if let Some(seen) = PROCESSES.scan().await {
            self.tree.note(&seen);
        }
    }

    /// Ends a server whose standard input the caller has closed. Waits `grace.exit` for it to end by itself, then sends
    /// SIGTERM and waits `grace.term`, then sends SIGKILL; finally [sweeps](Self::sweep).
    ///
    /// Takes at most both times of `grace` and 5 s. Cancel-safe; may be called again.
    pub async fn shut_down(&mut self, grace: Grace) -> Exit {
        self.note_descendants().await;
        if timeout(grace.exit, self.wait()).await.is_err() {
            self.note_descendants().await;
            self.signal(Signal::SIGTERM);
            if timeout(grace.term, self.wait()).await.is_err() {
                self.note_descendants().await;
                self.signal(Signal::SIGKILL);
                let _ = timeout(KILL_PATIENCE, self.wait()).await;
            }
        }
        self.sweep().await;
        self.exit.unwrap_or(Exit::Signal(Signal::SIGKILL as i32))
    }

    /// Ends the remaining descendants after the server's end: sends SIGTERM to its group and to the adopted orphans,
    /// waits for a second, and sends SIGKILL. Finally reaps the server.
    ///
    /// Reads the process table only once if no descendant is left; takes at most 3 s. A server that still runs is ended
    /// in the same way. Cancel-safe; may be called again.
    pub async fn sweep(&mut self) {
        self.tree.claim();
        if !self.clear(Signal::SIGTERM, SWEEP_TERM).await
            && !self.clear(Signal::SIGKILL, KILL_PATIENCE).await
        {
            tracing::warn!(server = self.id(), "a process that the server started cannot be ended");
        }
        // A process that was forked during the last scan is still in the group, whose number is reserved until the
        // leader is reaped.
        self.signal(Signal::SIGKILL);
        self.poll_exit();
        self.reap();
    }

    /// Sends `signal` once to each remaining process, including new ones, until none remains (returns `true`) or
    /// `patience` is over.
    async fn clear(&self, signal: Signal, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut signalled = BTreeSet::new();
        let mut group_told = false;
        loop {
            let reaped = process_tree::reaped();
            let Some(seen) = PROCESSES.scan().await else {
                self.signal(signal);
                sleep_until(deadline).await;
                return false;
            };
            let group = self.leader.is_some().then_some(self.pid);
            let left = self.tree.terminate(&seen, group, signal, &mut signalled);
            if left == 0 && process_tree::reaped() == reaped {
                return true;
            }
            if !group_told {
                self.signal(signal);
                group_told = true;
            }
            if Instant::now() >= deadline {
                return left == 0;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the leader's exit, if it has ended.
    fn poll_exit(&mut self) -> Option<Exit> {
        if self.exit.is_none() {
            match process_tree::ended(Some(self.pid)) {
                Ok(ended) => self.exit = ended.map(|(_, exit)| exit),
                // The exit cannot be read without reaping, so reap the leader, and give up its group.
                Err(_) => self.reap(),
            }
        }
        self.exit
    }

    /// Reaps the leader if it has ended. From then on the system may reuse its pid.
    fn reap(&mut self) {
        let Some(leader) = &mut self.leader else { return };
        let status = process_tree::reap(leader);
        if matches!(status, Ok(None)) {
            return;
        }
        self.leader = None;
        let exit = status.ok().flatten().map_or(LOST, Exit::from);
        self.exit.get_or_insert(exit);
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        self.reap();
        let Some(leader) = self.leader.take() else { return };
        // The killed process ends soon, but rarely before the first check.
        Dropped::add(leader);
    }
}

/// Dropped servers that a single thread still has to reap.
struct Dropped {
    leaders: Vec<process::Child>,
    /// Whether the thread runs.
    busy: bool,
}

static DROPPED: Mutex<Dropped> = Mutex::new(Dropped { leaders: Vec::new(), busy: false });

impl Dropped {
    fn lock() -> MutexGuard<'static, Self> {
        DROPPED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(leader: process::Child) {
        let mut dropped = Self::lock();
        dropped.leaders.push(leader);
        if !dropped.busy {
            let reaper = thread::Builder::new().name("reaper".into());
            dropped.busy = reaper.spawn(Self::reap).is_ok();
            if !dropped.busy {
                tracing::warn!("no thread to reap a server that was dropped: it stays a zombie");
            }
        }
    }

    fn reap() {
        loop {
            let mut dropped = Self::lock();
            dropped.leaders.retain_mut(|leader| matches!(process_tree::reap(leader), Ok(None)));
            dropped.busy = !dropped.leaders.is_empty();
            if !dropped.busy {
                return;
            }
            drop(dropped);
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// The process table; `None` if it cannot be read.
static PROCESSES: SharedScan<Vec<ProcessEntry>> = SharedScan::new(process_tree::read_process_table);

/// Whether servers need this variable of the environment in addition to those that they always get: none on Unix.
pub fn is_needed_variable(_: &str) -> bool {
    false
}

/// Returns the command that runs a line in the system's shell.
pub fn shell(line: &str) -> Vec<OsString> {
    ["sh", "-c", line].map(OsString::from).into()
}

/// Returns the signal that has ended a process.
pub(in crate::platform) fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// Returns the name of a signal, such as `SIGKILL`.
pub(in crate::platform) fn signal_name(number: i32) -> Option<&'static str> {
    Signal::try_from(number).ok().map(Signal::as_str)
}

/// Returns the reason why a program does not start.
pub(in crate::platform) fn fault(error: &io::Error) -> StartFault {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => StartFault::Missing,
        Some(Errno::ENOTDIR) => StartFault::NoFolder,
        Some(Errno::EACCES) => StartFault::Closed,
        Some(Errno::ENOEXEC) => StartFault::NotAProgram,
        _ => StartFault::Other,
    }
}
