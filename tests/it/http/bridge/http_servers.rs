//! Clients of one HTTP transport before servers of the other.

use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::support::messages::{agreement, call, initialize, progress, result};

const STREAMABLE: &str = "upstream.url = \"http://up.example/mcp\"";
const SSE: &str = "upstream.sse = \"http://up.example/sse\"";

#[tokio::test(start_paused = true)]
async fn a_client_of_sse_reaches_a_server_of_streamable_http() {
    let mut rig = Rig::having(STREAMABLE);
    let stream = rig.send("GET /r/sse", &["Accept: text/event-stream"], b"");
    settle().await;
    let text = stream.text();
    let endpoint = text.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
    let post = |body: &str| {
        let headers = ["Content-Type: application/json", "Authorization: Bearer theirs"];
        rig.send(&format!("POST {endpoint}"), &headers, body.as_bytes())
    };
    let first = post(&initialize("2024-11-05"));
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let asks = call("1", "1");
    settle().await;
    assert_eq!(first.status(), 202);
    let (second, third) = (post(ready), post(&asks));
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /mcp");
    assert_eq!(asked.request.header("authorization"), Some("Bearer theirs"));
    asked.json(&["Mcp-Session-Id: theirs"], &agreement("2025-06-18"));
    settle().await;
    let mut call_asked = None;
    for _ in 0..3 {
        let Some(asked) = rig.try_asked().await else { break };
        assert_eq!(asked.request.header("mcp-session-id"), Some("theirs"));
        match (asked.what(), asked.text()) {
            ("POST /mcp", text) if text == asks => call_asked = Some(asked),
            ("POST /mcp", _) => asked.accept(),
            _ => asked.answer("405 Method Not Allowed", &[], ""),
        }
    }
    let asked = call_asked.expect("the call has not come");
    asked.events(&[]);
    pass(secs(1)).await;
    asked.say(progress("1", 1));
    pass(secs(1)).await;
    asked.say(result("1"));
    asked.end();
    pass(secs(1)).await;
    assert_eq!(stream.messages(), [agreement("2025-06-18"), progress("1", 1), result("1")]);
    check([&first, &second, &third, &stream]);
}

#[tokio::test]
async fn a_large_answer_whose_id_comes_last_goes_to_who_asked_for_it() {
    // A busy machine may take longer than the time before the first heartbeat.
    let mut rig = Rig::having(&format!("{SSE}\nheartbeat.enabled = false"));
    let first = rig.post(&[], initialize("2025-06-18"));
    let wire = rig.asked().await;
    wire.events(&[]);
    wire.chunk("event: endpoint\ndata: /messages\n\n");
    rig.asked().await.answer("202 Accepted", &[], "Accepted");
    wire.say(agreement("2024-11-05"));
    settle().await;
    let session = format!("Mcp-Session-Id: {}", first.header("mcp-session-id").unwrap());
    let listens = rig.get(&[&session]);
    let calls = ["1", "2"].map(|id| rig.post(&[&session], call(id, id)));
    for _ in 0..2 {
        rig.asked().await.answer("202 Accepted", &[], "Accepted");
    }
    settle().await;
    let text = "x".repeat(3_000_000);
    let large = |id| format!(r#"{{"result":{{"content":["{text}"]}},"jsonrpc":"2.0","id":{id}}}"#);
    let log = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#
    );
    wire.say(&log);
    wire.say(large(2));
    wire.say(large(1));
    // Other threads write and read the file, so the test has to wait.
    for _ in 0..3_000 {
        if calls.iter().all(Answer::is_over) && !listens.messages().is_empty() {
            break;
        }
        tokio::time::sleep(ms(20)).await;
    }
    for (call, id) in calls.iter().zip([1, 2]) {
        assert!(call.messages() == [large(id)], "{} messages", call.messages().len());
    }
    assert!(listens.messages() == [log], "{} messages", listens.messages().len());
}

#[tokio::test(start_paused = true)]
async fn a_client_of_streamable_http_reaches_a_server_of_sse() {
    let mut rig = Rig::having(SSE);
    let first = rig.post(&[], initialize("2025-06-18"));
    let wire = rig.asked().await;
    assert_eq!(wire.what(), "GET /sse");
    wire.events(&[]);
    wire.chunk("event: endpoint\ndata: /messages?id=7\n\n");
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /messages?id=7");
    assert_eq!(asked.text(), initialize("2025-06-18"));
    asked.answer("202 Accepted", &[], "Accepted");
    wire.say(agreement("2024-11-05"));
    settle().await;
    assert_eq!(first.text(), agreement("2024-11-05"));
    let session = format!("Mcp-Session-Id: {}", first.header("mcp-session-id").unwrap());
    let calls = ["1", "2"].map(|id| rig.post(&[&session], call(id, id)));
    for _ in 0..2 {
        rig.asked().await.answer("202 Accepted", &[], "Accepted");
    }
    settle().await;
    wire.say(progress("2", 1));
    wire.say(progress("1", 1));
    wire.say(result("2"));
    wire.say(result("1"));
    pass(ms(10)).await;
    assert_eq!(calls[0].messages(), [progress("1", 1), result("1")]);
    assert_eq!(calls[1].messages(), [progress("2", 1), result("2")]);
    check(calls.iter().chain([&first]));
    let ended = rig.send("DELETE /r", &[&session], b"");
    pass(secs(2)).await;
    assert_eq!(ended.status(), 200);
    assert!(wire.left().is_some(), "the server's stream is closed");
}

/// A session of ours in front of a server of HTTP+SSE, and the server's stream.
async fn begun(keys: &str) -> (Rig, Asked, String) {
    let mut rig = Rig::having(&format!("{SSE}\n{keys}"));
    let first = rig.post(&[], initialize("2025-06-18"));
    let wire = rig.asked().await;
    wire.events(&[]);
    wire.chunk("event: endpoint\ndata: /messages?id=7\n\n");
    rig.asked().await.answer("202 Accepted", &[], "Accepted");
    wire.say(agreement("2024-11-05"));
    settle().await;
    let session = format!("Mcp-Session-Id: {}", first.header("mcp-session-id").unwrap());
    (rig, wire, session)
}

#[tokio::test(start_paused = true)]
async fn a_session_between_the_http_transports_ends_when_it_was_not_used_for_long() {
    for (keys, idle) in [("", 1800), ("session_idle_timeout = \"60s\"", 60)] {
        let (mut rig, wire, session) = begun(keys).await;
        // A call counts as use, however long it takes.
        let answer = rig.post(&[&session], call("1", "1"));
        rig.asked().await.answer("202 Accepted", &[], "Accepted");
        pass(secs(2 * idle)).await;
        wire.say(result("1"));
        settle().await;
        assert_eq!(answer.messages().last(), Some(&result("1")), "{keys}");
        pass(secs(idle - 5)).await;
        assert!(wire.left().is_none(), "{keys}");
        pass(secs(10)).await;
        assert!(wire.left().is_some(), "{keys}");
        let late = rig.post(&[&session], call("2", "2"));
        settle().await;
        assert_eq!(late.status(), 404, "{keys}");
    }
    let (_rig, wire, _session) = begun("session_idle_timeout = \"off\"").await;
    pass(secs(4 * 3600)).await;
    assert!(wire.left().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_no_session() {
    for endpoint in [STREAMABLE, SSE] {
        let rig = Rig::having(endpoint);
        rig.refuse_connections(true);
        let answer = if endpoint == SSE {
            rig.post(&[], initialize("2025-06-18"))
        } else {
            let stream = rig.send("GET /r/sse", &["Accept: text/event-stream"], b"");
            settle().await;
            let text = stream.text();
            let to = text.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
            let told = rig.send(&format!("POST {to}"), &[], initialize("2024-11-05").as_bytes());
            pass(secs(5)).await;
            assert_eq!(told.status(), 202);
            stream
        };
        pass(secs(5)).await;
        assert!(answer.text().contains(r#""id":"i","error""#), "{}", answer.text());
        assert_eq!(answer.header("mcp-session-id"), None);
    }
}
