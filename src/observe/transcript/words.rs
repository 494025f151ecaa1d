//! The verdicts on messages, as text.

use std::fmt::Write;
use std::ops::Range;

use litemap::LiteMap;

use crate::progress::{Reason, Repair, Verdict};

/// Writes a message, and its verdicts below.
pub fn show(text: &mut String, line: &str, numbers: Range<u64>, verdicts: &LiteMap<u64, Verdict>) {
    let _ = writeln!(text, "{line}");
    for verdict in numbers.filter_map(|number| verdicts.get(&number)) {
        let _ = writeln!(text, "    {}", verdict_text(*verdict));
    }
}

/// Returns the verdict on a message as text.
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

/// Returns the name of a kind of verdict.
pub const fn kind(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Forwarded => "forwarded",
        Verdict::Repaired(_) => "repaired",
        Verdict::Withheld(_) => "withheld",
    }
}

/// The reason for a heartbeat.
pub const BEAT: &str = "the server had sent nothing for a while";

/// The reason for added progress that is not a heartbeat.
pub const FROM_TEXT: &str = "the server's text was read as progress";

/// The reason for an added answer.
pub const OWN_ANSWER: &str = "the call was answered in the server's place";

/// Returns the numbers of messages for each kind of verdict, as text.
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
    let mut repaired: LiteMap<Repair, u64> = LiteMap::new();
    let mut withheld: LiteMap<Reason, u64> = LiteMap::new();
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

/// Returns the text for the reason why a message was withheld.
pub const fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::NoToken => "the client asked for no progress of this request",
        Reason::Late => "the request has been answered or cancelled",
        Reason::Ambiguous => "the message names no request, and more than one request is possible",
        Reason::Unknown => "the message names no open request",
        Reason::Unreadable => "the report cannot be read",
        Reason::Duplicate => "the client got the same report within the last second",
        Reason::Fell => "the value repeats or falls, and the route drops such values",
        Reason::Exhausted => "no larger number exists",
        Reason::Superseded => "a newer report replaced the report",
        Reason::Overtaken => "the answer came while the report was held back",
        Reason::AfterFinal => "an earlier report was marked as the last",
        Reason::TooLong => "the message is too long to be read",
        Reason::Gone => "the client's stream has closed",
        Reason::OrphanAnswer => "the answer belongs to no request",
        Reason::SecondAnswer => "the request has been answered before",
        Reason::CancelledAnswer => "the client has cancelled the request",
        Reason::MissingId => "the result, or the error, has no id",
        Reason::OwnRequest => "the answer belongs to a request of Milepost's own",
        Reason::Noise => "the text is not a message",
        Reason::FailedOpen => "the filter had failed",
    }
}

/// Describes which part of a message was repaired, and how.
pub const fn repair_text(repair: Repair) -> &'static str {
    match repair {
        Repair::Dialect => "the server reported in another dialect",
        Repair::Token => "a foreign token was replaced by the client's own token",
        Repair::Number => "a number was found or made, because there was no usable one",
        Repair::Lift => "the value repeated or fell, and was lifted above the last value",
        Repair::Rebase => "a new phase began, and its value was added to the last value",
        Repair::Total => {
            "the total was not a number or below the value, or the route knows the total"
        }
        Repair::Message => "the message was made readable, or was added",
        Repair::Envelope => "`jsonrpc` was missing or was not \"2.0\", or a key was repeated",
        Repair::ResponseId => "the id was replaced by the client's own id text",
        Repair::ErrorShape => {
            "the missing `code`, `message` or error was added, or null members were left out"
        }
        Repair::BareResult => "the bare result became an object",
        Repair::Ping => "the error about `ping` became an empty result",
        Repair::Batch => "the message was an element of an array that was separated or thinned",
        Repair::Task => "the message tells the client of a task of Milepost's own",
        Repair::EventName => "the event had a name that clients do not read",
        Repair::Unicode => "characters that JSON does not allow became U+FFFD or escapes",
        Repair::SplitLine => "the message was separated from other text on its line",
    }
}
