//! A stream in the place of an answer that takes long: when it begins, and how the server's answer becomes an event.

use crate::http::rig::{Answer, Asked, BOTH, Rig, check, ms, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

/// A session in which a call has waited for its answer until there was a stream in its place.
async fn upgraded(keys: &str) -> (Rig, Answer, Asked) {
    let mut rig = Rig::new(keys);
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    pass(ms(4990)).await;
    assert!(answer.is_silent());
    pass(ms(20)).await;
    assert_eq!(answer.status(), 200);
    (rig, answer, server)
}

/// Whether a request gets a stream after a while.
async fn is_upgraded(rig: &mut Rig, headers: &[&str], message: &str) -> bool {
    let answer = rig.send("POST /r", headers, message.as_bytes());
    let server = rig.asked().await;
    pass(secs(6)).await;
    let upgraded = !answer.is_silent();
    server.json(&[], &result("1"));
    settle().await;
    assert_eq!(answer.messages().last(), Some(&result("1")));
    upgraded
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_json_that_takes_long_becomes_an_event() {
    let (_rig, answer, server) = upgraded("").await;
    let spoken = answer.spoken().unwrap();
    assert_eq!(spoken.header("content-type"), Some("text/event-stream"));
    assert_eq!(spoken.header("cache-control"), Some("no-cache"));
    assert_eq!(spoken.header("x-accel-buffering"), Some("no"));
    assert_eq!(spoken.header("content-length"), None);
    // A comment at once, and the heartbeat that was due after two seconds.
    let blocks = answer.blocks();
    assert_eq!(blocks[0].raw, b": keep-alive\n\n");
    assert_eq!(answer.messages(), [heartbeat("7", "0.000001", 5)]);
    assert_eq!(blocks.len(), 2);
    pass(secs(6)).await;
    let pretty = "{\r\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": {\"a\": 1.50}\r}\n";
    server.json(&["Mcp-Session-Id: s"], pretty);
    settle().await;
    let text = answer.text();
    let one_line = pretty.replace(['\r', '\n'], " ");
    assert!(text.ends_with(&format!("event: message\ndata: {one_line}\n\n")), "{text}");
    assert!(answer.blocks().iter().all(|block| block.id.is_none()));
    assert!(answer.is_over());
    assert_eq!(answer.messages()[1], heartbeat("7", "0.000002", 10));
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_server_goes_on_where_ours_began() {
    let (rig, answer, server) = upgraded("").await;
    server.events(&[]);
    // A byte order mark would not be at the start of the stream.
    let events = [
        event_with("e1", &progress("7", "1")),
        ": ping\n\n".to_owned(),
        event_with("e2", &log("m")),
    ];
    server.chunk(format!("\u{feff}{}", events.concat()));
    settle().await;
    let text = answer.text();
    assert!(text.starts_with(": keep-alive\n\n") && text.ends_with(&events.concat()), "{text}");
    assert!(!text.contains('\u{feff}'));
    let begin = rig.now();
    pass(secs(11)).await;
    assert_eq!(answer.told().last().unwrap().at - begin, secs(10), "the server has spoken");
    server.say(result("1"));
    server.end();
    settle().await;
    assert_eq!(answer.messages().last(), Some(&result("1")));
    assert!(answer.is_over());
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn json_that_has_begun_but_takes_long_becomes_an_event_too() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    let body = result("1");
    let length = format!("Content-Length: {}", body.len());
    server.head("200 OK", &["Content-Type: application/json", &length]);
    let (head, tail) = body.split_at(20);
    server.raw(head);
    pass(secs(6)).await;
    assert_eq!(answer.status(), 200);
    assert!(!answer.text().contains("jsonrpc\":\"2.0\",\"id\""), "nothing of it yet");
    pass(secs(20)).await;
    server.raw(tail);
    settle().await;
    assert!(answer.is_over());
    let messages = answer.messages();
    assert_eq!(messages.last(), Some(&body));
    assert!(messages.len() > 3, "heartbeats while it is on its way: {messages:?}");
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn only_who_names_events_gets_them() {
    for (accept, upgraded) in [
        ("application/json, text/event-stream", true),
        ("text/event-stream", true),
        ("TEXT/EVENT-STREAM;q=0.5", true),
        ("application/json;q=1, text/event-stream; q=0.001", true),
        ("application/json", false),
        ("*/*", false),
        ("text/*", false),
        ("application/json, text/event-stream;q=0", false),
        ("text/event-stream;q=0.0, application/json", false),
        ("text/event-streams", false),
    ] {
        let mut rig = Rig::new("");
        rig.session("s", "2025-06-18").await;
        let accept = format!("Accept: {accept}");
        assert_eq!(
            is_upgraded(&mut rig, &[S, &accept], &call("1", "7")).await,
            upgraded,
            "{accept}"
        );
    }
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let two = ["Accept: application/json", "Accept: text/event-stream", S];
    assert!(is_upgraded(&mut rig, &two, &call("1", "7")).await);
    assert!(!is_upgraded(&mut rig, &[S], &call("1", "7")).await, "without any Accept");
    // A client that did not ask for events still gets the server's events.
    let answer = rig.send("POST /r", &[S, "Accept: application/json"], call("1", "7").as_bytes());
    let server = rig.asked().await;
    assert_eq!(server.request.header("accept"), Some("application/json"));
    server.events(&[]);
    server.say(progress("7", "1"));
    settle().await;
    assert_eq!(answer.text(), event(&progress("7", "1")));
}

#[tokio::test(start_paused = true)]
async fn only_calls_of_tools_and_what_the_route_names_become_streams() {
    let with_token = |method: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{"progressToken":7}}}}}}"#
        )
    };
    for (keys, method, upgraded) in [
        ("", "tools/call", true),
        ("", "tools/list", false),
        ("", "tasks/get", false),
        ("", "initialize", false),
        ("", "resources/read", false),
        ("upgrade_methods = [\"resources/read\"]", "resources/read", true),
        ("upgrade_methods = [\"resources/read\"]", "prompts/get", false),
        ("upgrade_after = \"off\"", "tools/call", false),
    ] {
        let mut rig = Rig::new(keys);
        rig.session("s", "2025-06-18").await;
        let found = is_upgraded(&mut rig, &[S, BOTH], &with_token(method)).await;
        assert_eq!(found, upgraded, "{method} with {keys:?}");
    }
    // Several requests at once have no single answer.
    let mut rig = Rig::new("");
    rig.session("s", "2025-03-26").await;
    assert!(!is_upgraded(&mut rig, &[S, BOTH], &format!("[{}]", call("1", "7"))).await);
}

#[tokio::test(start_paused = true)]
async fn without_a_token_only_who_names_a_revision_gets_a_stream() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    assert!(!is_upgraded(&mut rig, &[S, BOTH], &call("1", "")).await);
    let named = [S, BOTH, "MCP-Protocol-Version: 2025-06-18"];
    assert!(is_upgraded(&mut rig, &named, &call("1", "")).await);
    // The stream is kept alive with comments and gets nothing else.
    let answer = rig.post(&[S, named[2]], call("1", ""));
    let server = rig.asked().await;
    pass(secs(36)).await;
    assert_eq!(answer.text(), ": keep-alive\n\n".repeat(3));
    server.json(&[], &result("1"));
    settle().await;
    assert_eq!(answer.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn whoever_was_not_served_before_gets_the_servers_own_status() {
    const BEARER: &str = "Authorization: Bearer a";
    const OTHER: &str = "Authorization: Bearer b";
    let mut rig = Rig::new("");
    // A caller that Milepost has never seen.
    let answer = rig.post(&[BEARER], call("1", "7"));
    let server = rig.asked().await;
    pass(secs(20)).await;
    assert!(answer.is_silent());
    let challenges = ["WWW-Authenticate: Bearer realm=\"x\"", "WWW-Authenticate: Basic"];
    server.answer("401 Unauthorized", &challenges, "no");
    settle().await;
    assert_eq!((answer.status(), answer.text()), (401, "no".to_owned()));
    assert_eq!(answer.all("www-authenticate"), ["Bearer realm=\"x\"", "Basic"]);
    // The caller was served once, without a session: it is recognised.
    assert!(!is_upgraded(&mut rig, &[BOTH, BEARER], &call("1", "7")).await);
    assert!(is_upgraded(&mut rig, &[BOTH, BEARER], &call("1", "7")).await);
    assert!(!is_upgraded(&mut rig, &[BOTH, OTHER], &call("1", "7")).await);
    assert!(!is_upgraded(&mut rig, &[BOTH], &call("1", "7")).await);
    // The caller was refused, and is unknown again.
    let answer = rig.post(&[BEARER], call("1", "7"));
    rig.asked().await.answer("401 Unauthorized", &[], "");
    settle().await;
    assert_eq!(answer.status(), 401);
    assert!(!is_upgraded(&mut rig, &[BOTH, BEARER], &call("1", "7")).await);
    // A session proves its caller by itself, whatever its tokens: tokens are renewed.
    rig.session("s", "2025-06-18").await;
    assert!(is_upgraded(&mut rig, &[BOTH, S, "Authorization: Bearer c"], &call("1", "7")).await);
    let answer = rig.post(&[S], call("1", "7"));
    rig.asked().await.answer("401 Unauthorized", &[], "");
    settle().await;
    assert_eq!(answer.status(), 401);
    assert!(!is_upgraded(&mut rig, &[BOTH, S], &call("1", "7")).await);
    assert!(is_upgraded(&mut rig, &[BOTH, S], &call("1", "7")).await, "it has succeeded since");
    // A session whose beginning Milepost has not seen.
    let cold = "Mcp-Session-Id: cold";
    assert!(!is_upgraded(&mut rig, &[BOTH, cold], &call("1", "7")).await);
    assert!(is_upgraded(&mut rig, &[BOTH, cold], &call("1", "7")).await);
}

#[tokio::test(start_paused = true)]
async fn browsers_get_a_stream_only_where_their_cors_headers_are_known() {
    const ORIGIN: &str = "Origin: http://localhost:6274";
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    assert!(!is_upgraded(&mut rig, &[BOTH, S, ORIGIN], &call("1", "7")).await);
    // Now the server's CORS headers are known.
    let allowed = ["Access-Control-Allow-Origin: http://localhost:6274", "Vary: Origin"];
    let answer = rig.post(&[S, ORIGIN], request("1", "ping", "{}"));
    let mut headers = allowed.to_vec();
    headers.push("Access-Control-Expose-Headers: Mcp-Session-Id");
    rig.asked().await.json(&headers, &result("1"));
    settle().await;
    assert_eq!(answer.status(), 200);
    let answer = rig.post(&[S, ORIGIN], call("1", "7"));
    let server = rig.asked().await;
    pass(secs(6)).await;
    let origin = answer.header("access-control-allow-origin");
    assert_eq!(origin.as_deref(), Some("http://localhost:6274"));
    server.json(&[], &result("1"));
    settle().await;
    // The headers of another origin are still unknown.
    let other = "Origin: http://127.0.0.1:1";
    assert!(!is_upgraded(&mut rig, &[BOTH, S, other], &call("1", "7")).await);
    // If the proxy answers for CORS, it knows the headers.
    let mut rig = Rig::new("cors.origins = [\"*\"]");
    rig.session("s", "2025-06-18").await;
    assert!(is_upgraded(&mut rig, &[BOTH, S, ORIGIN], &call("1", "7")).await);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_comes_too_late_is_one_error() {
    for (status, number) in [
        ("404 Not Found", 404),
        ("401 Unauthorized", 401),
        ("500 Internal Server Error", 500),
        ("202 Accepted", 202),
        ("302 Found", 302),
        ("200 OK", 200),
    ] {
        for body in ["", "<html>\r\n\r\ndata: x\n\n</html>", &result("99"), &log("m"), "{"] {
            let (mut rig, answer, server) = upgraded("").await;
            server.answer(status, &["Content-Type: text/html"], body);
            settle().await;
            let messages = answer.messages();
            let more = format!(r#","httpStatus":{number}"#);
            let why = format!("the server answered with HTTP status {status}");
            let wanted = [heartbeat("7", "0.000001", 5), own_error("1", &why, &more)];
            assert_eq!(messages, wanted, "{status}: {body}");
            assert!(answer.is_over());
            assert!(rig.try_asked().await.is_none());
            check([&answer]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_servers_own_error_passes_if_it_is_for_this_request() {
    for (status, number) in [("404 Not Found", "1"), ("400 Bad Request", "1")] {
        let (_rig, answer, server) = upgraded("").await;
        server.answer(status, &["Content-Type: application/json"], error(number));
        settle().await;
        assert_eq!(answer.messages(), [heartbeat("7", "0.000001", 5), error("1")]);
        assert!(answer.is_over());
        check([&answer]);
    }
    let (_rig, answer, server) = upgraded("").await;
    server.answer("400 Bad Request", &["Content-Type: application/json"], error("null"));
    settle().await;
    let messages = answer.messages();
    assert!(messages[1].contains(r#""httpStatus":400"#), "{messages:?}");
    assert_eq!(messages.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_404_that_comes_too_late_ends_the_session_all_the_same() {
    let (mut rig, answer, server) = upgraded("").await;
    server.answer("404 Not Found", &[], "");
    settle().await;
    assert!(answer.is_over());
    // The caller is unknown now, so its next call gets its own status.
    assert!(!is_upgraded(&mut rig, &[BOTH, S], &call("1", "7")).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_lost_after_the_stream_began_is_one_error() {
    let (_rig, answer, server) = upgraded("").await;
    server.die();
    settle().await;
    let messages = answer.messages();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[1].contains(r#""id":1,"error":{"code":-32603"#), "{messages:?}");
    assert!(messages[1].contains(r#""data":{"proxy":"milepost"}"#));
    assert!(answer.is_over());
    check([&answer]);
    // Cut in the middle of JSON: the partial answer is dropped.
    let (_rig, answer, server) = upgraded("").await;
    server.head("200 OK", &["Content-Type: application/json", "Content-Length: 100"]);
    server.raw(r#"{"jsonrpc":"2.0","id":1,"result":{"#);
    settle().await;
    server.die();
    settle().await;
    let messages = answer.messages();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[1].starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603"#));
    assert!(answer.is_over());
}

#[tokio::test(start_paused = true)]
async fn an_array_becomes_one_event() {
    // In this revision arrays are allowed; for all other revisions they are split.
    let mut rig = Rig::new("");
    rig.session("s", "2025-03-26").await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    pass(secs(6)).await;
    server.json(&[], &format!("[{},{}]", result("1"), log("m")));
    settle().await;
    assert_eq!(answer.messages()[1..], [format!("[{},{}]", result("1"), log("m"))]);
    assert!(answer.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_a_stream_of_ours_takes_the_servers_answer_with_it() {
    let (mut rig, answer, server) = upgraded("").await;
    answer.leave();
    settle().await;
    assert_eq!(server.left(), Some(rig.now()));
    assert!(rig.try_asked().await.is_none());
}
