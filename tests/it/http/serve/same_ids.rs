//! Many clients at once that all use the same ids and tokens.

use futures::future::join_all;

use super::proxy::Start;
use super::*;
use crate::http::serve::http_client::{Client, rest, until};
use crate::http::serve::legacy_server::Legacy;

const CLIENTS: usize = 200;

fn own_call(name: &str) -> String {
    call("1", "1").replace("{}", &format!(r#"{{"client":"{name}"}}"#))
}

/// Checks that a client gets only its own progress and its own answer.
#[track_caller]
fn check(name: &str, heard: &str) {
    let events: Vec<_> = heard.split_terminator("\n\n").map(json).collect();
    let (answer, progress) = events.split_last().unwrap();
    assert_eq!(answer["id"], 1, "{heard}");
    let text = answer["result"]["content"][0]["text"].as_str();
    assert_eq!(text, Some(&*format!("done for {name}.")), "{heard}");
    assert!(!progress.is_empty(), "{heard}");
    let mut before = f64::NEG_INFINITY;
    for event in progress {
        assert_eq!(event["method"], "notifications/progress", "{heard}");
        assert_eq!(event["params"]["progressToken"], 1, "{heard}");
        let words = event["params"]["message"].as_str().unwrap();
        assert!(words.ends_with(&format!(" for {name}.")), "{name}: {heard}");
        let figure = event["params"]["progress"].as_f64().unwrap();
        assert!(figure > before, "{heard}");
        before = figure;
    }
}

/// No heartbeats: they name no client, and on a busy machine the calls wait for each other for long.
fn before(server: &Legacy) -> Proxy {
    let keys = format!("upstream.url = \"{}\"\nheartbeat.enabled = false", server.url("http"));
    Proxy::with(&Start::default(), &keys)
}

#[tokio::test]
async fn two_hundred_clients_with_the_same_id_and_token_hear_only_their_own() {
    let server = Legacy::start(CLIENTS, None);
    let mut proxy = before(&server);
    let clients = (0..CLIENTS).map(|number| {
        let address = proxy.address().to_owned();
        async move {
            let name = format!("client {number}");
            let mut client = Client::plain(&address, number % 4 == 0).await;
            let answer = client.send("POST", &address, &[], own_call(&name)).await;
            check(&name, &rest(answer).await);
        }
    });
    join_all(clients).await;
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
    let log = proxy.log();
    let results = log.lines().filter(|line| line.contains("outcome=\"result\"")).count();
    assert_eq!(results, CLIENTS, "{log}");
}

#[tokio::test]
async fn two_hundred_sessions_with_the_same_id_and_token_hear_only_their_own() {
    let server = Legacy::start(CLIENTS, None);
    let proxy = before(&server);
    let clients = (0..CLIENTS).map(|number| {
        let address = proxy.address().to_owned();
        async move {
            let name = format!("client {number}");
            let mut client = Client::plain(&address, true).await;
            let initialize = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","clientInfo":{{"name":"{number}"}}}}}}"#
            );
            let answer = client.send("POST", &address, &[], initialize).await;
            let session = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
            assert_eq!(session, format!("session-{number}"));
            rest(answer).await;
            let session = [("mcp-session-id", &*session)];
            let mut listening = client.send("GET", &address, &session, String::new()).await;
            until(&mut listening, ": listening\n\n").await;
            let answer = client.send("POST", &address, &session, own_call(&name)).await;
            let heard = rest(answer).await;
            check(&name, &heard);
            // A message that the server sent on the wrong stream arrives on the right stream.
            assert!(heard.contains("step 1 ") || heard.contains("step 3 "), "{heard}");
            (client, listening)
        }
    });
    let listening = join_all(clients).await;
    // No call is mentioned on the stream where the client listens.
    drop(server);
    for (number, (_client, listening)) in listening.into_iter().enumerate() {
        let body = tokio::time::timeout(STUCK, async {
            use http_body_util::BodyExt;
            listening.into_body().collect().await.map(http_body_util::Collected::to_bytes)
        });
        let heard = body.await.unwrap().unwrap_or_default();
        let heard = String::from_utf8_lossy(&heard).replace(": keep-alive\n\n", "");
        assert_eq!(heard, "", "{number}");
    }
}
