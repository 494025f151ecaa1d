//! Conversations from seeds, played through the product and held against the rules by a judge that shares
//! nothing with it. `docs/testing.md` says how to run more of them.
#![allow(clippy::unwrap_used, missing_docs)]

mod conversation;
mod dice;
mod generate;
mod judge;
mod play;
mod shrink;

// The rigs of `it`, of which not everything is needed.
#[allow(dead_code)]
#[path = "../it/core/checker.rs"]
mod checker;
#[allow(dead_code)]
#[path = "../it/http/raw.rs"]
mod raw;
mod recording;
#[allow(dead_code)]
#[path = "../it/http/rig.rs"]
mod rig;
mod core {
    pub(crate) use crate::checker;
}
mod http {
    pub(crate) use crate::{raw, recording, rig};
}
#[path = "../support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use conversation::{Conversation, World};
use judge::Finding;

/// Rules that are known to be broken, which CI does not stop at.
const KNOWN: &[&str] = &[
    // Progress on the GET stream for a POST that has no stream yet.
    "get-update",
    // An id of a call that is over, in the token's place, is taken for the only open call.
    "late-id-as-token",
];

/// The first seed of the set that is the same each time.
const FIXED: u64 = 1;

/// Seconds for a set that is new.
const FRESH: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// The first finding that is not known.
fn unknown(findings: Vec<Finding>) -> Option<Finding> {
    findings.into_iter().find(|finding| !KNOWN.contains(&finding.rule))
}

/// Plays these seeds, as far as the time (in seconds) suffices; where some fail, tells the shortest
/// conversations that do.
fn run(world: World, first: u64, count: u64, time: u64) {
    let begin = Instant::now();
    let mut played: u32 = 0;
    let mut report = String::new();
    let mut rules: Vec<(&'static str, u64)> = Vec::new();
    for seed in first..first + count {
        if begin.elapsed().as_secs() >= time {
            break;
        }
        played += 1;
        let conversation = generate::generate(world, seed);
        let Some(finding) = unknown(play::findings(&conversation)) else { continue };
        match rules.iter_mut().find(|(rule, _)| *rule == finding.rule) {
            Some((_, times)) => *times += 1,
            None => {
                rules.push((finding.rule, 1));
                let short = shrink::shrink(conversation, finding.rule);
                let again = play::findings(&short);
                let finding =
                    again.iter().find(|again| again.rule == finding.rule).unwrap_or(&finding);
                writeln!(report, "# seed {seed}: {finding}\n{short}").unwrap();
                if number("SIMULATION_LOG").is_some() {
                    for entry in play::log(&short) {
                        writeln!(report, "#   {:6} {:?}", entry.at, entry.what).unwrap();
                    }
                }
            }
        }
    }
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
fn clients_and_a_server_of_streamable_http() {
    // In about four of 1,000 conversations it finds what is still to be judged: no fresh set here yet.
    sets(World::Direct, 100, 0);
}

#[test]
fn clients_that_share_a_stdio_server() {
    sets(World::Shared, 300, 100);
}

/// What was found once is played for good.
#[test]
fn conversations_that_failed_once() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulation/found");
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let conversation = Conversation::read(&std::fs::read_to_string(&file).unwrap());
        assert_eq!(Conversation::read(&conversation.to_string()), conversation);
        let finding = unknown(play::findings(&conversation));
        assert!(finding.is_none(), "{}: {}", file.display(), finding.unwrap());
    }
}
