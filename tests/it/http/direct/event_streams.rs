//! Event streams: which bytes pass, which are inserted, event ids and resumption, and the error after the death of a
//! server.

use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::observe::metrics::page::Page;
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

/// The error for a connection that ends between two chunks.
const BROKEN: &str = "the connection to the server failed: error reading a body from connection: \
                      unexpected EOF during chunk size line";

const QUIET: &str = "heartbeat.enabled = false\nmin_interval = \"0s\"";

/// A session with a call, whose answer has begun as a stream.
async fn called(keys: &str, revision: &str) -> (Rig, Answer, Asked) {
    let mut rig = Rig::new(keys);
    rig.session("s", revision).await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    (rig, answer, server)
}

/// A client's GET stream.
async fn listens(rig: &mut Rig, headers: &[&str]) -> (Answer, Asked) {
    let answer = rig.get(headers);
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    (answer, server)
}

/// Streams that end with the answer to request 1, with the token 7, and in which nothing is wrong.
fn fine() -> Vec<Vec<u8>> {
    let spread = "data: {\ndata: \"jsonrpc\":\"2.0\",\ndata:\ndata:\"id\":1,\"result\":{}}\n\n";
    let texts = [
        // Several lines of data are one message.
        spread.to_owned(),
        spread.replace('\n', "\r\n"),
        // No space, two spaces, names that mean nothing.
        format!(
            "data:{}\n\ndata:  {}\nDATA: x\ndata : x\n: c\nfoo\n\ndata:{}\n\n",
            progress("7", "1"),
            progress("7", "2"),
            result("1")
        ),
        // Text of several bytes.
        format!("data: {}\n\ndata: {}\n\n", report("7", "1", "€ é 漢 𝄞"), result("1")),
        // Every line end.
        format!(
            ":\r\r\ndata: {}\r\n\r\n\r\n\n\rdata: {}\r\rid: 1\rdata: {}\r\n\r",
            progress("7", "1"),
            progress("7", "2"),
            result("1")
        ),
        // Comments of the server.
        format!(": ping\n\n: a\n:b\n\ndata: {}\n: within\n\n", result("1")),
        // An event that only has an id, as of 2025-11-25.
        format!("id: p0\ndata: \n\nretry: 500\n\nid: p1\n\ndata: {}\n\n", result("1")),
        // Odd ids.
        format!("id:\ndata: {}\n\nid: a\0b\nid: c\nid: d\ndata: {}\n\n", log("m"), result("1")),
        // Other event names for data that is not a message.
        format!(
            "event: ping\ndata: 2026-01-01\n\nevent: x\ndata: {{}}\n\nevent:\ndata: {}\n\n",
            result("1")
        ),
        // No line ends, though some call them so.
        format!(
            "data: {}\n\ndata: {}\n\n",
            report("7", "1", "a\u{2028}b\u{2029}c\u{85}d"),
            result("1")
        ),
        // A byte order mark.
        format!("\u{feff}data: {}\n\n", result("1")),
        // Unusual but valid forms of JSON.
        "data: { \"jsonrpc\":\"2.0\",\"result\":{\"x\":1.50,\"y\":1E400,\"z\":NaN}\t, \"id\" :1}\n\n".to_owned(),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_right_passes_byte_for_byte_however_it_is_cut() {
    for stream in fine() {
        let ways: [Vec<&[u8]>; 4] = [
            vec![&stream],
            stream.chunks(1).collect(),
            stream.chunks(7).collect(),
            stream.split_inclusive(|byte| *byte == b'\r').collect(),
        ];
        for way in ways {
            let (_rig, answer, server) = called(QUIET, "2025-06-18").await;
            for chunk in &way {
                server.chunk(chunk);
                if way.len() > 1 {
                    settle().await;
                }
            }
            server.end();
            settle().await;
            let text = String::from_utf8_lossy(&stream);
            assert_eq!(answer.text(), text, "in {} parts", way.len());
            assert_eq!(answer.body(), stream, "{text}");
            assert!(answer.is_over());
            check([&answer]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_right_passes_on_listening_streams_too() {
    for stream in fine() {
        let mut rig = Rig::new(QUIET);
        let (answer, server) = listens(&mut rig, &[S]).await;
        // Here the client must get no progress.
        let text = String::from_utf8_lossy(&stream);
        if text.contains("notifications/progress") {
            continue;
        }
        for chunk in stream.chunks(3) {
            server.chunk(chunk);
        }
        server.end();
        settle().await;
        assert_eq!(answer.body(), stream, "{text}");
        assert!(answer.is_over());
    }
}

#[tokio::test(start_paused = true)]
async fn each_event_reaches_the_client_as_soon_as_its_blank_line() {
    let (_rig, answer, server) = called(QUIET, "2025-06-18").await;
    for (figure, end) in [("1", "\n\n"), ("2", "\r\n\r\n"), ("3", "\r\r")] {
        let (line, blank) = end.split_at(end.len() / 2);
        server.chunk(format!("data: {}{line}", progress("7", figure)));
        settle().await;
        assert!(answer.messages().len().to_string().as_str() < figure);
        server.chunk(blank);
        settle().await;
        assert_eq!(answer.messages().len().to_string(), figure);
    }
}

#[tokio::test(start_paused = true)]
async fn comments_and_heartbeats_stand_between_events_only() {
    let (rig, answer, server) = called("", "2025-06-18").await;
    let text = event(&progress("7", "1"));
    let (head, tail) = text.split_at(30);
    server.chunk(head);
    let begin = rig.now();
    pass(secs(16)).await;
    server.chunk(tail);
    settle().await;
    let body = answer.text();
    assert!(body.ends_with(&text), "{body}");
    for block in answer.blocks() {
        let whole = block.is_message() || block.raw == b": keep-alive\n\n";
        assert!(whole, "{:?}", String::from_utf8_lossy(&block.raw));
    }
    assert_eq!(answer.told()[0].at - begin, secs(2), "heartbeats go on in between");
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn a3_comments_come_after_fifteen_seconds_of_silence_with_and_without_a_token() {
    for token in ["", "7"] {
        let mut rig = Rig::new("heartbeat.enabled = false");
        let answer = rig.post(&[], call("1", token));
        let server = rig.asked().await;
        server.events(&[]);
        settle().await;
        pass(ms(14_990)).await;
        assert_eq!(answer.text(), "");
        pass(ms(20)).await;
        assert_eq!(answer.text(), ": keep-alive\n\n");
        pass(secs(10)).await;
        server.chunk(event(&log("m")));
        pass(secs(14)).await;
        assert_eq!(answer.blocks().len(), 2, "what passes breaks the silence as well");
        pass(secs(2)).await;
        assert_eq!(answer.blocks().len(), 3);
        server.say(result("1"));
        server.end();
        settle().await;
        assert!(answer.is_over());
    }
    let mut rig = Rig::new("");
    let (answer, _server) = listens(&mut rig, &[]).await;
    pass(secs(46)).await;
    assert_eq!(answer.text(), ": keep-alive\n\n".repeat(4), "the first one at the beginning");
    let mut rig = Rig::new("keep_alive = \"off\"");
    let (answer, _server) = listens(&mut rig, &[]).await;
    pass(secs(3600)).await;
    assert_eq!(answer.text(), "");
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_an_hour() {
    let mut rig = Rig::new("heartbeat.enabled = false");
    let (silent, answers) = (rig.post(&[], call("1", "")), rig.post(&[], call("2", "7")));
    let (says_nothing, server) = (rig.asked().await, rig.asked().await);
    server.events(&[]);
    pass(secs(3600)).await;
    says_nothing.json(&[], &result("1"));
    server.say(result("2"));
    server.end();
    settle().await;
    assert_eq!(silent.messages(), [result("1")]);
    assert_eq!(answers.messages(), [result("2")]);
}

#[tokio::test(start_paused = true)]
async fn a1_heartbeats_come_after_two_seconds_and_then_every_five() {
    let (rig, answer, server) = called("", "2025-06-18").await;
    let begin = rig.now();
    pass(secs(13)).await;
    let at: Vec<_> = answer.told().iter().map(|told| told.at - begin).collect();
    assert_eq!(at, [secs(2), secs(7), secs(12)]);
    let beats = [("0.000001", 2), ("0.000002", 7), ("0.000003", 12)];
    let beats: String =
        beats.iter().map(|(figure, s)| event(&heartbeat("7", figure, *s))).collect();
    assert_eq!(answer.text(), beats);
    // A figure of the server keeps its scale.
    server.chunk(event(&progress("7", "1")));
    server.chunk(event(&result("1")));
    server.end();
    settle().await;
    assert_eq!(answer.text(), beats + &event(&progress("7", "1")) + &event(&result("1")));
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn without_a_token_there_is_no_progress() {
    let mut rig = Rig::new("");
    let answer = rig.post(&[], call("1", ""));
    let server = rig.asked().await;
    server.events(&[]);
    server.say(progress("\"x\"", "1"));
    pass(secs(40)).await;
    assert_eq!(answer.text(), ": keep-alive\n\n".repeat(2));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_event_is_dropped_with_its_id() {
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let (mut rig, answer, server) = called(QUIET, revision).await;
        server.chunk(event_with("e6", &progress("7", "1")));
        server.chunk(event_with("e7", &progress("7", "1")));
        server.chunk(event_with("e8", &log("m")));
        settle().await;
        let kept = [event_with("e6", &progress("7", "1")), event_with("e8", &log("m"))];
        assert_eq!(answer.text(), kept.concat(), "{revision}");
        // The report is repeated after the client's last event, and is dropped again.
        answer.leave();
        settle().await;
        let (resumed, resumes) = listens(&mut rig, &[S, "Last-Event-ID: e6"]).await;
        resumes.chunk(event_with("e7", &progress("7", "1")));
        resumes.chunk(event_with("e8", &log("m")));
        resumes.chunk(event_with("e9", &result("1")));
        settle().await;
        let kept = [event_with("e8", &log("m")), event_with("e9", &result("1"))];
        assert_eq!(resumed.text(), kept.concat(), "{revision}");
        check([&answer, &resumed]);
    }
}

/// Sends events, each in a chunk of its own or all in one chunk.
fn send<const N: usize>(server: &Asked, events: [String; N], at_once: bool) {
    if at_once {
        server.chunk(events.concat());
    } else {
        events.into_iter().for_each(|event| server.chunk(event));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_id_of_a_stream_is_kept_where_clients_can_take_it() {
    // A token that cannot be meant here, because its request has ended.
    let kept = [("2025-11-25", "id: e7\ndata:\n\n"), ("2025-06-18", "")];
    for ((revision, kept), at_once) in
        kept.into_iter().flat_map(|kept| [(kept, false), (kept, true)])
    {
        let mut rig = Rig::new(QUIET);
        rig.session("s", revision).await;
        let first = rig.post(&[S], call("1", "6"));
        rig.asked().await.json(&[], &result("1"));
        settle().await;
        let answer = rig.post(&[S], call("2", "7"));
        let server = rig.asked().await;
        server.events(&[]);
        let events = [
            event_with("e7", &progress("6", "1")),
            event_with("e8", &progress("6", "2")),
            event_with("e9", &result("2")),
        ];
        send(&server, events, at_once);
        settle().await;
        assert_eq!(
            answer.text(),
            format!("{kept}{}", event_with("e9", &result("2"))),
            "{revision}"
        );
        check([&first, &answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rewritten_event_keeps_its_id_and_everything_else() {
    let (_rig, answer, server) = called(QUIET, "2025-11-25").await;
    server.chunk(event_with("e7", &progress("7", "5")));
    server.chunk(format!("id:e8\r\n: c\r\nretry: 9\r\ndata:{}\r\n\r\n", report("7", "4", "x")));
    settle().await;
    let lifted = report("7", "5.000001", "x");
    let wanted = format!("id:e8\r\n: c\r\nretry: 9\r\ndata: {lifted}\r\n\r\n");
    let body = answer.text();
    assert_eq!(body, event_with("e7", &progress("7", "5")) + &wanted);
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn progress_that_a_later_event_overtakes_has_no_id_but_its_time_to_retry() {
    let (_rig, answer, server) = called("heartbeat.enabled = false", "2025-11-25").await;
    server.chunk(event_with("e7", &progress("7", "5")));
    server.chunk(format!("id: e8\nretry: 9\ndata: {}\n\n", report("7", "4", "x")));
    server.chunk(event_with("e9", &log("m")));
    pass(secs(1)).await;
    server.chunk(event_with("e10", &report("7", "3", "y")));
    pass(secs(1)).await;
    let lifted = [report("7", "5.000001", "x"), report("7", "5.000002", "y")];
    let wanted = event_with("e7", &progress("7", "5"))
        + &event_with("e9", &log("m"))
        + &format!(":\nretry: 9\ndata: {}\n\n", lifted[0])
        + &event_with("e10", &lifted[1]);
    assert_eq!(answer.text(), wanted, "a client that resumes names the last id");
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn what_is_put_in_has_neither_id_nor_time_to_retry() {
    let (_rig, answer, server) = called("", "2025-11-25").await;
    server.chunk(format!("retry: 5\n{}", event_with("e6", &progress("7", "1"))));
    pass(secs(60)).await;
    server.chunk(event_with("e7", &progress("7", "2")));
    settle().await;
    let blocks = answer.blocks();
    assert!(blocks.len() > 5);
    for block in &blocks[1..blocks.len() - 1] {
        assert_eq!(block.id, None);
        assert!(!String::from_utf8_lossy(&block.raw).contains("retry"));
    }
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_closed_for_polling_goes_on_where_the_client_resumes_it() {
    let (mut rig, answer, server) = called("min_interval = \"0s\"", "2025-11-25").await;
    server.chunk("id: p0\nretry: 500\ndata: \n\n");
    server.chunk(event_with("p1", &progress("7", "10")));
    server.end();
    settle().await;
    let text = format!("id: p0\nretry: 500\ndata: \n\n{}", event_with("p1", &progress("7", "10")));
    assert_eq!(answer.text(), text, "no error");
    assert!(answer.is_over());
    let (other, _) = listens(&mut rig, &[S]).await;
    pass(secs(120)).await;
    assert!(other.messages().is_empty(), "nobody is told that a request runs which may be over");
    let (resumed, resumes) = listens(&mut rig, &[S, "Last-Event-ID: p0"]).await;
    resumes.chunk(event_with("p1", &progress("7", "10")));
    resumes.chunk(event_with("p2", &progress("7", "20")));
    settle().await;
    let beat = event(&report("7", "10.000001", "work: running 2m00s"));
    assert_eq!(resumed.text(), beat + &event_with("p2", &progress("7", "20")));
    // The request continues here, with heartbeats.
    let begin = rig.now();
    pass(secs(12)).await;
    let told = resumed.told();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[2].at - begin, secs(10));
    resumes.chunk(event_with("p3", &result("1")));
    resumes.chunk(event_with("p4", &progress("7", "30")));
    pass(secs(60)).await;
    let texts = resumed.messages();
    assert_eq!(texts.last(), Some(&result("1")), "{texts:?}");
    check([&answer, &resumed, &other]);
}

#[tokio::test(start_paused = true)]
async fn what_is_repeated_for_a_client_is_dropped_only_if_it_is_progress() {
    let (mut rig, answer, server) = called(QUIET, "2025-06-18").await;
    let asks = r#"{"jsonrpc":"2.0","id":"s1","method":"elicitation/create","params":{}}"#;
    for (id, message) in
        [("e4", progress("7", "20")), ("e5", progress("7", "30")), ("e6", asks.to_owned())]
    {
        server.chunk(event_with(id, &message));
    }
    settle().await;
    assert_eq!(answer.messages().len(), 3);
    answer.leave();
    settle().await;
    let (resumed, resumes) = listens(&mut rig, &[S, "Last-Event-ID: e4"]).await;
    for (id, message) in [
        ("e5", progress("7", "30")),
        ("e6", asks.to_owned()),
        ("e7", progress("7", "40")),
        ("e8", report("7", "35", "fell")),
        ("e9", result("1")),
    ] {
        resumes.chunk(event_with(id, &message));
    }
    settle().await;
    let lifted = report("7", "40.000003814697266", "fell");
    let kept = [
        event_with("e6", asks),
        event_with("e7", &progress("7", "40")),
        event_with("e8", &lifted),
        event_with("e9", &result("1")),
    ];
    assert_eq!(resumed.text(), kept.concat());
    check([&answer, &resumed]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_resumes_has_everything_behind_its_last_event_whether_or_not_it_was_seen_to_leave()
 {
    // The proxy in between does not report that the client has disconnected.
    let (mut rig, answer, server) = called("min_interval = \"0s\"", "2025-06-18").await;
    let step = |step: u32| event_with(&format!("e{step}"), &progress("7", step));
    for count in 1..=6 {
        server.chunk(step(count));
        settle().await;
    }
    let (resumed, resumes) = listens(&mut rig, &[S, "Last-Event-ID: e2"]).await;
    for count in 3..=6 {
        resumes.chunk(step(count));
    }
    settle().await;
    let missed = [3, 4, 5, 6].map(step).concat();
    assert_eq!(resumed.text(), missed);
    // A token that the server invents means the only call, as before.
    resumes.chunk(event_with("e7", &report("\"u\"", "7", "m")));
    settle().await;
    let seventh = event_with("e7", &report("7", "7", "m"));
    assert_eq!(resumed.text(), format!("{missed}{seventh}"));
    // The call continues here, with heartbeats.
    let begin = rig.now();
    pass(secs(11)).await;
    assert_eq!(resumed.told().last().unwrap().at - begin, secs(10));
    answer.leave();
    settle().await;
    pass(secs(9)).await;
    resumes.chunk(step(8));
    resumes.chunk(event_with("e9", &result("1")));
    resumes.chunk(step(10));
    settle().await;
    let told = resumed.messages();
    assert_eq!(told[told.len() - 2..], [progress("7", "8"), result("1")], "{told:?}");
    let page = Page::read(&rig.metrics());
    assert_eq!(page.sum("milepost_calls_total", &[("method", "tools/call")]), 1.0);
    assert_eq!(page.sum("milepost_calls_total", &[("outcome", "result")]), 2.0, "and initialize");
}

#[tokio::test(start_paused = true)]
async fn progress_that_was_written_for_a_client_that_had_left_is_repeated_up_to_the_answer() {
    let (mut rig, answer, server) = called("min_interval = \"0s\"", "2025-06-18").await;
    let step = |step: u32| event_with(&format!("e{step}"), &progress("7", step));
    server.chunk(step(1));
    settle().await;
    // The proxy in between does not report the disconnect, so the server writes on both streams.
    let (resumed, resumes) = listens(&mut rig, &[S, "Last-Event-ID: e1"]).await;
    server.chunk(step(2));
    server.chunk(event_with("e3", &result("1")));
    settle().await;
    assert_eq!(answer.messages().len(), 3);
    // The client may have read the answer: Milepost adds nothing.
    pass(secs(60)).await;
    assert!(resumed.messages().is_empty(), "{}", resumed.text());
    // Repeated messages are repaired like others.
    resumes.chunk(step(2));
    resumes.chunk(event_with("e2b", &report("\"u\"", "3", "m")));
    resumes.chunk(event_with("e3", &result("1")));
    settle().await;
    let repeated = step(2) + &event_with("e2b", &report("7", "3", "m"));
    let repeated = repeated + &event_with("e3", &result("1"));
    assert!(resumed.text().ends_with(&repeated), "{}", resumed.text());
    // After the answer, progress is late, as on every stream.
    resumes.chunk(step(4));
    settle().await;
    assert!(resumed.text().ends_with(&repeated), "{}", resumed.text());
    let page = Page::read(&rig.metrics());
    assert_eq!(page.sum("milepost_calls_total", &[("method", "tools/call")]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_answered_where_its_client_had_left_ends_with_the_stream_of_its_client() {
    let (mut rig, _answer, server) = called(QUIET, "2025-06-18").await;
    server.chunk(event_with("e1", &progress("7", "1")));
    settle().await;
    let (first, one) = listens(&mut rig, &[S, "Last-Event-ID: e1"]).await;
    one.chunk(event_with("e2", &progress("7", "2")));
    settle().await;
    let (second, two) = listens(&mut rig, &[S, "Last-Event-ID: e2"]).await;
    // The stream that the client left last has the answer.
    one.chunk(event_with("e3", &progress("7", "3")) + &event_with("e4", &result("1")));
    settle().await;
    assert!(first.text().ends_with(&event_with("e4", &result("1"))), "{}", first.text());
    let before = second.text();
    two.chunk(event_with("e5", &progress("7", "4")));
    settle().await;
    assert_eq!(second.text(), before + &event_with("e5", &progress("7", "4")));
    // Without the stream, Milepost waits for nothing.
    second.leave();
    settle().await;
    let (other, listened) = listens(&mut rig, &[S]).await;
    listened.say(progress("7", "9"));
    settle().await;
    assert!(other.messages().is_empty(), "{:?}", other.messages());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_client_has_cancelled_is_over_where_the_client_had_come_back_too() {
    let (mut rig, _answer, server) = called(QUIET, "2025-06-18").await;
    server.chunk(event_with("e1", &progress("7", "1")));
    settle().await;
    let (resumed, resumes) = listens(&mut rig, &[S, "Last-Event-ID: e1"]).await;
    server.chunk(event_with("e2", &result("1")));
    settle().await;
    let cancels = rig.post(&[S], cancelled("1"));
    rig.asked().await.accept();
    settle().await;
    resumes.chunk(event_with("e2", &progress("7", "2")));
    settle().await;
    assert_eq!(resumed.text(), "");
    drop(cancels);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_written_for_a_client_that_had_left_is_repeated_for_it() {
    let (mut rig, answer, server) = called(QUIET, "2025-06-18").await;
    server.chunk(event_with("e1", &progress("7", "1")));
    server.chunk(event_with("e2", &result("1")));
    settle().await;
    assert_eq!(answer.messages().len(), 2);
    let (resumed, resumes) = listens(&mut rig, &[S, "Last-Event-ID: e1"]).await;
    resumes.chunk(event_with("e2", &result("1")));
    settle().await;
    assert_eq!(resumed.text(), event_with("e2", &result("1")));
    // A client that has missed nothing gets no message twice.
    let (listens, listened) = listens(&mut rig, &[S]).await;
    listened.say(result("1"));
    settle().await;
    assert!(listens.messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_resumed_twice_goes_on_where_it_was_resumed_last() {
    let (mut rig, _answer, server) = called(QUIET, "2025-06-18").await;
    server.chunk(event_with("e1", &progress("7", "1")));
    settle().await;
    let (first, one) = listens(&mut rig, &[S, "Last-Event-ID: e1"]).await;
    one.chunk(event_with("e2", &progress("7", "2")));
    settle().await;
    let (second, two) = listens(&mut rig, &[S, "Last-Event-ID: e2"]).await;
    two.chunk(event_with("e3", &progress("7", "3")));
    settle().await;
    assert_eq!(first.text(), event_with("e2", &progress("7", "2")));
    assert_eq!(second.text(), event_with("e3", &progress("7", "3")));
    // An id that two open streams have used names neither.
    let (other, call_two) = {
        let answer = rig.post(&[S], call("2", "8"));
        let asked = rig.asked().await;
        asked.events(&[]);
        (answer, asked)
    };
    call_two.chunk(event_with("e3", &progress("8", "1")));
    settle().await;
    let (_third, three) = listens(&mut rig, &[S, "Last-Event-ID: e3"]).await;
    three.chunk(event_with("e4", &progress("8", "2")));
    settle().await;
    assert_eq!(other.messages(), [progress("8", "1"), progress("8", "2")]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_spoken_elsewhere_too_passes_what_it_cannot_know() {
    for resumes in [false, true] {
        let mut rig = Rig::new(QUIET);
        rig.session("s", "2025-06-18").await;
        rig.session("other", "2025-06-18").await;
        let other = rig.post(&["Mcp-Session-Id: other"], call("1", "3"));
        let served = rig.asked().await;
        served.events(&[]);
        let open = rig.post(&[S], call("1", "7"));
        let own = rig.asked().await;
        own.events(&[]);
        let headers = if resumes { vec![S, "Last-Event-ID: of-another"] } else { vec![S] };
        let (answer, server) = listens(&mut rig, &headers).await;
        // Ids of another session, and of a request that another process has seen.
        server.chunk(event_with("e1", &progress("3", "1")));
        server.chunk(event_with("e2", &progress("\"t\"", "5")));
        server.chunk(event_with("e3", &progress("\"t\"", "6")));
        server.chunk(event_with("e4", &result("9")));
        server.chunk(event_with("e5", &progress("7", "2")));
        settle().await;
        let passed = [
            event_with("e2", &progress("\"t\"", "5")),
            event_with("e3", &progress("\"t\"", "6")),
            event_with("e4", &result("9")),
        ];
        if resumes {
            assert_eq!(answer.text(), passed.concat());
            assert_eq!(open.messages(), [progress("7", "2")]);
        } else {
            // The token means the only call, because all requests of the session are known.
            assert_eq!(answer.messages(), [""; 0]);
            let told = open.messages();
            assert!(
                told.len() == 3 && told.iter().all(|text| text.contains(r#""progressToken":7"#))
            );
        }
        assert!(other.messages().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_to_retry_of_a_dropped_event_counts() {
    for at_once in [false, true] {
        let (mut rig, answer, server) = called(QUIET, "2025-06-18").await;
        let events = [
            event_with("e1", &progress("7", "1")),
            format!("retry: 2000\n{}", event_with("e2", &progress("7", "1"))),
            event_with("e3", &result("1")),
        ];
        send(&server, events, at_once);
        settle().await;
        let kept = [
            &event_with("e1", &progress("7", "1")),
            "retry: 2000\n\n",
            &event_with("e3", &result("1")),
        ];
        assert_eq!(answer.text(), kept.concat());
        // The same on a listening stream.
        let (listening, listened) = listens(&mut rig, &[S]).await;
        let events = [
            format!("retry: 3000\n{}", event_with("g1", &progress("7", "9"))),
            event_with("g2", &log("m")),
        ];
        send(&listened, events, at_once);
        settle().await;
        assert_eq!(listening.text(), format!("retry: 3000\n\n{}", event_with("g2", &log("m"))));
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_to_retry_counts_however_much_was_for_other_streams() {
    let (mut rig, answer, server) = called(QUIET, "2025-06-18").await;
    let other = rig.post(&[S], call("2", "8"));
    let second = rig.asked().await;
    second.events(&[]);
    settle().await;
    for number in 0..600 {
        server.chunk(event_with("x", &progress("8", number.to_string())));
        settle().await;
    }
    server.chunk(format!("retry: 9\nid: y\n{}", event(&progress("8", "600"))));
    server.chunk(format!("retry: 2000\nid: z\n{}", event(&progress("6", "1"))));
    server.chunk(event(&progress("7", "9")));
    server.chunk(format!("retry: 3000\n{}", event(&progress("7", "9"))));
    settle().await;
    assert_eq!(other.messages().len(), 601);
    let text = answer.text();
    assert!(text.starts_with("retry: 9\n\n"), "{text}");
    assert!(text.ends_with("retry: 3000\n\n"), "{text}");
    check([&answer, &other]);
}

#[tokio::test(start_paused = true)]
async fn messages_under_another_name_get_the_name_that_clients_look_for() {
    let (_rig, answer, server) = called(QUIET, "2025-06-18").await;
    let dialect = r#"{"jsonrpc":"2.0","method":"tools/progress","params":{"id":1,"content":[{"type":"text","text":"{\"status\":\"in_progress\",\"message\":\"m\"}"}],"isFinal":false}}"#;
    server.chunk(format!("event: mcpNotification\ndata: {dialect}\n\n"));
    server.chunk(format!("event: mcpNotification\nid: 4\ndata: {}\n\n", log("m")));
    server.chunk(format!("id: 5\nevent:mcpResponse\ndata:{}\n\n", result("1")));
    server.chunk(format!("event: mcpNotification\ndata: {dialect}\n\n"));
    server.end();
    settle().await;
    let blocks = answer.blocks();
    assert_eq!(blocks.len(), 3);
    assert!(blocks.iter().all(|block| block.name.as_deref() == Some("message")));
    assert_eq!(blocks[1].id.as_deref(), Some("4"));
    assert_eq!(blocks[2].id.as_deref(), Some("5"));
    let messages = answer.messages();
    assert!(
        messages[0].contains(r#""progressToken":7"#) && messages[0].contains(r#""message":"m""#)
    );
    assert_eq!(messages[1..], [log("m"), result("1")]);
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_without_an_answer_says_so_unless_it_can_be_resumed() {
    for end in ["end", "break off"] {
        let (_rig, answer, server) = called("", "2025-06-18").await;
        server.say(progress("7", "1"));
        settle().await;
        let why = if end == "end" {
            server.end();
            "the server closed the stream without an answer"
        } else {
            server.die();
            BROKEN
        };
        settle().await;
        assert_eq!(answer.messages(), [progress("7", "1"), own_error("1", why, "")]);
        assert!(answer.is_over());
        check([&answer]);

        let (_rig, answer, server) = called("", "2025-06-18").await;
        server.chunk(event_with("e1", &progress("7", "1")));
        settle().await;
        if end == "end" {
            server.end()
        } else {
            server.die()
        }
        settle().await;
        assert_eq!(answer.text(), event_with("e1", &progress("7", "1")));
        assert!(answer.is_over());

        // From 2026-07-28 on streams cannot be resumed.
        let mut rig = Rig::new("");
        let answer = rig.post(&[], modern_call("1", "7"));
        let server = rig.asked().await;
        server.events(&[]);
        server.chunk(event_with("e1", &progress("7", "1")));
        settle().await;
        if end == "end" {
            server.end()
        } else {
            server.die()
        }
        settle().await;
        assert_eq!(answer.messages(), [progress("7", "1"), own_error("1", why, "")]);
        assert!(answer.is_over());
        assert!(rig.try_asked().await.is_none(), "nothing is asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_within_an_event_spoils_nothing() {
    // With an id the client resumes; the part of the event that it has received is not counted.
    let (_rig, answer, server) = called("", "2025-06-18").await;
    server.chunk(event_with("e1", &progress("7", "1")));
    let half = "id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"resu\n";
    server.chunk(half);
    server.end();
    settle().await;
    assert_eq!(answer.text(), event_with("e1", &progress("7", "1")) + half);
    assert_eq!(answer.messages(), [progress("7", "1")]);
    // Without an id, the error is an event of its own.
    for cut in ["data: {\"jsonrpc\":\"2.0\",\"id\":1,\"res", "data: {}\n", "id: 1", "\r", "da", ":"]
    {
        let (_rig, answer, server) = called("", "2025-06-18").await;
        server.say(progress("7", "1"));
        server.chunk(cut);
        settle().await;
        server.die();
        settle().await;
        let messages = answer.messages();
        assert_eq!(messages[1..], [own_error("1", BROKEN, "")], "{cut:?}: {:?}", answer.text());
        check([&answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_within_a_large_event_spoils_nothing() {
    let large = format!(r#"data: {{"jsonrpc":"2.0","result":"{}"#, "x".repeat(5 << 20));
    let (_rig, answer, server) = called("heartbeat.enabled = false", "2025-06-18").await;
    server.say(progress("7", "1"));
    server.chunk(&large);
    pass(secs(1)).await;
    assert!(answer.body().len() > 5 << 20, "it passes as it comes");
    server.die();
    pass(secs(1)).await;
    let messages = answer.messages();
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[2], own_error("1", BROKEN, ""));
    assert!(answer.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_listening_stream_ends_when_the_servers_does() {
    let mut rig = Rig::new("");
    let (answer, server) = listens(&mut rig, &[S]).await;
    server.say(log("m"));
    server.end();
    settle().await;
    assert_eq!(answer.messages(), [log("m")]);
    assert!(answer.is_over());
    let (answer, server) = listens(&mut rig, &[S]).await;
    server.say(log("m"));
    settle().await;
    server.die();
    settle().await;
    assert_eq!(answer.messages(), [log("m")]);
    assert!(answer.is_over() || answer.is_broken());
    // If the client disconnects, its stream to the server ends too.
    let (answer, server) = listens(&mut rig, &[S]).await;
    answer.leave();
    settle().await;
    assert_eq!(server.left(), Some(rig.now()));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_behind_the_answer() {
    for end in [
        result("1"),
        error("1"),
        r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true}}"#.to_owned(),
    ] {
        let (mut rig, answer, server) = called("", "2025-06-18").await;
        let (listening, listened) = listens(&mut rig, &[S]).await;
        server.chunk([event(&end), event(&progress("7", "9")), event(&result("1"))].concat());
        settle().await;
        server.say(progress("7", "10"));
        listened.say(progress("7", "11"));
        pass(secs(60)).await;
        server.end();
        settle().await;
        assert_eq!(answer.messages(), [end]);
        assert!(listening.messages().is_empty());
        assert!(answer.is_over());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_on_another_stream_ends_its_request_there() {
    let (mut rig, answer, server) = called("", "2025-06-18").await;
    let (listening, listened) = listens(&mut rig, &[S]).await;
    server.say(progress("7", "1"));
    settle().await;
    listened.say(result("1"));
    settle().await;
    assert_eq!(listening.messages(), [result("1")]);
    server.say(progress("7", "2"));
    pass(secs(60)).await;
    server.end();
    settle().await;
    assert_eq!(answer.messages(), [progress("7", "1")], "and no error for what has been answered");
    assert!(answer.is_over());
    check([&answer, &listening]);
}

#[tokio::test(start_paused = true)]
async fn progress_that_waits_does_not_follow_an_answer_on_another_stream() {
    for id in ["1", "\"1\""] {
        let (mut rig, answer, server) = called("", "2025-06-18").await;
        let (listening, listened) = listens(&mut rig, &[S]).await;
        server.say(progress("7", "1"));
        // The token is not the client's, so the report waits for `min_interval`.
        server.say(report("\"u\"", "2", "m"));
        settle().await;
        listened.say(result(id));
        pass(secs(60)).await;
        assert_eq!(answer.messages(), [progress("7", "1")], "{id}");
        assert_eq!(listening.messages(), [result("1")], "{id}");
        check([&answer, &listening]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_gets_the_newest_progress_and_every_other_message() {
    let (_rig, answer, server) = called(QUIET, "2025-06-18").await;
    answer.pause(true);
    let words = "w".repeat(1000);
    for number in 1..=2000 {
        server.say(report("7", number.to_string(), &words));
        if number % 100 == 0 {
            server.say(log(&number.to_string()));
        }
    }
    server.say(result("1"));
    server.end();
    pass(secs(10)).await;
    // Both connections are full, and the proxy has taken a bounded number of bytes.
    assert!(server.written() < 1 << 20, "{}", server.written());
    answer.pause(false);
    pass(secs(1)).await;
    assert_eq!(server.written(), server.given(), "all of it is taken once the client reads");
    let messages = answer.messages();
    let logs: Vec<_> =
        messages.iter().filter(|text| text.contains("notifications/message")).collect();
    assert_eq!(logs.len(), 20);
    assert_eq!(messages.last(), Some(&result("1")));
    assert!(messages.len() < 2021, "{}", messages.len());
    assert!(answer.is_over());
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_for_a_moment_gets_every_report() {
    let (_rig, answer, server) = called(QUIET, "2025-06-18").await;
    answer.pause(true);
    let words = "w".repeat(1000);
    for number in 1..=2000 {
        server.say(report("7", number.to_string(), &words));
    }
    pass(secs(4)).await;
    assert!(server.written() < 1 << 20, "the server waits: {} bytes", server.written());
    answer.pause(false);
    pass(secs(1)).await;
    server.say(result("1"));
    server.end();
    pass(secs(1)).await;
    let messages = answer.messages();
    assert_eq!(messages.len(), 2001);
    assert_eq!(messages.last(), Some(&result("1")));
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn names_of_events_are_repaired_and_counted() {
    let named = |id: u8| format!("event: update\ndata: {}\n\n", result(id));
    for (keys, name, count) in [
        ("", "message", 1.0),
        ("no_repair = [\"event-name\"]", "update", 0.0),
        ("tools.work = { no_repair = [\"event-name\"] }", "update", 0.0),
        ("mode = \"observe\"", "update", 0.0),
    ] {
        let (rig, answer, server) = called(&format!("{QUIET}\n{keys}"), "2025-11-25").await;
        server.chunk(named(1));
        settle().await;
        let block = answer.blocks().pop().unwrap();
        let told = String::from_utf8(block.raw).unwrap();
        assert_eq!(told, named(1).replace("update", name), "{keys}");
        let page = Page::read(&rig.metrics());
        let labels = [("repair", "event-name")];
        assert_eq!(page.sum("milepost_repairs_total", &labels), count, "{keys}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_name_of_an_event_is_counted_with_its_own_message() {
    let named = |text: &str| format!("event: update\ndata: {text}\n\n");
    let mended = |text: &str| named(text).replace("update", "message");
    let renamed = |rig: &Rig| {
        Page::read(&rig.metrics()).sum("milepost_repairs_total", &[("repair", "event-name")])
    };
    let (mut rig, answer, server) = called(QUIET, "2025-06-18").await;
    let (listens, listened) = listens(&mut rig, &[S]).await;
    // An answer that no request expects, progress that can only be the call's, and a log message.
    server.chunk(named(&result("9")));
    server.chunk(named(&progress("8", "1")));
    server.chunk(named(&log("m")));
    server.say(progress("7", "1"));
    server.say(progress("7", "2"));
    settle().await;
    let before = renamed(&rig);
    // An answer passes on the stream where it came, and is judged by the filter of its request.
    listened.chunk(named(&result("1")));
    listened.say(log("own"));
    settle().await;
    assert_eq!(listens.text(), mended(&result("1")) + &event(&log("own")));
    assert_eq!((before, renamed(&rig)), (2.0, 2.0), "{}", answer.text());
}

#[tokio::test(start_paused = true)]
async fn the_name_of_an_array_is_repaired_once() {
    for (revision, batches) in [("2025-03-26", 0.0), ("2025-06-18", 1.0)] {
        let (rig, answer, server) = called(QUIET, revision).await;
        let array = format!("[{},{}]", progress("7", "1"), result("1"));
        server.chunk(format!("event: update\ndata: {array}\n\n"));
        settle().await;
        let expected = [progress("7", "1"), result("1")];
        assert_eq!(answer.messages(), if batches == 0.0 { vec![array] } else { expected.to_vec() });
        let page = Page::read(&rig.metrics());
        let count = |repair| page.sum("milepost_repairs_total", &[("repair", repair)]);
        assert_eq!((count("event-name"), count("batch").min(1.0)), (1.0 - batches, batches));
        assert!(!answer.text().contains("update"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_begins_with_silence_has_a_first_byte_soon() {
    let mut rig = Rig::new("");
    let (quiet, _server) = listens(&mut rig, &[]).await;
    assert_eq!((quiet.status(), quiet.text()), (200, String::new()));
    pass(ms(500)).await;
    let comment = ": keep-alive\n\n";
    assert_eq!(quiet.text(), comment);
    pass(secs(14)).await;
    assert_eq!(quiet.text(), comment);
    pass(secs(1)).await;
    assert_eq!(quiet.text(), comment.repeat(2));
    // A server that writes early sends this byte itself.
    let lively = rig.get(&[]);
    let server = rig.asked().await;
    server.events(&[]);
    server.say(log("m"));
    pass(secs(1)).await;
    assert_eq!(lively.text(), event(&log("m")));
}
