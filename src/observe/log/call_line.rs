//! The log line of a call.

use tracing::field::{Value, display};
use tracing::{Level, debug, enabled, info};

use crate::progress::{KindCounts, Summary};
use crate::protocol::json;

/// Writes the log line of a call, without keys whose value is zero or empty. Requests other than `tools/call` are
/// logged only at `debug`.
pub(super) fn write(call: &Summary, route: Option<&str>, trace_id: Option<&str>) {
    if !enabled!(Level::INFO) {
        return;
    }
    let account = &call.account;
    let outcome = call.outcome.name();
    let hop = call.hop.as_deref();
    let cancellation = call.cancellation.as_deref();
    let token = call.token.as_deref().map(token_value);
    macro_rules! line {
        ($level:ident) => {
            $level!(
                tool = call.tool.as_deref().unwrap_or(&call.method),
                token,
                took_ms = call.ended.saturating_duration_since(call.opened).as_millis() as u64,
                outcome,
                cancelled_by = cancellation.map(|cancelled| &*cancelled.by),
                reason =
                    cancellation.map(|cancelled| &*cancelled.reason).filter(|why| !why.is_empty()),
                received = nonzero(account.received),
                overheard = nonzero(account.read_from_text),
                sent = nonzero(account.sent),
                repaired = counts(&account.repaired, |repair| repair.name()),
                withheld = counts(&account.withheld, |reason| reason.name()),
                heartbeats = nonzero(account.beats),
                trace_id,
                owner = hop.map(|hop| &*hop.owner),
                forwarded = hop.map(|hop| hop.forwarded),
                // Last, as in the lines of connections.
                route,
                "call"
            )
        };
    }
    if call.tool.is_some() { line!(info) } else { line!(debug) }
}

/// Returns a progress token as a log value: a string without the quotes of JSON, a number as a number.
fn token_value(token: &[u8]) -> Box<dyn Value> {
    if let Some(text) = json::decode_str(token) {
        return Box::new(text.into_owned());
    }
    let text = String::from_utf8_lossy(token).into_owned();
    match text.parse::<i64>() {
        Ok(number) => Box::new(number),
        Err(_) => Box::new(display(text)),
    }
}

/// Returns a count, or `None` if it is zero.
pub(super) fn nonzero(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

/// Returns counts as text, such as `lift 3, token 1`; `None` if there are none.
pub(super) fn counts<K: Ord + Copy>(
    counts: &KindCounts<K>,
    name: impl Fn(K) -> &'static str,
) -> Option<String> {
    let words: Vec<String> =
        counts.iter().map(|(kind, count)| format!("{} {count}", name(kind))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}
