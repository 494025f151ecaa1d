//! A pattern for `extract` from the texts of one call: two numbers side by side, of which the first rises towards the
//! second.

use std::collections::BTreeMap;

use crate::progress::extract::Extract;

/// Texts of a call that a pattern is made from.
pub const TEXTS_MAX: usize = 200;

/// Texts that have to show the same numbers side by side.
const TEXTS_MIN: usize = 3;

/// Characters between two numbers that belong together.
const BETWEEN_MAX: usize = 16;

/// Characters around the two numbers that a pattern keeps.
const AROUND_MAX: usize = 24;

/// Numbers beside these words are not progress: dates, times, versions and the like.
const OTHER_NUMBERS: [&str; 10] =
    ["port", "version", "pid", "retry", "attempt", "took", "eta", "elapsed", "free", "used"];

/// A number in a text.
struct FoundNumber {
    start: usize,
    end: usize,
    value: f64,
}

/// Two numbers side by side in a text.
struct NumberPair<'a> {
    text: &'a str,
    value: f64,
    total: f64,
    start: usize,
    end: usize,
}

/// Returns the pattern, if the known patterns find nothing in any of the texts and the new pattern finds a value that
/// rises towards a constant total. The texts are in the order of their arrival.
pub fn draft(texts: &[String]) -> Option<String> {
    let presets = Extract::presets();
    if texts.iter().any(|text| presets.figure(text).is_some()) {
        return None;
    }
    // Texts by the count of numbers before the pair, and by the text between the two numbers.
    let mut pairs: BTreeMap<(usize, &str), Vec<NumberPair<'_>>> = BTreeMap::new();
    for text in texts.iter().take(TEXTS_MAX) {
        let figures = figures(text);
        for (at, pair) in figures.windows(2).enumerate() {
            let [first, second] = pair else { continue };
            let Some(between) = text.get(first.end..second.start) else { continue };
            if between.chars().count() <= BETWEEN_MAX && is_separator(between) {
                let (value, total) = (first.value, second.value);
                let (start, end) = (first.start, second.end);
                let seen = NumberPair { text, value, total, start, end };
                pairs.entry((at, between)).or_default().push(seen);
            }
        }
    }
    let patterns = pairs.iter().filter_map(|((_, between), seen)| {
        let pattern = pattern(between, seen)?;
        Some((seen.len(), pattern))
    });
    let (_, pattern) = patterns.max_by_key(|(count, _)| *count)?;
    // A pattern that finds something else than intended is useless.
    let extract = Extract::read(["presets", &*pattern]).ok()?;
    let found = texts.iter().filter(|text| extract.figure(text).is_some()).count();
    (found >= TEXTS_MIN).then_some(pattern)
}

/// The pattern of texts that have two numbers with the same text between them.
fn pattern(between: &str, seen: &[NumberPair<'_>]) -> Option<String> {
    let totals = seen.iter().map(|one| one.total);
    let total = totals.clone().next()?;
    let rises = seen.windows(2).all(|pair| pair[0].value <= pair[1].value);
    let moves = seen.first()?.value < seen.last()?.value;
    let has_total = totals.clone().all(|other| (other - total).abs() < 1e-9);
    let is_part = seen.iter().all(|one| one.value <= total);
    if seen.len() < TEXTS_MIN || !rises || !moves || !has_total || !is_part || total <= 1.0 {
        return None;
    }
    let before: Vec<&str> = seen.iter().filter_map(|one| one.text.get(..one.start)).collect();
    let after: Vec<&str> = seen.iter().filter_map(|one| one.text.get(one.end..)).collect();
    let before = common_end(&before);
    let words = before.to_lowercase();
    if OTHER_NUMBERS
        .iter()
        .any(|word| words.split(|c: char| !c.is_alphabetic()).any(|w| w == *word))
    {
        return None;
    }
    let after = common_start(&after);
    Some(format!("{before}{{progress}}{between}{{total}}{after}"))
}

/// Whether text between two numbers joins them, and is not part of a number, a date or an address.
fn is_separator(between: &str) -> bool {
    !between.is_empty()
        && !between.contains(['{', '}'])
        && !["-", ":", ".", ",", " ", "_"].contains(&between)
        && !between.contains(['@'])
}

/// The numbers of a text. A number that is part of a word is none.
fn figures(text: &str) -> Vec<FoundNumber> {
    let mut found: Vec<FoundNumber> = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && bytes[at].is_ascii_digit() {
            at += 1;
        }
        if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
            at += 1;
            while at < bytes.len() && bytes[at].is_ascii_digit() {
                at += 1;
            }
        }
        let joined = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte > 127)
        };
        let is_word = joined(start.checked_sub(1).and_then(|before| bytes.get(before)))
            || joined(bytes.get(at));
        let value = text.get(start..at).and_then(|digits| digits.parse().ok());
        if let Some(value) = value.filter(|_| !is_word) {
            found.push(FoundNumber { start, end: at, value });
        }
    }
    found
}

/// The text that all texts end with, from a word's beginning on and without numbers.
fn common_end(texts: &[&str]) -> String {
    let text: String = common(texts, |text| text.chars().rev()).into_iter().rev().collect();
    let is_whole = texts.iter().all(|whole| whole.chars().count() == text.chars().count());
    let cut = if is_whole || text.starts_with(char::is_whitespace) {
        &*text
    } else {
        // The first word may be cut.
        text.find(char::is_whitespace).map_or("", |at| &text[at..])
    };
    cut.trim_start().to_owned()
}

/// The text that all texts begin with, to a word's end and without numbers.
fn common_start(texts: &[&str]) -> String {
    let common: String = common(texts, |text| text.chars()).into_iter().collect();
    let is_whole = texts.iter().all(|whole| whole.chars().count() == common.chars().count());
    let cut = if is_whole { &*common } else { common.rfind(' ').map_or("", |at| &common[..at]) };
    cut.trim_end().to_owned()
}

/// The first of the `signs` that all texts have, up to a number.
fn common<'t, I: Iterator<Item = char>>(
    texts: &[&'t str],
    signs: impl Fn(&'t str) -> I,
) -> Vec<char> {
    let is_common = |(at, sign): &(usize, char)| {
        let is_same = texts.iter().all(|text| signs(text).nth(*at) == Some(*sign));
        is_same && !sign.is_ascii_digit() && !"{}".contains(*sign)
    };
    let first = texts.first().into_iter().flat_map(|text| signs(text)).take(AROUND_MAX);
    first.enumerate().take_while(is_common).map(|(_, sign)| sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(texts: &[&str], expected: Option<&str>) {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(draft(&texts).as_deref(), expected, "{texts:?}");
    }

    #[test]
    fn two_numbers_side_by_side_make_a_pattern() {
        check(
            &["sector 3 :: 12 scanned", "sector 5 :: 12 scanned", "sector 9 :: 12 scanned"],
            Some("sector {progress} :: {total} scanned"),
        );
        check(
            &["row 1 (12 planned)", "row 2 (12 planned)", "row 9 (12 planned)"],
            Some("row {progress} ({total} planned)"),
        );
        check(&["a.rs: 3|40", "bcd.rs: 4|40", "x.rs: 40|40"], Some("{progress}|{total}"));
    }

    #[test]
    fn numbers_that_are_no_progress_make_none() {
        for texts in [
            // These texts match a known pattern.
            &["step 1 of 3", "step 2 of 3", "step 3 of 3"][..],
            // Too few texts, or no number that rises towards a constant total.
            &["row 1 :: 3", "row 2 :: 3"],
            &["row 1 :: 3", "row 2 :: 4", "row 3 :: 5"],
            &["row 3 :: 9", "row 2 :: 9", "row 1 :: 9"],
            &["row 4 :: 4", "row 4 :: 4", "row 4 :: 4"],
            // Numbers in these texts are not progress: dates, times, addresses, retry counts.
            &["at 10:40 x", "at 11:40 x", "at 12:40 x"],
            &["2025-06 x", "2026-06 x", "2027-06 x"],
            &["attempt 1 -> 5", "attempt 2 -> 5", "attempt 3 -> 5"],
            &["took 1 ms + 90 ms", "took 2 ms + 90 ms", "took 3 ms + 90 ms"],
            &["v1 :: v9", "v2 :: v9", "v3 :: v9"],
            &["nothing"],
        ] {
            check(texts, None);
        }
    }
}
