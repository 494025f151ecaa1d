//! Clients of 2026-07-28.

use super::rig::{Rig, modern};
use crate::http::rig::{pass, secs, settle};
use crate::support::messages::{progress, result};

fn tool_call(id: &str, arguments: &str) -> String {
    modern(id, "tools/call", &format!(r#""name":"sql","arguments":{arguments}"#))
}

#[tokio::test(start_paused = true)]
async fn headers_repeat_what_a_request_says() {
    let mut rig = Rig::new();
    rig.say(modern("1", "server/discover", "")).await;
    let asked = rig.asked().await;
    assert_eq!(asked.request.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(asked.request.header("mcp-method"), Some("server/discover"));
    assert_eq!(asked.request.header("mcp-name"), None);
    assert_eq!(asked.request.header("mcp-session-id"), None);
    asked.json(&["Mcp-Session-Id: no"], &result("1"));
    assert_eq!(rig.line().await, result("1"));
    rig.say(modern("2", "tools/call", r#""name":"世界""#)).await;
    let asked = rig.asked().await;
    assert_eq!(asked.request.header("mcp-name"), Some("=?base64?5LiW55WM?="));
    assert_eq!(asked.request.header("mcp-session-id"), None);
    rig.say(modern("3", "resources/read", r#""uri":"file:///a""#)).await;
    assert_eq!(rig.asked().await.request.header("mcp-name"), Some("file:///a"));
    rig.say(modern("4", "tasks/get", r#""taskId":"t""#)).await;
    assert_eq!(rig.asked().await.request.header("mcp-name"), Some("t"));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_closes_the_stream_of_its_request() {
    let mut rig = Rig::new();
    rig.say(tool_call("1", "{}")).await;
    rig.say(modern("2", "subscriptions/listen", "")).await;
    let (call, listen) = (rig.asked().await, rig.asked().await);
    call.events(&[]);
    call.say(progress("1", 1));
    rig.told().await;
    let cancel = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )
    };
    rig.say(cancel("1")).await;
    settle().await;
    assert!(call.left().is_some());
    assert!(listen.left().is_none());
    rig.say(cancel("2")).await;
    settle().await;
    assert!(listen.left().is_some());
    rig.say(cancel("9")).await;
    rig.not_asked().await;
    assert_eq!(rig.told().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_answers_of_a_server_that_does_not_know_it_reach_the_client() {
    let mut rig = Rig::new();
    rig.say(modern("1", "server/discover", "")).await;
    let unknown =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}"#;
    rig.asked().await.answer("404 Not Found", &["Content-Type: application/json"], unknown);
    assert_eq!(rig.line().await, unknown);
    rig.say(modern("2", "server/discover", "")).await;
    rig.asked().await.answer("400 Bad Request", &["Content-Type: text/plain"], "no session");
    assert!(rig.line().await.contains("400 Bad Request"));
    rig.not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_not_gone_back_to() {
    let mut rig = Rig::new();
    rig.say(tool_call("1", "{}")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.chunk("id: 1\ndata:\n\n");
    asked.end();
    assert!(rig.line().await.contains("without an answer"));
    pass(secs(10)).await;
    rig.not_asked().await;
}

const TOOLS: &str = r#"{"name":"sql","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;

fn tools(id: &str, tools: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tools}],"resultType":"complete"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn annotated_arguments_are_repeated_once_the_tools_are_known() {
    let mut rig = Rig::new();
    rig.say(modern("1", "tools/list", "")).await;
    let wrong =
        r#"{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#;
    rig.asked().await.json(&[], &tools("1", &format!("{wrong},{TOOLS}")));
    assert_eq!(rig.line().await, tools("1", TOOLS));
    rig.say(tool_call("2", r#"{"region":"us-west1"}"#)).await;
    assert_eq!(rig.asked().await.request.header("mcp-param-region"), Some("us-west1"));
}

fn mismatch(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32020,"message":"Header mismatch"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn the_tools_are_listed_once_more_when_headers_are_missing() {
    let mut rig = Rig::new();
    let json = "Content-Type: application/json";
    rig.say(tool_call("2", r#"{"region":"eu"}"#)).await;
    let asked = rig.asked().await;
    assert_eq!(asked.request.header("mcp-param-region"), None);
    asked.answer("400 Bad Request", &[json], mismatch("2"));
    let list = rig.asked().await;
    assert_eq!(list.request.header("mcp-method"), Some("tools/list"));
    let text = list.text();
    assert!(!text.contains("progressToken") && text.contains("clientCapabilities"), "{text}");
    let id: serde_json::Value = serde_json::from_str(&text).unwrap();
    list.json(&[], &tools(&id["id"].to_string(), TOOLS));
    let again = rig.asked().await;
    assert_eq!(again.text(), tool_call("2", r#"{"region":"eu"}"#));
    assert_eq!(again.request.header("mcp-param-region"), Some("eu"));
    // The call is repeated only once.
    again.answer("400 Bad Request", &[json], mismatch("2"));
    assert_eq!(rig.line().await, mismatch("2"));
    rig.not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_server_said_stands_if_the_tools_cannot_be_listed() {
    let mut rig = Rig::new();
    rig.say(tool_call("2", "{}")).await;
    let json = "Content-Type: application/json";
    rig.asked().await.answer("400 Bad Request", &[json], mismatch("2"));
    rig.asked().await.answer("500 Internal Server Error", &[], "");
    assert_eq!(rig.line().await, mismatch("2"));
}
