//! Every way to what is another user's: who asks, for what, and what comes of it. A front names the users.

use super::proxy::Start;
use super::*;

/// Knows 2025-11-25, and tells each call once how far it is; a call of `slow` gets no answer.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if "id" not in said or "method" not in said:
        continue
    params = said.get("params", {})
    token = params.get("_meta", {}).get("progressToken")
    if token is not None:
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress",
                          "params": {"progressToken": token, "progress": 1}}), flush=True)
    if params.get("name") == "slow":
        continue
    result = {"protocolVersion": params.get("protocolVersion"), "capabilities": {"tools": {}},
              "serverInfo": {"name": "s", "version": "1"}, "content": []}
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"#;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn ask(proxy: &Proxy, user: &str, method: &str, more: &[(&str, &str)], body: &str) -> Exchange {
    let headers = [&POST[..], &[("x-user", user)], more].concat();
    Exchange::send(proxy.address(), method, "/a", &headers, body)
}

/// Begins a session of a user, and returns its id.
fn begin(proxy: &Proxy, user: &str) -> String {
    let id = ask(proxy, user, "POST", &[], INITIALIZE).header("mcp-session-id").unwrap();
    ask(proxy, user, "POST", &[("mcp-session-id", &id)], INITIALIZED).rest();
    id
}

fn request(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":5,"method":"{method}","params":{{{params}}}}}"#)
}

#[test]
fn nobody_gets_what_is_another_users_through_any_door() {
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let server = "trusted_proxies = [\"127.0.0.1\"]\nprincipal = \"header:X-User\"";
    let keys = format!(
        "upstream.command = {command}\ntasks = {{ offer = \"always\" }}\ncached_start = true\nlate = {{}}"
    );
    let proxy = Proxy::with(&Start { server, ..Start::default() }, &keys);
    let sessions = ["ada", "bob"].map(|user| begin(&proxy, user));
    let ada = [("mcp-session-id", &*sessions[0])];
    let call = request("tools/call", r#""name":"work","_meta":{"progressToken":"t"}"#);
    let told = ask(&proxy, "ada", "POST", &ada, &call).rest();
    let event =
        told.lines().find_map(|line| line.strip_prefix("id: ")).unwrap_or_else(|| panic!("{told}"));
    let task = request("tools/call", r#""name":"slow","task":{}"#);
    let made = json(&ask(&proxy, "ada", "POST", &ada, &task).rest());
    let task =
        made["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
    let listen = [("accept", "text/event-stream"), ada[0]];
    let resume = [("accept", "text/event-stream"), ("last-event-id", event), ada[0]];
    // What is asked for, how, and the status for its owner. A stranger learns no more than of a session that never was.
    let ping = request("ping", "");
    let doors: [(&str, &str, &[(&str, &str)], &str, u16); 6] = [
        ("a message in the session", "POST", &ada, &ping, 200),
        ("a cancellation in the session", "POST", &ada, cancel, 202),
        ("the listening stream", "GET", &listen, "", 200),
        ("a stream to be resumed", "GET", &resume, "", 200),
        (
            "a request for the session's task",
            "POST",
            &ada,
            &request("tasks/get", &format!(r#""taskId":"{task}""#)),
            200,
        ),
        ("the end of the session", "DELETE", &ada, "", 200),
    ];
    let unknown = [("mcp-session-id", "00000000000000000000000000000000")];
    let mut table = Vec::new();
    for (what, method, headers, body, own) in &doors {
        for user in ["bob", "", "ada"] {
            let expected = if user == "ada" { *own } else { 404 };
            let answer = ask(&proxy, user, method, headers, body);
            table.push((*what, user, answer.status(), expected));
        }
        let mut stranger = ask(&proxy, "bob", method, headers, body);
        let named: Vec<(&str, &str)> = headers
            .iter()
            .map(|header| if header.0 == unknown[0].0 { unknown[0] } else { *header })
            .collect();
        let mut never = ask(&proxy, "bob", method, &named, body);
        assert_eq!((stranger.status(), stranger.rest()), (never.status(), never.rest()), "{what}");
        if *what == "a request for the session's task" {
            // In a session of one's own the task is unknown too.
            let own = [("mcp-session-id", &*sessions[1])];
            for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
                let asked = |id: &str| {
                    let body = request(method, &format!(r#""taskId":"{id}""#));
                    json(&ask(&proxy, "bob", "POST", &own, &body).rest())["error"].clone()
                };
                assert_eq!(asked(&task)["code"], -32602, "{method}: {}", asked(&task));
                let invented = task.replace(&task[task.len() - 4..], "0000");
                assert_eq!(
                    asked(&task).to_string().replace(&task, &invented),
                    asked(&invented).to_string()
                );
            }
        }
    }
    let wrong: Vec<_> =
        table.iter().filter(|(_, _, status, expected)| status != expected).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
