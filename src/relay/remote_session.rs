//! A relay whose server is not a child of Milepost.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::observe::log::Connection;
use crate::relay::{ClientLeg, Relay, RelayStep, ServerLeg};

/// Deadline for a client to read the last messages before the proxy ends.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The error of calls that are open when Milepost is told to end.
const STOPPED: &str = "Milepost is shutting down";

/// Relays messages until the clients have ended and their calls are answered, the server has ended, or `ended` is
/// ready. Then ends the session at the server. Calls that are open when the clients end may continue for `grace`. `log`
/// receives all events.
pub async fn run<C: ClientLeg, S: ServerLeg>(
    mut relay: Relay<C, S>,
    grace: Duration,
    mut log: Connection,
    ended: impl Future<Output = ()>,
) {
    let mut ended = std::pin::pin!(ended);
    let mut patient_until = None;
    let why = loop {
        tokio::select! {
            step = relay.step() => match step {
                RelayStep::Moved => {}
                RelayStep::ClientDone => {
                    patient_until.get_or_insert_with(|| Instant::now() + grace);
                }
                RelayStep::ClientGone => break "the client has gone",
                RelayStep::ServerDone => break "the MCP server ended before it answered",
            },
            () = &mut ended => {
                relay.stop_calls(STOPPED);
                break STOPPED;
            }
            () = due(patient_until) => break "the client has said its last word",
        }
        while let Some(record) = relay.poll_event() {
            log.note(&record);
        }
        if patient_until.is_some() && relay.open_calls() == 0 && !relay.is_sending() {
            break "the client has said its last word";
        }
    };
    relay.stop_heartbeats();
    relay.server_gone(why);
    relay.close_server_input().await;
    relay.finish(LAST_WORDS).await;
    while let Some(record) = relay.poll_event() {
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
