//! A stdio client before servers that answer on the GET stream, or under odd statuses and types.

use super::rig::Rig;
use crate::http::rig::{ms, pass, secs};
use crate::support::messages::{call, cancelled, notification, progress, request, result};

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_call_may_come_on_the_get_stream() {
    for status in ["202 Accepted", "200 OK"] {
        let mut rig = Rig::new();
        let get = rig.begin(Some("s"), "2025-06-18").await;
        rig.say(call("1", "\"a\"")).await;
        // The stream was requested, but is not open yet.
        rig.asked().await.answer(status, &[], "");
        assert_eq!(rig.told().await, [""; 0]);
        get.events(&[]);
        pass(ms(200)).await;
        get.say(progress("\"a\"", 1));
        assert_eq!(rig.line().await, progress("\"a\"", 1));
        pass(ms(100)).await;
        get.say(result("1"));
        assert_eq!(rig.line().await, result("1"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_stream_of_events_is_no_end_of_a_call() {
    let mut rig = Rig::new();
    let get = rig.begin(Some("s"), "2025-06-18").await;
    get.events(&[]);
    rig.say(call("1", "\"a\"")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.end();
    pass(ms(200)).await;
    assert_eq!(rig.told().await, [""; 0]);
    get.say(result("1"));
    assert_eq!(rig.line().await, result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_and_has_no_get_stream_is_told_of() {
    let mut rig = Rig::new();
    rig.begin(Some("s"), "2025-06-18").await.answer("405 Method Not Allowed", &[], "");
    pass(ms(10)).await;
    rig.say(call("1", "")).await;
    rig.asked().await.accept();
    let told = rig.line().await;
    assert!(told.contains("no GET stream"), "{told}");
    // A stream that is refused after the server has accepted the request.
    let mut rig = Rig::new();
    let get = rig.begin(Some("s"), "2025-06-18").await;
    rig.say(call("1", "")).await;
    rig.asked().await.accept();
    assert_eq!(rig.told().await, [""; 0]);
    get.answer("405 Method Not Allowed", &[], "");
    let told = rig.line().await;
    assert!(told.contains("no GET stream"), "{told}");
    // A stream that breaks and is not opened again.
    let mut rig = Rig::new();
    let get = rig.begin(Some("s"), "2025-06-18").await;
    get.events(&[]);
    rig.say(call("1", "")).await;
    rig.asked().await.accept();
    get.end();
    rig.refuse_connections(true);
    pass(secs(61)).await;
    let told = rig.line().await;
    assert!(told.contains("GET stream is closed"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_under_any_success_and_without_a_type() {
    let mut rig = Rig::new();
    rig.session(Some("s"), "2025-06-18").await;
    let json = "Content-Type: application/json";
    for (id, (status, headers)) in [
        ("202 Accepted", vec![json]),
        ("201 Created", vec![json]),
        ("206 Partial Content", vec!["Content-Type: application/json-rpc"]),
        ("200 OK", vec![]),
        ("200 OK", vec!["Content-Type: text/plain"]),
    ]
    .into_iter()
    .enumerate()
    {
        rig.say(call(id, "")).await;
        rig.asked().await.answer(status, &headers, result(id));
        assert_eq!(rig.line().await, result(id), "{status} {headers:?}");
    }
    for (id, head) in [(10, "Content-Type: text/event-stream"), (11, "X-Nothing: 1")] {
        rig.say(call(id, id)).await;
        let asked = rig.asked().await;
        asked.head("202 Accepted", &[head, "Transfer-Encoding: chunked"]);
        asked.say(result(id));
        asked.end();
        if id == 10 {
            assert_eq!(rig.line().await, result(id), "{head}");
        }
    }
    rig.say(call(12, "")).await;
    rig.asked().await.answer("200 OK", &[], "hello");
    let told = rig.told().await;
    assert!(told.iter().any(|line| line.contains("neither JSON nor events")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn arrays_take_the_way_of_single_messages() {
    let mut rig = Rig::new();
    rig.session(Some("s"), "2025-03-26").await;
    rig.say(call("1", "")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    // A cancellation in an array: no answer is missing.
    let array = format!("[{},{}]", cancelled(1), notification("notifications/x", "{}"));
    rig.say(&array).await;
    let post = rig.asked().await;
    assert_eq!(post.text(), array);
    post.accept();
    asked.end();
    pass(secs(1)).await;
    assert_eq!(rig.told().await, [""; 0]);
    // A list of tools in an array is handled like a single answer.
    rig.say(request("2", "tools/list", "{}")).await;
    let list = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#;
    rig.asked().await.json(&[], &format!("[{list}]"));
    let told = rig.line().await;
    assert!(told == list || told == format!("[{list}]"), "{told}");
}
