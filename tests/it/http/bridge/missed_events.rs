//! Streams of sessions that Milepost manages: event ids, resumption after missed events, and the stream of messages
//! that belong to no request.

use crate::http::bridge::sessions::begun;
use crate::http::rig::{Answer, check, pass, secs, settle};
use crate::support::messages::{LOG, call, progress, result};

/// The last event id that came.
pub(super) fn last_id(answer: &Answer) -> String {
    let text = answer.text();
    text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().to_owned()
}

fn ids(answer: &Answer) -> Vec<String> {
    let text = answer.text();
    text.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_2025_11_25_begins_with_an_id_to_come_back_with() {
    for (revision, primes) in [("2025-11-25", true), ("2025-06-18", false), ("2025-03-26", false)] {
        let begun = begun("", revision).await;
        let answer = begun.post(call("1", "1"));
        settle().await;
        begun.server.say(progress("1", 1));
        settle().await;
        let text = answer.text();
        if primes {
            assert!(text.starts_with("id: 2-0\nretry: 1000\ndata: \n\nid: 2-1\n"), "{text}");
        } else {
            assert!(text.starts_with(':') && text.contains("\n\nid: 2-1\n"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn event_ids_are_unique_in_a_session() {
    let begun = begun("", "2025-11-25").await;
    let home = begun.get(&[]);
    let calls = ["1", "2"].map(|id| begun.post(call(id, id)));
    settle().await;
    for id in ["1", "2"] {
        begun.server.say(progress(id, 1));
        begun.server.say(progress(id, 2));
    }
    begun.server.say(LOG);
    for id in ["1", "2"] {
        begun.server.say(result(id));
    }
    settle().await;
    let mut all: Vec<String> = calls.iter().chain([&home]).flat_map(ids).collect();
    assert_eq!(all.len(), 9, "{all:?}");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_finds_what_it_missed_and_goes_on() {
    let begun = begun("", "2025-11-25").await;
    let first = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(progress("1", 1));
    settle().await;
    let id = last_id(&first);
    first.leave();
    settle().await;
    begun.server.say(progress("1", 2));
    begun.server.say(LOG);
    settle().await;
    let second = begun.get(&[&format!("Last-Event-ID: {id}")]);
    settle().await;
    assert_eq!(second.messages(), [&progress("1", 2), LOG]);
    begun.server.say(progress("1", 3));
    settle().await;
    assert!(!second.is_over());
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(second.messages().len(), 4);
    assert!(second.is_over());
    check([&first, &second]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_found_also_when_its_call_is_over() {
    let begun = begun("", "2025-11-25").await;
    let first = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(progress("1", 1));
    settle().await;
    first.leave();
    settle().await;
    begun.server.say(result("1"));
    pass(secs(60)).await;
    for _ in 0..2 {
        let second = begun.get(&[&format!("Last-Event-ID: {}", last_id(&first))]);
        settle().await;
        assert_eq!(second.messages(), [result("1")]);
        assert!(second.is_over());
    }
    // A client that has all events has nothing to resume.
    let third = begun.get(&["Last-Event-ID: 2-2"]);
    settle().await;
    assert_eq!(third.status(), 405);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_event_id_leads_to_what_belongs_to_no_request() {
    let begun = begun("", "2025-11-25").await;
    for id in ["99-1", "x", "2025"] {
        let home = begun.get(&[&format!("Last-Event-ID: {id}")]);
        settle().await;
        begun.server.say(LOG);
        settle().await;
        assert_eq!(home.messages(), [LOG]);
        home.leave();
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_no_request_waits_for_a_get() {
    let begun = begun("", "2025-06-18").await;
    begun.server.say(LOG);
    let asks = r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#;
    begun.server.say(asks);
    pass(secs(5)).await;
    let home = begun.get(&[]);
    settle().await;
    assert_eq!(home.messages(), [LOG, asks]);
    // An event that one stream has delivered is not delivered on another.
    home.leave();
    settle().await;
    let home = begun.get(&[]);
    settle().await;
    assert!(home.messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded_and_requests_are_kept() {
    let begun = begun("", "2025-06-18").await;
    let asks = r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#;
    begun.server.say(asks);
    for number in 0..3000 {
        begun.server.say(LOG.replace("\"m\"", &number.to_string()));
    }
    pass(secs(5)).await;
    let home = begun.get(&[]);
    pass(secs(1)).await;
    let messages = home.messages();
    assert_eq!(messages.len(), 1000);
    assert_eq!(messages[0], asks);
    assert_eq!(messages[999], LOG.replace("\"m\"", "2999"));
}

#[tokio::test(start_paused = true)]
async fn a_second_get_takes_the_place_of_the_first_and_harms_nothing() {
    let begun = begun("", "2025-06-18").await;
    let first = begun.get(&[]);
    settle().await;
    begun.server.say(LOG);
    settle().await;
    let second = begun.get(&[]);
    settle().await;
    assert!(first.is_over() && !first.is_broken());
    begun.server.say(LOG);
    settle().await;
    assert_eq!(first.messages(), [LOG]);
    assert_eq!(second.messages(), [LOG]);
    assert!(!begun.server.is_closed() && begun.is_known().await);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_says_goes_on_the_stream_of_the_only_call() {
    let begun = begun("", "2025-06-18").await;
    let home = begun.get(&[]);
    let only = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(LOG);
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(only.messages(), [LOG, &result("1")]);
    assert!(home.messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_on_the_stream_of_its_own_call() {
    let begun = begun("", "2025-06-18").await;
    let home = begun.get(&[]);
    let calls = ["1", "2", "3"].map(|id| begun.post(call(id, id)));
    settle().await;
    for value in 1..4 {
        for id in ["3", "1", "2"] {
            begun.server.say(progress(id, value));
        }
    }
    for id in ["2", "3", "1"] {
        begun.server.say(result(id));
    }
    settle().await;
    for (id, answer) in ["1", "2", "3"].iter().zip(&calls) {
        let told = [progress(id, 1), progress(id, 2), progress(id, 3), result(id)];
        assert_eq!(answer.messages(), told);
    }
    assert!(home.messages().is_empty());
    check(calls.iter().chain([&home]));
}

#[tokio::test(start_paused = true)]
async fn a_detached_call_goes_on_however_much_it_says() {
    let begun = begun("", "2025-11-25").await;
    let first = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(progress("1", 1));
    settle().await;
    first.leave();
    settle().await;
    for value in 2..5000 {
        begun.server.say(progress("1", value));
    }
    begun.server.say(result("1"));
    pass(secs(5)).await;
    // Other streams of the session are not delayed.
    let other = begun.post(call("2", "2"));
    settle().await;
    begun.server.say(result("2"));
    settle().await;
    assert_eq!(other.text(), result("2"));
    let back = begun.get(&[&format!("Last-Event-ID: {}", last_id(&first))]);
    pass(secs(1)).await;
    let messages = back.messages();
    assert_eq!(messages.last(), Some(&result("1")));
    assert!(messages.len() <= 1000, "{}", messages.len());
    check([&first, &back]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_and_its_call_goes_on() {
    let begun = begun("heartbeat = { enabled = false }", "2025-11-25").await;
    let slow = begun.post(call("1", "1"));
    settle().await;
    begun.server.say(progress("1", 1));
    settle().await;
    slow.pause(true);
    let text = "z".repeat(64 << 10);
    for _ in 0..64 {
        begun.server.say(LOG.replace("\"m\"", &format!("\"{text}\"")));
    }
    begun.server.say(result("1"));
    let other = begun.post(call("2", "2"));
    pass(secs(10)).await;
    assert_eq!(other.messages(), [""; 0], "its server waits for it");
    pass(secs(120)).await;
    begun.server.say(result("2"));
    pass(secs(1)).await;
    assert_eq!(other.messages().last(), Some(&result("2")));
    let back = begun.get(&["Last-Event-ID: 2-1"]);
    pass(secs(1)).await;
    assert_eq!(back.messages().last(), Some(&result("1")));
}

#[tokio::test(start_paused = true)]
async fn sampling_crosses_and_is_answered() {
    let mut begun = begun("", "2025-06-18").await;
    let stream = begun.post(call("1", "1"));
    settle().await;
    begun.server.told().await;
    let asks = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
    begun.server.say(asks);
    settle().await;
    assert_eq!(stream.messages(), [asks]);
    let says = r#"{"jsonrpc":"2.0","id":1,"result":{"role":"assistant"}}"#;
    let told = begun.post(says);
    settle().await;
    assert_eq!(told.status(), 202);
    assert_eq!(begun.server.line().await, says);
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(stream.messages(), [asks, &result("1")]);
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_call_stands_still_while_its_client_is_asked() {
    let mut begun = begun("call_timeout = \"10s\"", "2025-06-18").await;
    let stream = begun.post(call("1", "1"));
    settle().await;
    begun.server.told().await;
    begun.server.say(r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#);
    pass(secs(60)).await;
    let beat = stream.messages().pop().unwrap();
    assert!(beat.contains("work: waiting for your answer ("), "{beat}");
    begun.post(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}"#);
    pass(secs(9)).await;
    begun.server.say(result("1"));
    settle().await;
    assert_eq!(stream.messages().pop(), Some(result("1")));
}

/// The oldest unread requests of a server are dropped beyond the limit, and the server gets an error for each of them.
#[tokio::test(start_paused = true)]
async fn the_oldest_of_too_many_requests_that_nobody_reads_get_an_error() {
    const KEPT: usize = 1000;
    let mut begun = begun("", "2025-06-18").await;
    let ping = |number: usize| format!(r#"{{"jsonrpc":"2.0","id":"p{number}","method":"ping"}}"#);
    for number in 0..3 * KEPT {
        begun.server.say(ping(number));
        if number % 100 == 0 {
            settle().await;
        }
    }
    pass(secs(1)).await;
    let told = begun.server.told().await;
    assert_eq!(told.len(), 2 * KEPT);
    for (number, error) in told.iter().enumerate() {
        let start = format!(r#"{{"jsonrpc":"2.0","id":"p{number}","error":{{"code":-32603,"#);
        assert!(error.starts_with(&start), "{error}");
    }
    let client = begun.get(&[]);
    pass(secs(1)).await;
    let read: Vec<String> = (2 * KEPT..3 * KEPT).map(ping).collect();
    assert_eq!(client.messages(), read);
}

/// Some servers put their requests into arrays.
#[tokio::test(start_paused = true)]
async fn requests_in_arrays_get_an_error_too() {
    const KEPT: usize = 1000;
    let mut begun = begun("", "2025-03-26").await;
    let ping = |number: usize| format!(r#"{{"jsonrpc":"2.0","id":"p{number}","method":"ping"}}"#);
    let other = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    for number in 0..3 * KEPT {
        begun.server.say(format!("[{},{other}]", ping(number)));
        if number % 100 == 0 {
            settle().await;
        }
    }
    pass(secs(1)).await;
    let told = begun.server.told().await;
    assert_eq!(told.len(), 2 * KEPT);
    for (number, error) in told.iter().enumerate() {
        let start = format!(r#"{{"jsonrpc":"2.0","id":"p{number}","error":{{"code":-32603,"#);
        assert!(error.starts_with(&start), "{error}");
    }
    let answer = begun.post(call("1", "1"));
    begun.server.line().await;
    begun.server.say(format!("[{},{other}]", result("1")));
    pass(secs(1)).await;
    assert_eq!(answer.messages().last(), Some(&result("1")));
}
