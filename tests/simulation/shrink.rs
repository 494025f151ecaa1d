//! A failing conversation made as short as it can be while it still fails by the same rule.

use std::time::{Duration, Instant};

use crate::conversation::{Conversation, Step};
use crate::play::findings;

/// For as long a conversation is shortened.
const TIME_MAX: Duration = Duration::from_secs(40);

/// Drops steps, larger parts first, then shortens waits.
pub(crate) fn shrink(mut conversation: Conversation, rule: &str) -> Conversation {
    let (mut tries, begin) = (2000, Instant::now());
    let mut fails = |conversation: &Conversation| {
        tries -= 1;
        let goes_on = tries > 0 && begin.elapsed() < TIME_MAX;
        goes_on && findings(conversation).iter().any(|finding| finding.rule == rule)
    };
    let mut size = conversation.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let mut dropped = false;
        while at < conversation.steps.len() {
            let mut shorter = conversation.clone();
            let end = (at + size).min(shorter.steps.len());
            shorter.steps.drain(at..end);
            if fails(&shorter) {
                conversation = shorter;
                dropped = true;
            } else {
                at += size;
            }
        }
        if size == 1 && !dropped {
            break;
        }
        size = (size / 2).max(1);
    }
    for at in 0..conversation.steps.len() {
        let Step::Wait(time) = conversation.steps[at] else { continue };
        for shorter_time in [1, 10, 50, 100, 200, 1000] {
            let mut shorter = conversation.clone();
            shorter.steps[at] = Step::Wait(shorter_time);
            if shorter_time < time && fails(&shorter) {
                conversation = shorter;
                break;
            }
        }
    }
    conversation
}
