//! What a call came to, counted where it can be seen: at the server, at the proxy, at the client.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::time::Duration;

use super::client::Fault;
use super::view::{Tone, View};
use crate::progress::{Reason, Repair};

/// Below this width the table becomes sentences.
const TABLE_WIDTH: usize = 76;

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The tool that was called.
    pub tool: &'static str,
    /// Notifications that the server sent.
    pub sent: u64,
    /// How many of them a client could have used as they were.
    pub usable: u64,
    /// Why it could not have used the others.
    pub faults: BTreeMap<Fault, u64>,
    /// Notifications that the client got.
    pub got: u64,
    /// How many of them had been repaired.
    pub repaired: u64,
    /// In which ways; a notification can be repaired in several.
    pub repairs: BTreeMap<Repair, u64>,
    /// How many of them the server had not sent.
    pub added: u64,
    /// Notifications of the server that were withheld, by reason.
    pub dropped: BTreeMap<Reason, u64>,
    /// Time until the client had its answer.
    pub took: Duration,
}

impl Tally {
    pub(super) fn new(tool: &'static str) -> Self {
        Self {
            tool,
            sent: 0,
            usable: 0,
            faults: BTreeMap::new(),
            got: 0,
            repaired: 0,
            repairs: BTreeMap::new(),
            added: 0,
            dropped: BTreeMap::new(),
            took: Duration::ZERO,
        }
    }

    /// What a client would have had without Milepost.
    pub(super) fn without(&self) -> String {
        if self.sent == 0 {
            let silent = self.took.as_secs_f64();
            return format!("Without Milepost: not a word for {silent:.1} s.");
        }
        let (usable, sent) = (self.usable, self.sent);
        let mut text =
            format!("Without Milepost: {usable} of {sent} notifications can be used by a client");
        if !self.faults.is_empty() {
            let _ = write!(text, " ({})", counts(&self.faults, Fault::words));
        }
        text + "."
    }
}

/// Shows what all calls came to.
pub(super) fn show(tallies: &[Tally], view: &mut View<'_>) -> io::Result<()> {
    view.line(&[])?;
    if view.width() >= TABLE_WIDTH {
        table(tallies, view)?;
    } else {
        sentences(tallies, view)?;
    }
    let mut repairs = BTreeMap::new();
    let mut reasons = BTreeMap::new();
    for tally in tallies {
        add(&mut repairs, &tally.repairs);
        add(&mut reasons, &tally.dropped);
    }
    view.line(&[])?;
    explain(view, "repaired", &repairs, Repair::name, repair_words)?;
    explain(view, "dropped", &reasons, Reason::name, reason_words)?;
    let got: u64 = tallies.iter().map(|tally| tally.got).sum();
    let checked = format!(
        "Each of the {got} notifications that the client got was checked by it: its own token, a \
         figure that rises, nothing after the answer."
    );
    view.line(&[])?;
    view.words(Tone::Plain, &checked, 0)?;
    view.words(Tone::Plain, "In front of a server of yours: milepost wrap -- COMMAND", 0)
}

fn table(tallies: &[Tally], view: &mut View<'_>) -> io::Result<()> {
    let heads = [
        "                  server  without    with Milepost",
        "                    sent   usable    got  repaired  added  dropped",
    ];
    for head in heads {
        view.line(&[(Tone::Dim, head)])?;
    }
    for Tally { tool, sent, usable, got, repaired, added, dropped, .. } in tallies {
        let counts = format!("{sent:6}{usable:9}{got:7}{repaired:10}{added:7}  ");
        let name = format!("{tool:18}");
        view.line(&[
            (Tone::Strong, &name),
            (Tone::Plain, &counts),
            (Tone::Plain, &counts_or_none(dropped)),
        ])?;
    }
    Ok(())
}

fn sentences(tallies: &[Tally], view: &mut View<'_>) -> io::Result<()> {
    for Tally { tool, sent, usable, got, repaired, added, dropped, .. } in tallies {
        let dropped = counts_or_none(dropped);
        let text = format!(
            "{tool}: server sent {sent}, without Milepost usable {usable}; client got {got}, \
             repaired {repaired}, added {added}, dropped {dropped}"
        );
        view.words(Tone::Plain, &text, 2)?;
    }
    Ok(())
}

/// One line for each name that has been counted.
fn explain<K: Copy>(
    view: &mut View<'_>,
    what: &str,
    counted: &BTreeMap<K, u64>,
    name: fn(K) -> &'static str,
    words: fn(K) -> &'static str,
) -> io::Result<()> {
    for (key, count) in counted {
        let text = format!("{what} {count:3} x {}: {}", name(*key), words(*key));
        view.words(Tone::Plain, &text, 2)?;
    }
    Ok(())
}

fn repair_words(repair: Repair) -> &'static str {
    match repair {
        Repair::Dialect => "said in a dialect of its own",
        Repair::Token => "a token of its own: the client's was put in",
        Repair::Number => "no figure: the smallest step was made",
        Repair::Lift => "a figure that repeated or fell was set just above the last",
        Repair::Total => "a total that is no number was left out",
        _ => "made valid",
    }
}

fn reason_words(reason: Reason) -> &'static str {
    match reason {
        Reason::Duplicate => "the client had been told the very same less than a second before",
        Reason::Overtaken => "the answer came with it, and some clients fail on that",
        Reason::Late => "the answer had already come",
        _ => "nothing a client can use",
    }
}

fn add<K: Copy + Ord>(sum: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (key, count) in more {
        *sum.entry(*key).or_default() += count;
    }
}

fn counts_or_none(dropped: &BTreeMap<Reason, u64>) -> String {
    if dropped.is_empty() { "none".to_owned() } else { counts(dropped, Reason::name) }
}

fn counts<K: Copy>(counts: &BTreeMap<K, u64>, name: fn(K) -> &'static str) -> String {
    let words: Vec<String> =
        counts.iter().map(|(key, count)| format!("{} {count}", name(*key))).collect();
    words.join(", ")
}
