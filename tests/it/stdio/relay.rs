//! The relay over in-memory streams with a clock that only moves when told: the transcripts of the
//! bare filter come out the same, and a panic in the filter harms nothing but progress.

use std::time::Duration;

use milepost::progress::Policy;
use milepost::progress::dialect::{BuiltIn, Dialect, Fields, Original, Report};
use milepost::protocol::jsonrpc::Message;
use milepost::protocol::lines::INSPECT_MAX;
use milepost::protocol::mcp::PROGRESS;
use milepost::relay::{DiagnosticsSink, Pipe, Relay, RelayStep};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::core::transcripts::{duration, settings, unprintable};
use crate::support::messages::{call, notification, progress, request, result};

/// Both ends of a relay that runs in its own task.
pub(super) struct Ends {
    pub(super) client: DuplexStream,
    pub(super) server: DuplexStream,
    noise: DuplexStream,
    errors: DuplexStream,
    tell: mpsc::UnboundedSender<String>,
    task: JoinHandle<()>,
}

/// Room enough that nothing ever waits for a reader.
const ROOM: usize = 64 << 20;

fn start(policy: Policy) -> Ends {
    start_holding(policy, INSPECT_MAX)
}

/// The same with legs that hold lines of up to `limit` bytes whole.
pub(super) fn start_holding(policy: Policy, limit: usize) -> Ends {
    let (client, near_client) = duplex(ROOM);
    let (server, near_server) = duplex(ROOM);
    let (noise, near_noise) = duplex(ROOM);
    let (errors, near_errors) = duplex(ROOM);
    let (client_in, client_out) = tokio::io::split(near_client);
    let (server_in, server_out) = tokio::io::split(near_server);
    let client_leg = Pipe::holding(Box::new(client_in), Box::new(client_out), limit);
    let server_leg = Pipe::holding(Box::new(server_in), Box::new(server_out), limit);
    let aside = DiagnosticsSink::new(Box::new(near_noise), Some(Box::new(near_errors)));
    let mut relay = Relay::with_sole_stream(policy, client_leg, server_leg, aside);
    let (tell, mut gone) = mpsc::unbounded_channel::<String>();
    let task = tokio::spawn(async move {
        loop {
            tokio::select! {
                step = relay.step() => if step == RelayStep::ServerDone { break },
                why = gone.recv() => {
                    let Some(why) = why else { break };
                    relay.server_gone(&why);
                }
            }
            while relay.poll_event().is_some() {}
        }
        relay.finish(Duration::from_secs(1)).await;
    });
    Ends { client, server, noise, errors, tell, task }
}

/// Lets every task run until it has to wait.
pub(super) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn lines(from: &mut DuplexStream) -> Vec<String> {
    let mut text = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        tokio::select! {
            biased;
            read = from.read(&mut buffer) => match read {
                Ok(1..) => text.extend_from_slice(&buffer[..read.unwrap()]),
                _ => break,
            },
            () = settle() => break,
        }
    }
    String::from_utf8_lossy(&text).lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Plays a transcript. Returns what the client read and the lines on standard error.
async fn play(text: &str) -> (Vec<String>, Vec<String>) {
    let mut policy = Policy::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("! ")) {
        if line.contains('=') {
            settings(&mut policy, line);
        }
    }
    let mut ends = start(policy);
    for line in text.lines() {
        let (sign, rest) = line.split_at(line.len().min(2));
        let message = || [&unprintable(rest)[..], b"\n"].concat();
        match sign {
            "> " => ends.client.write_all(&message()).await.unwrap(),
            "< " => ends.server.write_all(&message()).await.unwrap(),
            "2 " => ends.errors.write_all(&message()).await.unwrap(),
            "+ " => tokio::time::sleep(duration(rest)).await,
            "! " if rest.starts_with("gone ") => ends.tell.send(rest[5..].to_owned()).unwrap(),
            _ => continue,
        }
        settle().await;
    }
    settle().await;
    (lines(&mut ends.client).await, lines(&mut ends.noise).await)
}

fn expected(text: &str, sign: &str) -> Vec<String> {
    let found = text.lines().filter_map(|line| line.strip_prefix(sign));
    found.map(|line| line.trim_end().to_owned()).collect()
}

/// A client that waits ten seconds for news of a call outlasts a tool that is silent for a minute.
#[tokio::test(start_paused = true)]
async fn the_defaults_outlast_a_silent_tool() {
    let mut ends = start(Policy::default());
    ends.client.write_all(format!("{}\n", call("1", "1")).as_bytes()).await.unwrap();
    let (mut silence, mut news) = (0, 0);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let told = lines(&mut ends.client).await;
        assert!(told.iter().all(|line| line.contains(PROGRESS)), "{told:?}");
        silence = if told.is_empty() { silence + 1 } else { 0 };
        news += told.len();
        assert!(silence < 10, "no news for ten seconds");
    }
    assert!(news < 60, "{news} heartbeats in a minute");
    ends.server.write_all(format!("{}\n", result("1")).as_bytes()).await.unwrap();
    settle().await;
    assert_eq!(lines(&mut ends.client).await, [result("1")]);
}

#[tokio::test(start_paused = true)]
async fn transcripts_come_out_the_same_through_the_relay() {
    let mut count = 0;
    for transcript in crate::core::transcripts::transcripts_of_one_client() {
        // A relay gives tasks random ids, stdio has no second client stream, and calls have no observer here.
        let is_of_tasks = transcript.key().starts_with("tasks/");
        let text = &transcript.text;
        if is_of_tasks
            || text.lines().any(|line| {
                ["! open", "! close", "! left", "! cancels"]
                    .iter()
                    .any(|command| line.starts_with(command))
            })
        {
            continue;
        }
        let (told, noise) = play(text).await;
        assert_eq!(told, expected(text, "= "), "{transcript}");
        let aside = text
            .lines()
            .filter_map(|line| line.strip_prefix("e ").or_else(|| line.strip_prefix("2 ")));
        let aside = aside.flat_map(|line| {
            let bytes = unprintable(line.trim_end());
            String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect::<Vec<_>>()
        });
        assert_eq!(noise, aside.collect::<Vec<_>>(), "{transcript}");
        count += 1;
    }
    assert!(count > 1);
}

#[tokio::test(start_paused = true)]
async fn what_stands_on_standard_error_when_a_request_comes_is_not_about_it() {
    let mut policy = Policy::default();
    settings(
        &mut policy,
        "dialects=standard,stderr heartbeat=off pacing=immediate min-interval=0ms",
    );
    let mut ends = start(policy);
    let call = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":7}}}"#,
        "\n"
    );
    // Both texts have arrived before the relay reads either of them.
    ends.errors.write_all(b"cleaning up after the last one: 9/10\n").await.unwrap();
    ends.client.write_all(call.as_bytes()).await.unwrap();
    settle().await;
    assert_eq!(lines(&mut ends.client).await, Vec::<String>::new());
    ends.errors.write_all(b"scanning: 1/10\n").await.unwrap();
    settle().await;
    let told = lines(&mut ends.client).await;
    assert!(told.len() == 1 && told[0].contains(r#""progress":1,"total":10"#), "{told:?}");
}

/// A dialect that fails when it is asked.
pub(super) static FAULTY: BuiltIn = BuiltIn {
    name: "faulty",
    methods: &["notifications/progress", "boom"],
    default: false,
    original: Original::Replaced,
    bare_results: false,
    read: |_: &str, _: &Message, _: &Fields| -> Option<Report> { panic!("an injected fault") },
};

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_filter_leaves_the_connection_forwarding_without_progress() {
    let mut policy = Policy::default();
    policy.call.dialects = vec![Dialect::BuiltIn(&FAULTY)];
    let mut ends = start(policy);
    let ask =
        br#"{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":1},"name":"a"}}"#;
    ends.client.write_all(&[ask, &b"\n"[..]].concat()).await.unwrap();
    settle().await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"m"}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let large = format!(r#"{{"jsonrpc":"2.0","id":2,"result":"{}"}}"#, "x".repeat(5 << 20));
    for line in [log, progress, log, "noise", progress, &large, answer] {
        ends.server.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        settle().await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let told = lines(&mut ends.client).await;
    assert_eq!(told, [log, log, &large, answer]);
    assert_eq!(lines(&mut ends.noise).await, ["noise"]);
    ends.client.write_all(b"{\"id\":2,\"method\":\"ping\"}\n").await.unwrap();
    settle().await;
    assert_eq!(lines(&mut ends.server).await.len(), 2, "the other direction goes on");
    drop(ends.server);
    ends.task.await.unwrap();
}

/// A minute after its first call, the client has made a second call for the same work, which waits for the
/// cancellation of the first.
async fn with_a_call_that_waits(mut policy: Policy) -> Ends {
    settings(&mut policy, "late=on heartbeat=off");
    let mut ends = start(policy);
    ends.client.write_all(format!("{}\n", call("1", "1")).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    ends.client.write_all(format!("{}\n", call("2", "2")).as_bytes()).await.unwrap();
    settle().await;
    assert_eq!(lines(&mut ends.server).await, [call("1", "1")]);
    ends
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_goes_on_once() {
    let mut ends = with_a_call_that_waits(Policy::default()).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(lines(&mut ends.server).await, Vec::<String>::new());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(lines(&mut ends.server).await, [call("2", "2")]);
    ends.server.write_all(format!("{}\n", result("2")).as_bytes()).await.unwrap();
    settle().await;
    assert_eq!(lines(&mut ends.client).await, [result("2")]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_goes_on_before_the_client_is_done() {
    let mut ends = with_a_call_that_waits(Policy::default()).await;
    ends.client.shutdown().await.unwrap();
    settle().await;
    assert_eq!(lines(&mut ends.server).await, [call("2", "2")]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_survives_a_panic_in_the_filter() {
    let mut policy = Policy::default();
    policy.call.dialects = vec![Dialect::BuiltIn(&FAULTY)];
    let mut ends = with_a_call_that_waits(policy).await;
    ends.server.write_all(format!("{}\n", progress("1", 1)).as_bytes()).await.unwrap();
    settle().await;
    assert_eq!(lines(&mut ends.server).await, [call("2", "2")]);
}

/// A result of 5 MB, which a relay does not hold in one piece; with its id first, or last.
fn large(id: &str) -> [String; 2] {
    let text = "x".repeat(5 << 20);
    let body = format!(r#""result":{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    [
        format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#),
        format!(r#"{{{body},"jsonrpc":"2.0","id":{id}}}"#),
    ]
}

async fn say(to: &mut DuplexStream, line: &str) {
    to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    settle().await;
}

/// The client has given its first call up.
async fn with_a_call_that_was_given_up(more: &str) -> Ends {
    let mut policy = Policy::default();
    settings(&mut policy, &format!("late=on heartbeat=off {more}"));
    let mut ends = start(policy);
    say(&mut ends.client, &call("1", "1")).await;
    let reason = r#"{"requestId":1,"reason":"Request timed out"}"#;
    say(&mut ends.client, &notification("notifications/cancelled", reason)).await;
    assert_eq!(lines(&mut ends.server).await, [call("1", "1")]);
    ends
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_waits_for_the_client_that_gave_its_call_up() {
    for (answer, given) in large("1").iter().zip(large("2")) {
        let mut ends = with_a_call_that_was_given_up("").await;
        say(&mut ends.server, answer).await;
        assert_eq!(lines(&mut ends.client).await, Vec::<String>::new());
        say(&mut ends.client, &call("2", "2")).await;
        assert!(lines(&mut ends.client).await == [given], "the answer");
        assert_eq!(lines(&mut ends.server).await, Vec::<String>::new(), "one run");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_to_an_open_call_passes_while_another_call_was_given_up() {
    for answer in large("7") {
        let mut ends = with_a_call_that_was_given_up("").await;
        say(&mut ends.client, &request(7, "resources/read", r#"{"uri":"file:///a"}"#)).await;
        say(&mut ends.server, &answer).await;
        assert!(lines(&mut ends.client).await == [answer], "the answer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_without_room_is_dropped() {
    for answer in large("1") {
        let mut ends = with_a_call_that_was_given_up("late-bytes=4800000").await;
        say(&mut ends.server, &answer).await;
        lines(&mut ends.client).await;
        say(&mut ends.client, &call("2", "2")).await;
        assert_eq!(lines(&mut ends.server).await, [call("2", "2")], "the work runs again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_that_breaks_off_does_not_wait() {
    for answer in large("1") {
        let mut ends = with_a_call_that_was_given_up("").await;
        ends.server.write_all(&answer.as_bytes()[..answer.len() - 20]).await.unwrap();
        settle().await;
        drop(ends.server);
        ends.task.await.unwrap();
        assert!(lines(&mut ends.client).await.iter().all(|line| !line.contains(r#""id":2"#)));
    }
}
