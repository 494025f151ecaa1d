//! Numbers as people write them.

use bytes::Bytes;

use crate::progress::value::spell;
use crate::progress::value::{Number, ProgressValue};
use crate::protocol::json;

/// Limit of the digits of a number in text. A longer number is an id, not a progress value.
const DIGITS_MAX: usize = 15;

/// Reads a number, and removes its thousands separators. `None` if the text is not a number, or the number is below 0.
pub(super) fn spelled(text: &str) -> Option<Number> {
    let is_separator = |c: char| matches!(c, ',' | '_' | '\'') || c.is_whitespace();
    let digits: String = text.trim().chars().filter(|c| !is_separator(*c)).collect();
    // One more character is allowed, for the decimal point.
    if digits.len() > DIGITS_MAX + 1 {
        return None;
    }
    let kept = digits.trim_start_matches('0');
    let spelled = match kept.chars().next() {
        Some('0'..='9') => kept.to_owned(),
        _ if kept.len() == digits.len() => return None,
        _ => format!("0{kept}"),
    };
    let value = json::number(spelled.as_bytes()).filter(|value| *value >= 0.0)?;
    Some(Number { value, text: Bytes::from(spelled) })
}

/// Returns the progress value, if the numbers can be a value and its total.
pub(super) fn figure(value: Number, total: Option<Number>) -> Option<ProgressValue> {
    let fits = total.as_ref().is_none_or(|total| total.value > 0.0 && value.value <= total.value);
    fits.then_some(ProgressValue { value, total })
}

/// Returns a percentage as a progress value with the total 100.
pub(super) fn hundredths(value: Number) -> Option<ProgressValue> {
    figure(value, Some(Number { value: 100.0, text: Bytes::from_static(b"100") }))
}

/// Returns the finished part of `total`, if `left` remains to be done.
pub(super) fn remainder(left: &Number, total: Number) -> Option<ProgressValue> {
    figure(rounded(total.value - left.value)?, Some(total))
}

/// Returns the number of bytes in a unit such as `kB`, `MiB` or `M`; `None` for other words.
pub(super) fn factor(unit: &str) -> Option<f64> {
    let (prefix, rest) = unit.split_at_checked(1)?;
    let power = match prefix {
        "B" | "b" if rest.is_empty() || rest == "ytes" => 0,
        "k" | "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    match rest {
        "" | "B" | "b" | "ytes" => Some(1000_f64.powi(power)),
        "i" | "iB" => Some(1024_f64.powi(power)),
        _ => None,
    }
}

/// Converts a number from one unit to another.
pub(super) fn converted(number: Number, from: f64, to: f64) -> Option<Number> {
    if from == to {
        return Some(number);
    }
    rounded(number.value * from / to)
}

/// Rounds to six decimals, which is more precise than any tool counts.
fn rounded(value: f64) -> Option<Number> {
    spelled(&String::from_utf8_lossy(&spell((value * 1e6).round() / 1e6)))
}
