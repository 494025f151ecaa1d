//! A common spelling for requests, and the differences between two values. A mask equals any text.

use std::collections::BTreeSet;
use std::fmt::Write;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::observe::printable::{TextForm, printable};
use crate::progress::policy::masks::MASK;
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp;

/// Maximum number of characters of a value in the description of a difference.
const SHOWN_MAX: usize = 100;

/// Maximum number of differences that are reported for one pair of values.
pub(in crate::lab) const DIFFERENCES_MAX: usize = 100;

/// A difference between two values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lab) struct ValueDifference {
    /// The place, such as `arguments.files[2]`.
    pub(in crate::lab) path: String,
    /// The first value as text; `None` if only the second exists.
    pub(in crate::lab) one: Option<String>,
    /// The second value as text; `None` if only the first exists.
    pub(in crate::lab) other: Option<String>,
}

/// Returns the parameters of a request without `_meta`, which has the token and differs between clients. Empty
/// parameters and empty arguments equal missing ones.
pub(in crate::lab) fn parameters(request: &Bytes) -> Value {
    let message = Message::parse(request.clone());
    let Some(params) = message.params() else { return Value::Object(Map::new()) };
    let mut value = value_of(&params);
    if let Value::Object(members) = &mut value {
        members.remove("_meta");
        let is_empty =
            members.get("arguments").is_some_and(|own| *own == Value::Object(Map::new()));
        if message.method().as_deref() == Some(mcp::TOOLS_CALL) && is_empty {
            members.remove("arguments");
        }
    }
    value
}

/// Returns the value of a JSON text; other text becomes a string.
pub(in crate::lab) fn value_of(text: &[u8]) -> Value {
    let other = || Value::String(String::from_utf8_lossy(text).into_owned());
    serde_json::from_slice(text).unwrap_or_else(|_| other())
}

/// Returns the same text for all equal values: members are sorted, whole numbers have no fraction, and masks have no
/// numbers.
pub(in crate::lab) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(&mut text, value);
    text
}

fn write_canonical(text: &mut String, value: &Value) {
    match value {
        Value::Object(members) => {
            text.push('{');
            let sorted: BTreeSet<&String> = members.keys().collect();
            for (at, name) in sorted.into_iter().enumerate() {
                let comma = if at > 0 { "," } else { "" };
                let _ = write!(text, "{comma}{}:", Value::from(&**name));
                write_canonical(text, &members[name]);
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for (at, value) in values.iter().enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                write_canonical(text, value);
            }
            text.push(']');
        }
        Value::String(words) => drop(write!(text, "{}", Value::from(unnumbered(words)))),
        Value::Number(number) => match number.as_f64() {
            Some(float) if !number.is_i64() && !number.is_u64() && float.fract() == 0.0 => {
                let _ = write!(text, "{float:.0}");
            }
            _ => drop(write!(text, "{number}")),
        },
        Value::Null | Value::Bool(_) => drop(write!(text, "{value}")),
    }
}

/// Returns a text in which masks have no numbers.
pub(in crate::lab) fn unnumbered(line: &str) -> String {
    let mut parts = line.split(MASK);
    let first = parts.next().unwrap_or_default().to_owned();
    parts
        .fold(first, |all, part| all + MASK + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Returns the differences between two values, [`DIFFERENCES_MAX`] at most.
pub(in crate::lab) fn differences(one: &Value, other: &Value) -> Vec<ValueDifference> {
    let mut found = Vec::new();
    compare(&mut String::new(), (Some(one), Some(other)), &mut found);
    found
}

fn compare(
    path: &mut String,
    values: (Option<&Value>, Option<&Value>),
    found: &mut Vec<ValueDifference>,
) {
    if found.len() >= DIFFERENCES_MAX {
        return;
    }
    match values {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let dot = if path.is_empty() { "" } else { "." };
                at(path, &format!("{dot}{name}"), (one.get(name), other.get(name)), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            for index in 0..one.len().max(other.len()) {
                at(path, &format!("[{index}]"), (one.get(index), other.get(index)), found);
            }
        }
        (Some(one), Some(other)) if is_same(one, other) => {}
        (one, other) => {
            let (one, other) = (one.map(shown), other.map(shown));
            found.push(ValueDifference { path: path.clone(), one, other });
        }
    }
}

fn at(
    path: &mut String,
    step: &str,
    values: (Option<&Value>, Option<&Value>),
    found: &mut Vec<ValueDifference>,
) {
    let before = path.len();
    path.push_str(step);
    compare(path, values, found);
    path.truncate(before);
}

/// Whether two values that are not objects or lists are equal. A mask equals any text.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::String(one), Value::String(other)) => {
            one == other || fits_mask(one, other) || fits_mask(other, one)
        }
        // A masked number is a string.
        (Value::String(mask), Value::Number(_)) | (Value::Number(_), Value::String(mask)) => {
            unnumbered(mask) == MASK
        }
        _ => canonical(one) == canonical(other),
    }
}

/// Whether a text may be the text that was masked.
fn fits_mask(masked: &str, text: &str) -> bool {
    let (masked, text) = (unnumbered(masked), unnumbered(text));
    let Some((first, rest)) = masked.split_once(MASK) else { return false };
    let (middle, last) = rest.rsplit_once(MASK).unwrap_or(("", rest));
    let Some(mut left) = text.strip_prefix(first).and_then(|left| left.strip_suffix(last)) else {
        return false;
    };
    middle.split(MASK).all(|part| match left.split_once(part) {
        Some((_, behind)) => {
            left = behind;
            true
        }
        None => false,
    })
}

/// Returns a value as text on one line.
pub(in crate::lab) fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

/// Returns the beginning of a text, on one line.
pub(in crate::lab) fn cut(text: &str) -> String {
    let mut line = printable(text, TextForm::Json);
    if let Some((end, _)) = line.char_indices().nth(SHOWN_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(one: &Value, other: &Value) -> Vec<String> {
        differences(one, other).into_iter().map(|one| one.path).collect()
    }

    #[test]
    fn the_same_value_in_another_spelling_is_no_difference() {
        let (one, other) = (json!({"a": 1.0, "b": ["x"]}), json!({"b": ["x"], "a": 1}));
        assert_eq!(canonical(&one), canonical(&other));
        assert_eq!(paths(&one, &other), [""; 0]);
    }

    #[test]
    fn a_mask_stands_for_any_text() {
        for (one, other, same) in [
            (json!("***1"), json!("correct horse"), true),
            (json!("***2"), json!("***1"), true),
            (json!("Bearer ***1 end"), json!("Bearer abc end"), true),
            (json!("Bearer ***1 end"), json!("Basic abc end"), false),
            (json!("***1"), json!(1234), true),
            (json!("a ***1"), json!(1234), false),
            (json!("a"), json!("b"), false),
        ] {
            assert_eq!(paths(&one, &other).is_empty(), same, "{one} {other}");
        }
    }

    #[test]
    fn differences_have_places() {
        let one = json!({"a": {"b": [1, 2]}, "c": "x"});
        let other = json!({"a": {"b": [1, 3, 4]}, "d": "x"});
        assert_eq!(paths(&one, &other), ["a.b[1]", "a.b[2]", "c", "d"]);
        let many: Value = (0..1000).collect();
        assert_eq!(differences(&many, &json!([])).len(), DIFFERENCES_MAX);
    }

    #[test]
    fn what_names_a_call_is_no_parameter() {
        let request = |params: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            canonical(&parameters(&Bytes::from(text)))
        };
        let plain = request(r#"{"name":"x"}"#);
        assert_eq!(request(r#"{"_meta":{"progressToken":1},"arguments":{},"name":"x"}"#), plain);
        assert_ne!(request(r#"{"arguments":{"a":1},"name":"x"}"#), plain);
    }
}
