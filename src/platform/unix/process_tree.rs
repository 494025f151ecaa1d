//! The process tree of each server, read from the process table, and the adoption of orphans. All spawning and reaping
//! happens here, under one lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    fs, io,
    process::{Child, Command, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
};

#[cfg(target_os = "linux")]
use nix::sys::{
    prctl,
    wait::{Id, WaitStatus, waitid},
};
use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal, kill},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::{Pid, getpid},
};

use super::parent_death::{Starter, is_startable};
use crate::platform::child::{Exit, Program};

// Every server has a variable in its environment that identifies it. A daemon may leave its group, its session and its
// parent, but its inherited environment still names its server. So one of many servers can be ended with all its
// descendants, and without those of another.
/// The variable that identifies the server of a process. Processes inherit it, even after leaving their group, their
/// session and their parent. Its value has one word for each Milepost above the process, because one Milepost may run
/// below another: the process id of that Milepost and its number of the server.
const ORIGIN: &str = "MILEPOST_ORIGIN";

static REGISTRY: Mutex<ChildRegistry> = Mutex::new(ChildRegistry {
    adopting: false,
    may_detour: false,
    starter: None,
    leaders: BTreeMap::new(),
    numbers: BTreeSet::new(),
    next: 0,
    reaped: 0,
});

/// The known children of this process.
struct ChildRegistry {
    /// Whether this process adopts orphans. If so, every child except the leaders is an orphan.
    adopting: bool,
    /// Whether servers may be started through a second start of this program.
    may_detour: bool,
    /// Starts servers so that they end with this process. Made for the first server.
    starter: Option<Starter>,
    /// The servers that have been spawned and not reaped yet.
    leaders: BTreeMap<Pid, Leader>,
    /// The numbers of the leaders. A number is never reused.
    numbers: BTreeSet<u64>,
    next: u64,
    /// Number of orphans that have been reaped.
    reaped: u64,
}

struct Leader {
    number: u64,
    start: u64,
    /// Whether the sweep of this server has begun. From then on it no longer counts as a possible owner of an orphan.
    swept: bool,
}

fn registry() -> MutexGuard<'static, ChildRegistry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process, instead of the first process of the system, adopt the orphans of all servers. Otherwise orphans
/// that have left their server's group (`setsid`) could not be ended. Only on Linux; does nothing elsewhere.
///
/// From now on every child of this process that was not started by [`spawn`](crate::platform::child::spawn) counts as
/// such an orphan, and a sweep ends it. So only a program that starts no other processes may call this, once, at its
/// start, on its main thread.
pub fn adopt_orphans() {
    // Ignore the result. The setting lasts, because this thread lives as long as the program.
    let _ = watch_exits();
    #[cfg(target_os = "linux")]
    match prctl::set_child_subreaper(true) {
        Ok(()) => registry().adopting = true,
        Err(error) => tracing::warn!(%error, "orphans of servers cannot be adopted"),
    }
}

/// Makes this thread receive SIGCHLD, in case all threads have inherited a blocked SIGCHLD. One receiving thread is
/// enough while it lives.
pub(crate) fn watch_exits() -> io::Result<()> {
    Ok(SigSet::from(Signal::SIGCHLD).thread_unblock()?)
}

/// Starts servers through this program from now on, if orphans are adopted.
pub(super) fn allow_detour() {
    registry().may_detour = true;
}

/// Whether servers are started through this program.
pub(super) fn has_detour() -> bool {
    let registry = registry();
    registry.adopting && registry.may_detour && is_startable()
}

/// Spawns the leader of a group, and registers it before it can be taken for an orphan.
pub(crate) fn spawn(
    program: &Program,
    prepare: impl FnOnce(&mut Command),
) -> io::Result<(Child, ProcessTree)> {
    let mut registry = registry();
    let number = registry.next;
    registry.next += 1;
    let origin = registry.adopting.then(|| origin_of(number));
    let prepare = |command: &mut Command| {
        prepare(command);
        command.envs(origin.map(|origin| (ORIGIN, origin)));
    };
    if registry.adopting && registry.may_detour && registry.starter.is_none() {
        registry.starter = Starter::new();
    }
    let leader = match &registry.starter {
        Some(starter) => starter.spawn(program, prepare)?,
        None => {
            let mut command = Command::new(program.name());
            command.args(program.args());
            prepare(&mut command);
            command.spawn()?
        }
    };
    let pid = Pid::from_raw(leader.id().cast_signed());
    let start = ProcessEntry::read(pid).map_or(0, |seen| seen.start);
    registry.leaders.insert(pid, Leader { number, start, swept: false });
    registry.numbers.insert(number);
    Ok((leader, ProcessTree { number, leader: pid, start, known: BTreeSet::new() }))
}

/// Returns the value of the variable for the processes of one server.
fn origin_of(number: u64) -> OsString {
    let mut origin = env::var_os(ORIGIN).unwrap_or_default();
    if !origin.is_empty() {
        origin.push(" ");
    }
    origin.push(format!("{}.{number}", getpid()));
    origin
}

/// Returns the Mileposts and server numbers that a process descends from. Empty if its environment cannot be read
/// because it was cleared or overwritten, or belongs to another user.
pub(super) fn origins_of(pid: Pid) -> Vec<(i32, u64)> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    let origin = variables.find_map(|it| it.strip_prefix(ORIGIN.as_bytes())?.strip_prefix(b"="));
    let words = origin.and_then(|origin| str::from_utf8(origin).ok()).unwrap_or_default();
    let word = |word: &str| {
        let (owner, number) = word.split_once('.')?;
        Some((owner.parse().ok()?, number.parse().ok()?))
    };
    words.split(' ').filter_map(word).collect()
}

/// Returns the number of the server that a process descends from.
fn number_of(pid: Pid) -> Option<u64> {
    let own = getpid().as_raw();
    origins_of(pid).into_iter().find_map(|(owner, number)| (owner == own).then_some(number))
}

/// Reaps a leader if it has ended. Unless this returns `Ok(None)`, the system may reuse the leader's pid afterwards.
pub(crate) fn reap(leader: &mut Child) -> io::Result<Option<ExitStatus>> {
    let mut registry = registry();
    let status = leader.try_wait();
    if !matches!(status, Ok(None)) {
        let gone = registry.leaders.remove(&Pid::from_raw(leader.id().cast_signed()));
        if let Some(gone) = gone {
            registry.numbers.remove(&gone.number);
        }
    }
    status
}

/// Reaps orphans that have ended while their server still runs, which may be for weeks.
///
/// Stops at the first leader that waits to be reaped. A sweep reaps the orphans that come after it.
pub(crate) fn reap_adopted() {
    let mut registry = registry();
    while registry.adopting
        && let Ok(Some((pid, _))) = ended(None)
        && !registry.leaders.contains_key(&pid)
        && registry.reap_orphan(pid)
    {}
}

/// Returns the number of orphans that have been reaped. If it changes during a scan, the scan may have missed processes
/// below such an orphan.
pub(crate) fn reaped() -> u64 {
    registry().reaped
}

/// Returns the exit of the child `pid`, or of any child if `None`, without reaping that child.
///
/// # Errors
///
/// If the child does not exist, or `nix` has no name for the signal that ended it (real-time signals).
#[cfg(target_os = "linux")]
pub(crate) fn ended(pid: Option<Pid>) -> Result<Option<(Pid, Exit)>, Errno> {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(match waitid(pid.map_or(Id::All, Id::Pid), peek)? {
        WaitStatus::Exited(pid, code) => Some((pid, Exit::from_code(code))),
        WaitStatus::Signaled(pid, signal, _) => Some((pid, Exit::Signal(signal as i32))),
        _ => None,
    })
}

/// Fails, because on other systems the exit cannot be read without reaping.
#[cfg(not(target_os = "linux"))]
pub(crate) fn ended(_: Option<Pid>) -> Result<Option<(Pid, Exit)>, Errno> {
    Err(Errno::ENOSYS)
}

/// A server and all its descendants.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    number: u64,
    leader: Pid,
    start: u64,
    /// The processes seen below the leader, by pid and start time.
    known: BTreeSet<(Pid, u64)>,
}

impl ProcessTree {
    /// Notes the processes below the leader that a scan has seen.
    pub(crate) fn note(&mut self, seen: &[ProcessEntry]) {
        let mut below = BTreeSet::from([self.leader]);
        loop {
            let before = below.len();
            for one in seen {
                if below.contains(&one.parent) && below.insert(one.pid) {
                    self.known.insert(one.key());
                }
            }
            if below.len() == before {
                return;
            }
        }
    }

    /// Marks that this server's sweep has begun, so that other sweeps need not leave its orphans to this one.
    pub(crate) fn claim(&self) {
        if let Some(leader) = registry().leaders.get_mut(&self.leader) {
            leader.swept = true;
        }
    }

    /// Sends `signal` to the orphans of this tree, except those in `signalled`, and those in `group`, which the caller
    /// signals as a whole. Reaps dead orphans. Returns how many processes must still end.
    pub(crate) fn terminate(
        &self,
        seen: &[ProcessEntry],
        group: Option<Pid>,
        signal: Signal,
        signalled: &mut BTreeSet<(Pid, u64)>,
    ) -> usize {
        let mut registry = registry();
        let mut left = 0;
        for one in seen {
            let grouped = group == Some(one.group);
            if !registry.has_adopted(one) {
                left += usize::from(grouped && !one.dead);
                continue;
            }
            if !one.dead && !grouped && !self.owns(one, &registry) {
                continue;
            }
            // No other thread can reap while this lock is held, so a process that is seen now keeps its pid until the
            // signal is sent.
            let Some(now) = ProcessEntry::read(one.pid).filter(|now| now.key() == one.key()) else {
                continue;
            };
            if now.dead {
                registry.reap_orphan(now.pid);
                continue;
            }
            left += 1;
            if !grouped && signalled.insert(now.key()) {
                let _ = kill(now.pid, signal);
            }
        }
        left
    }

    /// Whether an orphan belongs to this tree: its mark names this tree, or an ended tree whose sweep has missed the
    /// orphan.
    ///
    /// An orphan without a mark belongs to this tree if the tree has seen it below its leader, or if no other running
    /// server is old enough to have started it. So an orphan of uncertain origin stays until the last possible server
    /// has ended, because a late end is better than ending a process of another server.
    fn owns(&self, orphan: &ProcessEntry, registry: &ChildRegistry) -> bool {
        if let Some(number) = orphan.number {
            return number == self.number || !registry.numbers.contains(&number);
        }
        let others = registry.leaders.iter().filter(|(pid, _)| **pid != self.leader);
        self.start <= orphan.start
            && (self.known.contains(&orphan.key())
                || !others.into_iter().any(|(_, it)| !it.swept && it.start <= orphan.start))
    }
}

impl ChildRegistry {
    fn has_adopted(&self, one: &ProcessEntry) -> bool {
        let is_watchdog = self.starter.as_ref().is_some_and(|it| it.watchdog() == Some(one.pid));
        self.adopting
            && one.parent == getpid()
            && !self.leaders.contains_key(&one.pid)
            && !is_watchdog
    }

    /// Reaps an orphan that has ended.
    fn reap_orphan(&mut self, pid: Pid) -> bool {
        self.reaped += 1;
        waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_ok()
    }
}

/// A process in the process table.
#[derive(Debug)]
pub(crate) struct ProcessEntry {
    pid: Pid,
    parent: Pid,
    group: Pid,
    /// The start of the process, in clock ticks since boot. The start and the pid together identify a process for ever.
    start: u64,
    /// Whether the process is a zombie.
    dead: bool,
    /// The number of the server that the process descends from, by the mark in its environment. Read only for orphans.
    number: Option<u64>,
}

impl ProcessEntry {
    fn key(&self) -> (Pid, u64) {
        (self.pid, self.start)
    }

    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain anything, even a `)`, so read the fields after the last `)`.
        let name = memchr::memrchr(b')', &stat)?;
        let fields: Vec<&str> =
            str::from_utf8(&stat[name + 1..]).ok()?.split_whitespace().collect();
        // The first of these fields has the number 3 in proc_pid_stat(5).
        let field = |number: usize| fields.get(number - 3).copied();
        let [state, threads] = [field(3)?, field(20)?];
        Some(Self {
            pid,
            parent: Pid::from_raw(field(4)?.parse().ok()?),
            group: Pid::from_raw(field(5)?.parse().ok()?),
            start: field(22)?.parse().ok()?,
            // A process whose first thread has ended looks like a zombie while its other threads run.
            dead: matches!(state, "Z" | "X") && matches!(threads, "0" | "1"),
            number: None,
        })
    }
}

/// Returns the process table; `None` if it cannot be read, or belongs to another PID namespace.
pub(crate) fn read_process_table() -> Option<Vec<ProcessEntry>> {
    if fs::read_link("/proc/self").ok()?.to_str()? != getpid().to_string() {
        return None;
    }
    let names = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    let mut seen: Vec<ProcessEntry> =
        pids.filter_map(|pid| ProcessEntry::read(Pid::from_raw(pid))).collect();
    for orphan in orphans(&mut seen) {
        orphan.number = number_of(orphan.pid);
    }
    Some(seen)
}

fn orphans(seen: &mut [ProcessEntry]) -> Vec<&mut ProcessEntry> {
    let registry = registry();
    seen.iter_mut().filter(|one| !one.dead && registry.has_adopted(one)).collect()
}
