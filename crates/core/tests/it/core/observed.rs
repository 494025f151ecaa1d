//! `mode = "observe"`: the client gets unchanged messages, with the same verdicts as in a mode that repairs.

use std::time::Duration;

use milepost_core::progress::{Mode, Policy, Verdict};

use crate::core::properties::AGES;
use crate::core::rig::Rig;
use crate::support::messages::{call, notification, result};

fn progress(id: u8) -> String {
    notification("notifications/progress", format!(r#"{{"progressToken":"t{id}","progress":1}}"#))
}

/// Plays two calls, whose progress and answers follow each other closely.
fn two_calls(mode: Mode) -> Rig {
    let mut policy = Policy::default();
    policy.call.heartbeat.enabled = false;
    policy.set_mode(mode);
    let mut rig = Rig::new(policy);
    for id in 1..=2 {
        rig.client(call(id, format!(r#""t{id}""#)).as_bytes());
    }
    rig.pass(Duration::from_millis(150));
    rig.server(progress(1).as_bytes());
    rig.pass(Duration::from_millis(30));
    // In `enforce` this answer waits until 50 ms after its progress, and the progress after it waits for the answer.
    rig.server(result(1).as_bytes());
    rig.server(progress(2).as_bytes());
    rig.pass(Duration::from_millis(31));
    rig.server(result(2).as_bytes());
    rig
}

#[test]
fn an_answer_behind_progress_that_waited_has_its_verdict() {
    for mode in [Mode::Observe, Mode::Enforce] {
        let mut rig = two_calls(mode);
        rig.pass(AGES);
        let forwarded: Vec<_> = (1..=4).map(|number| (number, Verdict::Forwarded)).collect();
        assert_eq!(rig.verdicts, forwarded, "{mode:?}");
        assert!(rig.filter.has_answered_all(), "{mode:?}");
    }
}
