//! Clients of 2026-07-28 on standard streams before a URL whose server is older (`wrap --modern URL`).

use serde_json::{Value, json};

use super::rig::{Rig, modern};
use crate::http::rig::{Asked, pass, secs};
use crate::support::messages::{answer, progress};

const STREAMABLE: &str =
    "upstream.url = \"http://up.example/base/mcp\"\nmodern = true\nheartbeat.enabled = false";
const SSE: &str =
    "upstream.sse = \"http://up.example/base/sse\"\nmodern = true\nheartbeat.enabled = false";

const AGREED: &str = r#"{"protocolVersion":"REVISION","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A request whose client can be asked.
fn asking(id: &str, method: &str, params: &str) -> String {
    modern(id, method, params)
        .replace(r#"clientCapabilities":{}"#, r#"clientCapabilities":{"elicitation":{}}"#)
}

/// Returns the next POST of a client; the server has no stream for messages of no request.
async fn next_post(rig: &mut Rig) -> Asked {
    loop {
        let asked = rig.asked().await;
        if asked.what().starts_with("POST") {
            assert!(asked.request.header("mcp-method").is_none());
            return asked;
        }
        asked.answer("405 Method Not Allowed", &[], "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_of_2026_reaches_a_url_of_2025_which_asks_it() {
    let mut rig = Rig::with(STREAMABLE);
    rig.say(asking("0", "server/discover", "")).await;
    let initialize = next_post(&mut rig).await;
    let id = value(&initialize.text())["id"].clone();
    initialize.json(&["Mcp-Session-Id: s"], &answer(&id, AGREED.replace("REVISION", "2025-06-18")));
    let initialized = next_post(&mut rig).await;
    assert_eq!(initialized.request.header("mcp-session-id"), Some("s"));
    initialized.accept();
    let discovered = value(&rig.line().await);
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]));
    rig.say(asking("1", "tools/call", r#""name":"work""#)).await;
    let asked = next_post(&mut rig).await;
    assert_eq!(asked.request.header("mcp-protocol-version"), Some("2025-06-18"));
    let sent = value(&asked.text());
    assert!(sent["params"]["_meta"].as_object().unwrap().keys().eq(["progressToken"]), "{sent}");
    asked.events(&[]);
    asked.say(progress(1, 5));
    asked.say(r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#);
    pass(secs(1)).await;
    let told = rig.told().await;
    assert_eq!(told[0], progress(1, 5));
    let question = value(&told[1]);
    assert_eq!(question["result"]["resultType"], "input_required", "{question}");
    let again = format!(
        r#""name":"work","requestState":{},"inputResponses":{{"ask-1":{{"action":"accept"}}}}"#,
        question["result"]["requestState"]
    );
    rig.say(asking("2", "tools/call", &again)).await;
    let given = next_post(&mut rig).await;
    assert_eq!(given.text(), r#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}"#);
    given.accept();
    // The server continues the call that it knows, on its stream.
    asked.say(answer(1, r#"{"content":[]}"#));
    asked.end();
    let told = value(&rig.line().await);
    assert_eq!((&told["id"], &told["result"]["resultType"]), (&json!(2), &json!("complete")));
}

#[tokio::test(start_paused = true)]
async fn a_client_of_2026_reaches_a_url_of_http_sse() {
    let mut rig = Rig::with(SSE);
    rig.say(asking("1", "tools/call", r#""name":"work""#)).await;
    let wire = rig.asked().await;
    assert_eq!(wire.what(), "GET /base/sse");
    wire.events(&[]);
    wire.chunk("event: endpoint\ndata: /base/messages?id=a\n\n");
    let initialize = next_post(&mut rig).await;
    let id = value(&initialize.text())["id"].clone();
    initialize.accept();
    wire.say(answer(&id, AGREED.replace("REVISION", "2024-11-05")));
    next_post(&mut rig).await.accept();
    let asked = next_post(&mut rig).await;
    assert_eq!(value(&asked.text())["params"]["name"], "work");
    asked.accept();
    wire.say(progress(1, 5));
    pass(secs(1)).await;
    wire.say(answer(1, r#"{"content":[]}"#));
    pass(secs(1)).await;
    let told = rig.told().await;
    assert_eq!(told[0], progress(1, 5));
    let told = value(&told[1]);
    assert_eq!((&told["id"], &told["result"]["resultType"]), (&json!(1), &json!("complete")));
    // A request that its client cancels is cancelled at the server.
    rig.say(asking("2", "tools/call", r#""name":"work""#)).await;
    next_post(&mut rig).await.accept();
    rig.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#)
        .await;
    let cancelled = next_post(&mut rig).await;
    assert_eq!(value(&cancelled.text())["params"]["requestId"], 2);
}
