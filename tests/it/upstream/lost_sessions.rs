//! Sessions that the server loses.

use super::rig::{Rig, error, initialize};
use crate::http::rig::{pass, secs};
use crate::support::messages::{INITIALIZED, agreement_to, call, result};

/// The id of a request of ours.
fn own_id(text: &str) -> String {
    let from = text.find("\"milepost-").unwrap_or_else(|| panic!("{text}"));
    let end = text[from + 1..].find('"').unwrap();
    text[from..from + end + 2].to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_is_begun_again_as_the_client_began_it() {
    let mut rig = Rig::new();
    let get = rig.begin(Some("old"), "2025-06-18").await;
    get.events(&[]);
    rig.say(call("1", "1")).await;
    rig.say(call("2", "2")).await;
    let (one, two) = (rig.asked().await, rig.asked().await);
    let lost =
        r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#;
    one.answer("404 Not Found", &["Content-Type: application/json"], lost);
    let again = rig.asked().await;
    two.answer("404 Not Found", &[], "");
    assert!(get.left().is_some());
    let id = own_id(&again.text());
    assert_eq!(again.text(), initialize("2025-06-18").replace("\"id\":0", &format!("\"id\":{id}")));
    assert_eq!(again.request.header("mcp-session-id"), None);
    again.json(&["Mcp-Session-Id: new"], &agreement_to(&id, "2025-06-18"));
    let ready = rig.asked().await;
    assert_eq!(ready.text(), INITIALIZED);
    assert_eq!(ready.request.header("mcp-session-id"), Some("new"));
    rig.not_asked().await;
    ready.accept();
    for id in ["1", "2"] {
        let asked = rig.asked().await;
        // The GET stream is opened again meanwhile.
        let asked = if asked.what().starts_with("GET") { rig.asked().await } else { asked };
        assert_eq!(asked.text(), call(id, id));
        assert_eq!(asked.request.header("mcp-session-id"), Some("new"));
        asked.json(&[], &result(id));
    }
    assert_eq!(rig.told().await, [result("1"), result("2")]);
}

/// The examples of the TypeScript SDK and mcp-go do not answer with the status that MCP asks for.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_with_status_400_is_begun_again() {
    let typescript = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
    for (status, body) in [
        ("400 Bad Request", typescript),
        ("400 Bad Request", "Invalid session ID"),
        ("400 Bad Request", r#"{"error":"Bad Request: Unknown Mcp-Session-Id header"}"#),
        ("410 Gone", r#"{"error":"Session expired"}"#),
        ("503 Service Unavailable", "Session not found. Please reconnect."),
        ("200 OK", r#"{"error":"Session not found"}"#),
    ] {
        let mut rig = Rig::new();
        rig.session(Some("old"), "2025-06-18").await;
        rig.say(call("1", "1")).await;
        rig.asked().await.answer(status, &["Content-Type: application/json"], body);
        let again = rig.asked().await;
        assert_eq!(again.request.header("mcp-session-id"), None, "{body}");
        let id = own_id(&again.text());
        again.json(&["Mcp-Session-Id: new"], &agreement_to(&id, "2025-06-18"));
        let ready = rig.asked().await;
        assert_eq!(ready.text(), INITIALIZED);
        ready.accept();
        let asked = rig.asked().await;
        let asked = if asked.what().starts_with("GET") { rig.asked().await } else { asked };
        assert_eq!(asked.text(), call("1", "1"));
        assert_eq!(asked.request.header("mcp-session-id"), Some("new"));
        asked.json(&[], &result("1"));
        assert_eq!(rig.told().await, [result("1")]);
    }
}

/// Status 400 for another reason is the answer to the request.
#[tokio::test(start_paused = true)]
async fn another_error_with_status_400_is_no_lost_session() {
    let mut rig = Rig::new();
    rig.session(Some("old"), "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let body = r#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"no such tool"},"id":null}"#;
    rig.asked().await.answer("400 Bad Request", &["Content-Type: application/json"], body);
    let line = rig.line().await;
    assert!(line.contains("no such tool"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_twice_is_an_error() {
    let mut rig = Rig::new();
    rig.session(Some("old"), "2025-06-18").await;
    rig.say(call("1", "1")).await;
    rig.asked().await.answer("404 Not Found", &[], "");
    let again = rig.asked().await;
    let id = own_id(&again.text());
    again.json(&["Mcp-Session-Id: new"], &agreement_to(&id, "2025-06-18"));
    rig.asked().await.accept();
    loop {
        let asked = rig.asked().await;
        if asked.what().starts_with("POST") {
            asked.answer("404 Not Found", &[], "");
            break;
        }
        asked.answer("405 Method Not Allowed", &[], "");
    }
    let line = rig.line().await;
    assert!(line.contains("the server has lost the session again"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_begun_again_is_tried_with_the_next_message() {
    let mut rig = Rig::new();
    rig.session(Some("old"), "2025-06-18").await;
    rig.say(call("1", "1")).await;
    rig.asked().await.answer("404 Not Found", &[], "");
    rig.asked().await.answer("503 Service Unavailable", &[], "");
    let line = rig.line().await;
    assert!(line.contains("\"id\":1,\"error\"") && line.contains("503"), "{line}");
    pass(secs(60)).await;
    rig.not_asked().await;
    rig.say(call("2", "2")).await;
    let again = rig.asked().await;
    let id = own_id(&again.text());
    again.json(&["Mcp-Session-Id: new"], &agreement_to(&id, "2025-06-18"));
    let ready = rig.asked().await;
    ready.answer("400 Bad Request", &[], "");
    let line = rig.line().await;
    assert!(line.contains("\"id\":2,\"error\""), "{line}");
    rig.say(call("3", "3")).await;
    assert!(rig.asked().await.text().contains("initialize"));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_begin_again_in_time_is_given_up() {
    // The server does not answer at all, sends no result, or does not accept the notification that ends the handshake.
    for stage in 0..3 {
        let keys = "heartbeat.enabled = false\nupstream.url = \"http://up.example/base/mcp\"";
        let mut rig = Rig::with(keys);
        rig.session(Some("old"), "2025-06-18").await;
        rig.say(call("1", "1")).await;
        rig.asked().await.answer("404 Not Found", &[], "");
        let mut silent = rig.asked().await;
        match stage {
            0 => {}
            1 => silent.events(&["Mcp-Session-Id: new"]),
            _ => {
                let agreement = agreement_to(own_id(&silent.text()), "2025-06-18");
                silent.json(&["Mcp-Session-Id: new"], &agreement);
                silent = rig.asked().await;
            }
        }
        pass(secs(29)).await;
        assert_eq!(rig.told().await, [""; 0], "{stage}");
        pass(secs(2)).await;
        let why = "the session with the server was lost: the server sent nothing for 30s";
        assert_eq!(rig.line().await, error("1", why, None), "{stage}");
        assert!(silent.left().is_some(), "{stage}");
        // The next message tries again.
        rig.say(call("2", "2")).await;
        let again = rig.asked().await;
        let agreement = agreement_to(own_id(&again.text()), "2025-06-18");
        again.json(&["Mcp-Session-Id: new"], &agreement);
        rig.asked().await.accept();
        let mut asked = rig.asked().await;
        while asked.what().starts_with("GET") {
            asked = rig.asked().await;
        }
        assert_eq!(asked.text(), call("2", "2"));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_session_404_is_an_error_of_the_request() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    rig.asked().await.answer("404 Not Found", &[], "");
    assert!(rig.line().await.contains("404 Not Found"));
    rig.not_asked().await;
}
