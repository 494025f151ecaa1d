//! Clients of 2026-07-28 before a stdio server: one child for all that present the same `Authorization`,
//! and nobody sees what is another's.

use serde_json::Value;
use tokio::sync::mpsc;

use super::bridge::{LOG, begin, progress, result};
use super::rig::{Answer, Lines, Rig, check, ms, pass, secs, settle};

const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;

fn request(id: &str, method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{{META}}}}}}}"#
    )
}

fn call(id: &str, token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{{META},"progressToken":{token}}}}}}}"#
    )
}

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
        self.rig.post(&[who, "MCP-Protocol-Version: 2026-07-28"], body)
    }

    #[track_caller]
    fn server(&mut self) -> Lines {
        self.servers.try_recv().expect("no server was started")
    }
}

/// What the server knows a request by.
fn id(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    line["id"].to_string()
}

fn token(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    line["params"]["_meta"]["progressToken"].to_string()
}

#[tokio::test(start_paused = true)]
async fn clients_with_equal_ids_and_tokens_share_a_server_and_see_nothing_of_each_other() {
    let mut shared = Shared::new("");
    let answers = [0; 3].map(|_| shared.post(&call("1", "\"t\"")));
    settle().await;
    let mut server = shared.server();
    assert!(shared.servers.try_recv().is_err(), "one server is enough");
    let lines = server.told().await;
    assert_eq!(lines.len(), 3);
    for value in 1..4 {
        for line in &lines {
            server.say(progress(&token(line), value));
        }
    }
    server.say(result(&id(&lines[1])));
    settle().await;
    assert!(!answers[0].is_over() && answers[1].is_over() && !answers[2].is_over());
    server.say(result(&id(&lines[2])));
    server.say(result(&id(&lines[0])));
    settle().await;
    let told = [1, 2, 3].map(|value| progress("\"t\"", value));
    for answer in &answers {
        assert_eq!(answer.messages(), [&told[..], &[result("1")]].concat());
        assert!(!answer.text().contains("id: "), "there is nothing to come back for");
        check([answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn each_authorization_has_a_server_of_its_own() {
    let mut shared = Shared::new("");
    let one = shared.post_as("Authorization: Bearer one", &call("1", "1"));
    settle().await;
    let first = shared.server();
    let two = shared.post_as("Authorization: Bearer two", &call("1", "1"));
    settle().await;
    let mut second = shared.server();
    let line = second.line().await;
    second.say(result(&id(&line)));
    settle().await;
    assert!(one.is_silent());
    assert_eq!(two.text(), result("1"));
    assert!(!first.is_closed());
}

#[tokio::test(start_paused = true)]
async fn who_leaves_gives_the_request_up() {
    let mut shared = Shared::new("");
    let [gone, stays] = [0; 2].map(|_| shared.post(&call("1", "1")));
    settle().await;
    let mut server = shared.server();
    let lines = server.told().await;
    server.say(progress(&token(&lines[0]), 1));
    settle().await;
    gone.leave();
    settle().await;
    let told: Value = serde_json::from_str(&server.line().await).unwrap();
    assert_eq!(told["method"], "notifications/cancelled");
    assert_eq!(told["params"]["requestId"].to_string(), id(&lines[0]));
    server.say(progress(&token(&lines[0]), 2));
    server.say(result(&id(&lines[0])));
    server.say(result(&id(&lines[1])));
    settle().await;
    assert_eq!(stays.messages(), [result("1")]);
    // Also one that has left before anything was said.
    let gone = shared.post(&call("2", "2"));
    settle().await;
    let line = server.line().await;
    gone.leave();
    settle().await;
    assert!(server.line().await.contains(&format!(r#""requestId":{}"#, id(&line))));
}

#[tokio::test(start_paused = true)]
async fn statuses_are_those_of_the_specification() {
    let mut shared = Shared::new("");
    let mut server = None;
    for (code, status) in
        [(-32601, 404), (-32602, 400), (-32020, 400), (-32021, 400), (-32022, 400), (-32000, 200)]
    {
        let answer = shared.post(&request("7", "tools/list", ""));
        settle().await;
        let server = server.get_or_insert_with(|| shared.servers.try_recv().unwrap());
        let line = server.line().await;
        let error = |id: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no"}}}}"#)
        };
        server.say(error(&id(&line)));
        settle().await;
        assert_eq!((answer.status(), answer.text()), (status, error("7")));
    }
    // Behind something else there is no other status to give.
    let answer = shared.post(&call("8", "8"));
    settle().await;
    let mut server = server.unwrap();
    let line = server.line().await;
    server.say(progress(&token(&line), 1));
    server.say(format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"no"}}}}"#,
        id(&line)
    ));
    settle().await;
    assert_eq!((answer.status(), answer.messages().len()), (200, 2));
}

#[tokio::test(start_paused = true)]
async fn notifications_are_accepted_and_cannot_harm_others() {
    let mut shared = Shared::new("");
    let open = shared.post(&call("1", "1"));
    settle().await;
    let mut server = shared.server();
    server.told().await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let fine = r#"{"jsonrpc":"2.0","method":"notifications/other"}"#;
    for body in [cancel, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, fine] {
        let answer = shared.post(body);
        settle().await;
        assert_eq!((answer.status(), answer.text().len()), (202, 0));
    }
    assert_eq!(server.told().await, [fine]);
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
    let answer = shared.rig.post(&["Mcp-Method: tools/list"], call("1", "1"));
    settle().await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("-32020"));
    assert!(shared.servers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_shared_clients_fall_back_to_sessions() {
    let mut shared = Shared::new("upstream.share = false");
    let answer = shared.post(&request("0", "server/discover", ""));
    settle().await;
    assert_eq!(answer.status(), 400);
    let error: Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!((&error["id"], &error["error"]["code"]), (&0.into(), &(-32022).into()));
    assert_eq!(error["error"]["data"]["requested"], "2026-07-28");
    assert_eq!(error["error"]["data"]["supported"].as_array().unwrap().len(), 4);
    assert!(shared.servers.try_recv().is_err());
    begin(&shared.rig, &mut shared.servers, "2025-11-25").await;
}

#[tokio::test(start_paused = true)]
async fn only_the_first_client_waits_for_a_server_that_does_not_know_discover() {
    let mut shared = Shared::new("");
    let first = shared.post(&request("0", "server/discover", ""));
    settle().await;
    let mut server = shared.server();
    let line = server.line().await;
    pass(secs(9)).await;
    assert!(first.is_silent());
    pass(secs(2)).await;
    assert_eq!(first.status(), 404);
    assert!(first.text().contains("-32601") && first.text().contains(r#""id":0"#));
    // An answer that comes late goes no further.
    let late = r#","error":{"code":-32601,"message":"late"}}"#;
    server.say(format!(r#"{{"jsonrpc":"2.0","id":{}{late}"#, id(&line)));
    settle().await;
    let second = shared.post_as("Authorization: Bearer two", &request("5", "server/discover", ""));
    settle().await;
    assert_eq!(second.status(), 404);
    assert!(second.text().contains(r#""id":5"#));
    assert!(shared.servers.try_recv().is_err(), "it needs no server");
    begin(&shared.rig, &mut shared.servers, "2025-11-25").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_is_started_again_after_a_pause_that_grows() {
    let mut shared = Shared::new("");
    let mut starts = Vec::new();
    for _ in 0..4 {
        let answer = shared.post(&call("1", "1"));
        let server = loop {
            pass(ms(50)).await;
            if let Ok(server) = shared.servers.try_recv() {
                break server;
            }
        };
        starts.push(shared.rig.now());
        settle().await;
        drop(server);
        pass(ms(10)).await;
        assert!(answer.text().contains("the MCP server ended"), "{}", answer.text());
    }
    let pauses: Vec<u128> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert!(pauses[0] < 200, "{pauses:?}");
    assert!((500..700).contains(&pauses[1]) && (1000..1200).contains(&pauses[2]), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_to_be_started_again_is_missed_with_an_error() {
    let mut shared = Shared::new("upstream.restart = false");
    let answer = shared.post(&call("1", "1"));
    settle().await;
    drop(shared.server());
    pass(ms(10)).await;
    assert!(answer.text().contains("the MCP server ended"));
    let answer = shared.post(&call("2", "2"));
    pass(secs(1)).await;
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("restart") && answer.text().contains(r#""id":2"#));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_keeps_no_other_waiting() {
    let mut shared = Shared::new("heartbeat = { enabled = false }");
    let slow = shared.post(&call("1", "1"));
    settle().await;
    let mut server = shared.server();
    let line = server.line().await;
    server.say(progress(&token(&line), 1));
    settle().await;
    slow.pause(true);
    let text = "z".repeat(32 << 10);
    for value in 2..200 {
        let words = format!(r#""message":"{text}","progress":"#);
        server.say(progress(&token(&line), value).replace(r#""progress":"#, &words));
    }
    let other = shared.post(&call("1", "1"));
    pass(secs(1)).await;
    let line = server.told().await.pop().unwrap();
    server.say(result(&id(&line)));
    pass(secs(5)).await;
    assert_eq!(other.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_finds_its_client() {
    let mut shared = Shared::new("");
    let answers = [0; 2].map(|_| shared.post(&call("1", "1")));
    settle().await;
    let mut server = shared.server();
    let lines = server.told().await;
    let text = "y".repeat(2 << 20);
    let says = |id: &str| format!(r#"{{"jsonrpc":"2.0","result":{{"x":"{text}"}},"id":{id}}}"#);
    for line in &lines {
        server.say(says(&id(line)));
    }
    for _ in 0..100 {
        settle().await;
    }
    for answer in &answers {
        assert!(answer.is_over() && answer.text().trim_end() == says("1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_a_stream_of_its_own() {
    let mut shared = Shared::new("");
    let listens = [0; 2].map(|_| shared.post(&request("3", "subscriptions/listen", "")));
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
    let answer = shared.post(&call("1", "1"));
    settle().await;
    let mut server = shared.server();
    pass(secs(120)).await;
    assert!(!server.is_closed(), "a call is open");
    let line = server.told().await.pop().unwrap();
    server.say(result(&id(&line)));
    settle().await;
    assert!(answer.is_over());
    pass(secs(70)).await;
    assert!(server.is_closed());
    let answer = shared.post(&call("2", "2"));
    settle().await;
    let mut server = shared.server();
    let line = server.line().await;
    server.say(result(&id(&line)));
    settle().await;
    assert_eq!(answer.text(), result("2"));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_requests_of_shared_servers_get_an_error() {
    let mut shared = Shared::new("");
    let answers = [0; 2].map(|_| shared.post(&call("1", "1")));
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
