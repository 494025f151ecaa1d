//! Answers in every form that a server of Streamable HTTP gives them.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use milepost::config::routes::BearerFile;

use super::rig::{Rig, error, initialize};
use crate::http::rig::{ms, pass, secs, settle};
use crate::support::messages::{agreement_to, call, log, own_error, progress, result};

#[tokio::test(start_paused = true)]
async fn a_post_says_what_clients_of_streamable_http_say() {
    let mut rig = Rig::new();
    rig.say(initialize("2025-06-18")).await;
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /base/mcp");
    assert_eq!(asked.text(), initialize("2025-06-18"));
    assert_eq!(asked.request.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(asked.request.header("content-type"), Some("application/json"));
    assert_eq!(asked.request.header("host"), Some("up.example"));
    assert_eq!(asked.request.header("via"), Some("1.1 milepost-00000007"));
    let agent = concat!("milepost/", env!("CARGO_PKG_VERSION"));
    assert_eq!(asked.request.header("user-agent"), Some(agent));
    assert_eq!(asked.request.header("mcp-session-id"), None);
    assert_eq!(asked.request.header("mcp-protocol-version"), None);
}

#[tokio::test(start_paused = true)]
async fn a_session_and_its_revision_are_kept() {
    let mut rig = Rig::new();
    let get = rig.begin(Some("s-1"), "2025-06-18").await;
    assert_eq!(get.request.header("mcp-session-id"), Some("s-1"));
    assert_eq!(get.request.header("mcp-protocol-version"), Some("2025-06-18"));
    assert_eq!(get.request.header("accept"), Some("text/event-stream"));
    get.answer("405 Method Not Allowed", &[], "");
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    assert_eq!(asked.request.header("mcp-session-id"), Some("s-1"));
    assert_eq!(asked.request.header("mcp-protocol-version"), Some("2025-06-18"));
    asked.json(&[], &result("1"));
    assert_eq!(rig.line().await, result("1"));
    rig.close().await;
    let delete = rig.asked().await;
    assert_eq!(delete.what(), "DELETE /base/mcp");
    assert_eq!(delete.request.header("mcp-session-id"), Some("s-1"));
    assert!(!rig.has_ended().await);
    delete.answer("405 Method Not Allowed", &[], "");
    assert!(rig.has_ended().await);
    assert!(!rig.reach.has_failed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_the_farewell_keeps_nobody() {
    let mut rig = Rig::new();
    rig.session(Some("s"), "2025-06-18").await;
    rig.close().await;
    let _delete = rig.asked().await;
    pass(secs(2)).await;
    assert!(rig.has_ended().await);
}

#[tokio::test(start_paused = true)]
async fn an_open_call_is_still_answered_when_the_client_says_no_more() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    rig.close().await;
    pass(secs(5)).await;
    rig.asked().await.json(&[], &result("1"));
    assert_eq!(rig.told().await, [result("1")]);
    assert!(rig.has_ended().await);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_initialize_is_answered() {
    let mut rig = Rig::new();
    rig.say(initialize("2025-06-18")).await;
    let first = rig.asked().await;
    rig.say(call("1", "1")).await;
    rig.not_asked().await;
    first.json(&["Mcp-Session-Id: s"], &agreement_to("0", "2025-06-18"));
    let second = rig.asked().await;
    assert_eq!(second.request.header("mcp-session-id"), Some("s"));
}

#[tokio::test(start_paused = true)]
async fn requests_go_at_once_and_notifications_in_their_order() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    let note = |name: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{name}"}}"#);
    rig.say(call("1", "1")).await;
    rig.say(call("2", "2")).await;
    rig.say(note("a")).await;
    rig.say(note("b")).await;
    rig.say(call("3", "3")).await;
    let (_one, _two, a) = (rig.asked().await, rig.asked().await, rig.asked().await);
    assert_eq!(a.text(), note("a"));
    rig.not_asked().await;
    a.accept();
    let b = rig.asked().await;
    assert_eq!(b.text(), note("b"));
    rig.not_asked().await;
    // A message that is never accepted delays later messages only for a limited time.
    pass(secs(10)).await;
    assert_eq!(rig.asked().await.text(), call("3", "3"));
}

#[tokio::test(start_paused = true)]
async fn progress_and_the_answer_come_as_events() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "\"t\"")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.chunk(": hello\n\n");
    asked.say(progress("\"t\"", 1));
    assert_eq!(rig.line().await, progress("\"t\"", 1));
    asked.chunk(format!("event: update\r\nid: 7\r\ndata: {}\r\n\r\n", progress("\"t\"", 2)));
    assert_eq!(rig.line().await, progress("\"t\"", 2));
    asked.chunk("event: ping\ndata: 2025-01-01\n\n");
    asked.chunk(format!("data: {}\n\n", result("1").replace(",\"result\"", "\ndata: ,\"result\"")));
    asked.end();
    assert_eq!(rig.line().await, result("1").replace(",\"result\"", " ,\"result\""));
}

#[tokio::test(start_paused = true)]
async fn json_on_several_lines_becomes_one() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let text = "\u{feff}{\r\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": {}\n}\n";
    rig.asked().await.json(&[], text);
    let expected = text.trim_start_matches('\u{feff}').replace(['\r', '\n'], " ");
    assert_eq!(rig.line().await, expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_compressed_is_read_all_the_same() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(result("1").as_bytes()).unwrap();
    let headers = ["Content-Type: application/json", "Content-Encoding: gzip"];
    let asked = rig.asked().await;
    assert_eq!(asked.request.header("accept-encoding"), Some("identity"));
    asked.answer("200 OK", &headers, gzip.finish().unwrap());
    assert_eq!(rig.line().await, result("1"));
    rig.say(call("2", "2")).await;
    let headers = ["Content-Type: application/json", "Content-Encoding: br"];
    rig.asked().await.answer("200 OK", &headers, "?");
    let why = "the server compressed its answer although asked not to";
    assert_eq!(rig.line().await, error("2", why, None));
}

/// A result of 10 MB.
fn large(id: &str) -> String {
    let text = "x".repeat(10 << 20);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{text}"}}}}"#)
}

#[tokio::test(start_paused = true)]
async fn large_results_pass_while_they_come() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    rig.asked().await.json(&[], &large("1"));
    assert!(rig.line().await == large("1"), "the JSON result");
    rig.say(call("2", "2")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.say(large("2"));
    // The server does not end its stream, and the next message does not wait for that.
    assert!(rig.line().await == large("2"), "the result in an event");
    rig.say(call("3", "3")).await;
    rig.asked().await.json(&[], &result("3"));
    assert_eq!(rig.line().await, result("3"));
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_between_the_pieces_of_a_large_result() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    rig.say(call("2", "2")).await;
    let (one, two) = (rig.asked().await, rig.asked().await);
    let text = large("1");
    let (first, second) = text.split_at(5 << 20);
    one.events(&[]);
    one.chunk(format!("data: {first}"));
    settle().await;
    two.json(&[], &result("2"));
    settle().await;
    one.chunk(format!("{second}\n\n"));
    one.end();
    let told = rig.told().await;
    assert_eq!(told.len(), 2);
    assert!(told[0] == text, "the large result");
    assert_eq!(told[1], result("2"));
}

#[tokio::test(start_paused = true)]
async fn a_large_result_that_breaks_off_is_an_error() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.chunk(format!("data: {}", &large("1")[..5 << 20]));
    settle().await;
    asked.die();
    let told = rig.told().await;
    assert_eq!(told.len(), 2, "{:?}", told.iter().map(String::len).collect::<Vec<_>>());
    assert_eq!(told[1], error("1", "the server's message broke off before its end", None));
}

#[tokio::test(start_paused = true)]
async fn a_client_may_say_much_too() {
    let mut rig =
        Rig::with("max_request_bytes = 8000000\nupstream.url = \"http://up.example/base/mcp\"");
    rig.session(None, "2025-06-18").await;
    let said = |id: &str, bytes: usize| {
        let text = "x".repeat(bytes);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"a","arguments":{{"t":"{text}"}}}}}}"#
        )
    };
    rig.say(said("1", 5 << 20)).await;
    let asked = rig.asked().await;
    assert!(asked.text() == said("1", 5 << 20));
    asked.json(&[], &result("1"));
    assert_eq!(rig.line().await, result("1"));
    rig.say(said("2", 9_000_000)).await;
    let why = "the message is longer than 8000000 bytes";
    assert_eq!(rig.line().await, error("2", why, Some(413)));
    rig.not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn events_may_be_cut_anywhere() {
    let text = format!(
        "id: 1\r\ndata: {}\r\n\r\n: c\n\ndata: {}\n\n",
        progress("1", 1),
        result("1").replace(",\"result\"", "\rdata: ,\"result\"")
    );
    let expected = [progress("1", 1), result("1").replace(",\"result\"", " ,\"result\"")];
    for cut in 1..text.len() {
        let mut rig = Rig::new();
        rig.session(None, "2025-06-18").await;
        rig.say(call("1", "1")).await;
        let asked = rig.asked().await;
        asked.events(&[]);
        asked.chunk(&text[..cut]);
        settle().await;
        asked.chunk(&text[cut..]);
        asked.end();
        assert_eq!(rig.told().await, expected, "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_within_the_origin_is_followed_with_the_body_and_remembered() {
    let mut rig = Rig::new();
    rig.say(initialize("2025-06-18")).await;
    rig.asked().await.answer("307 Temporary Redirect", &["Location: /base/mcp/"], "");
    let asked = rig.asked().await;
    assert_eq!((asked.what(), asked.text()), ("POST /base/mcp/", initialize("2025-06-18")));
    asked.json(&["Mcp-Session-Id: s"], &agreement_to("0", "2025-06-18"));
    assert_eq!(rig.line().await, agreement_to("0", "2025-06-18"));
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /base/mcp/");
    assert_eq!(asked.request.header("mcp-session-id"), Some("s"));
    asked.json(&[], &result("1"));
    assert_eq!(rig.line().await, result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_client_is_told_the_words_of_the_server_and_when_to_try_again() {
    let again = |seconds| format!(r#","httpStatus":429,"retryAfter":{seconds}"#);
    let cases = [
        (429, "Retry-After: 17", r#"{"message":"slow down"}"#, "slow down", again(17)),
        (429, "Retry-After: 0", r#"{"detail":"full"}"#, "full", again(0)),
        (503, "X: y", "come back\nlater", "come back later", r#","httpStatus":503"#.to_owned()),
    ];
    for (status, header, body, words, data) in cases {
        let mut rig = Rig::new();
        rig.session(None, "2025-06-18").await;
        rig.say(call("1", "1")).await;
        let status = http::StatusCode::from_u16(status).unwrap();
        rig.asked().await.answer(&status.to_string(), &[header], body);
        let mut why =
            format!("the server answered with HTTP status {status} and the words {words:?}");
        if let Some(seconds) = header.strip_prefix("Retry-After: ") {
            why += &format!("; try again in {seconds} s");
        }
        assert_eq!(rig.line().await, own_error("1", &why, &data));
    }
}

#[tokio::test(start_paused = true)]
async fn redirects_elsewhere_are_errors_that_name_the_place() {
    let moved = "the server answered with HTTP status 302 Found: it is at \"http://up.example/login\" \
                 now, and its address has to say so";
    let away = "the server redirects to another origin: http://other.example/mcp/; the address of the \
                server has to say so";
    for (status, header, expected) in [
        ("302 Found", "Location: http://up.example/login?key=secret", error("1", moved, Some(302))),
        (
            "307 Temporary Redirect",
            "Location: http://user:secret@other.example/mcp/?key=secret",
            error("1", away, None),
        ),
    ] {
        let mut rig = Rig::new();
        rig.session(None, "2025-06-18").await;
        rig.say(call("1", "1")).await;
        rig.asked().await.answer(status, &[header], "");
        assert_eq!(rig.line().await, expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_become_errors_of_their_requests() {
    let own = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"mine"}}"#;
    let nobodys =
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"bad","data":{"a":1.0}},"id":null}"#;
    let under_its_id =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"bad","data":{"a":1.0}}}"#;
    let json = "Content-Type: application/json";
    let token = "the server answered with HTTP status 401 Unauthorized and the words \"bad\": the token for it is missing \
                 or not accepted (in `milepost wrap` --bearer-file, --bearer-env or --header, in a \
                 route file `headers.request`)";
    let cases = [
        ("400 Bad Request", json, own, own.to_owned()),
        ("400 Bad Request", json, nobodys, under_its_id.to_owned()),
        (
            "500 Internal Server Error",
            "Content-Type: text/html",
            "<p>",
            error("1", "the server answered with HTTP status 500 Internal Server Error", Some(500)),
        ),
        ("401 Unauthorized", json, nobodys, error("1", token, Some(401))),
        (
            "200 OK",
            "Content-Type: text/html",
            "<p>",
            error(
                "1",
                "the server answered with HTTP status 200 OK and text/html instead of JSON or events",
                Some(200),
            ),
        ),
        (
            "202 Accepted",
            "X: y",
            "",
            error(
                "1",
                "the server answered with HTTP status 202 Accepted and no content, and has no GET \
                 stream for the answer",
                Some(202),
            ),
        ),
        (
            "200 OK",
            json,
            "",
            error(
                "1",
                "the server answered with HTTP status 200 OK and no content, and has no GET stream \
                 for the answer",
                Some(200),
            ),
        ),
    ];
    for (status, header, body, expected) in cases {
        let mut rig = Rig::new();
        rig.session(None, "2025-06-18").await;
        rig.say(call("1", "1")).await;
        rig.asked().await.answer(status, &[header], body);
        assert_eq!(rig.line().await, expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_named() {
    let mut rig = Rig::new();
    rig.refuse_connections(true);
    rig.say(initialize("2025-06-18")).await;
    let why = "cannot connect to the embedded server: connection refused";
    assert_eq!(rig.line().await, error("0", why, None));
    rig.close().await;
    assert!(rig.has_ended().await);
    assert!(rig.reach.has_failed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_is_an_error() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    asked.events(&[]);
    asked.say(progress("1", 1));
    settle().await;
    asked.die();
    let told = rig.told().await;
    assert_eq!(told[0], progress("1", 1));
    assert!(told[1].contains("the connection to the server failed"), "{}", told[1]);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_break_the_silence_of_a_call() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    pass(ms(2100)).await;
    assert!(rig.line().await.contains("work: running 2s"));
    asked.json(&[], &result("1"));
    assert_eq!(rig.line().await, result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_an_hour() {
    let mut rig =
        Rig::with("upstream.url = \"http://up.example/base/mcp\"\nheartbeat = { enabled = false }");
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    rig.say(call("2", "2")).await;
    let (silent, reports) = (rig.asked().await, rig.asked().await);
    reports.events(&[]);
    pass(secs(3600)).await;
    reports.say(result("2"));
    assert_eq!(rig.line().await, result("2"));
    silent.json(&[], &result("1"));
    assert_eq!(rig.line().await, result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_ends_everything() {
    let mut rig = Rig::new();
    rig.session(Some("s"), "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let asked = rig.asked().await;
    rig.leave().await;
    assert!(asked.left().is_none());
    // The call may still be answered: a client that has closed its input may still read.
    pass(secs(20)).await;
    let delete = rig.asked().await;
    assert_eq!(delete.what(), "DELETE /base/mcp");
    assert!(asked.left().is_some());
    delete.answer("200 OK", &[], "");
    assert!(rig.has_ended().await);
}

#[tokio::test(start_paused = true)]
async fn headers_of_the_route_have_the_last_word() {
    let mut rig = Rig::with(
        "upstream.url = \"http://up.example/base/mcp?key=k\"\n\
         headers.request.set = { X-Api-Key = \"abc\", User-Agent = \"mine\" }",
    );
    rig.say(initialize("2025-06-18")).await;
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /base/mcp?key=k");
    assert_eq!(asked.request.header("x-api-key"), Some("abc"));
    assert_eq!(asked.request.header("user-agent"), Some("mine"));
}

#[tokio::test(start_paused = true)]
async fn a_token_in_a_file_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let mut rig = Rig::presenting(
        "upstream.url = \"http://up.example/base/mcp\"",
        Some(BearerFile::in_file(file.clone())),
    );
    rig.say(initialize("2025-06-18")).await;
    let line = rig.line().await;
    assert!(line.contains("cannot read the token in"), "{line}");
    let write = |token: &str, seconds: u64| {
        std::fs::write(&file, token).unwrap();
        let at = std::time::SystemTime::UNIX_EPOCH + secs(seconds);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
    };
    write("one\n", 1000);
    rig.say(call("1", "1")).await;
    assert_eq!(rig.asked().await.request.header("authorization"), Some("Bearer one"));
    rig.say(call("2", "2")).await;
    assert_eq!(rig.asked().await.request.header("authorization"), Some("Bearer one"));
    write("two", 2000);
    rig.say(call("3", "3")).await;
    assert_eq!(rig.asked().await.request.header("authorization"), Some("Bearer two"));
    rig.told().await;
    write(" ", 3000);
    rig.say(call("4", "4")).await;
    let line = rig.line().await;
    assert!(line.contains("holds no token"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_silence_that_the_route_does_not_allow_is_an_error() {
    let mut rig = Rig::with(
        "upstream.url = \"http://up.example/base/mcp\"\nidle_timeout = \"30s\"\n\
         heartbeat = { enabled = false }",
    );
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    rig.say(call("2", "2")).await;
    let (_one, two) = (rig.asked().await, rig.asked().await);
    two.events(&[]);
    pass(secs(29)).await;
    two.chunk(": still here\n\n");
    pass(secs(2)).await;
    assert_eq!(rig.line().await, error("1", "the server sent nothing for 30s", None));
    pass(secs(27)).await;
    two.say(result("2"));
    assert_eq!(rig.line().await, result("2"));
}

#[tokio::test(start_paused = true)]
async fn answers_that_strict_clients_refuse_are_repaired() {
    let error = r#""jsonrpc":"2.0","error":{"code":-32602,"message":"m"}}"#;
    let named = format!("{{\"id\":1,{error}");
    let (first, second) = (progress("7", "1"), result("1"));
    for (said, told) in [
        (named.replace("\"id\":1", "\"id\":null"), vec![named.clone()]),
        (format!("{{{error}"), vec![named.clone()]),
        (second.replace("\"id\"", "\"method\":null,\"error\":null,\"id\""), vec![second.clone()]),
        (second.replace("[]", r#"["\ud83d"]"#), vec![second.replace("[]", r#"["\ufffd"]"#)]),
        (format!("\u{feff}{second}"), vec![second.clone()]),
        (format!("{second} trailing"), vec![second.clone()]),
        (format!("{}{second}", log("m")), vec![log("m"), second.clone()]),
    ] {
        for is_event in [true, false] {
            let mut rig = Rig::new();
            rig.session(None, "2025-06-18").await;
            rig.say(call("1", "7")).await;
            let asked = rig.asked().await;
            if is_event {
                asked.events(&[]);
                asked.say(&first);
                assert_eq!(rig.line().await, first);
                asked.chunk("data: ping\n\n");
                asked.chunk(format!("id: e\ndata: {said}\n\n"));
                asked.end();
            } else {
                asked.json(&[], &said);
            }
            pass(secs(1)).await;
            assert_eq!(rig.told().await, told, "{said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_for_a_notification_reaches_no_client() {
    let refusal =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}"#;
    for status in ["200 OK", "400 Bad Request"] {
        let mut rig = Rig::new();
        rig.session(None, "2025-06-18").await;
        rig.say(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#).await;
        let asked = rig.asked().await;
        asked.answer(status, &["Content-Type: application/json"], refusal);
        pass(secs(1)).await;
        assert!(rig.told().await.is_empty(), "{status}");
        // The session goes on.
        rig.say(call("1", "7")).await;
        rig.asked().await.json(&[], &result("1"));
        assert_eq!(rig.line().await, result("1"));
    }
}

/// Servers that are written by hand put an error without any envelope into the response.
#[tokio::test(start_paused = true)]
async fn an_error_without_an_envelope_answers_the_request_of_its_response() {
    for in_events in [true, false] {
        let mut rig = Rig::new();
        rig.session(None, "2025-06-18").await;
        rig.say(call("1", "1")).await;
        let asked = rig.asked().await;
        let error = r#"{"error":"no such index"}"#;
        if in_events {
            asked.events(&[]);
            asked.chunk(format!("event: message\ndata: {error}\n\n"));
            asked.end();
        } else {
            asked.json(&[], error);
        }
        let line = rig.line().await;
        assert!(
            line.contains(r#""id":1,"#) && line.contains(r#""message":"no such index""#),
            "{line}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_event_needs_no_blank_line() {
    for missing in ["\n", ""] {
        let mut rig = Rig::new();
        rig.session(None, "2025-06-18").await;
        rig.say(call("1", "1")).await;
        let asked = rig.asked().await;
        asked.events(&[]);
        asked.chunk(format!("data: {}{missing}", result("1")));
        asked.end();
        assert_eq!(rig.line().await, result("1"));
    }
}

#[tokio::test(start_paused = true)]
async fn line_ends_in_strings_of_a_body_stay_line_ends() {
    let mut rig = Rig::new();
    rig.session(None, "2025-06-18").await;
    rig.say(call("1", "1")).await;
    let body = "{\n\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[],\"a\":\"b\n\tc\"}}";
    rig.asked().await.json(&[], body);
    let line = r#"{ "jsonrpc":"2.0","id":1,"result":{"content":[],"a":"b\n\tc"}}"#;
    assert_eq!(rig.line().await, line);
}

/// Some servers forget the end of a message, and leave the connection open.
#[tokio::test(start_paused = true)]
async fn a_whole_message_whose_end_does_not_come_is_taken_after_a_second() {
    for in_events in [true, false] {
        let mut rig = Rig::new();
        rig.session(None, "2025-06-18").await;
        rig.say(call("1", "1")).await;
        let asked = rig.asked().await;
        if in_events {
            asked.events(&[]);
            asked.chunk(format!("data: {}\n", result("1")));
        } else {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            asked.raw(head);
            asked.chunk(result("1"));
        }
        pass(ms(900)).await;
        assert_eq!(rig.told().await, [""; 0]);
        pass(ms(200)).await;
        assert_eq!(rig.told().await, [result("1")]);
    }
}
