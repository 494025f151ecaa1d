//! Whether and when the work of a call continues without its client.

use std::time::Instant;

use crate::progress::clients;
use crate::progress::detached::late::calls::LateCalls;
use crate::progress::detached::late::habits::HabitKey;
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::policy::late::Late;
use crate::progress::policy::{CallPolicy, Mode};

impl LateCalls {
    /// Returns the settings of late answers for a call, if its work may continue.
    pub(crate) fn late_of<'a>(
        &self,
        gate: &Gate,
        settings: &'a CallPolicy,
        tool: Option<&str>,
    ) -> Option<&'a Late> {
        let late = &settings.late;
        let may = late.enabled
            && settings.mode == Mode::Full
            && gate.calls.streams.topology.is_whole()
            && gate.alive
            && (late.destructive || !tool.is_some_and(|tool| self.is_destructive(tool)));
        may.then_some(late)
    }

    /// Plans the early answer with a text for a call that has just opened.
    pub(crate) fn plan(&mut self, gate: &Gate, now: Instant, id: CallId) {
        let Some(call) = gate.calls.open.get(id) else { return };
        let Some(late) = self.late_of(gate, call.settings(), call.tool.as_deref()) else { return };
        if late.tell && call.signature.is_some() && !call.shadow {
            let client = call.client.as_deref().or(gate.calls.handshake.client.as_deref());
            let learned = || self.habits(gate, &HabitKey::of(gate, call)).told_at();
            let known = || learned().or_else(|| client.and_then(clients::told_at));
            let known = late.before_is_default().then(known).flatten();
            let at = now + known.unwrap_or(late.before);
            self.plan_words(at, id);
        }
    }
}
