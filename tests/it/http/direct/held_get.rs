//! The GET stream that the proxy holds for a session whose client opens none (`own_get`).

use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

/// A session whose stream is held.
async fn held() -> (Rig, Asked) {
    let mut rig = Rig::new("own_get = true\nheartbeat.enabled = false\nmin_interval = \"0s\"");
    rig.session("s", "2025-06-18").await;
    pass(ms(1990)).await;
    assert!(rig.try_asked().await.is_none(), "a client would open it at once");
    pass(ms(20)).await;
    let listened = rig.asked().await;
    assert_eq!(listened.what(), "GET /base/mcp");
    assert_eq!(listened.request.header("accept"), Some("text/event-stream"));
    assert_eq!(listened.request.header("mcp-session-id"), Some("s"));
    assert_eq!(listened.request.header("content-length"), None);
    assert_eq!(listened.request.header("content-type"), None);
    listened.events(&[]);
    settle().await;
    (rig, listened)
}

async fn called(rig: &mut Rig, id: &str, token: &str) -> (Answer, Asked) {
    let answer = rig.post(&[S], call(id, token));
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    (answer, server)
}

#[tokio::test(start_paused = true)]
async fn progress_on_a_stream_that_is_held_goes_to_its_request() {
    let (mut rig, listened) = held().await;
    let (answer, server) = called(&mut rig, "1", "7").await;
    listened.chunk(event_with("g1", &progress("7", "1")));
    listened.chunk(event_with("g2", &report("\"u\"", "2", "m")));
    settle().await;
    assert_eq!(answer.messages(), [progress("7", "1"), report("7", "2", "m")]);
    // Other messages of the server go to an open response.
    listened.chunk(event_with("g3", &log("m")));
    settle().await;
    assert_eq!(answer.messages().last(), Some(&log("m")));
    server.say(result("1"));
    server.end();
    settle().await;
    assert_eq!(answer.messages().last(), Some(&result("1")));
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_later_gets_the_stream_and_what_it_has_missed() {
    let (mut rig, listened) = held().await;
    let missed: String =
        (1..20).map(|n| event_with(&format!("g{n}"), &log(&n.to_string()))).collect();
    listened.chunk(&missed);
    pass(secs(60)).await;
    let listens = rig.get(&[S]);
    settle().await;
    assert!(rig.try_asked().await.is_none(), "it is the same stream");
    assert_eq!(listens.header("content-type").as_deref(), Some("text/event-stream"));
    assert_eq!(listens.text(), missed);
    listened.chunk(event_with("g20", &log("20")));
    settle().await;
    assert_eq!(listens.text(), missed.clone() + &event_with("g20", &log("20")));
    // From now on the stream is kept alive with comments, and progress still goes to its call.
    let (answer, _server) = called(&mut rig, "1", "7").await;
    listened.chunk(event_with("g21", &progress("7", "1")));
    pass(secs(16)).await;
    assert_eq!(answer.messages(), [progress("7", "1")]);
    assert!(listens.text().ends_with(": keep-alive\n\n"));
    // The stream ends when the client disconnects.
    listens.leave();
    settle().await;
    assert!(listened.left().is_some());
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_held_for_who_listens_or_where_there_is_nothing_to_hear() {
    // The client opens the GET stream itself.
    let mut rig = Rig::new("own_get = true");
    rig.session("s", "2025-06-18").await;
    let _listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    pass(secs(10)).await;
    assert!(rig.try_asked().await.is_none());
    // This server has no GET stream.
    let mut rig = Rig::new("own_get = true");
    rig.session("s", "2025-06-18").await;
    pass(secs(3)).await;
    rig.asked().await.answer("405 Method Not Allowed", &[], "");
    pass(secs(60)).await;
    assert!(rig.try_asked().await.is_none(), "once is enough");
    // Without the setting, no stream is held.
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    pass(secs(10)).await;
    assert!(rig.try_asked().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_held_ends_with_its_session() {
    let (mut rig, listened) = held().await;
    let delete = rig.send("DELETE /r", &[S], b"");
    rig.asked().await.answer("200 OK", &[], "");
    settle().await;
    assert_eq!(delete.status(), 200);
    settle().await;
    assert!(listened.left().is_some(), "a session that is over is not listened to");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_resumes_gets_a_stream_of_its_own() {
    let (mut rig, _listened) = held().await;
    let resumed = rig.get(&[S, "Last-Event-ID: e1"]);
    let resumes = rig.asked().await;
    assert_eq!(resumes.request.header("last-event-id"), Some("e1"));
    resumes.events(&[]);
    resumes.chunk(event_with("e2", &log("m")));
    settle().await;
    assert_eq!(resumed.text(), event_with("e2", &log("m")));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_held_for_one_caller_is_not_given_to_another() {
    let (mut rig, listened) = held().await;
    listened.chunk(event_with("g1", &log("secret")));
    settle().await;
    let stranger = rig.get(&[S, "Authorization: Bearer other"]);
    // The server decides, as for every other request.
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "GET /base/mcp");
    settle().await;
    assert!(!stranger.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_the_server_does_not_begin_is_given_up() {
    for (keys, limit) in [("", 30), ("own_request_timeout = \"5s\"", 5)] {
        let mut rig = Rig::new(&format!("own_get = true\n{keys}"));
        rig.session("s", "2025-06-18").await;
        pass(secs(2)).await;
        let listened = rig.asked().await;
        pass(secs(limit - 1)).await;
        assert!(listened.left().is_none());
        pass(secs(2)).await;
        assert!(listened.left().is_some(), "{keys}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_held_counts_and_is_handed_over_with_its_place() {
    let mut rig = Rig::new("own_get = true\nmax_streams = 1\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    pass(secs(2)).await;
    let listened = rig.asked().await;
    listened.events(&[]);
    settle().await;
    let refused = rig.post(&[S], call("1", "1"));
    settle().await;
    assert_eq!(refused.status(), 503);
    let listens = rig.get(&[S]);
    listened.chunk(event_with("g1", &log("m")));
    settle().await;
    assert_eq!(listens.text(), event_with("g1", &log("m")));
    listens.leave();
    pass(ms(10)).await;
    assert!(listened.left().is_some());
    let answer = rig.post(&[S], call("2", "2"));
    rig.asked().await.json(&[], &result("2"));
    settle().await;
    assert_eq!(answer.text(), result("2"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_held_for_a_client_that_says_nothing_is_let_go_and_comes_back() {
    let keys = "own_get = true\nsession_idle_timeout = \"10m\"\nmax_streams = 2";
    let mut rig = Rig::new(keys);
    rig.session("s", "2025-06-18").await;
    pass(secs(2)).await;
    let listened = rig.asked().await;
    listened.events(&[]);
    // Messages of the server do not count as use by the client.
    pass(secs(9 * 60)).await;
    listened.chunk(event_with("g1", &log("m")));
    assert!(listened.left().is_none());
    pass(secs(61)).await;
    assert!(listened.left().is_some(), "its place is free for others");
    // The session is still known, and its stream is opened again when the client returns.
    let (answer, server) = called(&mut rig, "1", "7").await;
    server.say(result("1"));
    server.end();
    settle().await;
    assert_eq!(answer.messages(), [result("1")]);
    pass(secs(2)).await;
    let again = rig.asked().await;
    assert_eq!(again.what(), "GET /base/mcp");
    again.events(&[]);
    settle().await;
    let (answer, _server) = called(&mut rig, "2", "8").await;
    again.chunk(event_with("g2", &progress("8", "1")));
    pass(secs(20 * 60)).await;
    assert!(again.left().is_none(), "a call is open");
    assert_eq!(answer.messages()[0], progress("8", "1"));
}

#[tokio::test(start_paused = true)]
async fn messages_that_nobody_comes_for_are_dropped_and_counted() {
    let (rig, listened) = held().await;
    for n in 0..3 {
        listened.chunk(event_with(&format!("g{n}"), &log(&"x".repeat(100 << 10))));
        settle().await;
    }
    assert!(rig.metrics().contains("milepost_dropped_mail_total{route=\"/r\"} 1\n"));
}
