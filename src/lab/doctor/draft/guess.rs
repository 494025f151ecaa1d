//! Guesses from changes, for members with unknown names: a number that rises within one call is the value, and text
//! that changes is the text for people.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::places::MemberPlace;
use crate::lab::doctor::member_names::{NO_WORDS, TOTALS, is_handle, measures_other};
use crate::progress::extract::Extract;

/// Minimum number of different values of one call that show that a number rises, and of messages that show that a
/// single word changes.
const CHANGES_MIN: usize = 3;

/// The least number that is taken for a time rather than for a value, where no total is beside it.
const TIME_MIN: f64 = 1e7;

/// The largest value that is a number of things.
const VALUE_END: f64 = 1e12;

/// The smallest part of a guessed total that the highest value is. A smaller part is an accident: the other number is
/// a time or an id.
const PART_MIN: f64 = 0.01;

/// The percentage from which on a call counts as near its end.
const NEAR_END: f64 = 90.0;

/// A number that rises in the messages of a call.
pub(super) struct RisingNumber<'a> {
    /// The place of the number.
    pub(super) place: &'a MemberPlace,
    /// The place of its total: a number beside it that is larger and stays the same in the call.
    pub(super) total: Option<&'a MemberPlace>,
    /// What the number counts, as a value of `scale`, if it has no total.
    pub(super) scale: Option<&'static str>,
}

/// The values of a place by the number of their call, in the order in which they came.
type ValuesByCall = BTreeMap<usize, Vec<f64>>;

/// Returns the number among these places that most likely tells how far a call is. `calls` has the call of each
/// message.
pub(super) fn rising<'a>(places: &[&'a MemberPlace], calls: &[usize]) -> Option<RisingNumber<'a>> {
    let ranked = places.iter().filter_map(|place| rank_of_rising(place, places, calls));
    let best = ranked.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, found)| found)
}

/// Returns how likely a rising number is the value: fractions of 1 first, then a number with a total, a percentage, any
/// other number, and last the number of the message.
fn rank_of_rising<'a>(
    place: &'a MemberPlace,
    places: &[&'a MemberPlace],
    calls: &[usize],
) -> Option<(u8, RisingNumber<'a>)> {
    // Messages that begin or end a call may lack the number.
    let is_frequent = place.values.len() * 2 >= calls.len();
    if !is_frequent || measures_other(&place.name) {
        return None;
    }
    let runs = runs_of(place, calls)?;
    let highest = runs.values().flatten().copied().fold(0.0, f64::max);
    let lowest = runs.values().flatten().copied().fold(f64::INFINITY, f64::min);
    if !rises(&runs) || lowest < 0.0 || highest >= VALUE_END {
        return None;
    }
    let found = |total, scale| RisingNumber { place, total, scale };
    if place.all(|value| value.is_string() && plain_number(value).is_none()) {
        // Text such as `40%` or `3/9` has its own total.
        return Some((3, found(None, None)));
    }
    if highest <= 1.0 {
        return Some((4, found(None, Some("unit"))));
    }
    if let Some(total) = total_beside(place, places, calls) {
        return Some((3, found(Some(total), None)));
    }
    if highest >= TIME_MIN {
        return None;
    }
    let steps = || runs.values().flat_map(|run| run.windows(2).map(|pair| pair[1] - pair[0]));
    let is_sequence = steps().all(|step| (step - 1.0).abs() < 1e-9);
    let tens = runs.values().flatten().all(|value| value % 10.0 == 0.0) && highest >= 50.0;
    let is_percent = highest <= 100.0 && (tens || highest >= NEAR_END) && !is_sequence;
    let rank = match (is_percent, is_sequence || TOTALS.contains(&&*place.name)) {
        (true, _) => 2,
        (false, false) => 1,
        (false, true) => 0,
    };
    Some((rank, found(None, is_percent.then_some("percent"))))
}

/// Returns the place of the total of a value: a number beside it that stays the same in each call and is not less.
pub(super) fn total_beside<'a>(
    value: &MemberPlace,
    places: &[&'a MemberPlace],
    calls: &[usize],
) -> Option<&'a MemberPlace> {
    let fits = |place: &&&'a MemberPlace| is_total(place, value, calls);
    let is_named = |place: &&&'a MemberPlace| TOTALS.contains(&&*place.name);
    let named = places.iter().filter(fits).find(is_named);
    named.or_else(|| places.iter().find(fits)).copied()
}

fn is_total(place: &MemberPlace, value: &MemberPlace, calls: &[usize]) -> bool {
    let messages = |place: &MemberPlace| -> Vec<usize> {
        place.values.iter().map(|(message, _)| *message).collect()
    };
    let is_named = TOTALS.contains(&&*place.name);
    let is_beside = place.parent == value.parent
        && place.pointer != value.pointer
        && !measures_other(&place.name)
        && value.values.len() >= CHANGES_MIN
        && messages(place) == messages(value);
    if !is_beside {
        return false;
    }
    let (Some(totals), Some(values)) = (runs_of(place, calls), runs_of(value, calls)) else {
        return false;
    };
    let mut pairs = totals.values().zip(values.values());
    pairs.all(|(totals, values)| {
        let highest = values.iter().copied().fold(0.0, f64::max);
        let total = totals.first().copied().unwrap_or_default();
        let stays = totals.iter().all(|other| (other - total).abs() < 1e-9);
        // A percentage that has reached 100 has no total beside it.
        let is_whole = !is_named && total > 100.0 && (highest - 100.0).abs() < 1e-9;
        let is_part = is_named || highest >= total * PART_MIN;
        stays && total > 0.0 && highest <= total && is_part && !is_whole
    })
}

/// Whether no value is below the previous value of its call, and one call has several different values.
fn rises(runs: &ValuesByCall) -> bool {
    let climbs = |run: &Vec<f64>| 1 + run.windows(2).filter(|pair| pair[0] < pair[1]).count();
    runs.values().all(|run| run.windows(2).all(|pair| pair[0] <= pair[1]))
        && runs.values().any(|run| climbs(run) >= CHANGES_MIN)
}

/// Returns the values at a place; `None` if one of them is not a number.
fn runs_of(place: &MemberPlace, calls: &[usize]) -> Option<ValuesByCall> {
    let presets = Extract::presets();
    let mut runs = ValuesByCall::new();
    for (message, value) in &place.values {
        let number = plain_number(value).or_else(|| {
            let text = value.as_str().filter(|text| !has_words(text))?;
            presets.figure(text).map(|found| found.value.value)
        })?;
        runs.entry(calls.get(*message).copied().unwrap_or_default()).or_default().push(number);
    }
    Some(runs)
}

/// Returns a number, or the number in a string.
fn plain_number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        other => other.as_f64(),
    }
}

/// Returns the place of text that changes, and so is most likely for people: sentences before single words, then the
/// place with the most different texts.
pub(super) fn changing<'a>(places: &[&'a MemberPlace]) -> Option<&'a MemberPlace> {
    let ranked = places.iter().filter_map(|place| Some((rank_of_text(place)?, *place)));
    let best = ranked.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, place)| place)
}

fn rank_of_text(place: &MemberPlace) -> Option<(bool, usize)> {
    let all: Vec<&str> = place.values.iter().filter_map(|(_, value)| value.as_str()).collect();
    let texts: Vec<&str> = all.iter().map(|text| text.trim()).filter(|t| !t.is_empty()).collect();
    let is_text = all.len() == place.values.len() && texts.iter().all(|text| has_words(text));
    if !is_text || texts.is_empty() || is_handle(&place.name) {
        return None;
    }
    let has_sentences = texts.iter().any(|text| text.contains(' '));
    let distinct = texts.iter().collect::<BTreeSet<_>>().len();
    let is_enough = match has_sentences {
        true => distinct > 1 || texts.len() == 1,
        false => distinct > 1 && texts.len() >= CHANGES_MIN && !NO_WORDS.contains(&&*place.name),
    };
    is_enough.then_some((has_sentences, distinct))
}

/// Whether a text may be for people: it has letters, and is not a machine-made name.
pub(super) fn has_words(text: &str) -> bool {
    let letters = text.chars().filter(|sign| sign.is_alphabetic()).count();
    let digits = text.chars().filter(char::is_ascii_digit).count();
    letters > digits
}
