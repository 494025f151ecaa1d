//! Tests with a filter that panics. The panic is provoked by a time that no clock can reach: the sum of an instant and
//! [`Duration::MAX`].

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::progress::{StreamKind, StreamPacing, Verdict};

const WIRE: StreamId = StreamId(0);

fn message(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

fn told(guard: &mut FilterGuard, now: Instant) -> Vec<String> {
    let transmits = std::iter::from_fn(|| guard.poll_transmit(now, WIRE));
    let bytes = transmits.map(|transmit| transmit.payload.to_bytes());
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

#[test]
fn what_waits_is_forwarded_once_and_the_rest_as_it_comes() {
    let mut policy = Policy::default();
    policy.call.pacing.guard = Duration::MAX;
    let policy = Arc::new(policy);
    let mut filter = Filter::new(Arc::clone(&policy));
    filter.open_stream(WIRE, StreamKind::Shared, StreamPacing::ByCall);
    let mut guard = FilterGuard::new(filter, policy, WIRE);
    let mut now = Instant::now();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":"t"}}}"#;
    guard.client_message(now, WIRE, &message(call));
    now += Duration::from_secs(1);
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#;
    guard.server_message(now, Origin::Shared, &message(progress));
    now += Duration::from_secs(1);
    assert_eq!(told(&mut guard, now), [progress]);
    guard.apply(now, Input::MarkWritten(WIRE));
    // After progress, the answer waits for the guard time, which overflows any clock here.
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;
    guard.server_message(now, Origin::Shared, &message(answer));
    assert_eq!(told(&mut guard, now), [answer]);
    assert!(guard.try_with(|_| ()).is_none(), "the filter has not failed");
    while guard.poll_event().is_some() {}
    let second = r#"{"jsonrpc":"2.0","id":"1","result":{}}"#;
    for text in [progress, second] {
        guard.server_message(now, Origin::Shared, &message(text));
    }
    assert_eq!(told(&mut guard, now), [second]);
    let verdicts = std::iter::from_fn(|| guard.poll_event()).filter_map(|event| match event {
        FilterEvent::Message { verdict, .. } => Some(verdict),
        _ => None,
    });
    let expected = [Verdict::Withheld(Reason::FailedOpen), Verdict::Forwarded];
    assert_eq!(verdicts.collect::<Vec<_>>(), expected);
}

/// The rest of an answer that was being repaired no longer fits the part that its client has received: the object
/// around the error's text would not end.
#[test]
fn an_answer_that_was_being_repaired_breaks_off_and_another_goes_on() {
    let text = "x".repeat(10_000);
    let halves = |head: &str, tail: &str| (format!("{head}{text}"), format!("{text}{tail}"));
    let whole = halves(
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":""#,
        r#""}]}}"#,
    );
    let odd = halves(r#"{"jsonrpc":"2.0","id":1,"error":""#, r#""}"#);
    for ((first, rest), is_repaired) in [(whole, false), (odd, true)] {
        let mut policy = Policy::default();
        policy.call.pacing.guard = Duration::MAX;
        let policy = Arc::new(policy);
        let mut filter = Filter::new(Arc::clone(&policy));
        filter.open_stream(WIRE, StreamKind::Shared, StreamPacing::ByCall);
        let mut guard = FilterGuard::new(filter, policy, WIRE);
        let now = Instant::now();
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
        guard.client_message(now, WIRE, &message(call));
        let piece = |text: &str| (Bytes::copy_from_slice(text.as_bytes()), 0..text.len());
        let (head, place) = piece(&first);
        guard.begin_large(now, Origin::Shared, head, place);
        let begun = told(&mut guard, now).concat();
        assert_eq!(begun.contains(r#""error":{"code":-32603"#), is_repaired, "{begun}");
        fail(&mut guard);
        let (tail, place) = piece(&rest);
        guard.large_piece(now, Origin::Shared, tail, place);
        guard.finish_large(now, Origin::Shared, None);
        let ends: Vec<Transmit> = std::iter::from_fn(|| guard.poll_transmit(now, WIRE)).collect();
        if !is_repaired {
            let told: Vec<u8> = ends.iter().flat_map(|one| one.payload.to_bytes()).collect();
            assert_eq!(begun + &String::from_utf8(told).unwrap(), first + &rest);
            continue;
        }
        assert_eq!(ends[0], Transmit::broken());
        let error = String::from_utf8(ends[1].payload.to_bytes().to_vec()).unwrap();
        assert!(error.contains(r#""id":1,"error""#) && error.contains("was cut off"), "{error}");
        assert_eq!(ends.len(), 2, "the rest does not fit");
    }
}

/// Lets the filter fail.
fn fail(guard: &mut FilterGuard) {
    let panicked = guard.try_with(|_| -> () { panic!("an injected fault") });
    assert!(panicked.is_none());
}
