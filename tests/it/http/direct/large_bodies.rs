//! Large bodies: every byte passes, and little of them is held at any time.

use std::time::Duration;

use milepost::protocol::lines::INSPECT_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::http::direct::transcripts_over_http::Wire;
use crate::http::rig::{Answer, BOTH, CHUNKED, Rig, chunked, ms, pass, request, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

const LARGE: usize = 10 << 20;

/// Bytes that a connection and the proxy may hold of a body that is not read.
const HELD_MAX: usize = 1 << 20;

/// An answer of ten megabytes with its id at one of its ends.
fn large_answer(id_first: bool) -> String {
    let text = "0123456789abcdef".repeat(LARGE / 16);
    let content = format!(r#""result":{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    if id_first {
        format!(r#"{{"jsonrpc":"2.0","id":1,{content}}}"#)
    } else {
        format!(r#"{{{content},"id":1,"jsonrpc":"2.0"}}"#)
    }
}

/// A call with at least so many bytes.
pub(crate) fn large_call(bytes: usize) -> String {
    let text = "x".repeat(bytes);
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"work","x":"{text}"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_in_json_passes_as_it_comes() {
    for id_first in [true, false] {
        let body = large_answer(id_first);
        let mut rig = Rig::new("");
        rig.session("s", "2025-06-18").await;
        let answer = rig.post(&[S], call("1", "7"));
        let server = rig.asked().await;
        answer.pause(true);
        server.json(&[], &body);
        pass(secs(60)).await;
        assert!(server.written() < HELD_MAX, "{}", server.written());
        answer.pause(false);
        pass(secs(1)).await;
        assert!(answer.is_over());
        assert!(answer.body() == body.as_bytes(), "other bytes");
        // An id at the end may still be repaired, so such an answer is sent without a length.
        let length = id_first.then(|| body.len().to_string());
        assert_eq!(answer.header("content-length"), length);
        assert!(server.left().is_none(), "the connection is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_event_passes_as_it_comes_and_nothing_comes_into_it() {
    for id_first in [true, false] {
        let body = event_with("e9", &large_answer(id_first));
        let mut rig = Rig::new("");
        rig.session("s", "2025-06-18").await;
        let answer = rig.post(&[S], call("1", "7"));
        let server = rig.asked().await;
        server.events(&[]);
        server.say(progress("7", "1"));
        settle().await;
        let before = answer.body().len();
        answer.pause(true);
        let (head, tail) = body.split_at(6 << 20);
        server.chunk(head);
        pass(secs(40)).await;
        assert!(server.written() < INSPECT_MAX + HELD_MAX, "{}", server.written());
        answer.pause(false);
        pass(secs(40)).await;
        // While the rest of the answer is missing, neither heartbeats nor comments are written.
        server.chunk(tail);
        server.end();
        pass(secs(1)).await;
        assert!(answer.is_over());
        let text = answer.body();
        let end = text.len() - body.len();
        assert!(&text[end..] == body.as_bytes(), "other bytes");
        let between = String::from_utf8_lossy(&text[before..end]).into_owned();
        assert!(!between.contains("\"id\":1"), "{between}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_event_passes_on_a_wire_and_a_listening_stream() {
    let body = event_with("e9", &large_answer(false));
    let mut wire = Wire::open(Rig::new("heartbeat.enabled = false")).await;
    wire.post(call("1", "7").as_bytes()).await;
    let before = wire.stream.body().len();
    wire.server.chunk(&body);
    pass(secs(1)).await;
    assert!(&wire.stream.body()[before..] == body.as_bytes(), "other bytes");

    let mut rig = Rig::new("");
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    listened.chunk([&*body, &event(&log("m"))].concat());
    listened.end();
    pass(secs(1)).await;
    assert!(listens.body() == [&*body, &event(&log("m"))].concat().as_bytes(), "other bytes");
    assert!(listens.is_over());
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_into_a_large_event_that_is_no_message() {
    let filler = "x".repeat(6 << 20);
    for block in [
        format!("event: x\ndata: {filler}\n\n"),
        format!(": {filler}\n\n"),
        format!("{}data: x\n\n", "id: 0123456789abcdef\n".repeat(300_000)),
        format!("data: [{{\"text\":\"{filler}\"}}]\n\n"),
    ] {
        let mut rig = Rig::new("");
        rig.session("s", "2025-06-18").await;
        let answer = rig.post(&[S], call("1", "7"));
        let server = rig.asked().await;
        server.events(&[]);
        let (head, tail) = block.split_at(5 << 20);
        server.chunk(head);
        pass(secs(40)).await;
        server.chunk(tail);
        pass(secs(10)).await;
        let text = answer.text();
        let at = text.find(&block).unwrap_or_else(|| panic!("in {}", &block[..20]));
        assert!(text[at + block.len()..].contains("running"), "heartbeats go on behind it");
        server.say(result("1"));
        server.end();
        settle().await;
        assert!(answer.is_over());
        assert_eq!(answer.messages().last(), Some(&result("1")));
    }
}

/// The members of an answer of a megabyte, and those that the client gets of them.
fn odd_answers() -> Vec<(String, String)> {
    let text = "0123456789abcdef".repeat(1 << 16);
    let fine = format!(r#""result":{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    let bare = format!(r#""result":{{"sum":"{text}"}}"#);
    let wrapped = format!(
        r#""result":{{"content":[{{"type":"text","text":"{{\"sum\":\"{text}\"}}"}}],"isError":false}}"#
    );
    let error = format!(r#""error":"{text}""#);
    let shaped = format!(r#""error":{{"code":-32603,"message":"{text}"}}"#);
    let v = r#""jsonrpc":"2.0""#;
    let mut all = Vec::new();
    for (said, told) in [(&fine, &fine), (&bare, &wrapped), (&error, &shaped)] {
        for id in ["7", r#""7""#] {
            all.push((format!("{{{v},\"id\":{id},{said}}}"), format!("{{{v},\"id\":7,{told}}}")));
            all.push((format!("{{{said},\"id\":{id},{v}}}"), format!("{{{told},\"id\":7,{v}}}")));
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_long_json_answer_is_repaired_while_it_passes() {
    for (said, told) in odd_answers() {
        for announced in [true, false] {
            let mut rig = Rig::new("upstream.lifecycle = {}");
            let answer = rig.post(&[], call("7", "7"));
            let server = rig.asked().await;
            let json = "Content-Type: application/json";
            if announced {
                server.answer("200 OK", &[json], &said);
            } else {
                server.head("200 OK", &[json, CHUNKED]);
                server.chunk(&said[..1000]);
                pass(ms(10)).await;
                server.chunk(&said[1000..]);
                server.end();
            }
            pass(secs(1)).await;
            let start = &said[..60];
            assert!(answer.is_over(), "{start}");
            let got = answer.text();
            assert!(got == told, "{start}: {} ... {}", &got[..90], &got[got.len() - 60..]);
            if announced && said == told && said.starts_with("{\"jsonrpc") {
                assert_eq!(answer.header("content-length"), Some(said.len().to_string()));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_json_answer_of_a_server_that_pauses_behind_its_head_is_repaired_too() {
    let (said, told) = odd_answers().swap_remove(2);
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], call("7", "7"));
    let server = rig.asked().await;
    let length = format!("Content-Length: {}", said.len());
    server.head("200 OK", &["Content-Type: application/json", &length]);
    pass(ms(60)).await;
    assert_eq!(answer.status(), 200);
    pass(secs(5)).await;
    server.raw(&said);
    pass(secs(1)).await;
    assert!(answer.is_over());
    assert!(answer.text() == told);
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_becomes_a_large_event() {
    let body = large_answer(true);
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    pass(secs(6)).await;
    let before = answer.body().len();
    answer.pause(true);
    server.json(&[], &body);
    pass(secs(1)).await;
    assert!(server.written() < INSPECT_MAX + HELD_MAX, "{}", server.written());
    answer.pause(false);
    pass(secs(1)).await;
    assert!(answer.is_over());
    assert!(&answer.body()[before..] == event(&body).as_bytes(), "other bytes");
}

#[tokio::test(start_paused = true)]
async fn a_large_request_reaches_the_server_byte_for_byte() {
    let body = large_call(LARGE);
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S], &body);
    pass(Duration::from_secs(1)).await;
    let asked = rig.asked().await;
    assert!(asked.request.body == body.as_bytes(), "other bytes");
    asked.json(&[], &result("1"));
    settle().await;
    assert_eq!(answer.text(), result("1"));
    // A body beyond the limit of its route is refused before the server gets any of it.
    let mut rig = Rig::new("max_request_bytes = 1000");
    let answer = rig.post(&[], call("1", format!("\"{}\"", "t".repeat(1000))));
    settle().await;
    assert_eq!(answer.status(), 413);
    assert!(rig.try_asked().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_large_chunked_request_reaches_the_server_byte_for_byte() {
    let body = large_call(LARGE);
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S, CHUNKED], chunked(&body));
    pass(Duration::from_secs(1)).await;
    let asked = rig.asked().await;
    assert!(asked.request.body == body.as_bytes(), "other bytes");
    asked.json(&[], &result("1"));
    settle().await;
    assert_eq!(answer.text(), result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_chunked_request_beyond_the_limit_is_413_and_no_request_of_the_server() {
    let mut rig = Rig::new(&format!("max_request_bytes = {}", LARGE - 1));
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&[S, CHUNKED], chunked(large_call(LARGE)));
    pass(secs(1)).await;
    assert_eq!(answer.status(), 413);
    let limit = LARGE - 1;
    assert_eq!(
        answer.text(),
        format!("the body of a request may have {limit} bytes on this route\n")
    );
    assert!(rig.try_asked().await.is_none());
    // The connection to the server, which has got half a request, is not reused.
    let answer = rig.post(&[S], call("2", "2"));
    rig.asked().await.json(&[], &result("2"));
    settle().await;
    assert_eq!(answer.text(), result("2"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_pauses_in_a_large_body_is_408() {
    let rig = Rig::new("");
    let half = &chunked(large_call(LARGE))[..LARGE / 2];
    let answer = rig.post(&[CHUNKED], half);
    pass(secs(29)).await;
    assert!(answer.is_silent());
    pass(secs(2)).await;
    assert_eq!(answer.status(), 408);
}

/// A client on a connection of its own sends this text, and then this number of pieces at this interval. Returns its
/// answer and the time of the answer.
async fn say_slowly(
    rig: &Rig,
    head: &[&str],
    piece: &[u8],
    (count, every): (usize, Duration),
) -> (String, Duration) {
    let mut near = rig.connection();
    let mut all = vec!["Content-Type: application/json", BOTH];
    all.extend(head);
    let begun = rig.now();
    near.write_all(&request("localhost:7332", "POST /r", &all, b"")).await.unwrap();
    let (mut from, mut to) = tokio::io::split(near);
    let piece = piece.to_vec();
    let says = tokio::spawn(async move {
        for _ in 0..count {
            tokio::time::sleep(every).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    });
    let mut told = vec![0; 1 << 10];
    let count = from.read(&mut told).await.unwrap();
    says.abort();
    (String::from_utf8_lossy(&told[..count]).into_owned(), rig.now() - begun)
}

const LENGTH: &str = "Content-Length: 8000000";

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_its_body_too_slowly_is_408() {
    let slow = (1000, secs(1));
    // The settings, the bytes per second, the second in which the client is refused, and the text.
    for (keys, bytes, at, words) in [
        ("", 1, 10, "must come with 1024 bytes a second"),
        ("", 1000, 10, "must come with 1024 bytes a second"),
        ("", 2000, 120, "may take 120s"),
        ("body_min_rate = 0", 1, 120, "may take 120s"),
        ("body_min_rate = 0\nbody_timeout = \"5s\"", 1, 5, "may take 5s"),
        ("body_min_rate = 5000\nbody_timeout = \"off\"", 4900, 10, "5000 bytes a second"),
    ] {
        let (told, after) = say_slowly(&Rig::new(keys), &[LENGTH], &vec![b' '; bytes], slow).await;
        assert!(told.starts_with("HTTP/1.1 408 "), "{keys}: {told}");
        assert!(told.contains(words), "{keys}: {told}");
        let differs = after.as_secs().abs_diff(at);
        assert!(differs <= 1, "{keys}: after {after:?}");
    }
    // A client that is fast enough is not refused.
    let body = call("1", "1");
    let keys = "body_min_rate = 0\nbody_timeout = \"off\"";
    let length = format!("Content-Length: {}", body.len());
    let mut rig = Rig::new(keys);
    let (mut from, mut to) = tokio::io::split(rig.connection());
    let head = request("localhost:7332", "POST /r", &[BOTH, &length], b"");
    to.write_all(&head).await.unwrap();
    for byte in body.as_bytes() {
        pass(secs(9)).await;
        to.write_all(&[*byte]).await.unwrap();
    }
    rig.asked().await.json(&[], &result("1"));
    let mut told = vec![0; 1 << 10];
    let count = from.read(&mut told).await.unwrap();
    assert!(told[..count].starts_with(b"HTTP/1.1 200 "));
}

#[tokio::test(start_paused = true)]
async fn unfinished_bodies_have_one_budget_and_others_go_on() {
    let mut rig = Rig::with("[server]\nmax_unread_bytes = 4000000", "");
    let half = vec![b' '; 50_000];
    let answers: Vec<Answer> =
        (0..100).map(|_| rig.post(&["Content-Length: 100000"], &half)).collect();
    pass(secs(1)).await;
    let refused = answers.iter().filter(|answer| !answer.is_silent()).collect::<Vec<_>>();
    assert_eq!(refused.len(), 20);
    for answer in refused {
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.header("retry-after").as_deref(), Some("1"));
    }
    // A request that arrives completely at once does not wait.
    let answer = rig.post(&[], call("1", "1"));
    rig.asked().await.json(&[], &result("1"));
    settle().await;
    assert_eq!(answer.text(), result("1"));
    // Bodies that have ended no longer count in the limit.
    drop(answers);
    pass(secs(11)).await;
    let answer = rig.post(&["Content-Length: 100000"], &half);
    pass(secs(1)).await;
    assert!(answer.is_silent());
}
