//! Counts the heap allocations for one message in the core. The number does not depend on the machine.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost_core::progress::{
    ArrivedMessage, FastPath, Filter, FilterEvent, LateEvent, Origin, Policy, StreamId, StreamKind,
    StreamPacing,
};
use milepost_core::protocol::jsonrpc::Message;

const OWN: StreamId = StreamId(0);

/// Number of messages in each measurement.
const MESSAGES: u32 = 1000;

/// Returns a filter with one open call, on its own stream.
fn filter(start: Instant) -> Filter {
    let mut filter = Filter::new(Policy::default());
    filter.open_stream(OWN, StreamKind::Exchange, StreamPacing::Immediate);
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":7}}}"#;
    filter.client_message(start, OWN, &Message::parse(request.into()));
    filter
}

/// Takes everything that is due to be written to the client. Returns the number of messages.
fn drain(filter: &mut Filter, now: Instant) -> usize {
    let sent = std::iter::from_fn(|| filter.poll_transmit(now, OWN)).count();
    filter.written(now, OWN);
    while filter.poll_event().is_some() {}
    sent
}

/// Returns the average number of allocations per message. `text` writes the message with a number.
fn allocations(text: fn(&mut String, u32)) -> f64 {
    let mut now = Instant::now();
    let mut filter = filter(now);
    let mut line = String::with_capacity(1024);
    let mut sent = 0;
    let mut took = 0;
    for number in 0..MESSAGES + 10 {
        line.clear();
        text(&mut line, number + 1);
        let bytes = Bytes::copy_from_slice(line.as_bytes());
        now += Duration::from_secs(1);
        let counted = allocation_counter::measure(|| {
            let arrived = ArrivedMessage { text: &bytes, frame: &bytes, source: &bytes };
            match filter.intake_mut().fast_repair(now, OWN, arrived, |_| false) {
                FastPath::Unchanged | FastPath::Rewritten => sent += 1,
                FastPath::Kept => {}
                FastPath::NotTaken => {
                    filter.server_message(now, Origin::Stream(OWN), &Message::parse(bytes.clone()));
                }
            }
            sent += drain(&mut filter, now);
        });
        // The first messages are not counted, because they allocate the buffers for the others.
        took += if number < 10 { 0 } else { counted.count_total };
    }
    assert!(sent >= MESSAGES as usize, "{sent} messages");
    took as f64 / f64::from(MESSAGES)
}

#[test]
fn plain_progress_takes_no_allocation_of_its_own() {
    let each = allocations(|line, number| {
        write!(line, r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":7,"progress":{number},"total":5000,"message":"Step {number} of 5000"}}}}"#).unwrap();
    });
    assert!(each <= 0.01, "{each}");
}

#[test]
fn progress_with_an_invented_token_takes_few_allocations() {
    let each = allocations(|line, number| {
        write!(line, r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"mine","progress":{number},"total":5000,"message":"Step {number} of 5000"}}}}"#).unwrap();
    });
    assert!(each <= 3.5, "{each}");
}

#[test]
fn repaired_progress_takes_a_bounded_number_of_allocations() {
    let each = allocations(|line, number| {
        write!(line, r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"requestId":1,"progress":{number},"message":"Step {number}","isFinal":false}}}}"#).unwrap();
    });
    assert!(each <= 9.5, "{each}");
}

/// Returns the average number of allocations per call and answer. The calls are two seconds apart.
fn call_allocations(policy: Policy) -> f64 {
    let mut now = Instant::now();
    let mut filter = Filter::new(policy);
    filter.open_stream(OWN, StreamKind::Shared, StreamPacing::Immediate);
    let mut took = 0;
    for number in 0..MESSAGES + 10 {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"work","arguments":{{"path":"/srv","depth":4}},"_meta":{{"progressToken":{number}}}}}}}"#
        );
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"content":[]}}}}"#);
        let (call, answer) = (Bytes::from(call), Bytes::from(answer));
        let mut sent = 0;
        let counted = allocation_counter::measure(|| {
            filter.client_message(now, OWN, &Message::parse(call));
            now += Duration::from_secs(2);
            filter.server_message(now, Origin::Shared, &Message::parse(answer));
            sent = drain(&mut filter, now);
        });
        assert_eq!(sent, 1);
        took += if number < 10 { 0 } else { counted.count_total };
    }
    took as f64 / f64::from(MESSAGES)
}

#[test]
fn late_answers_and_tasks_that_are_off_take_no_allocation() {
    let off = call_allocations(Policy::default());
    // The allocations are for the call, its token, its record, and a share of the tables that contain them.
    assert!(off <= 6.0, "{off}");
    // Calls of a tool without late answers are not read, even if another tool has late answers.
    let mut policy = Policy::default();
    let mut other = policy.call.clone();
    (other.late.enabled, other.tasks.enabled) = (true, true);
    policy.tools.insert("other".to_owned(), other);
    assert_eq!(call_allocations(policy), off);
    let mut policy = Policy::default();
    policy.call.late.enabled = true;
    let on = call_allocations(policy);
    // With late answers, all parameters are read, so that they can be compared with those of another call.
    assert!(on > off && on <= off + 28.0, "{on} instead of {off}");
}

#[test]
fn answers_that_wait_take_no_more_memory_than_the_settings_allow() {
    const ROOM: usize = 8 << 20;
    const CALLS: usize = 100;
    let answer = |id: usize| {
        let text = "x".repeat(1 << 20);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":["{text}"]}}}}"#)
    };
    let mut policy = Policy::default();
    (policy.call.late.enabled, policy.call.late.bytes) = (true, ROOM);
    let now = Instant::now();
    let (mut kept, mut dropped) = (0, 0);
    let counted = allocation_counter::measure(|| {
        let mut filter = Filter::new(policy);
        filter.open_stream(OWN, StreamKind::Shared, StreamPacing::Immediate);
        for id in 0..CALLS {
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"work","arguments":{{"at":{id}}}}}}}"#
            );
            filter.client_message(now, OWN, &Message::parse(call.into()));
        }
        for id in 0..CALLS {
            let cancel = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"Request timed out"}}}}"#
            );
            filter.client_message(now, OWN, &Message::parse(cancel.into()));
        }
        for id in 0..CALLS {
            filter.server_message(now, Origin::Shared, &Message::parse(answer(id).into()));
            while let Some(event) = filter.poll_event() {
                if let FilterEvent::Late(news) = event {
                    kept += usize::from(news.event == LateEvent::Finished);
                    dropped += usize::from(news.event == LateEvent::Dropped);
                }
            }
        }
    });
    assert_eq!((kept, dropped), (7, CALLS - 7));
    // The test itself allocates its answers in addition to the kept bytes.
    let most = usize::try_from(counted.bytes_max).unwrap();
    assert!(most <= ROOM + (4 << 20), "{most} bytes");
}
