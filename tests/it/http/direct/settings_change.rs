//! Changed settings, and replaced servers, while calls, sessions and streams are open.

use crate::http::bridge::sessions::begin;
use crate::http::rig::{Rig, check, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

const EVENTS: [&str; 1] = ["Accept: text/event-stream"];

/// The route of a rig with these keys.
fn route(keys: &str) -> String {
    at("up.example", keys)
}

/// The same at another host.
fn at(host: &str, keys: &str) -> String {
    format!(
        "[[route]]\npath = \"/r\"\nupstream.url = \"http://{host}/base/mcp\"\n\
         upstream.sse = \"http://{host}/base/sse\"\n{keys}\n"
    )
}

fn lines(command: &str, keys: &str) -> String {
    format!("[[route]]\npath = \"/r\"\nupstream.command = [\"{command}\"]\n{keys}\n")
}

const QUIET: &str = "heartbeat.enabled = false\nmin_interval = \"0s\"\nfirst_after = \"0s\"\nhold = \"0s\"\nguard = \"0s\"\n";

fn scaled(total: u32) -> String {
    format!("{QUIET}scale = \"{total}\"")
}

/// Progress with the total that a route knows.
fn of_total(token: &str, figure: &str, total: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{figure},"total":{total}"#
    )
}

#[track_caller]
fn starts(text: Option<&String>, beginning: &str) {
    assert!(text.is_some_and(|text| text.starts_with(beginning)), "{text:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_session_go_by_the_settings_that_they_began_with() {
    let mut rig = Rig::new(&scaled(10));
    rig.session("s", "2025-06-18").await;
    let one = rig.post(&[S], call("1", "1"));
    let first = rig.asked().await;
    first.events(&[]);
    assert_eq!(rig.take(&route(&scaled(20))), 0);
    let two = rig.post(&[S], call("2", "2"));
    let second = rig.asked().await;
    second.events(&[]);
    first.say(progress("1", "1"));
    second.say(progress("2", "1"));
    settle().await;
    starts(one.messages().last(), &of_total("1", "1", 10));
    starts(two.messages().last(), &of_total("2", "1", 20));
    // Also on each other's stream: the session knows which settings each call uses.
    first.say(progress("2", "2"));
    second.say(progress("1", "2"));
    settle().await;
    starts(one.messages().last(), &of_total("1", "2", 10));
    starts(two.messages().last(), &of_total("2", "2", 20));
    first.say(result("1"));
    second.say(result("2"));
    settle().await;
    check([&one, &two]);
}

#[tokio::test(start_paused = true)]
async fn a_wire_goes_on_and_what_is_asked_on_it_goes_by_what_holds() {
    let mut rig = Rig::new(&scaled(10));
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let server = rig.asked().await;
    server.events(&[]);
    server.chunk("event: endpoint\ndata: /messages?s=1\n\n");
    settle().await;
    let path = String::from_utf8(stream.blocks()[0].data.clone().unwrap()).unwrap();
    let mut posted = Vec::new();
    for (id, total) in [("1", 20), ("2", 30)] {
        posted.push(rig.send(&format!("POST {path}"), &[], call(id, id).as_bytes()));
        rig.asked().await.accept();
        settle().await;
        assert_eq!(rig.take(&route(&scaled(total))), 0);
    }
    server.say(progress("1", "1"));
    server.say(progress("2", "1"));
    pass(secs(1)).await;
    let told = stream.messages();
    starts(told.first(), &of_total("1", "1", 10));
    starts(told.get(1), &of_total("2", "1", 20));
    server.say(result("1"));
    server.say(result("2"));
    pass(secs(1)).await;
    assert_eq!(stream.messages()[2..], [result("1"), result("2")]);
    assert!(!stream.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_wire_to_another_server_ends_with_its_last_call() {
    let mut rig = Rig::new(QUIET);
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let server = rig.asked().await;
    server.events(&[]);
    server.chunk("event: endpoint\ndata: /messages?s=1\n\n");
    settle().await;
    let path = String::from_utf8(stream.blocks()[0].data.clone().unwrap()).unwrap();
    let post = format!("POST {path}");
    let _posted = rig.send(&post, &[], call("1", "1").as_bytes());
    rig.asked().await.accept();
    settle().await;
    assert_eq!(rig.take(&at("other.example", QUIET)), 1);
    let refused = rig.send(&post, &[], call("2", "2").as_bytes());
    settle().await;
    assert_eq!(refused.status(), 404);
    // A cancellation of the call by its client still reaches the old server.
    let _told = rig.send(&post, &[], cancelled("9").as_bytes());
    let told = rig.asked().await;
    assert_eq!(told.what(), "POST /messages?s=1");
    told.accept();
    server.say(progress("1", "1"));
    pass(secs(1)).await;
    assert!(!stream.is_over());
    server.say(result("1"));
    pass(secs(1)).await;
    assert_eq!(stream.messages(), [progress("1", "1"), result("1")]);
    assert!(stream.is_over());
    let refused = rig.send(&post, &[], call("3", "3").as_bytes());
    settle().await;
    assert_eq!(refused.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_held_ends_with_the_last_call_to_its_server() {
    let keys = format!("{QUIET}own_get = true");
    let mut rig = Rig::new(&keys);
    rig.session("s", "2025-06-18").await;
    pass(secs(3)).await;
    let listened = rig.asked().await;
    listened.events(&[]);
    let answer = rig.post(&[S], call("1", "1"));
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    assert_eq!(rig.take(&at("other.example", &keys)), 1);
    listened.chunk(event(&progress("1", "1")));
    settle().await;
    assert_eq!(answer.messages(), [progress("1", "1")]);
    assert_eq!(listened.left(), None);
    server.say(result("1"));
    server.end();
    pass(secs(1)).await;
    assert_eq!(answer.messages().last(), Some(&result("1")));
    assert!(listened.left().is_some());
}

#[tokio::test(start_paused = true)]
async fn observing_begins_with_the_next_request() {
    let mut rig = Rig::new(QUIET);
    rig.session("s", "2025-06-18").await;
    let one = rig.post(&[S], call("1", "1"));
    let first = rig.asked().await;
    first.events(&[]);
    assert_eq!(rig.take(&route(&format!("{QUIET}mode = \"observe\""))), 0);
    let two = rig.post(&[S], call("2", "2"));
    let second = rig.asked().await;
    second.events(&[]);
    for server in [&first, &second] {
        let token = if server.text() == call("1", "1") { "1" } else { "2" };
        server.say(progress(token, "5"));
        server.say(progress(token, "4"));
        server.say(result(token));
        server.end();
    }
    settle().await;
    assert_eq!(one.messages().len(), 3);
    assert_ne!(one.messages()[1], progress("1", "4"), "lifted");
    assert_eq!(two.messages(), [progress("2", "5"), progress("2", "4"), result("2")]);
    // The call ends with the old settings.
    assert_eq!(rig.take(&route(QUIET)), 0);
    let three = rig.post(&[S], call("3", "3"));
    let third = rig.asked().await;
    third.events(&[]);
    third.say(progress("3", "5"));
    third.say(progress("3", "4"));
    settle().await;
    assert_ne!(three.messages()[1], progress("3", "4"), "lifted");
}

#[tokio::test(start_paused = true)]
async fn a_session_of_ours_observes_when_it_has_no_call() {
    let (mut rig, mut servers) = Rig::of_lines(QUIET);
    let (mut server, session) = begin(&rig, &mut servers, "2025-06-18").await;
    let one = rig.post(&[&session], call("1", "1"));
    server.line().await;
    let observing = lines("server", &format!("{QUIET}mode = \"observe\""));
    assert_eq!(rig.take(&observing), 0);
    let two = rig.post(&[&session], call("2", "2"));
    server.line().await;
    for token in ["1", "2"] {
        server.say(progress(token, "5"));
        server.say(progress(token, "4"));
        server.say(result(token));
    }
    settle().await;
    for (answer, token) in [(&one, "1"), (&two, "2")] {
        assert_ne!(answer.messages()[1], progress(token, "4"), "a call was open");
    }
    let three = rig.post(&[&session], call("3", "3"));
    server.line().await;
    server.say(progress("3", "5"));
    server.say(progress("3", "4"));
    server.say(result("3"));
    settle().await;
    assert_eq!(three.messages(), [progress("3", "5"), progress("3", "4"), result("3")]);
}

#[tokio::test(start_paused = true)]
async fn a_session_of_ours_is_idle_for_as_long_as_holds_now() {
    let (mut rig, mut servers) = Rig::of_lines(QUIET);
    let (server, _session) = begin(&rig, &mut servers, "2025-06-18").await;
    pass(secs(60)).await;
    assert!(!server.is_closed());
    assert_eq!(rig.take(&lines("server", &format!("{QUIET}upstream.idle_timeout = \"90s\""))), 0);
    pass(secs(20)).await;
    assert!(!server.is_closed());
    pass(secs(20)).await;
    assert!(server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn what_clients_share_ends_with_its_last_call_and_the_next_is_asked_of_the_new_one() {
    let headers = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: work"];
    let (mut rig, mut servers) = Rig::of_lines(&scaled(10));
    let one = rig.post(&headers, modern_call("1", "1"));
    settle().await;
    let mut old = servers.try_recv().unwrap();
    let given =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].to_string();
    let first = given(&old.line().await);
    // Changed settings, with the same server.
    assert_eq!(rig.take(&lines("server", &scaled(20))), 0);
    let two = rig.post(&headers, modern_call("2", "2"));
    let second = given(&old.line().await);
    old.say(progress(&first, "1"));
    old.say(progress(&second, "1"));
    settle().await;
    starts(one.messages().last(), &of_total("1", "1", 10));
    starts(two.messages().last(), &of_total("2", "1", 20));
    // Another server.
    assert_eq!(rig.take(&lines("another", &scaled(30))), 1);
    let _three = rig.post(&headers, modern_call("3", "3"));
    settle().await;
    assert!(servers.try_recv().is_ok() && old.told().await.is_empty());
    old.say(result(&first));
    pass(secs(1)).await;
    assert!(!old.is_closed(), "a call is open");
    old.say(result(&second));
    pass(secs(1)).await;
    assert!(old.is_closed());
    assert_eq!(
        [one, two].map(|answer| answer.messages().last().cloned().unwrap()),
        [result("1"), result("2")]
    );
}
