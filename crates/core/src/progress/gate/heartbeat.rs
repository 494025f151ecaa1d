//! Heartbeats: notifications that Milepost itself sends while a call is silent. When they are sent, what they say, and
//! when they end.

use std::time::{Duration, Instant};

use crate::progress::correlate::call::{Call, LastSent, Resumption};
use crate::progress::correlate::wording::Wording;
use crate::progress::dialect::report::ReportView;
use crate::progress::durations::Expected;
use crate::progress::event::FilterEvent;
use crate::progress::gate::notification;
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::one_line::one_line;
use crate::progress::payload::Payload;
use crate::progress::policy::{Heartbeat, HeartbeatValue, Mode};
use crate::protocol::json;

/// The duration of a server's silence after which heartbeats report the silence instead of `running`.
pub(crate) const NO_WORD_AFTER: Duration = Duration::from_secs(60);

/// Sends a heartbeat for a call, if one is due.
pub(super) fn send_heartbeat(gate: &mut Gate, now: Instant, id: CallId) -> Option<Payload> {
    let has_words = gate.calls.wording_of(id) == Wording::Any;
    let silent = gate.calls.received_at;
    next_heartbeat(gate, gate.calls.open.get(id)?).filter(|at| *at <= now)?;
    let call = gate.calls.open.get_mut(id)?;
    let running = now.saturating_duration_since(call.opened);
    let policy = call.settings();
    let counts = policy.heartbeat.value == HeartbeatValue::Elapsed;
    let estimates = policy.estimate;
    // Looked up for each heartbeat, because the file of learned durations may have been read since the last
    // heartbeat.
    let tool = call.tool.as_deref();
    let tool = tool.filter(|_| (estimates || !has_words) && !call.reports.has_figure);
    let usual = tool.and_then(|tool| call.policy.learned.usual(tool));
    let asked = call.asked_since();
    // Without a text, the value is all that a person sees. The tool has never reported a value whose scale the
    // seconds could spoil.
    let is_known_silent = usual.is_some();
    let expected = usual.filter(|_| estimates).map(|usual| usual.expected(call.age_at(now)));
    let seconds = running.as_secs_f64().round();
    let emitted = match expected {
        Some(expected) => call.meter.estimate(expected.part()),
        None if is_known_silent && !counts => call.meter.count_seconds(seconds),
        None => call.meter.heartbeat(counts.then_some(seconds)),
    };
    let emitted = emitted.ok()?;
    let resumed = call.clock.as_ref().and_then(|clock| clock.resumed);
    // While the client was asked something, the server's silence was not its fault: the silence
    // begins anew with the client's answer.
    let heard = [silent, resumed].into_iter().flatten().fold(call.opened, Instant::max);
    let last = call.sent.last_words().and_then(json::decode_str);
    let silence = now.saturating_duration_since(heard);
    let words = match expected {
        _ if let Some(asked) = asked => waiting(call.label(), now.saturating_duration_since(asked)),
        Some(expected) => estimate(call.label(), last.as_deref(), running, silence, expected),
        None => text(call.label(), last.as_deref(), running, silence),
    };
    let message = has_words.then(|| json::quote(&words));
    let mut written = Vec::new();
    notification::write(&mut written, call, &emitted, message.as_deref(), &ReportView::default());
    let (value, total) = (Some(emitted.value), emitted.total);
    call.sent.last_heartbeat =
        Some((LastSent { value, total, message: message.map(Vec::from) }, now));
    call.account.estimates += u64::from(expected.is_some());
    call.account.beats += 1;
    call.note_sent(now);
    gate.calls.open.share_value(id);
    gate.calls.events.push_back(FilterEvent::Heartbeat(id));
    Some(Payload::own(written.into()))
}

/// Returns the time of the next heartbeat of a call, if the call gets heartbeats.
pub(super) fn next_heartbeat(gate: &Gate, call: &Call) -> Option<Instant> {
    let settings = call.settings();
    let wanted = settings.mode == Mode::Full
        && gate.alive
        && call.token.is_some()
        && !call.shadow
        // The client may have read the answer on the stream that it left, so Milepost must not write anything after
        // it.
        && call.resumption != Resumption::AnsweredThere
        && call.task.is_none()
        && call.is_tool_call()
        && call.meter.can_rise();
    let heartbeat = &settings.heartbeat;
    wanted
        .then(|| next_by_settings(heartbeat, call.opened, call.sent.at, call.reports.began))
        .flatten()
        .filter(|at| call.age_at(*at) <= heartbeat.max)
        .map(|at| {
            let first = gate.calls.streams.pacing_of(call.stream, call.settings()).first_after;
            // A heartbeat is a notification too, so it keeps the intervals that the route sets.
            let next = call.sent.at.map_or(at, |sent| sent + settings.min_interval);
            at.max(call.opened + first).max(next)
        })
}

/// The time of the next heartbeat by the settings alone. The caller knows the age of the call, and so whether it gets
/// heartbeats then (`max`).
///
/// `sent` is the time of the last message for the call. With `server_spoke` (the server has sent a
/// message for the call) twice the time has to pass, so that of two proxies in a chain only the
/// inner proxy sends heartbeats.
fn next_by_settings(
    heartbeat: &Heartbeat,
    opened: Instant,
    sent: Option<Instant>,
    server_spoke: bool,
) -> Option<Instant> {
    if !heartbeat.enabled {
        return None;
    }
    let at = match sent {
        None => opened + heartbeat.after,
        Some(sent) if server_spoke => sent + heartbeat.every * 2,
        Some(sent) => sent + heartbeat.every,
    };
    Some(at)
}

/// Returns the text of a heartbeat while a question of the server waits for the client's answer.
pub(crate) fn waiting(tool: &str, asked: Duration) -> String {
    one_line(tool, &format!(": waiting for your answer ({})", spell(asked)))
}

/// Returns the text of a heartbeat: how long the call has been running, or, after a minute of silence, that the server
/// is silent.
pub(crate) fn text(
    tool: &str,
    last_message: Option<&str>,
    running: Duration,
    silent: Duration,
) -> String {
    if silent >= NO_WORD_AFTER {
        return one_line(tool, &format!(": no word from the server for {}", spell(silent)));
    }
    match last_message {
        Some(message) if !message.is_empty() => {
            one_line(message, &format!(" ({})", spell(running)))
        }
        _ => one_line(tool, &format!(": running {}", spell(running))),
    }
}

/// Returns the text of a heartbeat for a call whose usual duration is known: the time that has passed and the expected
/// time. After a minute of silence, the text also mentions the silence.
pub(crate) fn estimate(
    tool: &str,
    last_message: Option<&str>,
    running: Duration,
    silent: Duration,
    expected: Expected,
) -> String {
    let passed = spell(running);
    let mut tail = match expected {
        Expected::About(about, _) => format!("{passed} of about {}", spell(rounded(about))),
        Expected::Longer(most) => {
            format!("{passed}, longer than ever before ({} at most)", spell(rounded(most)))
        }
    };
    if silent >= NO_WORD_AFTER {
        tail += &format!("; no word from the server for {}", spell(silent));
    }
    match last_message {
        Some(message) if !message.is_empty() => one_line(message, &format!(": {tail}")),
        _ => one_line(tool, &format!(": {tail}")),
    }
}

/// Rounds to seconds, and to at least one second.
fn rounded(time: Duration) -> Duration {
    Duration::from_secs((time + Duration::from_millis(500)).as_secs().max(1))
}

/// Writes a time in seconds; from two minutes on in minutes and seconds, from an hour on in hours and minutes.
pub(crate) fn spell(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::one_line::WORDS_MAX;

    #[track_caller]
    fn check(last: Option<&str>, running: u64, silent: u64, said: &str) {
        let time = Duration::from_secs;
        assert_eq!(text("report", last, time(running), time(silent)), said);
    }

    #[test]
    fn a_heartbeat_says_how_long() {
        check(None, 35, 35, "report: running 35s");
        check(None, 75, 75, "report: no word from the server for 75s");
        check(None, 600, 10, "report: running 10m00s");
        check(Some("Indexing"), 20, 10, "Indexing (20s)");
        check(Some("Indexing"), 100, 61, "report: no word from the server for 61s");
        check(Some("two\nlines\u{1b}[1m"), 3, 3, "two lines [1m (3s)");
    }

    #[test]
    fn a_heartbeat_says_how_long_it_may_take() {
        let time = Duration::from_secs;
        let check = |last, running, silent, expected, said: &str| {
            assert_eq!(estimate("report", last, time(running), time(silent), expected), said);
        };
        let about = Expected::About(time(40), 0.3);
        check(None, 12, 12, about, "report: 12s of about 40s");
        check(Some("Indexing"), 12, 2, about, "Indexing: 12s of about 40s");
        let longer = Expected::Longer(time(45));
        check(None, 52, 52, longer, "report: 52s, longer than ever before (45s at most)");
        let both = "report: 75s of about 10m00s; no word from the server for 75s";
        check(None, 75, 75, Expected::About(time(600), 0.1), both);
    }

    #[test]
    fn a_heartbeat_is_one_short_line() {
        let long = text("t", Some(&"é".repeat(500)), Duration::from_secs(9), Duration::ZERO);
        assert_eq!(long.chars().count(), WORDS_MAX);
        assert!(long.ends_with("… (9s)"), "{long}");
    }

    #[test]
    fn the_next_beat_depends_on_who_spoke_last() {
        let heartbeat = Heartbeat::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(next_by_settings(&heartbeat, start, None, false), Some(at(2)));
        assert_eq!(next_by_settings(&heartbeat, start, Some(at(2)), false), Some(at(7)));
        assert_eq!(next_by_settings(&heartbeat, start, Some(at(2)), true), Some(at(12)));
    }
}
