//! Tests of calls that become tasks, message by message.

use super::*;
use crate::progress::policy::tasks::Tasks;
use crate::transport::byte_budget::ByteBudget;

const TASKS: &str =
    r#""clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}"#;

/// Returns a face with tasks, and the id of a call that has become a task.
fn with_task() -> (Face, String) {
    let tasks = Tasks { enabled: true, ..Tasks::default() };
    let mut face = Face::with(CallPolicy { tasks, ..CallPolicy::default() }).begun();
    let discovered = face.own();
    let extensions = &discovered[0]["result"]["capabilities"]["extensions"];
    assert_eq!(*extensions, json!({"io.modelcontextprotocol/tasks": {}}));
    face.client(&knowing_tasks(2, "tools/call", r#""name":"work","#));
    face.sent();
    let due = face.0.next_due().unwrap();
    face.0.act(due);
    let made = &face.own()[0];
    assert_eq!((&made["id"], &made["result"]["resultType"]), (&json!(2), &json!("task")));
    let id = made["result"]["taskId"].as_str().unwrap().to_owned();
    (face, id)
}

fn knowing_tasks(id: u64, method: &str, params: &str) -> String {
    request(id, method, params).replace(r#""clientCapabilities":{"elicitation":{}"#, TASKS).replace(
        r#"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}"#,
        &format!("io.modelcontextprotocol/{}", &TASKS[1..]),
    )
}

fn of_task(id: u64, method: &str, task: &str, more: &str) -> String {
    knowing_tasks(id, method, &format!(r#""taskId":"{task}",{more}"#))
}

#[test]
fn a_slow_call_becomes_a_task_and_its_answer_is_in_the_task() {
    let (mut face, task) = with_task();
    face.server(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":3,"total":7,"message":"rows"}}"#);
    face.client(&of_task(3, "tasks/get", &task, ""));
    let shown = &face.own()[0]["result"];
    assert_eq!((&shown["resultType"], &shown["status"]), (&json!("complete"), &json!("working")));
    assert_eq!(shown["statusMessage"], "rows, 3 of 7");
    assert_eq!(face.0.held(), 1);
    assert_eq!(
        face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[],"isError":true}}"#),
        None
    );
    face.client(&of_task(4, "tasks/get", &task, ""));
    let shown = &face.own()[0]["result"];
    assert_eq!(
        (&shown["status"], &shown["result"]["isError"]),
        (&json!("completed"), &json!(true))
    );
    assert_eq!((face.0.held(), face.own().len()), (0, 0));
    // The task is forgotten when its time to live is over.
    let due = face.0.next_due().unwrap();
    face.0.act(due);
    face.client(&of_task(5, "tasks/get", &task, ""));
    assert_eq!(face.own()[0]["error"]["code"], -32602);
}

#[test]
fn the_answer_of_a_task_is_kept_within_the_budget_of_all() {
    let budget = Arc::<ByteBudget>::default();
    for (max, status) in [(4000, "completed"), (40, "failed")] {
        budget.set_max(max);
        let (mut face, task) = with_task();
        face.0.set_kept(budget.share(Some(1)).room());
        face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[],"isError":true}}"#);
        let kept = r#"{"content":[],"isError":true,"resultType":"complete"}"#.len() as u64;
        assert!(budget.held() >= kept, "{} bytes", budget.held());
        face.client(&of_task(3, "tasks/get", &task, ""));
        let shown = &face.own()[0]["result"];
        assert_eq!(shown["status"], status, "{shown}");
        let due = face.0.next_due().unwrap();
        face.0.act(due);
        assert_eq!(budget.held(), 0);
    }
}

#[test]
fn a_quick_call_and_a_call_of_a_client_without_tasks_stay_calls() {
    let tasks = Tasks { enabled: true, ..Tasks::default() };
    let mut face = Face::with(CallPolicy { tasks, ..CallPolicy::default() }).begun();
    face.own();
    face.client(&knowing_tasks(2, "tools/call", r#""name":"work","#));
    let told = face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
    assert!(told.unwrap().contains(r#""resultType":"complete""#));
    face.client(&request(3, "tools/call", r#""name":"work","#));
    assert_eq!(face.0.next_due(), None);
    face.client(&request(4, "tasks/get", r#""taskId":"x","#));
    let error = &face.own()[0]["error"];
    assert_eq!(error["code"], -32021);
    assert!(error["data"]["requiredCapabilities"]["extensions"].is_object());
    face.client(&knowing_tasks(5, "tasks/list", ""));
    assert_eq!(face.own()[0]["error"]["code"], -32601);
}

#[test]
fn the_client_of_a_task_is_asked_and_told_and_cancels() {
    let (mut face, task) = with_task();
    let listen = format!(r#""notifications":{{"taskIds":["{task}","other"]}},"#);
    face.client(&knowing_tasks(3, "subscriptions/listen", &listen));
    assert_eq!(face.own()[0]["params"]["notifications"], json!({"taskIds": [task]}));
    face.server(
        r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?"}}"#,
    );
    let told = face.own();
    assert_eq!(
        (&told[0]["method"], &told[0]["params"]["status"]),
        (&json!("notifications/tasks"), &json!("input_required"))
    );
    assert_eq!(told[0]["params"]["inputRequests"]["ask-1"]["params"]["message"], "?");
    face.client(&of_task(
        4,
        "tasks/update",
        &task,
        r#""inputResponses":{"ask-1":{"action":"accept"},"x":1},"#,
    ));
    assert_eq!(face.sent(), [r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#]);
    let told = face.own();
    assert_eq!(told[0]["params"]["status"], "working");
    assert_eq!(told[1]["result"], json!({"resultType": "complete"}));
    face.client(&of_task(5, "tasks/cancel", &task, ""));
    assert!(face.sent()[0].contains(r#""requestId":2"#));
    assert_eq!(face.own()[0]["params"]["status"], "cancelled");
    assert_eq!(face.server(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#), None);
}
