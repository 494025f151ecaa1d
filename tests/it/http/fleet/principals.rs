//! Whose a request is, in a fleet whose front names users: no client gives itself the name of another, by any way.

use super::replicas::{HTTP, Replicas, STDIO};
use crate::http::rig::{Answer, BOTH, settle};
use crate::support::messages::{agreement, call, initialize, result};

const REVISION: &str = "2025-11-25";
const SERVER: &str = "trusted_proxies = [\"10.9.9.9\"]\nprincipal = \"header:x-user\"";
const FRONT: [u8; 4] = [10, 9, 9, 9];
const STRANGER: [u8; 4] = [203, 0, 113, 7];

/// Begins a session at a replica for a client of this address.
async fn begin(replicas: &mut Replicas, to: usize, from: [u8; 4], user: &str) -> String {
    replicas.from = from.into();
    let begun = replicas.send(to, "POST /r", &[BOTH, user], initialize(REVISION).as_bytes());
    replicas.asked().await.json(&["Mcp-Session-Id: s"], &agreement(REVISION));
    settle().await;
    begun.header("mcp-session-id").unwrap()
}

/// Sends a call of a session to a replica.
async fn ask(
    replicas: &mut Replicas,
    to: usize,
    from: [u8; 4],
    session: &str,
    more: &[&str],
) -> Answer {
    replicas.from = from.into();
    let session = format!("Mcp-Session-Id: {session}");
    let headers = [&[BOTH, &*session][..], more].concat();
    let answer = replicas.send(to, "POST /r", &headers, call(1, 1).as_bytes());
    settle().await;
    answer
}

#[tokio::test(start_paused = true)]
async fn a_session_is_that_of_the_user_whom_the_front_names_at_every_replica() {
    let mut replicas = Replicas::having(2, HTTP, SERVER);
    let session = begin(&mut replicas, 0, FRONT, "X-User: ada").await;
    for to in [0, 1] {
        for (from, user) in [
            (FRONT, "X-User: bob"),
            (FRONT, "X-Nothing: 1"),
            (FRONT, "X-User: header:ada"),
            (STRANGER, "X-User: ada"),
            (STRANGER, "X-Nothing: 1"),
        ] {
            let answer = ask(&mut replicas, to, from, &session, &[user]).await;
            assert_eq!(answer.status(), 404, "{user} at {to}");
        }
        // One of the two headers may come from the client.
        let both = ["X-User: bob", "X-User: ada"];
        assert_eq!(ask(&mut replicas, to, FRONT, &session, &both).await.status(), 400);
        assert!(replicas.asks_nothing().await);

        let answer = ask(&mut replicas, to, FRONT, &session, &["X-User: ada"]).await;
        let asked = replicas.asked().await;
        assert_eq!(asked.request.header("x-user"), Some("ada"));
        asked.json(&[], &result(1));
        settle().await;
        assert_eq!(answer.text(), result(1), "{to}");
    }
    assert_eq!(replicas.events("received"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_front_has_given_goes_neither_to_another_replica_nor_to_the_server() {
    let mut replicas = Replicas::having(2, HTTP, SERVER);
    let session = begin(&mut replicas, 0, STRANGER, "X-User: ada").await;
    let answer = ask(&mut replicas, 1, STRANGER, &session, &["X-User: ada"]).await;
    let asked = replicas.asked().await;
    assert_eq!(asked.request.all("x-user").len(), 0);
    asked.json(&[], &result(1));
    settle().await;
    assert_eq!(answer.status(), 200);
    assert_eq!(replicas.events("received"), 1);
    assert_eq!(replicas.counter("milepost_forwarded_dropped_total"), 2, "once each");
}

#[tokio::test(start_paused = true)]
async fn what_a_replica_signs_of_a_client_serves_nobody_else() {
    let mut replicas = Replicas::having(3, HTTP, SERVER);
    let session = begin(&mut replicas, 0, FRONT, "X-User: ada").await;
    let answer = ask(&mut replicas, 1, FRONT, &session, &["X-User: ada"]).await;
    replicas.asked().await.json(&[], &result(1));
    settle().await;
    assert_eq!(answer.status(), 200);
    let passport = replicas.passports.lock().unwrap().pop().expect("it was passed on");
    let passport = format!("Milepost-Forwarded: {passport}");
    // At the address for clients the header is ignored, even if the fleet would accept it.
    for to in [0, 1, 2] {
        let answer = ask(&mut replicas, to, STRANGER, &session, &[&passport]).await;
        assert_eq!(answer.status(), 404, "{to}");
        let answer = ask(&mut replicas, to, FRONT, &session, &[&passport, "X-User: bob"]).await;
        assert_eq!(answer.status(), 404, "{to}");
    }
    // The passport was used at the replica for which it was made, and the other replicas are not that replica.
    let named = format!("Mcp-Session-Id: {session}");
    for to in [0, 1, 2] {
        for user in ["X-User: ada", "X-User: bob"] {
            let headers = [&*named, BOTH, &*passport, user];
            let answer = replicas.send_to_fleet(to, "POST /r", &headers);
            settle().await;
            assert_eq!(answer.status(), 403, "{to}");
        }
    }
    assert!(replicas.asks_nothing().await);
    assert_eq!(replicas.events("received"), 1);
}

#[tokio::test(start_paused = true)]
async fn headers_that_a_client_declares_to_be_of_its_connection_change_no_name() {
    let mut replicas = Replicas::having(2, HTTP, SERVER);
    let session = begin(&mut replicas, 0, FRONT, "X-User: ada").await;
    for own in ["Connection: x-user", "Connection: milepost-forwarded, x-user"] {
        let answer = ask(&mut replicas, 1, FRONT, &session, &["X-User: bob", own]).await;
        assert_eq!(answer.status(), 404, "{own}");
        let answer = ask(&mut replicas, 1, FRONT, &session, &["X-User: ada", own]).await;
        replicas.asked().await.json(&[], &result(1));
        settle().await;
        assert_eq!(answer.text(), result(1), "{own}");
    }
    let passport =
        "Milepost-Forwarded: 1;1;1;10.0.0.1:7334;10.9.9.9:1;10.0.0.1:1;0;aGVhZGVyOmFkYQ;AAAA";
    let own = [passport, "Connection: milepost-forwarded"];
    let answer = ask(&mut replicas, 1, STRANGER, &session, &own).await;
    assert_eq!(answer.status(), 404);
    assert!(replicas.asks_nothing().await);
}

#[tokio::test(start_paused = true)]
async fn without_a_fleet_a_header_of_replicas_makes_nobody_another_user() {
    let mut alone = Replicas::having(0, STDIO, SERVER);
    alone.add(None);
    alone.from = FRONT.into();
    let said = initialize(REVISION);
    let begun = alone.send(0, "POST /r", &[BOTH, "X-User: ada"], said.as_bytes());
    let mut server = alone.started().await;
    assert_eq!(server.line().await, said);
    server.say(agreement(REVISION));
    settle().await;
    let session = begun.header("mcp-session-id").unwrap();
    // A passport that replicas of another fleet have signed for Ada.
    let mut others = Replicas::having(2, HTTP, SERVER);
    let theirs = begin(&mut others, 0, FRONT, "X-User: ada").await;
    let answer = ask(&mut others, 1, FRONT, &theirs, &["X-User: ada"]).await;
    others.asked().await.json(&[], &result(1));
    settle().await;
    assert_eq!(answer.status(), 200);
    let passport = others.passports.lock().unwrap().pop().unwrap();
    let passport = format!("Milepost-Forwarded: {passport}");
    for (from, user) in [(STRANGER, "X-User: ada"), (STRANGER, "X-No: 1"), (FRONT, "X-User: bob")] {
        let answer = ask(&mut alone, 0, from, &session, &[&passport, user]).await;
        assert_eq!(answer.status(), 404, "{user}");
        let headers = [BOTH, &*format!("Mcp-Session-Id: {session}"), &*passport, user];
        let answer = alone.send_to_fleet(0, "POST /r", &headers);
        settle().await;
        assert_eq!(answer.status(), 403, "{user}");
    }
    let answer = ask(&mut alone, 0, FRONT, &session, &["X-User: ada"]).await;
    assert_eq!(server.line().await, call(1, 1));
    server.say(result(1));
    settle().await;
    assert_eq!(answer.messages(), [result(1)]);
}
