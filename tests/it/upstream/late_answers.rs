//! Late answers of a server over HTTP: a call that waits for the cancellation of an older call.

use super::rig::Rig;
use crate::http::rig::{ms, pass, secs};
use crate::support::messages::{call, progress, result};

/// Returns the cancellation of the request with this id after the client's timer has expired.
fn given_up(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"Request timed out"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_waited_in_vain_is_posted_and_has_the_stream_of_its_response() {
    let late = "late = {}\nheartbeat = { enabled = false }";
    let mut rig = Rig::with(&format!("upstream.url = \"http://up.example/base/mcp\"\n{late}"));
    rig.session(Some("s"), "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let one = rig.asked().await;
    one.events(&[]);
    pass(secs(60)).await;
    rig.say(call("2", "2")).await;
    pass(ms(900)).await;
    rig.not_asked().await;
    pass(ms(200)).await;
    let two = rig.asked().await;
    assert_eq!(two.text(), call("2", "2"));
    assert_eq!(two.request.header("mcp-session-id"), Some("s"));
    two.events(&[]);
    // The server has invented the token: the stream shows whose report this is.
    two.chunk(format!("data: {}\n\n", progress("\"own\"", 1)));
    let told = rig.line().await;
    assert!(told.contains(r#""progressToken":2,"progress":1,"#), "{told}");
    for (asked, id) in [(two, "2"), (one, "1")] {
        asked.chunk(format!("data: {}\n\n", result(id)));
        assert_eq!(rig.line().await, result(id));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_joins_when_the_cancellation_comes() {
    let late = "late = {}\nheartbeat = { enabled = false }";
    let mut rig = Rig::with(&format!("upstream.url = \"http://up.example/base/mcp\"\n{late}"));
    rig.session(Some("s"), "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let one = rig.asked().await;
    one.events(&[]);
    pass(secs(60)).await;
    rig.say(call("2", "2")).await;
    pass(ms(200)).await;
    rig.say(given_up("1")).await;
    pass(secs(5)).await;
    rig.not_asked().await;
    one.chunk(format!("data: {}\n\n", progress("1", 1)));
    assert_eq!(rig.line().await, progress("2", 1));
    one.chunk(format!("data: {}\n\n", result("1")));
    assert_eq!(rig.line().await, result("2"));
}

/// Returns a result of 5 MB, which a relay does not keep in memory as a whole, with its id last, as the TypeScript SDK
/// writes it.
fn large(id: &str) -> String {
    let text = "x".repeat(5 << 20);
    format!(r#"{{"result":{{"content":["{text}"]}},"jsonrpc":"2.0","id":{id}}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_waits_for_its_client_in_an_event_and_in_json() {
    for is_json in [false, true] {
        let late = "late = {}\nheartbeat = { enabled = false }";
        let mut rig = Rig::with(&format!("upstream.url = \"http://up.example/base/mcp\"\n{late}"));
        rig.session(Some("s"), "2025-06-18").await;
        rig.say(call("1", "1")).await;
        let one = rig.asked().await;
        rig.say(given_up("1")).await;
        match is_json {
            true => one.json(&[], &large("1")),
            false => {
                one.events(&[]);
                one.say(large("1"));
            }
        }
        assert_eq!(rig.told().await, Vec::<String>::new());
        rig.say(call("2", "2")).await;
        assert!(rig.line().await == large("2"), "JSON: {is_json}");
        rig.not_asked().await;
    }
}
