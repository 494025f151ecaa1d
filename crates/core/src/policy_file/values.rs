//! Values of settings as text: the syntax of each kind, and the errors for other values.

use std::time::Duration;

use crate::progress::dialect::{self, Count, Dialect, TextSource};
use crate::progress::policy::ask;
use crate::progress::policy::ask::{JsonObject, LogLevel, TokenType};
use crate::progress::policy::late::RepeatedAfter;
use crate::progress::policy::tasks::TaskOffer;
use crate::progress::{
    Coalesce, HeartbeatValue, Messages, Mode, OnFall, Scale, TokenIs, ValueFrom,
};

/// A setting whose values are a few fixed words.
pub trait Word: Copy + 'static {
    /// All words with their values.
    const WORDS: &'static [(&'static str, Self)];

    /// Finds the value of `word`; the error names the most similar word.
    fn read(word: &str) -> Result<Self, String> {
        let found = Self::WORDS.iter().find(|(known, _)| *known == word);
        found
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| unknown(word, Self::WORDS.iter().map(|(known, _)| *known)))
    }
}

/// Returns the word for a value.
pub fn word<T: Word + PartialEq>(meaning: T) -> &'static str {
    T::WORDS.iter().find(|(_, known)| *known == meaning).map_or("", |(word, _)| word)
}

fn unknown<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = known.collect();
    let expected = names.join(", ");
    match nearest(word, names) {
        Some(near) => format!("{word:?} is not known; did you mean {near:?}?"),
        None => format!("{word:?} is not known; one of {expected} is expected"),
    }
}

/// The similarity of two words that differ by one typing error: one letter too many, missing, wrong or exchanged.
const SLIP: f64 = 0.85;

/// Returns the known word that is most similar, if any is similar.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let scored = known.into_iter().map(|name| (likeness(&word, &name.to_lowercase()), name));
    scored
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// Returns the similarity of two words, from 0 to 1. A single typing error counts the same in a short word and in a
/// long word.
fn likeness(word: &str, name: &str) -> f64 {
    // In a name of two letters, one wrong letter is half of the name, and not a typing error.
    let is_slip = name.len() > 2 && strsim::osa_distance(word, name) == 1;
    strsim::jaro_winkler(word, name).max(if is_slip { SLIP } else { 0.0 })
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("observe", Self::Observe), ("enforce", Self::Enforce), ("full", Self::Full)];
}

impl Word for OnFall {
    const WORDS: &'static [(&'static str, Self)] =
        &[("lift", Self::Lift), ("rebase", Self::Rebase), ("drop", Self::Drop)];
}

impl Word for Coalesce {
    const WORDS: &'static [(&'static str, Self)] =
        &[("repaired", Self::Repaired), ("all", Self::All)];
}

impl Word for HeartbeatValue {
    const WORDS: &'static [(&'static str, Self)] =
        &[("lift", Self::Lift), ("elapsed", Self::Elapsed)];
}

impl Word for ValueFrom {
    const WORDS: &'static [(&'static str, Self)] =
        &[("progress", Self::Progress), ("words", Self::Words)];
}

impl Word for Messages {
    const WORDS: &'static [(&'static str, Self)] =
        &[("replace", Self::Replace), ("append", Self::Append)];
}

impl Word for Count {
    const WORDS: &'static [(&'static str, Self)] =
        &[("percent", Self::Percent), ("unit", Self::Unit), ("raw", Self::Raw)];
}

impl Word for TextSource {
    const WORDS: &'static [(&'static str, Self)] =
        &[("stderr", Self::Stderr), ("stdout", Self::Stdout), ("log", Self::Log)];
}

impl Word for Option<TokenIs> {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("token", Some(TokenIs::Token)),
        ("request_id", Some(TokenIs::RequestId)),
        ("learned", None),
    ];
}

impl Word for TokenType {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("same", Self::Same),
        ("string", Self::String),
        ("integer", Self::Integer),
        ("none", Self::None),
    ];
}

impl Word for TaskOffer {
    const WORDS: &'static [(&'static str, Self)] =
        &[("slow", Self::Slow), ("always", Self::Always), ("never", Self::Never)];
}

impl Word for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &Self::ALL;
}

/// The repairs that can be switched off, by name.
pub const ANSWER_REPAIRS: [&str; 12] = [
    "response-id",
    "error-shape",
    "envelope",
    "bare-result",
    "ping",
    "orphan-answer",
    "missing-id",
    "event-name",
    "unicode",
    "split-line",
    "noise",
    "total",
];

/// The name that means the dialects that are on by default.
pub const DEFAULT_DIALECTS: &str = "defaults";

/// The longest time that a setting accepts. Clocks overflow at a few centuries, which is far beyond.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Reads a time such as `150ms`, `2s`, `1m 30s` or `0`.
pub fn time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let time = humantime::parse_duration(text).map_err(|_| {
        format!("{text:?} is not a time; a number with a unit such as 150ms, 2s or 5m is expected")
    })?;
    if time > TIME_MAX {
        return Err(format!("{text:?} is too long; at most a year is expected"));
    }
    Ok(time)
}

/// Reads a time above zero.
pub fn positive_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("more than 0 is expected".to_owned()),
        time => Ok(time),
    }
}

/// The word for no time limit, or for a feature that is off.
pub const OFF: &str = "off";

/// The word for a value that Milepost finds itself.
pub const AUTO: &str = "auto";

/// The units of sizes, largest first.
const SIZES: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads a number of bytes, such as `64MiB`.
pub fn byte_size(text: &str) -> Result<usize, String> {
    let unit = SIZES.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
    let (digits, size) = unit.unwrap_or((text, 1));
    let number = digits.trim_end().parse::<usize>().ok().and_then(|count| count.checked_mul(size));
    number.ok_or_else(|| {
        format!("{text:?} is not a size; a number with KiB, MiB or GiB such as 64MiB is expected")
    })
}

/// Writes a number of bytes in the largest unit that divides it.
pub fn byte_size_text(bytes: usize) -> String {
    let unit = SIZES.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

/// Reads a time above zero, or `off`.
pub fn time_or_off(text: &str) -> Result<Option<Duration>, String> {
    match text {
        OFF => Ok(None),
        "0" => Err(format!("more than 0 is expected, or {OFF:?}")),
        text if nearest(text, [OFF]).is_some() => {
            Err(format!("{text:?} is not a time; did you mean {OFF:?}?"))
        }
        text => positive_time(text).map(Some),
    }
}

/// Reads a time, `auto` or `off`.
pub fn repeated_after(text: &str) -> Result<RepeatedAfter, String> {
    match text {
        OFF => Ok(RepeatedAfter::Off),
        AUTO => Ok(RepeatedAfter::Auto),
        "0" => Err(format!("more than 0 is expected, or {OFF:?}")),
        text => match nearest(text, [OFF, AUTO]) {
            Some(near) => Err(format!("{text:?} is not a time; did you mean {near:?}?")),
            None => positive_time(text).map(RepeatedAfter::Age),
        },
    }
}

/// `percent`, `unit` or a total.
pub fn scale(text: &str) -> Result<Scale, String> {
    match text {
        "percent" => Ok(Scale::Percent),
        "unit" => Ok(Scale::Unit),
        number => match number.parse::<f64>() {
            Ok(total) if total.is_finite() && total > 0.0 => Ok(Scale::Of(total)),
            _ => Err(format!("{text:?} is not a scale; percent, unit or a total is expected")),
        },
    }
}

/// Reads a log level, or `off`.
pub fn level_or_off(text: &str) -> Result<Option<LogLevel>, String> {
    if text == OFF { Ok(None) } else { LogLevel::read(text).map(Some) }
}

/// Reads the members of an object from JSON text.
pub fn members(text: &str) -> Result<JsonObject, String> {
    serde_json::from_str(text).map_err(|error| format!("a JSON object is expected ({error})"))
}

/// Checks members that are to be added to `_meta`: a member that only the client may set is an error.
pub fn checked_meta(members: JsonObject) -> Result<JsonObject, String> {
    match members.keys().find(|name| ask::is_clients_own(name)) {
        Some(name) => Err(format!("{name:?} is for the client to say, and for nobody else")),
        None => Ok(members),
    }
}

/// Returns the dialects with these names: built-in dialects, or those of a route file.
pub fn dialects<'a>(
    names: impl IntoIterator<Item = &'a str>,
    own: &[Dialect],
) -> Result<Vec<Dialect>, String> {
    let mut found: Vec<Dialect> = Vec::new();
    for name in names {
        let meant: Vec<_> = match name {
            DEFAULT_DIALECTS => dialect::defaults().collect(),
            name => {
                let all = || dialect::ALL.iter().chain(own);
                let found = all().find(|dialect| dialect.name() == name);
                let known = || all().map(Dialect::name).chain([DEFAULT_DIALECTS]);
                vec![found.cloned().ok_or_else(|| unknown(name, known()))?]
            }
        };
        for dialect in meant {
            if !found.iter().any(|known| known.name() == dialect.name()) {
                found.push(dialect);
            }
        }
    }
    Ok(found)
}

/// Reads a switch of a recording.
///
/// # Errors
/// The error names the expected words.
pub fn read_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        OFF => Ok(false),
        _ => Err(format!("{text:?} is neither on nor off")),
    }
}

/// Writes a time for a recording, with all decimals: `1.5ms`, `2s`. [`time`] reads it.
pub fn exact_time(time: Duration) -> String {
    format!("{time:?}").replace('µ', "u")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for micros in [1, 999, 1000, 30_412, 1_500_000, 3_600_000_000] {
            let given = Duration::from_micros(micros);
            let read = time(&exact_time(given)).unwrap();
            assert!(read.abs_diff(given) < Duration::from_nanos(500), "{given:?} {read:?}");
        }
        assert!(time("3").is_err() && time("x ms").is_err() && time("-1s").is_err());
    }
}
