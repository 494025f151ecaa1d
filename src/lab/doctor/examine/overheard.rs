//! Notifications that a dialect reads but also forwards, because some clients understand them. If the server also
//! reports progress they are only messages; otherwise plain clients show nothing of them.

use super::unknown::{KeptNotification, samples};
use super::{Examiner, MessageContext, dialect_of};
use crate::lab::doctor::draft::Draft;
use crate::protocol::jsonrpc::Message;

/// Notifications of one method that are kept for the end of the conversation.
const OVERHEARD_MAX: usize = 10_000;

impl Examiner {
    /// Keeps a notification about a call.
    pub(super) fn overhear(
        &mut self,
        place: MessageContext<'_>,
        method: String,
        named: Option<usize>,
        message: &Message,
    ) {
        let Some(call) = named.or_else(|| self.implied_call(place.stream)) else { return };
        let is_over = self.calls.get(call).is_some_and(|call| call.ended.is_some());
        if self.overheard.count(&method) < OVERHEARD_MAX {
            let message = message.clone();
            self.overheard.add(method, KeptNotification { message, call, is_over });
        }
    }

    /// Judges the overheard notifications. If the dialect finds nothing in any message of a method, and a draft does,
    /// the method is as good as unknown.
    pub(super) fn judge_overheard(&mut self) {
        let overheard = std::mem::take(&mut self.overheard);
        if self.calls.iter().any(|call| call.reports > 0) {
            return;
        }
        for (method, seen) in overheard.by_method {
            let Some((dialect, rule)) = dialect_of(&method) else { continue };
            let is_read = seen.iter().any(|one| dialect.finds_content(&one.message));
            if !is_read && Draft::new(&samples(&seen), &self.calls).says_something() {
                seen.into_iter().for_each(|one| self.unknown.add(method.clone(), one));
                continue;
            }
            for KeptNotification { message, call, is_over } in seen {
                self.found_named(rule, Some(dialect.name().to_owned()), &message);
                if is_over {
                    self.late_foreign_report(call, &message);
                } else {
                    self.foreign_report(call, &message);
                }
            }
        }
    }
}
