//! Whether and when the work of a call goes on without its client.

use std::time::Instant;

use crate::progress::clients;
use crate::progress::detached::DetachedWork;
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::policy::late::Late;
use crate::progress::policy::{CallPolicy, Mode};

impl DetachedWork {
    /// The settings of late answers among those of a call, if its work may go on.
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

    /// Whether the server marks a tool as destructive, or its list of tools has not been read.
    fn is_destructive(&self, tool: &str) -> bool {
        self.tools_unread || self.late.as_ref().is_some_and(|late| late.is_destructive(tool))
    }

    /// Plans the answer in words to a call that has just opened.
    pub(crate) fn plan_late(&mut self, gate: &Gate, now: Instant, id: CallId) {
        let Some(call) = gate.calls.open.get(id) else { return };
        let Some(late) = self.late_of(gate, call.settings(), call.tool.as_deref()) else { return };
        if late.tell && call.signature.is_some() && !call.shadow {
            let client = call.client.as_deref().or(gate.calls.handshake.client.as_deref());
            let known = || client.and_then(clients::told_at);
            let known = late.before_is_default().then(known).flatten();
            let at = now + known.unwrap_or(late.before);
            if let Some(late) = &mut self.late {
                late.plan_words(at, id);
            }
        }
    }
}
