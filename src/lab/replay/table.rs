//! The table of `milepost replay --watch`: both sides of a recorded conversation, as `milepost try` shows them.

use std::ops::AddAssign;
use std::time::Duration;

use crate::lab::color::Palette;
use crate::lab::doctor::examine::is_of_specification;
use crate::lab::doctor::findings::shown;
use crate::lab::recordings::player::PlayedLine;
use crate::lab::recordings::tracks::{ReplayStep, Tracks};
use crate::lab::sides::{ADDED, SideRow, side_line};
use crate::observe::transcript::words::verdict_text;
use crate::observe::transcript::{TranscriptLine, unescape};
use crate::progress::{Repair, Verdict};
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp::{LOG, PROGRESS, TOOLS_CALL};

/// The counts of a server's reports in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportCount {
    /// Notifications of progress, and notifications with a method that the specification does not define.
    reports: u64,
    /// The reports of which the client got a notification of progress.
    shown: u64,
    /// All notifications of progress that the client got, without heartbeats.
    got: u64,
}

impl ReportCount {
    /// Returns the summary as text. `before`: the counts of an earlier run, for comparison.
    pub(super) fn text(self, before: Option<Self>) -> String {
        let Self { reports, shown, .. } = self;
        let mut text = match reports {
            1 => format!("{shown} of 1 report shown to the client"),
            reports => format!("{shown} of {reports} reports shown to the client"),
        };
        if let Some(before) = before {
            text += &format!(", was {}", before.shown);
        }
        // The client got more notifications than reports: the others were made of text, such as logs, or of arrays.
        match self.got.saturating_sub(shown) {
            0 => text,
            1 => text + "; 1 other notification of progress",
            more => text + &format!("; {more} other notifications of progress"),
        }
    }
}

impl AddAssign for ReportCount {
    fn add_assign(&mut self, other: Self) {
        self.reports += other.reports;
        self.shown += other.shown;
        self.got += other.got;
    }
}

/// Writes the table of a conversation, and counts its reports. Messages before the first tool call are left out,
/// because they only begin the session. Without a tool call the table has all messages.
pub(super) fn write(
    tracks: &Tracks,
    steps: &[ReplayStep],
    colors: Palette,
) -> (String, ReportCount) {
    let first = steps.iter().position(calls_a_tool).unwrap_or_default();
    let mut table = TableText { text: String::new(), colors };
    let mut reports = ReportCount::default();
    for step in steps.iter().skip(first) {
        let verdicts: Vec<Option<Verdict>> = match tracks.get(&step.part) {
            Some(track) => step
                .numbers
                .clone()
                .map(|number| track.player.verdicts.get(&number).copied())
                .collect(),
            None => continue,
        };
        table.input(step, &verdicts);
        for line in &step.out {
            table.output(step.part, line);
        }
        reports += count(step, &verdicts);
    }
    (table.text, reports)
}

/// Whether a client calls a tool in this step.
fn calls_a_tool(step: &ReplayStep) -> bool {
    let Ok(Some(line)) = TranscriptLine::read(&step.line) else { return false };
    let asked = message(line.text).filter(|_| line.sign == b'>');
    asked.is_some_and(|asked| asked.method().as_deref() == Some(TOOLS_CALL))
}

/// Returns the message in the text of a line.
fn message(text: &str) -> Option<Message> {
    Some(Message::parse(unescape(text).ok()?.into_owned().into()))
}

/// Returns the text of a message to the client.
fn written(line: &PlayedLine) -> Option<&str> {
    Some(line.text.strip_prefix('=')?.split_once(' ')?.1)
}

/// The table so far.
struct TableText {
    text: String,
    colors: Palette,
}

impl TableText {
    fn put(&mut self, part: u64, at: Duration, row: SideRow, text: &str) {
        self.text += &super::of_part(part);
        self.text += &side_line(at, row, &shown(text.as_bytes()), self.colors);
        self.text.push('\n');
    }

    /// Writes a message that arrives, and its verdicts.
    fn input(&mut self, step: &ReplayStep, verdicts: &[Option<Verdict>]) {
        let Ok(Some(line)) = TranscriptLine::read(&step.line) else { return };
        let row = match line.sign {
            b'>' => SideRow::Asked,
            b'<' | b'2' => SideRow::Sent,
            _ => return,
        };
        self.put(step.part, step.at, row, line.text);
        for verdict in verdicts.iter().flatten().filter(|one| **one != Verdict::Forwarded) {
            self.put(step.part, step.at, SideRow::Remark, &verdict_text(*verdict));
        }
    }

    /// Writes a message that the client gets. Other output is not shown.
    fn output(&mut self, part: u64, line: &PlayedLine) {
        let Some(text) = written(line) else { return };
        self.put(part, line.at, SideRow::Got, text);
        if line.is_beat {
            self.put(part, line.at, SideRow::Remark, ADDED);
        }
    }
}

/// Counts the reports in a message of the server, and the notifications that the client got after the message. A report
/// may reach the client later, so only the sums over a conversation are exact.
fn count(step: &ReplayStep, verdicts: &[Option<Verdict>]) -> ReportCount {
    let said = step.line.strip_prefix('<').and_then(|rest| message(rest.split_once(' ')?.1));
    let said = said.filter(|message| message.id().is_none());
    let method = said.as_ref().and_then(Message::method);
    let is_standard = method.as_deref() == Some(PROGRESS);
    let is_foreign =
        method.is_some_and(|name| name != PROGRESS && name != LOG && !is_of_specification(&name));
    let got = step.out.iter().filter(|line| !line.is_beat).filter_map(written);
    let got = got.filter_map(message).filter(|got| got.method().as_deref() == Some(PROGRESS));
    let got = got.count().try_into().unwrap_or(u64::MAX);
    let mut reports = ReportCount { got, ..ReportCount::default() };
    for verdict in verdicts {
        let is_read = match verdict {
            Some(Verdict::Repaired(repairs)) => repairs.iter().any(|one| one == Repair::Dialect),
            _ => false,
        };
        let is_withheld = matches!(verdict, None | Some(Verdict::Withheld(_)));
        let is_report = is_standard || is_foreign || is_read;
        reports.reports += u64::from(is_report);
        reports.shown += u64::from(!is_withheld && (is_standard || is_read));
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_compares_with_the_play_before() {
        let reports = |reports, shown, got| ReportCount { reports, shown, got };
        let before = Some(reports(5, 2, 2));
        assert_eq!(reports(5, 4, 4).text(before), "4 of 5 reports shown to the client, was 2");
        assert_eq!(reports(1, 0, 0).text(None), "0 of 1 report shown to the client");
        assert_eq!(
            reports(0, 0, 3).text(None),
            "0 of 0 reports shown to the client; 3 other notifications of progress"
        );
    }
}
