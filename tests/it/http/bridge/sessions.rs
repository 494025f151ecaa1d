//! Sessions that Milepost manages for a stdio server: their beginning, the forms of answers, and their end.

use tokio::sync::mpsc;

use crate::http::direct::large_bodies::large_call;
use crate::http::rig::{Answer, CHUNKED, Lines, Rig, check, chunked, ms, pass, secs, settle};
use crate::support::messages::{LOG, agreement, call, initialize, progress, result};

/// A rig, its first session and the server of that session.
pub(crate) struct Begun {
    pub(crate) rig: Rig,
    pub(crate) server: Lines,
    _servers: mpsc::UnboundedReceiver<Lines>,
    /// The header that names the session.
    pub(crate) session: String,
}

/// Begins a session.
pub(crate) async fn begin(
    rig: &Rig,
    servers: &mut mpsc::UnboundedReceiver<Lines>,
    revision: &str,
) -> (Lines, String) {
    let answer = rig.post(&[], initialize(revision));
    settle().await;
    let mut server = servers.try_recv().expect("no server was started");
    assert_eq!(server.line().await, initialize(revision));
    server.say(agreement(revision));
    settle().await;
    assert_eq!(answer.text(), agreement(revision));
    let id = answer.header("mcp-session-id").unwrap();
    (server, format!("Mcp-Session-Id: {id}"))
}

pub(crate) async fn begun(keys: &str, revision: &str) -> Begun {
    let (rig, mut servers) = Rig::of_lines(keys);
    let (server, session) = begin(&rig, &mut servers, revision).await;
    Begun { rig, server, _servers: servers, session }
}

impl Begun {
    pub(crate) fn post(&self, body: impl AsRef<[u8]>) -> Answer {
        self.rig.post(&[&self.session], body)
    }

    pub(crate) fn get(&self, headers: &[&str]) -> Answer {
        self.rig.get(&[&[&self.session[..]], headers].concat())
    }

    pub(crate) fn delete(&self) -> Answer {
        self.rig.send("DELETE /r", &[&self.session], b"")
    }

    /// Whether the session is known.
    pub(crate) async fn is_known(&self) -> bool {
        let answer = self.post(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        settle().await;
        assert!([202, 404].contains(&answer.status()), "{}", answer.status());
        answer.status() == 202
    }
}

#[tokio::test(start_paused = true)]
async fn initialize_begins_a_session_of_an_unguessable_id_with_a_server_of_its_own() {
    let (rig, mut servers) = Rig::of_lines("");
    let (mut one, first) = begin(&rig, &mut servers, "2025-06-18").await;
    let (mut two, second) = begin(&rig, &mut servers, "2025-06-18").await;
    let id = first.strip_prefix("Mcp-Session-Id: ").unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_ne!(first, second);
    // Equal ids and tokens of different sessions have no connection.
    let answers = [&first, &second].map(|session| rig.post(&[session], call("1", "1")));
    assert_eq!(one.line().await, call("1", "1"));
    assert_eq!(two.line().await, call("1", "1"));
    one.say(progress("1", 1));
    one.say(result("1"));
    settle().await;
    assert_eq!(answers[0].messages(), [progress("1", 1), result("1")]);
    assert!(answers[1].is_silent());
    two.say(result("1"));
    settle().await;
    assert_eq!(answers[1].messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_no_session_is_refused() {
    let begun = begun("", "2025-06-18").await;
    let rig = &begun.rig;
    let unknown = "Mcp-Session-Id: 0123456789abcdef0123456789abcdef";
    let listed = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let known = &begun.session[..];
    for (answer, status) in [
        (rig.post(&[], listed), 400),
        (rig.post(&[unknown], listed), 404),
        (rig.post(&[known], "not json"), 400),
        (rig.post(&[known, "MCP-Protocol-Version: 1999-01-01"], listed), 400),
        (rig.get(&[]), 405),
        (rig.get(&[unknown]), 404),
        (rig.send("DELETE /r", &[], b""), 400),
        (rig.send("DELETE /r", &[unknown], b""), 404),
        (rig.send("PUT /r", &[known], b""), 405),
    ] {
        settle().await;
        assert_eq!(answer.status(), status, "{}", answer.text());
        let error: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        assert_eq!(error["error"]["data"]["proxy"], "milepost");
        assert!(error.get("id").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_server_refuses_or_ends_is_none() {
    let (rig, mut servers) = Rig::of_lines("");
    let error = r#"{"jsonrpc":"2.0","id":"i","error":{"code":-32602,"message":"no"}}"#;
    let answer = rig.post(&[], initialize("2025-06-18"));
    settle().await;
    let server = servers.try_recv().unwrap();
    server.say(error);
    settle().await;
    assert_eq!((answer.text(), answer.header("mcp-session-id")), (error.to_owned(), None));
    pass(ms(10)).await;
    assert!(server.is_closed());
    let answer = rig.post(&[], initialize("2025-06-18"));
    settle().await;
    drop(servers.try_recv().unwrap());
    pass(ms(10)).await;
    assert!(answer.text().contains("the MCP server ended"), "{}", answer.text());
    assert_eq!(answer.header("mcp-session-id"), None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_initialize_in_time_is_ended() {
    let (rig, mut servers) = Rig::of_lines("upstream.start_timeout = \"20s\"");
    let answer = rig.post(&[], initialize("2025-06-18"));
    settle().await;
    let server = servers.try_recv().unwrap();
    pass(secs(19)).await;
    assert!(answer.is_silent());
    pass(secs(2)).await;
    assert_eq!(answer.status(), 504);
    assert!(answer.text().contains("start_timeout"));
    assert!(server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_its_session_has_begun_leaves_no_server() {
    let (rig, mut servers) = Rig::of_lines("");
    let answer = rig.post(&[], initialize("2025-06-18"));
    settle().await;
    let server = servers.try_recv().unwrap();
    answer.leave();
    pass(ms(10)).await;
    assert!(server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn more_servers_than_max_children_are_refused() {
    let (rig, mut servers) = Rig::of_lines("upstream.max_children = 1");
    let (server, session) = begin(&rig, &mut servers, "2025-06-18").await;
    let answer = rig.post(&[], initialize("2025-06-18"));
    settle().await;
    assert_eq!(answer.status(), 503);
    assert!(answer.text().contains("max_children") && answer.text().contains(r#""id":"i""#));
    let ended = rig.send("DELETE /r", &[&session], b"");
    pass(ms(10)).await;
    assert_eq!(ended.status(), 200);
    assert!(server.is_closed());
    begin(&rig, &mut servers, "2025-06-18").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_alone_is_json_and_anything_before_it_makes_a_stream() {
    let mut begun = begun("", "2025-06-18").await;
    let alone = begun.post(call("1", "1"));
    assert_eq!(begun.server.line().await, call("1", "1"));
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(alone.header("content-type").as_deref(), Some("application/json"));
    assert_eq!(alone.text(), result("1"));
    let asks = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#;
    for (id, before) in [("2", &progress("2", 1)[..]), ("3", LOG), ("4", asks)] {
        let stream = begun.post(call(id, id));
        settle().await;
        begun.server.say(before);
        settle().await;
        assert_eq!(stream.header("content-type").as_deref(), Some("text/event-stream"));
        assert_eq!(stream.header("cache-control").as_deref(), Some("no-cache"));
        assert_eq!(stream.header("x-accel-buffering").as_deref(), Some("no"));
        assert!(!stream.is_over());
        begun.server.say(result(id));
        settle().await;
        assert!(stream.is_over());
        assert_eq!(stream.messages(), [before, &result(id)]);
        check([&stream]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_becomes_a_stream_and_initialize_does_not() {
    let begun = begun("heartbeat = { enabled = false }", "2025-06-18").await;
    let call = begun.post(call("1", "1"));
    pass(ms(4900)).await;
    assert!(call.is_silent());
    pass(ms(200)).await;
    assert_eq!(call.header("content-type").as_deref(), Some("text/event-stream"));
    pass(secs(30)).await;
    assert!(call.blocks().len() >= 2, "comments keep it awake");
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(call.messages(), [result("1")]);
    let answer = begun.rig.post(&[], initialize("2025-06-18"));
    pass(secs(30)).await;
    assert!(answer.is_silent());
}

#[tokio::test(start_paused = true)]
async fn a_silent_tool_gets_heartbeats() {
    let begun = begun("", "2025-06-18").await;
    let call = begun.post(call("1", "1"));
    pass(secs(70)).await;
    assert!(!call.messages().is_empty());
    begun.server.say(result("1"));
    settle().await;
    check([&call]);
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_an_hour() {
    let begun = begun("heartbeat = { enabled = false }", "2025-06-18").await;
    let (silent, reports) = (begun.post(call("1", "1")), begun.post(call("2", "2")));
    for minute in 1..=60 {
        pass(secs(60)).await;
        begun.server.say(progress("2", minute));
    }
    begun.server.say(result("1"));
    begun.server.say(result("2"));
    settle().await;
    assert_eq!(silent.messages(), [result("1")]);
    assert_eq!((reports.messages().len(), reports.messages().last()), (61, Some(&result("2"))));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_events_gets_json_without_progress_and_loses_nothing_else() {
    let begun = begun("", "2025-06-18").await;
    let json = ["Accept: application/json", "Content-Type: application/json", &begun.session];
    let answer = begun.rig.send("POST /r", &json, call("1", "1").as_bytes());
    let home = begun.get(&[]);
    settle().await;
    for line in [&progress("1", 1)[..], LOG, &progress("1", 2)] {
        begun.server.say(line);
    }
    pass(secs(40)).await;
    assert!(answer.is_silent());
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(answer.text(), result("1"));
    assert_eq!(home.messages(), [LOG]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_only_events_gets_them_at_once() {
    let begun = begun("", "2025-06-18").await;
    let events = ["Accept: text/event-stream", "Content-Type: application/json", &begun.session];
    let answer = begun.rig.send("POST /r", &events, call("1", "1").as_bytes());
    settle().await;
    assert_eq!(answer.header("content-type").as_deref(), Some("text/event-stream"));
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(answer.messages(), [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn an_array_of_2025_03_26_is_one_exchange() {
    let mut begun = begun("", "2025-03-26").await;
    let array = format!("[{},\n{}]", call("1", "1"), call("2", "2"));
    let answer = begun.post(&array);
    assert_eq!(begun.server.line().await, array.replace('\n', " "));
    begun.server.say(result("2"));
    settle().await;
    assert!(answer.is_silent());
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(answer.text(), format!("[{},{}]", result("2"), result("1")));
    let answer = begun.post(format!("[{},{}]", call("3", "3"), call("4", "4")));
    settle().await;
    begun.server.say(progress("3", 1));
    begun.server.say(format!("[{},{}]", result("3"), result("4")));
    settle().await;
    let both = format!("[{},{}]", result("3"), result("4"));
    assert_eq!(answer.messages(), [progress("3", 1), both]);
}

#[tokio::test(start_paused = true)]
async fn what_a_client_says_reaches_the_server_on_one_line() {
    let mut begun = begun("", "2025-06-18").await;
    let answer = begun.post("{\r\n \"jsonrpc\":\r\"2.0\",\n \"method\": \"a\\nb\"\n}\n");
    settle().await;
    assert_eq!((answer.status(), &answer.text()[..]), (202, ""));
    assert_eq!(begun.server.line().await, "{   \"jsonrpc\": \"2.0\",  \"method\": \"a\\nb\" }");
    let answer = begun.post(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    settle().await;
    assert_eq!((answer.status(), answer.text().len()), (202, 0));
    assert_eq!(begun.server.line().await, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
}

#[tokio::test(start_paused = true)]
async fn a_bare_return_of_the_server_breaks_no_event() {
    let begun = begun("", "2025-06-18").await;
    let answer = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(LOG);
    begun.server.raw("{\"jsonrpc\":\"2.0\",\r\"id\":1,\"result\":{}}\r\n");
    settle().await;
    assert_eq!(answer.messages(), [LOG, "{\"jsonrpc\":\"2.0\", \"id\":1,\"result\":{}}"]);
}

#[tokio::test(start_paused = true)]
async fn a_large_chunked_message_reaches_the_server_whole_or_not_at_all() {
    const BYTES: usize = 10 << 20;
    let mut begun = begun(&format!("max_request_bytes = {BYTES}"), "2025-06-18").await;
    let message = |bytes| {
        let (head, tail) = (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","x":""#, "\"}");
        format!("{head}{}{tail}", "y".repeat(bytes - head.len() - tail.len()))
    };
    let headers = [&begun.session[..], CHUNKED];
    let refused = begun.rig.post(&headers, chunked(message(BYTES + 1)));
    pass(secs(1)).await;
    assert_eq!(refused.status(), 413);
    let text = format!("the body of a request may have {BYTES} bytes on this route\n");
    assert_eq!(refused.text(), text);
    let broken = begun.rig.post(&headers, &chunked(message(BYTES))[..BYTES / 2]);
    pass(secs(31)).await;
    assert_eq!(broken.status(), 408);
    assert!(begun.server.told().await.is_empty());
    let taken = begun.rig.post(&headers, chunked(message(BYTES)));
    pass(secs(1)).await;
    assert!(begun.server.line().await == message(BYTES));
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(taken.text(), result("1"));
}

#[tokio::test(start_paused = true)]
async fn large_messages_pass_in_both_directions() {
    const BYTES: usize = 10 << 20;
    let mut begun = begun("", "2025-06-18").await;
    let text = "y".repeat(BYTES);
    let asks = format!(
        "{{\"jsonrpc\":\"2.0\",\n\"id\":\"big\",\"method\":\"tools/call\",\"params\":{{\"x\":\"{text}\"}}}}"
    );
    let answer = begun.post(&asks);
    for _ in 0..100 {
        settle().await;
    }
    assert!(begun.server.line().await == asks.replace('\n', " "));
    let says = format!(r#"{{"jsonrpc":"2.0","id":"big","result":{{"content":["{text}"]}}}}"#);
    begun.server.say(&says);
    for _ in 0..200 {
        settle().await;
    }
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
    assert!(answer.is_over() && answer.text().trim_end() == says);
    // After another message the answer is an event.
    let answer = begun.post(call("2", "2"));
    settle().await;
    begun.server.say(progress("2", 1));
    let says = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"content":["{text}"]}}}}"#);
    begun.server.say(&says);
    for _ in 0..200 {
        settle().await;
    }
    let messages = answer.messages();
    assert!(messages.len() == 2 && messages[0] == progress("2", 1));
    assert!(messages[1].trim_end() == says && answer.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_its_exchange() {
    let mut begun = begun("", "2025-06-18").await;
    let answer = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(progress("1", 1));
    begun.server.told().await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let told = begun.post(cancel);
    settle().await;
    assert_eq!(told.status(), 202);
    assert_eq!(begun.server.line().await, cancel);
    assert!(answer.is_over());
    begun.server.say(progress("1", 2));
    pass(secs(1)).await;
    assert_eq!(answer.messages(), [progress("1", 1)]);
    assert!(begun.is_known().await);
}

#[tokio::test(start_paused = true)]
async fn delete_ends_the_session_and_its_server() {
    let begun = begun("", "2025-06-18").await;
    let open = begun.post(call("1", "1"));
    let home = begun.get(&[]);
    settle().await;
    let answer = begun.delete();
    pass(ms(10)).await;
    assert_eq!(answer.status(), 200);
    assert!(open.text().contains("the session has ended") && open.text().contains(r#""id":1"#));
    assert!(home.is_over());
    assert!(begun.server.is_closed());
    assert!(!begun.is_known().await);
    let again = begun.delete();
    settle().await;
    assert_eq!(again.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_takes_its_session_with_it() {
    let begun = begun("", "2025-06-18").await;
    let (json, stream) = (begun.post(call("1", "1")), begun.post(call("2", "2")));
    let home = begun.get(&[]);
    settle().await;
    begun.server.say(progress("2", 1));
    settle().await;
    let Begun { rig, server, session, .. } = begun;
    drop(server);
    pass(ms(10)).await;
    for answer in [&json, &stream] {
        assert!(answer.is_over());
        assert!(answer.text().contains("the MCP server ended"), "{}", answer.text());
    }
    check([&json, &stream]);
    assert!(home.is_over());
    let answer = rig.post(&[&session], call("3", "3"));
    settle().await;
    assert_eq!(answer.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_used_ends() {
    let begun = begun("upstream.idle_timeout = \"60s\"", "2025-06-18").await;
    // An open call keeps the session.
    let answer = begun.post(call("1", "1"));
    pass(secs(300)).await;
    begun.server.say(result("1"));
    settle().await;
    assert!(answer.is_over());
    pass(secs(55)).await;
    // A client that listens keeps the session while it is connected.
    let home = begun.get(&[]);
    pass(secs(300)).await;
    assert!(!home.is_over());
    home.leave();
    pass(secs(50)).await;
    assert!(!begun.server.is_closed());
    pass(secs(30)).await;
    assert!(begun.server.is_closed());
    assert!(!begun.is_known().await);
}

/// A session of a client that holds a GET stream, before a server whose settings end abandoned sessions.
async fn listening() -> (Begun, Answer) {
    let begun = begun("upstream.abandoned_timeout = \"60s\"", "2025-11-25").await;
    let home = begun.get(&[]);
    settle().await;
    (begun, home)
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_its_client_has_closed_the_stream_that_it_held() {
    let (begun, home) = listening().await;
    pass(secs(600)).await;
    home.leave();
    pass(secs(55)).await;
    assert!(!begun.server.is_closed());
    pass(secs(10)).await;
    assert!(begun.server.is_closed());
    assert!(!begun.is_known().await);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_makes_a_request_or_listens_again_has_not_left() {
    let (begun, home) = listening().await;
    home.leave();
    pass(secs(50)).await;
    let home = begun.get(&[]);
    pass(secs(300)).await;
    home.leave();
    pass(secs(50)).await;
    // A client that never opens a GET stream does not count as disconnected.
    assert!(begun.is_known().await);
    pass(secs(600)).await;
    assert!(!begun.server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_moved_its_stream_has_not_left() {
    let (begun, before) = listening().await;
    let _home = begun.get(&[]);
    settle().await;
    before.leave();
    pass(secs(600)).await;
    assert!(!begun.server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_call_a_task_and_an_answer_keep_the_session_of_a_client_that_has_left() {
    // A call whose answer no client can fetch any more.
    let (begun, home) = listening().await;
    let waits = begun.post(call("1", "1"));
    settle().await;
    home.leave();
    waits.leave();
    pass(secs(300)).await;
    assert!(!begun.server.is_closed());
    begun.server.say(result("1"));
    pass(secs(55)).await;
    assert!(!begun.server.is_closed());
    pass(secs(10)).await;
    assert!(begun.server.is_closed());

    // An answer on a stream that the client can resume.
    let (begun, home) = listening().await;
    let waits = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(progress("1", 1));
    pass(secs(1)).await;
    home.leave();
    waits.leave();
    settle().await;
    begun.server.say(result("1"));
    pass(secs(600)).await;
    assert!(!begun.server.is_closed());

    // The same with a task.
    let (begun, home) = listening().await;
    let task = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":3600000},"_meta":{"progressToken":1}}}"#;
    let answer = begun.post(task);
    settle().await;
    let status = |status: &str| format!(r#"{{"taskId":"a","status":"{status}","ttl":3600000}}"#);
    let working = status("working");
    begun.server.say(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"task":{working}}}}}"#));
    settle().await;
    assert!(answer.is_over());
    home.leave();
    pass(secs(600)).await;
    assert!(!begun.server.is_closed());
    let completed = status("completed");
    begun.server.say(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{completed}}}"#
    ));
    pass(secs(70)).await;
    assert!(begun.server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn clients_that_have_left_keep_their_session_where_no_time_is_set() {
    let begun = begun("", "2025-11-25").await;
    let home = begun.get(&[]);
    settle().await;
    home.leave();
    pass(secs(1700)).await;
    assert!(!begun.server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn closing_a_stream_ends_no_session_and_cancels_nothing() {
    let mut begun = begun("", "2025-06-18").await;
    let home = begun.get(&[]);
    let answer = begun.post(call("1", "1"));
    settle().await;
    begun.server.told().await;
    home.leave();
    answer.leave();
    pass(secs(10)).await;
    assert!(begun.server.told().await.is_empty());
    assert!(begun.is_known().await);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_open_requests_get_an_error() {
    let begun = begun("", "2025-06-18").await;
    let (json, stream) = (begun.post(call("1", "1")), begun.post(call("2", "2")));
    let home = begun.get(&[]);
    settle().await;
    begun.server.say(progress("2", 1));
    settle().await;
    begun.rig.end_streams();
    pass(ms(10)).await;
    assert_eq!(json.status(), 503);
    for answer in [&json, &stream] {
        assert!(answer.is_over() && answer.text().contains("shutting down"));
    }
    check([&json, &stream]);
    assert!(home.is_over() && begun.server.is_closed());
    let late = begun.rig.post(&[], initialize("2025-06-18"));
    settle().await;
    assert_eq!(late.status(), 503);
}

#[tokio::test(start_paused = true)]
async fn a_route_that_only_looks_on_changes_nothing_and_still_answers_each_where_it_asked() {
    let begun = begun("mode = \"observe\"", "2025-06-18").await;
    let answers = ["1", "2"].map(|id| begun.post(call(id, id)));
    settle().await;
    // Two falling values that would be repaired in another mode.
    for value in [5, 3] {
        begun.server.say(progress("1", value));
        begun.server.say(progress("2", value));
    }
    for id in ["2", "1"] {
        begun.server.say(result(id));
    }
    settle().await;
    for (id, answer) in ["1", "2"].iter().zip(&answers) {
        assert_eq!(answer.messages(), [progress(id, 5), progress(id, 3), result(id)]);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_to_an_array_wait_for_each_other_where_no_events_are_read() {
    let begun = begun("", "2025-03-26").await;
    let json = ["Accept: application/json", "Content-Type: application/json", &begun.session];
    let array = format!("[{},{}]", call("1", "1"), call("2", "2"));
    let answer = begun.rig.send("POST /r", &json, array.as_bytes());
    settle().await;
    begun.server.say(format!("[{},{}]", LOG, result("1")));
    settle().await;
    assert!(answer.is_silent());
    begun.server.say(result("2"));
    settle().await;
    assert_eq!(answer.text(), format!("[{},{}]", result("1"), result("2")));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_before_the_answer_to_initialize_is_told_with_it() {
    let (rig, mut servers) = Rig::of_lines("");
    let answer = rig.post(&[], initialize("2025-06-18"));
    settle().await;
    let server = servers.try_recv().unwrap();
    server.say(LOG);
    server.say(agreement("2025-06-18"));
    settle().await;
    assert_eq!(answer.messages(), [LOG, &agreement("2025-06-18")]);
    assert!(answer.is_over() && answer.header("mcp-session-id").is_some());
}

/// A large answer, whose length is kept in a file.
fn large(id: &str, bytes: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{}"}}}}"#, "z".repeat(bytes))
}

/// Waits for what other threads do with files.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if what() {
            return;
        }
        tokio::time::sleep(ms(10)).await;
    }
    panic!("it has taken too long");
}

#[tokio::test]
async fn a_large_answer_is_whole_although_its_server_ends_at_once() {
    let begun = begun("upstream.max_frame = 65536", "2025-06-18").await;
    let json = begun.rig.send(
        "POST /r",
        &[&begun.session, "Content-Type: application/json", "Accept: application/json"],
        call("1", "1").as_bytes(),
    );
    let events = begun.post(call("2", "2"));
    settle().await;
    begun.server.say(progress("2", 1));
    begun.server.say(large("1", 3_000_000));
    begun.server.say(large("2", 3_000_000));
    let Begun { server, .. } = begun;
    drop(server);
    until(|| json.is_over() && events.is_over()).await;
    assert!(json.text().trim_end() == large("1", 3_000_000), "{}", json.text().len());
    assert!(events.messages()[1].trim_end() == large("2", 3_000_000));
    assert_eq!(json.header("content-type").as_deref(), Some("application/json"));
}

#[tokio::test]
async fn a_stream_ends_although_a_large_answer_has_not() {
    let begun = begun("upstream.max_frame = 65536", "2025-06-18").await;
    let answer = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(progress("1", 1));
    settle().await;
    answer.pause(true);
    begun.server.say(large("1", 9_000_000));
    tokio::time::sleep(ms(300)).await;
    let ended = begun.delete();
    until(|| ended.is_over()).await;
    answer.pause(false);
    until(|| answer.is_over()).await;
    let error = answer.messages().pop().unwrap();
    assert!(error.contains(r#""id":1,"error""#), "{}", &error[..error.len().min(200)]);
}

#[tokio::test]
async fn a_large_request_of_the_server_is_nobodys_answer() {
    let mut begun = begun("upstream.max_frame = 65536", "2025-06-18").await;
    let answer = begun.post(call("1", "1"));
    assert_eq!(begun.server.line().await, call("1", "1"));
    let text = "z".repeat(100_000);
    begun.server.say(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{{"t":"{text}"}}}}"#
    ));
    // The message is longer than `max_frame`, so other threads may keep it in a file.
    let mut told = Vec::new();
    for _ in 0..6_000 {
        told = begun.server.told().await;
        if !told.is_empty() {
            break;
        }
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(told.len(), 1, "{told:?}");
    let refusal = &told[0];
    assert!(refusal.contains(r#""id":1,"error""#), "{refusal}");
    begun.server.say(result("1"));
    until(|| answer.is_over()).await;
    assert_eq!(answer.text(), result("1"));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_has_gone_keeps_no_session_for_ever() {
    let begun = begun("upstream.idle_timeout = \"60s\"", "2025-06-18").await;
    let waits = begun.post(call("1", "1"));
    pass(secs(100)).await;
    assert!(!begun.server.is_closed());
    waits.leave();
    pass(secs(50)).await;
    assert!(!begun.server.is_closed());
    pass(secs(30)).await;
    assert!(begun.server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_breaks_off_waits_for_no_answer() {
    let mut begun = begun("", "2025-06-18").await;
    let half = format!("{}{}", call("7", "7").trim_end_matches('}'), "}".repeat(2));
    let half = format!(r#"{half},"x":"{}"#, "y".repeat(5_000_000));
    let answer = begun.rig.post(&[&begun.session, "Content-Length: 6000000"], &half);
    pass(secs(200)).await;
    assert_eq!(answer.status(), 400, "{}", answer.text());
    let told = begun.server.told().await;
    assert!(told.len() == 2 && told[0] == half);
    let cancel = &told[1];
    assert!(cancel.contains(r#""notifications/cancelled","params":{"requestId":7}"#), "{cancel}");
    assert!(begun.is_known().await);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_call_that_was_silent_has_all_the_time_to_come_back() {
    let keys = "upgrade_after = \"off\"\nupstream.idle_timeout = \"60s\"";
    let begun = begun(keys, "2025-06-18").await;
    let waits = begun.post(call("1", "1"));
    pass(secs(100)).await;
    waits.leave();
    pass(secs(50)).await;
    assert!(!begun.server.is_closed());
    pass(secs(30)).await;
    assert!(begun.server.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_active_in_another_session_is_nobodys() {
    let (rig, mut servers) = Rig::of_lines("heartbeat.enabled = false");
    let (mut one, ours) = begin(&rig, &mut servers, "2025-06-18").await;
    let (mut two, theirs) = begin(&rig, &mut servers, "2025-06-18").await;
    let first = rig.post(&[&ours], call("1", "7"));
    let second = rig.post(&[&theirs], call("2", "9"));
    settle().await;
    assert_eq!((one.line().await, two.line().await), (call("1", "7"), call("2", "9")));
    two.say(progress("7", "1"));
    settle().await;
    assert!(second.is_silent());
    // The server's name for the second call means the second call only.
    two.say(progress("2", "1"));
    settle().await;
    assert_eq!(second.messages().len(), 1);
    assert!(second.messages()[0].contains(r#""progressToken":9"#));
    one.say(result("1"));
    settle().await;
    assert_eq!(first.messages(), [result("1")]);
    pass(secs(1)).await;
    // After the end of the call its token may be used by the server for another call.
    two.say(progress("7", "5"));
    settle().await;
    assert!(second.messages()[1].contains(r#""progressToken":9"#));
    check([&second]);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_has_left_counts_until_it_is_answered() {
    let mut begun = begun("max_streams = 1", "2025-11-25").await;
    let left = begun.post(call("1", "1"));
    settle().await;
    left.leave();
    settle().await;
    let refused = begun.post(call("2", "2"));
    settle().await;
    assert_eq!(refused.status(), 503);
    assert_eq!(begun.server.told().await, [call("1", "1")]);
    begun.server.say(result("1"));
    settle().await;
    // The same with a stream. A client that resumes a call takes no further place.
    let left = begun.post(call("3", "3"));
    settle().await;
    begun.server.say(progress("3", 1));
    pass(secs(1)).await;
    assert_eq!(left.messages(), [progress("3", 1)]);
    let last = left.blocks().iter().rev().find_map(|block| block.id.clone()).unwrap();
    left.leave();
    settle().await;
    let refused = begun.post(call("4", "4"));
    settle().await;
    assert_eq!(refused.status(), 503);
    let back = begun.get(&[&format!("Last-Event-ID: {last}")]);
    settle().await;
    assert_eq!(back.status(), 200);
    begun.server.say(result("3"));
    pass(secs(1)).await;
    assert_eq!(back.messages(), [result("3")]);
    back.leave();
    settle().await;
    let answered = begun.post(call("5", "5"));
    settle().await;
    begun.server.say(result("5"));
    pass(secs(1)).await;
    assert_eq!(answered.text(), result("5"));
    // An incomplete message has no answer to wait for.
    let half =
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"x","params":"{}"#, "y".repeat(5_000_000));
    let broken = begun.rig.post(&[&begun.session, "Content-Length: 6000000"], &half);
    pass(secs(200)).await;
    assert_eq!(broken.status(), 400, "{}", broken.text());
    let next = begun.post(call("8", "8"));
    settle().await;
    assert!(next.is_silent(), "{}", next.text());
}

/// Bytes of a body beyond 4 MiB are in a file
/// (`a_chunked_message_of_100_megabytes_reaches_a_stdio_server_in_little_memory`), and count for the budget too.
#[tokio::test(start_paused = true)]
async fn bodies_for_a_stdio_server_count_for_the_budget_in_files_too() {
    let mut begun = begun("\n[server]\nmax_unread_bytes = 10_000_000", "2025-06-18").await;
    let body = chunked(large_call(6 << 20));
    let send = |bytes: usize| begun.rig.post(&[&begun.session, CHUNKED], &body[..bytes]);
    let unfinished = send(body.len() - 5);
    pass(secs(1)).await;
    assert!(unfinished.is_silent());
    let refused = send(body.len() - 5);
    pass(secs(1)).await;
    assert_eq!((refused.status(), refused.header("retry-after").as_deref()), (503, Some("1")));
    drop(unfinished);
    pass(secs(1)).await;
    let whole = send(body.len());
    pass(secs(1)).await;
    assert_eq!(begun.server.line().await.len(), large_call(6 << 20).len());
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(whole.messages(), [result("1")]);
}
