//! Notifications that a dialect reads but also forwards, because some clients are written for them. Beside progress
//! they are only messages; without progress, plain clients show nothing of them.

use super::{Examiner, MessageContext};
use crate::lab::doctor::rules::Rule;
use crate::protocol::jsonrpc::Message;

/// Notifications that are kept for the end of the conversation.
const OVERHEARD_MAX: usize = 10_000;

/// One overheard notification.
pub(super) struct Overheard {
    rule: Rule,
    /// The dialect.
    name: String,
    message: Message,
    /// The number of its call.
    call: usize,
    /// The call has been answered.
    is_over: bool,
}

impl Examiner {
    /// Keeps a notification of a call.
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

    /// Judges the overheard notifications.
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
