//! A relay whose server is no child of ours: its life from the client's first word to the last.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::relay::{Clients, Relay, Server, Step};
use crate::telemetry::Connection;

/// How long calls that are open when the client has said its last word may go on: a pipeline asks and
/// closes, and still reads.
const OPEN_CALLS_GRACE: Duration = Duration::from_secs(20);

/// How long a client that reads nothing may keep us from ending.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Carries what clients and server say until the clients have said their last word and their calls are
/// answered, the server says nothing more, or `ended` comes; then the server is told that it is over.
pub async fn run<C: Clients, S: Server>(mut relay: Relay<C, S>, ended: impl Future<Output = ()>) {
    let mut log = Connection::default();
    let mut ended = std::pin::pin!(ended);
    let mut grace = None;
    let why = loop {
        tokio::select! {
            step = relay.step() => match step {
                Step::Moved => {}
                Step::ClientDone => {
                    grace.get_or_insert_with(|| Instant::now() + OPEN_CALLS_GRACE);
                }
                Step::ClientGone => break "the client has gone",
                Step::ServerDone => break "the MCP server has ended the connection",
            },
            () = &mut ended => break "milepost is shutting down",
            () = due(grace) => break "the client has said its last word",
        }
        while let Some(record) = relay.poll_record() {
            log.note(&record);
        }
        if grace.is_some() && relay.open_calls() == 0 && !relay.is_telling() {
            break "the client has said its last word";
        }
    };
    relay.stop_beating();
    relay.server_gone(why);
    relay.close_server_input().await;
    relay.finish(LAST_WORDS).await;
    while let Some(record) = relay.poll_record() {
        log.note(&record);
    }
    log.finish();
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
