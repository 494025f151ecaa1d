//! `milepost diff`: compares two recordings, call by call.

use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use litemap::LiteMap;
use serde_json::{Value, json};

use crate::config::values::time_or_off;
use crate::lab::recordings::RecordingError;
use crate::lab::recordings::calls::{RecordedCall, RecordedCalls, RecordedFigure, RecordedSide};
use crate::lab::recordings::differences::{
    ValueDifference, canonical, cut, differences, parameters, value_of,
};
use crate::protocol::jsonrpc::Message;
use crate::protocol::order;

/// The version of the JSON report. It is raised when a member changes its meaning or is removed.
const FORM: u32 = 1;

/// Maximum number of differences of one answer that are shown as text.
const SHOWN_MAX: usize = 5;

/// `milepost diff`.
#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// The first recording
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The second recording
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// The side of Milepost whose messages are compared
    #[arg(long, value_enum, default_value_t)]
    pub side: RecordedSide,
    /// The difference in time of two calls that is none, or `off`: times are not compared
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = tolerance)]
    pub tolerance: TimeTolerance,
    /// Print the differences as JSON, on one line
    #[arg(long)]
    pub json: bool,
}

/// Two times that differ by at most this count as equal; `None` if times are not compared.
#[derive(Debug, Clone, Copy)]
pub struct TimeTolerance(Option<Duration>);

fn tolerance(text: &str) -> Result<TimeTolerance, String> {
    time_or_off(text).map(TimeTolerance)
}

/// The result of a comparison.
#[derive(Debug)]
pub struct RecordingDiff {
    /// The report.
    pub text: String,
    /// Whether the recordings are equal.
    pub is_equal: bool,
}

/// A difference between two calls.
#[derive(Debug)]
struct CallDifference {
    /// One of `outcome`, `answer`, `reports`, `figures`, `messages`, `time`, `order`.
    what: &'static str,
    /// The place in an answer, or the index of a report.
    at: Option<String>,
    a: Option<String>,
    b: Option<String>,
}

/// A call that is in both recordings.
struct CallPair<'a> {
    a: &'a RecordedCall,
    b: &'a RecordedCall,
    differences: Vec<CallDifference>,
}

/// Compares two recordings.
///
/// # Errors
/// If one of them cannot be read, or is not a complete recording.
pub fn run(args: &DiffArgs) -> Result<RecordingDiff, RecordingError> {
    let (a, b) = (RecordedCalls::load(&args.a)?, RecordedCalls::load(&args.b)?);
    let (pairs, only_b) = pairs(&a, &b);
    let only_a: Vec<&RecordedCall> =
        pairs.iter().filter(|(_, b)| b.is_none()).map(|(a, _)| *a).collect();
    let both: Vec<(&RecordedCall, &RecordedCall)> =
        pairs.iter().filter_map(|(a, b)| Some((*a, (*b)?))).collect();
    let moved = moved(&both.iter().map(|(_, b)| b.line).collect::<Vec<_>>());
    let compared = both.iter().zip(moved).map(|((one, other), is_moved)| {
        let mut differences = compare((&a, one), (&b, other), args);
        if is_moved {
            differences.push(CallDifference { what: "order", at: None, a: None, b: None });
        }
        CallPair { a: one, b: other, differences }
    });
    let report = DiffReport { a: &a, b: &b, pairs: compared.collect(), only_a, only_b };
    let text = if args.json { report.json(args.side) } else { report.text(args.side) };
    Ok(RecordingDiff { text, is_equal: report.is_equal() })
}

/// Returns the name of a call: method, tool and arguments in a normal form.
fn key(call: &RecordedCall) -> (String, String) {
    (call.name(), canonical(&parameters(&call.request)))
}

/// Pairs each call of `a` with the equal call of `b`, in their order; also returns the other calls of `b`.
fn pairs<'a>(
    a: &'a RecordedCalls,
    b: &'a RecordedCalls,
) -> (Vec<(&'a RecordedCall, Option<&'a RecordedCall>)>, Vec<&'a RecordedCall>) {
    let mut left: LiteMap<(String, String), VecDeque<&RecordedCall>> = LiteMap::new();
    for call in &b.calls {
        left.entry(key(call)).or_default().push_back(call);
    }
    let pair = |call| (call, left.get_mut(&key(call)).and_then(VecDeque::pop_front));
    let pairs = a.calls.iter().map(pair).collect();
    let mut rest: Vec<&RecordedCall> = left.into_iter().flat_map(|(_, value)| value).collect();
    order::sort_by_key(&mut rest, |call| call.line);
    (pairs, rest)
}

/// Returns for each number whether it is outside the longest rising subsequence: that call has moved.
fn moved(numbers: &[usize]) -> Vec<bool> {
    // The last index of the best subsequence of each length, and for each index its predecessor.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(numbers.len());
    for (at, number) in numbers.iter().enumerate() {
        let length = ends.partition_point(|end| numbers[*end] <= *number);
        before.push(length.checked_sub(1).map(|last| ends[last]));
        if length == ends.len() {
            ends.push(at);
        } else {
            ends[length] = at;
        }
    }
    let mut is_moved = vec![true; numbers.len()];
    let mut at = ends.last().copied();
    while let Some(here) = at {
        is_moved[here] = false;
        at = before[here];
    }
    is_moved
}

/// Returns the time from a request to its answer on one side.
fn took(all: &RecordedCalls, call: &RecordedCall, side: RecordedSide) -> Option<Duration> {
    all.answer(call, side).map(|answer| answer.at.saturating_sub(call.at))
}

/// Returns the answer on one side as a value, without its id.
fn answer(all: &RecordedCalls, call: &RecordedCall, side: RecordedSide) -> Option<Value> {
    let message = Message::parse(all.answer(call, side)?.text.clone());
    let (name, part) = match (message.result(), message.error()) {
        (_, Some(error)) => ("error", error),
        (result, None) => ("result", result?),
    };
    Some(json!({ name: value_of(&part) }))
}

/// Returns the notifications of a call on one side, without heartbeats, which depend only on time.
fn reports(
    all: &RecordedCalls,
    call: &RecordedCall,
    side: RecordedSide,
) -> Vec<Option<RecordedFigure>> {
    all.reports(call, side)
        .filter(|report| !report.is_beat)
        .map(super::recordings::calls::RecordedMessage::figure)
        .collect()
}

/// Compares a call of both recordings.
fn compare(
    (a, one): (&RecordedCalls, &RecordedCall),
    (b, other): (&RecordedCalls, &RecordedCall),
    args: &DiffArgs,
) -> Vec<CallDifference> {
    let side = args.side;
    let mut found = Vec::new();
    let mut add = |what, at, a, b| found.push(CallDifference { what, at, a, b });
    if one.outcome_name() != other.outcome_name() {
        let names = [one, other].map(|call| Some(call.outcome_name().to_owned()));
        let [a, b] = names;
        add("outcome", None, a, b);
    }
    let answers = (answer(a, one, side), answer(b, other, side));
    match answers {
        (Some(one), Some(other)) => {
            for ValueDifference { path, one, other } in differences(&one, &other) {
                add("answer", Some(path), one, other);
            }
        }
        (None, None) => {}
        (one, other) => {
            let text = |answer: Option<Value>| answer.map(|answer| cut(&answer.to_string()));
            add("answer", None, text(one), text(other));
        }
    }
    let (own, others) = (reports(a, one, side), reports(b, other, side));
    if own.len() != others.len() {
        add("reports", None, Some(own.len().to_string()), Some(others.len().to_string()));
    }
    let figures = |report: &Option<RecordedFigure>| {
        let plain = |text: &str| canonical(&value_of(text.as_bytes()));
        report.as_ref().map(|figure| match &figure.total {
            Some(total) => format!("{}/{}", plain(&figure.progress), plain(total)),
            None => plain(&figure.progress),
        })
    };
    let words = |report: &Option<RecordedFigure>| {
        report.as_ref().and_then(|figure| figure.message.as_deref().map(cut))
    };
    let mut first = |what, text: &dyn Fn(&Option<RecordedFigure>) -> Option<String>| {
        let both = (1..).zip(own.iter().zip(&others));
        let mut texts = both.map(|(number, (one, other))| (number, text(one), text(other)));
        if let Some((number, one, other)) = texts.find(|(_, one, other)| one != other) {
            add(what, Some(number.to_string()), one, other);
        }
    };
    first("figures", &figures);
    first("messages", &words);
    let times = took(a, one, side).zip(took(b, other, side));
    if let (Some(tolerance), Some((one, other))) = (args.tolerance.0, times)
        && one.abs_diff(other) > tolerance
    {
        add("time", None, Some(format!("{one:.3?}")), Some(format!("{other:.3?}")));
    }
    found
}

/// The results of the comparison.
struct DiffReport<'a> {
    a: &'a RecordedCalls,
    b: &'a RecordedCalls,
    pairs: Vec<CallPair<'a>>,
    only_a: Vec<&'a RecordedCall>,
    only_b: Vec<&'a RecordedCall>,
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns a call on one line, with its arguments.
fn described(call: &RecordedCall) -> String {
    let mut params = parameters(&call.request);
    if call.tool.is_some() {
        params = params.get("arguments").cloned().unwrap_or_default();
    }
    let is_empty = params.is_null() || params.as_object().is_some_and(|own| own.is_empty());
    let params = if is_empty { String::new() } else { format!(" {}", cut(&params.to_string())) };
    format!("{}{params}", cut(&call.name()))
}

impl DiffReport<'_> {
    /// Returns the report as text.
    fn text(&self, side: RecordedSide) -> String {
        let mut text = String::new();
        let whose = match side {
            RecordedSide::Client => "what clients got",
            RecordedSide::Server => "what servers sent",
        };
        let all = [("A", self.a), ("B", self.b)];
        for (name, one) in all {
            let calls = count(one.calls.len(), "call");
            let _ = writeln!(text, "{name}: {}, {calls}", one.path.display());
            for remark in &one.remarks {
                let _ = writeln!(text, "   {remark}");
            }
        }
        let _ = writeln!(text, "{whose} is compared");
        for pair in self.pairs.iter().filter(|pair| !pair.differences.is_empty()) {
            let (a, b) = (pair.a.line, pair.b.line);
            let _ = writeln!(text, "\n{} (A line {a}, B line {b})", described(pair.a));
            write_differences(&mut text, &pair.differences);
        }
        for (name, calls) in [("A", &self.only_a), ("B", &self.only_b)] {
            for call in calls {
                let (line, call) = (call.line, described(call));
                let _ = writeln!(text, "\nonly in {name}: {call} (line {line})");
            }
        }
        let differ = self.pairs.iter().filter(|pair| !pair.differences.is_empty()).count();
        let (equal, only_a, only_b) =
            (self.pairs.len() - differ, self.only_a.len(), self.only_b.len());
        let _ = writeln!(
            text,
            "\n{} equal, {differ} different, {only_a} only in A, {only_b} only in B",
            count(equal, "call")
        );
        text
    }

    fn is_equal(&self) -> bool {
        let differ = self.pairs.iter().any(|pair| !pair.differences.is_empty());
        !differ && self.only_a.is_empty() && self.only_b.is_empty()
    }

    /// Returns the report as JSON, on one line.
    fn json(&self, side: RecordedSide) -> String {
        let side = match side {
            RecordedSide::Client => "client",
            RecordedSide::Server => "server",
        };
        let call = |call: &RecordedCall| {
            json!({
                "method": call.method,
                "tool": call.tool,
                "params": parameters(&call.request),
                "line": call.line,
            })
        };
        let pair = |pair: &CallPair<'_>| {
            let differences = pair
                .differences
                .iter()
                .map(|one| json!({ "what": one.what, "at": one.at, "a": one.a, "b": one.b }));
            json!({
                "method": pair.a.method,
                "tool": pair.a.tool,
                "params": parameters(&pair.a.request),
                "lines": [pair.a.line, pair.b.line],
                "differences": differences.collect::<Value>(),
            })
        };
        let recording = |one: &RecordedCalls| json!({ "file": one.path.to_string_lossy(), "calls": one.calls.len(), "remarks": one.remarks });
        let report = json!({
            "form": FORM,
            "milepost": env!("CARGO_PKG_VERSION"),
            "side": side,
            "equal": self.is_equal(),
            "a": recording(self.a),
            "b": recording(self.b),
            "pairs": self.pairs.iter().map(pair).collect::<Value>(),
            "only_a": self.only_a.iter().map(|one| call(one)).collect::<Value>(),
            "only_b": self.only_b.iter().map(|one| call(one)).collect::<Value>(),
        });
        format!("{report}\n")
    }
}

fn write_differences(text: &mut String, all: &[CallDifference]) {
    let mut of_answer = 0;
    for CallDifference { what, at, a, b } in all {
        if *what == "answer" {
            of_answer += 1;
            if of_answer > SHOWN_MAX {
                continue;
            }
        }
        let at = match (*what, at) {
            ("figures" | "messages", Some(at)) => format!(" report {at}:"),
            (_, Some(at)) => format!(" {}:", cut(at)),
            (_, None) => String::new(),
        };
        let nothing = || "(nothing)".to_owned();
        let _ = match *what {
            "order" => writeln!(text, "  order: another place among the calls"),
            what => {
                let (a, b) = (a.clone().unwrap_or_else(nothing), b.clone().unwrap_or_else(nothing));
                writeln!(text, "  {what}:{at} A {a}, B {b}")
            }
        };
    }
    if let Some(more) = of_answer.checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "  answer: {} more", count(more, "difference"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_calls_count_as_moved() {
        assert_eq!(moved(&[1, 2, 3]), [false; 3]);
        assert_eq!(moved(&[3, 1, 2]), [true, false, false]);
        assert_eq!(moved(&[1, 4, 2, 3]), [false, true, false, false]);
        assert_eq!(moved(&[]), [false; 0]);
    }
}
