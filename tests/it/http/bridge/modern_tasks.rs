//! Tasks of 2026-07-28 over Streamable HTTP, before a stdio server that knows none.

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::modern_face::{ask, begin, value};
use crate::http::rig::{Answer, Lines, Rig, pass, secs, settle};
use crate::support::messages::{
    answer, headers_of, modern, modern_with, notification, progress, report,
};

const KEYS: &str = "modern = true\nheartbeat.enabled = false\n\
                    tasks = { after = \"20s\", ttl = \"20m\" }";

const EXTENSION: &str = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;

/// A request whose client knows tasks, and can be asked.
fn declaring(id: &str, method: &str, params: &str) -> String {
    let stated = format!(r#"clientCapabilities":{{"elicitation":{{}},{EXTENSION}}}"#);
    modern_with(id, id, method, params).replace(r#"clientCapabilities":{}"#, &stated)
}

const CALL: &str = r#""name":"work","arguments":{},"#;

/// A call that has become a task.
struct Task {
    rig: Rig,
    servers: mpsc::UnboundedReceiver<Lines>,
    server: Lines,
    /// The call as the server got it.
    sent: Value,
    id: String,
    call: Answer,
}

impl Task {
    async fn begun() -> Self {
        let (rig, mut servers) = Rig::of_lines(KEYS);
        let call = ask(&rig, &declaring("1", "tools/call", CALL));
        settle().await;
        let mut server = servers.try_recv().expect("no server was started");
        let sent = begin_with_call(&mut server).await;
        server.say(progress(&sent["params"]["_meta"]["progressToken"], 1));
        pass(secs(21)).await;
        let told = call.messages();
        assert_eq!(told[0], progress("1", 1));
        let made = value(&told[1]);
        let result = &made["result"];
        assert_eq!((&made["id"], &result["resultType"]), (&json!(1), &json!("task")), "{made}");
        assert_eq!((&result["status"], &result["ttlMs"]), (&json!("working"), &json!(1_200_000)));
        let id = result["taskId"].as_str().unwrap().to_owned();
        assert!(call.is_over(), "something may follow the task on the stream of its call");
        Self { rig, servers, server, sent, id, call }
    }

    fn ask(&self, id: &str, method: &str, more: &str) -> Answer {
        let params = format!(r#""taskId":"{}",{more}"#, self.id);
        ask(&self.rig, &declaring(id, method, &params))
    }

    async fn get(&self, id: &str) -> Value {
        let asked = self.ask(id, "tasks/get", "");
        settle().await;
        assert_eq!(asked.status(), 200);
        value(&asked.text())["result"].clone()
    }

    /// A stream that is told of the task.
    async fn listen(&self) -> Answer {
        let wanted = format!(r#""notifications":{{"taskIds":["{}"]}},"#, self.id);
        let listens = ask(&self.rig, &declaring(r#""l""#, "subscriptions/listen", &wanted));
        settle().await;
        let told = value(&listens.messages()[0]);
        assert_eq!(told["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(told["params"]["notifications"]["taskIds"], json!([self.id]));
        listens
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_20_s_becomes_a_task_whose_state_and_answer_are_fetched() {
    let task = Task::begun().await;
    let listens = task.listen().await;
    task.server.say(report(&task.sent["params"]["_meta"]["progressToken"], 4, "half"));
    settle().await;
    let shown = task.get("2").await;
    assert_eq!((&shown["status"], &shown["taskId"]), (&json!("working"), &json!(task.id)));
    assert_eq!(shown["statusMessage"], "half, 4");
    // A report in a dialect of the route.
    let text = r#"[{"type":"text","text":"{\"percentComplete\":15}"}]"#;
    let params = format!(r#"{{"id":{},"content":{text}}}"#, task.sent["id"]);
    task.server.say(notification("tools/progress", params));
    settle().await;
    assert_eq!(task.get("3").await["statusMessage"], "15 of 100");
    task.server.say(answer(&task.sent["id"], r#"{"content":[7],"isError":true}"#));
    pass(secs(1)).await;
    let told: Vec<Value> = listens.messages().iter().map(|text| value(text)).collect();
    let last = told.last().unwrap();
    assert_eq!(last["method"], "notifications/tasks");
    let params = &last["params"];
    assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], "l");
    assert_eq!((&params["taskId"], &params["status"]), (&json!(task.id), &json!("completed")));
    for id in ["3", "4"] {
        let shown = task.get(id).await;
        assert_eq!(shown["status"], "completed");
        assert_eq!(shown["result"]["content"], json!([7]), "{shown}");
        assert_eq!(shown["result"]["isError"], true);
    }
    assert_eq!(task.call.messages().len(), 2, "the stream of the call has got more");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_quick_or_whose_client_declares_nothing_stays_a_call() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    for (id, call) in
        [(1, declaring("1", "tools/call", CALL)), (2, modern_with("2", "2", "tools/call", CALL))]
    {
        let asked = ask(&rig, &call);
        settle().await;
        let mut server = servers.try_recv().expect("no server was started");
        let sent = begin_with_call(&mut server).await;
        pass(secs(if id == 1 { 19 } else { 60 })).await;
        server.say(answer(&sent["id"], r#"{"content":[]}"#));
        pass(secs(5)).await;
        let told = value(asked.messages().last().unwrap());
        assert_eq!((&told["id"], &told["result"]["resultType"]), (&json!(id), &json!("complete")));
    }
}

/// Agrees with the face that begins a session; gives the call that has waited.
async fn begin_with_call(server: &mut Lines) -> Value {
    let initialize = value(&server.line().await);
    let agreed = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}"#;
    server.say(answer(&initialize["id"], agreed));
    settle().await;
    let told = server.told().await;
    assert!(told.len() == 2 && told[0].contains("notifications/initialized"), "{told:?}");
    value(&told[1])
}

#[tokio::test(start_paused = true)]
async fn a_question_of_the_server_is_answered_by_an_update_of_the_task() {
    let mut task = Task::begun().await;
    task.server.say(
        r#"{"jsonrpc":"2.0","id":77,"method":"elicitation/create","params":{"message":"Sure?"}}"#,
    );
    settle().await;
    let shown = task.get("2").await;
    assert_eq!(shown["status"], "input_required");
    let (name, asked) = shown["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(asked["params"]["message"], "Sure?");
    let given = format!(r#""inputResponses":{{"{name}":{{"action":"accept"}},"other":{{}}}},"#);
    let updated = task.ask("3", "tasks/update", &given);
    settle().await;
    assert_eq!(value(&updated.text())["result"], json!({"resultType": "complete"}));
    assert_eq!(
        task.server.line().await,
        r#"{"jsonrpc":"2.0","id":77,"result":{"action":"accept"}}"#
    );
    let shown = task.get("4").await;
    assert_eq!((&shown["status"], &shown["inputRequests"]), (&json!("working"), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_task_is_cancelled_under_the_id_that_the_server_knows() {
    let mut task = Task::begun().await;
    let listens = task.listen().await;
    let cancelled = task.ask("2", "tasks/cancel", "");
    settle().await;
    assert_eq!(value(&cancelled.text())["result"], json!({"resultType": "complete"}));
    let told = value(&task.server.line().await);
    assert_eq!(told["method"], "notifications/cancelled");
    assert_eq!(told["params"]["requestId"], task.sent["id"]);
    // A later answer changes nothing.
    task.server.say(answer(&task.sent["id"], r#"{"content":[]}"#));
    settle().await;
    let shown = task.get("3").await;
    assert_eq!((&shown["status"], &shown["result"]), (&json!("cancelled"), &Value::Null));
    let told = value(listens.messages().last().unwrap());
    assert_eq!(told["params"]["status"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn requests_about_tasks_that_are_wrong_get_clear_errors() {
    let mut task = Task::begun().await;
    let get = declaring("2", "tasks/get", &format!(r#""taskId":"{}","#, task.id));
    let headers = headers_of(&get);
    let other: Vec<String> = headers.iter().map(|line| line.replace(&task.id, "other")).collect();
    let bare: Vec<String> =
        headers.iter().filter(|line| !line.starts_with("Mcp-Name")).cloned().collect();
    // The client of FastMCP 4.1 does not send this header.
    for (headers, status, code) in [(other, 400, json!(-32020)), (bare, 200, Value::Null)] {
        let mut headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        headers.push("Authorization: Bearer me");
        let asked = task.rig.post(&headers, &get);
        settle().await;
        let error = value(&asked.text())["error"]["code"].clone();
        assert_eq!((asked.status(), error), (status, code), "{headers:?}");
    }
    for (method, more, status, code) in [
        ("tasks/get", r#""taskId":"mp-0123456789abcdef0123456789abcdef","#, 400, -32602),
        ("tasks/cancel", r#""taskId":"","#, 400, -32602),
        ("tasks/result", r#""taskId":"x","#, 404, -32601),
        ("tasks/list", "", 404, -32601),
    ] {
        let refused = ask(&task.rig, &declaring("3", method, more));
        settle().await;
        let error = value(&refused.text())["error"].clone();
        assert_eq!((refused.status(), &error["code"]), (status, &json!(code)), "{method}: {error}");
    }
    // A method that 2026-07-28 has removed needs no `Mcp-Name` header either.
    let result = declaring("6", "tasks/result", &format!(r#""taskId":"{}","#, task.id));
    let headers = headers_of(&result);
    let mut headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    headers.retain(|line| !line.starts_with("Mcp-Name"));
    headers.push("Authorization: Bearer me");
    let refused = task.rig.post(&headers, &result);
    settle().await;
    assert_eq!((refused.status(), &value(&refused.text())["error"]["code"]), (404, &json!(-32601)));
    // A client that does not declare tasks has a server of its own.
    let get = modern("4", "tasks/get", &format!(r#""taskId":"{}","#, task.id));
    let refused = ask(&task.rig, &get);
    settle().await;
    let mut second = begin(task.servers.try_recv().expect("no server of its own")).await;
    let error = value(&refused.text())["error"].clone();
    assert_eq!((refused.status(), &error["code"]), (400, &json!(-32021)), "{error}");
    let needed = &error["data"]["requiredCapabilities"]["extensions"];
    assert!(needed["io.modelcontextprotocol/tasks"].is_object(), "{error}");
    assert!(second.told().await.is_empty() && task.server.told().await.is_empty());
    assert_eq!(task.get("5").await["status"], "working");
}

#[tokio::test(start_paused = true)]
async fn a_task_ends_with_its_time_to_live() {
    let mut task = Task::begun().await;
    pass(secs(20 * 60)).await;
    let told = value(&task.server.line().await);
    assert_eq!(told["method"], "notifications/cancelled");
    let late = task.ask("2", "tasks/get", "");
    settle().await;
    let error = value(&late.text())["error"].clone();
    assert_eq!((late.status(), &error["code"]), (400, &json!(-32602)), "{error}");
}
