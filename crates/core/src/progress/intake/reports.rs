//! The reports that the dialects read in one message. Several steps ask for these reports: whose message it is,
//! whether its token means another session, and at last what it says. The message is read once.

use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::Report;
use crate::progress::filter::Filter;
use crate::progress::intake::state::MessageReports;
use crate::protocol::jsonrpc::{Key, Message};

impl Filter {
    fn read_reports(&self, message: &Message) -> Vec<(Dialect, Report)> {
        let Some(method) = message.method() else { return Vec::new() };
        let reports = self.policy.reports(&method, message);
        reports.map(|(dialect, report)| (dialect.clone(), report)).collect()
    }

    /// The token that the progress in a message names. The reports are kept for the next step.
    pub(crate) fn named_token(&mut self, message: &Message) -> Option<Key> {
        if self.intake.reports.as_ref().is_none_or(|known| !known.is_of(message)) {
            let reports = self.read_reports(message);
            self.intake.reports = Some(MessageReports { raw: message.raw().clone(), reports });
        }
        let mut reports = self.intake.reports.iter().flat_map(|known| &known.reports);
        reports.find_map(|(_, report)| report.about.token.clone())
    }

    /// The reports in a message, each with its dialect.
    pub(crate) fn take_reports(&mut self, message: &Message) -> Vec<(Dialect, Report)> {
        match self.intake.reports.take().filter(|known| known.is_of(message)) {
            Some(known) => known.reports,
            None => self.read_reports(message),
        }
    }
}
