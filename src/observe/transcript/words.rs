//! The verdicts on messages, in words.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use crate::progress::{Reason, Repair, Verdict};

/// Writes a message, and its verdicts below.
pub fn show(text: &mut String, line: &str, numbers: Range<u64>, verdicts: &BTreeMap<u64, Verdict>) {
    let _ = writeln!(text, "{line}");
    for (_, verdict) in verdicts.range(numbers) {
        let _ = writeln!(text, "    {}", verdict_text(*verdict));
    }
}

/// The fate of a message, in words.
pub fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::Forwarded => "forwarded as it is".to_owned(),
        Verdict::Repaired(repairs) => {
            let names: Vec<&str> = repairs.iter().map(|repair| repair.name()).collect();
            format!("repaired: {}", names.join(", "))
        }
        Verdict::Withheld(reason) => {
            format!("withheld: {}, {}", reason.name(), reason_text(reason))
        }
    }
}

/// The name of a kind of verdict.
pub const fn kind(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Forwarded => "forwarded",
        Verdict::Repaired(_) => "repaired",
        Verdict::Withheld(_) => "withheld",
    }
}

/// The reason for a heartbeat.
pub const BEAT: &str = "the server had said nothing for a while";

/// The reason for added progress that is no heartbeat.
pub const FROM_TEXT: &str = "it was made of text that the server has written for other eyes";

/// The reason for an added answer.
pub const OWN_ANSWER: &str = "the call was answered in the server's place";

/// The numbers of messages, by kind of verdict.
pub fn count<'a, I>(verdicts: impl Fn() -> I, beats: u64) -> String
where
    I: Iterator<Item = &'a Verdict>,
{
    let count = |is: fn(&Verdict) -> bool| verdicts().filter(|verdict| is(verdict)).count();
    let mut text = format!(
        "of the server's messages {} forwarded, {} repaired, {} withheld",
        count(|verdict| matches!(verdict, Verdict::Forwarded)),
        count(|verdict| matches!(verdict, Verdict::Repaired(_))),
        count(|verdict| matches!(verdict, Verdict::Withheld(_))),
    );
    let mut repaired: BTreeMap<Repair, u64> = BTreeMap::new();
    let mut withheld: BTreeMap<Reason, u64> = BTreeMap::new();
    for verdict in verdicts() {
        match verdict {
            Verdict::Forwarded => {}
            Verdict::Repaired(repairs) => {
                repairs.iter().for_each(|repair| *repaired.entry(repair).or_default() += 1);
            }
            Verdict::Withheld(reason) => *withheld.entry(*reason).or_default() += 1,
        }
    }
    let mut line = |what: &str, names: Vec<String>| {
        if !names.is_empty() {
            text += &format!("\n{what}: {}", names.join(", "));
        }
    };
    line("repaired", repaired.iter().map(|(repair, n)| format!("{} {n}", repair.name())).collect());
    line("withheld", withheld.iter().map(|(reason, n)| format!("{} {n}", reason.name())).collect());
    if beats > 0 {
        text += &format!("\nheartbeats: {beats}");
    }
    text
}

/// The words for the reason why a message was withheld.
pub const fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::NoToken => "the client asked for no progress of this request",
        Reason::Late => "the request has been answered or cancelled",
        Reason::Ambiguous => "it names nobody, and more than one request could be meant",
        Reason::Unknown => "it names no request that is open",
        Reason::Unreadable => "it claims to be progress and cannot be read",
        Reason::Duplicate => "the client was told the very same within a second",
        Reason::Fell => "its figure repeats or falls, and such figures are dropped",
        Reason::Exhausted => "no larger number exists",
        Reason::Superseded => "a newer report took its place",
        Reason::Overtaken => "the answer came while it was held back",
        Reason::AfterFinal => "an earlier report was marked as the last",
        Reason::TooLong => "it claims to be progress and is too long to be read",
        Reason::Gone => "its client stream has closed",
        Reason::OrphanAnswer => "it answers a request that nobody made",
        Reason::SecondAnswer => "the request has been answered before",
        Reason::CancelledAnswer => "its client has given the request up",
        Reason::MissingId => "it is a result without an id",
        Reason::OwnRequest => "it answers a request of Milepost's own",
        Reason::Noise => "it is no message",
        Reason::FailedOpen => "the filter had failed",
    }
}

/// The part of a message that was mended, and how.
pub const fn repair_text(repair: Repair) -> &'static str {
    match repair {
        Repair::Dialect => "it was said in another dialect",
        Repair::Token => "a foreign token: the client's own was put in",
        Repair::Number => "no usable number: one was found or made",
        Repair::Lift => "its figure repeats or falls: it was lifted",
        Repair::Rebase => "a new phase begins: its figure was set on top of the last",
        Repair::Total => "its total was no number or below the figure, or the route knows it",
        Repair::Message => "its message was made readable, or given where there was none",
        Repair::Envelope => "`jsonrpc` was missing, or a key was repeated",
        Repair::ResponseId => "the client's own id text was put back",
        Repair::ErrorShape => "an error got the `code` and `message` that it lacked",
        Repair::BareResult => "a bare tool result was wrapped as content",
        Repair::Batch => "it was one element of an array that was taken apart or thinned",
    }
}
