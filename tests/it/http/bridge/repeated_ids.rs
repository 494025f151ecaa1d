//! Clients that give every request of a session the same id, before servers whose answers are found by the id
//! alone. Each POST gets its own progress and its own answer, and the server never sees one id twice at once.

use serde_json::Value;

use crate::http::bridge::missed_events::last_id;
use crate::http::bridge::sessions::{Begun, begun};
use crate::http::direct::large_bodies::large_call;
use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::support::messages::{
    agreement, call, cancelled, initialize, notification, progress, request, result,
};

/// The id and the token of a call, as the server sees them.
fn names(call: &str) -> (Value, Value) {
    let call: Value = serde_json::from_str(call).unwrap();
    (call["id"].clone(), call["params"]["_meta"]["progressToken"].clone())
}

/// An answer that tells the calls apart.
fn done(id: impl std::fmt::Display, by: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"by":"{by}"}}}}"#)
}

/// Two calls with id 1 and token 1 that are open at once, and the names of the second at the server.
async fn twice(begun: &mut Begun) -> ([Answer; 2], (Value, Value)) {
    let first = begun.post(call("1", "1"));
    assert_eq!(begun.server.line().await, call("1", "1"));
    let second = begun.post(call("1", "1"));
    let line = begun.server.line().await;
    let (id, token) = names(&line);
    assert_ne!(id, 1);
    assert_ne!(token, 1);
    // The rest of the request is unchanged.
    assert_eq!(line, call(&id, &token));
    ([first, second], (id, token))
}

#[tokio::test(start_paused = true)]
async fn calls_with_one_id_each_get_their_own_progress_and_answer() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    let (calls, (id, token)) = twice(&mut begun).await;
    begun.server.say(progress(&token, 5));
    begun.server.say(progress(1, 1));
    pass(ms(200)).await;
    begun.server.say(progress(1, 2));
    begun.server.say(progress(&token, 6));
    pass(ms(200)).await;
    begun.server.say(done(&id, "second"));
    settle().await;
    assert!(!calls[0].is_over());
    begun.server.say(done(1, "first"));
    settle().await;
    assert_eq!(calls[0].messages(), [progress(1, 1), progress(1, 2), done(1, "first")]);
    assert_eq!(calls[1].messages(), [progress(1, 5), progress(1, 6), done(1, "second")]);
    assert!(calls.iter().all(Answer::is_over));
    // With no other request open, the server gets the client's own id and token again.
    let third = begun.post(call("1", "1"));
    assert_eq!(begun.server.line().await, call("1", "1"));
    begun.server.say(done(1, "third"));
    settle().await;
    assert_eq!(third.messages(), [done(1, "third")]);
    calls.iter().chain([&third]).for_each(|call| check([call]));
}

#[tokio::test(start_paused = true)]
async fn calls_with_one_id_each_get_their_own_heartbeats() {
    let mut begun = begun("heartbeat = { after = \"2s\", every = \"5s\" }", "2025-06-18").await;
    let (calls, (id, _)) = twice(&mut begun).await;
    pass(secs(3)).await;
    assert_eq!(calls.each_ref().map(|call| call.messages().len()), [1, 1]);
    begun.server.say(done(&id, "second"));
    pass(secs(5)).await;
    assert_eq!(calls.each_ref().map(|call| call.messages().len()), [2, 2]);
    begun.server.say(done(1, "first"));
    settle().await;
    calls.iter().for_each(|call| check([call]));
}

#[tokio::test(start_paused = true)]
async fn progress_that_names_a_request_is_that_requests() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    let (calls, (id, _)) = twice(&mut begun).await;
    let says = |id: &Value, text: &str| {
        let params = format!(r#"{{"requestId":{id},"progress":1,"message":"{text}"}}"#);
        notification("notifications/tools/progress", params)
    };
    begun.server.say(says(&id, "of the second"));
    begun.server.say(says(&Value::from(1), "of the first"));
    pass(ms(300)).await;
    for (call, text) in calls.iter().zip(["of the first", "of the second"]) {
        let told = call.messages();
        assert!(told.len() == 1 && told[0].contains(text), "{told:?}");
        assert!(told[0].contains(r#""progressToken":1"#), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_in_use_is_replaced_too() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    let first = begun.post(call("\"a\"", "\"t\""));
    assert_eq!(begun.server.line().await, call("\"a\"", "\"t\""));
    let second = begun.post(call("\"b\"", "\"t\""));
    let (id, token) = names(&begun.server.line().await);
    begun.server.say(progress(&token, 3));
    begun.server.say(progress("\"t\"", 1));
    pass(ms(200)).await;
    begun.server.say(result("\"a\""));
    begun.server.say(result(&id));
    settle().await;
    assert_eq!(first.messages(), [progress("\"t\"", 1), result("\"a\"")]);
    assert_eq!(second.messages(), [progress("\"t\"", 3), result("\"b\"")]);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_names_the_request_as_the_server_knows_it() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    let (calls, (id, token)) = twice(&mut begun).await;
    begun.server.say(done(1, "first"));
    settle().await;
    let _cancel = begun.post(cancelled(1));
    assert_eq!(begun.server.line().await, cancelled(&id));
    begun.server.say(progress(&token, 1));
    begun.server.say(done(&id, "late"));
    pass(secs(1)).await;
    assert_eq!(calls[0].messages(), [done(1, "first")]);
    assert!(calls[1].messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_that_may_mean_two_conversations_cancels_neither() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    let (calls, (id, token)) = twice(&mut begun).await;
    let cancel = begun.post(cancelled(1));
    settle().await;
    assert_eq!(cancel.status(), 202);
    assert!(begun.server.told().await.is_empty());
    begun.server.say(progress(&token, 1));
    pass(ms(200)).await;
    begun.server.say(done(&id, "second"));
    begun.server.say(done(1, "first"));
    settle().await;
    assert_eq!(calls[0].messages(), [done(1, "first")]);
    assert_eq!(calls[1].messages(), [progress(1, 1), done(1, "second")]);
    let counted = r#"milepost_messages_refused_total{route="/r",rule="ambiguous-cancel"} 1"#;
    assert!(begun.rig.metrics().contains(counted), "{}", begun.rig.metrics());
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_cancelled_request_is_not_the_next_ones() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    let first = begun.post(call("1", "1"));
    assert_eq!(begun.server.line().await, call("1", "1"));
    let _cancel = begun.post(cancelled(1));
    assert_eq!(begun.server.line().await, cancelled(1));
    let second = begun.post(call("1", "1"));
    let (id, token) = names(&begun.server.line().await);
    // The Python SDK answers in this way.
    begun
        .server
        .say(r#"{"jsonrpc":"2.0","id":1,"error":{"code":0,"message":"Request cancelled"}}"#);
    begun.server.say(progress(1, 9));
    begun.server.say(progress(&token, 1));
    pass(ms(200)).await;
    begun.server.say(done(&id, "second"));
    settle().await;
    assert_eq!(second.messages(), [progress(1, 1), done(1, "second")]);
    assert!(first.messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_in_an_array_get_names_of_their_own() {
    let mut begun = begun("heartbeat.enabled = false", "2025-03-26").await;
    let first = begun.post(call("1", "1"));
    assert_eq!(begun.server.line().await, call("1", "1"));
    let second = begun.post(format!("[{},{}]", call("1", "1"), call("2", "2")));
    let line = begun.server.line().await;
    let array: Vec<Value> = serde_json::from_str(&line).unwrap();
    let (id, token) = names(&array[0].to_string());
    assert_eq!(line, format!("[{},{}]", call(&id, &token), call("2", "2")));
    begun.server.say(done(&id, "of the array"));
    begun.server.say(done(1, "first"));
    begun.server.say(result("2"));
    settle().await;
    assert_eq!(first.messages(), [done(1, "first")]);
    assert_eq!(second.messages(), [format!("[{},{}]", done(1, "of the array"), result("2"))]);
}

#[tokio::test(start_paused = true)]
async fn a_large_request_gets_a_name_of_its_own() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    // The second request shows that the client does not count its ids.
    let (calls, (id, _)) = twice(&mut begun).await;
    begun.server.say(done(&id, "second"));
    settle().await;
    let large = begun.post(large_call(6 << 20));
    let mut told = Vec::new();
    for _ in 0..30_000 {
        tokio::task::yield_now().await;
        std::thread::sleep(ms(2));
        told = begun.server.told().await;
        if !told.is_empty() {
            break;
        }
    }
    assert_eq!(told.len(), 1);
    let (id, _) = names(&told[0]);
    assert_ne!(id, 1);
    begun.server.say(done(&id, "large"));
    begun.server.say(done(1, "first"));
    settle().await;
    assert_eq!(calls[0].messages(), [done(1, "first")]);
    assert_eq!(large.messages(), [done(1, "large")]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_gets_the_answer_of_its_own_stream() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    let (calls, (id, token)) = twice(&mut begun).await;
    begun.server.say(progress(&token, 1));
    begun.server.say(progress(1, 1));
    pass(ms(200)).await;
    let last = calls.each_ref().map(last_id);
    for call in &calls {
        call.leave();
    }
    settle().await;
    begun.server.say(done(&id, "second"));
    begun.server.say(done(1, "first"));
    settle().await;
    let again = last.map(|last| begun.get(&[&format!("Last-Event-ID: {last}")]));
    settle().await;
    assert_eq!(again[0].messages(), [done(1, "first")]);
    assert_eq!(again[1].messages(), [done(1, "second")]);
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_server_and_their_answers_keep_their_names() {
    let mut begun = begun("heartbeat.enabled = false", "2025-06-18").await;
    let (calls, (id, _)) = twice(&mut begun).await;
    let listens = begun.get(&[]);
    settle().await;
    let asks = request("1", "roots/list", "{}");
    begun.server.say(&asks);
    settle().await;
    assert_eq!(listens.messages(), [asks]);
    let _answer = begun.post(result("1"));
    assert_eq!(begun.server.line().await, result("1"));
    begun.server.say(done(&id, "second"));
    begun.server.say(done(1, "first"));
    settle().await;
    assert!(calls.iter().all(Answer::is_over));
}

/// A session before a server of HTTP+SSE: the server's stream, and the header that names the session.
async fn before_sse(rig: &mut Rig) -> (Asked, String) {
    let first = rig.post(&[], initialize("2025-06-18"));
    let wire = rig.asked().await;
    wire.events(&[]);
    wire.chunk("event: endpoint\ndata: /messages\n\n");
    rig.asked().await.answer("202 Accepted", &[], "Accepted");
    wire.say(agreement("2024-11-05"));
    settle().await;
    let session = format!("Mcp-Session-Id: {}", first.header("mcp-session-id").unwrap());
    (wire, session)
}

#[tokio::test(start_paused = true)]
async fn before_a_server_of_sse_calls_with_one_id_are_told_apart() {
    let mut rig =
        Rig::having("upstream.sse = \"http://up.example/sse\"\nheartbeat.enabled = false");
    let (wire, session) = before_sse(&mut rig).await;
    let calls = [1, 2].map(|_| rig.post(&[&session], call("1", "1")));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let asked = rig.asked().await;
        seen.push(names(&asked.text()));
        asked.answer("202 Accepted", &[], "Accepted");
    }
    seen.sort_by_key(|(id, _)| id != 1);
    let (id, token) = seen.pop().unwrap();
    assert_eq!(seen, [(Value::from(1), Value::from(1))]);
    assert_ne!((&id, &token), (&Value::from(1), &Value::from(1)));
    wire.say(progress(&token, 5));
    wire.say(progress(1, 1));
    pass(ms(200)).await;
    wire.say(done(&id, "renamed"));
    wire.say(done(1, "as it came"));
    settle().await;
    let told = calls.each_ref().map(Answer::messages);
    let expected =
        [vec![progress(1, 1), done(1, "as it came")], vec![progress(1, 5), done(1, "renamed")]];
    assert!(told == expected || told.iter().eq(expected.iter().rev()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_post_that_a_server_of_sse_refuses_fails_alone() {
    let mut rig =
        Rig::having("upstream.sse = \"http://up.example/sse\"\nheartbeat.enabled = false");
    let (wire, session) = before_sse(&mut rig).await;
    let first = rig.post(&[&session], call("1", "1"));
    rig.asked().await.answer("202 Accepted", &[], "Accepted");
    let second = rig.post(&[&session], call("1", "1"));
    rig.asked().await.answer("500 Internal Server Error", &[], "");
    settle().await;
    let told = second.messages();
    assert!(told.len() == 1 && told[0].contains(r#""id":1,"error""#), "{told:?}");
    wire.say(done(1, "first"));
    settle().await;
    assert_eq!(first.messages(), [done(1, "first")]);
}
