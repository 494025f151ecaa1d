//! Panics in the engine. They are provoked by times that no clock can reach: adding [`Duration::MAX`] to the time of an
//! input panics in the standard library.

use std::time::Duration;

use milepost_core::conversation::ConversationEvent;
use milepost_core::progress::{FilterEvent, Policy, Reason, StreamId, StreamKind, Verdict};
use milepost_core::protocol::lines::INSPECT_MAX;

use super::rig::{Embedded, answer, call, legacy, progress};

const SECOND: Duration = Duration::from_secs(1);

/// Returns a policy with which the engine panics when it writes an answer after progress.
fn panics_behind_progress() -> Policy {
    let mut policy = Policy::default();
    policy.call.pacing.guard = Duration::MAX;
    policy
}

fn has_failed(embedded: &Embedded) -> bool {
    embedded.events.contains(&ConversationEvent::Failed)
}

/// Waiting messages are written once and in order, and later messages are forwarded unchanged.
#[test]
fn ends_the_repairs_and_not_the_conversation() {
    let mut embedded = Embedded::new(panics_behind_progress());
    embedded.client(&(call(1) + "\n" + &call(2) + "\n"));
    embedded.pass(SECOND);
    embedded.server(&(legacy(1, 40) + "\n"));
    embedded.pass(SECOND);
    assert!(embedded.told(0).contains("notifications/progress") && !has_failed(&embedded));
    let strange = r#"{"jsonrpc":"2.0","id":"2","result":{}}"#;
    embedded.server(&format!("{}\n{strange}\n{}\n", answer(1), legacy(2, 10)));
    embedded.pass(SECOND);
    assert!(has_failed(&embedded), "{:?}", embedded.events);
    // The id of the second answer was either repaired before the panic, or is unchanged.
    let told = embedded.told(0);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0] == answer(1) && lines[1].contains("\"result\":{}"), "{told}");
    embedded.asked(StreamId(0));
    embedded.client(&(call(3) + "\n"));
    assert_eq!(embedded.asked(StreamId(0)), call(3) + "\n");
    embedded.server(&(legacy(3, 5) + "\n" + &progress(3, 7) + "\n" + &answer(3) + "\n"));
    embedded.pass(60 * SECOND);
    assert_eq!(embedded.told(0), answer(3) + "\n");
    let withheld = |event: &&ConversationEvent| {
        matches!(
            event,
            ConversationEvent::Decision(FilterEvent::Message {
                verdict: Verdict::Withheld(Reason::FailedOpen),
                ..
            })
        )
    };
    assert!(embedded.events.iter().filter(withheld).count() >= 2, "{:?}", embedded.events);
    let failures = embedded.events.iter().filter(|event| **event == ConversationEvent::Failed);
    assert_eq!(failures.count(), 1);
}

#[test]
fn over_a_message_of_the_client_loses_nothing() {
    let mut policy = Policy::default();
    policy.call.call_timeout = Some(Duration::MAX);
    let mut embedded = Embedded::new(policy);
    embedded.client(&(call(1) + "\n"));
    embedded.pass(SECOND);
    assert!(has_failed(&embedded), "{:?}", embedded.events);
    assert_eq!(embedded.asked(StreamId(0)), call(1) + "\n");
    embedded.server(&(answer(1) + "\n"));
    assert_eq!(embedded.told(0), answer(1) + "\n");
}

#[test]
fn lets_long_lines_pass_whole() {
    let mut embedded = Embedded::new(panics_behind_progress());
    embedded.client(&(call(1) + "\n"));
    embedded.pass(SECOND);
    embedded.server(&(legacy(1, 40) + "\n"));
    embedded.pass(SECOND);
    embedded.told(0);
    let pad = "x".repeat(INSPECT_MAX);
    let large =
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"pad":"{pad}"}}}}"#) + "\n";
    let text = large.clone() + &large;
    for piece in text.as_bytes().chunks(1 << 20) {
        embedded.put(|conversation, now| conversation.server(now, piece));
    }
    embedded.pass(SECOND);
    assert!(has_failed(&embedded), "{:?}", embedded.events);
    assert!(embedded.told(0) == text);
}

#[test]
fn over_http_leaves_each_message_on_its_stream() {
    let mut policy = Policy::default();
    policy.call.call_timeout = Some(Duration::MAX);
    let mut embedded = Embedded::new(policy);
    embedded.put(|conversation, now| conversation.open(now, StreamId(1), StreamKind::Shared));
    for id in [10, 11] {
        let stream = StreamId(id);
        embedded.put(|conversation, now| conversation.open(now, stream, StreamKind::Exchange));
        embedded.put(|conversation, now| {
            conversation.client_message(now, stream, call(id).into());
        });
        assert_eq!(embedded.asked(stream), call(id));
    }
    assert!(has_failed(&embedded), "{:?}", embedded.events);
    for id in [11, 10] {
        let stream = StreamId(id);
        embedded.put(|conversation, now| {
            conversation.server_message(now, stream, progress(id, 1).into());
        });
        embedded.put(|conversation, now| {
            conversation.server_message(now, stream, answer(id).into());
        });
        assert_eq!(embedded.told(id), answer(id));
        assert!(!embedded.conversation.is_over(stream));
        embedded.put(|conversation, now| conversation.response_ended(now, stream));
        assert!(embedded.conversation.is_over(stream));
        embedded.put(|conversation, now| conversation.end(now, stream));
    }
}
