//! The grade of a server: how well a plain client can work with its calls.

use super::findings::{Examined, Finding};
use super::rules::{Rule, Weight};

/// How well a plain client can work with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    /// No fault was seen, and the client shows every report.
    Fine,
    /// Nothing breaks, but the client does not show some reports.
    ShowsLess,
    /// A fault may break a client: its call, its connection or its parsing of a message.
    MayBreak,
}

impl Grade {
    /// Returns the grade of a session.
    pub fn of(examined: &Examined) -> Self {
        let faults =
            || examined.findings.iter().filter(|finding| finding.rule.weight() == Weight::Fault);
        if faults().any(|finding| !finding.rule.only_hides()) {
            Self::MayBreak
        } else if faults().next().is_some()
            || ShownReports::of(examined).words().is_some()
            || missed_content(examined).is_some()
        {
            Self::ShowsLess
        } else {
            Self::Fine
        }
    }

    /// Returns the name, for machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::ShowsLess => "shows less",
            Self::MayBreak => "may break",
        }
    }
}

/// The messages that show how far a call is, and how many of them a plain client shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownReports {
    /// The number of reports that a plain client shows.
    pub shown: usize,
    /// The number of all reports of the server, whatever their form.
    pub sent: usize,
    /// Whether a client that opens a GET stream shows more reports.
    needs_get: bool,
}

impl ShownReports {
    /// Counts the reports of a session. Calls without a token did not request reports, so they are left out.
    pub fn of(examined: &Examined) -> Self {
        let calls = || examined.calls.iter().filter(|call| call.token.is_some());
        let usable: usize = calls().map(|call| call.usable).sum();
        let claimed: usize = calls().map(|call| call.reports).sum();
        let elsewhere =
            examined.findings.iter().map(|one| told_elsewhere(one, examined)).sum::<usize>();
        // If two calls are open, a report that names neither call is counted for neither.
        let methods = [Rule::Method, Rule::MethodOff, Rule::MethodUnknown];
        let hidden: usize = methods.into_iter().map(|rule| examined.count(rule)).sum();
        let asked = hidden.saturating_sub(examined.count(Rule::Unasked));
        let sent = (claimed + elsewhere).max(usable + asked);
        let on_get = examined.count(Rule::OnGet);
        Self { shown: usable.saturating_sub(on_get), sent, needs_get: on_get > 0 }
    }

    /// Returns which reports are not shown, as the end of a sentence about a client; `None` if every report is shown.
    pub fn words(self) -> Option<String> {
        let Self { shown, sent, .. } = self;
        let count = match shown {
            _ if shown >= sent => return None,
            0 => "nothing".to_owned(),
            some => some.to_string(),
        };
        let reports = if sent == 1 { "report" } else { "reports" };
        Some(format!("shows {count} of {sent} {reports}"))
    }

    /// Returns the exception for some clients, as the end of the sentence of [`Self::words`].
    pub const fn exception(self) -> &'static str {
        if self.needs_get { " unless it opens a GET stream" } else { "" }
    }
}

/// Returns, as the end of a sentence about a client, which content of a dialect's messages the client does not get because
/// the pointer to it has found nothing; `None` if there is no such pointer.
pub(super) fn missed_content(examined: &Examined) -> Option<String> {
    let content = examined.missed.iter().find_map(|miss| match miss.key {
        "progress" => Some(("value", miss.messages)),
        "message" => Some(("text", miss.messages)),
        _ => None,
    });
    content.map(|(what, count)| {
        let messages = if count == 1 { "message" } else { "messages" };
        format!("shows no {what} of {count} {messages}")
    })
}

/// Returns how many messages of a finding show how far a call is in a place where no client looks for progress.
fn told_elsewhere(finding: &Finding, examined: &Examined) -> usize {
    match finding.rule {
        Rule::MethodOther if finding.draft.is_some() => finding.count,
        Rule::AsideProgress | Rule::StdoutProgress | Rule::TokenInArguments => finding.count,
        Rule::LogProgress => examined.logged,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lab::doctor::findings::ObservedCall;
    use crate::observe::pointer_watch::PointerMiss;

    /// Returns a session of one call with `usable` usable reports among `reports`, and with these findings.
    fn session(usable: usize, reports: usize, findings: &[(Rule, usize)]) -> Examined {
        let token = Some(json!(7001));
        let call = ObservedCall { token, usable, reports, ..ObservedCall::default() };
        let finding = |(rule, count): &(Rule, usize)| Finding {
            count: *count,
            ..Finding::of(*rule, String::new())
        };
        let findings = findings.iter().map(finding).collect();
        Examined { findings, calls: vec![call], ..Examined::default() }
    }

    #[test]
    fn a_grade_tells_what_breaks_before_what_is_not_shown() {
        for (usable, reports, findings, grade, words) in [
            (3, 3, &[][..], Grade::Fine, None),
            (0, 0, &[], Grade::Fine, None),
            (3, 3, &[(Rule::Glued, 1)], Grade::Fine, None),
            (3, 3, &[(Rule::NoTotal, 1), (Rule::AsideText, 9)], Grade::Fine, None),
            (0, 5, &[(Rule::Method, 5)], Grade::ShowsLess, Some("shows nothing of 5 reports")),
            (0, 1, &[(Rule::MethodOff, 1)], Grade::ShowsLess, Some("shows nothing of 1 report")),
            (3, 8, &[(Rule::MethodUnknown, 5)], Grade::ShowsLess, Some("shows 3 of 8 reports")),
            (
                0,
                0,
                &[(Rule::AsideProgress, 4)],
                Grade::ShowsLess,
                Some("shows nothing of 4 reports"),
            ),
            (
                0,
                0,
                &[(Rule::TokenInArguments, 9)],
                Grade::ShowsLess,
                Some("shows nothing of 9 reports"),
            ),
            // A message with an unknown method that is not progress does not count as a report.
            (0, 0, &[(Rule::MethodOther, 4)], Grade::Fine, None),
            (5, 5, &[(Rule::OnGet, 5)], Grade::ShowsLess, Some("shows nothing of 5 reports")),
            (3, 3, &[(Rule::FigureRepeats, 1)], Grade::MayBreak, None),
            (0, 0, &[(Rule::NoAnswer, 1)], Grade::MayBreak, None),
            (
                0,
                6,
                &[(Rule::Method, 6), (Rule::Noise, 2)],
                Grade::MayBreak,
                Some("shows nothing of 6 reports"),
            ),
        ] {
            let examined = session(usable, reports, findings);
            assert_eq!(Grade::of(&examined), grade, "{findings:?}");
            let said = ShownReports::of(&examined).words();
            assert_eq!(said.as_deref(), words, "{findings:?}");
        }
        let on_get = ShownReports::of(&session(5, 5, &[(Rule::OnGet, 5)]));
        assert_eq!(on_get.exception(), " unless it opens a GET stream");
        assert_eq!(ShownReports::of(&session(0, 5, &[(Rule::Method, 5)])).exception(), "");
    }

    #[test]
    fn a_pointer_that_finds_no_content_is_not_fine() {
        for (key, words) in
            [("progress", Some("shows no value of 9 messages")), ("total", None), ("token", None)]
        {
            let mut examined = session(3, 3, &[]);
            examined.missed.push(PointerMiss {
                dialect: "own".to_owned(),
                key,
                pointer: "/params/x".to_owned(),
                messages: 9,
                meant: None,
                other: None,
            });
            assert_eq!(missed_content(&examined).as_deref(), words, "{key}");
            let grade = if words.is_some() { Grade::ShowsLess } else { Grade::Fine };
            assert_eq!(Grade::of(&examined), grade, "{key}");
        }
    }

    #[test]
    fn a_call_without_a_token_asks_for_no_report() {
        let mut examined = session(0, 5, &[(Rule::Method, 10), (Rule::Unasked, 5)]);
        let bare = ObservedCall { reports: 5, ..ObservedCall::default() };
        examined.calls.push(bare);
        assert_eq!(ShownReports::of(&examined).sent, 5);
    }
}
