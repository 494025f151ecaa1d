//! The tables of short calls and of bursts in `docs/behaviour.md` agree with the filter.

use std::time::Duration;

use milepost::progress::{Pacing, Policy};

use crate::core::rig::Rig;
use crate::support::home;
use crate::support::messages::{call, progress, result};

const PAGE: &str = "docs/behaviour.md";
const HEAD: &str = "| the server answers after | its reports | reports at the client | the first one comes after | the answer comes after |\n|--:|--:|--:|--:|--:|\n";

/// The head of the table of bursts. Both transports with pacing have one column, for they have one filter.
const BURSTS: &str = "| reports | compliant; stdio, HTTP+SSE; answer at once | answer later | Streamable HTTP; at once or later | repaired; stdio, HTTP+SSE; answer at once | answer later | Streamable HTTP; at once | later |\n|--:|---|---|---|---|---|---|---|\n";

/// The time in which the reports of a burst come, in milliseconds.
const BURST: u64 = 300;

/// The most reports of a burst in the table.
const BURST_MAX: u64 = 20;

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

/// Returns the reports that a client shows if a call sends `reports` reports in its first [`BURST`] and is answered at
/// `answer`.
fn shown(pacing: Pacing, token: &str, reports: u64, answer: u64) -> Vec<u64> {
    let mut policy = Policy::default();
    policy.call.pacing = pacing;
    let mut rig = Rig::new(policy);
    rig.client(call(1, 7).as_bytes());
    for ms in 1..=BURST {
        rig.pass(Duration::from_millis(1));
        for report in (1..=reports).filter(|report| report * BURST / reports == ms) {
            rig.server(progress(token, report).as_bytes());
        }
    }
    rig.pass(Duration::from_millis(answer - BURST));
    rig.server(result(1).as_bytes());
    rig.pass(Duration::from_secs(1));
    let told = rig.told.iter().map(|message| message.payload.to_bytes());
    let told: Vec<serde_json::Value> =
        told.map(|text| serde_json::from_slice(&text).unwrap()).collect();
    assert_eq!(told.last().unwrap()["id"], 1, "nothing follows the answer");
    told.iter().filter_map(|text| text["params"]["progress"].as_u64()).collect()
}

/// Numbers in words: all of them, or each, neighbours as a range.
fn in_words(numbers: &[u64], of: u64) -> String {
    let ranges = numbers.chunk_by(|one, next| one + 1 == *next).map(|range| match range {
        [first, .., last] if last - first > 1 => format!("{first} to {last}"),
        several => several.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    });
    match numbers.len() as u64 {
        0 => "none".to_owned(),
        all if all == of => "all".to_owned(),
        _ => ranges.collect::<Vec<_>>().join(", "),
    }
}

fn bursts() -> String {
    const LATER: u64 = 1000;
    let row = |reports: u64| {
        let cell =
            |pacing, token, answer| in_words(&shown(pacing, token, reports, answer), reports);
        let (paced, immediate) = (Pacing::PACED, Pacing::IMMEDIATE);
        let unpaced = cell(immediate, "7", BURST);
        assert_eq!(unpaced, cell(immediate, "7", LATER));
        let cells = [
            cell(paced, "7", BURST),
            cell(paced, "7", LATER),
            unpaced,
            cell(paced, "\"x\"", BURST),
            cell(paced, "\"x\"", LATER),
            cell(immediate, "\"x\"", BURST),
            cell(immediate, "\"x\"", LATER),
        ];
        format!("| {reports} | {} |\n", cells.join(" | "))
    };
    BURSTS.to_owned() + &(1..=BURST_MAX).map(row).collect::<String>()
}

/// Of a burst the first report is shown, and the last one or that before.
#[test]
fn the_first_and_the_last_report_of_a_burst_are_shown() {
    for reports in 2..=BURST_MAX {
        for token in ["7", "\"x\""] {
            let later = shown(Pacing::PACED, token, reports, 1000);
            assert_eq!((later[0], *later.last().unwrap()), (1, reports));
            let at_once = shown(Pacing::PACED, token, reports, BURST);
            // A report that has not waited its 30 ms is overtaken by the answer.
            let ripe = (1..reports).rfind(|report| report * BURST / reports + 30 <= BURST).unwrap();
            let last = *at_once.last().unwrap();
            assert_eq!(at_once[0], 1);
            assert!(last == ripe || token != "7" && last < ripe && last + 3 > ripe, "{at_once:?}");
        }
    }
}

/// One test for both: they are written into one file.
#[test]
fn the_tables_of_short_calls_and_of_bursts_are_what_the_filter_does() {
    holds_table(HEAD, &table());
    holds_table(BURSTS, &bursts());
}

/// The table with this head in the page is `fresh`.
#[track_caller]
fn holds_table(head: &str, fresh: &str) {
    let path = home().join(PAGE);
    let stored = std::fs::read_to_string(&path).unwrap();
    let begin = stored.find(head).expect("the head of the table");
    let length: usize = stored[begin..]
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .map(str::len)
        .sum();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let fresh = [&stored[..begin], fresh, &stored[begin + length..]].concat();
        return std::fs::write(&path, fresh).unwrap();
    }
    assert_eq!(&stored[begin..begin + length], fresh, "{PAGE}: run with UPDATE_EXPECT=1");
}

/// Clients of Streamable HTTP and of SDKs that lose nothing.
#[test]
fn without_pacing_a_short_call_gets_every_report_and_its_answer_at_once() {
    for answer in [60, 140, 300, 600] {
        let Told { said, came, first, answered } = play(Pacing::IMMEDIATE, answer);
        assert_eq!((came, first, answered), (said, Some(PACE), Some(answer)));
    }
}
