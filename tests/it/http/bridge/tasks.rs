//! Tasks of Milepost's own over Streamable HTTP, before a stdio server that knows none.

use tokio::sync::mpsc;

use crate::http::rig::{Answer, Lines, Rig, pass, secs, settle};
use crate::support::messages::{agreement, initialize, result};

const KEYS: &str = "upstream.idle_timeout = \"60s\"\ntasks = { offer = \"always\", ttl = \"20m\" }\n\
                    heartbeat.enabled = false";

/// A client of 2025-11-25 and its session.
struct Client<'a> {
    rig: &'a Rig,
    server: Lines,
    session: String,
}

impl<'a> Client<'a> {
    /// Begins a session with a server of 2025-06-18.
    async fn begin(rig: &'a Rig, servers: &mut mpsc::UnboundedReceiver<Lines>) -> Self {
        let answer = rig.post(&[], initialize("2025-11-25"));
        settle().await;
        let mut server = servers.try_recv().expect("no server was started");
        assert_eq!(server.line().await, initialize("2025-11-25"));
        let tools = r#""capabilities":{"tools":{}}"#;
        server.say(agreement("2025-06-18").replace(r#""capabilities":{}"#, tools));
        settle().await;
        let told = answer.text();
        assert!(told.contains(r#""protocolVersion":"2025-11-25""#), "{told}");
        assert!(
            told.contains(r#""tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}"#),
            "{told}"
        );
        let id = answer.header("mcp-session-id").unwrap();
        Self { rig, server, session: format!("Mcp-Session-Id: {id}") }
    }

    fn post(&self, body: &str) -> Answer {
        self.rig.post(&[&self.session, "MCP-Protocol-Version: 2025-11-25"], body)
    }

    /// Begins a task, and returns its id.
    async fn begin_task(&mut self) -> String {
        let call =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","task":{}}}"#;
        let answer = self.post(call);
        settle().await;
        let told: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        assert_eq!(told["result"]["task"]["status"], "working", "{told}");
        let sent = self.server.line().await;
        assert!(sent.contains("progressToken") && !sent.contains(r#""task""#), "{sent}");
        told["result"]["task"]["taskId"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, method: &str, task: &str) -> String {
        let answer = self.post(&request(method, task));
        settle().await;
        answer.text()
    }
}

fn request(method: &str, task: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{{"taskId":"{task}"}}}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_task_keeps_its_session_until_its_answer_is_fetched() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let mut client = Client::begin(&rig, &mut servers).await;
    let task = client.begin_task().await;
    pass(secs(300)).await;
    assert!(!client.server.is_closed() && !rig.calls_done().await);
    let shown = client.ask("tasks/get", &task).await;
    assert!(shown.contains(r#""status":"working""#) && shown.contains("no word"), "{shown}");
    client.server.say(result("1"));
    pass(secs(300)).await;
    assert!(!client.server.is_closed() && !rig.calls_done().await);
    let answer = client.ask("tasks/result", &task).await;
    let related = r#"{"io.modelcontextprotocol/related-task":{"taskId":""#;
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":2,"result":{{"_meta":{related}{task}"}}}},"content":[]}}}}"#
    );
    assert_eq!(answer, expected);
    assert!(rig.calls_done().await);
    pass(secs(80)).await;
    assert!(client.server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_session_is_as_unknown_as_an_invented_one() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let mut one = Client::begin(&rig, &mut servers).await;
    let two = Client::begin(&rig, &mut servers).await;
    let task = one.begin_task().await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let foreign = two.ask(method, &task).await;
        let invented = two.ask(method, "mp-00000000000000000000000000000000").await;
        assert_eq!(foreign, invented, "{method}");
        assert!(foreign.contains(r#""code":-32602"#), "{foreign}");
    }
    assert!(one.ask("tasks/get", &task).await.contains("working"));
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_for_the_answer_on_a_stream_and_can_come_back() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let mut client = Client::begin(&rig, &mut servers).await;
    let task = client.begin_task().await;
    let first = client.post(&request("tasks/result", &task));
    pass(secs(30)).await;
    assert!(!first.is_over());
    first.leave();
    let second = client.post(&request("tasks/result", &task));
    settle().await;
    client.server.say(result("1"));
    settle().await;
    assert!(second.messages().iter().any(|told| told.contains("related-task")));
    assert!(second.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_server_of_the_clients_own_transport_gets_an_ordinary_call_too() {
    let keys = "upstream.url = \"http://up.example/mcp\"\ntasks = { offer = \"always\" }\nheartbeat.enabled = false";
    let mut rig = Rig::having(keys);
    let first = rig.post(&[], initialize("2025-11-25"));
    let tools =
        agreement("2025-03-26").replace(r#""capabilities":{}"#, r#""capabilities":{"tools":{}}"#);
    rig.asked().await.json(&["Mcp-Session-Id: theirs"], &tools);
    pass(secs(1)).await;
    assert!(first.text().contains(r#""protocolVersion":"2025-11-25""#), "{}", first.text());
    let session = format!("Mcp-Session-Id: {}", first.header("mcp-session-id").unwrap());
    assert!(!session.contains("theirs"));
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","task":{}}}"#;
    let made = rig.post(&[&session, "MCP-Protocol-Version: 2025-11-25"], call);
    let mut asked = None;
    for _ in 0..3 {
        let Some(next) = rig.try_asked().await else { break };
        match next.what() {
            "POST /mcp" => asked = Some(next),
            _ => next.answer("405 Method Not Allowed", &[], ""),
        }
    }
    let asked = asked.expect("the call has not come");
    assert_eq!(asked.request.header("mcp-session-id"), Some("theirs"));
    assert_eq!(asked.request.header("mcp-protocol-version"), Some("2025-03-26"));
    assert!(!asked.text().contains(r#""task""#), "{}", asked.text());
    let told: serde_json::Value = serde_json::from_str(&made.text()).unwrap();
    let task = told["result"]["task"]["taskId"].as_str().unwrap();
    let waits = rig.post(&[&session], request("tasks/result", task));
    asked.json(&[], &result("1"));
    pass(secs(1)).await;
    assert!(waits.messages().iter().any(|told| told.contains("related-task")), "{}", waits.text());
}
