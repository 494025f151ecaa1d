//! A server asks its client within a call: the clocks of the call stand still until the client has answered.

use crate::http::rig::{Answer, Rig, check, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

const CLOCKS: &str =
    "call_timeout = \"10s\"\nheartbeat = { after = \"4s\", every = \"4s\", max = \"6s\" }";

const QUESTION: &str =
    r#"{"jsonrpc":"2.0","id":90,"method":"elicitation/create","params":{"message":"Which?"}}"#;

const ACCEPTS: &str = r#"{"jsonrpc":"2.0","id":90,"result":{"action":"accept","content":{}}}"#;

/// The client answers the question in a POST of its own.
async fn accept(rig: &mut Rig, body: &str) -> Answer {
    let posted = rig.post(&[S], body);
    rig.asked().await.accept();
    settle().await;
    posted
}

/// The words of heartbeats, and the ids of errors.
fn told(answer: &Answer) -> Vec<String> {
    let read = |text: String| -> Option<String> {
        let message: serde_json::Value = serde_json::from_str(&text).unwrap();
        let words = message["params"]["message"].as_str().filter(|_| message["id"].is_null());
        words
            .map(str::to_owned)
            .or_else(|| Some(format!("error {}", message.get("error")?["code"])))
    };
    answer.messages().into_iter().filter_map(read).collect()
}

#[tokio::test(start_paused = true)]
async fn clocks_stand_still_while_a_question_on_the_stream_of_its_call_is_open() {
    for answered in [ACCEPTS.to_owned(), format!("[{ACCEPTS}]")] {
        let mut rig = Rig::new(CLOCKS);
        rig.session("s", "2025-03-26").await;
        let answer = rig.post(&[S], call("1", "7"));
        let server = rig.asked().await;
        server.events(&[]);
        let other = rig.post(&[S], call("2", "8"));
        let silent = rig.asked().await;
        silent.events(&[]);
        settle().await;
        pass(secs(3)).await;
        server.say(QUESTION);
        pass(secs(60)).await;
        let waiting = told(&answer);
        assert_eq!(waiting[0], "work: waiting for your answer (1s)", "{waiting:?}");
        assert_eq!(waiting.len(), 15, "{waiting:?}");
        assert_eq!(told(&other), ["work: running 4s", "error -32603"], "it was asked nothing");
        let cancelled = rig.asked().await;
        assert!(cancelled.text().contains("notifications/cancelled"), "{}", cancelled.text());
        cancelled.accept();
        let posted = accept(&mut rig, &answered).await;
        assert_eq!(posted.status(), 202);
        // 7 s of its 10 s are left, and 3 s for heartbeats.
        pass(secs(6)).await;
        assert_eq!(told(&answer)[15..], ["work: running 64s"]);
        server.say(result("1"));
        server.end();
        settle().await;
        assert_eq!(answer.messages().last(), Some(&result("1")));
        check([&answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_question_is_answered_has_the_rest_of_its_time() {
    let mut rig = Rig::new("call_timeout = \"10s\"\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    server.say(QUESTION);
    pass(secs(60)).await;
    accept(&mut rig, ACCEPTS).await;
    pass(secs(9)).await;
    assert_eq!(answer.messages().len(), 1);
    pass(secs(2)).await;
    assert_eq!(told(&answer), ["error -32603"]);
    rig.asked().await.accept();
    check([&answer]);
}

/// A question on the GET stream may be about any call.
#[tokio::test(start_paused = true)]
async fn a_question_on_the_get_stream_stops_the_clocks_of_all_calls() {
    for withdrawn in [false, true] {
        let mut rig = Rig::new("call_timeout = \"10s\"\nheartbeat.enabled = false");
        rig.session("s", "2025-06-18").await;
        let listens = rig.get(&[S]);
        let listened = rig.asked().await;
        listened.events(&[]);
        let one = rig.post(&[S], call("1", "7"));
        let first = rig.asked().await;
        first.events(&[]);
        let two = rig.post(&[S], call("2", "8"));
        let second = rig.asked().await;
        second.events(&[]);
        settle().await;
        listened.say(QUESTION);
        pass(secs(60)).await;
        assert_eq!(listens.messages(), [QUESTION]);
        assert!(told(&one).is_empty() && told(&two).is_empty());
        if withdrawn {
            let params = r#"{"requestId":90}"#;
            listened.say(notification("notifications/cancelled", params));
        } else {
            accept(&mut rig, ACCEPTS).await;
        }
        pass(secs(9)).await;
        first.say(result("1"));
        first.end();
        pass(secs(2)).await;
        assert_eq!(one.messages(), [result("1")]);
        assert_eq!(told(&two), ["error -32603"]);
        rig.asked().await.accept();
        check([&one, &two]);
    }
}

/// A question of which no answer is ever seen.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_answers_keeps_its_call_for_an_hour() {
    let mut rig = Rig::new("call_timeout = \"10s\"\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    server.say(QUESTION);
    pass(secs(3605)).await;
    assert_eq!(answer.messages().len(), 1);
    pass(secs(6)).await;
    assert_eq!(told(&answer), ["error -32603"]);
    rig.asked().await.accept();
}
