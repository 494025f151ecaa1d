//! Faults of servers that are children.

use std::thread;

use serde_json::json;

use super::scene::Scene;
use crate::http::serve::proxy::Start;
use crate::pairs::server::Server;
use crate::pairs::{Pair, Transport};
use crate::support::session::signal;
use crate::support::{runs, until};

/// Before children that run this Python first.
fn before(client: Transport, first: &str) -> Pair {
    Pair::started(client, Server::child(first), "", &Start::default())
}

/// A child ends in the middle of a call, with this code.
fn exits_with(client: Transport, code: u8) {
    let mut pair = before(client, &format!("code = {code}"));
    let (mut scene, call) = Scene::begin(&mut pair);
    call.line.close();
    scene.call_fails();
    scene.other_goes_on();
    if scene.one.wrap().is_some() {
        assert_eq!(scene.one.code(), Some(i32::from(code)));
    }
    scene.end_after_death();
}

pub(super) fn exits_with_0(client: Transport, _: Transport) {
    exits_with(client, 0);
}

pub(super) fn exits_with_1(client: Transport, _: Transport) {
    exits_with(client, 1);
}

/// A child ends by SIGSEGV.
pub(super) fn crashes(client: Transport, _: Transport) {
    let mut pair = before(client, "");
    let (mut scene, call) = Scene::begin(&mut pair);
    signal("SEGV", scene.pair.server.pid(call.session).unwrap());
    scene.call_fails();
    scene.other_goes_on();
    scene.end_after_death();
}

/// A child says that nothing more will come, and goes on.
pub(super) fn closes_its_output(client: Transport, _: Transport) {
    let closes = "signal.signal(signal.SIGUSR1, lambda *_: os.close(1))";
    let mut pair = before(client, closes);
    let (mut scene, call) = Scene::begin(&mut pair);
    signal("USR1", scene.pair.server.pid(call.session).unwrap());
    scene.call_fails();
    scene.other_goes_on();
    scene.end_after_death();
}

/// A child that does not read can still write, and gets all messages once it reads.
pub(super) fn reads_nothing(pair: &mut Pair) {
    let (mut scene, call) = Scene::begin(pair);
    scene.pair.server.set_deaf(Some(call.session));
    let text = "x".repeat(1 << 20);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": text}});
    thread::scope(|scope| {
        let (one, other) = (&mut scene.one, &mut scene.other);
        let says = scope.spawn(move || {
            for _ in 0..6 {
                one.say(&note);
            }
        });
        other.hears_nothing(&mut scene.pair.server, 7);
        scene.pair.server.set_deaf(None);
        says.join().unwrap();
    });
    for _ in 0..6 {
        scene.pair.server.hear("notifications/x");
    }
    scene.other_goes_on();
    scene.call_succeeds(&call);
    scene.end();
}

/// A child that has been asked to end but does not end.
pub(super) fn ignores_sigterm(client: Transport, _: Transport) {
    let ignores = "signal.signal(signal.SIGTERM, signal.SIG_IGN)";
    let mut pair = before(client, ignores);
    let (mut scene, call) = Scene::begin(&mut pair);
    scene.other_goes_on();
    scene.call_succeeds(&call);
    scene.one.leave();
    let pid = scene.pair.server.pid(call.session).unwrap();
    until("the child is killed", || !runs(pid));
    scene.end_without_one();
}

/// A child has started a process in a session of its own, for which no process waits.
pub(super) fn leaves_a_grandchild(client: Transport, _: Transport) {
    let folder = tempfile::tempdir().unwrap();
    let forks = format!(
        r#"
if not os.fork():
    os.setsid()
    far = os.fork()
    if far:
        open({:?} + "/%d" % far, "w").close()
        os._exit(0)
    os.execvp("sleep", ["sleep", "600"])
os.wait()
"#,
        folder.path()
    );
    let mut pair = before(client, &forks);
    let (mut scene, call) = Scene::begin(&mut pair);
    let names = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let pids: Vec<u32> = names.map(|name| name.to_str().unwrap().parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| runs(*pid)));
    scene.call_succeeds(&call);
    scene.other_goes_on();
    scene.end();
    until("no grandchild runs", || !pids.iter().any(|pid| runs(*pid)));
}
