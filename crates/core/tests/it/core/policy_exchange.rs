//! Exchanging policies during a conversation, in the core.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::progress::dialect;
use milepost_core::progress::policy::late::Late;
use milepost_core::progress::{Messages, Mode, Pacing, Policy, Reason, Scale, TokenIs, Verdict};
use proptest::prelude::*;
use serde_json::Value;

use crate::core::checker::Checker;
use crate::core::properties::{AGES, hear, play, policies};
use crate::core::random_talk::{Talk, steps};
use crate::core::rig::{Rig, assert_one_verdict_each, assert_pieces_stand_together};
use crate::support::messages::{self, call_of, notification, request, result};

/// Makes `policy` the policy of calls that open from now on.
fn take(rig: &mut Rig, policy: &Arc<Policy>) {
    rig.filter.set_policy(policy);
    rig.policy = (**rig.filter.calls().policy()).clone();
}

/// Generates the steps of a conversation, and the policy that is exchanged before a step, if any.
fn exchanged(
    modes: impl Strategy<Value = Mode>,
) -> impl Strategy<Value = (Vec<Arc<Policy>>, Vec<(u8, crate::core::random_talk::Step)>)> {
    let policy = (policies(), modes).prop_map(|(mut policy, mode)| {
        policy.set_mode(mode);
        policy
    });
    let policies = prop::collection::vec(policy.prop_map(Arc::new), 1..4);
    let turns = prop::collection::vec(any::<u8>(), 0..40);
    (policies, steps(), turns).prop_map(|(policies, steps, turns)| {
        let turns = turns.into_iter().chain(std::iter::repeat(u8::MAX));
        (policies, turns.zip(steps).collect())
    })
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Mode::Full), 1 => Just(Mode::Enforce), 1 => Just(Mode::Observe)]
}

proptest! {
    /// Whenever policies are exchanged, the client gets nothing that it cannot accept.
    #[test]
    fn exchanging_policies_breaks_no_rule(
        (policies, steps) in exchanged(prop_oneof![2 => Just(Mode::Full), 1 => Just(Mode::Enforce)]),
    ) {
        let mut rig = Rig::new((*policies[0]).clone());
        let (mut checker, mut partial) = (Checker::default(), Vec::new());
        let (mut talk, mut wanted) = (Talk::default(), &policies[0]);
        for (turn, step) in steps {
            // The same policy may be set again, because a change to or from `observe` waits until no call is open.
            wanted = policies.get(usize::from(turn) % 5).unwrap_or(wanted);
            take(&mut rig, wanted);
            play(&mut rig, &mut talk, &[step], |rig, text| {
                hear(rig, &mut checker, &mut partial);
                checker.client_said(text);
            });
        }
        rig.resume();
        rig.pass(AGES);
        hear(&mut rig, &mut checker, &mut partial);
    }

    /// Each message of the server gets exactly one verdict, even if policies change to and from `observe`.
    #[test]
    fn exchanging_policies_loses_no_message((policies, steps) in exchanged(any_mode())) {
        let mut rig = Rig::new((*policies[0]).clone());
        let (mut talk, mut wanted) = (Talk::default(), &policies[0]);
        for (turn, step) in steps {
            // The same policy may be set again, because a change to or from `observe` waits until no call is open.
            wanted = policies.get(usize::from(turn) % 5).unwrap_or(wanted);
            take(&mut rig, wanted);
            play(&mut rig, &mut talk, &[step], |_, _| {});
        }
        rig.resume();
        rig.gone();
        rig.pass(AGES);
        assert_one_verdict_each(&rig);
        assert_pieces_stand_together(&rig.told);
    }
}

fn quick() -> Policy {
    let mut policy = Policy::default();
    policy.call.pacing = Pacing::IMMEDIATE;
    policy.call.min_interval = Duration::ZERO;
    policy.call.heartbeat.enabled = false;
    policy
}

fn with(change: impl FnOnce(&mut Policy)) -> Arc<Policy> {
    let mut policy = quick();
    change(&mut policy);
    Arc::new(policy)
}

fn open(rig: &mut Rig, id: u8) {
    rig.client(call_of("t", id, format!(r#""t{id}""#)).as_bytes());
}

fn answer(rig: &mut Rig, id: u8) {
    rig.server(result(id).as_bytes());
}

fn progress(rig: &mut Rig, id: u8, more: &str) {
    let params = format!(r#"{{"progressToken":"t{id}",{more}}}"#);
    rig.server(notification("notifications/progress", params).as_bytes());
}

/// Returns the messages that the client got since the last call.
fn told(rig: &mut Rig) -> Vec<Value> {
    let texts = rig.told.drain(..).map(|transmit| transmit.payload.to_bytes());
    texts.map(|text| serde_json::from_slice(&text).unwrap()).collect()
}

#[test]
fn a_call_keeps_its_scale_and_the_next_has_the_new_one() {
    let mut rig = Rig::new(quick());
    take(&mut rig, &with(|policy| policy.call.scale = Some(Scale::Percent)));
    open(&mut rig, 1);
    take(&mut rig, &with(|policy| policy.call.scale = Some(Scale::Of(7.0))));
    open(&mut rig, 2);
    for id in [1, 2] {
        progress(&mut rig, id, r#""progress":3"#);
    }
    let totals: Vec<f64> =
        told(&mut rig).iter().map(|said| said["params"]["total"].as_f64().unwrap()).collect();
    assert_eq!(totals, [100.0, 7.0]);
}

#[test]
fn a_call_keeps_its_heartbeats() {
    let beats = |after| {
        with(|policy| {
            policy.call.heartbeat.enabled = true;
            policy.call.heartbeat.after = Duration::from_secs(after);
            policy.call.heartbeat.every = Duration::from_secs(1000);
        })
    };
    let mut rig = Rig::new(quick());
    take(&mut rig, &beats(5));
    open(&mut rig, 1);
    take(&mut rig, &beats(1));
    open(&mut rig, 2);
    take(&mut rig, &with(|_| {}));
    open(&mut rig, 3);
    let tokens = |rig: &mut Rig, seconds| -> Vec<Value> {
        rig.pass(Duration::from_secs(seconds));
        told(rig).iter().map(|said| said["params"]["progressToken"].clone()).collect()
    };
    assert_eq!(tokens(&mut rig, 2), ["t2"]);
    assert_eq!(tokens(&mut rig, 4), ["t1"]);
    assert_eq!(tokens(&mut rig, 100), [Value::Null; 0]);
}

#[test]
fn a_call_keeps_its_way_of_joining_messages() {
    let mut rig = Rig::new(quick());
    take(&mut rig, &with(|policy| policy.call.messages = Messages::Append));
    open(&mut rig, 1);
    take(&mut rig, &with(|_| {}));
    open(&mut rig, 2);
    for (figure, words) in [(1, "a"), (2, "b")] {
        for id in [1, 2] {
            progress(&mut rig, id, &format!(r#""progress":{figure},"message":"{words}""#));
        }
    }
    let words: Vec<Value> =
        told(&mut rig).iter().map(|said| said["params"]["message"].clone()).collect();
    assert_eq!(words, ["a", "a", "ab", "b"]);
}

#[test]
fn a_dialect_is_read_as_long_as_a_call_goes_by_it() {
    let mut rig = Rig::new(quick());
    take(
        &mut rig,
        &with(|policy| {
            policy.call.dialects = dialect::ALL.to_vec();
            policy.call.dialects.retain(|known| known.name() == "tools-progress");
        }),
    );
    open(&mut rig, 1);
    take(&mut rig, &with(|policy| policy.call.dialects.retain(|known| known.name() == "standard")));
    open(&mut rig, 2);
    let foreign =
        br#"{"jsonrpc":"2.0","method":"tools/progress","params":{"toolCallId":"t1","progress":5}}"#;
    rig.server(foreign);
    progress(&mut rig, 2, r#""progress":1"#);
    let said = told(&mut rig);
    let methods: Vec<&str> = said.iter().map(|said| said["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["notifications/progress"; 2], "{said:?}");
    // The new call gets only standard progress, and the old call only progress of the other dialect.
    progress(&mut rig, 1, r#""progress":7"#);
    assert_eq!(told(&mut rig).len(), 1, "as it came: no dialect of this call claims it");
    answer(&mut rig, 1);
    told(&mut rig);
    rig.server(foreign);
    let said = told(&mut rig);
    assert_eq!(said[0]["method"], "tools/progress", "no call goes by this dialect any more");
}

#[test]
fn answers_are_mended_as_their_calls_want_it() {
    let mut rig = Rig::new(quick());
    open(&mut rig, 1);
    take(&mut rig, &with(|policy| policy.call.answers.error_shape = false));
    open(&mut rig, 2);
    for id in [1, 2] {
        rig.server(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"no"}}"#).as_bytes());
    }
    let said = told(&mut rig);
    assert!(said[0]["error"].is_object() && said[1]["error"].is_string(), "{said:?}");
}

#[test]
fn observing_begins_when_no_call_is_open() {
    let mut rig = Rig::new(quick());
    open(&mut rig, 1);
    let observing = with(|policy| policy.call.mode = Mode::Observe);
    take(&mut rig, &observing);
    assert!(!rig.filter.calls().policy().observes());
    progress(&mut rig, 1, r#""progress":2"#);
    progress(&mut rig, 1, r#""progress":1"#);
    let figures: Vec<f64> =
        told(&mut rig).iter().map(|said| said["params"]["progress"].as_f64().unwrap()).collect();
    assert!(figures[0] < figures[1], "still repaired: {figures:?}");
    answer(&mut rig, 1);
    take(&mut rig, &observing);
    assert!(rig.filter.calls().policy().observes());
    open(&mut rig, 2);
    told(&mut rig);
    progress(&mut rig, 2, r#""progress":2"#);
    progress(&mut rig, 2, r#""progress":1"#);
    let figures: Vec<f64> =
        told(&mut rig).iter().map(|said| said["params"]["progress"].as_f64().unwrap()).collect();
    assert_eq!(figures, [2.0, 1.0]);
}

#[test]
fn what_is_a_connections_stays() {
    let mut rig = Rig::new(Policy { id_mapping: true, ..quick() });
    take(&mut rig, &with(|policy| policy.call.token_is = Some(TokenIs::RequestId)));
    assert!(rig.filter.calls().policy().id_mapping);
    let sent = rig.client(br#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#);
    assert!(!String::from_utf8_lossy(&sent).contains(r#""x""#), "ids are still exchanged");
}

#[test]
fn policies_that_no_call_needs_are_forgotten_and_too_many_are_not_taken() {
    let mut rig = Rig::new(quick());
    for id in 0..100 {
        take(&mut rig, &with(|policy| policy.call.scale = Some(Scale::Of(f64::from(id) + 1.0))));
        open(&mut rig, id);
    }
    // The first 65 calls each have their own policy. The other calls share the last policy that was accepted.
    for id in 0..100 {
        progress(&mut rig, id, r#""progress":0.5"#);
    }
    let total = |said: &Value| said["params"]["total"].as_f64().unwrap();
    let totals: Vec<f64> = told(&mut rig).iter().map(total).collect();
    assert_eq!(totals[..3], [1.0, 2.0, 3.0]);
    assert_eq!(totals[99], totals[80]);
    for id in 0..100 {
        answer(&mut rig, id);
    }
    let last = with(|policy| policy.call.scale = Some(Scale::Of(500.0)));
    take(&mut rig, &last);
    assert_eq!(rig.filter.calls().policy().call.scale, Some(Scale::Of(500.0)));
    assert!(
        !rig.verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Withheld(Reason::Unknown))
    );
}

/// Returns the cancellation that a client sends because its timer has expired for the request with this id.
fn given_up(id: u8) -> String {
    let params = format!(r#"{{"requestId":{id},"reason":"Request timed out"}}"#);
    notification("notifications/cancelled", params)
}

fn late(change: impl FnOnce(&mut Late)) -> Arc<Policy> {
    with(|policy| {
        policy.call.late.enabled = true;
        change(&mut policy.call.late);
    })
}

#[test]
fn the_work_of_an_open_call_goes_on_as_its_settings_say_whatever_they_are_now() {
    let ignore = || vec!["/at".to_owned()];
    let begins = late(|late| late.ignore = ignore());
    for now in [with(|_| ()), late(|_| ()), late(|late| late.bytes = 1)] {
        let mut rig = Rig::new((*begins).clone());
        let asks = |id: u8, at: u8| {
            let call = call_of("t", id, format!(r#""t{id}""#));
            call.replace(r#""arguments":{}"#, &format!(r#""arguments":{{"at":{at}}}"#))
        };
        rig.client(asks(1, 1).as_bytes());
        take(&mut rig, &now);
        assert!(rig.client(given_up(1).as_bytes()).is_empty(), "the cancellation is kept");
        rig.server(result(1).as_bytes());
        assert!(rig.told_bytes().is_empty(), "the client does not wait");
        // The argument that differs is one that the first call's settings allow to differ.
        assert!(rig.client(asks(2, 2).as_bytes()).is_empty(), "the call joins");
        assert_eq!(rig.told_bytes(), result(2).as_bytes());
        // A new call uses the new settings.
        rig.client(asks(3, 3).as_bytes());
        let kept = rig.client(given_up(3).as_bytes()).is_empty();
        assert_eq!(kept, now.call.late.enabled);
    }
}

#[test]
fn a_call_that_began_without_late_answers_is_cancelled() {
    let mut rig = Rig::new(quick());
    open(&mut rig, 1);
    take(&mut rig, &late(|_| ()));
    assert_eq!(rig.client(given_up(1).as_bytes()), given_up(1));
}

#[test]
fn tools_that_were_listed_before_a_change_of_settings_may_destroy_something() {
    let mut rig = Rig::new(quick());
    let lists = |rig: &mut Rig, id: u8| {
        rig.client(request(id, "tools/list", "{}").as_bytes());
        rig.server(messages::answer(id, r#"{"tools":[{"name":"t","inputSchema":{}}]}"#).as_bytes());
    };
    lists(&mut rig, 7);
    take(&mut rig, &late(|_| ()));
    open(&mut rig, 1);
    assert_eq!(rig.client(given_up(1).as_bytes()), given_up(1), "nothing is known of the tool");
    lists(&mut rig, 8);
    open(&mut rig, 2);
    assert!(rig.client(given_up(2).as_bytes()).is_empty());
}
