//! Repeats a refused call with a token of another type, and without a token. Some servers refuse a call because of its
//! token or of `_meta`, and their error does not show that cause.

use super::call::GivenToken;
use super::findings::{Answer, Examined, Finding, ObservedCall};
use super::negotiate::{ServerFacts, SessionStart};
use super::rules::Rule;
use super::traffic::TransportKind;
use super::{DoctorError, Inspection, SessionTerms};

/// What is tried after a number as the token: the token, its value of `ask.token_type`, and its name in a report.
const OTHERS: [(GivenToken, &str, &str); 2] = [
    (GivenToken::Text, "string", "with a token that is a text"),
    (GivenToken::None, "none", "without a token"),
];

/// Maximum number of further calls for a call that is refused.
pub(super) const TRIES: usize = OTHERS.len();

impl Inspection {
    /// Whether a call has failed in a way that may be due to its token: with an error, or with the server's end.
    pub(super) fn is_refused(&self, before: &Examined) -> bool {
        let can_try = self.options.call.as_ref().is_some_and(|ask| !ask.once);
        let is_refused = |call: &ObservedCall| {
            call.token.is_some()
                && match call.answer {
                    Answer::Error | Answer::ToolError => true,
                    Answer::None => before.has_ended,
                    Answer::Result => false,
                }
        };
        can_try && before.calls.iter().any(is_refused)
    }

    /// Tries the other forms of the token, each in a new session. Adds a finding if the server answers with one of
    /// them.
    pub(super) async fn try_tokens(
        &self,
        known: &ServerFacts,
        beginning: SessionStart,
        wire: TransportKind,
        before: &mut Examined,
    ) -> Result<(), DoctorError> {
        if let Some(finding) = of_both_types(before) {
            before.add(finding);
            return Ok(());
        }
        let Some(refused) = before.calls.first().cloned() else { return Ok(()) };
        for (given, name, words) in OTHERS {
            let terms = SessionTerms { wire, given, ..SessionTerms::default() };
            let link = self.link(known)?;
            self.step.show(&format!("a new session, for a call {words}"));
            let tried = self.session(link, beginning, &terms, &mut known.clone()).await;
            let tried = match tried {
                Ok(tried) => tried,
                Err(DoctorError::Interrupted) => return Err(DoctorError::Interrupted),
                Err(_) => continue,
            };
            if tried.calls.iter().any(|call| call.answer == Answer::Result) {
                before.add(finding(&refused, name, words));
                break;
            }
        }
        Ok(())
    }
}

/// Returns a finding if two simultaneous calls ended differently, one with a number and one with a string as its token.
fn of_both_types(before: &Examined) -> Option<Finding> {
    let given: Vec<&ObservedCall> =
        before.calls.iter().filter(|call| call.token.is_some()).collect();
    let [number, text] = given[..] else { return None };
    match (number.answer == Answer::Result, text.answer == Answer::Result) {
        (true, false) => Some(finding(text, "integer", "with a token that is a number")),
        (false, true) => Some(finding(number, "string", "with a token that is a text")),
        _ => None,
    }
}

fn finding(refused: &ObservedCall, name: &str, words: &str) -> Finding {
    let token = refused.token.as_ref().map(ToString::to_string).unwrap_or_default();
    let end = refused.refusal.as_deref().unwrap_or("no answer: the server ended");
    Finding {
        name: Some(name.to_owned()),
        ..Finding::of(
            Rule::TokenType,
            format!("{} with the token {token}: {end}; {words}: a result", refused.tool),
        )
    }
}
