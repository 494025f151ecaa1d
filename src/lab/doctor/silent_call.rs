//! Repeats a call that had no progress, with its token in the arguments.

use super::call::GivenToken;
use super::findings::{Answer, Examined, Finding, ObservedCall};
use super::negotiate::{ServerFacts, SessionStart};
use super::rules::Rule;
use super::traffic::TransportKind;
use super::{DoctorError, Inspection, SessionTerms};

impl Inspection {
    /// Whether the tool has answered, but nothing in its calls looked like progress.
    pub(super) fn is_silent(&self, before: &Examined) -> bool {
        let can_try = self
            .options
            .call
            .as_ref()
            .is_some_and(|ask| !ask.once && !ask.arguments.contains_key("_meta"));
        let answered = |call: &ObservedCall| call.answer == Answer::Result && call.reports == 0;
        let texts =
            [Rule::LogProgress, Rule::AsideProgress, Rule::StdoutProgress, Rule::MethodOther];
        let has_text = texts.into_iter().any(|rule| before.count(rule) > 0);
        can_try && !has_text && !before.calls.is_empty() && before.calls.iter().all(answered)
    }

    /// Calls the tool in a new session, with the token also in the arguments, because some servers look for it there.
    /// If progress comes then, adds a finding.
    pub(super) async fn try_arguments(
        &self,
        known: &ServerFacts,
        beginning: SessionStart,
        wire: TransportKind,
        before: &mut Examined,
    ) -> Result<(), DoctorError> {
        let given = GivenToken::InArguments;
        let terms = SessionTerms { wire, given, ..SessionTerms::default() };
        let link = self.link(known)?;
        self.step.show("a new session, for a call with its token in the arguments");
        let tried = self.session(link, beginning, &terms, &mut known.clone()).await;
        let tried = match tried {
            Ok(tried) => tried,
            Err(DoctorError::Interrupted) => return Err(DoctorError::Interrupted),
            // The server may refuse unknown arguments: then nothing is found.
            Err(_) => return Ok(()),
        };
        let Some(call) = tried.calls.iter().find(|call| call.reports > 0) else { return Ok(()) };
        let (tool, reports) = (&call.tool, call.reports);
        before.add(Finding {
            count: reports,
            name: Some(tool.clone()),
            content: tried.told.clone(),
            ..Finding::of(
                Rule::TokenInArguments,
                format!("{tool} reports {reports} times with the token in its arguments"),
            )
        });
        Ok(())
    }
}
