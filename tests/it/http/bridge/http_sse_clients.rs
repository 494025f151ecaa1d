//! Clients of HTTP+SSE before a stdio server.

use crate::http::rig::{Answer, Lines, Rig, check, ms, pass, secs, settle};
use crate::observe::metrics::page::Page;
use crate::support::messages::{LOG, agreement, call, initialize, progress, result};

struct Wire {
    rig: Rig,
    server: Lines,
    stream: Answer,
    endpoint: String,
    posts: Vec<Answer>,
}

async fn open(keys: &str) -> Wire {
    let (rig, mut servers) = Rig::of_lines(keys);
    let stream = rig.send("GET /r/sse", &["Accept: text/event-stream"], b"");
    settle().await;
    let server = servers.try_recv().unwrap();
    let text = stream.text();
    let endpoint = text.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
    Wire { rig, server, stream, endpoint, posts: Vec::new() }
}

impl Wire {
    fn post(&self, body: impl AsRef<[u8]>) -> Answer {
        let start = format!("POST {}", self.endpoint);
        self.rig.send(&start, &["Content-Type: application/json"], body.as_ref())
    }

    async fn say(&mut self, body: impl AsRef<str>) {
        let answer = self.post(body.as_ref());
        settle().await;
        assert_eq!(answer.status(), 202);
        assert_eq!(self.server.line().await, body.as_ref());
        self.posts.push(answer);
    }

    /// Checks the client's messages against the rules.
    fn check(&self) {
        check(self.posts.iter().chain([&self.stream]));
    }
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_comes_first_and_lies_under_the_route() {
    let (one, two) = (open("").await, open("").await);
    assert!(one.endpoint.starts_with("/r/messages?sessionId="), "{}", one.endpoint);
    assert_eq!(one.endpoint.len(), "/r/messages?sessionId=".len() + 32);
    assert_ne!(one.endpoint, two.endpoint);
    assert_eq!(one.stream.header("content-type").as_deref(), Some("text/event-stream"));
}

#[tokio::test(start_paused = true)]
async fn a_post_is_accepted_at_once_and_answered_on_the_stream() {
    let mut wire = open("").await;
    wire.say(initialize("2024-11-05")).await;
    wire.server.say(agreement("2024-11-05"));
    settle().await;
    wire.say(call("1", "1")).await;
    wire.server.say(LOG);
    wire.server.say(progress("1", 1));
    pass(secs(1)).await;
    wire.server.say(result("1"));
    pass(secs(1)).await;
    let told = [agreement("2024-11-05"), LOG.to_owned(), progress("1", 1), result("1")];
    assert_eq!(wire.stream.messages(), told);
    assert!(!wire.stream.text().contains("id: "), "nobody comes back to such a stream");
    wire.check();
}

#[tokio::test(start_paused = true)]
async fn progress_and_answer_keep_their_distance() {
    let mut wire = open("").await;
    wire.say(call("1", "1")).await;
    wire.server.say(progress("1", 1));
    wire.server.say(progress("1", 2));
    wire.server.say(result("1"));
    pass(secs(1)).await;
    assert_eq!(
        wire.stream.messages(),
        [result("1")],
        "progress gives way to an answer that follows"
    );
    wire.say(call("2", "2")).await;
    pass(secs(1)).await;
    wire.server.say(progress("2", 1));
    pass(ms(40)).await;
    wire.server.say(result("2"));
    pass(secs(1)).await;
    let told = wire.stream.told();
    let (last, answer) = (&told[told.len() - 2], &told[told.len() - 1]);
    assert_eq!((&last.text, &answer.text), (&progress("2", 1), &result("2")));
    assert!(answer.at >= last.at + ms(50), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_an_hour() {
    let mut wire = open("heartbeat = { enabled = false }").await;
    wire.say(call("1", "1")).await;
    pass(secs(3600)).await;
    wire.server.say(result("1"));
    settle().await;
    assert_eq!(wire.stream.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn closing_the_stream_ends_the_session_and_its_server() {
    let mut wire = open("").await;
    wire.say(call("1", "1")).await;
    wire.stream.leave();
    pass(ms(10)).await;
    assert!(wire.server.is_closed());
    let answer = wire.post(call("2", "2"));
    settle().await;
    assert_eq!(answer.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_takes_the_stream_with_it() {
    let mut wire = open("").await;
    wire.say(call("1", "1")).await;
    let Wire { rig, server, stream, endpoint, .. } = wire;
    drop(server);
    pass(ms(10)).await;
    assert!(stream.is_over());
    assert!(stream.text().contains("the MCP server ended") && stream.text().contains(r#""id":1"#));
    let answer = rig.send(&format!("POST {endpoint}"), &[], b"{}");
    settle().await;
    assert_eq!(answer.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_wire_is_no_session_of_streamable_http() {
    let wire = open("").await;
    let id = wire.endpoint.split_once('=').unwrap().1;
    let answer = wire.rig.post(&[&format!("Mcp-Session-Id: {id}")], call("1", "1"));
    let other = wire.rig.send("POST /r/messages?sessionId=x", &[], call("1", "1").as_bytes());
    settle().await;
    assert_eq!((answer.status(), other.status()), (404, 404));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_requests_of_a_wire_get_an_error() {
    let mut wire = open("").await;
    wire.say(call("1", "1")).await;
    wire.rig.end_streams();
    pass(ms(10)).await;
    assert!(wire.stream.is_over() && wire.server.is_closed());
    assert!(wire.stream.text().contains("shutting down"));
    wire.check();
}

#[tokio::test(start_paused = true)]
async fn a_large_message_passes_on_a_wire() {
    let mut wire = open("").await;
    let text = "y".repeat(5 << 20);
    let asks =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"x":"{text}"}}}}"#);
    let answer = wire.post(&asks);
    for _ in 0..100 {
        settle().await;
    }
    assert_eq!(answer.status(), 202);
    assert!(wire.server.line().await == asks);
    let says = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":"{text}"}}}}"#);
    wire.server.say(&says);
    for _ in 0..200 {
        settle().await;
    }
    assert_eq!(wire.stream.messages().len(), 1);
    assert!(wire.stream.messages()[0].trim_end() == says);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_leaves_is_counted_as_such() {
    let mut wire = open("").await;
    wire.say(call("1", "1")).await;
    drop(wire.stream);
    pass(secs(60)).await;
    let page = Page::read(&wire.rig.metrics());
    let counted = |outcome| page.sum("milepost_calls_total", &[("outcome", outcome)]);
    assert_eq!(counted("client left"), 1.0);
    assert_eq!(counted("server gone"), 0.0);
}
