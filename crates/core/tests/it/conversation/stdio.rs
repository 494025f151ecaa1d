//! Conversations in lines.

use std::time::Duration;

use milepost_core::conversation::ConversationEvent;
use milepost_core::progress::{Policy, StreamId};
use milepost_core::protocol::lines::INSPECT_MAX;

use super::rig::{Embedded, answer, call, legacy};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn progress_of_a_legacy_server_is_mended() {
    let mut embedded = Embedded::new(Policy::default());
    embedded.client(&(call(1) + "\n"));
    assert_eq!(embedded.asked(StreamId(0)), call(1) + "\n");
    embedded.pass(SECOND);
    embedded.server(&(legacy(1, 40) + "\n"));
    embedded.pass(SECOND);
    let told = embedded.told(0);
    assert!(told.contains(r#""method":"notifications/progress""#), "{told}");
    assert!(told.contains(r#""progressToken":"t1""#) && told.ends_with("}\n"), "{told}");
    embedded.server(&(answer(1) + "\n"));
    embedded.pass(SECOND);
    assert_eq!(embedded.told(0), answer(1) + "\n");
}

/// The answer waits until the progress before it has been written, and until the client has had time to read it.
#[test]
fn an_answer_keeps_its_distance_from_progress() {
    let mut embedded = Embedded::new(Policy::default());
    embedded.client(&(call(1) + "\n"));
    embedded.pass(SECOND);
    embedded.server(&(legacy(1, 40) + "\n"));
    embedded.pass(Duration::from_millis(30));
    assert!(embedded.told(0).contains("notifications/progress"));
    embedded.server(&(answer(1) + "\n"));
    assert_eq!(embedded.told(0), "");
    embedded.pass(Duration::from_millis(49));
    assert_eq!(embedded.told(0), "");
    embedded.pass(Duration::from_millis(1));
    assert_eq!(embedded.told(0), answer(1) + "\n");
}

#[test]
fn text_that_is_no_message_is_an_event() {
    let mut embedded = Embedded::new(Policy::default());
    embedded.server("Server listening on 3000\n");
    assert_eq!(embedded.told(0), "");
    let noise = ConversationEvent::Noise("Server listening on 3000\n".into());
    assert!(embedded.events.contains(&noise), "{:?}", embedded.events);
}

#[test]
fn a_line_that_is_too_long_to_be_held_passes_in_pieces() {
    let mut embedded = Embedded::new(Policy::default());
    let pad = "x".repeat(INSPECT_MAX);
    let request =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"pad":"{pad}"}}}}"#);
    let response = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"pad":"{pad}"}}}}"#);
    for piece in (request.clone() + "\n").as_bytes().chunks(100_000) {
        embedded.put(|conversation, now| conversation.client(now, piece));
    }
    assert!(embedded.asked(StreamId(0)) == request + "\n");
    for piece in (response.clone() + "\n").as_bytes().chunks(100_000) {
        embedded.put(|conversation, now| conversation.server(now, piece));
    }
    assert!(embedded.told(0) == response + "\n");
}

/// A message of the engine itself waits until the client's unfinished line has ended.
#[test]
fn nothing_stands_within_a_long_line_for_the_server() {
    let mut policy = Policy::default();
    policy.call.call_timeout = Some(SECOND);
    let mut embedded = Embedded::new(policy);
    embedded.client(&(call(1) + "\n"));
    let pad = "x".repeat(INSPECT_MAX);
    let request = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"x","params":{{"pad":"{pad}"}}}}"#);
    let (head, rest) = request.split_at(INSPECT_MAX + 10);
    embedded.client(head);
    embedded.pass(2 * SECOND);
    embedded.client(&format!("{rest}\n"));
    let sent: Vec<_> = embedded.to_server.iter().map(|(_, bytes)| bytes.clone()).collect();
    let sent = String::from_utf8(sent.concat()).unwrap();
    let lines: Vec<&str> = sent.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0] == call(1) && lines[1] == request);
    assert!(lines[2].contains("notifications/cancelled"), "{}", lines[2]);
}

#[test]
fn open_requests_get_an_error_when_the_server_ends() {
    let mut embedded = Embedded::new(Policy::default());
    embedded.client(&(call(1) + "\n"));
    embedded.server(r#"{"jsonrpc":"2.0","id":1,"res"#);
    embedded.put(|conversation, now| conversation.server_ended(now, "the server has exited"));
    let told = embedded.told(0);
    assert!(told.contains(r#""id":1"#) && told.contains("the server has exited"), "{told}");
    let rest = ConversationEvent::Noise(r#"{"jsonrpc":"2.0","id":1,"res"#.into());
    assert!(embedded.events.contains(&rest), "{:?}", embedded.events);
}

#[test]
fn the_last_line_of_a_client_needs_no_line_end() {
    let mut embedded = Embedded::new(Policy::default());
    embedded.client(&call(1));
    assert_eq!(embedded.asked(StreamId(0)), "");
    embedded.put(|conversation, now| conversation.client_ended(now));
    assert_eq!(embedded.asked(StreamId(0)), call(1) + "\n");
}
