//! A server as a child process: started in a process group of its own, waited for, and ended with
//! all its descendants.
//!
//! Only this module, `descriptors`, `parent_death` and `process_tree` have code for one platform.

mod descriptors;
mod error;
mod exit;
mod parent_death;
mod process_tree;
mod program;
mod shared_scan;

use std::{
    collections::BTreeSet,
    io, mem,
    os::unix::process::CommandExt,
    process::{self, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

pub use crate::transport::child::descriptors::descriptor_limit;
pub use crate::transport::child::parent_death::run_hidden;
pub use crate::transport::child::process_tree::adopt_orphans;
use crate::transport::child::process_tree::{ProcessEntry, ProcessTree};
pub use error::SpawnError;
pub use exit::Exit;
use exit::LOST;
pub use nix::sys::signal::Signal;
use nix::{sys::signal::killpg, unistd::Pid};
pub use program::{Program, start_folder};
use shared_scan::SharedScan;
use tokio::{
    process::{ChildStderr, ChildStdin, ChildStdout},
    signal::unix::{self, SignalKind},
    time::{Instant, sleep, sleep_until, timeout},
};

/// The time that a server has to end by itself after its standard input was closed. Servers that
/// flush a store or end a browser need seconds; a user at a prompt waits no longer.
pub const EXIT_GRACE: Duration = Duration::from_secs(5);

/// The time that a server has to end after SIGTERM. The handler of the signal may have to do all the work
/// that the closed input did not cause.
pub const TERM_GRACE: Duration = Duration::from_secs(5);

/// The time that descendants of a dead server have to end after SIGTERM. The time is short because
/// no client needs their work, and the client waits for the proxy.
const SWEEP_TERM: Duration = Duration::from_secs(1);

/// The time that SIGKILL may take. The kernel can delay the signal (a dead network disk); the proxy then
/// gives up and does not hang.
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

/// The destination of a server's standard error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stderr {
    /// To Milepost's standard error.
    Inherit,
    /// To [`ChildPipes::stderr`], which then has to be read for as long as the server runs.
    Piped,
}

/// The server's standard streams. Those that it writes may stay open after its end, for as long as a
/// process that it started holds them, that is at most until [`ChildProcess::sweep`].
#[derive(Debug)]
pub struct ChildPipes {
    /// The server's standard input; dropping the handle ends the input.
    pub stdin: ChildStdin,
    /// The server's standard output.
    pub stdout: ChildStdout,
    /// The server's standard error; `None` if it goes to Milepost's standard error.
    pub stderr: Option<ChildStderr>,
}

/// The time a server is given to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grace {
    /// From the end of its input to SIGTERM.
    pub exit: Duration,
    /// From SIGTERM to SIGKILL.
    pub term: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self { exit: EXIT_GRACE, term: TERM_GRACE }
    }
}

/// Raises the soft limit of descriptors of this process to the hard one. Servers that start from now on keep the
/// soft limit of before: a program that uses `select` fails with descriptors above 1023.
///
/// Only a starter that becomes the server can restore the limit. So nothing is raised where servers start
/// without it, which is anywhere except on Linux. To be called after [`adopt_orphans`].
///
/// # Errors
/// If the system refuses.
pub fn raise_descriptor_limit() -> nix::Result<()> {
    if process_tree::has_detour() { descriptors::raise() } else { Ok(()) }
}

/// Starts a server in a group of its own.
///
/// To be called inside a tokio runtime with I/O enabled. Blocks for about a millisecond, until the
/// system has begun to execute the program.
///
/// # Errors
///
/// If there is no such program or folder, it cannot be executed, or the system refuses.
pub fn spawn(program: &Program, stderr: Stderr) -> Result<(ChildProcess, ChildPipes), SpawnError> {
    start(program, stderr).map_err(|source| SpawnError::new(program, source))
}

fn start(program: &Program, stderr: Stderr) -> io::Result<(ChildProcess, ChildPipes)> {
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
    // From here on an error drops, and so ends, the child.
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

/// Makes sure that this process notices the end of its children, whatever it has inherited from its
/// parent. If SIGCHLD were ignored, the system would reap the children and lose their exit codes;
/// if SIGCHLD were blocked, this process would wait for ever. The threads of a runtime live as long
/// as the runtime, except for blocking threads; for these, [`adopt_orphans`] makes the main thread
/// listen.
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
            // Looking costs a system call, and nothing ends without the system saying so.
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

    /// Sends `signal` to the server's whole group; does nothing once the group is gone.
    pub fn signal(&self, signal: Signal) {
        if self.leader.is_some() {
            // An error says that nobody is left to hear it, or nobody who would have to obey.
            let _ = killpg(self.pid, signal);
        }
    }

    /// Records the present descendants of the server, so that they are still recognised after they
    /// have become orphans, also without the variable in their environment. Where several servers
    /// run, call this before closing the standard input of one of them, because the server may end
    /// at once; a single server cannot be confused with another.
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

    /// Ends the remaining descendants after the server's end: SIGTERM to its group and to the
    /// adopted orphans, a second to end, SIGKILL; at last reaps the server.
    ///
    /// Costs one look at the process table if no descendant is left; takes at most 3 s. A server
    /// that still runs is ended like the rest. May be dropped and called again.
    pub async fn sweep(&mut self) {
        self.tree.claim();
        if !self.clear(Signal::SIGTERM, SWEEP_TERM).await
            && !self.clear(Signal::SIGKILL, KILL_PATIENCE).await
        {
            tracing::warn!(server = self.id(), "a process that the server started cannot be ended");
        }
        // For one that was being born while we looked: the number of the group is still ours.
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
                // One that cannot be looked at without reaping: its group is given up with it.
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
        // What is killed ends soon, but seldom as soon as this.
        Dropped::add(leader);
    }
}

/// Servers that were dropped and have still to be reaped, by one thread for all.
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
