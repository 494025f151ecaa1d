//! Events and bodies that clients cannot read: events that are not messages, invalid Unicode, null members, errors
//! without an id or an envelope, several messages in one event, a last event without its blank line.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::http::direct::transcripts_over_http::Wire;
use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::observe::metrics::page::Page;
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

const QUIET: &str = "heartbeat.enabled = false\nmin_interval = \"0s\"";

const COMMENT: &str = ": keep-alive\n\n";

/// Events that clients would read as messages.
const STRAY: [&str; 7] = [
    "data: ping\n\n",
    "data: {\"type\":\"heartbeat\"}\n\n",
    "data: [DONE]\n\n",
    "event: message\ndata: \"ping\"\n\n",
    "data:\n\n",
    "data\r\ndata\r\n\r\n",
    "data: null\r\r",
];

/// A stream that a server compresses, event by event.
struct Compressed(GzEncoder<Vec<u8>>);

impl Compressed {
    fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::default()))
    }

    fn say(&mut self, server: &Asked, message: &str) {
        self.0.write_all(event(message).as_bytes()).unwrap();
        self.0.flush().unwrap();
        server.chunk(std::mem::take(self.0.get_mut()));
    }
}

#[tokio::test(start_paused = true)]
async fn compressed_events_are_read_and_reach_the_client_without_their_compression() {
    let (mut rig, answer, server) = called("", "2025-06-18").await;
    assert_eq!(server.request.header("accept-encoding"), Some("identity"));
    server.events(&["Content-Encoding: gzip"]);
    let mut stream = Compressed::new();
    stream.say(&server, &report("\"x\"", "1", "m"));
    settle().await;
    assert_eq!(answer.header("content-encoding"), None);
    assert_eq!(answer.messages(), [report("7", "1", "m")]);
    stream.say(&server, &result("1"));
    server.end();
    settle().await;
    assert_eq!(answer.messages().last(), Some(&result("1")));
    check([&answer]);

    let listens = rig.get(&[S]);
    let server = rig.asked().await;
    server.events(&["Content-Encoding: GZIP"]);
    Compressed::new().say(&server, &log("m"));
    settle().await;
    assert_eq!((listens.header("content-encoding"), listens.messages()), (None, vec![log("m")]));
}

#[tokio::test(start_paused = true)]
async fn events_whose_compression_is_broken_end_in_an_error() {
    let (_rig, answer, server) = called("", "2025-06-18").await;
    server.events(&["Content-Encoding: gzip"]);
    server.chunk("no gzip at all");
    settle().await;
    let messages = answer.messages();
    let error = messages.last().expect("an error");
    assert!(error.contains(r#""id":1,"error":"#), "{error}");
    assert!(answer.is_over());
}

async fn called(keys: &str, revision: &str) -> (Rig, Answer, Asked) {
    let mut rig = Rig::new(&format!("{QUIET}\n{keys}"));
    rig.session("s", revision).await;
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    (rig, answer, server)
}

async fn listens(rig: &mut Rig) -> (Answer, Asked) {
    let answer = rig.get(&[S]);
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    (answer, server)
}

fn count(rig: &Rig, metric: &str, label: (&str, &str)) -> f64 {
    Page::read(&rig.metrics()).sum(metric, &[label])
}

fn noise(rig: &Rig) -> f64 {
    count(rig, "milepost_withheld_total", ("reason", "noise"))
}

#[tokio::test(start_paused = true)]
async fn events_that_are_no_message_become_comments() {
    for (keys, is_kept) in [
        ("", false),
        ("no_repair = [\"noise\"]", true),
        ("tools.work = { no_repair = [\"noise\"] }", true),
        ("mode = \"observe\"", true),
    ] {
        for stray in STRAY {
            let (rig, answer, server) = called(keys, "2025-06-18").await;
            server.events(&[]);
            let step = if is_kept { stray.len() } else { 1 };
            for piece in stray.as_bytes().chunks(step) {
                server.chunk(piece);
                settle().await;
            }
            server.say(result("1"));
            settle().await;
            server.end();
            pass(secs(1)).await;
            let between = if is_kept { stray } else { COMMENT };
            let expected = between.to_owned() + &event(&result("1"));
            // A line feed that comes late is a block of its own.
            let text = answer.text().replace("\n\n\n", "\n\n");
            assert!(answer.text() == expected || text == expected, "{keys}: {text:?}");
            assert_eq!(noise(&rig), f64::from(u8::from(!is_kept)), "{keys}: {stray:?}");
            check([&answer]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_are_no_message_become_comments_on_a_listening_stream() {
    for stray in STRAY {
        let (mut rig, _answer, _server) = called("", "2025-06-18").await;
        let (answer, server) = listens(&mut rig).await;
        server.chunk(stray);
        server.say(log("m"));
        settle().await;
        assert_eq!(answer.text(), COMMENT.to_owned() + &event(&log("m")), "{stray:?}");
        assert_eq!(noise(&rig), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_are_no_message_become_comments_on_an_http_sse_stream() {
    let wire = Wire::open(Rig::new(QUIET)).await;
    let endpoint = wire.stream.text();
    wire.server.chunk("retry: 700\ndata: ping\n\n");
    wire.server.say(log("m"));
    settle().await;
    let expected = format!("{endpoint}{COMMENT}retry: 700\n\n{}", event(&log("m")));
    assert_eq!(wire.stream.text(), expected);
    assert_eq!(noise(&wire.rig), 1.0);

    // The client expects only the endpoint event.
    let mut rig = Rig::new(QUIET);
    let stream = rig.send("GET /r/sse", &["Accept: text/event-stream"], b"");
    let server = rig.asked().await;
    server.events(&[]);
    server.chunk("data: ping\n\nevent: endpoint\ndata: /messages?sid=a\n\n");
    settle().await;
    assert!(stream.text().starts_with("event: endpoint\n"), "{}", stream.text());
}

#[tokio::test(start_paused = true)]
async fn a_withheld_event_keeps_its_retry_time_and_the_first_id_of_a_stream() {
    for (revision, first) in [("2025-06-18", ""), ("2025-11-25", "id: a\ndata:\n")] {
        let (_rig, answer, server) = called("", revision).await;
        server.events(&[]);
        server.chunk("retry: 50\nid: a\ndata: ping\n\n");
        server.chunk("id: b\ndata: ping\n\n");
        // Servers of 2025-11-25 begin a stream with such an event.
        server.chunk("id: c\ndata: \n\n");
        server.chunk(event_with("d", &result("1")));
        server.end();
        settle().await;
        let expected = format!(
            "{COMMENT}retry: 50\n{first}\n{COMMENT}id: c\ndata: \n\n{}",
            event_with("d", &result("1"))
        );
        assert_eq!(answer.text(), expected, "{revision}");
    }
}

/// Answers to request 1 with something that strict clients refuse, and how their client gets them.
const ANSWERS: [(&[u8], &str, &str); 4] = [
    (
        br#"{"jsonrpc":"2.0","id":1,"method":null,"params":null,"result":{"content":[]},"error":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
        "error-shape",
    ),
    (
        br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}"#,
        "response-id",
    ),
    (
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"caf\xe9 \xb0\xa1\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"caf\u{fffd} \u{fffd}\u{fffd}\"}}",
        "unicode",
    ),
    (
        br#"{"jsonrpc":"2.0","id":1,"result":{"text":"a\ud83d"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"text":"a\ufffd"}}"#,
        "unicode",
    ),
];

#[tokio::test(start_paused = true)]
async fn answers_are_repaired_in_events_and_bodies() {
    for (said, told, repair) in ANSWERS {
        let (rig, answer, server) = called("", "2025-06-18").await;
        server.answer("200 OK", &["Content-Type: application/json"], said);
        settle().await;
        assert_eq!(answer.text(), told);
        assert_eq!(answer.header("content-length"), Some(told.len().to_string()));
        assert_eq!(count(&rig, "milepost_repairs_total", ("repair", repair)), 1.0, "{told}");

        let (rig, answer, server) = called("", "2025-06-18").await;
        server.events(&[]);
        for byte in [b"data: ", said, b"\n\n"].concat() {
            server.chunk([byte]);
            settle().await;
        }
        server.end();
        settle().await;
        assert_eq!(answer.messages(), [told]);
        assert_eq!(count(&rig, "milepost_repairs_total", ("repair", repair)), 1.0, "{told}");

        // On a listening stream the request of an error without id is unknown.
        let (mut rig, _answer, server) = called("", "2025-06-18").await;
        server.events(&[]);
        let (listens, listened) = listens(&mut rig).await;
        listened.chunk([b"data: ", said, b"\n\n"].concat());
        settle().await;
        let expected: &[&str] = if repair == "response-id" { &[] } else { &[told] };
        assert_eq!(listens.messages(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_pass_as_they_are_where_the_route_says_so() {
    for (said, _, repair) in ANSWERS {
        let (_rig, answer, server) =
            called(&format!("no_repair = [{repair:?}, \"missing-id\"]"), "2025-06-18").await;
        server.answer("200 OK", &["Content-Type: application/json"], said);
        settle().await;
        assert_eq!(answer.body(), said);
    }
}

#[tokio::test(start_paused = true)]
async fn large_events_and_bodies_are_readable_wherever_they_are_cut() {
    let text = "caf\u{e9} \\ud83d\\ude00 \\\\ud83d ".repeat(60_000);
    let said = |bad: &[u8]| {
        let head = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":""#;
        [head, bad, text.as_bytes(), bad, br#""}]}}"#].concat()
    };
    let (bad, good) = (&b"\xb0 \\ud83d \\udE00\xe4\xb8"[..], "\u{fffd} \\ufffd \\ufffd\u{fffd}");
    let expected = String::from_utf8(said(good.as_bytes())).unwrap();
    for step in [1021, 65_536, 4 << 20] {
        for is_event in [true, false] {
            let (rig, answer, server) = called("", "2025-06-18").await;
            if is_event {
                server.events(&[]);
                for piece in [b"data: ", &said(bad)[..], b"\n\n"].concat().chunks(step) {
                    server.chunk(piece);
                    settle().await;
                }
                server.end();
            } else {
                server.answer("200 OK", &["Content-Type: application/json"], said(bad));
            }
            pass(secs(1)).await;
            let told = answer.messages();
            assert!(told == [expected.clone()], "{step}, {is_event}: {} bytes", answer.length());
            assert_eq!(count(&rig, "milepost_repairs_total", ("repair", "unicode")), 1.0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn several_messages_in_one_event_are_separated() {
    let (rig, answer, server) = called("", "2025-06-18").await;
    server.events(&[]);
    server.chunk(format!("id: e\ndata: {}{} trailing\n\n", progress("7", "1"), result("1")));
    server.end();
    settle().await;
    assert_eq!(answer.messages(), [progress("7", "1"), result("1")]);
    assert_eq!(count(&rig, "milepost_repairs_total", ("repair", "split-line")), 2.0);
    check([&answer]);

    // A JSON body has room for only one message.
    for body in [
        format!("{}{}", progress("7", "1"), result("1")),
        format!("{}\n{}\n", result("1"), log("m")),
    ] {
        let (_rig, answer, server) = called("", "2025-06-18").await;
        server.json(&[], &body);
        settle().await;
        assert_eq!(answer.text(), result("1"), "{body}");
    }
}

/// Servers that are written by hand put an error without any envelope into the response.
#[tokio::test(start_paused = true)]
async fn an_error_without_an_envelope_answers_the_request_of_its_response() {
    for in_events in [true, false] {
        let (rig, answer, server) = called("", "2025-06-18").await;
        let error = r#"{"error":"no such index"}"#;
        if in_events {
            server.events(&[]);
            server.chunk(format!("event: message\ndata: {error}\n\n"));
            server.end();
        } else {
            server.json(&[], error);
        }
        pass(secs(1)).await;
        let expected =
            r#""error":{"code":-32603,"message":"no such index","data":"no such index"}"#;
        assert!(answer.text().contains(r#""id":1"#), "{}", answer.text());
        assert!(answer.text().contains(expected), "{}", answer.text());
        assert_eq!(count(&rig, "milepost_repairs_total", ("repair", "envelope")), 1.0);
        check([&answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_event_gets_the_blank_line_that_it_lacks() {
    for (keys, is_completed) in [("", true), ("no_repair = [\"event-name\"]", false)] {
        for (missing, added) in [("\n", "\n"), ("", "\n\n"), ("\r\n", "\n")] {
            let (rig, answer, server) = called(keys, "2025-06-18").await;
            server.events(&[]);
            let text = format!("data: {}{missing}", result("1"));
            server.chunk(&text);
            server.end();
            pass(secs(1)).await;
            if is_completed {
                assert_eq!(answer.text(), format!("{text}{added}"));
                check([&answer]);
            } else {
                assert!(answer.text().contains("without an answer"), "{}", answer.text());
            }
            let repaired = count(&rig, "milepost_repairs_total", ("repair", "event-name"));
            assert_eq!(repaired, f64::from(u8::from(is_completed)));
        }
    }
    // An incomplete event is not a message.
    let (_rig, answer, server) = called("", "2025-06-18").await;
    server.events(&[]);
    server.chunk(r#"data: {"jsonrpc":"2.0","id":1,"result":{"content":["#);
    server.end();
    pass(secs(1)).await;
    assert!(answer.text().contains("without an answer"), "{}", answer.text());
}

/// Clients begin a new session for status 404, and for no other.
#[tokio::test(start_paused = true)]
async fn a_session_that_the_server_does_not_know_is_refused_with_404() {
    let typescript = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
    for (status, body, expected) in [
        ("400 Bad Request", typescript, 404),
        ("400 Bad Request", "Unknown Mcp-Session-Id header", 404),
        ("503 Service Unavailable", "Session not found", 404),
        ("410 Gone", r#"{"error":"Session expired"}"#, 404),
        ("400 Bad Request", "no such tool", 400),
        ("503 Service Unavailable", "too many sessions", 503),
        ("403 Forbidden", "invalid session", 403),
    ] {
        let (_rig, answer, server) = called("", "2025-06-18").await;
        server.answer(status, &[], body);
        settle().await;
        assert_eq!((answer.status(), answer.text()), (expected, body.to_owned()), "{status}");
    }
    let (_rig, answer, server) = called("mode = \"observe\"", "2025-06-18").await;
    server.answer("400 Bad Request", &[], typescript);
    settle().await;
    assert_eq!(answer.status(), 400);
}

/// Some servers forget the end of a message, and leave the connection open.
#[tokio::test(start_paused = true)]
async fn a_whole_message_whose_end_does_not_come_is_taken_after_a_second() {
    for in_events in [true, false] {
        let (_rig, answer, server) = called("", "2025-06-18").await;
        let text = if in_events {
            server.events(&[]);
            format!("data: {}\n", result("1"))
        } else {
            server.raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
            result("1")
        };
        server.chunk(&text);
        pass(ms(900)).await;
        assert!(!in_events || answer.text().is_empty());
        pass(ms(200)).await;
        assert_eq!(answer.text(), if in_events { text + "\n" } else { text });
        check([&answer]);
    }
}
