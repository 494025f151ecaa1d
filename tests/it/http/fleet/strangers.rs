//! Ids and requests of strangers: forged, cut, of other routes and of the outside.

use super::replicas::{HTTP, KEY, Replicas, STDIO, Spread, table};
use super::scenarios::{begin_over_http, begin_over_stdio};
use crate::http::rig::{BOTH, settle};
use crate::support::messages::{agreement, call, initialize, result};

/// The status of a request with this session; the server says that it does not know the session.
async fn status(replicas: &mut Replicas, session: &str, to: usize) -> u16 {
    let named = format!("Mcp-Session-Id: {session}");
    let answer = replicas.send(to, "POST /r", &[&named, BOTH], call(1, 1).as_bytes());
    settle().await;
    if answer.spoken().is_none() {
        let asked = replicas.asked().await;
        assert_ne!(asked.request.header("mcp-session-id"), Some("victim"), "another's session");
        asked.answer("404 Not Found", &[], "");
        settle().await;
    }
    answer.status()
}

#[tokio::test(start_paused = true)]
async fn an_id_that_was_not_sealed_here_is_no_session() {
    for route in [HTTP, STDIO] {
        let mut replicas = Replicas::new(2, route);
        let session = if route == HTTP {
            begin_over_http(&mut replicas, Spread::Sticky, "victim").await.session.unwrap()
        } else {
            begin_over_stdio(&mut replicas, Spread::Sticky).await.0.session.unwrap()
        };
        for to in [0, 1] {
            for at in [0, 1, 3, 17, 40, session.len() - 1] {
                let mut forged = session.clone().into_bytes();
                forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
                let forged = String::from_utf8(forged).unwrap();
                assert_eq!(status(&mut replicas, &forged, to).await, 404, "{at}");
                assert_eq!(status(&mut replicas, &session[..at.max(1)], to).await, 404, "{at}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_of_a_key_that_is_no_more_is_no_session() {
    const OTHER: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
    let mut replicas = Replicas::new(2, HTTP);
    let session = begin_over_http(&mut replicas, Spread::Sticky, "victim").await.session.unwrap();
    replicas.restart(1, Some(&table(1, &[OTHER]))).await;
    assert_eq!(status(&mut replicas, &session, 1).await, 404);
}

#[tokio::test(start_paused = true)]
async fn the_address_of_a_fleet_is_for_its_replicas() {
    let mut replicas = Replicas::new(2, HTTP);
    let session = begin_over_http(&mut replicas, Spread::Sticky, "victim").await.session.unwrap();
    let named = format!("Mcp-Session-Id: {session}");
    let long = format!("Milepost-Forwarded: {}", "1;".repeat(1000));
    for forged in [
        "X-Nothing: 1",
        "Milepost-Forwarded: ",
        "Milepost-Forwarded: 1",
        "Milepost-Forwarded: 1;1;1;10.0.0.1:7334;127.0.0.1:1;127.0.0.1:1;0;;AAAA",
        &long,
    ] {
        let answer = replicas.send_to_fleet(0, "POST /r", &[&named, BOTH, forged]);
        settle().await;
        assert_eq!(answer.status(), 403, "{forged}");
    }
    assert!(replicas.asks_nothing().await);
}

#[tokio::test(start_paused = true)]
async fn what_a_stranger_says_of_itself_is_not_believed_and_not_sent_on_twice() {
    let mut replicas = Replicas::new(3, HTTP);
    let session = begin_over_http(&mut replicas, Spread::Sticky, "s").await.session.unwrap();
    let named = format!("Mcp-Session-Id: {session}");
    let said = "Milepost-Forwarded: 1;1;1;127.0.0.1:1;127.0.0.1:1;0;;AAAA";
    let answer = replicas.send(2, "POST /r", &[&named, BOTH, said], call(1, 1).as_bytes());
    let asked = replicas.asked().await;
    assert_eq!(asked.request.all("milepost-forwarded").len(), 0);
    assert_eq!(asked.request.all("via").len(), 1, "one entry for the proxy, over both replicas");
    asked.json(&[], &result(1));
    settle().await;
    assert_eq!(answer.text(), result(1));
    assert_eq!(answer.all("via").len(), 1);
    assert_eq!(replicas.events("received"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_reaches_no_other_replica_than_it_was_passed_on_to() {
    let mut replicas = Replicas::new(2, HTTP);
    let session = begin_over_http(&mut replicas, Spread::Sticky, "s").await.session.unwrap();
    // A replica whose `advertise` is not the address at which it is reached.
    replicas.answer_for(0, &table(8, &[KEY]));
    let named = format!("Mcp-Session-Id: {session}");
    let answer = replicas.send(1, "POST /r", &[&named, BOTH], call(1, 1).as_bytes());
    settle().await;
    assert_eq!(answer.status(), 403);
    assert!(replicas.asks_nothing().await);
}

#[tokio::test(start_paused = true)]
async fn without_a_table_every_byte_is_as_before_and_ids_are_the_servers() {
    let mut alone = Replicas::alone(HTTP);
    let begun = alone.send(0, "POST /r", &[BOTH], initialize("2025-11-25").as_bytes());
    alone.asked().await.json(&["Mcp-Session-Id: plain"], &agreement("2025-11-25"));
    settle().await;
    assert_eq!(begun.header("mcp-session-id").as_deref(), Some("plain"));
    assert_eq!(alone.events("received"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_client_keeps_the_name_of_its_session() {
    let mut replicas = Replicas::new(2, HTTP);
    let mut client = begin_over_http(&mut replicas, Spread::RoundRobin, "s").await;
    for id in 1..4 {
        let answer = client.post(&replicas, call(id, id));
        replicas.asked().await.json(&["Mcp-Session-Id: s"], &result(id));
        settle().await;
        assert_eq!(answer.header("mcp-session-id"), client.session, "it was told once");
    }
}
