//! Faults of clients of every transport.

use std::thread;

use super::scene::Scene;
use crate::pairs::Transport::{Http, Sse};
use crate::pairs::server::Heard;
use crate::pairs::{Pair, client::Client};

/// Bytes of an answer that is read late.
const LARGE: usize = 4 << 20;

/// The end of a client's session reaches its server, whose later messages reach no client.
#[track_caller]
fn end(mut scene: Scene<'_>, call: Option<Heard>) {
    if let Some(call) = call {
        call.progress(2, 9);
        call.answer("to nobody");
    }
    scene.other_goes_on();
    match (scene.pair.client, scene.pair.server.transport()) {
        // The session of such a client ends with its server, or after the idle timeout.
        (Http, Http | Sse) => scene.end_with_session_of_one(),
        _ => {
            scene.pair.server.hear_end(scene.one.session);
            scene.pair.server.close(scene.one.session);
            scene.end_without_one();
        }
    }
}

/// A client is gone in the middle of a call.
pub(super) fn leaves_in_a_call(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    scene.one.vanish();
    end(scene, Some(call));
}

/// A client is gone that waits for nothing.
pub(super) fn leaves_while_idle(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    scene.call_succeeds(&call);
    scene.one.vanish();
    end(scene, None);
}

/// The connections of a client are reset in the middle of a call.
pub(super) fn breaks_off(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    scene.one.reset();
    end(scene, Some(call));
}

/// A client that does not read does not delay other clients, and gets all messages once it reads.
pub(super) fn reads_late(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    scene.one.stall(true);
    let answer = call.result(&"x".repeat(LARGE)).to_string();
    let says = thread::spawn({
        let answer = answer.clone();
        move || {
            call.say_text(&answer);
            call.end();
        }
    });
    scene.other_goes_on();
    scene.one.stall(false);
    let told = scene.one.hear();
    assert!(told.text() == answer, "{} bytes", told.text().len());
    assert_eq!(told.stream, scene.stream);
    says.join().unwrap();
    scene.one.hears_nothing(&mut scene.pair.server, 2);
    scene.end();
}

/// A request in pieces of a byte.
pub(super) fn writes_byte_for_byte(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    let slow = |one: &mut Client| {
        one.say_slowly(
            r#"{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"slow","_meta":{"progressToken":"s"}}}"#,
        )
    };
    let stream = slow(&mut scene.one);
    let slow = scene.pair.server.hear("tools/call");
    slow.progress(1, 9);
    scene.one.hear_progress(stream, "s");
    scene.other_goes_on();
    slow.answer("slow");
    let told = scene.one.hear();
    assert_eq!((told.stream, &told.json()["id"]), (stream, &"s".into()));
    scene.call_succeeds(&call);
    scene.end();
}
