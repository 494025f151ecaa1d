//! The owner of a session of the proxy's own: its route, and the credentials that the server accepts.

use super::sessions::begin;
use crate::http::rig::{Answer, Asked, Rig, check, ms, pass, settle};
use crate::support::messages::{INITIALIZED, agreement, call, initialize, result};

const SSE: &str = "upstream.sse = \"http://up.example/sse\"";

/// A session that a client with `Bearer one` began before a server of HTTP+SSE.
struct Owned {
    rig: Rig,
    /// The stream of the server.
    wire: Asked,
    session: String,
}

impl Owned {
    async fn before(keys: &str) -> Self {
        let mut rig = Rig::having(keys);
        let one = "Authorization: Bearer one";
        let first = rig.post(&[one], initialize("2025-06-18"));
        let wire = rig.asked().await;
        wire.events(&[]);
        wire.chunk("event: endpoint\ndata: /messages\n\n");
        rig.asked().await.answer("202 Accepted", &[], "Accepted");
        wire.say(agreement("2024-11-05"));
        settle().await;
        let session = format!("Mcp-Session-Id: {}", first.header("mcp-session-id").unwrap());
        let ready = rig.post(&[&session, one], INITIALIZED);
        rig.asked().await.answer("202 Accepted", &[], "Accepted");
        settle().await;
        assert_eq!(ready.status(), 202);
        check([&first, &ready]);
        Self { rig, wire, session }
    }

    /// Sends a request with this token, or without one.
    fn send(&self, method: &str, token: &str, body: &str) -> Answer {
        let authorization = format!("Authorization: Bearer {token}");
        let mut headers = vec![&*self.session, "Accept: application/json, text/event-stream"];
        headers.extend((!token.is_empty()).then_some(&*authorization));
        headers.extend((method == "POST").then_some("Content-Type: application/json"));
        self.rig.send(&format!("{method} /r"), &headers, body.as_bytes())
    }

    /// Returns the status of a GET with this token.
    async fn get(&self, token: &str) -> u16 {
        let answer = self.send("GET", token, "");
        settle().await;
        answer.status()
    }

    /// The server answers a call with this token with this status.
    async fn call(&mut self, id: &str, token: &str, status: &str) -> Answer {
        let answer = self.send("POST", token, &call(id, id));
        let asked = self.rig.asked().await;
        assert_eq!(asked.request.header("authorization"), Some(&*format!("Bearer {token}")));
        asked.answer(status, &[], "");
        settle().await;
        answer
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_belongs_to_the_credentials_that_the_server_accepts() {
    let mut owned = Owned::before(SSE).await;
    // Another caller can neither listen nor end the session, and a caller without credentials cannot send.
    for token in ["two", ""] {
        assert_eq!(owned.get(token).await, 404);
        let ended = owned.send("DELETE", token, "");
        settle().await;
        assert_eq!(ended.status(), 404, "{token}");
    }
    let unknown = owned.send("POST", "", &call("1", "1"));
    settle().await;
    assert_eq!(unknown.status(), 404);
    assert!(owned.rig.try_asked().await.is_none());
    assert_eq!(owned.get("one").await, 200);
    // If the server refuses new credentials, the session stays with its owner.
    let refused = owned.call("2", "two", "401 Unauthorized").await;
    assert!(refused.text().contains("401"), "{}", refused.text());
    assert_eq!(owned.get("two").await, 404);
    assert_eq!(owned.get("one").await, 200);
    // If the server accepts new credentials, they count as the owner's.
    let accepted = owned.call("3", "three", "202 Accepted").await;
    owned.wire.say(result("3"));
    pass(ms(10)).await;
    assert_eq!(accepted.messages(), [result("3")]);
    assert_eq!(owned.get("three").await, 200);
    assert_eq!(owned.get("one").await, 404);
    let ended = owned.send("DELETE", "one", "");
    settle().await;
    assert_eq!(ended.status(), 404);
    let ended = owned.send("DELETE", "three", "");
    settle().await;
    assert_eq!(ended.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn where_no_server_sees_the_credentials_the_id_of_a_session_decides() {
    let keys =
        format!("{SSE}\nheaders.request.set = {{ authorization = \"Bearer of-the-route\" }}");
    let owned = Owned::before(&keys).await;
    for token in ["one", "two", ""] {
        assert_eq!(owned.get(token).await, 200);
    }
    let (mut rig, mut servers) = Rig::of_lines("");
    let (_server, session) = begin(&rig, &mut servers, "2025-06-18").await;
    let other = "Authorization: Bearer two";
    let told = rig.post(&[&session, other], INITIALIZED);
    settle().await;
    assert_eq!(told.status(), 202);
    // They do not count on another route.
    let route =
        |path: &str| format!("[[route]]\npath = \"{path}\"\nupstream.command = [\"server\"]\n");
    rig.take(&[route("/r"), route("/other")].concat());
    for (path, status) in [("/r", 202), ("/other", 404)] {
        let headers = [&*session, "Accept: application/json, text/event-stream"];
        let headers = [&headers[..], &["Content-Type: application/json"]].concat();
        let told = rig.send(&format!("POST {path}"), &headers, INITIALIZED.as_bytes());
        settle().await;
        assert_eq!(told.status(), status, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_http_sse_belongs_to_who_opened_it() {
    let mut rig = Rig::having("upstream.url = \"http://up.example/mcp\"");
    let stream =
        rig.send("GET /r/sse", &["Accept: text/event-stream", "Authorization: Bearer one"], b"");
    settle().await;
    let text = stream.text();
    let endpoint = text.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
    let post = |rig: &Rig, token: &str, body: &str| {
        let authorization = format!("Authorization: Bearer {token}");
        let mut headers = vec!["Content-Type: application/json"];
        headers.extend((!token.is_empty()).then_some(&*authorization));
        rig.send(&format!("POST {endpoint}"), &headers, body.as_bytes())
    };
    let unknown = post(&rig, "", &initialize("2024-11-05"));
    settle().await;
    assert_eq!(unknown.status(), 404);
    let _first = post(&rig, "one", &initialize("2024-11-05"));
    rig.asked().await.json(&["Mcp-Session-Id: theirs"], &agreement("2025-06-18"));
    let _ready = post(&rig, "one", INITIALIZED);
    settle().await;
    // The proxy's own GET uses credentials that the server has accepted.
    let mut listening = None;
    while let Some(asked) = rig.try_asked().await {
        assert_eq!(asked.request.header("authorization"), Some("Bearer one"));
        match asked.what() {
            "GET /mcp" => listening = Some(asked),
            _ => asked.accept(),
        }
    }
    for (token, status, presented) in
        [("two", "401 Unauthorized", "Bearer one"), ("three", "202 Accepted", "Bearer three")]
    {
        let _told = post(&rig, token, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        let asked = rig.asked().await;
        let sent = format!("Bearer {token}");
        assert_eq!(asked.request.header("authorization"), Some(&*sent));
        asked.answer(status, &[], "");
        settle().await;
        let before = listening.take().expect("no stream to listen on");
        before.events(&[]);
        before.end();
        pass(ms(5000)).await;
        let again = rig.asked().await;
        assert_eq!(again.what(), "GET /mcp");
        assert_eq!(again.request.header("authorization"), Some(presented));
        listening = Some(again);
    }
}
