//! `server/discover` in front of servers that do not know it.

use std::time::Duration;

use milepost::progress::Policy;
use milepost::relay::child_leg::ChildLeg;
use milepost::relay::{DiagnosticsSink, Pipe, Relay, RelayStep};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, sink};
use tokio::time::{Instant, sleep};

use crate::support::session::Session;

const DISCOVER: &str = r#"{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
const AGREED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}"#;

/// A server that ends over anything but `initialize`, and says so on standard error.
const BRITTLE: &str = r#"
read -r line
case $line in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}' ;;
    *) echo 'no session' >&2; exit 1 ;;
esac
cat >/dev/null
"#;

#[test]
fn a_server_that_ends_over_the_question_is_started_afresh() {
    let mut session = Session::wrap(&[], &["sh", "-c", BRITTLE]);
    session.tell(DISCOVER);
    let refused = session.line();
    assert!(refused.contains(r#""id":"d""#) && refused.contains("-32601"), "{refused}");
    session.tell(INITIALIZE);
    assert_eq!(session.line(), AGREED);
    let (rest, code, _) = session.finish();
    assert_eq!((&*rest, code), ("", Some(0)));
}

#[test]
fn what_was_said_behind_the_question_is_said_again() {
    let mut session = Session::wrap(&[], &["sh", "-c", BRITTLE]);
    session.say(format!("{DISCOVER}\n{INITIALIZE}\n"));
    assert_eq!(session.line(), AGREED);
    assert!(session.line().contains("-32601"));
    assert_eq!(session.finish().1, Some(0));
}

#[test]
fn a_server_that_ends_later_stays_ended() {
    let server = r#"read -r _; echo '{"jsonrpc":"2.0","id":"d","result":{}}'; read -r _; exit 3"#;
    let mut session = Session::wrap(&[], &["sh", "-c", server]);
    session.tell(DISCOVER);
    assert!(session.line().contains(r#""result""#));
    session.tell(DISCOVER);
    assert!(session.line().contains("exit code 3"));
    assert_eq!(session.finish().1, Some(3));
}

/// A relay in front of a server that is played here.
struct Ends {
    client: DuplexStream,
    server: DuplexStream,
    errors: DuplexStream,
    /// The server that replaces the one which has ended.
    again: DuplexStream,
    began: Instant,
}

fn start() -> Ends {
    let (client, near_client) = duplex(1 << 16);
    let (server, near_server) = duplex(1 << 16);
    let (errors, near_errors) = duplex(1 << 16);
    let pipe = |end| {
        let (read, write) = tokio::io::split(end);
        Pipe::new(Box::new(read), Box::new(write))
    };
    let server_leg = ChildLeg::new(pipe(near_server), std::sync::Arc::default(), None);
    let aside = DiagnosticsSink::new(Box::new(sink()), Some(Box::new(near_errors)));
    let mut relay =
        Relay::with_sole_stream(Policy::default(), pipe(near_client), server_leg, aside);
    let (again, afresh) = duplex(1 << 16);
    tokio::spawn(async move {
        while relay.step().await != RelayStep::ServerDone {}
        if relay.server().has_failed() {
            relay.server().replace(pipe(afresh));
            relay.read_server_again(None);
            while relay.step().await != RelayStep::ServerDone {}
        }
    });
    Ends { client, server, errors, again, began: Instant::now() }
}

impl Ends {
    /// The next line that the client reads, and when.
    async fn told(&mut self) -> (String, Duration) {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(self.client.read_u8().await.unwrap());
        }
        (String::from_utf8(line).unwrap().trim_end().to_owned(), self.began.elapsed())
    }

    async fn client(&mut self, line: &str) {
        self.client.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        // The message is read before any answer.
        sleep(Duration::from_millis(1)).await;
    }

    async fn server(&mut self, line: &str) {
        self.server.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// The server ends. Its replacement must get `line`, and answers.
    async fn end(&mut self, line: &str, answer: &str) {
        let (_, gone) = duplex(1);
        self.server = gone;
        let mut told = vec![0; line.len() + 1];
        self.again.read_exact(&mut told).await.unwrap();
        assert_eq!(String::from_utf8(told).unwrap().trim_end(), line);
        self.again.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
}

#[track_caller]
fn check_refused(told: &(String, Duration), after: u64) {
    assert!(told.0.contains(r#""id":"d""#) && told.0.contains("-32601"), "{}", told.0);
    assert_eq!(told.1.as_secs(), after);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_waited_for_eight_seconds() {
    let mut ends = start();
    ends.client(DISCOVER).await;
    check_refused(&ends.told().await, 8);
}

#[tokio::test(start_paused = true)]
async fn the_eight_seconds_begin_with_the_first_byte() {
    let mut ends = start();
    ends.client(DISCOVER).await;
    sleep(Duration::from_secs(7)).await;
    ends.errors.write_all(b"starting\n").await.unwrap();
    sleep(Duration::from_secs(5)).await;
    ends.errors.write_all(b"still starting\n").await.unwrap();
    check_refused(&ends.told().await, 15);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_goes_no_further() {
    let mut ends = start();
    ends.client(DISCOVER).await;
    check_refused(&ends.told().await, 8);
    ends.client(INITIALIZE).await;
    ends.server(r#"{"jsonrpc":"2.0","id":"d","error":{"code":-32601,"message":"?"}}"#).await;
    ends.server(AGREED).await;
    assert_eq!(ends.told().await.0, AGREED);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_passes_as_it_is() {
    let mut ends = start();
    ends.client(DISCOVER).await;
    sleep(Duration::from_secs(7)).await;
    let answer = r#"{ "jsonrpc":"2.0","id":"d","result":{"supportedVersions":["2026-07-28"]}}"#;
    ends.server(answer).await;
    assert_eq!(ends.told().await.0, answer);
    sleep(Duration::from_secs(60)).await;
    ends.server(r#"{"jsonrpc":"2.0","method":"x"}"#).await;
    assert!(ends.told().await.0.contains(r#""method":"x""#));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_falls_back_may_begin_its_ids_anew() {
    let mut ends = start();
    ends.client(&DISCOVER.replace("\"d\"", "1")).await;
    sleep(Duration::from_secs(11)).await;
    assert!(ends.told().await.0.contains("-32601"));
    ends.client(INITIALIZE).await;
    ends.server(AGREED).await;
    assert_eq!(ends.told().await.0, AGREED);
}

/// As the Python SDK 1.1 does: its session is over, and its process waits for one more line.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_and_ends_over_what_comes_next_is_started_afresh() {
    let mut ends = start();
    ends.client(DISCOVER).await;
    check_refused(&ends.told().await, 8);
    ends.client(INITIALIZE).await;
    ends.end(INITIALIZE, AGREED).await;
    assert_eq!(ends.told().await.0, AGREED);
}

/// The Rust SDK takes any other answer than to its `initialize` for a broken server.
#[tokio::test(start_paused = true)]
async fn a_client_that_no_longer_waits_is_refused_behind_its_next_answer() {
    let mut ends = start();
    ends.errors.write_all(b"starting\n").await.unwrap();
    ends.client(DISCOVER).await;
    sleep(Duration::from_secs(6)).await;
    ends.client(INITIALIZE).await;
    sleep(Duration::from_secs(6)).await;
    ends.server(AGREED).await;
    assert_eq!(ends.told().await.0, AGREED);
    check_refused(&ends.told().await, 12);
    ends.server(r#"{"jsonrpc":"2.0","id":"d","result":{}}"#).await;
    ends.server(r#"{"jsonrpc":"2.0","method":"x"}"#).await;
    assert!(ends.told().await.0.contains(r#""method":"x""#));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_no_longer_waits_for_a_server_that_ended_is_refused_behind_its_next_answer() {
    let mut ends = start();
    ends.client(DISCOVER).await;
    sleep(Duration::from_secs(6)).await;
    ends.client(INITIALIZE).await;
    ends.end(INITIALIZE, AGREED).await;
    assert_eq!(ends.told().await.0, AGREED);
    check_refused(&ends.told().await, 6);
}
