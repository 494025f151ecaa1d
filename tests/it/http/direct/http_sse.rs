//! HTTP+SSE of 2024-11-05: one stream for everything that is said, and an endpoint to post to.

use crate::http::direct::transcripts_over_http::Wire;
use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, secs, settle};
use crate::observe::metrics::page::Page;
use crate::support::messages::*;

const EVENTS: [&str; 1] = ["Accept: text/event-stream"];

#[tokio::test(start_paused = true)]
async fn the_endpoint_lies_under_the_route() {
    for (named, on_server) in [
        ("/messages/?session_id=a", "/messages/?session_id=a"),
        ("messages?x=1&y=%20", "/base/messages?x=1&y=%20"),
        ("?sid=2", "/base/sse?sid=2"),
        ("http://up.example/messages?sid=a", "/messages?sid=a"),
        ("http://up.example:80/messages?sid=b", "/messages?sid=b"),
        ("//up.example/m?sid=c", "/m?sid=c"),
        ("/plain", "/plain"),
    ] {
        let mut rig = Rig::new("");
        let stream = rig.send("GET /r/sse", &EVENTS, b"");
        let server = rig.asked().await;
        server.events(&[]);
        server.chunk(format!("event: endpoint\r\ndata: {named}\r\n\r\n"));
        settle().await;
        let blocks = stream.blocks();
        assert_eq!(blocks.len(), 1);
        let path = String::from_utf8(blocks[0].data.clone().unwrap()).unwrap();
        assert!(path.starts_with("/r/messages?"), "{path}");
        let posted = rig.send(&format!("POST {path}"), &[], call("1", "7").as_bytes());
        let asked = rig.asked().await;
        assert_eq!(asked.what(), format!("POST {on_server}"), "{named}");
        assert_eq!(asked.text(), call("1", "7"));
        asked.answer("202 Accepted", &["Content-Type: text/plain"], "Accepted");
        settle().await;
        assert_eq!((posted.status(), posted.text()), (202, "Accepted".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_lies_under_the_public_url() {
    let server = "[server]\npublic_url = \"https://front.example/mcp\"\n";
    for (top, keys, expected) in [
        ("", "public_url = \"https://front.example/mcp/tools/\"", "/mcp/tools/messages?"),
        (server, "", "/mcp/r/messages?"),
        (server, "public_url = \"https://other.example\"", "/messages?"),
    ] {
        let mut rig = Rig::with(top, keys);
        let stream = rig.send("GET /r/sse", &EVENTS, b"");
        let server = rig.asked().await;
        server.events(&[]);
        server.chunk("event: endpoint\ndata: /messages?sid=a\n\n");
        settle().await;
        let path = String::from_utf8(stream.blocks()[0].data.clone().unwrap()).unwrap();
        let key = path.strip_prefix(expected).unwrap_or_else(|| panic!("{path}"));
        // The front removes its prefix again.
        let _posted = rig.send(&format!("POST /r/messages?{key}"), &[], call("1", "7").as_bytes());
        assert_eq!(rig.asked().await.what(), "POST /messages?sid=a");
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_are_the_same_for_all_are_told_apart() {
    let mut rig = Rig::new("heartbeat.enabled = false");
    let mut clients = Vec::new();
    for _ in 0..3 {
        let stream = rig.send("GET /r/sse", &EVENTS, b"");
        let server = rig.asked().await;
        server.events(&[]);
        server.chunk("event: endpoint\ndata: /messages\n\n");
        settle().await;
        let path = String::from_utf8(stream.blocks()[0].data.clone().unwrap()).unwrap();
        clients.push((stream, server, path));
    }
    // All clients use the same ids and tokens.
    let mut posted = Vec::new();
    for (_, _, path) in &clients {
        posted.push(rig.send(&format!("POST {path}"), &[], call("1", "1").as_bytes()));
        let asked = rig.asked().await;
        assert_eq!(asked.what(), "POST /messages");
        asked.accept();
        settle().await;
    }
    pass(secs(1)).await;
    for (number, (_, server, _)) in clients.iter().enumerate() {
        server.say(progress("1", number.to_string()));
    }
    pass(secs(1)).await;
    for (_, server, _) in &clients {
        server.say(result("1"));
    }
    pass(secs(1)).await;
    for (number, (stream, ..)) in clients.iter().enumerate() {
        assert_eq!(stream.messages(), [progress("1", number.to_string()), result("1")]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_elsewhere_closes_the_stream() {
    for named in [
        "http://169.254.169.254/",
        "http://up.example:8080/messages",
        "https://up.example/messages",
        "//evil.example/messages",
        "http://up.example@evil.example/",
        "javascript:alert(1)",
        "http://[::1",
    ] {
        let mut rig = Rig::new("");
        let stream = rig.send("GET /r/sse", &EVENTS, b"");
        let server = rig.asked().await;
        server.events(&[]);
        server.chunk(format!("event: endpoint\ndata: {named}\n\n{}", event(&log("m"))));
        settle().await;
        let reached = stream.blocks().iter().any(|block| block.name.as_deref() == Some("endpoint"));
        assert!(!reached, "{named}: {}", stream.text());
        assert_eq!(stream.text(), "", "{named}");
        assert!(stream.is_over(), "{named}");
        assert!(server.left().is_some(), "{named}");
        assert!(rig.try_asked().await.is_none());
    }
}

/// A stream whose endpoint is known, and a call that was posted for it.
async fn stream_with_a_call() -> (Rig, Answer, Asked, String) {
    let mut rig = Rig::new("heartbeat.enabled = false");
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let server = rig.asked().await;
    server.events(&[]);
    server.chunk("event: endpoint\ndata: /messages?sid=a\n\n");
    settle().await;
    let path = String::from_utf8(stream.blocks()[0].data.clone().unwrap()).unwrap();
    let _posted = rig.send(&format!("POST {path}"), &[], call("1", "1").as_bytes());
    rig.asked().await.accept();
    settle().await;
    (rig, stream, server, path)
}

#[tokio::test(start_paused = true)]
async fn a_later_endpoint_elsewhere_ends_the_stream_with_an_error() {
    let (mut rig, stream, server, _) = stream_with_a_call().await;
    server.chunk("event: endpoint\ndata: http://169.254.169.254/latest\n\n");
    settle().await;
    assert!(!stream.text().contains("169.254"), "{}", stream.text());
    let messages = stream.messages();
    let [error] = &messages[..] else { panic!("{}", stream.text()) };
    assert!(error.contains("an endpoint of another origin"), "{error}");
    assert!(stream.is_over());
    assert!(server.left().is_some());
    assert!(rig.try_asked().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_later_endpoint_lies_under_the_route_too() {
    let (mut rig, stream, server, path) = stream_with_a_call().await;
    server.chunk("event: endpoint\ndata: http://up.example/elsewhere?sid=b\n\n");
    settle().await;
    let blocks = stream.blocks();
    assert_eq!(blocks.len(), 2, "{}", stream.text());
    assert_eq!(blocks[1].data.as_deref(), Some(path.as_bytes()));
    let _posted = rig.send(&format!("POST {path}"), &[], call("2", "2").as_bytes());
    assert_eq!(rig.asked().await.what(), "POST /elsewhere?sid=b");
    assert!(!stream.is_over());
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_in_an_event_too_large_to_hold_reaches_no_client() {
    let (mut rig, stream, server, _) = stream_with_a_call().await;
    let comments = format!(": {}\n", "x".repeat(1000)).repeat(1200);
    // The name of the event is cut in the middle.
    server.chunk(format!("{comments}event: end"));
    settle().await;
    server.chunk("point\ndata: http://169.254.169.254/latest\n\n");
    settle().await;
    assert!(!stream.text().contains("169.254"));
    assert!(stream.is_over());
    assert!(server.left().is_some());
    assert!(rig.try_asked().await.is_none());
}

/// A leading control character is not part of an address: the rest is the address of the stream.
#[tokio::test(start_paused = true)]
async fn an_odd_endpoint_of_the_same_server_is_posted_to() {
    let mut rig = Rig::new("");
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let server = rig.asked().await;
    let place = server.what().split_once(' ').unwrap().1.to_owned();
    server.events(&[]);
    server.chunk("event: endpoint\ndata: \u{0}\n\n");
    settle().await;
    let blocks = stream.blocks();
    let [endpoint] = &blocks[..] else { panic!("{}", stream.text()) };
    assert_eq!(endpoint.name.as_deref(), Some("endpoint"));
    let endpoint = String::from_utf8(endpoint.data.clone().unwrap()).unwrap();
    let _posted = rig.send(&format!("POST {endpoint}"), &[], call("1", "1").as_bytes());
    let asked = rig.asked().await;
    assert_eq!(asked.what(), format!("POST {place}"));
    assert_eq!(asked.request.header("host"), Some("up.example"));
    assert!(!stream.is_over());
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_before_the_endpoint() {
    let mut rig = Rig::new("");
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let server = rig.asked().await;
    server.events(&[]);
    pass(secs(100)).await;
    assert_eq!(stream.text(), "");
    server.chunk("event: endpoint\ndata: /m?s=1\n\n");
    settle().await;
    assert_eq!(stream.text(), "event: endpoint\ndata: /r/messages?s=1\n\n");
    pass(secs(16)).await;
    assert_eq!(stream.blocks().len(), 2, "comments from here on");
    // A second endpoint event is not a message.
    server.chunk("event: endpoint\ndata: /m?s=2\n\n");
    settle().await;
    assert_eq!(stream.blocks().len(), 3);
    let nobody = rig.send("POST /r/messages?s=2", &[], b"{}");
    settle().await;
    assert_eq!(nobody.status(), 404);
    assert!(rig.try_asked().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_come_before_its_post_is_accepted() {
    let mut wire = Wire::open(Rig::new("")).await;
    let posted = wire.rig.send(&format!("POST {}", wire.path), &[], call("1", "7").as_bytes());
    let asked = wire.rig.asked().await;
    wire.server.say(result("1"));
    settle().await;
    assert_eq!(wire.stream.messages(), [result("1")]);
    assert!(posted.is_silent());
    asked.accept();
    pass(secs(30)).await;
    assert_eq!(posted.status(), 202);
    assert_eq!(wire.stream.messages(), [result("1")], "and no heartbeats");
    check([&wire.stream, &posted]);
}

#[tokio::test(start_paused = true)]
async fn a_post_that_is_refused_opens_nothing() {
    let mut wire = Wire::open(Rig::new("")).await;
    for status in ["400 Bad Request", "401 Unauthorized", "503 Service Unavailable"] {
        let posted = wire.rig.send(&format!("POST {}", wire.path), &[], call("1", "7").as_bytes());
        let challenge = ["WWW-Authenticate: Bearer", "Content-Type: text/plain"];
        wire.rig.asked().await.answer(status, &challenge, "no\n");
        settle().await;
        assert_eq!(posted.spoken().unwrap().start, format!("HTTP/1.1 {status}"));
        assert_eq!(posted.text(), "no\n");
        assert_eq!(posted.header("www-authenticate").as_deref(), Some("Bearer"));
        wire.server.say(progress("7", "1"));
        pass(secs(10)).await;
        assert!(wire.stream.messages().is_empty(), "{status}");
    }
    pass(secs(4)).await;
    wire.rig.refuse_connections(true);
    let posted = wire.rig.send(&format!("POST {}", wire.path), &[], call("1", "7").as_bytes());
    pass(secs(10)).await;
    assert_eq!(posted.status(), 502);
    assert!(wire.stream.messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_stream_knows_nothing_of_the_old_one() {
    let mut wire = Wire::open(Rig::new("")).await;
    wire.post(call("1", "7").as_bytes()).await;
    wire.stream.leave();
    settle().await;
    assert!(wire.server.left().is_some());
    let nobody = wire.rig.send(&format!("POST {}", wire.path), &[], b"{}");
    settle().await;
    assert_eq!(nobody.status(), 404, "the endpoint has gone with its stream");
    assert!(wire.rig.try_asked().await.is_none());
    let mut again = Wire::open(wire.rig).await;
    again.server.say(progress("7", "5"));
    pass(secs(30)).await;
    assert!(again.stream.messages().is_empty());
    again.post(call("2", "7").as_bytes()).await;
    pass(secs(1)).await;
    again.server.say(progress("7", "1"));
    pass(secs(1)).await;
    assert_eq!(again.stream.messages(), [progress("7", "1")]);
}

#[tokio::test(start_paused = true)]
async fn g3_progress_keeps_its_distance_from_answers() {
    let mut wire = Wire::open(Rig::new("")).await;
    let begin = wire.rig.now();
    wire.post(call("1", "7").as_bytes()).await;
    wire.server.say(progress("7", "1"));
    pass(ms(200)).await;
    wire.server.say(progress("7", "2"));
    pass(ms(40)).await;
    wire.server.say(result("1"));
    pass(secs(1)).await;
    let told = wire.stream.told();
    let times: Vec<_> = told.iter().map(|told| told.at - begin).collect();
    // The report waits until the call is 150 ms old, is held for 30 ms, and the answer comes 50 ms after it.
    assert_eq!(times, [ms(150), ms(230), ms(280)]);
    check(wire.posted.iter().chain([&wire.stream]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_answers_what_is_open() {
    for cut in ["", "data: {\"half", "data: {}\n"] {
        let mut wire = Wire::open(Rig::new("")).await;
        wire.post(call("1", "7").as_bytes()).await;
        wire.server.say(log("m"));
        if !cut.is_empty() {
            wire.server.chunk(cut);
        }
        settle().await;
        wire.server.die();
        settle().await;
        let messages = wire.stream.messages();
        assert_eq!(messages.len(), 2, "{cut:?}: {messages:?}");
        assert_eq!(messages[0], log("m"));
        assert!(messages[1].starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603"#));
        assert!(wire.stream.is_over());
        check(wire.posted.iter().chain([&wire.stream]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_on_a_wire_is_answered_and_the_server_told() {
    let mut wire = Wire::open(Rig::new("call_timeout = \"10s\"")).await;
    wire.post(call("1", "7").as_bytes()).await;
    pass(secs(11)).await;
    let messages = wire.stream.messages();
    assert!(messages.last().unwrap().contains(r#""id":1,"error""#), "{messages:?}");
    let told = wire.rig.asked().await;
    assert_eq!(told.what(), "POST /base/messages?session_id=1");
    assert!(told.text().contains(r#""method":"notifications/cancelled","params":{"requestId":1"#));
    told.accept();
    settle().await;
    check(wire.posted.iter().chain([&wire.stream]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_refused_is_refused_as_the_server_does_it() {
    let mut rig = Rig::new("");
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let challenge = ["WWW-Authenticate: Bearer a", "WWW-Authenticate: Basic"];
    rig.asked().await.answer("401 Unauthorized", &challenge, "who?");
    settle().await;
    assert_eq!((stream.status(), stream.text()), (401, "who?".to_owned()));
    assert_eq!(stream.all("www-authenticate"), ["Bearer a", "Basic"]);
    let post = rig.send("POST /r/sse", &[], b"{}");
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /base/sse");
    asked.answer("405 Method Not Allowed", &[], "");
    settle().await;
    assert_eq!(post.status(), 405);
}

#[tokio::test(start_paused = true)]
async fn a_wire_passes_everything_else_byte_for_byte() {
    let wire = Wire::open(Rig::new("heartbeat.enabled = false")).await;
    let before = wire.stream.body().len();
    let stream = [
        event_with("e1", &log("m")),
        ": ping\r\n\r\n".to_owned(),
        "event: message\r\ndata: {\"jsonrpc\":\r\ndata: \"2.0\",\"method\":\"x\"}\r\n\r\n"
            .to_owned(),
        "event: other\ndata: text\n\n".to_owned(),
        "retry: 5\n\n".to_owned(),
        "data: {\"jsonrpc\":\"2.0\",\"id\":\"s\",\"method\":\"ping\"}\n\n".to_owned(),
    ];
    for chunk in stream.concat().as_bytes().chunks(5) {
        wire.server.chunk(chunk);
        settle().await;
    }
    assert_eq!(String::from_utf8_lossy(&wire.stream.body()[before..]), stream.concat());
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_leaves_is_counted_as_such() {
    let mut rig = Rig::new("");
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let server = rig.asked().await;
    server.events(&[]);
    server.chunk("event: endpoint\ndata: /messages\n\n");
    settle().await;
    let path = String::from_utf8(stream.blocks()[0].data.clone().unwrap()).unwrap();
    let posted = rig.send(&format!("POST {path}"), &[], call("1", "7").as_bytes());
    rig.asked().await.accept();
    settle().await;
    drop((stream, posted));
    pass(secs(60)).await;
    let page = Page::read(&rig.metrics());
    assert_eq!(page.sum("milepost_calls_total", &[("outcome", "client left")]), 1.0);
    assert_eq!(page.sum("milepost_calls_total", &[]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_the_server_refuses_changes_nothing() {
    let mut rig = Rig::new("heartbeat.enabled = false");
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let server = rig.asked().await;
    server.events(&[]);
    server.chunk("event: endpoint\ndata: /messages\n\n");
    settle().await;
    let path = String::from_utf8(stream.blocks()[0].data.clone().unwrap()).unwrap();
    let post = format!("POST {path}");
    let posted = rig.send(&post, &[], call("1", "7").as_bytes());
    rig.asked().await.accept();
    settle().await;
    let cancels = rig.send(&post, &[], cancelled("1").as_bytes());
    rig.asked().await.answer("401 Unauthorized", &[], "");
    settle().await;
    assert_eq!((posted.status(), cancels.status()), (202, 401));
    pass(secs(1)).await;
    server.say(progress("7", "1"));
    pass(secs(1)).await;
    server.say(result("1"));
    pass(secs(1)).await;
    assert_eq!(stream.messages(), [progress("7", "1"), result("1")]);
}

/// A client's stream, how it posts there, and the server's side.
async fn opened(rig: &mut Rig) -> (Answer, String, Asked) {
    let stream = rig.send("GET /r/sse", &EVENTS, b"");
    let server = rig.asked().await;
    server.events(&[]);
    server.chunk("event: endpoint\ndata: /messages\n\n");
    settle().await;
    let path = String::from_utf8(stream.blocks()[0].data.clone().unwrap()).unwrap();
    (stream, format!("POST {path}"), server)
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_clients_stream_is_nobodys() {
    let mut rig = Rig::new("heartbeat.enabled = false");
    let (ours, post, one) = opened(&mut rig).await;
    let (theirs, other, two) = opened(&mut rig).await;
    for (post, id, token) in [(&post, "1", "7"), (&other, "2", "9")] {
        let _posted = rig.send(post, &[], call(id, token).as_bytes());
        rig.asked().await.accept();
        settle().await;
    }
    pass(secs(1)).await;
    two.say(report("7", "1", "ours"));
    pass(secs(1)).await;
    assert!(theirs.messages().is_empty(), "{:?}", theirs.messages());
    // The server's id for the second call means the second call only.
    two.say(report("2", "1", "by id"));
    pass(secs(1)).await;
    assert_eq!(theirs.messages(), [report("9", "1", "by id")]);
    one.say(result("1"));
    pass(secs(1)).await;
    // After the end of the call its token may be used by the server for another call.
    two.say(report("7", "2", "invented"));
    pass(secs(1)).await;
    assert_eq!(theirs.messages().last(), Some(&report("9", "2", "invented")));
    assert_eq!(ours.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_an_array_counts_once_the_server_has_taken_it() {
    for (status, shown) in [("401 Unauthorized", true), ("202 Accepted", false)] {
        let mut rig = Rig::new("heartbeat.enabled = false");
        let (stream, post, server) = opened(&mut rig).await;
        let _posted = rig.send(&post, &[], call("1", "7").as_bytes());
        rig.asked().await.accept();
        settle().await;
        let array = format!("[{},{}]", call("2", "8"), cancelled("1"));
        let _second = rig.send(&post, &[], array.as_bytes());
        let asked = rig.asked().await;
        pass(secs(1)).await;
        server.say(progress("7", "1"));
        pass(secs(1)).await;
        assert_eq!(stream.messages(), [progress("7", "1")], "it is on its way");
        asked.answer(status, &[], "");
        pass(secs(1)).await;
        server.say(progress("7", "2"));
        pass(secs(1)).await;
        assert_eq!(stream.messages().contains(&progress("7", "2")), shown, "{status}");
    }
}
