//! Clients of 2026-07-28 before a stdio server of 2025-06-18 (`modern = true`).

use serde_json::{Value, json};

use crate::http::rig::{Answer, Asked, Lines, Rig, pass, secs, settle};
use crate::support::messages::{
    LOG, agreement, answer, headers_of, initialize, modern_with, progress,
};

const AUTHORIZATION: &str = "Authorization: Bearer me";

const AGREED: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}"#;

/// The name of the server in results.
const SERVER: &str = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}"#;

const KEYS: &str = "modern = true\nheartbeat.enabled = false";

fn request(id: &str, method: &str, params: &str) -> String {
    let stated = r#"clientCapabilities":{"elicitation":{}}"#;
    modern_with(id, id, method, params).replace(r#"clientCapabilities":{}"#, stated)
}

pub(super) fn ask(rig: &Rig, body: &str) -> Answer {
    let headers = headers_of(body);
    let mut headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    headers.push(AUTHORIZATION);
    rig.post(&headers, body)
}

pub(super) fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Asks for the first time, and begins the server's session.
async fn begun(
    rig: &Rig,
    servers: &mut tokio::sync::mpsc::UnboundedReceiver<Lines>,
) -> (Answer, Lines) {
    let first = ask(rig, &request(r#""d""#, "server/discover", ""));
    settle().await;
    (first, begin(servers.try_recv().expect("no server was started")).await)
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
    assert_eq!(call.messages(), [progress("1", 5), complete("1")]);
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
        r#"{"jsonrpc":"2.0","id":77,"method":"elicitation/create","params":{"message":"Sure?"}}"#,
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
    // The server reports with the token of the call that it knows.
    server.say(progress(&sent["params"]["_meta"]["progressToken"], 3));
    settle().await;
    server.say(answer(&sent["id"], r#"{"content":[]}"#));
    settle().await;
    assert_eq!(next.messages(), [progress("2", 3), complete("2")]);
}

#[tokio::test(start_paused = true)]
async fn clients_of_other_capabilities_have_a_child_of_their_own() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let (_first, _server) = begun(&rig, &mut servers).await;
    let list = request("1", "tools/list", "");
    let other = list.replace(r#""elicitation":{}"#, r#""sampling":{}"#);
    assert_ne!(list, other);
    let _answer = ask(&rig, &other);
    settle().await;
    let mut second = servers.try_recv().expect("no server of its own was started");
    assert!(second.line().await.contains(r#""sampling":{}"#));
}

/// Sends a request with this `Authorization`.
fn ask_as(rig: &Rig, authorization: &str, body: &str) -> Answer {
    let headers = headers_of(body);
    let mut headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    headers.push(authorization);
    rig.post(&headers, body)
}

#[tokio::test(start_paused = true)]
async fn nobody_answers_a_question_that_somebody_else_was_asked() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let (_first, mut server) = begun(&rig, &mut servers).await;
    let call = |id: &str, more: &str| {
        request(id, "tools/call", &format!(r#""name":"work","arguments":{{}},{more}"#))
    };
    let asker = ask(&rig, &call("1", ""));
    settle().await;
    server.line().await;
    server.say(r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#);
    settle().await;
    let state = value(asker.messages().last().unwrap())["result"]["requestState"].to_string();
    let answer = |state: &str| {
        format!(r#""requestState":{state},"inputResponses":{{"ask-1":{{"action":"accept"}}}},"#)
    };
    let other = ask_as(&rig, "Authorization: Bearer other", &call("1", &answer(&state)));
    settle().await;
    let mut others = begin(servers.try_recv().expect("a stranger shares a server")).await;
    for (asked, name) in [
        (other, "another principal's"),
        (ask(&rig, &call("2", &answer(r#""0123456789abcdef0123456789abcdef""#))), "forged"),
        (ask(&rig, &call("3", &answer(r#""""#))), "empty"),
    ] {
        settle().await;
        let refused = value(&asked.text());
        assert_eq!((asked.status(), &refused["error"]["code"]), (400, &json!(-32602)), "{name}");
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.starts_with("this requestState is not known"), "{name}: {why}");
    }
    assert!(server.told().await.is_empty() && others.told().await.is_empty());
    let mine = ask(&rig, &call("4", &answer(&state)));
    assert_eq!(server.line().await, r#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}"#);
    drop(mine);
}

/// Agrees with the face that begins a session.
pub(super) async fn begin(mut server: Lines) -> Lines {
    let initialize = value(&server.line().await);
    assert_eq!(initialize["method"], "initialize");
    server.say(answer(&initialize["id"], AGREED));
    settle().await;
    assert!(server.told().await[0].contains("notifications/initialized"));
    server
}

#[tokio::test(start_paused = true)]
async fn a_request_without_its_headers_and_a_stranger_get_clear_errors() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let list = request("1", "tools/list", "");
    let bare = rig.post(&[AUTHORIZATION], &list);
    settle().await;
    let refused = value(&bare.text());
    assert_eq!((bare.status(), &refused["error"]["code"]), (400, &json!(-32020)), "{refused}");
    let headers = headers_of(&list);
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let stranger = rig.post(&headers, &list);
    settle().await;
    let refused = value(&stranger.text());
    assert_eq!((stranger.status(), &refused["error"]["code"]), (400, &json!(-32022)));
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("the same credentials") && why.contains("initialize"), "{why}");
    assert!(servers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn who_listens_is_told_of_changes_and_who_wants_logs_gets_them() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let (_first, mut server) = begun(&rig, &mut servers).await;
    let listens = ask(
        &rig,
        &request(r#""l""#, "subscriptions/listen", r#""notifications":{"toolsListChanged":true},"#),
    );
    settle().await;
    server.say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    settle().await;
    let told = listens.messages();
    assert_eq!(told.len(), 2, "{told:?}");
    for (message, method) in told
        .iter()
        .zip(["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"])
    {
        let message = value(message);
        assert_eq!(message["method"], method);
        let name = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
        assert_eq!(name, "l", "{message}");
    }
    let call = request("1", "tools/call", r#""name":"work","arguments":{},"#);
    let level = r#""io.modelcontextprotocol/logLevel":"info","progressToken""#;
    let call = ask(&rig, &call.replace(r#""progressToken""#, level));
    settle().await;
    let told = server.told().await;
    assert!(told[0].contains("logging/setLevel"), "{told:?}");
    server.say(LOG);
    settle().await;
    server.say(answer(&value(&told[1])["id"], r#"{"content":[]}"#));
    settle().await;
    let told = call.messages();
    assert!(told.len() == 2 && told[0] == LOG, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_of_2026_reaches_a_server_of_2025_over_http() {
    let mut rig = Rig::new(KEYS);
    let call = ask(&rig, &request("1", "tools/call", r#""name":"work","arguments":{},"#));
    let initialize = rig.asked().await;
    assert!(initialize.request.header("mcp-method").is_none());
    assert_eq!(initialize.request.header("authorization"), Some("Bearer me"));
    let id = value(&initialize.text())["id"].clone();
    initialize.json(&["Mcp-Session-Id: s"], &answer(&id, AGREED));
    let initialized = rig.asked().await;
    assert_eq!(initialized.request.header("mcp-session-id"), Some("s"));
    initialized.accept();
    let asked = next_post(&mut rig).await;
    assert_eq!(asked.request.header("mcp-protocol-version"), Some("2025-06-18"));
    let sent = value(&asked.text());
    assert!(sent["params"]["_meta"].as_object().unwrap().keys().eq(["progressToken"]), "{sent}");
    asked.events(&[]);
    asked.say(progress(&sent["params"]["_meta"]["progressToken"], 5));
    pass(secs(1)).await;
    asked.say(answer(&sent["id"], r#"{"content":[]}"#));
    asked.end();
    settle().await;
    assert_eq!(call.messages(), [progress("1", 5), complete("1")]);
    // Older clients reach the server without the face.
    let old = rig.post(&[], initialize_of_2025());
    let asked = next_post(&mut rig).await;
    assert_eq!(asked.text(), initialize_of_2025());
    asked.json(&[], &agreement("2025-06-18"));
    settle().await;
    assert_eq!(old.text(), agreement("2025-06-18"));
    // A request without the header that names its revision.
    let bare = rig.post(&[AUTHORIZATION], request("2", "tools/list", ""));
    settle().await;
    assert_eq!((bare.status(), value(&bare.text())["error"]["code"].clone()), (400, json!(-32020)));
}

const SSE: &str =
    "upstream.sse = \"http://up.example/sse\"\nmodern = true\nheartbeat.enabled = false";

/// The next message that was posted to a server of HTTP+SSE.
async fn posted(rig: &mut Rig) -> Value {
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /messages");
    assert!(asked.request.header("mcp-method").is_none());
    assert_eq!(asked.request.header("authorization"), Some("Bearer me"));
    let sent = value(&asked.text());
    asked.answer("202 Accepted", &[], "Accepted");
    sent
}

#[tokio::test(start_paused = true)]
async fn a_client_of_2026_reaches_a_server_of_http_sse_which_asks_it() {
    let mut rig = Rig::having(SSE);
    let call = |id: &str, more: &str| {
        request(id, "tools/call", &format!(r#""name":"work","arguments":{{}},{more}"#))
    };
    let asker = ask(&rig, &call("1", ""));
    let wire = rig.asked().await;
    assert_eq!(wire.what(), "GET /sse");
    wire.events(&[]);
    wire.chunk("event: endpoint\ndata: /messages\n\n");
    let initialize = posted(&mut rig).await;
    assert_eq!(initialize["method"], "initialize");
    wire.say(answer(&initialize["id"], AGREED.replace("2025-06-18", "2024-11-05")));
    assert_eq!(posted(&mut rig).await["method"], "notifications/initialized");
    let sent = posted(&mut rig).await;
    let token = &sent["params"]["_meta"]["progressToken"];
    assert!(sent["params"]["_meta"].as_object().unwrap().keys().eq(["progressToken"]), "{sent}");
    wire.say(progress(token, 5));
    pass(secs(1)).await;
    wire.say(r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#);
    pass(secs(1)).await;
    let told = asker.messages();
    assert_eq!(told[0], progress("1", 5));
    let asked = value(&told[1]);
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let more = format!(
        r#""requestState":{},"inputResponses":{{"ask-1":{{"action":"accept"}}}},"#,
        asked["result"]["requestState"]
    );
    let next = ask(&rig, &call("2", &more));
    let given = posted(&mut rig).await;
    assert_eq!((&given["id"], &given["result"]["action"]), (&json!(7), &json!("accept")));
    wire.say(progress(token, 6));
    pass(secs(1)).await;
    wire.say(answer(&sent["id"], r#"{"content":[]}"#));
    pass(secs(1)).await;
    assert_eq!(next.messages(), [progress("2", 6), complete("2")]);
    // A client that disconnects cancels its request at the server.
    let left = ask(&rig, &call("3", ""));
    let sent = posted(&mut rig).await;
    left.leave();
    pass(secs(1)).await;
    let cancelled = posted(&mut rig).await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], sent["id"]);
}

/// Returns the next message for the server, which has no stream for messages of no request.
async fn next_post(rig: &mut Rig) -> Asked {
    loop {
        let asked = rig.asked().await;
        if asked.what().starts_with("POST") {
            return asked;
        }
        asked.answer("405 Method Not Allowed", &[], "");
    }
}

fn initialize_of_2025() -> String {
    initialize("2025-06-18")
}

/// The answer of the tool `work` as a client of 2026-07-28 gets it.
fn complete(id: &str) -> String {
    answer(id, format!(r#"{{"resultType":"complete",{SERVER},"content":[]}}"#))
}
