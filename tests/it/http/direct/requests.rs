//! Requests and their answers over Streamable HTTP: which messages pass unchanged, to which call progress belongs, and
//! what happens to a request whose client or server disconnects.

use crate::http::rig::{Answer, Asked, BOTH, Rig, check, ms, pass, secs, settle};
use crate::observe::metrics::page::Page;
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

/// A client posts, and the server begins a stream of events.
async fn streamed(rig: &mut Rig, headers: &[&str], message: &str) -> (Answer, Asked) {
    let answer = rig.post(headers, message);
    let asked = rig.asked().await;
    assert_eq!(asked.text(), message);
    asked.events(&[]);
    settle().await;
    (answer, asked)
}

#[tokio::test(start_paused = true)]
async fn exchanges_without_a_session_may_have_the_same_names() {
    let mut rig = Rig::new("");
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(streamed(&mut rig, &[], &call("1", "1")).await);
    }
    for (number, (_, server)) in all.iter().enumerate() {
        server.say(progress("1", number.to_string()));
        server.say(progress("\"invented\"", "10"));
    }
    for (_, server) in &all {
        server.say(result("1"));
        server.end();
    }
    settle().await;
    for (number, (answer, _)) in all.iter().enumerate() {
        let own = progress("1", number.to_string());
        assert_eq!(answer.messages(), [own, report("1", "10", "work: running"), result("1")]);
        assert!(answer.is_over());
        check([answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_that_a_server_invents_belong_to_the_stream_they_come_on() {
    let mut rig = Rig::new("min_interval = \"0s\"\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let (first, one) = streamed(&mut rig, &[S], &call("1", "7")).await;
    let (second, two) = streamed(&mut rig, &[S], &call("2", "8")).await;
    for figure in ["1", "2"] {
        one.say(report("\"u-1\"", figure, "a"));
        two.say(report("\"u-2\"", figure, "b"));
    }
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    // The invented names are valid on every stream of the session.
    listened.say(report("\"u-1\"", "3", "a"));
    listened.say(report("\"u-2\"", "3", "b"));
    settle().await;
    one.say(result("1"));
    settle().await;
    // After its request has ended, an invented name means nothing.
    listened.say(report("\"u-1\"", "9", "late"));
    settle().await;
    two.say(result("2"));
    settle().await;
    assert!(listens.messages().is_empty());
    let wanted = |token, words| ["1", "2", "3"].map(|figure| report(token, figure, words));
    assert_eq!(first.messages(), [&wanted("7", "a")[..], &[result("1")]].concat());
    assert_eq!(second.messages(), [&wanted("8", "b")[..], &[result("2")]].concat());
    check([&first, &second]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_two_requests_have_rises_on_the_stream_of_each() {
    let mut rig = Rig::new("min_interval = \"0s\"");
    rig.session("s", "2025-06-18").await;
    let (first, one) = streamed(&mut rig, &[S], &call("1", "7")).await;
    let (second, two) = streamed(&mut rig, &[S], &call("2", "7")).await;
    one.say(progress("7", "10"));
    settle().await;
    two.say(report("7", "5", "x"));
    settle().await;
    one.say(result("1"));
    settle().await;
    two.say(progress("7", "6"));
    two.say(result("2"));
    settle().await;
    // A message on the stream of a request belongs to that request: the other request may be another client's.
    assert_eq!(first.messages(), [progress("7", "10"), result("1")]);
    assert_eq!(second.messages(), [report("7", "5", "x"), progress("7", "6"), result("2")]);
    check([&first]);
    check([&second]);
}

#[tokio::test(start_paused = true)]
async fn sessions_know_nothing_of_each_other() {
    const OTHER: &str = "Mcp-Session-Id: other";
    let mut rig = Rig::new("heartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    rig.session("other", "2025-06-18").await;
    let (ours, one) = streamed(&mut rig, &[S], &call("1", "7")).await;
    let (theirs, two) = streamed(&mut rig, &[OTHER], &call("1", "9")).await;
    let listens = rig.get(&[OTHER]);
    let listened = rig.asked().await;
    listened.events(&[]);
    listened.say(progress("7", "1"));
    two.say(progress("7", "2"));
    pass(secs(1)).await;
    // A token of one session means nothing in the other session, on any stream.
    assert!(ours.messages().is_empty());
    assert!(theirs.messages().is_empty());
    assert!(listens.messages().is_empty());
    // A token that no client sent may be the server's own name for a call.
    two.say(report("\"u\"", "1", "a"));
    settle().await;
    assert_eq!(theirs.messages(), [report("9", "1", "a")]);
    // A cancellation in one session does not affect the other session.
    let cancels = rig.post(&[OTHER], cancelled("1"));
    rig.asked().await.accept();
    settle().await;
    one.say(progress("7", "5"));
    two.say(progress("9", "5"));
    settle().await;
    assert_eq!(ours.messages(), [progress("7", "5")]);
    assert!(!theirs.messages().contains(&progress("9", "5")));
    check([&ours]);
    check([&theirs, &cancels, &listens]);
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_client_without_a_session_is_nobodys() {
    let mut rig = Rig::new("heartbeat.enabled = false\nmin_interval = \"0s\"");
    let (ours, one) = streamed(&mut rig, &[], &call("1", "7")).await;
    let (theirs, two) = streamed(&mut rig, &[], &call("2", "9")).await;
    two.say(report("7", "1", "ours"));
    two.say(format!("[{},{}]", report("7", "2", "ours"), report("9", "1", "theirs")));
    settle().await;
    assert_eq!(theirs.messages(), [report("9", "1", "theirs")]);
    // The server's id of the request means this request, although the other request has an equal token.
    let (third, three) = streamed(&mut rig, &[], &call("7", "\"t\"")).await;
    three.say(report("7", "1", "by id"));
    one.say(result("1"));
    settle().await;
    assert_eq!(third.messages(), [report("\"t\"", "1", "by id")]);
    // After the end of the call its token may be used by the server for another call.
    two.say(report("7", "3", "invented"));
    settle().await;
    assert_eq!(theirs.messages().last(), Some(&report("9", "3", "invented")));
    check([&ours, &third]);
    check([&theirs]);
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_session_id_keep_the_names_of_their_own_posts() {
    let mut rig = Rig::new("heartbeat.enabled = false\nmin_interval = \"0s\"");
    rig.session("s", "2025-06-18").await;
    // An earlier client has abandoned its call.
    let (before, left) = streamed(&mut rig, &[S], &call("1", "1")).await;
    left.say(progress("1", "50"));
    settle().await;
    before.leave();
    settle().await;
    let clients = [
        streamed(&mut rig, &[S], &call("1", "1")).await,
        streamed(&mut rig, &[S], &call("1", "1")).await,
    ];
    for (number, (_, server)) in clients.iter().enumerate() {
        server.say(report("1", number, &number.to_string()));
        server.say(report("\"u\"", number + 2, &number.to_string()));
    }
    settle().await;
    // It is uncertain whose request is meant.
    let cancels = rig.post(&[S], cancelled("1"));
    rig.asked().await.accept();
    settle().await;
    for (number, (_, server)) in clients.iter().enumerate().rev() {
        server.say(report("1", number + 4, &number.to_string()));
        server.say(result("1"));
    }
    settle().await;
    for (number, (answer, _)) in clients.iter().enumerate() {
        let own = |figure: usize| report("1", figure, &number.to_string());
        let wanted = [own(number), own(number + 2), own(number + 4), result("1")];
        assert_eq!(answer.messages(), wanted);
        check([answer]);
    }
    check([&before, &cancels]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_a_foreign_id_waits_for_the_true_one() {
    let mut rig = Rig::new("heartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
    server.say(result("\"foreign\""));
    server.say(progress("7", "1"));
    server.say(result("1"));
    server.end();
    settle().await;
    assert_eq!(answer.messages(), [progress("7", "1"), result("1")]);
    assert!(answer.is_over());
    // An answer in another spelling of the id is forwarded at once.
    let (spelled, server) = streamed(&mut rig, &[S], &call("2", "7")).await;
    server.say(result("\"2\""));
    settle().await;
    assert_eq!(spelled.messages(), [result("2")]);
    // The stream ends without an answer with the right id, so the last answer is used.
    let (adopted, server) = streamed(&mut rig, &[S], &call("3", "7")).await;
    server.say(r#"{"jsonrpc":"2.0","id":"a","result":{"content":[],"first":1}}"#);
    server.say(result("\"b\""));
    server.say(progress("7", "1"));
    settle().await;
    assert_eq!(adopted.messages(), [progress("7", "1")]);
    server.end();
    settle().await;
    assert_eq!(adopted.messages(), [progress("7", "1"), result("3")]);
    assert!(adopted.is_over());
    // A JSON body contains the only answer.
    let json = rig.post(&[S], call("4", "7"));
    rig.asked().await.answer("200 OK", &["Content-Type: application/json"], result("99"));
    settle().await;
    assert_eq!(json.text(), result("4"));
    check([&answer, &spelled, &adopted]);
}

#[tokio::test(start_paused = true)]
async fn compliant_progress_of_a_session_that_began_elsewhere_passes() {
    let mut rig = Rig::new("");
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    // Another process may have seen the request of this token.
    listened.say(progress("7", "5"));
    listened.say(notification("notifications/progress", r#"{"progressToken":7}"#));
    listened.say(notification("notifications/tools/progress", r#"{"token":7,"progress":6}"#));
    listened.say(log("m"));
    listened.say(result("1"));
    settle().await;
    assert_eq!(listens.messages(), [progress("7", "5"), log("m"), result("1")]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_a_server_names_anew_in_each_answer_is_the_same() {
    let mut rig = Rig::new("heartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    server.events(&["Mcp-Session-Id: s-1"]);
    server.say(report("\"u\"", "1", "a"));
    settle().await;
    assert_eq!(answer.header("mcp-session-id").as_deref(), Some("s-1"));
    assert_eq!(answer.messages(), [report("7", "1", "a")]);
    let cancels = rig.post(&["Mcp-Session-Id: s-1"], cancelled("1"));
    rig.asked().await.accept();
    settle().await;
    server.say(report("\"u\"", "2", "b"));
    pass(secs(1)).await;
    assert_eq!(answer.messages(), [report("7", "1", "a")]);
    check([&answer, &cancels]);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_refuses_is_passed_on_as_it_is_and_forgotten() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    let bodies = [
        ("400 Bad Request", "application/json", r#"{"jsonrpc":"2.0", "error": {"code":-1e0}}"#),
        ("401 Unauthorized", "text/html", "<html>\u{0}\r\n\r\n"),
        ("403 Forbidden", "text/plain", ""),
        ("404 Not Found", "application/json; charset=utf-8", " {\"id\" : 1}\n"),
        ("405 Method Not Allowed", "text/plain", "no"),
        ("429 Too Many Requests", "text/plain", "slowly"),
        ("500 Internal Server Error", "text/html", "<p>"),
        ("503 Service Unavailable", "text/event-stream", "data: x\n"),
    ];
    for (status, kind, body) in bodies {
        let answer = rig.post(&[S], call("1", "7"));
        let kind = format!("Content-Type: {kind}");
        let headers = [
            "WWW-Authenticate: Bearer resource_metadata=\"https://up.example/x\", scope=\"a\"",
            &kind,
            "X-Odd:   two  spaces",
            "WWW-Authenticate: Basic",
        ];
        rig.asked().await.answer(status, &headers, body);
        settle().await;
        let spoken = answer.spoken().unwrap();
        assert_eq!(spoken.start, format!("HTTP/1.1 {status}"));
        assert_eq!(spoken.text(), body);
        assert!(spoken.over);
        let length = format!("content-length: {}", body.len());
        let via = "via: 1.1 milepost-00000007".to_owned();
        let mut wanted: Vec<String> = vec![headers[0].to_owned(), headers[3].to_owned(), kind];
        wanted.extend(["X-Odd: two  spaces".to_owned(), length, via]);
        let lower = |line: &String| {
            let (name, value) = line.split_once(": ").unwrap();
            format!("{}: {value}", name.to_ascii_lowercase())
        };
        let mut wanted: Vec<String> = wanted.iter().map(lower).collect();
        let mut found = spoken.headers.clone();
        // Header lines of one name keep their order; HTTP defines no order between names.
        let name = |line: &String| line.split(':').next().unwrap().to_owned();
        wanted.sort_by_key(name);
        found.sort_by_key(name);
        assert_eq!(found, wanted, "{status}");
    }
    listened.say(progress("7", "1"));
    listened.say(log("m"));
    settle().await;
    // The session also ends with a 404.
    assert_eq!(listens.messages(), [log("m")]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_an_error_of_the_request() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    // The connection that was kept for the next request is then too old.
    pass(secs(4)).await;
    rig.refuse_connections(true);
    let answer = rig.post(&[S], call("\"a\"", "7"));
    settle().await;
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
    let why = "cannot connect to the server: connection refused";
    assert_eq!(answer.text(), own_error("\"a\"", why, ""));
    let ready = rig.post(&[S], r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
    settle().await;
    assert_eq!(ready.status(), 502);
    rig.refuse_connections(false);
    let (answer, server) = streamed(&mut rig, &[S], &call("2", "7")).await;
    server.say(progress("7", "0"));
    server.say(result("2"));
    settle().await;
    assert_eq!(answer.messages(), [progress("7", "0"), result("2")]);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_2025_that_leaves_comes_back_for_the_rest() {
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut rig = Rig::new("");
        rig.session("s", revision).await;
        let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
        server.chunk(event_with("e5", &progress("7", "50")));
        settle().await;
        answer.leave();
        settle().await;
        assert_eq!(server.left(), Some(rig.now()), "the server's connection is closed at once");
        assert!(rig.try_asked().await.is_none(), "{revision}: nothing is cancelled");
        pass(secs(1)).await;
        let resumed = rig.get(&[S, "Last-Event-ID: e5"]);
        let resumes = rig.asked().await;
        assert_eq!(resumes.request.header("last-event-id"), Some("e5"));
        resumes.events(&[]);
        resumes.chunk(event_with("e6", &progress("7", "60")));
        resumes.chunk(event_with("e7", &result("1")));
        settle().await;
        let wanted =
            [event_with("e6", &progress("7", "60")), event_with("e7", &result("1"))].concat();
        assert_eq!(resumed.text(), wanted, "{revision}");
        resumes.chunk(event_with("e8", &progress("7", "70")));
        settle().await;
        assert_eq!(resumed.text(), wanted);
        check([&answer, &resumed]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_of_2026_that_leaves_cancels() {
    const HEADERS: [&str; 3] =
        ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: work"];
    for begun in ["nothing", "head", "events", "part of JSON"] {
        let mut rig = Rig::new("");
        let answer = rig.post(&HEADERS, modern_call("1", "7"));
        let server = rig.asked().await;
        match begun {
            "head" => server.events(&[]),
            "events" => {
                server.events(&[]);
                server.say(progress("7", "1"));
            }
            "part of JSON" => {
                server.head("200 OK", &["Content-Type: application/json", "Content-Length: 99"]);
                server.raw("{");
            }
            _ => {}
        }
        settle().await;
        answer.leave();
        settle().await;
        assert_eq!(server.left(), Some(rig.now()), "{begun}");
        assert!(rig.try_asked().await.is_none(), "{begun}: closing says it all");
    }
    // The same after the client was given a stream in the place of JSON.
    let mut rig = Rig::new("");
    let first = rig.post(&HEADERS, modern_call("1", "7"));
    rig.asked().await.json(&[], &result("1"));
    settle().await;
    assert_eq!(first.status(), 200);
    let answer = rig.post(&HEADERS, modern_call("1", "7"));
    let server = rig.asked().await;
    pass(secs(6)).await;
    assert_eq!(answer.header("content-type").as_deref(), Some("text/event-stream"));
    answer.leave();
    settle().await;
    assert_eq!(server.left(), Some(rig.now()));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_says_nothing_more_on_its_stream() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
    let (other, second) = streamed(&mut rig, &[S], &call("2", "8")).await;
    server.say(progress("7", "1"));
    settle().await;
    let cancels = rig.post(&[S], cancelled("1"));
    settle().await;
    // The server need not have seen the request.
    let told_of_it = rig.asked().await;
    assert_eq!(told_of_it.text(), cancelled("1"));
    told_of_it.accept();
    settle().await;
    assert_eq!(cancels.status(), 202);
    server.say(progress("7", "2"));
    pass(secs(30)).await;
    assert_eq!(answer.messages(), [progress("7", "1")], "no progress and no heartbeats");
    assert!(other.messages().len() > 3, "heartbeats of the other");
    // An answer that comes nevertheless. Its client has forgotten the request.
    server.say(result("1"));
    second.say(result("2"));
    settle().await;
    assert_eq!(answer.messages(), [progress("7", "1")]);
    assert_eq!(other.messages().last(), Some(&result("2")));
    check([&answer, &cancels, &other]);
}

/// A careless client reuses the id of a cancelled request for its next request. The stream shows to which of them an
/// answer belongs.
#[tokio::test(start_paused = true)]
async fn the_answer_to_a_cancelled_request_is_not_that_of_the_next_one_with_its_id() {
    for begins in [true, false] {
        let mut rig = Rig::new("upgrade_after = \"off\"");
        rig.session("s", "2025-06-18").await;
        let listens = rig.get(&[S]);
        let listened = rig.asked().await;
        listened.events(&[]);
        let first = rig.post(&[S], call("0", "7"));
        let server = rig.asked().await;
        if begins {
            server.events(&[]);
        }
        let cancels = rig.post(&[S], cancelled("0"));
        rig.asked().await.accept();
        settle().await;
        let (second, own) = streamed(&mut rig, &[S], &call("0", "8")).await;
        let late = answer("0", r#"{"late":true}"#);
        if begins {
            server.say(&late);
            server.end();
        } else {
            server.json(&[], &late);
        }
        pass(ms(20)).await;
        // The session still knows the second request.
        listened.say(progress("8", "1"));
        settle().await;
        own.say(result("0"));
        own.end();
        pass(ms(20)).await;
        assert_eq!(second.messages(), [progress("8", "1"), result("0")], "begins: {begins}");
        // A JSON response needs a body, and this answer belongs to the first request.
        let told = if begins { vec![] } else { vec![late] };
        assert_eq!(first.messages(), told, "begins: {begins}");
        check([&first, &cancels, &second, &listens]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_server_asks_passes_on_the_stream_it_came_on() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let (answer, server) = streamed(&mut rig, &[S], &call("0", "0")).await;
    let sampling = r#"{"jsonrpc":"2.0","id":0,"method":"sampling/createMessage","params":{"_meta":{"progressToken":0}}}"#;
    server.chunk(event(sampling));
    // Progress sent by a client is for the server.
    let own = rig.post(&[S], progress("0", "1"));
    settle().await;
    let asked = rig.asked().await;
    assert_eq!(asked.text(), progress("0", "1"));
    asked.accept();
    let answers = rig.post(&[S], result("0"));
    let asked = rig.asked().await;
    assert_eq!(asked.text(), result("0"));
    asked.accept();
    settle().await;
    assert_eq!((own.status(), answers.status()), (202, 202));
    server.say(progress("0", "1"));
    server.say(result("0"));
    server.end();
    settle().await;
    assert_eq!(answer.messages(), [sampling, &progress("0", "1"), &result("0")]);
    assert!(answer.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_task_is_told_of_on_any_stream_of_its_session_until_it_ends() {
    let mut rig = Rig::new("min_interval = \"0s\"");
    rig.session("s", "2025-11-25").await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    let wants = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","task":{"ttl":60000},"_meta":{"progressToken":7}}}"#;
    let created = r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"T","status":"working","ttl":60000}}}"#;
    let answer = rig.post(&[S], wants);
    rig.asked().await.json(&[], created);
    settle().await;
    assert_eq!(answer.text(), created);
    let related = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":30,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}}"#;
    listened.say(related);
    listened.say(report("7", "20", "fell"));
    settle().await;
    let messages = listens.messages();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(messages[0], related);
    assert!(messages[1].contains(r#""io.modelcontextprotocol/related-task":{"taskId":"T"}"#));
    assert!(messages[1].contains(r#""progress":30.0"#), "{}", messages[1]);
    // The task ends when the client learns that it has ended.
    let asks = r#"{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"T"}}"#;
    let status = |status| {
        format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"taskId":"T","status":"{status}"}}}}"#)
    };
    let first = rig.post(&[S], asks);
    rig.asked().await.json(&[], &status("working"));
    settle().await;
    listened.say(progress("7", "40"));
    settle().await;
    assert_eq!(listens.messages().len(), 3);
    let second = rig.post(&[S], asks.replace("\"id\":2", "\"id\":3"));
    rig.asked().await.json(&[], &status("completed").replace("\"id\":2", "\"id\":3"));
    settle().await;
    listened.say(progress("7", "50"));
    settle().await;
    assert_eq!(listens.messages().len(), 3);
    check([&listens, &answer, &first, &second]);
}

#[tokio::test(start_paused = true)]
async fn a_task_ends_on_whatever_stream_its_end_is_told() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-11-25").await;
    let wants = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","task":{},"_meta":{"progressToken":7}}}"#;
    let created = r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"T","status":"working"}}}"#;
    let answer = rig.post(&[S], wants);
    rig.asked().await.json(&[], created);
    settle().await;
    // Progress of the task on the stream of another request, and the task's end there.
    let (other, server) = streamed(&mut rig, &[S], &call("2", "8")).await;
    let ended = r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"T","status":"failed"}}"#;
    server.say(progress("7", "10"));
    server.say(ended);
    server.say(progress("7", "99"));
    server.say(result("2"));
    settle().await;
    let messages = other.messages();
    assert!(messages.contains(&ended.to_owned()));
    assert!(!messages.contains(&progress("7", "99")), "{messages:?}");
    assert_eq!(messages.last(), Some(&result("2")));
    check([&answer, &other]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_has_nothing_but_comments_of_ours() {
    let mut rig = Rig::new("");
    let listen = r#"{"jsonrpc":"2.0","id":4,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{"progressToken":9,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let (answer, server) = streamed(&mut rig, &[], listen).await;
    let known =
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}"#;
    server.say(known);
    server.say(progress("9", "1"));
    pass(secs(3600)).await;
    assert_eq!(answer.messages(), [known]);
    let comments: Vec<_> = answer.blocks()[1..].iter().map(|block| block.raw.clone()).collect();
    assert_eq!(comments, vec![b": keep-alive\n\n".to_vec(); 3600 / 15]);
    // The server ends the request with an answer.
    server.say(result("4"));
    server.end();
    settle().await;
    assert_eq!(answer.messages(), [known, &result("4")]);
    assert!(answer.is_over());
}

#[tokio::test(start_paused = true)]
async fn progress_on_a_get_stream_goes_to_the_stream_of_its_request() {
    let mut rig = Rig::new("min_interval = \"0s\"\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    let (first, one) = streamed(&mut rig, &[S], &call("1", "7")).await;
    listened.chunk(event_with("g1", &progress("7", "1")));
    // An unknown token, while only one request is open that it can mean.
    listened.chunk(event_with("g2", &report("\"u\"", "2", "m")));
    settle().await;
    let moved = [event(&progress("7", "1")), event(&report("7", "2", "m"))].concat();
    assert_eq!(first.text(), moved, "without the id");
    // With two open requests the token may mean either.
    let (second, two) = streamed(&mut rig, &[S], &call("2", "8")).await;
    listened.chunk(event_with("g3", &report("\"v\"", "3", "m")));
    listened.chunk(event_with("g4", &progress("8", "3")));
    settle().await;
    assert_eq!(first.text(), moved);
    assert_eq!(second.text(), event(&progress("8", "3")));
    // After the answer the token means no call, even if another request is open.
    one.say(result("1"));
    one.end();
    settle().await;
    listened.chunk(event_with("g5", &progress("7", "4")));
    listened.chunk(event_with("g6", &report("\"u\"", "5", "m")));
    listened.chunk(event_with("g7", &log("m")));
    settle().await;
    assert_eq!(second.text(), event(&progress("8", "3")));
    assert_eq!(listens.text(), event_with("g7", &log("m")));
    two.say(result("2"));
    two.end();
    settle().await;
    assert!(first.is_over() && second.is_over());
    check([&listens, &first, &second]);
}

#[tokio::test(start_paused = true)]
async fn progress_on_a_get_stream_opens_the_stream_of_a_call_that_has_none() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    for part in ["nothing", "head", "part of the body"] {
        let answer = rig.post(&[S], call("1", "7"));
        let server = rig.asked().await;
        let body = result("1");
        if part != "nothing" {
            let length = format!("Content-Length: {}", body.len());
            server.head("200 OK", &["Content-Type: application/json", &length]);
        }
        if part == "part of the body" {
            server.raw(&body[..9]);
        }
        settle().await;
        assert!(answer.is_silent(), "{part}");
        listened.say(progress("7", "1"));
        listened.say(log("m"));
        settle().await;
        assert_eq!(answer.messages(), [progress("7", "1")], "{part}");
        pass(secs(1)).await;
        listened.say(progress("7", "2"));
        settle().await;
        match part {
            "nothing" => server.json(&[], &body),
            "head" => server.raw(&body),
            _ => server.raw(&body[9..]),
        }
        settle().await;
        assert_eq!(answer.messages(), [progress("7", "1"), progress("7", "2"), body], "{part}");
        assert!(answer.is_over());
        check([&answer]);
    }
    assert_eq!(listens.messages(), [log("m"), log("m"), log("m")]);
    assert_eq!(Page::read(&rig.metrics()).sum("milepost_upgrades_total", &[]), 3.0);
}

#[tokio::test(start_paused = true)]
async fn progress_on_a_get_stream_stays_there_for_a_call_that_can_have_no_stream() {
    const PYTHON: &str = "User-Agent: python-httpx2/2.3";
    for (keys, headers) in [
        ("upgrade_after = \"off\"", vec![S, BOTH]),
        ("", vec![S, "Accept: application/json"]),
        ("", vec![S, BOTH, PYTHON]),
    ] {
        let mut rig = Rig::new(&format!("heartbeat.enabled = false\n{keys}"));
        rig.session("s", "2025-06-18").await;
        let listens = rig.get(&[S]);
        let listened = rig.asked().await;
        listened.events(&[]);
        let answer = rig.send("POST /r", &headers, call("1", "7").as_bytes());
        let server = rig.asked().await;
        listened.chunk(event_with("g1", &progress("7", "1")));
        settle().await;
        assert!(listens.messages().is_empty(), "the server may be about to begin a stream");
        pass(ms(100)).await;
        assert_eq!(listens.messages(), [progress("7", "1")], "{keys} {headers:?}");
        listened.say(report("\"u\"", "2", "another token"));
        pass(secs(1)).await;
        let told = [progress("7", "1"), report("7", "2", "another token")];
        assert_eq!(listens.messages(), told, "{keys} {headers:?}");
        pass(secs(20)).await;
        listened.say(progress("7", "3"));
        listened.say(progress("7", "3"));
        settle().await;
        server.json(&[], &result("1"));
        // Progress on another stream is sent before the answer.
        pass(ms(10)).await;
        assert_eq!(answer.text(), result("1"), "the server's very bytes");
        listened.say(progress("7", "4"));
        settle().await;
        assert_eq!(
            listens.messages().last(),
            Some(&progress("7", "3")),
            "nothing after the answer"
        );
        check([&answer, &listens]);
    }
}

#[tokio::test(start_paused = true)]
async fn notifications_and_answers_are_accepted_as_the_server_accepts_them() {
    let mut rig = Rig::new("");
    let answer = rig.post(&[], r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    rig.asked().await.head("202 Accepted", &["Content-Length: 0"]);
    settle().await;
    let mut spoken = answer.spoken().unwrap();
    assert_eq!(spoken.start, "HTTP/1.1 202 Accepted");
    spoken.headers.sort();
    assert_eq!(spoken.headers, ["content-length: 0", "via: 1.1 milepost-00000007"]);
    // The server may take any time.
    let answer = rig.post(&[S], result("5"));
    let server = rig.asked().await;
    pass(secs(60)).await;
    assert!(answer.is_silent());
    server.accept();
    settle().await;
    assert_eq!(answer.status(), 202);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_get_or_delete_says_so_itself() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let get = rig.get(&[S]);
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "GET /base/mcp");
    asked.answer("405 Method Not Allowed", &["Allow: POST", "Content-Type: text/plain"], "no");
    settle().await;
    assert_eq!((get.status(), get.text()), (405, "no".to_owned()));
    assert_eq!(get.header("allow").as_deref(), Some("POST"));
    // A DELETE that is refused changes nothing; a successful DELETE ends the session.
    let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
    let sessions = |rig: &Rig| Page::read(&rig.metrics()).sum("milepost_sessions", &[]);
    for (status, known, figure) in [("405 Method Not Allowed", 1.0, "1"), ("200 OK", 0.0, "2")] {
        assert_eq!(sessions(&rig), 1.0);
        let delete = rig.send("DELETE /r", &[S], b"");
        let asked = rig.asked().await;
        assert_eq!(asked.what(), "DELETE /base/mcp");
        asked.answer(status, &[], "");
        settle().await;
        assert_eq!(delete.spoken().unwrap().start, format!("HTTP/1.1 {status}"));
        assert_eq!(sessions(&rig), known, "{status}");
        let listens = rig.get(&[S]);
        let listened = rig.asked().await;
        listened.events(&[]);
        listened.say(progress("7", figure));
        settle().await;
        // The token belongs to no known session: it may belong to a session of another process.
        let of_nobody = if known == 0.0 { vec![progress("7", figure)] } else { Vec::new() };
        assert_eq!(listens.messages(), of_nobody);
        assert_eq!(answer.messages(), [progress("7", "1")], "{status}");
        listened.end();
        settle().await;
    }
    server.say(result("1"));
    settle().await;
    assert_eq!(answer.messages(), [progress("7", "1"), result("1")]);
}

#[tokio::test(start_paused = true)]
async fn headers_that_contradict_the_body_are_refused_before_the_server() {
    let mut rig = Rig::new("");
    let answer =
        rig.post(&["MCP-Protocol-Version: 2026-07-28", "Mcp-Name: foo"], modern_call("\"x\"", "7"));
    settle().await;
    assert!(rig.try_asked().await.is_none());
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
    let error: serde_json::Value = serde_json::from_slice(&answer.body()).unwrap();
    assert_eq!((&error["id"], &error["error"]["code"]), (&"x".into(), &(-32020).into()));
    for headers in [
        &["mcp-method: tools/call", "MCP-NAME:   work  "][..],
        &["Mcp-Name: =?base64?d29yaw==?="],
        &["Mcp-Name: work", "Mcp-Param-Region: =?base64?x?=", "Mcp-Param-X: "],
    ] {
        let answer = rig.post(headers, modern_call("1", "7"));
        rig.asked().await.json(&[], &result("1"));
        settle().await;
        assert_eq!(answer.text(), result("1"), "{headers:?}");
    }
    // Other revisions do not have this rule.
    let answer = rig.post(&["MCP-Protocol-Version: 2025-11-25", "Mcp-Name: foo"], call("1", "7"));
    rig.asked().await.json(&[], &result("1"));
    settle().await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn headers_pass_as_they_are_and_in_their_order() {
    let mut rig = Rig::new("");
    let own = [
        "Mcp-Param-Z: =?base64?SGk=?=",
        "Authorization: Bearer a.b.c",
        "Mcp-Param-A: ",
        "Mcp-Param-Z: 2",
        "Mcp-Session-Id: !x~",
        "X-Forwarded-For: 10.0.0.1",
        "Accept-Encoding: gzip, br",
        "Connection: X-Hop",
        "X-Hop: 1",
    ];
    let answer = rig.post(&own, call("1", "7"));
    let asked = rig.asked().await;
    let found = &asked.request.headers;
    assert_eq!(asked.what(), "POST /base/mcp");
    assert_eq!(asked.request.header("host"), Some("up.example"));
    assert_eq!(asked.request.header("accept-encoding"), Some("identity"));
    assert_eq!(asked.request.header("accept"), BOTH.strip_prefix("Accept: "));
    assert_eq!(asked.request.all("mcp-param-z"), ["=?base64?SGk=?=", "2"]);
    assert_eq!(asked.request.all("mcp-param-a"), [""]);
    assert_eq!(asked.request.header("authorization"), Some("Bearer a.b.c"));
    assert_eq!(asked.request.header("x-forwarded-for"), Some("10.0.0.1"));
    assert_eq!(asked.request.header("via"), Some("1.1 milepost-00000007"));
    assert_eq!(asked.request.header("content-length"), Some(&*call("1", "7").len().to_string()));
    assert!(!found.iter().any(|line| line.starts_with("x-hop") || line.starts_with("connection")));
    asked.json(
        &["Set-Cookie: a=1", "Set-Cookie: b=2", "Connection: X-Mine", "X-Mine: 1"],
        &result("1"),
    );
    settle().await;
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(answer.header("x-mine"), None);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_compresses_all_the_same_passes_unread() {
    let events = &b"\x1f\x8b\x08\x00data: \n\n\xff"[..];
    for (settings, kind, coding, body) in [
        ("", "text/event-stream", "br", events),
        ("mode = \"observe\"", "text/event-stream", "gzip", events),
        ("", "application/json", "gzip", b"\x1f\x8b{}"),
    ] {
        let mut rig = Rig::new(settings);
        let answer = rig.post(&[], call("1", "7"));
        let kind = format!("Content-Type: {kind}");
        let packed = format!("Content-Encoding: {coding}");
        rig.asked().await.answer("200 OK", &[&kind, &packed], body);
        settle().await;
        assert_eq!(answer.body(), body);
        assert_eq!(answer.header("content-encoding").as_deref(), Some(coding));
        assert_eq!(answer.header("content-length"), Some(body.len().to_string()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_server_has_lost_is_forgotten() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
    let lost = rig.post(&[S], request("2", "tools/list", "{}"));
    let error =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
    rig.asked().await.answer("404 Not Found", &["Content-Type: application/json"], error);
    settle().await;
    assert_eq!((lost.status(), lost.text()), (404, error.to_owned()));
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    listened.say(progress("7", "1"));
    settle().await;
    assert_eq!(listens.messages(), [progress("7", "1")]);
    assert!(answer.messages().is_empty());
    // The open stream continues.
    server.say(result("1"));
    settle().await;
    assert_eq!(answer.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn documents_of_authorization_are_found_beside_the_route() {
    let mut rig = Rig::new("");
    let get = rig.send("GET /.well-known/oauth-protected-resource/r", &[], b"");
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "GET /.well-known/oauth-protected-resource/base/mcp");
    let document = r#"{ "resource" : "http://up.example/base/mcp" }"#;
    asked.json(&[], document);
    settle().await;
    assert_eq!(get.text(), document);
}

#[tokio::test(start_paused = true)]
async fn the_metadata_of_a_sign_in_names_the_public_url() {
    let mut rig = Rig::new("public_url = \"https://front.example/mcp/tools\"");
    let posted = rig.post(&[], call("1", "7"));
    let challenge =
        |url: &str| format!("Bearer error=\"invalid_token\", resource_metadata=\"{url}\"");
    let own = challenge("http://up.example/.well-known/oauth-protected-resource/base/mcp");
    let header = format!("WWW-Authenticate: {own}");
    rig.asked().await.answer("401 Unauthorized", &[&*header], "");
    settle().await;
    let below = "https://front.example/mcp/tools/.well-known/oauth-protected-resource";
    assert_eq!(posted.header("www-authenticate"), Some(challenge(below)));
    let get = rig.send("GET /r/.well-known/oauth-protected-resource", &[], b"");
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "GET /.well-known/oauth-protected-resource/base/mcp");
    asked.json(&[], r#"{ "resource" : "http://up.example/base/mcp", "scopes_supported":["a"] }"#);
    settle().await;
    let expected =
        r#"{ "resource" : "https://front.example/mcp/tools", "scopes_supported":["a"] }"#;
    assert_eq!(get.text(), expected);
    // Also at the root, because this is the only route.
    let get = rig.send("GET /.well-known/oauth-protected-resource", &[], b"");
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "GET /.well-known/oauth-protected-resource");
    asked.json(&[], r#"{ "resource" : "http://up.example/base/mcp", "scopes_supported":["a"] }"#);
    settle().await;
    assert_eq!(get.text(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_json_keeps_its_bytes_and_length_unless_it_is_mended() {
    let mut rig = Rig::new("");
    // Any body, even one that answers no request.
    for body in [
        result("1"),
        " {\n\t\"result\" : {\"x\": 1.50, \"x\":1e400, \"\\u00e9\":\"\u{2028}\"} ,\r\n \"id\":1 , \"jsonrpc\":\"2.0\"}\n".to_owned(),
        error("1"),
        "not JSON at all".to_owned(),
        String::new(),
        progress("7", "1"),
        r#"{"jsonrpc":"2.0","result":{}}"#.to_owned(),
    ] {
        let answer = rig.post(&[], call("1", "7"));
        rig.asked().await.json(&["Content-Digest: sha-256=:x:"], &body);
        settle().await;
        assert_eq!(answer.text(), body);
        assert_eq!(answer.header("content-length"), Some(body.len().to_string()), "{body}");
        assert_eq!(answer.header("content-digest").as_deref(), Some("sha-256=:x:"), "{body}");
        assert!(answer.is_over());
    }
    // The response has only one request, so an answer with another id must be its answer, and gets the client's id.
    for broken in [result("\"1\""), result("99")] {
        let answer = rig.post(&[], call("1", "7"));
        rig.asked().await.json(&["Content-Digest: sha-256=:x:"], &broken);
        settle().await;
        assert_eq!(answer.text(), result("1"));
        assert_eq!(answer.header("content-length"), Some(result("1").len().to_string()));
        assert_eq!(answer.header("content-digest"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn arrays_pass_without_progress_that_means_nothing() {
    for (revision, whole) in [("2025-03-26", true), ("2025-06-18", false)] {
        let mut rig = Rig::new("heartbeat.enabled = false");
        rig.session("s", revision).await;
        let batch = format!("[{}, {}]", call("1", "7"), call("2", "8"));
        let (answer, server) = streamed(&mut rig, &[S], &batch).await;
        let said = [progress("7", "1"), progress("9", "1"), progress("8", "1")];
        // Messages that arrive together may be written in another order if they belong to different calls.
        for message in [
            format!("[{}]", said.join(",")),
            format!("[{},{}]", progress("9", "2"), progress("9", "3")),
            format!("[{},{},{}]", result("1"), progress("7", "2"), progress("8", "3")),
            result("2"),
        ] {
            server.say(message);
            settle().await;
        }
        server.end();
        settle().await;
        let told: String = answer.messages().join("\n");
        let texts =
            [progress("7", "1"), progress("8", "1"), result("1"), progress("8", "3"), result("2")];
        let wanted = if whole {
            format!("[{},{}]\n[{},{}]\n{}", texts[0], texts[1], texts[2], texts[3], texts[4])
        } else {
            texts.join("\n")
        };
        assert_eq!(told, wanted, "{revision}");
        check([&answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_is_answered_and_the_server_told() {
    let mut rig = Rig::new("call_timeout = \"10s\"");
    rig.session("s", "2025-06-18").await;
    let (answer, server) =
        streamed(&mut rig, &[S, "Authorization: Bearer t"], &call("1", "7")).await;
    server.say(progress("7", "1"));
    pass(secs(11)).await;
    let messages = answer.messages();
    assert_eq!(messages[0], progress("7", "1"));
    assert!(messages.last().unwrap().contains(r#""id":1,"error""#), "{messages:?}");
    let told = rig.asked().await;
    assert_eq!(told.what(), "POST /base/mcp");
    assert_eq!(told.request.header("mcp-session-id"), Some("s"));
    assert_eq!(told.request.header("authorization"), Some("Bearer t"));
    assert!(told.text().contains(r#""method":"notifications/cancelled","params":{"requestId":1"#));
    assert_eq!(told.request.header("content-length"), Some(&*told.text().len().to_string()));
    told.accept();
    assert!(answer.is_over(), "nothing that comes now is for this client");
    assert!(server.left().is_some());
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_ends_answers_what_is_open() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    settle().await;
    rig.end_streams();
    settle().await;
    let why = "Milepost is shutting down, and the time of `drain` ended before the server answered";
    assert_eq!(answer.messages(), [own_error("1", why, "")]);
    assert!(answer.is_over() && listens.is_over());
    assert!(listens.messages().is_empty());
    assert!(server.left().is_some() && listened.left().is_some());
}

#[tokio::test(start_paused = true)]
async fn who_only_listens_keeps_no_proxy_from_ending() {
    let mut rig = Rig::new("");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let (answer, _server) = streamed(&mut rig, &[], body).await;
    assert!(rig.calls_done().await, "a stream of notifications is no call");
    check([&answer]);
}

/// A session id is not an authentication: the server decides who may use the session.
#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_a_stranger_changes_nothing_for_the_client() {
    const OURS: &str = "Authorization: Bearer ours";
    const THEIRS: &str = "Authorization: Bearer theirs";
    for status in ["401 Unauthorized", "404 Not Found"] {
        let mut rig = Rig::new("heartbeat.enabled = false");
        rig.session("s", "2025-06-18").await;
        let (answer, server) = streamed(&mut rig, &[S, OURS], &call("1", "7")).await;
        let listens = rig.get(&[S, OURS]);
        let listened = rig.asked().await;
        listened.events(&[]);
        server.say(progress("7", "1"));
        settle().await;
        let stranger = rig.post(&[S, THEIRS], cancelled("1"));
        rig.asked().await.answer(status, &[], "");
        settle().await;
        assert_eq!(stranger.status().to_string(), status[..3]);
        for start in ["GET /r", "DELETE /r"] {
            let refused = rig.send(start, &[S, THEIRS, "Accept: text/event-stream"], b"");
            rig.asked().await.answer(status, &[], "");
            settle().await;
            assert_eq!(refused.status().to_string(), status[..3], "{start}");
        }
        server.say(progress("7", "2"));
        settle().await;
        // A second call in the same session: its progress is found on the other stream.
        let (second, other) = streamed(&mut rig, &[S, OURS], &call("2", "8")).await;
        listened.say(progress("8", "1"));
        listened.say(progress("7", "3"));
        pass(secs(1)).await;
        server.say(result("1"));
        other.say(result("2"));
        settle().await;
        let told = [progress("7", "1"), progress("7", "2"), progress("7", "3"), result("1")];
        assert_eq!(answer.messages(), told, "{status}");
        assert_eq!(second.messages(), [progress("8", "1"), result("2")], "{status}");
        assert!(listens.messages().is_empty());
        check([&answer, &second, &listens]);
    }
}

/// The client's own word counts as soon as the server has taken it.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_on_its_way_changes_nothing_yet() {
    let mut rig = Rig::new("heartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
    let cancels = rig.post(&[S], cancelled("1"));
    let on_its_way = rig.asked().await;
    server.say(progress("7", "1"));
    settle().await;
    on_its_way.accept();
    settle().await;
    server.say(progress("7", "2"));
    pass(secs(1)).await;
    assert_eq!(cancels.status(), 202);
    assert_eq!(answer.messages(), [progress("7", "1")]);
}

#[tokio::test(start_paused = true)]
async fn options_and_head_have_the_servers_status_and_headers() {
    let mut rig = Rig::new("");
    let answer = rig.send("OPTIONS /r", &[], b"");
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "OPTIONS /base/mcp");
    asked.answer("204 No Content", &["Allow: GET, POST", "X-Own: 1"], "");
    settle().await;
    assert_eq!((answer.status(), answer.header("allow").as_deref()), (204, Some("GET, POST")));
    let answer = rig.send("HEAD /r", &[], b"");
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "HEAD /base/mcp");
    asked.raw("HTTP/1.1 405 Method Not Allowed\r\nallow: POST\r\ncontent-length: 12\r\n\r\n");
    settle().await;
    assert_eq!((answer.status(), answer.header("allow").as_deref()), (405, Some("POST")));
    assert_eq!(answer.header("content-length").as_deref(), Some("12"));
    assert_eq!(answer.text(), "");
}

#[tokio::test(start_paused = true)]
async fn a_switch_of_protocols_that_nobody_asked_for_is_a_bad_gateway() {
    let mut rig = Rig::new("");
    let answer = rig.post(&[], call("1", "1"));
    rig.asked().await.raw(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    );
    settle().await;
    assert_eq!(answer.status(), 502);
}

#[tokio::test(start_paused = true)]
async fn every_stream_of_events_asks_proxies_not_to_hold_it() {
    const NAME: &str = "x-accel-buffering";
    let mut rig = Rig::new("");
    let (answer, _server) = streamed(&mut rig, &[], &call("1", "1")).await;
    assert_eq!(answer.all(NAME), ["no"]);
    let answer = rig.get(&[S]);
    rig.asked().await.events(&["X-Accel-Buffering: yes"]);
    settle().await;
    assert_eq!(answer.all(NAME), ["yes"]);
    let mut rig = Rig::new("headers.response.remove = [\"X-Accel-Buffering\"]");
    let (answer, _server) = streamed(&mut rig, &[], &call("1", "1")).await;
    assert!(answer.all(NAME).is_empty());
}

#[tokio::test(start_paused = true)]
async fn cookies_of_a_server_keep_their_path_unless_the_route_says_otherwise() {
    for (settings, path) in [("", "/"), ("headers.response.cookie_path = true", "/r")] {
        let mut rig = Rig::new(settings);
        let answer = rig.post(&[], call("1", "1"));
        rig.asked().await.json(&["Set-Cookie: a=1; Path=/; Secure"], &result("1"));
        settle().await;
        assert_eq!(answer.all("set-cookie"), [format!("a=1; Path={path}; Secure")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_used_closes_after_3_s_without_another_request() {
    let mut rig = Rig::new("");
    let kept = rig.now();
    let answers = [rig.post(&[], call("1", "1")), rig.post(&[], call("2", "2"))];
    let servers = [rig.asked().await, rig.asked().await];
    for (server, id) in servers.iter().zip(["1", "2"]) {
        server.json(&[], &result(id));
    }
    pass(ms(2500)).await;
    assert_eq!(answers.map(|answer| answer.text()), [result("1"), result("2")]);
    assert!(servers.iter().all(|server| server.left().is_none()));
    // One of the connections is reused.
    let answer = rig.post(&[], call("3", "3"));
    let server = rig.asked().await;
    pass(ms(600)).await;
    let closed = servers.iter().filter_map(|server| server.left());
    assert!(closed.map(|at| at - kept).eq([secs(3)]), "the other one is closed on time");
    server.json(&[], &result("3"));
    pass(ms(2900)).await;
    assert_eq!(answer.text(), result("3"));
    assert!(server.left().is_none());
    pass(ms(200)).await;
    assert!(server.left().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_an_array_counts_once_the_server_has_taken_it() {
    for (status, shown) in [("401 Unauthorized", true), ("200 OK", false)] {
        let mut rig = Rig::new("heartbeat.enabled = false");
        rig.session("s", "2025-03-26").await;
        let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
        let array = format!("[{},{}]", call("2", "8"), cancelled("1"));
        let _array = rig.post(&[S, "Authorization: Bearer t"], array);
        let asked = rig.asked().await;
        server.say(progress("7", "1"));
        settle().await;
        assert_eq!(answer.messages(), [progress("7", "1")], "it is on its way");
        asked.answer(status, &["Content-Type: application/json"], format!("[{}]", result("2")));
        settle().await;
        server.say(progress("7", "2"));
        settle().await;
        assert_eq!(answer.messages().contains(&progress("7", "2")), shown, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_can_come_back_to_keeps_its_token_from_nobody() {
    const OTHER: &str = "Mcp-Session-Id: other";
    for resumable in [false, true] {
        let mut rig = Rig::new("heartbeat.enabled = false");
        rig.session("s", "2025-06-18").await;
        rig.session("other", "2025-06-18").await;
        let (ours, one) = streamed(&mut rig, &[S], &call("1", "7")).await;
        if resumable {
            one.chunk(event_with("e1", &progress("7", "1")));
            settle().await;
        }
        ours.leave();
        settle().await;
        let (theirs, two) = streamed(&mut rig, &[OTHER], &call("1", "9")).await;
        two.say(report("7", "1", "whose"));
        settle().await;
        let wanted = if resumable { vec![] } else { vec![report("9", "1", "whose")] };
        assert_eq!(theirs.messages(), wanted, "the server may speak of the call yet: {resumable}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_while_its_call_is_being_cancelled_says_nothing_of_a_lost_server() {
    for (status, is_cancelled) in [("202 Accepted", true), ("401 Unauthorized", false)] {
        let mut rig = Rig::new("heartbeat.enabled = false");
        rig.session("s", "2025-06-18").await;
        let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
        let _cancels = rig.post(&[S], cancelled("1"));
        let asked = rig.asked().await;
        server.end();
        settle().await;
        assert!(!answer.is_over(), "what the server says to the cancellation is not known");
        asked.answer(status, &[], "");
        settle().await;
        assert!(answer.is_over());
        assert_eq!(answer.messages().is_empty(), is_cancelled, "{status}");
        let page = Page::read(&rig.metrics());
        let outcome = if is_cancelled { "cancelled" } else { "server gone" };
        assert_eq!(page.sum("milepost_calls_total", &[("outcome", outcome)]), 1.0, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_with_a_very_long_id_works_and_is_not_remembered() {
    let sessions = |rig: &Rig| Page::read(&rig.metrics()).sum("milepost_sessions", &[]);
    for (length, known) in [(1024, 1.0), (1025, 0.0)] {
        let mut rig = Rig::new("heartbeat.enabled = false");
        let id = "s".repeat(length);
        rig.session(&id, "2025-06-18").await;
        assert_eq!(sessions(&rig), known, "{length}");
        let called = rig.post(&[&format!("Mcp-Session-Id: {id}")], call("1", "7"));
        let server = rig.asked().await;
        server.events(&[]);
        server.say(progress("7", "1"));
        server.say(result("1"));
        pass(secs(1)).await;
        assert_eq!(called.messages(), [progress("7", "1"), result("1")], "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_sessions_that_nobody_ends_those_in_use_are_remembered_and_the_others_go_on() {
    let mut rig = Rig::new("heartbeat.enabled = false\nmax_sessions = 16");
    rig.session("s", "2025-06-18").await;
    let (answer, server) = streamed(&mut rig, &[S], &call("1", "7")).await;
    for n in 0..100 {
        rig.session(&n.to_string(), "2025-06-18").await;
    }
    let known = |rig: &Rig| Page::read(&rig.metrics()).sum("milepost_sessions", &[]);
    assert!((2.0..=16.0).contains(&known(&rig)), "{}", known(&rig));
    // Progress on another stream belongs to a call that only the session knows.
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    listened.say(progress("7", "1"));
    settle().await;
    assert_eq!(answer.messages(), [progress("7", "1")]);
    assert!(listens.messages().is_empty());
    server.say(result("1"));
    for n in 0..100 {
        let session = format!("Mcp-Session-Id: {n}");
        let (called, server) = streamed(&mut rig, &[&session], &call("1", "8")).await;
        server.say(progress("8", "1"));
        server.say(result("1"));
        settle().await;
        assert_eq!(called.messages(), [progress("8", "1"), result("1")], "{n}");
    }
    assert!(known(&rig) <= 16.0, "{}", known(&rig));
}

#[tokio::test(start_paused = true)]
async fn a_refused_credential_of_the_route_is_no_challenge_for_clients() {
    let challenge = "WWW-Authenticate: Bearer resource_metadata=\"http://up.example/x\"";
    let mut rig = Rig::new("headers.request.set.authorization = \"Bearer old\"");
    let answer = rig.post(&[], call("1", "7"));
    rig.asked().await.answer("401 Unauthorized", &[challenge], "no");
    settle().await;
    assert_eq!((answer.status(), answer.header("www-authenticate")), (502, None));
    let why = "the server refuses the credential of the route";
    assert_eq!(answer.text(), own_error("1", why, ""));
    let get = rig.get(&[]);
    rig.asked().await.answer("401 Unauthorized", &[challenge], "no");
    settle().await;
    assert_eq!((get.status(), get.text()), (502, format!("{why}\n")));
    // The credential was sent by the client, and stays.
    for settings in ["", "opaque = true\nheaders.request.set.authorization = \"Bearer old\""] {
        let mut rig = Rig::new(settings);
        let answer = rig.post(&["Authorization: Bearer t"], call("1", "7"));
        rig.asked().await.answer("401 Unauthorized", &[challenge], "no");
        settle().await;
        assert_eq!((answer.status(), answer.text().as_str()), (401, "no"));
        assert!(answer.header("www-authenticate").is_some());
    }
}
