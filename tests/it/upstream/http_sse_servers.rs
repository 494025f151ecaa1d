//! HTTP+SSE: how it is found, and how it is spoken.

use super::rig::{Rig, initialize, modern};
use crate::http::rig::{Asked, ms, pass, secs, settle};
use crate::support::messages::{INITIALIZED, agreement_to, call, notification, progress, result};

async fn open(rig: &mut Rig, path: &str) -> Asked {
    let get = rig.asked().await;
    assert_eq!(get.what(), format!("GET {path}"));
    assert_eq!(get.request.header("accept"), Some("text/event-stream"));
    get.events(&[]);
    get.chunk("event: endpoint\ndata: /base/messages?id=a\n\n");
    get
}

/// A session on a route that names its HTTP+SSE endpoint.
async fn session() -> (Rig, Asked) {
    session_with("").await
}

/// The same with these keys.
async fn session_with(keys: &str) -> (Rig, Asked) {
    let mut rig = Rig::with(&format!("upstream.sse = \"http://up.example/base/sse\"\n{keys}"));
    rig.say(initialize("2024-11-05")).await;
    let get = open(&mut rig, "/base/sse").await;
    let post = rig.asked().await;
    assert_eq!(post.what(), "POST /base/messages?id=a");
    assert_eq!(post.text(), initialize("2024-11-05"));
    post.accept();
    get.say(agreement_to("0", "2024-11-05"));
    assert_eq!(rig.line().await, agreement_to("0", "2024-11-05"));
    rig.say(INITIALIZED).await;
    rig.asked().await.accept();
    rig.not_asked().await;
    (rig, get)
}

#[tokio::test(start_paused = true)]
async fn everything_is_said_on_the_stream() {
    let (mut rig, get) = session().await;
    rig.say(call("1", "\"t\"")).await;
    let post = rig.asked().await;
    get.say(progress("\"t\"", 1));
    post.accept();
    get.say(result("1"));
    assert_eq!(rig.told().await, [progress("\"t\"", 1), result("1")]);
    let ask = r#"{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}"#;
    get.say(ask);
    assert_eq!(rig.line().await, ask);
    rig.say(result("5")).await;
    let post = rig.asked().await;
    assert_eq!(post.text(), result("5"));
    post.accept();
    rig.close().await;
    assert!(rig.has_ended().await);
    assert!(get.left().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_status_on_a_post_is_an_error_of_its_request() {
    let (mut rig, _get) = session().await;
    rig.say(call("1", "1")).await;
    rig.asked().await.answer("500 Internal Server Error", &[], "");
    assert!(rig.line().await.contains("HTTP status 500"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_stream_is_opened_again_in_a_new_session() {
    let (mut rig, get) = session().await;
    rig.say(call("1", "1")).await;
    rig.asked().await.accept();
    settle().await;
    get.die();
    let line = rig.line().await;
    assert!(line.contains("\"id\":1,\"error\""), "{line}");
    rig.say(call("2", "2")).await;
    rig.not_asked().await;
    pass(ms(1100)).await;
    let get = open(&mut rig, "/base/sse").await;
    let again = rig.asked().await;
    let text = again.text();
    assert!(text.contains("\"method\":\"initialize\"") && text.contains("\"roots\""), "{text}");
    let id: serde_json::Value = serde_json::from_str(&text).unwrap();
    again.accept();
    get.say(agreement_to(id["id"].to_string(), "2024-11-05"));
    let ready = rig.asked().await;
    assert_eq!(ready.text(), INITIALIZED);
    ready.accept();
    let asked = rig.asked().await;
    assert_eq!(asked.text(), call("2", "2"));
    asked.accept();
    get.say(result("2"));
    assert_eq!(rig.line().await, result("2"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_come_back_is_tried_again_a_while_and_then_for_each_message() {
    let (mut rig, get) = session().await;
    rig.refuse_connections(true);
    get.die();
    pass(secs(120)).await;
    // Connections that already existed may still have been tried.
    while rig.try_asked().await.is_some() {}
    rig.say(call("1", "1")).await;
    let line = rig.line().await;
    assert!(line.contains("cannot connect"), "{line}");
    rig.refuse_connections(false);
    rig.say(call("2", "2")).await;
    let _get = open(&mut rig, "/base/sse").await;
    let asked = rig.asked().await;
    assert!(asked.text().contains("initialize"), "{} {}", asked.what(), asked.text());
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_elsewhere_is_refused() {
    let mut rig = Rig::with("upstream.sse = \"http://up.example/base/sse\"");
    rig.say(initialize("2024-11-05")).await;
    let get = rig.asked().await;
    get.events(&[]);
    get.chunk("event: endpoint\ndata: http://evil.example/messages\n\n");
    let line = rig.line().await;
    assert!(line.contains("an endpoint of another origin"), "{line}");
    settle().await;
    assert!(get.left().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_later_endpoint_elsewhere_answers_the_open_call_with_an_error() {
    let (mut rig, get) = session().await;
    rig.say(call("1", "1")).await;
    rig.asked().await.accept();
    get.chunk("event: endpoint\ndata: http://evil.example/messages\n\n");
    let line = rig.line().await;
    assert!(line.contains("an endpoint of another origin"), "{line}");
    settle().await;
    assert!(get.left().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_later_endpoint_of_the_same_server_is_posted_to_in_the_same_session() {
    let (mut rig, get) = session().await;
    get.chunk("event: endpoint\ndata: /base/other?id=b\n\n");
    settle().await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    assert_eq!((asked.what(), asked.text()), ("POST /base/other?id=b", call("1", "1")));
    asked.accept();
    get.say(result("1"));
    assert_eq!(rig.line().await, result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_post_may_speak_http_sse() {
    for status in
        ["400 Bad Request", "404 Not Found", "405 Method Not Allowed", "422 Unprocessable Entity"]
    {
        let mut rig = Rig::new();
        rig.say(initialize("2025-06-18")).await;
        let post = rig.asked().await;
        assert_eq!(post.what(), "POST /base/mcp");
        post.answer(status, &[], "no");
        let get = open(&mut rig, "/base/mcp").await;
        let post = rig.asked().await;
        assert_eq!(post.what(), "POST /base/messages?id=a");
        assert_eq!(post.text(), initialize("2025-06-18"));
        post.accept();
        get.say(agreement_to("0", "2024-11-05"));
        assert_eq!(rig.line().await, agreement_to("0", "2024-11-05"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_no_otherwise_does_not() {
    for status in ["401 Unauthorized", "403 Forbidden", "500 Internal Server Error"] {
        let mut rig = Rig::new();
        rig.say(initialize("2025-06-18")).await;
        rig.asked().await.answer(status, &[], "no");
        assert!(rig.line().await.contains(status));
        rig.not_asked().await;
    }
    let mut rig = Rig::new();
    rig.say(initialize("2025-06-18")).await;
    let own = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32022,"message":"unsupported"}}"#;
    rig.asked().await.answer("400 Bad Request", &["Content-Type: application/json"], own);
    assert_eq!(rig.line().await, own);
    rig.not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_http_sse_either_the_first_status_is_told() {
    let mut rig = Rig::new();
    rig.say(initialize("2025-06-18")).await;
    rig.asked().await.answer("404 Not Found", &[], "no");
    rig.asked().await.answer("404 Not Found", &[], "no");
    let line = rig.line().await;
    assert!(line.contains("404 Not Found; and with GET there is no HTTP+SSE"), "{line}");
    assert!(line.contains(r#""httpStatus":404"#), "{line}");
    // A stream of events without an endpoint is not HTTP+SSE.
    rig.say(initialize("2025-06-18").replace(":0,", ":1,")).await;
    rig.asked().await.answer("405 Method Not Allowed", &[], "");
    let get = rig.asked().await;
    get.events(&[]);
    pass(secs(11)).await;
    let line = rig.line().await;
    assert!(line.contains("names no endpoint"), "{line}");
    // The next attempt starts from the beginning.
    rig.say(initialize("2025-06-18").replace(":0,", ":2,")).await;
    rig.asked().await.json(&[], &agreement_to("2", "2025-06-18"));
    assert_eq!(rig.line().await, agreement_to("2", "2025-06-18"));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_answer_that_http_sse_does_not_know() {
    let mut rig = Rig::with("upstream.sse = \"http://up.example/base/sse\"");
    rig.say(modern("1", "server/discover", "")).await;
    let line = rig.line().await;
    assert!(line.contains("-32601"), "{line}");
    rig.not_asked().await;
    rig.say(initialize("2025-11-25")).await;
    let _get = open(&mut rig, "/base/sse").await;
    assert_eq!(rig.asked().await.text(), initialize("2025-11-25"));
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_waits_for_the_client_that_gave_its_call_up() {
    let (mut rig, get) = session_with("late = {}\nheartbeat = { enabled = false }").await;
    let text = "x".repeat(5 << 20);
    let large = |id| format!(r#"{{"result":{{"content":["{text}"]}},"jsonrpc":"2.0","id":{id}}}"#);
    rig.say(call("1", "1")).await;
    rig.asked().await.accept();
    let reason = r#"{"requestId":1,"reason":"Request timed out"}"#;
    rig.say(notification("notifications/cancelled", reason)).await;
    get.say(large(1));
    assert_eq!(rig.told().await, Vec::<String>::new());
    rig.say(call("2", "2")).await;
    assert!(rig.line().await == large(2), "the answer");
    rig.not_asked().await;
}
