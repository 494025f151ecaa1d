//! Servers that take a request and say nothing in the response to its POST, whose answer comes on the GET stream; and
//! servers whose answer has an odd status or type.

use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::support::messages::{
    INITIALIZED, agreement, call, cancelled, initialize, progress, result,
};

const QUIET: &str = "heartbeat.enabled = false";
const SESSION: &str = "Mcp-Session-Id: s";

/// A session whose client listens: the client's GET stream and the server's.
async fn listening(rig: &mut Rig, revision: &str) -> (Answer, Asked) {
    rig.session("s", revision).await;
    let get = rig.get(&[SESSION]);
    let asked = rig.asked().await;
    asked.events(&[]);
    settle().await;
    (get, asked)
}

#[tokio::test(start_paused = true)]
async fn progress_and_answer_on_the_get_stream_reach_the_response_to_the_post() {
    for status in ["202 Accepted", "204 No Content", "200 OK"] {
        for body in ["", "Accepted"] {
            if !body.is_empty() && !status.starts_with("202") {
                continue;
            }
            let mut rig = Rig::new(QUIET);
            let (get, wire) = listening(&mut rig, "2025-06-18").await;
            let post = rig.post(&[SESSION], call("1", "7"));
            let asked = rig.asked().await;
            match (status, body) {
                ("204 No Content", _) => asked.head(status, &[]),
                _ => asked.answer(status, &[], body),
            }
            settle().await;
            assert_eq!(post.status(), 200, "{status}");
            assert!(post.header("content-type").unwrap().starts_with("text/event-stream"));
            wire.say(progress("7", 1));
            wire.say(progress("7", 2));
            settle().await;
            assert_eq!(post.messages(), [progress("7", 1), progress("7", 2)]);
            wire.say(result("1"));
            settle().await;
            assert_eq!(post.messages().last(), Some(&result("1")));
            assert!(post.is_over());
            assert!(get.messages().is_empty(), "{:?}", get.messages());
            assert!(rig.calls_done().await);
            check([&post]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_stream_of_events_settles_nothing() {
    for text in ["", ": nothing\n\n"] {
        let mut rig = Rig::new(QUIET);
        let (get, wire) = listening(&mut rig, "2025-06-18").await;
        let post = rig.post(&[SESSION], call("1", "7"));
        let asked = rig.asked().await;
        asked.events(&[]);
        if !text.is_empty() {
            asked.chunk(text);
        }
        asked.end();
        pass(secs(2)).await;
        wire.say(progress("7", 1));
        wire.say(result("1"));
        settle().await;
        assert_eq!(post.messages(), [progress("7", 1), result("1")]);
        assert!(post.is_over() && get.messages().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_json_only_gets_the_answer_as_json() {
    let mut rig = Rig::new(QUIET);
    let (get, wire) = listening(&mut rig, "2025-06-18").await;
    let headers = ["Accept: application/json", "Content-Type: application/json", SESSION];
    let post = rig.send("POST /r", &headers, call("1", "7").as_bytes());
    rig.asked().await.accept();
    settle().await;
    assert!(post.is_silent());
    wire.say(progress("7", 1));
    settle().await;
    assert_eq!(get.messages(), [progress("7", 1)]);
    wire.say(result("1"));
    settle().await;
    assert_eq!((post.status(), post.messages()), (200, vec![result("1")]));
    assert_eq!(post.header("content-type").as_deref(), Some("application/json"));
    assert_eq!(get.messages().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_get_stream_the_client_gets_202_and_its_call_stays_open() {
    let mut rig = Rig::new(QUIET);
    rig.session("s", "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.accept();
    settle().await;
    assert_eq!((post.status(), post.text()), (202, String::new()));
    // The client listens only now.
    let get = rig.get(&[SESSION]);
    let wire = rig.asked().await;
    wire.events(&[]);
    wire.say(progress("7", 1));
    pass(ms(200)).await;
    wire.say(result("1"));
    settle().await;
    assert_eq!(get.messages(), [progress("7", 1), result("1")]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_ahead_of_202_stays_where_it_came() {
    let mut rig = Rig::new(QUIET);
    let (get, wire) = listening(&mut rig, "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    let asked = rig.asked().await;
    wire.say(result("1"));
    settle().await;
    asked.accept();
    settle().await;
    assert_eq!(get.messages(), [result("1")]);
    assert_eq!(post.status(), 202);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_an_answer_elsewhere_has_an_end() {
    // The call times out.
    let mut rig = Rig::new(&format!("{QUIET}\ncall_timeout = \"20s\""));
    let (_get, _wire) = listening(&mut rig, "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.accept();
    pass(secs(21)).await;
    let told = post.messages();
    assert!(told.len() == 1 && told[0].contains("\"error\""), "{told:?}");
    assert!(post.is_over());
    // The GET stream ends.
    let mut rig = Rig::new(QUIET);
    let (_get, wire) = listening(&mut rig, "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.accept();
    settle().await;
    wire.end();
    pass(secs(30)).await;
    assert!(post.messages().is_empty());
    pass(secs(40)).await;
    let told = post.messages();
    assert!(told.len() == 1 && told[0].contains("the GET stream"), "{told:?}");
    assert!(post.is_over());
    // The session ends.
    let mut rig = Rig::new(QUIET);
    let (_get, _wire) = listening(&mut rig, "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.accept();
    settle().await;
    let _delete = rig.send("DELETE /r", &[SESSION], b"");
    rig.asked().await.answer("200 OK", &[], "");
    settle().await;
    let told = post.messages();
    assert!(told.len() == 1 && told[0].contains("the session has ended"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_elsewhere_gets_heartbeats_and_can_be_cancelled() {
    let mut rig = Rig::new("heartbeat = { after = \"2s\", every = \"5s\" }");
    let (_get, wire) = listening(&mut rig, "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.accept();
    pass(secs(3)).await;
    assert_eq!(post.messages().len(), 1);
    let _cancel = rig.post(&[SESSION], cancelled(1));
    rig.asked().await.accept();
    settle().await;
    assert!(post.is_over());
    wire.say(progress("7", 1));
    pass(secs(9)).await;
    assert_eq!(post.messages().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_gets_the_answer_on_its_get_stream() {
    let mut rig = Rig::new(QUIET);
    let (get, wire) = listening(&mut rig, "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.accept();
    settle().await;
    post.leave();
    settle().await;
    wire.say(progress("7", 1));
    wire.say(result("1"));
    pass(ms(200)).await;
    assert_eq!(get.messages(), [progress("7", 1), result("1")]);
}

/// An answer that is too large to be held.
fn large_result(id: &str) -> String {
    result(id)
        .replace(r#""content":["#, &format!(r#""note":"{}","content":["#, "x".repeat(3 << 20)))
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_large_to_be_moved_is_told_where_it_came() {
    for said in [None, Some(progress("7", 1))] {
        let mut rig = Rig::new(QUIET);
        let (get, wire) = listening(&mut rig, "2025-06-18").await;
        let post = rig.post(&[SESSION], call("1", "7"));
        let asked = rig.asked().await;
        match &said {
            None => asked.accept(),
            Some(progress) => {
                asked.events(&[]);
                asked.say(progress);
            }
        }
        settle().await;
        wire.say(large_result("1"));
        settle().await;
        assert!(get.messages() == [large_result("1")], "{said:?}: {:?}", get.messages().len());
        assert_eq!(post.messages(), Vec::from_iter(said.clone()));
        // A response that has begun ends when the server ends it.
        if said.is_some() {
            asked.end();
        }
        assert!(rig.calls_done().await && post.is_over());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_large_to_be_moved_is_an_error_where_milepost_listens() {
    let mut rig = Rig::new(&format!("own_get = true\n{QUIET}"));
    rig.session("s", "2025-06-18").await;
    pass(secs(3)).await;
    let wire = rig.asked().await;
    wire.events(&[]);
    settle().await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.accept();
    settle().await;
    wire.say(large_result("1"));
    settle().await;
    assert_eq!(post.messages().len(), 1);
    assert!(post.messages()[0].contains("too large to be moved"), "{:?}", post.messages());
}

#[tokio::test(start_paused = true)]
async fn where_milepost_listens_for_the_client_the_answer_reaches_the_post_too() {
    let mut rig = Rig::new(&format!("own_get = true\n{QUIET}"));
    rig.session("s", "2025-06-18").await;
    pass(secs(3)).await;
    let wire = rig.asked().await;
    wire.events(&[]);
    settle().await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.accept();
    settle().await;
    wire.say(progress("7", 1));
    wire.say(result("1"));
    settle().await;
    assert_eq!(post.messages(), [progress("7", 1), result("1")]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_whatever_its_success_is_called() {
    for status in
        ["201 Created", "202 Accepted", "203 Non-Authoritative Information", "206 Partial Content"]
    {
        let mut rig = Rig::new(QUIET);
        rig.session("s", "2025-06-18").await;
        let post = rig.post(&[SESSION], call("1", "7"));
        let asked = rig.asked().await;
        asked.head(status, &["Content-Type: text/event-stream", "Transfer-Encoding: chunked"]);
        asked.say(progress("\"7\"", 1));
        settle().await;
        asked.say(result("1"));
        asked.end();
        settle().await;
        assert_eq!(post.status(), 200, "{status}");
        assert_eq!(post.messages().last(), Some(&result("1")));
        assert!(post.messages()[0].contains(r#""progressToken":7"#), "{:?}", post.messages());
        let post = rig.post(&[SESSION], call("2", "8"));
        let body = result("\"2\"");
        rig.asked().await.answer(status, &["Content-Type: application/json"], &body);
        settle().await;
        // The answer is parsed, and so repaired.
        assert_eq!((post.status(), post.text()), (200, result("2")), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_whatever_its_type_is_called() {
    let types = [
        "",
        "Content-Type: text/plain",
        "Content-Type: application/octet-stream",
        "Content-Type: APPLICATION/JSON; Charset=UTF-8",
        "Content-Type: application/json-rpc",
        "Content-Type: text/json",
    ];
    for kind in types {
        let mut rig = Rig::new(QUIET);
        rig.session("s", "2025-06-18").await;
        let post = rig.post(&[SESSION], call("2", "8"));
        let headers: &[&str] = if kind.is_empty() { &[] } else { &[kind] };
        rig.asked().await.answer("200 OK", headers, result("\"2\""));
        settle().await;
        assert_eq!(post.text(), result("2"), "{kind}");
        let told = post.header("content-type").unwrap().to_lowercase();
        assert!(told.starts_with("application/json"), "{kind}: {told}");
    }
    for kind in ["", "Content-Type: text/plain", "Content-Type: Text/Event-Stream;charset=utf-8"] {
        let mut rig = Rig::new(QUIET);
        rig.session("s", "2025-06-18").await;
        let post = rig.post(&[SESSION], call("1", "7"));
        let asked = rig.asked().await;
        let headers = [kind, "Transfer-Encoding: chunked"];
        asked.head("200 OK", if kind.is_empty() { &headers[1..] } else { &headers });
        asked.say(progress("\"7\"", 1));
        asked.say(result("1"));
        asked.end();
        settle().await;
        let text = post.text();
        assert!(
            text.contains(r#""progressToken":7"#) && text.contains(&result("1")),
            "{kind}: {text}"
        );
    }
    // Strings stay strings.
    let mut rig = Rig::new(QUIET);
    rig.session("s", "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    rig.asked().await.answer("200 OK", &["Content-Type: text/html"], "<p>hello</p>");
    settle().await;
    assert_eq!((post.status(), post.text()), (200, "<p>hello</p>".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn words_in_json_under_202_are_no_answer() {
    let mut rig = Rig::new(QUIET);
    let (_get, wire) = listening(&mut rig, "2025-06-18").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    let json = ["Content-Type: application/json"];
    rig.asked().await.answer("202 Accepted", &json, r#"{"status":"accepted"}"#);
    settle().await;
    wire.say(result("1"));
    settle().await;
    assert_eq!(post.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn a_get_stream_counts_whatever_its_success_is_called() {
    let mut rig = Rig::new(QUIET);
    rig.session("s", "2025-06-18").await;
    let get = rig.get(&[SESSION]);
    let wire = rig.asked().await;
    wire.head("202 Accepted", &["Content-Type: text/event-stream", "Transfer-Encoding: chunked"]);
    settle().await;
    assert_eq!(get.status(), 200);
    let post = rig.post(&[SESSION], call("1", "7"));
    let asked = rig.asked().await;
    asked.events(&[]);
    wire.say(progress("7", 1));
    settle().await;
    asked.say(result("1"));
    asked.end();
    settle().await;
    assert_eq!(post.messages(), [progress("7", 1), result("1")]);
}

#[tokio::test(start_paused = true)]
async fn an_array_of_several_streams_messages_is_divided() {
    let mut rig = Rig::new(QUIET);
    let (get, wire) = listening(&mut rig, "2025-03-26").await;
    let posts = ["1", "2"].map(|id| rig.post(&[SESSION], call(id, id)));
    for _ in 0..2 {
        rig.asked().await.accept();
    }
    settle().await;
    wire.say(format!("[{},{}]", progress("1", 1), progress("2", 1)));
    settle().await;
    wire.say(format!("[{},{}]", result("2"), result("1")));
    settle().await;
    for (post, id) in posts.iter().zip(["1", "2"]) {
        assert_eq!(post.messages(), [progress(id, 1), result(id)]);
    }
    assert!(get.messages().is_empty(), "{:?}", get.messages());
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_in_an_array_ends_its_call() {
    let mut rig = Rig::new("heartbeat = { after = \"2s\", every = \"5s\" }");
    rig.session("s", "2025-03-26").await;
    let post = rig.post(&[SESSION], call("1", "7"));
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.say(progress("7", 1));
    settle().await;
    let array = format!("[{},{INITIALIZED}]", cancelled(1));
    let _cancel = rig.post(&[SESSION], &array);
    let told = rig.asked().await;
    assert_eq!(told.text(), array);
    told.accept();
    settle().await;
    asked.say(progress("7", 2));
    pass(secs(9)).await;
    assert_eq!(post.messages(), [progress("7", 1)]);
}

#[tokio::test(start_paused = true)]
async fn initialize_under_another_success_begins_the_session() {
    let mut rig = Rig::new(QUIET);
    let first = rig.post(&[], initialize("2025-06-18"));
    let headers = ["Content-Type: application/json", SESSION];
    rig.asked().await.answer("201 Created", &headers, agreement("2025-06-18"));
    settle().await;
    assert_eq!((first.status(), first.text()), (200, agreement("2025-06-18")));
    let get = rig.get(&[SESSION]);
    rig.asked().await.events(&[]);
    settle().await;
    assert_eq!(get.status(), 200);
}
