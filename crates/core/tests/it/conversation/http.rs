//! Conversations over HTTP: whole messages, each on its stream.

use std::time::Duration;

use milepost_core::progress::{Policy, StreamId, StreamKind};

use super::rig::{Embedded, answer, call, legacy, progress};

const SECOND: Duration = Duration::from_secs(1);

/// Returns a session with a GET stream, which has the number 1.
fn session() -> Embedded {
    let mut embedded = Embedded::new(Policy::default());
    embedded.put(|conversation, now| conversation.open(now, StreamId(1), StreamKind::Shared));
    embedded
}

/// Posts the client's call with this id, on the stream with the same number.
fn post(embedded: &mut Embedded, id: u64) {
    let stream = StreamId(id);
    embedded.put(|conversation, now| conversation.open(now, stream, StreamKind::Exchange));
    embedded.put(|conversation, now| conversation.client_message(now, stream, call(id).into()));
    assert_eq!(embedded.asked(stream), call(id));
}

fn server(embedded: &mut Embedded, stream: u64, text: String) {
    let stream = StreamId(stream);
    embedded.put(|conversation, now| conversation.server_message(now, stream, text.into()));
}

#[test]
fn progress_and_the_answer_go_to_the_response_of_their_request() {
    let mut embedded = session();
    post(&mut embedded, 10);
    post(&mut embedded, 11);
    server(&mut embedded, 11, legacy(11, 40));
    assert!(embedded.told(11).contains("notifications/progress"));
    server(&mut embedded, 11, answer(11));
    assert_eq!(embedded.told(11), answer(11));
    assert!(embedded.conversation.is_over(StreamId(11)));
    assert!(!embedded.conversation.is_over(StreamId(10)));
    embedded.put(|conversation, now| conversation.end(now, StreamId(11)));
    assert_eq!(embedded.told(10) + &embedded.told(1), "");
}

/// Servers of the Python SDK before 1.29 send progress on the GET stream.
#[test]
fn progress_on_the_get_stream_finds_its_request() {
    let mut embedded = session();
    post(&mut embedded, 10);
    server(&mut embedded, 1, progress(10, 40));
    let told = [embedded.told(1), embedded.told(10)];
    assert!(told.concat() == progress(10, 40), "{told:?}");
    server(
        &mut embedded,
        1,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.into(),
    );
    assert!(embedded.told(1).contains("list_changed"));
    assert!(!embedded.conversation.is_over(StreamId(1)));
    embedded.put(|conversation, now| conversation.response_ended(now, StreamId(1)));
    assert!(embedded.conversation.is_over(StreamId(1)));
}

/// A client whose response was interrupted reads the answer on the GET stream.
#[test]
fn an_answer_survives_the_end_of_its_stream() {
    let mut embedded = session();
    post(&mut embedded, 10);
    embedded.put(|conversation, now| conversation.end(now, StreamId(10)));
    server(&mut embedded, 10, answer(10));
    assert_eq!(embedded.told(1), answer(10));
}

#[test]
fn a_response_without_an_answer_is_over_with_its_end() {
    let mut embedded = session();
    post(&mut embedded, 10);
    assert!(!embedded.conversation.is_over(StreamId(10)));
    embedded.put(|conversation, now| conversation.response_ended(now, StreamId(10)));
    assert!(embedded.conversation.is_over(StreamId(10)));
}

#[test]
fn a_notification_needs_no_response() {
    let mut embedded = session();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    embedded.put(|conversation, now| conversation.open(now, StreamId(10), StreamKind::Exchange));
    embedded.put(|conversation, now| conversation.client_message(now, StreamId(10), note.into()));
    assert_eq!(embedded.asked(StreamId(10)), note);
    assert!(embedded.conversation.is_over(StreamId(10)));
}

/// A refused request has ended, so no heartbeat may be sent for it.
#[test]
fn a_refused_request_gets_no_heartbeat() {
    let mut embedded = session();
    post(&mut embedded, 10);
    embedded.put(|conversation, now| conversation.refused(now, call(10).into()));
    embedded.pass(60 * SECOND);
    assert_eq!(embedded.told(10), "");
    assert!(embedded.conversation.is_over(StreamId(10)));
}

#[test]
fn a_silent_call_gets_heartbeats_on_its_stream() {
    let mut embedded = session();
    post(&mut embedded, 10);
    embedded.pass(60 * SECOND);
    assert!(embedded.told(10).contains("notifications/progress"));
    assert_eq!(embedded.told(1), "");
}
