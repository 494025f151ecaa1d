//! `cached_start`: a client never gets answers of another server, or answers that were meant for another client.

use super::proxy::Start;
use super::*;
use crate::support::until;

/// A server whose name is in its variable `WHO`. It has a resource for each user that has logged in.
const SERVER: &str = r#"
import json, os, sys
users = []
for line in sys.stdin:
    said = json.loads(line)
    method, params = said.get("method"), said.get("params", {})
    if method == "tools/call":
        users.append(params["arguments"]["user"])
    result = {"content": []}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"],
                  "capabilities": {"tools": {}, "resources": {"listChanged": True}},
                  "serverInfo": {"name": os.environ["WHO"], "version": "1"}}
    if method == "resources/list":
        result = {"resources": [{"uri": "user:" + user, "name": user} for user in users]}
    if "id" in said:
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"#;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"resources/list"}"#;

/// Routes of one command, each with its name in the variable `WHO` of its server.
fn serving(state: &std::path::Path, names: &[&str], server: &str) -> Proxy {
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let route = |name: &&str| {
        format!(
            "[[route]]\npath = \"/{name}\"\nupstream.command = {command}\n\
             upstream.env = {{ WHO = \"{name}\" }}\ncached_start = true\n"
        )
    };
    let start = Start { state: state.to_str(), server, ..Start::default() };
    Proxy::serving(&start, &names.iter().map(route).collect::<String>())
}

/// A session of a client with these headers.
struct Client<'a>(&'a Proxy, String, Vec<(&'a str, &'a str)>);

impl<'a> Client<'a> {
    /// Begins a session. Returns the answer too.
    fn begin(proxy: &'a Proxy, path: &str, headers: &[(&'a str, &'a str)]) -> (Self, String) {
        let all = [&POST[..], headers].concat();
        let mut begun = Exchange::send(proxy.address(), "POST", path, &all, INITIALIZE);
        let session = begun.header("mcp-session-id").unwrap();
        let all = [headers, &[("content-type", "application/json")]].concat();
        (Self(proxy, session, [&all[..], &[POST[1]]].concat()), begun.rest())
    }

    fn ask(&self, path: &str, body: &str) -> String {
        let headers = [&self.2[..], &[("mcp-session-id", &*self.1)]].concat();
        Exchange::send(self.0.address(), "POST", path, &headers, body).rest()
    }
}

fn kept(state: &std::path::Path) -> Vec<String> {
    let files = std::fs::read_dir(state.join("starts")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
}

#[test]
fn a_route_gets_no_answer_of_another_route_with_the_same_command() {
    let state = tempfile::tempdir().unwrap();
    let proxy = serving(state.path(), &["one", "two"], "");
    let (_one, begun) = Client::begin(&proxy, "/one", &[]);
    assert!(begun.contains(r#""name": "one""#), "{begun}");
    until("the answers are kept", || kept(state.path()).len() == 1);
    let (_two, begun) = Client::begin(&proxy, "/two", &[]);
    assert!(begun.contains(r#""name": "two""#), "{begun}");
    until("the answers are kept", || kept(state.path()).len() == 2);
    let (_again, begun) = Client::begin(&proxy, "/one", &[]);
    assert!(begun.contains(r#""name":"one""#), "the answer of the last start: {begun}");
}

#[test]
fn a_session_gets_no_list_that_the_session_of_another_user_made() {
    let login = |user: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"login","arguments":{{"user":"{user}"}}}}}}"#
        )
    };
    let named = "trusted_proxies = [\"127.0.0.1\"]\nprincipal = \"header:X-User\"";
    for (server, ada, eve) in
        [("", vec![], vec![]), (named, vec![("x-user", "ada")], vec![("x-user", "eve")])]
    {
        let state = tempfile::tempdir().unwrap();
        let proxy = serving(state.path(), &["one"], server);
        let (client, _) = Client::begin(&proxy, "/one", &ada);
        client.ask("/one", &login("ada"));
        assert!(client.ask("/one", LIST).contains("user:ada"));
        until("the answers are kept", || {
            let is_named = |text: &String| text.contains("user:ada");
            let files = kept(state.path());
            !files.is_empty() && (server.is_empty() || files.iter().any(is_named))
        });
        let (client, _) = Client::begin(&proxy, "/one", &eve);
        let listed = client.ask("/one", LIST);
        assert!(listed.contains(r#""resources""#) && !listed.contains("ada"), "{listed}");
    }
}
