//! The members of an object by name, and readers of values for several dialects.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::progress::extract::Extract;
use crate::progress::value::{Number, ProgressValue};
use crate::protocol::json::Members;
use crate::protocol::jsonrpc::Key;
use crate::protocol::{json, terminal};

/// Limit of the members of one object that are read. Real progress has about ten.
const MEMBERS_MAX: usize = 256;

/// The members of one object. If a key is repeated, the last member counts.
#[derive(Debug, Default)]
pub struct Fields {
    /// Each member as its decoded key without quotes, and its raw value.
    members: Vec<(Bytes, Bytes)>,
    repeated: bool,
}

impl Fields {
    /// Reads an object. `None` if `text` is not an object, or has more than `MEMBERS_MAX` members.
    pub fn read(text: &Bytes) -> Option<Self> {
        let mut fields = Self { members: Vec::with_capacity(8), repeated: false };
        let mut members = Members::new(text);
        for member in members.by_ref() {
            let key = match json::unescape(&text[member.key])? {
                Cow::Borrowed(inner) => text.slice_ref(inner),
                Cow::Owned(inner) => Bytes::from(inner),
            };
            let value = text.slice(member.value);
            // If keys are equal the last one counts, as in the JSON parsers of JavaScript and Python.
            if let Some((_, last)) = fields.members.iter_mut().find(|(known, _)| *known == key) {
                *last = value;
                fields.repeated = true;
            } else if fields.members.len() < MEMBERS_MAX {
                fields.members.push((key, value));
            } else {
                return None;
            }
        }
        members.end().map(|_| fields)
    }

    /// Reads an object, or an object in a JSON string.
    pub fn read_embedded(text: &Bytes) -> Option<Self> {
        if text.starts_with(b"{") {
            return Self::read(text);
        }
        let words = json::decode_str(text)?;
        Self::read(&Bytes::copy_from_slice(words.trim_start().as_bytes()))
    }

    /// Returns the raw value of a member, which may be `null`. The exact name takes precedence over another spelling
    /// (`is_spelling_of`): servers in Go and C# write `ProgressToken`, servers in Python `progress_token`.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        let exact = self.get_exact(name);
        exact.or_else(|| {
            let mut alike = self.members.iter().filter(|(key, _)| is_spelling_of(key, name));
            alike.next().map(|(_, value)| value)
        })
    }

    /// Returns the raw value of the member with exactly this name, which may be `null`.
    pub(super) fn get_exact(&self, name: &str) -> Option<&Bytes> {
        self.members.iter().find(|(key, _)| *key == *name.as_bytes()).map(|(_, value)| value)
    }

    /// Returns the value of the first of several members that exists and is not null.
    pub fn first(&self, names: &[&str]) -> Option<&Bytes> {
        names.iter().filter_map(|name| self.get(name)).find(|value| ***value != *b"null")
    }

    /// Returns a member that is a string, with its quotes.
    pub fn string(&self, name: &str) -> Option<&Bytes> {
        self.get(name).filter(|value| value.starts_with(b"\""))
    }

    /// Returns the text of the first of several members that is a string.
    pub fn text(&self, names: &[&str]) -> Option<String> {
        let text = names.iter().find_map(|name| self.string(name))?;
        json::decode_str(text).map(Cow::into_owned)
    }

    /// Returns a member that is an object.
    pub fn object(&self, name: &str) -> Option<Self> {
        self.get(name).and_then(Self::read)
    }

    /// Returns the first of several members that exists, if it is a string or an integer.
    pub fn key(&self, names: &[&str]) -> Option<Key> {
        self.first(names).and_then(Key::read)
    }

    /// Whether a member is `true`.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| **value == *b"true")
    }

    /// Whether a key occurs more than once.
    pub fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// Returns all members.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, &Bytes)> {
        self.members.iter().map(|(key, value)| (String::from_utf8_lossy(key), value))
    }

    /// Returns the progress value in these members, under any of the names that servers use.
    pub fn figure(&self) -> Option<ProgressValue> {
        for name in [
            "percent",
            "percentComplete",
            "percentage",
            "percentageComplete",
            "progressPercent",
            "progressPercentage",
        ] {
            if let Some(value) = self.get(name).and_then(number_or_percentage) {
                return Some(value.or_of(whole("100")));
            }
        }
        // Without a total, such a count may count anything: a value needs both. A percentage has its total.
        let pairs = [
            ("processedCount", &["totalCount"][..]),
            ("currentIteration", &["maxIterations"]),
            ("current", TOTALS),
            ("step", TOTALS),
            ("completed", TOTALS),
            ("processed", TOTALS),
            ("itemsCompleted", &["itemsTotal"]),
            ("stepsCompleted", TOTALS),
        ];
        pairs.iter().find_map(|(done, all)| {
            let found = self.get(done).and_then(number_or_percentage)?;
            let total = found.total.or_else(|| self.first(all).and_then(number))?;
            Some(ProgressValue { value: found.value, total: Some(total) })
        })
    }

    /// Returns the value in the member `progress`, of the total in the member `total`. A percentage is of 100, whatever
    /// `total` says.
    pub(crate) fn progress_of_total(&self) -> Option<ProgressValue> {
        let found = self.get("progress").and_then(number_or_percentage)?;
        let total = found.total.or_else(|| self.get("total").and_then(number));
        Some(ProgressValue { value: found.value, total })
    }
}

/// Whether `key` differs from `name` at most in letter case, `_` and `-`.
pub(super) fn is_spelling_of(key: &[u8], name: &str) -> bool {
    fn plain(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
        let letters = text.iter().filter(|byte| !matches!(byte, b'_' | b'-'));
        letters.map(u8::to_ascii_lowercase)
    }
    plain(key).eq(plain(name.as_bytes()))
}

const TOTALS: &[&str] = &["total", "steps", "max", "totalSteps", "total_steps"];

/// Returns a finite number, which may also be written as a string.
pub(crate) fn number(text: &Bytes) -> Option<Number> {
    if let Some(value) = json::number(text) {
        return Some(Number { value, text: text.clone() });
    }
    let words = json::decode_str(text)?;
    let value = json::number(words.trim().as_bytes())?;
    Some(Number { value, text: Bytes::copy_from_slice(words.trim().as_bytes()) })
}

/// Returns a finite number, also if it is written as a string, or a percentage that is written as a string (`"8%"`).
/// Other strings may say anything: `"8 of 9 disks failed"` is not a value.
pub(super) fn number_or_percentage(text: &Bytes) -> Option<ProgressValue> {
    let counted = number(text).map(|value| ProgressValue { value, total: None });
    counted.or_else(|| percentage(&json::decode_str(text)?))
}

/// Returns the value of a text that is a percentage and nothing else: `8%`, `8.5 %`, `8,5%`.
fn percentage(text: &str) -> Option<ProgressValue> {
    let digits = text.trim().strip_suffix('%')?.trim_end();
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    is_plain.then(|| Extract::presets().figure(&format!("{digits}%")))?
}

/// A total that the name of a member implies.
pub(super) fn whole(text: &'static str) -> Number {
    Number { value: text.parse().unwrap_or(1.0), text: Bytes::from_static(text.as_bytes()) }
}

/// Returns a text that a server did not write as a progress message, without terminal control sequences. `None` if it
/// is empty.
pub(super) fn clean(words: &str) -> Option<Bytes> {
    let words = terminal::plain(words);
    (!words.trim().is_empty()).then(|| json::quote(words.trim_end_matches('\n')))
}

/// Whether `text` is one valid JSON value, without NaN, infinities or other errors.
pub(super) fn is_valid(text: &[u8]) -> bool {
    // `1e999` is valid JSON, but exceeds the range of a double.
    let finite = match text.first() {
        Some(b'-' | b'0'..=b'9') => json::number(text).is_some(),
        _ => true,
    };
    finite && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}
