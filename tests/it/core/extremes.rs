//! Cases too large to be written down as transcripts.

use std::time::Instant;

use bytes::Bytes;
use milepost::progress::{
    Disposition, Filter, MESSAGE_MAX, Origin, Policy, StreamId, StreamKind, StreamPacing,
};

use crate::core::transcripts::{Player, settings};
use crate::support::messages::notification;

const CALL: &str = r#"> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":7}}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;

/// A player with an open call that is a second old.
fn calling(how: &str) -> Player {
    let mut policy = Policy::default();
    settings(&mut policy, how);
    let mut player = Player::new(policy);
    player.play(CALL);
    player.play("+ 1s");
    player
}

fn progress(params: &str) -> String {
    notification("notifications/progress", format!("{{{params}}}"))
}

/// Returns what the client gets for one message of the server.
fn told(player: &mut Player, message: &str) -> String {
    player.take();
    player.play(&format!("< {message}"));
    player.play("+ 1s");
    let said = player.take();
    let lines = said.lines().filter_map(|line| line.strip_prefix("= "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_long_message_passes_whole_and_is_cut_where_it_is_written_anew() {
    let mut player = calling("heartbeat=off");
    let long = "é".repeat(1 << 19);
    let valid = progress(&format!(r#""progressToken":7,"progress":1,"message":"{long}""#));
    assert_eq!(told(&mut player, &valid).trim_end(), valid);
    let again = progress(&format!(r#""progressToken":7,"progress":1,"message":"a{long}""#));
    let lifted = told(&mut player, &again);
    assert!(lifted.contains("1.000001") && lifted.contains('…'), "{} bytes", lifted.len());
    assert!(lifted.len() < MESSAGE_MAX + 200);
}

#[test]
fn five_hundred_lines_do_not_come_to_one() {
    let mut player = calling("heartbeat=off");
    for line in 0..500 {
        let message = progress(&format!(r#""progressToken":7,"message":"line {line}""#));
        assert!(told(&mut player, &message).contains(r#""progress":0.000"#), "line {line}");
    }
    let last = progress(r#""progressToken":7,"progress":1,"total":1"#);
    assert_eq!(told(&mut player, &last).trim_end(), last);
}

#[test]
fn of_more_early_progress_than_may_wait_the_oldest_is_dropped() {
    let mut policy = Policy::default();
    settings(&mut policy, "heartbeat=off");
    for (count, text, waiting) in [(10_000, 0, 8192), (1_000, 1 << 13, 505)] {
        let mut player = Player::new(policy.clone());
        player.play(CALL);
        player.take();
        let text = "x".repeat(text);
        for figure in 1..=count {
            let params = format!(r#""progressToken":7,"progress":{figure},"message":"{text}""#);
            player.play(&format!("< {}", progress(&params)));
        }
        let dropped = player.take().lines().filter(|line| *line == "x superseded").count();
        assert_eq!(dropped, count - waiting);
        player.play("+ 150ms");
        let said = player.take();
        let came = |figure: &usize| said.contains(&format!(r#""progress":{figure},"#));
        assert!((count - waiting + 1..=count).all(|figure| came(&figure)));
        assert!(!(1..=count - waiting).any(|figure| came(&figure)));
    }
}

#[test]
fn nesting_needs_no_stack() {
    let mut player = calling("heartbeat=off");
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    let valid =
        progress(&format!(r#""progressToken":7,"progress":1,"_meta":{{"a":{}}}"#, nested(5_000)));
    assert_eq!(told(&mut player, &valid).trim_end(), valid);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":{}}}}}"#, nested(200_000));
    assert_eq!(told(&mut player, &answer).trim_end(), answer);
    assert_eq!(told(&mut player, &progress(r#""progressToken":7,"progress":2"#)), "");
}

#[test]
fn a_flood_of_repaired_progress_is_thinned_and_does_not_keep_the_answer() {
    let mut player = calling("heartbeat=off");
    player.take();
    for line in 0..10_000 {
        let message = progress(&format!(r#""progressToken":"shell_1","message":"line {line}""#));
        player.play(&format!("< {message}"));
        player.play("+ 0.1ms");
    }
    player.play(&format!("< {ANSWER}"));
    player.play("+ 50ms");
    let said = player.take();
    let told: Vec<&str> = said.lines().filter(|line| line.starts_with("= ")).collect();
    assert!((10..=12).contains(&told.len()), "{}", told.len());
    assert!(told[told.len() - 1].ends_with(ANSWER));
    let newest = told[told.len() - 2].split("line ").nth(1).unwrap();
    let newest: u32 = newest.trim_end_matches(['"', '}']).parse().unwrap();
    assert!(newest >= 8_900, "{newest}");
}

/// Checks the decisions about the first piece of a message that is too large for memory, and about the rest.
#[track_caller]
fn check_large(head: &str, noise: bool, told: bool) {
    let mut filter = Filter::new(Policy::default());
    filter.open_stream(StreamId(0), StreamKind::Shared, StreamPacing::ByCall);
    let now = Instant::now();
    let mut fates = vec![filter.intake_mut().begin_large(
        now,
        Origin::Shared,
        Bytes::copy_from_slice(head.as_bytes()),
        0..head.len(),
    )];
    fates.push(filter.intake_mut().large_piece(
        now,
        Origin::Shared,
        Bytes::from_static(b" more\n"),
        0..6,
    ));
    filter.intake_mut().finish_large(now, Origin::Shared);
    let seen: usize = std::iter::from_fn(|| filter.poll_transmit(now, StreamId(0)))
        .map(|transmit| transmit.payload.len())
        .sum();
    assert_eq!(fates.iter().all(|fate| *fate != Disposition::Consumed), noise, "{head}");
    assert_eq!(seen, if told { head.len() + 6 } else { 0 }, "{head}");
}

#[test]
fn what_is_too_large_to_be_held_passes_unless_it_is_noise_or_progress() {
    check_large(r#"{"jsonrpc":"2.0","id":1,"result":{"#, false, true);
    check_large(r#"{"result":{"content":[{"text":""#, false, true);
    check_large(r#" [ {"jsonrpc":"2.0","id":1,"result":{"#, false, true);
    check_large(r#"{"jsonrpc":"2.0","params":{"#, false, true);
    check_large("[INFO] {", true, false);
    check_large("[1, 2, 3", true, false);
    check_large("{ status: 'x',", true, false);
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"#;
    check_large(progress, false, false);
}
