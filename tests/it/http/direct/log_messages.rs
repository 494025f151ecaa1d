//! Logs as progress over Streamable HTTP: those on the stream of a call are about it.

use crate::http::rig::{Rig, check, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

fn log(data: &str) -> String {
    notification("notifications/message", format!(r#"{{"level":"info","data":{data}}}"#))
}

#[tokio::test(start_paused = true)]
async fn a_log_on_the_stream_of_a_call_is_progress_of_that_call_whatever_else_is_active() {
    let mut rig = Rig::new("dialects = [\"defaults\", \"log\"]\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let first = rig.post(&[S], call("1", "7"));
    let one = rig.asked().await;
    let second = rig.post(&[S], call("2", "8"));
    let two = rig.asked().await;
    one.events(&[]);
    two.events(&[]);
    one.say(log("\"row 3 of 9\""));
    settle().await;
    pass(secs(1)).await;
    two.say(log(r#"{"msg":"shard 1","current":1,"total":4}"#));
    settle().await;
    pass(secs(1)).await;
    one.say(result("1"));
    two.say(result("2"));
    one.end();
    two.end();
    settle().await;
    let told = |token: &str, figure: &str, total: &str, words: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{figure},"total":{total},"message":"{words}"}}}}"#
        )
    };
    let row = told("7", "3", "9", "row 3 of 9");
    assert_eq!(first.messages(), [log("\"row 3 of 9\""), row, result("1")]);
    let shard = told("8", "1", "4", "shard 1");
    assert_eq!(
        second.messages(),
        [log(r#"{"msg":"shard 1","current":1,"total":4}"#), shard, result("2")]
    );
    check([&first, &second]);
}

/// A log of this logger.
fn log_of(logger: &str, data: &str) -> String {
    let params = format!(r#"{{"level":"info","logger":"{logger}","data":{data}}}"#);
    notification("notifications/message", params)
}

fn told(token: &str, figure: &str, total: &str, words: &str) -> String {
    let figure = format!(r#""progress":{figure},"total":{total},"message":"{words}""#);
    notification("notifications/progress", format!(r#"{{"progressToken":{token},{figure}}}"#))
}

const LOGS: &str =
    "dialects = [\"defaults\", \"log\"]\nheartbeat.enabled = false\nmin_interval = \"0s\"";

#[tokio::test(start_paused = true)]
async fn a_log_on_the_get_stream_is_progress_of_the_only_call() {
    let mut rig = Rig::new(LOGS);
    rig.session("s", "2025-06-18").await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    let row = event_with("g1", &log("\"row 3 of 9\""));
    listened.chunk(&row);
    settle().await;
    pass(secs(1)).await;
    server.say(result("1"));
    server.end();
    settle().await;
    // After the answer the message is only a log message.
    listened.say(log("\"row 4 of 9\""));
    settle().await;
    assert_eq!(listens.text(), row + &event(&log("\"row 4 of 9\"")), "a log stays one");
    assert_eq!(answer.messages(), [told("7", "3", "9", "row 3 of 9"), result("1")]);
    // A server that answers with JSON has no stream for the call.
    let answer = rig.post(&[S], call("2", "8"));
    let server = rig.asked().await;
    listened.say(log("\"row 5 of 9\""));
    settle().await;
    assert_eq!(answer.messages(), [told("8", "5", "9", "row 5 of 9")]);
    server.json(&[], &result("2"));
    settle().await;
    assert_eq!(answer.messages().last(), Some(&result("2")));
    check([&listens, &answer]);
}

#[tokio::test(start_paused = true)]
async fn a_log_on_the_get_stream_is_progress_of_the_call_whose_tool_it_names() {
    let mut rig = Rig::new(LOGS);
    rig.session("s", "2025-06-18").await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    let mut calls = Vec::new();
    for (tool, id, token) in [("shell", "1", "7"), ("grep", "2", "8")] {
        let answer = rig.post(&[S], call_of(tool, id, token));
        let server = rig.asked().await;
        server.events(&[]);
        calls.push((answer, server));
    }
    settle().await;
    let logs = [
        log_of("shell", "\"row 1 of 9\""),
        log_of("plexus.grep", "\"row 2 of 9\""),
        log_of("app", r#"{"tool":"grep","msg":"row 3 of 9"}"#),
        // The log message may be about either call.
        log_of("app", "\"row 4 of 9\""),
    ];
    logs.iter().for_each(|log| listened.say(log));
    settle().await;
    assert_eq!(listens.messages(), logs);
    assert_eq!(calls[0].0.messages(), [told("7", "1", "9", "row 1 of 9")]);
    let of_grep = [told("8", "2", "9", "row 2 of 9"), told("8", "3", "9", "row 3 of 9")];
    assert_eq!(calls[1].0.messages(), of_grep);
    check([&listens, &calls[0].0, &calls[1].0]);
}

#[tokio::test(start_paused = true)]
async fn a_log_on_the_get_stream_is_progress_for_a_client_of_http_sse() {
    let mut rig = Rig::having(&format!("upstream.url = \"http://up.example/mcp\"\n{LOGS}"));
    let stream = rig.send("GET /r/sse", &["Accept: text/event-stream"], b"");
    settle().await;
    let text = stream.text();
    let endpoint = text.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
    let post = |rig: &Rig, body: &str| {
        rig.send(&format!("POST {endpoint}"), &["Content-Type: application/json"], body.as_bytes())
    };
    let _first = post(&rig, &initialize("2024-11-05"));
    rig.asked().await.json(&["Mcp-Session-Id: t"], &agreement("2025-06-18"));
    settle().await;
    let _second = post(&rig, INITIALIZED);
    settle().await;
    let mut get = None;
    while let Some(asked) = rig.try_asked().await {
        if asked.what().starts_with("GET") { get = Some(asked) } else { asked.accept() }
    }
    let get = get.expect("the proxy listens");
    get.events(&[]);
    let _third = post(&rig, &call("1", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    pass(secs(1)).await;
    get.say(log("\"row 3 of 9\""));
    pass(secs(1)).await;
    server.say(result("1"));
    pass(secs(1)).await;
    let row = told("7", "3", "9", "row 3 of 9");
    assert_eq!(stream.messages()[1..], [log("\"row 3 of 9\""), row, result("1")]);
}

#[tokio::test(start_paused = true)]
async fn content_that_a_tool_streams_passes_on_the_get_stream_and_is_progress_of_its_call() {
    let mut rig = Rig::new("heartbeat.enabled = false\nmin_interval = \"0s\"");
    rig.session("s", "2025-06-18").await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    let content = r#"{"toolName":"work","content":[{"type":"text","text":"row 3 of 9"}]}"#;
    let content = notification("notifications/tool/streamContent", content);
    listened.say(content.clone());
    settle().await;
    pass(secs(1)).await;
    server.say(content.clone());
    settle().await;
    pass(secs(1)).await;
    server.say(result("1"));
    server.end();
    settle().await;
    let shown = |figure: &str| {
        let figure = format!(r#"{{"progressToken":7,"progress":{figure},"message":"row 3 of 9"}}"#);
        notification("notifications/progress", figure)
    };
    assert_eq!(listens.text(), event(&content), "the message stays where it came");
    let expected = [shown("0.000001"), content, shown("0.000002"), result("1")];
    assert_eq!(answer.messages(), expected);
    check([&answer, &listens]);
}
