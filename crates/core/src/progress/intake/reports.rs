//! The reports that the dialects read in one message. Several steps ask for these reports: whose message it is,
//! whether its token means another session, and at last what it says. The message is read once.

use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::Report;
use crate::progress::intake::state::{Intake, MessageReports};
use crate::protocol::jsonrpc::{Key, Message};

impl Intake {
    /// The token that the progress in a message names. The reports are kept for the next step.
    pub(crate) fn named_token(&mut self, message: &Message) -> Option<Key> {
        if self.reports.as_ref().is_none_or(|known| !known.is_of(message)) {
            let reports = self.gate.calls.read_reports(message);
            self.reports = Some(MessageReports { raw: message.raw().clone(), reports });
        }
        let mut reports = self.reports.iter().flat_map(|known| &known.reports);
        reports.find_map(|(_, report)| report.about.token.clone())
    }

    /// The reports in a message, each with its dialect.
    pub(crate) fn take_reports(&mut self, message: &Message) -> Vec<(Dialect, Report)> {
        match self.reports.take().filter(|known| known.is_of(message)) {
            Some(known) => known.reports,
            None => self.gate.calls.read_reports(message),
        }
    }
}
