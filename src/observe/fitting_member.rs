//! Looks for the member of a notification that a misspelt pointer to the progress probably meant.

use serde_json::Value;

/// Limit of the bytes of a message that is searched. Notifications of progress are short.
const BYTES_MAX: usize = 64 << 10;

/// Limit of the levels below `params` that are searched.
const LEVELS_MAX: usize = 4;

/// Parts of the names of members whose numbers are no progress.
const OTHER_NAMES: [&str; 6] = ["id", "token", "time", "date", "seq", "version"];

/// Returns a pointer to a member whose value can be progress, and the value: a text such as `3/8` or `45%` before a
/// number. Members at the `known` pointers have another meaning already.
pub(super) fn progress_member(message: &[u8], known: &[&str]) -> Option<(String, Value)> {
    if message.len() > BYTES_MAX {
        return None;
    }
    let message: Value = serde_json::from_slice(message).ok()?;
    let mut found = Vec::new();
    collect(&message["params"], "/params".to_owned(), LEVELS_MAX, &mut found);
    found.retain(|(pointer, _)| !known.contains(&&**pointer));
    let text = found.iter().position(|(_, value)| value.is_string()).unwrap_or_default();
    (text < found.len()).then(|| found.swap_remove(text))
}

/// Adds the members below `value` whose values can be progress.
fn collect(value: &Value, pointer: String, levels: usize, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) if levels > 0 => {
            for (name, value) in members {
                let words = name.to_lowercase();
                let is_other = OTHER_NAMES.iter().any(|other| words.ends_with(other));
                if !is_other || value.is_object() {
                    let part = name.replace('~', "~0").replace('/', "~1");
                    collect(value, format!("{pointer}/{part}"), levels - 1, found);
                }
            }
        }
        Value::Number(_) => found.push((pointer, value.clone())),
        Value::String(text) if is_share(text) => found.push((pointer, value.clone())),
        _ => {}
    }
}

/// Whether a text is a value with its total, such as `3/8`, or a percentage.
fn is_share(text: &str) -> bool {
    let is_number = |text: &str| text.trim().parse::<f64>().is_ok_and(f64::is_finite);
    match (text.split_once('/'), text.trim().strip_suffix('%')) {
        (Some((value, total)), _) => is_number(value) && is_number(total),
        (None, Some(value)) => is_number(value),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_preferred_to_a_number_and_ids_are_no_progress() {
        for (params, expected) in [
            (r#"{"batchId":7,"n":2,"stage":"3/8"}"#, Some("/params/stage")),
            (r#"{"requestId":7,"state":{"a/b":12.5}}"#, Some("/params/state/a~1b")),
            (r#"{"done":"45 %","end":8}"#, Some("/params/done")),
            (r#"{"end":8,"words":"and/or","id":3}"#, None),
            (r#"[1,2]"#, None),
        ] {
            let message = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{params}}}"#);
            let found = progress_member(message.as_bytes(), &["/params/end"]);
            assert_eq!(found.map(|(pointer, _)| pointer).as_deref(), expected, "{params}");
        }
    }
}
