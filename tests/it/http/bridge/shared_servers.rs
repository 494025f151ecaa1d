//! Clients of 2026-07-28 before a stdio server, which they share.

use serde_json::Value;

use crate::http::rig::{Answer, LISTENERS_BEARER, Lines, Rig, ms, pass, secs, settle};
use crate::observe::metrics::page::Page;
use crate::support::messages::{
    agreement, answer, headers_of, initialize, modern_call, modern_with, progress,
};

/// A request of 2026-07-28 whose token is its id.
fn request(id: &str, method: &str, params: &str) -> String {
    modern_with(id, id, method, params)
}

fn call(id: &str) -> String {
    modern_call(id, id)
}

fn result(id: &str) -> String {
    answer(id, r#"{"resultType":"complete","content":[]}"#)
}

fn discover() -> String {
    request(r#""d""#, "server/discover", "")
}

fn error(id: &str, code: i32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"?"}}}}"#)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the id in a line, exactly as written.
fn id_of(line: &str) -> String {
    json(line)["id"].to_string()
}

fn ask(rig: &Rig, body: &str) -> Answer {
    ask_with(rig, &headers_of(body), body)
}

/// The same with these headers.
fn ask_with(rig: &Rig, headers: &[String], body: &str) -> Answer {
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    rig.post(&headers, body)
}

/// Asks, and says by which id the server knows it.
async fn asked(rig: &Rig, server: &mut Lines, body: &str) -> (Answer, String) {
    let answer = ask(rig, body);
    let id = id_of(&server.line().await);
    (answer, id)
}

/// The server that is started for the first request, and that request.
async fn first(
    rig: &Rig,
    servers: &mut tokio::sync::mpsc::UnboundedReceiver<Lines>,
    body: &str,
) -> (Answer, Lines, String) {
    let answer = ask(rig, body);
    settle().await;
    let mut server = servers.try_recv().expect("no server was started");
    let id = id_of(&server.line().await);
    (answer, server, id)
}

#[tokio::test(start_paused = true)]
async fn clients_share_a_server_and_know_nothing_of_each_other() {
    let (rig, mut servers) = Rig::of_lines("");
    let (one, mut server, first_id) = first(&rig, &mut servers, &call("1")).await;
    let (two, second_id) = asked(&rig, &mut server, &call("1")).await;
    assert!(servers.try_recv().is_err());
    assert_ne!(first_id, second_id);
    server.say(progress(&second_id, 5));
    server.say(progress(&first_id, 7));
    server.say(result(&second_id));
    server.say(progress(&second_id, 6));
    server.say(result(&first_id));
    settle().await;
    assert_eq!(one.messages(), [progress("1", 7), result("1")]);
    assert_eq!(two.messages(), [progress("1", 5), result("1")]);
    assert_eq!(two.header("mcp-session-id"), None);
}

#[tokio::test(start_paused = true)]
async fn each_authorization_has_a_server_of_its_own() {
    let (rig, mut servers) = Rig::of_lines("");
    for authorization in ["Authorization: Bearer a", "Authorization: Bearer b"] {
        let headers = [&headers_of(&call("1"))[..], &[authorization.to_owned()]].concat();
        let _answer = ask_with(&rig, &headers, &call("1"));
        settle().await;
        let mut server = servers.try_recv().expect("no server was started");
        assert!(server.line().await.contains("tools/call"));
    }
}

/// A message that names no call may be about the call before. The clients of one `Authorization` are one
/// principal and may see it; the bearer of the listener is the same for all, and says nothing of who they are.
#[tokio::test(start_paused = true)]
async fn the_bearer_of_the_listener_makes_no_principal() {
    for (authorization, is_told) in [("Bearer a", true), (LISTENERS_BEARER, false)] {
        let (rig, mut servers) = Rig::of_lines("");
        let header = format!("Authorization: {authorization}");
        let ask = |id| {
            let headers = [&headers_of(&call(id))[..], std::slice::from_ref(&header)].concat();
            ask_with(&rig, &headers, &call(id))
        };
        let one = ask("1");
        settle().await;
        let mut server = servers.try_recv().expect("no server was started");
        let first_id = id_of(&server.line().await);
        server.say(result(&first_id));
        settle().await;
        assert_eq!(one.messages(), [result("1")]);
        let two = ask("2");
        let second_id = id_of(&server.line().await);
        assert!(servers.try_recv().is_err(), "they share a server");
        server.say(progress("\"nobody's\"", 3));
        server.say(result(&second_id));
        settle().await;
        assert_eq!(two.messages().len(), 1 + usize::from(is_told), "{authorization}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_gives_up() {
    let (rig, mut servers) = Rig::of_lines("");
    let (one, mut server, first_id) = first(&rig, &mut servers, &call("1")).await;
    let (two, second_id) = asked(&rig, &mut server, &call("1")).await;
    // Once before any message, and once in the middle of a stream.
    drop(one);
    let cancelled = json(&server.line().await);
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"].to_string(), first_id);
    server.say(progress(&second_id, 1));
    settle().await;
    assert_eq!(two.messages(), [progress("1", 1)]);
    drop(two);
    assert_eq!(json(&server.line().await)["params"]["requestId"].to_string(), second_id);
    // A late report reaches no client.
    let (three, third_id) = asked(&rig, &mut server, &call("1")).await;
    server.say(progress(&first_id, 9));
    server.say(result(&second_id));
    server.say(result(&third_id));
    settle().await;
    assert_eq!(three.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn the_status_comes_from_the_answer() {
    let (rig, mut servers) = Rig::of_lines("");
    let (answer, mut server, id) = first(&rig, &mut servers, &discover()).await;
    server.say(result(&id));
    settle().await;
    assert_eq!((answer.status(), answer.text()), (200, result(r#""d""#)));
    for (code, status) in [(-32601, 404), (-32602, 400), (-32020, 400), (-32022, 400), (-1, 200)] {
        let (answer, id) = asked(&rig, &mut server, &call("1")).await;
        server.say(error(&id, code));
        settle().await;
        assert_eq!((answer.status(), answer.text()), (status, error("1", code)));
    }
    let told = ask(
        &rig,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    );
    settle().await;
    assert_eq!(told.status(), 202);
    assert!(server.told().await.is_empty());
    let get = rig.get(&["MCP-Protocol-Version: 2026-07-28"]);
    settle().await;
    assert_eq!(get.status(), 405);
    let wrong = rig.post(&["Mcp-Method: tools/list"], call("1"));
    settle().await;
    assert_eq!(wrong.status(), 400);
    assert!(wrong.text().contains("-32020"), "{}", wrong.text());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_is_started_again_after_a_pause() {
    let (rig, mut servers) = Rig::of_lines("");
    let (answer, server, _) = first(&rig, &mut servers, &call("1")).await;
    drop(server);
    settle().await;
    assert!(answer.text().contains(r#""id":1,"error""#), "{}", answer.text());
    let next = ask(&rig, &call("2"));
    pass(ms(400)).await;
    assert!(servers.try_recv().is_err());
    pass(ms(200)).await;
    let mut server = servers.try_recv().expect("no server was started");
    let id = id_of(&server.line().await);
    server.say(result(&id));
    settle().await;
    assert_eq!(next.messages(), [result("2")]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_to_be_restarted_is_not() {
    let (rig, mut servers) = Rig::of_lines("upstream.restart = false");
    let (_answer, server, _) = first(&rig, &mut servers, &call("1")).await;
    drop(server);
    settle().await;
    let next = ask(&rig, &call("2"));
    pass(secs(60)).await;
    assert_eq!(next.status(), 502);
    assert!(servers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn only_the_first_client_waits_for_a_server_that_is_too_old() {
    let (rig, mut servers) = Rig::of_lines("");
    let (answer, mut server, _) = first(&rig, &mut servers, &discover()).await;
    pass(secs(7)).await;
    assert!(answer.is_silent());
    pass(secs(2)).await;
    assert_eq!(answer.status(), 404);
    assert!(answer.text().contains("-32601"), "{}", answer.text());
    // The server is no longer used.
    pass(secs(1)).await;
    assert!(server.is_closed());
    assert!(server.told().await.is_empty());
    let again = ask(&rig, &discover());
    let call = ask(&rig, &call("1"));
    settle().await;
    assert_eq!((again.status(), call.status()), (404, 400));
    let refused = json(&call.text());
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"]["requested"], "2026-07-28");
    assert_eq!(refused["error"]["data"]["supported"][0], "2025-11-25");
    // The client falls back to `initialize`.
    let session = rig.post(&[], initialize("2025-11-25"));
    settle().await;
    let mut server = servers.try_recv().expect("no server was started");
    assert_eq!(server.line().await, initialize("2025-11-25"));
    server.say(agreement("2025-11-25"));
    settle().await;
    assert!(session.header("mcp-session-id").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_route_may_share_nothing() {
    let (rig, mut servers) = Rig::of_lines("upstream.share = false");
    let answers = [ask(&rig, &discover()), ask(&rig, &call("1"))];
    settle().await;
    assert_eq!(answers.map(|answer| answer.status()), [404, 400]);
    assert!(servers.try_recv().is_err());
}

#[tokio::test]
async fn an_answer_too_large_to_be_held_goes_to_who_asked_for_it() {
    let keys = "upstream.max_frame = 65536\nupstream.max_spill = 1000000";
    let (rig, mut servers) = Rig::of_lines(keys);
    let (one, mut server, first_id) = first(&rig, &mut servers, &call("1")).await;
    let (two, second_id) = asked(&rig, &mut server, &call("1")).await;
    let large = |id: &str, bytes: usize| {
        let text = "x".repeat(bytes);
        // The id comes last, as some servers write it.
        format!(r#"{{"result":{{"content":["{text}"]}},"jsonrpc":"2.0","id":{id}}}"#)
    };
    server.say(progress(&second_id, 3));
    server.say(large(&second_id, 300_000));
    server.say(progress(&first_id, 2));
    server.say(large(&first_id, 2_000_000));
    // Other threads write and read the file, so the test has to wait.
    for _ in 0..3_000 {
        if one.messages().len() == 2 && two.messages().len() == 2 {
            break;
        }
        tokio::time::sleep(ms(20)).await;
    }
    let told = two.messages();
    assert_eq!(told[0], progress("1", 3));
    assert!(told[1].trim_end() == large("1", 300_000), "{}", &told[1][told[1].len() - 60..]);
    let told = one.messages();
    assert_eq!(told[0], progress("1", 2));
    assert!(told[1].contains("1000000 bytes"), "{}", told[1]);
}

#[tokio::test]
async fn an_answer_in_a_file_has_characters_that_every_client_reads() {
    let large = |id: &str, characters: &str| {
        let text = "x".repeat(300_000);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":["{characters}","{text}","{characters}"]}}}}"#
        )
    };
    for (kept, expected) in [("", "a\\ufffdb \\u0001"), ("\"unicode\"", "a\\ud800b \u{1}")] {
        let keys = format!("upstream.max_frame = 65536\nno_repair = [{kept}]");
        let (rig, mut servers) = Rig::of_lines(&keys);
        let (one, server, id) = first(&rig, &mut servers, &call("1")).await;
        server.say(large(&id, "a\\ud800b \u{1}"));
        // Other threads write and read the file, so the test has to wait.
        for _ in 0..3_000 {
            if !one.messages().is_empty() {
                break;
            }
            tokio::time::sleep(ms(20)).await;
        }
        let told = one.messages()[0].replace(&"x".repeat(300_000), "");
        assert_eq!(
            told.trim_end(),
            large("1", expected).replace(&"x".repeat(300_000), ""),
            "{kept}"
        );
    }
}

#[tokio::test]
async fn large_answers_in_files_have_one_budget_which_a_read_answer_gives_back() {
    let keys = "upstream.max_frame = 65536\n[server]\nmax_spilled_bytes = 1_048_576";
    let (rig, mut servers) = Rig::of_lines(keys);
    let (one, mut server, first_id) = first(&rig, &mut servers, &call("1")).await;
    let large = |id: &str, bytes: usize| {
        let text = "x".repeat(bytes);
        format!(r#"{{"result":{{"content":["{text}"]}},"jsonrpc":"2.0","id":{id}}}"#)
    };
    let told = async |answer: &Answer| {
        // Other threads write and read the file, so the test has to wait.
        for _ in 0..3_000 {
            if !answer.messages().is_empty() {
                break;
            }
            tokio::time::sleep(ms(20)).await;
        }
        answer.messages()[0].clone()
    };
    server.say(large(&first_id, 1_100_000));
    assert!(told(&one).await.contains("`server.max_spilled_bytes`"));
    for _ in 0..2 {
        let (two, second_id) = asked(&rig, &mut server, &call("1")).await;
        server.say(large(&second_id, 900_000));
        assert!(told(&two).await.trim_end() == large("1", 900_000));
    }
    let page = Page::read(&rig.metrics());
    assert_eq!(page.sum("milepost_unspilled_answers_total", &[]), 1.0);
}

/// The fault may be the question's: another client's may be understood.
#[tokio::test(start_paused = true)]
async fn an_error_of_the_question_does_not_make_a_server_old() {
    let (rig, mut servers) = Rig::of_lines("");
    let (answer, mut server, id) = first(&rig, &mut servers, &discover()).await;
    server.say(error(&id, -32602));
    settle().await;
    assert_eq!(answer.status(), 400);
    let (answer, id) = asked(&rig, &mut server, &call("1")).await;
    server.say(result(&id));
    settle().await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.messages(), [result("1")]);
}

/// The official servers that speak both eras decide by the first message which one it is to be.
#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_say_what_it_must_does_not_reach_the_server() {
    let (rig, mut servers) = Rig::of_lines("");
    let revision = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    for meta in [
        "",
        r#""_meta":{}"#,
        &format!(r#""_meta":{{{revision}}}"#),
        &format!(r#""_meta":{{{capabilities}}}"#),
    ] {
        let ask = format!(
            r#"{{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{{{meta}}}}}"#
        );
        let answer = rig.post(&["MCP-Protocol-Version: 2026-07-28"], ask);
        settle().await;
        assert_eq!(answer.status(), 400, "{meta}");
        let refused = json(&answer.text());
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&"d".into(), &(-32602).into()));
    }
    assert!(servers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_nobody_knows_is_for_the_server_to_judge() {
    let (rig, mut servers) = Rig::of_lines("");
    let ask = discover().replace("2026-07-28", "v999.0.0");
    let other = ask_with(&rig, &headers_of(&discover()), &ask);
    settle().await;
    assert_eq!(other.status(), 400);
    assert_eq!(json(&other.text())["error"]["code"], -32020);
    let answer = self::ask(&rig, &ask);
    settle().await;
    let mut server = servers.try_recv().expect("no server was started");
    let id = id_of(&server.line().await);
    server.say(error(&id, -32022));
    settle().await;
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.text(), error(r#""d""#, -32022));
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_for_a_minute_has_left() {
    let (rig, mut servers) = Rig::of_lines("");
    let (answer, mut server, id) = first(&rig, &mut servers, &call("1")).await;
    server.say(progress(&id, 1));
    settle().await;
    answer.pause(true);
    let words = "w".repeat(1_000_000);
    server.say(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{words}"}}}}"#
    ));
    pass(secs(62)).await;
    let cancelled = json(&server.line().await);
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"].to_string(), id);
}

/// The code of an error in the place of the server.
async fn refusal(answer: &Answer) -> (u16, Value) {
    settle().await;
    (answer.status(), json(&answer.text())["error"]["code"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_header_that_it_must_have_does_not_reach_the_server() {
    let (rig, mut servers) = Rig::of_lines("");
    let body = call("1");
    let headers = headers_of(&body);
    assert_eq!(headers.len(), 3);
    for missing in &headers {
        let left: Vec<String> = headers.iter().filter(|one| *one != missing).cloned().collect();
        let answer = ask_with(&rig, &left, &body);
        assert_eq!(refusal(&answer).await, (400, (-32020).into()), "{missing}");
        let twice = [&headers[..], std::slice::from_ref(missing)].concat();
        let answer = ask_with(&rig, &twice, &body);
        settle().await;
        assert_eq!(answer.status(), 400, "{missing}");
    }
    // A header without its member.
    let nameless = body.replace(r#""name":"work","#, "");
    let answer = ask_with(&rig, &headers, &nameless);
    assert_eq!(refusal(&answer).await, (400, (-32020).into()));
    // The header has the newest revision, the body an older one.
    let older = body.replace("2026-07-28", "2025-11-25");
    let answer = ask_with(&rig, &headers, &older);
    assert_eq!(refusal(&answer).await, (400, (-32020).into()));
    assert!(servers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn arguments_that_a_listed_tool_repeats_in_headers_are_held_to_them() {
    let (rig, mut servers) = Rig::of_lines("heartbeat = { enabled = false }");
    let call = |id: &str, arguments: &str| {
        let params = format!(r#""name":"work","arguments":{arguments},"#);
        request(id, "tools/call", &params)
    };
    let with = |id: &str, arguments: &str, more: &[&str]| {
        let body = call(id, arguments);
        let mut headers = headers_of(&body);
        headers.extend(more.iter().map(|line| (*line).to_owned()));
        ask_with(&rig, &headers, &body)
    };
    // The tools have not been listed yet, so every header passes.
    let answer = with("1", r#"{"region":"a"}"#, &["Mcp-Param-Region: b"]);
    settle().await;
    let mut server = servers.try_recv().expect("no server was started");
    let id = id_of(&server.line().await);
    server.say(result(&id));
    settle().await;
    assert_eq!(answer.status(), 200);
    // The list of tools determines the meaning of the headers.
    let list = request("2", "tools/list", "");
    let (answer, id) = asked(&rig, &mut server, &list).await;
    let schema =
        r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#;
    let tools = format!(
        r#"{{"resultType":"complete","tools":[{{"name":"work","inputSchema":{schema}}}]}}"#
    );
    server.say(self::answer(&id, &tools));
    settle().await;
    assert_eq!(answer.text(), self::answer("2", &tools));
    for (arguments, headers, accepted) in [
        (r#"{"region":"a"}"#, &["Mcp-Param-Region: a"][..], true),
        (r#"{"region":"Hello"}"#, &["Mcp-Param-Region: =?base64?SGVsbG8=?="][..], true),
        ("{}", &[][..], true),
        ("{}", &["Mcp-Param-Other: x", "Mcp-Param-Other: y"][..], true),
        (r#"{"region":"a"}"#, &["Mcp-Param-Region: b"][..], false),
        (r#"{"region":"a"}"#, &[][..], false),
        ("{}", &["Mcp-Param-Region: a"][..], false),
        (r#"{"region":"Hello"}"#, &["Mcp-Param-Region: =?base64?SGVsbG8?="][..], false),
    ] {
        let answer = with("3", arguments, headers);
        if accepted {
            let id = id_of(&server.line().await);
            server.say(result(&id));
            settle().await;
            assert_eq!(answer.status(), 200, "{arguments} {headers:?}");
        } else {
            assert_eq!(refusal(&answer).await, (400, (-32020).into()), "{arguments} {headers:?}");
        }
    }
    assert!(server.told().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn initialize_is_no_method_of_a_revision_without_sessions() {
    let (rig, mut servers) = Rig::of_lines("");
    let answer = ask(&rig, &request("1", "initialize", ""));
    assert_eq!(refusal(&answer).await, (404, (-32601).into()));
    assert!(servers.try_recv().is_err());
}
