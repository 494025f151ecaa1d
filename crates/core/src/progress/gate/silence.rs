//! Heartbeats: notifications of Milepost's own in the silence of a call.

use std::time::Instant;

use crate::progress::correlate::call::{Call, LastSent};
use crate::progress::dialect::report::ReportView;
use crate::progress::event::FilterEvent;
use crate::progress::gate::state::Gate;
use crate::progress::gate::{heartbeat, notification};
use crate::progress::ids::CallId;
use crate::progress::payload::Payload;
use crate::progress::policy::{HeartbeatValue, Mode};
use crate::protocol::json;

impl Gate {
    /// Sends a heartbeat for a call, if one is due.
    pub(super) fn heartbeat(&mut self, now: Instant, id: CallId) -> Option<Payload> {
        let words_allowed = self.calls.words_allowed(id);
        let silent = self.calls.received_at;
        self.next_heartbeat(self.calls.get(id)?).filter(|at| *at <= now)?;
        let call = self.calls.get_mut(id)?;
        let running = now.saturating_duration_since(call.opened);
        let policy = call.settings();
        let elapsed = policy.heartbeat.value == HeartbeatValue::Elapsed;
        let estimates = policy.estimate && !call.reports.has_figure;
        // Asked at each beat: what is known may have been read from a file meanwhile.
        let usual = call.tool.as_deref().filter(|_| estimates);
        let usual = usual.and_then(|tool| call.policy.learned.usual(tool));
        let asked = call.asked_since();
        let expected = usual.map(|usual| usual.expected(call.age_at(now)));
        let emitted = match expected {
            Some(expected) => call.meter.estimate(expected.part()),
            None => call.meter.heartbeat(elapsed.then(|| running.as_secs_f64().round())),
        };
        let emitted = emitted.ok()?;
        let resumed = call.clock.as_ref().and_then(|clock| clock.resumed_at());
        let heard = [silent, resumed].into_iter().flatten().fold(call.opened, Instant::max);
        let last = call.sent.last_words().and_then(json::decode_str);
        let silence = now.saturating_duration_since(heard);
        let words = match expected {
            _ if let Some(asked) = asked => {
                heartbeat::waiting(call.label(), now.saturating_duration_since(asked))
            }
            Some(expected) => {
                heartbeat::estimate(call.label(), last.as_deref(), running, silence, expected)
            }
            None => heartbeat::text(call.label(), last.as_deref(), running, silence),
        };
        let message = words_allowed.then(|| json::quote(&words));
        let mut text = Vec::new();
        notification::write(&mut text, call, &emitted, message.as_deref(), &ReportView::default());
        let (value, total) = (Some(emitted.value), emitted.total);
        call.sent.last_heartbeat =
            Some((LastSent { value, total, message: message.map(Vec::from) }, now));
        call.note_heartbeat(now, expected.is_some());
        self.calls.share_value(id);
        self.calls.events.push_back(FilterEvent::Heartbeat(id));
        Some(Payload::own(text.into()))
    }

    pub(super) fn next_heartbeat(&self, call: &Call) -> Option<Instant> {
        let settings = call.settings();
        let wanted = settings.mode == Mode::Full
            && self.alive
            && call.token.is_some()
            && !call.shadow
            && call.task.is_none()
            && call.is_tool_call()
            && call.meter.can_rise();
        let heartbeat = &settings.heartbeat;
        wanted
            .then(|| {
                heartbeat::next_heartbeat(heartbeat, call.opened, call.sent.at, call.reports.began)
            })
            .flatten()
            .filter(|at| call.age_at(*at) <= heartbeat.max)
            .map(|at| {
                let first = self.calls.streams.pacing_of(call.stream, call.settings()).first_after;
                let next = call.sent.at.map_or(at, |sent| sent + settings.min_interval);
                at.max(call.opened + first).max(next)
            })
    }
}
