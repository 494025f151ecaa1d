//! A server as a child process on Unix: it is in its own process group, which is signalled as a whole, and is ended
//! with all its descendants.

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

/// The time that descendants of a dead server have to end after SIGTERM. The time is short because
/// no client needs their work, and the client waits for the proxy.
const SWEEP_TERM: Duration = Duration::from_secs(1);

/// The time that SIGKILL may take. The kernel can delay the signal (an unreachable network disk); the proxy then gives
/// up instead of hanging.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// The interval of scans for descendants that still run: no signal reports their end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running server and its process group. Dropping it kills the group; to end a server in good
/// order, and also those that left the group, see [`shut_down`](Self::shut_down).
///
/// # Which pids may be signalled
///
/// The system cannot give a pid or a group id to another process while any process, even a zombie,
/// has this number as its pid or its group. So the leader of the group is not reaped when it ends:
/// `wait` learns its exit code without reaping, and the zombie reserves the number of the group
/// until `sweep` has emptied the group. Only then the leader is reaped; from then on `leader` is
/// `None`, and no signal is ever sent to the number again. Outside the group only adopted orphans
/// are signalled, each after a second look at parent and start time, under a lock that every reaper
/// has to hold: a process that has not been reaped keeps its pid, and only this process can reap it.
#[derive(Debug)]
pub struct ChildProcess {
    /// The leader; `None` after it has been reaped.
    leader: Option<process::Child>,
    /// The leader's pid and the number of its group.
    pid: Pid,
    tree: ProcessTree,
    exit: Option<Exit>,
    /// Wakes the waiter when any child of this process ends.
    ended: unix::Signal,
    /// Whether a child may have ended since the last look.
    may_have_ended: bool,
}

/// Raises the soft limit of descriptors of this process to the hard one. Servers that start from now on keep the
/// soft limit of before: a program that uses `select` fails with descriptors above 1023.
///
/// Only a starter that becomes the server can restore the limit. So nothing is raised where servers start
/// without it, which is anywhere except on Linux. To be called after [`adopt_orphans`].
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
    // From here on an error drops the child, which ends it.
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

/// Makes sure that this process notices the end of its children, whatever it has inherited from its parent. If SIGCHLD
/// were ignored, the system would reap the children and lose their exit codes; if SIGCHLD were blocked, this process
/// would wait for ever. The threads of a runtime live as long as the runtime, except for blocking threads; for these,
/// [`adopt_orphans`] unblocks the signal on the main thread.
fn listen() -> io::Result<unix::Signal> {
    let ended = unix::signal(SignalKind::child())?;
    process_tree::watch_exits()?;
    Ok(ended)
}

impl ChildProcess {
    /// The process id of the server, which is also that of its group.
    pub fn id(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Waits for the server itself to end, not for those that it started. May be dropped and
    /// called again at any time, also after the end.
    ///
    /// The dead server stays a zombie until [`sweep`](Self::sweep), which has to follow.
    pub async fn wait(&mut self) -> Exit {
        loop {
            // Checking costs a system call, and the system reports each end of a child with a signal.
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

    /// Sends `signal` to the server's whole group; does nothing after the group has ended.
    pub fn signal(&self, signal: Signal) {
        if self.leader.is_some() {
            // Ignore the error: no process of the group is left, or none that this user may signal.
            let _ = killpg(self.pid, signal);
        }
    }

    /// Records the present descendants of the server, so that they are recognised after they have become orphans, even
    /// without the variable in their environment. If several servers run, call this before closing the standard input
    /// of one of them, because the server may end at once; a single server cannot be confused with another.
    pub async fn note_descendants(&mut self) {
        if let Some(seen) = PROCESSES.scan().await {
            self.tree.note(&seen);
        }
    }

    /// Ends a server whose standard input the caller has closed: gives it `grace.exit` to end by
    /// itself, then SIGTERM and `grace.term`, then SIGKILL; then [sweeps](Self::sweep).
    ///
    /// Takes at most the two graces and 5 s. May be dropped and called again.
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

    /// Ends the remaining descendants after the server's end: SIGTERM to its group and to the adopted orphans, a second
    /// to end, SIGKILL; at last reaps the server.
    ///
    /// Reads the process table once if no descendant is left; takes at most 3 s. A server that still runs is ended like
    /// the rest. May be dropped and called again.
    pub async fn sweep(&mut self) {
        self.tree.claim();
        if !self.clear(Signal::SIGTERM, SWEEP_TERM).await
            && !self.clear(Signal::SIGKILL, KILL_PATIENCE).await
        {
            tracing::warn!(server = self.id(), "a process that the server started cannot be ended");
        }
        // A process that was forked during the last scan is still in the group, whose number is reserved.
        self.signal(Signal::SIGKILL);
        self.poll_exit();
        self.reap();
    }

    /// Sends `signal` once to each remaining process, also to new ones, until none remains (`true`)
    /// or `patience` is over.
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

    /// The leader's exit, if it has ended.
    fn poll_exit(&mut self) -> Option<Exit> {
        if self.exit.is_none() {
            match process_tree::ended(Some(self.pid)) {
                Ok(ended) => self.exit = ended.map(|(_, exit)| exit),
                // If a child's exit cannot be read without reaping it, the child is reaped, and its group is given up.
                Err(_) => self.reap(),
            }
        }
        self.exit
    }

    /// Reaps the leader if it has ended. From then on the system may give its pid to another
    /// process.
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
        // A killed process ends soon, but rarely before the first check.
        Dropped::add(leader);
    }
}

/// Servers that were dropped and still have to be reaped, by a single thread.
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

/// The process table, or `None` where it cannot be read.
static PROCESSES: SharedScan<Vec<ProcessEntry>> = SharedScan::new(process_tree::read_process_table);

/// Whether a server needs this environment variable in addition to those that it always gets: none on Unix.
pub fn is_needed_variable(_: &str) -> bool {
    false
}

/// The command that runs a line of the system's shell.
pub fn shell(line: &str) -> Vec<OsString> {
    ["sh", "-c", line].map(OsString::from).into()
}

/// The signal that has ended a process.
pub(in crate::platform) fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// The name of a signal, such as `SIGKILL`.
pub(in crate::platform) fn signal_name(number: i32) -> Option<&'static str> {
    Signal::try_from(number).ok().map(Signal::as_str)
}

/// The reason why a program does not start.
pub(in crate::platform) fn fault(error: &io::Error) -> StartFault {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => StartFault::Missing,
        Some(Errno::ENOTDIR) => StartFault::NoFolder,
        Some(Errno::EACCES) => StartFault::Closed,
        Some(Errno::ENOEXEC) => StartFault::NotAProgram,
        _ => StartFault::Other,
    }
}
