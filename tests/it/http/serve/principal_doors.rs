//! Which callers reach another user's data, by which kind of request: the table in `docs/operating.md`. Each column is
//! a test.

use http::Response;
use hyper::body::Incoming;
use serde_json::Value;
use tempfile::TempDir;

use super::http_client::{Client, rest, until};
use super::proxy::Start;
use super::tls_and_http2::Pki;
use super::*;
use crate::support::home;
use crate::support::messages::{headers_of, initialize_with, modern, request};

/// Answers everything but calls of `slow`. `ask` asks the client, `login` adds a resource, `change` tells of a
/// change, and `held` is answered by `go`.
const SERVER: &str = r#"
import json, sys, time
users, waiting, asked = [], [], None
def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    method, params, id = said.get("method"), said.get("params", {}), said.get("id")
    name, token = params.get("name"), params.get("_meta", {}).get("progressToken")
    if method == "tools/call" or method == "notifications/cancelled":
        sys.stderr.write("server heard %s %s\n" % (method, name))
        sys.stderr.flush()
    if method is None:
        id, said["result"] = asked, {"content": said.get("result", {}).get("roots")}
    elif id is None:
        continue
    if token is not None:
        say({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
    if name == "ask":
        asked = id
        say({"id": "q", "method": "roots/list"})
    elif name == "held":
        waiting.append(id)
    elif name == "late":
        time.sleep(3)
    if name in ["ask", "held", "slow"]:
        continue
    if name == "login":
        users.append(params["arguments"]["user"])
    if name == "change":
        say({"method": "notifications/%s/list_changed" % params["arguments"]["of"]})
    result = {"protocolVersion": params.get("protocolVersion"), "content": [], "serverInfo": {"name": "s", "version": "1"},
              "capabilities": {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "resources": {"listChanged": True}},
              "resources": [{"uri": "user:" + user, "name": user} for user in users], "tools": [], "prompts": []}
    for one in [id] + (waiting if name == "go" else []):
        say({"id": one, "result": said.get("result", result)})
"#;

const KEYS: &str = "cached_start = true\nlate = {}\ntasks = { offer = \"always\", after = \"100ms\" }\n\
    tools.ask.tasks = { offer = \"never\" }\ntools.late.tasks = { offer = \"never\" }\n\
    tools.held.tasks = { offer = \"never\" }\n";

const FRONT: &str = "trusted_proxies = [\"127.0.0.1\"]\nprincipal = \"header:X-User\"";

/// The caller that tries to reach Ada's data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stranger {
    /// The front names another user.
    OtherUser,
    /// The front names no user.
    Nameless,
    OtherCertificate,
    /// The front names another user, and asks another replica.
    AtAnotherReplica,
    /// No front names users; the stranger presents another `Authorization`.
    OtherToken,
}

use Stranger::{AtAnotherReplica, Nameless, OtherCertificate, OtherToken, OtherUser};

/// A proxy, or two replicas, with a way to tell users from each other.
struct House {
    stranger: Stranger,
    proxies: Vec<Proxy>,
    pki: Pki,
    state: TempDir,
}

type Headers<'a> = &'a [(&'a str, &'a str)];

impl House {
    fn of(stranger: Stranger) -> Self {
        let (pki, state) = (Pki::new("localhost"), tempfile::tempdir().unwrap());
        let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
        let is_fleet = stranger == AtAnotherReplica;
        let face = if is_fleet { "" } else { "modern = true\n" };
        let route = format!("[[route]]\npath = \"/a\"\nupstream.command = {command}\n{face}{KEYS}");
        let server = match stranger {
            OtherUser | Nameless | AtAnotherReplica => FRONT.to_owned(),
            OtherCertificate => client_certificates::asking(&pki),
            OtherToken => String::new(),
        };
        let serving = |number: u32| {
            let state = state.path().join(number.to_string());
            let start = Start { server: &server, state: state.to_str(), ..Start::default() };
            let fleet = if is_fleet { fleet::table().0 } else { String::new() };
            Proxy::serving(&start, &format!("{fleet}{route}"))
        };
        let proxies = (0..if is_fleet { 2 } else { 1 }).map(serving).collect();
        Self { stranger, proxies, pki, state }
    }

    /// Sends a request of `ada` or `bob`. Bob is the stranger.
    async fn send(
        &self,
        user: &str,
        method: &str,
        path: &str,
        headers: Headers<'_>,
        body: &str,
    ) -> Response<Incoming> {
        let is_strange = user == "bob";
        let proxy = if is_strange { self.proxies.last() } else { self.proxies.first() }.unwrap();
        let token = format!("Bearer {user}");
        let own: Headers<'_> = match self.stranger {
            OtherCertificate => &[],
            OtherToken => &[("authorization", &token)],
            Nameless if is_strange => &[],
            OtherUser | Nameless | AtAnotherReplica => &[("x-user", user)],
        };
        let mut client = if self.stranger == OtherCertificate {
            let named = self.pki.client_named(&format!("{user}.example.com"), &self.pki);
            Client::tls(proxy.address(), named).await
        } else {
            Client::plain(proxy.address(), false).await
        };
        let headers = [own, headers].concat();
        client.send_to(path, method, proxy.address(), &headers, body.to_owned()).await
    }

    /// The status and the whole body of an answer; a stream of events that is not over is left.
    async fn ask(
        &self,
        user: &str,
        method: &str,
        headers: Headers<'_>,
        body: &str,
    ) -> (u16, String) {
        let answer = self.send(user, method, "/a", headers, body).await;
        let status = answer.status().as_u16();
        let is_stream = method == "GET" && status == 200;
        (status, if is_stream { String::new() } else { rest(answer).await })
    }

    /// Begins a session of 2025-11-25.
    async fn begin(&self, user: &str) -> String {
        let said = initialize_with(0, r#"{"roots":{}}"#, "2025-11-25");
        let begun = self.send(user, "POST", "/a", &[], &said).await;
        let id = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        rest(begun).await;
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.ask(user, "POST", &[("mcp-session-id", &id)], ready).await;
        id
    }

    /// A request in a session.
    async fn in_session(
        &self,
        user: &str,
        session: &str,
        method: &str,
        params: &str,
    ) -> (u16, String) {
        let body = request(5, method, format!("{{{params}}}"));
        self.ask(user, "POST", &[("mcp-session-id", session)], &body).await
    }

    /// Sends a request of 2026-07-28. `params` are members, each followed by a comma.
    async fn send_modern(&self, user: &str, method: &str, params: &str) -> Response<Incoming> {
        let stated =
            r#"clientCapabilities":{"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        let body = modern(9, method, params).replace(r#"clientCapabilities":{}"#, stated);
        let lines = headers_of(&body);
        let headers: Vec<_> = lines.iter().filter_map(|line| line.split_once(": ")).collect();
        self.send(user, "POST", "/a", &headers, &body).await
    }

    /// The same with its whole answer.
    async fn ask_modern(&self, user: &str, method: &str, params: &str) -> (u16, String) {
        let answer = self.send_modern(user, method, params).await;
        (answer.status().as_u16(), rest(answer).await)
    }

    /// Returns how often all servers have received this message.
    fn heard(&self, what: &str) -> usize {
        self.proxies
            .iter()
            .map(|proxy| proxy.log().matches(&format!("server heard {what}")).count())
            .sum()
    }
}

/// Returns the outcome of a request as a word of the table.
fn outcome((status, text): &(u16, String)) -> String {
    let code = || json(text)["error"]["code"].as_i64();
    match status {
        200..300 if !text.contains("\"error\"") => "yes".to_owned(),
        400 | 200 => code().map_or_else(|| status.to_string(), |code| code.to_string()),
        status => status.to_string(),
    }
}

/// The rows of a column: the kind of request, and its outcome for the owner and for the stranger.
type Rows = Vec<(&'static str, String, String)>;

/// A session that Ada has begun, with the headers that a request to it needs.
struct Session {
    id: String,
    /// An event of a call's stream that she has received.
    event: String,
}

impl Session {
    async fn of_ada(house: &House) -> Self {
        let id = house.begin("ada").await;
        let call = r#""name":"work","_meta":{"progressToken":"t"}"#;
        let (_, told) = house.in_session("ada", &id, "tools/call", call).await;
        let event = told.lines().find_map(|line| line.strip_prefix("id: "));
        let event = event.unwrap_or_else(|| panic!("{told}")).to_owned();
        Self { id, event }
    }
}

/// The doors of which the id of a session is the key.
async fn doors_of_a_session(house: &House, rows: &mut Rows) {
    let unknown = "00000000000000000000000000000000";
    let ping = request(5, "ping", "{}");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
    for (door, method, body) in [
        ("a message in the session", "POST", &*ping),
        ("a cancellation in the session", "POST", cancel),
        ("the listening stream of the session", "GET", ""),
        ("a stream of the session by `Last-Event-ID`", "GET", ""),
        ("the end of the session", "DELETE", ""),
    ] {
        let mut session = Session::of_ada(house).await;
        let resumes = door.contains("Last-Event-ID");
        let headers = |id: &str, event: &str| {
            let event = resumes.then(|| ("last-event-id", event.to_owned()));
            [("mcp-session-id", id.to_owned())].into_iter().chain(event).collect::<Vec<_>>()
        };
        let ask = async |user: &str, headers: Vec<(&str, String)>| {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            house.ask(user, method, &headers, body).await
        };
        let strange = ask("bob", headers(&session.id, &session.event)).await;
        let never = ask("bob", headers(unknown, &session.event)).await;
        if outcome(&strange) == "yes" {
            session = Session::of_ada(house).await;
        } else {
            assert_eq!(strange, never, "{door}: a stranger learns that the session is there");
        }
        let own = ask("ada", headers(&session.id, &session.event)).await;
        rows.push((door, outcome(&own), outcome(&strange)));
    }
}

/// The question that the server has asked in a stream.
async fn question(stream: &mut Response<Incoming>) -> Value {
    let told = until(stream, "roots/list").await;
    json(told.lines().find(|line| line.contains("roots/list")).unwrap())["id"].clone()
}

/// An answer to the server, and a task by its id, in the stranger's own session.
async fn names_in_a_session(house: &House, rows: &mut Rows) {
    let session = house.begin("ada").await;
    let named = [("mcp-session-id", &*session)];
    let call = request(6, "tools/call", r#"{"name":"ask"}"#);
    let mut stream = house.send("ada", "POST", "/a", &named, &call).await;
    let name = question(&mut stream).await;
    let given = |by: u8| format!(r#"{{"jsonrpc":"2.0","id":{name},"result":{{"roots":[{by}]}}}}"#);
    let strange = house.ask("bob", "POST", &named, &given(6)).await;
    let own = house.ask("ada", "POST", &named, &given(7)).await;
    let by = if outcome(&strange) == "yes" { 6 } else { 7 };
    let told = until(&mut stream, "\"content\"").await;
    assert!(told.contains(&format!("[{by}]")), "{told}");
    rows.push(("an answer to the server, in the session", outcome(&own), outcome(&strange)));

    let (_, made) =
        house.in_session("ada", &session, "tools/call", r#""name":"slow","task":{}"#).await;
    let task = json(&made)["result"]["task"]["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("{made}"))
        .to_owned();
    let invented = task.replace(&task[task.len() - 4..], "0000");
    let bobs = house.begin("bob").await;
    let mut strange = Vec::new();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let by = async |id: &str| {
            house.in_session("bob", &bobs, method, &format!(r#""taskId":"{id}""#)).await
        };
        let (foreign, unknown) = (by(&task).await, by(&invented).await);
        assert_eq!(foreign.1.replace(&task, &invented), unknown.1, "{method}");
        strange.push(outcome(&foreign));
    }
    strange.dedup();
    let (_, listed) = house.in_session("bob", &bobs, "tasks/list", "").await;
    assert!(!listed.contains(&task), "{listed}");
    let own =
        house.in_session("ada", &session, "tasks/get", &format!(r#""taskId":"{task}""#)).await;
    rows.push(("a task, in a session of one's own", outcome(&own), strange.join(", ")));
}

/// The endpoint for messages of a stream of HTTP+SSE.
async fn endpoint_of_http_sse(house: &House, rows: &mut Rows) {
    let mut stream = house.send("ada", "GET", "/a/sse", &[], "").await;
    let told = until(&mut stream, "\n\n").await;
    let endpoint = told
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap_or_else(|| panic!("{told}"));
    let mut found = ["bob", "ada"].map(|_| String::new());
    for (user, found) in ["bob", "ada"].into_iter().zip(&mut found) {
        let answer = house.send(user, "POST", endpoint, &[], &request(5, "ping", "{}")).await;
        let status = answer.status().as_u16();
        *found = outcome(&(status, rest(answer).await));
    }
    let [strange, own] = found;
    rows.push(("the endpoint of a stream of HTTP+SSE", own, strange));
}

/// The list that the last start of the server has left (`cached_start`).
async fn list_of_the_last_start(house: &House, rows: &mut Rows) {
    let login = r#""name":"login","arguments":{"user":"ada"}"#;
    let session = house.begin("ada").await;
    house.in_session("ada", &session, "tools/call", login).await;
    let listed = async |user: &str, session: &str| {
        let (_, text) = house.in_session(user, session, "resources/list", "").await;
        assert!(text.contains("\"resources\""), "{text}");
        if text.contains("user:ada") { "yes" } else { "an own list" }.to_owned()
    };
    let own = listed("ada", &session).await;
    let folder = house.state.path().join("0/starts");
    crate::support::until("the answers are kept", || {
        std::fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some())
    });
    let strange = listed("bob", &house.begin("bob").await).await;
    rows.push(("the lists that the last start of a server left (`cached_start`)", own, strange));
}

/// Doors of clients of 2026-07-28, who know no session: a question and a task.
async fn names_without_a_session(house: &House, rows: &mut Rows) {
    let (_, asked) = house.ask_modern("ada", "tools/call", r#""name":"ask","#).await;
    let asked = json(&asked)["result"].clone();
    let name = asked["inputRequests"]
        .as_object()
        .unwrap_or_else(|| panic!("{asked}"))
        .keys()
        .next()
        .unwrap();
    let state = asked["requestState"].as_str().unwrap();
    let given = format!(
        r#""name":"ask","requestState":"{state}","inputResponses":{{"{name}":{{"roots":[7]}}}},"#
    );
    let strange = outcome(&house.ask_modern("bob", "tools/call", &given).await);
    let own = outcome(&house.ask_modern("ada", "tools/call", &given).await);
    rows.push(("the state of a question of 2026-07-28", own, strange));

    let (_, made) = house.ask_modern("ada", "tools/call", r#""name":"slow","#).await;
    let task =
        json(&made)["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let task = format!(r#""taskId":"{task}","#);
    let mut strange = Vec::new();
    for method in ["tasks/get", "tasks/cancel"] {
        strange.push(outcome(&house.ask_modern("bob", method, &task).await));
    }
    strange.dedup();
    let own = outcome(&house.ask_modern("ada", "tasks/get", &task).await);
    rows.push(("a task of 2026-07-28", own, strange.join(", ")));
}

/// Doors of clients of 2026-07-28: work that goes on, a cancellation, and a subscription.
async fn work_without_a_session(house: &House, rows: &mut Rows) {
    let late = r#""name":"late","arguments":{},"#;
    let runs = || house.heard("tools/call late");
    let first = house.send_modern("ada", "tools/call", late);
    let works = async {
        while runs() == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    // The client disconnects while the server works.
    tokio::select! {
        _ = first => {}
        () = works => {}
    }
    crate::support::until("the server works", || runs() == 1);
    let joins = async |user: &str| {
        let before = runs();
        let answer = house.ask_modern(user, "tools/call", late).await;
        match outcome(&answer).as_str() {
            "yes" if runs() > before => "runs anew".to_owned(),
            other => other.to_owned(),
        }
    };
    let (strange, own) = (joins("bob").await, joins("ada").await);
    rows.push(("work that goes on, and its answer (`late`)", own, strange));

    let held = house.send_modern("ada", "tools/call", r#""name":"held","#);
    let go = async {
        while house.heard("tools/call held") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let cancel =
            modern(9, "notifications/cancelled", r#""requestId":9,"#).replace(r#""id":9,"#, "");
        let lines = headers_of(&cancel);
        let headers: Vec<_> = lines.iter().filter_map(|line| line.split_once(": ")).collect();
        let before = house.heard("notifications/cancelled");
        house.ask("bob", "POST", &headers, &cancel).await;
        house.ask_modern("ada", "tools/call", r#""name":"go","#).await;
        house.heard("notifications/cancelled") - before
    };
    let (held, cancelled) = tokio::join!(held, go);
    let own = outcome(&(held.status().as_u16(), rest(held).await));
    let strange = if cancelled == 0 { "no effect" } else { "yes" };
    rows.push(("an open call of 2026-07-28 by its id, to cancel it", own, strange.to_owned()));

    let wanted = r#""notifications":{"toolsListChanged":true,"promptsListChanged":true},"#;
    let mut own = house.send_modern("ada", "subscriptions/listen", wanted).await;
    let mut other = house.send_modern("bob", "subscriptions/listen", wanted).await;
    let change = |of: &str| format!(r#""name":"change","arguments":{{"of":"{of}"}},"#);
    house.ask_modern("ada", "tools/call", &change("tools")).await;
    until(&mut own, "tools/list_changed").await;
    let strange = if other.status() == 200 {
        house.ask_modern("bob", "tools/call", &change("prompts")).await;
        let told = until(&mut other, "prompts/list_changed").await;
        if told.contains("tools/list_changed") { "yes".to_owned() } else { "its own".to_owned() }
    } else {
        let status = other.status().as_u16();
        outcome(&(status, rest(other).await))
    };
    rows.push(("what a server tells those who listen (2026-07-28)", "yes".to_owned(), strange));
}

/// The cells of this column of the table in the documentation, with those of the owner.
fn documented(column: usize) -> Vec<(String, String, String)> {
    let page = std::fs::read_to_string(home().join("docs/operating.md")).unwrap();
    let table = page.split("| door | ").nth(1).expect("docs/operating.md has the table of doors");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells =
        rows.map(|line| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_owned()));
    let cells = cells.map(Iterator::collect::<Vec<_>>);
    cells.map(|row| (row[0].clone(), row[1].clone(), row[column].clone())).collect()
}

/// Tries every kind of request, and compares the outcomes with the table.
async fn doors_are_as_documented(stranger: Stranger, column: usize) {
    let house = House::of(stranger);
    let mut rows = Vec::new();
    doors_of_a_session(&house, &mut rows).await;
    names_in_a_session(&house, &mut rows).await;
    endpoint_of_http_sse(&house, &mut rows).await;
    list_of_the_last_start(&house, &mut rows).await;
    if stranger != AtAnotherReplica {
        names_without_a_session(&house, &mut rows).await;
        work_without_a_session(&house, &mut rows).await;
    }
    let found: Vec<_> =
        rows.into_iter().map(|(door, own, strange)| (door.to_owned(), own, strange)).collect();
    let documented: Vec<_> = documented(column).into_iter().filter(|row| row.2 != "–").collect();
    let lines = |rows: &[(String, String, String)]| {
        rows.iter()
            .map(|(door, own, strange)| format!("{door} | {own} | {strange}\n"))
            .collect::<String>()
    };
    assert_eq!(lines(&found), lines(&documented));
}

#[tokio::test]
async fn another_user_of_the_front_enters_no_door() {
    doors_are_as_documented(OtherUser, 2).await;
}

#[tokio::test]
async fn a_request_without_a_user_enters_no_door() {
    doors_are_as_documented(Nameless, 3).await;
}

#[tokio::test]
async fn another_certificate_enters_no_door() {
    doors_are_as_documented(OtherCertificate, 4).await;
}

#[tokio::test]
async fn another_user_enters_no_door_of_another_replica() {
    doors_are_as_documented(AtAnotherReplica, 5).await;
}

#[tokio::test]
async fn another_token_enters_the_doors_that_the_table_names() {
    doors_are_as_documented(OtherToken, 6).await;
}
