//! Counts instructions and allocations per request. These numbers do not depend on the machine.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use milepost_core::progress::Policy;

use crate::apart::Apart;
use crate::joint::Joint;
use crate::load::{Clock, Load, Script, begun, round};
use crate::shell::Session;

/// The first argument of a child process whose instructions valgrind counts.
pub(crate) const CHILD: &str = "child";

/// Number of requests before the counted requests. The filter remembers the names of this number of requests.
const WARM: usize = 128;

fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for (reports, invents) in [(0, false), (2, false), (1000, false), (1000, true)] {
        for reuses in [false, true] {
            for open in [1, 32] {
                if !reuses || reports == 0 {
                    loads.push(Load { reports, invents, open, reuses });
                }
            }
        }
    }
    loads
}

/// Returns the number of requests that are counted.
fn requests(load: Load) -> usize {
    if load.reports > 100 { 32 } else { 640 }
}

/// Runs a load. Returns the number of allocations for its requests, and the number of messages that the client got.
fn counted<S: Session>(load: Load) -> (u64, usize) {
    let policy = Arc::new(Policy::default());
    let mut clock = Clock::new();
    let session: S = begun(&policy, &mut clock);
    let few = Load { reports: 0, ..load };
    for first in (0..WARM).step_by(load.open) {
        round_alone(&session, &few.scripts(first), &mut clock);
    }
    let firsts = (WARM..WARM + requests(load)).step_by(load.open);
    let rounds: Vec<_> = firsts.map(|first| load.scripts(first)).collect();
    let mut told = 0;
    let count = || told = counted_rounds(&session, &rounds, &mut clock);
    (allocation_counter::measure(count).count_total, told)
}

/// The function whose instructions are counted. It has no closures, because they would be matched by its name too.
#[inline(never)]
fn counted_rounds<S: Session>(session: &S, rounds: &[Vec<Script>], clock: &mut Clock) -> usize {
    let mut told = 0;
    for scripts in rounds {
        told += round_alone(session, scripts, clock);
    }
    told
}

fn round_alone<S: Session>(session: &S, scripts: &[Script], clock: &mut Clock) -> usize {
    round(session, scripts, || clock.next(), |_| {})
}

/// Runs in the child process: plays one load with one form of session.
pub(crate) fn run_child(words: &[String]) {
    let load = Load::of_arguments(&words[1..]);
    let count = if words[0] == Apart::NAME { counted::<Apart> } else { counted::<Joint> };
    count(load);
}

/// The options of callgrind: for all instructions of the counted requests, and for those under the lock.
const COUNTED: [&[&str]; 2] = [
    &["--toggle-collect=*counted_rounds*"],
    &["--toggle-collect=*under_lock*", "--zero-before=*counted_rounds*"],
];

/// Returns the instructions per request for one form of session; `None` if valgrind is not installed.
fn instructions(form: &str, load: Load, of: &[&str], folder: &Path) -> Option<f64> {
    let out = folder.join("callgrind.out");
    let done = Command::new("valgrind")
        .arg("--tool=callgrind")
        .args(of)
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().unwrap())
        .args([CHILD, form])
        .args(load.to_arguments())
        .output()
        .ok()?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read_to_string(&out).unwrap();
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: ")));
    Some(total.unwrap().trim().parse::<f64>().unwrap() / requests(load) as f64)
}

fn with_commas(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn print() {
    let folder = std::env::temp_dir().join(format!("session-filters-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let instructions_of = "instructions, today | one filter | under the lock, today | one filter";
    println!(
        "| a request with | open at once | {instructions_of} | allocations, today | one filter |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for load in loads() {
        let (apart, told) = counted::<Apart>(load);
        let (joint, told_joint) = counted::<Joint>(load);
        assert_eq!(told, told_joint, "both tell the client the same: {load:?}");
        let mut row = format!("| {} | {} |", load.words(), load.open);
        for of in COUNTED {
            for form in [Apart::NAME, Joint::NAME] {
                let count = instructions(form, load, of, &folder);
                let count = count.map_or_else(|| "no valgrind".to_owned(), with_commas);
                row += &format!(" {count} |");
            }
        }
        for allocations in [apart, joint] {
            row += &format!(" {:.1} |", allocations as f64 / requests(load) as f64);
        }
        println!("{row}");
    }
    println!();
    std::fs::remove_dir_all(&folder).unwrap();
}
