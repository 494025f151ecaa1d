//! Two proxies in a row give the same result as one.

use crate::http::direct::transcripts_over_http::Wire;
use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

/// One proxy, and two in a row.
fn one_and_two(keys: &str) -> [Rig; 2] {
    [Rig::new(keys), Rig::before(Rig::new(keys), keys)]
}

async fn called(rig: &mut Rig) -> (Answer, Asked) {
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    assert_eq!(server.what(), "POST /base/mcp");
    (answer, server)
}

#[tokio::test(start_paused = true)]
async fn two_proxies_say_what_one_says() {
    let mut all = Vec::new();
    for mut rig in one_and_two("") {
        let (answer, server) = called(&mut rig).await;
        let begin = rig.now();
        server.events(&[]);
        pass(secs(8)).await;
        server.chunk(event_with("e1", &progress("7", "1")));
        server.chunk(event_with("e2", &report("\"u\"", "1", "again")));
        pass(secs(30)).await;
        server.chunk("retry: 5\n\n: c\n\n");
        server.chunk(event(&log("m")));
        pass(secs(30)).await;
        server.chunk(format!("event: mcpResponse\ndata: {}\n\n", result("\"1\"")));
        server.end();
        settle().await;
        assert!(answer.is_over());
        check([&answer]);
        let told = answer.told().into_iter().map(|told| (told.at - begin, told.text));
        let told: Vec<_> = told.collect();
        all.push((told, answer.text()));
    }
    assert_eq!(all[0], all[1]);
    assert!(all[0].0.len() > 8, "{:?}", all[0]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_long_becomes_a_stream_once() {
    let mut all = Vec::new();
    for mut rig in one_and_two("") {
        let (answer, server) = called(&mut rig).await;
        let begin = rig.now();
        pass(ms(5100)).await;
        assert_eq!(answer.status(), 200);
        pass(secs(20)).await;
        server.json(&[], &result("1"));
        settle().await;
        assert!(answer.is_over());
        check([&answer]);
        let told = answer.told().into_iter().map(|told| (told.at - begin, told.text));
        all.push(told.collect::<Vec<_>>());
    }
    assert_eq!(all[0], all[1]);
    for mut rig in one_and_two("") {
        let (answer, server) = called(&mut rig).await;
        pass(secs(6)).await;
        server.answer("404 Not Found", &["Content-Type: text/plain"], "gone");
        settle().await;
        let error = answer.messages().pop().unwrap();
        assert!(error.contains(r#""httpStatus":404"#), "{error}");
        assert!(answer.is_over());
        check([&answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_passes_statuses_and_headers_as_one_does() {
    for mut rig in one_and_two("") {
        let answer = rig.post(&[], call("1", "7"));
        let challenges = ["WWW-Authenticate: Bearer a", "WWW-Authenticate: Basic"];
        rig.asked().await.answer("401 Unauthorized", &challenges, "no");
        settle().await;
        assert_eq!((answer.status(), answer.text()), (401, "no".to_owned()));
        assert_eq!(answer.all("www-authenticate"), ["Bearer a", "Basic"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_closes_from_end_to_end() {
    for mut rig in one_and_two("") {
        let (answer, server) = called(&mut rig).await;
        server.events(&[]);
        settle().await;
        answer.leave();
        settle().await;
        assert!(server.left().is_some());
        assert!(rig.try_asked().await.is_none());
        let (answer, server) = called(&mut rig).await;
        server.events(&[]);
        server.say(progress("7", "1"));
        settle().await;
        server.die();
        settle().await;
        let messages = answer.messages();
        assert_eq!(messages.len(), 2, "one error: {messages:?}");
        assert!(answer.is_over());
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_wires_says_what_one_says() {
    let mut all = Vec::new();
    for (number, rig) in one_and_two("").into_iter().enumerate() {
        let mut wire = Wire::open(rig).await;
        wire.post(call("1", "7").as_bytes()).await;
        pass(secs(8)).await;
        wire.server.say(progress("7", "1"));
        pass(secs(30)).await;
        wire.server.say(progress("7", "1"));
        wire.server.say(log("m"));
        pass(secs(1)).await;
        wire.server.say(result("1"));
        pass(secs(1)).await;
        check(wire.posted.iter().chain([&wire.stream]));
        let mut messages = wire.stream.messages();
        // Each of the two proxies delays progress for a moment, so the seconds may differ.
        messages.retain(|text| !text.contains("running"));
        assert!(!messages.is_empty(), "{number}");
        all.push(messages);
    }
    assert_eq!(all[0], all[1]);
}
