//! `milepost demo`: its output agrees with the messages that passed.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{env, fs};

use litemap::LiteMap;
use milepost::lab::demo::{DemoError, DemoTally, DemoView, MessageFault, play};
use milepost::progress::{Mode, Policy, Reason, Repair};

const SILENCE: Duration = Duration::from_secs(20);

/// Runs the demo in virtual time. Returns its counts and its output.
async fn run(silence: Duration) -> (Vec<DemoTally>, String) {
    let mut shown = Vec::new();
    let tallies = play(Policy::default(), silence, &mut DemoView::plain(&mut shown)).await.unwrap();
    (tallies, String::from_utf8(shown).unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_call_comes_to_what_the_table_says() {
    let (tallies, _) = run(SILENCE).await;
    let [pagerank, index_files, quarterly_report] = &tallies[..] else { panic!("{tallies:?}") };

    assert_eq!((pagerank.sent, pagerank.usable), (10, 0));
    assert_eq!(pagerank.faults, LiteMap::from_iter([(MessageFault::Method, 10)]));
    assert_eq!((pagerank.got, pagerank.repaired, pagerank.added), (9, 9, 0));
    assert_eq!(pagerank.repairs, LiteMap::from_iter([(Repair::Dialect, 9), (Repair::Token, 9)]));
    assert_eq!(pagerank.withheld, LiteMap::from_iter([(Reason::Overtaken, 1)]));

    assert_eq!((index_files.sent, index_files.usable), (10, 0));
    assert_eq!(index_files.faults, LiteMap::from_iter([(MessageFault::Token, 10)]));
    assert_eq!((index_files.got, index_files.repaired, index_files.added), (8, 8, 0));
    assert_eq!(index_files.repairs[&Repair::Lift], 2);
    assert_eq!(index_files.repairs[&Repair::Number], 1);
    assert_eq!(index_files.repairs[&Repair::Total], 8);
    let withheld = LiteMap::from_iter([(Reason::Late, 1), (Reason::Duplicate, 1)]);
    assert_eq!(index_files.withheld, withheld);

    assert_eq!((quarterly_report.sent, quarterly_report.usable), (0, 0));
    let counts = (quarterly_report.got, quarterly_report.repaired, quarterly_report.added);
    assert_eq!(counts, (4, 0, 4));
    assert_eq!(quarterly_report.took.as_secs(), SILENCE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn it_takes_half_a_minute() {
    let began = tokio::time::Instant::now();
    run(SILENCE).await;
    let took = began.elapsed();
    assert!((25..32).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_terminal_it_prints_plain_lines() {
    let (_, shown) = run(SILENCE).await;
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/lab/demo.txt");
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&golden, &shown).unwrap();
    }
    let expected = fs::read_to_string(golden).unwrap();
    assert!(
        shown == expected,
        "not as in tests/it/lab/demo.txt; UPDATE_EXPECT=1 blesses it:\n{shown}"
    );
    assert!(shown.lines().all(|line| line.chars().count() <= 100));
}

#[tokio::test(start_paused = true)]
async fn any_silence_will_do() {
    for silence in [Duration::ZERO, Duration::from_secs(3 * 3600)] {
        let (tallies, _) = run(silence).await;
        assert_eq!(tallies[2].sent, 0);
        assert_eq!(tallies[2].added > 0, !silence.is_zero(), "{silence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_fails_where_the_client_is_told_what_it_cannot_use() {
    let mut policy = Policy::default();
    policy.call.mode = Mode::Observe;
    let failed = play(policy, SILENCE, &mut DemoView::plain(Vec::new())).await;
    let Err(DemoError::Invalid { fault, line }) = failed else { panic!("{failed:?}") };
    assert_eq!(fault, MessageFault::Method);
    assert!(line.contains("Loading the graph"), "{line}");
}

#[test]
fn as_a_process_it_ends_by_itself_and_well() {
    let began = Instant::now();
    let output = crate::support::milepost()
        .args(["demo", "--silence", "3s"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    for word in ["repaired", "withheld", "added", "quarterly_report: running"] {
        assert!(shown.contains(word), "no {word} in {shown}");
    }
    assert!(!shown.contains('\u{1b}'), "a control sequence in {shown}");
    assert!(began.elapsed() > Duration::from_secs(3));
}
