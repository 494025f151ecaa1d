//! Notifications that a dialect reads but also forwards, because some clients understand them. If the server also
//! reports progress they are only messages; otherwise plain clients show nothing of them.

use super::{Examiner, MessageContext};
use crate::lab::doctor::rules::Rule;
use crate::protocol::jsonrpc::Message;

/// Maximum number of such notifications that are kept for the end of the conversation.
const OVERHEARD_MAX: usize = 10_000;

/// One notification that a dialect reads and forwards.
pub(super) struct Overheard {
    rule: Rule,
    /// The name of the dialect.
    name: String,
    message: Message,
    /// The index of the notification's call.
    call: usize,
    /// Whether the call has been answered.
    is_over: bool,
}

impl Examiner {
    /// Keeps a notification about a call.
    pub(super) fn overhear(
        &mut self,
        place: MessageContext<'_>,
        rule: Rule,
        name: String,
        named: Option<usize>,
        message: &Message,
    ) {
        let Some(call) = named.or_else(|| self.implied_call(place.stream)) else { return };
        let is_over = self.calls.get(call).is_some_and(|call| call.ended.is_some());
        if self.overheard.len() < OVERHEARD_MAX {
            self.overheard.push(Overheard { rule, name, message: message.clone(), call, is_over });
        }
    }

    /// Judges the kept notifications.
    pub(super) fn judge_overheard(&mut self) {
        let overheard = std::mem::take(&mut self.overheard);
        if self.calls.iter().any(|call| call.reports > 0) {
            return;
        }
        for Overheard { rule, name, message, call, is_over } in overheard {
            self.found_named(rule, Some(name), &message);
            if is_over {
                self.late_foreign_report(call, &message);
            } else {
                self.foreign_report(call, &message);
            }
        }
    }
}
