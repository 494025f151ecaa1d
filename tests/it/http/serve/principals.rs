//! Whose a request is: the user that a front names, and the only user of a loopback listener.

use super::http_client::{Client, rest};
use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;
use crate::support::messages::{headers_of, modern};
use crate::support::until;

/// Answers each request with the number of its process; a call of `slow` takes three seconds.
const SERVER: &str = r#"
import json, os, sys, time
for line in sys.stdin:
    said = json.loads(line)
    if "id" in said and "method" in said:
        sys.stderr.write("asked for " + said["method"] + "\n")
        sys.stderr.flush()
        if said.get("params", {}).get("name") == "slow":
            time.sleep(3)
        result = {"resultType": "complete", "content": [{"type": "text", "text": str(os.getpid())}],
                  "protocolVersion": said.get("params", {}).get("protocolVersion"),
                  "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"#;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

fn children(keys: &str) -> String {
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    format!("upstream.command = {command}\n{keys}")
}

fn ask(proxy: &Proxy, method: &str, headers: &[(&str, &str)], body: &str) -> Exchange {
    Exchange::send(proxy.address(), method, "/a", &[&POST[..], headers].concat(), body)
}

/// A call of 2026-07-28 of a tool.
fn call_of(proxy: &Proxy, tool: &str, headers: &[(&str, &str)]) -> Exchange {
    let own =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
    let params = format!(r#""name":"{tool}","arguments":{{}},"#);
    ask(proxy, "POST", &[&own[..], headers].concat(), &modern(1, "tools/call", &params))
}

/// The process that has answered a call.
fn process(mut answer: Exchange) -> String {
    let text = answer.rest();
    json(&text)["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{text}")).into()
}

#[test]
fn a_front_names_the_user_and_limits_sessions_and_children_go_by_the_name() {
    let server = "trusted_proxies = [\"127.0.0.1\"]\nprincipal = \"header:X-User\"\n\
        max_client_sessions = 1";
    let proxy = Proxy::with(&Start { server, ..Start::default() }, &children(""));
    let mut begun = ask(&proxy, "POST", &[("x-user", "ada")], INITIALIZE);
    assert_eq!(begun.status(), 200);
    let id = begun.header("mcp-session-id").unwrap();
    // The address that the front also names is then ignored.
    let elsewhere = [("x-user", "ada"), ("x-forwarded-for", "203.0.113.9")];
    assert_eq!(ask(&proxy, "POST", &elsewhere, INITIALIZE).status(), 429);
    proxy.logged(&["refused", "max_client_sessions", "client=header:ada"]);
    assert_eq!(ask(&proxy, "POST", &[("x-user", "bob")], INITIALIZE).status(), 200);
    for (user, status) in [("bob", 404), ("", 404), ("ada", 200)] {
        let headers = [("x-user", user), ("mcp-session-id", &*id)];
        assert_eq!(ask(&proxy, "DELETE", &headers, "").status(), status, "{user}");
    }
    let of = |user: &str, token: &str| {
        process(call_of(&proxy, "work", &[("x-user", user), ("authorization", token)]))
    };
    let ada = of("ada", "Bearer one");
    assert_eq!(of("ada", "Bearer two"), ada, "the name goes before the token");
    assert_ne!(of("bob", "Bearer one"), ada);
    // One of the two values may come from the client.
    let mut twice = call_of(&proxy, "work", &[("x-user", "bob"), ("x-user", "ada")]);
    assert_eq!(twice.status(), 400);
    assert!(twice.rest().contains("let the front replace it"));
    proxy.logged(&["refused", "reason=\"principal\""]);
}

#[test]
fn the_header_of_the_user_counts_from_a_front_alone() {
    let upstream = Upstream::start();
    let server = "trusted_proxies = [\"10.0.0.7\"]\nprincipal = \"header:x-user\"";
    let start = Start { server, ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    let mut answer = ask(&proxy, "POST", &[("x-user", "root"), ("X-USER", "ada")], &call("1", ""));
    let mut asked = upstream.asked();
    assert!(!asked.head.to_lowercase().contains("x-user"), "{}", asked.head);
    asked.json(&result("1"));
    assert_eq!(answer.rest(), result("1"));
    let page = Page::read(&proxy.probe("/metrics").1);
    assert_eq!(page.sum("milepost_forwarded_dropped_total", &[]), 1.0);
}

#[test]
fn a_header_with_another_spelling_reaches_no_server() {
    let upstream = Upstream::start();
    let server = "trusted_proxies = [\"127.0.0.1\"]\nprincipal = \"header:x-user\"\n\
        front_header = \"x-forwarded-for\"";
    let route = format!("upstream.url = \"{}\"\nforwarded = \"append\"", upstream.url());
    let proxy = Proxy::with(&Start { server, ..Start::default() }, &route);
    let sent = [
        ("x-user", "ada"),
        ("X_User", "root"),
        ("X_Forwarded_For", "6.6.6.6"),
        ("x-forwarded-for", "203.0.113.7"),
        ("Forwarded", "for=6.6.6.6"),
        ("x_other", "1"),
    ];
    let mut answer = ask(&proxy, "POST", &sent, &call("1", ""));
    let mut asked = upstream.asked();
    let head = asked.head.to_lowercase();
    for (name, value) in
        [("x-user", "ada"), ("x-forwarded-for", "203.0.113.7, 127.0.0.1"), ("x_other", "1")]
    {
        assert!(head.contains(&format!("\n{name}: {value}")), "{head}");
    }
    for name in ["root", "6.6.6.6", "x_user", "x_forwarded_for", "\nforwarded"] {
        assert!(!head.contains(name), "{name}: {head}");
    }
    asked.json(&result("1"));
    assert_eq!(answer.rest(), result("1"));
    let page = Page::read(&proxy.probe("/metrics").1);
    assert_eq!(page.sum("milepost_forwarded_dropped_total", &[]), 1.0);
}

/// HTTP/2 has its own way to the table of headers, where names are in lower case.
#[tokio::test]
async fn a_header_with_another_spelling_reaches_no_server_over_http_2() {
    let upstream = Upstream::start();
    let server = "trusted_proxies = [\"127.0.0.1\"]\nprincipal = \"header:x-user\"\n\
        front_header = \"x-forwarded-for\"";
    let route = format!(
        "upstream.url = \"{}\"\nforwarded = \"append\"\nheaders.request.set.x-key = \"route\"",
        upstream.url()
    );
    let proxy = Proxy::with(&Start { server, ..Start::default() }, &route);
    let mut client = Client::plain(proxy.address(), true).await;
    let sent = [
        ("x-user", "ada"),
        ("x_user", "root"),
        ("x_forwarded_for", "6.6.6.6"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x_key", "stolen"),
        ("x_other", "1"),
    ];
    let (address, body) = (proxy.address().to_owned(), call("1", ""));
    let answered = tokio::spawn(async move {
        let answer = client.send("POST", &address, &sent, body).await;
        assert_eq!(answer.version(), http::Version::HTTP_2);
        rest(answer).await
    });
    let head = tokio::task::spawn_blocking(move || {
        let mut asked = upstream.asked();
        asked.json(&result("1"));
        asked.head.to_lowercase()
    });
    let head = head.await.unwrap();
    for (name, value) in [
        ("x-user", "ada"),
        ("x-forwarded-for", "203.0.113.7, 127.0.0.1"),
        ("x-key", "route"),
        ("x_other", "1"),
    ] {
        assert!(head.contains(&format!("\n{name}: {value}\r\n")), "{head}");
    }
    for name in ["root", "6.6.6.6", "x_user", "x_forwarded_for", "stolen", "x_key"] {
        assert!(!head.contains(name), "{name}: {head}");
    }
    assert_eq!(answered.await.unwrap(), result("1"));
    let page = Page::read(&proxy.probe("/metrics").1);
    assert_eq!(page.sum("milepost_forwarded_dropped_total", &[]), 1.0);
}

#[test]
fn callers_of_a_loopback_listener_without_credentials_are_one_client() {
    let keys = "late = { enabled = true }";
    for (server, calls) in [("", 1), ("trusted_proxies = [\"127.0.0.1\"]", 2)] {
        let proxy = Proxy::with(&Start { server, ..Start::default() }, &children(keys));
        let first = call_of(&proxy, "slow", &[]);
        let asked = || proxy.log().matches("asked for tools/call").count();
        until("the server works", || asked() == 1);
        // The client disconnects, and returns with another connection.
        drop(first);
        until("nobody waits", || {
            Page::read(&proxy.probe("/metrics").1).sum("milepost_streams", &[]) == 0.0
        });
        let _ = process(call_of(&proxy, "slow", &[]));
        assert_eq!(asked(), calls, "{server}");
    }
}

/// A server of 2025-06-18. It asks the caller of `ask` a question, and does not answer `slow`.
const OLD: &str = r#"
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if said.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
    elif said.get("method") == "tools/call" and said["params"]["name"] == "ask":
        asked = said["id"]
        print(json.dumps({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}), flush=True)
    elif said.get("id") == "q":
        print(json.dumps({"jsonrpc": "2.0", "id": asked, "result": {"content": said["result"]["roots"]}}), flush=True)
"#;

/// A request of 2026-07-28 of a user, who knows tasks and has roots; its status and its answer.
fn ask_as(proxy: &Proxy, user: &str, method: &str, params: &str) -> (u16, serde_json::Value) {
    let stated =
        r#"clientCapabilities":{"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let body = modern(1, method, params).replace(r#"clientCapabilities":{}"#, stated);
    let lines = headers_of(&body);
    let mut headers: Vec<(&str, &str)> =
        lines.iter().filter_map(|line| line.split_once(": ")).collect();
    // The token of the front is the same for all users.
    headers.extend([("x-user", user), ("authorization", "Bearer front")]);
    let mut answer = ask(proxy, "POST", &headers, &body);
    (answer.status(), json(&answer.rest()))
}

#[test]
fn a_task_and_a_question_belong_to_the_user_that_a_front_names() {
    let command = serde_json::to_string(&["python3", "-c", OLD]).unwrap();
    let keys = format!(
        "upstream.command = {command}\nmodern = true\ntasks = {{ after = \"100ms\" }}\n\
                 tools.ask.tasks = {{ offer = \"never\" }}"
    );
    let server = "trusted_proxies = [\"127.0.0.1\"]\nprincipal = \"header:X-User\"";
    let proxy = Proxy::with(&Start { server, ..Start::default() }, &keys);
    let (_, asked) = ask_as(&proxy, "ada", "tools/call", r#""name":"ask","#);
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let name = asked["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let state = asked["result"]["requestState"].as_str().unwrap();
    let (_, made) = ask_as(&proxy, "ada", "tools/call", r#""name":"slow","#);
    let id = made["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let given = format!(
        r#""name":"ask","requestState":"{state}","inputResponses":{{"{name}":{{"roots":[7]}}}},"#
    );
    let task = format!(r#""taskId":"{id}","#);
    // A stranger gets the same answer as for a task and a state that never existed.
    let unknown = task.replace(&id[id.len() - 4..], "0000");
    let forged = given.replace(state, &"A".repeat(state.len()));
    for (method, foreign, invented) in [
        ("tasks/get", &task, &unknown),
        ("tasks/cancel", &task, &unknown),
        ("tools/call", &given, &forged),
    ] {
        let refused = ask_as(&proxy, "bob", method, foreign);
        assert_eq!((refused.0, &refused.1["error"]["code"]), (400, &(-32602).into()), "{method}");
        assert_eq!(refused, ask_as(&proxy, "ada", method, invented), "{method}");
    }
    let (_, shown) = ask_as(&proxy, "ada", "tasks/get", &task);
    assert_eq!(shown["result"]["status"], "working", "{shown}");
    let (_, answered) = ask_as(&proxy, "ada", "tools/call", &given);
    assert_eq!(answered["result"]["content"], serde_json::json!([7]), "{answered}");
}
