//! Servers over HTTP that report progress only if a request asks for it: the request that they get, with the additions
//! of the route.

use crate::http::direct::transcripts_over_http::Wire;
use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

const ASK_LEVEL: &str = r#"{"jsonrpc":"2.0","id":"milepost:logging/setLevel","method":"logging/setLevel","params":{"level":"info"}}"#;

const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A call of which the server gets `wanted`, and answers with events.
async fn called(rig: &mut Rig, message: &str, wanted: &str) -> (Answer, Asked) {
    let answer = rig.post(&[S, "Content-Digest: sha-256=:abc:"], message);
    let asked = rig.asked().await;
    assert_eq!(asked.text(), wanted);
    let length = asked.request.header("content-length").unwrap();
    assert_eq!(length, wanted.len().to_string());
    // The header was computed for the client's body.
    assert_eq!(asked.request.header("content-digest").is_some(), message == wanted);
    asked.events(&[]);
    settle().await;
    (answer, asked)
}

/// The same call with a token of another type, and a copy in its arguments.
fn copied(id: &str, token: &str, copy: &str) -> String {
    let arguments = format!(r#""arguments":{{"_meta":{{"progressToken":{copy}}}}}"#);
    call(id, token).replace(r#""arguments":{}"#, &arguments)
}

#[tokio::test(start_paused = true)]
async fn a_server_gets_tokens_of_its_type_and_the_client_its_own() {
    let mut rig = Rig::new("ask.token_type = \"string\"\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let (first, one) = called(&mut rig, &call("1", "0"), &call("1", "\"0\"")).await;
    let (second, two) = called(&mut rig, &call("2", "7"), &call("2", "\"7\"")).await;
    let (third, three) = called(&mut rig, &call("3", "\"a\""), &call("3", "\"a\"")).await;
    one.say(progress("\"0\"", "1"));
    three.say(progress("\"a\"", "1"));
    // On the stream of another, and on one of its own.
    one.say(progress("\"7\"", "1"));
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    listened.say(progress("\"7\"", "2"));
    listened.say(progress("\"0\"", "2"));
    settle().await;
    assert_eq!(first.messages(), [progress("0", "1"), progress("0", "2")]);
    assert_eq!(second.messages(), [progress("7", "1"), progress("7", "2")]);
    assert_eq!(third.messages(), [progress("\"a\"", "1")]);
    for (server, id) in [(&one, "1"), (&two, "2"), (&three, "3")] {
        server.say(result(id));
        server.end();
    }
    // Too late.
    listened.say(progress("\"7\"", "3"));
    pass(secs(1)).await;
    assert!(listens.messages().is_empty());
    check([&first, &second, &third, &listens]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_is_gone_on_with_under_the_same_token() {
    let mut rig = Rig::new("ask.token_type = \"integer\"\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let given = "6170964611088435";
    let (answer, server) = called(&mut rig, &call("1", "0"), &call("1", given)).await;
    server.chunk(event_with("e1", &progress(given, "1")));
    settle().await;
    assert_eq!(answer.messages(), [progress("0", "1")]);
    answer.leave();
    settle().await;
    let again = rig.get(&[S, "Last-Event-ID: e1"]);
    let resumed = rig.asked().await;
    resumed.events(&[]);
    resumed.chunk(event_with("e2", &progress(given, "2")));
    resumed.chunk(event_with("e3", &result("1")));
    settle().await;
    assert_eq!(again.messages(), [progress("0", "2"), result("1")]);
    check([&answer, &again]);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_lines_are_ten_a_second_and_the_newest_comes_before_the_answer() {
    let mut rig = Rig::new("ask.token_in_arguments = true");
    rig.session("s", "2025-06-18").await;
    let (answer, server) = called(&mut rig, &call("1", "5"), &copied("1", "5", "\"5\"")).await;
    for line in 1..=5000 {
        server.say(report("\"5\"", line.to_string(), &format!("line {line}")));
        if line % 1000 == 0 {
            pass(ms(500)).await;
        }
    }
    server.say(report("\"5\"", "5001", "the last"));
    server.say(result("1"));
    server.end();
    settle().await;
    let messages = answer.messages();
    let [.., newest, last] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((newest, last), (&report("5", "5001", "the last"), &result("1")));
    assert!((10..=30).contains(&messages.len()), "{} in 2.5 s", messages.len());
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn the_newest_line_is_dropped_on_a_wire() {
    let mut wire = Wire::open(Rig::new("ask.token_in_arguments = true")).await;
    let wanted = copied("1", "5", "\"5\"");
    wire.post_as(call("1", "5").as_bytes(), wanted.as_bytes()).await;
    pass(secs(1)).await;
    for line in 1..=500 {
        wire.server.say(report("\"5\"", line.to_string(), "m"));
    }
    pass(secs(1)).await;
    wire.server.say(report("\"5\"", "501", "the last"));
    wire.server.say(result("1"));
    wire.server.say(report("\"5\"", "502", "late"));
    pass(secs(1)).await;
    let messages = wire.stream.messages();
    assert_eq!(messages.last(), Some(&result("1")));
    assert!(messages.iter().all(|message| !message.contains("late")), "{messages:?}");
    assert!(!messages.iter().any(|message| message.contains("the last")), "{messages:?}");
    check(wire.posted.iter().chain([&wire.stream]));
}

#[tokio::test(start_paused = true)]
async fn requests_of_2026_say_more_of_their_client() {
    let keys = "ask.capabilities = { experimental = { progressNotifications = {} } }";
    let mut rig = Rig::new(keys);
    let own = r#""io.modelcontextprotocol/clientCapabilities":{"#;
    let said = modern_call("1", "7");
    let more = format!(r#"{own}"experimental":{{"progressNotifications":{{}}}}"#);
    let answer = rig.post(&["Mcp-Method: tools/call", "Mcp-Name: work"], &said);
    let asked = rig.asked().await;
    assert_eq!(asked.text(), said.replace(own, &more));
    asked.json(&[], &result("1"));
    settle().await;
    assert_eq!(answer.text(), result("1"));
}

#[tokio::test(start_paused = true)]
async fn what_is_piped_or_only_observed_or_too_large_stays_as_it_is() {
    for keys in ["opaque = true", "mode = \"observe\""] {
        let mut rig = Rig::new(&format!("{keys}\nask.token_type = \"string\""));
        let _answer = rig.post(&[], call("1", "7"));
        assert_eq!(rig.asked().await.text(), call("1", "7"), "{keys}");
    }
    let mut rig = Rig::new("ask.token_type = \"string\"");
    let large = call("1", "7").replace("work", &"x".repeat(5 << 20));
    let _answer = rig.post(&[], &large);
    pass(secs(1)).await;
    assert_eq!(rig.asked().await.text().len(), large.len());
}

/// A session whose server has log messages; the answer to the client's last notification.
async fn begun(rig: &mut Rig, revision: &str, status: &str) -> Answer {
    let answer = rig.post(&[], initialize(revision));
    let result = format!(
        r#"{{"jsonrpc":"2.0","id":"i","result":{{"protocolVersion":"{revision}","capabilities":{{"logging":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
    );
    rig.asked().await.json(&[S], &result);
    settle().await;
    assert_eq!(answer.text(), result);
    let answer = rig.post(&[S, "Authorization: Bearer t", "X-Own: 1"], READY);
    let asked = rig.asked().await;
    assert_eq!(asked.text(), READY);
    assert!(rig.try_asked().await.is_none(), "nothing may come before it");
    asked.answer(status, &[], "");
    settle().await;
    answer
}

#[tokio::test(start_paused = true)]
async fn a_server_is_asked_for_its_log_messages_once() {
    for event in [false, true] {
        let mut rig = Rig::new("ask.log_level = \"info\"");
        assert_eq!(begun(&mut rig, "2025-06-18", "202 Accepted").await.status(), 202);
        let asked = rig.asked().await;
        assert_eq!((asked.what(), &*asked.text()), ("POST /base/mcp", ASK_LEVEL));
        assert_eq!(asked.request.header("mcp-session-id"), Some("s"));
        assert_eq!(asked.request.header("authorization"), Some("Bearer t"));
        assert_eq!(asked.request.header("x-own"), Some("1"));
        assert!(asked.request.header("accept").unwrap().contains("text/event-stream"));
        let set = r#"{"jsonrpc":"2.0","id":"milepost:logging/setLevel","result":{}}"#;
        if event {
            asked.events(&[]);
            pass(secs(1)).await;
            assert!(asked.left().is_none(), "it is read to its end");
            asked.say(set);
            asked.end();
        } else {
            asked.json(&[], set);
        }
        // On another stream the message reaches no client either.
        let listens = rig.get(&[S]);
        let listened = rig.asked().await;
        listened.events(&[]);
        listened.say(set);
        listened.say(log("m"));
        settle().await;
        assert_eq!(listens.messages(), [log("m")]);
        // The client's own wish passes, and nothing is asked again.
        let _answer = rig.post(&[S], request("5", "logging/setLevel", "{}"));
        rig.asked().await.json(&[], &result("5"));
        let _answer = rig.post(&[S], READY);
        rig.asked().await.accept();
        assert!(rig.try_asked().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_asked_is_not() {
    let asks = "ask.log_level = \"info\"";
    for (keys, revision, status) in [
        ("", "2025-06-18", "202 Accepted"),
        (asks, "2025-06-18", "400 Bad Request"),
        (asks, "2026-07-28", "202 Accepted"),
        ("ask.log_level = \"info\"\nmode = \"observe\"", "2025-06-18", "202 Accepted"),
    ] {
        let mut rig = Rig::new(keys);
        begun(&mut rig, revision, status).await;
        assert!(rig.try_asked().await.is_none(), "{keys} {revision} {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_of_a_session_is_asked_as_well() {
    let keys =
        "ask = { token_type = \"string\", log_level = \"error\", capabilities = { x = {} } }";
    let (rig, mut servers) = Rig::of_lines(keys);
    let answer = rig.post(&[], initialize("2025-06-18"));
    settle().await;
    let mut server = servers.try_recv().unwrap();
    let with = |text: String| text.replace(r#""capabilities":{}"#, r#""capabilities":{"x":{}}"#);
    assert_eq!(server.line().await, with(initialize("2025-06-18")));
    let logs = agreement("2025-06-18").replace(":{},", r#":{"logging":{}},"#);
    server.say(&logs);
    settle().await;
    assert_eq!(answer.text(), logs);
    let session = format!("Mcp-Session-Id: {}", answer.header("mcp-session-id").unwrap());
    let _ready = rig.post(&[&session], READY);
    let level = ASK_LEVEL.replace("info", "error");
    assert_eq!(server.told().await, [READY, &level]);
    server.say(
        r#"{"jsonrpc":"2.0","id":"milepost:logging/setLevel","error":{"code":-1,"message":"no"}}"#,
    );
    let called = rig.post(&[&session], call("1", "7"));
    assert_eq!(server.line().await, call("1", "\"7\""));
    server.say(progress("\"7\"", "1"));
    server.say(result("1"));
    settle().await;
    assert_eq!(called.messages(), [progress("7", "1"), result("1")]);
    check([&called]);
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_child_have_their_own_tokens_back() {
    let keys = "ask = { token_type = \"string\", token_in_arguments = true, log_level = \"info\" }";
    let (rig, mut servers) = Rig::of_lines(keys);
    let headers = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: work"];
    let call = |token: &str| {
        let meta = r#""_meta":{"io.modelcontextprotocol/clientCapabilities":{},"#;
        modern_call("5", token).replace(r#""_meta":{"#, meta)
    };
    let one = rig.post(&headers, call("0"));
    settle().await;
    let mut server = servers.try_recv().unwrap();
    let first = server.line().await;
    let two = rig.post(&headers, call("\"a\""));
    let second = server.line().await;
    // The server knows each request by an id of Milepost, once as a number and once as a string.
    let [first, second] = [first, second].map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let token = line["params"]["_meta"]["progressToken"].clone();
        assert_eq!(token, line["id"].to_string());
        assert_eq!(line["params"]["arguments"]["_meta"]["progressToken"], token);
        line["id"].to_string()
    });
    server.say(progress(format!("\"{second}\""), "1"));
    server.say(progress(format!("\"{first}\""), "2"));
    server.say(result(&first));
    server.say(progress(format!("\"{first}\""), "3"));
    server.say(result(&second));
    settle().await;
    assert_eq!(one.messages(), [progress("0", "2"), result("5")]);
    assert_eq!(two.messages(), [progress("\"a\"", "1"), result("5")]);
    assert!(server.told().await.is_empty());
}
