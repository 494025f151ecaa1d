//! Log lines about features that a client lacks.

use tracing::info;

use crate::observe::untokened_clients::UNTOKENED_CLIENTS;
use crate::progress::clients::Situation;
use crate::progress::{Outcome, Summary, clients};

/// Logs once for each client the missing abilities and the settings, when a call shows that they
/// are missing.
pub(super) fn advise(call: &Summary) {
    // The client got heartbeats, and has given up nevertheless.
    let given_up = call.outcome == Outcome::Cancelled && call.account.beats > 0;
    let situation = match () {
        () if call.lacks_token => Situation::NoToken,
        () if given_up => Situation::GivenUp,
        () => return,
    };
    let client = call.client.as_ref();
    // The table of clients is read once for each client, not for each call.
    if !UNTOKENED_CLIENTS.note(client, situation) {
        return;
    }
    let (name, version) = client.map(|it| (it.name(), it.version())).unwrap_or_default();
    let advice = clients::advice(name, version, situation);
    // A person may have cancelled the call, so the line states only facts.
    if situation == Situation::NoToken || advice.waits_a_fixed_time() {
        let client = client.map(|it| it.to_string());
        let client = client.as_deref().unwrap_or("unknown");
        info!(target: "milepost::observe::log", client, "{advice}");
    }
}
