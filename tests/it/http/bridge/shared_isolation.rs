//! Clients of 2026-07-28 that share a stdio server can do nothing to each other.

use serde_json::Value;
use tokio::sync::mpsc;

use crate::http::rig::{Answer, Lines, Rig, ms, pass, secs, settle};
use crate::support::messages::{LOG, headers_of, modern, modern_call, progress, result};

struct Shared {
    rig: Rig,
    servers: mpsc::UnboundedReceiver<Lines>,
}

impl Shared {
    fn new(keys: &str) -> Self {
        let (rig, servers) = Rig::of_lines(keys);
        Self { rig, servers }
    }

    fn post(&self, body: &str) -> Answer {
        self.post_as("Authorization: Bearer one", body)
    }

    fn post_as(&self, who: &str, body: &str) -> Answer {
        let headers = headers_of(body);
        let headers: Vec<&str> = headers.iter().map(String::as_str).chain([who]).collect();
        self.rig.post(&headers, body)
    }

    #[track_caller]
    fn server(&mut self) -> Lines {
        self.servers.try_recv().expect("no server was started")
    }
}

/// Returns the id by which the server knows a request.
fn id(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    line["id"].to_string()
}

fn token(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    line["params"]["_meta"]["progressToken"].to_string()
}

#[tokio::test(start_paused = true)]
async fn notifications_are_accepted_and_cannot_harm_others() {
    let mut shared = Shared::new("");
    let open = shared.post(&modern_call("1", "1"));
    settle().await;
    let mut server = shared.server();
    server.told().await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    for body in [cancel, r#"{"jsonrpc":"2.0","method":"notifications/other"}"#] {
        let answer = shared.post(body);
        settle().await;
        assert_eq!((answer.status(), answer.text().len()), (202, 0));
    }
    let answer = shared.post(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    settle().await;
    assert_eq!(answer.status(), 400);
    assert!(server.told().await.is_empty());
    assert!(open.is_silent());
}

#[tokio::test(start_paused = true)]
async fn there_is_nothing_to_get_and_nothing_to_delete() {
    let shared = Shared::new("");
    for method in ["GET /r", "DELETE /r"] {
        let headers =
            ["MCP-Protocol-Version: 2026-07-28", "Accept: text/event-stream", "Last-Event-ID: 1-1"];
        let answer = shared.rig.send(method, &headers, b"");
        settle().await;
        assert_eq!(answer.status(), 405);
    }
}

#[tokio::test(start_paused = true)]
async fn headers_must_say_what_the_body_says() {
    let mut shared = Shared::new("");
    let answer = shared.rig.post(&["Mcp-Method: tools/list"], modern_call("1", "1"));
    settle().await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("-32020"));
    assert!(shared.servers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_keeps_no_other_waiting() {
    let mut shared = Shared::new("heartbeat = { enabled = false }");
    let slow = shared.post(&modern_call("1", "1"));
    settle().await;
    let mut server = shared.server();
    let line = server.line().await;
    server.say(progress(token(&line), 1));
    settle().await;
    slow.pause(true);
    let text = "z".repeat(32 << 10);
    for value in 2..200 {
        let words = format!(r#""message":"{text}","progress":"#);
        server.say(progress(token(&line), value).replace(r#""progress":"#, &words));
    }
    let other = shared.post(&modern_call("1", "1"));
    pass(secs(1)).await;
    let line = server.told().await.pop().unwrap();
    server.say(result(id(&line)));
    pass(secs(5)).await;
    assert_eq!(other.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_a_stream_of_its_own() {
    let mut shared = Shared::new("");
    let listens = [0; 2].map(|_| shared.post(&modern("3", "subscriptions/listen", "")));
    settle().await;
    let mut server = shared.server();
    let lines = server.told().await;
    let acknowledged = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };
    server.say(acknowledged(&id(&lines[0])));
    server.say(LOG);
    settle().await;
    assert_eq!(listens[0].messages(), [acknowledged("3")]);
    assert!(listens[1].is_silent());
}

#[tokio::test(start_paused = true)]
async fn a_shared_server_that_nobody_uses_is_ended_and_started_anew() {
    let mut shared = Shared::new("upstream.idle_timeout = \"60s\"");
    let answer = shared.post(&modern_call("1", "1"));
    settle().await;
    let mut server = shared.server();
    pass(secs(120)).await;
    assert!(!server.is_closed(), "a call is open");
    let line = server.told().await.pop().unwrap();
    server.say(result(id(&line)));
    settle().await;
    assert!(answer.is_over());
    pass(secs(70)).await;
    assert!(server.is_closed());
    let answer = shared.post(&modern_call("2", "2"));
    settle().await;
    let mut server = shared.server();
    let line = server.line().await;
    server.say(result(id(&line)));
    settle().await;
    assert_eq!(answer.text(), result("2"));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_requests_of_shared_servers_get_an_error() {
    let mut shared = Shared::new("");
    let answers = [0; 2].map(|_| shared.post(&modern_call("1", "1")));
    settle().await;
    let server = shared.server();
    shared.rig.end_streams();
    pass(ms(10)).await;
    for answer in &answers {
        assert_eq!(answer.status(), 503);
        assert!(answer.text().contains("shutting down") && answer.text().contains(r#""id":1"#));
    }
    assert!(server.is_closed());
}
