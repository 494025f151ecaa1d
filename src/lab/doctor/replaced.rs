//! Calls that Milepost answers with an error of its own instead of the server's answer.

use super::findings::{Answer, Examined, Finding};
use super::rules::Rule;

impl Examined {
    /// Adds findings that need the session without the proxy (`before`): calls that end with an error of Milepost, and
    /// calls that still fail because of a token.
    pub(super) fn compare_answers(&mut self, before: &Self) {
        let mut added = Vec::new();
        for (call, direct) in self.calls.iter().zip(&before.calls) {
            if call.answer == Answer::Error && call.is_own_error && !direct.is_own_error {
                let rule = match direct.answer {
                    Answer::None => Rule::NoAnswer,
                    _ => Rule::AnswerReplaced,
                };
                let words = call.refusal.as_deref().unwrap_or("no words");
                let example = format!("{} (id {}): Milepost's error: {words}", call.tool, call.id);
                added.push(Finding::of(rule, example));
            }
        }
        if before.count(Rule::TokenType) > 0
            && let Some(call) = self.calls.iter().find(|call| call.answer != Answer::Result)
        {
            let words = call.refusal.as_deref().unwrap_or("no answer");
            added.push(Finding::of(Rule::TokenType, format!("{}: {words}", call.tool)));
        }
        added.into_iter().for_each(|finding| self.add(finding));
    }
}
