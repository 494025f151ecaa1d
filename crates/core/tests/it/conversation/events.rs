//! Events that the program does not take.

use std::time::Instant;

use milepost_core::conversation::{Conversation, ConversationEvent, EVENTS_MAX, NOISE_MAX, Output};
use milepost_core::progress::Policy;

fn events(conversation: &mut Conversation) -> Vec<ConversationEvent> {
    let next = || match conversation.poll() {
        Output::Event(event) => Some(Some(event)),
        Output::Timeout(_) => None,
        _ => Some(None),
    };
    std::iter::from_fn(next).flatten().collect()
}

#[test]
fn are_bounded_in_number_and_the_oldest_is_dropped() {
    let (mut conversation, now) = (Conversation::new(Policy::default()), Instant::now());
    for number in 0..2 * EVENTS_MAX {
        conversation.server(now, format!("line {number}\n").as_bytes());
    }
    let events = events(&mut conversation);
    assert!(events.len() <= EVENTS_MAX + 2, "{}", events.len());
    let ConversationEvent::Lost(lost) = events[0] else { panic!("{:?}", events[0]) };
    assert!(lost as usize >= EVENTS_MAX, "{lost}");
    let last = format!("line {}\n", 2 * EVENTS_MAX - 1);
    assert!(events.contains(&ConversationEvent::Noise(last.into())));
}

#[test]
fn are_bounded_in_bytes() {
    let (mut conversation, now) = (Conversation::new(Policy::default()), Instant::now());
    let line = "x".repeat(NOISE_MAX / 4) + "\n";
    for _ in 0..9 {
        conversation.server(now, line.as_bytes());
    }
    let events = events(&mut conversation);
    let noise = |event: &&ConversationEvent| matches!(event, ConversationEvent::Noise(_));
    assert_eq!(events.iter().filter(noise).count(), 3);
    assert!(matches!(events[0], ConversationEvent::Lost(_)));
}

#[test]
fn a_conversation_that_has_not_begun_has_nothing_to_do() {
    assert_eq!(Conversation::new(Policy::default()).poll(), Output::Timeout(None));
}
