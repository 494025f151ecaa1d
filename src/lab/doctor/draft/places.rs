//! The places in messages of one method, with their values.

use serde_json::Value;

use crate::lab::doctor::member_names::plain;

/// Maximum number of places of one message that are examined.
const PLACES_MAX: usize = 200;

/// Levels of a message that are looked into.
const DEPTH_MAX: usize = 12;

/// Elements of a list that are looked at.
const ELEMENTS_MAX: usize = 4;

/// Bytes of a string that is read as JSON.
const EMBEDDED_MAX: usize = 64 << 10;

/// One place, in all messages that have it.
pub(super) struct MemberPlace {
    /// The pointer, as a dialect has it.
    pub(super) pointer: String,
    /// The pointer of the object or list around it.
    pub(super) parent: String,
    /// The name of the member, in small letters without separators.
    pub(super) name: String,
    /// The values, each with the number of its message.
    pub(super) values: Vec<(usize, Value)>,
}

impl MemberPlace {
    /// Whether there are values, and all are so.
    pub(super) fn all(&self, is: impl Fn(&Value) -> bool) -> bool {
        !self.values.is_empty() && self.values.iter().all(|(_, value)| is(value))
    }

    /// Whether every message has the same value here.
    pub(super) fn is_constant(&self) -> bool {
        self.values.windows(2).all(|pair| pair[0].1 == pair[1].1)
    }

    /// Returns the values that are numbers, or strings with a number.
    pub(super) fn numbers(&self) -> Vec<f64> {
        let number = |value: &Value| match value {
            Value::String(text) => {
                text.trim().parse().ok().filter(|number: &f64| number.is_finite())
            }
            other => other.as_f64(),
        };
        self.values.iter().filter_map(|(_, value)| number(value)).collect()
    }

    /// Whether a member around the place is named for progress.
    pub(super) fn is_inside_progress(&self) -> bool {
        let around = self.parent.to_lowercase();
        around.contains("progress") || around.contains("tick")
    }
}

/// Every place in the parameters of these messages, in the order in which the places are seen first.
pub(super) fn places(params: &[&Value]) -> Vec<MemberPlace> {
    let mut found: Vec<MemberPlace> = Vec::new();
    for (message, value) in params.iter().enumerate() {
        let mut leaves = Vec::new();
        look_into(value, ("/params", ""), 0, &mut leaves);
        for leaf in leaves {
            let known = found.iter().position(|place| place.pointer == leaf.pointer);
            if let Some(place) = known.and_then(|at| found.get_mut(at)) {
                place.values.push((message, leaf.value));
            } else if found.len() < PLACES_MAX {
                found.push(MemberPlace {
                    parent: leaf.parent,
                    name: plain(&leaf.name),
                    pointer: leaf.pointer,
                    values: vec![(message, leaf.value)],
                });
            }
        }
    }
    found
}

/// A value that is neither an object nor a list.
struct MemberValue {
    pointer: String,
    parent: String,
    name: String,
    value: Value,
}

fn look_into(value: &Value, (at, parent): (&str, &str), depth: usize, out: &mut Vec<MemberValue>) {
    if depth > DEPTH_MAX || out.len() >= PLACES_MAX {
        return;
    }
    match value {
        Value::Object(members) => {
            // The `#` at the end of a part means the JSON in a string.
            for (name, member) in members.iter().filter(|(name, _)| !name.ends_with('#')) {
                let part = name.replace('~', "~0").replace('/', "~1");
                look_into(member, (&format!("{at}/{part}"), at), depth + 1, out);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().take(ELEMENTS_MAX).enumerate() {
                look_into(element, (&format!("{at}/{index}"), at), depth + 1, out);
            }
        }
        Value::Null => {}
        plain => {
            if let Some(inner) = plain.as_str().and_then(embedded) {
                return look_into(&inner, (&format!("{at}#"), parent), depth + 1, out);
            }
            let name = at.rsplit('/').next().unwrap_or_default().replace("~1", "/");
            let name = name.replace("~0", "~");
            out.push(MemberValue {
                pointer: at.to_owned(),
                parent: parent.to_owned(),
                name,
                value: plain.clone(),
            });
        }
    }
}

/// The object or list that a string holds as JSON.
fn embedded(text: &str) -> Option<Value> {
    let begin = text.trim_start();
    if !begin.starts_with(['{', '[']) || begin.len() > EMBEDDED_MAX {
        return None;
    }
    serde_json::from_str(begin).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_found_in_objects_lists_and_json_in_strings() {
        let inner = json!({ "pct": 3, "deep": [{ "n": "{\"x\":1}" }] }).to_string();
        let params =
            json!({ "a/b": { "c~d": 1 }, "content": [{ "text": inner }], "none": null, "x#": 1 });
        let found = places(&[&params, &json!({ "a/b": { "c~d": 2 } })]);
        let pointers: Vec<_> = found.iter().map(|place| &*place.pointer).collect();
        let expected = [
            "/params/a~1b/c~0d",
            "/params/content/0/text#/deep/0/n#/x",
            "/params/content/0/text#/pct",
        ];
        assert_eq!(pointers, expected);
        assert_eq!(found[0].numbers(), [1.0, 2.0]);
        assert_eq!((&*found[0].name, &*found[0].parent), ("cd", "/params/a~1b"));
        for place in &found {
            assert!(crate::progress::dialect::Pointer::read(&place.pointer).is_ok());
        }
    }
}
