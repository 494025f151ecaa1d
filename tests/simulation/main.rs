//! Conversations from seeds, played through the product and held against the rules by a judge that shares
//! nothing with it. `docs/testing.md` says how to run more of them.
#![allow(clippy::unwrap_used, missing_docs)]
// The tests start shells and send signals.
#![cfg(unix)]

mod conversation;
mod dice;
mod generate;
mod judge;
mod names;
mod play;
mod shrink;

// The rigs of `it`, of which not everything is needed.
#[allow(dead_code)]
#[path = "../../crates/core/tests/it/core/checker.rs"]
mod checker;
#[allow(dead_code)]
#[path = "../it/http/serve/proxy.rs"]
mod proxy;
#[allow(dead_code)]
#[path = "../it/http/raw.rs"]
mod raw;
mod recording;
#[allow(dead_code)]
#[path = "../it/http/fleet/replicas.rs"]
mod replicas;
#[allow(dead_code)]
#[path = "../it/http/rig.rs"]
mod rig;
mod serve {
    pub(crate) use crate::proxy;
}
mod core {
    pub(crate) use crate::checker;
}
mod http {
    pub(crate) use crate::{raw, recording, rig};
}
#[path = "../support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use conversation::{Between, Conversation, Speaks, World};
use support::sections::sections;

/// The first seed of the set that is the same each time.
const FIXED: u64 = 1;

/// Seconds for a set that is new.
const FRESH: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// What came out of a set of seeds.
#[derive(Default)]
struct Outcome {
    played: u32,
    /// Rules that do not hold, and how often.
    rules: Vec<(&'static str, u64)>,
    report: String,
}

/// Plays one seed; where it fails, and is the first by its rule, tells the shortest conversation that does.
fn play_seed(world: World, seed: u64, outcome: &Mutex<Outcome>) {
    let conversation = generate::generate(world, seed);
    let (log, findings) = play::played(&conversation);
    let finding = findings.into_iter().next();
    let mut so_far = outcome.lock().unwrap();
    so_far.played += 1;
    let Some(finding) = finding else { return };
    if let Some((_, times)) = so_far.rules.iter_mut().find(|(rule, _)| *rule == finding.rule) {
        *times += 1;
        return;
    }
    so_far.rules.push((finding.rule, 1));
    drop(so_far);
    let short = match number("SIMULATION_WHOLE") {
        Some(_) => conversation,
        None => shrink::shrink(conversation, finding.rule),
    };
    let (again_log, again) = play::played(&short);
    // Where the clock is real, the same conversation may well pass the next time.
    let (log, finding) = match again.into_iter().find(|again| again.rule == finding.rule) {
        Some(again) => (again_log, again),
        None => (log, finding),
    };
    let mut report = format!("# seed {seed}: {finding}\n{short}\n");
    if number("SIMULATION_LOG").is_some() {
        for entry in log {
            writeln!(report, "#   {:6} {:?}", entry.at, entry.what).unwrap();
        }
    }
    outcome.lock().unwrap().report += &report;
}

/// Plays these seeds, as far as the time (in seconds) suffices; several at once where they have to wait.
fn run(world: World, first: u64, count: u64, time: u64) {
    let begin = Instant::now();
    let _processes = play::EndProcesses(world);
    let outcome = Mutex::new(Outcome::default());
    let next = AtomicU64::new(first);
    let play = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || begin.elapsed().as_secs() >= time {
                return;
            }
            play_seed(world, seed, &outcome);
        }
    };
    if world.is_real() {
        std::thread::scope(|threads| {
            for _ in 0..play::SLOTS {
                threads.spawn(play);
            }
        });
    } else {
        play();
    }
    let Outcome { played, rules, report } = outcome.into_inner().unwrap();
    let took = begin.elapsed();
    let speed = (f64::from(played) / took.as_secs_f64() * 60.0).round();
    #[expect(clippy::print_stdout, reason = "a test reports its speed")]
    {
        println!(
            "{world:?}: {played} seeds from {first}, {took:.1?}, {speed} a minute; broken {rules:?}"
        );
    }
    assert!(rules.is_empty(), "{rules:?}\n{report}");
}

/// A set of `fixed` seeds that is the same each time and one of `fresh` seeds that is new each time, or what
/// the environment says.
fn sets(world: World, fixed: u64, fresh: u64) {
    let count = number("SIMULATION_SEEDS");
    if let Some(first) = number("SIMULATION_FIRST") {
        return run(world, first, count.unwrap_or(fixed), u64::MAX);
    }
    run(world, FIXED, count.unwrap_or(fixed), u64::MAX);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    run(world, now << 20, count.unwrap_or(fresh), FRESH);
}

#[test]
fn the_filter_on_a_paced_wire() {
    sets(World::Wire { paced: true }, 3000, 300);
}

#[test]
fn the_filter_on_a_wire() {
    sets(World::Wire { paced: false }, 3000, 300);
}

#[test]
fn clients_that_share_a_stdio_server() {
    sets(World::Shared, 300, 100);
}

/// Tests of a pair of transports, in memory.
macro_rules! in_memory {
    ($($name:ident: $client:ident to $server:ident, $fixed:literal and $fresh:literal;)*) => {
        $(#[test]
        fn $name() {
            sets(World::memory(Speaks::$client, Speaks::$server), $fixed, $fresh);
        })*
    };
}

in_memory! {
    http_clients_and_an_http_server: Http to Http, 80 and 20;
    http_clients_and_a_stdio_server: Http to Stdio, 80 and 20;
    http_clients_and_an_sse_server: Http to Sse, 80 and 20;
    sse_clients_and_an_http_server: Sse to Http, 80 and 20;
    sse_clients_and_a_stdio_server: Sse to Stdio, 80 and 20;
    sse_clients_and_an_sse_server: Sse to Sse, 80 and 20;
}

/// Tests of a pair of transports through three replicas of one proxy, of which any gets a request.
macro_rules! fleets {
    ($($name:ident: $client:ident to $server:ident;)*) => {
        $(#[test]
        fn $name() {
            let world =
                World::Pair { client: Speaks::$client, server: Speaks::$server, by: Between::Fleet };
            sets(world, 30, 10);
        })*
    };
}

fleets! {
    fleet_of_http_clients_and_an_http_server: Http to Http;
    fleet_of_http_clients_and_a_stdio_server: Http to Stdio;
    fleet_of_http_clients_and_an_sse_server: Http to Sse;
    fleet_of_sse_clients_and_a_stdio_server: Sse to Stdio;
    fleet_of_sse_clients_and_an_sse_server: Sse to Sse;
}

/// Tests of a pair of transports, with the programs.
macro_rules! processes {
    ($($name:ident: $client:ident to $server:ident;)*) => {
        $(#[test]
        fn $name() {
            let world =
                World::Pair { client: Speaks::$client, server: Speaks::$server, by: Between::Processes };
            sets(world, 8, 2);
        })*
    };
}

processes! {
    processes_stdio_to_stdio: Stdio to Stdio;
    processes_stdio_to_http: Stdio to Http;
    processes_stdio_to_sse: Stdio to Sse;
    processes_http_to_stdio: Http to Stdio;
    processes_http_to_http: Http to Http;
    processes_http_to_sse: Http to Sse;
    processes_sse_to_stdio: Sse to Stdio;
    processes_sse_to_http: Sse to Http;
    processes_sse_to_sse: Sse to Sse;
}

/// What was found once is played for good.
#[test]
fn conversations_that_failed_once() {
    for found in sections("tests/simulation/found.txt") {
        let conversation = Conversation::read(&found.text);
        assert_eq!(Conversation::read(&conversation.to_string()), conversation);
        let finding = play::findings(&conversation).into_iter().next();
        assert!(finding.is_none(), "{found}: {}", finding.unwrap());
    }
}
