//! Faults of servers of every transport.

use super::scene::Scene;
use crate::pairs::Transport::{self, Http, Sse, Stdio};
use crate::pairs::{Pair, cells};

/// Half of a message, as a line and as an event.
const HALF: [&str; 2] = [
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"ha"#,
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"ha",
];

/// A child is killed, a connection reset, before anything of the answer.
pub(super) fn dies_before_its_answer(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin_silent(pair);
    scene.pair.server.kill(call);
    scene.call_fails();
    scene.other_goes_on();
    scene.end_after_death();
}

/// The end within a message.
pub(super) fn dies_in_an_event(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    call.line.say_piece(HALF[0], HALF[1]);
    call.line.close();
    scene.call_fails();
    scene.other_goes_on();
    scene.end_after_death();
}

/// The end within a chunk, and within a character.
pub(super) fn dies_in_a_chunk(pair: &mut Pair) {
    let server = pair.server.transport();
    let (mut scene, call) = Scene::begin(pair);
    let announced = if server == Stdio { "" } else { "fff\r\n" };
    let half = if server == Stdio { HALF[0] } else { HALF[1] };
    call.line.raw(&[announced.as_bytes(), half.as_bytes(), b"\xC3"].concat());
    call.line.close();
    scene.call_fails();
    scene.other_goes_on();
    scene.end_after_death();
}

/// The response ends after a complete message, without the last chunk.
pub(super) fn dies_between_events(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    call.progress(2, 9);
    scene.one.hear_progress(scene.stream, "t");
    call.line.close();
    scene.call_fails();
    scene.other_goes_on();
    scene.end_after_death();
}

/// The same of a process that is killed, and of a connection that is reset.
pub(super) fn is_killed_between_events(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    call.progress(2, 9);
    scene.one.hear_progress(scene.stream, "t");
    scene.pair.server.kill(call);
    scene.call_fails();
    scene.other_goes_on();
    scene.end_after_death();
}

/// The answer of a child lacks only its line feed: it is forwarded. An event without its empty line is dropped.
pub(super) fn dies_after_the_text_of_its_answer(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    let answer = call.result("done").to_string();
    call.line.say_piece(&answer, &format!("data: {answer}\n"));
    call.line.close();
    match scene.pair.server.transport() {
        Stdio => scene.one.hear_result(scene.stream, 1, "done"),
        Http | Sse => scene.call_fails(),
    }
    scene.other_goes_on();
    scene.end_after_death();
}

/// The server of all clients has ended and cannot be restarted.
pub(super) fn is_gone_for_good(client: Transport, server: Transport) {
    cells::death(Pair::new(client, server));
}

/// The server sends lines and events that are not messages.
pub(super) fn says_garbage(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    call.line.say_piece("{]\n\u{0}\u{1}\u{fffd}\n", "data: {]\n\nbad\u{0}: \u{1}\n\n: {}\n\n");
    call.progress(2, 9);
    // Text that is not a message may be forwarded.
    let mut told = scene.one.hear();
    if told.text() == "{]" {
        told = scene.one.hear();
    }
    assert_eq!(told.json()["params"]["progress"], 2, "{told:?}");
    scene.other_goes_on();
    scene.call_succeeds(&call);
    scene.end();
}

/// An answer in pieces of a byte.
pub(super) fn answers_byte_for_byte(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    call.line.say_slowly(&call.progress_message(2, 9));
    scene.one.hear_progress(scene.stream, "t");
    scene.other_goes_on();
    call.line.say_slowly(&call.result("done"));
    call.end();
    scene.one.hear_result(scene.stream, 1, "done");
    scene.one.hears_nothing(&mut scene.pair.server, 2);
    scene.end();
}

/// A page in the place of an answer: clients of the same transport are given the page itself.
pub(super) fn answers_with_another_type(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin_silent(pair);
    call.line.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 15\r\nconnection: close\r\n\r\n\
          <html>Hi</html>",
    );
    match scene.pair.client {
        Http => scene.one.hear_end(scene.stream),
        Stdio | Sse => scene.call_fails(),
    }
    scene.other_goes_on();
    scene.end_after_death();
}
