//! Clients that give calls up by their clock, before a server whose runs are counted.

use tokio::sync::mpsc;

use super::sessions::begun;
use crate::http::rig::{Answer, Lines, Rig, ms, pass, secs, settle};
use crate::support::messages::{
    agreement, answer, call, headers_of, initialize, modern_with, notification,
};

const CLIENTS: usize = 200;

const KEYS: &str = "heartbeat.enabled = false\nlate = { keep = \"10m\", finished = \"2m\" }\n\
                    upstream.max_children = 200";

/// How a client behaves after it has made its call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Waits,
    /// Gives up after 60 s, and calls again.
    Returns,
    /// The same once more after 30 s.
    ReturnsTwice,
    /// Gives up, and calls again when the work has been done.
    ReturnsLate,
    /// Gives up, and calls another tool.
    MovesOn,
    Dies,
}

use Manner::{Dies, MovesOn, Returns, ReturnsLate, ReturnsTwice, Waits};

impl Manner {
    const fn of(client: usize) -> Self {
        [Waits, Returns, ReturnsTwice, ReturnsLate, MovesOn, Dies][client % 6]
    }
}

/// One of the clients, with the child that serves it alone. All ask for the same work, each for itself.
struct Client {
    number: usize,
    manner: Manner,
    server: Lines,
    /// The id by which the server knows the call.
    run: String,
    answer: Answer,
}

impl Client {
    fn call(rig: &Rig, number: usize, tool: &str) -> Answer {
        let call =
            modern_with(1, 1, "tools/call", &format!(r#""name":"{tool}","arguments":{{}},"#));
        let mut headers = headers_of(&call);
        headers.push(format!("Authorization: Bearer {number}"));
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        rig.post(&headers, call)
    }

    fn calls_again(&mut self, rig: &Rig) {
        self.answer = Self::call(rig, self.number, "work");
    }

    /// The server has done the work of this client.
    fn finish(&self, id: &str) {
        self.server.say(answer(id, format!(r#"{{"for":{}}}"#, self.number)));
    }

    #[track_caller]
    fn expect_its_answer(&self) {
        let told = self.answer.text();
        let result = format!(r#""result":{{"for":{}}}"#, self.number);
        assert!(told.contains(&result), "client {}: {told}", self.number);
    }
}

#[track_caller]
fn member<'a>(line: &'a str, name: &str) -> &'a str {
    let begin = line.find(&format!(r#""{name}":"#)).unwrap_or_else(|| panic!("{line}"));
    let begin = begin + name.len() + 3;
    let length = line[begin..].find([',', '}']).unwrap();
    &line[begin..begin + length]
}

/// Lets this number of clients make their first call.
async fn begin(
    rig: &Rig,
    servers: &mut mpsc::UnboundedReceiver<Lines>,
    count: usize,
) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..count {
        let answer = Client::call(rig, number, "work");
        settle().await;
        let mut server = servers.try_recv().expect("no server");
        let run = member(&server.line().await, "id").to_owned();
        clients.push(Client { number, manner: Manner::of(number), server, run, answer });
    }
    clients
}

fn those<'a>(
    clients: &'a mut [Client],
    manners: &'a [Manner],
) -> impl Iterator<Item = &'a mut Client> {
    clients.iter_mut().filter(move |client| manners.contains(&client.manner))
}

/// No call has reached a server since the last check.
async fn expect_no_run(clients: &mut [Client]) {
    for client in clients {
        assert_eq!(client.server.told().await, Vec::<String>::new(), "each work runs once");
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_clients_that_give_up_and_come_back_have_their_work_done_once() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let mut clients = begin(&rig, &mut servers, CLIENTS).await;
    pass(secs(60)).await;
    let leave = [Returns, ReturnsTwice, ReturnsLate, MovesOn, Dies];
    those(&mut clients, &leave).for_each(|client| client.answer.leave());
    pass(secs(1)).await;
    those(&mut clients, &[Returns, ReturnsTwice]).for_each(|client| client.calls_again(&rig));
    pass(secs(30)).await;
    those(&mut clients, &[ReturnsTwice]).for_each(|client| client.answer.leave());
    pass(secs(1)).await;
    those(&mut clients, &[ReturnsTwice]).for_each(|client| client.calls_again(&rig));
    settle().await;
    expect_no_run(&mut clients).await;

    for client in those(&mut clients, &[MovesOn]) {
        client.answer = Client::call(&rig, client.number, "other");
        settle().await;
        let told = client.server.told().await;
        let [call, cancel] = &told[..] else { panic!("{told:?}") };
        assert_eq!(member(cancel, "requestId"), client.run);
        client.finish(member(call, "id"));
    }
    for client in those(&mut clients, &[Waits, Returns, ReturnsTwice, ReturnsLate]) {
        client.finish(&client.run);
    }
    pass(secs(60)).await;
    those(&mut clients, &[ReturnsLate]).for_each(|client| client.calls_again(&rig));
    settle().await;
    for client in those(&mut clients, &[Waits, Returns, ReturnsTwice, ReturnsLate, MovesOn]) {
        client.expect_its_answer();
    }
    expect_no_run(&mut clients).await;
    assert!(servers.try_recv().is_err());

    // The other clients do not return.
    pass(secs(600)).await;
    for client in those(&mut clients, &[Dies]) {
        assert_eq!(member(&client.server.line().await, "requestId"), client.run);
    }
    assert!(rig.calls_done().await);
}

#[tokio::test(start_paused = true)]
async fn late_answers_that_wait_in_memory_have_a_budget() {
    let keys = format!("{KEYS}\n[server]\nmax_kept_bytes = 1_048_576");
    let (rig, mut servers) = Rig::of_lines(&keys);
    let mut clients = begin(&rig, &mut servers, 5).await;
    pass(secs(60)).await;
    clients.iter_mut().for_each(|client| client.answer.leave());
    pass(secs(1)).await;
    let large = |client: &Client, bytes: usize| {
        answer(&client.run, format!(r#"{{"for":{},"x":"{}"}}"#, client.number, "x".repeat(bytes)))
    };
    for (client, bytes) in clients.iter().zip([250_000, 250_000, 250_000, 250_000, 100_000]) {
        client.server.say(large(client, bytes));
        settle().await;
    }
    clients.iter_mut().for_each(|client| client.calls_again(&rig));
    settle().await;
    for (client, bytes) in clients.iter_mut().zip([250_000, 250_000, 250_000, 250_000, 0]) {
        if bytes > 0 {
            assert!(client.answer.text().len() > bytes, "client {}", client.number);
            assert_eq!(client.server.told().await, Vec::<String>::new());
            continue;
        }
        // The call whose answer could not be kept runs again.
        let again = client.server.line().await;
        client.server.say(answer(member(&again, "id"), r#"{"again":true}"#));
        settle().await;
        assert!(client.answer.text().contains(r#""again":true"#), "{}", client.answer.text());
    }
    // Answers that were fetched no longer count in the limit.
    let clients = &mut clients[..4];
    for client in clients.iter_mut() {
        client.answer = Client::call(&rig, client.number, "other");
        settle().await;
        client.run = member(&client.server.line().await, "id").to_owned();
    }
    pass(secs(60)).await;
    clients.iter_mut().for_each(|client| client.answer.leave());
    pass(secs(1)).await;
    clients.iter().for_each(|client| client.server.say(large(client, 250_000)));
    settle().await;
    for client in clients {
        client.answer = Client::call(&rig, client.number, "other");
        settle().await;
        assert!(client.answer.text().len() > 250_000, "client {}", client.number);
    }
}

/// A call of the client of this number, whose arguments have so many bytes.
fn call_with(rig: &Rig, client: usize, bytes: usize) -> Answer {
    let text = "x".repeat(bytes);
    let params = format!(r#""name":"work","arguments":{{"text":"{text}"}},"#);
    let call = modern_with(1, 1, "tools/call", &params);
    let mut headers = headers_of(&call);
    headers.push(format!("Authorization: Bearer {client}"));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    rig.post(&headers, call)
}

#[tokio::test(start_paused = true)]
async fn bodies_that_wait_for_their_server_have_room_in_the_same_budget() {
    let keys = "heartbeat.enabled = false\n[server]\nmax_kept_bytes = 1_048_576";
    let (rig, _servers) = Rig::of_lines(keys);
    // The servers have not read anything.
    let waiting = Vec::from_iter((0..4).map(|client| call_with(&rig, client, 250_000)));
    settle().await;
    assert!(waiting.iter().all(|answer| answer.spoken().is_none()));
    let other = call_with(&rig, 9, 70_000);
    settle().await;
    assert_eq!(other.status(), 503, "{}", other.text());
    assert!(other.text().contains("server.max_kept_bytes"), "{}", other.text());
    assert_eq!(other.header("retry-after"), Some("1".into()));
    // Short bodies are not counted.
    let short = call_with(&rig, 0, 1000);
    settle().await;
    assert!(short.spoken().is_none());
}

/// Returns a result of 5 MB, which a relay does not keep in memory as a whole, with its id last, as the TypeScript SDK
/// writes it.
fn large(id: &str) -> String {
    let text = "x".repeat(5 << 20);
    format!(r#"{{"result":{{"content":["{text}"]}},"jsonrpc":"2.0","id":{id}}}"#)
}

fn given_up(id: &str) -> String {
    let params = format!(r#"{{"requestId":{id},"reason":"Request timed out"}}"#);
    notification("notifications/cancelled", params)
}

/// Waits for an answer that comes from a file, which other threads write and read.
async fn whole(answer: &Answer) -> String {
    for _ in 0..3_000 {
        if answer.is_over() {
            break;
        }
        tokio::time::sleep(ms(20)).await;
    }
    let is_json = answer.header("content-type").as_deref() == Some("application/json");
    let told = if is_json { Some(answer.text()) } else { answer.messages().pop() };
    told.unwrap_or_default().trim_end().to_owned()
}

#[tokio::test]
async fn a_large_answer_of_a_child_waits_for_its_client() {
    let mut begun = begun("late = {}", "2025-06-18").await;
    let _first = begun.post(call("1", "1"));
    let run = member(&begun.server.line().await, "id").to_owned();
    let cancelled = begun.post(given_up("1"));
    settle().await;
    assert_eq!(cancelled.status(), 202);
    begun.server.say(large(&run));
    tokio::time::sleep(ms(200)).await;
    let second = begun.post(call("2", "2"));
    assert!(whole(&second).await == large("2"));
    assert_eq!(begun.server.told().await, Vec::<String>::new(), "one run");
}

#[tokio::test]
async fn a_large_answer_of_a_shared_child_waits_for_its_client() {
    let (rig, mut servers) = Rig::of_lines(KEYS);
    let first = Client::call(&rig, 1, "work");
    settle().await;
    let mut server = servers.try_recv().expect("no server");
    let run = member(&server.line().await, "id").to_owned();
    first.leave();
    settle().await;
    server.say(large(&run));
    tokio::time::sleep(ms(200)).await;
    let second = Client::call(&rig, 1, "work");
    assert!(whole(&second).await == large("1"));
    assert_eq!(server.told().await, Vec::<String>::new(), "one run");
}

#[tokio::test]
async fn a_large_answer_of_a_server_over_http_waits_for_its_client() {
    let mut rig = Rig::having("upstream.url = \"http://up.example/mcp\"\nlate = {}");
    let first = rig.post(&[], initialize("2025-06-18"));
    rig.asked().await.json(&["Mcp-Session-Id: theirs"], &agreement("2025-06-18"));
    settle().await;
    let session = format!("Mcp-Session-Id: {}", first.header("mcp-session-id").unwrap());
    let _first = rig.post(&[&session], call("1", "1"));
    let asked = rig.asked().await;
    asked.events(&[]);
    let cancelled = rig.post(&[&session], given_up("1"));
    settle().await;
    assert_eq!(cancelled.status(), 202);
    asked.say(large("1"));
    tokio::time::sleep(ms(200)).await;
    let second = rig.post(&[&session], call("2", "2"));
    assert!(whole(&second).await == large("2"));
    assert!(rig.try_asked().await.is_none(), "one run");
}

#[tokio::test]
async fn a_large_answer_on_the_stream_of_a_server_waits_for_its_client() {
    let mut rig = Rig::having("upstream.sse = \"http://up.example/sse\"\nlate = {}");
    let first = rig.post(&[], initialize("2025-06-18"));
    let wire = rig.asked().await;
    wire.events(&[]);
    wire.chunk("event: endpoint\ndata: /messages\n\n");
    rig.asked().await.answer("202 Accepted", &[], "Accepted");
    wire.say(agreement("2024-11-05"));
    settle().await;
    let session = format!("Mcp-Session-Id: {}", first.header("mcp-session-id").unwrap());
    let _first = rig.post(&[&session], call("1", "1"));
    rig.asked().await.answer("202 Accepted", &[], "Accepted");
    let cancelled = rig.post(&[&session], given_up("1"));
    settle().await;
    assert_eq!(cancelled.status(), 202);
    wire.say(large("1"));
    tokio::time::sleep(ms(200)).await;
    let second = rig.post(&[&session], call("2", "2"));
    assert!(whole(&second).await == large("2"));
    assert!(rig.try_asked().await.is_none(), "one run");
}
