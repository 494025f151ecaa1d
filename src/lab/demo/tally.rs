//! The result of the demo's calls, counted at the server, at the proxy and at the client.

use std::io;
use std::time::Duration;

use litemap::LiteMap;

use super::client::MessageFault;
use super::rows::CallFate;
use super::view::{DemoView, Tone};
use crate::progress::{Reason, Repair, Verdict};

/// Minimum width of the table. On a narrower terminal sentences take its place.
const TABLE_WIDTH: usize = 76;

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DemoTally {
    /// The tool that was called.
    pub tool: &'static str,
    /// The number of notifications that the server sent.
    pub sent: u64,
    /// The number of notifications that a client could use unchanged.
    pub usable: u64,
    /// The faults of the other notifications.
    pub faults: LiteMap<MessageFault, u64>,
    /// Notifications that the client got.
    pub got: u64,
    /// The number of repaired notifications.
    pub repaired: u64,
    /// The number of each repair; a notification can have several.
    pub repairs: LiteMap<Repair, u64>,
    /// The number of added notifications, which the server did not send.
    pub added: u64,
    /// Notifications of the server that were withheld, by reason.
    pub withheld: LiteMap<Reason, u64>,
    /// Time until the client had its answer.
    pub took: Duration,
}

impl DemoTally {
    pub(super) fn new(tool: &'static str) -> Self {
        Self { tool, ..Self::default() }
    }

    /// Counts a notification.
    pub(super) fn count(&mut self, fate: CallFate) {
        match fate {
            CallFate::Added => self.added += 1,
            CallFate::Verdict(Verdict::Forwarded) => {}
            CallFate::Verdict(Verdict::Repaired(repairs)) => {
                self.repaired += 1;
                repairs.iter().for_each(|repair| *self.repairs.entry(repair).or_default() += 1);
            }
            CallFate::Verdict(Verdict::Withheld(reason)) => {
                *self.withheld.entry(reason).or_default() += 1;
                return;
            }
        }
        self.got += 1;
    }

    /// Describes the result that a client would have without Milepost.
    pub(super) fn without(&self) -> String {
        if self.sent == 0 {
            let silent = self.took.as_secs_f64();
            return format!("Without Milepost, no message for {silent:.1} s.");
        }
        let (usable, sent) = (self.usable, self.sent);
        let faults = self.faults.iter().map(|(fault, count)| format!("{count} x {}", fault.text()));
        let faults = faults.collect::<Vec<_>>().join(", ");
        let why = if faults.is_empty() { faults } else { format!(" ({faults})") };
        format!("Without Milepost, usable: {usable} of {sent}{why}.")
    }
}

/// Shows the results of all calls.
pub(super) fn show(tallies: &[DemoTally], view: &mut DemoView<'_>) -> io::Result<()> {
    view.line(&[])?;
    if view.width() >= TABLE_WIDTH {
        table(tallies, view)?;
    } else {
        sentences(tallies, view)?;
    }
    let mut repairs = LiteMap::new();
    let mut reasons = LiteMap::new();
    for tally in tallies {
        add(&mut repairs, &tally.repairs);
        add(&mut reasons, &tally.withheld);
    }
    view.line(&[])?;
    explain(view, "repaired", &repairs, Repair::name, repair_words)?;
    explain(view, "withheld", &reasons, Reason::name, reason_words)?;
    let added: u64 = tallies.iter().map(|tally| tally.added).sum();
    if added > 0 {
        let text = format!("added    {added:3} x heartbeat: the server was silent");
        view.words(Tone::Plain, &text, 2)?;
    }
    let got: u64 = tallies.iter().map(|tally| tally.got).sum();
    let checked = format!(
        "The client checked each of its {got} notifications: its own token, a value that rises, nothing \
         after the answer."
    );
    view.line(&[])?;
    view.words(Tone::Plain, &checked, 0)?;
    view.words(Tone::Plain, "For a server of your own: milepost wrap -- COMMAND", 0)
}

fn table(tallies: &[DemoTally], view: &mut DemoView<'_>) -> io::Result<()> {
    let heads = [
        "                  server   usable | with Milepost, the client",
        "                    sent  without |    got  repaired  added  withheld",
    ];
    for head in heads {
        view.line(&[(Tone::Dim, head)])?;
    }
    for DemoTally { tool, sent, usable, got, repaired, added, withheld, .. } in tallies {
        let counts = format!("{sent:6}{usable:9} |{got:7}{repaired:10}{added:7}  ");
        let name = format!("{tool:18}");
        view.line(&[
            (Tone::Strong, &name),
            (Tone::Plain, &counts),
            (Tone::Plain, &counts_or_none(withheld)),
        ])?;
    }
    Ok(())
}

fn sentences(tallies: &[DemoTally], view: &mut DemoView<'_>) -> io::Result<()> {
    for DemoTally { tool, sent, usable, got, repaired, added, withheld, .. } in tallies {
        let withheld = counts_or_none(withheld);
        let text = format!(
            "{tool}: server sent {sent}, without Milepost usable {usable}; client got {got}, \
             repaired {repaired}, added {added}, withheld {withheld}"
        );
        view.words(Tone::Plain, &text, 2)?;
    }
    Ok(())
}

/// Writes one line for each name that has been counted.
fn explain<K: Copy>(
    view: &mut DemoView<'_>,
    what: &str,
    counted: &LiteMap<K, u64>,
    name: fn(K) -> &'static str,
    words: fn(K) -> &'static str,
) -> io::Result<()> {
    for (key, count) in counted {
        let text = format!("{what:8} {count:3} x {}: {}", name(*key), words(*key));
        view.words(Tone::Plain, &text, 2)?;
    }
    Ok(())
}

fn repair_words(repair: Repair) -> &'static str {
    match repair {
        Repair::Dialect => "the server reported in a dialect of its own",
        Repair::Token => "no token or a foreign token, replaced by the client's",
        Repair::Number => "no value: the smallest step above the last value was made",
        Repair::Lift => "a value that repeated or fell was set just above the last value",
        Repair::Total => "a total that is not a number was left out",
        _ => "made valid",
    }
}

fn reason_words(reason: Reason) -> &'static str {
    match reason {
        Reason::Duplicate => "the client got the same report less than a second before",
        Reason::Overtaken => "the answer came with the report, and some clients fail on that",
        Reason::Late => "the answer had already come",
        _ => "no client can use the message",
    }
}

fn add<K: Copy + Ord>(sum: &mut LiteMap<K, u64>, more: &LiteMap<K, u64>) {
    for (key, count) in more {
        *sum.entry(*key).or_default() += count;
    }
}

fn counts_or_none(withheld: &LiteMap<Reason, u64>) -> String {
    let counts = withheld.iter().map(|(reason, count)| format!("{} {count}", reason.name()));
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}
