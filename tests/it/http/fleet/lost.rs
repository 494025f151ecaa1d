//! A replica is killed: what other replicas serve in its place, and what its clients get at once.

use std::sync::atomic::Ordering;

use super::replicas::{Client, HTTP, Replicas, SSE, STDIO, Spread};
use super::scenarios::{begin_over_http, begin_over_stdio, endpoint, event_ids};
use crate::http::rig::{check, ms, pass, secs, settle};
use crate::support::messages::{call, event_with, initialize, progress, report, result};

#[tokio::test(start_paused = true)]
async fn a_server_over_http_goes_on_behind_another_replica() {
    for kills in 0..100 {
        let mut replicas = Replicas::new(3, HTTP);
        let mut client = begin_over_http(&mut replicas, Spread::RoundRobin, "s").await;
        let lost = client.post(&replicas, call(1, 1));
        let asked = replicas.asked().await;
        asked.events(&[]);
        let before = kills % 4;
        for figure in 1..=before {
            asked.chunk(event_with(&format!("e{figure}"), &progress(1, figure)));
        }
        settle().await;
        replicas.kill(0).await;
        assert!(
            before == 0 || lost.is_broken() || lost.is_over(),
            "its stream ends with the replica"
        );
        let last = (before > 0).then(|| format!("e{before}"));
        // The third request was the call, so these go to the second and third replica.
        client.next(3);
        let back = client.get(&replicas, last.as_deref());
        let resumed = replicas.asked().await;
        assert_eq!(resumed.request.header("mcp-session-id"), Some("s"));
        resumed.events(&[]);
        for figure in before + 1..=20 {
            resumed.chunk(event_with(&format!("e{figure}"), &progress(1, figure)));
        }
        resumed.chunk(event_with("a", &result(1)));
        resumed.end();
        settle().await;
        let told = back.messages();
        assert_eq!(told.last(), Some(&result(1)), "the answer comes in any case");
        assert_eq!(told.len(), usize::try_from(21 - before).unwrap(), "{told:?}");
        check([&lost, &back]);
        assert!(replicas.events("taken-over") >= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_serve_in_the_place_of_an_owner_add_no_heartbeats() {
    let mut replicas = Replicas::new(3, HTTP);
    let mut client = begin_over_http(&mut replicas, Spread::RoundRobin, "s").await;
    let mine = client.post(&replicas, call(1, 1));
    let asked = replicas.asked().await;
    asked.events(&[]);
    pass(secs(12)).await;
    assert!(!mine.messages().is_empty(), "the owner breaks the silence");
    asked.say(result(1));
    asked.end();
    settle().await;
    replicas.kill(0).await;
    client.next(3);
    for id in [2, 3] {
        let answer = client.post(&replicas, call(id, id));
        let asked = replicas.asked().await;
        asked.events(&[]);
        pass(secs(12)).await;
        assert_eq!(answer.messages(), Vec::<String>::new());
        asked.say(progress(id, 1));
        asked.say(result(id));
        asked.end();
        settle().await;
        assert_eq!(answer.messages(), [progress(id, 1), result(id)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_down_is_not_tried_for_five_seconds() {
    let mut replicas = Replicas::new(2, HTTP);
    let mut client = begin_over_http(&mut replicas, Spread::Sticky, "s").await;
    replicas.kill(0).await;
    let named = format!("Mcp-Session-Id: {}", client.session.take().unwrap());
    for (round, tries) in [(0, 1), (1, 1), (2, 1), (3, 2)] {
        if round == 3 {
            pass(secs(5)).await;
        }
        let headers = [&*named, crate::http::rig::BOTH];
        let answer = replicas.send(1, "POST /r", &headers, call(round, round).as_bytes());
        replicas.asked().await.json(&[], &result(round));
        settle().await;
        assert_eq!(answer.text(), result(round));
        assert_eq!(replicas.tries(), tries, "round {round}");
    }
    assert_eq!(replicas.events("taken-over"), 4);
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_session_is_not_ended_by_a_replica_that_cannot_reach_its_owner() {
    // EMFILE, ENETUNREACH, EADDRNOTAVAIL.
    for code in [24, 101, 99] {
        let mut replicas = Replicas::new(2, STDIO);
        let (mut client, server) = begin_over_stdio(&mut replicas, Spread::Sticky).await;
        let named = format!("Mcp-Session-Id: {}", client.session.take().unwrap());
        let headers = [&*named, crate::http::rig::BOTH];
        replicas.dial_error.store(code, Ordering::Relaxed);
        let refused = replicas.send(1, "POST /r", &headers, call(1, 1).as_bytes());
        settle().await;
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
        // The owner is asked again as soon as connections are possible.
        replicas.dial_error.store(0, Ordering::Relaxed);
        let answer = replicas.send(1, "POST /r", &headers, call(2, 2).as_bytes());
        settle().await;
        server.say(result(2));
        settle().await;
        assert_eq!((answer.status(), answer.messages()), (200, vec![result(2)]));
        assert_eq!(replicas.events("lost"), 0);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_session_has_ended_where_its_owner_refuses_connections() {
    let mut replicas = Replicas::new(2, STDIO);
    let (mut client, _server) = begin_over_stdio(&mut replicas, Spread::Sticky).await;
    let named = format!("Mcp-Session-Id: {}", client.session.take().unwrap());
    let headers = [&*named, crate::http::rig::BOTH];
    // ECONNREFUSED.
    replicas.dial_error.store(111, Ordering::Relaxed);
    let gone = replicas.send(1, "POST /r", &headers, call(3, 3).as_bytes());
    settle().await;
    assert_eq!(gone.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn the_client_of_a_child_that_died_with_its_replica_is_told_at_once() {
    let mut replicas = Replicas::new(3, STDIO);
    let (mut client, server) = begin_over_stdio(&mut replicas, Spread::RoundRobin).await;
    let lost = client.post(&replicas, call("\"seven\"", 7));
    settle().await;
    server.say(progress(7, 1));
    settle().await;
    let ids = event_ids(&lost);
    assert_eq!(ids.len(), 2, "{ids:?}");
    replicas.kill(0).await;
    assert!(lost.is_broken());
    for id in &ids {
        let back = client.get(&replicas, Some(id));
        pass(ms(1)).await;
        if client.next(3) == 0 {
            client.next(3);
        }
        if back.spoken().is_none() {
            continue;
        }
        assert_eq!(back.status(), 200);
        let told = back.messages();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(r#""id":"seven","error":"#), "{told:?}");
        assert!(back.is_over());
    }
    assert!(replicas.events("lost") >= 1);
    // Other requests of the session get one answer: begin a new session.
    let named = format!("Mcp-Session-Id: {}", client.session.as_deref().unwrap());
    let next = call(8, 8);
    for (start, body) in [("POST /r", next.as_bytes()), ("GET /r", b""), ("DELETE /r", b"")] {
        let headers = [&*named, crate::http::rig::BOTH];
        let answer = replicas.send(1, start, &headers, body);
        settle().await;
        assert_eq!(answer.status(), 404, "{start}");
    }
    // A new session can begin at once.
    let mut anew = Client::new(Spread::NeverOwner);
    anew.next(3);
    let begun = anew.post(&replicas, initialize("2025-11-25"));
    let _server = replicas.started().await;
    assert!(begun.is_silent());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_an_error_at_once_through_every_replica() {
    let mut replicas = Replicas::new(3, HTTP);
    let client = begin_over_http(&mut replicas, Spread::Sticky, "s").await;
    replicas.refuse_connections();
    let named = format!("Mcp-Session-Id: {}", client.session.as_deref().unwrap());
    let (body, begun) = (call(1, 1), replicas.now());
    for to in [0, 1, 2] {
        // The first call may use a connection that is still open.
        let headers = [&*named, crate::http::rig::BOTH, "Connection: close"];
        let answer = replicas.send(to, "POST /r", &headers, body.as_bytes());
        if let Some(asked) = replicas.try_asked().await {
            asked.answer(
                "200 OK",
                &["Content-Type: application/json", "Connection: close"],
                result(1),
            );
            settle().await;
            continue;
        }
        assert_eq!(answer.status(), 502, "{to}");
        assert!(replicas.calls_done().await);
    }
    assert_eq!(replicas.now(), begun);
    assert_eq!(replicas.events("taken-over"), 0, "the owner is there");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_anew_is_another_owner() {
    let mut replicas = Replicas::new(2, HTTP);
    let client = begin_over_http(&mut replicas, Spread::Sticky, "s").await;
    replicas.restart(0, Some(&super::replicas::table(0, &[super::replicas::KEY]))).await;
    let named = format!("Mcp-Session-Id: {}", client.session.as_deref().unwrap());
    for to in [0, 1] {
        let body = call(1, 1);
        let headers = [&*named, crate::http::rig::BOTH];
        let answer = replicas.send(to, "POST /r", &headers, body.as_bytes());
        let asked = replicas.asked().await;
        assert_eq!(asked.request.header("mcp-session-id"), Some("s"));
        asked.json(&[], &result(1));
        settle().await;
        assert_eq!(answer.text(), result(1), "{to}");
    }
    assert_eq!(replicas.events("taken-over"), 2);
    assert_eq!(replicas.events("loop"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_http_sse_ends_with_its_replica() {
    let mut replicas = Replicas::new(2, SSE);
    let stream = replicas.send(0, "GET /r/sse", &["Accept: text/event-stream"], b"");
    let wire = replicas.asked().await;
    wire.events(&[]);
    wire.chunk("event: endpoint\ndata: /post?session=1\n\n");
    settle().await;
    let start = format!("POST {}", endpoint(&stream));
    replicas.kill(0).await;
    assert!(stream.is_broken());
    let post = replicas.send(1, &start, &[], call(1, 1).as_bytes());
    settle().await;
    assert_eq!(post.status(), 404);
    assert!(replicas.asks_nothing().await);
}

/// Progress of the call that a client came back for is its own, although a session of the heir has an equal token
/// open; on a stream that repeats nothing the same message may be the other session's.
#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_to_an_heir_loses_nothing_to_a_session_with_equal_tokens() {
    let mut replicas = Replicas::new(2, HTTP);
    let mut mine = begin_over_http(&mut replicas, Spread::Sticky, "mine").await;
    let lost = mine.post(&replicas, call(1, 1));
    let asked = replicas.asked().await;
    asked.events(&[]);
    asked.chunk(event_with("e1", &progress(1, 1)));
    settle().await;
    replicas.kill(0).await;
    // The heir has a session of its own, with an equal id and token.
    let mut other = Client::new(Spread::NeverOwner);
    other.next(2);
    let begun = other.post(&replicas, initialize("2025-11-25"));
    let named = "Mcp-Session-Id: other";
    replicas.asked().await.json(&[named], &crate::support::messages::agreement("2025-11-25"));
    settle().await;
    other.session = begun.header("mcp-session-id");
    let theirs = other.post(&replicas, call(1, 1));
    let theirs_at_server = replicas.asked().await;
    theirs_at_server.events(&[]);
    theirs_at_server.say(progress(1, 50));

    let mut back = Vec::new();
    for (from, to) in [(1, 10), (10, 20)] {
        let named = format!("Mcp-Session-Id: {}", mine.session.as_deref().unwrap());
        let last = format!("Last-Event-ID: e{from}");
        let headers = ["Accept: text/event-stream", &*named, &*last];
        let stream = replicas.send(1, "GET /r", &headers, b"");
        let resumed = replicas.asked().await;
        assert_eq!(resumed.request.header("mcp-session-id"), Some("mine"));
        resumed.events(&[]);
        for figure in from + 1..=to {
            resumed.chunk(event_with(&format!("e{figure}"), &progress(1, figure)));
        }
        if to == 20 {
            resumed.chunk(event_with("a", &result(1)));
        }
        resumed.end();
        settle().await;
        back.push(stream);
    }
    let told: Vec<String> = back.iter().flat_map(|stream| stream.messages()).collect();
    let whole = (2..=20).map(|figure| progress(1, figure)).chain([result(1)]);
    assert_eq!(told, whole.collect::<Vec<_>>());

    // A stream that repeats no messages: the owner of the token cannot be known, so the progress is withheld.
    let named = format!("Mcp-Session-Id: {}", mine.session.as_deref().unwrap());
    let home = replicas.send(1, "GET /r", &["Accept: text/event-stream", &*named], b"");
    let home_of_server = replicas.asked().await;
    home_of_server.events(&[]);
    home_of_server.say(progress(1, 60));
    home_of_server.say(progress("\"free\"", 1));
    settle().await;
    assert_eq!(home.messages(), [progress("\"free\"", 1)], "only what is open nowhere else");
    theirs_at_server.say(result(1));
    theirs_at_server.end();
    settle().await;
    assert_eq!(theirs.messages(), [progress(1, 50), result(1)]);
    check([&lost, &theirs]);
}

/// Of two sessions with equal ids and tokens one loses its replica; its heir is the owner of the other, or a third replica.
#[tokio::test(start_paused = true)]
async fn sessions_with_equal_ids_and_tokens_do_not_cross_when_a_replica_is_killed() {
    for round in 0..2 * super::same::sessions() {
        let mut replicas = Replicas::new(3, HTTP);
        let mut clients = Vec::new();
        for owner in 0..2 {
            let mut client = Client::new(Spread::RoundRobin);
            for _ in 0..owner {
                client.next(3);
            }
            let begun = client.post(&replicas, initialize("2025-11-25"));
            let named = format!("Mcp-Session-Id: s{owner}");
            let agreed = crate::support::messages::agreement("2025-11-25");
            replicas.asked().await.json(&[&named], &agreed);
            settle().await;
            client.session = begun.header("mcp-session-id");
            let named = format!("Mcp-Session-Id: {}", client.session.as_deref().unwrap());
            let headers = [&*named, crate::http::rig::BOTH];
            let asks = replicas.send(owner, "POST /r", &headers, call(1, 1).as_bytes());
            let asked = replicas.asked().await;
            asked.events(&[]);
            asked.chunk(event_with("e1", &report(1, 1, &format!("of {owner}"))));
            settle().await;
            clients.push((named, asks, asked));
        }
        replicas.kill(0).await;
        let heir = 1 + usize::try_from(round % 2).unwrap();
        let headers = ["Accept: text/event-stream", &*clients[0].0, "Last-Event-ID: e1"];
        let back = replicas.send(heir, "GET /r", &headers, b"");
        let resumed = replicas.asked().await;
        assert_eq!(resumed.request.header("mcp-session-id"), Some("s0"));
        resumed.events(&[]);
        for figure in 2..=5 {
            for (owner, stream) in [(0, &resumed), (1, &clients[1].2)] {
                let text = report(1, figure, &format!("of {owner}"));
                stream.chunk(event_with(&format!("e{figure}"), &text));
                settle().await;
            }
        }
        for stream in [&resumed, &clients[1].2] {
            stream.say(result(1));
            stream.end();
        }
        settle().await;
        let told = [back.messages(), clients[1].1.messages()];
        for (owner, (told, first)) in told.iter().zip([2, 1]).enumerate() {
            let whole = (first..=5).map(|figure| report(1, figure, &format!("of {owner}")));
            assert_eq!(*told, whole.chain([result(1)]).collect::<Vec<_>>(), "round {round}");
        }
    }
}

/// The owner of a session knows all its calls, so progress of another session's call on its stream is withheld.
#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_to_its_owner_gets_nothing_of_another_session() {
    let mut replicas = Replicas::new(2, HTTP);
    let mut mine = begin_over_http(&mut replicas, Spread::Sticky, "mine").await;
    let mut other = begin_over_http(&mut replicas, Spread::Sticky, "other").await;
    let theirs = other.post(&replicas, call(1, "\"theirs\""));
    let theirs_at_server = replicas.asked().await;
    theirs_at_server.events(&[]);
    let lost = mine.post(&replicas, call(1, "\"mine\""));
    let asked = replicas.asked().await;
    asked.events(&[]);
    asked.chunk(event_with("m1", &progress("\"mine\"", 1)));
    settle().await;
    lost.leave();
    settle().await;
    let back = mine.get(&replicas, Some("m1"));
    let resumed = replicas.asked().await;
    resumed.events(&[]);
    resumed.chunk(event_with("m2", &progress("\"theirs\"", 7)));
    resumed.chunk(event_with("m3", &progress("\"mine\"", 2)));
    resumed.chunk(event_with("m4", &result(1)));
    resumed.end();
    settle().await;
    assert_eq!(back.messages(), [progress("\"mine\"", 2), result(1)]);
    theirs_at_server.say(result(1));
    theirs_at_server.end();
    settle().await;
    assert_eq!(theirs.messages(), [result(1)]);
}
