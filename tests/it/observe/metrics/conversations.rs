//! Conversations over HTTP in virtual time, and their metrics.

use super::page::Page;
use crate::http::rig::{Rig, ms, pass, secs, settle};
use crate::support::messages::{call_of, initialize, progress, result};

fn page(rig: &Rig) -> Page {
    Page::read(&rig.metrics())
}

const R: (&str, &str) = ("route", "/r");

#[tokio::test(start_paused = true)]
async fn a_call_is_counted_with_all_that_was_said_of_it() {
    let mut rig = Rig::new("upgrade_after = \"5s\"");
    let answer = rig.post(&[], call_of("t", 1, 7));
    let server = rig.asked().await;
    assert_eq!(page(&rig).sum("milepost_calls_in_flight", &[R]), 1.0);
    assert_eq!(page(&rig).sum("milepost_streams", &[R]), 1.0);
    server.events(&[]);
    pass(secs(1)).await;
    server.say(progress(7, 1));
    server.say(progress(7, 2));
    // The value does not rise, so it is lifted.
    pass(ms(1500)).await;
    server.say(progress(7, 2));
    pass(ms(500)).await;
    // No request has this token: it means the only call, and the value is lifted too.
    server.say(progress(9, 1));
    // Silence: a heartbeat after 10 s and two more.
    pass(secs(25)).await;
    server.say(result(1));
    server.end();
    settle().await;
    let told = answer.messages().len();
    let page = page(&rig);
    let sum = |name: &str, labels: &[(&str, &str)]| page.sum(name, &[&[R], labels].concat());
    let result = [("method", "tools/call"), ("outcome", "result")];
    assert_eq!(sum("milepost_calls_total", &result), 1.0);
    assert_eq!(sum("milepost_calls_total", &[]), 1.0);
    assert_eq!(sum("milepost_calls_in_flight", &[]), 0.0);
    assert_eq!(sum("milepost_streams", &[]), 0.0);
    assert_eq!(sum("milepost_progress_received_total", &[]), 4.0);
    // All messages that the client got, except the answer.
    assert_eq!(sum("milepost_progress_sent_total", &[]), (told - 1) as f64);
    let beats = sum("milepost_progress_sent_total", &[("origin", "heartbeat")]);
    let server = sum("milepost_progress_sent_total", &[("origin", "server")]);
    assert_eq!(beats + server, (told - 1) as f64);
    assert!(beats >= 2.0, "{beats}");
    assert_eq!(sum("milepost_server_messages_total", &[]), 5.0);
    assert_eq!(sum("milepost_repairs_total", &[("repair", "lift")]), 2.0);
    assert_eq!(sum("milepost_repairs_total", &[("repair", "token")]), 1.0);
    // 28 s in all; the client got progress after one second, and heartbeats divide the rest.
    assert_eq!(sum("milepost_call_duration_seconds_count", &[]), 1.0);
    assert_eq!(sum("milepost_call_duration_seconds_sum", &[]), 28.0);
    assert_eq!(sum("milepost_first_progress_seconds_sum", &[]), 1.0);
    assert_eq!(sum("milepost_longest_silence_seconds_bucket", &[("le", "30.0")]), 1.0);
    let silence = sum("milepost_longest_silence_seconds_sum", &[]);
    assert!((5.0..=10.0).contains(&silence), "{silence}");
    assert!(sum("milepost_server_received_bytes_total", &[]) > 300.0);
    assert!(sum("milepost_server_sent_bytes_total", &[]) > 100.0);
    assert_eq!(sum("milepost_upgrades_total", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_and_a_server_that_is_away_are_counted() {
    let mut rig = Rig::new("upgrade_after = \"5s\"");
    // A server that has answered before is trusted to answer late.
    rig.session("s", "2025-06-18").await;
    let answer = rig.post(&["Mcp-Session-Id: s"], call_of("t", 1, 7));
    let server = rig.asked().await;
    pass(secs(6)).await;
    server.json(&[], &result(1));
    settle().await;
    assert!(answer.is_over());
    let now = page(&rig);
    assert_eq!(now.sum("milepost_upgrades_total", &[R]), 1.0);
    let ended = [R, ("outcome", "result"), ("method", "tools/call")];
    assert_eq!(now.sum("milepost_calls_total", &ended), 1.0);
    rig.refuse_connections(true);
    // A connection that was used is not reused after some idle time.
    pass(secs(10)).await;
    let answer = rig.post(&[], call_of("t", 2, ""));
    settle().await;
    assert_eq!(answer.status(), 502);
    let now = page(&rig);
    assert_eq!(now.sum("milepost_upstream_errors_total", &[R, ("kind", "connect")]), 1.0);
    assert_eq!(now.sum("milepost_upstream_errors_total", &[R]), 1.0);
    assert_eq!(now.sum("milepost_calls_in_flight", &[R]), 0.0);
    let unknown = now.sum("milepost_calls_without_token_total", &[("client", "unknown")]);
    assert!(unknown >= 1.0, "{unknown}");
}

#[tokio::test(start_paused = true)]
async fn sessions_are_counted_while_they_are_known() {
    let mut rig = Rig::new("");
    rig.session("s", "2025-06-18").await;
    let now = page(&rig);
    assert_eq!(now.sum("milepost_sessions", &[R, ("kind", "server")]), 1.0);
    assert_eq!(now.sum("milepost_sessions", &[R]), 1.0);
    // `initialize` is not a tool call, so its duration is not counted.
    assert_eq!(now.sum("milepost_calls_total", &[R, ("method", "other")]), 1.0);
    assert_eq!(now.sum("milepost_call_duration_seconds_count", &[R]), 0.0);
    // A client that has disconnected is no longer waited for.
    let answer = rig.post(&["Mcp-Session-Id: s"], call_of("t", 1, 1));
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    assert_eq!(page(&rig).sum("milepost_calls_in_flight", &[R]), 1.0);
    answer.leave();
    settle().await;
    assert_eq!(page(&rig).sum("milepost_calls_in_flight", &[R]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn sessions_of_ours_keep_what_their_clients_have_not_taken() {
    let (rig, mut servers) = Rig::of_lines("");
    let begun = rig.post(&[], initialize("2025-06-18"));
    settle().await;
    let mut server = servers.try_recv().unwrap();
    server.line().await;
    server.say(r#"{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#);
    settle().await;
    assert_eq!(begun.status(), 200);
    // No client listens.
    server.say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    settle().await;
    let now = page(&rig);
    assert_eq!(now.sum("milepost_sessions", &[R, ("kind", "own")]), 1.0);
    assert_eq!(now.sum("milepost_kept_messages", &[R]), 1.0);
    assert!(now.sum("milepost_kept_bytes", &[R]) > 50.0);
    assert_eq!(now.sum("milepost_calls_total", &[R, ("outcome", "result")]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn what_is_scraped_does_not_grow_with_what_is_called() {
    let mut rig = Rig::new("");
    let mut sizes = Vec::new();
    for round in 0..4 {
        for number in 0..25 {
            let id = round * 100 + number;
            // Other tools, ids, tokens and sessions, and unknown progress.
            let session = format!("Mcp-Session-Id: s{id}");
            let answer = rig.post(&[&session], call_of(&format!("tool-{id}"), id, id));
            let server = rig.asked().await;
            server.events(&[]);
            server.say(progress(id, 1));
            server.say(format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/x{id}","params":{{"y{id}":1}}}}"#
            ));
            server.say(progress(id, 1));
            server.say(result(id));
            server.end();
            settle().await;
            assert!(answer.is_over());
        }
        let page = page(&rig);
        // Other tests of this process make calls without tokens at the same time.
        let clients = page.count("milepost_calls_without_token_total");
        assert!(clients <= milepost::observe::untokened_clients::CLIENTS_MAX + 1);
        sizes.push(page.len() - clients);
    }
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    assert!(sizes[0] <= 220, "{sizes:?}");
    let now = page(&rig);
    assert_eq!(now.sum("milepost_calls_total", &[R, ("outcome", "result")]), 100.0);
}

#[tokio::test(start_paused = true)]
async fn it_is_scraped_while_200_calls_run() {
    const CALLS: u32 = 200;
    let mut rig = Rig::new("max_streams = 1000");
    let mut open = Vec::new();
    for id in 0..CALLS {
        let answer = rig.post(&[], call_of("t", id, id));
        let server = rig.asked().await;
        server.events(&[]);
        open.push((id, answer, server));
    }
    for round in 1..=5u32 {
        for (id, _, server) in &open {
            server.say(progress(*id, round));
        }
        settle().await;
        let now = page(&rig);
        assert_eq!(now.sum("milepost_calls_in_flight", &[R]), f64::from(CALLS));
        assert_eq!(now.sum("milepost_streams", &[R]), f64::from(CALLS));
        let forwarded = now.sum("milepost_server_messages_total", &[R, ("verdict", "forwarded")]);
        assert_eq!(forwarded, f64::from(CALLS * round));
        pass(secs(1)).await;
    }
    let told: usize = open.iter().map(|(_, answer, _)| answer.messages().len()).sum();
    for (id, _, server) in &open {
        server.say(result(*id));
        server.end();
    }
    settle().await;
    let now = page(&rig);
    assert_eq!(now.sum("milepost_calls_in_flight", &[R]), 0.0);
    assert_eq!(now.sum("milepost_calls_total", &[R, ("outcome", "result")]), f64::from(CALLS));
    assert_eq!(now.sum("milepost_progress_sent_total", &[R]), told as f64);
    assert_eq!(now.sum("milepost_longest_silence_seconds_count", &[R]), f64::from(CALLS));
}
