//! Cases too large to be written down as transcripts.

use milepost::progress::{MESSAGE_MAX, Policy};

use crate::script::{Player, settings};

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
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}"#)
}

/// What the client is told of one message of the server.
fn told(player: &mut Player, message: &str) -> String {
    player.take();
    player.play(&format!("< {message}"));
    player.play("+ 1s");
    let said = player.take();
    let lines = said.lines().filter_map(|line| line.strip_prefix("= "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// EC-14.
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

/// EC-19.
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

/// EC-79.
#[test]
fn nesting_needs_no_stack() {
    let mut player = calling("heartbeat=off");
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    let valid =
        progress(&format!(r#""progressToken":7,"progress":1,"_meta":{{"a":{}}}"#, nested(5_000)));
    assert_eq!(told(&mut player, &valid).trim_end(), valid);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}}}"#, nested(200_000));
    assert_eq!(told(&mut player, &answer).trim_end(), answer);
    assert_eq!(told(&mut player, &progress(r#""progressToken":7,"progress":2"#)), "");
}

/// EC-149.
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
