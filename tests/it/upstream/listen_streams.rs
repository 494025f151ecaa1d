//! Streams: on which of them progress arrives, what is resumed, and the questions of the server.

use super::rig::{Rig, error};
use crate::http::rig::{ms, pass, secs, settle};
use crate::support::messages::{call, call_of, notification, progress, result};

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_server_and_a_stream_without_answer_is_closed() {
    let mut rig = Rig::new();
    rig.session(Some("s"), "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.say(progress("1", 1));
    rig.told().await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    rig.say(cancel).await;
    let post = rig.asked().await;
    assert_eq!(post.text(), cancel);
    post.accept();
    asked.say(progress("1", 2));
    pass(secs(11)).await;
    assert!(asked.left().is_some());
    assert_eq!(rig.told().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_asks_is_answered_wherever_it_asks() {
    let mut rig = Rig::new();
    let get = rig.begin(Some("s"), "2025-06-18").await;
    get.events(&[]);
    let ask =
        |id: &str, method: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#);
    get.say(ask("7", "roots/list"));
    assert_eq!(rig.line().await, ask("7", "roots/list"));
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.say(ask("\"e\"", "elicitation/create"));
    assert_eq!(rig.line().await, ask("\"e\"", "elicitation/create"));
    let answer = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    rig.say(answer("\"e\"")).await;
    rig.say(answer("7")).await;
    let first = rig.asked().await;
    assert_eq!(first.text(), answer("\"e\""));
    assert_eq!(first.request.header("mcp-session-id"), Some("s"));
    first.accept();
    let second = rig.asked().await;
    assert_eq!(second.text(), answer("7"));
    second.accept();
    asked.say(result("1"));
    assert_eq!(rig.line().await, result("1"));
}

#[tokio::test(start_paused = true)]
async fn progress_on_the_get_stream_reaches_its_call() {
    let mut rig = Rig::new();
    let get = rig.begin(Some("s"), "2025-06-18").await;
    get.events(&[]);
    rig.say(call("1", "\"a\"")).await;
    let asked = rig.asked().await;
    get.say(progress("\"a\"", 1));
    assert_eq!(rig.line().await, progress("\"a\"", 1));
    asked.json(&[], &result("1"));
    assert_eq!(rig.line().await, result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_get_stream_is_held_and_resumed() {
    let mut rig = Rig::new();
    let get = rig.begin(Some("s"), "2025-06-18").await;
    get.events(&[]);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    get.chunk(format!("id: e-1\nretry: 3000\ndata: {note}\n\n"));
    assert_eq!(rig.line().await, note);
    get.end();
    pass(ms(2900)).await;
    rig.not_asked().await;
    pass(ms(200)).await;
    let again = rig.asked().await;
    assert_eq!(again.what(), "GET /base/mcp");
    assert_eq!(again.request.header("last-event-id"), Some("e-1"));
    assert_eq!(again.request.header("mcp-session-id"), Some("s"));
    // A stream that fails is tried again, at growing intervals.
    again.answer("503 Service Unavailable", &[], "");
    pass(ms(5900)).await;
    rig.not_asked().await;
    pass(ms(200)).await;
    let again = rig.asked().await;
    assert_eq!(again.request.header("last-event-id"), Some("e-1"));
    again.events(&[]);
    again.say(note);
    assert_eq!(rig.line().await, note);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_get_stream_is_not_asked_again() {
    for status in ["405 Method Not Allowed", "404 Not Found", "400 Bad Request"] {
        let mut rig = Rig::new();
        rig.begin(None, "2025-03-26").await.answer(status, &[], "");
        pass(secs(100)).await;
        rig.not_asked().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_closed_for_polling_is_gone_back_to() {
    let mut rig = Rig::new();
    rig.session(Some("s"), "2025-11-25").await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.chunk("id: a-0\nretry: 500\ndata:\n\n");
    asked.chunk(format!("id: a-1\ndata: {}\n\n", progress("1", 1)));
    assert_eq!(rig.line().await, progress("1", 1));
    asked.end();
    pass(ms(600)).await;
    let get = rig.asked().await;
    assert_eq!(get.what(), "GET /base/mcp");
    assert_eq!(get.request.header("last-event-id"), Some("a-1"));
    get.events(&[]);
    get.chunk("id: a-2\ndata:\n\n");
    get.end();
    pass(ms(600)).await;
    let get = rig.asked().await;
    assert_eq!(get.request.header("last-event-id"), Some("a-2"));
    get.events(&[]);
    get.chunk(format!("id: a-3\ndata: {}\n\n", result("1")));
    assert_eq!(rig.line().await, result("1"));
    get.end();
    pass(secs(5)).await;
    rig.not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_gone_back_to_is_an_error() {
    let mut rig = Rig::new();
    rig.session(Some("s"), "2025-11-25").await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.chunk("id: a-0\ndata:\n\n");
    asked.end();
    pass(ms(1100)).await;
    rig.asked().await.answer("405 Method Not Allowed", &[], "");
    let why = "the server closed the stream of the request, and answered with HTTP status 405 Method \
               Not Allowed when it was asked for the rest";
    assert_eq!(rig.line().await, error("1", why, Some(405)));

    rig.say(call("2", "2")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.chunk("id: b-0\ndata:\n\n");
    settle().await;
    asked.die();
    let mut tries = 0;
    let told = loop {
        pass(secs(1)).await;
        let told = rig.told().await;
        if let Some(error) = told.into_iter().find(|line| line.contains("\"error\"")) {
            break error;
        }
        if let Some(get) = rig.try_asked().await {
            tries += 1;
            assert_eq!(get.request.header("last-event-id"), Some("b-0"));
            get.answer("503 Service Unavailable", &[], "");
        }
    };
    assert_eq!(tries, 5);
    assert!(told.contains("without an answer"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn two_calls_with_invented_tokens_are_told_apart_by_their_streams() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "\"one\"")).await;
    rig.say(call("2", "\"two\"")).await;
    let (one, two) = (rig.asked().await, rig.asked().await);
    one.events(&[]);
    two.events(&[]);
    one.say(progress("\"x\"", 1));
    settle().await;
    two.say(progress("\"x\"", 5));
    let told = rig.told().await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("\"one\"") && told[1].contains("\"two\""), "{told:?}");
    one.say(result("1"));
    two.say(result("2"));
    assert_eq!(rig.told().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_leaves_the_server_waiting() {
    let mut rig = Rig::with_room(64 << 10);
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    let note = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#,
        "x".repeat(10_000)
    );
    for _ in 0..1000 {
        asked.say(&note);
    }
    pass(secs(1)).await;
    assert!(asked.written() < 4 << 20, "{}", asked.written());
    let mut told = 0;
    while told < 1000 {
        let lines = rig.told().await;
        assert!(!lines.is_empty());
        told += lines.iter().filter(|line| **line == note).count();
    }
    asked.say(result("1"));
    settle().await;
    assert_eq!(rig.line().await, result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_log_on_the_get_stream_is_progress_of_the_only_call_or_of_the_one_whose_tool_it_names() {
    let mut rig = Rig::with(
        "upstream.url = \"http://up.example/base/mcp\"\ndialects = [\"defaults\", \"log\"]\n\
         heartbeat.enabled = false\nmin_interval = \"0s\"",
    );
    let get = rig.begin(Some("s"), "2025-06-18").await;
    get.events(&[]);
    let log = |logger: &str, row: u32| {
        let params = format!(r#"{{"level":"info","logger":"{logger}","data":"row {row} of 9"}}"#);
        notification("notifications/message", params)
    };
    let told = |token: &str, row: u32| {
        let figure = format!(r#""progress":{row},"total":9,"message":"row {row} of 9""#);
        notification("notifications/progress", format!(r#"{{"progressToken":{token},{figure}}}"#))
    };
    let mut servers = Vec::new();
    for (tool, id, token) in [("shell", "1", "7"), ("grep", "2", "8")] {
        rig.say(call_of(tool, id, token)).await;
        let server = rig.asked().await;
        server.events(&[]);
        servers.push(server);
        if id == "1" {
            get.say(log("app", 1));
            assert_eq!(rig.told().await, [log("app", 1), told("7", 1)]);
        }
    }
    get.say(log("server.grep", 2));
    assert_eq!(rig.told().await, [log("server.grep", 2), told("8", 2)]);
    get.say(log("app", 3));
    assert_eq!(rig.told().await, [log("app", 3)], "it may be about either");
}
