//! Messages of Milepost's own beside messages that pass in pieces: in each direction nothing comes between two pieces.

use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost::progress::dialect::Dialect;
use milepost::progress::input::Input;
use milepost::progress::{Filter, Fragment, Origin, Policy, StreamId, StreamKind, StreamPacing};
use milepost::protocol::jsonrpc::Message;
use milepost::protocol::mcp::{CANCELLED, PROGRESS};
use milepost::relay::filter_guard::FilterGuard;
use milepost::relay::{DiagnosticsSink, Pipe, Relay, RelayStep, SOLE_STREAM};
use proptest::prelude::*;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, duplex, empty, sink};

use super::relay::{FAULTY, lines, settle, start_holding};
use crate::core::transcripts::settings;
use crate::support::messages::{call, notification, progress, request, result};

fn policy(words: &str) -> Policy {
    let mut policy = Policy::default();
    settings(&mut policy, words);
    policy
}

/// A request of 5 MB, which a relay does not hold in one piece.
fn large(id: u32) -> String {
    request(id, "resources/read", format!(r#"{{"uri":"{}"}}"#, "x".repeat(5 << 20)))
}

fn is_cancellation(line: &str, id: u32) -> bool {
    line.contains(CANCELLED) && line.contains(&format!(r#""requestId":{id},"#))
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_waits_for_the_end_of_the_clients_large_message() {
    let mut ends = start_holding(policy("call-timeout=30s"), 4 << 20);
    let large = large(3);
    let (first, rest) = large.as_bytes().split_at(large.len() - 1000);
    for id in ["1", "2"] {
        ends.client.write_all(format!("{}\n", call(id, id)).as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    ends.client.write_all(first).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    ends.client.write_all(&[rest, b"\n"].concat()).await.unwrap();
    settle().await;
    let told = lines(&mut ends.server).await;
    assert_eq!(told.len(), 5);
    assert!(told[..2] == [call("1", "1"), call("2", "2")] && told[2] == large);
    assert!(is_cancellation(&told[3], 1) && is_cancellation(&told[4], 2), "{:?}", &told[3..]);
}

#[tokio::test(start_paused = true)]
async fn a_large_message_without_a_line_end_is_ended_before_a_cancellation() {
    let mut ends = start_holding(policy("call-timeout=30s"), 4 << 20);
    let large = large(2);
    let begun = &large[..large.len() - 1000];
    ends.client.write_all(format!("{}\n{begun}", call("1", "1")).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    ends.client.shutdown().await.unwrap();
    settle().await;
    let told = lines(&mut ends.server).await;
    assert!(
        told.len() == 3 && told[1] == begun && is_cancellation(&told[2], 1),
        "{:?}",
        told.last()
    );
}

/// A client whose input cannot be written to any more has left in the middle of its message.
#[tokio::test(start_paused = true)]
async fn the_large_message_of_a_client_that_has_left_is_ended_before_a_cancellation() {
    let (mut from_client, client_in) = duplex(64 << 20);
    let (to_client, client_out) = duplex(1 << 10);
    let (mut to_server, server_out) = duplex(64 << 20);
    let client = Pipe::new(Box::new(client_in), Box::new(client_out));
    let server = Pipe::new(Box::new(duplex(1).0), Box::new(server_out));
    let aside = DiagnosticsSink::new(Box::new(sink()), Some(Box::new(empty())));
    let mut relay = Relay::with_sole_stream(policy("call-timeout=30s"), client, server, aside);
    let begun = &large(2)[..5 << 20];
    from_client.write_all(format!("{}\n{begun}", call("1", "1")).as_bytes()).await.unwrap();
    drop(to_client);
    let gone = async { while relay.step().await != RelayStep::ClientGone {} };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    while relay.is_sending() {
        relay.step().await;
    }
    drop(relay);
    let told = lines(&mut to_server).await;
    assert!(told[1] == *begun, "{} lines", told.len());
    assert!(told[2..].iter().all(|line| is_cancellation(line, 1)), "{:?}", &told[2..]);
}

fn with_streams(policy: Policy) -> FilterGuard {
    let policy = std::sync::Arc::new(policy);
    let filter = Filter::new(std::sync::Arc::clone(&policy));
    let mut guard = FilterGuard::new(filter, policy, SOLE_STREAM);
    let open = Input::OpenStream(SOLE_STREAM, StreamKind::Shared, StreamPacing::ByCall);
    guard.apply(Instant::now(), open);
    guard
}

/// The messages that the only client stream gets, those in pieces whole.
fn given(guard: &mut FilterGuard) -> Vec<String> {
    let (mut all, mut is_midway) = (Vec::<String>::new(), false);
    while let Some(transmit) = guard.poll_transmit(Instant::now(), SOLE_STREAM) {
        let text = String::from_utf8(transmit.payload.to_bytes().to_vec()).unwrap();
        match all.last_mut().filter(|_| is_midway) {
            Some(last) => last.push_str(&text),
            None => all.push(text),
        }
        is_midway = transmit.part == Fragment::Piece;
    }
    all
}

/// Sends the pieces of large messages on streams of the server, then progress, then the rest.
fn play_crossing_pieces(guard: &mut FilterGuard, all: &[(u64, &str)]) -> Vec<String> {
    let now = Instant::now();
    let on = |stream: u64| Origin::Stream(StreamId(stream));
    let cut = |text: &str| {
        let (first, rest) = text.split_at(text.len() - 5);
        [first, rest].map(|part| Bytes::copy_from_slice(part.as_bytes()))
    };
    for (stream, text) in all {
        let [first, _] = cut(text);
        let place = 0..first.len();
        guard.begin_large(now, on(*stream), first, place);
    }
    let mut told = given(guard);
    guard.server_message(now, on(9), &Message::parse(Bytes::from(progress("1", 1))));
    for (stream, text) in all {
        let [_, rest] = cut(text);
        let place = 0..rest.len();
        guard.large_piece(now, on(*stream), rest, place);
    }
    for (stream, _) in all {
        guard.finish_large(now, on(*stream), None);
    }
    let rest = given(guard);
    if let (Some(last), Some(first)) = (told.last_mut(), rest.first()) {
        last.push_str(first);
    }
    told.extend(rest.into_iter().skip(1));
    told
}

#[test]
fn large_messages_that_cross_are_whole_in_observe_mode() {
    let mut guard = with_streams(policy("mode=observe"));
    let [a, b] = [notification("a/a", r#"{"a":1}"#), notification("b/b", r#"{"b":1}"#)];
    let told = play_crossing_pieces(&mut guard, &[(1, &a), (2, &b)]);
    assert_eq!(told[..2], [a, b]);
}

/// The filter fails in the middle of three large messages, one of which is withheld.
#[test]
fn large_messages_that_cross_are_whole_after_the_filter_has_failed() {
    let mut policy = Policy::default();
    policy.call.dialects = vec![Dialect::BuiltIn(&FAULTY)];
    let mut guard = with_streams(policy);
    guard.client_message(Instant::now(), SOLE_STREAM, &Message::parse(call("1", "1").into()));
    let [a, b] = [notification("a/a", r#"{"a":1}"#), notification("b/b", r#"{"b":1}"#)];
    let withheld = notification("boom", r#"{"withheld":1}"#);
    let told = play_crossing_pieces(&mut guard, &[(1, &a), (2, &withheld), (3, &b)]);
    assert!(guard.try_with(|_| ()).is_none(), "the filter has failed");
    assert_eq!(told, [a, b]);
}

/// Lines that are longer pass in pieces.
const LIMIT: usize = 300;

#[derive(Debug, Clone)]
enum Act {
    /// The client, or the server, writes so many bytes.
    Client(usize),
    Server(usize),
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (1_usize..900).prop_map(Act::Client),
        3 => (1_usize..900).prop_map(Act::Server),
        2 => (1_u64..9000).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..60)
}

/// The client's messages: calls that time out or are answered, and messages of all lengths.
fn of_client(lengths: &[usize]) -> Vec<String> {
    let message = |(number, length): (usize, &usize)| {
        let text = "c".repeat(*length);
        match number % 3 {
            0 => call(number, number),
            1 => request(number, "resources/read", format!(r#"{{"uri":"{text}"}}"#)),
            _ => notification("notifications/x", format!(r#"{{"number":{number},"x":"{text}"}}"#)),
        }
    };
    lengths.iter().enumerate().map(message).collect()
}

/// The server's messages: progress of the calls, answers to some of them, and messages of all lengths.
fn of_server(lengths: &[usize]) -> Vec<String> {
    let message = |(number, length): (usize, &usize)| {
        let text = "s".repeat(*length);
        match number % 5 {
            0 => progress((number / 5 * 3).to_string(), 1),
            1 => request(format!(r#""s{number}""#), "roots/list", format!(r#"{{"x":"{text}"}}"#)),
            2 if *length > 2 * LIMIT => result((number / 5 * 6).to_string()),
            _ => notification("notifications/x", format!(r#"{{"number":{number},"x":"{text}"}}"#)),
        }
    };
    lengths.iter().enumerate().map(message).collect()
}

/// Whether a message of the server reaches the client at any time: progress and answers may come too late.
fn always_arrives(message: &str) -> bool {
    !message.contains(PROGRESS) && message.contains(r#""method""#)
}

async fn play(acts: &[Act], client: &[String], server: &[String]) -> [Vec<String>; 2] {
    let mut ends = start_holding(policy("call-timeout=20s"), LIMIT);
    let text = |all: &[String]| all.iter().map(|one| format!("{one}\n")).collect::<String>();
    let (of_client, of_server) = (text(client).into_bytes(), text(server).into_bytes());
    let (mut said, mut answered) = (&of_client[..], &of_server[..]);
    for act in acts {
        match act {
            Act::Client(bytes) => {
                let (now, later) = said.split_at((*bytes).min(said.len()));
                ends.client.write_all(now).await.unwrap();
                said = later;
            }
            Act::Server(bytes) => {
                let (now, later) = answered.split_at((*bytes).min(answered.len()));
                ends.server.write_all(now).await.unwrap();
                answered = later;
            }
            Act::Wait(millis) => tokio::time::sleep(Duration::from_millis(*millis)).await,
        }
        settle().await;
    }
    ends.client.write_all(said).await.unwrap();
    ends.server.write_all(answered).await.unwrap();
    // The last call gets the same time.
    tokio::time::sleep(Duration::from_secs(60)).await;
    [lines(&mut ends.client).await, lines(&mut ends.server).await]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_side_gets_whole_messages_in_order(
        acts in acts(),
        client in prop::collection::vec(0_usize..1200, 1..12),
        server in prop::collection::vec(0_usize..1200, 1..20),
    ) {
        let (client, server) = (of_client(&client), of_server(&server));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        let [to_client, to_server] = runtime.block_on(play(&acts, &client, &server));
        for line in to_client.iter().chain(&to_server) {
            prop_assert!(serde_json::from_str::<Value>(line).is_ok(), "{}", line);
        }
        let passed: Vec<_> =
            to_server.iter().filter(|line| !line.contains(CANCELLED)).cloned().collect();
        prop_assert_eq!(passed, client);
        let arrived = |all: &[String]| -> Vec<String> {
            all.iter().filter(|line| always_arrives(line)).cloned().collect()
        };
        // A request may overtake a message that waits; all other messages keep their order.
        let (mut told, mut sent) = (arrived(&to_client), arrived(&server));
        let order = |all: &[String]| -> Vec<String> {
            all.iter().filter(|line| !line.contains("roots/list")).cloned().collect()
        };
        prop_assert_eq!(order(&told), order(&sent));
        told.sort();
        sent.sort();
        prop_assert_eq!(told, sent);
    }
}
