//! Two threads use one session with 32 open requests: measures how long they wait for each other, and what that costs.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use milepost_core::progress::Policy;

use crate::apart::Apart;
use crate::joint::Joint;
use crate::load::{Clock, Load, Script, begun, round};
use crate::shell::Session;

/// Number of requests of a session that are open at the same time.
const OPEN: usize = 32;

/// Number of short runs of each form, which alternate. On a busy machine the threads seldom run at the same time.
const RUNS: usize = 100;

/// Number of runs that are evaluated: those in which the threads had most of their cores.
const KEPT: usize = 9;

/// Steps of a hash that represent the rest of the proxy's work. The proxy needs 100,000 more instructions for a small
/// request and 2,000 for an event of a flood (docs/performance.md, "Instructions and allocations"). A step needs five
/// instructions.
const WORK: [usize; 2] = [100_000 / 5, 2_000 / 5];

/// The results of one run, in nanoseconds per request.
#[derive(Debug, Clone, Copy)]
struct Measured {
    cpu: f64,
    waited: f64,
    /// Number of waits per 1,000 requests.
    waits: f64,
    /// The number of cores that the threads had. On a busy machine there are fewer cores than threads, and fewer waits.
    cores: f64,
}

/// Returns the CPU time of this thread in nanoseconds.
fn cpu_time() -> u64 {
    // The scheduler updates a thread's time only when it switches threads.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Keeps this thread on its own core, if `taskset` is installed. Busy machines leave new threads on one core.
fn keep_to(core: usize) {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let thread = thread.file_name().unwrap();
    let words = ["-c", "-p", &core.to_string()].map(std::ffi::OsString::from);
    let _status = Command::new("taskset").args(words).arg(thread).stdout(Stdio::null()).status();
}

/// Work that does not use the session. Half of a request's work is done before it, half before its answer.
fn work(events: usize) {
    let steps = if events == 0 { WORK[0] / 2 } else { WORK[1] * events };
    let mut hash = black_box(1_u64);
    for step in 0..steps as u64 {
        hash = (hash ^ step).wrapping_mul(0x0100_0000_01b3);
    }
    black_box(hash);
}

/// The work between the messages of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkAround {
    None,
    /// As much as the rest of the proxy has.
    Proxy,
}

/// CPU time that `rounds` take on this thread. Each round has the same requests.
fn cpu_of<S: Session>(session: &S, rounds: &[Vec<Script>], around: WorkAround) -> u64 {
    let from = cpu_time();
    for scripts in rounds {
        round(session, scripts, Instant::now, |events| {
            if around == WorkAround::Proxy {
                work(events);
            }
        });
    }
    cpu_time() - from
}

/// Returns the rounds of each thread. Every run plays them in a new session.
fn rounds_of(load: Load, threads: usize) -> Vec<Vec<Vec<Script>>> {
    let rounds = if load.reports > 100 { 2 } else { 40 };
    let of_each = Load { open: OPEN / threads, ..load };
    let first = |thread, round| (thread * rounds + round) * OPEN + 1;
    let of = |thread| (0..rounds).map(|round| of_each.scripts(first(thread, round))).collect();
    (0..threads).map(of).collect()
}

fn measured<S: Session>(rounds: &[Vec<Vec<Script>>], around: WorkAround) -> Measured {
    let policy = Arc::new(Policy::default());
    let session: S = begun(&policy, &mut Clock::new());
    let barrier = Barrier::new(rounds.len());
    let times: Vec<(u64, f64)> = std::thread::scope(|scope| {
        let (session, barrier) = (&session, &barrier);
        let run = move |core: usize, own: &[Vec<Script>]| {
            keep_to(core);
            barrier.wait();
            let from = Instant::now();
            let cpu = cpu_of(session, own, around);
            (cpu, from.elapsed().as_nanos() as f64)
        };
        let spawn = |(core, own)| scope.spawn(move || run(core, own));
        let own = rounds.iter().map(Vec::as_slice);
        let spawned: Vec<_> = own.enumerate().map(spawn).collect();
        spawned.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let requests = rounds.iter().flatten().map(Vec::len).sum::<usize>() as f64;
    let (waited, waits) = session.waits();
    let cpu = times.iter().map(|(cpu, _)| *cpu as f64).sum::<f64>();
    Measured {
        cpu: cpu / requests,
        waited: waited as f64 / requests,
        waits: waits as f64 * 1000.0 / requests,
        cores: cpu / times.iter().map(|(_, elapsed)| *elapsed).fold(0.0, f64::max),
    }
}

/// Returns the median of a value over the evaluated runs.
fn median(runs: &[Measured], value: fn(&Measured) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(value).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn print_row(load: Load, threads: usize, around: WorkAround) {
    let rounds = rounds_of(load, threads);
    let (mut apart, mut joint) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        apart.push(measured::<Apart>(&rounds, around));
        joint.push(measured::<Joint>(&rounds, around));
    }
    for runs in [&mut apart, &mut joint] {
        runs.sort_by(|one, other| other.cores.total_cmp(&one.cores));
        runs.truncate(KEPT);
    }
    let cpu = [&apart, &joint].map(|runs| median(runs, |run| run.cpu));
    let waits = [&apart, &joint].map(|runs| {
        let (waited, waits) = (median(runs, |run| run.waited), median(runs, |run| run.waits));
        format!("{:.2} µs in {waits:.0} waits", waited / 1000.0)
    });
    let kind = match around {
        WorkAround::Proxy => ", with the rest of the proxy's work",
        WorkAround::None => "",
    };
    println!(
        "| {}{kind} | {threads} | {:.1} µs | {:.1} µs | {:.2} | {} | {} | {:.1}, {:.1} |",
        load.words(),
        cpu[0] / 1000.0,
        cpu[1] / 1000.0,
        cpu[1] / cpu[0],
        waits[0],
        waits[1],
        median(&apart, |run| run.cores),
        median(&joint, |run| run.cores),
    );
}

pub(crate) fn print() {
    let waits = "waits for the lock (waits in 1,000 requests), today | one filter";
    println!(
        "| a request with | threads | CPU, today | one filter | ratio | {waits} | cores had |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for reports in [0, 2, 1000] {
        let load = Load { reports, invents: false, open: OPEN, reuses: false };
        print_row(load, 1, WorkAround::None);
        print_row(load, 2, WorkAround::None);
        print_row(load, 2, WorkAround::Proxy);
    }
    println!();
}
