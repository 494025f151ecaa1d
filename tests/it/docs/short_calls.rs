//! The table of short calls in `docs/behaviour.md` is what the filter does.

use std::time::Duration;

use milepost::progress::{Pacing, Policy};

use crate::core::rig::Rig;
use crate::support::home;
use crate::support::messages::{call, progress, result};

const PAGE: &str = "docs/behaviour.md";
const HEAD: &str = "| the server answers after | its reports | reports at the client | the first one comes after | the answer comes after |\n|--:|--:|--:|--:|--:|\n";

/// The server reports so often, in milliseconds.
const PACE: u64 = 20;

/// The messages of one call that the client gets.
#[derive(Debug, Default, PartialEq)]
struct Told {
    said: usize,
    came: usize,
    first: Option<u64>,
    answered: Option<u64>,
}

/// A call that its server answers after so many milliseconds.
fn play(pacing: Pacing, answer: u64) -> Told {
    let mut policy = Policy::default();
    policy.call.pacing = pacing;
    let mut rig = Rig::new(policy);
    rig.client(call(1, 7).as_bytes());
    let mut told = Told::default();
    for ms in 1..answer + 1000 {
        let before = rig.told.len();
        rig.pass(Duration::from_millis(1));
        if ms < answer && ms % PACE == 0 {
            told.said += 1;
            rig.server(progress(7, ms).as_bytes());
        }
        if ms == answer {
            rig.server(result(1).as_bytes());
        }
        for message in &rig.told[before..] {
            if message.payload.to_bytes() == result(1) {
                told.answered = Some(ms);
            } else {
                told.came += 1;
                told.first.get_or_insert(ms);
            }
        }
    }
    told
}

fn table() -> String {
    let row = |answer: u64| {
        let Told { said, came, first, answered } = play(Pacing::PACED, answer);
        let first = first.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        format!("| {answer} ms | {said} | {came} | {first} | {} ms |\n", answered.unwrap())
    };
    HEAD.to_owned() + &[60, 140, 300, 600].map(row).concat()
}

#[test]
fn the_table_of_short_calls_is_what_the_filter_does() {
    let path = home().join(PAGE);
    let stored = std::fs::read_to_string(&path).unwrap();
    let begin = stored.find(HEAD).expect("the head of the table");
    let length: usize = stored[begin..]
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .map(str::len)
        .sum();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let fresh = [&stored[..begin], &table(), &stored[begin + length..]].concat();
        return std::fs::write(&path, fresh).unwrap();
    }
    assert_eq!(&stored[begin..begin + length], table(), "{PAGE}: run with UPDATE_EXPECT=1");
}

/// Clients of Streamable HTTP and of SDKs that lose nothing.
#[test]
fn without_pacing_a_short_call_gets_every_report_and_its_answer_at_once() {
    for answer in [60, 140, 300, 600] {
        let Told { said, came, first, answered } = play(Pacing::IMMEDIATE, answer);
        assert_eq!((came, first, answered), (said, Some(PACE), Some(answer)));
    }
}
