//! Faults of Milepost itself and of its machine.

use std::process::Command;
use std::sync::Arc;

use serde_json::json;

use super::machine::Machine;
use super::scene::{Scene, check_error};
use crate::http::serve::proxy::{Proxy, Start};
use crate::pairs::Pair;
use crate::pairs::Transport::{self, Http, Sse, Stdio};
use crate::pairs::client::HOME;
use crate::pairs::server::Server;
use crate::support::exchange::Exchange;
use crate::support::session::signal;
use crate::support::{runs, until};

/// After Milepost is killed, no child, no connection and no waiting client is left. Another `wrap` continues.
pub(super) fn is_killed(client: Transport, server: Transport) {
    let mut pair = Pair::new(client, server);
    let (mut scene, call) = Scene::begin(&mut pair);
    let pids = [&scene.one, &scene.other].map(|client| scene.pair.server.pid(client.session));
    match (&scene.pair.proxy, scene.one.wrap()) {
        (Some(proxy), _) => signal("KILL", proxy.pid()),
        (_, Some(wrap)) => signal("KILL", wrap.pid()),
        _ => unreachable!("one of both runs"),
    }
    scene.one.hear_end(scene.stream);
    if server != Http {
        scene.pair.server.hear_end(call.session);
    }
    if client == Stdio {
        until("the child is gone", || pids[0].is_none_or(|pid| !runs(pid)));
        scene.other_goes_on();
        return scene.end_without_one();
    }
    scene.other.hear_end(if client == Http { scene.stream } else { HOME });
    until("the children are gone", || !pids.iter().flatten().any(|pid| runs(*pid)));
}

/// Open calls to one server of Streamable HTTP.
const POSTS: u32 = 100;

/// After SIGTERM calls may finish for a while; then each that is open gets an error, and all streams end.
pub(super) fn is_terminated(client: Transport, server: Transport) {
    let calls: u32 = std::env::var("FAULTS_CALLS").map_or(20, |calls| calls.parse().unwrap());
    // Over HTTP+SSE further requests wait for a connection to such a server.
    let calls = if (client, server) == (Sse, Http) { calls.min(POSTS) } else { calls };
    // Time enough for the answers on a busy machine.
    let drain = format!("drain = \"{}s\"", 10 + calls / 50);
    let start = Start { server: &drain, ..Start::default() };
    let mut pair = Pair::started(client, Server::start(server), "", &start);
    let (mut scene, first) = Scene::begin(&mut pair);
    let mut heard = vec![first];
    let mut streams = vec![scene.stream];
    for id in 2..=calls {
        streams.push(scene.one.call(id, id));
        heard.push(scene.pair.server.hear("tools/call"));
    }
    let proxy = scene.pair.proxy.as_ref().unwrap();
    proxy.stop();
    for call in heard.iter().step_by(2) {
        call.answer("in time");
    }
    let mut answers = vec![None; calls as usize];
    for _ in 0..calls {
        let told = scene.one.hear();
        let message = told.json();
        let at = message["id"].as_u64().unwrap() as usize - 1;
        assert_eq!(told.stream, streams[at], "{told:?}");
        assert!(answers[at].replace(message).is_none(), "{told:?}");
    }
    for (at, answer) in answers.iter().flatten().enumerate() {
        match at % 2 {
            0 => assert_eq!(answer["result"]["content"][0]["text"], "in time"),
            _ => check_error(answer, &json!(at + 1)),
        }
    }
    let told = scene.other.hear();
    check_error(&told.json(), &json!(1));
    for client in [&mut scene.one, &mut scene.other] {
        client.hear_end(HOME);
    }
    let pids = [&scene.one, &scene.other].map(|client| scene.pair.server.pid(client.session));
    if server != Http {
        for session in [scene.one.session, scene.other.session] {
            scene.pair.server.hear_end(session);
            scene.pair.server.close(session);
        }
    }
    let proxy = scene.pair.proxy.take().and_then(Arc::into_inner);
    assert_eq!(proxy.map(|mut proxy: Proxy| proxy.code()), Some(Some(0)));
    until("no server runs", || !pids.iter().flatten().any(|pid| runs(*pid)));
}

/// A route file that cannot be used, and SIGHUP: everything goes on, for new clients too.
pub(super) fn reads_a_broken_file(client: Transport, server: Transport) {
    let mut pair = Pair::new(client, server);
    let (mut scene, call) = Scene::begin(&mut pair);
    let proxy = scene.pair.proxy.as_ref().unwrap();
    let good = std::fs::read_to_string(proxy.file()).unwrap();
    std::fs::write(proxy.file(), "[[route]]\npath = ").unwrap();
    proxy.hang_up();
    proxy.logged(&["ERROR", "the route file cannot be used"]);
    call.progress(2, 9);
    scene.one.hear_progress(scene.stream, "t");
    let mut new = scene.pair.client();
    new.hears_nothing(&mut scene.pair.server, 1);
    super::scene::leave(scene.pair, &mut new);
    std::fs::write(scene.pair.proxy.as_ref().unwrap().file(), good).unwrap();
    scene.other_goes_on();
    scene.call_succeeds(&call);
    scene.end();
}

/// On a machine that the test sets.
fn on(machine: &Machine, client: Transport, server: Transport) -> Pair {
    let variables = machine.variables();
    let start = Start { variables: &variables, ..Start::default() };
    Pair::started(client, Server::start(server), "", &start)
}

/// The log cannot be written, and calls are not affected. It is written again once the disk has space.
pub(super) fn cannot_log(client: Transport, server: Transport) {
    let machine = Machine::new();
    let mut pair = on(&machine, client, server);
    let (mut scene, call) = Scene::begin(&mut pair);
    machine.set_full(true);
    call.progress(2, 9);
    scene.one.hear_progress(scene.stream, "t");
    scene.other_goes_on();
    scene.call_succeeds(&call);
    machine.set_full(false);
    if let Some(proxy) = &scene.pair.proxy {
        let before = proxy.log().len();
        let stream = scene.one.call(3, "logged");
        scene.pair.server.hear("tools/call").answer("logged");
        scene.one.hear_result(stream, 3, "logged");
        until("the log goes on", || proxy.log().len() > before);
    }
    scene.end();
}

/// The wall clock is set by an hour, forward and back: no call and no session ends because of that.
pub(super) fn has_its_clock_set(client: Transport, server: Transport) {
    let machine = Machine::new();
    let mut pair = on(&machine, client, server);
    let (mut scene, call) = Scene::begin(&mut pair);
    for (progress, seconds) in [(2, 3600), (3, -3600), (4, 0)] {
        machine.set_clock(seconds);
        call.progress(progress, 9);
        scene.one.hear_progress(scene.stream, "t");
        scene.one.hears_nothing(&mut scene.pair.server, progress);
    }
    scene.other_goes_on();
    machine.set_clock(3600);
    scene.one.hears_nothing(&mut scene.pair.server, 5);
    call.answer("done");
    scene.one.hear_result(scene.stream, 1, "done");
    scene.end();
}

/// Sets the soft limit of a process on its open files.
fn limit_files(pid: u32, files: usize) {
    let mut prlimit = Command::new("prlimit");
    let status = prlimit.args([format!("--pid={pid}"), format!("--nofile={files}:")]).status();
    assert!(status.unwrap().success());
}

/// The process has no free descriptors: calls that have their descriptors continue, and others continue once
/// descriptors are free.
pub(super) fn has_no_descriptors(client: Transport, server: Transport) {
    let mut pair = Pair::new(client, server);
    let (mut scene, call) = Scene::begin(&mut pair);
    let pid = match (&scene.pair.proxy, scene.one.wrap()) {
        (Some(proxy), _) => proxy.pid(),
        (_, Some(wrap)) => wrap.pid(),
        _ => unreachable!("one of both runs"),
    };
    let files = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let highest = files().filter_map(|file| file.file_name().to_str()?.parse::<usize>().ok()).max();
    // Free descriptors below the highest are used up first.
    limit_files(pid, highest.unwrap() + 1);
    let more = scene.pair.proxy.iter().flat_map(|proxy| {
        (0..100).map(|_| Exchange::send(proxy.address(), "GET", "/none", &[], ""))
    });
    let mut more: Vec<_> = more.collect();
    call.progress(2, 9);
    scene.one.hear_progress(scene.stream, "t");
    limit_files(pid, 1000);
    for mut exchange in more.drain(..) {
        assert_eq!(exchange.status(), 404);
    }
    scene.other_goes_on();
    scene.call_succeeds(&call);
    scene.end();
}
