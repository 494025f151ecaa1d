//! A server that knows only `tools/call`: the answers in its place, the requests that it gets, and the use of its
//! answers.

use crate::http::rig::{Answer, Asked, BOTH, Rig, check, pass, secs, settle};
use crate::support::messages::*;

const LIFECYCLE: &str = "upstream.lifecycle = { tools = \"/tools/list\" }\nmin_interval = \"0s\"";

const ALL: &str =
    "upstream.lifecycle = { tools = \"../list?all=1\", initialize = \"/initialize\" }";

fn began(revision: &str, server: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"i","result":{{"protocolVersion":"{revision}","capabilities":{{"tools":{{}}}},"serverInfo":{server}}}}}"#
    )
}

fn refused(id: &str, code: &str, why: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{why}","data":{{"proxy":"milepost"{more}}}}}}}"#
    )
}

/// Progress as the server says it, of a step of 3.
fn step(id: &str, count: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":{id},"content":[{{"type":"text","text":"{{\"status\":\"in_progress\",\"message\":\"step\",\"processedCount\":{count},\"totalCount\":3}}"}}],"isFinal":false}}}}"#
    )
}

/// The same as a client is told.
fn stepped(token: &str, count: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{count},"total":3,"message":"step"}}}}"#
    )
}

fn bare(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A bare result, wrapped.
fn wrapped(id: &str, result: &str) -> String {
    let text = result.replace('"', "\\\"");
    let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#);
    bare(id, &result)
}

const RESULT: &str = r#"{"status":"complete","rank":1.50}"#;

/// A client calls, and the server begins a stream.
async fn called(rig: &mut Rig, message: &str) -> (Answer, Asked) {
    let answer = rig.post(&[], message);
    let server = rig.asked().await;
    assert_eq!(server.text(), message);
    server.events(&[]);
    settle().await;
    (answer, server)
}

/// Returns an answer that a client gets without a request to the server.
async fn own(rig: &mut Rig, headers: &[&str], message: &str) -> (u16, String) {
    let answer = rig.post(headers, message);
    assert!(rig.try_asked().await.is_none(), "the server was asked: {message}");
    assert!(answer.is_over());
    (answer.status(), answer.text())
}

#[tokio::test(start_paused = true)]
async fn a_client_begins_without_the_server() {
    let mut rig = Rig::new(LIFECYCLE);
    let server = r#"{"name":"up.example","version":"0.0.0"}"#;
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2025-07-01", "2025-11-25"),
        ("0.1", "2025-11-25"),
    ] {
        let answer = rig.post(&[], initialize(asked));
        settle().await;
        assert_eq!((answer.status(), answer.text()), (200, began(agreed, server)), "{asked}");
        assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
        assert_eq!(answer.header("mcp-session-id"), None);
        check([&answer]);
    }
    let none = r#"{"jsonrpc":"2.0","id":"i","method":"initialize"}"#;
    assert_eq!(own(&mut rig, &[], none).await.1, began("2025-11-25", server));
    let version = "MCP-Protocol-Version: 2025-06-18";
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(own(&mut rig, &[version], initialized).await, (202, String::new()));
    assert_eq!(own(&mut rig, &[version], &cancelled("1")).await, (202, String::new()));
    assert_eq!(own(&mut rig, &[version], &result("1")).await, (202, String::new()));
    let pong = r#"{"jsonrpc":"2.0","id":"p","result":{}}"#;
    assert_eq!(
        own(&mut rig, &[version], &request("\"p\"", "ping", "{}")).await,
        (200, pong.to_owned())
    );
    for method in ["resources/list", "prompts/list", "logging/setLevel", "tasks/list"] {
        let why = format!("Method not found: {method}");
        let expected = (200, refused("3", "-32601", &why, ""));
        assert_eq!(own(&mut rig, &[version], &request("3", method, "{}")).await, expected);
    }
    for method in ["GET", "DELETE"] {
        let answer = rig.send(&format!("{method} /r"), &["Accept: text/event-stream"], b"");
        assert!(rig.try_asked().await.is_none());
        assert_eq!((answer.status(), answer.header("allow").as_deref()), (405, Some("POST")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_revision_without_beginning_is_told_to_begin() {
    let mut rig = Rig::new(LIFECYCLE);
    let discover = modern_call("1", "1").replace("tools/call", "server/discover");
    let header = "MCP-Protocol-Version: 2026-07-28";
    let expected = refused("1", "-32601", "Method not found: server/discover", "");
    assert_eq!(own(&mut rig, &[header], &discover).await, (404, expected));
    let more = r#","supported":["2024-11-05","2025-03-26","2025-06-18","2025-11-25"],"requested":"2026-07-28""#;
    let expected = refused("1", "-32022", "Unsupported protocol version", more);
    assert_eq!(own(&mut rig, &[], &modern_call("1", "1")).await, (400, expected.clone()));
    assert_eq!(own(&mut rig, &[header], &call("1", "1")).await, (400, expected));
}

#[tokio::test(start_paused = true)]
async fn the_list_of_tools_is_read_where_the_route_says() {
    let mut rig = Rig::new(LIFECYCLE);
    let list = || request("\"l\"", "tools/list", "{}");
    let answer = rig.post(&["Authorization: Bearer t", "Cookie: a=b"], list());
    let server = rig.asked().await;
    assert_eq!(server.what(), "GET /tools/list");
    let header = |name| server.request.header(name).map(str::to_owned);
    assert_eq!(header("host").as_deref(), Some("up.example"));
    assert_eq!(header("authorization").as_deref(), Some("Bearer t"));
    assert_eq!(header("accept").as_deref(), Some("application/json"));
    assert_eq!((header("content-type"), header("content-length")), (None, None));
    let tool = r#"{ "name":"a", "inputSchema" : {"type":"object"}, "x":1.50 }"#;
    server.json(&[], &format!("{{\"tools\": [\n{tool},\n{{\"name\":\"b\"}}]}}"));
    settle().await;
    let second = r#"{"name":"b","inputSchema":{"type":"object"}}"#;
    let expected = bare("\"l\"", &format!(r#"{{"tools":[{tool},{second}]}}"#));
    assert_eq!((answer.status(), answer.text()), (200, expected));
    check([&answer]);

    for (body, why) in [
        ("<html>", "what there is in the place of the server's list of tools is none"),
        (
            r#"{"error":"database closed"}"#,
            r#"the server's list of tools is an error: "database closed""#,
        ),
    ] {
        let answer = rig.post(&[], list());
        rig.asked().await.json(&[], body);
        settle().await;
        assert_eq!((answer.status(), answer.text()), (200, own_error("\"l\"", why, "")));
    }
    let answer = rig.post(&[], list());
    rig.asked().await.answer("503 Service Unavailable", &[], "no");
    settle().await;
    let why = "the server's list of tools: HTTP status 503 Service Unavailable";
    assert_eq!(answer.text(), own_error("\"l\"", why, r#","httpStatus":503"#));

    // The headers say how to authorize.
    let answer = rig.post(&[], list());
    rig.asked().await.answer("401 Unauthorized", &["WWW-Authenticate: Bearer"], "who?");
    settle().await;
    assert_eq!((answer.status(), answer.text()), (401, "who?".to_owned()));
    assert_eq!(answer.header("www-authenticate").as_deref(), Some("Bearer"));

    let rig = Rig::new(LIFECYCLE);
    rig.refuse_connections(true);
    let answer = rig.post(&[], list());
    settle().await;
    assert_eq!(answer.status(), 502);
    assert!(answer.text().starts_with(r#"{"jsonrpc":"2.0","id":"l","error":"#));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_tools_that_does_not_come_is_given_up() {
    for (keys, limit) in [("", 30), ("\nown_request_timeout = \"5s\"", 5)] {
        let mut rig = Rig::new(&format!("{LIFECYCLE}\nheartbeat.enabled = false{keys}"));
        for begins in [false, true] {
            let answer = rig.post(&[], request("\"l\"", "tools/list", "{}"));
            let server = rig.asked().await;
            if begins {
                let length = ["Content-Type: application/json", "Content-Length: 100"];
                server.head("200 OK", &length);
            }
            pass(secs(limit - 1)).await;
            assert!(answer.is_silent() && server.left().is_none(), "{keys}");
            pass(secs(2)).await;
            assert_eq!(answer.status(), 504);
            let why = format!("the server sent nothing for {limit}s");
            assert_eq!(answer.text(), own_error("\"l\"", &why, ""));
            assert!(server.left().is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_tools_that_never_ends_is_given_up() {
    let mut rig = Rig::new(LIFECYCLE);
    let answer = rig.post(&[], request("1", "tools/list", "{}"));
    let server = rig.asked().await;
    server.head("200 OK", &["Transfer-Encoding: chunked"]);
    for _ in 0..65 {
        server.chunk(vec![b' '; 64 << 10]);
        pass(secs(1)).await;
    }
    let why = "the server's list of tools is too large";
    assert_eq!(answer.messages().last(), Some(&own_error("1", why, "")));
    assert!(server.left().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_is_told_of_clients_where_it_wants_to_be() {
    let mut rig = Rig::new(ALL);
    let answer = rig.post(&[], initialize("2025-06-18"));
    let server = rig.asked().await;
    assert_eq!(server.what(), "POST /initialize");
    assert_eq!(server.request.header("content-type"), Some("application/json"));
    let told = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","protocolVersion":"2025-06-18","params":{"protocolVersion":"2025-06-18","#;
    assert!(server.text().starts_with(told), "{}", server.text());
    let info = r#"{"name":"Kuzu","version":"1.0.0","title":"K"}"#;
    let theirs = format!(
        r#"{{"jsonrpc":"2.0","id":null,"result":{{"protocolVersion":"0.1","capabilities":{{"memory":{{}}}},"serverInfo":{info},"instructions":"Ask."}}}}"#
    );
    server.json(&[], &theirs);
    settle().await;
    let expected = began("2025-06-18", &format!(r#"{info},"instructions":"Ask.""#));
    assert_eq!(answer.text(), expected);

    let answer = rig.post(&[], initialize("2025-06-18"));
    rig.asked().await.json(&[], r#"{"jsonrpc":"2.0","id":null,"error":{"error":"full"}}"#);
    settle().await;
    let expected = r#"{"jsonrpc":"2.0","id":"i","error":{"code":-32603,"message":"full","data":{"error":"full"}}}"#;
    assert_eq!(answer.text(), expected);

    // The URL is relative to the endpoint, /base/mcp.
    let _answer = rig.post(&[], request("1", "tools/list", "{}"));
    assert_eq!(rig.asked().await.what(), "GET /list?all=1");

    let named = "upstream.lifecycle = { initialize = \"/hello\", server = { name = \"a\\\"b\", version = \"2\" } }";
    let mut rig = Rig::new(named);
    let answer = rig.post(&[], initialize("2025-06-18"));
    rig.asked().await.json(&[], "null");
    settle().await;
    assert_eq!(answer.text(), began("2025-06-18", r#"{"name":"a\"b","version":"2"}"#));
    // The settings do not say that the list is on another path.
    let _answer = rig.post(&[], request("1", "tools/list", "{}"));
    assert_eq!(rig.asked().await.what(), "POST /base/mcp");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_over_with_its_answer() {
    let mut rig = Rig::new(LIFECYCLE);
    let (answer, server) = called(&mut rig, &call("0", "0")).await;
    // The server takes the id 0 for a missing id.
    let invented = "\"6f9619ff-8b86-d011-b42d-00c04fc964ff\"";
    for count in 1..=3 {
        server.chunk(format!("event: mcpNotification\ndata: {}\n\n", step(invented, count)));
        settle().await;
    }
    assert!(!answer.is_over());
    server.chunk(format!("event: mcpResponse\ndata: {}\n\n", bare(invented, RESULT)));
    settle().await;
    let steps = [1, 2, 3].map(|count| stepped("0", count));
    assert_eq!(answer.messages(), [&steps[..], &[wrapped("0", RESULT)]].concat());
    assert!(answer.blocks().iter().all(|block| block.is_message()));
    // The server never ends its stream.
    assert!(answer.is_over() && server.left().is_some());
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_needs_no_progress_before_it_to_be_mended() {
    let mut rig = Rig::new(LIFECYCLE);
    let cases = [
        (bare("\"invented\"", RESULT), wrapped("0", RESULT)),
        (bare("0", "[]"), wrapped("0", "[]")),
        (result("0"), result("0")),
        (
            r#"{"jsonrpc":"2.0","id":"invented","error":{"error":"no such tool"}}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"no such tool","data":{"error":"no such tool"}}}"#.to_owned(),
        ),
    ];
    for (said, told) in cases {
        // The answer as JSON.
        let answer = rig.send(
            "POST /r",
            &["Accept: application/json", "Content-Type: application/json"],
            call("0", "").as_bytes(),
        );
        rig.asked().await.json(&[], &said);
        settle().await;
        assert_eq!(answer.text(), told);
        // The answer as an event, with ids, without spaces, in two pieces.
        let (answer, server) = called(&mut rig, &call("0", "")).await;
        server.chunk("retry:2000\n\n");
        let event = format!("event:mcpResponse\nid:x\ndata:{said}\n\n");
        let (first, rest) = event.split_at(20);
        server.chunk(first);
        settle().await;
        server.chunk(rest);
        settle().await;
        assert_eq!(answer.messages(), [told]);
        assert!(answer.is_over());
        check([&answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_of_a_batch_is_answered_before_the_end() {
    let mut rig = Rig::new(LIFECYCLE);
    let batch = format!("[{},{}]", call("1", "1"), call("2", "2"));
    let (answer, server) = called(&mut rig, &batch).await;
    server.say(bare("1", RESULT));
    settle().await;
    assert!(!answer.is_over());
    server.say(step("2", 1));
    server.say(bare("2", RESULT));
    settle().await;
    let expected = [wrapped("1", RESULT), stepped("2", 1), wrapped("2", RESULT)];
    assert_eq!(answer.messages(), expected);
    assert!(answer.is_over());

    let ours = format!(
        "[{},{},{}]",
        request("1", "ping", "{}"),
        cancelled("9"),
        request("2", "prompts/list", "{}")
    );
    let pong = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let not_found = refused("2", "-32601", "Method not found: prompts/list", "");
    assert_eq!(own(&mut rig, &[], &ours).await, (200, format!("[{pong},{not_found}]")));
    assert_eq!(own(&mut rig, &[], &format!("[{}]", cancelled("9"))).await.0, 202);
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_is_whole_before_the_end() {
    let mut rig = Rig::new(LIFECYCLE);
    let (answer, server) = called(&mut rig, &call("1", "1")).await;
    let result = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(3 << 20));
    let event = event(&bare("1", &result));
    for piece in event.as_bytes().chunks(60_000) {
        server.chunk(piece);
        settle().await;
    }
    pass(secs(1)).await;
    assert_eq!(answer.messages(), [bare("1", &result)]);
    assert!(answer.is_over() && server.left().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_is_told_of_although_it_sends_ids() {
    let mut rig = Rig::new(LIFECYCLE);
    let (answer, server) = called(&mut rig, &call("1", "1")).await;
    server.chunk(format!("event:mcpNotification\nid:u-1\ndata:{}\n\n", step("1", 1)));
    settle().await;
    server.die();
    settle().await;
    let told = answer.messages();
    assert!(told[1].starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"#), "{told:?}");
    assert!(answer.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_route_may_keep_results_and_streams_as_they_are() {
    let keep = "upstream.lifecycle = { wrap_results = false, end_with_answer = false }";
    let mut rig = Rig::new(keep);
    let (answer, server) = called(&mut rig, &call("1", "")).await;
    server.say(bare("1", RESULT));
    pass(secs(1)).await;
    server.say(log("behind it"));
    pass(secs(1)).await;
    assert_eq!(answer.messages(), [bare("1", RESULT), log("behind it")]);
    assert!(!answer.is_over());
    // As on every route without a lifecycle: the server may send more messages.
    let mut rig = Rig::new("");
    let (answer, server) = called(&mut rig, &call("1", "")).await;
    server.say(bare("1", RESULT));
    pass(secs(60)).await;
    assert!(!answer.is_over() && server.left().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_is_the_servers_to_refuse() {
    let mut rig = Rig::new(LIFECYCLE);
    let answer = rig.send("POST /r", &[BOTH, "Content-Type: application/json"], b"{nonsense");
    rig.asked().await.answer("400 Bad Request", &[], "Parse error");
    settle().await;
    assert_eq!((answer.status(), answer.text()), (400, "Parse error".to_owned()));
    let _preflight = rig.send("OPTIONS /r", &["Origin: http://localhost"], b"");
    assert_eq!(rig.asked().await.what(), "OPTIONS /base/mcp");
}
