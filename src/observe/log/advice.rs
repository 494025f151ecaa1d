//! Logs which features a client lacks.

use tracing::info;

use crate::observe::untokened_clients::UNTOKENED_CLIENTS;
use crate::progress::clients::Situation;
use crate::progress::{Outcome, Summary, clients};

/// Logs, once for each client, which features it lacks and which settings help, when a call shows the lack.
pub(super) fn advise(call: &Summary) {
    // The client gave up although it got heartbeats.
    let given_up = call.outcome == Outcome::Cancelled && call.account.beats > 0;
    let situation = match () {
        () if call.lacks_token => Situation::NoToken,
        () if given_up => Situation::GivenUp,
        () => return,
    };
    let client = call.client.as_ref();
    // Do this only once for each client, because the table of clients is searched.
    if !UNTOKENED_CLIENTS.note(client, situation) {
        return;
    }
    let (name, version) = client.map(|it| (it.name(), it.version())).unwrap_or_default();
    let advice = clients::advice(name, version, situation);
    // The line states only facts, because a person may have cancelled the call.
    if situation == Situation::NoToken || advice.waits_a_fixed_time() {
        let client = client.map(|it| it.to_string());
        let client = client.as_deref().unwrap_or("unknown");
        info!(target: "milepost::observe::log", client, "{advice}");
    }
}
