//! Small words for the example servers: JSON in the order of its fields, as the real systems write
//! it and not sorted, things nobody can foresee, and durations.
#![allow(dead_code, reason = "no example needs all of it")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use serde_json::Value;

/// A JSON object that keeps the order of its keys.
pub(crate) type Fields = Vec<(&'static str, Value)>;

/// A `CallToolResult` of a single text, as JSON.
pub(crate) fn text_result(text: &str, is_error: bool) -> String {
    let text = quoted(text);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":{is_error}}}"#)
}

/// A string as JSON.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// An object as JSON without spaces: `{"a":1,"b":[2]}`.
pub(crate) fn compact(fields: &[(&str, Value)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// An object as `JSON.stringify(…, null, 2)` writes it.
pub(crate) fn pretty(fields: &[(&str, Value)]) -> String {
    let field = |(key, value): &(&str, Value)| {
        // A line feed inside a string is escaped, so the ones seen here are all layout.
        format!("  \"{key}\": {}", format!("{value:#}").replace('\n', "\n  "))
    };
    let fields: Vec<_> = fields.iter().map(field).collect();
    format!("{{\n{}\n}}", fields.join(",\n"))
}

/// A number nobody can foresee, to invent tokens from.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A random UUID.
pub(crate) fn uuid() -> String {
    let (high, low) = (random(), random());
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0x0fff);
    let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}

/// A random ULID: 26 characters of Crockford's alphabet.
pub(crate) fn ulid() -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let bits = u128::from(random()) << 64 | u128::from(random());
    (0..26).rev().map(|digit| char::from(ALPHABET[(bits >> (5 * digit) & 31) as usize])).collect()
}

/// Reads `150ms`, `2.5s`, `1m` or `0`, as the command lines of the examples have it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "" if number == "0" => 0.0,
        _ => return Err("a duration is a number and ms, s or m, such as 150ms".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|error| error.to_string())
}

/// `13028` as `13,028`.
pub(crate) fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
