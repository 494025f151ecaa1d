//! Many calls are open on one stream whose client needs pacing. Each call gets the same messages as if it were alone.

use std::collections::BTreeMap;
use std::time::Duration;

use milepost_core::progress::Policy;

use crate::core::rig::Rig;
use crate::support::messages::{call_of, progress, result};

/// Number of calls that are open at the same time.
const CALLS: usize = 100;

/// An event of the conversation: a call, a report on it, or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Call,
    Report(u64),
    Answer,
}

/// Returns the next number below `end` of a fixed sequence.
fn next(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

/// Returns the events of each call, with their times in milliseconds: a report every 60 to 300 ms, and an answer up to
/// 200 ms after the last report.
fn conversation() -> Vec<Vec<(u64, Event)>> {
    let mut state = 7;
    let one = |_| {
        let mut at = next(&mut state, 500);
        let mut events = vec![(at, Event::Call)];
        for number in 1..=5 + next(&mut state, 20) {
            at += 60 + next(&mut state, 240);
            events.push((at, Event::Report(number)));
        }
        events.push((at + next(&mut state, 200), Event::Answer));
        events
    };
    (1..=CALLS).map(one).collect()
}

/// Plays the events of some calls. Returns the reports that each client got, and the longest time in milliseconds for
/// which an answer waited.
fn play<'a>(
    calls: impl IntoIterator<Item = (usize, &'a Vec<(u64, Event)>)>,
) -> (BTreeMap<usize, Vec<f64>>, u64) {
    let mut policy = Policy::default();
    policy.call.heartbeat.enabled = false;
    let mut rig = Rig::new(policy);
    let mut events: Vec<(u64, usize, Event)> = calls
        .into_iter()
        .flat_map(|(call, events)| events.iter().map(move |(at, event)| (*at, call, *event)))
        .collect();
    events.sort_by_key(|(at, call, _)| (*at, *call));
    let (mut shown, mut answered) = (BTreeMap::<usize, Vec<f64>>::new(), BTreeMap::new());
    let (mut now, mut longest) = (0, 0);
    let mut rest = events.into_iter().peekable();
    while now < 10_000 {
        while let Some((_, call, event)) = rest.next_if(|(at, ..)| *at <= now) {
            let id = u32::try_from(call).unwrap();
            match event {
                Event::Call => drop(rig.client(call_of("work", id, id).as_bytes())),
                Event::Report(number) => rig.server(progress(id, number).as_bytes()),
                Event::Answer => {
                    answered.insert(call, now);
                    rig.server(result(id).as_bytes());
                }
            }
        }
        for transmit in rig.told.drain(..) {
            let said: serde_json::Value =
                serde_json::from_slice(&transmit.payload.to_bytes()).unwrap();
            match said["params"]["progressToken"].as_u64() {
                Some(token) => {
                    let value = said["params"]["progress"].as_f64().unwrap();
                    shown.entry(token as usize).or_default().push(value);
                }
                None => {
                    let call = said["id"].as_u64().unwrap() as usize;
                    longest = longest.max(now - answered.remove(&call).unwrap());
                }
            }
        }
        rig.pass(Duration::from_millis(1));
        now += 1;
    }
    assert!(answered.is_empty() && rest.next().is_none(), "{answered:?}");
    (shown, longest)
}

#[test]
fn a_hundred_calls_at_once_are_told_what_each_is_told_alone() {
    let calls = conversation();
    let (together, longest) = play(calls.iter().enumerate().map(|(at, call)| (at + 1, call)));
    let mut alone = BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        alone.extend(play([(at + 1, call)]).0);
    }
    let count = |shown: &BTreeMap<usize, Vec<f64>>| shown.values().map(Vec::len).sum::<usize>();
    let sent: usize = calls.iter().map(|call| call.len() - 2).sum();
    let (all, some) = (count(&alone), count(&together));
    println!("of {sent} reports {all} are shown alone, {some} together; longest wait {longest} ms");
    // If many answers wait, progress that came less than 50 ms before its answer may be lost.
    assert!(all * 99 <= some * 100, "{some} of {all}");
    assert!(longest <= 101, "an answer waits {longest} ms");
}
