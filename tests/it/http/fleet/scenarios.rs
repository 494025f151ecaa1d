//! The actions of clients, in one script for each transport of the server. A script returns the messages of its client.

use super::replicas::{Client, Replicas, Spread};
use crate::http::rig::{Answer, Asked, Lines, check, settle};
use crate::support::messages::{
    INITIALIZED, agreement, answer, call, cancelled, event_with, initialize, progress, request,
    result,
};

/// The revision of all scripts.
const REVISION: &str = "2025-11-25";

/// A request of a server.
pub(super) fn sampling() -> String {
    request(90, "sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#)
}

/// The messages that the client of a session got, for each answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct View(Vec<Vec<String>>);

impl View {
    fn add(&mut self, answers: &[&Answer]) {
        self.0.extend(answers.iter().map(|answer| answer.messages()));
    }
}

/// Begins a session of a server over HTTP that calls the session `id`.
pub(super) async fn begin_over_http(replicas: &mut Replicas, spread: Spread, id: &str) -> Client {
    let mut client = Client::new(spread);
    let begun = client.post(replicas, initialize(REVISION));
    let named = format!("Mcp-Session-Id: {id}");
    replicas.asked().await.json(&[&named], &agreement(REVISION));
    settle().await;
    assert_eq!(begun.text(), agreement(REVISION));
    client.session = begun.header("mcp-session-id");
    let begun = client.post(replicas, INITIALIZED);
    let asked = replicas.asked().await;
    assert_eq!(asked.request.header("mcp-session-id"), Some(id), "the server has its own name");
    asked.accept();
    settle().await;
    assert_eq!(begun.status(), 202);
    client
}

/// A session of a server over HTTP.
pub(super) async fn over_http(replicas: &mut Replicas, spread: Spread, id: &str) -> View {
    let mut view = View::default();
    let mut client = begin_over_http(replicas, spread, id).await;
    let home = client.get(replicas, None);
    let home_of_server = replicas.asked().await;
    home_of_server.events(&[]);
    settle().await;
    let one = falls(replicas, &mut client, &home_of_server).await;
    let three = three_at_once(replicas, &mut client, &home_of_server).await;
    let five = asked_back(replicas, &mut client).await;
    let six = given_up(replicas, &mut client, &home_of_server).await;
    let resumed = resume(replicas, &mut client, [7, 7]).await;
    let all: Vec<&Answer> =
        [&home, &one].into_iter().chain(&three).chain([&five, &six]).chain(&resumed).collect();
    view.add(&all);
    check(all);
    view
}

/// Progress on its own stream and on the GET stream, and values that fall.
async fn falls(replicas: &mut Replicas, client: &mut Client, home: &Asked) -> Answer {
    let answer = client.post(replicas, call(1, 1));
    let asked = replicas.asked().await;
    asked.events(&[]);
    for (on, figure) in [(&asked, 1), (home, 2), (&asked, 2), (home, 1), (&asked, 3)] {
        on.say(progress(1, figure));
        settle().await;
    }
    asked.say(result(1));
    asked.end();
    settle().await;
    answer
}

/// Three calls at once, whose progress comes on the GET stream.
async fn three_at_once(replicas: &mut Replicas, client: &mut Client, home: &Asked) -> [Answer; 3] {
    let answers = [2, 3, 4].map(|id| client.post(replicas, call(id, id)));
    let mut three: Vec<Asked> = Vec::new();
    for _ in 0..3 {
        three.push(replicas.asked().await);
    }
    three.sort_by_key(Asked::text);
    three.iter().for_each(|asked| asked.events(&[]));
    for figure in 1..=3 {
        (2..=4).for_each(|token| home.say(progress(token, figure)));
        settle().await;
    }
    for (asked, id) in three.iter().zip(2..) {
        asked.say(result(id));
        asked.end();
    }
    settle().await;
    answers
}

/// The server asks, and the client answers through another replica.
async fn asked_back(replicas: &mut Replicas, client: &mut Client) -> Answer {
    let answer_to_call = client.post(replicas, call(5, 5));
    let asked = replicas.asked().await;
    asked.events(&[]);
    asked.say(sampling());
    settle().await;
    let answered = client.post(replicas, answer(90, "{}"));
    let heard = replicas.asked().await;
    assert_eq!(heard.text(), answer(90, "{}"));
    heard.accept();
    asked.say(result(5));
    asked.end();
    settle().await;
    assert_eq!(answered.status(), 202);
    answer_to_call
}

/// The client cancels through another replica, and the server does not care.
async fn given_up(replicas: &mut Replicas, client: &mut Client, home: &Asked) -> Answer {
    let answer = client.post(replicas, call(6, 6));
    let asked = replicas.asked().await;
    asked.events(&[]);
    asked.say(progress(6, 1));
    settle().await;
    let gives_up = client.post(replicas, cancelled(6));
    replicas.asked().await.accept();
    settle().await;
    assert_eq!(gives_up.status(), 202);
    asked.say(progress(6, 2));
    home.say(progress(6, 3));
    asked.say(result(6));
    asked.end();
    settle().await;
    answer
}

/// A client loses a stream and comes back for the rest, which the server has kept.
async fn resume(
    replicas: &mut Replicas,
    client: &mut Client,
    [id, token]: [u32; 2],
) -> [Answer; 2] {
    let lost = client.post(replicas, call(id, token));
    let asked = replicas.asked().await;
    asked.events(&[]);
    asked.chunk(event_with(&format!("{id}_1"), &progress(token, 1)));
    asked.chunk(event_with(&format!("{id}_2"), &progress(token, 2)));
    settle().await;
    lost.leave();
    settle().await;
    let back = client.get(replicas, Some(&format!("{id}_1")));
    let resumed = replicas.asked().await;
    resumed.events(&[]);
    for figure in 2..=12 {
        resumed.chunk(event_with(&format!("{id}_{figure}"), &progress(token, figure)));
    }
    resumed.chunk(event_with(&format!("{id}_a"), &result(id)));
    resumed.end();
    settle().await;
    [lost, back]
}

/// Begins a session that is Milepost's, before a stdio server.
pub(super) async fn begin_over_stdio(replicas: &mut Replicas, spread: Spread) -> (Client, Lines) {
    let mut client = Client::new(spread);
    let begun = client.post(replicas, initialize(REVISION));
    let mut server = replicas.started().await;
    assert_eq!(server.line().await, initialize(REVISION));
    server.say(agreement(REVISION));
    settle().await;
    client.session = begun.header("mcp-session-id");
    let begun = client.post(replicas, INITIALIZED);
    assert_eq!(server.line().await, INITIALIZED);
    assert_eq!(begun.status(), 202);
    (client, server)
}

/// A session before a stdio server.
pub(super) async fn over_stdio(replicas: &mut Replicas, spread: Spread, _: &str) -> View {
    let mut view = View::default();
    let (mut client, mut server) = begin_over_stdio(replicas, spread).await;
    let home = client.get(replicas, None);
    let calls = [1, 2, 3].map(|id| client.post(replicas, call(id, id)));
    settle().await;
    assert_eq!(server.told().await.len(), 3);
    for figure in [1, 2, 2, 1, 3] {
        (1..=3).for_each(|token| server.say(progress(token, figure)));
        settle().await;
    }
    server.say(sampling());
    settle().await;
    let answered = client.post(replicas, answer(90, "{}"));
    assert_eq!(server.line().await, answer(90, "{}"));
    assert_eq!(answered.status(), 202);
    let gives_up = client.post(replicas, cancelled(2));
    assert_eq!(server.line().await, cancelled(2), "the server hears of it at once");
    assert_eq!(gives_up.status(), 202);
    server.say(progress(2, 9));
    server.say(result(2));
    server.say(result(1));
    settle().await;

    let id = event_ids(&calls[2]).pop().unwrap();
    calls[2].leave();
    settle().await;
    server.say(progress(3, 4));
    let back = client.get(replicas, Some(&id));
    settle().await;
    server.say(progress(3, 5));
    server.say(result(3));
    settle().await;
    let all = [&home, &calls[0], &calls[1], &calls[2], &back];
    view.add(&all);
    check(all);
    assert!(back.is_over());
    let named = format!("Mcp-Session-Id: {}", client.session.as_deref().unwrap());
    let ended = replicas.send(client.next(replicas.count()), "DELETE /r", &[&named], b"");
    settle().await;
    assert_eq!(ended.status(), 200);
    assert!(server.is_closed());
    view
}

/// The ids of the events that came.
pub(super) fn event_ids(answer: &Answer) -> Vec<String> {
    let text = answer.text();
    text.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect()
}

/// The endpoint that a client of HTTP+SSE gets.
pub(super) fn endpoint(stream: &Answer) -> String {
    let text = stream.text();
    let rest = text.split_once("event: endpoint\ndata: ").expect("an endpoint comes first").1;
    rest.lines().next().unwrap().to_owned()
}

/// A client of HTTP+SSE before a stdio server.
pub(super) async fn sse_to_stdio(replicas: &mut Replicas, spread: Spread, _: &str) -> View {
    let mut client = Client::new(spread);
    let accept = ["Accept: text/event-stream"];
    let stream = replicas.send(client.next(replicas.count()), "GET /r/sse", &accept, b"");
    let mut server = replicas.started().await;
    let start = format!("POST {}", endpoint(&stream));
    for body in [initialize("2024-11-05"), INITIALIZED.to_owned(), call(1, 1), cancelled(8)] {
        let post = replicas.send(client.next(replicas.count()), &start, &[], body.as_bytes());
        assert_eq!(server.line().await, body);
        assert_eq!(post.status(), 202);
        if body.contains("initialize\"") {
            server.say(agreement("2024-11-05"));
            settle().await;
        }
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    server.say(progress(1, 1));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    server.say(result(1));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    settle().await;
    let mut view = View::default();
    view.add(&[&stream]);
    view
}

/// A client of HTTP+SSE before a server of HTTP+SSE.
pub(super) async fn sse_to_sse(replicas: &mut Replicas, spread: Spread, id: &str) -> View {
    let mut client = Client::new(spread);
    let accept = ["Accept: text/event-stream"];
    let stream = replicas.send(client.next(replicas.count()), "GET /r/sse", &accept, b"");
    let wire = replicas.asked().await;
    wire.events(&[]);
    wire.chunk(format!("event: endpoint\ndata: /post?session={id}\n\n"));
    settle().await;
    let start = format!("POST {}", endpoint(&stream));
    for body in [initialize("2024-11-05"), INITIALIZED.to_owned(), call(1, 1)] {
        let post = replicas.send(client.next(replicas.count()), &start, &[], body.as_bytes());
        let asked = replicas.asked().await;
        assert_eq!(asked.what(), format!("POST /post?session={id}"));
        assert_eq!(asked.text(), body);
        asked.accept();
        settle().await;
        assert_eq!(post.status(), 202);
        if body.contains("initialize\"") {
            wire.say(agreement("2024-11-05"));
            settle().await;
        }
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    wire.say(progress(1, 1));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    wire.say(result(1));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    settle().await;
    let mut view = View::default();
    view.add(&[&stream]);
    view
}
