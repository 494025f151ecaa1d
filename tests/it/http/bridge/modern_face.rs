//! Clients of 2026-07-28 before a stdio server of 2025-06-18 (`modern = true`).

use serde_json::{Value, json};

use crate::http::rig::{Answer, Lines, Rig, pass, secs, settle};
use crate::support::messages::{answer, headers_of, modern_with, progress};

const AUTHORIZATION: &str = "Authorization: Bearer me";

const KEYS: &str = "modern = true\nheartbeat.enabled = false";

fn request(id: &str, method: &str, params: &str) -> String {
    modern_with(id, id, method, params)
}

fn ask(rig: &Rig, body: &str) -> Answer {
    let headers = headers_of(body);
    let mut headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    headers.push(AUTHORIZATION);
    rig.post(&headers, body)
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Asks for the first time, and begins the server's session.
async fn begun(
    rig: &Rig,
    servers: &mut tokio::sync::mpsc::UnboundedReceiver<Lines>,
) -> (Answer, Lines) {
    let first = ask(rig, &request(r#""d""#, "server/discover", ""));
    settle().await;
    let mut server = servers.try_recv().expect("no server was started");
    let initialize = value(&server.line().await);
    assert_eq!(initialize["method"], "initialize");
    let agreed = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
    server.say(answer(&initialize["id"], agreed));
    settle().await;
    assert_eq!(value(&server.line().await)["method"], "notifications/initialized");
    (first, server)
}

#[tokio::test(start_paused = true)]
async fn a_client_of_2026_reaches_a_server_of_2025_with_progress() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let (first, mut server) = begun(&rig, &mut servers).await;
    let discovered = value(&first.text());
    assert_eq!((first.status(), &discovered["id"]), (200, &json!("d")));
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]));
    let call = ask(&rig, &request("1", "tools/call", r#""name":"work","arguments":{},"#));
    settle().await;
    let sent = value(&server.line().await);
    assert!(sent["params"]["_meta"].as_object().unwrap().keys().eq(["progressToken"]), "{sent}");
    let token = &sent["params"]["_meta"]["progressToken"];
    server.say(progress(token, 5));
    pass(secs(1)).await;
    server.say(answer(&sent["id"], r#"{"content":[]}"#));
    settle().await;
    let expected = [progress("1", 5), answer("1", r#"{"resultType":"complete","content":[]}"#)];
    assert_eq!(call.messages(), expected);
}

#[tokio::test(start_paused = true)]
async fn who_closes_the_stream_cancels_the_call() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let (_first, mut server) = begun(&rig, &mut servers).await;
    let call = ask(&rig, &request("1", "tools/call", r#""name":"work","arguments":{},"#));
    settle().await;
    let sent = value(&server.line().await);
    pass(secs(10)).await;
    call.leave();
    pass(secs(1)).await;
    let cancelled = value(&server.line().await);
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], sent["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_of_the_server_is_answered_by_the_next_request() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let (_first, mut server) = begun(&rig, &mut servers).await;
    let call = ask(&rig, &request("1", "tools/call", r#""name":"work","arguments":{},"#));
    settle().await;
    let sent = value(&server.line().await);
    server.say(
        r#"{"jsonrpc":"2.0","id":77,"method":"elicitation/create","params":{"message":"Sure?"}}"#
            .to_owned(),
    );
    settle().await;
    let asked = value(call.messages().last().unwrap());
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let state = &asked["result"]["requestState"];
    let again = format!(
        r#""name":"work","arguments":{{}},"requestState":{state},"inputResponses":{{"ask-1":{{"action":"accept"}}}},"#
    );
    let next = ask(&rig, &request("2", "tools/call", &again));
    settle().await;
    assert_eq!(server.line().await, r#"{"jsonrpc":"2.0","id":77,"result":{"action":"accept"}}"#);
    // The server reports on the call that it knows.
    server.say(progress(&sent["params"]["_meta"]["progressToken"], 3));
    settle().await;
    server.say(answer(&sent["id"], r#"{"content":[]}"#));
    settle().await;
    let expected = [progress("2", 3), answer("2", r#"{"resultType":"complete","content":[]}"#)];
    assert_eq!(next.messages(), expected);
}

#[tokio::test(start_paused = true)]
async fn clients_of_other_capabilities_have_a_child_of_their_own() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let (_first, _server) = begun(&rig, &mut servers).await;
    let list = request("1", "tools/list", "");
    let other = list.replace(r#"clientCapabilities":{"#, r#"clientCapabilities":{"sampling":{}"#);
    assert_ne!(list, other);
    let _answer = ask(&rig, &other);
    settle().await;
    let mut second = servers.try_recv().expect("no server of its own was started");
    assert!(second.line().await.contains(r#""sampling":{}"#));
}
